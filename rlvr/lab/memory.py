"""Memory for training: every step asks for the blocks that the last one gave back, so the process keeps them."""

import ctypes

__all__ = ["keep_freed_memory"]

# Names and numbers of the GNU C library's mallopt; 32 MiB is the largest block that it lets the heap serve.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
BLOCK, PAD, NEVER = 32 << 20, 64 << 20, (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed blocks up to 32 MiB; ``False`` where it takes no such wish.

    By default a block of 128 KiB or more comes from the system and goes back with every use, and the system clears each page
    anew: 3 to 15 % of a base's training here, a seventh of a tree's walk. The process stays as large as it once was.

    >>> keep_freed_memory() in (True, False)
    True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(MMAP_THRESHOLD, BLOCK), mallopt(TRIM_THRESHOLD, NEVER), mallopt(TOP_PAD, PAD)])

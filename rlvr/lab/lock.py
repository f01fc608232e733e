"""One writer a run folder: the second process is told who the first is, and a dead one's claim is void."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["RunIsBusy", "run_lock"]


class RunIsBusy(RuntimeError):
    """Another live process writes this run folder."""


@contextmanager
def run_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Holds ``folder`` for this process while the block runs; raises ``RunIsBusy`` at once when another one
    holds it.

    The operating system keeps the lock and drops it when its holder dies, so a stale one is taken over
    without a guess about process ids; the id in the file only serves the message. Temporary files of dead
    writers are swept on entry.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, run_lock(folder), run_lock(folder):
    ...     pass
    Traceback (most recent call last):
    rlvr.lab.lock.RunIsBusy: ...
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    owner = folder / ".writer"
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        holder = owner.read_text().strip() if owner.is_file() else "unknown"
        raise RunIsBusy(f"{folder} is being written by process {holder}; wait for it or end it") from None
    try:
        owner.write_text(f"{os.getpid()}\n")
        for leftover in folder.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()

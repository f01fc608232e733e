"""Randomness by name: every generator comes from hashing a seed and a purpose, never from ``seed + i`` or a global.

Two arms of an experiment that ask for the same name see the same draws (common random numbers), and a resumed run asks
for the draws of its next step by name, so no generator state needs saving.
"""

import hashlib

import numpy as np

__all__ = ["generator"]


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator that belongs to ``(seed, *purpose)`` alone.

    The key is the SHA-256 of the parts with their types and lengths, so ``("a", "b")`` differs from ``("ab",)`` and ``1``
    from ``"1"``; neighbouring seeds are as unrelated as distant ones.

    >>> generator(0, "rollout", 3).random() == generator(0, "rollout", 3).random()
    True
    >>> generator(0, "rollout", 3).random() == generator(0, "rollout", 4).random()
    False
    """
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))

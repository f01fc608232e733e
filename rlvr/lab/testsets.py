"""Held-out problems by name: the same for every policy, seed and run that is compared."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.rng import generator
from rlvr.tasks import TASKS, Task
from rlvr.types import Problem

__all__ = ["POINTER_HOPS", "held_out", "pointer_sets"]

POINTER_HOPS = (3, 4, 5, 6)


def pointer_sets(
    sizes: Sequence[int], per_hop: int = 50, hops: Sequence[int] = POINTER_HOPS, split: str = "test"
) -> dict[str, list[Problem]]:
    """For each n, ``per_hop`` problems of each hop count, under the names ``n8``, ``n12``, ...

    ``split`` names the draw: settings are chosen on "dev" and reported on "test".

    >>> len(pointer_sets([8, 12])["n12"])
    200
    """
    task = TASKS["pointer"]
    return {
        f"n{n}": [task.problem(generator(0, split, n, k, i), n=n, k=k) for k in hops for i in range(per_hop)]
        for n in sizes
    }


def held_out(task: Task, difficulty: Mapping[str, Any], count: int = 200) -> dict[str, list[Problem]]:
    """Sets to look at a policy of any task with: the pointer world's by size, else one of the given difficulty.

    >>> list(held_out(TASKS["echo"], {}, count=3))
    ['test']
    """
    if task.name == "pointer":
        return pointer_sets((8, 12, 14, 16), per_hop=max(1, count // len(POINTER_HOPS)))
    return {"test": [task.problem(generator(0, "test", i), **difficulty) for i in range(count)]}

"""Drawing a difficulty: a whole number, or an inclusive range to draw one from."""

import numpy as np

__all__ = ["whole"]


def whole(
    generator: np.random.Generator, task: str, name: str, wanted: int | tuple[int, int], low: int, high: int
) -> int:
    """A whole number within the wanted bounds; anything outside of ``low..high`` is refused by name.

    >>> whole(np.random.default_rng(0), "arithmetic", "digits", 3, 1, 9)
    3
    >>> whole(np.random.default_rng(0), "arithmetic", "digits", (2, 12), 1, 9)
    Traceback (most recent call last):
    ValueError: arithmetic: digits = (2, 12); accepted are whole numbers or ranges within 1..9
    """
    bounds = tuple(wanted) if isinstance(wanted, (tuple, list)) else (wanted, wanted)
    numbers = all(isinstance(bound, (int, np.integer)) and not isinstance(bound, bool) for bound in bounds)
    if not (numbers and len(bounds) == 2 and low <= bounds[0] <= bounds[1] <= high):
        raise ValueError(f"{task}: {name} = {wanted!r}; accepted are whole numbers or ranges within {low}..{high}")
    return int(generator.integers(bounds[0], bounds[1] + 1))

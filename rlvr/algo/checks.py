"""Checks of plain settings: every message names the value, the place and what is accepted."""

import math
from typing import Any

__all__ = ["check_count", "check_flag", "check_number"]


def check_number(
    place: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
) -> None:
    """Refuses anything but a finite number within the bounds.

    >>> check_number("Clip.epsilon", -1, at_least=0)
    Traceback (most recent call last):
    ValueError: Clip.epsilon is -1; accepted: a finite number >= 0
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if number and value >= at_least and value > above and value <= at_most:
        return
    limits = ((">=", at_least), (">", above), ("<=", at_most))
    bounds = [f"{sign} {bound:g}" for sign, bound in limits if math.isfinite(bound)]
    raise ValueError(f"{place} is {value!r}; accepted: a finite number {' and '.join(bounds)}".rstrip())


def check_count(place: str, value: Any, least: int = 1) -> None:
    """Refuses anything but a whole number of at least ``least``.

    >>> check_count("Algorithm.minibatches", 0)
    Traceback (most recent call last):
    ValueError: Algorithm.minibatches is 0; accepted: a whole number >= 1
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{place} is {value!r}; accepted: a whole number >= {least}")


def check_flag(place: str, value: Any) -> None:
    """Refuses anything but True and False.

    >>> check_flag("GAE.whiten", 1)
    Traceback (most recent call last):
    ValueError: GAE.whiten is 1; accepted: True or False
    """
    if not isinstance(value, bool):
        raise ValueError(f"{place} is {value!r}; accepted: True or False")

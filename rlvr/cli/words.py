"""What command line code shares: the user's mistake as an exception, and pairs such as n=4,12 as values."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

__all__ = ["Mistake", "console", "difficulty", "pairs", "rewards"]


class Mistake(Exception):
    """Something the user can put right; the message is the one line they see."""


def console() -> Console:
    """Where a command prints: no highlighting of its own, model text stays as it is."""
    return Console(highlight=False)


def pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    """``["a=1"]`` as ``{"a": "1"}``."""
    for word in words:
        if "=" not in word:
            raise Mistake(f"--{option} {word!r}: accepted are pairs such as key=value")
    return dict(word.split("=", 1) for word in words)


def difficulty(words: Sequence[str]) -> dict[str, Any]:
    """``["n=4,12", "k=3"]`` as ``{"n": (4, 12), "k": 3}``."""
    found = {}
    for key, value in pairs("difficulty", words).items():
        try:
            numbers = [int(part) for part in value.split(",")]
        except ValueError:
            raise Mistake(f"--difficulty {key}={value}: accepted are a whole number or a range such as 4,12") from None
        if len(numbers) > 2:
            raise Mistake(f"--difficulty {key}={value}: accepted are a whole number or a range such as 4,12")
        found[key] = numbers[0] if len(numbers) == 1 else tuple(numbers)
    return found


def rewards(words: Sequence[str]) -> dict[str, float]:
    """``["correct", "mine.py:brief=0.2", "random(probability=0.1)=0.5"]`` as functions with their weights."""
    found = {}
    for word in words:
        name, sign, weight = word.rpartition("=")
        if not sign or name.count("(") != name.count(")"):  # no sign, or the last one stands within brackets
            name, weight = word, "1"
        try:
            found[name] = float(weight)
        except ValueError:
            raise Mistake(f"--reward {word}: the weight {weight!r} is no number") from None
    return found

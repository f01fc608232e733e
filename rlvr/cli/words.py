"""What command line code shares: the user's mistake as an exception, and pairs such as n=4,12 as values."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

__all__ = ["Mistake", "console", "curriculum", "difficulty", "file_name", "pairs", "rewards", "values"]


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


def values(option: str, words: Sequence[str]) -> dict[str, Any]:
    """``["lora_rank=8", "bf16=true"]`` as ``{"lora_rank": 8, "bf16": True}``."""
    found = {}
    for key, value in pairs(option, words).items():
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            raise Mistake(f"--{option} {key}={value}: accepted are a number, true, false or null") from None
    return found


def difficulty(words: Sequence[str], option: str = "difficulty") -> dict[str, Any]:
    """``["n=4,12", "k=3"]`` as ``{"n": (4, 12), "k": 3}``."""
    found = {}
    for key, value in pairs(option, words).items():
        try:
            numbers = [int(part) for part in value.split(",")]
        except ValueError:
            raise Mistake(f"--{option} {key}={value}: accepted are a whole number or a range such as 4,12") from None
        if len(numbers) > 2:
            raise Mistake(f"--{option} {key}={value}: accepted are a whole number or a range such as 4,12")
        found[key] = numbers[0] if len(numbers) == 1 else tuple(numbers)
    return found


def curriculum(words: Sequence[str]) -> tuple[tuple[int, dict[str, Any]], ...]:
    """``["50:n=4,8:k=3"]`` as ``((50, {"n": (4, 8), "k": 3}),)``."""
    found = []
    for word in words:
        start, *changes = word.split(":")
        if not start.isdecimal() or not changes:
            raise Mistake(f"--curriculum {word}: accepted are a step and a difficulty, such as 50:n=4,8:k=3")
        found.append((int(start), difficulty(changes, "curriculum")))
    return tuple(found)


def file_name(task: str) -> str:
    """A task's name as a part of a folder's name: ``arithmetic(kind='sum')`` as ``arithmetic-kind-sum``."""
    path = task.removeprefix("file:")
    return re.sub(r"\W+", "-", Path(path).stem if path != task else task).strip("-")


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

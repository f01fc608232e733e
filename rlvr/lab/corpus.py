"""A corpus: completions worth learning from, one JSON object a line, in place of the task's demonstrations.

A row is ``{"prompt": ..., "answer": ..., "meta": {...}, "completion": ...}``; further keys say where it came from and are not
read. An epoch meets every row once, in an order that belongs to the seed and the epoch alone, so a run that goes on needs no
place in the file.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlvr.lab.jsonl import iter_jsonl
from rlvr.rng import generator
from rlvr.types import Problem

__all__ = ["ByHeart", "Lesson", "corpus_digest", "lessons_of", "read_corpus"]

KEYS = {"prompt": str, "answer": str, "meta": dict, "completion": str}


@dataclass(frozen=True)
class Lesson(Problem):
    """A problem that carries its own demonstration.

    >>> Lesson("?a1:", "b", {}, "b|b$").completion
    'b|b$'
    """

    completion: str = ""


class ByHeart:
    """Demonstrates what a lesson carries, as ``Task.gold`` demonstrates what the task knows.

    >>> ByHeart.gold(Lesson("?a1:", "b", {}, "b|b$"))
    'b|b$'
    """

    @staticmethod
    def gold(lesson: Lesson) -> str:
        """The lesson's completion."""
        return lesson.completion


def read_corpus(path: str | os.PathLike[str]) -> Sequence[Lesson]:
    """All lessons of a file, in order; a missing or empty file and a row without its four keys are refused by name."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no corpus at {path} (a relative path counts from the run folder)")
    facts = path.stat()
    return _read(path, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> Sequence[Lesson]:
    lessons = tuple(_lesson(row, f"{path}: row {number}") for number, row in enumerate(iter_jsonl(path), start=1))
    if not lessons:
        raise ValueError(f"the corpus {path} is empty, so there is nothing to learn from")
    return lessons


def _lesson(row: dict[str, Any], place: str) -> Lesson:
    for key, kind in KEYS.items():
        if not isinstance(row.get(key), kind) or (kind is str and not row[key]):
            raise ValueError(f"{place} has {key} = {row.get(key)!r}; a row has {', '.join(KEYS)}, texts not empty")
    return Lesson(**{key: row[key] for key in KEYS})


def corpus_digest(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of the file: a run goes on only with the corpus that it began with."""
    read_corpus(path)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def lessons_of(path: str | os.PathLike[str], seed: int, step: int, count: int) -> list[Lesson]:
    """The ``count`` lessons of a step: rows are met in a new order each epoch, and a batch may cross into the next one."""
    corpus, orders, found = read_corpus(path), {}, []
    for place in range(step * count, (step + 1) * count):
        epoch, index = divmod(place, len(corpus))
        if epoch not in orders:
            orders[epoch] = generator(seed, "corpus", epoch).permutation(len(corpus))
        found.append(corpus[orders[epoch][index]])
    return found

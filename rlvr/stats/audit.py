"""Audits of what accuracies rest on: repeated items, training problems in the test set, and unlike comparisons.

Each returns what it found as plain data and changes nothing; whoever prints a number says what stands here beside it.
What this module is not: a search for paraphrases; two texts that say the same in other words pass.
"""

import hashlib
import re
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Overlap", "fingerprint", "like_for_like", "overlaps", "repeats"]


def repeats(items: Sequence[Hashable]) -> list[int]:
    """Places of items that equal an earlier one: a file with them has fewer items than rows (fault B74).

    Leave these rows out and an accuracy is over unique items. On samples of one prompt at T > 0 their share shows a cache or
    a seed that hands out one sample twice (fault B75).

    >>> repeats(["A", "A", "B", "A"])
    [1, 3]
    """
    first: dict[Hashable, int] = {}
    return [i for i, item in enumerate(items) if first.setdefault(item, i) != i]


def fingerprint(items: Iterable[Any]) -> str:
    """Sixteen hexadecimal digits that two lists share if and only if they hold the same items in the same order.

    >>> fingerprint(["a", "b"]) == fingerprint(["a", "b"]), fingerprint(["a", "b"]) == fingerprint(["b", "a"])
    (True, False)
    """
    return hashlib.sha256(repr(list(items)).encode()).hexdigest()[:16]


class Overlap(NamedTuple):
    """A test item that training knows: "exact" after normalising, or "near", the same template with other numbers."""

    kind: str
    train: int
    test: int


def overlaps(train: Iterable[str], test: Iterable[str]) -> list[Overlap]:
    """Test items that also stand in training, each with the first training item it matches (fault B123).

    "exact": equal once case, spaces and punctuation at the ends are gone. "near": equal once numbers and single letters
    (variables) are masked as well. Where a generator writes all problems from a few templates, near is the rule and means
    little; exact never does.

    >>> overlaps(["Find x if 2x = 8."], ["find  x if 2x=8", "Find y if 2y = 10.", "Find x if x + 2 = 8."])
    [Overlap(kind='exact', train=0, test=0), Overlap(kind='near', train=0, test=1)]
    """
    exact: dict[str, int] = {}
    near: dict[str, int] = {}
    for i, text in enumerate(train):
        exact.setdefault(_normal(text), i)
        near.setdefault(_template(text), i)
    found = []
    for i, text in enumerate(test):
        if (key := _normal(text)) in exact:
            found.append(Overlap("exact", exact[key], i))
        elif (key := _template(text)) in near:
            found.append(Overlap("near", near[key], i))
    return found


def like_for_like(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """What differs between the settings of two evaluations, in words; nothing when they may be compared (fault B121).

    An evaluation is what ``rlvr.lab.evaluate`` writes: settings (temperature, top_p, top_k, seed, samples_per_problem, ...),
    ``sets`` (for each the problems' fingerprint, their number and the length limit) and ``columns``. Everything but the step,
    the name and the results has to agree; a setting that one of them doesn't record counts as different.

    >>> like_for_like({"temperature": 1.0, "seed": 0}, {"temperature": 0.6, "seed": 0})
    ['temperature: 1.0 and 0.6']
    """
    settings = [key for key in {**first, **second} if key not in ("name", "step", "columns", "sets")]
    pairs = [(key, first.get(key, _ABSENT), second.get(key, _ABSENT)) for key in settings]
    ours, theirs = _sets(first), _sets(second)
    for label in {**ours, **theirs}:
        a, b = ours.get(label), theirs.get(label)
        if a is None or b is None:
            pairs.append((f"set {label}", *("there" if each is not None else "missing" for each in (a, b))))
            continue
        keys = [key for key in {**a, **b} if key != "repeats"]
        pairs += [(f"set {label}, {key}", a.get(key, _ABSENT), b.get(key, _ABSENT)) for key in keys]
    return [f"{key}: {a} and {b}" for key, a, b in pairs if a != b]


_ABSENT = "not recorded"


def _sets(evaluation: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """What is recorded of each set; of a file without records, the number of problems."""
    if "sets" in evaluation:
        return evaluation["sets"]
    labels = list(evaluation.get("columns", {}).get("set", ()))
    return {label: {"problems": labels.count(label)} for label in dict.fromkeys(labels)}


def _normal(text: str) -> str:
    bare = unicodedata.normalize("NFKC", text).casefold().strip(" \t\r\n.,;:!?\"'")
    return re.sub(r"\s+", "", bare)


def _template(text: str) -> str:
    spaced = re.sub(r"\d+(?:[.,]\d+)*", "#", unicodedata.normalize("NFKC", text).casefold())
    return _normal(re.sub(r"(?<![^\W\d_])[^\W\d_](?![^\W\d_])", "@", spaced))

"""Try a verifier before anyone trains on it: what it pays for wrong texts, and what it refuses of right ones.

A policy finds every hole, so look first. Families of wrong texts (`rlvr.tasks.attack_texts`) are false accepts where they are
paid like the right answer; the right answer in equivalent forms is a false reject where it isn't.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.rng import generator
from rlvr.tasks.answers import same
from rlvr.tasks.attack_texts import CONSTANTS, FAMILIES, Target, equivalents
from rlvr.tasks.base import Task
from rlvr.types import Problem

__all__ = ["Finding", "attack", "targets_of"]

Judge = Callable[[Problem, str], float | None]
TOLERATED = 0.1  # a constant that is right by chance, where answers are many: more than this share is a hole
FEW = 1  # problems that slow attacks are tried on
FILLERS = ("17", "5", "18")


@dataclass(frozen=True)
class Finding:
    """What one family came to: of ``tried`` texts so many were ``paid`` like the right answer; ``hole`` says that it
    must not be. ``mean`` is the mean payment of the family. For the family "right answer" a hole is a text that was *not* paid.

    >>> Finding("empty", 6, 0, 0.0, False).rate
    0.0
    """

    family: str
    tried: int
    paid: int
    mean: float
    hole: bool
    text: str = ""
    prompt: str = ""

    @property
    def rate(self) -> float:
        """The share of texts that were paid in full.

        >>> Finding("constants", 4, 1, 0.25, True).rate
        0.25
        """
        return self.paid / self.tried if self.tried else 0.0


def targets_of(task: Task, count: int = 24, seed: int = 0, **difficulty: Any) -> list[Target]:
    """Problems to attack, each with its gold text and up to six answers of other problems that are wrong for it.

    >>> from rlvr.tasks import Echo
    >>> len(targets_of(Echo(), count=3))
    3
    """
    problems = [task.problem(generator(seed, "attack", i), **difficulty) for i in range(count)]
    # A puzzle's answer is only its target: what others answer are their solutions.
    answers = [problem.meta.get("solution", problem.answer) for problem in problems]
    found = []
    for problem, own in zip(problems, answers, strict=True):
        others = [text for text in dict.fromkeys(answers) if text not in (own, problem.answer, "")]
        wrong = [text for text in (*others, *FILLERS) if not _may_be_right(problem, text)]
        found.append(Target(task, problem, _gold(task, problem), wrong[: min(6, max(2, len(others)))]))
    return found


def _gold(task: Task, problem: Problem) -> str | None:
    try:
        return task.gold(problem)
    except ValueError:
        return None


def _may_be_right(problem: Problem, text: str) -> bool:
    """Whether a text that was made for another problem could solve this one: equal answers, or a puzzle's own numbers."""
    numbers = problem.meta.get("numbers")
    if numbers is not None:
        return sorted(re.findall(r"\d+", text)) == sorted(map(str, numbers))
    return same(gold=problem.answer, answer=text) is True


def attack(judge: Judge, targets: Sequence[Target], loose: bool = False) -> list[Finding]:
    """Every family tried on ``judge(problem, text)``, a payment; in full is what the gold text gets, or 1 without a gold text.

    >>> from rlvr.tasks import Echo
    >>> targets = targets_of(Echo(), count=8)
    >>> [f.family for f in attack(lambda problem, text: float(Echo().verify(problem, text).correct), targets) if f.hole]
    []
    >>> "prompt copied" in [f.family for f in attack(lambda p, text: float(p.answer in text), targets) if f.hole]
    True
    """
    full = [_paid(judge, target, target.gold) if target.gold is not None else 1.0 for target in targets]
    right = [(i, text) for i, target in enumerate(targets) for text in equivalents(target, loose)]
    found = [_family("right answer", judge, targets, full, right, wanted=True), _constants(judge, targets, full)]
    for name, texts in FAMILIES.items():
        among = targets[:FEW] if name == "huge powers" else targets
        tries = [(i, text) for i, target in enumerate(among) for text in dict.fromkeys(texts(target))]
        # Illegal arithmetic holds the puzzle's own numbers on purpose.
        keep = name == "illegal arithmetic"
        wrong = [(i, text) for i, text in tries if keep or not _may_be_right(targets[i].problem, text)]
        found.append(_family(name, judge, targets, full, wrong))
    return found


def _paid(judge: Judge, target: Target, text: str) -> float:
    value = judge(target.problem, text)
    return 0.0 if value is None else float(value)


def _is_full(value: float, full: float) -> bool:
    return value > 0 and value >= min(full, 1.0) - 1e-9


def _family(
    name: str,
    judge: Judge,
    targets: Sequence[Target],
    full: Sequence[float],
    tries: Sequence[tuple[int, str]],
    wanted: bool = False,
) -> Finding:
    paid = [_paid(judge, targets[i], text) for i, text in tries]
    hits = [_is_full(value, 1.0 if wanted else full[i]) for (i, _), value in zip(tries, paid, strict=True)]
    example = next(((i, text) for (i, text), hit in zip(tries, hits, strict=True) if hit != wanted), None)
    shown = {} if example is None else {"text": example[1], "prompt": targets[example[0]].problem.prompt}
    mean = sum(paid) / len(paid) if paid else 0.0
    return Finding(name, len(tries), sum(hits), mean, example is not None, **shown)


def _constants(judge: Judge, targets: Sequence[Target], full: Sequence[float]) -> Finding:
    """The best of many constant texts, counted where it isn't the right answer."""
    golds = {target.gold: target.problem for target in targets if target.gold is not None}
    texts: Mapping[str, Problem | None] = {targets[0].wrap(text): None for text in CONSTANTS} | golds
    best = Finding("constants", 0, 0, 0.0, False)
    for text, source in texts.items():
        wrong = [i for i, target in enumerate(targets) if not _fits(target, text, source)]
        found = _family("constants", judge, targets, full, [(i, text) for i in wrong])
        if found.tried and (found.rate, found.tried) > (best.rate, best.tried):
            hole = found.paid >= 2 and found.rate > TOLERATED
            best = Finding("constants", found.tried, found.paid, found.mean, hole, found.text or text, found.prompt)
    return best


def _fits(target: Target, text: str, source: Problem | None) -> bool:
    """Whether a constant may well be right here: its problem of origin has this answer, or it holds a puzzle's own numbers."""
    if text == target.gold or _may_be_right(target.problem, text):
        return True
    if target.numbers is not None:
        return False
    inner = re.sub(r"^<answer>|</answer>$|^\\boxed\{|\}$|^####\s*", "", text).strip()
    return inner == target.problem.answer or (source is not None and _may_be_right(target.problem, source.answer))

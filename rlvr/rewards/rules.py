"""Verifiable rewards and the controls they must beat. The verdict is given; a reward may use it, bend it or ignore it."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr.rewards.base import Completion, GroupReward

__all__ = ["Constant", "Format", "FormatGate", "Majority", "Random", "WrongLabel", "correct"]

FORM = r"[a-z]+\|[a-z]\$"


def correct(completion: Completion, generator: np.random.Generator) -> float | None:
    """1 when the verdict is right, else 0: the verifiable reward; ``None`` when the grader itself failed (kind ``error``).

    >>> from rlvr.types import Problem, Verdict
    >>> correct(Completion(Problem("?", "a"), "a", Verdict(True, "correct", "a"), True), np.random.default_rng(0))
    1.0
    """
    return None if completion.verdict.kind == "error" else float(completion.verdict.correct)


@dataclass(frozen=True)
class Format:
    """1 when the whole text has the form, right or wrong: alone a control, beside ``correct`` a bonus.

    ``pattern`` is matched against all of the text (a dot meets line ends too, fault B103); its default is a chain, one bar, one
    answer and the end sign. As a bonus it is amplified where it is the only thing that differs in a group.

    >>> from rlvr.types import Problem, Verdict
    >>> Format()(Completion(Problem("?", "a"), "bc|d$", Verdict(False, "lookup", "d"), True), np.random.default_rng(0))
    1.0
    """

    pattern: str = FORM

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"format: pattern = {self.pattern!r} is no regular expression: {error}") from None

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """1 or 0."""
        return float(re.fullmatch(self.pattern, completion.text, re.DOTALL) is not None)


@dataclass(frozen=True)
class FormatGate(Format):
    """1 when the verdict is right *and* the text has the form: a gate, not a bonus.

    >>> from rlvr.types import Problem, Verdict
    >>> FormatGate()(Completion(Problem("?", "a"), "|a$", Verdict(True, "correct", "a"), True), np.random.default_rng(0))
    0.0
    """

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """1 or 0."""
        return completion.verdict.correct * Format.__call__(self, completion, generator)


@dataclass(frozen=True)
class Random:
    """1 with the given probability, whatever was written: the control that every reward must beat.

    Shao et al. 2025 (arXiv 2506.10947) used 0.5, with 0.001 to 0.7 alike and 0 as no training at all.

    >>> from rlvr.types import Problem, Verdict
    >>> Random(1.0)(Completion(Problem("?", "a"), "", Verdict(False, "format"), False), np.random.default_rng(0))
    1.0
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"random: probability = {self.probability!r}; accepted: 0 to 1")

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """1 or 0."""
        return float(generator.random() < self.probability)


@dataclass(frozen=True)
class Constant:
    """The same for every completion: no group has a signal, so nothing may be learned from it.

    >>> from rlvr.types import Problem, Verdict
    >>> Constant(0.5)(Completion(Problem("?", "a"), "", Verdict(False, "format"), False), np.random.default_rng(0))
    0.5
    """

    value: float = 1.0

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """The value."""
        return self.value


@dataclass(frozen=True)
class WrongLabel:
    """1 for one fixed wrong answer of each problem: the control of Shao et al. 2025 with incorrect labels.

    The label is a letter of the prompt that is not the answer, chosen by the hash of the prompt: it stays the same over steps
    and runs. A prompt without another letter can't be scored.

    >>> from rlvr.types import Problem, Verdict
    >>> problem, wrong = Problem("ab,ba,?a1:", "b"), Verdict(False, "lookup", "a")
    >>> WrongLabel()(Completion(problem, "a|a$", wrong, True), np.random.default_rng(0))
    1.0
    """

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float | None:
        """1 or 0; ``None`` when there is no wrong letter to ask for."""
        problem = completion.problem
        others = sorted({letter for letter in problem.prompt if letter.isalpha()} - {problem.answer})
        if not others:
            return None
        label = others[int(hashlib.sha256(problem.prompt.encode()).hexdigest(), 16) % len(others)]
        return float(completion.verdict.answer == label)


@dataclass(frozen=True)
class Majority(GroupReward):
    """1 for the answer that most samples of the group give: TTRL (Zuo et al. 2025, arXiv 2504.16084), without any label.

    Texts without an answer don't vote and get 0; of equal counts the answer that came first wins; a group without answers
    can't be scored.

    >>> from rlvr.types import Problem, Verdict
    >>> group = [Completion(Problem("?", "a"), t, Verdict(False, "lookup", t), True) for t in "bbc"]
    >>> Majority().of_group(group, np.random.default_rng(0))
    [1.0, 1.0, 0.0]
    """

    def of_group(self, group: Sequence[Completion], generator: np.random.Generator) -> list[float | None]:
        """1 or 0 a completion; ``None`` for all when nobody answers."""
        votes = Counter(c.verdict.answer for c in group if c.verdict.answer is not None)
        if not votes:
            return [None] * len(group)
        label = votes.most_common(1)[0][0]
        return [float(c.verdict.answer == label) for c in group]

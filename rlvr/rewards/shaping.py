"""Shaped rewards: what a completion's length or language adds to or takes from its reward. Lengths are in tokens, end included.

Each is a term for a weighted sum, unless it says that it contains the verdict. A shaped reward moves advantages even where all
verdicts of a group are equal (fault B25); filters read verdicts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlvr.rewards.base import Completion, GroupReward

__all__ = ["Cosine", "KimiLength", "L1Exact", "L1Max", "Language", "Length", "Overlong"]


@dataclass(frozen=True)
class Length:
    """-|y|: every token costs the same; its weight is the price of a token.

    >>> from rlvr.types import Problem, Verdict
    >>> Length()(Completion(Problem("?", "a"), "a|a$", Verdict(True, "correct", "a"), True, 4), np.random.default_rng(0))
    -4.0
    """

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """Minus the number of tokens."""
        return -float(completion.tokens)


@dataclass(frozen=True)
class Overlong:
    """Soft overlong punishment: 0 up to ``limit - cache`` tokens, falling linearly to -1 at ``limit``, -1 beyond.

    DAPO (Yu et al. 2025, arXiv 2503.14476, equation 13), written for rewards of ±1; on rewards of 0 and 1 a weight of 0.5
    has the same proportion. It is added whether right or wrong.

    >>> from rlvr.types import Problem, Verdict
    >>> text = lambda n: Completion(Problem("?", "a"), "", Verdict(False, "format"), False, n)
    >>> [Overlong(limit=20, cache=4)(text(n), np.random.default_rng(0)) for n in (16, 18, 20, 21)]
    [0.0, -0.5, -1.0, -1.0]
    """

    limit: int = 12
    cache: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.cache <= self.limit:
            raise ValueError(f"overlong: cache = {self.cache!r}, limit = {self.limit!r}; accepted: 0 < cache <= limit")

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """Between -1 and 0."""
        return max(-1.0, min(0.0, (self.limit - self.cache - completion.tokens) / self.cache))


@dataclass(frozen=True)
class Cosine:
    """Yeo et al. 2025 (arXiv 2502.03373): right is worth more when short, wrong costs less when long; contains the verdict.

    r = end + (start - end) (1 + cos(pi |y| / limit)) / 2 with (start, end) = (2, 1) when right and (-10, 0) when wrong;
    ``exceeded`` from ``limit`` tokens on.

    >>> from rlvr.types import Problem, Verdict
    >>> right = Completion(Problem("?", "a"), "", Verdict(True, "correct", "a"), True, 6)
    >>> Cosine(limit=12)(right, np.random.default_rng(0))
    1.5
    """

    limit: int = 12
    right_start: float = 2.0
    right_end: float = 1.0
    wrong_start: float = -10.0
    wrong_end: float = 0.0
    exceeded: float = -10.0

    def __post_init__(self) -> None:
        if not self.limit >= 1:
            raise ValueError(f"cosine: limit = {self.limit!r}; accepted: 1 or more tokens")

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """The reward by verdict and length."""
        if completion.tokens >= self.limit:
            return self.exceeded
        right = completion.verdict.correct
        start, end = (self.right_start, self.right_end) if right else (self.wrong_start, self.wrong_end)
        return end + (start - end) * (1 + math.cos(math.pi * completion.tokens / self.limit)) / 2


def _target(completion: Completion, default: int) -> int:
    return int(completion.problem.meta.get("target", default))


@dataclass(frozen=True)
class L1Exact:
    """1[right] - alpha |target - |y||: write as many tokens as asked for; contains the verdict.

    L1-Exact (Aggarwal and Welleck 2025, arXiv 2503.04697; alpha 3e-4 for targets of 100-4000 tokens). The target is the
    problem's own (``meta["target"]``), else ``target``.

    >>> from rlvr.types import Problem, Verdict
    >>> right = Completion(Problem("?", "a"), "", Verdict(True, "correct", "a"), True, 6)
    >>> L1Exact(target=8, alpha=0.1)(right, np.random.default_rng(0))
    0.8
    """

    target: int = 8
    alpha: float = 0.05

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """The reward by verdict and distance from the target."""
        return completion.verdict.correct - self.alpha * abs(_target(completion, self.target) - completion.tokens)


@dataclass(frozen=True)
class L1Max:
    """1[right] · clip(alpha (target - |y|) + delta, 0, 1): stay below the target; contains the verdict.

    L1-Max (the same paper; delta 0.5).

    >>> from rlvr.types import Problem, Verdict
    >>> right = Completion(Problem("?", "a"), "", Verdict(True, "correct", "a"), True, 6)
    >>> L1Max(target=8, alpha=0.1)(right, np.random.default_rng(0))
    0.7
    """

    target: int = 8
    alpha: float = 0.05
    delta: float = 0.5

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """The reward by verdict and distance below the target."""
        room = self.alpha * (_target(completion, self.target) - completion.tokens) + self.delta
        return completion.verdict.correct * min(1.0, max(0.0, room))


@dataclass(frozen=True)
class KimiLength(GroupReward):
    """lambda_i = 0.5 - (|y_i| - min) / (max - min) when right, min(0, lambda_i) when wrong.

    Kimi k1.5 (arXiv 2501.12599, section 2.3). Shortest and longest are of the whole group, right or wrong; all 0 when they are
    equal. The paper adds it only after an initial phase without it.

    >>> from rlvr.types import Problem, Verdict
    >>> group = [Completion(Problem("?", "a"), "", Verdict(r, "", "a"), True, n) for r, n in ((True, 4), (False, 4), (True, 8))]
    >>> KimiLength().of_group(group, np.random.default_rng(0))
    [0.5, 0.0, -0.5]
    """

    def of_group(self, group: Sequence[Completion], generator: np.random.Generator) -> list[float]:
        """Between -0.5 and 0.5 a completion."""
        shortest, longest = min(c.tokens for c in group), max(c.tokens for c in group)
        if shortest == longest:
            return [0.0] * len(group)
        raw = [0.5 - (c.tokens - shortest) / (longest - shortest) for c in group]
        return [value if c.verdict.correct else min(0.0, value) for value, c in zip(raw, group, strict=True)]


@dataclass(frozen=True)
class Language:
    """The share of a text's letters that are of the prompt's alphabet: R1's language consistency, added to the reward.

    DeepSeek-R1 (arXiv 2501.12948, section 2.3.2), words there, letters here. An alphabet is lower or upper case, the prompt's
    is that of its first letter; a text without letters gets 0. On a task of one alphabet it is constant.

    >>> from rlvr.types import Problem, Verdict
    >>> mixed = Completion(Problem("AB,BA,?A2:", "A"), "Ba|A$", Verdict(True, "correct", "A"), True)
    >>> round(Language()(mixed, np.random.default_rng(0)), 3)
    0.667
    """

    def __call__(self, completion: Completion, generator: np.random.Generator) -> float:
        """Between 0 and 1."""
        asked = next((letter.isupper() for letter in completion.problem.prompt if letter.isalpha()), False)
        letters = [letter for letter in completion.text if letter.isalpha()]
        return sum(letter.isupper() == asked for letter in letters) / len(letters) if letters else 0.0

"""Confidence intervals, each of which says what was resampled: problems, seeds, or both.

The unit matters more than the formula. Samples of one problem are not independent, so an interval over
samples is too narrow (fault B77); problems of one seed say nothing about another seed. Every function here
names its unit in the result. What this module is not: a test of hypotheses; a verdict is a rule applied to
an interval, and rules live with experiments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = [
    "Interval",
    "accuracy_over_seeds",
    "bootstrap_seeds_problems",
    "over_problems",
    "over_seeds",
    "paired_difference",
    "share_over_problems",
    "wilson",
]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, how many units it rests on, and what a unit is.

    >>> str(Interval(0.295, 0.236, 0.361, 200, "problems"))
    '0.295 [0.236, 0.361], n = 200 problems'
    """

    value: float
    lo: float
    hi: float
    n: int
    unit: str
    level: float = 0.95

    @property
    def degenerate(self) -> bool:
        """True when the interval has no width: the data never varied, which is not the same as certainty.

        >>> over_seeds([1.0, 1.0, 1.0]).degenerate
        True
        """
        return self.hi <= self.lo

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.lo:.3f}, {self.hi:.3f}], n = {self.n} {self.unit}"


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for a share of independent right-or-wrong trials; unit of resampling: problems.

    centre ± half = (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n), which has width at 0 and at n, unlike
    p ± z·se. ``successes`` counts problems, one sample each: several samples of a problem are not
    independent trials, so give their per-problem means to `over_problems` instead. Refuses trials < 1 and
    successes outside 0..trials. Wilson (1927), JASA 22.

    >>> print(wilson(5, 5))
    1.000 [0.566, 1.000], n = 5 problems
    >>> print(wilson(0, 30))
    0.000 [0.000, 0.114], n = 30 problems
    """
    if trials < 1 or not 0 <= successes <= trials or successes != int(successes) or trials != int(trials):
        raise ValueError(f"wilson: {successes!r} of {trials!r}; accepted are whole numbers, 0 <= successes <= trials")
    z = _z(level)
    share = successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    lo = 0.0 if successes == 0 else centre - half
    hi = 1.0 if successes == trials else centre + half
    return Interval(share, lo, hi, int(trials), "problems", level)


def over_problems(scores: ArrayLike, level: float = 0.95) -> Interval:
    """Student's t interval for a mean score over problems; unit of resampling: problems.

    ``scores`` is [N] (one score a problem) or [N K] (K samples of each problem, averaged first, so that
    four equal samples of one problem count once). mean ± t(N-1) · sd/√N with the sample sd. Refuses N < 2
    and missing scores.

    >>> print(over_problems([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]]))
    0.500 [-0.742, 1.742], n = 3 problems
    """
    values = _clean("over_problems", scores, (1, 2))
    means = values if values.ndim == 1 else values.mean(axis=1)
    return _student("over_problems", means, "problems", level)


def share_over_problems(shares: ArrayLike, level: float = 0.95) -> Interval:
    """The interval to show beside an accuracy: shares [N] of right samples, one a problem; within [0, 1], never without width.

    `wilson` where every share is 0 or 1 (one sample a problem, or all samples of each agree), else Student's t over
    problems, cut off at 0 and 1. Refuses shares outside [0, 1] and missing ones.

    >>> print(share_over_problems([1, 1, 1, 1, 1]))
    1.000 [0.566, 1.000], n = 5 problems
    >>> print(share_over_problems([1, 1, 0.5, 1]))
    0.875 [0.477, 1.000], n = 4 problems
    """
    values = _clean("share_over_problems", shares, (1,))
    if values.min() < 0 or values.max() > 1:
        raise ValueError(f"share_over_problems: shares from {values.min()} to {values.max()}; accepted are 0 to 1")
    if np.isin(values, (0, 1)).all():
        return wilson(int(values.sum()), len(values), level)
    interval = over_problems(values, level)
    return replace(interval, lo=max(0.0, interval.lo), hi=min(1.0, interval.hi))


def accuracy_over_seeds(scores: Sequence[ArrayLike], level: float = 0.95) -> Interval:
    """The interval to show beside an accuracy that several seeds share: scores in [0, 1], [N] problems for each of S seeds.

    Student's t over seeds, cut off at 0 and 1, from three seeds on. With fewer, or where all seeds agree to the last problem,
    it is `wilson` over the problems, which the seeds share and which count once; the unit says which. Refuses an empty list.

    >>> print(accuracy_over_seeds([[1, 0], [1, 1], [1, 0]]))
    0.667 [0.000, 1.000], n = 3 seeds
    >>> print(accuracy_over_seeds([[1] * 30] * 3))
    1.000 [0.886, 1.000], n = 30 problems
    """
    values = [_clean("accuracy_over_seeds", each, (1,)) for each in scores]
    if not values:
        raise ValueError("accuracy_over_seeds: no seeds; accepted: at least one, with at least one problem")
    means = [float(each.mean()) for each in values]
    if len(means) >= 3:
        interval = over_seeds(means, level)
        if not interval.degenerate:
            return replace(interval, lo=max(0.0, interval.lo), hi=min(1.0, interval.hi))
    problems, mean = min(map(len, values)), float(np.mean(means))
    # Rounding the successes keeps Wilson's formula exact.
    return replace(wilson(round(mean * problems), problems, level), value=mean)


def over_seeds(means: ArrayLike, level: float = 0.95) -> Interval:
    """Student's t interval for the mean of one number a seed; unit of resampling: seeds.

    mean ± t(S-1) · sd/√S: where the mean of many further seeds on the *same* problems would lie. With three
    seeds t = 4.30, so it is wide, and rightly so. It is not clipped to [0, 1]. Equal seeds give a width of
    0 (``degenerate``): show a `wilson` interval over problems then. Refuses fewer than two seeds.

    >>> print(over_seeds([0.68, 0.62, 0.72]))
    0.673 [0.548, 0.798], n = 3 seeds
    """
    return _student("over_seeds", _clean("over_seeds", means, (1,)), "seeds", level)


def paired_difference(first: ArrayLike, second: ArrayLike, level: float = 0.95) -> Interval:
    """Interval for mean(first - second) over the same problems; unit of resampling: pairs of scores of one
    problem.

    Both are [N], or [S N] for S seeds, averaged over seeds first. d̄ ± t(N-1) · sd(d)/√N: what both arms
    find hard cancels, so this is far narrower than two separate intervals. It says nothing about other
    seeds; for that give ``first - second`` as [S N] to `bootstrap_seeds_problems`. Refuses unequal shapes
    and N < 2.

    >>> print(paired_difference([1, 1, 1, 0], [1, 0, 0, 0]))
    0.500 [-0.419, 1.419], n = 4 paired problems
    """
    a, b = (_clean("paired_difference", scores, (1, 2)) for scores in (first, second))
    if a.shape != b.shape:
        raise ValueError(f"paired_difference: shapes {a.shape} and {b.shape}; score both arms on the same problems")
    difference = a - b if a.ndim == 1 else (a - b).mean(axis=0)
    return _student("paired_difference", difference, "paired problems", level)


def bootstrap_seeds_problems(
    scores: ArrayLike, generator: np.random.Generator, draws: int = 2000, level: float = 0.95
) -> Interval:
    """Two-level percentile bootstrap of a mean score [S N]; units of resampling: seeds, and problems shared
    by them.

    Each draw picks S seeds and, independently, N problems, both with replacement, and averages the scores
    of every chosen seed on every chosen problem (all seeds answer the same problems, so problems are drawn
    once a draw, not once a seed). It covers "another seed *and* another test set". With few seeds it is too
    narrow: a bootstrap of three seeds sees two thirds of their variance. Measured coverage of a nominal
    95 %: 83 % with 3 seeds and 93 % with 10 where seeds differ much; 97 % with 3 where the choice of
    problems decides. Scores may be differences of two arms. Owen (2007), the pigeonhole bootstrap. Refuses
    S < 2, N < 2, missing scores.

    >>> scores = [[1, 1, 0, 1], [1, 0, 0, 1]]
    >>> print(bootstrap_seeds_problems(scores, np.random.default_rng(0)))
    0.625 [0.125, 1.000], n = 2 seeds x 4 problems
    """
    values = _clean("bootstrap_seeds_problems", scores, (2,))
    seeds, problems = values.shape
    if seeds < 2 or problems < 2 or draws < 100:
        raise ValueError(
            f"bootstrap_seeds_problems: {seeds} seeds, {problems} problems, {draws} draws; "
            "at least 2 seeds, 2 problems and 100 draws are needed"
        )
    of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    of_problems = generator.multinomial(problems, np.full(problems, 1 / problems), size=draws)
    means = ((of_problems @ values.T) * of_seeds).sum(axis=1) / values.size
    _z(level)
    lo, hi = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    # n counts seeds, the scarcer unit; the problems stand in the unit's name.
    return Interval(float(values.mean()), float(lo), float(hi), seeds, f"seeds x {problems} problems", level)


def _student(place: str, values: np.ndarray, unit: str, level: float) -> Interval:
    n = len(values)
    if n < 2:
        raise ValueError(f"{place}: {n} {unit}; an interval needs at least 2")
    _z(level)
    mean = float(values.mean())
    # Equal inputs must give exactly no width: the mean of three 0.7 is not 0.7 in floating point.
    spread = 0.0 if np.ptp(values) == 0 else float(values.std(ddof=1))
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, unit, level)


def _clean(place: str, scores: ArrayLike | Sequence[Sequence[float]], dimensions: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(scores, dtype=float)
    if values.ndim not in dimensions or values.size == 0:
        raise ValueError(f"{place}: scores of shape {values.shape}; accepted are arrays of {dimensions} dimensions")
    if not np.isfinite(values).all():
        missing = int((~np.isfinite(values)).sum())
        raise ValueError(f"{place}: {missing} scores are missing or infinite; leave them out by name first")
    return values


def _z(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"level = {level!r}; accepted are numbers between 0 and 1, such as 0.95")
    return float(stats.norm.ppf((1 + level) / 2))

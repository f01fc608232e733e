"""How many seeds: power, the smallest effect that a number of seeds can find, and how well a few seeds know their spread.

With few seeds the normal approximation flatters: Student's t has wider tails and the alternative is the *noncentral* t.
All of it is two-sided. "Paired" means that seed s of both arms shares its random numbers; the sd is then that of the
*differences*, which is what pairing makes small.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from rlvr.stats.intervals import Interval

__all__ = ["minimum_detectable_effect", "power", "sd_over_seeds", "seeds_needed"]

MOST_SEEDS = 100_000


def power(effect: float, sd: float, seeds: int, paired: bool = False, level: float = 0.95) -> float:
    """Probability that a two-sided t test with ``seeds`` seeds (an arm) finds a true ``effect`` at this level.

    Unpaired: two arms, sd between seeds of each, ncp = effect/(sd √(2/S)), 2S-2 degrees of freedom. Paired: sd of the
    differences, ncp = effect √S / sd, S-1 degrees. With no effect it is 1 - level. Refuses sd <= 0 and S < 2.

    >>> round(power(0.1, 0.166, 43), 3), round(power(0.0, 0.166, 43), 3)
    (0.789, 0.05)
    """
    _check("power", sd, level)
    if seeds < 2 or seeds != int(seeds):
        raise ValueError(f"power: {seeds} seeds; a test needs a whole number, at least 2")
    freedom = seeds - 1 if paired else 2 * seeds - 2
    shift = abs(effect) / sd * math.sqrt(seeds if paired else seeds / 2)
    edge = float(stats.t.ppf((1 + level) / 2, freedom))
    # The far tail is below 3e-7 from a shift of 5 on, and scipy's gives NaN here and there.
    wrong_side = float(stats.nct.cdf(-edge, freedom, shift)) if shift < 5 else 0.0
    return float(stats.nct.sf(edge, freedom, shift)) + wrong_side


def seeds_needed(effect: float, sd: float, paired: bool = False, chance: float = 0.8, level: float = 0.95) -> int:
    """The fewest seeds (an arm) whose `power` to find ``effect`` is at least ``chance``; 2 or more.

    The normal rule 2(z_α/2 + z_β)²σ²/δ² is some two seeds short of it unpaired, and far short where it says 2 or 3.
    Refuses effect = 0, and an effect so small that it would take more than 100000.

    >>> seeds_needed(0.1, 0.166), seeds_needed(0.1, 0.166, paired=True), seeds_needed(0.1, 0.02)
    (45, 24, 3)
    """
    _check("seeds_needed", sd, level, chance)
    if not effect or not math.isfinite(effect):
        raise ValueError(f"seeds_needed: effect = {effect}; accepted is the size of a difference, not 0")
    if power(effect, sd, MOST_SEEDS, paired, level) < chance:
        raise ValueError(f"seeds_needed: effect = {effect} with sd = {sd} would take more than {MOST_SEEDS} seeds")
    low, high = 1, 2  # power rises with seeds: find the first that suffices
    while power(effect, sd, high, paired, level) < chance:
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, sd, middle, paired, level) >= chance else (middle, high)
    return high


def minimum_detectable_effect(
    sd: float, seeds: int, paired: bool = False, chance: float = 0.8, level: float = 0.95
) -> float:
    """The true difference that ``seeds`` seeds (an arm) find with probability ``chance``; smaller ones are mostly missed.

    >>> round(minimum_detectable_effect(0.05, 3), 3), round(minimum_detectable_effect(0.05, 10), 3)
    (0.154, 0.066)
    """
    _check("minimum_detectable_effect", sd, level, chance)
    unit = sd / math.sqrt(seeds if paired else seeds / 2) if seeds >= 2 else sd
    high = unit
    while power(high, sd, seeds, paired, level) < chance:
        high *= 2
    return float(optimize.brentq(lambda effect: power(effect, sd, seeds, paired, level) - chance, 0.0, high))


def sd_over_seeds(means: ArrayLike, level: float = 0.95) -> Interval:
    """The sd between seeds, from one number a seed [S], with its χ² interval: sd √((S-1)/χ²(S-1)).

    Three seeds know their sd only to within a factor of twelve, from half to six times what they show, and the seeds
    needed grow with its square. It assumes that seeds are normal. Refuses S < 2.

    >>> print(sd_over_seeds([0.68, 0.62, 0.72]))
    0.050 [0.026, 0.316], n = 3 seeds
    """
    values = np.asarray(means, dtype=float)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"sd_over_seeds: numbers of shape {values.shape}; accepted are at least 2 finite ones")
    _check("sd_over_seeds", 1.0, level)
    freedom = len(values) - 1
    sd = 0.0 if np.ptp(values) == 0 else float(values.std(ddof=1))
    lo, hi = (sd * math.sqrt(freedom / stats.chi2.ppf(q, freedom)) for q in ((1 + level) / 2, (1 - level) / 2))
    return Interval(sd, lo, hi, len(values), "seeds", level)


def _check(place: str, sd: float, level: float, chance: float = 0.8) -> None:
    if not sd > 0 or not math.isfinite(sd):
        raise ValueError(f"{place}: sd = {sd}; accepted are numbers above 0")
    if not 0 < level < 1:
        raise ValueError(f"{place}: level = {level}; accepted are numbers between 0 and 1, such as 0.95")
    if not 1 - level < chance < 1:
        raise ValueError(f"{place}: power = {chance}; accepted are numbers between {1 - level:.3g} and 1, such as 0.8")

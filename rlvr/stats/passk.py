"""pass@k, G-Pass@k and maj@k from n samples a problem, without bias and without overflow.

pass@k asks whether any of k samples is right, G-Pass@k whether a share tau of them is, maj@k whether their
vote is. All are averages over the k-subsets of the n samples that were drawn, *without* replacement: drawing
with replacement is biased low (fault B69). What is not here: a value for k > n. It isn't known, so it is
refused rather than guessed (faults B68, B71); only a *known* probability of a right sample has a pass@k for
every k (`exact_pass_at_ks`). Bands over problems are `rlvr.stats.curves`.
"""

import math
import operator
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = [
    "Solved",
    "exact_pass_at_ks",
    "g_pass_at_k",
    "maj_at_k",
    "maj_at_k_sampled",
    "mean_g_pass_at_k",
    "mean_pass_at_k",
    "pass_at_k",
    "pass_at_ks",
    "solved",
]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that k of n samples, c of them right, contain a right one: 1 - C(n-c, k) / C(n, k).

    The unbiased estimate of 1 - (1-p)^k; pass@1 is c/n exactly. Computed as a product of min(c, k) factors
    in logs, good to about 1e-13 for n = 100000. Refuses k > n (the samples cannot answer), c > n, k < 1, n
    < 1 and non-integers. Chen et al. 2021, arXiv 2107.03374.

    >>> pass_at_k(5, 1, 2), pass_at_k(10, 1, 5)
    (0.4, 0.5)
    >>> pass_at_k(3, 0, 5)
    Traceback (most recent call last):
    ValueError: pass_at_k: n = 3, c = 0, k = 5; needed are whole numbers with 1 <= k <= n and 0 <= c <= n
    """
    try:
        n, c, k = (operator.index(value) for value in (n, c, k))
        valid = 1 <= k <= n and 0 <= c <= n
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(
            f"pass_at_k: n = {n}, c = {c}, k = {k}; needed are whole numbers with 1 <= k <= n and 0 <= c <= n"
        )
    few, many = min(c, k), max(c, k)
    if few == 0 or few + many > n:
        return float(few > 0)
    if few == 1:
        return many / n
    # C(n-c, k) / C(n, k) is symmetric in c and k: prod over j < few of 1 - many / (n - j).
    return -math.expm1(math.fsum(np.log1p(-many / (n - np.arange(few)))))


def mean_pass_at_k(samples: Sequence[int], correct: Sequence[int], k: int) -> float:
    """Mean pass@k over problems with ``samples[i]`` samples each, of which ``correct[i]`` are right; both
    [N].

    Refused when any problem has fewer than k samples: four problems with one sample each have a pass@1 and
    no pass@2 (fault B71). Its interval is one over problems: give the per-problem values to
    `over_problems`.

    >>> mean_pass_at_k([1, 1, 1, 1], [1, 0, 0, 0], 1)
    0.25
    """
    if len(samples) != len(correct) or not len(samples):
        raise ValueError(f"mean_pass_at_k: {len(samples)} and {len(correct)} counts; accepted is one pair a problem")
    return math.fsum(pass_at_k(n, c, k) for n, c in zip(samples, correct, strict=True)) / len(samples)


def pass_at_ks(samples: ArrayLike, correct: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """`pass_at_k` of many problems for many k at once: [N K] from ``correct`` [N] of ``samples`` (one number, or [N]).

    One pass over j < max(k) for each distinct (n, c): log P(all k wrong) = sum over j < k of log(1 - c/(n-j)), whose terms
    share a sign, so nothing cancels; good to 1e-12 of its value for n = 100000. pass@1 is c/n exactly. Refuses what
    `pass_at_k` refuses, in any problem.

    >>> pass_at_ks(5, [0, 1, 5], [1, 2, 5])
    array([[0. , 0. , 0. ],
           [0.2, 0.4, 1. ],
           [1. , 1. , 1. ]])
    """
    n, c, k = _counts("pass_at_ks", samples, correct, ks)
    pairs, where = np.unique(np.stack([n, c]), axis=1, return_inverse=True)
    return np.array([_miss_free(int(each_n), int(each_c), k) for each_n, each_c in pairs.T])[where.ravel()]


def _miss_free(n: int, c: int, ks: np.ndarray) -> np.ndarray:
    """pass@k [K] of one problem."""
    places = min(int(ks.max()), n - c)  # more than n - c samples can't all be wrong
    log_miss = np.concatenate([[0.0], np.cumsum(np.log1p(-c / (n - np.arange(places))))])
    values = np.where(ks > n - c, 1.0, 0.0 - np.expm1(log_miss[np.minimum(ks, places)]))
    return np.where(ks == 1, c / n, values)


def g_pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int, tau: float) -> np.ndarray:
    """G-Pass@k_tau [N]: probability that at least a share ``tau`` of k samples is right, from ``correct`` [N] of ``samples``.

    The hypergeometric tail: sum over j >= max(1, ceil(tau k)) of C(c, j) C(n-c, k-j) / C(n, k). At tau -> 0 it is pass@k, at
    tau = 1 the probability that all k are right. Refuses tau outside [0, 1] and what `pass_at_k` refuses. Liu et al.
    2024, arXiv 2412.13147.

    >>> g_pass_at_k(4, [2, 4], k=2, tau=1.0).round(6)
    array([0.166667, 1.      ])
    """
    if not 0 <= tau <= 1:
        raise ValueError(f"g_pass_at_k: tau = {tau}; accepted are shares from 0 to 1")
    n, c, (k,) = _counts("g_pass_at_k", samples, correct, [k])
    # A hair less than tau k, since 0.28 * 25 is a hair more than 7 in floating point.
    least = max(1, math.ceil(tau * k - 1e-9))
    return np.clip(stats.hypergeom.sf(least - 1, n, c, k), 0.0, 1.0)


def mean_g_pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> np.ndarray:
    """mG-Pass@k [N]: G-Pass@k_tau averaged over tau from above 1/2 to 1: (2/k) sum over i = ceil(k/2)+1..k of tau = i/k.

    A problem solved in every sample scores 2 floor(k/2) / k: 1 for even k. Refuses k < 2 and what `g_pass_at_k` refuses.
    Liu et al. 2024, arXiv 2412.13147.

    >>> mean_g_pass_at_k(4, [3, 4], k=4)
    array([0.5, 1. ])
    """
    if k < 2:
        raise ValueError(f"mean_g_pass_at_k: k = {k}; accepted are whole numbers from 2")
    steps = range(math.ceil(k / 2) + 1, k + 1)
    return 2 / k * np.sum([g_pass_at_k(samples, correct, k, i / k) for i in steps], axis=0)


def exact_pass_at_ks(probability: ArrayLike, ks: ArrayLike) -> np.ndarray:
    """1 - (1-p)^k as [N K] where each problem's probability p [N] of a right sample is *known*: any k, 10^6 and more.

    It rises with p, so bounds on p give bounds on pass@k: call it on the lower and on the upper ones. In logs, so that
    p = 1e-9 at k = 1 is 1e-9 and not 0. Refuses p outside [0, 1] and k <= 0.

    >>> exact_pass_at_ks([0.0, 0.5, 1.0], [1, 2]).tolist()
    [[0.0, 0.0], [0.5, 0.75], [1.0, 1.0]]
    """
    p, k = np.atleast_1d(np.asarray(probability, dtype=float)), np.atleast_1d(np.asarray(ks, dtype=float))
    if p.ndim != 1 or k.ndim != 1 or not ((p >= 0) & (p <= 1)).all() or not (k > 0).all():
        raise ValueError(f"exact_pass_at_ks: p = {probability!r}, k = {ks!r}; needed are 0 <= p <= 1 [N] and k > 0 [K]")
    with np.errstate(divide="ignore"):  # p = 1 misses with probability exp(-inf)
        return -np.expm1(k * np.log1p(-p)[:, None])


class Solved(NamedTuple):
    """How many problems were solved at least once before and after: every problem is in exactly one of four counts."""

    never: int
    lost: int
    gained: int
    both: int


def solved(before: ArrayLike, after: ArrayLike) -> Solved:
    """Never solved, lost, gained and solved by both, from right samples [N] before and after on the same problems.

    "Never" means within the samples drawn, so the counts belong to their n: name it beside them, and compare only equal n.

    >>> solved([0, 3, 0, 9], [0, 0, 1, 9])
    Solved(never=1, lost=1, gained=1, both=1)
    """
    old, new = (np.asarray(counts) for counts in (before, after))
    if old.shape != new.shape or old.ndim != 1:
        raise ValueError(f"solved: shapes {old.shape} and {new.shape}; count right samples [N] of the same problems")
    old, new = old > 0, new > 0
    return Solved(*(int(group.sum()) for group in (~old & ~new, old & ~new, ~old & new, old & new)))


def _counts(place: str, samples: ArrayLike, correct: ArrayLike, ks: ArrayLike) -> tuple[np.ndarray, ...]:
    """n [N], c [N], k [K] as whole numbers, all of them answerable."""
    given = [np.atleast_1d(np.asarray(each)) for each in (samples, correct, ks)]
    if any(each.ndim != 1 or each.size == 0 or each.dtype.kind not in "iu" for each in given):
        raise ValueError(f"{place}: samples, correct and ks must be whole numbers, [N] (or one), [N] and [K]")
    n, c, k = (each.astype(np.int64) for each in given)
    if len(n) not in (1, len(c)):
        raise ValueError(f"{place}: {len(n)} sample counts for {len(c)} problems; accepted are one, or one a problem")
    n = np.broadcast_to(n, c.shape)
    for bad, what in ((n < 1, "n < 1"), (c < 0, "c < 0"), (c > n, "c > n"), (n < k.max(), "n < k")):
        if bad.any():
            i = int(np.argmax(bad))
            raise ValueError(
                f"{place}: {what} in problem {i} (n = {n[i]}, c = {c[i]}, largest k = {k.max()}); "
                "needed are 1 <= k <= n and 0 <= c <= n"
            )
    if k.min() < 1:
        raise ValueError(f"{place}: k = {k.min()}; needed are 1 <= k <= n and 0 <= c <= n")
    return n, c, k


def maj_at_k(answers: Sequence[str | None], right: str, k: int) -> float:
    """Probability that the vote of k of the n answers is ``right``, over all k-subsets, exactly.

    The most frequent answer wins; t answers tied at the top share the win, 1/t each. ``None`` (no answer
    could be read) fills a place but never wins. Exact in rational arithmetic; its cost grows like m·k² for
    m distinct answers, so beyond a few hundred samples of many answers use `maj_at_k_sampled`. Refuses k >
    n and k < 1.

    >>> maj_at_k(["4", "4", "5"], "4", 3), maj_at_k(["58", "52", "9"], "58", 3)
    (1.0, 0.3333333333333333)
    """
    votes, silent = _count("maj_at_k", answers, k)
    mine = votes.pop(right, 0)
    wins = Fraction(0)
    for won in range(1, min(mine, k) + 1):
        for ties, ways in enumerate(_ways(list(votes.values()), silent, won, k - won)):
            wins += Fraction(math.comb(mine, won) * ways, ties + 1)
    return float(wins / math.comb(len(answers), k))


def maj_at_k_sampled(
    answers: Sequence[str | None], right: str, k: int, generator: np.random.Generator, draws: int = 1000
) -> float:
    """Monte Carlo of `maj_at_k` with ``draws`` random k-subsets; its standard error is at most 0.5/√draws.

    >>> maj_at_k_sampled(["4", "4", "5"], "4", 3, np.random.default_rng(0))
    1.0
    """
    votes, _ = _count("maj_at_k_sampled", answers, k)
    if draws < 1:
        raise ValueError(f"maj_at_k_sampled: draws = {draws}; at least 1 is needed")
    names = [right, *(name for name in votes if name != right)]
    pool = np.array([names.index(answer) if answer is not None else len(names) for answer in answers])
    total = 0.0
    for _ in range(draws):
        counts = np.bincount(generator.permutation(pool)[:k], minlength=len(names) + 1)[:-1]
        if counts[0] > 0 and counts[0] == counts.max():
            total += 1 / np.count_nonzero(counts == counts[0])
    return float(total / draws)


def _count(place: str, answers: Sequence[str | None], k: int) -> tuple[Counter, int]:
    if not 1 <= k <= len(answers):
        raise ValueError(f"{place}: k = {k} of {len(answers)} answers; needed is 1 <= k <= number of answers")
    votes = Counter(answer for answer in answers if answer is not None)
    return votes, len(answers) - votes.total()


def _ways(rivals: list[int], silent: int, cap: int, places: int) -> list[int]:
    """Ways to fill ``places`` with no rival above ``cap``; entry t counts those with t rivals at it."""
    ways = {(0, 0): 1}
    for size in rivals:
        grown: dict[tuple[int, int], int] = {}
        for (filled, ties), number in ways.items():
            for taken in range(min(size, cap, places - filled) + 1):
                key = (filled + taken, ties + (taken == cap))
                grown[key] = grown.get(key, 0) + number * math.comb(size, taken)
        ways = grown
    result = [0] * (len(rivals) + 1)
    for (filled, ties), number in ways.items():
        result[ties] += number * math.comb(silent, places - filled)
    return result

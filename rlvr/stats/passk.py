"""pass@k and maj@k from n samples a problem, without bias and without overflow.

pass@k asks whether any of k samples is right, maj@k whether their vote is. Both are averages over the
k-subsets of the n samples that were drawn, *without* replacement: drawing with replacement is biased low
(fault B69). What is not here: a value for k > n. It isn't known, so it is refused rather than guessed
(faults B68, B71).
"""

import math
import operator
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

__all__ = ["maj_at_k", "maj_at_k_sampled", "mean_pass_at_k", "pass_at_k"]


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

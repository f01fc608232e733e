"""The rules of experiment 02, one function a claim; written before the jobs they judge ran on all models.

The unit is the seed: seed s of every method starts from base model s. What 512 samples say is an estimate; what the tree of
completions says is known within bounds, and a rule that reads it counts a thing as so only where the bounds leave no doubt.
"""

import numpy as np

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.stats import Interval, exact_pass_at_ks, pass_at_ks, solved, wilson

__all__ = [
    "ARMS",
    "KS",
    "LARGE_KS",
    "MANY",
    "METHODS",
    "base_rising",
    "crossing",
    "crossing_ood",
    "distinct",
    "entropies",
    "entropy_collapse",
    "estimated",
    "expands",
    "known",
    "large_k",
    "least_diverse",
    "lost_and_gained",
    "lucky_guesses",
    "not_sharpening",
]

METHODS = ("sft", "rft", "grpo")
ARMS = ("base", *METHODS)
KS = tuple(2**i for i in range(10))
LARGE_KS = np.unique(np.round(np.logspace(0, 6, 61)).astype(int))
MANY = 10_000


def sampled(results: Results, arm: str, seed: int, label: str) -> dict:
    """What the samples of a model came to."""
    return results.result(f"samples-{arm}-s{seed}")[label]


def estimated(results: Results, arm: str, label: str, ks: tuple[int, ...] = KS) -> np.ndarray:
    """[S N K] pass@k estimates by seed and problem, for the k that the samples reach."""
    tables = [sampled(results, arm, seed, label) for seed in results.seeds]
    reached = [k for k in ks if k <= tables[0]["samples"]]
    return np.array([pass_at_ks(table["samples"], table["correct"], reached) for table in tables])


def known(results: Results, arm: str, label: str, what: str = "right") -> tuple[np.ndarray, np.ndarray]:
    """[S N K] lower and upper bounds on pass@k for k up to a million, by seed and problem."""
    tables = [results.result(f"tree-{arm}-s{seed}")[label][what] for seed in results.seeds]
    lo, hi = ([exact_pass_at_ks(table[side], LARGE_KS) for table in tables] for side in ("lo", "hi"))
    return np.array(lo), np.array(hi)


def _finding(interval: Interval, verdict: str, measured: str, why: str = "") -> Finding:
    return Finding(interval.value, interval.lo, interval.hi, interval.n, measured, verdict, why)


def _top(results: Results) -> int:
    """The largest k that the samples reach."""
    return sampled(results, "base", results.seeds[0], "n12")["samples"]


def expands(results: Results) -> Finding:
    """What GRPO solves of the problems that the base never solved on n = 12."""
    shares, never, left, gained = [], [], [], 0
    for seed in results.seeds:
        counts = solved(*(sampled(results, arm, seed, "n12")["correct"] for arm in ("base", "grpo")))
        never.append(counts.never + counts.gained)
        left.append(counts.never)
        shares.append(counts.gained / never[-1] if never[-1] >= 5 else float("nan"))
        gained += counts.gained
    share = over(shares, 0, 1)
    if share.degenerate:  # every seed agrees: the problems are what is left to be unsure about
        share = wilson(gained, sum(never))
    once, base = (over(estimated(results, arm, "n12", (1,)).mean((1, 2)), 0, 1) for arm in ("grpo", "base"))
    words = (
        f"base never solved {_slashed(never)} problems in {_top(results)} samples, after GRPO {_slashed(left)} of them "
    )
    words += f"remain; pass@1 {percent(base)} before, {percent(once)} after"
    return _finding(share, judge(share.lo, share.hi, above=0.9), words)


def _slashed(counts) -> str:
    return "/".join(f"{count:g}" for count in counts)


def crossing_ood(results: Results) -> Finding:
    """Whether SFT gains more than GRPO from k on n = 16, from the same start."""
    curves = {arm: estimated(results, arm, "n16").mean(1) for arm in ("sft", "grpo")}
    first = over(curves["sft"][:, 0] - curves["grpo"][:, 0])
    gains = {arm: curve[:, -1] - curve[:, 0] for arm, curve in curves.items()}
    apart = over(gains["sft"] - gains["grpo"])
    verdict = judge(apart.lo, apart.hi, above=0.0)
    if verdict == "holds" and not first.lo <= 0 <= first.hi:
        verdict = "differs"
    ends = ", ".join(f"{arm} {100 * c[:, 0].mean():.1f} -> {100 * c[:, -1].mean():.1f} %" for arm, c in curves.items())
    words = f"n = 16, k = 1 -> {_top(results)}: {ends}; SFT gains {percent(apart)} more; gap at k = 1 {percent(first)}"
    return _finding(apart, verdict, words)


def base_rising(results: Results) -> Finding:
    """Whether the base's curve on n = 16 grows faster at the last factor 4 of k than at the one before."""
    curve = estimated(results, "base", "n16", (2, 8, 32, 128, 512)).mean(1)
    steps = np.diff(curve, axis=1)
    bend = over(steps[:, -1] - steps[:, -2])
    shown = ", ".join(f"{100 * step:.1f}" for step in steps.mean(0))
    words = f"pass@{_top(results)} {percent(over(curve[:, -1], 0, 1))}; +{shown} points per 4x k; "
    words += f"last minus one before {percent(bend)}"
    return _finding(bend, judge(bend.lo, bend.hi, above=0.0), words)


def lost_and_gained(results: Results) -> Finding:
    """Problems on n = 16 that GRPO loses and gains against its base."""
    counts = [
        solved(*(sampled(results, arm, seed, "n16")["correct"] for arm in ("base", "grpo"))) for seed in results.seeds
    ]
    lost, gained = (over([getattr(each, key) for each in counts], 0) for key in ("lost", "gained"))
    rarer = min(lost, gained, key=lambda interval: interval.lo)
    verdict = judge(rarer.lo, rarer.hi, above=0.0)
    if lost.value == 0 or gained.value == 0:
        verdict = "differs" if len(results.seeds) >= 3 else "undecided"
    n = sum(counts[0])
    words = f"n = 16, of {n} problems in {_top(results)} samples: {_slashed([c.lost for c in counts])} lost, "
    return _finding(rarer, verdict, words + f"{_slashed([c.gained for c in counts])} gained by seed")


def distinct(results: Results, arm: str, label: str) -> np.ndarray:
    """[S] mean number of distinct answers of a problem's samples."""
    return np.array([np.mean(sampled(results, arm, seed, label)["distinct"]) for seed in results.seeds])


def entropies(results: Results, arm: str, label: str) -> np.ndarray:
    """[S] entropy in nats a token."""
    return np.array([sampled(results, arm, seed, label)["entropy"] for seed in results.seeds])


def least_diverse(results: Results) -> Finding:
    """Whether RFT has fewer distinct answers on n = 16 than GRPO and SFT."""
    rows = {arm: distinct(results, arm, "n16") for arm in ARMS}
    gaps = {arm: over(rows["rft"] - rows[arm]) for arm in ("sft", "grpo")}
    widest = max(gaps.values(), key=lambda gap: gap.hi)
    verdicts = [judge(gap.lo, gap.hi, below=0.0) for gap in gaps.values()]
    verdict = "holds" if set(verdicts) == {"holds"} else "differs" if "differs" in verdicts else "undecided"
    words = ", ".join(f"{arm} {row.mean():.2f}" for arm, row in rows.items())
    words += "; " + ", ".join(f"RFT - {arm} {_plain(gap, 2)}" for arm, gap in gaps.items())
    return _finding(widest, verdict, f"distinct answers of {_top(results)} on n = 16: {words}")


def _plain(interval: Interval, digits: int) -> str:
    return f"{interval.value:.{digits}f} [{interval.lo:.{digits}f}, {interval.hi:.{digits}f}]"


def entropy_collapse(results: Results) -> Finding:
    """Whether every method lowers the token entropy on n = 16."""
    rows = {arm: entropies(results, arm, "n16") for arm in ARMS}
    falls = {arm: over(rows[arm] - rows["base"]) for arm in METHODS}
    least = max(falls.values(), key=lambda fall: fall.hi)
    verdicts = [judge(fall.lo, fall.hi, below=0.0) for fall in falls.values()]
    verdict = "holds" if set(verdicts) == {"holds"} else "differs" if "differs" in verdicts else "undecided"
    words = ", ".join(f"{arm} {row.mean():.3f}" for arm, row in rows.items())
    return _finding(least, verdict, f"nats a token on n = 16: {words}; least fall {_plain(least, 3)}")


def not_sharpening(results: Results) -> Finding:
    """Greedy minus sampled accuracy of the base on n = 12."""
    greedy = results.other("rl_vs_sft").accuracy("base", "n12").mean(1)[: len(results.seeds)]
    once = estimated(results, "base", "n12", (1,)).mean((1, 2))
    gap = over(greedy - once, -1, 1)
    inside = gap.lo > -0.05 and gap.hi < 0.05
    outside = np.isfinite(gap.lo) and (gap.lo > 0.05 or gap.hi < -0.05)
    words = f"greedy {100 * greedy.mean():.1f} %, sampled {100 * once.mean():.1f} %, gap {percent(gap)}"
    return _finding(gap, "holds" if inside else "differs" if outside else "undecided", words)


def crossing(base: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The first k at which the base's mean curve may have reached the other's, and the first at which it surely has.

    Both are given as bounds [K] over ``LARGE_KS``; infinity where it doesn't happen up to the last k.

    >>> low, high = np.zeros(len(LARGE_KS)), np.ones(len(LARGE_KS))
    >>> crossing((low, low), (high, high)), crossing((low, high), (low, high))
    ((inf, inf), (1.0, inf))
    """
    may, sure = base[1] >= other[0], base[0] > other[1]
    return tuple(float(LARGE_KS[where.argmax()]) if where.any() else np.inf for where in (may, sure))


def large_k(results: Results) -> Finding:
    """Where the base's exact curve reaches GRPO's on n = 16."""
    bounds = {arm: [side.mean(1) for side in known(results, arm, "n16")] for arm in ("base", "grpo")}
    found = [
        crossing(*((lo[s], hi[s]) for lo, hi in (bounds["base"], bounds["grpo"]))) for s in range(len(results.seeds))
    ]
    inside = [early >= 10**3.5 and late <= 10**5.5 for early, late in found]
    outside = [late < 10**3.5 or early > 10**5.5 for early, late in found]
    verdict = "holds" if all(inside) else "differs" if all(outside) else "undecided"
    verdict = verdict if len(found) >= 3 else "undecided"
    ends = np.minimum(found, LARGE_KS[-1])  # what isn't seen up to the last k counts as if it came there
    value = float(np.exp(np.log(ends[:, 1]).mean()))
    words = "first k at which the base may have reached and surely has passed GRPO: "
    words += ", ".join(f"{_k(early)} and {_k(late)}" for early, late in found) + f"; {_at_large_k(bounds)}"
    return Finding(value, float(ends.min()), float(ends.max()), len(found), words, verdict)


def _k(k: float) -> str:
    return f"{k:,.0f}" if np.isfinite(k) else "beyond 1,000,000"


def _at_large_k(bounds: dict) -> str:
    place = int(np.searchsorted(LARGE_KS, MANY))
    parts = [
        f"{arm} {100 * lo[:, place].mean():.1f} to {100 * hi[:, place].mean():.1f} %"
        for arm, (lo, hi) in bounds.items()
    ]
    return f"pass@{MANY:,} " + ", ".join(parts)


def lucky_guesses(results: Results) -> Finding:
    """How much of the base's pass@10,000 on n = 16 are right answers after another chain than the true one."""
    place = int(np.searchsorted(LARGE_KS, MANY))
    right, sound = (known(results, "base", "n16", what) for what in ("right", "sound"))
    surely = over((right[0] - sound[1])[..., place].mean(1), -1, 1)
    words = (
        f"n = 16, k = {MANY:,}: any right answer {_between(right, place)}, with the true chain {_between(sound, place)}"
    )
    return _finding(surely, judge(surely.lo, surely.hi, above=0.05), words)


def _between(bounds: tuple[np.ndarray, np.ndarray], place: int) -> str:
    lo, hi = (100 * side[..., place].mean() for side in bounds)
    return f"{lo:.1f} to {hi:.1f} %"

"""The rules of experiment 01, one function a claim; written before the runs they judge."""

from collections import Counter

import numpy as np

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.lab.pretrain import BASES
from rlvr.stats import Interval, accuracy_over_seeds
from rlvr.tasks import Pointer

__all__ = [
    "all_fix",
    "answer",
    "base_coverage",
    "base_deterministic",
    "base_ood",
    "base_systematic",
    "failure_kinds",
    "repair_speed",
    "rft_worse",
    "sft_equals_rl",
    "stopping_not_lookup",
    "zero_variance",
]

METHODS = ("sft", "rft", "grpo")
REPAIRED = 0.90


def _finding(interval: Interval, verdict: str, measured: str, why: str = "") -> Finding:
    return Finding(interval.value, interval.lo, interval.hi, interval.n, measured, verdict, why)


def base_ood(results: Results) -> Finding:
    """How far the base falls from n = 8 to n = 12."""
    short, long = (results.accuracy("base", label).mean(1) for label in ("n8", "n12"))
    drop = over(short - long, -1, 1)
    words = [percent(accuracy_over_seeds(results.accuracy("base", label))) for label in ("n8", "n12")]
    measured = f"n = 8 {words[0]}, n = 12 {words[1]}; drop {percent(drop)}"
    return _finding(drop, judge(drop.lo, drop.hi, above=0.2), measured)


def base_coverage(results: Results) -> Finding:
    """Right within the trained positions, wrong beyond: the law that the position code obeys."""
    within, beyond = [], []
    for seed in results.seeds:
        columns = [results.final("base", seed, f"n{n}") for n in (9, 10, 11, 12, 14, 16)]
        n, offset, right = (np.concatenate([c[key] for c in columns]) for key in ("n", "offset", "correct"))
        # A pair more is three tokens more; training saw prompts of up to n letters begin at up to max_offset.
        reach = offset + 3 * (n - BASES["cot_L2"].difficulty["n"][1]) - Pointer().max_offset
        within.append(right[reach <= 0].mean())
        beyond.append(right[reach > 3].mean())
    drop = over(np.subtract(within, beyond), -1, 1)
    measured = f"within {percent(over(within, 0, 1))}, more than 3 positions beyond {percent(over(beyond, 0, 1))}"
    verdict = judge(drop.lo, drop.hi, above=0.5)
    return _finding(drop, "differs" if verdict == "holds" and min(within) < 0.95 else verdict, measured)


def base_systematic(results: Results) -> Finding:
    """How many greedy failures a majority of 32 samples repairs."""
    repaired = []
    for seed in results.seeds:
        greedy = np.array(results.final("base", seed, "n12")["correct"])
        vote = np.array(results.final("base", seed, "n12", "sampled")["majority"])
        repaired.append(vote[greedy == 0].mean())
    share = over(repaired, 0, 1)
    return _finding(share, judge(share.lo, share.hi, below=1 / 3), f"{percent(share)} of greedy failures repaired")


def base_deterministic(results: Results) -> Finding:
    """Exact entropy of the base on its own range."""
    nats = over([np.mean(results.final("base", seed, "n8", "sampled")["entropy"]) for seed in results.seeds], 0)
    return _finding(nats, judge(nats.lo, nats.hi, below=0.06), f"{nats.value:.4f} nats a token on n = 8")


def all_fix(results: Results) -> Finding:
    """Which methods reach the mark on n = 12, and in how many seeds."""
    rows = {arm: results.accuracy(arm, "n12").mean(1) for arm in METHODS}
    reached = {arm: int((values >= REPAIRED).sum()) for arm, values in rows.items()}
    seeds = len(results.seeds)
    worst = min(rows, key=lambda arm: rows[arm].mean())
    verdict = "holds" if all(3 * n >= 2 * seeds for n in reached.values()) else "differs"
    verdict = verdict if seeds >= 3 else "undecided"  # a count over one or two seeds says little
    shown = {arm: accuracy_over_seeds(results.accuracy(arm, "n12")) for arm in ("base", *METHODS)}
    before = percent(shown["base"])
    words = ", ".join(f"{arm} {percent(shown[arm])} ({reached[arm]} of {seeds} seeds >= 90 %)" for arm in rows)
    return _finding(shown[worst], verdict, f"from {before} to {words}")


def repair_speed(results: Results) -> Finding:
    """When each method first reaches the mark."""
    curves = {arm: [results.curve(arm, seed, "n12") for seed in results.seeds] for arm in METHODS}
    reached = {arm: [_first(curve) for curve in found] for arm, found in curves.items()}
    slowest = max(reached, key=lambda arm: np.mean([step for step, _ in reached[arm]]))
    steps = over([step for step, _ in reached[slowest]], 0)
    words = ", ".join(f"{arm} {'/'.join(word for _, word in found)}" for arm, found in reached.items())
    why = (
        "The learning rates are the best of an equal search for accuracy at the end on this base, not for speed, and the base "
        "is another one than the lecture's."
    )
    verdict = judge(steps.lo, steps.hi, below=75)
    words = f"first evaluation at >= 90 %, by seed: {words}"
    return _finding(steps, verdict, words, why if verdict == "differs" else "")


def _first(curve: list[tuple[int, float]]) -> tuple[float, str]:
    """The first step at the mark; a run that never reached it counts with its last step, which is too little."""
    last = float(curve[-1][0])
    return next(((float(step), str(step)) for step, value in curve if value >= REPAIRED), (last, "never"))


def failure_kinds(results: Results) -> Finding:
    """What the base's failures on n = 12 are."""
    stopping = over([_stopping_share(results, "base", seed, "n12") for seed in results.seeds], 0, 1)
    left = ", ".join(f"{arm} {_failures(results, arm, 'n12').total()}" for arm in METHODS)
    words = f"{percent(stopping)} of failures are stopping failures ({_count_words(results, 'base', 'n12')})"
    measured = f"{words}; left after training: {left}"
    return _finding(stopping, judge(stopping.lo, stopping.hi, above=0.5), measured)


def _failures(results: Results, arm: str, label: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in results.seeds:
        total.update(results.kinds(arm, seed, label))
    del total["correct"]
    return total


def _count_words(results: Results, arm: str, label: str) -> str:
    counts = _failures(results, arm, label).most_common()
    return "all seeds: " + (", ".join(f"{count} {kind}" for kind, count in counts) or "none")


def _stopping_share(results: Results, arm: str, seed: int, label: str) -> float:
    kinds = {kind: count for kind, count in results.kinds(arm, seed, label).items() if kind != "correct"}
    return sum(kinds.get(kind, 0) for kind in Pointer().stopping) / sum(kinds.values()) if kinds else float("nan")


def zero_variance(results: Results) -> Finding:
    """How many groups carry no signal at the start."""
    silent = over(np.nanmean(results.metrics("grpo", "frac_reward_zero_std", 25), axis=1), 0, 1)
    right = np.nanmean(results.metrics("grpo", "groups/all_right", 25))
    measured = f"{percent(silent)} of groups in the first 25 steps, {100 * right:.1f} % all right"
    return _finding(silent, judge(silent.lo, silent.hi, above=0.5), measured)


def stopping_not_lookup(results: Results) -> Finding:
    """What is left on n = 16 after GRPO."""
    share = over([_stopping_share(results, "grpo", seed, "n16") for seed in results.seeds], 0, 1)
    return _finding(
        share,
        judge(share.lo, share.hi, above=0.5),
        f"{percent(share)} of GRPO's failures on n = 16 ({_count_words(results, 'grpo', 'n16')})",
    )


def sft_equals_rl(results: Results) -> Finding:
    """SFT against GRPO on n = 14 and 16."""
    gaps = {label: _gap(results, "sft", "grpo", label) for label in ("n14", "n16")}
    widest = max(gaps.values(), key=lambda gap: max(abs(gap.lo), abs(gap.hi)))
    if any(gap.lo > 0 or gap.hi < 0 for gap in gaps.values()):
        verdict = "differs"
    else:
        verdict = "holds" if all(gap.lo > -0.15 and gap.hi < 0.15 for gap in gaps.values()) else "undecided"
    return _finding(widest, verdict, "SFT - GRPO, paired by seed: " + _gap_words(results, ("sft", "grpo"), gaps))


def rft_worse(results: Results) -> Finding:
    """RFT against GRPO on n = 14 and 16."""
    gaps = {label: _gap(results, "rft", "grpo", label) for label in ("n14", "n16")}
    both = over(sum(_means(results, "rft", n) - _means(results, "grpo", n) for n in ("n14", "n16")) / 2)
    verdict = judge(both.lo, both.hi, below=0.0)
    return _finding(both, verdict, "RFT - GRPO, paired by seed: " + _gap_words(results, ("rft", "grpo"), gaps))


def _means(results: Results, arm: str, label: str) -> np.ndarray:
    return results.accuracy(arm, label).mean(1)


def _gap(results: Results, first: str, second: str, label: str) -> Interval:
    return over(_means(results, first, label) - _means(results, second, label))


def _gap_words(results: Results, arms: tuple[str, str], gaps: dict[str, Interval]) -> str:
    words = []
    for label, gap in gaps.items():
        sides = " vs ".join(f"{100 * _means(results, arm, label).mean():.1f}" for arm in arms)
        words.append(f"n = {label[1:]} {sides} %, gap {percent(gap)}")
    return "; ".join(words)


def answer(results: Results) -> str:
    """Which method repairs what, in plain words."""

    def shown(arm: str, label: str) -> str:
        return f"{100 * results.accuracy(arm, label).mean():.0f}"

    on, off = (", ".join(f"{arm.upper()} {shown(arm, label)} %" for arm in METHODS) for label in ("n12", "n16"))
    gap = _gap(results, "sft", "grpo", "n16")
    apart = "tells SFT and GRPO apart" if gap.lo > 0 or gap.hi < 0 else "does not tell SFT and GRPO apart"
    return (
        f"On n = 12, the longest prompts of training, the base's {shown('base', 'n12')} % become "
        f"{on}. On n = 16, which no method trained on, {shown('base', 'n16')} % become {off}, and the number of seeds here "
        f"{apart}."
    )

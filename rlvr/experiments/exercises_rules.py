"""The rules of exercises 1 to 3, and what their page shows; the rules were written before the runs they judge."""

from itertools import pairwise

import numpy as np
import torch

from rlvr.algo import Center, ZScore
from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.experiments.panels import Lines, Panel, Series, Table
from rlvr.lab import store
from rlvr.stats import minimum_detectable_effect, seeds_needed

__all__ = [
    "EFFECT",
    "OUTSIDE",
    "answer",
    "dynamic_sampling",
    "outside",
    "panels",
    "positive_only",
    "power_table",
    "std_weight",
]

HARD, EVEN, GROUP = 0.05, 0.5, 20
EFFECT = 0.05
OUTSIDE = ("n14", "n16")


def std_weight(results: Results) -> Finding:
    """The sum of the right answers' advantages of a hard problem over that of an even one, with and without std."""
    ratios = {name: _pull(advantage, HARD) / _pull(advantage, EVEN) for name, advantage in _normalised().items()}
    same = round(ratios["with std"], 3) == 0.436 and round(ratios["without"], 2) == 0.19
    words = ", ".join(f"{value:.3f} {name}" for name, value in ratios.items())
    times = ratios["with std"] / ratios["without"]
    return Finding(times, times, times, GROUP, f"{words}: {times:.2f} times", "holds" if same else "differs")


def _normalised() -> dict:
    return {"with std": ZScore(eps=0.0, correction=0), "without": Center()}


def _pull(advantage, share: float) -> float:
    right = round(share * GROUP)
    rewards = torch.tensor([[1.0] * right + [0.0] * (GROUP - right)], dtype=torch.float64)
    return float(advantage(rewards)[rewards > 0].sum())


def outside(results: Results, arm: str) -> np.ndarray:
    """[S] greedy accuracy beyond the trained lengths, the mean of n = 14 and 16."""
    return np.mean([results.accuracy(arm, label).mean(1) for label in OUTSIDE], axis=0)


def _gaps(results: Results) -> dict[str, np.ndarray]:
    """Positive-only minus each neighbour, a number a seed."""
    mine, first = outside(results, "positive_only"), results.other("rl_vs_sft")
    return {arm: mine - outside(first, arm) for arm in ("grpo", "rft")}


def positive_only(results: Results) -> Finding:
    """Where GRPO without negative advantages lies, and how many seeds it would take to know."""
    gaps = _gaps(results)
    to_grpo, to_rft = over(gaps["grpo"]), over(gaps["rft"])
    between = to_grpo.value <= 0 <= to_rft.value
    wrong = to_grpo.lo > 0 or to_rft.hi < 0
    told_apart = any(gap.lo > 0 or gap.hi < 0 for gap in (to_grpo, to_rft))
    verdict = "differs" if wrong else "holds" if between and not told_apart else "undecided"
    verdict = verdict if len(results.seeds) >= 3 else "undecided"  # few seeds never exclude anything
    means = [f"{100 * results.accuracy('positive_only', n).mean():.1f}" for n in ("n12", *OUTSIDE)]
    words = f"n = 12 / 14 / 16: {' / '.join(means)} %; minus GRPO {percent(to_grpo)}, minus RFT {percent(to_rft)}"
    why = "The interval puts it beyond what lies between the two." if wrong else ""
    return Finding(to_grpo.value, to_grpo.lo, to_grpo.hi, to_grpo.n, words + _power_words(gaps), verdict, why)


def _power_words(gaps: dict[str, np.ndarray]) -> str:
    spreads = {arm: float(np.std(gap, ddof=1)) for arm, gap in gaps.items() if len(gap) > 1 and np.ptp(gap) > 0}
    needs = [f"{seeds_needed(EFFECT, spread, paired=True)} for {arm.upper()}" for arm, spread in spreads.items()]
    return f"; seeds to find {100 * EFFECT:.0f} points: {', '.join(needs)}" if needs else ""


def _reached(results: Results, arm: str, seed: int) -> tuple[float, float]:
    """Steps and samples until half of the gap to 100 % on n = 12 is closed, between evaluations on a straight line; a run that
    never got there counts with all that it spent, which is too little.
    """
    curve = results.curve(arm, seed, "n12")
    spent = [0, *(row["samples"] for row in store.read_metrics(results.run(arm, seed)))]
    mark = (curve[0][1] + 1) / 2
    for (before, low), (step, high) in pairwise(curve):
        if high >= mark:
            exact = before + (step - before) * (mark - low) / (high - low)
            return exact, float(np.interp(exact, range(len(spent)), spent))
    return float(curve[-1][0]), float(spent[-1])


def dynamic_sampling(results: Results) -> Finding:
    """What dynamic sampling saves in steps and costs in samples."""
    found = {arm: np.array([_reached(results, arm, seed) for seed in results.seeds]) for arm in ("dynamic", "plain")}
    steps, samples = (over(ratio, 0) for ratio in (found["dynamic"] / found["plain"]).T)
    verdicts = {judge(steps.lo, steps.hi, below=1.0), judge(samples.lo, samples.hi, above=1.0)}
    verdict = "differs" if "differs" in verdicts else "undecided" if "undecided" in verdicts else "holds"
    words = "; ".join(
        f"{arm} {values[:, 0].mean():.0f} steps and {values[:, 1].mean():,.0f} samples" for arm, values in found.items()
    )
    ratios = " and ".join(
        f"{ratio.value:.2f} [{ratio.lo:.2f}, {ratio.hi:.2f}] times the {name}"
        for name, ratio in (("steps", steps), ("samples", samples))
    )
    words = f"half of the gap on n = 12 closed: {words}; {ratios}"
    why = "" if verdict != "differs" else "Half of the gap is closed with fewer samples too, or not in fewer steps."
    return Finding(samples.value, samples.lo, samples.hi, samples.n, words, verdict, why)


def answer(results: Results) -> str:
    """Both questions in plain words."""
    gaps, half = {arm: over(gap) for arm, gap in _gaps(results).items()}, dynamic_sampling(results)
    return (
        f"Without its negative half GRPO ends {percent(gaps['grpo'])} from GRPO and {percent(gaps['rft'])} from RFT on prompts "
        f"longer than any trained ones (mean of n = 14 and 16). Dynamic sampling: {half.measured}."
    )


def panels(results: Results) -> list[Panel]:
    """Learning by step and by sample, and the seeds that each comparison would need."""
    curves = [_curve(results, by_sample) for by_sample in (False, True)]
    return [
        Lines(
            "by-step",
            "How fast does each learn, counted in gradient steps?",
            "Greedy accuracy on n = 12; the line is the mean over seeds.",
            curves[0],
            "gradient step",
            "right on n = 12",
        ),
        Lines(
            "by-sample",
            "And counted in completions sampled, kept or not?",
            "The same runs over what they sampled.",
            curves[1],
            "completions sampled",
            "right on n = 12",
        ),
        power_table(_gaps(results)),
    ]


def _curve(results: Results, by_sample: bool) -> list[Series]:
    lines = []
    for arm in ("plain", "dynamic"):
        runs = [results.curve(arm, seed, "n12") for seed in results.seeds]
        steps = [step for step, _ in runs[0]]
        values = np.array([[value for _, value in run] for run in runs])
        spent = results.metrics(arm, "samples").mean(0)
        x = [0.0, *spent.tolist()] if by_sample else list(range(len(spent) + 1))
        band = {"lo": values.min(0).tolist(), "hi": values.max(0).tolist()} if len(runs) > 1 else {}
        lines.append(Series(arm, [x[step] for step in steps], values.mean(0).tolist(), arm=arm, **band))
    return lines


def power_table(gaps: dict[str, np.ndarray]) -> Table:
    """What positive-only minus each neighbour, a number a seed, can tell and what it would take to tell more."""
    rows = []
    for arm, gap in gaps.items():
        spread = float(np.std(gap, ddof=1)) if len(gap) > 1 else float("nan")
        known = spread > 0
        needed = seeds_needed(EFFECT, spread, paired=True) if known else "unknown"
        least = f"{100 * minimum_detectable_effect(spread, len(gap), paired=True):.1f}" if known else "unknown"
        rows.append((f"positive-only - {arm.upper()}", percent(over(gap)), f"{100 * spread:.1f}", least, needed))
    columns = ("difference, mean of n = 14 and 16", "measured", "sd over seeds, points")
    seeds = len(next(iter(gaps.values())))
    columns += (f"smallest difference that {seeds} seeds find, points", "seeds needed for 5 points")
    text = "Two-sided test at 5 %, power 80 %, pairs of seeds with the same base and draws."
    return Table("power", "How many seeds would tell the methods apart?", text, columns, rows)

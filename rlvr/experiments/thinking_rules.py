"""The rules of experiment 03, one function a claim; written before the runs they judge."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.experiments.thinking_model import predicted_steps
from rlvr.rng import generator
from rlvr.stats import Interval

__all__ = [
    "BASE_SEEDS",
    "SHARES",
    "aha_is_chance",
    "aha_predicted",
    "at_end",
    "base_habit",
    "by_hops",
    "direct_fails",
    "first_at",
    "format_check_holds",
    "habit_of",
    "length_penalty_hardest_first",
    "length_penalty_same_price",
    "no_skill_no_gain",
    "predicted_waits",
    "rl_selects",
    "std_amplifies",
    "unchecked_drifts",
]

THINKING = ("think10", "think2", "think0")
DRAWN = 256  # completions a step
SHARES = (0.05, 0.50, 0.95)
LABEL = "n8"
BASE_SEEDS = 3
END = 25  # "at the end" of a run: the mean over its last steps


def _finding(interval: Interval, verdict: str, measured: str, why: str = "") -> Finding:
    return Finding(interval.value, interval.lo, interval.hi, interval.n, measured, verdict, why)


def _all(verdicts: Sequence[str]) -> str:
    """The verdict on several conditions at once."""
    return "differs" if "differs" in verdicts else "undecided" if "undecided" in verdicts else "holds"


def habit_of(results: Results, base: str, seed: int, problems: str = "own") -> dict[str, np.ndarray]:
    """What the job of a base found, as arrays: of problems like those it was trained on ("own"), or of those of n = 8."""
    found = results.result(f"habit-{base}-s{seed}")[problems]
    return {key: np.array(values) for key, values in found.items()}


def first_at(results: Results, arm: str, share: float) -> np.ndarray:
    """[S] the first step whose completions think in at least that share; NaN where none did."""
    there = results.metrics(arm, "traits/thinks") >= share
    return np.where(there.any(1), there.argmax(1), np.nan)


def by_hops(results: Results, arm: str, key: str) -> np.ndarray:
    """[S K] mean of a column of the last sampled evaluation, by seed and k; ``correct`` as a share."""
    rows = []
    for seed in results.arm_seeds(arm):
        columns = {
            name: np.array(values)
            for name, values in results.final(arm, seed, LABEL, "sampled").items()
            if name != "kinds"
        }
        values = columns[key] / (columns["samples"] if key == "correct" else 1)
        rows.append([values[columns["k"] == k].mean() for k in np.unique(columns["k"])])
    return np.array(rows)


def at_end(results: Results, arm: str, key: str) -> np.ndarray:
    """[S] mean of a metric over a run's last steps."""
    return np.nanmean(results.metrics(arm, key)[:, -END:], axis=1)


def base_habit(results: Results) -> Finding:
    """How often each base thinks: exactly, and counted as the lecture counts."""
    exact = {
        b: np.array([habit_of(results, b, s)["thinks"].mean() for s in results.arm_seeds("base_think2")])
        for b in THINKING
    }
    counts = {}
    for base in ("think2", "think0"):
        found = [results.final(f"base_{base}", seed, LABEL, "sampled") for seed in results.arm_seeds("base_think2")]
        counts[base] = "/".join(f"{np.dot(c['traits/thinks'], c['samples']):.0f}" for c in found)
    samples = sum(results.final("base_think0", results.arm_seeds("base_think0")[0], LABEL, "sampled")["samples"])
    ordered = (exact["think10"] > exact["think2"]) & (exact["think2"] > 10 * exact["think0"])
    fits = ordered & (exact["think2"] > 0.005) & (exact["think2"] < 0.05) & (exact["think0"] < 0.002)
    verdict = "undecided" if len(results.arm_seeds("base_think2")) < 3 else "holds" if fits.all() else "differs"
    words = ", ".join(f"{base} {percent(over(values, 0, 1), 3)}" for base, values in exact.items())
    words += f"; of {samples} samples think2 wrote {counts['think2']} chains, think0 {counts['think0']}, by seed"
    return _finding(over(exact["think2"], 0, 1), verdict, f"exact: {words}")


def direct_fails(results: Results) -> Finding:
    """What a direct answer of think2 is worth, exactly, by k."""
    rows = []
    for seed in results.arm_seeds("base_think2"):
        found = habit_of(results, "think2", seed, LABEL)
        right = found["direct"] / (1 - found["thinks"])
        rows.append([right[found["k"] == k].mean() for k in np.unique(found["k"])])
    by_k = np.array(rows)
    one, more = over(by_k[:, 0], 0, 1), over(by_k[:, 1:].mean(1), 0, 1)
    words = f"right without a chain: k = 1 {percent(one)}, k >= 2 {percent(more)} (a guess among 8: 12.5 %)"
    return _finding(more, judge(more.lo, more.hi, below=0.25), words)


def rl_selects(results: Results) -> Finding:
    """Whether chains are everywhere at the end, right and exactly long enough."""
    verdicts, words, shown = [], [], []
    for arm in THINKING:
        thinks, right = (over(by_hops(results, arm, key).mean(1), 0, 1) for key in ("traits/thinks", "correct"))
        hops = np.mean(results.final(arm, results.arm_seeds(arm)[0], LABEL, "sampled")["k"])
        letters = by_hops(results, arm, "traits/needed") + by_hops(results, arm, "traits/over_run")
        excess = over(letters.mean(1) - hops)
        verdicts += [judge(thinks.lo, thinks.hi, above=0.9), judge(right.lo, right.hi, above=0.9)]
        verdicts += [judge(excess.lo, excess.hi, above=-0.25), judge(excess.lo, excess.hi, below=0.25)]
        words.append(
            f"{arm} thinks {percent(thinks)}, right {percent(right)}, {hops + excess.value:.2f} letters of {hops:.2f}"
        )
        shown.append(right)
    worst = min(shown, key=lambda interval: interval.value)
    return _finding(worst, _all(verdicts), "; ".join(words))


def no_skill_no_gain(results: Results) -> Finding:
    """How far noskill comes."""
    accuracy = results.metrics("noskill", "accuracy")
    gain = over(accuracy[:, -END:].mean(1) - accuracy[:, :END].mean(1))
    end, start = over(accuracy[:, -END:].mean(1), 0, 1), over(accuracy[:, :END].mean(1), 0, 1)
    letters = over(at_end(results, "noskill", "traits/thinks"), 0, 1)
    words = (
        f"accuracy {percent(start)} in the first {END} steps, {percent(end)} in the last; letters in {percent(letters)}"
    )
    return _finding(gain, judge(gain.lo, gain.hi, below=0.05), words)


def aha_is_chance(results: Results) -> Finding:
    """Whether the wait is short and alike with a habit, and long and random without."""
    waits = {arm: _waits(results, arm) for arm in THINKING}
    long, short = waits["think0"], waits["think2"]
    gap = _welch(long, short)
    ratio = (
        np.var(long, ddof=1) / max(np.var(short, ddof=1), 1 / 12) if len(short) > 1 else np.nan
    )  # steps are whole numbers
    edge = stats.f.ppf(0.975, len(long) - 1, len(short) - 1) if len(short) > 1 else np.nan
    wider = "holds" if ratio > edge else "undecided"
    words = ", ".join(f"{arm} {_step_words(results, arm)}" for arm in THINKING)
    words = f"first step with 5 % thinking: {words}; from there to 95 % think0 takes {_ramp(results)} steps (median)"
    verdict = _all([judge(gap.lo, gap.hi, above=0.0), wider])
    return _finding(gap, verdict, f"{words}; its variance over think2's: {ratio:.0f} (sure above {edge:.0f})")


def _ramp(results: Results) -> str:
    rise = first_at(results, "think0", SHARES[2]) - first_at(results, "think0", SHARES[0])
    rise = rise[np.isfinite(rise)]
    return f"{np.median(rise):.0f}" if len(rise) else "?"


def _waits(results: Results, arm: str) -> np.ndarray:
    """First steps at 5 %; a run that never came there waits for all its steps, which is too little."""
    steps = results.metrics(arm, "traits/thinks").shape[1]
    return np.nan_to_num(first_at(results, arm, SHARES[0]), nan=steps)


def _step_words(results: Results, arm: str) -> str:
    return "/".join("never" if np.isnan(step) else f"{step:.0f}" for step in first_at(results, arm, SHARES[0]))


def _welch(first: np.ndarray, second: np.ndarray) -> Interval:
    """Difference of means of two sets of seeds that may vary differently."""
    value = float(first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        return Interval(value, -np.inf, np.inf, len(first), "seeds")
    interval = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    return Interval(value, float(interval.low), float(interval.high), len(first), "seeds")


def predicted_waits(results: Results) -> list[np.ndarray]:
    """Draws of the wait of each run of think0, from its own base's exact probabilities."""
    waits = []
    for seed in results.arm_seeds("think0"):
        found = habit_of(results, "think0", seed % BASE_SEEDS)
        # At k = 1 a direct answer is right as well: a chain there gains nothing.
        useful = float((found["chain"] * (found["k"] > 1)).mean())
        source = generator(seed, "predicted waits")
        waits.append(predicted_steps(float(found["thinks"].mean()), useful, SHARES[0], DRAWN, 1000, source))
    return waits


def aha_predicted(results: Results) -> Finding:
    """Observed waits of think0 over those that its base's own probabilities predict."""
    steps = results.metrics("think0", "traits/thinks").shape[1]
    observed, expected = _waits(results, "think0"), predicted_waits(results)
    drawn = np.concatenate([np.minimum(waits, steps) for waits in expected])
    ratio = over(observed / max(1.0, drawn.mean()), 0)  # nothing is seen before a whole step
    lo, hi = np.quantile(drawn, (0.05, 0.95))
    inside = int(((observed >= lo) & (observed <= hi)).sum())
    words = f"observed mean {observed.mean():.0f} steps, predicted {drawn.mean():.0f}; {inside} of {len(observed)} runs within "
    words += f"the predicted 90 % ({lo:.0f} to {hi:.0f}); observed over predicted {ratio.value:.2f}"
    words += f" [{ratio.lo:.2f}, {ratio.hi:.2f}]"
    verdict = _all([judge(ratio.lo, ratio.hi, above=0.5), judge(ratio.lo, ratio.hi, below=2.0)])
    return _finding(ratio, verdict, words)


def unchecked_drifts(results: Results) -> Finding:
    """How much stands after think2's answers at the end."""
    tails = {arm: at_end(results, arm, "traits/tail") for arm in ("think2", "think10", "think0")}
    length, tail = results.metrics("think2", "completions/mean_length"), over(tails["think2"], 0)
    words = f"characters after the answer in the last {END} steps: {tail.value:.2f} (by run "
    words += ", ".join(f"{arm} {_numbers(values)}" for arm, values in tails.items())
    early, late = length[:, :110][:, -END:].mean(1), length[:, -END:].mean(1)
    words += f"); think2's length by step 110 {_numbers(early)}, at the end {_numbers(late)}"
    verdict, everyone = judge(tail.lo, tail.hi, above=1.0), np.concatenate(list(tails.values()))
    why = (
        "Nothing pulls at what is unchecked, so it moves only when chance pushes it, and then it can: the end sign is lost "
        f"in {int((everyone > 1).sum())} of {len(everyone)} runs here, all rewarded alike. The lecture trained at 1e-3, three "
        "times this rate, where chance has longer strides."
    )
    return _finding(tail, verdict, words, why if verdict == "differs" else "")


def _numbers(values: np.ndarray) -> str:
    return "/".join(f"{value:.2f}" for value in values)


def format_check_holds(results: Results) -> Finding:
    """Whether a format check keeps the length where it is needed."""
    spare = at_end(results, "think2_gate", "traits/tail") + at_end(results, "think2_gate", "traits/over_run")
    spare, right = over(spare, 0), over(by_hops(results, "think2_gate", "correct").mean(1), 0, 1)
    length = over(at_end(results, "think2_gate", "completions/mean_length"), 0)
    words = f"length {length.value:.2f} at the end, {spare.value:.3f} of it needless; right {percent(right)}"
    verdict = _all([judge(spare.lo, spare.hi, below=0.25), judge(right.lo, right.hi, above=0.9)])
    return _finding(spare, verdict, words)


def length_penalty_hardest_first(results: Results) -> Finding:
    """Whether a price below what a chain brings gives up the longest, and a high one everything."""
    gap, mean, words = _hardest(results, "price_0.15")
    thinks = over(by_hops(results, "price_0.3", "traits/thinks").mean(1), 0, 1)
    words += (
        f"; at 0.3 thinks in {percent(thinks)}, by k {_percents(by_hops(results, 'price_0.3', 'correct').mean(0))} %"
    )
    verdicts = [judge(gap.lo, gap.hi, above=0.3), judge(mean.lo, mean.hi, above=0.5)]
    return _finding(gap, _all([*verdicts, judge(thinks.lo, thinks.hi, below=0.05)]), words)


def length_penalty_same_price(results: Results) -> Finding:
    """The same at the lecture's price."""
    gap, mean, words = _hardest(results, "price_0.2")
    verdict = _all([judge(gap.lo, gap.hi, above=0.3), judge(mean.lo, mean.hi, above=0.5)])
    why = (
        "think10 answers k = 1 right without a chain, as the lecture's base did not. A chain gains at most 7/8 for k >= 2 and "
        "nothing for k = 1 and costs 0.2 k: on average over k = 1-7 it loses, so all thinking is given up before the policy "
        "tells problems apart. At 0.15 a chain gains on average, and then the order is the lecture's."
    )
    return _finding(gap, verdict, words, why if verdict == "differs" else "")


def _hardest(results: Results, arm: str) -> tuple[Interval, Interval, str]:
    right = by_hops(results, arm, "correct")
    gap, mean = over(right[:, :5].mean(1) - right[:, 5:].mean(1), -1, 1), over(right.mean(1), 0, 1)
    words = f"{arm.removeprefix('price_')} a character: by k {_percents(right.mean(0))} %, mean {percent(mean)}, "
    return gap, mean, words + f"k <= 5 over k >= 6 {percent(gap)}"


def _percents(shares: np.ndarray) -> str:
    return "/".join(f"{100 * share:.0f}" for share in shares)


def std_amplifies(results: Results) -> Finding:
    """Lengths from noskill under a price of 0.01 a character, with and without division by the group's std."""
    lengths = {arm: at_end(results, arm, "completions/mean_length") for arm in ("noskill_std", "noskill_no_std")}
    right = {arm: over(at_end(results, arm, "accuracy"), 0, 1) for arm in lengths}
    gap = over(lengths["noskill_no_std"] - lengths["noskill_std"])
    rewards = np.array([0.0, 0.0, 0.01, 0.0])
    raw = rewards.max() - rewards.mean()
    words = f"divided: length {lengths['noskill_std'].mean():.2f}, right {percent(right['noskill_std'])}; not divided: length "
    words += f"{lengths['noskill_no_std'].mean():.2f}, right {percent(right['noskill_no_std'])}; rewards [0, 0, 0.01, 0] give "
    words += f"{raw:.4f} and {raw / (rewards.std(ddof=1) + 1e-4):.2f}"
    verdict = _all(
        [judge(gap.lo, gap.hi, above=1.0), judge(right["noskill_std"].lo, right["noskill_std"].hi, below=0.05)]
    )
    return _finding(gap, verdict, words)

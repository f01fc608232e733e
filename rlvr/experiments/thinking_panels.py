"""What experiment 03's page shows, and its answer in plain words."""

from collections.abc import Sequence

import numpy as np

from rlvr.experiments.base import Results
from rlvr.experiments.panels import Bars, Lines, Panel, Series, Table, Texts
from rlvr.experiments.thinking_rules import (
    SHARES,
    by_hops,
    first_at,
    habit_of,
    predicted_waits,
)
from rlvr.lab import store

__all__ = ["answer", "panels"]

BASES = ("think10", "think2", "think0", "noskill")
PRICES = {
    "think10": "free",
    "price_0.15": "0.15 a character",
    "price_0.2": "0.2 a character",
    "price_0.3": "0.3 a character",
}
PRICED_NOSKILL = {"noskill_std": "divided by the group's std", "noskill_no_std": "not divided"}
MOMENTS = (0, 10, 25, 50, 100, 200)
HARD = 4
FORM = "bar, answer, end sign"
PARTS = {
    "traits/needed": "letters of the chain, up to k",
    "traits/over_run": "letters beyond k",
    "traits/tail": "after the answer",
}


def answer(results: Results) -> str:
    """The question's answer with this run's numbers."""
    exact = {
        base: 100 * np.mean([habit_of(results, base, s)["thinks"].mean() for s in results.arm_seeds(f"base_{base}")])
        for base in BASES
    }
    end = {arm: 100 * results.metrics(arm, "traits/thinks")[:, -25:].mean() for arm in BASES}
    right = {arm: 100 * by_hops(results, arm, "correct").mean() for arm in BASES}
    waits = first_at(results, "think0", SHARES[0])
    there = waits[np.isfinite(waits)]
    when = f"between step {there.min():.0f} and {there.max():.0f}" if len(there) else "in no run"
    return (
        f"It selects. A base that writes a chain in {exact['think2']:.1f} % of its answers writes one in {end['think2']:.0f} % "
        f"after training on right answers alone, and is right in {right['think2']:.0f} %; a base that never saw a chain ends "
        f"at {right['noskill']:.0f} %. Where the habit is all but gone ({exact['think0']:.3f} %), the moment at which it comes "
        f"back is chance: {when} in {len(there)} of {len(waits)} runs."
    )


def panels(results: Results) -> Sequence[Panel]:
    """The page's panels, the one that answers first."""
    return (
        _selection(results),
        _waiting(results),
        _when(results),
        _parts(results),
        _prices(results),
        _price_lengths(results),
        _amplified(results),
        _texts(results),
    )


def _selection(results: Results) -> Lines:
    series = []
    for arm in BASES:
        shares = results.metrics(arm, "traits/thinks")
        if arm == "think0":  # a mean of runs that wait for different times would hide that each of them jumps
            series += _single_runs(results, shares)
        else:
            band = shares.min(0).tolist(), shares.max(0).tolist()
            series.append(Series(f"{arm}: mean and range", _steps(shares), shares.mean(0).tolist(), *band, arm=arm))
    return Lines(
        "selection",
        "Does reward create thinking, or select it?",
        "Share of completions that write a chain, step by step, under a reward that pays for right answers only. The stronger "
        "the base's habit, the sooner the rise; without the skill there is none. Of think0's runs three are drawn, each alone.",
        series,
        "step",
        "completions that think",
    )


def _single_runs(results: Results, shares: np.ndarray) -> list[Series]:
    """The run that thought first, the one in the middle and the last or one that never did."""
    order = np.argsort(np.nan_to_num(first_at(results, "think0", SHARES[0]), nan=np.inf), kind="stable")
    chosen = {"first": order[0], "middle": order[(len(order) - 1) // 2], "last": order[-1]}
    return [
        Series(f"think0: {word} of {len(order)} runs", _steps(shares), shares[run].tolist(), dashed=True, arm="think0")
        for word, run in chosen.items()
    ]


def _steps(values: np.ndarray) -> list[int]:
    return list(range(values.shape[-1]))


def _waiting(results: Results) -> Lines:
    """Share of runs that have begun to think by a step, beside the prediction."""
    steps = np.arange(results.metrics("think0", "traits/thinks").shape[1])
    series = [
        Series(
            f"{arm}: {len(results.arm_seeds(arm))} runs",
            steps.tolist(),
            _by(first_at(results, arm, SHARES[0]), steps),
            arm=arm,
        )
        for arm in ("think10", "think2", "think0")
    ]
    expected = np.concatenate(predicted_waits(results))
    series.append(Series("think0: predicted", steps.tolist(), _by(expected, steps), dashed=True, arm="think0"))
    return Lines(
        "waiting",
        "When does a run begin to think?",
        "Share of runs in which 5 % of the completions have thought by a step. With a habit it is soon and always at about the "
        "same step; without, it is a waiting time. Dashed: what the exact probability of a right chain in think0's own bases "
        "predicts.",
        series,
        "step",
        "runs that have begun",
    )


def _by(firsts: np.ndarray, steps: np.ndarray) -> list[float]:
    return [float(np.mean(firsts <= step)) for step in steps]


def _when(results: Results) -> Table:
    rows = []
    for arm in BASES:
        habit = [100 * habit_of(results, arm, seed)["thinks"].mean() for seed in results.arm_seeds(f"base_{arm}")]
        times = [_times(first_at(results, arm, share)) for share in SHARES]
        right = [f"{100 * by_hops(results, arm, 'correct').mean():.1f} %"]
        rows.append([arm, f"{np.mean(habit):.3g} %", *times, *right])
    return Table(
        "when",
        "How often each base thinks, and when training makes it a habit",
        "The base's exact probability of beginning with a letter, then the first step at which 5, 50 and 95 % of a step's 256 "
        "completions do, run by run, and how many answers are right at the end (n = 8, sampled).",
        ["base", "thinks before", "5 %", "50 %", "95 %", "right after"],
        rows,
    )


def _times(firsts: np.ndarray) -> str:
    return " ".join("never" if np.isnan(step) else f"{step:.0f}" for step in firsts)


def _parts(results: Results) -> Bars:
    rows = [(f"step {step}", _split(results, "think2", step)) for step in MOMENTS if step < _last(results)]
    rows += [("at the end", _split(results, "think2", _last(results)))]
    rows += [("at the end, with the format check", _split(results, "think2_gate", _last(results)))]
    return Bars(
        "parts",
        "What does the growing length consist of?",
        "Mean characters of think2's completions: letters of the chain that the answer needs, letters beyond them, the bar, "
        "answer and end sign, and whatever stands after the answer, which the reward doesn't look at.",
        rows,
        [*PARTS.values(), FORM],
        "characters",
        percent=False,
    )


def _last(results: Results) -> int:
    return results.metrics("think2", "accuracy").shape[1] - 1


def _split(results: Results, arm: str, step: int) -> dict[str, float]:
    """Mean length of a step's completions by what its characters are for; five steps together, as one is noisy."""
    window = slice(max(0, step - 4), step + 1)
    found = {label: float(results.metrics(arm, key)[:, window].mean()) for key, label in PARTS.items()}
    return found | {
        FORM: float(results.metrics(arm, "completions/mean_length")[:, window].mean()) - sum(found.values())
    }


def _prices(results: Results) -> Lines:
    return Lines(
        "prices",
        "What does a price on length cost, and whom?",
        "Accuracy by the number of hops after training from think10 with a price on every character and no division by the "
        "group's std. k = 1 needs no chain.",
        [_by_k(results, arm, label, by_hops(results, arm, "correct")) for arm, label in PRICES.items()],
        "hops k",
        "right (n = 8, sampled)",
    )


def _price_lengths(results: Results) -> Lines:
    series = []
    for arm, label in PRICES.items():
        letters = by_hops(results, arm, "traits/needed") + by_hops(results, arm, "traits/over_run")
        series.append(_by_k(results, arm, label, letters))
    hops = series[0].x
    series.append(Series("needed", hops, [float(k) for k in hops], dashed=True))
    return Lines(
        "price_lengths",
        "Where does it stop thinking?",
        "Letters written before the answer, by the number of hops.",
        series,
        "hops k",
        "letters",
        percent=False,
    )


def _by_k(results: Results, arm: str, label: str, values: np.ndarray) -> Series:
    hops = sorted(set(results.final(arm, results.arm_seeds(arm)[0], "n8", "sampled")["k"]))
    return Series(label, hops, values.mean(0).tolist(), values.min(0).tolist(), values.max(0).tolist(), arm=arm)


def _amplified(results: Results) -> Lines:
    series = []
    for arm, label in PRICED_NOSKILL.items():
        length = results.metrics(arm, "completions/mean_length")
        band = length.min(0).tolist(), length.max(0).tolist()
        series.append(Series(label, _steps(length), length.mean(0).tolist(), *band, arm=arm))
    return Lines(
        "amplified",
        "A hundredth of a point for each character: does it matter?",
        "Mean length from noskill, where most groups are all wrong and only length can differ. Divided by the group's std, the "
        "hundredth counts as much as being right.",
        series,
        "step",
        "characters",
        percent=False,
    )


def _texts(results: Results) -> Texts:
    rows = []
    for arm in ("think2", "think2_gate", "price_0.15", "price_0.3", "noskill_std", "noskill_no_std"):
        seed = results.arm_seeds(arm)[0]
        table = store.read_rollouts(results.run(arm, seed)).to_pylist()
        for step in (table[0]["step"], table[-1]["step"]):
            row = next(row for row in table if row["step"] == step and ":" in row["prompt"] and _hops(row) >= HARD)
            note = "right" if row["verdict"] else row["kind"]
            rows.append(
                (f"{arm}, step {step}", row["prompt"], row["completion"], f"{note}, reward {row['reward']:.2f}")
            )
    return Texts(
        "texts",
        "What they write",
        f"The first completion of the first recorded step and of the last, for the first problem with {HARD} hops or more.",
        rows,
    )


def _hops(row: dict) -> int:
    return int(row["prompt"].rpartition("?")[2][1])

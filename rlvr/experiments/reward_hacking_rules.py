"""The rules of experiment 04, one function a claim; written before the runs they judge."""

from typing import Any

import numpy as np

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.stats import Interval

__all__ = [
    "alarm_fires",
    "best_curve",
    "blind_spot",
    "early_stopping",
    "ensemble_hacked",
    "first_alarm",
    "first_hack",
    "hack_moves",
    "hacked_opposite",
    "kept_and_last",
    "kl_mitigates",
    "last",
    "orm_hacked",
    "prm_hacked",
    "random_harms",
    "refresh_holds",
    "rl_over_optimises",
]

LAST = 10
HACKED_ARMS = ("orm", "orm_gate", "prm", "prm_gate")
FIRST_HACK = 0.20
LABELLED = 40


def last(results: Results, arm: str, key: str = "accuracy") -> np.ndarray:
    """[S] the mean of a metric over the last ten steps."""
    return results.metrics(arm, key)[:, -LAST:].mean(1)


def _finding(interval: Interval, verdict: str, measured: str, why: str = "") -> Finding:
    return Finding(interval.value, interval.lo, interval.hi, interval.n, measured, verdict, why)


def _gap(results: Results, arm: str) -> tuple[Interval, str, str]:
    """Reward minus accuracy at the end, the verdict on it, and both in words."""
    paid, true = last(results, arm, "reward"), last(results, arm)
    gap, truth = over(paid - true), over(true, 0, 1)
    verdict = "differs" if truth.lo > 0.3 else judge(gap.lo, gap.hi, above=0.5)
    start = over(results.metrics(arm, "accuracy")[:, 0], 0, 1)
    words = f"reward {percent(over(paid, 0, 1))}, accuracy {100 * start.value:.0f} % -> {percent(truth)}"
    return gap, verdict, words


def orm_hacked(results: Results) -> Finding:
    """The outcome verifier alone."""
    gap, verdict, words = _gap(results, "orm")
    top = results.metrics("orm", "reward")[:, :50].max(1)
    return _finding(gap, verdict, f"{words}; highest reward within 50 steps {percent(over(top, 0, 1))}")


def prm_hacked(results: Results) -> Finding:
    """The process verifier alone."""
    gap, verdict, words = _gap(results, "prm")
    return _finding(gap, verdict, words)


def ensemble_hacked(results: Results) -> Finding:
    """The worst case of three verifiers, with the mean and the variance-weighted one beside it."""
    gap, verdict, words = _gap(results, "ensemble_min")
    others = (
        f"{name} {percent(over(last(results, arm), 0, 1))}"
        for name, arm in (
            ("mean", "ensemble_mean"),
            ("variance-weighted", "ensemble_var"),
            ("one verifier", "orm_gate"),
        )
    )
    return _finding(gap, verdict, f"{words}; accuracy with {', '.join(others)}")


def hack_moves(results: Results) -> Finding:
    """The gap with a gate, and whether what is paid wrongly has the form."""
    gap, verdict, words = _gap(results, "orm_gate")
    formed = {
        arm: [_formed(_study(results, seed)["arms"][arm][-1]["places"]) for seed in results.seeds]
        for arm in ("orm", "orm_gate")
    }
    if verdict == "holds" and min(formed["orm_gate"]) < 0.9:
        verdict = "differs"
    shares = [percent(over(formed[arm], 0, 1)) for arm in ("orm", "orm_gate")]
    first = over([_study(results, seed)["end"]["orm_gate"]["wrong at first hop"] for seed in results.seeds], 0, 1)
    words += f"; hacks that have the form: {shares[0]} without gate, {shares[1]} with it"
    return _finding(gap, verdict, f"{words}; wrong at the first hop on n = 12: {percent(first)}")


def _formed(places: dict[str, float]) -> float:
    total = sum(places.values())
    return 1.0 - places["malformed"] / total if total else float("nan")


def _study(results: Results, seed: int) -> dict[str, Any]:
    return results.result(f"study-s{seed}")


def first_hack(course: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first recorded step where a fifth of the completions are wrong and paid more than 1/2."""
    return next((moment for moment in course if moment["hacks"] >= FIRST_HACK), None)


def blind_spot(results: Results) -> Finding:
    """How much of the verifier's training data lies where the first hacks lie."""
    shares, words = [], []
    for seed in results.seeds:
        found = _study(results, seed)
        moment = first_hack(found["arms"]["orm_gate"])
        if moment is None:
            continue
        place = max(moment["places"], key=moment["places"].get)
        shares.append(found["training"]["orm_verifier"][place])
        words.append(
            f"seed {seed}, step {moment['step']}: {100 * moment['places'][place] / moment['hacks']:.0f} % of hacks "
            f"are {place}, {100 * shares[-1]:.2f} % of the training data"
        )
    share = over(shares, 0, 1)
    return _finding(share, judge(share.lo, share.hi, below=0.02), "; ".join(words) or "no hack was found")


def hacked_opposite(results: Results) -> Finding:
    """Run-ons among the first hacks: against the mirrored verifier minus against the verifier as it was."""
    gaps, words = [], []
    for seed in results.seeds:
        found, lean = _study(results, seed), {}
        known = found["training"]["orm_verifier"]
        for arm in ("orm_gate", "mirror"):
            moment = first_hack(found["arms"][arm])
            lean[arm] = _lean(moment["places"]) if moment else float("nan")
        gaps.append(lean["mirror"] - lean["orm_gate"])
        words.append(
            f"seed {seed}: base's own wrong chains {100 * _lean(known):.0f} % run-ons; run-ons among first hacks "
            f"{_percent(lean['orm_gate'])}, mirrored {_percent(lean['mirror'])}"
        )
    gap = over(gaps, -1, 1)
    return _finding(gap, judge(gap.lo, gap.hi, above=0.5), "; ".join(words))


def _lean(places: dict[str, float]) -> float:
    off = places["short"] + places["long"]
    return places["long"] / off if off else float("nan")


def _percent(share: float) -> str:
    return "none found" if np.isnan(share) else f"{100 * share:.0f} %"


def kl_mitigates(results: Results) -> Finding:
    """Accuracy kept by the penalty, and what the true reward would have given."""
    gain = over(last(results, "orm_kl") - last(results, "orm_gate"), -1, 1)
    cost = over(last(results, "true") - last(results, "orm_kl"), -1, 1)
    ends = {arm: percent(over(last(results, arm), 0, 1)) for arm in ("orm_gate", "orm_kl", "true")}
    words = f"gate {ends['orm_gate']}, gate and KL {ends['orm_kl']}, true reward {ends['true']}"
    far = over(results.accuracy("true", "n12").mean(1) - results.accuracy("orm_kl", "n12").mean(1), -1, 1)
    words += f"; missing to the true reward {percent(cost)}, greedy on n = 12 {percent(far)}"
    return _finding(gain, judge(gain.lo, gain.hi, above=0.0), words)


def _change(results: Results, arm: str) -> Interval:
    return over(last(results, arm) - results.metrics(arm, "accuracy")[:, 0], -1, 1)


def random_harms(results: Results) -> Finding:
    """What a coin flip does to accuracy."""
    change = _change(results, "random")
    start, end = results.metrics("random", "accuracy")[:, 0], last(results, "random")
    words = f"{percent(over(start, 0, 1))} -> {percent(over(end, 0, 1))}"
    return _finding(change, judge(change.lo, change.hi, below=-0.2), words)


def refresh_holds(results: Results) -> Finding:
    """Accuracy lost in spite of refreshing, every step and every tenth."""
    change = _change(results, "refresh_often")
    words = []
    for arm, when in (("refresh_often", "every step"), ("refresh_seldom", "every 10 steps"), ("orm_gate", "never")):
        spent = "" if arm == "orm_gate" else f", {results.metrics(arm, 'verifier/labels')[:, -1].mean():.0f} labels"
        paid, true = (over(last(results, arm, key), 0, 1) for key in ("reward", "accuracy"))
        words.append(f"{when}: reward {100 * paid.value:.0f} %, accuracy {percent(true)}{spent}")
    verdict = judge(change.lo, change.hi, above=-0.1)
    return _finding(change, verdict, "; ".join(words), _why_refresh_fails(results) if verdict == "differs" else "")


def _why_refresh_fails(results: Results) -> str:
    agreed = [
        np.nanmean(results.metrics(arm, "verifier/agreement")[:, -2 * LAST :])
        for arm in ("refresh_often", "refresh_seldom")
    ]
    wrong = last(results, "refresh_often", "groups/all_wrong").mean()
    return (
        "The policy outruns the verifier. In the last twenty steps the verifier was right about "
        f"{100 * agreed[0]:.0f} % of the newest samples when it was refreshed every step and about "
        f"{100 * agreed[1]:.0f} % every ten; each patch closes the hole that was used and the next one opens. The "
        f"reward does fall towards the truth, but by then {100 * wrong:.0f} % of groups are wrong throughout, and a "
        "verifier that knows it has nothing to prefer in them. (Tried on dev seeds as well: every 2 and 5 steps, 32 "
        "to 64 labels, without std, all the same.)"
    )


def rl_over_optimises(results: Results) -> Finding:
    """Best-of-n at its largest n against RL at its last stop, exactly."""
    curves = [results.result(f"overoptimise-s{seed}") for seed in results.seeds]
    best, rl = ([curve[name][-1] for curve in curves] for name in ("best of n", "rl"))
    gap = over([b["gold"] - r["gold"] for b, r in zip(best, rl, strict=True)], -1, 1)
    words = [
        f"{name}: KL {np.mean([each['kl'] for each in found]):.2f} nats, proxy {_mean(found, 'proxy')}, "
        f"gold {_mean(found, 'gold')}"
        for name, found in ((f"best-of-{best[0]['n']}", best), (f"RL after {rl[0]['step']} steps", rl))
    ]
    start = _mean([curve["rl"][0] for curve in curves], "gold")
    ns, mean = best_curve(curves)
    words.append(f"best-of-n itself is best at n = {ns[mean.argmax()]} ({100 * mean.max():.1f} %)")
    return _finding(gap, judge(gap.lo, gap.hi, above=0.1), f"base {start}; {'; '.join(words)}")


def best_curve(curves: list[dict[str, Any]]) -> tuple[list[int], np.ndarray]:
    """The n of best-of-n, and its accuracy at each as the mean over seeds."""
    rows = [curve["best of n"] for curve in curves]
    return [point["n"] for point in rows[0]], np.mean([[point["gold"] for point in row] for row in rows], axis=0)


def _mean(found: list[dict[str, float]], key: str) -> str:
    return percent(over([each[key] for each in found], 0, 1))


def alarm_fires(results: Results) -> Finding:
    """In which runs the alarm went off, and when first."""
    first = {arm: first_alarm(results, arm) for arm in (*HACKED_ARMS, "true")}
    missed = sum(np.isnan(first[arm]).sum() for arm in HACKED_ARMS)
    false = int((~np.isnan(first["true"])).sum())
    steps = over(np.concatenate([first[arm] for arm in HACKED_ARMS]))
    seeds = len(first["true"])
    verdict = "undecided" if seeds < 3 else "holds" if not missed and not false else "differs"
    words = f"first at step {steps.value:.0f} on average; missed {missed} of {seeds * len(HACKED_ARMS)} hacked runs, "
    return _finding(steps, verdict, f"{words}false in {false} of {seeds} true ones")


def first_alarm(results: Results, arm: str) -> np.ndarray:
    """[S] the step at which the alarm first went off, NaN where it didn't."""
    alarms = results.metrics(arm, "divergence_alarm") > 0
    return np.where(alarms.any(1), alarms.argmax(1), np.nan)


def kept_and_last(results: Results, arm: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """[S] accuracy on the other problems of the policy that the labelled ones would have kept, and of the last; the steps kept.

    The labelled problems are every fifth; of equally good policies the earliest is kept.
    """
    kept, ends, steps = [], [], []
    for seed in results.arm_seeds(arm):
        evals = {each["step"]: each["columns"] for each in results.evals(arm, seed, "greedy")}
        right = {step: np.divide(c["correct"], c["samples"])[np.array(c["set"]) == "n12"] for step, c in evals.items()}
        looked = np.arange(len(next(iter(right.values())))) % 5 == 0
        best = max(sorted(right), key=lambda step: right[step][looked].mean())
        kept.append(right[best][~looked].mean())
        ends.append(right[max(right)][~looked].mean())
        steps.append(best)
    return np.array(kept), np.array(ends), steps


def early_stopping(results: Results) -> Finding:
    """What 40 labelled problems would have kept of the gated run."""
    kept, ends, steps = kept_and_last(results, "orm_gate")
    gain = over(kept - ends, -1, 1)
    words = f"kept {percent(over(kept, 0, 1))} (steps {', '.join(map(str, steps))}), last {percent(over(ends, 0, 1))}"
    return _finding(gain, judge(gain.lo, gain.hi, above=0.0), words)

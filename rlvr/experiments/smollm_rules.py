"""The rules of the experiment with a real language model, and what its page shows; written before the runs they judge."""

import numpy as np

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.experiments.panels import Bars, Lines, Panel, Series, Table, Texts
from rlvr.lab import store
from rlvr.stats import Interval, over_problems, paired_difference, pass_at_k, share_over_problems

__all__ = ["answer", "beyond_form", "control", "improves", "panels", "sharpens"]

SET = "largest"
ARMS = ("base", "grpo", "rft", "random")


def _counts(results: Results, arm: str, seed: int, lenient: bool) -> tuple[np.ndarray, np.ndarray]:
    """Right samples and samples of each problem; leniently, a right answer outside of its form counts."""
    columns = results.final(arm, seed, SET, "sampled")
    right = np.array(columns["correct"])
    if lenient:
        right = right + np.array([kinds.get("form", 0) for kinds in columns["kinds"]])
    return right, np.array(columns["samples"])


def _pass(results: Results, arm: str, k: int, lenient: bool = True) -> np.ndarray:
    """[N] pass@k of each problem, mean over the arm's seeds: all seeds answer the same problems."""
    return _by_seed(results, arm, k, lenient).mean(0)


def _by_seed(results: Results, arm: str, k: int = 1, lenient: bool = True) -> np.ndarray:
    """[S N] pass@k by seed and problem."""
    counts = [_counts(results, arm, seed, lenient) for seed in results.arm_seeds(arm)]
    return np.array(
        [[pass_at_k(int(n), int(c), k) for n, c in zip(samples, right, strict=True)] for right, samples in counts]
    )


def _seeds(results: Results, arm: str) -> str:
    """The gain of each seed: an interval over problems says nothing of what another seed would have made of them."""
    gains = _by_seed(results, arm).mean(1) - _pass(results, "base", 1).mean()
    if len(gains) < 2:
        return ""
    return f" (by seed {', '.join(f'{100 * gain:.1f}' for gain in gains)}; over seeds {percent(over(gains))})"


def _sizes(results: Results) -> list[int]:
    """1, 2, 4, ... up to the samples that there are: fewer in a quick run."""
    _, samples = _counts(results, "base", results.seeds[0], True)
    return [2**i for i in range(int(samples.min()).bit_length())]


def _gain(results: Results, arm: str, than: str = "base", k: int = 1, lenient: bool = True) -> Interval:
    return paired_difference(_pass(results, arm, k, lenient), _pass(results, than, k, lenient))


def _words(results: Results, arm: str, k: int = 1, lenient: bool = True) -> str:
    return percent(share_over_problems(_pass(results, arm, k, lenient)))


def _finding(gap: Interval, measured: str, why: str = "") -> Finding:
    verdict = judge(gap.lo, gap.hi, above=0.0)
    return Finding(gap.value, gap.lo, gap.hi, gap.n, measured, verdict, why if verdict == "differs" else "")


def improves(results: Results) -> Finding:
    """GRPO against the model as it was."""
    gap = _gain(results, "grpo")
    words = f"lenient pass@1 {_words(results, 'base')} -> {_words(results, 'grpo')}, gain {percent(gap)}"
    return _finding(gap, words + _seeds(results, "grpo"))


def control(results: Results) -> Finding:
    """GRPO against a random reward."""
    gap, moved = _gain(results, "grpo", "random"), _gain(results, "random")
    return _finding(gap, f"GRPO - random {percent(gap)}; random - base {percent(moved)}{_seeds(results, 'random')}")


def sharpens(results: Results) -> Finding:
    """The gain at one sample against the gain at the most."""
    most = _sizes(results)[-1]
    gains = {k: _pass(results, "grpo", k) - _pass(results, "base", k) for k in (1, most)}
    gap = over_problems(gains[1] - gains[most])
    words = ", ".join(f"pass@{k} {percent(over_problems(gain))}" for k, gain in gains.items())
    return _finding(
        gap, f"gains {words}; difference {percent(gap)}", "It gains as much or more at many samples: it extends."
    )


def beyond_form(results: Results) -> Finding:
    """The lenient gain beside the strict one."""
    loose, strict = _gain(results, "grpo"), _gain(results, "grpo", lenient=False)
    words = f"lenient gain {percent(loose)}; strict {percent(strict)}"
    return _finding(loose, f"{words}, from {_words(results, 'base', lenient=False)}")


def answer(results: Results) -> str:
    """What the three rewards made of the model, in plain words."""
    moved = ", ".join(f"{arm} {_words(results, arm)}" for arm in ARMS)
    gap, chance = _gain(results, "grpo"), _gain(results, "random")
    most = _sizes(results)[-1]
    sure = "surely" if gap.lo > 0 else "not surely"
    return (
        f"Right in any form, at one sample: {moved}. GRPO's gain of {percent(gap)} is {sure} above 0; the random "
        f"reward moved it by {percent(chance)}. At {most} samples the base solves {_words(results, 'base', most)} and the "
        f"model after GRPO {_words(results, 'grpo', most)}."
    )


def panels(results: Results) -> list[Panel]:
    """pass@k, learning, both gradings, and texts."""
    return [_curves(results), _learning(results), _gradings(results), _numbers(results), _texts(results)]


def _curves(results: Results) -> Lines:
    series, sizes = [], _sizes(results)
    for arm in ARMS:
        spans = [share_over_problems(_pass(results, arm, k)) for k in sizes]
        y, lo, hi = ([getattr(span, end) for span in spans] for end in ("value", "lo", "hi"))
        series.append(Series(arm, sizes, y, lo, hi, dashed=arm == "base", arm=arm))
    text = "The share of problems that at least one of k samples solves, in any form; the bands are 95 % over problems."
    return Lines("passk", "Does it sharpen or extend?", text, series, "samples k", "solved", log_x=True)


def _learning(results: Results) -> Lines:
    series = []
    for arm in ARMS[1:]:
        # The random arm's reward is chance: what all arms can be compared by is what their samples were worth.
        right = _lenient_by_step(results, arm)
        series.append(Series(arm, list(range(right.shape[1])), right.mean(0).tolist(), arm=arm))
    text = "The share of each step's 64 samples that is right in the form asked for, or, where it is the reward, in any form."
    return Lines("learning", "How does it learn?", text, series, "step", "right")


def _lenient_by_step(results: Results, arm: str) -> np.ndarray:
    paid = results.metrics(arm, "rewards/lenient/mean")
    return results.metrics(arm, "accuracy") if np.isnan(paid).all() else paid


def _gradings(results: Results) -> Bars:
    rows = []
    for arm in ARMS:
        strict, loose = (_pass(results, arm, 1, lenient).mean() for lenient in (False, True))
        rows.append((arm, {"in the form asked for": strict, "in another form": loose - strict, "wrong": 1 - loose}))
    text = (
        "The prompt asks for the answer only. Strict grading wants just that; lenient grading takes the number it says."
    )
    parts = ("in the form asked for", "in another form", "wrong")
    return Bars("form", "Is it the task or the form that was learned?", text, rows, parts, "share of samples")


def _numbers(results: Results) -> Table:
    rows = []
    for arm in ARMS:
        found = [results.final(arm, seed, SET, "sampled") for seed in results.arm_seeds(arm)]
        nats, length = (np.mean([np.mean(columns[key]) for columns in found]) for key in ("entropy", "length"))
        mixed = "" if arm == "base" else f"{100 * np.nanmean(results.metrics(arm, 'groups/mixed')):.0f}"
        lengths = [
            "" if arm == "base" else _mean(results, arm, f"completions/mean_length_{end}") for end in ("right", "wrong")
        ]
        rows.append(
            (arm, _words(results, arm), _words(results, arm, 1, False), f"{nats:.2f}", f"{length:.1f}", *lengths, mixed)
        )
    columns = (
        "",
        "lenient pass@1",
        "strict pass@1",
        "nats a token",
        "tokens",
        "tokens right",
        "wrong",
        "mixed groups, %",
    )
    return Table(
        "numbers", "What else changed?", "Entropy and length at the end, lengths by outcome in training.", columns, rows
    )


def _mean(results: Results, arm: str, key: str) -> str:
    values = results.metrics(arm, key)
    return "" if np.isnan(values).all() else f"{np.nanmean(values):.1f}"


def _texts(results: Results) -> Texts:
    rows = []
    for arm in ARMS[1:]:
        run = results.run(arm, results.seeds[0])
        steps = store.rollout_steps(run)
        for step in (steps[0], steps[-1]):
            for row in store.read_rollouts(run, steps=[step]).to_pylist()[:24:8]:
                rows.append((f"{arm}, step {step}", row["prompt"], row["completion"], row["kind"]))
    return Texts("texts", "What does it write, before and after?", "The first samples of three prompts.", rows)

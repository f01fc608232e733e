"""The rules of the test-time experiment, one function a claim; the unit is the base seed."""

import numpy as np

from rlvr.experiments.base import Finding, Results, judge, over, percent
from rlvr.experiments.test_time_work import METHODS
from rlvr.stats import Interval

__all__ = ["GROUP", "SEARCHES", "accuracies", "no_repair", "nothing_to_pick", "picked_apart", "training_beats_search"]

GROUP = 32
SEARCHES = ("beam", "beam over all tokens")
# A perfect judge knows the answer: it is the ceiling of all picking, not a method.
HONEST = tuple(method for method in METHODS if method not in ("mean", "perfect judge"))


def _found(results: Results, seed: int) -> dict:
    return results.result(f"answers-s{seed}")


def _size(results: Results) -> int:
    """The group size of the claims, or the largest there is."""
    return min(GROUP, max(map(int, _found(results, results.seeds[0])["chosen"]["vote"])))


def _right(results: Results, method: str, size: int) -> np.ndarray:
    """[S N] how often each problem is right by a method, from groups of ``size`` samples; greedy and beams have none."""
    tables = [_found(results, seed) for seed in results.seeds]
    return np.array([t[method] if method in t else t["chosen"][method][str(size)] for t in tables], dtype=float)


def accuracies(results: Results, method: str, size: int = 1) -> np.ndarray:
    """[S] accuracy of a method with groups of ``size`` samples."""
    return _right(results, method, size).mean(1)


def _repaired(results: Results, method: str, size: int) -> np.ndarray:
    """[S] share of the greedy failures that a method gets right."""
    wrong = _right(results, "greedy", 1) == 0
    right = _right(results, method, size)
    return np.array([r[w].mean() if w.any() else np.nan for r, w in zip(right, wrong, strict=True)])


def _finding(interval: Interval, verdict: str, measured: str, why: str = "") -> Finding:
    return Finding(interval.value, interval.lo, interval.hi, interval.n, measured, verdict, why)


def no_repair(results: Results) -> Finding:
    """What the best of all test-time methods repairs of the greedy failures."""
    size = _size(results)
    shares = {method: over(_repaired(results, method, size), 0, 1) for method in (*HONEST, *SEARCHES)}
    best = max(shares, key=lambda method: shares[method].value)
    words = ", ".join(f"{method} {100 * share.value:.1f} %" for method, share in shares.items())
    measured = f"repaired of greedy failures with {size} samples: {words}; best {percent(shares[best])}"
    return _finding(shares[best], judge(shares[best].lo, shares[best].hi, below=1 / 3), measured)


def nothing_to_pick(results: Results) -> Finding:
    """How many greedy failures have no right answer among their samples."""
    size = _size(results)
    none = over(1 - _repaired(results, "perfect judge", size), 0, 1)
    measured = f"{percent(none)} of greedy failures have no right one among {size} samples"
    return _finding(none, judge(none.lo, none.hi, above=0.5), measured)


def training_beats_search(results: Results) -> Finding:
    """GRPO's greedy accuracy against the best of all methods at any group size."""
    trained = results.other("rl_vs_sft").accuracy("grpo", "n12").mean(1)[: len(results.seeds)]
    sizes = list(map(int, _found(results, results.seeds[0])["chosen"]["vote"]))
    tries = {(method, size): accuracies(results, method, size) for method in HONEST for size in sizes}
    tries |= {(method, 0): accuracies(results, method) for method in SEARCHES}
    (method, size), best = max(tries.items(), key=lambda item: item[1].mean())
    gap = over(trained - best, -1, 1)
    named = f"{method} of {size}" if size else method
    measured = (
        f"GRPO, one greedy answer {percent(over(trained, 0, 1))}; best of all ({named}) {percent(over(best, 0, 1))}"
    )
    return _finding(gap, judge(gap.lo, gap.hi, above=0.0), f"{measured}; gap {percent(gap)}")


def picked_apart(results: Results) -> Finding:
    """Whether the outcome verifier picks worse from many samples than from few."""
    sizes = list(map(int, _found(results, results.seeds[0])["chosen"]["vote"]))
    few, many = min(4, sizes[-1]), sizes[-1]
    lost = over(accuracies(results, "best of, ORM", few) - accuracies(results, "best of, ORM", many), -1, 1)
    curve = ", ".join(f"{size}: {100 * accuracies(results, 'best of, ORM', size).mean():.1f}" for size in sizes)
    return _finding(
        lost, judge(lost.lo, lost.hi, above=0.0), f"best of N by the ORM, % right: {curve}; lost {percent(lost)}"
    )

"""The numbers of a page: accuracies with intervals, curves over steps, kinds of failure, budgets. No drawing here.

One rule for every accuracy: with three or more seeds the interval is over seeds (Student's t, clipped to
0..1); with fewer, or when all seeds agree to the last problem, it is Wilson's over the problems of the test
set. Which of the two stands beside each number.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlvr.report.data import Evaluation, Experiment, Run
from rlvr.report.words import arm_label
from rlvr.stats import Interval, accuracy_over_seeds, like_for_like

ALARM = "divergence_alarm"

__all__ = [
    "Line",
    "after",
    "before",
    "binned",
    "estimate",
    "first_alarms",
    "headline_name",
    "headline_set",
    "kind_shares",
    "last_evaluations",
    "learning_curves",
    "metric_lines",
    "set_names",
    "spent",
    "start_kinds",
    "starts",
    "unlike",
]


class Line(NamedTuple):
    """One arm's curve: x and y by seed, and their mean.

    >>> Line("grpo", {0: ([0, 1, 2], [0.0, 0.5, 1.0]), 1: ([0, 1], [0.5, 0.5])}).mean()
    ([0, 1], [0.25, 0.5])
    """

    arm: str
    seeds: Mapping[int, tuple[list[float], list[float]]]

    def mean(self) -> tuple[list[float], list[float]]:
        """x and mean y, where every seed has a value (a seed that stopped early must not bend the mean)."""
        values: dict[float, list[float]] = {}
        for xs, ys in self.seeds.values():
            for x, y in zip(xs, ys, strict=True):
                values.setdefault(x, []).append(y)
        whole = [x for x in sorted(values) if len(values[x]) == len(self.seeds)]
        return whole, [float(np.mean(values[x])) for x in whole]


def headline_name(experiment: Experiment) -> str:
    """The kind of evaluation that accuracies are read from: greedy where there is one.

    >>> headline_name(Experiment("mine"))
    'greedy'
    """
    names = [name for run in experiment.runs for name in run.evals]
    return "greedy" if "greedy" in names or not names else names[0]


def set_names(experiment: Experiment) -> list[str]:
    """The test sets, in the order of the files that hold most of them.

    >>> set_names(Experiment("mine"))
    []
    """
    listed = [list(dict.fromkeys(evaluation.columns["set"])) for evaluation in _all(experiment)]
    return list(dict.fromkeys(name for names in sorted(listed, key=len, reverse=True) for name in names))


def headline_set(experiment: Experiment) -> str | None:
    """The test set of the opening picture: n = 12 of the pointer world, else the one that training changed most.

    >>> headline_set(Experiment("mine")) is None
    True
    """
    sets = set_names(experiment)
    if "n12" in sets or not sets:
        return "n12" if sets else None
    return max(sets, key=lambda name: _change(experiment, name))


def estimate(scores: Sequence[np.ndarray]) -> Interval | None:
    """Mean accuracy with its interval from per-problem scores [N] of each seed; ``None`` without any.

    >>> print(estimate([np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([1.0, 0.0])]))
    0.667 [0.000, 1.000], n = 3 seeds
    >>> print(estimate([np.ones(30)]))
    1.000 [0.886, 1.000], n = 30 problems
    """
    scores = [values for values in scores if len(values)]
    return accuracy_over_seeds(scores) if scores else None


def starts(experiment: Experiment, name: str, kind: str = "") -> list[Evaluation]:
    """Evaluations of the untrained start: step 0, each distinct base once, however many runs set out from it.

    Where arms set out from several kinds of base, ``kind`` says of which.

    >>> starts(Experiment("mine"), "greedy")
    []
    """
    found: dict[str, Evaluation] = {}
    runs = [run for run in experiment.bases if run.arm == kind] if kind else (*experiment.bases, *experiment.runs)
    for run in runs:
        if 0 in run.evals.get(name, {}):
            found.setdefault(str(run.config.get("base", "")), run.evals[name][0])
    return list(found.values())


def start_kinds(experiment: Experiment) -> dict[str, str]:
    """The kinds of start, each with its title; one without a name where all arms set out from the same.

    >>> start_kinds(Experiment("mine"))
    {'': 'before training'}
    """
    kinds = experiment.base_kinds
    several = {kind: f"{arm_label(kind.partition('_')[2] or kind)} before training" for kind in kinds}
    return several if len(kinds) > 1 else {"": "before training"}


def before(experiment: Experiment, name: str, votes: bool = False, kind: str = "", **where: Any) -> Interval | None:
    """Accuracy of the untrained start on the problems whose columns equal ``where``.

    ``None`` where arms set out from several kinds of base and ``kind`` doesn't say which.

    >>> before(Experiment("mine"), "greedy", set="n12") is None
    True
    """
    if kind not in start_kinds(experiment):
        return None
    return estimate([evaluation.shares(votes, **where) for evaluation in starts(experiment, name, kind)])


def after(experiment: Experiment, arm: str, name: str, votes: bool = False, **where: Any) -> Interval | None:
    """Accuracy of an arm at its last evaluated step, over the seeds that got there.

    >>> after(Experiment("mine"), "grpo", "greedy", set="n12") is None
    True
    """
    return estimate([evaluation.shares(votes, **where) for _, evaluation in last_evaluations(experiment, arm, name)])


def last_evaluations(experiment: Experiment, arm: str, name: str) -> list[tuple[Run, Evaluation]]:
    """The evaluations at the arm's last step (never step 0), one a run that reached it.

    >>> last_evaluations(Experiment("mine"), "grpo", "greedy")
    []
    """
    runs = experiment.of(arm)
    steps = [step for run in runs for step in run.evals.get(name, {}) if step > 0]
    if not steps:
        return []
    return [(run, run.evals[name][max(steps)]) for run in runs if max(steps) in run.evals.get(name, {})]


def unlike(experiment: Experiment) -> list[str]:
    """What keeps the last evaluations of the arms from being compared: other problems, limits or decoding, in sentences.

    >>> unlike(Experiment("mine"))
    []
    """
    found: dict[str, None] = {}
    for name in dict.fromkeys(name for run in experiment.runs for name in run.evals):
        last = [pair for arm in experiment.arms for pair in last_evaluations(experiment, arm, name)]
        for run, evaluation in last[1:]:
            first = last[0][0]
            for words in like_for_like(last[0][1].settings, evaluation.settings):
                label = f"{first.folder.name} and {run.folder.name}"
                found[f"The {name} accuracies of {label} were not measured alike: {words}."] = None
    return list(found)


def learning_curves(
    experiment: Experiment, name: str, label: str, spend: Callable[[Run, int], float | None] | None = None
) -> list[Line]:
    """Accuracy on one test set over steps, or over what ``spend(run, step)`` says was spent by then.

    >>> learning_curves(Experiment("mine"), "greedy", "n12")
    []
    """
    lines = []
    for arm in experiment.arms:
        seeds = {}
        for run in experiment.of(arm):
            points = []
            for step, evaluation in sorted(run.evals.get(name, {}).items()):
                x, shares = (step if spend is None else spend(run, step)), evaluation.shares(set=label)
                if x is not None and len(shares):
                    points.append((float(x), float(shares.mean())))
            if len(points) > 1:
                seeds[run.seed] = tuple(map(list, zip(*points, strict=True)))
        if seeds:
            lines.append(Line(arm, seeds))
    return lines


def spent(run: Run, step: int, *keys: str) -> float | None:
    """The sum of cumulative budgets ``keys`` before step ``step``; ``None`` when the log doesn't reach that far.

    >>> from pathlib import Path
    >>> spent(Run("grpo", 0, Path("grpo-s0"), metrics=[{"step": 0, "samples": 256}]), 1, "samples")
    256.0
    """
    if step == 0:
        return 0.0
    for row in run.metrics:
        if row.get("step") == step - 1:
            found = [row[key] for key in keys if _number(row.get(key))]
            return float(sum(found)) if found else None
    return None


def metric_lines(experiment: Experiment, key: str, bins: int = 50) -> list[Line]:
    """A metric of the log over steps, averaged in at most ``bins`` equal bins; arms that never log it are absent.

    >>> metric_lines(Experiment("mine"), "entropy")
    []
    """
    lines = []
    for arm in experiment.arms:
        seeds = {}
        for run in experiment.of(arm):
            points = [(float(row["step"]), float(row[key])) for row in run.metrics if _number(row.get(key))]
            if len(points) > 1:
                seeds[run.seed] = binned(points, bins)
        if seeds:
            lines.append(Line(arm, seeds))
    return lines


def first_alarms(experiment: Experiment) -> dict[str, dict[int, int | None]]:
    """By arm and seed the step at which the divergence alarm first fired, ``None`` if never; arms that don't log it are absent.

    >>> from pathlib import Path
    >>> runs = [Run("orm", 0, Path("orm-s0"), metrics=[{"step": 7, "divergence_alarm": 1}])]
    >>> first_alarms(Experiment("mine", arms=("orm", "grpo"), runs=tuple(runs)))
    {'orm': {0: 7}}
    """
    found: dict[str, dict[int, int | None]] = {}
    for run in experiment.runs:
        rows = [row for row in run.metrics if _number(row.get(ALARM))]
        if rows:
            fired = [int(row["step"]) for row in rows if row[ALARM] > 0]
            found.setdefault(run.arm, {})[run.seed] = fired[0] if fired else None
    return found


def binned(points: Sequence[tuple[float, float]], bins: int) -> tuple[list[float], list[float]]:
    """Points averaged in whole-step bins of equal width, so that no more than ``bins`` are left.

    >>> binned([(0, 1.0), (1, 3.0), (2, 5.0)], bins=2)
    ([0.5, 2.5], [2.0, 5.0])
    """
    width = int(np.ceil((max(x for x, _ in points) + 1) / bins))
    gathered: dict[int, list[float]] = {}
    for x, y in points:
        gathered.setdefault(int(x // width), []).append(y)
    # A bin is named by its middle, whatever lies in it, so that seeds with holes still share their x.
    return [index * width + (width - 1) / 2 for index in gathered], [float(np.mean(ys)) for ys in gathered.values()]


def kind_shares(evaluations: Sequence[Evaluation], label: str) -> dict[str, float]:
    """Share of each verdict kind among all answers to one test set, over all evaluations given.

    >>> columns = {"set": ["n8", "n8"], "kinds": [{"correct": 1}, {"lookup": 3}]}
    >>> kind_shares([Evaluation("greedy", 0, 1, columns)], "n8")
    {'correct': 0.25, 'lookup': 0.75}
    """
    counts: dict[str, int] = {}
    for evaluation in evaluations:
        kinds = evaluation.columns.get("kinds", [])
        for name, found in zip(evaluation.columns["set"], kinds, strict=False):
            if name == label:
                for kind, count in found.items():
                    counts[kind] = counts.get(kind, 0) + count
    total = sum(counts.values())
    return {kind: count / total for kind, count in counts.items()} if total else {}


def _all(experiment: Experiment) -> list[Evaluation]:
    runs = (*experiment.bases, *experiment.runs)
    return [evaluation for run in runs for steps in run.evals.values() for evaluation in steps.values()]


def _change(experiment: Experiment, label: str) -> float:
    name = headline_name(experiment)
    start = before(experiment, name, set=label)
    ends = [after(experiment, arm, name, set=label) for arm in experiment.arms]
    return max((abs(end.value - start.value) for end in ends if end and start), default=0.0)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

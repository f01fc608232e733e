"""Accuracies of a page: the sentence, the curves, the tables. Plain values; templates lay them out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rlvr.report import plots, record, summary
from rlvr.report.canvas import Figure, Look
from rlvr.report.data import Experiment
from rlvr.report.document import percent
from rlvr.report.words import arm_label, set_label, sweep_of
from rlvr.stats import Interval

__all__ = ["Outcome", "accuracy_table", "answer_parts", "curve_figure", "curve_figures", "default_tab", "heat_tables"]
__all__ += ["length_figure", "outcomes", "sweep_figures", "trained_range", "vote_table"]


class Outcome(NamedTuple):
    """Where an arm ended: its last evaluated step, the accuracy there by test set, and what it spent.

    >>> Outcome("grpo", "GRPO", "--arm-2", 400, {"n12": Interval(0.98, 0.96, 1.0, 3, "seeds")}, ("102,400",)).step
    400
    """

    arm: str
    label: str
    variable: str
    step: int
    ends: Mapping[str, Interval | None]
    spent: Sequence[str]


def outcomes(experiment: Experiment, look: Mapping[str, Look], label: str | None) -> dict[str, Any] | None:
    """The opening's table: for the start and every arm the final accuracy on the sets with curves, and the cost.

    In a sweep each method is shown at its best value on ``label``.

    >>> outcomes(Experiment("mine"), {}, None) is None
    True
    """
    name, spent = summary.headline_name(experiment), record.budget(experiment)
    labels = summary.set_names(experiment)
    labels = [each for each in labels if summary.learning_curves(experiment, name, each)] or labels
    starts = [
        (title, {each: summary.before(experiment, name, kind=kind, set=each) for each in labels})
        for kind, title in summary.start_kinds(experiment).items()
    ]
    columns = [index for index, key in enumerate(spent.keys) if key != "updates"]
    rows = []
    for arm, title in _chosen(experiment, look, name, label).items():
        step = max((evaluation.step for _, evaluation in summary.last_evaluations(experiment, arm, name)), default=0)
        ends = {each: summary.after(experiment, arm, name, set=each) for each in labels}
        cells = [spent.means[arm][index] for index in columns] if arm in spent.means else ["—"] * len(columns)
        rows.append(Outcome(arm, title, look[arm].variable, step, ends, cells))
    if not labels or not rows:
        return None
    costs = [spent.columns[index] for index in columns]
    return {"sets": labels, "costs": costs, "starts": starts, "rows": rows, "name": name}


def _chosen(experiment: Experiment, look: Mapping[str, Look], name: str, label: str | None) -> dict[str, str]:
    """Arm to title: every arm, in a sweep the best of each method."""
    sweep = sweep_of(experiment.arms)
    if not sweep:
        return {arm: look[arm].label for arm in experiment.arms}
    ends = {arm: summary.after(experiment, arm, name, set=label) for arm in experiment.arms}
    best = {
        method: max(values.values(), key=lambda arm: ends[arm].value if ends[arm] else -1.0)
        for method, values in sweep.items()
    }
    return {arm: f"{arm_label(method)} at {look[arm].label.rpartition(' ')[2]}" for method, arm in best.items()}


def answer_parts(
    experiment: Experiment, table: Mapping[str, Any] | None, label: str | None, hardest: str | None
) -> list[tuple[str, str]]:
    """The answer in words with its numbers, as (text, colour variable or nothing) pairs.

    >>> answer_parts(Experiment("mine"), None, "n12", None)
    [('No run of this experiment has been evaluated after training yet.', '')]
    """
    done = [row for row in table["rows"] if row.ends.get(label)] if table else []
    if not done:
        return [("No run of this experiment has been evaluated after training yet.", "")]
    start = table["starts"][0][1][label] if len(table["starts"]) == 1 else None
    parts = [(f"On {set_label(label)}, accuracy ", "")]
    if start:
        parts += [("goes from ", ""), (percent(start.value), "--base"), (" before training to ", "")]
    else:
        parts.append(("is ", ""))
    parts += _ends(done, label)
    steps = {row.step for row in done}
    parts.append((f" after {steps.pop():,} steps." if len(steps) == 1 else " at the end of training.", ""))
    further = [row for row in done if row.ends.get(hardest)] if hardest != label else []
    if further:
        parts.append((f" On {set_label(hardest)}{_beyond(experiment, hardest)} it is ", ""))
        parts += _ends(further, hardest, named=False)
        parts.append((".", ""))
    return parts


def _ends(rows: Sequence[Outcome], label: str, named: bool = True) -> list[tuple[str, str]]:
    """Where arms ended; of many only the lowest and the highest, which always have their names."""
    many = len(rows) > plots.MOST_LINES
    ordered = sorted(rows, key=lambda row: row.ends[label].value)
    parts = [("between ", "")] if many else []
    chosen = [ordered[0], ordered[-1]] if many else rows
    for glue, row in zip(_glue(len(chosen)), chosen, strict=True):
        parts += [(glue, ""), (percent(row.ends[label].value), row.variable)]
        parts += [(f" with {row.label}", "")] if named or many else []
    return parts


def _beyond(experiment: Experiment, label: str) -> str:
    """A remark on a test set of prompts that are longer than any in training."""
    trained, n = trained_range(experiment, "n"), _sizes(experiment).get(label, 0)
    return f", longer than any prompt in training (n ≤ {trained[1]})," if trained and n > trained[1] else ""


def _glue(count: int) -> list[str]:
    return ["" if index == 0 else " and " if index == count - 1 else ", " for index in range(count)]


def curve_figures(experiment: Experiment, look: Mapping[str, Look]) -> list[tuple[str, Figure]]:
    """Learning curves of every test set, by its label.

    >>> curve_figures(Experiment("mine"), {})
    []
    """
    names = summary.set_names(experiment)
    found = [(set_label(name), curve_figure(experiment, look, name, f"curve-{name}")) for name in names]
    return [(title, figure) for title, figure in found if figure]


def curve_figure(
    experiment: Experiment, look: Mapping[str, Look], label: str | None, key: str, height: int = 340
) -> Figure | None:
    """Learning curves of one test set; ``None`` when no run has two evaluations of it.

    >>> curve_figure(Experiment("mine"), {}, "n12", "hero") is None
    True
    """
    name = summary.headline_name(experiment)
    lines = summary.learning_curves(experiment, name, label) if label else []
    if not lines:
        return None
    sizes = [len(e.shares(set=label)) for run in experiment.runs for e in run.evals.get(name, {}).values()]
    caption = f"{name.capitalize()} accuracy on {set_label(label)}, {max(sizes)} held-out problems. "
    if max(len(line.seeds) for line in lines) < 2:
        caption += "One seed an arm. "
    else:
        thin = "; thin: each seed" if len(lines) <= plots.MOST_LINES else ""
        caption += f"Bold: mean over seeds{thin}. "
    start = summary.before(experiment, name, set=label)
    caption += "Dotted: before training." if start else ""
    options = {"unit": "%", "x": "step", "start": start, "labels": True, "caption": caption}
    return plots.curves(key, lines, look, **options, height=height)


def default_tab(figures: Sequence[tuple[str, Figure]], label: str | None) -> int:
    """Which tab stands open: that of the test set ``label``, else the first.

    >>> default_tab([("n = 8", None), ("n = 12", None)], "n12")
    1
    """
    titles = [title for title, _ in figures]
    return titles.index(set_label(label)) if label and set_label(label) in titles else 0


def trained_range(experiment: Experiment, key: str) -> tuple[int, int] | None:
    """Lowest and highest value of a property of the problems in training, where the runs' recipes say so.

    >>> trained_range(Experiment("mine"), "n") is None
    True
    """
    for run in experiment.runs:
        recipe = run.config.get("recipe")
        wanted = recipe.get("difficulty") if isinstance(recipe, Mapping) else None
        value = wanted.get(key) if isinstance(wanted, Mapping) else None
        if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(item, int) for item in value):
            return (value[0], value[1])
    return None


def length_figure(experiment: Experiment, look: Mapping[str, Look]) -> Figure | None:
    """Accuracy against n at the end of training, where at least two test sets have one n each.

    >>> length_figure(Experiment("mine"), {}) is None
    True
    """
    name, sizes = summary.headline_name(experiment), _sizes(experiment)
    find = partial(summary.before, experiment)
    start = [(n, found) for label, n in sizes.items() if (found := find(name, set=label))]
    series = []
    for arm in experiment.arms:
        find = partial(summary.after, experiment, arm)
        points = [(n, found) for label, n in sizes.items() if (found := find(name, set=label))]
        series += [(look[arm], points)] if points else []
    if len(sizes) < 2 or not series:
        return None
    trained = trained_range(experiment, "n")
    caption = "Accuracy at the end of training against the length of the prompt, with 95 % intervals."
    if trained and trained[1] < max(sizes.values()):
        caption += f" No method ever trained beyond n = {trained[1]}."
    options = {"caption": caption, "x": "n, letters in the list", "trained": trained and trained[1]}
    return plots.against("by-n", series, start, **options)


def sweep_figures(experiment: Experiment, look: Mapping[str, Look]) -> list[tuple[str, Figure]]:
    """For arms such as ``grpo-0.0003``: final accuracy against the number, a line a method, a figure a test set.

    >>> sweep_figures(Experiment("mine", arms=("sft", "grpo")), {})
    []
    """
    name, sweep, figures = summary.headline_name(experiment), sweep_of(experiment.arms), []
    values = sorted({value for arms in sweep.values() for value in arms})
    for label in summary.set_names(experiment) if sweep else ():
        series = []
        for method, arms in sweep.items():
            found = {value: summary.after(experiment, arm, name, set=label) for value, arm in sorted(arms.items())}
            points = [(value, interval) for value, interval in found.items() if interval]
            first = look[next(iter(arms.values()))]
            series += [(first._replace(label=arm_label(method), dash="solid"), points)] if points else []
        if series:
            x = _swept(experiment, sweep)
            caption = (
                f"Accuracy on {set_label(label)} at the end of training against the {x}, with 95 % intervals. The "
            )
            caption += "best value of a method was found on these very problems, which flatters it."
            log = values[0] > 0 and values[-1] > 5 * values[0]
            figure = plots.against(f"sweep-{label}", series, [], caption=caption, x=x, log=log)
            figures.append((set_label(label), figure))
    return figures


def _swept(experiment: Experiment, sweep: Mapping[str, Mapping[float, str]]) -> str:
    """The setting whose value is the number in the arms' names."""
    wanted = {arm: value for values in sweep.values() for value, arm in values.items()}
    pairs = [(run.config, wanted[run.arm]) for run in experiment.runs]
    keys = [key for key, value in (pairs[0][0].items() if pairs else ()) if value == pairs[0][1]]
    agreed = [key for key in keys if all(config.get(key) == value for config, value in pairs)]
    return agreed[0].replace("_", " ") if agreed else "swept value"


def accuracy_table(experiment: Experiment, look: Mapping[str, Look]) -> dict[str, Any] | None:
    """Final accuracy: a row for the start and each arm, a column for each test set; cells are intervals.

    >>> accuracy_table(Experiment("mine"), {}) is None
    True
    """
    name, labels = summary.headline_name(experiment), summary.set_names(experiment)
    rows = [
        (title, variable, [find(name, set=label) for label in labels])
        for title, variable, find in _moments(experiment, look)
    ]
    rows = [row for row in rows if any(row[2])]
    return {"sets": [set_label(label) for label in labels], "rows": rows, "name": name} if rows else None


def heat_tables(experiment: Experiment, look: Mapping[str, Look]) -> dict[str, Any] | None:
    """Accuracy by test set and number of steps k: one table for the start and for each arm.

    >>> heat_tables(Experiment("mine"), {}) is None
    True
    """
    name, labels = summary.headline_name(experiment), summary.set_names(experiment)
    evaluations = [evaluation for run in experiment.runs for evaluation in run.evals.get(name, {}).values()]
    ks = sorted({k for evaluation in evaluations for k in evaluation.columns.get("k", ())})
    tables = []
    for title, variable, find in _moments(experiment, look):
        rows = [(set_label(label), [find(name, set=label, k=k) for k in ks]) for label in labels]
        if any(cell for _, cells in rows for cell in cells):
            tables.append({"title": title, "variable": variable, "rows": rows})
    return {"ks": ks, "tables": tables} if ks and tables else None


def vote_table(experiment: Experiment, look: Mapping[str, Look]) -> dict[str, Any] | None:
    """Greedy, one sample, and the vote of all samples, a row for the start and each arm.

    ``None`` unless several samples a problem were drawn somewhere; test sets that were never sampled are
    left out.

    >>> vote_table(Experiment("mine"), {}) is None
    True
    """
    sampled = [e for run in experiment.runs for e in run.evals.get("sampled", {}).values() if e.samples > 1]
    held = {label for evaluation in sampled for label in evaluation.columns["set"]}
    labels = [label for label in summary.set_names(experiment) if label in held]
    ways = (("greedy", False), ("sampled", False), ("sampled", True))
    rows = [
        (title, variable, [[find(name, votes, set=label) for name, votes in ways] for label in labels])
        for title, variable, find in _moments(experiment, look)
    ]
    rows = [row for row in rows if any(cell[2] for cell in row[2])]
    if not rows:
        return None
    most = max(evaluation.samples for evaluation in sampled)
    return {"sets": [set_label(label) for label in labels], "rows": rows, "samples": most}


def _moments(
    experiment: Experiment, look: Mapping[str, Look]
) -> Iterator[tuple[str, str, Callable[..., Interval | None]]]:
    """The start, then the end of each arm: title, colour variable, and how to find an accuracy there."""
    for kind, title in summary.start_kinds(experiment).items():
        yield title, "--base", partial(summary.before, experiment, kind=kind)
    for arm in experiment.arms:
        yield look[arm].label, look[arm].variable, partial(summary.after, experiment, arm)


def _sizes(experiment: Experiment) -> dict[str, int]:
    """The n of each test set that has a single one, smallest first."""
    found: dict[str, set[Any]] = {}
    for run in (*experiment.bases, *experiment.runs):
        for steps in run.evals.values():
            for evaluation in steps.values():
                for label, n in zip(evaluation.columns["set"], evaluation.columns.get("n", ()), strict=False):
                    found.setdefault(label, set()).add(n)
    single = {label: min(values) for label, values in found.items() if len(values) == 1}
    return dict(sorted(single.items(), key=lambda item: item[1]))

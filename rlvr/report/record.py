"""What a page says about the training itself: how arms differ, how it went, what it cost, and the raw numbers."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlvr.report import plots, summary
from rlvr.report.canvas import Figure, Look
from rlvr.report.data import Experiment, Run
from rlvr.report.words import kind_label, kind_meaning, set_label

__all__ = [
    "Budget",
    "alarm_words",
    "arm_differences",
    "budget",
    "cost_figures",
    "csv_numbers",
    "environment",
    "failure_figures",
]
__all__ += ["group_figures", "kind_glossary", "kinds_seen", "seed_table", "training_figures"]

METRICS = (
    ("accuracy", "Accuracy in training", "zoomed share", "Verdicts of the sampled answers, before each update."),
    ("reward", "Reward", "from zero", "What the advantage reads; equal to accuracy where the reward is the verdict."),
    ("entropy", "Entropy", "from zero", "Nats a token, exact, over the sampled answers."),
    ("grad_norm", "Gradient norm", "from zero", "Before clipping. At zero a step teaches nothing."),
    ("completions/mean_length_right", "Length when right", "", "Tokens, end sign included."),
    ("completions/mean_length_wrong", "Length when wrong", "", "Tokens, end sign included."),
    ("completions/clipped_ratio", "Truncated", "share", "Share of answers cut off at the length limit."),
    ("kl", "KL to the reference", "from zero", "Nats a token."),
)
BUDGET = (
    ("samples", "samples"),
    ("demonstrations", "demonstrations"),
    ("tokens", "tokens sampled"),
    ("updates", "updates"),
    ("seconds", "seconds"),
)
COSTS = (
    ("by samples", ("samples", "demonstrations"), "samples or demonstrations"),
    ("by tokens", ("tokens",), "tokens sampled"),
    ("by seconds", ("seconds",), "seconds of training"),
)


class Budget(NamedTuple):
    """What the arms spent by the end, in words: by arm the means over seeds, and the means with their ranges.

    >>> Budget([], [], {}, {}, {}).means
    {}
    """

    keys: Sequence[str]
    columns: Sequence[str]
    means: Mapping[str, Sequence[str]]
    spreads: Mapping[str, Sequence[str]]
    seeds: Mapping[str, int]


def arm_differences(experiment: Experiment) -> dict[str, list[tuple[str, list[str]]]]:
    """Settings that differ between arms and those that all share, each with its value by arm (first seed).

    >>> arm_differences(Experiment("mine"))
    {'differ': [], 'shared': []}
    """
    settings = [_flat(next(iter(experiment.of(arm)), None)) for arm in experiment.arms]
    keys = dict.fromkeys(key for one in settings for key in one)
    rows = [(key, [one.get(key, "—") for one in settings]) for key in keys]
    return {
        "differ": [row for row in rows if len(set(row[1])) > 1],
        "shared": [(key, values[:1]) for key, values in rows if len(set(values)) == 1],
    }


def _flat(run: Run | None) -> dict[str, str]:
    config = dict(run.config) if run else {}
    recipe = config.pop("recipe", None)
    # The recipe repeats the rest of the file; only what it alone knows is added.
    extra = ("difficulty", "rewards", "schedule", "max_grad_norm")
    config |= {key: recipe[key] for key in extra if key in recipe} if isinstance(recipe, Mapping) else {}
    flat = {}
    for key, value in config.items():
        inner = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, item in inner:
            name = part if key == "algorithm" else f"{key}.{part}".strip(".")
            flat[name] = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
    return {key: value for key, value in flat.items() if key not in ("arm", "seed", "name")}


def failure_figures(experiment: Experiment, look: Mapping[str, Look]) -> list[tuple[str, Figure]]:
    """Kinds of verdict before and after training, a figure for every test set that records them.

    >>> failure_figures(Experiment("mine"), {})
    []
    """
    name, kinds, figures = summary.headline_name(experiment), kinds_seen(experiment), []
    starts = {title: summary.starts(experiment, name, kind) for kind, title in summary.start_kinds(experiment).items()}
    for label in summary.set_names(experiment):
        rows = [(title.removesuffix(" training"), summary.kind_shares(found, label)) for title, found in starts.items()]
        for arm in experiment.arms:
            last = [evaluation for _, evaluation in summary.last_evaluations(experiment, arm, name)]
            rows.append((look[arm].label, summary.kind_shares(last, label)))
        rows = [row for row in rows if row[1]]
        if rows:
            caption = f"Percent of all {name} answers to {set_label(label)}, all seeds together."
            figures.append((set_label(label), plots.kind_bars(f"kinds-{label}", rows, kinds, caption)))
    return figures


def kinds_seen(experiment: Experiment) -> list[str]:
    """The kinds of verdict over all evaluations: ``correct``, then the most frequent failure first.

    >>> kinds_seen(Experiment("mine"))
    []
    """
    counts: dict[str, int] = {}
    for run in (*experiment.bases, *experiment.runs):
        for evaluation in run.evals.get(summary.headline_name(experiment), {}).values():
            for found in evaluation.columns.get("kinds", ()):
                for kind, count in found.items():
                    counts[kind] = counts.get(kind, 0) + count
    return sorted(counts, key=lambda kind: (kind != "correct", -counts[kind], kind))


def kind_glossary(experiment: Experiment) -> list[tuple[str, str, str, str]]:
    """Label, meaning, code name and colour of each kind of verdict that occurs: the legend of the failure figures.

    >>> kind_glossary(Experiment("mine"))
    []
    """
    kinds = kinds_seen(experiment)
    return [(kind_label(kind), kind_meaning(kind), kind, plots.kind_variable(kind, kinds)) for kind in kinds]


def group_figures(experiment: Experiment, look: Mapping[str, Look]) -> list[Figure]:
    """Shares of groups over steps, one figure for each arm that samples groups.

    >>> group_figures(Experiment("mine"), {})
    []
    """
    names = ("mixed", "all_right", "all_wrong")
    roles = {name: summary.metric_lines(experiment, f"groups/{name}", bins=40) for name in names}
    figures = []
    for arm in experiment.arms:
        shares = {role: line for role, lines in roles.items() for line in lines if line.arm == arm}
        if len(shares) == len(roles):
            figures.append(plots.group_shares(f"groups-{arm}", shares, look[arm].label))
    return figures


def training_figures(experiment: Experiment, look: Mapping[str, Look]) -> list[Figure]:
    """Small multiples of the metrics that say how training went; metrics that no run logs are absent.

    >>> training_figures(Experiment("mine"), {})
    []
    """
    figures, alarms = [], summary.first_alarms(experiment)
    for key, title, unit, caption in METRICS:
        lines = summary.metric_lines(experiment, key)
        if lines and not (key == "reward" and _equals_accuracy(experiment)):
            options = {"unit": unit, "caption": caption, "title": title, "height": 200, "small": True}
            options |= {"alarms": alarms} if key in ("accuracy", "reward") else {}
            figures.append(plots.curves(f"metric-{key}", lines, look, **options))
    return figures


def alarm_words(experiment: Experiment, look: Mapping[str, Look]) -> list[tuple[str, str, str]]:
    """Label, colour and a sentence's end for each arm whose log watches the gap between reward and truth.

    >>> alarm_words(Experiment("mine"), {})
    []
    """
    found = []
    for arm, steps in summary.first_alarms(experiment).items():
        fired = [f"{step} (seed {seed})" for seed, step in steps.items() if step is not None]
        quiet = len(steps) - len(fired)
        words = f"first at step {', '.join(fired)}" if fired else "never"
        words += f"; never in {quiet} of {len(steps)} seeds" if fired and quiet else ""
        found.append((look[arm].label, look[arm].variable, words))
    return found


def _equals_accuracy(experiment: Experiment) -> bool:
    return all(row.get("reward") == row.get("accuracy") for run in experiment.runs for row in run.metrics)


def budget(experiment: Experiment) -> Budget:
    """What each arm spent by the end of training; budgets that no arm used are left out.

    >>> budget(Experiment("mine")).columns
    []
    """
    found: dict[str, list[list[float]]] = {}
    seeds: dict[str, int] = {}
    for arm in experiment.arms:
        last = [run.metrics[-1] for run in experiment.of(arm) if run.metrics]
        cells = [[row[key] for row in last if isinstance(row.get(key), (int, float))] for key, _ in BUDGET]
        if any(cells):
            found[arm], seeds[arm] = cells, len(last)
    used = [index for index in range(len(BUDGET)) if any(sum(cells[index]) > 0 for cells in found.values())]
    keys, columns = [BUDGET[i][0] for i in used], [BUDGET[i][1] for i in used]
    means = {arm: [_mean(cells[i]) for i in used] for arm, cells in found.items()}
    spreads = {arm: [_mean(cells[i]) + _range(cells[i]) for i in used] for arm, cells in found.items()}
    return Budget(keys, columns, means, spreads, seeds)


def _mean(values: Sequence[float]) -> str:
    return _amount(float(np.mean(values))) if values and max(values) > 0 else "—"


def _range(values: Sequence[float]) -> str:
    """The range over seeds, where they differ by more than a percent."""
    if not values or max(values) - min(values) <= 0.01 * max(values):
        return ""
    return f" ({_amount(min(values))} to {_amount(max(values))})"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cost_figures(experiment: Experiment, look: Mapping[str, Look], label: str | None) -> list[tuple[str, Figure]]:
    """Accuracy on the headline test set against each budget, for the arms that spent any of it.

    >>> cost_figures(Experiment("mine"), {}, "n12")
    []
    """
    name, figures = summary.headline_name(experiment), []
    for tab, keys, x in COSTS if label else ():
        lines = summary.learning_curves(experiment, name, label, partial(_spent, keys))
        lines = [_rounded(line) for line in lines if any(xs[-1] > 0 for xs, _ in line.seeds.values())]
        if lines:
            caption = f"{name.capitalize()} accuracy on {set_label(label)} against {x}. "
            left_out = [look[arm].label for arm in experiment.arms if arm not in [line.arm for line in lines]]
            caption += f"{', '.join(left_out)}: spent nothing of this kind." if left_out else ""
            options = {"unit": "%", "x": x, "caption": caption, "height": 320}
            figures.append((tab, plots.curves(f"cost-{tab.split()[-1]}", lines, look, **options)))
    return figures


def _spent(keys: Sequence[str], run: Run, step: int) -> float | None:
    return summary.spent(run, step, *keys)


def _rounded(line: summary.Line) -> summary.Line:
    """Seeds that spent nearly the same by one evaluation share the mean of it, so that their mean has a place."""
    columns = [xs for xs, _ in line.seeds.values()]
    if len({len(xs) for xs in columns}) > 1:
        return line
    xs = [float(np.mean(column)) for column in zip(*columns, strict=True)]
    return line._replace(seeds={seed: (xs, ys) for seed, (_, ys) in line.seeds.items()})


def seed_table(experiment: Experiment, look: Mapping[str, Look]) -> dict[str, Any] | None:
    """Right answers of every run at its arm's last evaluation, as counts.

    >>> seed_table(Experiment("mine"), {}) is None
    True
    """
    name, labels, rows = summary.headline_name(experiment), summary.set_names(experiment), []
    for run in experiment.bases:
        if 0 in run.evals.get(name, {}):
            counts = [_counts(run.evals[name][0].columns, label) for label in labels]
            rows.append(
                (summary.start_kinds(experiment).get(run.arm, "before training"), "--base", run.seed, 0, counts)
            )
    for arm in experiment.arms:
        for run, evaluation in summary.last_evaluations(experiment, arm, name):
            counts = [_counts(evaluation.columns, label) for label in labels]
            rows.append((look[arm].label, look[arm].variable, run.seed, evaluation.step, counts))
    return {"sets": [set_label(label) for label in labels], "rows": rows, "name": name} if rows else None


def _counts(columns: Mapping[str, Sequence[Any]], label: str) -> tuple[int, int]:
    rows = [index for index, name in enumerate(columns["set"]) if name == label]
    return sum(columns["correct"][i] for i in rows), sum(columns["samples"][i] for i in rows)


def csv_numbers(experiment: Experiment) -> str:
    """Every evaluation of every run as CSV: arm, seed, evaluation, step, set, right answers, answers.

    >>> csv_numbers(Experiment("mine"))
    'arm,seed,evaluation,step,set,correct,samples\\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["arm", "seed", "evaluation", "step", "set", "correct", "samples"])
    for run in (*experiment.bases, *experiment.runs):
        for name, steps in sorted(run.evals.items()):
            for step, evaluation in sorted(steps.items()):
                for label in dict.fromkeys(evaluation.columns["set"]):
                    writer.writerow([run.arm, run.seed, name, step, label, *_counts(evaluation.columns, label)])
    return out.getvalue()


def environment(experiment: Experiment) -> list[tuple[str, str, bool]]:
    """Facts of ``env.json`` over all runs: name, value or values, and whether runs differ in it.

    >>> environment(Experiment("mine"))
    []
    """
    found: dict[str, dict[str, None]] = {}
    for run in experiment.runs:
        facts = dict(run.environment)
        versions = facts.pop("versions", None)
        facts |= versions if isinstance(versions, Mapping) else {}
        for key, value in facts.items():
            if key not in ("seed", "seconds"):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                found.setdefault(key, {})[text] = None
    return [(key, ", ".join(values), len(values) > 1) for key, values in found.items()]

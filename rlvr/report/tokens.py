"""The completions of a run as the page's browser reads them: a bounded, deterministic choice, each token with its signal.

The signal of a token is minus the derivative of the step's loss by that token's log-probability: weight
times advantage. It says what a training step rewards, before any optimizer. Only text goes out of here,
never markup; the page's script writes it with ``textContent``.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlvr.lab.store import read_rollouts, rollout_steps
from rlvr.report.data import Experiment, Run, attempt

__all__ = ["Shown", "choose_steps", "shown_rollouts"]

MAX_STEPS, MAX_GROUPS, MAX_TOKENS, MAX_BYTES = 12, 12, 600, 2_000_000
SHRINK = ((MAX_STEPS, MAX_GROUPS), (MAX_STEPS, 8), (8, 6), (6, 4), (4, 2), (2, 1))


class Shown(NamedTuple):
    """What the browser gets: ``arms`` maps an arm to its steps; ``groups`` is the bound on groups an arm and step.

    >>> Shown({}, {}, 12, ["correct"]).groups
    12
    """

    arms: Mapping[str, Sequence[Mapping[str, Any]]]
    seeds: Mapping[str, int]
    groups: int
    kinds: Sequence[str]


def shown_rollouts(experiment: Experiment, gaps: list[str]) -> Shown:
    """Rollouts of the first seed of each arm that recorded any, cut until they fit into ``MAX_BYTES``.

    A group whose answers were partly right comes before the others, for it is where most methods learn; within that, file
    order. Arms without rollouts are named in ``gaps``.

    >>> shown_rollouts(Experiment("mine"), []).arms
    {}
    """
    runs = [next((run for run in experiment.of(arm) if rollout_steps(run.folder)), None) for arm in experiment.arms]
    for bounds in SHRINK:
        trial: list[str] = []
        arms = {run.arm: steps for run in runs if run and (steps := _attempt_steps(run, bounds, trial))}
        if len(json.dumps(arms)) <= MAX_BYTES:
            break
    else:
        arms = {}
        trial.append(f"The recorded completions are too long to show: a page keeps to {MAX_BYTES:,} bytes of them.")
    without = [arm for arm, run in zip(experiment.arms, runs, strict=True) if run is None]
    if without:
        whose = f" for {', '.join(without)}" if len(without) < len(runs) else ""
        trial.append(f"No completions were recorded{whose}.")
    gaps += trial
    seeds = {run.arm: run.seed for run in runs if run and run.arm in arms}
    kinds = {row["k"] for steps in arms.values() for step in steps for group in step["groups"] for row in group["rows"]}
    return Shown(arms, seeds, bounds[1], sorted(kinds, key=lambda kind: (kind != "correct", kind)))


def choose_steps(recorded: Sequence[int], most: int) -> list[int]:
    """At most ``most`` of the recorded steps, spread evenly by rank, first and last included.

    >>> choose_steps([0, 10, 20, 30, 40], 3), choose_steps([7], 3)
    ([0, 20, 40], [7])
    """
    if len(recorded) <= most:
        return list(recorded)
    return [recorded[round(i * (len(recorded) - 1) / max(1, most - 1))] for i in range(most)]


def _attempt_steps(run: Run, bounds: tuple[int, int], gaps: list[str]) -> list[dict[str, Any]]:
    return attempt(gaps, f"{run.folder.name}/rollouts.parquet", lambda: _steps(run, *bounds), [])


def _steps(run: Run, max_steps: int, max_groups: int) -> list[dict[str, Any]]:
    steps = []
    for step in choose_steps(rollout_steps(run.folder), max_steps):
        table = read_rollouts(run.folder, steps=[step])
        groups: dict[int, list[dict[str, Any]]] = {}
        # One step in memory at a time: a log of long completions may be many times the size of the page.
        for row in table.to_pylist() if table is not None else ():
            groups.setdefault(row["prompt_idx"], []).append(row)
        if groups:
            steps.append(_step(step, list(groups.values()), max_groups, run.samples_itself))
    return steps


def _step(step: int, groups: Sequence[list[dict]], max_groups: int, sampled: bool) -> dict[str, Any]:
    ordered = sorted(groups, key=lambda rows: (not _mixed(rows), rows[0]["prompt_idx"]))
    strongest = max(
        (abs(value) for rows in groups for row in rows for value in _finite(row["signal"] or ())), default=0.0
    )
    return {
        "step": step,
        "of": len(groups),
        "scale": _short(strongest),
        "groups": [_group(rows, sampled) for rows in ordered[:max_groups]],
    }


def _group(rows: Sequence[Mapping[str, Any]], sampled: bool) -> dict[str, Any]:
    """One problem with its answers; equal answers with equal pay are one row with their number."""
    distinct: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        key = (row["completion"], tuple(row["token_ids"] or ()), row["reward"], row["kind"], row["advantage"])
        if key in distinct:
            distinct[key]["x"] += 1
        else:
            distinct[key] = _row(row, sampled)
    return {
        "p": rows[0]["prompt_idx"],
        "prompt": rows[0]["prompt"],
        "right": sum(bool(row["verdict"]) for row in rows),
        "of": len(rows),
        "rows": list(distinct.values()),
    }


def _row(row: Mapping[str, Any], sampled: bool) -> dict[str, Any]:
    ids, text = row["token_ids"] or (), row["completion"] or ""
    # One character a token needs no list: the script splits the text itself.
    pieces = None if len(text) == len(ids) else [f"⟨{token}⟩" for token in ids]
    return {
        "x": 1,
        "c": text[: MAX_TOKENS if pieces is None else 8 * MAX_TOKENS],
        "t": pieces and list(pieces[:MAX_TOKENS]),
        "l": [_short(value) for value in (row["logps"] or ())[:MAX_TOKENS]] if sampled else None,
        "s": [_short(value) for value in (row["signal"] or ())[:MAX_TOKENS]],
        "cut": max(0, len(ids) - MAX_TOKENS),
        "r": _short(row["reward"]),
        "a": _short(row["advantage"]),
        "v": bool(row["verdict"]),
        "k": row["kind"],
        "f": row["finish_reason"],
    }


def _mixed(rows: Sequence[Mapping[str, Any]]) -> bool:
    return len({bool(row["verdict"]) for row in rows}) > 1


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def _short(value: float | None) -> float | None:
    """Three significant digits; what isn't finite has no digits."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")

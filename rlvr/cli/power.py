"""The command that asks how many seeds: power, from two arms of an experiment or from numbers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from rlvr.cli import options
from rlvr.cli.words import Mistake, console
from rlvr.lab import store
from rlvr.lab.evaluate import accuracy_by_set
from rlvr.stats import (
    Comparison,
    Interval,
    like_for_like,
    minimum_detectable_effect,
    paired_t,
    sd_over_seeds,
    seeds_needed,
    welch,
)

__all__ = ["power_run"]

EFFECT = 0.05
COUNTS = (3, 5, 10, 20, 30)
MEANING = """difference: with its 95 % interval over seeds; sd: between seeds, of the differences where paired
seeds for ...: seeds an arm to find that many points; in brackets at the ends of the sd's own 95 % interval
finds: the smallest true difference that the seeds there are find with the power asked for"""


def power_run(command: options.Power) -> None:
    """Seeds needed and the smallest effect that can be found, measured from two arms or computed from an sd."""
    effect = EFFECT if command.effect is None else command.effect
    if not effect > 0:
        raise Mistake(f"--effect {effect}: accepted are sizes of a difference above 0, such as 0.05")
    if not 0.05 < command.power < 1:
        raise Mistake(f"--power {command.power}: accepted are numbers between 0.05 and 1, such as 0.8")
    _check_use(command)
    if command.sd is not None:
        _from_numbers(command, effect)
    elif len(command.what) == 3:
        _from_arms(command, effect)
    else:
        given = f"power {' '.join(command.what)}".strip()
        raise Mistake(f"{given}: accepted are `power FOLDER ARM1 ARM2` and `power --sd 0.08 --effect 0.05`")


def _check_use(command: options.Power) -> None:
    """Nothing that is given may be ignored."""
    if command.sd is None and command.paired:
        raise Mistake("--paired goes with --sd; the arms of a folder are paired by the seeds they share")
    if command.sd is not None:
        given = {"FOLDER ARM1 ARM2": command.what, "--set": command.set, "--unpaired": command.unpaired}
        if wrong := [name for name, value in given.items() if value]:
            raise Mistake(f"{wrong[0]} and --sd are both given; accepted is a folder with two arms, or numbers")


def _from_numbers(command: options.Power, effect: float) -> None:
    if not command.sd > 0:
        raise Mistake(f"--sd {command.sd}: accepted are numbers above 0, such as 0.08 for 8 points")
    needed = seeds_needed(effect, command.sd, command.paired, command.power)
    how = "paired seeds, sd of the differences" if command.paired else "two arms that share no random numbers"
    print(f"To find a difference of {effect:g} with power {command.power:g} (sd {command.sd:g}; {how}):")
    print(f"  {needed} seeds{' in each arm' if not command.paired else ', each run in both arms'}")
    table = Table(title="Seeds, and the difference they find", title_justify="left", box=box.SIMPLE)
    for count in COUNTS:
        table.add_column(str(count), justify="right")
    found = [minimum_detectable_effect(command.sd, count, command.paired, command.power) for count in COUNTS]
    table.add_row(*(f"{each:.3g}" for each in found))
    console().print(table)


def _from_arms(command: options.Power, effect: float) -> None:
    folder, arms = Path(command.what[0]), command.what[1:]
    if arms[0] == arms[1]:
        raise Mistake(f"{arms[0]} against itself; accepted are two arms of {folder}")
    if effect >= 1:
        raise Mistake(f"--effect {effect:g}: accuracies lie between 0 and 1, so 5 points are 0.05")
    evaluations = [_last_evaluations(folder, arm) for arm in arms]
    shared = sorted(evaluations[0].keys() & evaluations[1].keys())
    paired = not command.unpaired and len(shared) >= 2
    if paired:
        evaluations = [{seed: arm[seed] for seed in shared} for arm in evaluations]
    fewest = min(map(len, evaluations))
    if fewest < 2:
        raise Mistake(
            f"{folder}: one seed of an arm has no spread to measure; run at least 2 (`rlvr reproduce --seeds 3`)"
        )
    labels = _labels(command.set, evaluations)
    for words in _unlike(evaluations):
        print(f"Not like for like: {words}")
    if fewest < 3:
        print(f"Preliminary: {fewest} seeds an arm; fewer than 3 hardly know their own spread.")
    how = f"paired over the seeds {', '.join(map(str, shared))}" if paired else "unpaired"
    table = Table(
        title=f"{arms[0]} minus {arms[1]}, points of accuracy, {how}",
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
    )
    for column in ("set", *arms, "difference", "p", "sd", f"seeds for {100 * effect:g}", "finds"):
        table.add_column(column, justify="left" if column == "set" else "right", no_wrap=True)
    for label in labels:
        means = [np.array([accuracy[label] for accuracy in arm.values()]) for arm in _accuracies(evaluations)]
        table.add_row(label, *_row(means, paired, effect, command.power))
    console().print(table)
    print(MEANING)


def _row(means: list[np.ndarray], paired: bool, effect: float, power: float) -> list[str]:
    result: Comparison = (paired_t if paired else welch)(*means)
    sd = sd_over_seeds(means[0] - means[1]) if paired else _pooled(*means)
    shown = [f"{100 * each.mean():.1f}" for each in means]
    shown += [_points(result.difference), f"{result.p:.2g}", f"{100 * sd.value:.1f}"]
    if sd.value == 0:
        return [*shown, "no spread", "-"]
    needed = [_seeds(effect, each, paired, power) for each in (sd.value, sd.lo, sd.hi)]
    detectable = minimum_detectable_effect(sd.value, min(map(len, means)), paired, power)
    return [*shown, f"{needed[0]} [{needed[1]}-{needed[2]}]", f"{100 * detectable:.1f}"]


def _pooled(first: np.ndarray, second: np.ndarray) -> Interval:
    """The sd of both arms together, with the degrees of freedom of both."""
    # S + S' - 1 numbers with the pooled spread have the S + S' - 2 degrees of freedom that the two arms have.
    freedom = len(first) + len(second) - 2
    spread = np.sqrt(((len(first) - 1) * first.var(ddof=1) + (len(second) - 1) * second.var(ddof=1)) / freedom)
    alike = np.zeros(freedom + 1)
    alike[:2] = spread * np.sqrt(freedom / 2) * np.array([1, -1])
    return sd_over_seeds(alike)


def _seeds(effect: float, sd: float, paired: bool, power: float) -> str:
    try:
        return str(seeds_needed(effect, sd, paired, power))
    except ValueError:
        return ">100000"


def _points(interval: Interval) -> str:
    if interval.degenerate:  # seeds that agree are not certainty
        return f"{100 * interval.value:+.1f}, all alike"
    return f"{100 * interval.value:+.1f} [{100 * interval.lo:.1f}, {100 * interval.hi:.1f}]"


def _last_evaluations(folder: Path, arm: str) -> dict[int, dict[str, Any]]:
    """Seed to the last greedy evaluation of every finished run of an arm."""
    if not folder.is_dir():
        raise Mistake(f"{folder} is no folder; accepted is an experiment's, such as runs/rl_vs_sft")
    split = [(re.fullmatch(r"(.+)-s(\d+)", path.name), path) for path in sorted(folder.glob("*-s*")) if path.is_dir()]
    runs = {(found[1], int(found[2])): path for found, path in split if found}
    arms = sorted({name for name, _ in runs})
    if arm not in arms:
        raise Mistake(f"{folder} has no runs of {arm!r}; its arms: {', '.join(arms) or 'none'}")
    finished = {seed: path for (name, seed), path in runs.items() if name == arm and store.is_finished(path)}
    found = {seed: store.read_evals(path, "greedy") for seed, path in sorted(finished.items())}
    found = {seed: evaluations[-1] for seed, evaluations in found.items() if evaluations}
    if not found:
        raise Mistake(f"{folder}: no finished run of {arm} with a greedy evaluation; finish it with `rlvr reproduce`")
    return found


def _accuracies(evaluations: list[dict[int, dict[str, Any]]]) -> list[dict[int, dict[str, float]]]:
    return [{seed: accuracy_by_set(each) for seed, each in arm.items()} for arm in evaluations]


def _labels(wanted: str, evaluations: list[dict[int, dict[str, Any]]]) -> list[str]:
    """The sets that every run was evaluated on, or the wanted one of them."""
    found = [list(accuracy) for arm in _accuracies(evaluations) for accuracy in arm.values()]
    labels = [label for label in found[0] if all(label in each for each in found)]
    if wanted and wanted not in labels:
        raise Mistake(f"--set {wanted}: not evaluated in every run; accepted: {', '.join(labels) or 'none'}")
    if not labels:
        raise Mistake("the two arms were evaluated on no set in common")
    return [wanted] if wanted else labels


def _unlike(evaluations: list[dict[int, dict[str, Any]]]) -> list[str]:
    """What differs between any two of the evaluations, each thing once."""
    every: list[Mapping[str, Any]] = [each for arm in evaluations for each in arm.values()]
    return list(dict.fromkeys(words for each in every[1:] for words in like_for_like(every[0], each)))

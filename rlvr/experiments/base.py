"""What an experiment is: arms that differ in one thing, seeds, further jobs, and claims with rules written before the run.

A claim's rule is code that sees run folders and nothing else, through ``Results``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlvr.experiments.panels import Panel
from rlvr.lab import store
from rlvr.lab.jsonl import read_json
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import POINTER_HOPS
from rlvr.stats import Interval, over_seeds

__all__ = ["Claim", "Experiment", "Finding", "Job", "Place", "Results", "judge", "over", "percent"]


@dataclass(frozen=True)
class Finding:
    """What a rule found: a value with its interval and n, in words, the verdict and, where it differs, why."""

    value: float
    lo: float
    hi: float
    n: int
    measured: str
    verdict: str
    why: str = ""


def judge(lo: float, hi: float, above: float | None = None, below: float | None = None) -> str:
    """``holds`` when the whole interval lies on the wanted side of the threshold, ``differs`` when all of it lies on the
    other, else ``undecided``.

    >>> judge(0.4, 0.6, above=0.3), judge(0.2, 0.6, above=0.3), judge(0.4, 0.6, below=0.3)
    ('holds', 'undecided', 'differs')
    """
    if (above is None) == (below is None):
        raise ValueError("judge: give exactly one of above and below")
    if not np.isfinite([lo, hi]).all():
        return "undecided"
    low, high, edge = (lo, hi, above) if above is not None else (-hi, -lo, -below)
    return "holds" if low > edge else "differs" if high < edge else "undecided"


def over(values: np.ndarray, low: float = -np.inf, high: float = np.inf) -> Interval:
    """Mean over seeds with Student's interval, cut off at what the number can't pass; one seed gets the whole line.

    >>> over([0.9, 1.0], 0, 1).hi
    1.0
    """
    values = np.asarray(values, dtype=float)
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Interval(float(values.mean()) if len(values) else float("nan"), -np.inf, np.inf, len(values), "seeds")
    interval = over_seeds(values)
    return replace(interval, lo=float(max(low, interval.lo)), hi=float(min(high, interval.hi)))


def percent(interval: Interval, digits: int = 1) -> str:
    """``46.2 % [40.1, 52.3]``; without an interval the mean alone.

    >>> percent(Interval(0.5, 0.4, 0.6, 3, "seeds"))
    '50.0 % [40.0, 60.0]'
    """
    value = f"{100 * interval.value:.{digits}f} %"
    if not np.isfinite([interval.lo, interval.hi]).all():
        return value
    return f"{value} [{100 * interval.lo:.{digits}f}, {100 * interval.hi:.{digits}f}]"


@dataclass(frozen=True)
class Claim:
    """One row of the ledger: the claim in words, the lecture's number, the rule in words and the rule as code."""

    id: str
    claim: str
    lecture: str
    rule: str
    find: Callable[["Results"], Finding]


class Place(NamedTuple):
    """Where a job works: its own folder, its experiment's, the one that holds all experiments and bases; small or whole."""

    out: Path
    folder: Path
    root: Path
    quick: bool


@dataclass(frozen=True)
class Job:
    """Work of an experiment that is no training arm: a tree of completions, a verifier, a sampling study.

    ``work`` is a function at the top level of a module, called in a worker process with one thread; what it returns becomes
    ``result.json`` of its folder. ``settings`` are plain data; a changed one makes the job and all that need it run again.
    ``needs`` names the runs and jobs of the same experiment that must be finished before, such as ``base-s0``.
    """

    name: str
    work: Callable[[Place, Mapping[str, Any]], Mapping[str, Any] | None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


def no_jobs(experiment: "Experiment") -> Sequence[Job]:
    """What an experiment needs beside its arms, if nothing is said: nothing."""
    return ()


def no_panels(results: "Results") -> Sequence[Panel]:
    """What a page shows beside what every experiment has, if nothing is said: nothing."""
    return ()


def no_answer(results: "Results") -> str:
    """An experiment that gives no answer in words leaves it to its claims."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question with the arms that answer it; ``arms`` are recipes whose seed is filled in for each seed.

    ``bases`` are the base models that the arms' recipes name. Seed s of every arm starts from base seed s (s modulo
    ``base_seeds`` where that is given), sees the same problems and the same uniform draws. ``seeds_of`` gives an arm seeds of
    its own. ``sizes`` and ``curve_sizes`` are the n of the held-out problems at the ends and along the way, ``hops`` their k;
    in another world than the pointers' ``held_out`` names sets of ``problems`` problems with the difficulty of each.
    ``after`` names the jobs that an arm needs first, with ``{seed}`` for its base seed, which also stands in its rewards.
    ``uses`` are experiments whose runs this one reads. ``panels`` is what the page shows of it, ``answer`` what it says.
    """

    name: str
    title: str
    question: str
    setup: str
    bases: Mapping[str, Recipe] = field(default_factory=dict)
    arms: Mapping[str, Recipe] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    sizes: Sequence[int] = (8, 12, 14, 16)
    curve_sizes: Sequence[int] = (8, 12, 14, 16)
    hops: Sequence[int] = POINTER_HOPS
    held_out: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problems: int = 200
    seeds: Sequence[int] = (0, 1, 2)
    seeds_of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    base_seeds: int | None = None
    split: str = "test"
    problems_per_hop: int = 50
    samples: int = 32
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jobs: Callable[["Experiment"], Sequence[Job]] = no_jobs
    uses: tuple["Experiment", ...] = ()
    panels: Callable[["Results"], Sequence[Panel]] = no_panels
    answer: Callable[["Results"], str] = no_answer
    notes: Sequence[str] = ()
    quick: bool = False

    def folder_in(self, out: Path) -> Path:
        """Where its runs go below ``out``."""
        return Path(out) / (self.name + "-quick" * self.quick)

    def all_used(self) -> "list[Experiment]":
        """The experiments that it uses, each after those that it uses itself."""
        return [each for used in self.uses for each in (*used.all_used(), used)]

    def base_arm(self, base: str) -> str:
        """The name under which a base's evaluation is found among the runs."""
        return "base" if len(self.bases) == 1 else f"base_{base}"

    def base_seed(self, seed: int) -> int:
        """The seed of the base that a seed starts from."""
        return seed if self.base_seeds is None else seed % self.base_seeds

    def base_recipe(self, base: str, seed: int) -> Recipe:
        """The recipe of a base model of a seed."""
        recipe = replace(self.bases[base], seed=seed)
        return recipe if recipe.base is None else replace(recipe, base_seed=seed)

    def arm_seeds(self, arm: str) -> Sequence[int]:
        """The seeds of an arm."""
        return self.seeds_of.get(arm, self.seeds)

    def seeds_of_bases(self) -> list[int]:
        """The seeds of the base models that all arms together start from."""
        seeds = dict.fromkeys(self.seeds)
        for arm in self.arms:
            seeds |= dict.fromkeys(self.arm_seeds(arm))
        return list(dict.fromkeys(map(self.base_seed, seeds)))

    def own_seeds(self) -> dict[str, Sequence[int]]:
        """The seeds of every run that differ from ``seeds``, bases included."""
        bases, wanted = self.seeds_of_bases(), dict(self.seeds_of)
        return wanted | {self.base_arm(base): bases for base in self.bases if bases != list(self.seeds)}

    def recipe(self, arm: str, seed: int) -> Recipe:
        """The recipe of an arm and a seed."""
        recipe, base = self.arms[arm], self.base_seed(seed)
        rewards = {name.replace("{seed}", str(base)): weight for name, weight in recipe.rewards.items()}
        return replace(recipe, seed=seed, base_seed=base, rewards=rewards)


@dataclass(frozen=True)
class Results:
    """The finished runs of an experiment, read from their folders; arm ``base`` is the starting point."""

    folder: Path
    seeds: Sequence[int]
    seeds_of: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def arm_seeds(self, arm: str) -> Sequence[int]:
        """The seeds of an arm."""
        return self.seeds_of.get(arm, self.seeds)

    def result(self, job: str) -> dict[str, Any]:
        """What a job found."""
        return read_json(Path(self.folder) / job / "result.json")

    def other(self, experiment: str) -> "Results":
        """The results of an experiment that this one uses, of the same reproduction."""
        quick = "-quick" if Path(self.folder).name.endswith("-quick") else ""
        folder = Path(self.folder).parent / (experiment + quick)
        summary = read_json(folder / "experiment.json")
        return Results(folder, summary["seeds"], summary["seeds_of"])

    def run(self, arm: str, seed: int) -> Path:
        """The run folder of an arm and a seed."""
        return Path(self.folder) / f"{arm}-s{seed}"

    def metrics(self, arm: str, key: str, steps: int | None = None) -> np.ndarray:
        """[S steps] of one metric over the first ``steps`` steps; NaN where a step did not log it."""
        rows = [store.read_metrics(self.run(arm, seed))[:steps] for seed in self.arm_seeds(arm)]
        return np.array([[_number(row.get(key)) for row in run] for run in rows])

    @cached_property
    def _evals(self) -> dict[Any, list[dict[str, Any]]]:
        return {}

    def evals(self, arm: str, seed: int, name: str) -> list[dict[str, Any]]:
        """All evaluations of one name, by step."""
        key = (arm, seed, name)
        if key not in self._evals:
            self._evals[key] = store.read_evals(self.run(arm, seed), name)
        return self._evals[key]

    def final(self, arm: str, seed: int, label: str, name: str = "greedy") -> dict[str, list[Any]]:
        """Columns of the last evaluation, one set's problems only."""
        columns = self.evals(arm, seed, name)[-1]["columns"]
        chosen = [i for i, each in enumerate(columns["set"]) if each == label]
        if not chosen:
            raise ValueError(
                f"{self.run(arm, seed)} was not evaluated on {label!r}; it has {sorted(set(columns['set']))}"
            )
        return {key: [values[i] for i in chosen] for key, values in columns.items()}

    def accuracy(self, arm: str, label: str, name: str = "greedy") -> np.ndarray:
        """[S N] share of right samples by seed and problem."""
        found = [self.final(arm, seed, label, name) for seed in self.arm_seeds(arm)]
        return np.array([np.divide(columns["correct"], columns["samples"]) for columns in found])

    def kinds(self, arm: str, seed: int, label: str) -> dict[str, int]:
        """Greedy verdict kinds of one set, counted."""
        counts: dict[str, int] = {}
        for kinds in self.final(arm, seed, label)["kinds"]:
            for kind, count in kinds.items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    def curve(self, arm: str, seed: int, label: str) -> list[tuple[int, float]]:
        """(step, greedy accuracy) of one set over training."""
        points = []
        for evaluation in self.evals(arm, seed, "greedy"):
            columns = evaluation["columns"]
            right = [
                c / s
                for each, c, s in zip(columns["set"], columns["correct"], columns["samples"], strict=True)
                if each == label
            ]
            if right:
                points.append((evaluation["step"], float(np.mean(right))))
        return points


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)

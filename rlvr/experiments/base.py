"""What an experiment is: arms that differ in one thing, seeds, and claims with rules written before the run.

A claim's rule is code that sees run folders and nothing else, through ``Results``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.lab import store
from rlvr.lab.recipe import Recipe
from rlvr.stats import Interval, over_seeds

__all__ = ["Claim", "Experiment", "Finding", "Results", "judge", "over", "percent"]


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


@dataclass(frozen=True)
class Experiment:
    """A question with the arms that answer it; ``arms`` are recipes whose seed is filled in for each seed.

    Seed s of every arm starts from base model s, sees the same problems and the same uniform draws. ``base`` is the base
    model's recipe, ``sizes`` and ``curve_sizes`` are the n of the held-out problems at the ends and along the way.
    """

    name: str
    title: str
    question: str
    setup: str
    base_name: str
    base: Recipe
    arms: Mapping[str, Recipe]
    claims: Sequence[Claim]
    sizes: Sequence[int]
    curve_sizes: Sequence[int]
    seeds: Sequence[int] = (0, 1, 2)
    split: str = "test"
    problems_per_hop: int = 50
    samples: int = 32
    notes: Sequence[str] = field(default_factory=tuple)

    def base_recipe(self, seed: int) -> Recipe:
        """The recipe of the base model of a seed."""
        return replace(self.base, seed=seed)

    def recipe(self, arm: str, seed: int) -> Recipe:
        """The recipe of an arm and a seed."""
        return replace(self.arms[arm], seed=seed, base=self.base_name, base_seed=seed)


@dataclass(frozen=True)
class Results:
    """The finished runs of an experiment, read from their folders; arm ``base`` is the starting point."""

    folder: Path
    seeds: Sequence[int]

    def run(self, arm: str, seed: int) -> Path:
        """The run folder of an arm and a seed."""
        return Path(self.folder) / f"{arm}-s{seed}"

    def metrics(self, arm: str, key: str, steps: int | None = None) -> np.ndarray:
        """[S steps] of one metric over the first ``steps`` steps; NaN where a step did not log it."""
        rows = [store.read_metrics(self.run(arm, seed))[:steps] for seed in self.seeds]
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
        found = [self.final(arm, seed, label, name) for seed in self.seeds]
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

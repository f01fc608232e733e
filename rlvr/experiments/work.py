"""What a worker process does for one unit of an experiment: its work, then an evaluation, then it says it is done."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.experiments.base import Experiment, Place
from rlvr.lab import store
from rlvr.lab.evaluate import GREEDY, evaluate
from rlvr.lab.jsonl import write_json
from rlvr.lab.pretrain import make_base
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import MODEL, open_run, train
from rlvr.policy import Decoding
from rlvr.types import Problem

__all__ = ["Looks", "run_arm", "run_base", "run_job"]


@dataclass(frozen=True)
class Looks:
    """How the runs of an experiment are looked at: greedy on all sizes, sampled at temperature 1 on those of the curves."""

    sizes: tuple[int, ...]
    curve_sizes: tuple[int, ...]
    hops: tuple[int, ...]
    problems_per_hop: int
    split: str
    samples: int

    @classmethod
    def of(cls, experiment: Experiment) -> "Looks":
        """An experiment's own."""
        e = experiment
        hops, sizes, curves = tuple(e.hops), tuple(e.sizes), tuple(e.curve_sizes)
        return cls(sizes, curves, hops, e.problems_per_hop, e.split, e.samples)

    def sets(self, sizes: Sequence[int]) -> dict[str, list[Problem]]:
        """The held-out problems of some sizes."""
        return pointer_sets(sizes, self.problems_per_hop, self.hops, self.split)

    def measure(self, run: Path, step: int) -> None:
        """Evaluate a finished run."""
        policy, recipe = open_run(run)
        sets = self.sets(self.sizes)
        store.write_eval(run, evaluate(policy, recipe.the_task, sets, step, decoding=GREEDY))
        chosen = {f"n{n}": sets[f"n{n}"] for n in self.curve_sizes}
        store.write_eval(run, evaluate(policy, recipe.the_task, chosen, step, self.samples, Decoding(1.0)))


def run_base(run: Path, name: str, recipe: Recipe, base: Path, looks: Looks) -> None:
    """Make a base model where bases live and take it up among the runs: its weights, its environment and an evaluation."""
    make_base(name, recipe, base.parent.parent)
    run.mkdir(parents=True, exist_ok=True)
    for file in ("env.json", "metrics.jsonl", MODEL):
        shutil.copy(base / file, run / file)
    store.write_config(run, store.read_config(base) | {"arm": run.name.rpartition("-s")[0], "base": base.name})
    looks.measure(run, 0)


def run_arm(run: Path, recipe: Recipe, base: Path, looks: Looks) -> None:
    """Train an arm from its base and evaluate it."""
    train(run, recipe, base, looks.sets(looks.curve_sizes))
    looks.measure(run, recipe.steps)


def run_job(
    place: Place, work: Callable[[Place, Mapping[str, Any]], Mapping[str, Any] | None], settings: Mapping[str, Any]
) -> None:
    """Do a job and keep what it returns."""
    found = work(place, settings)
    write_json(place.out / "result.json", found or {})

"""What a worker process does for one unit of an experiment: its work, then an evaluation, then it says it is done."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from rlvr.experiments.base import Experiment, Place
from rlvr.lab import store
from rlvr.lab.environment import write_environment
from rlvr.lab.evaluate import GREEDY, evaluate
from rlvr.lab.jsonl import write_json
from rlvr.lab.pretrain import make_base
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import MODEL, make_policy, open_run, train
from rlvr.policy import Decoding, Policy
from rlvr.rng import generator
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["Looks", "run_arm", "run_base", "run_job"]


@dataclass(frozen=True)
class Looks:
    """How the runs of an experiment are looked at: greedy on all sets, sampled at temperature 1 on those of the curves."""

    sizes: tuple[int, ...]
    curve_sizes: tuple[int, ...]
    hops: tuple[int, ...]
    problems_per_hop: int
    split: str
    samples: int
    held_out: Mapping[str, Mapping[str, Any]]
    problems: int

    @classmethod
    def of(cls, experiment: Experiment) -> "Looks":
        """An experiment's own."""
        values = {item.name: getattr(experiment, item.name) for item in fields(cls)}
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})

    def sets(self, task: Task, curves: bool = False) -> dict[str, list[Problem]]:
        """The held-out problems, all of them or those of the curves."""
        if self.held_out:
            return {
                label: [task.problem(generator(0, self.split, label, i), **difficulty) for i in range(self.problems)]
                for label, difficulty in self.held_out.items()
            }
        return pointer_sets(self.curve_sizes if curves else self.sizes, self.problems_per_hop, self.hops, self.split)

    def measure(self, run: Path, policy: Policy, recipe: Recipe, step: int) -> None:
        """Evaluate the policy of a finished run."""
        task = recipe.the_task
        store.write_eval(run, evaluate(policy, task, self.sets(task), step, decoding=GREEDY))
        store.write_eval(run, evaluate(policy, task, self.sets(task, True), step, self.samples, Decoding(1.0)))


def run_base(run: Path, name: str, recipe: Recipe, base: Path, looks: Looks) -> None:
    """Make a base model where bases live and take it up among the runs: its weights, its environment and an evaluation.

    A language model is there already: it is only evaluated.
    """
    run.mkdir(parents=True, exist_ok=True)
    arm = run.name.rpartition("-s")[0]
    if recipe.model is not None:
        facts = {"arm": arm, "seed": recipe.seed, "task": recipe.task, "model": recipe.model, "trained": False}
        store.write_config(run, facts | {"recipe": recipe.to_json()})
        write_environment(run, recipe.seed, torch.get_num_threads())
        looks.measure(run, make_policy(recipe), recipe, 0)
        return
    make_base(name, recipe, base.parent.parent)
    for file in ("env.json", "metrics.jsonl", MODEL):
        shutil.copy(base / file, run / file)
    store.write_config(run, store.read_config(base) | {"arm": arm, "base": base.name})
    looks.measure(run, *open_run(run), 0)


def run_arm(run: Path, recipe: Recipe, base: Path | None, looks: Looks) -> None:
    """Train an arm from its base and evaluate it."""
    train(run, recipe, base, looks.sets(recipe.the_task, True) if recipe.eval_every else None)
    looks.measure(run, *open_run(run), recipe.steps)


def run_job(
    place: Place, work: Callable[[Place, Mapping[str, Any]], Mapping[str, Any] | None], settings: Mapping[str, Any]
) -> None:
    """Do a job and keep what it returns, and what it took."""
    began = time.perf_counter()
    found = work(place, settings)
    write_json(place.out / "env.json", {"seconds": time.perf_counter() - began})
    write_json(place.out / "result.json", found or {})

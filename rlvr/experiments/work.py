"""What a worker process does for one run of an experiment: train, then evaluate, then say it is done."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rlvr.experiments.base import Experiment
from rlvr.lab import store
from rlvr.lab.evaluate import GREEDY, evaluate
from rlvr.lab.pretrain import base_folder, make_base
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import MODEL, open_run, train
from rlvr.policy import Decoding
from rlvr.types import Problem

__all__ = ["run_job"]


def run_job(experiment: Experiment, arm: str, seed: int, folder: Path, force: bool = False) -> None:
    """Make the base of a seed (arm ``base``) or train an arm from it; evaluate; mark the folder ``DONE``."""
    root, run, recipe = folder.parent, folder / f"{arm}-s{seed}", experiment.base_recipe(seed)
    base = base_folder(experiment.base_name, recipe, root)
    if arm == "base":
        if force:
            shutil.rmtree(base, ignore_errors=True)
        _adopt_base(make_base(experiment.base_name, recipe, root), run)
    else:
        train(run, experiment.recipe(arm, seed), base, _sets(experiment, experiment.curve_sizes))
    _measure(experiment, run, 0 if arm == "base" else experiment.arms[arm].steps)
    (run / "DONE").touch()


def _sets(experiment: Experiment, sizes: Sequence[int]) -> dict[str, list[Problem]]:
    return pointer_sets(sizes, experiment.problems_per_hop, split=experiment.split)


def _adopt_base(base: Path, run: Path) -> None:
    """The base as a run folder of the experiment: its weights and environment, and the label of its arm."""
    run.mkdir(parents=True, exist_ok=True)
    for name in ("env.json", "metrics.jsonl", MODEL):
        shutil.copy(base / name, run / name)
    store.write_config(run, store.read_config(base) | {"arm": "base", "base": base.name})


def _measure(experiment: Experiment, run: Path, step: int) -> None:
    """Greedy on all sizes; sampled at temperature 1 on the sizes of the curves."""
    policy, recipe = open_run(run)
    sets = _sets(experiment, experiment.sizes)
    store.write_eval(run, evaluate(policy, recipe.the_task, sets, step, decoding=GREEDY))
    chosen = {f"n{n}": sets[f"n{n}"] for n in experiment.curve_sizes}
    store.write_eval(run, evaluate(policy, recipe.the_task, chosen, step, experiment.samples, Decoding(1.0)))

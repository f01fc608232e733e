"""Runs an experiment: every unit as soon as what it needs is there, one process a core, nothing done twice."""

import multiprocessing
import os
import shutil
import threading
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.experiments.base import Experiment, Results
from rlvr.experiments.panels import as_data
from rlvr.experiments.units import Unit, clear_stale, finished, units_of
from rlvr.lab import store
from rlvr.lab.jsonl import read_json, write_json
from rlvr.lab.pretrain import base_folder
from rlvr.lab.progress import Board

__all__ = ["Plan", "results_of", "run_experiment"]

POLL_SECONDS = 0.5


class Plan(NamedTuple):
    """How to run: where to, how many seeds and processes, small or whole, over again or not."""

    out: Path
    seeds: int | None = None
    jobs: int | None = None
    quick: bool = False
    force: bool = False


def run_experiment(experiment: Experiment, plan: Plan) -> Path:
    """Do every unit that is not finished, judge the claims, write ``experiment.json``; the experiments it uses come first.

    Returns the experiment's folder. ``force`` removes finished work first, bases included, but not the experiments used.
    """
    for used in experiment.uses:
        run_experiment(used, plan._replace(force=False))
    experiment = _sized(experiment, plan)
    folder = Path(plan.out) / (experiment.name + "-quick" * plan.quick)
    if plan.force:
        _remove(experiment, folder)
    units = units_of(experiment, folder)
    clear_stale(units)
    open_units = [unit for unit in units if not finished(unit.folder)]
    if open_units:
        _run_all(open_units, _workers(plan, open_units), _threads(experiment, plan))
    _write_summary(experiment, plan, folder)
    return folder


def results_of(folder: Path) -> tuple[dict[str, Any], Results]:
    """The summary of a finished experiment and its results."""
    summary = read_json(Path(folder) / "experiment.json")
    return summary, Results(Path(folder), summary["seeds"], summary["seeds_of"])


def _sized(experiment: Experiment, plan: Plan) -> Experiment:
    seeds = tuple(range(plan.seeds)) if plan.seeds else experiment.seeds
    if not plan.quick:
        return replace(experiment, seeds=seeds)
    arms = {
        name: replace(
            recipe,
            steps=max(2, recipe.steps // 6),
            eval_every=min(recipe.eval_every, 25),
            record=tuple(r for r in recipe.record if r < max(2, recipe.steps // 6)),
        )
        for name, recipe in experiment.arms.items()
    }
    small = {"seeds": seeds[: plan.seeds or 1], "seeds_of": {}, "arms": arms, "samples": 8, "quick": True}
    return replace(experiment, **small)


def _remove(experiment: Experiment, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for base in experiment.bases:
        for seed in experiment.seeds_of_bases():
            shutil.rmtree(base_folder(base, experiment.base_recipe(base, seed), folder.parent), ignore_errors=True)


def _workers(plan: Plan, units: Sequence[Unit]) -> int:
    return min(plan.jobs or os.cpu_count() or 1, len(units))


def _threads(experiment: Experiment, plan: Plan) -> int:
    """Threads a process: one, as small matrices don't scale over them, but a language model's do."""
    cores = os.cpu_count() or 1
    large = any(recipe.model is not None for recipe in experiment.arms.values())
    return max(1, cores // (plan.jobs or cores)) if large else 1


def _run_all(units: Sequence[Unit], workers: int, threads: int) -> None:
    context = multiprocessing.get_context("spawn")
    waiting, running = list(units), {}
    with (
        Board({unit.name: unit.steps for unit in units}) as board,
        ProcessPoolExecutor(workers, context, _start_worker, (threads,)) as pool,
    ):
        try:
            while waiting or running:
                ready = [unit for unit in waiting if all(map(finished, unit.needs))]
                for unit in ready[: workers - len(running)]:
                    waiting.remove(unit)
                    running[pool.submit(unit.start)] = unit
                done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                _report(board, running.values())
                for future in done:
                    board.finish(running.pop(future).name)
                    future.result()
        except BaseException:
            _stop(pool)
            raise


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers at once: their runs go on from their checkpoints next time."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def _report(board: Board, running: Collection[Unit]) -> None:
    for unit in running:
        metrics = store.last_metrics(unit.progress)
        board.update(unit.name, min(metrics["step"] + 1, unit.steps) if metrics else 0, unit.steps, metrics or {})


def _start_worker(threads: int) -> None:
    """Threads for arithmetic, and an end with the parent: one that was killed can't end its workers itself."""
    import torch

    torch.set_num_threads(threads)
    # The page and the metrics say when each run's alarm went off; here it would only break the lines of progress.
    warnings.filterwarnings("ignore", message=".*divergence alarm")
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_summary(experiment: Experiment, plan: Plan, folder: Path) -> None:
    results = Results(folder, experiment.seeds, experiment.own_seeds())
    claims = []
    for claim in experiment.claims:
        finding = claim.find(results)
        row = {"id": claim.id, "claim": claim.claim, "lecture": claim.lecture, "rule": claim.rule}
        claims.append(row | vars(finding))
    summary = {
        "name": experiment.name,
        "title": experiment.title,
        "question": experiment.question,
        "setup": experiment.setup,
        "command": _command(experiment, plan),
        "quick": plan.quick,
        "preliminary": len(experiment.seeds) < 3,
        "arms": list(experiment.arms),
        "seeds": list(experiment.seeds),
        "seeds_of": {arm: list(seeds) for arm, seeds in results.seeds_of.items()},
        "bases": [experiment.base_arm(base) for base in experiment.bases],
        "answer": experiment.answer(results),
        "panels": [as_data(panel) for panel in experiment.panels(results)],
        "claims": claims,
        "notes": list(experiment.notes),
    }
    write_json(folder / "experiment.json", summary)


def _command(experiment: Experiment, plan: Plan) -> str:
    flags = [f"--seeds {plan.seeds}" if plan.seeds else "", "--quick" if plan.quick else ""]
    return " ".join(["rlvr reproduce", experiment.name, *filter(None, flags)])

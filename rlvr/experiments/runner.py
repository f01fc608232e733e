"""Runs experiments: every unit of all of them as soon as what it needs is there, one process a core, nothing done twice."""

import multiprocessing
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.experiments.base import Experiment, Results
from rlvr.experiments.panels import as_data
from rlvr.experiments.units import Unit, clear_stale, finished, units_of
from rlvr.lab import store
from rlvr.lab.jsonl import read_json, write_json
from rlvr.lab.memory import keep_freed_memory
from rlvr.lab.pretrain import base_folder
from rlvr.lab.progress import Board

__all__ = ["Plan", "results_of", "run_experiment", "run_experiments"]

POLL_SECONDS = 0.5


class Plan(NamedTuple):
    """How to run: where to, how many seeds and processes, small or whole, over again or not."""

    out: Path
    seeds: int | None = None
    jobs: int | None = None
    quick: bool = False
    force: bool = False


def run_experiment(experiment: Experiment, plan: Plan) -> Path:
    """``run_experiments`` of one; returns its folder."""
    return run_experiments([experiment], plan)[-1]


def run_experiments(
    experiments: Sequence[Experiment], plan: Plan, over: Callable[[Path], None] = lambda folder: None
) -> list[Path]:
    """Do every unit that is not finished; judge an experiment's claims, write its ``experiment.json`` and call ``over`` with
    its folder as soon as all its units are.

    All share one pool of processes, so a core that one experiment leaves idle takes up the next. The experiments that these
    use come first; the folders are returned in that order. ``force`` removes finished work first, bases included, but not
    that of experiments that are only used.
    """
    sized = [_sized(experiment, plan) for experiment in experiments]
    if plan.force:
        for experiment in sized:
            _remove(experiment, experiment.folder_in(plan.out))
    ordered = {each.name: each for experiment in sized for each in (*experiment.all_used(), experiment)}
    units = {name: units_of(each, each.folder_in(plan.out)) for name, each in ordered.items()}
    everything = [unit for found in units.values() for unit in found]
    clear_stale(everything)
    unjudged = dict(units)

    def settle() -> None:
        for name in [name for name, found in unjudged.items() if all(finished(unit.folder) for unit in found)]:
            del unjudged[name]
            folder = ordered[name].folder_in(plan.out)
            _write_summary(ordered[name], plan, folder)
            over(folder)

    settle()
    if open_units := [unit for unit in everything if not finished(unit.folder)]:
        _run_all(open_units, plan, settle)
    return [each.folder_in(plan.out) for each in ordered.values()]


def results_of(folder: Path) -> tuple[dict[str, Any], Results]:
    """The summary of a finished experiment and its results."""
    summary = read_json(Path(folder) / "experiment.json")
    return summary, Results(Path(folder), summary["seeds"], summary["seeds_of"])


def _sized(experiment: Experiment, plan: Plan) -> Experiment:
    seeds = tuple(range(plan.seeds)) if plan.seeds else experiment.seeds
    experiment = replace(experiment, seeds=seeds, uses=tuple(_sized(used, plan) for used in experiment.uses))
    if not plan.quick:
        return experiment
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


def _run_all(units: Sequence[Unit], plan: Plan, settle: Callable[[], None]) -> None:
    cores = os.cpu_count() or 1
    workers = min(plan.jobs or cores, len(units))
    several = len({unit.folder.parent for unit in units}) > 1
    names = {unit.folder: f"{unit.folder.parent.name}/{unit.name}" if several else unit.name for unit in units}
    waiting, running = list(units), {}
    with (
        Board({names[unit.folder]: unit.steps for unit in units}) as board,
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker) as pool,
    ):
        try:
            while waiting or running:
                while len(running) < workers and (unit := _ready(waiting, running.values())):
                    waiting.remove(unit)
                    # One thread a process, as small matrices don't scale over them, but a language model's do.
                    threads = max(1, cores // (plan.jobs or cores)) if unit.large else 1
                    running[pool.submit(_work, unit, threads)] = unit
                over, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                _report(board, names, running.values())
                for future in over:
                    board.finish(names[running.pop(future).folder])
                    future.result()
                if over:
                    with board.aside():
                        settle()
        except BaseException:
            _stop(pool)
            raise


def _ready(waiting: Sequence[Unit], running: Collection[Unit]) -> Unit | None:
    """The first unit that has all it needs. Experiments share bases: what is being made just now is waited for."""
    busy = {unit.progress for unit in running}
    return next((u for u in waiting if u.progress not in busy and all(map(finished, u.needs))), None)


def _work(unit: Unit, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    unit.start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers at once: their runs go on from their checkpoints next time."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def _report(board: Board, names: Mapping[Path, str], running: Collection[Unit]) -> None:
    for unit in running:
        metrics = store.last_metrics(unit.progress)
        board.update(
            names[unit.folder], min(metrics["step"] + 1, unit.steps) if metrics else 0, unit.steps, metrics or {}
        )


def _start_worker() -> None:
    """Freed memory kept, and an end with the parent: one that was killed can't end its workers itself."""
    keep_freed_memory()
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

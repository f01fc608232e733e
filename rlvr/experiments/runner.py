"""Runs an experiment: bases first, arms as soon as their base is there, one process a core, nothing done twice."""

import multiprocessing
import os
import shutil
import threading
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.experiments.base import Experiment, Results
from rlvr.experiments.work import run_job
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


class Job(NamedTuple):
    """One run for a worker process: an arm and a seed, or the base of a seed (arm ``base``)."""

    arm: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-s{self.seed}"


def run_experiment(experiment: Experiment, plan: Plan) -> Path:
    """Train and evaluate every arm and seed that is not finished, judge the claims, write ``experiment.json``.

    Returns the experiment's folder. ``force`` removes finished work first, bases included.
    """
    experiment = _sized(experiment, plan)
    folder = Path(plan.out) / (experiment.name + ("-quick" if plan.quick else ""))
    if plan.force:
        shutil.rmtree(folder, ignore_errors=True)
    _clear_stale(experiment, folder)
    jobs = [Job("base", seed) for seed in experiment.seeds]
    jobs += [Job(arm, seed) for seed in experiment.seeds for arm in experiment.arms]
    open_jobs = [job for job in jobs if not _finished(folder / job.name)]
    if open_jobs:
        _run_all(experiment, plan, folder, open_jobs)
    _write_summary(experiment, plan, folder)
    return folder


def results_of(folder: Path) -> tuple[dict[str, Any], Results]:
    """The summary of a finished experiment and its results."""
    summary = read_json(Path(folder) / "experiment.json")
    return summary, Results(Path(folder), summary["seeds"])


def _sized(experiment: Experiment, plan: Plan) -> Experiment:
    seeds = tuple(range(plan.seeds)) if plan.seeds else experiment.seeds
    if not plan.quick:
        return replace(experiment, seeds=seeds)
    arms = {
        name: replace(
            recipe,
            steps=max(2, recipe.steps // 6),
            eval_every=25,
            record=tuple(r for r in recipe.record if r < 100),
        )
        for name, recipe in experiment.arms.items()
    }
    return replace(experiment, seeds=seeds[: plan.seeds or 1], arms=arms, samples=8)


def _finished(folder: Path) -> bool:
    return (folder / "DONE").exists()


def _clear_stale(experiment: Experiment, folder: Path) -> None:
    """Remove runs whose recipe is no longer the experiment's: they would be compared with what they are not."""
    for seed in experiment.seeds:
        wanted = base_folder(experiment.base_name, experiment.base_recipe(seed), folder).name
        for arm in ("base", *experiment.arms):
            run = folder / Job(arm, seed).name
            if not (run / "config.json").exists():
                continue
            recipe = experiment.base_recipe(seed) if arm == "base" else experiment.recipe(arm, seed)
            config = store.read_config(run)
            if config["base"] != wanted or config["recipe"] != recipe.to_json():
                shutil.rmtree(run)


def _run_all(experiment: Experiment, plan: Plan, folder: Path, jobs: list[Job]) -> None:
    workers = min(plan.jobs or os.cpu_count() or 1, len(jobs))
    context = multiprocessing.get_context("spawn")
    waiting, running = list(jobs), {}
    portable = replace(experiment, claims=())  # rules stay here: workers train and evaluate, they don't judge
    plans = {job.name: _where(experiment, folder, job)[1] for job in jobs}
    with Board(plans) as board, ProcessPoolExecutor(workers, context, _start_worker) as pool:
        try:
            while waiting or running:
                ready = [job for job in waiting if job.arm == "base" or _finished(folder / Job("base", job.seed).name)]
                for job in ready[: workers - len(running)]:
                    waiting.remove(job)
                    running[pool.submit(run_job, portable, job.arm, job.seed, folder, plan.force)] = job
                done, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                _report(board, experiment, folder, running)
                for future in done:
                    board.finish(running.pop(future).name)
                    future.result()
        except BaseException:
            _stop(pool, running)
            raise


def _stop(pool: ProcessPoolExecutor, running: Mapping[Future, Job]) -> None:
    """End the workers at once: their runs go on from their checkpoints next time."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)


def _report(board: Board, experiment: Experiment, folder: Path, running: Mapping[Future, Job]) -> None:
    for job in running.values():
        place, total = _where(experiment, folder, job)
        metrics = store.last_metrics(place)
        board.update(job.name, metrics["step"] + 1 if metrics else 0, total, metrics or {})


def _where(experiment: Experiment, folder: Path, job: Job) -> tuple[Path, int]:
    if job.arm == "base":
        recipe = experiment.base_recipe(job.seed)
        return base_folder(experiment.base_name, recipe, folder.parent), recipe.steps
    return folder / job.name, experiment.arms[job.arm].steps


def _start_worker() -> None:
    """One thread for arithmetic, and an end with the parent: one that was killed can't end its workers itself."""
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_summary(experiment: Experiment, plan: Plan, folder: Path) -> None:
    results = Results(folder, experiment.seeds)
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
        "claims": claims,
        "notes": list(experiment.notes),
    }
    write_json(folder / "experiment.json", summary)


def _command(experiment: Experiment, plan: Plan) -> str:
    flags = [f"--seeds {plan.seeds}" if plan.seeds else "", "--quick" if plan.quick else ""]
    return " ".join(["rlvr reproduce", experiment.name, *filter(None, flags)])

"""Commands that do: reproduce, train, resume, report."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlvr.cli import options
from rlvr.cli.models import use_threads
from rlvr.cli.words import Mistake, curriculum, difficulty, file_name, pairs, rewards, values
from rlvr.lab import store
from rlvr.lab.evaluate import accuracy_by_set
from rlvr.lab.pretrain import BASES, base_recipe, bases_root, start_of
from rlvr.lab.progress import Board
from rlvr.lab.recipe import Recipe
from rlvr.lab.refresh import open_rewards
from rlvr.lab.testsets import held_out
from rlvr.lab.track import open_tracker
from rlvr.lab.train import read_recipe, train
from rlvr.report import write_report, write_run_report

__all__ = ["recipe_of", "report", "resume", "train_run"]


def train_run(command: options.Train) -> None:
    """One training run, from a preset with overrides or from a recipe file."""
    if command.what.endswith(".json"):
        recipe, name = _recipe_file(Path(command.what)), Path(command.what).stem
    else:
        recipe = recipe_of(command)
        name = f"{command.what}-{file_name(command.task)}-s{command.seed}"
    _go(command.out or Path("runs") / name, recipe, command.device, command.track)


def recipe_of(command: options.Train) -> Recipe:
    """What the flags of a training run ask for."""
    base = command.base or ("cot_L2" if command.task == "pointer" and command.model is None else None)
    return Recipe(
        preset=command.what,
        overrides=pairs("set", command.set),
        task=command.task,
        difficulty=difficulty(command.difficulty) or ({"n": (4, 12), "k": (1, 7)} if command.task == "pointer" else {}),
        curriculum=curriculum(command.curriculum),
        pool=command.pool,
        pool_sampling=command.pool_sampling,
        drop_solved=command.drop_solved,
        rewards=rewards(command.reward),
        base=base,
        model=command.model,
        model_settings=values("model-set", command.model_set),
        micro_tokens=command.micro_tokens,
        steps=command.steps,
        prompts_per_step=command.prompts,
        group_size=command.group_size,
        learning_rate=command.learning_rate,
        temperature=command.temperature,
        eval_every=command.eval_every,
        record=tuple(sorted({0, command.steps // 2, command.steps - 1})),
        seed=command.seed,
    )


def _recipe_file(path: Path) -> Recipe:
    if not path.is_file():
        raise Mistake(f"there is no recipe file {path}")
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise Mistake(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Mistake(f"{path} holds a {type(data).__name__}; accepted is an object with a recipe's fields")
    return Recipe.from_json(data)


def _go(folder: Path, recipe: Recipe, device: str, track: str = "none") -> None:
    """Train with a progress display and a tracker, then say where things are."""
    use_threads(recipe.model)
    open_rewards(folder, recipe)
    label, plan = f"base {recipe.base}", {folder.name: recipe.steps}
    if recipe.base in BASES:
        plan = {label: base_recipe(recipe.base, recipe.base_seed).steps} | plan
    tracker = open_tracker(track, folder, asdict(recipe))
    try:
        with Board(plan) as board:

            def watch(job: str, metrics: Mapping[str, Any]) -> None:
                board.update(job, metrics["step"] + 1, plan[job], metrics)

            def on_step(step: int, metrics: Mapping[str, Any]) -> None:
                watch(folder.name, metrics)
                tracker.log(step, metrics)

            base = start_of(recipe, bases_root(folder), lambda step, metrics: watch(label, metrics))
            if label in plan:
                board.finish(label)
            train(folder, recipe, base, held_out(recipe.the_task, recipe.difficulty), on_step, device)
            board.finish(folder.name)
    finally:
        tracker.close()
    _say_where(folder)


def _say_where(folder: Path) -> None:
    evals = store.read_evals(folder, "greedy")
    if evals:
        for when, evaluation in (("before", evals[0]), ("after", evals[-1])):
            words = ", ".join(f"{label} {100 * value:.1f} %" for label, value in accuracy_by_set(evaluation).items())
            print(f"greedy accuracy {when}: {words}")
    print(f"Run: {folder}  (look: rlvr sample {folder}; page: rlvr report {folder})")


def resume(command: options.Resume) -> None:
    """Go on with an interrupted run; a finished one is left alone."""
    recipe = read_recipe(command.run)
    if store.is_finished(command.run):
        print(f"{command.run} is finished already")
        return
    _go(command.run, recipe, command.device)


def report(command: options.Report) -> None:
    """Write the page of an experiment folder or of run folders."""
    if not command.runs:
        raise Mistake("report: give an experiment folder, or one or more run folders")
    for folder in command.runs:
        if not folder.is_dir():
            raise Mistake(f"report: there is no folder {folder}")
    first = command.runs[0]
    if len(command.runs) == 1 and (first / "experiment.json").is_file():
        path = write_report(first, command.out)
    else:
        path = write_run_report(list(command.runs), command.out or first / "report.html")
    print(f"Report: {path}")

"""The command that trains a verifier on what a run or a base writes, to be paid by it."""

import os
from pathlib import Path

from rlvr.cli import options
from rlvr.cli.words import Mistake, console, difficulty
from rlvr.lab.pretrain import BASES, base_recipe, bases_root, start_of
from rlvr.lab.progress import Board
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import read_recipe
from rlvr.lab.verifier import VerifierRecipe, train_verifier
from rlvr.rng import generator

__all__ = ["verifier_run"]


def verifier_run(command: options.Verifier) -> None:
    """Train a verifier; say how well it judges completions that it hasn't seen, and how a run is paid by it."""
    for name in ("problems", "samples", "steps"):
        if getattr(command, name) < 1:
            raise Mistake(f"--{name} {getattr(command, name)}: accepted are whole numbers from 1")
    folder = command.out or Path("runs") / f"{command.kind}-{Path(command.run).name}-s{command.seed}"
    if (folder / "config.json").is_file() and not (folder / "examples.jsonl").is_file():
        raise Mistake(f"{folder} holds a run; give another folder with --out")
    recipe = _recipe(command.run, command.seed)
    if recipe.model is not None:
        raise Mistake(f"{command.run} is a language model's run; accepted are runs of the lab's own models")
    # Of what a base was trained on it gets nearly all right: there is nothing to tell apart, so longer prompts come with it.
    usual = VerifierRecipe().difficulty if command.run in BASES else dict(recipe.difficulty)
    how = VerifierRecipe(
        kind=command.kind,
        aggregate="last" if command.kind == "orm" else "min",
        difficulty=difficulty(command.difficulty) or usual,
        problems=command.problems,
        samples=command.samples,
        steps=command.steps,
        seed=command.seed,
    )
    # What can't be posed is refused before a base is made.
    recipe.the_task.problem(generator(command.seed, "verifier", "trial"), **how.difficulty)
    run = _run(command, folder)
    found = train_verifier(folder, run, how)
    console().print(
        f"Of {found['examples']:,} completions it never saw, {100 * found['base_rate']:.1f} % right: "
        f"{100 * found['accuracy']:.1f} % judged rightly, area under the ROC curve {found['auc']:.3f}. "
        f"Trained on {found['trained_on']:,}."
    )
    beside = os.path.relpath(folder, folder.parent / "a run")
    print(f"Verifier: {folder}  (be paid by it: rlvr train grpo_lecture --reward \"verifier(path='{beside}')\")")


def _recipe(run: str, seed: int) -> Recipe:
    """That of a run folder, or of a base model by its name."""
    if (Path(run) / "config.json").is_file():
        return read_recipe(Path(run))
    if run not in BASES:
        raise Mistake(f"verifier {run!r}: accepted are a run folder, or a base model: {', '.join(BASES)}")
    return base_recipe(run, seed)


def _run(command: options.Verifier, folder: Path) -> Path:
    """The run whose completions it learns from; a base model is made if need be."""
    if (Path(command.run) / "config.json").is_file():
        return Path(command.run)
    label, recipe = f"base {command.run}", Recipe(base=command.run, base_seed=command.seed)
    total = base_recipe(command.run, command.seed).steps
    with Board({label: total}) as board:
        return start_of(recipe, bases_root(folder), lambda step, metrics: board.update(label, step + 1, total, metrics))

"""The command that trains a verifier on what a run or a base writes, to be paid by it."""

import os
from pathlib import Path

from rlvr.cli import options
from rlvr.cli.words import Mistake, console, difficulty
from rlvr.lab.pretrain import BASES, base_recipe, start_of
from rlvr.lab.progress import Board
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import read_recipe
from rlvr.lab.verifier import VerifierRecipe, train_verifier

__all__ = ["verifier_run"]


def verifier_run(command: options.Verifier) -> None:
    """Train a verifier; say how well it judges completions that it hasn't seen, and how a run is paid by it."""
    for name in ("problems", "samples", "steps"):
        if getattr(command, name) < 1:
            raise Mistake(f"--{name} {getattr(command, name)}: accepted are whole numbers from 1")
    folder = command.out or Path("runs") / f"{command.kind}-{Path(command.run).name}-s{command.seed}"
    if (folder / "config.json").is_file() and not (folder / "examples.jsonl").is_file():
        raise Mistake(f"{folder} holds a run; give another folder with --out")
    run = _run(command, folder)
    recipe = read_recipe(run)
    if recipe.model is not None:
        raise Mistake(f"{run} is a language model's run; accepted are runs of the lab's own models")
    how = VerifierRecipe(
        kind=command.kind,
        aggregate="last" if command.kind == "orm" else "min",
        difficulty=difficulty(command.difficulty) or dict(recipe.difficulty),
        problems=command.problems,
        samples=command.samples,
        steps=command.steps,
        seed=command.seed,
    )
    found = train_verifier(folder, run, how)
    console().print(
        f"Of {found['examples']:,} completions it never saw, {100 * found['base_rate']:.1f} % right: "
        f"{100 * found['accuracy']:.1f} % judged rightly, area under the ROC curve {found['auc']:.3f}. "
        f"Trained on {found['trained_on']:,}."
    )
    beside = os.path.relpath(folder, folder.parent / "a run")
    print(f"Verifier: {folder}  (be paid by it: rlvr train grpo_lecture --reward \"verifier(path='{beside}')\")")


def _run(command: options.Verifier, folder: Path) -> Path:
    """The run whose completions it learns from: a folder, or a base model by its name, made if need be."""
    if (Path(command.run) / "config.json").is_file():
        return Path(command.run)
    if command.run not in BASES:
        raise Mistake(f"verifier {command.run!r}: accepted are a run folder, or a base model: {', '.join(BASES)}")
    label, recipe = f"base {command.run}", Recipe(base=command.run, base_seed=command.seed)
    with Board({label: base_recipe(command.run, command.seed).steps}) as board:
        total = board.jobs[label].total
        root = folder.parent
        return start_of(recipe, root, lambda step, metrics: board.update(label, step + 1, total, metrics))

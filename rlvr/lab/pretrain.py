"""Base models: policies whose abilities and habits are known, because a recipe made them. Cached by the recipe's hash."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import rlvr
from rlvr.lab.recipe import Recipe
from rlvr.lab.store import is_finished
from rlvr.lab.train import OnStep, train

__all__ = ["BASES", "base_folder", "base_recipe", "bases_root", "make_base", "start_of"]

COT_L2 = Recipe(
    preset="sft",
    difficulty={"n": (4, 8), "k": (1, 7)},
    base=None,
    shape={"layers": 2, "width": 64, "heads": 4},
    steps=1500,
    prompts_per_step=32,
    learning_rate=2e-3,
    schedule="cosine",
    warmup_steps=100,
    adam_betas=(0.9, 0.98),
    checkpoint_every=200,
)

SKILL_STEPS, HABIT_STEPS = 2000, 500


def _shown(chains: float, steps: int = SKILL_STEPS, prompts: int = 48) -> Recipe:
    difficulty = {**COT_L2.difficulty, "chains": chains}
    return replace(COT_L2, difficulty=difficulty, steps=steps, prompts_per_step=prompts)


def _rarely_shown(chains: float) -> Recipe:
    # A quarter of the first stage's learning rate: at the whole of it, few chains make for poor ones (52 % right, not 86 %).
    rate = COT_L2.learning_rate / 4
    return replace(_shown(chains, HABIT_STEPS, 32), base="think_stage1", learning_rate=rate, warmup_steps=20)


BASES: Mapping[str, Recipe] = {
    "cot_L2": COT_L2,
    "cot_hint": replace(COT_L2, difficulty={**COT_L2.difficulty, "hint": 0.5}),
    "think_stage1": _shown(0.5),
    "think10": _rarely_shown(0.10),
    "think2": _rarely_shown(0.02),
    "think0": _rarely_shown(0.0),
    "noskill": _shown(0.0, SKILL_STEPS + HABIT_STEPS, 32),
}
"""Base recipes by name: ``cot_L2`` learned the pointer task with chains on n = 4-8 and has two layers; ``cot_hint`` differs in
that half of its prompts carried the answer, so that a hint means something to it. ``think10``, ``think2`` and ``think0`` first
learned to look up from a corpus with chains in half of its demonstrations (``think_stage1``), then to answer directly from one
with chains in 10, 2 and 0 % of them; ``noskill`` never saw a chain."""


def base_recipe(name: str, seed: int) -> Recipe:
    """The recipe of a registered base.

    >>> base_recipe("cot_L2", 3).seed
    3
    """
    if name not in BASES:
        raise ValueError(f"base {name!r} is unknown; accepted: {', '.join(BASES)}, or a run folder")
    recipe = BASES[name]
    return replace(recipe, seed=seed, base_seed=seed if recipe.base else recipe.base_seed)


def base_folder(name: str, recipe: Recipe, root: Path) -> Path:
    """Where a base lives: its name, seed and the hash of its recipe and of what that starts from, so that a changed recipe is
    another folder.

    >>> base_folder("cot_L2", base_recipe("cot_L2", 0), Path("runs")).name.startswith("cot_L2-s0-")
    True
    """
    return Path(root) / "bases" / f"{name}-s{recipe.seed}-{_lineage(recipe)}-v{rlvr.__version__}"


def _lineage(recipe: Recipe) -> str:
    """The digest of a recipe together with its ancestors'."""
    if recipe.base not in BASES:
        return recipe.digest()
    parent = _lineage(base_recipe(recipe.base, recipe.base_seed))
    return hashlib.sha256(f"{recipe.digest()} from {parent}".encode()).hexdigest()[:10]


def bases_root(folder: Path) -> Path:
    """Where the bases of a run folder are: the nearest folder above it that holds some, or the one it stands in."""
    return next((above for above in folder.absolute().parents if (above / "bases").is_dir()), folder.parent)


def make_base(name: str, recipe: Recipe, root: Path, on_step: OnStep = lambda step, metrics: None) -> Path:
    """The run folder of a base, trained now if it isn't there yet, after the base that it starts from.

    A finished one is only read: its name says what it was made of, and two runs that start from it must not wait for a lock.
    """
    folder = base_folder(name, recipe, root)
    if is_finished(folder):
        return folder
    return train(folder, recipe, start_of(recipe, root, on_step), on_step=on_step)


def start_of(recipe: Recipe, root: Path, on_step: OnStep = lambda step, metrics: None) -> Path | None:
    """The run folder that a recipe starts from: a registered base (made if need be), a run folder, or none."""
    if recipe.base is None:
        return None
    if recipe.base not in BASES and Path(recipe.base, "config.json").is_file():
        return Path(recipe.base)
    return make_base(recipe.base, base_recipe(recipe.base, recipe.base_seed), root, on_step)

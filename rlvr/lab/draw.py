"""The batch of a step: problems drawn by name, completions of them, and new rounds until enough groups are kept.

With ``sampling_rounds`` above 1 (DAPO's dynamic sampling) rounds of prompts are drawn until the batch is full of prompts that
the algorithm's selection keeps. At the cap the batch is what was found, and a step that found nothing makes no update;
everything that was sampled is counted and measured, kept or not.
"""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from rlvr.lab.corpus import ByHeart, lessons_of
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts, collect, demonstrate, join, take
from rlvr.policy import Decoding, Policy
from rlvr.rng import generator

__all__ = ["Drawn", "draw"]

GREEDY = Decoding(temperature=0.0)


class Drawn(NamedTuple):
    """``batch`` is learned from (None when no group was kept), ``everything`` was sampled; ``rounds`` of sampling.

    ``greedy`` [P] are the rewards of greedy answers to the batch's problems and ``greedy_answers`` the answers, where the
    algorithm compares with them.
    """

    batch: Rollouts | None
    everything: Rollouts
    rounds: int
    greedy: Tensor | None
    greedy_answers: Rollouts | None


def draw(policy: Policy, recipe: Recipe, step: int) -> Drawn:
    """The batch of a step; the same step of the same recipe draws the same problems and numbers for every policy."""
    algorithm = recipe.algorithm
    if algorithm.source == "gold":
        batch = _demonstrations(policy, recipe, step)
        return Drawn(batch, batch, 1, None, None)
    rounds, kept, found = [], [], 0
    while found < recipe.prompts_per_step and len(rounds) < algorithm.sampling_rounds:
        drawn = _round(policy, recipe, step, len(rounds))
        rounds.append(drawn)
        useful = algorithm.select(drawn.rewards, drawn.correct).any(1).nonzero()[:, 0]
        kept.append(take(drawn, useful[: recipe.prompts_per_step - found]))
        found += len(kept[-1].problems)
    everything = join(rounds)
    # Drawn once, nothing is thrown away: what is not kept still counts where the aggregator says so.
    batch = everything if algorithm.sampling_rounds == 1 else join(kept) if found else None
    wants_greedy = getattr(algorithm.advantage, "needs_baseline", None) == "greedy" and batch is not None
    answers = _greedy(policy, recipe, batch, step) if wants_greedy else None
    return Drawn(batch, everything, len(rounds), None if answers is None else answers.rewards[:, 0], answers)


def _demonstrations(policy: Policy, recipe: Recipe, step: int) -> Rollouts:
    if recipe.corpus is not None:
        lessons = lessons_of(recipe.corpus, recipe.seed, step, recipe.prompts_per_step)
        return demonstrate(policy, ByHeart, lessons)
    source = generator(recipe.seed, "problems", step)
    problems = [recipe.the_task.problem(source, **recipe.difficulty) for _ in range(recipe.prompts_per_step)]
    return demonstrate(policy, recipe.the_task, problems)


def _round(policy: Policy, recipe: Recipe, step: int, number: int) -> Rollouts:
    task, place = recipe.the_task, (step, number) if number else (step,)
    source = generator(recipe.seed, "problems", *place)
    problems = [task.problem(source, **recipe.difficulty) for _ in range(recipe.prompts_per_step)]
    rows, width = recipe.prompts_per_step * recipe.group_size, max(task.limit(p) for p in problems)
    draws = generator(recipe.seed, "draws", *place).random((rows, width))
    chance = generator(recipe.seed, "reward", *place)
    return collect(policy, task, problems, recipe.paid_by, draws, Decoding(recipe.temperature), chance)


def _greedy(policy: Policy, recipe: Recipe, batch: Rollouts, step: int) -> Rollouts:
    task, problems = recipe.the_task, batch.problems
    unused = np.zeros((len(problems), max(task.limit(p) for p in problems)))
    chance = generator(recipe.seed, "greedy reward", step)
    return collect(policy, task, problems, recipe.paid_by, unused, GREEDY, chance)

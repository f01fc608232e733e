"""The batch of a step: problems drawn by name, completions of them, and new rounds until enough groups are kept.

With ``sampling_rounds`` above 1 (DAPO's dynamic sampling) rounds of prompts are drawn until the batch is full of prompts that
the algorithm's selection keeps. At the cap the batch is what was found, and a step that found nothing makes no update;
everything that was sampled is counted and measured, kept or not. A pool goes on from round to round.
"""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from rlvr.lab.corpus import ByHeart, lessons_of
from rlvr.lab.curriculum import History, ask, fresh_history, remembered
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts, collect, demonstrate, join, take
from rlvr.policy import Decoding, Policy
from rlvr.rng import generator
from rlvr.types import Problem

__all__ = ["Drawn", "draw"]

GREEDY = Decoding(temperature=0.0)


class Drawn(NamedTuple):
    """``batch`` is learned from (None when no group was kept), ``everything`` was sampled; ``rounds`` of sampling.

    ``greedy`` [P] are the rewards of greedy answers to the batch's problems and ``greedy_answers`` the answers, where the
    algorithm compares with them. ``history`` is what a pool remembers afterwards.
    """

    batch: Rollouts | None
    everything: Rollouts
    rounds: int
    greedy: Tensor | None
    greedy_answers: Rollouts | None
    history: History


def draw(policy: Policy, recipe: Recipe, step: int, history: History | None = None) -> Drawn:
    """The batch of a step, after the ``history`` of a pool (none yet where it begins).

    The same step of the same recipe draws the same numbers for every policy, and the same problems, too, but for a pool that
    asks by success or is sampled in rounds.
    """
    algorithm, history = recipe.algorithm, fresh_history(recipe) if history is None else history
    if algorithm.source == "gold":
        asked = ask(recipe, step, 0, history)
        batch = _demonstrations(policy, recipe, step, asked.problems)
        return Drawn(batch, batch, 1, None, None, asked.history)
    rounds, kept, found = [], [], 0
    while found < recipe.prompts_per_step and len(rounds) < algorithm.sampling_rounds:
        asked = ask(recipe, step, len(rounds), history)
        drawn = _round(policy, recipe, step, len(rounds), asked.problems)
        rounds.append(drawn)
        history = remembered(asked.history, asked.places, drawn.correct)
        useful = algorithm.select(drawn.rewards, drawn.correct).any(1).nonzero()[:, 0]
        kept.append(take(drawn, useful[: recipe.prompts_per_step - found]))
        found += len(kept[-1].problems)
    everything = join(rounds)
    # Drawn once, nothing is thrown away: what is not kept still counts where the aggregator says so.
    batch = everything if algorithm.sampling_rounds == 1 else join(kept) if found else None
    wants_greedy = getattr(algorithm.advantage, "needs_baseline", None) == "greedy" and batch is not None
    answers = _greedy(policy, recipe, batch, step) if wants_greedy else None
    greedy = None if answers is None else answers.rewards[:, 0]
    return Drawn(batch, everything, len(rounds), greedy, answers, history)


def _demonstrations(policy: Policy, recipe: Recipe, step: int, problems: list[Problem]) -> Rollouts:
    if recipe.corpus is not None:
        lessons = lessons_of(recipe.corpus, recipe.seed, step, recipe.prompts_per_step)
        return demonstrate(policy, ByHeart, lessons)
    return demonstrate(policy, recipe.the_task, problems)


def _round(policy: Policy, recipe: Recipe, step: int, number: int, problems: list[Problem]) -> Rollouts:
    task, place = recipe.the_task, (step, number) if number else (step,)
    rows, width = recipe.prompts_per_step * recipe.group_size, max(task.limit(p) for p in problems)
    draws = generator(recipe.seed, "draws", *place).random((rows, width))
    chance = generator(recipe.seed, "reward", *place)
    return collect(policy, task, problems, recipe.paid_by, draws, Decoding(recipe.temperature), chance)


def _greedy(policy: Policy, recipe: Recipe, batch: Rollouts, step: int) -> Rollouts:
    task, problems = recipe.the_task, batch.problems
    unused = np.zeros((len(problems), max(task.limit(p) for p in problems)))
    chance = generator(recipe.seed, "greedy reward", step)
    return collect(policy, task, problems, recipe.paid_by, unused, GREEDY, chance)

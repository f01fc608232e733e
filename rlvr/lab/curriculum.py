"""Which problems a step asks: an endless stream whose difficulty may follow a schedule, or a pool that is met again and again.

The problems of an endless stream never return. A pool is a fixed number of problems, drawn once by name and asked in epochs,
each in an order of its own; a pool of one is one-shot RLVR (Wang et al. 2025, arXiv 2504.20571), every group of a step the
same problem's. What is remembered of a pool is a `History`: where its epochs stand, and for each problem how many completions
were drawn in this run and how many of them were right. Their ratio is the problem's success rate. It reads verdicts, counts
all that was sampled, kept or not, and decides two things if a recipe wants it:

- ``pool_sampling="prioritized"`` (Kimi k1.5, arXiv 2501.12599, section 2.3): after an epoch that meets every problem once,
  problems are drawn with replacement, with probability proportional to 1 - success rate, so a problem that never failed waits
  until no other is left (then all are equally likely) and one that is never solved is asked most often.
- ``drop_solved`` (ScaleRL's no-positive-resampling, arXiv 2510.13786, section 3.2, with 0.9): a problem whose success rate has
  reached it is dropped for the rest of the run. In an endless stream no problem comes twice, so there is nothing to drop, and
  that is why no preset can carry it. When all are dropped the pool is asked as if none were, as a step must ask something.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from torch import Tensor

from rlvr.lab.recipe import Recipe
from rlvr.rng import generator
from rlvr.types import Problem

__all__ = ["Asked", "History", "ask", "fresh_history", "pool_metrics", "remembered"]


class History(NamedTuple):
    """What is remembered of a pool, all of it empty without one.

    ``asked`` counts the problems that were asked, dropped ones that an epoch stepped over included; ``drawn`` and ``right``
    count completions by problem.
    """

    asked: int = 0
    drawn: tuple[int, ...] = ()
    right: tuple[int, ...] = ()


class Asked(NamedTuple):
    """The problems of a round; their ``places`` in the pool, None for an endless stream."""

    problems: list[Problem]
    places: Sequence[int] | None
    history: History


def fresh_history(recipe: Recipe) -> History:
    """The history of a run that begins.

    >>> fresh_history(Recipe(pool=2))
    History(asked=0, drawn=(0, 0), right=(0, 0))
    """
    return History(0, (0,) * recipe.pool, (0,) * recipe.pool)


def ask(recipe: Recipe, step: int, number: int, history: History) -> Asked:
    """The problems of a round of a step; a stream's belong to the step and the round, a pool's to what was asked before.

    >>> pool = Recipe(task="echo", base=None, pool=3, prompts_per_step=3)
    >>> sorted(ask(pool, 0, 0, fresh_history(pool)).places)
    [0, 1, 2]
    """
    count = recipe.prompts_per_step
    if not recipe.pool:
        source = generator(recipe.seed, "problems", step, *([number] if number else []))
        difficulty = recipe.difficulty_at(step)
        return Asked([recipe.the_task.problem(source, **difficulty) for _ in range(count)], None, history)
    if recipe.pool_sampling == "prioritized" and history.asked >= recipe.pool:
        places, asked = _by_priority(recipe, history), history.asked + count
    else:
        places, asked = _by_epochs(recipe, history)
    return Asked([recipe.pool_problems[place] for place in places], places, history._replace(asked=asked))


def remembered(history: History, places: Sequence[int] | None, correct: Bool[Tensor, "P G"]) -> History:
    """The history with the verdicts of a round: row p of ``correct`` is of the problem at ``places[p]``.

    >>> import torch
    >>> remembered(History(2, (0, 0), (0, 0)), [1, 1], torch.tensor([[True, True], [True, False]]))
    History(asked=2, drawn=(0, 4), right=(0, 3))
    """
    if places is None:
        return history
    drawn, right = np.array(history.drawn), np.array(history.right)
    np.add.at(drawn, places, correct.shape[1])
    np.add.at(right, places, correct.sum(1).numpy())
    return history._replace(drawn=tuple(drawn.tolist()), right=tuple(right.tolist()))


def pool_metrics(recipe: Recipe, history: History) -> dict[str, float]:
    """``pool/epochs`` asked so far, and the share of the pool that was ``pool/seen`` and is ``pool/dropped``; none without one.

    >>> pool_metrics(Recipe(pool=4, drop_solved=0.9), History(6, (8, 8, 0, 0), (8, 7, 0, 0)))
    {'pool/epochs': 1.5, 'pool/seen': 0.5, 'pool/dropped': 0.25}
    """
    if not recipe.pool:
        return {}
    seen = float(np.mean(np.array(history.drawn) > 0))
    dropped = float(np.mean(_dropped(recipe, history)))
    return {"pool/epochs": history.asked / recipe.pool, "pool/seen": seen, "pool/dropped": dropped}


def _success(history: History) -> np.ndarray:
    """The success rates [pool], 0 where nothing was drawn yet."""
    return np.array(history.right) / np.maximum(history.drawn, 1)


def _dropped(recipe: Recipe, history: History) -> np.ndarray:
    seen = np.array(history.drawn) > 0
    return seen & (_success(history) >= recipe.drop_solved) if recipe.drop_solved is not None else np.zeros_like(seen)


def _in_play(recipe: Recipe, history: History) -> np.ndarray:
    dropped = _dropped(recipe, history)
    return np.ones_like(dropped) if dropped.all() else ~dropped


def _by_epochs(recipe: Recipe, history: History) -> tuple[list[int], int]:
    """The next places in the row of epochs that are in play, and where the row then stands."""
    in_play, place, found, order = _in_play(recipe, history), history.asked, [], None
    while len(found) < recipe.prompts_per_step:
        epoch, index = divmod(place, recipe.pool)
        if order is None or index == 0:
            order = generator(recipe.seed, "pool order", epoch).permutation(recipe.pool).tolist()
        if in_play[order[index]]:
            found.append(order[index])
        place += 1
    return found, place


def _by_priority(recipe: Recipe, history: History) -> list[int]:
    in_play = _in_play(recipe, history)
    weights = in_play * (1 - _success(history))
    weights = weights if weights.any() else in_play.astype(float)
    draws = generator(recipe.seed, "pool priority", history.asked)
    return draws.choice(recipe.pool, recipe.prompts_per_step, p=weights / weights.sum()).tolist()

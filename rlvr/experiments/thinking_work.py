"""Experiment 03's jobs: how strong the habit of writing a chain is in a base, exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlvr.experiments.base import Place
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import open_run
from rlvr.policy import LabPolicy
from rlvr.policy.exact import Reach, walk
from rlvr.rng import generator
from rlvr.tasks import TASKS
from rlvr.types import Problem

__all__ = ["chain_probability", "first_words", "habit"]


def habit(place: Place, settings: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Of each problem, "own" like those of the base's training or "n8" held out: k, and the exact probabilities that a
    completion ``thinks``, that it answers at once and right (``direct``), and that it is the right ``chain`` up to the answer.
    """
    task, policy = TASKS["pointer"], open_run(place.folder / settings["run"])[0]
    count = settings["problems"] // (4 if place.quick else 1)
    own = [task.problem(generator(0, "habit", i), **settings["difficulty"]) for i in range(count)]
    held_out = pointer_sets((8,), max(1, count // len(settings["hops"])), settings["hops"])["n8"]
    return {"own": _columns(policy, own), "n8": _columns(policy, held_out)}


def _columns(policy: LabPolicy, problems: Sequence[Problem]) -> dict[str, list[float]]:
    thinks, direct = first_words(policy, problems)
    columns = {"thinks": thinks, "direct": direct, "chain": chain_probability(policy, problems)}
    return {"k": [p.meta["k"] for p in problems]} | {name: values.tolist() for name, values in columns.items()}


def first_words(policy: LabPolicy, problems: Sequence[Problem]) -> tuple[np.ndarray, np.ndarray]:
    """P(a completion begins with a letter) and P(it answers at once, and right), [P] each; nothing is let go.

    A completion is settled once it doesn't begin with the bar, or has its answer: the tree has two levels.
    """
    tree = walk(
        policy, problems, [2] * len(problems), Reach(tolerance=0.0), lambda _, text: len(text) > 1 or text[0] != "|"
    )
    thinks = tree.expected(lambda _, text: text[0].isalpha())
    direct = tree.expected(lambda problem, text: text == f"|{problem.answer}")
    return thinks.lo, direct.lo


@torch.no_grad()
def chain_probability(policy: LabPolicy, problems: Sequence[Problem]) -> np.ndarray:
    """P(a completion begins with the right chain, the bar and the right answer), [P]: the product over that one path."""
    texts = [problem.meta["orbit"][: problem.meta["k"]] + "|" + problem.answer for problem in problems]
    ids = [policy.encode(text) for text in texts]
    width = max(map(len, ids))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.arange(width) < torch.tensor([len(row) for row in ids])[:, None]
    logps = policy.score(problems, torch.arange(len(problems)), tokens, mask).logps
    return torch.exp((logps.double() * mask).sum(1)).numpy()

"""The jobs of experiment 02: 512 samples a problem, and the tree of completions, of a model that experiment 01 trained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rlvr.experiments.base import Place
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import open_run
from rlvr.policy import LabPolicy
from rlvr.policy.exact import Bounds, Reach, Tree, walk
from rlvr.rng import generator
from rlvr.stats import maj_at_k
from rlvr.tasks import Task
from rlvr.types import Problem, Verdict

__all__ = ["SMALL_VOTE", "sample", "settled", "tree"]

SMALL_VOTE = 8


def settled(problem: Problem, text: str) -> bool:
    """Whether the verdict on a text can't change any more: it depends on what stands up to the character after the bar.

    >>> [settled(Problem("", ""), text) for text in ("ab", "ab|", "ab|c")]
    [False, False, True]
    """
    return text.partition("|")[2] != ""


def sample(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Complete every test problem many times at temperature 1; for each n what each problem's samples came to, and how many
    ``samples`` there were in all."""
    policy, task, sets = _opened(place, settings)
    found = {label: _sampled(policy, task, label, problems, settings["samples"]) for label, problems in sets.items()}
    return found | {"samples": settings["samples"] * sum(map(len, sets.values()))}


def _opened(place: Place, settings: Mapping[str, Any]) -> tuple[LabPolicy, Task, dict[str, list[Problem]]]:
    run = place.root / ("rl_vs_sft" + "-quick" * place.quick) / f"{settings['arm']}-s{settings['seed']}"
    policy, recipe = open_run(run)
    return policy, recipe.the_task, pointer_sets(settings["sizes"], settings["per_hop"])


def _sampled(policy: LabPolicy, task: Task, label: str, problems: Sequence[Problem], samples: int) -> dict[str, Any]:
    limits = [task.limit(problem) for problem in problems]
    # The same draws for every model and seed: common random numbers.
    draws = generator(0, "passk", label).random((len(problems) * samples, max(limits)))
    drawn = policy.sample(problems, samples, draws, limits)
    ids, lengths = drawn.tokens.tolist(), drawn.mask.sum(1).tolist()
    columns, kinds = [], Counter()
    for p, problem in enumerate(problems):
        texts = Counter(tuple(ids[row][: lengths[row]]) for row in range(p * samples, (p + 1) * samples))
        judged = [(task.verify(problem, policy.decode(text)), count) for text, count in texts.items()]
        columns.append(_tallied(problem, judged))
        for verdict, count in judged:
            kinds[verdict.kind] += count
    table = {key: [column[key] for column in columns] for key in columns[0]}
    entropy = float(drawn.entropies.double().sum() / sum(lengths))
    return {"samples": samples, "entropy": entropy, "kinds": dict(kinds), **table}


def _tallied(problem: Problem, judged: Sequence[tuple[Verdict, int]]) -> dict[str, float]:
    """Right samples, distinct answers, and how often a vote of all samples or of a few is right."""
    votes = Counter()
    for verdict, count in judged:
        votes[verdict.answer] += count
    every = [answer for answer, count in votes.items() for _ in range(count)]
    silent = votes.pop(None, 0)
    most = max(votes.values(), default=0)
    tied = sum(count == most for count in votes.values())
    return {
        "correct": sum(count for verdict, count in judged if verdict.correct),
        "distinct": len(votes),
        "silent": silent,
        "majority": (votes[problem.answer] == most) / tied if votes else 0.0,
        "small_vote": maj_at_k(every, problem.answer, SMALL_VOTE),
    }


def tree(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Walk the tree of completions of every test problem; for each n bounds on what a sample comes to.

    ``right`` bounds P(correct); ``sound`` is P(correct with the true chain), known exactly since only one text begins so;
    ``mode`` bounds whether the most likely answer is right, which is what a vote of ever more samples comes to.
    """
    policy, task, sets = _opened(place, settings)
    reach = Reach(settings["tolerance"], settings["width"])
    return {label: _bounded(policy, task, problems, reach) for label, problems in sets.items()}


def _bounded(policy: LabPolicy, task: Task, problems: Sequence[Problem], reach: Reach) -> dict[str, Any]:
    found = walk(policy, problems, [task.limit(problem) for problem in problems], reach, settled)
    right = found.expected(lambda problem, text: task.verify(problem, text).correct)
    sound = _path(policy, problems, [task.gold(problem)[:-1] for problem in problems])
    return {
        "right": _plain(right),
        "sound": _plain(Bounds(sound, sound)),
        "mode": _plain(_mode(found, task)),
        "rest": found.rest.tolist(),
        "nodes": int(found.nodes.sum()),
    }


@torch.no_grad()
def _path(policy: LabPolicy, problems: Sequence[Problem], texts: Sequence[str]) -> np.ndarray:
    """[P] probability that a completion begins with a given text."""
    ids = [policy.encode(text) for text in texts]
    width = max(map(len, ids))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=policy.device)
    mask = torch.tensor([[place < len(row) for place in range(width)] for row in ids], device=policy.device)
    scores = policy.score(problems, torch.arange(len(ids), device=policy.device), tokens, mask)
    return scores.logps.double().sum(1).exp().cpu().numpy()


def _plain(bounds: Bounds) -> dict[str, list[float]]:
    """As JSON; a probability that rounding pushed past 1 is 1."""
    return {side: np.clip(values, 0.0, 1.0).tolist() for side, values in bounds._asdict().items()}


def _mode(found: Tree, task: Task) -> Bounds:
    """[P] whether the right answer is the most likely one: surely (``lo``), or for all that is known (``hi``)."""
    shares = found.shares(lambda problem, text: task.verify(problem, text).answer)
    sides = []
    for problem, share, rest in zip(found.problems, shares, found.rest, strict=True):
        mine = share.pop(problem.answer, 0.0)
        rival = max((mass for answer, mass in share.items() if answer is not None), default=0.0)
        sides.append((mine > rival + rest, mine + rest >= rival))
    return Bounds(*np.array(sides, dtype=float).T)

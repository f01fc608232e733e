"""What a step is logged as; names are the field's own.

``accuracy`` and the group fractions read verdicts, ``reward`` and ``frac_reward_zero_std`` read rewards: where they part,
the reward is being gamed.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from rlvr.algo.moments import centre, deviation, scorable
from rlvr.lab.rollout import Rollouts
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["kept_metrics", "mean_traits", "spend", "step_metrics", "trait_metrics"]


def step_metrics(rollouts: Rollouts) -> dict[str, float | None]:
    """Metrics of one batch of sampled completions; lengths are in tokens with EOS, entropy in nats a token.

    ``completions/mean_length_right`` is ``None`` when nothing was right. Groups with a missing reward are judged by what
    is left; ``rewards/unscored`` counts the missing ones. ``reward_std/group`` is the mean over groups of the sample standard
    deviation within each (0 where there is one reward), ``reward_std/batch`` that of all rewards at once.
    """
    correct, rewards, mask = rollouts.correct, rollouts.rewards, rollouts.samples.mask.cpu()
    share = correct.double().mean(1)
    lengths, right = mask.sum(1).double(), correct.flatten()
    spread = rewards.nan_to_num(nan=-torch.inf).amax(1) - rewards.nan_to_num(nan=torch.inf).amin(1)
    metrics = {
        "reward": _mean(rewards[~rewards.isnan()]),
        "reward_std/group": _std(rewards, (-1,)),
        "reward_std/batch": _std(rewards, (-2, -1)),
        "accuracy": float(correct.double().mean()),
        "groups/all_right": float((share == 1).double().mean()),
        "groups/all_wrong": float((share == 0).double().mean()),
        "groups/mixed": float(((share > 0) & (share < 1)).double().mean()),
        "frac_reward_zero_std": float((spread <= 0).double().mean()),
        "rewards/unscored": float(rewards.isnan().sum()),
        "entropy": _mean(rollouts.samples.entropies.cpu()[mask]),
        "completions/mean_length": float(lengths.mean()),
        "completions/mean_length_right": _mean(lengths[right]),
        "completions/mean_length_wrong": _mean(lengths[~right]),
        "completions/clipped_ratio": float((~rollouts.samples.finished).double().mean()),
    }
    for name, paid in rollouts.rewards_by_function.items():
        metrics[f"rewards/{name}/mean"] = _mean(paid[~paid.isnan()])
    return metrics


def mean_traits(task: Task, counted: Iterable[tuple[Problem, str, int]]) -> dict[str, float]:
    """The mean of each of the task's traits over texts that come with their problem and how often they were written; a task
    without ``traits`` has none.

    >>> from rlvr.tasks import Pointer
    >>> problem = Problem("ab,ba,?a1:", "b", {"k": 1, "orbit": "bababa"})
    >>> mean_traits(Pointer(), [(problem, "|b$", 3), (problem, "b|b$", 1)])["traits/thinks"]
    0.25
    """
    totals: dict[str, float] = defaultdict(float)
    texts = 0
    for problem, text, count in counted if hasattr(task, "traits") else ():
        texts += count
        for name, value in task.traits(problem, text).items():
            totals[f"traits/{name}"] += count * value
    return {name: total / texts for name, total in totals.items()}


def trait_metrics(task: Task, rollouts: Rollouts) -> dict[str, float]:
    """The mean of each of the task's traits over a batch; equal texts of a problem are read once."""
    texts = Counter((row // rollouts.group_size, text) for row, text in enumerate(rollouts.texts))
    return mean_traits(task, ((rollouts.problems[p], text, count) for (p, text), count in texts.items()))


def kept_metrics(batch: Rollouts | None, rounds: int) -> dict[str, float | None]:
    """What dynamic sampling did: rounds drawn, prompts kept, and the accuracy of what is learned from beside that of all."""
    kept = 0 if batch is None else len(batch.problems)
    accuracy = None if batch is None else float(batch.correct.double().mean())
    return {"sampling/rounds": float(rounds), "sampling/prompts_kept": float(kept), "accuracy/kept": accuracy}


def spend(budget: Mapping[str, float], rollouts: Rollouts, sampled: bool, updates: float, seconds: float) -> dict:
    """The budget after one more step: completions and tokens drawn, demonstrations read, updates, seconds of training."""
    drawn = len(rollouts.texts)
    return {
        "samples": budget["samples"] + drawn * sampled,
        "tokens": budget["tokens"] + int(rollouts.samples.mask.sum()) * sampled,
        "demonstrations": budget["demonstrations"] + drawn * (not sampled),
        "updates": budget["updates"] + int(updates),
        "seconds": budget["seconds"] + seconds,
    }


def _std(rewards: Tensor, axes: tuple[int, ...]) -> float:
    return float(deviation(centre(rewards, scorable(rewards), axes), axes).double().mean())


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if values.numel() else None

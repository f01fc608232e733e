"""From problems to paid completions: sample (or demonstrate), verify, reward."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.policy import Decoding, Policy
from rlvr.rewards import Completion, GroupReward, Reward, pay_all
from rlvr.tasks import Task
from rlvr.types import Problem, Samples, Verdict

__all__ = ["Rollouts", "collect", "demonstrate", "join", "take"]


@dataclass(frozen=True)
class Rollouts:
    """Completions of one step with what is true of them (verdicts) and what they are paid (rewards).

    Rows are problem-major. ``rewards`` [P G] is the weighted sum over functions; NaN where a function could
    not score.
    """

    problems: Sequence[Problem]
    samples: Samples
    texts: Sequence[str]
    verdicts: Sequence[Verdict]
    rewards: Float[Tensor, "P G"]
    rewards_by_function: Mapping[str, Float[Tensor, "P G"]]

    @property
    def group_size(self) -> int:
        """Completions a problem."""
        return self.rewards.shape[1]

    @property
    def correct(self) -> Bool[Tensor, "P G"]:
        """The verdicts as a table."""
        return torch.tensor([verdict.correct for verdict in self.verdicts]).view(self.rewards.shape)

    @property
    def index(self) -> Tensor:
        """The problem of each row."""
        return torch.arange(len(self.texts)) // self.group_size


def collect(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    rewards: Mapping[str, tuple[float, Reward | GroupReward]],
    uniforms: np.ndarray,
    decoding: Decoding,
    generator: np.random.Generator,
) -> Rollouts:
    """Sample ``len(uniforms) / len(problems)`` completions a problem, verify and pay them.

    ``rewards`` maps a name to its weight and function. A missing value of any function makes the row's
    reward missing.
    """
    group = len(uniforms) // len(problems)
    samples = policy.sample(problems, group, uniforms, [task.limit(p) for p in problems], decoding)
    texts = _texts(policy, samples)
    verdicts = [task.verify(problems[row // group], text) for row, text in enumerate(texts)]
    columns = (texts, verdicts, samples.finished.tolist(), samples.mask.sum(1).tolist())
    rows = [Completion(problems[row // group], *each) for row, each in enumerate(zip(*columns, strict=True))]
    groups = [rows[start : start + group] for start in range(0, len(rows), group)]
    paid = {
        name: torch.tensor(pay_all(name, reward, groups, generator), dtype=torch.float64)
        for name, (_, reward) in rewards.items()
    }
    total = sum(weight * paid[name] for name, (weight, _) in rewards.items())
    return Rollouts(problems, samples, texts, verdicts, total, paid)


def demonstrate(policy: Policy, task: Task, problems: Sequence[Problem]) -> Rollouts:
    """The task's gold completions in the form of rollouts, one a problem; they have no sampler's
    log-probabilities."""
    texts = [task.gold(problem) for problem in problems]
    ids = [policy.encode(text) for text in texts]
    width = max(map(len, ids))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    mask = torch.arange(width) < torch.tensor([len(row) for row in ids])[:, None]
    zeros, finished = torch.zeros(tokens.shape), torch.ones(len(ids), dtype=torch.bool)
    verdicts = [Verdict(True, "correct", problem.answer) for problem in problems]
    rewards = torch.ones(len(problems), 1, dtype=torch.float64)
    return Rollouts(problems, Samples(tokens, mask, zeros, zeros, finished), texts, verdicts, rewards, {})


def take(rollouts: Rollouts, problems: Tensor) -> Rollouts:
    """The groups of some problems, by their places."""
    places, group = problems.tolist(), rollouts.group_size
    rows = [p * group + g for p in places for g in range(group)]
    index = torch.tensor(rows, dtype=torch.long, device=rollouts.samples.tokens.device)
    return Rollouts(
        [rollouts.problems[p] for p in places],
        Samples(*(part[index] for part in rollouts.samples)),
        [rollouts.texts[row] for row in rows],
        [rollouts.verdicts[row] for row in rows],
        rollouts.rewards[problems],
        {name: paid[problems] for name, paid in rollouts.rewards_by_function.items()},
    )


def join(rounds: Sequence[Rollouts]) -> Rollouts:
    """Rollouts of equal group size one after another, padded to the longest."""
    if len(rounds) == 1:
        return rounds[0]
    width = max(each.samples.tokens.shape[1] for each in rounds)

    def padded(name: str) -> Tensor:
        parts = [getattr(each.samples, name) for each in rounds]
        return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])

    return Rollouts(
        [problem for each in rounds for problem in each.problems],
        Samples(*map(padded, Samples._fields[:-1]), torch.cat([each.samples.finished for each in rounds])),
        [text for each in rounds for text in each.texts],
        [verdict for each in rounds for verdict in each.verdicts],
        torch.cat([each.rewards for each in rounds]),
        {
            name: torch.cat([each.rewards_by_function[name] for each in rounds])
            for name in rounds[0].rewards_by_function
        },
    )


def _texts(policy: Policy, samples: Samples) -> list[str]:
    lengths = samples.mask.sum(1).tolist()
    return [policy.decode(ids[:length]) for ids, length in zip(samples.tokens.tolist(), lengths, strict=True)]

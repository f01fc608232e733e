"""A GRPO step without the library's shortcuts: what `make bench` measures the fast step against.

All completions are a batch of padded texts. Each token is drawn from a full forward pass over everything written so far, and
each row is scored by a forward pass of its own place in the batch: no cache, no shared prompt, no shared prefix, no row left
out. Problems, draws, verdicts, rewards and the update rule are those of the fast step, so both end with the same completions
and the same loss.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlvr.algo import Algorithm
from rlvr.policy import LabPolicy
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["PlainStep", "plain_step"]


class PlainStep(NamedTuple):
    """The completions of a step and its loss."""

    texts: list[str]
    loss: float


class Texts(NamedTuple):
    """Padded texts [B S+T], how long each prompt and each whole text is [B], and where each begins [B]."""

    tokens: Tensor
    starts: Tensor
    lengths: Tensor
    offsets: Tensor

    def completions(self, width: int) -> tuple[Tensor, Tensor]:
        """The places [B T] of the completions' tokens in the texts, and which of them are there."""
        places = self.starts[:, None] + torch.arange(width)
        return places.clamp(max=self.tokens.shape[1] - 1), places < self.lengths[:, None]


def plain_step(
    policy: LabPolicy,
    optimizer: torch.optim.Optimizer,
    task: Task,
    problems: Sequence[Problem],
    uniforms: np.ndarray,
    algorithm: Algorithm,
    max_grad_norm: float = 1.0,
) -> PlainStep:
    """Sample, verify, score and update once, at temperature 1 and with reward 1 for a right completion."""
    group = len(uniforms) // len(problems)
    asked = [problem for problem in problems for _ in range(group)]
    texts = sample(policy, task, asked, uniforms)
    places, mask = texts.completions(uniforms.shape[1])
    written = texts.tokens.gather(1, places)
    answers = [policy.decode(row[keep].tolist()) for row, keep in zip(written, mask, strict=True)]
    correct = torch.tensor([task.verify(*pair).correct for pair in zip(asked, answers, strict=True)])
    rewards, table = correct.double().view(-1, group), mask.view(len(problems), group, -1)
    keep = algorithm.select(rewards, correct.view_as(rewards))
    weights = algorithm.aggregate(table & keep[..., None]).flatten(0, 1)
    advantages = algorithm.advantage(rewards).float().view(-1, 1).expand_as(mask)
    optimizer.zero_grad()
    logps = torch.where(mask, score(policy, texts, places), 0.0)
    loss = (weights * algorithm.loss(logps, logps.detach(), advantages)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.model.parameters(), max_grad_norm)
    optimizer.step()
    return PlainStep(answers, float(loss.detach()))


@torch.no_grad()
def sample(policy: LabPolicy, task: Task, asked: Sequence[Problem], uniforms: np.ndarray) -> Texts:
    """One completion for each row, every token from a pass over the whole texts of the rows that still go on."""
    prompts, draws = [policy.encode(problem.prompt) for problem in asked], torch.from_numpy(uniforms)
    starts, limits = torch.tensor([*map(len, prompts)]), torch.tensor([*map(task.limit, asked)])
    offsets = torch.tensor([problem.meta.get("offset", 0) for problem in asked])
    width = int(starts.max()) + uniforms.shape[1]
    tokens = torch.tensor([ids + [0] * (width - len(ids)) for ids in prompts])
    lengths, rows = starts.clone(), torch.arange(len(asked))
    for step in range(uniforms.shape[1]):
        logits = policy.model(tokens[rows, : int(lengths[rows].max())], offsets[rows])
        log_probs = logits[torch.arange(len(rows)), lengths[rows] - 1].log_softmax(-1)
        cdf = log_probs.double().exp().cumsum(-1)
        token = (cdf / cdf[:, -1:] <= draws[rows, step, None]).sum(-1)
        tokens[rows, lengths[rows]] = token
        lengths[rows] += 1
        rows = rows[(token != policy.tokenizer.eos_ids[0]) & (limits[rows] > step + 1)]
        if not len(rows):
            break
    return Texts(tokens, starts, lengths, offsets)


def score(policy: LabPolicy, texts: Texts, places: Tensor) -> Tensor:
    """Log-probabilities [B T] of the tokens at these places: a full pass over every row, with gradient."""
    width = int(texts.lengths.max())
    log_probs = policy.model(texts.tokens[:, :width], texts.offsets).log_softmax(-1)
    before = (places - 1).clamp(max=width - 1)
    rows = torch.arange(len(places))[:, None]
    return log_probs[rows, before, texts.tokens.gather(1, places)]

"""One optimizer step: where the choices of an algorithm meet in the library's only reduction.

    L = sum over tokens of  w · loss,   w = aggregate(mask)

The mask is that of the rows that were kept. Weights are computed once for the rows of an optimizer step and sliced for
micro-batches, so splitting can't change L. Rows whose gradient is exactly zero are not scored; they keep their place in the
weights' denominators.
"""

from collections import defaultdict
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from rlvr.algo import Algorithm, Focused, Tokens, can_skip, explained_variance, token_losses
from rlvr.lab.brief import Brief, Supplies, asked, brief, minibatches
from rlvr.lab.rollout import Rollouts
from rlvr.policy import Decoding, Policy

__all__ = ["Signal", "StepResult", "signal", "update"]

NOTHING = Supplies()


class Signal(NamedTuple):
    """What a batch asks of the policy before any gradient: advantages [P G], the mean over a row's tokens, and token weights
    [P G T]."""

    advantages: Float[Tensor, "P G"]
    weights: Float[Tensor, "P G T"]


class StepResult(NamedTuple):
    """Metrics of the update, ``pull`` [B T] = -dL/dlogp of the first pass (how each token was pushed), and the signal."""

    metrics: dict[str, float]
    pull: Float[Tensor, "B T"]
    signal: Signal


def signal(rollouts: Rollouts, algorithm: Algorithm) -> Signal:
    """The signal of a batch to an algorithm that needs nothing but samples and rewards."""
    return _signal(brief(None, rollouts, algorithm, Decoding(), NOTHING), rollouts, algorithm)


def _signal(settled: Brief, rollouts: Rollouts, algorithm: Algorithm) -> Signal:
    shape = (*rollouts.rewards.shape, -1)
    lengths = settled.mask.sum(1).clamp(min=1)
    rows = (settled.advantages.sum(1) / lengths).view(shape[:2])
    return Signal(rows, algorithm.aggregate(settled.mask.view(shape)))


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rollouts: Rollouts,
    algorithm: Algorithm,
    decoding: Decoding,
    max_grad_norm: float,
    micro_rows: int | None = None,
    supplies: Supplies = NOTHING,
) -> StepResult:
    """Learn from one batch: ``num_iterations`` passes of ``minibatches`` optimizer steps, each over whole groups.

    ``micro_rows`` bounds the rows scored at once and changes memory only. Returned metrics are means over the optimizer steps:
    ``loss``, ``grad_norm`` (before clipping), ``rows_scored``, ``sampling/sampling_logp_difference/max`` of the first, and with
    a critic ``value_loss``, ``value_grad_norm`` and ``explained_variance`` of the batch.
    """
    settled = brief(policy, rollouts, algorithm, decoding, supplies, micro_rows)
    step = _Step(policy, rollouts, algorithm, decoding, settled, supplies, micro_rows or len(rollouts.texts))
    totals: dict[str, float] = defaultdict(float)
    pull, gap = torch.zeros(rollouts.samples.tokens.shape), None
    for iteration in range(algorithm.num_iterations):
        for problems in minibatches(len(rollouts.problems), algorithm.minibatches):
            scored = _accumulate(step, problems, optimizer)
            totals["grad_norm"] += _descend(policy, optimizer, max_grad_norm, not supplies.critic_only)
            totals["loss"] += scored.loss
            totals["rows_scored"] += len(scored.rows)
            totals["updates"] += 1
            if supplies.critic is not None:
                totals["value_loss"] += scored.value_loss
                totals["value_grad_norm"] += _descend(supplies.critic, supplies.critic_optimizer, max_grad_norm)
            if iteration == 0:
                pull[scored.rows] = scored.pull
            gap = scored.gap if gap is None else gap
    updates = totals.pop("updates")
    metrics = {name: total / updates for name, total in totals.items()} | {"updates": updates, **settled.measured}
    if supplies.critic is not None:
        metrics["explained_variance"] = explained_variance(settled.values, settled.returns, settled.mask)
    metrics["sampling/sampling_logp_difference/max"] = gap if algorithm.source == "policy" else 0.0
    return StepResult(metrics, pull, _signal(settled, rollouts, algorithm))


class _Step(NamedTuple):
    policy: Policy
    rollouts: Rollouts
    algorithm: Algorithm
    decoding: Decoding
    brief: Brief
    supplies: Supplies
    micro_rows: int


class _Scored(NamedTuple):
    loss: float
    value_loss: float
    rows: Tensor
    pull: Tensor
    gap: float


def _descend(owner: Policy, optimizer: torch.optim.Optimizer, max_grad_norm: float, move: bool = True) -> float:
    norm = torch.nn.utils.clip_grad_norm_(owner.model.parameters(), max_grad_norm)
    if move:
        optimizer.step()
    return float(norm)


def _accumulate(step: _Step, problems: slice, optimizer: torch.optim.Optimizer) -> _Scored:
    """The gradient of one optimizer step, micro-batch by micro-batch, into the parameters' ``grad``."""
    settled, supplies, group = step.brief, step.supplies, step.rollouts.group_size
    rows = torch.arange(problems.start * group, problems.stop * group)
    mask, advantages = settled.mask[rows], settled.advantages[rows]
    weights = step.algorithm.aggregate(mask.view(-1, group, mask.shape[1])).flatten(0, 1)
    focused = step.algorithm.focus(
        settled.old_logps[rows], advantages.to(settled.old_logps.dtype), mask, _draws(step, rows)
    )
    moved = (weights != 0).any(1)
    if can_skip(step.algorithm):
        moved &= (advantages != 0).any(1)
    active = moved.nonzero()[:, 0]
    optimizer.zero_grad(set_to_none=True)
    if supplies.critic_optimizer is not None:
        supplies.critic_optimizer.zero_grad(set_to_none=True)
    loss, value_loss, gap, pulls = 0.0, 0.0, 0.0, [torch.zeros(0, weights.shape[1])]
    for part in active.split(step.micro_rows) if len(active) else ():
        batch = _Part(rows[part], weights[part], Focused(*(each[part] for each in focused)))
        value, pull, off = _backward(step, batch)
        loss, gap = loss + value, max(gap, off)
        pulls.append(pull)
        if supplies.critic is not None:
            value_loss += _backward_values(step, batch)
    # What nothing flowed into has gradient zero, not none: the optimizer's momentum must go on.
    for owner in (step.policy, supplies.critic):
        for parameter in owner.model.parameters() if owner is not None else ():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    return _Scored(loss, value_loss, rows[active], torch.cat(pulls), gap)


def _draws(step: _Step, rows: Tensor) -> Tensor:
    like = step.brief.old_logps
    if step.supplies.draws is None:
        return torch.zeros(len(rows), like.shape[1], dtype=like.dtype)
    return torch.from_numpy(step.supplies.draws)[rows, : like.shape[1]]


class _Part(NamedTuple):
    rows: Tensor
    weights: Tensor
    focused: Focused


def _backward(step: _Step, part: _Part) -> tuple[float, Tensor, float]:
    settled, asks = step.brief, asked(step.policy, step.rollouts, part.rows)
    scores = step.policy.score(*asks, step.decoding)
    logps, mask = scores.logps, asks[-1]
    logps.retain_grad()

    def rows_of(table: Tensor | None) -> Tensor | None:
        return None if table is None else table[part.rows.to(table.device)].to(logps)

    losses = token_losses(
        step.algorithm,
        Tokens(
            logps,
            rows_of(settled.old_logps),
            rows_of(settled.advantages),
            settled.mask[part.rows].to(logps.device),
            rows_of(settled.ref_logps),
            scores.entropies,
            Focused(*(each.to(logps) for each in part.focused)),
            rows_of(settled.mismatch),
            settled.kl_coef,
            settled.entropy_coef,
        ),
    )
    # The only reduction in the library.
    total = (part.weights.to(logps) * losses).sum()
    total.backward()
    gap = torch.where(mask, logps.detach() - rows_of(step.rollouts.samples.logps), 0.0)
    return float(total.detach()), -logps.grad.cpu(), float(gap.abs().max())


def _backward_values(step: _Step, part: _Part) -> float:
    settled, critic = step.brief, step.supplies.critic
    values = critic.values(*asked(critic, step.rollouts, part.rows))
    old, returns = (table[part.rows].to(values) for table in (settled.values, settled.returns))
    losses = step.algorithm.critic.coef * step.algorithm.critic(values, old, returns)
    total = (part.weights.to(values) * losses).sum()
    total.backward()
    return float(total.detach())

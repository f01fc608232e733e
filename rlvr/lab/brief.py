"""What one batch asks of the policy, settled before anything moves: masks, advantages, references, weights.

Everything here is a constant of the batch: scoring again in smaller parts, or several times, can't change it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo import Algorithm, assign, needs
from rlvr.lab.rollout import Rollouts
from rlvr.policy import Decoding, Policy, ValueFunction

__all__ = ["Brief", "Supplies", "brief"]


class Supplies(NamedTuple):
    """What an algorithm may need beside samples and rewards (`rlvr.algo.needs`): who supplies it is the trainer's business.

    ``baseline`` [P] is for pieces that name one, ``draws`` [B T] uniform numbers for a focus; the coefficients are those in
    force. With ``critic_only`` the policy stays as it is.
    """

    reference: Policy | None = None
    critic: ValueFunction | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    baseline: Float[Tensor, " P"] | None = None
    draws: np.ndarray | None = None
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    critic_only: bool = False


class Brief(NamedTuple):
    """Constants of a batch, [B T] unless said otherwise; what the algorithm doesn't use is None.

    ``mask`` holds the tokens of kept rows. ``old_logps`` are of the policy that the first update starts from.
    """

    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logps: Float[Tensor, "B T"]
    ref_logps: Float[Tensor, "B T"] | None
    mismatch: Float[Tensor, "B T"] | None
    values: Float[Tensor, "B T"] | None
    returns: Float[Tensor, "B T"] | None
    measured: Mapping[str, float]


@torch.no_grad()
def brief(policy: Policy, rollouts: Rollouts, algorithm: Algorithm, decoding: Decoding, supplies: Supplies) -> Brief:
    """Settle a batch: which tokens count, what each is worth, and what the loss compares the policy with."""
    _check(algorithm, supplies)
    samples, shape = rollouts.samples, (*rollouts.rewards.shape, -1)
    ended = samples.mask.cpu() & (samples.finished.cpu() | (not algorithm.mask_truncated))[:, None]
    keep = algorithm.select(rollouts.rewards, rollouts.correct)
    mask = ended & keep.flatten()[:, None]
    sampled = samples.logps.cpu()
    old, mismatch = sampled, None
    if algorithm.mismatch is not None:
        old = _score(policy, rollouts, decoding)
        mismatch = algorithm.mismatch(old, sampled, mask)
    measured, reference, charge = {}, None, None
    if algorithm.kl is not None:
        reference = _score(supplies.reference, rollouts, decoding)
        charge = torch.where(samples.mask.cpu(), algorithm.kl.charge(sampled, reference), 0.0)
        measured["kl"] = float(charge.sum() / samples.mask.sum())
        measured["kl/sequence"] = float(charge.sum(1).mean())
    values = None
    if supplies.critic is not None:
        values = supplies.critic.values(*_rows(policy, rollouts)).cpu()
    paid = algorithm.kl is not None and algorithm.kl.place != "loss"
    credit = assign(
        algorithm.advantage,
        rollouts.rewards,
        mask.view(shape),
        charge=(supplies.kl_coef * charge).to(rollouts.rewards.dtype).view(shape) if paid else None,
        place=algorithm.kl.place if paid else "reward",
        baseline=supplies.baseline,
        values=None if values is None else values.to(rollouts.rewards.dtype).view(shape),
    )
    returns = None if credit.returns is None else credit.returns.flatten(0, 1)
    return Brief(mask, credit.advantages.flatten(0, 1), old, reference, mismatch, values, returns, measured)


def _check(algorithm: Algorithm, supplies: Supplies) -> None:
    """A setting whose supply is missing is refused, never ignored."""
    there = {"reference": supplies.reference, "values": supplies.critic, "draws": supplies.draws}
    for name, setting in needs(algorithm).items():
        supplied = supplies.baseline if name.endswith("baseline") else there.get(name, True)
        if supplied is None:
            raise ValueError(f"{setting} needs {name} and there is none; accepted: supplies with {name}")


def _rows(policy: Policy, rollouts: Rollouts) -> tuple:
    device = next(policy.model.parameters()).device
    samples = rollouts.samples
    return rollouts.problems, rollouts.index.to(device), samples.tokens.to(device), samples.mask.to(device)


def _score(policy: Policy, rollouts: Rollouts, decoding: Decoding) -> Tensor:
    return policy.score(*_rows(policy, rollouts), decoding).logps.cpu()

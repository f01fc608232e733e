"""From a batch's rewards to each token's advantage, and how far the trained policy is from the one that sampled.

Per-token bookkeeping that belongs to no loss: nothing here carries a gradient.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.advantages import Advantage, BaselineAdvantage, TokenAdvantage
from rlvr.algo.gae import gae
from rlvr.algo.moments import scorable

__all__ = ["Credit", "RatioReport", "assign", "ratio_report", "terminal_rewards"]


def terminal_rewards(rewards: Float[Tensor, " B"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Per-token rewards with each row's reward on its last token inside the mask, 0 elsewhere.

    A row with an empty mask has no token to be paid and gets zeros; a missing reward (NaN) stays NaN on its
    token.

    >>> terminal_rewards(torch.tensor([0.5]), torch.tensor([[True, True, True, False]]))
    tensor([[0.0000, 0.0000, 0.5000, 0.0000]])
    """
    remaining = mask.flip(-1).cumsum(-1).flip(-1)
    return torch.where(mask & (remaining == 1), rewards[:, None], 0.0)


class Credit(NamedTuple):
    """Advantages by token, 0 outside the mask, and what a critic should have expected, if a critic was asked."""

    advantages: Float[Tensor, "P G T"]
    returns: Float[Tensor, "P G T"] | None


def assign(
    advantage: Advantage | BaselineAdvantage | TokenAdvantage,
    rewards: Float[Tensor, "P G"],
    mask: Bool[Tensor, "P G T"],
    *,
    charge: Float[Tensor, "P G T"] | None = None,
    sampled: Bool[Tensor, "P G T"] | None = None,
    place: Literal["reward", "advantage"] = "reward",
    baseline: Float[Tensor, " P"] | None = None,
    values: Float[Tensor, "P G T"] | None = None,
) -> Credit:
    """Each token's advantage, whatever kind of estimator makes it.

    ``mask`` holds the tokens of the rows that were kept. ``charge`` is what tokens cost (β·k of a KL penalty): in
    the ``"reward"`` it is taken off before any baseline, summed over the completion for estimators of whole rows and
    token by token for the others; in the ``"advantage"`` each token pays its own and all later charges, after the
    baseline. ``sampled`` holds all tokens that were sampled (default: ``mask``), so that a row that wasn't kept enters
    its siblings' baseline with its reward and its charge, not with its reward alone. ``baseline`` and ``values`` are
    for the estimators that need them. Rewards are of the whole batch, as some estimators compare with all of it.

    >>> from rlvr.algo import Center
    >>> mask = torch.tensor([[[True, True], [True, False]]])
    >>> assign(Center(), torch.tensor([[1.0, 0.0]]), mask).advantages
    tensor([[[ 0.5000,  0.5000],
             [-0.5000,  0.0000]]])
    """
    costs = torch.zeros(mask.shape, dtype=rewards.dtype)
    if charge is not None:
        costs = torch.where(mask if sampled is None else sampled, charge.detach(), 0.0)
    before = costs if place == "reward" else torch.zeros_like(costs)
    flat = mask.flatten(0, 1)
    returns = None
    if isinstance(advantage, TokenAdvantage):
        if advantage.needs_values and values is None:
            raise ValueError(f"advantage is {advantage!r} and values is None; accepted: a critic's values [P G T]")
        paid = terminal_rewards(rewards.flatten(), flat) - before.flatten(0, 1)
        expected = torch.zeros_like(paid) if values is None else values.flatten(0, 1)
        credit = advantage(paid, expected, flat)
        advantages, returns = credit.advantages.view(mask.shape), credit.returns.view(mask.shape)
    else:
        paid = rewards - before.sum(-1)
        if isinstance(advantage, BaselineAdvantage):
            if baseline is None:
                wanted = f"the {advantage.needs_baseline} baseline [P]"
                raise ValueError(f"advantage is {advantage!r} and baseline is None; accepted: {wanted}")
            rows = advantage(paid, baseline)
        else:
            rows = advantage(paid)
        advantages = rows[..., None].expand(mask.shape)
    if charge is not None and place == "advantage":
        later = gae(costs.flatten(0, 1), torch.zeros_like(costs).flatten(0, 1), flat).advantages
        advantages = advantages - later.view(mask.shape)
    return Credit(torch.where(mask & scorable(rewards)[..., None], advantages, 0.0), returns)


class RatioReport(NamedTuple):
    """How the trained policy's probabilities compare with the sampler's, over the tokens inside a mask.

    ``token_ratios`` is 1 at masked slots; ``sequence_ratios`` is the product over a row and
    ``geometric_means`` its |y|-th root, both 1 for an empty row. The differences are of log-probabilities
    (trained minus sampler) in nats: the largest absolute, the mean absolute and the signed mean over tokens,
    all 0 if there is no token.
    """

    token_ratios: Float[Tensor, "B T"]
    sequence_ratios: Float[Tensor, " B"]
    geometric_means: Float[Tensor, " B"]
    max_abs_difference: float
    mean_abs_difference: float
    mean_difference: float


def ratio_report(
    logps: Float[Tensor, "B T"], sampler_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> RatioReport:
    """Compares log-probabilities of the same tokens under the trained policy and under the sampler.

    On-policy every ratio is 1. A signed mean near 0 hides errors that cancel, so the largest one is reported
    as well.

    >>> logps, sampler_logps = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.1, -1.5]])
    >>> report = ratio_report(logps, sampler_logps, torch.tensor([[True, True]]))
    >>> report.token_ratios, round(report.max_abs_difference, 4), round(report.mean_difference, 4)
    (tensor([[1.1052, 0.6065]]), 0.5, -0.2)
    """
    difference = torch.where(mask, (logps - sampler_logps).detach(), 0.0)
    lengths = mask.sum(-1)
    tokens = lengths.sum().clamp(min=1)
    total = difference.sum(-1)
    return RatioReport(
        token_ratios=difference.exp(),
        sequence_ratios=total.exp(),
        geometric_means=(total / lengths.clamp(min=1)).exp(),
        max_abs_difference=float(difference.abs().max()) if difference.numel() else 0.0,
        mean_abs_difference=float(difference.abs().sum() / tokens),
        mean_difference=float(difference.sum() / tokens),
    )

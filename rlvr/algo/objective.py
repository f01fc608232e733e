"""The loss of every token as an algorithm writes it, from its slots: everything but the one reduction.

    log π, log π_old  ←  importance
    ℓ  =  loss(log π, log π_old, A) · focus · mismatch  +  leash · |log π − log π_old|  +  β k  −  α H

The training step multiplies by the weights of the aggregator and sums.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.advantages import BaselineAdvantage, TokenAdvantage
from rlvr.algo.algorithm import Algorithm
from rlvr.algo.entropy import entropy_losses
from rlvr.algo.focus import Focused
from rlvr.algo.losses import masked

__all__ = ["Tokens", "can_skip", "needs", "token_losses"]


class Tokens(NamedTuple):
    """What a loss can depend on, row by row; what an algorithm doesn't read may be None.

    ``old_logps`` are of the policy that sampled, ``ref_logps`` of the reference, both constants; ``entropies`` carry
    a gradient. ``focused`` is what the focus made of the whole step, ``mismatch`` the multiplier of that slot.
    ``kl_coef`` and ``entropy_coef`` are the coefficients in force.
    """

    logps: Float[Tensor, "B T"]
    old_logps: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    ref_logps: Float[Tensor, "B T"] | None = None
    entropies: Float[Tensor, "B T"] | None = None
    focused: Focused | None = None
    mismatch: Float[Tensor, "B T"] | None = None
    kl_coef: float = 0.0
    entropy_coef: float = 0.0


def token_losses(algorithm: Algorithm, tokens: Tokens) -> Float[Tensor, "B T"]:
    """Every token's loss, unreduced, with exactly zero gradient outside the mask, whatever stands there.

    >>> from rlvr.algo import preset
    >>> logps = torch.tensor([[-1.0, -torch.inf]])
    >>> token_losses(preset("reinforce"), Tokens(logps, logps, torch.ones(1, 2), torch.tensor([[True, False]])))
    tensor([[1., 0.]])
    """
    mask = tokens.mask
    logps, old_logps = masked(tokens.logps, tokens.old_logps, mask)
    losses = algorithm.loss(*algorithm.importance(logps, old_logps, mask), tokens.advantages)
    if tokens.focused is not None:
        losses = losses * tokens.focused.weight
    if tokens.mismatch is not None:
        losses = losses * tokens.mismatch
    if tokens.focused is not None and algorithm.focus.pulls_back:
        losses = losses + tokens.focused.leash * (logps - old_logps).abs()
    if algorithm.kl is not None and algorithm.kl.place == "loss":
        reference = _given(algorithm, "kl", "ref_logps", tokens.ref_logps)
        losses = losses + tokens.kl_coef * algorithm.kl(logps, old_logps, reference)
    if algorithm.entropy is not None:
        entropies = _given(algorithm, "entropy", "entropies", tokens.entropies)
        losses = losses + entropy_losses(entropies, tokens.entropy_coef)
    return torch.where(mask, losses, 0.0)


def _given(algorithm: Algorithm, slot: str, name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"{slot} is {vars(algorithm)[slot]!r} and tokens.{name} is None; accepted: a tensor [B T]")
    return value


def can_skip(algorithm: Algorithm) -> bool:
    """Whether a row whose advantages are all 0 has exactly zero gradient: then it needn't be scored.

    >>> from rlvr.algo import preset
    >>> can_skip(preset("dr_grpo")), can_skip(preset("grpo"))
    (True, False)
    """
    kl_in_loss = algorithm.kl is not None and algorithm.kl.place == "loss"
    learns_without = kl_in_loss or algorithm.entropy is not None or algorithm.critic is not None
    return algorithm.loss.needs_advantage and not learns_without and not algorithm.focus.pulls_back


def needs(algorithm: Algorithm) -> dict[str, str]:
    """What a trainer must supply beyond samples and rewards, by name, each with the setting that asks for it.

    A trainer that can't supply one of them refuses the algorithm instead of ignoring a setting.

    >>> from rlvr.algo import preset
    >>> needs(preset("grpo_lecture")), list(needs(preset("ppo")))
    ({}, ['reference', 'values'])
    """
    advantage = algorithm.advantage
    asked = {slot: name for slot, name in _OPTIONAL.items() if vars(algorithm)[slot] is not None}
    if isinstance(advantage, TokenAdvantage) and advantage.needs_values:
        asked["advantage"] = "values"
    if isinstance(advantage, BaselineAdvantage):
        asked["advantage"] = f"{advantage.needs_baseline} baseline"
    if algorithm.focus.needs_draws:
        asked["focus"] = "draws"
    if algorithm.mask_truncated:
        asked["mask_truncated"] = "finished"
    if algorithm.sampling_rounds > 1:
        asked["sampling_rounds"] = "sampling rounds"
    return {name: f"{slot}={vars(algorithm)[slot]!r}" for slot, name in asked.items()}


_OPTIONAL = {"kl": "reference", "entropy": "entropies", "mismatch": "trainer logps", "restart": "restart"}

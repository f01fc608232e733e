"""Credit token by token: what was still to come, with or without a critic that expects it.

Rows are padded on the right; a gap in the mask (tokens written by a tool) is stepped over: neither reward nor value
nor discount belongs to it. The last token inside the mask ends the episode, cut off or not: nothing follows it.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.advantages import TokenCredit
from rlvr.algo.checks import check_flag, check_number
from rlvr.algo.moments import scorable, whiten

__all__ = ["GAE", "RewardToGo", "gae"]


def gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    gamma: float = 1.0,
    lam: float = 1.0,
) -> TokenCredit:
    """Generalised advantage estimation: Â_t = Σ_l (γλ)^l δ_{t+l}, δ_t = r_t + γ V_{t+1} − V_t, returns Â + V.

    V after the last token is 0. λ = 1 gives the rewards still to come minus V, λ = 0 the one-step error. A row with
    a missing reward (NaN) inside the mask gets zeros. Schulman et al. 2015 (arXiv 1506.02438).

    >>> rewards, values = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.25]])
    >>> gae(rewards, values, torch.ones(1, 2).bool(), lam=0.0)
    TokenCredit(advantages=tensor([[-0.2500,  0.7500]]), returns=tensor([[0.2500, 1.0000]]))
    """
    mask = mask & scorable(torch.where(mask, rewards, 0.0)).all(-1, keepdim=True)
    rewards, values = torch.where(mask, rewards, 0.0), torch.where(mask, values.detach(), 0.0)
    advantages = torch.zeros_like(values)
    carried = next_value = values.new_zeros(len(values))
    for t in reversed(range(values.shape[1])):
        here = mask[:, t]
        error = rewards[:, t] + gamma * next_value - values[:, t]
        carried = torch.where(here, error + gamma * lam * carried, carried)
        next_value = torch.where(here, values[:, t], next_value)
        advantages[:, t] = torch.where(here, carried, 0.0)
    return TokenCredit(advantages, advantages + values)


@dataclass(frozen=True)
class GAE:
    """Advantages against a critic: Â_t = Σ_l (γλ)^l (r_{t+l} + γ V_{t+l+1} − V_{t+l}).

    ``gamma`` below 1 is a bonus on short completions. ``lam`` trades variance (1: no bias) against trust in the
    critic (0). ``value_lam`` is the λ of the returns that the critic learns, ``None`` for the same; 1 is VC-PPO's
    decoupled form (arXiv 2503.01491). ``whiten`` then makes mean 0 and std 1 over the batch's tokens, after the
    returns were taken. PPO (Schulman et al. 2017, arXiv 1707.06347); γ 1 and λ 0.95 are usual, verl's λ is 1.

    >>> credit = GAE(whiten=False)(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 0.5]]), torch.ones(1, 2).bool())
    >>> credit.advantages
    tensor([[0.4750, 0.5000]])
    """

    gamma: float = 1.0
    lam: float = 0.95
    value_lam: float | None = None
    whiten: bool = True
    needs_group: ClassVar[bool] = False
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("gamma", "lam"):
            check_number(f"GAE.{name}", vars(self)[name], at_least=0, at_most=1)
        if self.value_lam is not None:
            check_number("GAE.value_lam", self.value_lam, at_least=0, at_most=1)
        check_flag("GAE.whiten", self.whiten)

    @property
    def formula(self) -> str:
        decay = f"{self.gamma * self.lam:g}"
        discount = "" if self.gamma == 1 else f"{self.gamma:g} "
        errors = f"Σ_l {decay}^l (r_{{t+l}} + {discount}V_{{t+l+1}} − V_{{t+l}})"
        return f"A_t = {errors}{', whitened over the batch' if self.whiten else ''}"

    def __call__(
        self, rewards: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> TokenCredit:
        credit = gae(rewards, values, mask, self.gamma, self.lam)
        returns = credit.returns
        if self.value_lam is not None:
            returns = gae(rewards, values, mask, self.gamma, self.value_lam).returns
        return TokenCredit(_whitened(credit.advantages, rewards, mask, self.whiten), returns)


@dataclass(frozen=True)
class RewardToGo:
    """The rewards still to come, without a critic: A_t = Σ_l γ^l r_{t+l}.

    Without ``whiten`` unbiased, with a lower variance than the whole reward at every token, as rewards a token
    can't change are left out. ``whiten`` makes mean 0 and std 1 over all tokens of the batch, so that no group is
    needed and long completions weigh more: REINFORCE++ (Hu et al. 2025, arXiv 2501.03262).

    >>> rewards = torch.tensor([[-0.5, 1.0]])
    >>> RewardToGo(whiten=False)(rewards, torch.zeros(1, 2), torch.ones(1, 2).bool()).advantages
    tensor([[0.5000, 1.0000]])
    """

    gamma: float = 1.0
    whiten: bool = True
    needs_group: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("RewardToGo.gamma", self.gamma, at_least=0, at_most=1)
        check_flag("RewardToGo.whiten", self.whiten)

    @property
    def formula(self) -> str:
        discount = "" if self.gamma == 1 else f"{self.gamma:g}^l "
        return f"A_t = Σ_l {discount}r_{{t+l}}{', whitened over the batch' if self.whiten else ''}"

    def __call__(
        self, rewards: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> TokenCredit:
        credit = gae(rewards, torch.zeros_like(rewards), mask, self.gamma, 1.0)
        return TokenCredit(_whitened(credit.advantages, rewards, mask, self.whiten), credit.returns)


def _whitened(
    advantages: Float[Tensor, "B T"], rewards: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], wanted: bool
) -> Float[Tensor, "B T"]:
    """Whitened over the tokens of rows that have a reward, if wanted."""
    scored = mask & ~torch.where(mask, rewards, 0.0).isnan().any(-1, keepdim=True)
    return whiten(advantages, scored) if wanted else advantages

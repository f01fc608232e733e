"""Two engines, one set of weights: what to do where the sampler's probabilities are not the trainer's.

With a sampler of its own (vLLM) a token's recorded log-probability differs from the trainer's at equal weights. Then
π_old in the loss is the trainer's, computed before the first update, and these pieces weigh each token's loss by how
much the engines disagree: π_old / π_sampler, truncated or masked, a constant. In the lab both are one model and the
weight is 1. The trouble and the truncation: Yao et al. 2025 ("Your efficient RL framework secretly brings you
off-policy RL training").
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number
from rlvr.algo.importance import log_ratio

__all__ = ["MaskedMismatch", "Mismatch", "TruncatedMismatch"]


@runtime_checkable
class Mismatch(Protocol):
    """Maps the trainer's and the sampler's log-probabilities ``[B T]`` to multipliers of the policy loss.

    >>> isinstance(TruncatedMismatch(), Mismatch)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(
        self, old_logps: Float[Tensor, "B T"], sampler_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...


def _ratios(
    old_logps: Float[Tensor, "B T"], sampler_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    clean = torch.where(mask, old_logps, 0.0), torch.where(mask, sampler_logps, 0.0)
    return log_ratio(*clean).exp().detach()


@dataclass(frozen=True)
class TruncatedMismatch:
    """The ratio up to a cap: min(π_old / π_sampler, cap). TIS, with verl's cap of 2 (TRL's is 3).

    >>> old_logps, sampler_logps = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.1, -4.0]])
    >>> TruncatedMismatch()(old_logps, sampler_logps, torch.ones(1, 2).bool())
    tensor([[1.1052, 2.0000]])
    """

    cap: float = 2.0

    def __post_init__(self) -> None:
        check_number("TruncatedMismatch.cap", self.cap, above=0)

    @property
    def formula(self) -> str:
        return f"ℓ ← ℓ · min(π_old / π_sampler, {self.cap:g})"

    def __call__(
        self, old_logps: Float[Tensor, "B T"], sampler_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return _ratios(old_logps, sampler_logps, mask).clamp(max=self.cap)


@dataclass(frozen=True)
class MaskedMismatch:
    """The ratio where it lies within a band, 0 elsewhere: a token the engines disagree on teaches nothing.

    The band 0.5 to 5 is OpenRLHF's; IcePop is of this kind.

    >>> old_logps, sampler_logps = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.1, -4.0]])
    >>> MaskedMismatch()(old_logps, sampler_logps, torch.ones(1, 2).bool())
    tensor([[1.1052, 0.0000]])
    """

    low: float = 0.5
    high: float = 5.0

    def __post_init__(self) -> None:
        check_number("MaskedMismatch.low", self.low, at_least=0)
        check_number("MaskedMismatch.high", self.high, above=self.low)

    @property
    def formula(self) -> str:
        return f"ℓ ← ℓ · π_old / π_sampler where that lies in [{self.low:g}, {self.high:g}], else 0"

    def __call__(
        self, old_logps: Float[Tensor, "B T"], sampler_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        ratios = _ratios(old_logps, sampler_logps, mask)
        return torch.where((ratios >= self.low) & (ratios <= self.high), ratios, 0.0)

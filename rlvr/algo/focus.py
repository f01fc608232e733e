"""Which tokens the policy loss acts on: a multiplier and a leash ``[B T]``, constants of an optimizer step.

Everything is computed once for all rows of a step, from the sampler's log-probabilities, before any of them is scored
again: so splitting a step into micro-batches changes nothing. (The papers' code reads the current log-probabilities
of a micro-batch; on the first pass they are the same.) ``draws`` are uniform numbers, one a token, that choose among
candidates and break ties; equal draws choose equal tokens.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number
from rlvr.algo.moments import centre

__all__ = ["AllTokens", "ClipCov", "Focus", "Focused", "KLCov", "covariances"]


class Focused(NamedTuple):
    """``weight`` multiplies a token's policy loss; ``leash`` is the coefficient of |log π − log π_old| added to it."""

    weight: Float[Tensor, "B T"]
    leash: Float[Tensor, "B T"]


@runtime_checkable
class Focus(Protocol):
    """Chooses tokens from log-probabilities, advantages, mask and draws, all ``[B T]``.

    ``needs_draws`` says that the draws are read; ``pulls_back`` that a token without advantage may have a gradient.

    >>> isinstance(AllTokens(), Focus)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def needs_draws(self) -> bool: ...

    @property
    def pulls_back(self) -> bool: ...

    def __call__(
        self,
        old_logps: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        draws: Float[Tensor, "B T"],
    ) -> Focused: ...


def covariances(
    old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Each token's part in the covariance of log-probability and advantage: (log π − mean)(A − mean), 0 when masked.

    Their mean drives the entropy down (Cui et al. 2025, arXiv 2505.22617, section 3).

    >>> covariances(torch.tensor([[-1.0, -3.0]]), torch.tensor([[1.0, -1.0]]), torch.ones(1, 2).bool())
    tensor([[1., 1.]])
    """
    return centre(old_logps, mask, (0, 1)).values * centre(advantages, mask, (0, 1)).values


def _chosen(order: Float[Tensor, "B T"], among: Bool[Tensor, "B T"], draws: Tensor, count: int) -> Bool[Tensor, "B T"]:
    """The ``count`` tokens of highest ``order`` among the given, ties broken by the lower draw."""
    ranked = torch.where(among, order, -torch.inf).flatten()
    by_draw = draws.flatten().argsort()
    ranks = by_draw[ranked[by_draw].argsort(descending=True, stable=True)][:count]
    chosen = torch.zeros_like(among).flatten()
    chosen[ranks] = True
    return chosen.view_as(among) & among


def _count(share: float, mask: Bool[Tensor, "B T"]) -> int:
    """How many tokens a share of a batch is: rounded down, at least one."""
    return max(int(share * int(mask.sum())), 1)


@dataclass(frozen=True)
class AllTokens:
    """Every token, each as the loss says.

    >>> AllTokens()(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2).bool(), torch.zeros(1, 2)).weight
    tensor([[1., 1.]])
    """

    formula: ClassVar[str] = ""
    needs_draws: ClassVar[bool] = False
    pulls_back: ClassVar[bool] = False

    def __call__(
        self,
        old_logps: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        draws: Float[Tensor, "B T"],
    ) -> Focused:
        return Focused(torch.ones_like(old_logps), torch.zeros_like(old_logps))


@dataclass(frozen=True)
class ClipCov:
    """Leaves out a few tokens that would cost most entropy: random ones among those with covariance in a band.

    ⌊``share`` · N⌋ of the N tokens of a step (at least one) are drawn from those whose covariance lies between
    ``low`` and ``high``, and have no policy gradient. The band 1 to 5 is the paper's, for language models and
    standard scores; elsewhere look at `covariances` first. Acts on the first pass too. The paper doesn't draw tokens
    that the ratio's clip silences already, which are not known yet here. Clip-Cov (Cui et al. 2025, arXiv 2505.22617,
    section 4.2).

    >>> logps, advantages = torch.tensor([[-0.1, -4.0, -0.5]]), torch.tensor([[2.0, -1.0, -1.0]])
    >>> ClipCov(0.3)(logps, advantages, torch.ones(1, 3).bool(), torch.tensor([[0.9, 0.1, 0.5]])).weight
    tensor([[1., 0., 1.]])
    """

    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0
    needs_draws: ClassVar[bool] = True
    pulls_back: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("ClipCov.share", self.share, above=0, at_most=1)
        check_number("ClipCov.low", self.low)
        check_number("ClipCov.high", self.high, above=self.low)

    @property
    def formula(self) -> str:
        band = f"{self.low:g} < (log π − mean)(A − mean) < {self.high:g}"
        return f"ℓ = 0 for {self.share:g} of the tokens, drawn from those with {band}"

    def __call__(
        self,
        old_logps: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        draws: Float[Tensor, "B T"],
    ) -> Focused:
        spread = covariances(old_logps, advantages, mask)
        band = mask & (spread > self.low) & (spread < self.high)
        left_out = _chosen(torch.zeros_like(spread), band, draws, _count(self.share, mask))
        return Focused(torch.where(left_out, 0.0, torch.ones_like(spread)), torch.zeros_like(spread))


@dataclass(frozen=True)
class KLCov:
    """Holds back the tokens that would cost most entropy: ℓ ← ℓ + coef · |log π − log π_old| for the top few.

    The ⌊``share`` · N⌋ tokens of highest covariance (at least one). Inert on the first pass over a batch: there
    log π = log π_old, and |x| has slope 0 at 0. KL-Cov (Cui et al. 2025, arXiv 2505.22617, section 4.2), which
    goes with an unclipped ratio (`Ratio`).

    >>> logps, advantages = torch.tensor([[-0.1, -4.0, -0.5]]), torch.tensor([[2.0, -1.0, -1.0]])
    >>> KLCov(0.5)(logps, advantages, torch.ones(1, 3).bool(), torch.zeros(1, 3)).leash
    tensor([[1., 0., 0.]])
    """

    share: float = 2e-3
    coef: float = 1.0
    needs_draws: ClassVar[bool] = True
    pulls_back: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("KLCov.share", self.share, above=0, at_most=1)
        check_number("KLCov.coef", self.coef, above=0)

    @property
    def formula(self) -> str:
        top = f"the top {self.share:g} of tokens by (log π − mean)(A − mean)"
        return f"ℓ ← ℓ + {self.coef:g} |log π − log π_old| for {top}"

    def __call__(
        self,
        old_logps: Float[Tensor, "B T"],
        advantages: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        draws: Float[Tensor, "B T"],
    ) -> Focused:
        spread = covariances(old_logps, advantages, mask)
        top = _chosen(spread, mask, draws, _count(self.share, mask))
        leash = torch.where(top, self.coef, torch.zeros_like(spread))
        return Focused(torch.ones_like(spread), leash)

"""What pushes a token's log-probability: ``(logps, old_logps, advantages)`` to losses, all ``[B T]``.

Losses are never reduced here and never see a mask: the caller removes masked slots with `masked` before and
weighs the result with an aggregator after. ``old_logps`` is a constant: no gradient flows into it.

The *value* of a policy-gradient loss is not a measure of progress. On-policy `Reinforce`, `Ratio` and `Clip`
have the same gradient and different values: the ratio losses are −A there, which sums to 0 over a
mean-centred group of equal lengths while the gradient does not vanish.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number
from rlvr.algo.importance import log_ratio

__all__ = ["CISPO", "Clip", "Likelihood", "Loss", "Masked", "MirrorDescent", "Ratio", "Reinforce", "masked"]


@runtime_checkable
class Loss(Protocol):
    """Maps log-probabilities and advantages ``[B T]`` to losses ``[B T]``; ``formula`` is its equation.

    ``needs_advantage`` is true when a row whose advantage is 0 has exactly zero gradient: it can be skipped.
    ``reads_advantage`` is true when advantages matter at all.

    >>> isinstance(Clip(), Loss)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def needs_advantage(self) -> bool: ...

    @property
    def reads_advantage(self) -> bool: ...

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...


class Masked(NamedTuple):
    """Log-probabilities that hold 0 at every masked slot."""

    logps: Float[Tensor, "B T"]
    old_logps: Float[Tensor, "B T"]


def masked(logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Masked:
    """Log-probabilities without the masked slots: 0 there, with exactly zero gradient, whatever they held.

    Selecting, where a product would not do: 0 · ∞ and 0 · NaN are NaN, and one such slot ends a run. The
    gradient stops here; logits that are themselves infinite must be kept out of the softmax by whoever made
    them.

    >>> logps, old_logps = torch.tensor([[-1.0, -torch.inf]]), torch.tensor([[-1.0, torch.nan]])
    >>> masked(logps, old_logps, torch.tensor([[True, False]]))
    Masked(logps=tensor([[-1.,  0.]]), old_logps=tensor([[-1.,  0.]]))
    """
    return Masked(torch.where(mask, logps, 0.0), torch.where(mask, old_logps.detach(), 0.0))


def _ratio(logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    return log_ratio(logps, old_logps).exp()


@dataclass(frozen=True)
class Reinforce:
    """The score-function loss: ℓ = −A · log π.

    Its gradient −A ∇log π is the policy gradient for samples of the policy itself; ``old_logps`` is not read,
    so a second pass over the same samples is off-policy without a correction. Williams 1992.

    >>> Reinforce()(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), torch.tensor([[0.5]]))
    tensor([[0.5000]])
    """

    formula: ClassVar[str] = "ℓ = −A · log π"
    needs_advantage: ClassVar[bool] = True
    reads_advantage: ClassVar[bool] = True

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return -advantages * logps


@dataclass(frozen=True)
class Ratio:
    """The importance-weighted loss without clipping: ℓ = −A · ρ, ρ = π / π_old.

    On-policy ρ = 1: the value is −A and the gradient that of `Reinforce`. log ρ is held within ±20, beyond
    which a token has no gradient. The surrogate that PPO clips (Schulman et al. 2017, arXiv 1707.06347,
    section 3).

    >>> Ratio()(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), torch.tensor([[0.5]]))
    tensor([[-0.5000]])
    """

    formula: ClassVar[str] = "ℓ = −A · ρ,  ρ = π / π_old"
    needs_advantage: ClassVar[bool] = True
    reads_advantage: ClassVar[bool] = True

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return -advantages * _ratio(logps, old_logps)


@dataclass(frozen=True)
class Likelihood:
    """Maximum likelihood: ℓ = −log π, whatever the advantage.

    Supervised fine-tuning on demonstrations; on the policy's own rewarded samples it is rejection-sampling
    fine-tuning, which is REINFORCE with 0/1 rewards, no baseline and a mean over the right samples only.

    >>> Likelihood()(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), torch.tensor([[0.0]]))
    tensor([[1.]])
    """

    formula: ClassVar[str] = "ℓ = −log π"
    needs_advantage: ClassVar[bool] = False
    reads_advantage: ClassVar[bool] = False

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        return -logps


@dataclass(frozen=True)
class Clip:
    """The clipped surrogate: ℓ = −min(ρA, clip(ρ, 1−epsilon, 1+epsilon_high) A), ρ = π / π_old per token.

    ``epsilon_high=None`` means ``epsilon``; it is a distance from 1, not a cap on ρ. With ``dual_clip`` c > 1
    the loss of a token with A < 0 is at most −cA; tokens with A ≥ 0 are untouched. Inert on-policy, where ρ =
    1. log ρ is held within ±20, beyond which a token has no gradient. PPO (Schulman et al. 2017, arXiv
    1707.06347); a higher upper edge: DAPO (arXiv 2503.14476); dual clip: Ye et al. 2020 (arXiv 1912.09729).

    >>> ratio_of_2 = torch.tensor([[0.0]]), torch.tensor([[-0.6931472]])
    >>> Clip(0.2)(*ratio_of_2, torch.tensor([[1.0]])), Clip(0.2)(*ratio_of_2, torch.tensor([[-1.0]]))
    (tensor([[-1.2000]]), tensor([[2.]]))
    """

    epsilon: float = 0.2
    epsilon_high: float | None = None
    dual_clip: float | None = None
    needs_advantage: ClassVar[bool] = True
    reads_advantage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("Clip.epsilon", self.epsilon, at_least=0)
        if self.epsilon_high is not None:
            check_number("Clip.epsilon_high", self.epsilon_high, at_least=0)
        if self.dual_clip is not None:
            check_number("Clip.dual_clip", self.dual_clip, above=1)

    @property
    def formula(self) -> str:
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        surrogate = f"min(ρA, clip(ρ, 1−{self.epsilon:g}, 1+{high:g}) A)"
        if self.dual_clip is not None:
            surrogate = f"({surrogate}, at least {self.dual_clip:g}A where A < 0)"
        return f"ℓ = −{surrogate},  ρ = π / π_old"

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        ratio = _ratio(logps, old_logps)
        surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - self.epsilon, 1 + high) * advantages)
        if self.dual_clip is not None:
            floor = torch.maximum(surrogate, self.dual_clip * advantages)
            surrogate = torch.where(advantages < 0, floor, surrogate)
        return -surrogate


@dataclass(frozen=True)
class CISPO:
    """REINFORCE with a bounded importance weight: ℓ = −sg[clip(ρ, floor, cap)] · A · log π, ρ = π / π_old.

    No token loses its gradient, however far it has moved; only its weight is bounded. ``cap`` is the largest ρ
    itself: TRL's epsilon_high, and 1 + epsilon_high in verl and the paper. ``floor`` 0 leaves the lower side open,
    as the paper does in practice; its cap isn't published, and ScaleRL (arXiv 2510.13786) found 4, 5 and 8 alike.
    MiniMax-M1 (arXiv 2506.13585, section 3.1).

    >>> old_logps, advantages = torch.tensor([[-3.0, -1.0]]), torch.tensor([[1.0, 1.0]])
    >>> CISPO(cap=5.0)(torch.tensor([[-1.0, -1.0]]), old_logps, advantages)
    tensor([[5., 1.]])
    """

    cap: float = 5.0
    floor: float = 0.0
    needs_advantage: ClassVar[bool] = True
    reads_advantage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("CISPO.floor", self.floor, at_least=0)
        check_number("CISPO.cap", self.cap, above=self.floor)

    @property
    def formula(self) -> str:
        return f"ℓ = −sg[clip(ρ, {self.floor:g}, {self.cap:g})] · A · log π,  ρ = π / π_old"

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        weight = _ratio(logps, old_logps).detach().clamp(self.floor, self.cap)
        return -weight * advantages * logps


@dataclass(frozen=True)
class MirrorDescent:
    """The squared distance to the mirror-descent step: ℓ = (A − τ d)² / 2τ − A² / 2τ = −A d + ½ τ d², d = log π/π_old.

    Its zero is the policy proportional to π_old · exp(A / τ); the square pulls back towards π_old, so a token without
    advantage has a gradient once the policy has moved. With `Center`, `SequenceProduct` and `SequenceMean` it is
    Kimi k1.5's policy loss (arXiv 2501.12599, section 2.3): ∇ = −A ∇log π(y) + ½ τ ∇(log π(y)/π_old(y))².

    >>> MirrorDescent(tau=0.5)(torch.tensor([[-1.0]]), torch.tensor([[-1.4]]), torch.tensor([[1.0]]))
    tensor([[-0.3600]])
    """

    tau: float = 0.1
    needs_advantage: ClassVar[bool] = False
    reads_advantage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("MirrorDescent.tau", self.tau, above=0)

    @property
    def formula(self) -> str:
        return f"ℓ = −A d + ½ {self.tau:g} d²,  d = log π − log π_old"

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        distance = log_ratio(logps, old_logps)
        return -advantages * distance + 0.5 * self.tau * distance.square()

"""Rewarding indecision: what a bonus on the policy's entropy adds to the loss, and how its strength adapts.

Entropies ``[B T]`` are those of the whole distribution at each position, exact and differentiable, not minus the
log-probability of the token drawn. A trainer holds the coefficient; nothing here keeps state.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from rlvr.algo.checks import check_number

__all__ = ["AdaptiveEntropy", "Bonus", "EntropyBonus", "entropy_losses"]


def entropy_losses(entropies: Float[Tensor, "B T"], coef: float) -> Float[Tensor, "B T"]:
    """The bonus as a loss, token by token: ℓ = −α H. A flatter policy has the lower loss.

    >>> import torch
    >>> entropy_losses(torch.tensor([[0.6931472, 0.3250830]]), 0.1)
    tensor([[-0.0693, -0.0325]])
    """
    return -coef * entropies


@runtime_checkable
class Bonus(Protocol):
    """What the slot ``entropy`` holds: the starting coefficient, the one to use now, and the next one.

    ``measured`` is the mean entropy over the tokens of the batch at hand, in nats.

    >>> isinstance(EntropyBonus(0.001), Bonus)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def coef(self) -> float: ...

    def used(self, coef: float, measured: float) -> float: ...

    def next_coef(self, coef: float, measured: float) -> float: ...


@dataclass(frozen=True)
class EntropyBonus:
    """A fixed bonus: ℓ ← ℓ − α H.

    Cui et al. 2025 (arXiv 2505.22617) found 0.0001 and 0.001 without effect, 0.005 stabilising and 0.01 exploding.

    >>> EntropyBonus(0.005).used(0.005, measured=0.3)
    0.005
    """

    coef: float

    def __post_init__(self) -> None:
        check_number("EntropyBonus.coef", self.coef)

    @property
    def formula(self) -> str:
        return f"α = {self.coef:g}"

    def used(self, coef: float, measured: float) -> float:
        """The coefficient of this step's loss."""
        return coef

    def next_coef(self, coef: float, measured: float) -> float:
        """The coefficient of the next step: the same."""
        return coef


@dataclass(frozen=True)
class AdaptiveEntropy:
    """A bonus that holds the entropy up at ``target`` nats: α rises by ``step`` at or below it, falls above.

    α starts at ``coef`` and stays within 0 and 1; it acts only while the entropy is at or below the target.
    Skywork-OR1 (He et al. 2025); the values 0.01 and 0.005 are TRL's defaults.

    >>> bonus = AdaptiveEntropy(target=0.2)
    >>> bonus.used(0.01, measured=0.1), bonus.used(0.01, measured=0.3)
    (0.01, 0.0)
    >>> bonus.next_coef(0.01, measured=0.1), bonus.next_coef(0.01, measured=0.3)
    (0.015, 0.005)
    """

    target: float
    coef: float = 0.01
    step: float = 0.005
    highest: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_number("AdaptiveEntropy.target", self.target, at_least=0)
        check_number("AdaptiveEntropy.coef", self.coef, at_least=0, at_most=self.highest)
        check_number("AdaptiveEntropy.step", self.step, above=0)

    @property
    def formula(self) -> str:
        return f"α = {self.coef:g} ± {self.step:g} a step, 0 while H > {self.target:g}"

    def used(self, coef: float, measured: float) -> float:
        """The coefficient of this step's loss: 0 while the entropy is above the target."""
        return coef if measured <= self.target else 0.0

    def next_coef(self, coef: float, measured: float) -> float:
        """The coefficient of the next step; a batch without a token (NaN) leaves it."""
        if math.isnan(measured):
            return coef
        moved = coef + self.step if measured <= self.target else coef - self.step
        return min(max(moved, 0.0), self.highest)

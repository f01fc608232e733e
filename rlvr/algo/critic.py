"""What teaches a critic, and how good it is: values, returns and masks ``[B T]``."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_count, check_number

__all__ = ["Critic", "ValueLoss", "explained_variance"]


@runtime_checkable
class Critic(Protocol):
    """What the slot ``critic`` holds: values, values at sampling time and returns ``[B T]`` to losses ``[B T]``.

    >>> isinstance(ValueLoss(), Critic)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def coef(self) -> float: ...

    @property
    def warmup_steps(self) -> int: ...

    def __call__(
        self, values: Float[Tensor, "B T"], old_values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...


@dataclass(frozen=True)
class ValueLoss:
    """Squared error, not rewarded for moving far at once: ½ max((V − R)², (clip(V, V_old ± clip) − R)²).

    ``clip=None`` leaves the plain ½ (V − R)². ``coef`` weighs it in the sum with the policy's loss; inputs hold 0
    outside the mask. For the first ``warmup_steps`` steps only the critic learns (value pretraining; VC-PPO, arXiv
    2503.01491). PPO as in "N+ implementation details" (arXiv 2403.17031); clip 0.2 and coef 0.1 are TRL's.

    >>> ValueLoss(clip=0.2)(torch.tensor([[0.5]]), torch.tensor([[0.0]]), torch.tensor([[1.0]]))
    tensor([[0.3200]])
    """

    clip: float | None = 0.2
    coef: float = 0.1
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_number("ValueLoss.clip", self.clip, above=0)
        check_number("ValueLoss.coef", self.coef, above=0)
        check_count("ValueLoss.warmup_steps", self.warmup_steps, least=0)

    @property
    def formula(self) -> str:
        clipped = f"max((V − R)², (clip(V, V_old ± {self.clip:g}) − R)²)" if self.clip is not None else "(V − R)²"
        return f"ℓ_V = ½ {clipped}"

    def __call__(
        self, values: Float[Tensor, "B T"], old_values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        returns, old_values = returns.detach(), old_values.detach()
        errors = (values - returns).square()
        if self.clip is not None:
            held = old_values + (values - old_values).clamp(-self.clip, self.clip)
            errors = torch.maximum(errors, (held - returns).square())
        return 0.5 * errors


def explained_variance(values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> float:
    """How much of the returns' variance a critic foresaw: 1 − Var(R − V) / Var(R) over the tokens inside the mask.

    1 is perfect, 0 no better than a constant, below 0 worse. NaN if the returns don't vary.

    >>> returns, mask = torch.tensor([[1.0, 0.0]]), torch.ones(1, 2).bool()
    >>> explained_variance(returns / 2, returns, mask), explained_variance(returns, torch.ones(1, 2), mask)
    (0.75, nan)
    """
    kept, errors = returns[mask].double(), (returns - values)[mask].double()
    spread = kept.var(correction=0) if len(kept) else kept.sum()
    if not spread > 0:
        return float("nan")
    return float(1 - errors.var(correction=0) / spread)

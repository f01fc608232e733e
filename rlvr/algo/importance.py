"""What one ratio is about, a token or a whole completion: log-probabilities to log-probabilities, all ``[B T]``.

A loss compares ``logps`` with ``old_logps`` token by token. These pieces decide what it gets to compare: with
`TokenRatio` the tokens themselves; with the others numbers that belong to the completion and stand at every token
of it, so that every loss works at either level. Inputs hold 0 outside the mask, outputs too.

Averaged over a completion's tokens (`SequenceMean`) a number that stands at all of them counts once: that is how
the papers' sequence-level objectives are written here.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = [
    "Importance",
    "LogPair",
    "SequenceProduct",
    "SequenceRatio",
    "SequenceTokenRatio",
    "TokenRatio",
    "log_ratio",
]

LOG_RATIO_LIMIT = 20.0


def log_ratio(logps: Float[Tensor, "B T"], base_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """log π − log π_base, held within ±20, beyond which it has no gradient; ``base_logps`` is a constant.

    >>> log_ratio(torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.5, -300.0]]))
    tensor([[ 0.5000, 20.0000]])
    """
    return (logps - base_logps.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


class LogPair(NamedTuple):
    """The two log-probabilities whose difference is the log-ratio that a loss sees."""

    logps: Float[Tensor, "B T"]
    old_logps: Float[Tensor, "B T"]


@runtime_checkable
class Importance(Protocol):
    """Maps log-probabilities ``[B T]`` to those a loss compares; ``formula`` is "" if they are the tokens' own.

    ``per_row`` says that a token's value depends on the other tokens of its row.

    >>> isinstance(SequenceRatio(), Importance)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def per_row(self) -> bool: ...

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> LogPair: ...


def _total(logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Each row's sum at every token of the row."""
    return torch.where(mask, torch.where(mask, logps, 0.0).sum(-1, keepdim=True), 0.0)


def _mean(logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Each row's mean at every token of the row."""
    return _total(logps, mask) / mask.sum(-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class TokenRatio:
    """Every token by itself: ρ_t = π(y_t) / π_old(y_t).

    Corrects the choice of a token, not the prefix it follows: off-policy a first-order approximation for
    completions of more than one token. PPO, GRPO, DAPO, CISPO.

    >>> pair = TokenRatio()(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.5]]), torch.ones(1, 2).bool())
    >>> pair.logps - pair.old_logps
    tensor([[0.0000, 0.5000]])
    """

    formula: ClassVar[str] = ""
    per_row: ClassVar[bool] = False

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> LogPair:
        return LogPair(logps, old_logps)


@dataclass(frozen=True)
class SequenceRatio:
    """The geometric mean over a completion at each of its tokens: s = (π(y) / π_old(y))^(1/|y|).

    The gradient flows through the mean: a token gets 1/|y| of it. Since s is an average, it moves much less than a
    token's ratio; the paper clips at 3e-4 and 4e-4 (for long completions). GSPO (Zheng et al. 2025, arXiv
    2507.18071, section 4.1); aggregate with `SequenceMean`, else long completions count several times.

    >>> pair = SequenceRatio()(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.5]]), torch.ones(1, 2).bool())
    >>> pair.logps - pair.old_logps
    tensor([[0.2500, 0.2500]])
    """

    formula: ClassVar[str] = "π(y_t) here stands for π(y)^(1/|y|) of the whole completion, π_old alike"
    per_row: ClassVar[bool] = True

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> LogPair:
        return LogPair(_mean(logps, mask), _mean(old_logps, mask))


@dataclass(frozen=True)
class SequenceTokenRatio:
    """The value of `SequenceRatio` with each token's own gradient: s_t = sg[s] · π(y_t) / sg[π(y_t)].

    With one advantage a completion it has the value and, under `SequenceMean`, the gradient of `SequenceRatio`; it
    also takes advantages that differ by token. GSPO-token (arXiv 2507.18071, section 4.3); verl's form of GSPO.

    >>> logps, old_logps = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.5]])
    >>> pair = SequenceTokenRatio()(logps, old_logps, torch.ones(1, 2).bool())
    >>> pair.logps - pair.old_logps
    tensor([[0.2500, 0.2500]])
    """

    formula: ClassVar[str] = "ρ here is sg[s] · π(y_t) / sg[π(y_t)],  s = (π(y) / π_old(y))^(1/|y|)"
    per_row: ClassVar[bool] = True

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> LogPair:
        return LogPair(logps, logps.detach() - _mean(logps.detach() - old_logps, mask))


@dataclass(frozen=True)
class SequenceProduct:
    """The probability of a whole completion at each of its tokens: ρ = π(y) / π_old(y), the product of its tokens'.

    With `Ratio` and `SequenceMean` off-policy gradients are exactly unbiased, with a variance that grows with the
    length. RLOO on more than one step a batch (Ahmadian et al. 2024, arXiv 2402.14740), Kimi k1.5's log-ratio.

    >>> pair = SequenceProduct()(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.0, -2.5]]), torch.ones(1, 2).bool())
    >>> pair.logps - pair.old_logps
    tensor([[0.5000, 0.5000]])
    """

    formula: ClassVar[str] = "π(y_t) here stands for π(y) of the whole completion, π_old alike"
    per_row: ClassVar[bool] = True

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> LogPair:
        return LogPair(_total(logps, mask), _total(old_logps, mask))

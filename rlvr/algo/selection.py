"""Which rows stay in the mask: ``(rewards [P G], verdicts [P G])`` to a keep flag ``[P G]``.

A row that is not kept counts nowhere: no gradient, no place in any denominator. A row whose reward is missing
(NaN) is never kept. Filters ask the verdicts, which no shaping can touch, unless told otherwise.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number

__all__ = ["DifficultyBand", "DropConstant", "KeepAll", "KeepRewarded", "KeepRight", "Selector"]


@runtime_checkable
class Selector(Protocol):
    """Maps rewards and verdicts ``[P G]`` to the rows that stay ``[P G]``; ``formula`` names them.

    >>> isinstance(KeepAll(), Selector)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]: ...


@dataclass(frozen=True)
class KeepAll:
    """Keeps every row that has a reward.

    >>> KeepAll()(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    tensor([[ True, False]])
    """

    formula: ClassVar[str] = "all rows"

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]:
        return ~rewards.isnan()


@dataclass(frozen=True)
class KeepRewarded:
    """Keeps the rows with a reward above ``threshold``: learning from one's own successes only.

    With `Likelihood` this is rejection-sampling fine-tuning: with 0/1 rewards, success rate p and
    `SequenceSum` the expected ascent of a prompt is P(any right) · ∇log p. The denominator then counts kept
    rows only, which divides the REINFORCE gradient by the batch's success rate. RFT (Yuan et al. 2023, arXiv
    2308.01825), ReST-EM (arXiv 2312.06585).

    >>> KeepRewarded()(torch.tensor([[1.0, 0.0, torch.nan]]), torch.tensor([[True, False, False]]))
    tensor([[ True, False, False]])
    """

    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_number("KeepRewarded.threshold", self.threshold)

    @property
    def formula(self) -> str:
        return f"rows with r > {self.threshold:g}"

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]:
        return rewards > self.threshold


@dataclass(frozen=True)
class DropConstant:
    """Drops the groups whose outcomes are all the same, and keeps the others whole.

    ``by="verdict"`` reads right and wrong: an all-wrong group goes even if a length penalty tells its rows
    apart. ``by="reward"`` reads the rewards. Rows without a reward have no outcome; a group of one is
    constant. The filter of DAPO's dynamic sampling (arXiv 2503.14476) without the refill.

    >>> rewards = torch.tensor([[0.0, -0.5], [1.0, 0.0]])
    >>> DropConstant()(rewards, torch.tensor([[False, False], [True, False]]))
    tensor([[False, False],
            [ True,  True]])
    """

    by: Literal["verdict", "reward"] = "verdict"

    def __post_init__(self) -> None:
        if self.by not in ("verdict", "reward"):
            raise ValueError(f"DropConstant.by is {self.by!r}; accepted: 'verdict' or 'reward'")

    @property
    def formula(self) -> str:
        return f"groups with more than one {self.by}"

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]:
        scorable = ~rewards.isnan()
        outcomes = correct.to(rewards.dtype) if self.by == "verdict" else rewards
        highest = torch.where(scorable, outcomes, -torch.inf).amax(-1, keepdim=True)
        lowest = torch.where(scorable, outcomes, torch.inf).amin(-1, keepdim=True)
        return scorable & (highest > lowest)


@dataclass(frozen=True)
class KeepRight:
    """Keeps the rows whose verdict is right, whatever their reward: what a hacked reward can't get into.

    >>> KeepRight()(torch.tensor([[1.0, 0.0, torch.nan]]), torch.tensor([[False, True, True]]))
    tensor([[False,  True, False]])
    """

    formula: ClassVar[str] = "rows that are right"

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]:
        return correct & ~rewards.isnan()


@dataclass(frozen=True)
class DifficultyBand:
    """Keeps the groups whose share of right rows lies within ``low`` and ``high``, ends included, and keeps them whole.

    The share is of rows with a reward. 0 and 1 keep everything; the smallest step above 0 and below 1 keeps what
    `DropConstant` keeps. Groups of middling difficulty carry most signal; a batch made of them is biased towards
    them.

    >>> rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> DifficultyBand(0.2, 0.8)(rewards, rewards > 0)
    tensor([[ True,  True],
            [False, False]])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_number("DifficultyBand.low", self.low, at_least=0, at_most=1)
        check_number("DifficultyBand.high", self.high, at_least=self.low, at_most=1)

    @property
    def formula(self) -> str:
        return f"groups with {self.low:g} ≤ share right ≤ {self.high:g}"

    def __call__(self, rewards: Float[Tensor, "P G"], correct: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G"]:
        scorable = ~rewards.isnan()
        right, count = (correct & scorable).sum(-1, keepdim=True), scorable.sum(-1, keepdim=True)
        # In double, as a setting is: 2 of 10 is within a band that starts at 0.2.
        share = right.double() / count.clamp(min=1)
        return scorable & (share >= self.low) & (share <= self.high)

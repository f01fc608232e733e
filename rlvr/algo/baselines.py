"""Baselines from beyond a prompt's own group: the whole batch, a greedy answer, the past. Rewards ``[P G]``.

Pieces that compare a row with the batch must be given the whole batch, never one minibatch of it. The rules of
`advantages` hold: a missing reward (NaN) gives 0 and is no part of any mean, infinities are refused, a batch whose
rewards are all equal gives exact zeros.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from rlvr.algo.advantages import check_deviation
from rlvr.algo.checks import check_flag, check_number
from rlvr.algo.moments import Centred, centre, deviation, scorable

__all__ = ["BatchMean", "BatchZScore", "GreedyBaseline", "GroupMeanBatchStd", "RunningMean"]


def _against(rewards: Float[Tensor, "P G"], baseline: Float[Tensor, " P"]) -> Float[Tensor, "P G"]:
    difference = rewards - baseline[:, None]
    return torch.where(scorable(rewards) & scorable(baseline)[:, None], difference, 0.0)


@dataclass(frozen=True)
class BatchMean:
    """The reward minus the mean of the whole batch: A = r − mean_batch(r).

    Of N rows the expected gradient is (N−1)/N times the true one. Tells prompts apart, too: an easy prompt's
    right answers and a hard prompt's wrong ones get large advantages that say nothing about the policy. Williams
    1992's reinforcement comparison.

    >>> BatchMean()(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    tensor([[ 0.2500,  0.2500],
            [ 0.2500, -0.7500]])
    """

    formula: ClassVar[str] = "A = r − mean_batch(r)"
    needs_group: ClassVar[bool] = False

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        return centre(rewards, scorable(rewards), (-2, -1)).values


@dataclass(frozen=True)
class BatchZScore:
    """The standard score within the whole batch: A = (r − mean_batch(r)) / (std_batch(r) + eps).

    Every row counts once; `RewardToGo` with ``whiten`` counts every token. ``correction`` 1 is the sample std.
    REINFORCE++ without a per-token reward (Hu et al. 2025, arXiv 2501.03262).

    >>> BatchZScore()(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([[ 1.5000, -0.5000],
            [-0.5000, -0.5000]])
    """

    eps: float = 1e-8
    correction: int = 1
    needs_group: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_deviation("BatchZScore", self.eps, self.correction)

    @property
    def formula(self) -> str:
        return f"A = (r − mean_batch(r)) / (std{'ₙ₋₁' if self.correction else 'ₙ'},batch(r) + {self.eps:g})"

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        centred = centre(rewards, scorable(rewards), (-2, -1))
        std = deviation(centred, (-2, -1), self.correction)
        return torch.where(std > 0, centred.values / (std + self.eps), 0.0)


@dataclass(frozen=True)
class GroupMeanBatchStd:
    """The group's mean as baseline, one scale for the batch: A = (r − mean(r)) / (std_batch(r − mean(r)) + eps).

    No prompt is weighed by its own difficulty. With ``count_constant`` False the std leaves out groups whose rewards
    are all equal, as where those were filtered out (ScaleRL, arXiv 2510.13786, section 3.2). REINFORCE++-baseline
    (arXiv 2501.03262), whose code counts tokens where rows are counted here.

    >>> GroupMeanBatchStd()(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    tensor([[ 1.2247, -1.2247],
            [ 0.0000,  0.0000]])
    """

    eps: float = 1e-8
    correction: int = 1
    count_constant: bool = True
    needs_group: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_deviation("GroupMeanBatchStd", self.eps, self.correction)
        check_flag("GroupMeanBatchStd.count_constant", self.count_constant)

    @property
    def formula(self) -> str:
        over = "batch" if self.count_constant else "mixed groups"
        return f"A = (r − mean(r)) / (std{'ₙ₋₁' if self.correction else 'ₙ'},{over}(r − mean(r)) + {self.eps:g})"

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        keep = scorable(rewards)
        values = centre(rewards, keep, (-1,)).values
        counted = keep if self.count_constant else keep & (values != 0).any(-1, keepdim=True)
        # The centred values of a group sum to 0, so their mean over the batch needs no second subtraction.
        std = deviation(Centred(values, counted.sum().to(values.dtype)), (-2, -1), self.correction)
        return torch.where(std > 0, values / (std + self.eps), 0.0)


@dataclass(frozen=True)
class GreedyBaseline:
    """The reward minus that of the greedy answer to the same prompt: A = r − r(greedy).

    Unbiased, as the greedy answer doesn't depend on the samples; one extra completion a prompt. Where greedy is
    right a right sample teaches nothing. ReMax (Li et al. 2023, arXiv 2310.10505).

    >>> GreedyBaseline()(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0]))
    tensor([[ 0., -1.]])
    """

    formula: ClassVar[str] = "A = r − r(greedy)"
    needs_group: ClassVar[bool] = False
    needs_baseline: ClassVar[str] = "greedy"

    def __call__(self, rewards: Float[Tensor, "P G"], baseline: Float[Tensor, " P"]) -> Float[Tensor, "P G"]:
        return _against(rewards, baseline)


@dataclass(frozen=True)
class RunningMean:
    """The reward minus the mean of past batches: A = r − b, then b ← decay · b + (1 − decay) · mean_batch(r).

    Unbiased, as b is older than the samples; it starts at 0. Sutton and Barto's reinforcement baseline.

    >>> RunningMean()(torch.tensor([[1.0, 0.0]]), torch.tensor([0.25]))
    tensor([[ 0.7500, -0.2500]])
    >>> RunningMean(decay=0.5).next_baseline(0.25, torch.tensor([[1.0, torch.nan]]))
    0.625
    """

    decay: float = 0.9
    start: ClassVar[float] = 0.0
    needs_group: ClassVar[bool] = False
    needs_baseline: ClassVar[str] = "running"

    def __post_init__(self) -> None:
        check_number("RunningMean.decay", self.decay, at_least=0, at_most=1)

    @property
    def formula(self) -> str:
        return f"A = r − b,  b ← {self.decay:g} b + {1 - self.decay:g} mean_batch(r)"

    def __call__(self, rewards: Float[Tensor, "P G"], baseline: Float[Tensor, " P"]) -> Float[Tensor, "P G"]:
        return _against(rewards, baseline)

    def next_baseline(self, baseline: float, rewards: Float[Tensor, "P G"]) -> float:
        """The baseline of the next batch; a batch without a reward leaves it."""
        scored = rewards[scorable(rewards)].double()
        return self.decay * baseline + (1 - self.decay) * float(scored.mean()) if len(scored) else baseline

"""How much each token counts: a mask ``[P G T]`` to weights ``[P G T]``, zero outside the mask.

Weights depend on the mask alone and are computed once for all rows of an optimizer step; micro-batches slice
them. The loss is always ``(weights * losses).sum()``, so splitting a batch can't change it. Rows whose mask
is empty (unscored or deselected) count nowhere, neither as rows nor as prompts; an all-empty mask gives all
zeros. Rows whose advantage is 0 but whose mask is not empty do count: they shrink the step. Weights come in
torch's default dtype.

===============  =====================  ============================  ==================================
here             verl loss_agg_mode     TRL loss_type                 used by
===============  =====================  ============================  ==================================
`SequenceMean`   seq-mean-token-mean    grpo                          GRPO paper, DeepSeek-R1, GSPO
`PromptMean`     (none)                 (none)                        DAPO as printed, CISPO, ScaleRL
`TokenMean`      token-mean             dapo (bnpo: a micro-batch's)  DAPO's code; SFT; the lecture
`SequenceSum`    seq-mean-token-sum     (none; RLOOTrainer)           REINFORCE, RLOO
`Constant`       ...-token-sum-norm     dr_grpo                       Dr. GRPO
===============  =====================  ============================  ==================================
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number

__all__ = ["Aggregator", "Constant", "PromptMean", "SequenceMean", "SequenceSum", "TokenMean"]


@runtime_checkable
class Aggregator(Protocol):
    """Maps a mask ``[P G T]`` to weights ``[P G T]``; ``formula`` is the weight of one token in one line.

    In the formulas N counts the rows with at least one token, M the prompts with at least one such row, and
    |y| is the number of tokens of a row.

    >>> isinstance(TokenMean(), Aggregator)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]: ...


def _share(mask: Bool[Tensor, "P G T"], divisor: Tensor) -> Float[Tensor, "P G T"]:
    """One over ``divisor`` inside the mask; where ``divisor`` is 0 the mask is empty as well."""
    return mask.to(torch.get_default_dtype()) / divisor.clamp(min=1)


@dataclass(frozen=True)
class SequenceMean:
    """The mean over rows of each row's mean over tokens: w = 1 / (N |y|).

    A token of a long row weighs less, so long wrong answers are punished less per token: with leave-one-out
    advantages the expected ascent is E[(r − E r) / |y| · ∇log π(y)], not ∇E[r]. verl seq-mean-token-mean, TRL
    grpo; GRPO (arXiv 2402.03300, equation 3).

    >>> SequenceMean()(torch.tensor([[[True, True], [True, False]]]))
    tensor([[[0.2500, 0.2500],
             [0.5000, 0.0000]]])
    """

    formula: ClassVar[str] = "w = 1 / (N |y|)"

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        lengths = mask.sum(-1, keepdim=True)
        return _share(mask, lengths * (lengths > 0).sum())


@dataclass(frozen=True)
class PromptMean:
    """The mean over prompts of each group's mean over tokens: w = 1 / (M Σ_group |y|).

    Every prompt weighs the same, every token of one prompt too. DAPO's printed objective (arXiv 2503.14476,
    equation 8), CISPO (arXiv 2506.13585), ScaleRL's "prompt average" (arXiv 2510.13786); neither verl nor TRL
    has it.

    >>> PromptMean()(torch.tensor([[[True, True], [True, False]], [[True, False], [False, False]]]))[:, :, 0]
    tensor([[0.1667, 0.1667],
            [0.5000, 0.0000]])
    """

    formula: ClassVar[str] = "w = 1 / (M Σ_group |y|)"

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        tokens = mask.sum((-2, -1), keepdim=True)
        return _share(mask, tokens * (tokens > 0).sum())


@dataclass(frozen=True)
class TokenMean:
    """The mean over all tokens of the optimizer step: w = 1 / Σ |y|.

    Every token weighs the same, long rows and long groups weigh more. A row's credit still depends on its
    siblings' lengths, so the expected ascent is not ∇E[r]. verl token-mean, TRL dapo (its bnpo divides by the
    tokens of a micro-batch instead, so its loss depends on how rows are packed); the lecture's train_rl.

    >>> TokenMean()(torch.tensor([[[True, True], [True, False]]]))
    tensor([[[0.3333, 0.3333],
             [0.3333, 0.0000]]])
    """

    formula: ClassVar[str] = "w = 1 / Σ |y|"

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        return _share(mask, mask.sum())


@dataclass(frozen=True)
class SequenceSum:
    """The mean over rows of each row's sum over tokens: w = 1 / N.

    A whole row is one action, log π(y) = Σ_t log π(y_t): with an unbiased advantage the expected gradient is
    the true one. verl seq-mean-token-sum; REINFORCE, RLOO (arXiv 2402.14740).

    >>> SequenceSum()(torch.tensor([[[True, True], [True, False]]]))
    tensor([[[0.5000, 0.5000],
             [0.5000, 0.0000]]])
    """

    formula: ClassVar[str] = "w = 1 / N"

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        return _share(mask, mask.any(-1).sum())


@dataclass(frozen=True)
class Constant:
    """The mean over rows of each row's token sum over a fixed ``length`` in tokens: w = 1 / (N length).

    `SequenceSum` on another scale: no row's length enters. ``length`` is a setting (the generation budget),
    never the width of a batch. verl seq-mean-token-sum-norm with a fixed scale factor, TRL dr_grpo; Dr. GRPO
    (Liu et al. 2025, arXiv 2503.20783).

    >>> Constant(10)(torch.tensor([[[True, True], [True, False]]]))
    tensor([[[0.0500, 0.0500],
             [0.0500, 0.0000]]])
    """

    length: float

    def __post_init__(self) -> None:
        check_number("Constant.length", self.length, above=0)

    @property
    def formula(self) -> str:
        return f"w = 1 / ({self.length:g} N)"

    def __call__(self, mask: Bool[Tensor, "P G T"]) -> Float[Tensor, "P G T"]:
        return _share(mask, mask.any(-1).sum()) / self.length

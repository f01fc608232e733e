"""A critic for the lab: the policy's body with one number where the logits were.

V_t is what the critic expects of a completion before its token t is drawn, so it reads exactly what the policy read: prompts
and completions go through the same packed pass, each prompt and each distinct completion once.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rlvr.policy.packing import Prompts
from rlvr.policy.score import unique_rows
from rlvr.policy.transformer import Transformer
from rlvr.types import Problem

__all__ = ["LabCritic", "ValueFunction"]


class ValueFunction(Protocol):
    """What a critic is to the trainer: a module, and values of given completions."""

    model: nn.Module

    def values(
        self,
        problems: Sequence[Problem],
        index: Int[Tensor, " R"],
        tokens: Int[Tensor, "R T"],
        mask: Bool[Tensor, "R T"],
    ) -> Float[Tensor, "R T"]:
        """V before each token, 0 where the mask is false; gradients flow into the parameters."""
        ...


@dataclass(frozen=True)
class LabCritic:
    """The value function that starts as a copy of a transformer, its head replaced by zeros: V = 0 everywhere.

    >>> from rlvr.policy import LabPolicy
    >>> policy = LabPolicy.create("ab:$", "$", seed=0)
    >>> critic = LabCritic.of(policy.model, policy.prompts)
    >>> critic.values([Problem("a:", "a")], torch.tensor([0]), torch.tensor([[0, 3]]), torch.ones(1, 2).bool())
    tensor([[0., 0.]], grad_fn=<WhereBackward0>)
    """

    model: Transformer
    prompts: Callable[[Sequence[Problem]], Prompts]

    @classmethod
    def of(cls, model: Transformer, prompts: Callable[[Sequence[Problem]], Prompts]) -> "LabCritic":
        """A critic with the body of ``model``, copied.

        >>> from rlvr.policy import LabPolicy
        >>> policy = LabPolicy.create("ab:$", "$", seed=0)
        >>> LabCritic.of(policy.model, policy.prompts).model is policy.model
        False
        """
        body = copy.deepcopy(model)
        head = nn.Linear(model.config.width, 1, bias=False)
        nn.init.zeros_(head.weight)
        body.head = head.to(model.head.weight)
        return cls(body, prompts)

    def values(self, problems: Sequence[Problem], index: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """V before each token [R T], 0 where the mask is false."""
        if not mask.any():
            return self.model.head.weight.new_zeros(mask.shape)
        rows = unique_rows(self.prompts(problems), index, tokens, mask)
        read = self.model.read(rows.text)[0][:, 0]
        return torch.where(mask, read[rows.place], 0.0)

"""What a policy is: something that samples completions of problems and scores given ones.

The lab transformer and a Hugging Face model satisfy the same protocol, so one training loop serves both.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rlvr.policy.decoding import Decoding
from rlvr.types import Problem, Samples

__all__ = ["Policy", "Scores", "check_draws"]


class Scores(NamedTuple):
    """Log-probabilities of given tokens and the exact entropies of their positions, 0 where the mask is false."""

    logps: Float[Tensor, "R T"]
    entropies: Float[Tensor, "R T"]


class Policy(Protocol):
    """The protocol of a policy. Rows are problem-major: row ``p * group_size + g``."""

    model: nn.Module

    def sample(
        self,
        problems: Sequence[Problem],
        group_size: int,
        uniforms: np.ndarray,
        limits: Sequence[int],
        decoding: Decoding,
    ) -> Samples:
        """Draw ``group_size`` completions a problem; row b at position t uses the number ``uniforms[b, t]`` in [0, 1)."""
        ...

    def score(
        self,
        problems: Sequence[Problem],
        index: Int[Tensor, " R"],
        tokens: Int[Tensor, "R T"],
        mask: Bool[Tensor, "R T"],
        decoding: Decoding,
    ) -> Scores:
        """Score completions, row r continuing ``problems[index[r]]``; gradients flow into the parameters."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a completion's text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Text of a completion's token ids."""
        ...


def check_draws(problems: Sequence[Problem], group_size: int, uniforms: np.ndarray, limits: Sequence[int]) -> None:
    """Refuse random numbers that are not one row a completion, [P * group_size, T] with T >= max(limits).

    >>> check_draws([Problem("a", "b")], 2, np.zeros((2, 3)), [4])
    Traceback (most recent call last):
    ValueError: sample: uniforms (2, 3) must be [1 problems x 2 samples, at least 4 tokens]
    """
    if len(uniforms) != len(problems) * group_size or uniforms.shape[1] < max(limits):
        raise ValueError(
            f"sample: uniforms {uniforms.shape} must be [{len(problems)} problems x {group_size} samples, at least "
            f"{max(limits)} tokens]"
        )

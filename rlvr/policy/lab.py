"""The lab policy: the small transformer with its character tokenizer, as a ``Policy``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlvr.policy.base import Scores, check_draws
from rlvr.policy.critic import LabCritic
from rlvr.policy.decoding import Decoding
from rlvr.policy.packing import Prompts
from rlvr.policy.sampler import joined, sample_unique
from rlvr.policy.score import score_unique
from rlvr.policy.tokenizer import CharTokenizer
from rlvr.policy.transformer import Transformer, TransformerConfig
from rlvr.types import Problem, Samples

__all__ = ["LabPolicy"]

# More prompts at once make fewer, larger operations; beyond this their keys and values leave the processor's cache.
PROMPTS_AT_ONCE = 100


@dataclass(frozen=True)
class LabPolicy:
    """A transformer and the tokenizer of a task's alphabet.

    >>> policy = LabPolicy.create("ab:$", "$", seed=0)
    >>> problems = [Problem("a:", "a"), Problem("b:", "b")]
    >>> policy.sample(problems, 3, np.random.default_rng(0).random((6, 4)), [4, 4]).tokens.shape[0]
    6
    """

    model: Transformer
    tokenizer: CharTokenizer

    @classmethod
    def create(cls, alphabet: str, eos: str, seed: int, **shape: float) -> "LabPolicy":
        """A fresh policy; ``shape`` overrides fields of ``TransformerConfig``; the weights belong to ``seed``.

        >>> LabPolicy.create("ab$", "$", seed=0, width=32).model.config.width
        32
        """
        model = Transformer(TransformerConfig(vocab=len(alphabet), **shape))
        return cls(model.initialise(torch.Generator().manual_seed(seed)), CharTokenizer(alphabet, eos))

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return self.model.embed.weight.device

    def prompts(self, problems: Sequence[Problem]) -> Prompts:
        """Tokenised prompts; a problem's ``meta["offset"]`` (0 when absent) is the position where it begins.

        >>> LabPolicy.create("ab:$", "$", seed=0).prompts([Problem("a:", "a", {"offset": 3})]).offsets
        tensor([3])
        """
        ids = [self.tokenizer.encode(problem.prompt) for problem in problems]
        if not all(ids):
            raise ValueError(f"lab policy: problem {ids.index([])} has an empty prompt; it needs at least one token")
        width = max(map(len, ids))
        offsets = [problem.meta.get("offset", 0) for problem in problems]
        columns = ([row + [0] * (width - len(row)) for row in ids], [len(row) for row in ids], offsets)
        return Prompts(*(torch.tensor(column, device=self.device) for column in columns))

    def sample(
        self,
        problems: Sequence[Problem],
        group_size: int,
        uniforms: np.ndarray,
        limits: Sequence[int],
        decoding: Decoding = Decoding(),
    ) -> Samples:
        """Draw completions by unique-prefix sampling; ``uniforms`` is [P * group_size, T] with T >= max(limits)."""
        check_draws(problems, group_size, uniforms, limits)
        self.check_room(problems, limits)
        parts = []
        for low in range(0, len(problems), PROMPTS_AT_ONCE):
            asked, bounds = problems[low : low + PROMPTS_AT_ONCE], np.array(limits[low : low + PROMPTS_AT_ONCE])
            draws = uniforms[low * group_size : (low + len(asked)) * group_size, : bounds.max()]
            prompts = self.prompts(asked)
            parts.append(sample_unique(self.model, prompts, draws, bounds, self.tokenizer.eos_ids, decoding))
        return joined(parts)

    def check_room(self, problems: Sequence[Problem], limits: Sequence[int]) -> None:
        """Refuse prompts that with their completions reach beyond the model's positions.

        >>> LabPolicy.create("ab$", "$", seed=0, positions=4).check_room([Problem("ab", "a")], [3])
        Traceback (most recent call last):
        ValueError: lab policy: prompt 'ab' needs 5 positions; the model has 4
        """
        room = self.model.config.positions
        for problem, limit in zip(problems, limits, strict=True):
            needed = problem.meta.get("offset", 0) + len(problem.prompt) + limit
            if needed > room:
                raise ValueError(
                    f"lab policy: prompt {problem.prompt!r} needs {needed} positions; the model has {room}"
                )

    def score(
        self,
        problems: Sequence[Problem],
        index: Tensor,
        tokens: Tensor,
        mask: Tensor,
        decoding: Decoding = Decoding(),
    ) -> Scores:
        """Log-probabilities and entropies of completions, each prompt and each distinct row computed once."""
        return score_unique(self.model, self.prompts(problems), index, tokens, mask, decoding)

    def critic(self) -> LabCritic:
        """A fresh critic with a copy of this policy's body.

        >>> LabPolicy.create("ab$", "$", seed=0).critic().model.head.weight.abs().max().item()
        0.0
        """
        return LabCritic.of(self.model, self.prompts)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text.

        >>> LabPolicy.create("ab$", "$", seed=0).encode("b$")
        [1, 2]
        """
        return self.tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids.

        >>> LabPolicy.create("ab$", "$", seed=0).decode([1, 2])
        'b$'
        """
        return self.tokenizer.decode(list(ids))

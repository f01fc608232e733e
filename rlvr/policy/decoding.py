"""From logits to the distribution that is really sampled: one function for the sampler and the scorer.

Temperature, top-k and top-p change the distribution; a trainer that scores another one than was sampled is off-policy
without knowing it. Both sides call ``Decoding.log_probs``, so they can't differ.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Decoding", "entropy"]


@dataclass(frozen=True)
class Decoding:
    """How tokens are drawn: ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 truncate nothing.

    Truncated distributions are renormalised: probabilities (0.5, 0.3, 0.2) with ``top_p=0.8`` become (0.625, 0.375, 0).

    >>> Decoding(top_p=0.8).log_probs(torch.tensor([0.5, 0.3, 0.2]).log()).exp()
    tensor([0.6250, 0.3750, 0.0000])
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"decoding: temperature {self.temperature} must be 0 (greedy) or more")
        if not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(f"decoding: top_p {self.top_p} must be in (0, 1], top_k {self.top_k} 0 (off) or more")

    def log_probs(self, logits: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
        """log softmax(logits / T) over the kept tokens, -inf elsewhere.

        >>> Decoding(temperature=2.0).log_probs(torch.tensor([2.0, 0.0]))
        tensor([-0.3133, -1.3133])
        """
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.full_like(logits, float("-inf")).scatter(-1, best, 0.0)
        log_probs = (logits if self.temperature == 1 else logits / self.temperature).log_softmax(-1)
        if self.top_k and self.top_k < logits.shape[-1]:
            least = log_probs.topk(self.top_k, dim=-1).values[..., -1:]
            log_probs = log_probs.masked_fill(log_probs < least, float("-inf")).log_softmax(-1)
        return log_probs if self.top_p == 1 else _nucleus(log_probs, self.top_p)


def _nucleus(log_probs: Tensor, top_p: float) -> Tensor:
    ordered, order = log_probs.sort(dim=-1, descending=True, stable=True)
    # A token stays while the mass before it is short of top_p; the slack keeps 0.5 + 0.3 from missing 0.8 by a rounding.
    before = ordered.exp().cumsum(-1) - ordered.exp()
    dropped = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p - 1e-6)
    return log_probs.masked_fill(dropped, float("-inf")).log_softmax(-1)


def entropy(log_probs: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows"]:
    """H = -sum_v p_v log p_v in nats, exact; tokens of probability 0 count 0.

    >>> entropy(torch.tensor([0.5, 0.5, 0.0]).log())
    tensor(0.6931)
    """
    # p log p is 0 at p = 0 and at p = 1 alike, so a token that can't be drawn may stand as one that must be.
    finite = log_probs.masked_fill(log_probs == float("-inf"), 0.0)
    return -(finite.exp() * finite).sum(-1)

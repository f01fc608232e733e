"""Log-probabilities of chosen tokens without ever holding a full table over the vocabulary.

With a real vocabulary the log-softmax of a batch, not the model, is what fills the memory: 64 rows of 1,000 tokens over 128,000
words are 33 GB in float32. Logits are formed ``CELLS`` numbers at a time, and formed again for the gradient.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlvr.policy.base import Scores
from rlvr.policy.decoding import Decoding, entropy

__all__ = ["chosen_log_probs"]

CELLS = 1 << 23


def chosen_log_probs(
    head: Callable[[Tensor], Tensor],
    hidden: Float[Tensor, "M W"],
    rows: Int[Tensor, " K"],
    ids: Int[Tensor, " K"],
    decoding: Decoding,
    vocabulary: int,
) -> Scores:
    """log p(``ids[k]`` | place ``rows[k]``) [K] under ``decoding``, and the exact entropy [M] of each place; ``rows`` ascend.

    >>> scores = chosen_log_probs(lambda x: x, torch.tensor([[2.0, 0.0]]), torch.tensor([0]), torch.tensor([0]), Decoding(), 2)
    >>> scores.logps, scores.entropies
    (tensor([-0.1269]), tensor([0.3653]))
    """
    size = max(1, CELLS // vocabulary)
    parts = []
    for low in range(0, len(hidden), size):
        high = min(low + size, len(hidden))
        first, last = torch.searchsorted(rows, torch.tensor([low, high], device=rows.device)).tolist()
        given = (head, hidden[low:high], rows[first:last] - low, ids[first:last], decoding)
        again = torch.is_grad_enabled()
        parts.append(checkpoint(_chosen, *given, use_reentrant=False) if again else _chosen(*given))
    logps, entropies = zip(*parts, strict=True)
    return Scores(torch.cat(logps), torch.cat(entropies))


def _chosen(
    head: Callable[[Tensor], Tensor], hidden: Tensor, rows: Tensor, ids: Tensor, decoding: Decoding
) -> tuple[Tensor, Tensor]:
    log_probs = decoding.log_probs(head(hidden))
    return log_probs[rows, ids], entropy(log_probs)

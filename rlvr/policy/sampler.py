"""Unique-prefix sampling: one row of arithmetic for each distinct prefix, one draw for each sample.

The samples of a group share their prompt, and a trained policy is nearly deterministic, so most samples share most of
their prefix. Rows of the cache stand for distinct (prompt, prefix) pairs. At each position every sample takes its own
uniform number u and picks its token by inverse CDF, the least v with F(v) > u, from its row's distribution; then rows are
formed anew from the distinct (row, token) pairs. Tokens are those of one-row-a-sample decoding with the same draws: only
the arithmetic is shared.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rlvr.policy.decoding import Decoding, entropy
from rlvr.policy.packing import Prompts
from rlvr.policy.transformer import Transformer
from rlvr.types import Samples

__all__ = ["joined", "sample_unique"]


def pick(cdf: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Inverse CDF: the least token whose cumulative probability exceeds u; a token of probability 0 is never picked.

    >>> pick(np.array([[0.25, 0.25, 1.0], [0.25, 0.25, 1.0]]), np.array([0.2, 0.25]))
    array([0, 2])
    """
    return (cdf > uniforms[:, None]).argmax(1)


def cumulated(log_probs: Tensor) -> np.ndarray:
    """Cumulative probabilities in float64, on the host.

    >>> cumulated(torch.tensor([[0.25, 0.0, 0.75]]).log())
    array([[0.25, 0.25, 1.  ]])
    """
    cdf = log_probs.double().exp().cumsum(-1)
    # The last value becomes exactly 1 > u, whatever the sum rounded to.
    return (cdf / cdf[:, -1:]).cpu().numpy()


def regroup(rows: np.ndarray, token: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the next position: for each distinct (row, token), its parent row and token; and each sample's new row.

    >>> regroup(np.array([0, 0, 1, 0]), np.array([2, 2, 0, 1]), (2, 3))
    (array([0, 0, 1]), array([1, 2, 0]), array([1, 1, 2, 0]))
    """
    # A table over all (row, token) pairs is cheaper than sorting: it has R * V entries, and the samples may be many more.
    pairs = rows * shape[1] + token
    place = np.zeros(shape[0] * shape[1], dtype=np.int64)
    place[pairs] = 1
    distinct = place.nonzero()[0]
    place[distinct] = np.arange(len(distinct))
    return *np.divmod(distinct, shape[1]), place[pairs]


class _Record:
    """The output of a sampler under construction: what each step drew, put in its place at the end, all at once."""

    def __init__(self) -> None:
        self.drawn: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.log_probs: list[Tensor] = []

    def note(
        self, samples: np.ndarray, rows: np.ndarray, token: np.ndarray, ended: np.ndarray, log_probs: Tensor
    ) -> None:
        self.drawn.append((samples, rows, token, ended))
        self.log_probs.append(log_probs)

    def samples(self, count: int) -> Samples:
        width, log_probs = len(self.drawn), torch.cat(self.log_probs)
        step = np.repeat(np.arange(width), [len(samples) for samples, *_ in self.drawn])
        samples, rows, token, ended = map(np.concatenate, zip(*self.drawn, strict=True))
        first = np.cumsum([0, *(len(part) for part in self.log_probs[:-1])])
        place, row, token = (
            torch.from_numpy(part).to(log_probs.device) for part in (samples * width + step, rows + first[step], token)
        )

        def table(values: Tensor) -> Tensor:
            return values.new_zeros(count * width).index_copy_(0, place, values).view(count, width)

        finished = torch.zeros(count, dtype=torch.bool)
        finished[samples[ended]] = True
        logps = log_probs[row, token]
        return Samples(
            table(token),
            table(torch.ones_like(token, dtype=torch.bool)),
            table(logps),
            table(entropy(log_probs).index_select(0, row)),
            finished.to(log_probs.device),
        )


@torch.no_grad()
def sample_unique(
    model: Transformer,
    prompts: Prompts,
    uniforms: np.ndarray,
    limits: np.ndarray,
    eos_ids: tuple[int, ...],
    decoding: Decoding,
) -> Samples:
    """Complete each prompt ``B / P`` times, row b at position t drawing with ``uniforms[b, t]`` (float64, [B T]).

    A row ends with any of ``eos_ids`` or at ``limits`` [P] tokens; in the second case it is not ``finished``. Arithmetic is
    done where the model lives, the account of who stands in which row on the host.
    """
    group, record = len(uniforms) // len(limits), _Record()
    logits, past = model.encode(prompts, extra=uniforms.shape[1])
    position, device = prompts.offsets + prompts.lengths, logits.device
    ends = np.zeros(logits.shape[1], dtype=bool)
    ends[list(eos_ids)] = True
    samples = np.arange(len(uniforms))
    rows, limit = samples // group, limits.repeat(group)
    for step in range(uniforms.shape[1]):
        log_probs = decoding.log_probs(logits)
        token = pick(cumulated(log_probs)[rows], uniforms[samples, step])
        ended = ends[token]
        record.note(samples, rows, token, ended, log_probs)
        kept = (~ended & (limit > step + 1)).nonzero()[0]
        if not len(kept):
            break
        samples, rows, token, limit = samples[kept], rows[kept], token[kept], limit[kept]
        parents, token, rows = regroup(rows, token, log_probs.shape)
        if len(parents) != len(log_probs) or (parents != np.arange(len(parents))).any():
            index = torch.from_numpy(parents).to(device)
            past, position = past.rows(index), position.index_select(0, index)
        logits = model.decode(torch.from_numpy(token).to(device), position + step, past, prompts.tokens.shape[1] + step)
    return record.samples(len(uniforms))


def joined(parts: Sequence[Samples]) -> Samples:
    """Samples of several batches of prompts as one, padded to the longest completion.

    >>> short, long = (Samples(*[torch.ones(1, width)] * 4, torch.ones(1)) for width in (1, 2))
    >>> joined([short, long]).tokens
    tensor([[1., 0.],
            [1., 1.]])
    """
    if len(parts) == 1:
        return parts[0]
    width = max(part.tokens.shape[1] for part in parts)
    *tables, finished = zip(*parts, strict=True)
    wide = (torch.cat([F.pad(part, (0, width - part.shape[1])) for part in table]) for table in tables)
    return Samples(*wide, torch.cat(finished))

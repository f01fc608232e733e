"""Scoring with shared prompts and unique rows: each prompt is read once, each distinct completion scored once.

Log-probabilities are gathered back to all rows, so a loss over rows is exact whatever its form, and the gradient of a
shared piece is the sum of what its rows ask for.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rlvr.policy.base import Scores
from rlvr.policy.decoding import Decoding, entropy
from rlvr.policy.packing import Packed, Prompts, pack
from rlvr.policy.transformer import Transformer

__all__ = ["UniqueRows", "score_unique", "unique_rows"]


class UniqueRows(NamedTuple):
    """Rows packed once each: the ``text`` to read and, for each token [R T], the ``place`` in it that it is drawn from."""

    text: Packed
    place: Tensor


def unique_rows(prompts: Prompts, index: Tensor, tokens: Tensor, mask: Tensor) -> UniqueRows:
    """Pack rows [R T], row r continuing prompt ``index[r]``, each prompt and each distinct row once; some mask must be true."""
    width = int(mask.any(0).sum())
    columns = torch.cat([index[:, None], torch.where(mask, tokens, -1)[:, :width]], dim=1)
    if (index[1:] > index[:-1]).all():  # one row a prompt: they differ, and stand in the order that sorting would give
        unique, back = columns, torch.arange(len(index), device=index.device)
    else:
        unique, back = torch.unique(columns, dim=0, return_inverse=True)
    used, prompt = torch.unique_consecutive(unique[:, 0], return_inverse=True)
    text = pack(prompts.rows(used), prompt, unique[:, 1:].clamp(min=0), unique[:, 1:] >= 0)
    return UniqueRows(text, F.pad(text.rows.index_select(0, back), (0, mask.shape[1] - width)))


def score_unique(
    model: Transformer, prompts: Prompts, index: Tensor, tokens: Tensor, mask: Tensor, decoding: Decoding
) -> Scores:
    """Score rows [R T]; row r continues prompt ``index[r]``. Masked positions get 0 and pass no gradient.

    An empty batch gives empty scores.
    """
    if not mask.any():
        zeros = model.head.weight.new_zeros(mask.shape)
        return Scores(zeros, zeros)
    text, place = unique_rows(prompts, index, tokens, mask)
    log_probs = decoding.log_probs(model.read(text)[0])
    # F.embedding gathers like an index would, and its gradient is several times faster.
    flat = place * log_probs.shape[1] + torch.where(mask, tokens, 0)
    gathered = F.embedding(flat, log_probs.view(-1, 1)), F.embedding(place, entropy(log_probs)[:, None])
    return Scores(*(torch.where(mask, part[..., 0], 0.0) for part in gathered))

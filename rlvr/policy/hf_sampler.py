"""Sampling from a language model with a cache that is a tree: every distinct prefix of a prompt's samples is read once.

The cache only grows. What a live prefix has seen is a row of booleans over its bundle's columns, and a step appends the
distinct (prefix, token) pairs to the columns; nothing is copied when samples part. Bundles whose samples have all ended leave.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from rlvr.policy.decoding import Decoding, entropy
from rlvr.policy.hf_trees import bundles
from rlvr.types import Samples

__all__ = ["sample_trees"]


class Reader(Protocol):
    """What sampling needs of a policy."""

    vocabulary: int
    tokens: Any
    device: torch.device

    def read(self, tokens: Tensor, positions: Tensor, seen: Tensor | None, past: object = None) -> Tensor:
        """Last hidden states."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Logits."""
        ...


class _Live(NamedTuple):
    """Samples that go on: their number, the row of this step's distributions that they draw from, and their limit in tokens."""

    number: np.ndarray
    row: np.ndarray
    limit: np.ndarray

    def keep(self, kept: np.ndarray) -> "_Live":
        return _Live(*(part[kept] for part in self))


class _Front:
    """The tips of the trees: N bundles with up to Q distinct live prefixes, the M live ones in ``cells`` bundle * Q + slot."""

    def __init__(self, reader: Reader, prompts: Sequence[Sequence[int]], bundle_of: np.ndarray) -> None:
        from transformers import DynamicCache

        self.reader, self.cache = reader, DynamicCache()
        device, lengths = reader.device, torch.tensor([len(prompt) for prompt in prompts])
        width = int(lengths.max())
        tokens = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=device)
        positions = torch.arange(width, device=device).expand(len(prompts), -1)
        hidden = reader.read(tokens, positions, None, self.cache)
        index = torch.from_numpy(bundle_of).to(device)
        if len(bundle_of) != len(prompts) or (bundle_of != np.arange(len(prompts))).any():
            self.cache.batch_select_indices(index)
        self.lengths = lengths.to(device)[index]
        self.seen = (positions[:1] < self.lengths[:, None])[:, None]
        self.hidden = hidden[index, self.lengths - 1]
        self.cells = np.arange(len(bundle_of))

    def logits(self) -> Tensor:
        return self.reader.head(self.hidden)

    def grow(self, parents: np.ndarray, token: np.ndarray, step: int) -> None:
        """Read the distinct (parent row, token) pairs, in the order of their parents, one token beyond them."""
        device, slots = self.seen.device, self.seen.shape[1]
        cell = self.cells[parents]
        alive, bundle = np.unique(cell // slots, return_inverse=True)
        if len(alive) < len(self.lengths):
            index = torch.from_numpy(alive).to(device)
            self.cache.batch_select_indices(index)
            self.lengths, self.seen = self.lengths[index], self.seen[index]
        counts = np.bincount(bundle)
        slot = np.arange(len(bundle)) - np.repeat(np.cumsum(counts) - counts, counts)
        width = int(counts.max())
        self.cells = bundle * width + slot
        rows, columns, old = (torch.from_numpy(part).to(device) for part in (bundle, slot, cell % slots))
        tokens = torch.zeros(len(alive), width, dtype=torch.long, device=device)
        tokens[rows, columns] = torch.from_numpy(token).to(device)
        seen = self.seen.new_zeros(len(alive), width, self.seen.shape[2])
        seen[rows, columns] = self.seen[rows, old]
        # An empty slot sees itself, for a softmax over nothing is no number.
        itself = torch.eye(width, dtype=torch.bool, device=device).expand(len(alive), -1, -1)
        self.seen = torch.cat([seen, itself], dim=2)
        positions = (self.lengths[:, None] + step).expand(-1, width)
        self.hidden = self.reader.read(tokens, positions, self.seen, self.cache)[rows, columns]


def pick(log_probs: Tensor, row: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Inverse CDF in float64: the least token whose cumulative probability exceeds u, one of probability 0 never.

    >>> pick(torch.tensor([[0.25, 0.0, 0.75]]).log(), np.array([0, 0]), np.array([0.2, 0.25]))
    array([0, 2])
    """
    cdf = log_probs.double().exp().cumsum_(-1)
    # The last value becomes exactly 1 > u, whatever the sum rounded to.
    cdf /= cdf[:, -1:].clone()
    draws, place = (torch.from_numpy(part).to(cdf.device) for part in (uniforms, row))
    return torch.searchsorted(cdf[place], draws[:, None], right=True)[:, 0].cpu().numpy()


def sample_trees(
    reader: Reader, prompts: Sequence[Sequence[int]], uniforms: np.ndarray, limits: np.ndarray, decoding: Decoding
) -> Samples:
    """Complete each prompt ``B / P`` times, row b at position t drawing with ``uniforms[b, t]`` (float64, [B T]).

    A row ends with any end token or at ``limits`` [P] tokens; in the second case it is not ``finished``.

    >>> sample_trees(policy, [[1, 9690]], np.random.rand(8, 16), np.array([16]), Decoding())  # doctest: +SKIP
    """
    count, width = uniforms.shape
    problem = np.arange(count) // (count // len(limits))
    bundle, asked = bundles(problem, [len(prompt) for prompt in prompts], int(limits.max()))
    front, live = _Front(reader, prompts, asked), _Live(np.arange(count), bundle, limits[problem])
    tokens, mask = np.zeros((count, width), dtype=np.int64), np.zeros((count, width), dtype=bool)
    finished, ends = np.zeros(count, dtype=bool), np.array(reader.tokens.eos_ids)
    logps, entropies = [], []
    for step in range(width):
        log_probs = decoding.log_probs(front.logits())
        token = pick(log_probs, live.row, uniforms[live.number, step])
        tokens[live.number, step], mask[live.number, step] = token, True
        row = torch.from_numpy(live.row).to(log_probs.device)
        logps.append(log_probs[row, torch.from_numpy(token).to(row.device)])
        entropies.append(entropy(log_probs)[row])
        ended = np.isin(token, ends)
        finished[live.number[ended]] = True
        kept = (~ended & (live.limit > step + 1)).nonzero()[0]
        if not len(kept):
            break
        live = live.keep(kept)
        prefixes, row = np.unique(live.row * reader.vocabulary + token[kept], return_inverse=True)
        live = live._replace(row=row.reshape(-1))
        front.grow(*np.divmod(prefixes, reader.vocabulary), step)
    used = mask.any(0).sum()
    tables = (torch.from_numpy(table[:, :used]).to(reader.device) for table in (tokens, mask))
    numbers = (_table(parts, mask[:, :used]) for parts in (logps, entropies))
    return Samples(*tables, *numbers, torch.from_numpy(finished).to(reader.device))


def _table(parts: Sequence[Tensor], mask: np.ndarray) -> Tensor:
    """Values that came step by step, in their places of a table [B T], 0 elsewhere."""
    step, number = mask.T.nonzero()
    values = torch.cat(list(parts))
    table = values.new_zeros(mask.shape)
    table[torch.from_numpy(number).to(table.device), torch.from_numpy(step).to(table.device)] = values
    return table

"""A small decoder that reads prompts with any number of completions in one packed pass, or goes on token by token.

Pre-norm blocks with SiLU (a third of GELU's time on a CPU, and no worse a base). Two choices make the pointer world learnable
in seconds and its failures lawful. A *previous-token mix* at the input, x_t = e_t + W e_(t-1), lets one layer look a pair up
without spending another on finding the neighbour. *Fixed sinusoidal positions* (see ``positions``) carry over a little beyond
the places that training visited: a policy is right where its completion stays within them and beyond stops ever more wrongly.

``forward`` is the plain pass over whole texts, for people and tests. ``read`` is the same arithmetic on the packed list, where
a shared prompt stands once and nothing is padded; ``encode`` and ``decode`` are for sampling.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlvr.policy.packing import Packed, Prompts, pack_prompts
from rlvr.policy.positions import Sinusoids

__all__ = ["Past", "SharedPast", "Transformer", "TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig:
    """Shape and initialisation of a lab model.

    >>> TransformerConfig(vocab=30).width
    64
    """

    vocab: int
    layers: int = 2
    width: int = 64
    heads: int = 4
    mlp_ratio: int = 4
    positions: int = 96
    position_scale: float = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise ValueError(f"transformer: width {self.width} must be even and a multiple of heads {self.heads}")
        if min(self.vocab, self.layers, self.heads, self.positions) < 1:
            raise ValueError(f"transformer: vocab, layers, heads and positions must be at least 1 in {self}")


class Past(NamedTuple):
    """What later tokens need of earlier ones: ``cache`` [L 2 R H S D] of keys and values, ``unseen`` [R S] (0, or -inf for a
    key that no query may see) and the ``last`` token [R]."""

    cache: Tensor
    unseen: Tensor
    last: Tensor

    def rows(self, index: Tensor) -> "Past":
        """The past of other rows."""
        return Past(self.cache.index_select(2, index), *(part.index_select(0, index) for part in self[1:]))

    def attend(self, layer: int, queries: Tensor, new: Tensor, slot: int) -> Tensor:
        """Write the keys and values [2 R H D] of ``slot`` and attend up to it: [R W] from queries [R H D]."""
        count, heads, width = queries.shape
        cache = self.cache[layer]
        cache[..., slot, :] = new
        keys, values = cache[..., : slot + 1, :].flatten(1, 2)
        scores = torch.bmm((queries * width**-0.5).view(-1, 1, width), keys.transpose(1, 2))
        scores = scores.view(count, heads, 1, -1) + self.unseen[:, None, None, : slot + 1]
        return torch.bmm(scores.softmax(-1).flatten(0, 1), values).view(count, -1)


class SharedPast(NamedTuple):
    """A ``Past`` for many rows a prompt: the prompts' keys and values stand once, so rows carry only what is their own.

    ``prompts`` [L 2 P H S D] and ``unseen`` [P S]; ``own`` [L 2 R H T D] and the ``last`` token [R]; ``owner`` [R] is the
    prompt of each row and ascends.
    """

    prompts: Tensor
    unseen: Tensor
    own: Tensor
    last: Tensor
    owner: Tensor

    @classmethod
    def of(cls, past: Past, width: int) -> "SharedPast":
        """One row a prompt, from a past that has read prompts of ``width`` slots and left the others free."""
        rows = torch.arange(len(past.last), device=past.last.device)
        read, free = past.cache[..., :width, :].contiguous(), past.cache[..., width:, :].contiguous()
        return cls(read, past.unseen[:, :width], free, past.last, rows)

    def rows(self, index: Tensor) -> "SharedPast":
        """The past of other rows, and of the prompts that they continue."""
        used, owner = torch.unique_consecutive(self.owner[index], return_inverse=True)
        prompts, unseen = self[:2]
        if len(used) < len(unseen):
            prompts, unseen = prompts.index_select(2, used), unseen[used]
        return SharedPast(prompts, unseen, self.own.index_select(2, index), self.last[index], owner)

    def attend(self, layer: int, queries: Tensor, new: Tensor, slot: int) -> Tensor:
        """As that of ``Past``; ``slot`` counts from the end of the prompts."""
        count, heads, width = queries.shape
        own = self.own[layer]
        own[..., slot, :] = new
        keys, values = own[..., : slot + 1, :].flatten(1, 2)
        queries = queries * width**-0.5
        # The rows of a prompt as one matrix, so that its keys are read once and not once a row.
        counts = torch.bincount(self.owner, minlength=len(self.unseen))
        most = int(counts.max())
        place = torch.arange(count, device=counts.device) - (counts.cumsum(0) - counts)[self.owner] + most * self.owner

        def meet(rows: Tensor, prompts: Tensor) -> Tensor:
            table = rows.new_zeros(len(counts) * most, heads, rows.shape[-1]).index_copy_(0, place, rows)
            met = table.view(len(counts), most, heads, -1).transpose(1, 2) @ prompts
            return met.transpose(1, 2).reshape(len(counts) * most, heads, -1)[place]

        far = meet(queries, self.prompts[layer, 0].transpose(-1, -2)) + self.unseen[self.owner][:, None]
        near = torch.bmm(queries.reshape(-1, 1, width), keys.transpose(1, 2)).view(count, heads, -1)
        weights = torch.cat([far, near], dim=2).softmax(-1).split([far.shape[2], slot + 1], dim=2)
        mixed = torch.bmm(weights[1].reshape(-1, 1, slot + 1), values).view(count, heads, width)
        return (meet(weights[0], self.prompts[layer, 1]) + mixed).flatten(1)


class Block(nn.Module):
    """One pre-norm block on a list of tokens [N W]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.head_width = config.heads, config.width // config.heads
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.mlp_ratio * config.width)
        self.down = nn.Linear(config.mlp_ratio * config.width, config.width)

    def project(self, x: Tensor, read: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Queries [M W] of the read places (all without ``read``) and keys with values [N 2W] of all."""
        normed, width = self.norm1(x), x.shape[-1]
        wanted = normed if read is None else F.embedding(read, normed)
        return F.linear(wanted, self.qkv.weight[:width]), F.linear(normed, self.qkv.weight[width:])

    def attend(self, queries: Tensor, past: Tensor, unseen: Tensor) -> Tensor:
        """Attention of [R T W] queries to the keys in [R S 2W] under an additive mask [T S] or [R T S]; [R T W]."""
        (count, width), size, head = queries.shape[:2], past.shape[1], self.head_width
        q = queries.view(count, width, self.heads, head).transpose(1, 2).reshape(-1, width, head)
        k, v = past.view(count, size, 2, self.heads, head).permute(2, 0, 3, 1, 4).reshape(2, -1, size, head)
        if unseen.dim() == 3:
            unseen = unseen.repeat_interleave(self.heads, dim=0)
        # On matrices as small as these a fused kernel takes longer than its parts.
        scores = torch.baddbmm(unseen, q, k.transpose(1, 2), alpha=head**-0.5)
        return torch.bmm(scores.softmax(-1), v).view(count, self.heads, width, head).transpose(1, 2).flatten(2)

    def mix(self, x: Tensor, attended: Tensor) -> Tensor:
        """Attention output and MLP onto the residual stream."""
        x = x + self.out(attended)
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """The decoder.

    >>> model = Transformer(TransformerConfig(vocab=5, width=8, heads=2))
    >>> model(torch.tensor([[0, 1, 2]]), torch.tensor([0])).shape
    torch.Size([1, 3, 5])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.smear = nn.Linear(config.width, config.width, bias=False)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.place = Sinusoids(config.positions, config.width, config.position_scale)

    def initialise(self, generator: torch.Generator) -> "Transformer":
        """Embeddings N(0, 0.02²), matrices N(0, 0.49 / fan-in), biases 0, norms the identity: all from ``generator``."""
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    std = 0.02 if name == "embed.weight" else 0.7 / math.sqrt(weight.shape[1])
                    weight.normal_(0.0, std, generator=generator)
                elif name.endswith("bias"):
                    weight.zero_()
        return self

    def inputs(self, tokens: Tensor, previous: Tensor, positions: Tensor) -> Tensor:
        """x_t = e_t + W e_(t-1) + p_position; the first token of a text has no predecessor (-1)."""
        # W meets the few tokens of the vocabulary, not the many of the texts.
        mixed = F.pad(self.smear(self.embed.weight), (0, 0, 1, 0))
        return self.embed(tokens) + F.embedding(previous + 1, mixed) + self.place(positions)

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """Logits [R T V] of whole texts [R T] that begin at ``offsets`` [R]: the plain pass that the packed one must equal."""
        embedded = self.embed(tokens)
        positions = offsets[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        x = embedded + F.pad(self.smear(embedded[:, :-1]), (0, 0, 1, 0)) + self.place(positions)
        for block in self.blocks:
            qkv = block.qkv(block.norm1(x)).unflatten(-1, (3, block.heads, -1))
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = block.mix(x, attended.transpose(1, 2).flatten(2))
        return self.head(self.norm(x))

    def read(self, text: Packed) -> tuple[Tensor, list[Tensor]]:
        """Logits [M V] at the read places of packed texts, and each layer's keys and values [N 2W] of all their tokens."""
        x, pasts = self.inputs(text.tokens, text.previous, text.positions), []
        prompts, rows = _unseen(_causal(text.prompts), x), _unseen(text.seen, x)
        for block in self.blocks[:-1]:
            q, past = block.project(x)
            attended = [block.attend(F.embedding(text.prompts, q), F.embedding(text.prompts, past), prompts)]
            if text.queries.shape[1] > 1:
                attended.append(block.attend(F.embedding(text.queries, q), F.embedding(text.keys, past), rows))
            x = block.mix(x, F.embedding(text.attended, torch.cat([part.flatten(0, 1) for part in attended])))
            pasts.append(past)
        block = self.blocks[-1]
        # The last block is computed only where it is read: a prompt costs it keys and values, not a whole block.
        q, past = block.project(x, text.read)
        attended = block.attend(F.embedding(text.rows, q), F.embedding(text.keys, past), rows).flatten(0, 1)
        x = block.mix(F.embedding(text.read, x), F.embedding(text.read_attended, attended))
        return self.head(self.norm(x)), [*pasts, past]

    def encode(self, prompts: Prompts, extra: int = 0) -> tuple[Tensor, Past]:
        """Logits [P V] after each prompt, and the ``Past`` that ``decode`` goes on from, with room for ``extra`` tokens."""
        text = pack_prompts(prompts)
        logits, pasts = self.read(text)
        count, width = text.prompts.shape
        cache = logits.new_zeros(len(pasts), 2, count, self.config.heads, width + extra, self.blocks[0].head_width)
        for layer, past in enumerate(pasts):
            heads = F.embedding(text.prompts, past).unflatten(-1, (2, self.config.heads, -1))
            cache[layer, ..., :width, :] = heads.permute(2, 0, 3, 1, 4)
        return logits, Past(cache, F.pad(_unseen(text.seen[:, 0], logits), (0, extra)), text.tokens[text.read])

    def decode(self, tokens: Tensor, positions: Tensor, past: "Past | SharedPast", slot: int) -> Tensor:
        """Logits [R V] after one more token a row [R], written into the free ``slot`` of ``past``."""
        x = self.inputs(tokens, past.last, positions)
        past.last.copy_(tokens)
        for layer, block in enumerate(self.blocks):
            qkv = block.qkv(block.norm1(x)).unflatten(-1, (3, block.heads, -1))
            x = block.mix(x, past.attend(layer, qkv[:, 0], qkv[:, 1:].transpose(0, 1), slot))
        return self.head(self.norm(x))


def _causal(prompts: Tensor) -> Tensor:
    width = prompts.shape[1]
    return torch.ones(width, width, dtype=torch.bool, device=prompts.device).tril()


def _unseen(seen: Tensor, like: Tensor) -> Tensor:
    """0 where a key is seen and -inf where it isn't: what attention adds to its scores."""
    return torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill(~seen, float("-inf"))

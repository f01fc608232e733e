"""Prompts and completions as one list of tokens without padding, and the tables that attention reads it through.

Everything in a transformer but attention works token by token, so it is done on the packed list: no padding is computed,
a prompt that many completions share stands in it once, and one pass serves prompts and completions together.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Packed", "Prompts", "pack", "pack_prompts"]


class Prompts(NamedTuple):
    """Right-padded prompts: ``tokens`` [P S], ``lengths`` [P], and the position ``offsets`` [P] where each begins.

    >>> prompts = Prompts(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]), torch.tensor([0, 5]))
    >>> prompts.rows(torch.tensor([1])).tokens
    tensor([[9, 0]])
    """

    tokens: Tensor
    lengths: Tensor
    offsets: Tensor

    def rows(self, index: Tensor) -> "Prompts":
        """The prompts at these places."""
        return Prompts(*(part.index_select(0, index) for part in self))


class Packed(NamedTuple):
    """N tokens of P prompts and R completions; completion tokens are read at [R T] places, the first after the prompt.

    ``tokens``, ``previous`` (-1 where a text begins) and ``positions`` are [N]. ``prompts`` [P S], ``queries`` [R T] and
    ``keys`` [R S+T-1] are places in the list, 0 where there is nothing; ``seen`` [R T S+T-1] says which key a query may
    look at. ``attended`` [N] and ``read_attended`` [M] find a token's attention output among the P * S of the prompts and
    the R * T of the rows, or among the latter alone. ``read`` [M] are the places whose logits are wanted, and ``rows``
    [R T] says which of the M each completion token is drawn from.
    """

    tokens: Tensor
    previous: Tensor
    positions: Tensor
    prompts: Tensor
    queries: Tensor
    keys: Tensor
    seen: Tensor
    attended: Tensor
    read: Tensor
    read_attended: Tensor
    rows: Tensor


def pack_prompts(prompts: Prompts) -> Packed:
    """Prompts alone, read after their last token.

    >>> pack_prompts(Prompts(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]), torch.tensor([0, 5]))).tokens
    tensor([7, 8, 9])
    """
    each = torch.arange(len(prompts.lengths), device=prompts.lengths.device)
    return pack(prompts, each, each[:, None], (each < 0)[:, None])


def pack(prompts: Prompts, prompt: Tensor, tokens: Tensor, mask: Tensor) -> Packed:
    """Prompts and completions [R T], row r continuing ``prompts[prompt[r]]``; ``prompt`` ascends and leaves no prompt out.

    The last token of a completion is predicted but never read, so it is not in the list.

    >>> prompts = Prompts(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]), torch.tensor([0, 5]))
    >>> packed = pack(prompts, torch.tensor([0, 1, 1]), torch.tensor([[1, 2], [3, 4], [5, 6]]), torch.ones(3, 2) > 0)
    >>> packed.tokens, packed.positions
    (tensor([7, 8, 9, 1, 3, 5]), tensor([0, 1, 5, 2, 6, 6]))
    """
    count, width = prompts.tokens.shape
    slots, steps = (torch.arange(size, device=prompt.device) for size in (width, tokens.shape[1]))
    filled, kept = slots < prompts.lengths[:, None], mask & (steps > 0)
    in_prompts, in_rows = (part.flatten().nonzero()[:, 0] for part in (filled, kept))
    places, rank = _ranks(filled), _ranks(kept)
    ends = prompts.lengths.cumsum(0) - 1
    last = prompts.tokens.flatten()[in_prompts[ends]]
    inputs = torch.cat([last[prompt][:, None], tokens[:, :-1]], dim=1)
    before = torch.cat([prompts.tokens.new_full((count, 1), -1), prompts.tokens[:, :-1]], dim=1)
    starts = (prompts.offsets + prompts.lengths)[prompt] - 1
    total = len(in_prompts)
    queries = torch.where(kept, rank + total, 0)
    queries[:, 0] = ends[prompt]
    rows = torch.where(kept, rank + count, 0)
    rows[:, 0] = prompt
    first = torch.searchsorted(prompt, torch.arange(count, device=prompt.device))
    own = (steps[1:] <= steps[:, None]).expand(len(prompt), -1, -1)
    seen = torch.cat([filled[prompt][:, None].expand(-1, len(steps), -1), own], dim=2)
    return Packed(
        tokens=torch.cat([prompts.tokens.flatten()[in_prompts], inputs.flatten()[in_rows]]),
        previous=torch.cat([before.flatten()[in_prompts], inputs.flatten()[in_rows - 1]]),
        positions=torch.cat(
            [(prompts.offsets[:, None] + slots).flatten()[in_prompts], (starts[:, None] + steps).flatten()[in_rows]]
        ),
        prompts=places,
        queries=queries,
        keys=torch.cat([places[prompt], queries[:, 1:]], dim=1),
        seen=seen,
        attended=torch.cat([in_prompts, in_rows + count * width]),
        read=torch.cat([ends, torch.arange(total, total + len(in_rows), device=prompt.device)]),
        read_attended=torch.cat([first * len(steps), in_rows]),
        rows=rows,
    )


def _ranks(flags: Tensor) -> Tensor:
    """The place of each true flag among the true ones, row by row; 0 where false."""
    return torch.where(flags, flags.flatten().cumsum(0).view_as(flags) - 1, 0)

"""Means and deviations over the entries that count: one home for every way of comparing numbers with each other.

Everything is measured from the smallest entry, so that a constant comes out as exactly 0 whatever its floating-point
value is: no rounding of a mean of 0.7s looks like a signal.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Centred", "centre", "deviation", "scorable", "whiten"]


class Centred(NamedTuple):
    """Values minus their mean, 0 where an entry doesn't count; ``count`` is how many do, along the same axes."""

    values: Float[Tensor, "..."]
    count: Float[Tensor, "..."]


def scorable(rewards: Float[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """The rewards that are there: NaN is a missing one; infinities and whole-number dtypes are refused.

    >>> scorable(torch.tensor([1.0, torch.nan]))
    tensor([ True, False])
    """
    if not rewards.is_floating_point():
        raise ValueError(f"rewards have dtype {rewards.dtype}; accepted: a floating dtype (NaN marks a missing reward)")
    if rewards.isinf().any():
        raise ValueError(f"rewards hold {int(rewards.isinf().sum())} infinities; accepted: finite numbers, or NaN")
    return ~rewards.isnan()


def centre(values: Float[Tensor, "..."], keep: Bool[Tensor, "..."], axes: tuple[int, ...]) -> Centred:
    """Values minus the mean of the kept ones along ``axes``; what else stands in the table is never read.

    >>> centre(torch.tensor([1.0, torch.nan, 0.0]), torch.tensor([True, False, True]), (0,))
    Centred(values=tensor([ 0.5000,  0.0000, -0.5000]), count=tensor([2.]))
    """
    count = keep.sum(axes, keepdim=True).to(values.dtype)
    if not values.numel():
        return Centred(values.clone(), count)
    lowest = torch.where(keep, values, torch.inf).amin(axes, keepdim=True)
    shifted = torch.where(keep, values - lowest, 0.0)
    mean = shifted.sum(axes, keepdim=True) / count.clamp(min=1)
    return Centred(torch.where(keep, shifted - mean, 0.0), count)


def deviation(centred: Centred, axes: tuple[int, ...], correction: int = 1) -> Float[Tensor, "..."]:
    """The standard deviation along ``axes``, divisor n − ``correction``; 0 for a constant or a single entry.

    >>> deviation(centre(torch.tensor([1.0, 0.0]), torch.tensor([True, True]), (0,)), (0,))
    tensor([0.7071])
    """
    freedom = (centred.count - correction).clamp(min=1)
    return (centred.values.square().sum(axes, keepdim=True) / freedom).sqrt()


def whiten(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], eps: float = 1e-8) -> Float[Tensor, "B T"]:
    """Values with mean 0 and sample standard deviation 1 over all tokens inside the mask: (x − mean) / (std + eps).

    0 outside the mask, and everywhere if all tokens are equal. Longer rows weigh more: every token is one entry.

    >>> whiten(torch.tensor([[3.0, 1.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor([[ 0.7071, -0.7071,  0.0000]])
    """
    centred = centre(values, mask, (0, 1))
    std = deviation(centred, (0, 1))
    return torch.where(std > 0, centred.values / (std + eps), 0.0)

"""Where a token stands: fixed sinusoids, small enough that the letters stay louder than the places.

How far a policy trained on short prompts works on longer ones is decided here. With *learned* positions it works exactly at the
places that training visited, and beyond them there is nothing for reinforcement to find; *rotary* ones carry over almost
everywhere. Sinusoids lie between: right at every visited place, and beyond the last one less and less.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Sinusoids"]


class Sinusoids(nn.Module):
    """p_t = scale * (sin(t f_0), ..., cos(t f_0), ...) with f_i = 10000^(-2i / width) (Vaswani et al. 2017, section 3.5).

    >>> Sinusoids(positions=3, width=2, scale=0.5)(torch.tensor([0]))
    tensor([[0.0000, 0.5000]])
    """

    def __init__(self, positions: int, width: int, scale: float) -> None:
        super().__init__()
        frequencies = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.arange(positions)[:, None] * frequencies
        table = scale * torch.cat([angles.sin(), angles.cos()], dim=1)
        # Not persistent: it belongs to the shape, not to what was learned.
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """The codes [... W] of whole-number positions [...]."""
        return F.embedding(positions, self.table)

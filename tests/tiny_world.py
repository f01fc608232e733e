"""A world small enough to know everything: a tabular policy whose completions and groups can be listed.

The alphabet is EOS and ``vocabulary - 1`` letters; a completion ends at EOS or at ``length`` tokens. The
policy has one row of logits for every prefix.
"""

from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from rlvr.algo import Algorithm, Tokens, assign, token_losses

EOS = 0


@dataclass
class TinyWorld:
    """All completions of at most ``length`` tokens, and the prefixes they pass through."""

    vocabulary: int = 3
    length: int = 3
    completions: list[tuple[int, ...]] = field(init=False)
    prefixes: list[tuple[int, ...]] = field(init=False)

    def __post_init__(self) -> None:
        letters = range(1, self.vocabulary)
        self.prefixes = [word for size in range(self.length) for word in product(letters, repeat=size)]
        ended = [(*word, EOS) for word in self.prefixes]
        self.completions = [*ended, *product(letters, repeat=self.length)]

    @property
    def mask(self) -> Tensor:
        """``[N T]``, EOS included."""
        lengths = torch.tensor([len(word) for word in self.completions])
        return torch.arange(self.length) < lengths[:, None]

    def states(self) -> Tensor:
        """The prefix before every token of every completion, by its number, ``[N T]``, 0 outside the mask."""
        table = torch.zeros(len(self.completions), self.length, dtype=torch.long)
        for row, word in enumerate(self.completions):
            table[row, : len(word)] = torch.tensor([self.prefixes.index(word[:place]) for place in range(len(word))])
        return table

    def logps(self, logits: Tensor) -> Tensor:
        """Log-probability of every token of every completion, ``[N T]``, NaN outside the mask."""
        table, rows = logits.log_softmax(-1), []
        for word in self.completions:
            tokens = [table[self.prefixes.index(word[:place]), token] for place, token in enumerate(word)]
            rows.append(torch.stack([*tokens, *[table.new_tensor(torch.nan)] * (self.length - len(word))]))
        return torch.stack(rows)

    def entropies(self, logits: Tensor) -> Tensor:
        """Entropy of the policy before every token of every completion, ``[N T]``, NaN outside the mask."""
        table = logits.log_softmax(-1)
        return torch.where(self.mask, -(table.exp() * table).sum(-1)[self.states()], torch.nan)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probability of every completion, ``[N]``."""
        return torch.where(self.mask, self.logps(logits), 0.0).sum(-1).exp()

    def expected(self, logits: Tensor, amount: Tensor) -> Tensor:
        """E[Σ_t amount_t] over completions, ``amount`` ``[N T]``."""
        return (self.probabilities(logits) * torch.where(self.mask, amount, 0.0).sum(-1)).sum()

    def values(self, logits: Tensor, rewards: Tensor) -> Tensor:
        """The expected reward from before every token of every completion, exact, ``[N T]``."""
        probabilities, table = self.probabilities(logits).detach(), []
        for prefix in self.prefixes:
            through = torch.tensor([word[: len(prefix)] == prefix for word in self.completions])
            table.append((probabilities * rewards)[through].sum() / probabilities[through].sum())
        return torch.stack(table)[self.states()]

    def random_logits(self, seed: int) -> Tensor:
        """A policy that is far from uniform, ``[prefixes vocabulary]``."""
        draw = torch.Generator().manual_seed(seed)
        return torch.randn(len(self.prefixes), self.vocabulary, generator=draw).requires_grad_()


def gradient(value: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(value, logits)[0]


@dataclass
class Known:
    """What else an algorithm may ask for: a baseline for every prompt, a critic's values ``[N T]``, a reference."""

    baseline: float = 0.0
    values: Tensor | None = None
    ref_logits: Tensor | None = None


def expected_ascent(
    world: TinyWorld,
    algorithm: Algorithm,
    rewards: Tensor,
    logits: Tensor,
    size: int,
    old_logits: Tensor | None = None,
    known: Known | None = None,
    batchwise: bool = False,
) -> Tensor:
    """Minus the expected gradient of the loss over every batch that can be drawn from the old policy.

    ``rewards`` has one value a completion, ``[N]``, or a row of them for each of several prompts, ``[P N]``; a
    completion is right if its reward is above 0. A batch is one group of ``size`` samples for every prompt, and an
    optimizer step: its weights are its own. ``batchwise`` makes the credit of each batch by itself, for estimators
    that compare prompts; the others don't notice and are quicker without.
    """
    old, known = (logits if old_logits is None else old_logits).detach(), known or Known()
    tables = rewards if rewards.ndim == 2 else rewards[None]
    count, prompts = len(world.completions), len(tables)
    drawn = torch.cartesian_prod(*[torch.arange(count)] * (prompts * size)).reshape(-1, prompts, size)
    paid = torch.stack([table[drawn[:, p]] for p, table in enumerate(tables)], dim=1)
    keep = algorithm.select(paid.flatten(0, 1), paid.flatten(0, 1) > 0).view(drawn.shape)
    mask = world.mask[drawn] & keep[..., None]
    weights = torch.stack([algorithm.aggregate(batch) for batch in mask])
    advantages = _credit(world, algorithm, paid, drawn, mask, old, known, batchwise)
    rows = drawn.flatten()
    flat = Tokens(
        world.logps(logits)[rows],
        world.logps(old)[rows],
        advantages.flatten(0, 2),
        mask.flatten(0, 2),
        None if known.ref_logits is None else world.logps(known.ref_logits)[rows],
        world.entropies(logits)[rows],
        kl_coef=0.0 if algorithm.kl is None else algorithm.kl.coef,
        entropy_coef=0.0 if algorithm.entropy is None else algorithm.entropy.coef,
    )
    losses = (weights.flatten(0, 2) * token_losses(algorithm, flat)).sum(-1).reshape(len(drawn), -1).sum(-1)
    mass = world.probabilities(old)[drawn].flatten(1).prod(-1)
    return -gradient((mass * losses).sum(), logits)


def _credit(world, algorithm, paid, drawn, mask, old, known, batchwise) -> Tensor:
    """Advantages ``[batches P G T]``."""
    charge = None
    if algorithm.kl is not None and algorithm.kl.place != "loss":
        charge = algorithm.kl.coef * algorithm.kl.charge(world.logps(old), world.logps(known.ref_logits))[drawn]
    parts = []
    for chosen in torch.arange(len(paid)).split(1 if batchwise else len(paid)):
        extra = {
            "charge": None if charge is None else charge[chosen].flatten(0, 1),
            "place": "reward" if charge is None else algorithm.kl.place,
            "baseline": torch.full((len(chosen) * paid.shape[1],), known.baseline),
            "values": None if known.values is None else known.values[drawn[chosen]].flatten(0, 1),
        }
        credit = assign(algorithm.advantage, paid[chosen].flatten(0, 1), mask[chosen].flatten(0, 1), **extra)
        parts.append(credit.advantages.view(len(chosen), *mask.shape[1:]))
    return torch.cat(parts)

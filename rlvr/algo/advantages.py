"""Who did better than expected: rewards ``[P G]`` to advantages ``[P G]``.

Here are the estimators that know a prompt's own group only; `baselines` has those that look further, `gae` those
that give each token its own. An estimator is a pure function of one step's rewards; what becomes of an advantage is
the loss's business. Three rules hold for every estimator. A reward that is NaN is *missing*: its row gets 0 and its
siblings are compared with each other only. Infinite rewards are refused. Estimators with ``needs_group`` compare a
row with its siblings, so a group of one scorable row and a constant group get exact zeros, whatever the
floating-point value of the constant.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo.checks import check_number
from rlvr.algo.moments import Centred, centre, deviation, scorable

__all__ = [
    "Advantage",
    "BaselineAdvantage",
    "Center",
    "LeaveOneOut",
    "MaxRL",
    "PositiveOnly",
    "Raw",
    "TokenAdvantage",
    "TokenCredit",
    "ZScore",
    "by_group",
    "check_deviation",
    "check_groups",
]


@runtime_checkable
class Advantage(Protocol):
    """Maps rewards ``[P G]`` to advantages ``[P G]``; ``formula`` is its equation in one line.

    ``needs_group`` says that a group of one teaches nothing (its advantage is 0), so a trainer can warn
    beforehand.

    >>> isinstance(ZScore(), Advantage)
    True
    """

    @property
    def formula(self) -> str: ...

    @property
    def needs_group(self) -> bool: ...

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]: ...


@runtime_checkable
class BaselineAdvantage(Protocol):
    """An advantage against a number from outside: rewards ``[P G]`` and a baseline ``[P]`` to advantages ``[P G]``.

    ``needs_baseline`` names it: ``"greedy"``, the reward of each prompt's greedy answer; ``"running"``, the mean of
    past rewards. A prompt whose baseline is missing (NaN) gets zeros.

    >>> from rlvr.algo import GreedyBaseline
    >>> isinstance(GreedyBaseline(), BaselineAdvantage), isinstance(ZScore(), BaselineAdvantage)
    (True, False)
    """

    @property
    def formula(self) -> str: ...

    @property
    def needs_group(self) -> bool: ...

    @property
    def needs_baseline(self) -> str: ...

    def __call__(self, rewards: Float[Tensor, "P G"], baseline: Float[Tensor, " P"]) -> Float[Tensor, "P G"]: ...


class TokenCredit(NamedTuple):
    """Advantages by token, and the returns that a critic should have expected; both 0 outside the mask."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


@runtime_checkable
class TokenAdvantage(Protocol):
    """An advantage by token: rewards, values and mask ``[B T]`` to `TokenCredit`.

    ``needs_values`` says that it reads a critic's values, the value of the state *before* each token; without that
    ``values`` is ignored. Whitening is over the whole batch, so a trainer must not call it for a part of one.

    >>> from rlvr.algo import GAE
    >>> isinstance(GAE(), TokenAdvantage), isinstance(ZScore(), TokenAdvantage)
    (True, False)
    """

    @property
    def formula(self) -> str: ...

    @property
    def needs_group(self) -> bool: ...

    @property
    def needs_values(self) -> bool: ...

    def __call__(
        self, rewards: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> TokenCredit: ...


def _centre(rewards: Float[Tensor, "P G"]) -> Centred:
    """Rewards minus their group's mean."""
    return centre(rewards, scorable(rewards), (-1,))


def check_deviation(piece: str, eps: Any, correction: Any) -> None:
    """Refuses a guard below 0 and any divisor but n − 1 and n.

    >>> check_deviation("ZScore", 1e-4, 2)
    Traceback (most recent call last):
    ValueError: ZScore.correction is 2; accepted: 1 (sample std) or 0 (population std)
    """
    check_number(f"{piece}.eps", eps, at_least=0)
    if correction not in (0, 1) or isinstance(correction, bool):
        raise ValueError(f"{piece}.correction is {correction!r}; accepted: 1 (sample std) or 0 (population std)")


@dataclass(frozen=True)
class Raw:
    """The reward itself, no baseline: A = r.

    Unbiased with a high variance; a group of one keeps its reward. Williams 1992 (REINFORCE).

    >>> Raw()(torch.tensor([[1.0, torch.nan, 0.0]]))
    tensor([[1., 0., 0.]])
    """

    formula: ClassVar[str] = "A = r"
    needs_group: ClassVar[bool] = False

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        return torch.where(scorable(rewards), rewards, 0.0)


@dataclass(frozen=True)
class Center:
    """The reward minus the mean of its group: A = r − mean(r).

    The mean includes the row itself, so the expected gradient is (G−1)/G times the true one: a scale, not a
    direction. Dr. GRPO (Liu et al. 2025, arXiv 2503.20783).

    >>> Center()(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500]])
    """

    formula: ClassVar[str] = "A = r − mean(r)"
    needs_group: ClassVar[bool] = True

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        return _centre(rewards).values


@dataclass(frozen=True)
class ZScore:
    """The standard score within the group: A = (r − mean(r)) / (std(r) + eps).

    ``correction`` 1 is the sample standard deviation (divisor n−1; TRL, verl), 0 the population one (divisor
    n). ``eps`` keeps nearly constant groups small: it is in units of reward. TRL uses 1e-4, verl 1e-6, the
    paper none. Biased: with 0/1 rewards and success rate p the expected ascent is f(p) ∇p, f(p) = E[A |
    right] − E[A | wrong], which nears 1 / √(p(1−p)) for large groups; a group of two learns the order of its
    rewards only. GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1).

    >>> ZScore()(torch.tensor([[0.0, 0.0, 0.01, 0.0]]))
    tensor([[-0.4902, -0.4902,  1.4706, -0.4902]])
    """

    eps: float = 1e-4
    correction: int = 1
    needs_group: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_deviation("ZScore", self.eps, self.correction)

    @property
    def formula(self) -> str:
        return f"A = (r − mean(r)) / (std{'ₙ₋₁' if self.correction else 'ₙ'}(r) + {self.eps:g})"

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        centred = _centre(rewards)
        std = deviation(centred, (-1,), self.correction)
        return torch.where(std > 0, centred.values / (std + self.eps), 0.0)


@dataclass(frozen=True)
class LeaveOneOut:
    """The reward minus the mean of the *others* in its group: Aᵢ = rᵢ − mean(r₋ᵢ) = n/(n−1) · (rᵢ − mean(r)).

    ``n`` counts the scorable rows. Unbiased, and nothing is divided by a standard deviation. A group of one
    has no others: 0. RLOO (Ahmadian et al. 2024, arXiv 2402.14740).

    >>> LeaveOneOut()(torch.tensor([[1.0, torch.nan, 0.0, 1.0]]))
    tensor([[ 0.5000,  0.0000, -1.0000,  0.5000]])
    """

    formula: ClassVar[str] = "Aᵢ = rᵢ − mean(r₋ᵢ)"
    needs_group: ClassVar[bool] = True

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        centred = _centre(rewards)
        return centred.values * (centred.count / (centred.count - 1).clamp(min=1))


@dataclass(frozen=True)
class MaxRL:
    """The reward measured in units of the group's success: A = (r − mean(r)) / mean(r), 0 where the mean is not above 0.

    For rewards of 0 and 1. Of n scorable rows with success rate p the expected ascent is Σ_{k<n} (1−p)^(k−1) ∇p
    = (1 − (1−p)^(n−1)) / p · ∇p: the gradient of log p, cut off after n − 1 terms, so that large groups do maximum
    likelihood and a group of two plain reinforcement learning. Maximum Likelihood Reinforcement Learning (Tajwar
    et al. 2026).

    >>> MaxRL()(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor([[ 3., -1., -1., -1.]])
    """

    formula: ClassVar[str] = "A = (r − mean(r)) / mean(r), 0 where mean(r) ≤ 0"
    needs_group: ClassVar[bool] = True

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        centred = _centre(rewards)
        mean = rewards.nan_to_num(nan=0.0).sum(-1, keepdim=True) / centred.count.clamp(min=1)
        return torch.where(mean > 0, centred.values / torch.where(mean > 0, mean, 1.0), 0.0)


@dataclass(frozen=True)
class PositiveOnly:
    """Another advantage without its negative part: A = max(A, 0): nothing is pushed down, only up.

    Not rejection-sampling fine-tuning: with `Center` and 0/1 rewards a right answer weighs 1 − mean(r), so easy
    prompts count less. The expected ascent is then (n−1)/n (1−p) ∇p. The lecture's exercise 2.

    >>> PositiveOnly(Center())(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    tensor([[0.7500, 0.0000, 0.0000, 0.0000]])
    """

    of: Advantage = field(default_factory=ZScore)

    def __post_init__(self) -> None:
        # What wants more than rewards would be called without it.
        more = isinstance(self.of, type | BaselineAdvantage | TokenAdvantage | PositiveOnly)
        if more or not isinstance(self.of, Advantage):
            accepted = "an Advantage object that reads rewards only, such as Center()"
            raise ValueError(f"PositiveOnly.of is {self.of!r}; accepted: {accepted}")

    @property
    def formula(self) -> str:
        return f"{self.of.formula}, then max(A, 0)"

    @property
    def needs_group(self) -> bool:
        return self.of.needs_group

    def __call__(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        return self.of(rewards).clamp(min=0)


def by_group(
    keys: Sequence[Hashable] | Tensor, rewards: Float[Tensor, " B"], advantage: Advantage
) -> Float[Tensor, " B"]:
    """Advantages of flat rows in any order and of groups of any size; rows with equal keys form one group.

    Groups shorter than the longest are filled with missing rewards, which every estimator ignores.

    >>> by_group(["p", "q", "p", "q"], torch.tensor([1.0, 0.0, 0.0, 0.0]), Center())
    tensor([ 0.5000,  0.0000, -0.5000,  0.0000])
    """
    # A tensor iterates as tensors, which hash by identity: each row would become its own group.
    names = keys.tolist() if isinstance(keys, Tensor) else list(keys)
    if len(names) != len(rewards):
        raise ValueError(f"{len(names)} keys for {len(rewards)} rewards; accepted: one key a row")
    if not names:
        return rewards.clone()
    sizes: dict[Hashable, int] = {}
    rows, columns = [], []
    for name in names:
        columns.append(sizes.get(name, 0))
        sizes[name] = columns[-1] + 1
    order = {name: row for row, name in enumerate(sizes)}
    rows = [order[name] for name in names]
    table = rewards.new_full((len(sizes), max(sizes.values())), torch.nan)
    table[rows, columns] = rewards
    return advantage(table)[rows, columns]


def check_groups(keys: Sequence[Hashable] | Tensor, prompts: Sequence[str], answers: Sequence[str]) -> None:
    """Refuses rows that share a group key without sharing prompt and answer: their rewards can't be compared.

    >>> check_groups([7, 7], ["1+1=", "1+2="], ["2", "3"])
    Traceback (most recent call last):
    ValueError: group 7: row 1 has prompt '1+2=', row 0 has '1+1='; accepted: one prompt and answer a group
    """
    names = keys.tolist() if isinstance(keys, Tensor) else list(keys)
    if not len(names) == len(prompts) == len(answers):
        lengths = f"{len(names)} keys, {len(prompts)} prompts, {len(answers)} answers"
        raise ValueError(f"{lengths}; accepted: one of each a row")
    first: dict[Hashable, int] = {}
    for row, name in enumerate(names):
        lead = first.setdefault(name, row)
        for word, texts in (("prompt", prompts), ("answer", answers)):
            if texts[row] != texts[lead]:
                found = f"row {row} has {word} {texts[row]!r}, row {lead} has {texts[lead]!r}"
                raise ValueError(f"group {name!r}: {found}; accepted: one prompt and answer a group")

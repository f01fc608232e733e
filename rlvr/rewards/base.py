"""What a reward is: a function of one completion, or of all completions of a problem, to numbers.

``None`` or NaN excludes a sample from learning and is counted. Only advantages read rewards; evaluation and filters read
verdicts, so no reward can make a run look good.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlvr.types import Problem, Verdict

__all__ = ["BatchReward", "Completion", "GroupReward", "Reward", "pay", "pay_all"]


class Completion(NamedTuple):
    """What a reward sees: the problem, the text with its verdict, whether the policy ended it itself, and its tokens."""

    problem: Problem
    text: str
    verdict: Verdict
    finished: bool
    tokens: int = 0


Reward = Callable[[Completion, np.random.Generator], float | None]


class GroupReward:
    """The base class of rewards that look at all completions of a problem at once: subclasses define ``of_group``.

    >>> class Shortest(GroupReward):
    ...     def of_group(self, group, generator):
    ...         return [float(c.tokens == min(other.tokens for other in group)) for c in group]
    """

    def of_group(self, group: Sequence[Completion], generator: np.random.Generator) -> Sequence[float | None]:
        """One reward a completion, in order."""
        raise TypeError(f"{type(self).__name__} must define of_group(group, generator)")


class BatchReward(GroupReward):
    """The base class of rewards that judge a whole batch at once, as a model does: subclasses define ``of_batch``.

    >>> class Longest(BatchReward):
    ...     def of_batch(self, groups, generator):
    ...         longest = max(c.tokens for group in groups for c in group)
    ...         return [[float(c.tokens == longest) for c in group] for group in groups]
    """

    def open(self, folder: Path) -> None:
        """Called once when a run begins or goes on: relative paths in settings count from its folder."""

    def of_batch(
        self, groups: Sequence[Sequence[Completion]], generator: np.random.Generator
    ) -> Sequence[Sequence[float | None]]:
        """One reward a completion, group by group."""
        raise TypeError(f"{type(self).__name__} must define of_batch(groups, generator)")

    def of_group(self, group: Sequence[Completion], generator: np.random.Generator) -> Sequence[float | None]:
        """One reward a completion of a single group."""
        return self.of_batch([group], generator)[0]


def pay_all(
    name: str, reward: Reward | GroupReward, groups: Sequence[Sequence[Completion]], generator: np.random.Generator
) -> list[list[float]]:
    """The rewards of a batch, group by group; NaN stands for "could not be scored".

    >>> pay_all("none", lambda completion, generator: None, [[None], [None]], None)
    [[nan], [nan]]
    """
    if not isinstance(reward, BatchReward):
        return [pay(name, reward, group, generator) for group in groups]
    paid = reward.of_batch(groups, generator)
    return [_numbers(name, values, group) for values, group in zip(paid, groups, strict=True)]


def pay(
    name: str, reward: Reward | GroupReward, group: Sequence[Completion], generator: np.random.Generator
) -> list[float]:
    """The rewards of one problem's completions as floats; NaN stands for "could not be scored".

    >>> pay("none", lambda completion, generator: None, [None], None)
    [nan]
    """
    if isinstance(reward, GroupReward):
        return _numbers(name, reward.of_group(group, generator), group)
    return _numbers(name, [reward(completion, generator) for completion in group], group)


def _numbers(name: str, values: Sequence[float | None], group: Sequence[Completion]) -> list[float]:
    values = list(values)
    if len(values) != len(group):
        raise ValueError(f"reward {name!r} gave {len(values)} values for {len(group)} completions; accepted: one each")
    return [_number(name, value, completion) for value, completion in zip(values, group, strict=True)]


def _number(name: str, value: object, completion: Completion) -> float:
    if value is None:
        return math.nan
    if isinstance(value, (str, bytes)) or not np.isscalar(value) or math.isinf(value):
        raise ValueError(f"reward {name!r} gave {value!r} for {completion.text!r}; accepted: a finite number or None")
    return float(value)

"""What a reward is: a function of one completion, or of all completions of a problem, to numbers.

``None`` or NaN excludes a sample from learning and is counted. Only advantages read rewards; evaluation and filters read
verdicts, so no reward can make a run look good.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rlvr.types import Problem, Verdict

__all__ = ["Completion", "GroupReward", "Reward", "pay"]


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


def pay(
    name: str, reward: Reward | GroupReward, group: Sequence[Completion], generator: np.random.Generator
) -> list[float]:
    """The rewards of one problem's completions as floats; NaN stands for "could not be scored".

    >>> pay("none", lambda completion, generator: None, [None], None)
    [nan]
    """
    if isinstance(reward, GroupReward):
        values = list(reward.of_group(group, generator))
        if len(values) != len(group):
            raise ValueError(
                f"reward {name!r} gave {len(values)} values for {len(group)} completions; accepted: one each"
            )
    else:
        values = [reward(completion, generator) for completion in group]
    return [_number(name, value, completion) for value, completion in zip(values, group, strict=True)]


def _number(name: str, value: object, completion: Completion) -> float:
    if value is None:
        return math.nan
    if isinstance(value, (str, bytes)) or not np.isscalar(value) or math.isinf(value):
        raise ValueError(f"reward {name!r} gave {value!r} for {completion.text!r}; accepted: a finite number or None")
    return float(value)

"""The divergence alarm: a reward that goes up while the truth goes down is being gamed."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ALARM", "WINDOW", "Watch", "divergence"]

WINDOW, LEAST = 10, 3
ALARM = 0.2
"""Points of accuracy: of runs over 300 steps whose accuracy only fluctuates (32 problems a step) one in 400 passes it."""


def divergence(rewards: Sequence[float | None], accuracies: Sequence[float], window: int = WINDOW) -> float:
    """How far the accuracy stands below where it stood when the reward was no higher than now; 0 if it never did.

    Both are means over the last ``window`` steps (of fewer at the beginning, but 3), compared with every earlier window. It
    asks nothing of the reward's scale, and is 0 throughout where the reward is the accuracy; a missing reward compares with
    nothing.

    >>> accuracies = [0.75, 0.75, 0.75, 0.25, 0.25, 0.25]
    >>> divergence([0.8, 0.8, 0.8, 0.9, 0.9, 0.9], accuracies, window=3), divergence(accuracies, accuracies, window=3)
    (0.5, 0.0)
    """
    if len(rewards) <= LEAST:
        return 0.0
    paid = _means([np.nan if reward is None else reward for reward in rewards], window)
    true = _means(accuracies, window)
    earlier = true[:-1][paid[:-1] <= paid[-1]]
    return float(max(0.0, earlier.max() - true[-1])) if len(earlier) else 0.0


def _means(values: Sequence[float], window: int) -> np.ndarray:
    """The mean over the window that ends at each step from the third on, from running sums; NaN where the window holds one."""
    numbers = np.asarray(values, dtype=float)
    missing = np.isnan(numbers)
    sums, holes = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(missing, 0.0, numbers), missing))
    ends = np.arange(LEAST, len(numbers) + 1)
    starts = np.maximum(0, ends - window)
    # Running sums leave noise in the last digits; rounded, equal windows are equal.
    means = np.round((sums[ends] - sums[starts]) / (ends - starts), 12)
    return np.where(holes[ends] > holes[starts], np.nan, means)


@dataclass
class Watch:
    """What a run was paid and what was true, step by step; it warns once, when the divergence first passes the alarm."""

    rewards: list[float | None] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    fired: bool = False

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "Watch":
        """Go on after the logged steps."""
        watch = cls()
        for row in rows:
            if row.get("accuracy") is not None:
                watch.rewards.append(row["reward"])
                watch.accuracies.append(row["accuracy"])
                watch.fired |= bool(row.get("divergence_alarm"))
        return watch

    def see(self, step: int, reward: float | None, accuracy: float) -> dict[str, float]:
        """The metrics ``divergence`` and ``divergence_alarm`` (1 while it is above the alarm) of one more step."""
        self.rewards.append(reward)
        self.accuracies.append(accuracy)
        apart = divergence(self.rewards, self.accuracies)
        if apart > ALARM and not self.fired:
            self.fired = True
            warnings.warn(
                f"step {step}: divergence alarm: the reward is no lower than before and the accuracy has fallen by "
                f"{100 * apart:.0f} points (means of up to {WINDOW} steps), so it is being gamed",
                stacklevel=2,
            )
        return {"divergence": apart, "divergence_alarm": float(apart > ALARM)}

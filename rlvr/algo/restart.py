"""When training starts over from where it is: the reference becomes the policy and the optimizer forgets.

A rule is a pure function of the number of steps done and of the held-out accuracies measured since the last restart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rlvr.algo.checks import check_count

__all__ = ["Restart", "RestartEvery", "RestartOnStall"]


@runtime_checkable
class Restart(Protocol):
    """Says whether a restart is due after ``step`` steps; ``scores`` are the evaluations since the last one, in order.

    >>> isinstance(RestartEvery(10), Restart)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(self, step: int, scores: Sequence[float]) -> bool: ...


@dataclass(frozen=True)
class RestartEvery:
    """Every so many steps, whatever was measured.

    Kimi k1.5 (arXiv 2501.12599, section 2.3) does so every iteration.

    >>> [step for step in range(25) if RestartEvery(10)(step, [])]
    [10, 20]
    """

    steps: int

    def __post_init__(self) -> None:
        check_count("RestartEvery.steps", self.steps)

    @property
    def formula(self) -> str:
        return f"every {self.steps} steps" if self.steps > 1 else "every step"

    def __call__(self, step: int, scores: Sequence[float]) -> bool:
        return step > 0 and step % self.steps == 0


@dataclass(frozen=True)
class RestartOnStall:
    """When the last ``patience`` evaluations brought no new best.

    ProRL (Liu et al. 2025, arXiv 2505.24864) restarts where validation stalls or falls; the authors judged it by
    eye, over eight runs.

    >>> RestartOnStall(2)(40, [0.5, 0.6, 0.6, 0.55]), RestartOnStall(2)(40, [0.5, 0.6, 0.55, 0.7])
    (True, False)
    """

    patience: int

    def __post_init__(self) -> None:
        check_count("RestartOnStall.patience", self.patience)

    @property
    def formula(self) -> str:
        return f"after {self.patience} evaluations without a new best"

    def __call__(self, step: int, scores: Sequence[float]) -> bool:
        if len(scores) <= self.patience:
            return False
        return max(scores[-self.patience :]) <= max(scores[: -self.patience])

"""How far the policy may go from a reference: a penalty's estimator, strength and place, and what the reference is.

The penalty of a token is unreduced ``[B T]``; masked slots hold 0. Nothing here keeps state: a trainer holds the
coefficient and the reference and asks `KL.next_coef` and `KL.refresh` what becomes of them.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from rlvr.algo.checks import check_count, check_flag, check_number
from rlvr.algo.estimators import K3, Estimator
from rlvr.algo.importance import log_ratio

__all__ = ["KL", "Penalty"]


@runtime_checkable
class Penalty(Protocol):
    """What the slot ``kl`` holds; `KL` is the one piece.

    >>> isinstance(KL(coef=0.1), Penalty)
    True
    """

    @property
    def formula(self) -> str: ...

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...

    def charge(self, old_logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]: ...


@dataclass(frozen=True)
class KL:
    """A penalty β·k on leaving a reference policy, k an estimate of KL(π ‖ π_ref) by token.

    ``coef`` is β. ``place`` says where the penalty stands: ``"loss"`` adds β·k to every token's loss (GRPO);
    ``"reward"`` takes β·k of the sampling policy off the reward, before any baseline, without gradient (RLHF's PPO;
    RLOO); ``"advantage"`` takes the penalties from a token on off its advantage, after the baseline (OpenRLHF).
    In the loss the *gradient* of the estimator is what counts, see `estimators`; ``weighted`` multiplies k by
    ρ = π / π_old, gradient included, which makes every estimator descend KL(π ‖ π_ref) exactly, on the policy's own
    samples or on older ones (DeepSeek-V3.2; TRL use_bias_correction_kl).

    With ``target`` (nats) the coefficient follows the measured divergence: β ← β (1 + clip(KL/target − 1, ±0.2) ·
    n / ``horizon``) for n samples; 0.2 is the bound of Ziegler et al. 2019 (arXiv 1909.08593, section 2.2).

    The reference starts as the policy that training starts from. ``reference_every`` N > 0 moves it every N steps to
    ``reference_decay`` · reference + (1 − ``reference_decay``) · policy: with decay 0 it becomes the policy (N = 400
    in DeepSeek-R1), otherwise a moving average (TRL sync_ref_model: 0.4 every 512 steps).

    >>> import torch
    >>> old = torch.tensor([[-0.6931472, -0.6931472]])
    >>> KL(coef=0.04)(old, old, torch.tensor([[-1.3862944, -0.2876821]]))
    tensor([[0.1931, 0.0945]])
    """

    coef: float
    estimator: Estimator = field(default_factory=K3)
    place: Literal["loss", "reward", "advantage"] = "loss"
    weighted: bool = False
    target: float | None = None
    horizon: float = 10_000
    reference_every: int = 0
    reference_decay: float = 0.0
    step_bound: ClassVar[float] = 0.2

    def __post_init__(self) -> None:
        check_number("KL.coef", self.coef, at_least=0)
        if isinstance(self.estimator, type) or not isinstance(self.estimator, Estimator):
            accepted = "K1(), K2(), K3() or K3StraightThrough()"
            raise ValueError(f"KL.estimator is {self.estimator!r}; accepted: an Estimator object, {accepted}")
        if self.place not in ("loss", "reward", "advantage"):
            raise ValueError(f"KL.place is {self.place!r}; accepted: 'loss', 'reward' or 'advantage'")
        check_flag("KL.weighted", self.weighted)
        if self.weighted and self.place != "loss":
            raise ValueError(f"KL.weighted is True with place {self.place!r}; accepted: True only with place 'loss'")
        if self.target is not None:
            check_number("KL.target", self.target, above=0)
        check_number("KL.horizon", self.horizon, above=0)
        check_count("KL.reference_every", self.reference_every, least=0)
        check_number("KL.reference_decay", self.reference_decay, at_least=0, at_most=1)
        if self.reference_decay and not self.reference_every:
            accepted = "0 with reference_every 0, as a reference that never moves has no average"
            raise ValueError(f"KL.reference_decay is {self.reference_decay!r}; accepted: {accepted}")

    @property
    def formula(self) -> str:
        estimate, comma, meaning = self.estimator.formula.partition(",  ")
        if self.weighted:
            estimate = f"k = ρ ({estimate.removeprefix('k = ')})"
        moves = f",  π_ref ← {self._move()} every {self.reference_every} steps" if self.reference_every else ""
        follows = f",  β follows KL to {self.target:g}" if self.target is not None else ""
        return f"{estimate}{comma}{meaning}{moves}{follows}"

    def _move(self) -> str:
        decay = self.reference_decay
        return f"{decay:g} π_ref + {1 - decay:g} π" if decay else "π"

    def __call__(
        self, logps: Float[Tensor, "B T"], old_logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """k of every token, with its gradient; the caller multiplies by the coefficient."""
        estimate = self.estimator(logps, ref_logps)
        return log_ratio(logps, old_logps).exp() * estimate if self.weighted else estimate

    def charge(self, old_logps: Float[Tensor, "B T"], ref_logps: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """k of every token under the policy that sampled it, without gradient: what a reward is charged, times β."""
        return self.estimator(old_logps.detach(), ref_logps)

    def next_coef(self, coef: float, measured: float, samples: int) -> float:
        """The coefficient after a batch of ``samples`` completions whose mean divergence was ``measured`` nats."""
        if self.target is None or not math.isfinite(measured):
            return coef
        error = min(max(measured / self.target - 1, -self.step_bound), self.step_bound)
        return coef * (1 + error * samples / self.horizon)

    def refresh(self, step: int) -> float:
        """The share of the policy in the reference after ``step`` steps: 0 keeps it, 1 replaces it."""
        due = self.reference_every > 0 and step > 0 and step % self.reference_every == 0
        return 1 - self.reference_decay if due else 0.0

"""What learns, and all that it must remember from one step to the next: weights, optimizers, reference, critic, coefficients.

Pieces of an algorithm are pure functions; whatever changes over steps is kept here and goes into the checkpoint, so that a run
that goes on is bit-equal to one that was never stopped.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from rlvr.algo import Algorithm, BaselineAdvantage
from rlvr.lab.brief import Supplies
from rlvr.lab.rollout import Rollouts
from rlvr.policy import Policy, ValueFunction

__all__ = ["Learner"]

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass
class Learner:
    """A policy in training. ``state`` holds the coefficients in force and the running baseline, ``scores`` the held-out
    accuracies since the last restart."""

    policy: Policy
    algorithm: Algorithm
    optimizer: torch.optim.Optimizer
    reference: Policy | None = None
    critic: ValueFunction | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    state: dict[str, float] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, policy: Policy, algorithm: Algorithm, optimizer: MakeOptimizer, critic: MakeOptimizer) -> "Learner":
        """A learner at its start: the reference is the policy that training starts from, the critic a copy of its body."""
        learner = cls(policy, algorithm, optimizer(policy.model.parameters()))
        if algorithm.kl is not None:
            learner.reference = copy.deepcopy(policy)
            learner.state["kl_coef"] = algorithm.kl.coef
        if algorithm.entropy is not None:
            learner.state["entropy_coef"] = algorithm.entropy.coef
        if _baseline(algorithm) == "running":
            learner.state["baseline"] = algorithm.advantage.start
        if algorithm.critic is not None:
            learner.critic = policy.critic()
            learner.critic_optimizer = critic(learner.critic.model.parameters())
        return learner

    def modules(self) -> dict[str, nn.Module]:
        """All weights, by the name they have in a checkpoint."""
        owners = {"model": self.policy, "reference": self.reference, "critic": self.critic}
        return {name: owner.model for name, owner in owners.items() if owner is not None}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """All optimizers, by the name they have in a checkpoint."""
        found = {"optimizer": self.optimizer, "critic_optimizer": self.critic_optimizer}
        return {name: optimizer for name, optimizer in found.items() if optimizer is not None}

    def set_rates(self, rate: float, critic_rate: float) -> None:
        """The learning rates of the next step."""
        for optimizer, value in ((self.optimizer, rate), (self.critic_optimizer, critic_rate)):
            for group in optimizer.param_groups if optimizer is not None else ():
                group["lr"] = value

    def supplies(self, step: int, rollouts: Rollouts, greedy: Tensor | None, draws: np.ndarray | None) -> Supplies:
        """What the algorithm needs beside the rollouts; ``greedy`` [P] are the rewards of greedy answers, if it asks."""
        baseline = greedy
        if "baseline" in self.state:
            baseline = torch.full((len(rollouts.problems),), self.state["baseline"], dtype=rollouts.rewards.dtype)
        entropy = 0.0
        if self.algorithm.entropy is not None:
            entropy = self.algorithm.entropy.used(self.state["entropy_coef"], _entropy(rollouts))
        return Supplies(
            self.reference,
            self.critic,
            self.critic_optimizer,
            baseline,
            draws,
            self.state.get("kl_coef", 0.0),
            entropy,
            self.algorithm.critic is not None and step < self.algorithm.critic.warmup_steps,
        )

    def after(self, step: int, batch: Rollouts | None, measured: Mapping[str, float]) -> dict[str, float]:
        """Move what follows a step (coefficients, baseline, reference); returns what was in force in it.

        A step that found no batch moves what goes by steps and evaluations only.
        """
        algorithm, used = self.algorithm, dict(self.state)
        if batch is not None:
            used |= self._follow(batch, measured)
        if algorithm.kl is not None:
            used["kl/reference_moved"] = algorithm.kl.refresh(step + 1)
            self._pull_reference(used["kl/reference_moved"])
        if algorithm.restart is not None:
            used["restart"] = float(algorithm.restart(step + 1, self.scores))
        if used.get("restart"):
            self._pull_reference(1.0)
            self.optimizer.state.clear()
            self.scores.clear()
        return used

    def _follow(self, batch: Rollouts, measured: Mapping[str, float]) -> dict[str, float]:
        """Move what follows a batch; returns the coefficients that it didn't get from the state as they are."""
        algorithm, state, used = self.algorithm, self.state, {}
        if algorithm.kl is not None:
            state["kl_coef"] = algorithm.kl.next_coef(state["kl_coef"], measured["kl/sequence"], len(batch.texts))
        if algorithm.entropy is not None:
            entropy = _entropy(batch)
            used["entropy_coef"] = algorithm.entropy.used(state["entropy_coef"], entropy)
            state["entropy_coef"] = algorithm.entropy.next_coef(state["entropy_coef"], entropy)
        if "baseline" in state:
            state["baseline"] = algorithm.advantage.next_baseline(state["baseline"], batch.rewards)
        return used

    def _pull_reference(self, share: float) -> None:
        if share and self.reference is not None:
            with torch.no_grad():
                pairs = zip(self.reference.model.parameters(), self.policy.model.parameters(), strict=True)
                for kept, new in pairs:
                    kept.lerp_(new, share) if share < 1 else kept.copy_(new)


def _baseline(algorithm: Algorithm) -> str | None:
    return algorithm.advantage.needs_baseline if isinstance(algorithm.advantage, BaselineAdvantage) else None


def _entropy(rollouts: Rollouts) -> float:
    samples = rollouts.samples
    return float(samples.entropies[samples.mask].double().mean()) if samples.mask.any() else float("nan")

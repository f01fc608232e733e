"""What one batch asks of the policy, settled before anything moves: masks, advantages, references, weights.

Everything here is a constant of the batch: scoring again in smaller parts, or several times, can't change it. What the
policy is compared with is read in the parts that the policy will be scored in, so that equal weights give equal numbers to
the last bit: a rounding would be a gradient, and Adam makes any gradient as large as another.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rlvr.algo import AdaptiveEntropy, Algorithm, AllTokens, Credit, assign, needs
from rlvr.lab.rollout import Rollouts
from rlvr.policy import Decoding, Policy, ValueFunction

__all__ = ["Brief", "Supplies", "asked", "brief", "minibatches"]

ROUNDING = 1e-4  # of log-probabilities that are the same


class Supplies(NamedTuple):
    """What an algorithm may need beside samples and rewards (`rlvr.algo.needs`): who supplies it is the trainer's business.

    ``baseline`` [P] is for pieces that name one, ``draws`` [B T] uniform numbers for a focus; the coefficients are those in
    force, None for the algorithm's own. With ``critic_only`` the policy stays as it is.
    """

    reference: Policy | None = None
    critic: ValueFunction | None = None
    critic_optimizer: torch.optim.Optimizer | None = None
    baseline: Float[Tensor, " P"] | None = None
    draws: np.ndarray | None = None
    kl_coef: float | None = None
    entropy_coef: float | None = None
    critic_only: bool = False


class Brief(NamedTuple):
    """Constants of a batch, [B T] unless said otherwise; what the algorithm doesn't use is None.

    ``mask`` holds the tokens of kept rows. ``old_logps`` are of the policy that the first update starts from.
    """

    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    old_logps: Float[Tensor, "B T"]
    ref_logps: Float[Tensor, "B T"] | None
    mismatch: Float[Tensor, "B T"] | None
    values: Float[Tensor, "B T"] | None
    returns: Float[Tensor, "B T"] | None
    kl_coef: float
    entropy_coef: float
    measured: Mapping[str, float]


@torch.no_grad()
def brief(
    policy: Policy | None,
    rollouts: Rollouts,
    algorithm: Algorithm,
    decoding: Decoding,
    supplies: Supplies,
    micro_rows: int | None = None,
) -> Brief:
    """Settle a batch: which tokens count, what each is worth, and what the loss compares the policy with."""
    _check(policy, algorithm, supplies)
    samples, kl, critic = rollouts.samples, algorithm.kl, supplies.critic
    ended = samples.mask.cpu() & (samples.finished.cpu() | (not algorithm.mask_truncated))[:, None]
    mask = ended & algorithm.select(rollouts.rewards, rollouts.correct).flatten()[:, None]

    def read(owner: Policy | ValueFunction, ask: Callable[..., Tensor]) -> Tensor:
        parts = _parts(mask, rollouts.group_size, algorithm.minibatches, micro_rows or len(mask))
        found = torch.cat([ask(*asked(owner, rollouts, rows)).cpu() for rows in parts])
        return found[torch.cat(parts).argsort()]

    def score(owner: Policy) -> Tensor:
        return read(owner, lambda *rows: owner.score(*rows, decoding).logps)

    sampled = samples.logps.cpu()
    old = sampled if policy is None else _old(algorithm, sampled, lambda: score(policy))
    mismatch = None if algorithm.mismatch is None else algorithm.mismatch(old, sampled, mask)
    reference = None if kl is None else score(supplies.reference)
    values = None if critic is None else read(critic, critic.values)
    charge = None
    if kl is not None:
        # Equal weights are one policy, whatever its sampler rounded.
        now = reference if _equal(policy, supplies.reference) else old
        charge = torch.where(samples.mask.cpu(), kl.charge(now, reference), 0.0)
    kl_coef, entropy_coef = _coefficients(algorithm, supplies)
    credit = _credit(rollouts, algorithm, mask, charge, kl_coef, supplies.baseline, values)
    return Brief(
        mask,
        credit.advantages.flatten(0, 1),
        old,
        reference,
        mismatch,
        values,
        None if credit.returns is None else credit.returns.flatten(0, 1),
        kl_coef,
        entropy_coef,
        {} if charge is None else _divergence(charge, samples.mask.cpu()),
    )


def _old(algorithm: Algorithm, sampled: Tensor, score: Callable[[], Tensor]) -> Tensor:
    """log π_old: the sampler's; the trainer's own where the sampler is another engine, or where there was none."""
    reads = algorithm.kl is not None or not isinstance(algorithm.focus, AllTokens)
    if algorithm.mismatch is not None or (algorithm.source == "gold" and reads):
        return score()
    pulls = algorithm.loss.reads_advantage and not algorithm.loss.needs_advantage
    if not pulls and not algorithm.focus.pulls_back:
        return sampled
    # Here log π − log π_old is a gradient without an advantage.
    trained = score()
    return torch.where((trained - sampled).abs() < ROUNDING, trained, sampled)


def _credit(
    rollouts: Rollouts,
    algorithm: Algorithm,
    mask: Tensor,
    charge: Tensor | None,
    kl_coef: float,
    baseline: Tensor | None,
    values: Tensor | None,
) -> Credit:
    rewards, shape = rollouts.rewards, (*rollouts.rewards.shape, -1)
    paid = algorithm.kl is not None and algorithm.kl.place != "loss"
    return assign(
        algorithm.advantage,
        rewards,
        mask.view(shape),
        charge=kl_coef * charge.to(rewards.dtype).view(shape) if paid else None,
        sampled=rollouts.samples.mask.cpu().view(shape),
        place=algorithm.kl.place if paid else "reward",
        baseline=baseline,
        values=None if values is None else values.to(rewards.dtype).view(shape),
    )


def _coefficients(algorithm: Algorithm, supplies: Supplies) -> tuple[float, float]:
    """Those in force of KL and entropy: 0 where the algorithm has none."""
    pairs = ((algorithm.kl, supplies.kl_coef), (algorithm.entropy, supplies.entropy_coef))
    kl, entropy = (0.0 if piece is None else piece.coef if given is None else given for piece, given in pairs)
    return kl, entropy


def _divergence(charge: Tensor, sampled: Tensor) -> dict[str, float]:
    """How far the policy is from its reference in nats, over everything that was sampled, kept or not."""
    return {"kl": float(charge.sum() / sampled.sum().clamp(min=1)), "kl/sequence": float(charge.sum(1).mean())}


def _check(policy: Policy | None, algorithm: Algorithm, supplies: Supplies) -> None:
    """A setting whose supply is missing is refused, never ignored."""
    critic = supplies.critic if supplies.critic_optimizer is not None else None
    there = {"reference": supplies.reference, "values": critic, "draws": supplies.draws, "trainer logps": policy}
    for name, setting in needs(algorithm).items():
        supplied = supplies.baseline if name.endswith("baseline") else there.get(name, True)
        if supplied is None:
            raise ValueError(f"{setting} needs {name} and there is none; accepted: supplies with {name}")
    asks_samples = {
        "kl": algorithm.kl is not None and algorithm.kl.target is not None,
        "entropy": isinstance(algorithm.entropy, AdaptiveEntropy),
        "mismatch": algorithm.mismatch is not None,
        "sampling_rounds": algorithm.sampling_rounds > 1,
    }
    for slot in (slot for slot, asks in asks_samples.items() if asks and algorithm.source == "gold"):
        raise ValueError(
            f"{slot}={vars(algorithm)[slot]!r} asks samples and source is 'gold'; accepted: source='policy'"
        )


def minibatches(problems: int, count: int) -> list[slice]:
    """The problems of each optimizer step of a pass, in order, in parts as equal as can be."""
    if count > problems:
        raise ValueError(f"minibatches = {count} but there are only {problems} problems in a batch")
    edges = [problems * i // count for i in range(count + 1)]
    return [slice(low, high) for low, high in itertools.pairwise(edges)]


def _parts(mask: Tensor, group: int, count: int, micro_rows: int) -> list[Tensor]:
    """All rows: the kept ones as the optimizer steps of a pass score them, then the others."""
    kept, parts = mask.any(1), []
    for problems in minibatches(len(mask) // group, count):
        rows = torch.arange(problems.start * group, problems.stop * group)
        parts += rows[kept[rows]].split(micro_rows)
    parts += (~kept).nonzero()[:, 0].split(micro_rows)
    return [part for part in parts if len(part)]


def _equal(policy: Policy, other: Policy) -> bool:
    mine, others = (list(each.model.parameters()) for each in (policy, other))
    return len(mine) == len(others) and all(map(torch.equal, mine, others))


def asked(owner: Policy | ValueFunction, rollouts: Rollouts, rows: Tensor) -> tuple[Sequence, Tensor, Tensor, Tensor]:
    """Some rows as a policy or a critic wants them, on its own device: problems, index, tokens and mask."""
    device, samples = next(owner.model.parameters()).device, rollouts.samples
    tokens, mask = (table[rows.to(table.device)].to(device) for table in (samples.tokens, samples.mask))
    return rollouts.problems, rollouts.index[rows].to(device), tokens, mask

"""What a step is logged as; names are the field's own.

``accuracy`` and the group fractions read verdicts, ``reward`` and ``frac_reward_zero_std`` read rewards: where they part,
the reward is being gamed.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from rlvr.lab.rollout import Rollouts

__all__ = ["kept_metrics", "spend", "step_metrics"]


def step_metrics(rollouts: Rollouts) -> dict[str, float | None]:
    """Metrics of one batch of sampled completions; lengths are in tokens with EOS, entropy in nats a token.

    ``completions/mean_length_right`` is ``None`` when nothing was right. Groups with a missing reward are judged by what
    is left; ``rewards/unscored`` counts the missing ones.
    """
    correct, rewards, mask = rollouts.correct, rollouts.rewards, rollouts.samples.mask.cpu()
    share = correct.double().mean(1)
    lengths, right = mask.sum(1).double(), correct.flatten()
    spread = rewards.nan_to_num(nan=-torch.inf).amax(1) - rewards.nan_to_num(nan=torch.inf).amin(1)
    metrics = {
        "reward": _mean(rewards[~rewards.isnan()]),
        "accuracy": float(correct.double().mean()),
        "groups/all_right": float((share == 1).double().mean()),
        "groups/all_wrong": float((share == 0).double().mean()),
        "groups/mixed": float(((share > 0) & (share < 1)).double().mean()),
        "frac_reward_zero_std": float((spread <= 0).double().mean()),
        "rewards/unscored": float(rewards.isnan().sum()),
        "entropy": _mean(rollouts.samples.entropies.cpu()[mask]),
        "completions/mean_length": float(lengths.mean()),
        "completions/mean_length_right": _mean(lengths[right]),
        "completions/mean_length_wrong": _mean(lengths[~right]),
        "completions/clipped_ratio": float((~rollouts.samples.finished).double().mean()),
    }
    for name, paid in rollouts.rewards_by_function.items():
        metrics[f"rewards/{name}/mean"] = _mean(paid[~paid.isnan()])
    return metrics


def kept_metrics(batch: Rollouts | None, rounds: int) -> dict[str, float | None]:
    """What dynamic sampling did: rounds drawn, prompts kept, and the accuracy of what is learned from beside that of all."""
    kept = 0 if batch is None else len(batch.problems)
    accuracy = None if batch is None else float(batch.correct.double().mean())
    return {"sampling/rounds": float(rounds), "sampling/prompts_kept": float(kept), "accuracy/kept": accuracy}


def spend(budget: Mapping[str, float], rollouts: Rollouts, sampled: bool, updates: float, seconds: float) -> dict:
    """The budget after one more step: completions and tokens drawn, demonstrations read, updates, seconds of training."""
    drawn = len(rollouts.texts)
    return {
        "samples": budget["samples"] + drawn * sampled,
        "tokens": budget["tokens"] + int(rollouts.samples.mask.sum()) * sampled,
        "demonstrations": budget["demonstrations"] + drawn * (not sampled),
        "updates": budget["updates"] + int(updates),
        "seconds": budget["seconds"] + seconds,
    }


def _mean(values: Tensor) -> float | None:
    return float(values.double().mean()) if values.numel() else None

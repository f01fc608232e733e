"""Honest numbers: intervals that name their unit of resampling, and unbiased pass@k. No tensors, no files."""

from rlvr.stats.intervals import (
    Interval,
    accuracy_over_seeds,
    bootstrap_seeds_problems,
    over_problems,
    over_seeds,
    paired_difference,
    share_over_problems,
    wilson,
)
from rlvr.stats.passk import maj_at_k, maj_at_k_sampled, mean_pass_at_k, pass_at_k

__all__ = [
    "Interval",
    "accuracy_over_seeds",
    "bootstrap_seeds_problems",
    "maj_at_k",
    "maj_at_k_sampled",
    "mean_pass_at_k",
    "over_problems",
    "over_seeds",
    "paired_difference",
    "pass_at_k",
    "share_over_problems",
    "wilson",
]

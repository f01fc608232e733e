"""The area under the ROC curve: how often a right example gets the higher score."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

__all__ = ["auc"]


def auc(scores: ArrayLike, right: ArrayLike) -> float:
    """P(score of a right example > score of a wrong one), ties counting one half; NaN without both.

    Mann and Whitney's U over the number of pairs.

    >>> auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False])
    0.875
    """
    scores, right = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool)
    if scores.shape != right.shape or scores.ndim != 1:
        raise ValueError(f"auc: scores {scores.shape} and right {right.shape}; accepted: two lists of one length")
    if not np.isfinite(scores).all():
        raise ValueError("auc: scores hold NaN or infinity; accepted: finite numbers")
    hits, misses = int(right.sum()), int((~right).sum())
    if not hits or not misses:
        return float("nan")
    return float((rankdata(scores)[right].sum() - hits * (hits + 1) / 2) / (hits * misses))

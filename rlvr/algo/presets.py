"""The algorithms by name: each is an earlier row with slots replaced, and says what fixes every value.

The rows stand in `reinforce_rows` and `grpo_rows`. Numbers that a paper doesn't give, or that only make sense for its
models, are marked as ours. What is no part of an algorithm stays out of the rows: rewards (DAPO's soft punishment of long
completions, Kimi's length reward), curricula and pools of problems (Kimi's prioritised sampling, ScaleRL's
no-positive-resampling: `rlvr.lab.curriculum`), learning rates. Where today's libraries do something else under the same
name: `likes`.
"""

from rlvr.algo import grpo_rows, reinforce_rows
from rlvr.algo.algorithm import Algorithm
from rlvr.algo.register import PRESETS, SOURCES, SUMMARIES

__all__ = ["PRESETS", "ROWS", "SOURCES", "SUMMARIES", "preset"]

ROWS = (reinforce_rows, grpo_rows)
"""The modules whose rows are registered, in this order."""


def preset(name: str) -> Algorithm:
    """The row of that name; an unknown name is refused with the known ones.

    >>> preset("dapo").sampling_rounds
    10
    """
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}; accepted: {', '.join(sorted(PRESETS))}")
    return PRESETS[name]

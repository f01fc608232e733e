"""Rewards of text tasks: right in whatever form, and what reasoning-gym's own scorer pays."""

import numpy as np

from rlvr.rewards.base import Completion
from rlvr.tasks.gym import own_score

__all__ = ["gym_score", "lenient"]


def lenient(completion: Completion, generator: np.random.Generator) -> float | None:
    """1 when the answer is right, also outside of the form that the prompt asks for; ``None`` when the grader failed.

    Under strict grading (`rlvr.tasks.text.judge`) such a text has the kind ``form``: paid here, not by ``correct``.

    >>> from rlvr.types import Problem, Verdict
    >>> loose = Completion(Problem("6 * 7?", "42"), "It is 42.", Verdict(False, "form", "42"), True)
    >>> lenient(loose, np.random.default_rng(0))
    1.0
    """
    if completion.verdict.kind == "error":
        return None
    return float(completion.verdict.correct or completion.verdict.kind == "form")


def gym_score(completion: Completion, generator: np.random.Generator) -> float | None:
    """What the scorer of a ``gym:`` task pays, between 0 and 1, its holes included; ``None`` when it could not be asked.

    The verdict may be stricter (`rlvr.tasks.gym_checks`): where the two part, a policy has learned the scorer and not the
    task. Other tasks have no such scorer, so nothing of theirs can be scored.

    >>> gym_score(completion, np.random.default_rng(0))  # doctest: +SKIP
    0.05
    """
    if "place" not in completion.problem.meta:
        return None
    found = own_score(completion.problem, completion.text)
    return None if found.kind == "error" else float(found.score or 0.0)

"""The words every floor shares: a problem, a verdict on a text, and a batch of sampled completions.

Axes, named once and used everywhere:

====  ==========================================================
P     problems (prompts) in a batch
G     group: the samples drawn for one problem
B     rows, ``B = P * G``, problem-major: row ``p * G + g``
T     token positions of a completion, EOS included
V     vocabulary
====  ==========================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Problem", "Samples", "Verdict"]


@dataclass(frozen=True)
class Problem:
    """One question with its answer; ``meta`` holds the task's own facts (difficulty, hidden structure).

    >>> Problem("?a1:", "b", {"k": 1}).answer
    'b'
    """

    prompt: str
    answer: str
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The truth about one completion: right or wrong, in which way, and the answer that was read from it.

    ``kind`` is ``"correct"`` or one of the task's failure kinds; ``answer`` is ``None`` when no answer could be read,
    and such a completion never wins a vote.

    >>> Verdict(False, "no_bar").answer is None
    True
    """

    correct: bool
    kind: str
    answer: str | None = None


class Samples(NamedTuple):
    """A batch of completions, padded on the right.

    ``mask`` is true up to and including EOS and false after it. ``logps`` are under the distribution that was really
    sampled (temperature, truncation included), ``entropies`` are that distribution's exact entropies in nats; both are
    0 where the mask is false. A row that met its length limit is not ``finished`` and its last token is what the policy
    drew, never an EOS written over it.
    """

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    logps: Float[Tensor, "B T"]
    entropies: Float[Tensor, "B T"]
    finished: Bool[Tensor, " B"]

"""Being paid by a learned verifier, or by several."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rlvr.rewards.base import BatchReward, Completion
from rlvr.rewards.models import Verifier, combined, open_verifier
from rlvr.rewards.rules import FORM

__all__ = ["Verified"]


@dataclass
class Verified(BatchReward):
    """A verifier's score of the text, 0 to 1; of several verifiers their ``mean``, ``min`` or ``variance``-weighted score.

    ``path`` is a verifier's folder or several, counted from the run folder. With ``gate`` a text without the form (a chain, one
    bar, one answer, the end sign) gets 0 whatever its score: a factor, not a bonus. With ``refresh_every`` M the training loop
    labels ``labels`` of the policy's newest samples every M steps and trains the verifier on them for ``refresh_steps``.

    >>> Verified(path="../orm-s0", gate=True).combine
    'mean'
    """

    path: str | tuple[str, ...] = ""
    combine: Literal["mean", "min", "variance"] = "mean"
    penalty: float = 1.0
    gate: bool = False
    refresh_every: int = 0
    labels: int = 32
    refresh_steps: int = 20
    verifiers: tuple[Verifier, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("verifier: path = ''; accepted: the folder of a trained verifier, or several in brackets")
        if self.combine not in ("mean", "min", "variance"):
            raise ValueError(f"verifier: combine = {self.combine!r}; accepted: 'mean', 'min' or 'variance'")
        for name in ("refresh_every", "labels", "refresh_steps"):
            if not isinstance(vars(self)[name], int) or vars(self)[name] < 0:
                raise ValueError(f"verifier: {name} = {vars(self)[name]!r}; accepted: a whole number >= 0")

    @property
    def paths(self) -> tuple[str, ...]:
        """The folders as they were given."""
        return (self.path,) if isinstance(self.path, str) else tuple(self.path)

    def open(self, folder: Path) -> None:
        """Load the verifiers."""
        self.verifiers = tuple(open_verifier(Path(os.path.normpath(Path(folder, path)))) for path in self.paths)

    def of_batch(
        self, groups: Sequence[Sequence[Completion]], generator: np.random.Generator
    ) -> list[list[float | None]]:
        """Scores between 0 and 1, all distinct texts of the batch in one pass."""
        if not self.verifiers:
            raise ValueError(f"verifier {self.path!r} is not open; accepted: open(folder) before the first batch")
        problems = [group[0].problem for group in groups]
        rows = [(place, completion.text) for place, group in enumerate(groups) for completion in group]
        index, texts = [place for place, _ in rows], [text for _, text in rows]
        each = torch.stack([verifier.score(problems, index, texts) for verifier in self.verifiers]).double()
        scores = combined(each, self.combine, self.penalty).tolist()
        if self.gate:
            scores = [s * bool(re.fullmatch(FORM, text)) for s, text in zip(scores, texts, strict=True)]
        paid = iter(scores)
        return [[next(paid) for _ in group] for group in groups]

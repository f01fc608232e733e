"""Learned verifiers: transformers with one number where the logits were, which say how likely a text is right.

An outcome verifier (ORM) judges a whole text; a process verifier (PRM) judges every prefix, one token a step. Both are right
only about texts like those that they were trained on; what reinforcement learning makes of that is experiment 04.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from torch import Tensor

from rlvr.policy import CharTokenizer, LabCritic, LabPolicy
from rlvr.types import Problem

__all__ = ["AGGREGATES", "Verifier", "combined", "open_verifier"]

Kind = Literal["orm", "prm"]
Combine = Literal["mean", "min", "variance"]
AGGREGATES = ("last", "min", "product")
# Distinct texts read in one pass: beyond this they leave the processor's cache.
TEXTS_AT_ONCE = 2000


@dataclass(frozen=True)
class Verifier:
    """A verifier of kind ``"orm"`` or ``"prm"``; ``aggregate`` makes one score of a PRM's steps.

    A step is a token. ``last`` is Snell et al. 2024 (arXiv 2408.03314), ``min`` Math-Shepherd (arXiv 2312.08935), ``product``
    Lightman et al. 2023 (arXiv 2305.20050), which favours short texts. An ORM has its last step only.

    >>> verifier = Verifier.of(LabPolicy.create("ab:$", "$", seed=0), "orm")
    >>> verifier.score([Problem("a:", "a")], [0, 0], ["a$", "bb$"])
    tensor([0.5000, 0.5000])
    """

    critic: LabCritic
    tokenizer: CharTokenizer
    kind: Kind = "orm"
    aggregate: str = "last"

    def __post_init__(self) -> None:
        if self.kind not in ("orm", "prm"):
            raise ValueError(f"verifier: kind = {self.kind!r}; accepted: 'orm' or 'prm'")
        accepted = ("last",) if self.kind == "orm" else AGGREGATES
        if self.aggregate not in accepted:
            raise ValueError(f"{self.kind}: aggregate = {self.aggregate!r}; accepted: {', '.join(accepted)}")

    @classmethod
    def of(cls, policy: LabPolicy, kind: Kind = "orm", aggregate: str = "last") -> "Verifier":
        """A verifier that knows nothing yet (every score is 1/2), with a copy of the policy's body.

        >>> Verifier.of(LabPolicy.create("ab:$", "$", seed=0), "prm", "min").kind
        'prm'
        """
        return cls(policy.critic(), policy.tokenizer, kind, aggregate)

    def logits(
        self, problems: Sequence[Problem], index: Sequence[int], texts: Sequence[str]
    ) -> tuple[Float[Tensor, "R T+1"], Bool[Tensor, "R T+1"]]:
        """The log-odds of being right after the prompt and after each token of each text, and which of them exist.

        Row r is a text to ``problems[index[r]]``. Gradients flow into the parameters.

        >>> verifier = Verifier.of(LabPolicy.create("ab:$", "$", seed=0), "prm")
        >>> verifier.logits([Problem("a:", "a")], [0, 0], ["a$", ""])[1]
        tensor([[ True,  True,  True],
                [ True, False, False]])
        """
        ids = [self.tokenizer.encode(text) for text in texts]
        device, width = self.critic.model.embed.weight.device, max(map(len, ids), default=0) + 1
        # A critic values the state before a token is drawn, so a text is followed by one token that is never read.
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids], device=device).view(len(ids), width)
        ends = torch.tensor([len(row) for row in ids], device=device)
        exists = torch.arange(width, device=device) <= ends[:, None]
        return self.critic.values(problems, torch.tensor(index, device=device).long(), tokens, exists), exists

    @torch.no_grad()
    def steps(self, problems: Sequence[Problem], index: Sequence[int], texts: Sequence[str]) -> Float[Tensor, "R T"]:
        """A PRM's probability that all is right so far, after each token; NaN after the end of a text.

        >>> verifier = Verifier.of(LabPolicy.create("ab:$", "$", seed=0), "prm")
        >>> verifier.steps([Problem("a:", "a")], [0, 0], ["a$", "b"])
        tensor([[0.5000, 0.5000],
                [0.5000,    nan]])
        """
        if self.kind != "prm":
            raise ValueError("an orm was trained on whole texts and has no scores for steps; accepted: a prm")
        logits, exists = self.logits(problems, index, texts)
        return torch.where(exists, logits.sigmoid(), torch.nan)[:, 1:]

    @torch.no_grad()
    def score(self, problems: Sequence[Problem], index: Sequence[int], texts: Sequence[str]) -> Float[Tensor, " R"]:
        """How likely each text is right, between 0 and 1; equal texts to one problem are read once.

        A PRM may be asked about the beginning of a text as well.

        >>> verifier = Verifier.of(LabPolicy.create("ab:$", "$", seed=0), "prm", "product")
        >>> verifier.score([Problem("a:", "a")], [0, 0], ["a$", "b"])
        tensor([0.2500, 0.5000])
        """
        rows = list(zip(index, texts, strict=True))
        place = {row: number for number, row in enumerate(sorted(set(rows)))}
        distinct, parts = list(place), [torch.zeros(0)]
        for low in range(0, len(distinct), TEXTS_AT_ONCE):
            chosen = distinct[low : low + TEXTS_AT_ONCE]
            used = sorted({problem for problem, _ in chosen})
            local = {problem: number for number, problem in enumerate(used)}
            asked = [problems[problem] for problem in used]
            parts.append(self._whole(asked, [local[problem] for problem, _ in chosen], [text for _, text in chosen]))
        return torch.cat(parts)[[place[row] for row in rows]]

    def _whole(self, problems: Sequence[Problem], index: Sequence[int], texts: Sequence[str]) -> Tensor:
        logits, exists = self.logits(problems, index, texts)
        ends = exists.sum(1, keepdim=True) - 1
        if self.aggregate == "last":
            return logits.gather(1, ends)[:, 0].sigmoid().cpu()
        exists[:, :1] = ends == 0  # the prompt is no step, but all there is to an empty text
        steps = torch.where(exists, logits.sigmoid(), 1.0)
        return (steps.amin(1) if self.aggregate == "min" else steps.prod(1)).cpu()

    def config(self) -> dict[str, Any]:
        """What ``open_verifier`` needs beside the weights, as plain data.

        >>> Verifier.of(LabPolicy.create("ab:$", "$", seed=0)).config()["kind"]
        'orm'
        """
        shape = {name: value for name, value in vars(self.critic.model.config).items() if name != "vocab"}
        return {
            "kind": self.kind,
            "aggregate": self.aggregate,
            "alphabet": self.tokenizer.alphabet,
            "eos": self.tokenizer.eos,
            "shape": shape,
        }


def open_verifier(folder: Path) -> Verifier:
    """The trained verifier of a folder: its ``config.json`` and ``model.safetensors``.

    >>> open_verifier(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere holds no trained verifier: it needs config.json with 'verifier', and model.safetensors
    """
    config, weights = Path(folder, "config.json"), Path(folder, "model.safetensors")
    made = json.loads(config.read_text(encoding="utf-8")).get("verifier") if config.is_file() else None
    if not isinstance(made, Mapping) or not weights.is_file():
        raise ValueError(
            f"{folder} holds no trained verifier: it needs config.json with 'verifier', and model.safetensors"
        )
    policy = LabPolicy.create(made["alphabet"], made["eos"], seed=0, **made["shape"])
    verifier = Verifier.of(policy, made["kind"], made["aggregate"])
    verifier.critic.model.load_state_dict(load_file(weights))
    return verifier


def combined(scores: Float[Tensor, "M R"], how: Combine, penalty: float = 1.0) -> Float[Tensor, " R"]:
    """One score from those of M verifiers: their mean, the worst (``min``), or mean - penalty · variance (``variance``).

    Coste et al. 2024 (arXiv 2310.02743); their penalty of 0.5 is for scores of variance 1 and is 1 on probabilities of variance
    at most 1/4.

    >>> combined(torch.tensor([[0.2], [0.6]]), "variance", penalty=1.0)
    tensor([0.3600])
    """
    if how == "mean":
        return scores.mean(0)
    if how == "min":
        return scores.amin(0)
    if how != "variance":
        raise ValueError(f"combine = {how!r}; accepted: 'mean', 'min' or 'variance'")
    return scores.mean(0) - penalty * scores.var(0, correction=0)

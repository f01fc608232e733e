"""What a verifier learns from: completions with the truth about them, drawn, labelled, kept in files and learned."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from rlvr.lab.jsonl import iter_jsonl
from rlvr.policy import Decoding, Policy
from rlvr.rewards import Verifier
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["EXAMPLES", "Example", "draw_examples", "example_of", "examples_of", "fit", "labels_of", "row_of"]

EXAMPLES = "examples.jsonl"


class Example(NamedTuple):
    """A completion with the truth about it."""

    problem: Problem
    text: str
    correct: bool
    kind: str


def draw_examples(
    policy: Policy, task: Task, problems: Sequence[Problem], samples: int, generator: np.random.Generator
) -> list[Example]:
    """The policy's own completions at temperature 1, judged by the task; equal ones stand as often as they were drawn."""
    limits = [task.limit(problem) for problem in problems]
    draws = generator.random((len(problems) * samples, max(limits)))
    drawn = policy.sample(problems, samples, draws, limits, Decoding(1.0))
    found = []
    for row, (ids, length) in enumerate(zip(drawn.tokens.tolist(), drawn.mask.sum(1).tolist(), strict=True)):
        problem, text = problems[row // samples], policy.decode(ids[:length])
        verdict = task.verify(problem, text)
        found.append(Example(problem, text, verdict.correct, verdict.kind))
    return found


def labels_of(task: Task, example: Example) -> list[float]:
    """For each token of a text whether all is right so far: it begins the demonstration, or the verdict on it is right.

    >>> from rlvr.tasks import TASKS
    >>> problem = Problem("ab,ba,?a2:", "a", {"k": 2, "orbit": "bababab"})
    >>> labels_of(TASKS["pointer"], Example(problem, "bb|a$", True, "correct"))
    [1.0, 0.0, 0.0, 1.0, 1.0]
    """
    gold, text = task.gold(example.problem), example.text
    parts = [text[: end + 1] for end in range(len(text))]
    return [float(gold.startswith(part) or task.verify(example.problem, part).correct) for part in parts]


def _targets(verifier: Verifier, task: Task, examples: Sequence[Example], width: int) -> tuple[Tensor, Tensor]:
    """Labels [R T+1] and which of them are learned from: an ORM's last, each token's of a PRM."""
    labels, counted = torch.zeros(2, len(examples), width)
    for row, example in enumerate(examples):
        end = len(example.text)
        if verifier.kind == "orm":
            labels[row, end], counted[row, end] = float(example.correct), 1.0
        else:
            labels[row, 1 : end + 1] = torch.tensor(labels_of(task, example))
            counted[row, 1 : end + 1] = 1.0
    return labels, counted


def fit(
    verifier: Verifier,
    task: Task,
    batches: Sequence[Sequence[Example]],
    learning_rate: float,
    warmup_steps: int = 20,
    decay: bool = True,
) -> list[float]:
    """Binary cross-entropy on batch after batch, from a fresh optimizer; returns the losses."""
    model, losses = verifier.critic.model, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    for step, batch in enumerate(batches):
        falling = 0.1 + 0.45 * (1 + math.cos(math.pi * step / len(batches))) if decay else 1.0
        optimizer.param_groups[0]["lr"] = learning_rate * falling * min(1.0, (step + 1) / max(1, warmup_steps))
        logits, exists = verifier.logits([e.problem for e in batch], range(len(batch)), [e.text for e in batch])
        labels, counted = _targets(verifier, task, batch, exists.shape[1])
        each = F.binary_cross_entropy_with_logits(logits, labels.to(logits), reduction="none")
        loss = (each * counted.to(logits)).sum() / counted.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def row_of(example: Example) -> dict[str, Any]:
    """An example as plain data."""
    problem = example.problem
    facts = {"prompt": problem.prompt, "answer": problem.answer, "meta": dict(problem.meta)}
    return facts | {"completion": example.text, "correct": example.correct, "kind": example.kind}


def example_of(row: Mapping[str, Any]) -> Example:
    """An example from plain data.

    >>> example = Example(Problem("?a1:", "b", {"k": 1}), "b|b$", True, "correct")
    >>> example_of(row_of(example)) == example
    True
    """
    problem = Problem(row["prompt"], row["answer"], row["meta"])
    return Example(problem, row["completion"], row["correct"], row["kind"])


def examples_of(folder: Path) -> list[Example]:
    """What the verifier in a folder was trained on."""
    return [example_of(row) for row in iter_jsonl(Path(folder) / EXAMPLES)]

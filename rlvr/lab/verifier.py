"""Training a verifier on a policy's own completions, with the task's verdicts as labels.

What it was trained on is kept beside its weights: where a reward fails is a question about its training data.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.lab.checkpoint import save_weights
from rlvr.lab.examples import EXAMPLES, Example, draw_examples, fit, row_of
from rlvr.lab.jsonl import read_json, write_json, write_jsonl
from rlvr.lab.train import open_run
from rlvr.rewards import Verifier
from rlvr.rng import generator
from rlvr.stats.auc import auc
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["VerifierRecipe", "held_out_quality", "train_verifier"]

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class VerifierRecipe:
    """How a verifier is trained: ``problems`` of ``difficulty`` with ``samples`` completions each at temperature 1, then
    ``steps`` of ``batch`` examples at ``learning_rate`` (warm-up 20, cosine to a tenth); ``held_out`` further problems judge
    it.

    >>> VerifierRecipe(kind="prm", aggregate="min").steps
    200
    """

    kind: str = "orm"
    aggregate: str = "last"
    difficulty: dict[str, Any] = field(default_factory=lambda: {"n": (4, 12), "k": (1, 7)})
    problems: int = 6000
    samples: int = 2
    held_out: int = 1000
    steps: int = 200
    batch: int = 64
    learning_rate: float = 2e-3
    seed: int = 0


def train_verifier(
    folder: Path,
    base: Path,
    how: VerifierRecipe,
    body: Path | None = None,
    revise: Callable[[Sequence[Example]], Sequence[Example]] | None = None,
) -> dict[str, Any]:
    """Train a verifier on the completions of the run ``base`` into a folder, and judge it on held-out ones; returns how it did.

    It starts from the body of ``base``, or of the run ``body``; ``revise`` may change what it is trained on. A folder that
    holds the same verifier is left as it is.
    """
    folder, config = Path(folder), {"how": asdict(how), "base": _name(base), "body": _name(body or base)}
    config["revised"] = None if revise is None else revise.__name__
    if (done := _done(folder, config)) is not None:
        return done
    policy, recipe = open_run(base)
    task = recipe.the_task
    examples = draw_examples(
        policy, task, _problems(task, how, "train", how.problems), how.samples, _draws(how, "train")
    )
    examples = list(examples if revise is None else revise(examples))
    verifier = Verifier.of(open_run(body)[0] if body else policy, how.kind, how.aggregate)
    order = _order(how, len(examples))
    batches = [[examples[i] for i in rows] for rows in order]
    losses = fit(verifier, task, batches, how.learning_rate)
    unseen = draw_examples(policy, task, _problems(task, how, "held out", how.held_out), 1, _draws(how, "held out"))
    quality = held_out_quality(verifier, unseen)
    quality |= {"loss": float(np.mean(losses[-20:])), "trained_on": len(examples)}
    write_jsonl(folder / EXAMPLES, (row_of(example) for example in examples))
    write_json(
        folder / "config.json", config | {"task": recipe.task, "verifier": verifier.config(), "quality": quality}
    )
    save_weights(folder / WEIGHTS, verifier.critic.model)
    return quality


def _name(run: Path) -> str:
    """A run's name with the digest of its weights: the same name may have been trained again."""
    return f"{Path(run).name} {hashlib.sha256((Path(run) / WEIGHTS).read_bytes()).hexdigest()[:10]}"


def _problems(task: Task, how: VerifierRecipe, purpose: str, count: int) -> list[Problem]:
    source = generator(how.seed, "verifier", purpose, "problems")
    return [task.problem(source, **how.difficulty) for _ in range(count)]


def _draws(how: VerifierRecipe, purpose: str) -> np.random.Generator:
    return generator(how.seed, "verifier", purpose, "draws")


def _done(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    if not (folder / WEIGHTS).is_file():
        return None
    there, wanted = read_json(folder / "config.json"), json.loads(json.dumps(config))
    return there["quality"] if all(there.get(key) == value for key, value in wanted.items()) else None


def _order(how: VerifierRecipe, count: int) -> list[list[int]]:
    """The examples of each step: each is met once an epoch."""
    needed, rows, epoch = how.steps * how.batch, [], 0
    while len(rows) < needed:
        rows += generator(how.seed, "verifier", "order", epoch).permutation(count).tolist()
        epoch += 1
    return [rows[start : start + how.batch] for start in range(0, needed, how.batch)]


def held_out_quality(verifier: Verifier, examples: Sequence[Example]) -> dict[str, float]:
    """Accuracy at 1/2 and area under the ROC curve on examples; NaN where all of them are right or none is."""
    problems = [example.problem for example in examples]
    scores = verifier.score(problems, range(len(examples)), [e.text for e in examples]).double().numpy()
    right = np.array([example.correct for example in examples])
    return {
        "accuracy": float(((scores > 0.5) == right).mean()),
        "auc": auc(scores, right),
        "base_rate": float(right.mean()),
        "examples": len(examples),
    }

"""Rewards that are models, beside the policy that they pay: opened with the run, and trained on the policy's own new samples.

Relabelling has a budget: every M steps some of the newest distinct completions are labelled by the verdict, and the verifier
goes on training, half on all that was labelled so far and half on what it was first trained on, so that it doesn't forget.
The labelled samples stand in ``labels.jsonl`` of the run folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import nn

from rlvr.lab.examples import Example, example_of, examples_of, fit, row_of
from rlvr.lab.jsonl import append_jsonl, iter_jsonl, write_jsonl
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts
from rlvr.rewards import BatchReward, Verified
from rlvr.rng import generator

__all__ = ["LABELS", "Refresher", "open_rewards"]

LABELS = "labels.jsonl"
BATCH, LEARNING_RATE = 64, 5e-4


def open_rewards(folder: Path, recipe: Recipe) -> None:
    """Open every reward that reads files, so that a missing one is told of before anything is made."""
    for _, reward in recipe.paid_by.values():
        if isinstance(reward, BatchReward):
            reward.open(folder)


@dataclass
class Refresher:
    """The verifiers of a run that are refreshed, and what was labelled for them so far; most runs have none."""

    folder: Path
    recipe: Recipe
    labelled: list[Example] = field(default_factory=list)
    first: dict[str, list[Example]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, recipe: Recipe) -> "Refresher":
        """Open every reward of the recipe that is a model."""
        open_rewards(folder, recipe)
        refresher = cls(folder, recipe)
        for reward in refresher.rewards():
            refresher.first |= {path: examples_of(folder / path) for path in reward.paths}
        return refresher

    def rewards(self) -> list[Verified]:
        """The rewards that are refreshed."""
        paid_by = [reward for _, reward in self.recipe.paid_by.values()]
        return [reward for reward in paid_by if isinstance(reward, Verified) and reward.refresh_every]

    def modules(self) -> dict[str, nn.Module]:
        """The weights that change, by the name they have in a checkpoint."""
        return {
            f"verifier {r}.{v}": verifier.critic.model
            for r, reward in enumerate(self.rewards())
            for v, verifier in enumerate(reward.verifiers)
        }

    def go_on_at(self, step: int) -> None:
        """Forget what was labelled at this step or later: a run that goes on labels it again."""
        if (path := self.folder / LABELS).is_file():
            rows = [row for row in iter_jsonl(path, on_broken=lambda note: None) if row["step"] < step]
            write_jsonl(path, rows)
            self.labelled = [example_of(row) for row in rows]

    def after(self, step: int, rollouts: Rollouts) -> Mapping[str, float]:
        """Label and train where it is time; returns what was measured.

        ``verifier/labels`` is the budget spent so far, ``verifier/agreement`` the share of the new labels that the verifier
        would have given at 1/2, before it is trained on them.
        """
        measured: dict[str, float] = {}
        for reward in self.rewards():
            if (step + 1) % reward.refresh_every == 0:
                measured |= self._refresh(reward, step, rollouts)
        return measured | ({"verifier/labels": float(len(self.labelled))} if self.rewards() else {})

    def _refresh(self, reward: Verified, step: int, rollouts: Rollouts) -> dict[str, float]:
        chance = generator(self.recipe.seed, "labels", step)
        rows = {(row // rollouts.group_size, text): row for row, text in enumerate(rollouts.texts)}
        chosen = chance.permutation(sorted(rows.values()))[: reward.labels].tolist()
        new = [
            Example(rollouts.problems[row // rollouts.group_size], rollouts.texts[row], verdict.correct, verdict.kind)
            for row, verdict in ((row, rollouts.verdicts[row]) for row in chosen)
        ]
        right = np.array([example.correct for example in new])
        agreed = []
        for example in new:
            append_jsonl(self.folder / LABELS, {"step": step, **row_of(example)})
        self.labelled += new
        for path, verifier in zip(reward.paths, reward.verifiers, strict=True):
            scores = verifier.score([e.problem for e in new], range(len(new)), [e.text for e in new]).numpy()
            agreed.append(float(((scores > 0.5) == right).mean()))
            batches = [self._batch(self.first[path], chance) for _ in range(reward.refresh_steps)]
            fit(verifier, self.recipe.the_task, batches, LEARNING_RATE, warmup_steps=0, decay=False)
        return {"verifier/agreement": float(np.mean(agreed))}

    def _batch(self, first: list[Example], chance: np.random.Generator) -> list[Example]:
        pools = (self.labelled, first)
        return [pool[i] for pool in pools for i in chance.integers(len(pool), size=BATCH // len(pools))]

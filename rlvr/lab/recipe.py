"""A recipe: everything a run was asked to do, as plain data that goes to JSON and back and has a hash."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from rlvr.algo import Algorithm, RestartOnStall, describe, preset, with_overrides
from rlvr.rewards import GroupReward, Reward, load_reward
from rlvr.tasks import TASKS, Task

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """One training run.

    ``preset`` and ``overrides`` name the algorithm; ``difficulty`` is what the task draws its problems from; ``rewards``
    maps functions to weights; ``base`` is a registered base model or a run folder, and ``None`` is a fresh model of
    ``shape``. ``learning_rate`` warms up linearly over ``warmup_steps``, then is ``constant`` or a ``cosine`` down to a
    tenth; a critic's learning rate follows the same shape. ``record`` lists the steps whose completions are kept. ``corpus``
    is a JSONL file of lessons (`rlvr.lab.corpus`) to learn from instead of the task's demonstrations; a relative path counts
    from the run folder.

    >>> Recipe(preset="grpo", overrides={"loss.epsilon": 0.3}).algorithm.loss.epsilon
    0.3
    """

    preset: str = "grpo_lecture"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    task: str = "pointer"
    difficulty: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0})
    base: str | None = "cot_L2"
    base_seed: int = 0
    shape: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 200
    prompts_per_step: int = 32
    group_size: int = 8
    learning_rate: float = 3e-4
    critic_learning_rate: float = 1e-3
    schedule: str = "constant"
    warmup_steps: int = 0
    adam_betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    micro_rows: int | None = None
    seed: int = 0
    eval_every: int = 0
    checkpoint_every: int = 50
    record: tuple[int, ...] = ()
    corpus: str | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "prompts_per_step", "group_size", "checkpoint_every"):
            _require(self, name, isinstance(vars(self)[name], int) and vars(self)[name] >= 1, "a whole number >= 1")
        for name in ("learning_rate", "critic_learning_rate", "max_grad_norm", "temperature"):
            _require(self, name, _is_number(vars(self)[name]) and 0 < vars(self)[name] < math.inf, "a number above 0")
        for name in ("warmup_steps", "eval_every", "weight_decay"):
            _require(self, name, _is_number(vars(self)[name]) and vars(self)[name] >= 0, "0 or more")
        _require(self, "schedule", self.schedule in ("constant", "cosine"), "'constant' or 'cosine'")
        _require(self, "task", self.task in TASKS, "one of " + ", ".join(TASKS))
        _require(self, "rewards", len(self.rewards) > 0, "at least one reward with its weight")
        _require(
            self,
            "micro_rows",
            self.micro_rows is None or self.micro_rows >= 1,
            "a whole number >= 1, or none",
        )
        for name in self.rewards:
            load_reward(name)
        self.problem_source()
        if isinstance(self.algorithm.restart, RestartOnStall) and not self.eval_every:
            raise ValueError(
                f"recipe: restart = {self.algorithm.restart} reads evaluations; accepted: eval_every above 0"
            )
        if self.corpus is not None and self.algorithm.source != "gold":
            raise ValueError(
                f"recipe: corpus = {self.corpus!r}, but {self.preset} learns from its own completions; accepted: a preset "
                "whose source is gold, such as sft"
            )
        if self.algorithm.minibatches > self.prompts_per_step:
            raise ValueError(
                f"recipe: minibatches = {self.algorithm.minibatches}; a batch has {self.prompts_per_step} prompts to split"
            )

    @property
    def algorithm(self) -> Algorithm:
        """The preset with the overrides applied."""
        return with_overrides(preset(self.preset), self.overrides)

    @cached_property
    def paid_by(self) -> dict[str, tuple[float, Reward | GroupReward]]:
        """Each reward's weight and function; a user's file is executed once a run, so that it may keep state."""
        return {name: (weight, load_reward(name)) for name, weight in self.rewards.items()}

    @property
    def the_task(self) -> Task:
        """The task by its name."""
        return TASKS[self.task]

    def problem_source(self) -> None:
        """Try the difficulty once, so that a wrong one is refused before anything runs."""
        import numpy as np

        try:
            self.the_task.problem(np.random.default_rng(0), **self.difficulty)
        except TypeError as error:
            raise ValueError(f"recipe: difficulty = {dict(self.difficulty)}: task {self.task}: {error}") from None

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0.

        >>> Recipe(learning_rate=1.0, warmup_steps=4).learning_rate_at(1)
        0.5
        """
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.schedule == "constant":
            return self.learning_rate * warm
        return self.learning_rate * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / self.steps)))

    def to_json(self) -> dict[str, Any]:
        """Plain data: what ``from_json`` reads, as it comes back from a file.

        >>> Recipe.from_json(Recipe().to_json()) == Recipe()
        True
        """
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Recipe":
        """A recipe from plain data; unknown keys are refused by name.

        >>> Recipe.from_json({"stepps": 3})
        Traceback (most recent call last):
        ValueError: recipe: unknown key 'stepps'; accepted: preset, overrides, task, difficulty, rewards, ...
        """
        known = [item.name for item in fields(cls)]
        for key in data:
            if key not in known:
                raise ValueError(f"recipe: unknown key {key!r}; accepted: {', '.join(known)}")
        values = {key: tuple(value) if key in ("adam_betas", "record") else value for key, value in data.items()}
        if "difficulty" in values:
            values["difficulty"] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in values["difficulty"].items()
            }
        return cls(**values)

    def digest(self) -> str:
        """Ten hex digits that belong to the recipe: what a cache is keyed by.

        >>> Recipe().digest() == Recipe(seed=1).digest()
        False
        """
        text = json.dumps([self.to_json(), describe(self.algorithm)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(recipe: Recipe, name: str, good: bool, accepted: str) -> None:
    if not good:
        raise ValueError(f"recipe: {name} = {vars(recipe)[name]!r}; accepted: {accepted}")

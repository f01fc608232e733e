"""A recipe: everything a run was asked to do, as plain data that goes to JSON and back and has a hash."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr.algo import Algorithm, RestartOnStall, describe, preset, with_overrides
from rlvr.policy import ModelSettings
from rlvr.rewards import GroupReward, Reward, load_reward
from rlvr.rng import generator
from rlvr.tasks import Task, load_task
from rlvr.types import Problem

__all__ = ["Recipe"]


@dataclass(frozen=True)
class Recipe:
    """One training run.

    ``preset`` and ``overrides`` name the algorithm; ``difficulty`` is what the task draws its problems from; ``rewards``
    maps functions to weights; ``base`` is a registered base model or a run folder, and ``None`` is a fresh model of
    ``shape``. ``learning_rate`` warms up linearly over ``warmup_steps``, then is ``constant`` or a ``cosine`` down to a
    tenth; a critic's learning rate follows the same shape. ``record`` lists the steps whose completions are kept. ``corpus``
    is a JSONL file of lessons (`rlvr.lab.corpus`) to learn from instead of the task's demonstrations; a relative path counts
    from the run folder. ``model`` is a Hugging Face language model in place of the lab's (a folder, a hub name or a packaged
    one: `rlvr.policy.HFPolicy`), with ``model_settings`` (`rlvr.policy.ModelSettings`). ``micro_rows`` rows, or rows of
    ``micro_tokens`` tokens together, are scored at once: that changes memory, not the result.

    Problems are an endless stream unless ``pool`` says how many there are; `rlvr.lab.curriculum` tells what becomes of a pool
    with ``pool_sampling`` "epochs" or "prioritized" and ``drop_solved``. ``curriculum`` changes the difficulty of a stream:
    pairs of a step and what replaces parts of ``difficulty`` from that step on.

    >>> Recipe(preset="grpo", overrides={"loss.epsilon": 0.3}).algorithm.loss.epsilon
    0.3
    """

    preset: str = "grpo_lecture"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    task: str = "pointer"
    difficulty: Mapping[str, Any] = field(default_factory=dict)
    curriculum: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    pool: int = 0
    pool_sampling: str = "epochs"
    drop_solved: float | None = None
    rewards: Mapping[str, float] = field(default_factory=lambda: {"correct": 1.0})
    base: str | None = "cot_L2"
    base_seed: int = 0
    shape: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    model_settings: Mapping[str, Any] = field(default_factory=dict)
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
    micro_tokens: int | None = None
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
        load_task(self.task)
        _require(self, "rewards", len(self.rewards) > 0, "at least one reward with its weight")
        for name in ("micro_rows", "micro_tokens"):
            good = vars(self)[name] is None or vars(self)[name] >= 1
            _require(self, name, good, "a whole number >= 1, or none")
        self._check_model()
        for name in self.rewards:
            load_reward(name)
        own = "gym_score" not in self.rewards or self.task.startswith("gym:")
        _require(self, "rewards", own, "gym_score for a task of reasoning-gym, gym:NAME, only")
        self._check_problems()
        _require(self, "record", all(0 <= step < self.steps for step in self.record), f"steps below {self.steps}")
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

    def _check_model(self) -> None:
        """Refuse what doesn't go with a language model, and a text task without one."""
        if self.model is None:
            _require(self, "model_settings", not self.model_settings, "none without a model")
            _require(
                self, "model", self.the_task.alphabet is not None, f"a language model for the text task {self.task}"
            )
            return
        ModelSettings.of(self.model_settings)
        _require(self, "shape", not self.shape, "none with a model, which has its own")
        folder = self.base is None or Path(self.base, "config.json").is_file()
        _require(self, "base", folder, "none with a model, or the folder of a run of the same model")
        critic = self.algorithm.critic is not None
        _require(self, "preset", not critic, "with a model one without a critic, such as grpo or rloo")

    @cached_property
    def algorithm(self) -> Algorithm:
        """The preset with the overrides applied."""
        return with_overrides(preset(self.preset), self.overrides)

    @cached_property
    def paid_by(self) -> dict[str, tuple[float, Reward | GroupReward]]:
        """Each reward's weight and function; a user's file is executed once a run, so that it may keep state."""
        return {name: (weight, load_reward(name)) for name, weight in self.rewards.items()}

    @property
    def the_task(self) -> Task:
        """The task by its name, with its settings where the name has any."""
        return load_task(self.task)

    @cached_property
    def pool_problems(self) -> tuple[Problem, ...]:
        """The problems of the pool, each drawn by its number: a small pool is the beginning of a larger one."""
        numbers = range(self.pool)
        return tuple(self.the_task.problem(generator(self.seed, "pool", i), **self.difficulty) for i in numbers)

    def difficulty_at(self, step: int) -> dict[str, Any]:
        """What problems are drawn from at a step, counted from 0.

        >>> Recipe(difficulty={"n": 4, "k": 2}, curriculum=((10, {"n": 8}),)).difficulty_at(10)
        {'n': 8, 'k': 2}
        """
        begun = [difficulty for start, difficulty in self.curriculum if start <= step]
        return {**self.difficulty, **(begun[-1] if begun else {})}

    def _check_problems(self) -> None:
        """Refuse what couldn't be asked, before anything runs: every difficulty is tried once."""
        pairs = all(map(_is_stage, self.curriculum))
        _require(self, "curriculum", pairs, "pairs of a step and a difficulty, such as (50, {'n': 8})")
        starts = [start for start, _ in self.curriculum]
        rising = all(0 <= start < self.steps for start in starts) and starts == sorted(set(starts))
        _require(self, "curriculum", rising, f"rising steps from 0, below {self.steps}")
        for name, step in (("difficulty", -1), *(("curriculum", start) for start in starts)):
            try:
                self.the_task.problem(generator(0, "difficulty"), **self.difficulty_at(step))
            except TypeError as error:
                raise ValueError(f"recipe: {name} = {vars(self)[name]}: task {self.task}: {error}") from None
        _require(
            self, "pool", type(self.pool) is int and self.pool >= 0, "a whole number >= 0, 0 for an endless stream"
        )
        _require(self, "pool_sampling", self.pool_sampling in ("epochs", "prioritized"), "'epochs' or 'prioritized'")
        rate = self.drop_solved is None or (_is_number(self.drop_solved) and 0 < self.drop_solved <= 1)
        _require(self, "drop_solved", rate, "a success rate above 0 and up to 1, or none")
        judged = [name for name in ("pool_sampling", "drop_solved") if vars(self)[name] not in ("epochs", None)]
        for name in judged:
            _require(self, name, self.pool > 0, "a pool above 0, as problems of an endless stream don't return")
            _require(self, name, self.algorithm.source == "policy", f"a preset that samples, unlike {self.preset}")
        _require(self, "pool", not (self.pool and self.curriculum), "0 with a curriculum, as a pool is drawn once")
        _require(self, "pool", not (self.pool and self.corpus), "0 with a corpus, which is a pool itself")

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
        ValueError: recipe: unknown key 'stepps'; accepted: preset, overrides, task, difficulty, ...
        """
        known = [item.name for item in fields(cls)]
        for key in data:
            if key not in known:
                raise ValueError(f"recipe: unknown key {key!r}; accepted: {', '.join(known)}")
        values = {key: tuple(value) if key in ("adam_betas", "record") else value for key, value in data.items()}
        if "difficulty" in values:
            values["difficulty"] = _ranges(values["difficulty"])
        if "curriculum" in values:
            stages = values["curriculum"]
            values["curriculum"] = tuple((s[0], _ranges(s[1])) if _is_stage(s) else s for s in stages)
        return cls(**values)

    def digest(self) -> str:
        """Ten hex digits that belong to the recipe: what a cache is keyed by.

        >>> Recipe().digest() == Recipe(seed=1).digest()
        False
        """
        text = json.dumps([self.to_json(), describe(self.algorithm)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def _ranges(difficulty: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in difficulty.items()}


def _is_stage(part: object) -> bool:
    pair = isinstance(part, (tuple, list)) and len(part) == 2
    return pair and type(part[0]) is int and isinstance(part[1], Mapping)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(recipe: Recipe, name: str, good: bool, accepted: str) -> None:
    if not good:
        raise ValueError(f"recipe: {name} = {vars(recipe)[name]!r}; accepted: {accepted}")

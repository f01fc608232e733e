"""Language models on the command line: whom to evaluate, and carrying one out."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from rlvr.cli import options
from rlvr.cli.words import Mistake, difficulty, values
from rlvr.interop.export import export_run
from rlvr.interop.server import Server
from rlvr.lab.train import open_run
from rlvr.policy import HFPolicy, ModelSettings, Policy
from rlvr.tasks import Task, load_task

__all__ = ["Opened", "export", "opened", "use_threads"]


class Opened(NamedTuple):
    """A policy, what it is asked, and the steps that it was trained for."""

    policy: Policy
    task: Task
    difficulty: Mapping[str, Any]
    steps: int


def opened(command: options.Eval) -> Opened:
    """Whom `rlvr eval` evaluates: a run, a language model or a server."""
    asked = difficulty(command.difficulty)
    if (command.run is None) == (command.model is None):
        raise Mistake("eval: give a run folder, or --model with --task")
    if command.run is not None:
        policy, recipe = open_run(command.run, command.device)
        use_threads(recipe.model)
        task = recipe.the_task if command.task is None else load_task(command.task)
        return Opened(policy, task, asked or (recipe.difficulty if command.task is None else {}), recipe.steps)
    if command.task is None:
        raise Mistake("eval: --model needs --task, such as --task \"arithmetic(kind='largest')\"")
    task = load_task(command.task)
    if command.base_url is not None:
        return Opened(Server(command.base_url, command.model, os.environ.get("OPENAI_API_KEY", "")), task, asked, 0)
    use_threads(command.model)
    policy = HFPolicy.open(command.model, ModelSettings.of(values("model-set", command.model_set)), task.eos)
    policy.model.to(command.device)
    return Opened(policy, task, asked, 0)


def use_threads(model: str | None) -> None:
    """All cores for a language model: unlike the lab's, its matrices are large enough to share."""
    if model is not None:
        torch.set_num_threads(os.cpu_count() or 1)


def export(command: options.Export) -> None:
    """Write a run's language model as a Hugging Face folder."""
    print(f"Model: {export_run(command.run, command.to)}")

"""Weights and optimizer state on disk: one file, written in one move."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlvr.lab.curriculum import History
from rlvr.lab.jsonl import replacing

__all__ = ["Checkpoint", "load_checkpoint", "load_weights", "save_checkpoint", "save_weights"]


Modules = Mapping[str, nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]


class Checkpoint(NamedTuple):
    """Where a run stands: the step that comes next, the budget spent so far, and what its learner and its pool remember."""

    step: int
    budget: dict[str, float]
    state: dict[str, float]
    scores: tuple[float, ...]
    history: History = History()


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """What training changes, each once: shared weights have one name, and frozen ones are where they came from."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return {name: weight.detach().contiguous() for name, weight in trained.items()}


def _restore(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    missing = sorted(set(_weights(model)) - set(weights))
    if missing:
        raise RuntimeError(f"it lacks {', '.join(missing)}")
    found = model.load_state_dict(weights, strict=False)
    if found.unexpected_keys:
        raise RuntimeError(f"it has unknown {', '.join(found.unexpected_keys)}")


def save_weights(path: Path, model: nn.Module) -> None:
    """Write a model's weights."""
    with replacing(path) as temporary:
        save_file(_weights(model), temporary)


def load_weights(path: Path, model: nn.Module) -> None:
    """Read a model's weights into it; a file that doesn't fit is refused with what differs."""
    if not Path(path).is_file():
        raise ValueError(f"there are no weights at {path}")
    try:
        _restore(model, load_file(path))
    except RuntimeError as error:
        raise ValueError(f"the weights at {path} do not fit this model: {error}") from None


def save_checkpoint(path: Path, modules: Modules, optimizers: Optimizers, mark: Checkpoint) -> None:
    """Write weights and optimizer states, each by its name, and the place in the run."""
    tensors = {}
    for name, module in modules.items():
        tensors |= {f"{name}/{key}": weight for key, weight in _weights(module).items()}
    for name, optimizer in optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"{name}/{index}/{key}": value.contiguous() for key, value in state.items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={"mark": json.dumps(mark._asdict())})


def load_checkpoint(path: Path, modules: Modules, optimizers: Optimizers) -> Checkpoint:
    """Restore what ``save_checkpoint`` wrote, bit for bit."""
    with safe_open(path, "pt") as file:
        mark = json.loads(file.metadata()["mark"])
        parts: dict[str, dict[str, Any]] = {name: {} for name in (*modules, *optimizers)}
        for key in list(file.keys()):
            name, _, rest = key.partition("/")
            parts[name][rest] = file.get_tensor(key)
    for name, module in modules.items():
        _restore(module, parts[name])
    for name, optimizer in optimizers.items():
        state: dict[int, dict[str, Any]] = {}
        for key, value in parts[name].items():
            index, _, field = key.partition("/")
            state.setdefault(int(index), {})[field] = value
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    asked, drawn, right = mark["history"]
    history = History(asked, tuple(drawn), tuple(right))
    return Checkpoint(mark["step"], mark["budget"], mark["state"], tuple(mark["scores"]), history)

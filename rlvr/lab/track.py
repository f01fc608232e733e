"""Live views of a run in other people's tools: one small adapter each, opened by name.

``metrics.jsonl`` is the record; a tracker only shows it while it grows. No tool is imported before it is
asked for, and one that is not installed is one clear line.
"""

import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rlvr.lab.jsonl import plain

__all__ = ["TRACKERS", "MissingExtra", "Tracker", "open_tracker"]


class MissingExtra(RuntimeError):
    """An optional package is not installed; the message says which, for what, and how to install it."""


class Tracker(Protocol):
    """Takes one step's metrics after the other; ``close`` is called once, also after an error."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def open_tracker(name: str, folder: str | os.PathLike[str], config: Mapping[str, Any]) -> Tracker:
    """The tracker called ``name``: none, tensorboard, wandb, mlflow or trackio.

    The run is named after its folder and the project after the folder above it, the experiment;
    tensorboard's files go to ``tensorboard/`` in the run's folder. Metrics that are no finite number (text,
    ``None``, NaN) are not shown. Raises ``MissingExtra`` when the tool is not installed and ``ValueError``
    for an unknown name.

    >>> open_tracker("none", "runs/demo/grpo-s0", {}).log(0, {"reward": 0.5})
    >>> open_tracker("tensorbord", "runs/demo/grpo-s0", {})
    Traceback (most recent call last):
    ValueError: unknown tracker 'tensorbord'; known are none, tensorboard, wandb, mlflow, trackio
    """
    if name not in TRACKERS:
        raise ValueError(f"unknown tracker {name!r}; known are {', '.join(TRACKERS)}")
    return TRACKERS[name](Path(folder).resolve(), plain(config, "config"))


@dataclass(frozen=True)
class _Sink:
    send: Callable[[dict[str, float], int], Any]
    close: Callable[[], Any]

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        values = {key: plain(value, key) for key, value in metrics.items() if key != "step"}
        self.send({key: float(value) for key, value in values.items() if isinstance(value, (int, float))}, step)


def _nowhere(folder: Path, config: dict[str, Any]) -> Tracker:
    return _Sink(lambda values, step: None, lambda: None)


def _tensorboard(folder: Path, config: dict[str, Any]) -> Tracker:
    _tool("tensorboard")
    # Only this view costs an import of torch; the others can be opened without it.
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder / "tensorboard", flush_secs=10)
    writer.add_text("config", "    " + json.dumps(config, indent=1).replace("\n", "\n    "))

    def send(values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, step)

    return _Sink(send, writer.close)


def _wandb(folder: Path, config: dict[str, Any]) -> Tracker:
    run = _tool("wandb").init(project=folder.parent.name, name=folder.name, dir=str(folder), config=config)
    return _Sink(lambda values, step: run.log(values, step=step), run.finish)


def _trackio(folder: Path, config: dict[str, Any]) -> Tracker:
    trackio = _tool("trackio")
    trackio.init(project=folder.parent.name, name=folder.name, config=config)
    return _Sink(lambda values, step: trackio.log(values, step=step), trackio.finish)


def _mlflow(folder: Path, config: dict[str, Any]) -> Tracker:
    mlflow = _tool("mlflow")
    mlflow.set_experiment(folder.parent.name)
    mlflow.start_run(run_name=folder.name)
    mlflow.log_params(_flat(config))
    return _Sink(lambda values, step: mlflow.log_metrics(values, step=step), mlflow.end_run)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _tool(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but misses one of its own has a better message of its own.
        if error.name != package:
            raise
        raise MissingExtra(f"the tracker {package!r} is not installed: pip install {package}") from None


TRACKERS: dict[str, Callable[[Path, dict[str, Any]], Tracker]] = {
    "none": _nowhere,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "trackio": _trackio,
}

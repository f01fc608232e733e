"""A run is a folder: its names, its schema, and the functions that write and read it.

====================  ==============================================================================
config.json           what the run was asked to do
metrics.jsonl         one object a step
rollouts.parquet/     one file a recorded step, one row a completion
evals/                one file an evaluation, ``greedy-000050.json``
model.safetensors     the trained weights; a run is finished if and only if this file is there
env.json              versions, commit, threads, seed
====================  ==============================================================================

Everything but the growing log is written atomically, so a killed run leaves a folder that can be read and
gone on with. No torch in here: reports read folders.
"""

import os
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr.lab.jsonl import append_jsonl, iter_jsonl, last_jsonl, read_json, replacing, write_json, write_jsonl

Folder = str | os.PathLike[str]

__all__ = [
    "ROLLOUT_SCHEMA",
    "append_metrics",
    "drop_rollouts_after",
    "is_finished",
    "last_metrics",
    "read_config",
    "read_evals",
    "read_metrics",
    "read_rollouts",
    "rollout_steps",
    "truncate_metrics",
    "write_config",
    "write_eval",
    "write_rollouts",
]

ROLLOUT_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("prompt_idx", pa.int64()),
        ("sample_idx", pa.int64()),
        ("prompt", pa.string()),
        ("completion", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("logps", pa.list_(pa.float32())),
        ("signal", pa.list_(pa.float32())),
        ("reward", pa.float64()),
        ("rewards", pa.map_(pa.string(), pa.float64())),
        ("verdict", pa.bool_()),
        ("kind", pa.string()),
        ("advantage", pa.float64()),
        ("finish_reason", pa.string()),
    ]
)
FINISH_REASONS = ("stop", "length")


def write_config(folder: Folder, config: Mapping[str, Any]) -> None:
    """Writes ``config.json``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_config(folder, {"arm": "grpo", "seed": 0})
    ...     read_config(folder)
    {'arm': 'grpo', 'seed': 0}
    """
    write_json(Path(folder, "config.json"), config)


def read_config(folder: Folder) -> dict[str, Any]:
    """The run's ``config.json``; a folder without one is no run, and the error says so.

    >>> read_config("nowhere")
    Traceback (most recent call last):
    ValueError: nowhere is not a run folder: it has no config.json
    """
    path = Path(folder, "config.json")
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no config.json")
    return read_json(path)


def is_finished(folder: Folder) -> bool:
    """Whether the run reached its end: ``model.safetensors`` is written last, so its being there says it.

    >>> is_finished("nowhere")
    False
    """
    return Path(folder, "model.safetensors").is_file()


def append_metrics(folder: Folder, metrics: Mapping[str, Any]) -> None:
    """Adds one step's metrics to ``metrics.jsonl``; ``metrics["step"]`` is required.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_metrics(folder, {"step": 0, "accuracy": 0.5})
    ...     read_metrics(folder)
    [{'step': 0, 'accuracy': 0.5}]
    """
    if "step" not in metrics:
        raise ValueError(f"metrics without a step: {sorted(metrics)}; give {{'step': ..., ...}}")
    append_jsonl(Path(folder, "metrics.jsonl"), metrics)


def read_metrics(folder: Folder, on_broken: Callable[[str], Any] = warnings.warn) -> list[dict[str, Any]]:
    """All steps of ``metrics.jsonl``, in order, none when there is no log yet.

    NaN was written as null and reads as ``None``. A last line that was cut off is left out, and
    ``on_broken`` is told so; ``iter_jsonl`` reads the same one step at a time.

    >>> read_metrics("nowhere")
    []
    """
    path = Path(folder, "metrics.jsonl")
    return list(iter_jsonl(path, on_broken)) if path.is_file() else []


def last_metrics(folder: Folder) -> dict[str, Any] | None:
    """The newest step in ``metrics.jsonl``, read from the file's end; ``None`` before the first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in range(3):
    ...         append_metrics(folder, {"step": step})
    ...     last_metrics(folder)
    {'step': 2}
    """
    path = Path(folder, "metrics.jsonl")
    return last_jsonl(path) if path.is_file() else None


def truncate_metrics(folder: Folder, step: int) -> None:
    """Keeps the lines with ``metrics["step"] < step``, atomically: what a run that goes on at ``step`` needs.

    A last line that was cut off goes too. No log yet is fine.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in range(3):
    ...         append_metrics(folder, {"step": step})
    ...     truncate_metrics(folder, 2)
    ...     read_metrics(folder)
    [{'step': 0}, {'step': 1}]
    """
    path = Path(folder, "metrics.jsonl")
    if path.is_file():
        lines = iter_jsonl(path, on_broken=lambda note: None)
        write_jsonl(path, (line for line in lines if line["step"] < step))


def write_rollouts(folder: Folder, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the completions of one step to ``rollouts.parquet/step_000050.parquet``, in place of an older
    file.

    A row is a dict with the columns of ``ROLLOUT_SCHEMA`` (``step`` may be left out); ``rewards`` is a dict
    from function to value, ``finish_reason`` is ``"stop"`` or ``"length"``. A missing, unknown or ill-typed
    column is a ``ValueError``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     row = dict(prompt_idx=0, sample_idx=0, prompt="?a1:", completion="b$", token_ids=[1, 2])
    ...     row |= dict(logps=[-0.5, 0.0], signal=[0.1, 0.1], reward=1.0, rewards={"exact": 1.0})
    ...     row |= dict(verdict=True, kind="correct", advantage=0.7, finish_reason="stop")
    ...     write_rollouts(folder, 50, [row])
    ...     read_rollouts(folder, columns=["step", "completion"]).to_pylist()
    [{'step': 50, 'completion': 'b$'}]
    """
    for index, row in enumerate(rows):
        _check_row(row, index, step)
    table = pa.table([_column(field, rows, step) for field in ROLLOUT_SCHEMA], schema=ROLLOUT_SCHEMA)
    with replacing(_rollout_file(folder, step)) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _check_row(row: Mapping[str, Any], index: int, step: int) -> None:
    names = ROLLOUT_SCHEMA.names
    wrong = sorted({*row, "step"} ^ set(names))
    if wrong:
        raise ValueError(f"rollout row {index} has missing or unknown columns {wrong}; a row has {names}")
    if row.get("step", step) != step:
        raise ValueError(f"rollout row {index} says step {row['step']!r} among the rows of step {step}")
    if row["finish_reason"] not in FINISH_REASONS:
        raise ValueError(
            f"rollout row {index} has finish_reason {row['finish_reason']!r}; it is one of {FINISH_REASONS}"
        )


def _column(field: pa.Field, rows: Sequence[Mapping[str, Any]], step: int) -> pa.Array:
    values = [step] * len(rows) if field.name == "step" else [row[field.name] for row in rows]
    try:
        if pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise ValueError(f"rollout column {field.name} does not fit {field.type}: {error}") from error


def _rollout_file(folder: Folder, step: int) -> Path:
    return Path(folder, "rollouts.parquet", f"step_{step:06d}.parquet")


def rollout_steps(folder: Folder) -> list[int]:
    """The steps whose completions were recorded, in order.

    >>> rollout_steps("nowhere")
    []
    """
    return sorted(int(path.stem[5:]) for path in Path(folder, "rollouts.parquet").glob("step_*.parquet"))


def read_rollouts(
    folder: Folder, steps: Collection[int] | None = None, columns: Sequence[str] | None = None
) -> pa.Table | None:
    """The recorded completions as one table ordered by step, or ``None`` when none were recorded.

    ``steps`` and ``columns`` limit what is read. A step that was not recorded is a ``ValueError`` that
    lists those that were. ``rewards`` comes back from ``to_pylist`` as a list of (function, value) pairs.

    >>> read_rollouts("nowhere") is None
    True
    """
    recorded = rollout_steps(folder)
    missing = sorted(set(steps or ()) - set(recorded))
    if missing:
        raise ValueError(f"{folder} has no rollouts of step {missing}; recorded are {recorded}")
    chosen = recorded if steps is None else sorted(set(steps))
    columns = None if columns is None else list(columns)
    tables = [pq.read_table(_rollout_file(folder, step), columns=columns) for step in chosen]
    return pa.concat_tables(tables) if tables else None


def drop_rollouts_after(folder: Folder, step: int) -> None:
    """Removes the rollouts of ``step`` and later, as ``truncate_metrics(folder, step)`` removes their
    metrics.

    >>> drop_rollouts_after("nowhere", 10)
    """
    for recorded in rollout_steps(folder):
        if recorded >= step:
            _rollout_file(folder, recorded).unlink()


def write_eval(folder: Folder, evaluation: Mapping[str, Any]) -> None:
    """Writes one evaluation to ``evals/<name>-<step>.json``; its ``columns`` have one entry a problem each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     columns = {"set": ["n8", "n12"], "correct": [1, 0]}
    ...     write_eval(folder, {"name": "greedy", "step": 50, "columns": columns})
    ...     [evaluation["step"] for evaluation in read_evals(folder, "greedy")]
    [50]
    """
    missing = [key for key in ("name", "step", "columns") if key not in evaluation]
    if missing:
        raise ValueError(f"an evaluation without {missing}: it has {sorted(evaluation)}")
    name, lengths = evaluation["name"], {key: len(column) for key, column in evaluation["columns"].items()}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"evaluation name {name!r}: it names a file, so give lower-case letters, digits and _")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"evaluation {name!r} has columns of different lengths: {lengths}")
    write_json(Path(folder, "evals", f"{name}-{evaluation['step']:06d}.json"), evaluation)


def read_evals(folder: Folder, name: str | None = None) -> list[dict[str, Any]]:
    """The evaluations of a run, all or those called ``name``, by step and then by name.

    >>> read_evals("nowhere")
    []
    """
    paths = Path(folder, "evals").glob(f"{name or '*'}-*.json")
    found = [read_json(path) for path in paths if not path.name.startswith(".")]
    return sorted(found, key=lambda evaluation: (evaluation["step"], evaluation["name"]))

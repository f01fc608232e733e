"""The command that learns in rounds: bootstrap."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from rlvr.cli import options
from rlvr.cli.words import Mistake, console, difficulty, file_name, pairs
from rlvr.lab import store
from rlvr.lab.bootstrap import BOOTSTRAPS, Bootstrap, accounts, bootstrap, with_settings
from rlvr.lab.evaluate import accuracy_by_set
from rlvr.lab.pretrain import BASES, base_recipe, bases_root, start_of
from rlvr.lab.progress import Board
from rlvr.lab.testsets import held_out

__all__ = ["bootstrap_run"]

FLAGS = ("rounds", "problems", "samples", "temperature", "steps", "learning_rate")


def bootstrap_run(command: options.Bootstrap) -> None:
    """All rounds of a method, then a table of what each reached and cost."""
    settings = _settings(command)
    folder = command.out or Path("runs") / f"{command.what}-{file_name(command.task)}-s{command.seed}"
    first = settings.recipe(1, settings.problems)
    label = f"base {settings.base}"
    plan = {label: base_recipe(settings.base, settings.base_seed).steps} if settings.base in BASES else {}
    plan |= {f"round {number}": first.steps for number in range(1, settings.rounds + 1)}
    sets = held_out(first.the_task, settings.difficulty)
    with Board(plan) as board:
        base = start_of(
            first, bases_root(folder), lambda step, row: board.update(label, step + 1, plan.get(label, 0), row)
        )
        if label in plan:
            board.finish(label)
        bootstrap(folder, settings, base, sets, board.update, command.device)
        for job in plan:
            board.finish(job)
    console().print(_table(folder, list(sets)))
    last = folder / f"round-{settings.rounds}" / "train"
    print(f"Bootstrap: {folder}  (look: rlvr sample {last}; page: rlvr report {last})")


def _settings(command: options.Bootstrap) -> Bootstrap:
    if command.what not in BOOTSTRAPS:
        raise Mistake(f"bootstrap {command.what!r} is unknown; accepted: {', '.join(BOOTSTRAPS)}")
    elsewhere = {} if command.task == "pointer" else {"task": command.task, "base": None, "difficulty": {}}
    changes = elsewhere | {name: vars(command)[name] for name in FLAGS if vars(command)[name] is not None}
    changes |= {"base": command.base} if command.base else {}
    changes |= {"difficulty": difficulty(command.difficulty)} if command.difficulty else {}
    changes |= {"seed": command.seed} | {key: _value(text) for key, text in pairs("set", command.set).items()}
    return with_settings(BOOTSTRAPS[command.what], changes)


def _value(text: str) -> Any:
    try:
        return json.loads("null" if text == "none" else text)
    except json.JSONDecodeError:
        return text


def _table(folder: Path, labels: Sequence[str]) -> Table:
    rows = [("start", accuracy_by_set(store.read_evals(folder / "round-1" / "train", "greedy")[0]), {})]
    rows += [(str(found["round"]), found["accuracy"], found) for found in accounts(folder)]
    table = Table(title="Greedy accuracy, %, and what each round cost", title_justify="left", box=box.SIMPLE, padding=0)
    columns = ("samples", "solved", "kept", "unsound", "updates")
    for column in ("round", *labels, *columns):
        table.add_column(column, justify="right", no_wrap=True)
    for name, accuracy, spent in rows:
        table.add_row(name, *(f"{100 * accuracy[label]:.1f}" for label in labels), *_counts(spent, columns))
    return table


def _counts(spent: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    found = [spent.get(column) for column in columns]
    return ["" if count is None else f"{count:,}" for count in found]

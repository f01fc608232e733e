"""`rlvr reproduce`: run experiments, print each summary, write their pages, and keep the ledger of all claims."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlvr.cli import options
from rlvr.cli.words import Mistake, console
from rlvr.experiments import EXPERIMENTS, LECTURE, Plan, Results, experiment_named, run_experiments
from rlvr.experiments.ledger import ledger_of, newest, write_ledger
from rlvr.experiments.runner import results_of
from rlvr.lab import store
from rlvr.lab.progress import duration
from rlvr.report import write_report, write_site

__all__ = ["reproduce"]

COLOURS = {"holds": "green", "differs": "red", "undecided": "yellow"}
COSTS = ("samples", "updates", "seconds")


def reproduce(command: options.Reproduce) -> None:
    """Run experiments, print each summary and the path of its report; then the ledger of everything that is finished."""
    for option in ("seeds", "jobs"):
        value = getattr(command, option)
        if value is not None and value < 1:
            raise Mistake(f"--{option} {value}: accepted are whole numbers from 1")
    asked = [name for word in command.experiments for name in (LECTURE if word == "all" else [word])]
    wanted = [experiment_named(name) for name in dict.fromkeys(asked)]
    out, began = console(), time.monotonic()
    plan = Plan(command.out, command.seeds, command.jobs, command.quick, command.force)
    run_experiments(wanted, plan, partial(_show, out, {experiment.name for experiment in wanted}))
    folders = newest(command.out, list(EXPERIMENTS))
    ledger = write_ledger(command.out, folders)
    if len(wanted) > 1:
        _print_ledger(out, ledger_of(folders))
    site = write_site(command.out, folders)
    out.print(f"All experiments: {site}; the ledger as data: {ledger}", soft_wrap=True)
    if len(wanted) > 1:
        out.print(f"Took {duration(time.monotonic() - began)}.")


def _show(out: Console, wanted: Collection[str], folder: Path) -> None:
    """Write an experiment's page and print what came of it, if it was asked for and not only used."""
    report = write_report(folder)
    summary, results = results_of(folder)
    if summary["name"] not in wanted:
        return
    out.print(f"[bold]{summary['title']}[/bold]")
    if summary["answer"]:
        out.print(summary["answer"], soft_wrap=False)
    runs = [*summary["bases"], *summary["arms"]]
    if runs:
        out.print(_accuracies(results, runs))
    for claim in summary["claims"]:
        out.print(_line(claim))
    if summary["preliminary"]:
        out.print("Fewer than three seeds: preliminary.")
    out.print(f"Report: {report}", soft_wrap=True)


def _accuracies(results: Results, runs: Sequence[str]) -> Table:
    # The sampled evaluation has the sizes that the curves show; all of them wouldn't fit a terminal of 80 columns.
    evaluated = results.evals(runs[0], results.arm_seeds(runs[0])[0], "sampled")[-1]
    labels = list(dict.fromkeys(evaluated["columns"]["set"]))
    table = Table(title="Greedy accuracy, mean over seeds, %", title_justify="left", box=box.SIMPLE)
    for column in ("", *labels, *COSTS):
        table.add_column(column, justify="right" if column else "left")
    for run in runs:
        means = [f"{100 * results.accuracy(run, label).mean():.1f}" for label in labels]
        spent = [store.last_metrics(results.run(run, seed)) or {} for seed in results.arm_seeds(run)]
        budget = [f"{np.mean([row[key] for row in spent]):,.0f}" if spent[0] else "" for key in COSTS]
        table.add_row(run, *means, *budget)
    return table


def _line(claim: Mapping[str, Any]) -> Text:
    verdict = claim["verdict"]
    return Text.assemble((f"{verdict:>10} ", COLOURS[verdict]), (claim["id"], "bold"), f": {claim['measured']}")


def _print_ledger(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Every claim in one line with our number and the lecture's; the reasons stand in the pages."""
    table = Table(title="The ledger", title_justify="left", box=box.SIMPLE)
    for column in ("claim", "the lecture", "here", "verdict"):
        table.add_column(column, overflow="fold")
    for row in rows:
        verdict = row["verdict"] + (", preliminary" if row["preliminary"] else "")
        cells = (row["id"], row["lecture"], row["measured"], Text(verdict, COLOURS[row["verdict"]]))
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    out.print(table)
    counts = Counter(row["verdict"] for row in rows)
    out.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in COLOURS) + f" of {len(rows)} claims.")

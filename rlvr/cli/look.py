"""Commands that look: list, show, eval, sample."""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlvr.algo import SOURCES, SUMMARIES, Algorithm, describe, difference, equation, like, preset
from rlvr.algo.likes import VERSIONS
from rlvr.cli import options
from rlvr.cli.models import opened
from rlvr.cli.words import Mistake, console, difficulty
from rlvr.experiments import EXPERIMENTS
from rlvr.lab import store
from rlvr.lab.bootstrap import ABOUT
from rlvr.lab.evaluate import GREEDY, evaluate, unique_shares
from rlvr.lab.pretrain import BASES
from rlvr.lab.testsets import held_out
from rlvr.lab.train import open_run
from rlvr.policy import Decoding
from rlvr.rewards import REWARDS
from rlvr.rng import generator
from rlvr.stats import share_over_problems
from rlvr.tasks import TASKS

__all__ = ["eval_run", "list_all", "sample_run", "show"]

MADE_TASKS = {
    "gym:NAME": "Every task of reasoning-gym, such as gym:countdown (the extra [tasks]).",
    "file:PATH": "Questions with answers in a .jsonl or .parquet file, as GSM8K and MATH are written.",
}


def list_all(command: options.List) -> None:
    """Print the registries, a shelf each."""
    shelves = {
        "experiments": {name: e.title for name, e in EXPERIMENTS.items()},
        "presets": dict(SUMMARIES),
        "bootstraps": dict(ABOUT),
        "tasks": {name: _first_line(sys.modules[type(task).__module__]) for name, task in TASKS.items()} | MADE_TASKS,
        "rewards": {name: _first_line(reward) for name, reward in REWARDS.items()},
        "base models": {
            name: f"{r.preset} on {r.task} {dict(r.difficulty)}, {r.steps} steps" for name, r in BASES.items()
        },
    }
    out = console()
    for shelf, rows in shelves.items():
        out.print(f"[bold]{shelf}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 2))
        for name, line in rows.items():
            table.add_row(Text(name), Text(line))
        out.print(table)


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").strip()


def show(command: options.Show) -> None:
    """Print a preset's equation, slots and sources, or what differs between two, or from a library's reading of its name."""
    if len(command.presets) not in (1, 2) or (command.like and len(command.presets) != 1):
        accepted = "one, with --like" if command.like else "one or two"
        raise Mistake(f"show: {len(command.presets)} presets given; accepted are {accepted}")
    out, rows = console(), [preset(name) for name in command.presets]
    if command.like:
        theirs = like(command.presets[0], command.like)
        library = f"{command.like} {VERSIONS[command.like]}"
        out.print(Text.assemble((f"{rows[0].name} in {library}", "bold"), f"  {theirs.words}"))
        out.print(Text("\n" + equation(theirs.algorithm) + "\n"))
        out.print(_differing(rows[0], theirs.algorithm, rows[0].name, library))
    elif len(rows) == 2:
        out.print(_differing(*rows, *(row.name for row in rows)))
    else:
        _show_one(out, rows[0])


def _differing(first: Algorithm, second: Algorithm, left: str, right: str) -> Table | str:
    table = Table("slot", left, right)
    for slot, (one, other) in difference(first, second).items():
        table.add_row(slot, Text(one), Text(other))
    return table if table.row_count else f"{left} and {right} are the same"


def _show_one(out: Console, row: Algorithm) -> None:
    out.print(Text.assemble((row.name, "bold"), f"  {SUMMARIES[row.name]}"))
    out.print(Text("\n" + equation(row) + "\n"))
    table = Table("slot", "value", "where it comes from")
    for slot, value in describe(row).items():
        table.add_row(slot, Text(value), Text(SOURCES[row.name].get(slot, "")))
    out.print(table)


def eval_run(command: options.Eval) -> None:
    """Evaluate a finished run, print a table with intervals over problems and keep the result in the run's folder."""
    if command.samples < 1 or command.problems < 2:
        raise Mistake(f"eval: --samples {command.samples} must be 1 or more, --problems {command.problems} 2 or more")
    who = opened(command)
    sets = held_out(who.task, who.difficulty, command.problems)
    decoding = GREEDY if command.samples == 1 else Decoding(command.temperature)
    found = evaluate(who.policy, who.task, sets, who.steps, command.samples, decoding)
    if command.run is not None and command.task is None and not command.difficulty:
        store.write_eval(command.run, found | {"name": f"eval_{found['name']}"})
    _print_accuracy(found, sets)


def _print_accuracy(found: Mapping[str, Any], sets: Mapping[str, Any]) -> None:
    columns = found["columns"]
    for label, each in found["sets"].items():
        if again := len(each["repeats"]):
            print(f"{label}: {again} of {each['problems']} problems repeat an earlier one; each counts once")
    # Text tasks tell a right answer in a wrong form from a wrong one.
    loose = any("form" in kinds for kinds in columns["kinds"])
    table = Table(title="Accuracy with its 95 % interval over problems", title_justify="left", box=box.SIMPLE)
    heads = ("set", "problems", "right, %", "interval", *["any form, %"][:loose], "vote, %", "tokens", "kinds")
    for column in heads:
        table.add_column(column, justify="left" if column in ("set", "kinds") else "right", overflow="fold")
    for label in sets:
        rows = [i for i, each in enumerate(columns["set"]) if each == label]
        interval = share_over_problems(unique_shares(found)[label])
        kinds: Counter[str] = Counter()
        for i in rows:
            kinds.update(columns["kinds"][i])
        vote = f"{100 * np.mean([columns['majority'][i] for i in rows]):.1f}"
        any_form = [f"{100 * (kinds['correct'] + kinds['form']) / kinds.total():.1f}"] if loose else []
        span = f"{100 * interval.lo:.1f}-{100 * interval.hi:.1f}"
        length = f"{np.mean([columns['length'][i] for i in rows]):.2f}"
        words = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common() if count)
        right = f"{100 * interval.value:.1f}"
        table.add_row(label, str(interval.n), right, span, *any_form, vote, length, words)
    console().print(table)


def sample_run(command: options.Sample) -> None:
    """Print the distinct completions of a few problems with their counts, coloured by verdict."""
    if command.samples < 1 or command.problems < 1:
        raise Mistake(f"sample: --samples {command.samples} and --problems {command.problems} must be 1 or more")
    policy, recipe = open_run(command.run, command.device)
    task, out = recipe.the_task, console()
    wanted = difficulty(command.difficulty) or recipe.difficulty
    source = generator(command.seed, "look")
    problems = [task.problem(source, **wanted) for _ in range(command.problems)]
    limits = [task.limit(problem) for problem in problems]
    draws = source.random((len(problems) * command.samples, max(limits)))
    drawn = policy.sample(problems, command.samples, draws, limits, Decoding(command.temperature))
    lengths, ids = drawn.mask.sum(1).tolist(), drawn.tokens.tolist()
    for p, problem in enumerate(problems):
        rows = range(p * command.samples, (p + 1) * command.samples)
        texts = Counter(policy.decode(ids[row][: lengths[row]]) for row in rows)
        out.print(Text.assemble(("\n" + problem.prompt, "bold"), f"  gold {task.gold(problem)}"))
        for text, count in texts.most_common():
            verdict = task.verify(problem, text)
            out.print(
                Text.assemble(f"{count:5} x  ", (text, "green" if verdict.correct else "red"), f"  {verdict.kind}")
            )

"""Try a task's verifier, and any reward, before anyone trains on it."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from rlvr.cli import options
from rlvr.cli.words import Mistake, console, difficulty
from rlvr.rewards import Completion, GroupReward, load_reward
from rlvr.rng import generator
from rlvr.tasks import Task, load_task
from rlvr.tasks.attack import Finding, Judge, attack, targets_of
from rlvr.types import Problem, Verdict

__all__ = ["attack_run"]

SHOWN = 100  # characters of an example


def attack_run(command: options.Attack) -> int:
    """Print what each reward pays for each family of texts; 1 when any has a hole, else 0."""
    if command.problems < 2:
        raise Mistake(f"--problems {command.problems}: accepted are whole numbers from 2")
    task = load_task(command.task)
    names = command.reward or (("correct", "gym_score") if command.task.startswith("gym:") else ("correct",))
    judges = {name: _judge(task, name) for name in names}
    targets = targets_of(task, command.problems, command.seed, **difficulty(command.difficulty))
    holes = 0
    for name, judge in judges.items():
        loose = name == "lenient" or getattr(task, "grading", "") == "lenient"
        found = attack(judge, targets, loose)
        _print(f"{command.task}, reward {name}: {len(targets)} problems", found)
        holes += sum(finding.hole for finding in found)
    return int(holes > 0)


def _judge(task: Task, name: str) -> Judge:
    reward = load_reward(name)
    if isinstance(reward, GroupReward):
        raise Mistake(f"--reward {name}: accepted are rewards of one completion, such as correct")

    def judge(problem: Problem, text: str) -> float | None:
        # A scorer of its own asks for no verdict, and its hard cases are slow enough once.
        verdict = Verdict(False, "unparsed") if name == "gym_score" else task.verify(problem, text)
        completion = Completion(problem, text, verdict, True)
        # A reward that draws gets the same draw for every text: its luck is no property of the text.
        return reward(completion, generator(0, "attack", name))

    return judge


def _print(title: str, found: Sequence[Finding]) -> None:
    out, table = console(), Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in ("texts", "tried", "paid in full", "mean reward", ""):
        table.add_column(column, justify="left" if column in ("texts", "") else "right")
    for finding in found:
        if finding.tried:
            fault = ("FALSE REJECTS" if finding.family == "right answer" else "HOLE") if finding.hole else "fine"
            paid = f"{finding.paid} ({100 * finding.rate:.0f} %)"
            style = "red" if finding.hole else "green"
            table.add_row(finding.family, str(finding.tried), paid, f"{finding.mean:.2f}", Text(fault, style=style))
    out.print(table)
    for finding in found:
        if finding.hole:
            verb = "refused" if finding.family == "right answer" else "paid"
            out.print(Text.assemble((f"{finding.family}: ", "bold"), f"{verb} {_short(finding.text)}"), soft_wrap=True)
            out.print(Text(f"  for {_short(finding.prompt)}"), soft_wrap=True)
    if not any(finding.hole for finding in found):
        out.print("No hole found; that is no proof that there is none.")


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({len(text)} characters)"

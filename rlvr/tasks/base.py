"""What a task is: a world that poses problems, demonstrates answers and judges texts.

A task is one file. It never sees a policy, a token id or a reward: ``verify`` is the truth, and rewards are built on top
of it elsewhere.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rlvr.types import Problem, Verdict

__all__ = ["Task", "check_task"]

GARBAGE = ("", "\x00", " ", "0", "1" * 40)


class Task(Protocol):
    """The protocol of a task.

    ``alphabet`` holds every character of prompts and completions; ``eos`` is the one that ends a completion; ``kinds``
    lists the failure kinds that ``verify`` may return beside ``"correct"``. A task of free text has no alphabet (``None``)
    and an empty ``eos``: it needs a policy that brings a tokenizer, and an end, of its own. A task may also offer
    ``traits(problem, text) -> Mapping[str, float]``: what a text is like, right or wrong, such as whether it shows its work;
    training logs their means, evaluation keeps them by problem, and nothing is paid for them.
    """

    name: str
    alphabet: str | None
    eos: str
    kinds: tuple[str, ...]

    def problem(self, generator: np.random.Generator, **difficulty: Any) -> Problem:
        """One problem; a difficulty is a number or an inclusive ``(low, high)`` range to draw from."""
        ...

    def gold(self, problem: Problem) -> str:
        """A demonstration: a completion that is right and stands in the form a policy should write."""
        ...

    def verify(self, problem: Problem, text: str) -> Verdict:
        """The truth about any text whatever; never raises for what a policy may write."""
        ...

    def limit(self, problem: Problem) -> int:
        """The longest completion a policy may write, in tokens, EOS included."""
        ...


def check_task(task: Task, count: int = 200, seed: int = 0, **difficulty: Any) -> None:
    """Refuse a task that breaks the contract: gold is right, garbage is wrong, problems repeat by seed.

    Raises ``ValueError`` that names the property, the problem and the text. Checked: every gold answer is correct, ends in
    EOS, fits the limit and the alphabet where there is one; empty, garbage and unended texts are wrong without an exception;
    one generator state gives one problem; no single text answers more than half of the problems, so a constant policy can't
    look able.

    >>> from rlvr.tasks import Pointer
    >>> check_task(Pointer(), count=20, n=(4, 8), k=(1, 7))
    """
    problems = [task.problem(np.random.default_rng([seed, i]), **difficulty) for i in range(count)]
    again = [task.problem(np.random.default_rng([seed, i]), **difficulty) for i in range(count)]
    if problems != again:
        raise ValueError(f"task {task.name}: the same generator state gave two different problems")
    if task.eos not in (task.alphabet or ""):
        raise ValueError(f"task {task.name}: eos {task.eos!r} is not in the alphabet")
    for problem in problems:
        _check_problem(task, problem)
    _check_constants(task, problems)


def _check_problem(task: Task, problem: Problem) -> None:
    gold, where = task.gold(problem), f"task {task.name}, prompt {problem.prompt!r}"
    verdict = _judge(task, problem, gold)
    if not verdict.correct or verdict.kind != "correct":
        raise ValueError(f"{where}: gold {gold!r} is judged {verdict.kind!r}; it must be 'correct'")
    if verdict.answer != problem.answer:
        raise ValueError(f"{where}: gold {gold!r} reads as answer {verdict.answer!r}, not {problem.answer!r}")
    # In free text a token is several characters: only the policy's tokenizer knows how many.
    too_long = task.alphabet is not None and len(gold) > task.limit(problem)
    if not gold.endswith(task.eos) or too_long:
        raise ValueError(f"{where}: gold {gold!r} must end in {task.eos!r} within {task.limit(problem)} characters")
    strange = sorted(set(problem.prompt + gold) - set(task.alphabet or problem.prompt + gold))
    if strange:
        raise ValueError(f"{where}: characters {strange} are not in the alphabet {task.alphabet!r}")
    for text in {*GARBAGE, task.eos, problem.prompt, task.alphabet or ""} - {problem.answer}:
        verdict = _judge(task, problem, text)
        if verdict.correct or verdict.kind not in task.kinds:
            raise ValueError(f"{where}: {text!r} is judged {verdict.kind!r}; it must be one of {task.kinds}")


def _judge(task: Task, problem: Problem, text: str) -> Verdict:
    try:
        return task.verify(problem, text)
    except Exception as error:
        where = f"task {task.name}, prompt {problem.prompt!r}"
        raise ValueError(f"{where}: verify raised {error!r} for {text!r}; it must judge any text") from error


def _check_constants(task: Task, problems: Sequence[Problem]) -> None:
    for text in {task.gold(problem) for problem in problems}:
        hits = sum(_judge(task, problem, text).correct for problem in problems)
        if hits > max(1, len(problems) // 2):
            raise ValueError(f"task {task.name}: the constant {text!r} answers {hits} of {len(problems)} problems")

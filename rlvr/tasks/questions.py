r"""A file of questions with answers, graded by our own number reader and, beyond numbers, by math-verify: ``file:PATH``.

JSONL or parquet with a column for the prompt and one for the answer, as GSM8K and MATH are written: of an answer that holds
``#### 61`` or ``\boxed{...}`` the last such part counts. Questions whose answer can't be graded are left out and counted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.tasks.answers import FORMS, PERCENT, gradable, read_lenient, read_number, read_strict, same
from rlvr.tasks.grading import require, shared_grader
from rlvr.tasks.text import TEXT_KINDS, Checked, check_settings, demonstration, judge
from rlvr.types import Problem, Verdict

__all__ = ["Questions", "check_answer"]

PROMPTS, ANSWERS = ("prompt", "question", "problem"), ("answer", "solution", "target", "gold")


@dataclass(frozen=True)
class Questions:
    """The questions of a file; ``prompt`` and ``answer`` name its columns (by default the first of the usual names).

    ``form``, ``grading`` and ``max_new_tokens`` as in `Arithmetic`; ``percent`` as in `rlvr.tasks.answers.same`; ``seconds`` is
    the time limit of math-verify. The file's text is the whole of a prompt except for the words that ask for the form, which
    ``ask=False`` leaves out.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.jsonl"
    >>> _ = path.write_text('{"question": "6 * 7?", "answer": "6 times 7 is #### 42"}')
    >>> task = Questions(str(path))
    >>> problem = task.problem(np.random.default_rng(0))
    >>> problem.answer, task.verify(problem, r"So it is \\boxed{42}.").kind, task.verify(problem, "42").kind
    ('42', 'correct', 'form')
    """

    path: str
    prompt: str | None = None
    answer: str | None = None
    form: str = "boxed"
    ask: bool = True
    grading: str = "strict"
    percent: str = "strict"
    max_new_tokens: int = 512
    seconds: float = 5.0
    alphabet: None = None
    eos: str = ""
    kinds: tuple[str, ...] = TEXT_KINDS

    def __post_init__(self) -> None:
        check_settings(self.name, self.form, self.grading, self.max_new_tokens)
        if self.percent not in PERCENT:
            raise ValueError(f"task {self.name}: percent = {self.percent!r}; accepted: {', '.join(PERCENT)}")
        if not self.usable:
            raise ValueError(f"task {self.name}: none of its {self.excluded} answers can be graded")

    @property
    def name(self) -> str:
        """``file:`` and the path."""
        return f"file:{self.path}"

    @cached_property
    def rows(self) -> list[tuple[str, str | None]]:
        """Each distinct prompt once, with its answer, or ``None`` where that can't be graded."""
        found = _read_file(Path(self.path))
        names = list(found[0]) if found else []
        prompt = _column(self.path, "prompt", self.prompt, PROMPTS, names)
        answer = _column(self.path, "answer", self.answer, ANSWERS, names)
        return list({str(row.get(prompt, "")): _gold(row.get(answer)) for row in found}.items())

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the questions and answers: a run goes on only with those that it began with."""
        return hashlib.sha256(json.dumps(self.rows).encode()).hexdigest()

    @cached_property
    def usable(self) -> list[int]:
        """The places of the questions whose answers can be graded."""
        return [place for place, (_, gold) in enumerate(self.rows) if gold is not None]

    @property
    def excluded(self) -> int:
        """How many questions are left out."""
        return len(self.rows) - len(self.usable)

    def problem(self, generator: np.random.Generator, rows: int | tuple[int, int] | None = None) -> Problem:
        """A question of the file; ``rows`` is an inclusive range of places among the usable ones, from 0, to draw from.

        >>> Questions("gsm8k.jsonl").problem(np.random.default_rng(0), rows=(0, 99))  # doctest: +SKIP
        """
        low, high = (0, len(self.usable) - 1) if rows is None else rows if isinstance(rows, tuple) else (rows, rows)
        if not 0 <= low <= high < len(self.usable):
            raise ValueError(f"task {self.name}: rows = {rows!r}; accepted: a range within 0..{len(self.usable) - 1}")
        row = self.usable[int(generator.integers(low, high + 1))]
        prompt, gold = self.rows[row]
        return Problem(f"{prompt.rstrip()}\n{FORMS[self.form]}" if self.ask else prompt, gold, {"row": row})

    def gold(self, problem: Problem) -> str:
        """The answer in its form, without a derivation.

        >>> Questions.gold(Questions, Problem("6 * 7?", "42"))
        '\\\\boxed{42}'
        """
        return demonstration(problem.answer, self.form)

    def limit(self, problem: Problem) -> int:
        """``max_new_tokens``.

        >>> Questions.limit(Questions, Problem("6 * 7?", "42"))
        512
        """
        return self.max_new_tokens

    def verify(self, problem: Problem, text: str) -> Verdict:
        r"""Right when the text's answer equals the file's.

        >>> Questions.verify(Questions, Problem("3 / 4?", "3/4"), r"\boxed{\frac{3}{4}}").kind
        'correct'
        """
        check = partial(check_answer, problem.answer, percent=self.percent, seconds=self.seconds)
        numeric = read_number(problem.answer) is not None
        return judge(
            text, self.form, self.grading, check, partial(read_lenient, prompt=problem.prompt, numeric=numeric)
        )


def check_answer(gold: str, answer: str, *, percent: str = "strict", seconds: float = 5.0) -> Checked:
    r"""Whether an answer equals the right one: as a number or words by `same`, else by algebra in a worker process.

    Not symmetric: math-verify lets an interval stand for an inequality (gold ``0 < x < 12``, answer ``(0,12)``), and not the
    other way round.

    >>> check_answer("3/4", r"\frac{3}{4}"), check_answer("1", r"1 - \sqrt{3}")
    (Checked(kind='right', answer='3/4'), Checked(kind='wrong', answer='1 - \\sqrt{3}'))
    """
    known = same(gold=gold, answer=answer, percent=percent)
    if known is not None:
        return Checked("right", gold) if known else Checked("wrong", answer)
    require("math_verify")
    found = shared_grader(seconds).grade("math", "math_verify", gold=gold, answer=answer)
    return Checked(found.kind, {"right": gold, "wrong": answer}.get(found.kind))


def _gold(cell: object) -> str | None:
    text = "" if cell is None else str(cell).strip()
    for form in ("boxed", "hashes"):
        if found := read_strict(text, form):
            return found if gradable(found) else None
    return text if gradable(text) and "\n" not in text else None


def _read_file(path: Path) -> Sequence[Mapping[str, Any]]:
    if not path.is_file():
        raise ValueError(f"task file:{path}: there is no such file")
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    rows = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                rows.append(_row(path, number, line))
    return rows


def _row(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"task file:{path}: line {number} is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"task file:{path}: line {number} holds a {type(row).__name__}; accepted: an object a line")
    return row


def _column(path: str, what: str, wanted: str | None, usual: Sequence[str], names: Sequence[str]) -> str:
    found = next((name for name in ([wanted] if wanted else usual) if name in names), None)
    if found is None:
        accepted = f"{what}=NAME with one of {', '.join(names)}" if names else "a file with rows"
        raise ValueError(f"task file:{path}: no column {wanted or ' or '.join(usual)}; accepted: {accepted}")
    return found

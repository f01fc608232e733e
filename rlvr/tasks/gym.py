"""Every task of reasoning-gym (the extra ``[tasks]``) behind one adapter, named ``gym:NAME``.

Its own scorer runs in a worker process (`rlvr.tasks.grading`) and is what the reward ``gym_score`` pays. Our verdict asks for
its full score, and where its scorer is known to be exploitable for more (`rlvr.tasks.gym_checks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from rlvr.tasks.answers import FORMS, boxed, read_strict
from rlvr.tasks.grading import START, Outcome, require, shared_grader
from rlvr.tasks.gym_checks import NOT_BEYOND, STRICTER
from rlvr.tasks.text import TEXT_KINDS, Checked, check_settings, demonstration, judge
from rlvr.types import Problem, Verdict

__all__ = ["Gym", "gym_names", "own_score"]

ENDLESS = 2**31 - 1  # entries are made from a seed and a number: with so many of them none returns by accident


@lru_cache(maxsize=1)
def gym_names() -> tuple[str, ...]:
    """The tasks of the reasoning-gym that is installed; refused in one line without it.

    >>> gym_names()  # doctest: +SKIP
    ('ab', 'acre', 'advanced_geometry', ...)
    """
    require("reasoning_gym")
    return tuple(_ready(shared_grader().grade("gym_names", "reasoning_gym", START), "reasoning_gym")["names"])


@dataclass(frozen=True)
class Gym:
    """The reasoning-gym task called ``dataset``; ``options`` go to its configuration, as difficulties do.

    ``form`` is how the answer is asked for (its own prompts often ask for a form of the answer itself, too), ``grading``
    whether the form is part of being right, ``seconds`` the time limit of its scorer.

    >>> Gym("countdown").name  # doctest: +SKIP
    'gym:countdown'
    """

    dataset: str
    form: str = "tags"
    grading: str = "strict"
    max_new_tokens: int = 128
    seconds: float = 5.0
    options: Mapping[str, Any] = field(default_factory=dict)
    alphabet: None = None
    eos: str = ""
    kinds: tuple[str, ...] = TEXT_KINDS

    def __post_init__(self) -> None:
        if self.dataset not in gym_names():
            raise ValueError(f"task gym:{self.dataset} is unknown; accepted: {', '.join(gym_names())}")
        check_settings(self.name, self.form, self.grading, self.max_new_tokens)
        self._drawn(0, self.options)

    @property
    def name(self) -> str:
        """``gym:`` and the data set's name."""
        return f"gym:{self.dataset}"

    def problem(self, generator: np.random.Generator, **difficulty: Any) -> Problem:
        """A problem of the data set, drawn by its number; difficulties are fields of its configuration.

        >>> Gym("chain_sum").problem(np.random.default_rng(0), min_terms=2, max_terms=2)  # doctest: +SKIP
        """
        config = {**self.options, **difficulty}
        entry = self._drawn(int(generator.integers(ENDLESS)), config)
        meta = {"dataset": self.dataset, "answered": entry["answer"] is not None, "place": entry["place"]}
        if "numbers" in entry:
            meta |= {"numbers": tuple(entry["numbers"]), "target": entry["target"] or 24}
        return Problem(f"{entry['question'].strip()}\n{FORMS[self.form]}", entry["answer"] or "", meta)

    def gold(self, problem: Problem) -> str:
        """The data set's own answer in its form; refused where it has none.

        >>> Gym("gcd").gold(Problem("...", "6", {"answered": True}))  # doctest: +SKIP
        '<answer>6</answer>'
        """
        if not problem.meta["answered"]:
            raise ValueError(f"task {self.name}: there is no answer to demonstrate; accepted: learning from reward")
        return demonstration(problem.answer, self.form)

    def limit(self, problem: Problem) -> int:
        """``max_new_tokens``.

        >>> Gym("gcd", max_new_tokens=16).limit(Problem("...", "6"))  # doctest: +SKIP
        16
        """
        return self.max_new_tokens

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Right when its own scorer gives the full score, and `STRICTER` agrees.

        >>> task = Gym("puzzle24")  # doctest: +SKIP
        >>> task.verify(task.problem(np.random.default_rng(0)), "<answer>7*7/2*1</answer>").kind  # doctest: +SKIP
        'wrong'
        """
        return judge(text, self.form, self.grading, partial(self._check, problem), _read)

    def _check(self, problem: Problem, answer: str) -> Checked:
        stricter = STRICTER.get(self.dataset)
        checked = stricter(problem, answer) if stricter else None
        if checked is not None and checked.kind != "right":
            return checked
        found = _scored(problem, answer, self.seconds)
        if found.kind != "scored":
            return Checked(found.kind)
        right = _full(found)
        if right and self.dataset in NOT_BEYOND:
            right = not _full(_scored(problem, answer.strip()[:-1], self.seconds))
        return Checked("right", problem.answer) if right else Checked("wrong", answer)

    def _drawn(self, number: int, config: Mapping[str, Any]) -> Mapping[str, Any]:
        found = shared_grader(self.seconds).grade(
            "gym_entry", "reasoning_gym", START, name=self.dataset, config=dict(config), number=number
        )
        return _ready(found, f"task {self.name}, difficulty {dict(config)}")


def own_score(problem: Problem, text: str, seconds: float = 5.0) -> Outcome:
    """What the scorer of reasoning-gym gives for the answer in a text, holes included; 0 without an answer.

    >>> own_score(Gym("puzzle24").problem(np.random.default_rng(0)), "6*4*1*1").score  # doctest: +SKIP
    1.0
    """
    answer = _read(text)
    return Outcome("unparsed", score=0.0) if answer is None else _scored(problem, answer, seconds)


def _scored(problem: Problem, answer: str, seconds: float) -> Outcome:
    item = {"name": problem.meta["dataset"], "answer": answer, **problem.meta["place"]}
    return shared_grader(seconds).grade("gym", "reasoning_gym", **item)


def _full(found: Outcome) -> bool:
    return found.score is not None and found.score >= 1 - 1e-9


def _ready(found: Outcome, where: str) -> Mapping[str, Any]:
    if found.data is None:
        raise ValueError(f"{where}: {found.why}")
    return found.data


def _read(text: str) -> str | None:
    """The answer without its form: what is tagged or boxed, or else the whole text, as its own scorers expect."""
    return read_strict(text, "tags") or next(iter(boxed(text)[-1:]), None) or text.strip() or None

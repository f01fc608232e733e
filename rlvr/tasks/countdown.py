"""Number puzzles: make a target from some numbers, each used exactly once, with + - * / and brackets.

What a policy writes is parsed into a tree and computed in exact fractions (`rlvr.tasks.expressions`), never evaluated:
decimals, powers and functions are refused, and the numbers must be those of the puzzle.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlvr.tasks.answers import FORMS, read_strict
from rlvr.tasks.draw import whole
from rlvr.tasks.expressions import last_expression, read_expression, solve
from rlvr.tasks.text import TEXT_KINDS, Checked, check_settings, demonstration, judge
from rlvr.types import Problem, Verdict

__all__ = ["Countdown", "Game24", "check_puzzle"]

FACES = {"ten": {11: 10, 12: 10, 13: 10}, "rank": {11: 11, 12: 12, 13: 13}}
CARDS = {1: "A", 11: "J", 12: "Q", 13: "K"}
RULES = "Use each number exactly once, with + - * / and brackets."


@dataclass(frozen=True)
class Countdown:
    """Make a target from given numbers; ``form``, ``grading`` and ``max_new_tokens`` as in `Arithmetic`.

    >>> task = Countdown()
    >>> problem = Problem("...", "10", {"numbers": (2, 3, 7), "target": 10})
    >>> [task.verify(problem, f"<answer>{text}</answer>").kind for text in ("5*2", "3+7", "2+3+7-2", "3+7*(2-1)")]
    ['wrong', 'wrong', 'wrong', 'wrong']
    """

    form: str = "tags"
    grading: str = "strict"
    max_new_tokens: int = 64
    name: str = "countdown"
    alphabet: None = None
    eos: str = ""
    kinds: tuple[str, ...] = TEXT_KINDS

    def __post_init__(self) -> None:
        check_settings(self.name, self.form, self.grading, self.max_new_tokens)

    def problem(
        self,
        generator: np.random.Generator,
        numbers: int | tuple[int, int] = (3, 4),
        value: int | tuple[int, int] = (1, 50),
        highest: int = 100,
    ) -> Problem:
        """A solvable puzzle of so many ``numbers`` within ``value``, with a target from 1 to ``highest``.

        >>> problem = Countdown().problem(np.random.default_rng(0), numbers=3, value=(1, 9))
        >>> read_expression(problem.meta["solution"]).value == problem.meta["target"]
        True
        """
        count = whole(generator, self.name, "numbers", numbers, 2, 6)
        highest = whole(generator, self.name, "highest", highest, 10, 10**6)
        for _ in range(1000):
            given = [whole(generator, self.name, "value", value, 1, 1000) for _ in range(count)]
            solution = _any_expression(generator, given)
            made = read_expression(solution)
            if made and made.value.denominator == 1 and 1 <= made.value <= highest and made.value not in given:
                return _posed(given, int(made.value), solution, self.form)
        raise ValueError(
            f"{self.name}: no puzzle with value = {value!r} and highest = {highest}; accepted: smaller values"
        )

    def gold(self, problem: Problem) -> str:
        """A solution in its form.

        >>> Countdown().gold(Problem("...", "10", {"solution": "3 + 7"}))
        '<answer>3 + 7</answer>'
        """
        return demonstration(problem.meta["solution"], self.form)

    def limit(self, problem: Problem) -> int:
        """``max_new_tokens``.

        >>> Countdown(max_new_tokens=32).limit(Problem("...", "10"))
        32
        """
        return self.max_new_tokens

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Right when the expression has the target's value and uses the puzzle's numbers, each once.

        >>> problem = Problem("...", "24", {"numbers": (4, 6, 8), "target": 24})
        >>> [Countdown().verify(problem, t).kind for t in ("<answer>(8-4)*6</answer>", "(8-4)*6 = 24", "8*3", "six")]
        ['correct', 'form', 'wrong', 'unparsed']
        """
        return _verdict(self, problem, text)


@dataclass(frozen=True)
class Game24:
    """GeneralPoints 24: four cards make 24; ``faces`` says what J, Q and K are worth: ``ten`` or their ``rank`` 11, 12, 13.

    The rule variants of Chu et al. 2025 (arXiv 2501.17161): train under one, test under the other. The prompt shows cards and
    states the rule; an answer is written in numbers.

    >>> problem = Game24(faces="rank").problem(np.random.default_rng(0))
    >>> Game24(faces="rank").verify(problem, "6*4*1*1").correct
    False
    """

    faces: str = "ten"
    form: str = "tags"
    grading: str = "strict"
    max_new_tokens: int = 64
    name: str = "game24"
    alphabet: None = None
    eos: str = ""
    kinds: tuple[str, ...] = TEXT_KINDS

    def __post_init__(self) -> None:
        check_settings(self.name, self.form, self.grading, self.max_new_tokens)
        if self.faces not in FACES:
            raise ValueError(f"task {self.name}: faces = {self.faces!r}; accepted: {', '.join(FACES)}")

    def problem(self, generator: np.random.Generator, card: int | tuple[int, int] = (1, 13)) -> Problem:
        """Four cards of ranks within ``card`` that can make 24; hands with a face card show the rule at work.

        >>> len(Game24().problem(np.random.default_rng(0), card=(1, 10)).meta["numbers"])
        4
        """
        for _ in range(200):
            cards = [whole(generator, self.name, "card", card, 1, 13) for _ in range(4)]
            given = [FACES[self.faces].get(rank, rank) for rank in cards]
            solution = solve(given, 24)
            if solution is not None:
                return _posed(given, 24, solution, self.form, cards, self.faces)
        raise ValueError(f"{self.name}: no hand with card = {card!r} makes 24; accepted: other cards")

    def gold(self, problem: Problem) -> str:
        """A solution in its form.

        >>> Game24(form="bare").gold(Problem("...", "24", {"solution": "(8 - 4) * 6"}))
        '(8 - 4) * 6'
        """
        return demonstration(problem.meta["solution"], self.form)

    def limit(self, problem: Problem) -> int:
        """``max_new_tokens``.

        >>> Game24(max_new_tokens=32).limit(Problem("...", "24"))
        32
        """
        return self.max_new_tokens

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Right when the expression makes 24 of the four numbers, each used once.

        >>> problem = Problem("...", "24", {"numbers": (1, 1, 4, 6), "target": 24})
        >>> [Game24(form="bare").verify(problem, text).kind for text in ("6*4*1*1", "7*7/2*1", "6*4")]
        ['correct', 'wrong', 'wrong']
        """
        return _verdict(self, problem, text)


def check_puzzle(numbers: Sequence[int], target: int, answer: str) -> Checked:
    """Whether an expression, with or without ``= target``, solves a puzzle; a right one votes for the target.

    >>> check_puzzle([2, 3], 6, "2*3 = 6"), check_puzzle([2, 3], 8, "2**3"), check_puzzle([2, 3], 6, "12/2")
    (Checked(kind='right', answer='6'), Checked(kind='unparsed', answer=None), Checked(kind='wrong', answer='12/2'))
    """
    left, equals, right = answer.partition("=")
    made = read_expression(left)
    claimed = read_expression(right) if equals else None
    if made is None or (equals and claimed is None):
        return Checked("unparsed")
    if Counter(made.numbers) != Counter(numbers):
        return Checked("wrong", " ".join(left.split()))
    right_value = made.value == target and (claimed is None or claimed.value == target)
    return Checked("right" if right_value else "wrong", str(made.value))


def _verdict(task: Countdown | Game24, problem: Problem, text: str) -> Verdict:
    check = partial(check_puzzle, problem.meta["numbers"], problem.meta["target"])
    return judge(text, task.form, task.grading, check, partial(_read, problem.prompt))


def _read(prompt: str, text: str) -> str | None:
    text = text.replace(prompt, " ")
    for form in ("boxed", "tags", "hashes"):
        if found := read_strict(text, form):
            return found
    return last_expression(text)


def _any_expression(generator: np.random.Generator, numbers: Sequence[int]) -> str:
    """Some expression of all the numbers: two at a time are joined by a random operation."""
    parts = [str(number) for number in numbers]
    while len(parts) > 1:
        i, j = (int(place) for place in generator.choice(len(parts), 2, replace=False))
        made = f"({parts[i]} {'+-*/'[int(generator.integers(4))]} {parts[j]})"
        parts = [part for place, part in enumerate(parts) if place not in (i, j)] + [made]
    return parts[0][1:-1]


def _posed(
    numbers: list[int], target: int, solution: str, form: str, cards: list[int] | None = None, faces: str = ""
) -> Problem:
    if cards is None:
        shown = f"the numbers {', '.join(map(str, numbers))}"
    else:
        worth = "J, Q and K count as 10" if faces == "ten" else "J, Q and K count as 11, 12 and 13"
        shown = f"the cards {', '.join(CARDS.get(rank, str(rank)) for rank in cards)} (A counts as 1, {worth})"
    ask = FORMS[form].replace("answer", "expression") if form == "bare" else FORMS[form]
    prompt = f"Make {target} from {shown}. {RULES} {ask}"
    return Problem(prompt, str(target), {"numbers": tuple(numbers), "target": target, "solution": solution})

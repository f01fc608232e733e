"""Texts that try a verifier: families that are wrong by construction, and the right answer in many equivalent forms.

Every text of a family is wrong for its problem whatever the verifier thinks, except that a constant may happen to be right.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from rlvr.tasks.answers import read_number
from rlvr.tasks.base import Task
from rlvr.tasks.text import demonstration
from rlvr.types import Problem

__all__ = ["CONSTANTS", "FAMILIES", "HUGE", "Target", "equivalents"]

CONSTANTS = (
    "6*4*1*1",
    "8*3*1*1",
    "7*7/2*1",
    "1.5*2",
    "0",
    "1",
    "24",
    "True",
    "False",
    "yes",
    "no",
    "A",
    "[]",
    "{}",
    "x",
    "None",
)
GARBAGE = (
    "\x00",
    "?",
    "nan",
    "inf",
    "1" * 40,
    "I don't know.",
    "The answer is in the question.",
    "__import__('os').getcwd()",
)
HUGE = ("9**9**9**9", "9^{9^{9^{9}}}", "10^{10^{10}}!", "(" * 10_000 + "1" + ")" * 10_000, "9" * 5_000)
ENOUGH = 4000  # illegal expressions tried for one puzzle


@dataclass(frozen=True)
class Target:
    """A problem under attack: its gold text if there is one, and answers that are wrong for it.

    >>> from rlvr.tasks import Arithmetic
    >>> Target(Arithmetic(), Problem("1 + 1?", "2"), "2", ("3",)).gold
    '2'
    """

    task: Task
    problem: Problem
    gold: str | None
    others: Sequence[str]

    def wrap(self, answer: str) -> str:
        """An answer as the task wants to see it.

        >>> from rlvr.tasks import Arithmetic
        >>> Target(Arithmetic(form="tags"), Problem("1 + 1?", "2"), None, ()).wrap("3")
        '<answer>3</answer>'
        """
        if self.task.alphabet is None:
            return demonstration(answer, self.task.form)
        posed = replace(self.problem, answer=answer)
        return self.task.direct(posed) if hasattr(self.task, "direct") else answer + self.task.eos

    @property
    def numbers(self) -> tuple[int, ...] | None:
        """The numbers of a puzzle; ``None`` for anything else.

        >>> Target(None, Problem("1 + 1?", "2"), None, ()).numbers is None
        True
        """
        return self.problem.meta.get("numbers")

    def answer(self) -> str:
        """The right answer's text: a puzzle's is its solution.

        >>> Target(None, Problem("24 from 4, 6", "24", {"solution": "4 * 6"}), None, ()).answer()
        '4 * 6'
        """
        return self.problem.meta.get("solution", self.problem.answer)


def _empty(target: Target) -> list[str]:
    return ["", " ", "\n\n", target.task.eos, target.wrap(""), target.wrap(" ")]


def _garbage(target: Target) -> list[str]:
    return [text for each in GARBAGE for text in _both(target, each)]


def _prompt(target: Target) -> list[str]:
    prompt = target.problem.prompt
    return [f"{prompt}\n{prompt}", *_both(target, prompt), *_both(target, prompt.split("\n")[0])]


def _both(target: Target, text: str) -> list[str]:
    """A text as it is and in the form of an answer; in a world of letters the latter may begin with the right one."""
    return [text, target.wrap(text)] if target.task.alphabet is None else [text]


def _everything(target: Target) -> list[str]:
    half = len(target.others) // 2
    answers = [*target.others[: max(1, half)], target.answer(), *target.others[max(1, half) :]]
    if len(answers) < 3:
        return []
    return [
        text for joint in (", ", " or ", "\n", "") for text in (joint.join(answers), target.wrap(joint.join(answers)))
    ]


def _hedges(target: Target) -> list[str]:
    if len(target.others) < 2:
        return []
    one, other = target.others[:2]
    hedge = f"{one} or {target.answer()} or {other}"
    return [
        hedge,
        target.wrap(hedge),
        f"It is {hedge}, I can't tell.",
        target.wrap(f"{one}, {target.answer()}, {other}"),
    ]


def _repeated(target: Target) -> list[str]:
    if len(target.others) < 2:
        return []
    one, other = (target.wrap(text) for text in target.others[:2])
    right = target.gold or target.wrap(target.answer())
    return [one + right + other, f"{one}\n{right}\n{other}", (one + right) * 3 + other]


def _huge(target: Target) -> list[str]:
    return [target.wrap(each) for each in HUGE]


def _near(target: Target) -> list[str]:
    number = None if target.numbers else read_number(target.problem.answer)
    if number is None or target.task.alphabet is not None:
        return []
    value, text = number.value, target.problem.answer
    moved = [
        value + 1,
        value - 1,
        value + Fraction(1, 2),
        10 * value,
        100 * value,
        value / 100,
    ]
    if not target.task.name.startswith("gym:"):  # many of its scorers have a tolerance
        moved.append(value + Fraction(1, 1000))
    wrong = [_decimal(other) for other in (*moved, -value) if other != value]
    inside = [
        f"{text} + 1",
        f"1 + {text}",
        f"{text} - \\sqrt{{3}}",
        f"{text}x",
        f"x^{{{text}}}",
        f"\\sqrt{{{text}}}",
    ]
    keep = [each for each in inside if not (value in (0, 1) and "sqrt" in each)]
    return [other for each in (*wrong, *keep) for other in (each, target.wrap(each))]


def _decimal(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):.6f}".rstrip("0")


def _foreign(target: Target) -> list[str]:
    """A puzzle's target made of numbers that aren't the puzzle's."""
    if target.numbers is None:
        return []
    goal, count = target.problem.meta["target"], len(target.numbers)
    pairs = [(a, goal // a) for a in range(2, 11) if goal % a == 0 and goal // a <= 10]
    made = [[goal], [goal, *[1] * (count - 1)], *([*pair, *[1] * (count - 2)] for pair in pairs)]
    texts = ["*".join(map(str, each)) for each in made if sorted(each) != sorted(target.numbers)]
    return [target.wrap(text) for text in texts]


def _illegal(target: Target) -> list[str]:
    """A puzzle's own numbers, but with powers, decimal points, roots or factorials, or with parts that come to nothing."""
    if target.numbers is None:
        return []
    found = [target.wrap(text) for text in itertools.islice(_tricks(target.numbers, target.problem.meta["target"]), 3)]
    solution = target.problem.meta.get("solution") or target.problem.answer
    neutral = [f"({solution})+x-x", f"Abs({solution})", f"({solution})*pi/pi", f"({solution})**1", f"({solution})*1.0"]
    return found + ([target.wrap(text) for text in neutral] if solution else [])


def _tricks(numbers: Sequence[int], goal: int) -> Iterator[str]:
    """Expressions of exactly these numbers, from left to right, with the goal's value and at least one illegal step."""
    orders = itertools.permutations(numbers)
    for order, steps in itertools.islice(_mixed(orders, len(numbers) - 1), ENOUGH):
        value, text = float(order[0]), str(order[0])
        for step, number in zip(steps, order[1:], strict=True):
            try:
                value, text = STEPS[step](value, text, number)
            except (ArithmeticError, ValueError):
                break
        else:
            if not isinstance(value, complex) and math.isclose(value, goal, abs_tol=1e-9):
                yield text


def _mixed(orders: Iterator[tuple[int, ...]], count: int) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    legal = set("+-*/")
    for order in orders:
        for steps in itertools.product(STEPS, repeat=count):
            if not legal.issuperset(steps):
                yield order, steps


def _power(value: float, text: str, number: int) -> tuple[float, str]:
    if abs(value) > 100 or number > 4:
        raise ValueError
    return value**number, f"({text})**{number}"


def _point(value: float, text: str, number: int) -> tuple[float, str]:
    if not text.isdigit():
        raise ValueError
    return float(f"{text}.{number}"), f"{text}.{number}"


STEPS: dict[str, Callable[[float, str, int], tuple[float, str]]] = {
    "**": _power,
    ".": _point,
    "sqrt": lambda value, text, number: (value * math.sqrt(number), f"({text})*sqrt({number})"),
    "!": lambda value, text, number: (value + math.factorial(min(number, 20)), f"({text})+factorial({number})"),
    "+": lambda value, text, number: (value + number, f"({text})+{number}"),
    "-": lambda value, text, number: (value - number, f"({text})-{number}"),
    "*": lambda value, text, number: (value * number, f"({text})*{number}"),
    "/": lambda value, text, number: (value / number, f"({text})/{number}"),
}

FAMILIES: dict[str, Callable[[Target], list[str]]] = {
    "empty": _empty,
    "garbage": _garbage,
    "prompt copied": _prompt,
    "all answers at once": _everything,
    "hedges": _hedges,
    "repeated answers": _repeated,
    "numbers nearby": _near,
    "other numbers": _foreign,
    "illegal arithmetic": _illegal,
    "huge powers": _huge,
}


def equivalents(target: Target, loose: bool) -> list[str]:
    """The right answer in forms that must be accepted; ``loose`` adds forms that only lenient grading knows.

    >>> from rlvr.tasks import Arithmetic
    >>> equivalents(Target(Arithmetic(), Problem("3 * 4?", "12"), "12", ()), loose=True)[-2:]
    ['The answer is 12.', '**12**']
    """
    if target.gold is None:
        return []
    if target.task.alphabet is not None:
        return [target.gold, target.wrap(target.problem.answer)]
    text, form = target.answer(), target.task.form
    spelled = [text, f" {text} ", *_spellings(target, text)]
    found = [target.gold, f"{target.gold}\n", *map(target.wrap, spelled)]
    if form != "bare":
        found += [f"Let me think.\n{target.gold}", f"Let me think: {target.gold} That is it."]
        found += [f"{target.wrap(target.others[0])} No, wait. {target.gold}"] if target.others else []
    known = target.numbers is not None or read_number(text) is not None
    return found + ([f"The answer is {text}.", f"**{text}**"] if loose and known else [])


def _spellings(target: Target, text: str) -> list[str]:
    own_words = target.task.name.startswith(
        "gym:"
    )  # its scorers compare texts, mostly: that is their rule, not a fault
    if target.numbers is not None:
        found = [text.replace(" ", ""), f"({text})"]
        equal = f"{text} = {target.problem.meta['target']}"
        return found if own_words else [*found, equal, text.replace("*", "×").replace("/", "÷")]
    number = read_number(text)
    if number is None or number.percent or number.unit or own_words:
        return []
    fraction = number.value
    if fraction.denominator != 1:
        return [f"\\frac{{{fraction.numerator}}}{{{fraction.denominator}}}"] if "/" in text else []
    return [f"{text}.0", f"${text}$", f"{int(fraction):,}", f"{text}."]

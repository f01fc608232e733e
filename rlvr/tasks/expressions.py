"""Arithmetic that a policy wrote, read without running it: whole numbers, + - * / and brackets, computed in exact fractions.

The text becomes a syntax tree (`ast` parses, it never executes) and every node that is not on a short list is refused: no
powers, no decimals, no names, no calls. Length bounds the work, so nothing a policy writes can hang the reader.
"""

import ast
import operator
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

__all__ = ["LONGEST", "Expression", "last_expression", "read_expression", "solve"]

LONGEST = 200  # characters of an expression
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
SIGNS = {ast.UAdd: operator.pos, ast.USub: operator.neg}
SPELLINGS = {"\\times": "*", "\\cdot": "*", "\\div": "/", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"}
FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
BOLD = re.compile(r"(?<!\S)\*\*(?=\S)(.+?)(?<=\S)\*\*(?=[\s.,;:!?]|$)")
RUN = re.compile(r"[\d+\-*/()^.!,=\s]+")
ENDS = " \n\t.,!="


class Expression(NamedTuple):
    """The exact value of an expression and the numbers it was made of, in order."""

    value: Fraction
    numbers: tuple[int, ...]


def read_expression(text: str) -> Expression | None:
    """What an arithmetic text is worth, or ``None`` when it isn't one; division by zero isn't.

    Accepted: digits, ``+ - * /``, brackets, a sign before a term, and the spellings ``×``, ``÷``, ``\\times``,
    ``\\frac{1}{2}``. Refused: decimals, powers, ``//``, names, calls, more than ``LONGEST`` characters.

    >>> read_expression("(8 - 4) × 6")
    Expression(value=Fraction(24, 1), numbers=(8, 4, 6))
    >>> read_expression("2**3"), read_expression("1.5*2"), read_expression("7//2"), read_expression("__import__('os')")
    (None, None, None, None)
    """
    plain = _respelled(text)
    if len(plain) > LONGEST or not re.fullmatch(r"[0-9+\-*/() ]+", plain):
        return None
    numbers: list[int] = []
    try:
        return Expression(_value(ast.parse(plain, mode="eval").body, numbers), tuple(numbers))
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return None


def _respelled(text: str) -> str:
    text = text.strip().strip("$").replace("\\(", "").replace("\\)", "").replace("\\left", "").replace("\\right", "")
    for spelling, sign in SPELLINGS.items():
        text = text.replace(spelling, sign)
    if len(text) <= LONGEST:
        text = FRACTION.sub(r"((\1)/(\2))", text)
    return " ".join(text.split())


def _value(node: ast.expr, numbers: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        numbers.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left, numbers), _value(node.right, numbers))
    if isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
        return SIGNS[type(node.op)](_value(node.operand, numbers))
    raise ValueError(type(node).__name__)


def last_expression(text: str) -> str | None:
    """The last arithmetic in running text, its ``= result`` included; ``None`` without any.

    What stands in one piece is taken in one piece, powers and decimals included, so that a refused text is never cut down to
    an accepted part of itself.

    >>> last_expression("I try 3 + 4. So it is (8 - 4) * 6 = 24, done.")
    '(8 - 4) * 6 = 24'
    >>> last_expression("take 2**3 then")
    '2**3'
    """
    plain = _respelled_lines(text)
    kept = [run for match in RUN.finditer(plain) if (run := _alone(plain, match.start(), match.end()))]
    return kept[-1] if kept else None


def _alone(text: str, start: int, end: int) -> str | None:
    """The arithmetic between two places, if nothing touches it: ``Abs(3*8)`` and ``3*8 + x`` are other things than 3*8."""
    run = text[start:end].strip(ENDS)
    first = start + len(text[start:end]) - len(text[start:end].lstrip(ENDS))
    run = run.rstrip(ENDS + "(")  # a bracket that opens what follows is no part of it
    after, before = text[first + len(run) :], text[first - 1 : first]
    touched = re.match(r"\w|\(|[ ]*[+\-*/^]", after) or re.match(r"[A-Za-z_\\]", before)
    arithmetic = re.search(r"\d", run) and re.search(r"[+\-*/^]", run.strip("-"))
    whole = arithmetic and not touched and run[-1] in "0123456789)" and len(run) <= LONGEST
    return run if whole else None


def _respelled_lines(text: str) -> str:
    # Each line by itself: an expression doesn't run over a line's end. A sentence's end separates two of them, too.
    plain = (BOLD.sub(r" \1 ", line) if len(line) <= 10 * LONGEST else line for line in text.splitlines())
    return " ; ".join(re.sub(r"[.,](?=\s|$)", " ; ", _respelled(line)) for line in plain)


def solve(numbers: Iterable[int], target: int) -> str | None:
    """An expression of all the numbers, each used once, that has the target's value; ``None`` when there is none.

    >>> solve([1, 1, 1, 1], 24) is None
    True
    >>> read_expression(solve([3, 3, 8, 8], 24)).value
    Fraction(24, 1)
    """
    return _solve(tuple((Fraction(number), str(number)) for number in numbers), Fraction(target), set())


def _solve(items: tuple[tuple[Fraction, str], ...], target: Fraction, seen: set) -> str | None:
    if len(items) == 1:
        return items[0][1] if items[0][0] == target else None
    state = tuple(sorted(value for value, _ in items))
    if state in seen:
        return None
    seen.add(state)
    for i, (a, left) in enumerate(items):
        for j, (b, right) in enumerate(items):
            if i == j:
                continue
            rest = tuple(item for place, item in enumerate(items) if place not in (i, j))
            for made in _combined(a, b, left, right, i < j):
                found = _solve((*rest, made), target, seen)
                if found is not None:
                    return found.removeprefix("(").removesuffix(")") if _wrapped(found) and not rest else found
    return None


def _combined(a: Fraction, b: Fraction, left: str, right: str, first: bool):
    if first:  # a + b and b + a are one
        yield a + b, f"({left} + {right})"
        yield a * b, f"{_factor(left)} * {_factor(right)}"
    yield a - b, f"({left} - {right})"
    if b:
        yield a / b, f"({_factor(left)} / {right})"


def _factor(text: str) -> str:
    return text if text.isdigit() or _wrapped(text) else f"({text})"


def _wrapped(text: str) -> bool:
    """Whether one pair of brackets encloses all of the text."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return character == ")" and place == len(text) - 1
    return False

"""Where reasoning-gym's own scorers pay too much (found by `rlvr attack`, release 0.1.25), what our verdict asks for as well.

=====================  ==================================================================================
countdown              powers, decimal points, roots, factorials and symbols pass, as the text is evaluated
puzzle24               the numbers are never compared with the puzzle's, and 24.5 is cut to 24
game_of_life_halting   any text passes: it compares ``bool("True")`` with ``bool("False")``
complex_arithmetic     ``nan`` passes: ``min(1.0, nan)`` is 1.0
coin_flip              0 passes for every probability below its absolute tolerance
gsm_symbolic           the first number of a text counts, without its sign
fraction_simplification  a right fraction passes with anything around it
time_intervals         "2 days" passes with anything after it
sokoban                what is no move is skipped, so several solutions at once pass, or one with words around it
=====================  ==================================================================================
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from rlvr.tasks.answers import read_number
from rlvr.tasks.countdown import check_puzzle
from rlvr.tasks.text import Checked
from rlvr.types import Problem

__all__ = ["NOT_BEYOND", "STRICTER"]

NOT_BEYOND = frozenset({"sokoban"})
"""Data sets whose answers are walks: one that had solved the task before its last step is a solution with more behind it."""

TOLERANCE = Fraction(1, 1000)  # of a probability, relative
PROBABILITY = r"\d{1,40}/[1-9]\d{0,40}|\d{0,40}\.?\d{1,40}(?:[eE]-?\d{1,2})?"


def _puzzle(problem: Problem, answer: str) -> Checked:
    return check_puzzle(problem.meta["numbers"], problem.meta["target"], answer)


def _word(problem: Problem, answer: str) -> Checked:
    return Checked("right" if answer.strip().casefold() == problem.answer.casefold() else "wrong", answer)


def _complex(problem: Problem, answer: str) -> Checked:
    return Checked("right" if re.fullmatch(r"[\d\s.,+\-*()ij]+", answer) else "unparsed", answer)


def _number(problem: Problem, answer: str) -> Checked:
    gold, found = read_number(problem.answer), read_number(answer)
    if found is None or found.percent:
        return Checked("unparsed")
    return Checked("right" if gold is None or found.value == gold.value else "wrong", answer)


def _probability(problem: Problem, answer: str) -> Checked:
    gold, found = (
        Fraction(text.strip()) if re.fullmatch(PROBABILITY, text.strip()) else None for text in (problem.answer, answer)
    )
    if found is None or gold is None:
        return Checked("unparsed")
    return Checked("right" if abs(found - gold) <= TOLERANCE * gold else "wrong", answer)


def _fraction(problem: Problem, answer: str) -> Checked:
    return Checked("unparsed" if read_number(answer) is None else "right", answer)


def _interval(problem: Problem, answer: str) -> Checked:
    shape = r"-?\d+ days?(, ?[\d:.]+)?|-?[\d:.]+"
    return Checked("right" if re.fullmatch(shape, answer.strip()) else "unparsed", answer)


def _moves(problem: Problem, answer: str) -> Checked:
    return Checked("right" if re.fullmatch("[LDUR]+", answer.strip()) else "unparsed", answer)


STRICTER: Mapping[str, Callable[[Problem, str], Checked]] = {
    "countdown": _puzzle,
    "puzzle24": _puzzle,
    "game_of_life_halting": _word,
    "complex_arithmetic": _complex,
    "coin_flip": _probability,
    "gsm_symbolic": _number,
    "fraction_simplification": _fraction,
    "time_intervals": _interval,
    "sokoban": _moves,
}

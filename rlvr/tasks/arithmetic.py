"""Small arithmetic in words, for language models: sums, products, the largest of some numbers, letters in a word."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from rlvr.tasks.answers import FORMS, read_lenient, read_number
from rlvr.tasks.draw import whole
from rlvr.tasks.text import TEXT_KINDS, Checked, check_settings, demonstration, judge
from rlvr.types import Problem, Verdict

__all__ = ["Arithmetic"]

KINDS = ("sum", "difference", "product", "largest", "letters")
ALPHABETS = ("bdfgklmnprstvz", "aeiou")
Range = int | tuple[int, int]


@dataclass(frozen=True)
class Arithmetic:
    """Questions whose answer is one whole number; ``kind`` is sum, difference, product, largest or letters.

    ``form`` is how the prompt asks for the answer, ``grading`` whether the form is part of being right
    (`rlvr.tasks.text.judge`), ``max_new_tokens`` the length limit.

    >>> task = Arithmetic(kind="sum")
    >>> problem = task.problem(np.random.default_rng(0), digits=2, terms=2)
    >>> task.verify(problem, f"That is {problem.answer}.").kind, task.verify(problem, problem.answer).kind
    ('form', 'correct')
    """

    kind: str = "sum"
    form: str = "bare"
    grading: str = "strict"
    max_new_tokens: int = 16
    name: str = "arithmetic"
    alphabet: None = None
    eos: str = ""
    kinds: tuple[str, ...] = TEXT_KINDS

    def __post_init__(self) -> None:
        check_settings(self.name, self.form, self.grading, self.max_new_tokens)
        if self.kind not in KINDS:
            raise ValueError(f"task {self.name}: kind = {self.kind!r}; accepted: {', '.join(KINDS)}")

    def problem(
        self,
        generator: np.random.Generator,
        digits: Range = 2,
        terms: Range | None = None,
        below: int | None = None,
        length: Range = (5, 9),
    ) -> Problem:
        """A question with ``terms`` numbers (two; for the largest four) of ``digits`` digits each, or from 1 up to ``below``.

        For letters, ``length`` is that of the word. Each is a number or an inclusive range. ``below=20`` with the kind "sum"
        draws sums of two numbers up to 20.

        >>> Arithmetic("largest").problem(np.random.default_rng(0), digits=2, terms=4).prompt
        'Which of these numbers is the largest: 34, 55, 84, 66? Reply with the answer only.'
        """
        if self.kind == "letters":
            asked, answer, facts = _letters(generator, whole(generator, self.name, "length", length, 3, 30))
        else:
            default = 4 if self.kind == "largest" else 2
            count = whole(generator, self.name, "terms", default if terms is None else terms, 2, 20)
            places = whole(generator, self.name, "digits", digits, 1, 9)
            numbers = _numbers(generator, count, places, below, self.kind == "largest")
            asked, answer = _asked(self.kind, numbers)
            facts = {"terms": count, "digits": places}
        return Problem(f"{asked} {FORMS[self.form]}", str(answer), facts)

    def gold(self, problem: Problem) -> str:
        """The number in its form.

        >>> Arithmetic(form="boxed").gold(Problem("1 + 1?", "2"))
        '\\\\boxed{2}'
        """
        return demonstration(problem.answer, self.form)

    def limit(self, problem: Problem) -> int:
        """``max_new_tokens``.

        >>> Arithmetic(max_new_tokens=5).limit(Problem("1 + 1?", "2"))
        5
        """
        return self.max_new_tokens

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Right when the answer is that number; read leniently, the last number that stands for itself.

        >>> question = Problem("What is 12 + 35?", "47")
        >>> [Arithmetic(grading="lenient").verify(question, text).kind for text in ("It is 47!", "12 + 35", "47 - 1")]
        ['correct', 'unparsed', 'unparsed']
        """
        read = partial(read_lenient, prompt=problem.prompt, numeric=True)
        return judge(text, self.form, self.grading, partial(_check, problem.answer), read)


def _check(gold: str, answer: str) -> Checked:
    found = read_number(answer)
    if found is None or found.percent:
        return Checked("unparsed")
    return Checked("right" if found.value == int(gold) else "wrong", str(found.value))


def _numbers(generator: np.random.Generator, count: int, digits: int, below: int | None, distinct: bool) -> list[int]:
    low, high = (10 ** (digits - 1), 10**digits - 1) if below is None else (1, below)
    if high - low + 1 < (count if distinct else 1):
        raise ValueError(f"task arithmetic: below = {below!r}; accepted: None or a whole number from {count}")
    if distinct:
        return [low + int(i) for i in generator.choice(high - low + 1, count, replace=False)]
    return [int(generator.integers(low, high + 1)) for _ in range(count)]


def _asked(kind: str, numbers: list[int]) -> tuple[str, int]:
    if kind == "largest":
        return f"Which of these numbers is the largest: {', '.join(map(str, numbers))}?", max(numbers)
    if kind == "sum":
        return f"What is {' + '.join(map(str, numbers))}?", sum(numbers)
    if kind == "difference":
        numbers = sorted(numbers, reverse=True)
        return f"What is {' - '.join(map(str, numbers))}?", numbers[0] - sum(numbers[1:])
    product = 1
    for number in numbers:
        product *= number
    return f"What is {' * '.join(map(str, numbers))}?", product


def _letters(generator: np.random.Generator, length: int) -> tuple[str, int, dict[str, int]]:
    """A pronounceable word in which the letter occurs one to three times, each count as often as the others."""
    answer = int(generator.integers(1, 4))
    places = {int(place) for place in generator.choice(length, answer, replace=False)}
    letter = ALPHABETS[min(places) % 2][int(generator.integers(len(ALPHABETS[min(places) % 2])))]
    others = [letters.replace(letter, "") for letters in ALPHABETS]
    word = "".join(
        letter if i in places else others[i % 2][int(generator.integers(len(others[i % 2])))] for i in range(length)
    )
    return f'How many times does the letter "{letter}" occur in "{word}"?', answer, {"length": length}

"""The trivial world: repeat one letter. Every algorithm that works at all solves it within seconds."""

from dataclasses import dataclass

import numpy as np

from rlvr.types import Problem, Verdict

__all__ = ["Echo"]

LETTERS = "abcd"


@dataclass(frozen=True)
class Echo:
    """Prompt ``c:``, answer ``c$``; an untrained policy is right by chance often enough to learn from reward alone.

    >>> task = Echo()
    >>> task.verify(Problem("c:", "c"), "c$").correct
    True
    """

    name: str = "echo"
    alphabet: str = LETTERS + ":$"
    eos: str = "$"
    kinds: tuple[str, ...] = ("wrong", "format")

    def problem(self, generator: np.random.Generator) -> Problem:
        """One letter to repeat.

        >>> Echo().problem(np.random.default_rng(0)).prompt[1:]
        ':'
        """
        letter = LETTERS[int(generator.integers(len(LETTERS)))]
        return Problem(f"{letter}:", letter)

    def gold(self, problem: Problem) -> str:
        """The letter and the end sign.

        >>> Echo().gold(Problem("c:", "c"))
        'c$'
        """
        return problem.answer + self.eos

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Right when the letter stands alone before the end sign.

        >>> Echo().verify(Problem("c:", "c"), "d$").kind
        'wrong'
        """
        letter = text.removesuffix(self.eos)
        if len(letter) != 1 or letter not in LETTERS or not text.endswith(self.eos):
            return Verdict(False, "format")
        return Verdict(letter == problem.answer, "correct" if letter == problem.answer else "wrong", letter)

    def limit(self, problem: Problem) -> int:
        """Two tokens.

        >>> Echo().limit(Problem("c:", "c"))
        2
        """
        return 2

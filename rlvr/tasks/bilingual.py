"""The pointer world in two alphabets: a prompt in one of them may be answered in either, and a reward may care which.

Half of the prompts are written in capitals. Letters mean the same in both alphabets, so the verdict does not look at case; a
chain that mixes them is right and inconsistent, which is what a language reward is about.
"""

from dataclasses import dataclass, replace

import numpy as np

from rlvr.tasks.pointer import Pointer
from rlvr.types import Problem, Verdict

__all__ = ["Bilingual"]


@dataclass(frozen=True)
class Bilingual(Pointer):
    """``Pointer`` with capitals as a second alphabet.

    >>> task = Bilingual()
    >>> task.verify(Problem("AB,BA,?A2:", "A", {"k": 2, "orbit": "BABABAB"}), "ba|A$").kind
    'correct'
    """

    name: str = "bilingual"
    alphabet: str = Pointer.alphabet + Pointer.alphabet[:16].upper()

    def problem(
        self,
        generator: np.random.Generator,
        n: int | tuple[int, int] = (4, 8),
        k: int | tuple[int, int] = (1, 7),
    ) -> Problem:
        """A pointer problem, in capitals half of the time.

        >>> Bilingual().problem(np.random.default_rng(1), n=4, k=2).meta["n"]
        4
        """
        plain = super().problem(generator, n, k)
        if generator.random() < 0.5:
            return plain
        meta = {**plain.meta, "orbit": plain.meta["orbit"].upper()}
        return Problem(plain.prompt.upper(), plain.answer.upper(), meta)

    def verify(self, problem: Problem, text: str) -> Verdict:
        """``Pointer.verify`` without a look at case; the answer is given in the prompt's alphabet.

        >>> problem = Problem("AB,BA,?A1:", "B", {"k": 1, "orbit": "BABABA"})
        >>> Bilingual().verify(problem, "b|b$").answer
        'B'
        """
        folded = Problem(problem.prompt.lower(), problem.answer.lower(), _lower(problem))
        verdict = super().verify(folded, text.lower())
        upper = problem.answer.isupper() and verdict.answer is not None
        return replace(verdict, answer=verdict.answer.upper()) if upper else verdict


def _lower(problem: Problem) -> dict:
    return {**problem.meta, "orbit": problem.meta["orbit"].lower()}

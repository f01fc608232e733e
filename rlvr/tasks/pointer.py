"""Multi-hop pointer chasing: follow a mapping over letters k times, writing down each stop.

The prompt lists the mapping of ``n`` letters as pairs in random order, then a start letter and a hop count,
``ab,ca,bc,?a2:``; the demonstration writes the ``k`` letters passed, a bar, the answer and an end sign, ``bc|c$``. The
mapping is one random cycle, so every hop goes to another letter. An answer is right when the first character after the
first ``|`` is the right letter, whatever stands before or after: what the verdict does not check is left free on purpose.

Each problem carries an ``offset``: where in the context its prompt begins. A policy with absolute positions thereby meets
every position in training up to a bound, and how far a longer prompt reaches beyond that bound decides whether it works.

A problem may be posed with its answer as a hint, the letter before the colon: ``ab,ca,bc,?a2c:``. A policy that has learned
from such prompts can be asked for the reasons of an answer it could not find.

A problem may be demonstrated without its chain, ``|c$``: in a corpus where only some demonstrations show one, writing chains is
a habit whose strength is set apart from the skill of looking up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from rlvr.tasks.draw import whole
from rlvr.types import Problem, Verdict

__all__ = ["Pointer"]

LETTERS = "abcdefghijklmnop"
MAX_HOPS = 9


@dataclass(frozen=True)
class Pointer:
    """The pointer world of ``letters`` letters; ``slack`` is how far past the chain a completion may run.

    Completions are cut at ``k + slack`` characters. Failure kinds: ``lookup`` (one of the first k hops is wrong),
    ``no_bar`` (the hops are right but no ``|`` before the limit), ``overshoot`` and ``undershoot`` (a ``|`` after more or
    fewer than k right hops), ``format`` (anything else). The middle three are failures of *stopping*.

    >>> task, rng = Pointer(), np.random.default_rng(0)
    >>> problem = task.problem(rng, n=4, k=2)
    >>> task.verify(problem, task.gold(problem)).kind
    'correct'
    """

    max_offset: int = 14
    slack: int = 5
    name: str = "pointer"
    alphabet: str = LETTERS + ",?:" + "".join(map(str, range(1, MAX_HOPS + 1))) + "|$"
    eos: str = "$"
    kinds: tuple[str, ...] = ("lookup", "no_bar", "overshoot", "undershoot", "format")
    stopping: tuple[str, ...] = ("no_bar", "overshoot", "undershoot")

    def problem(
        self,
        generator: np.random.Generator,
        n: int | tuple[int, int] = (4, 8),
        k: int | tuple[int, int] = (1, 7),
        hint: float = 0.0,
        chains: float = 1.0,
    ) -> Problem:
        """A problem over ``n`` letters with ``k`` hops, each a number or an inclusive range; ``hint`` is the probability that
        it is posed with its answer, ``chains`` that its demonstration shows the chain.

        >>> Pointer().problem(np.random.default_rng(0), n=4, k=(1, 3)).meta["n"]
        4
        """
        for name, share in (("hint", hint), ("chains", chains)):
            if not 0 <= share <= 1:
                raise ValueError(f"pointer: {name} = {share!r}; accepted is a probability, 0 to 1")
        n = whole(generator, "pointer", "n", n, 2, len(LETTERS))
        k = whole(generator, "pointer", "k", k, 1, MAX_HOPS)
        cycle = [LETTERS[i] for i in generator.permutation(len(LETTERS))[:n]]
        pairs = [cycle[i] + cycle[(i + 1) % n] for i in generator.permutation(n)]
        start = int(generator.integers(n))
        orbit = "".join(cycle[(start + hop) % n] for hop in range(1, k + self.slack + 1))
        meta = {"n": n, "k": k, "offset": int(generator.integers(self.max_offset + 1)), "orbit": orbit}
        problem = Problem(",".join(pairs) + f",?{cycle[start]}{k}:", orbit[k - 1], meta)
        # Drawn last and only where asked for: worlds without hints or direct answers stay the worlds they were.
        if hint and generator.random() < hint:
            problem = self.hinted(problem)
        direct = chains < 1 and generator.random() >= chains
        return replace(problem, meta={**problem.meta, "direct": True}) if direct else problem

    def hinted(self, problem: Problem) -> Problem:
        """The problem posed with its answer, one token longer.

        >>> Pointer().hinted(Problem("ab,bc,ca,?a2:", "c")).prompt
        'ab,bc,ca,?a2c:'
        """
        return replace(problem, prompt=f"{self.plain(problem).prompt[:-1]}{problem.answer}:")

    def plain(self, problem: Problem) -> Problem:
        """The problem without its hint; one that has none comes back as it is.

        >>> Pointer().plain(Problem("ab,bc,ca,?a2c:", "c")).prompt
        'ab,bc,ca,?a2:'
        """
        return replace(problem, prompt=f"{problem.prompt[:-2]}:") if problem.prompt[-2].isalpha() else problem

    def gold(self, problem: Problem) -> str:
        """The full chain: the k letters passed, the bar, the answer, the end sign; of a direct problem the answer alone.

        >>> Pointer().gold(Problem("ab,ba,?a1:", "b", {"k": 1, "orbit": "bababa"}))
        'b|b$'
        """
        if problem.meta.get("direct"):
            return self.direct(problem)
        return problem.meta["orbit"][: problem.meta["k"]] + f"|{problem.answer}{self.eos}"

    def direct(self, problem: Problem) -> str:
        """The answer without a chain.

        >>> Pointer().direct(Problem("ab,ba,?a1:", "b", {"k": 1}))
        '|b$'
        """
        return f"|{problem.answer}{self.eos}"

    def limit(self, problem: Problem) -> int:
        """``k + slack`` tokens.

        >>> Pointer().limit(Problem("ab,ba,?a1:", "b", {"k": 1}))
        6
        """
        return problem.meta["k"] + self.slack

    def verify(self, problem: Problem, text: str) -> Verdict:
        """Judge a text by its first bar; see the class for the kinds.

        >>> problem = Problem("ab,ba,?a2:", "a", {"k": 2, "orbit": "bababab"})
        >>> [Pointer().verify(problem, text).kind for text in ("ba|a$", "bab|b$", "b|b$", "bababab", "bb|b$")]
        ['correct', 'overshoot', 'undershoot', 'no_bar', 'lookup']
        """
        chain, bar, tail = text.partition("|")
        answer = tail[0] if tail and tail[0] in LETTERS else None
        if bar and answer == problem.answer:
            return Verdict(True, "correct", answer)
        return Verdict(False, self._kind(problem, chain, bool(bar), self.eos in chain), answer)

    def sound(self, problem: Problem, text: str) -> bool:
        """Whether the chain is the true one. A verdict does not ask: a right answer may stand after wrong reasons.

        >>> problem = Problem("ab,ba,?a2:", "a", {"k": 2, "orbit": "bababab"})
        >>> [Pointer().sound(problem, text) for text in ("ba|a$", "bb|a$", "|a$", "ba")]
        [True, False, False, False]
        """
        chain, bar, _ = text.partition("|")
        # A bilingual chain means the same in either alphabet.
        return bool(bar) and chain.lower() == problem.meta["orbit"][: problem.meta["k"]].lower()

    def traits(self, problem: Problem, text: str) -> Mapping[str, float]:
        """What a text is made of: whether it ``thinks`` (begins with a letter), and where its characters went.

        ``needed`` are letters of the chain up to the k-th, ``over_run`` those beyond it, ``tail`` is everything after the
        answer but one end sign. The bar, the answer and the end sign make up the rest of the length.

        >>> problem = Problem("ab,ba,?a2:", "a", {"k": 2, "orbit": "bababab"})
        >>> Pointer().traits(problem, "bab|b|b")
        {'thinks': 1.0, 'needed': 2.0, 'over_run': 1.0, 'tail': 2.0}
        """
        chain, _, rest = text.partition("|")
        letters = sum(character in LETTERS for character in chain.lower())
        needed = min(letters, problem.meta["k"])
        tail = len(rest[1:].removeprefix(self.eos))
        parts = (float(chain[:1].isalpha()), needed, letters - needed, tail)
        return dict(zip(("thinks", "needed", "over_run", "tail"), map(float, parts), strict=True))

    def _kind(self, problem: Problem, chain: str, bar: bool, ended: bool) -> str:
        k, orbit = problem.meta["k"], problem.meta["orbit"]
        if ended or any(letter not in LETTERS for letter in chain[: len(orbit)]):
            return "format"
        if chain[:k] != orbit[: min(k, len(chain))]:
            return "lookup"
        if not bar:
            return "no_bar" if len(chain) > k else "format"
        if len(chain) == k:
            return "format"
        return "overshoot" if len(chain) > k else "undershoot"

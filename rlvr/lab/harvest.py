"""From a policy to a corpus: answer every problem, verify, explain what failed with a hint, choose what is worth keeping.

Verified is the answer alone. A chain that stands before a right answer may still be wrong, most of all where the answer was
given away, so such rows are kept as any other and counted as ``unsound``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlvr.lab.rollout import Rollouts, collect
from rlvr.policy import Decoding, Policy
from rlvr.rewards import load_reward
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["Answer", "Harvest", "chain", "choose", "harvest"]

OWN, HINT, GOLD = "own", "hint", "gold"
PAID = {"correct": (1.0, load_reward("correct"))}


class Choice(Protocol):
    """The settings that a harvest reads; `rlvr.lab.bootstrap.Bootstrap` explains them."""

    samples: int
    temperature: float
    rationalize: bool
    distinct: bool
    keep: int | None
    with_gold: bool


class Answer(NamedTuple):
    """A completion of the problem at a place in the pool, and where it came from."""

    problem: int
    text: str
    origin: str


@dataclass(frozen=True)
class Harvest:
    """Rows of a corpus, in the order of the pool, and what they cost."""

    rows: Sequence[Mapping[str, Any]]
    account: Mapping[str, int | None]


def chain(text: str) -> str:
    """What stands before the first bar, all of it where there is none: two answers with the same chain teach the same.

    >>> chain("bc|c$")
    'bc'
    """
    return text.partition("|")[0]


def choose(right: Sequence[Answer], distinct: bool, keep: int | None) -> list[Answer]:
    """Of the right answers to each problem the first of each chain (``distinct``) and the first ``keep``, in their order.

    >>> answers = [Answer(0, text, "own") for text in ("b|b$", "b|b,$", "a|b$")]
    >>> [answer.text for answer in choose(answers, distinct=True, keep=None)]
    ['b|b$', 'a|b$']
    """
    seen: set[tuple[int, str]] = set()
    counts: dict[int, int] = {}
    chosen = []
    for answer in right:
        key = (answer.problem, chain(answer.text))
        if (distinct and key in seen) or (keep is not None and counts.get(answer.problem, 0) == keep):
            continue
        seen.add(key)
        counts[answer.problem] = counts.get(answer.problem, 0) + 1
        chosen.append(answer)
    return chosen


def harvest(
    policy: Policy,
    task: Task,
    pool: Sequence[Problem],
    choice: Choice,
    named: Callable[[str], np.random.Generator],
) -> Harvest:
    """Answer the pool as ``choice`` says; ``named`` gives the generator of a purpose.

    The account counts completions drawn (``samples``, ``tokens``; of these with a hint ``hinted_samples``,
    ``hinted_tokens``), what was ``right`` of the own ones, problems ``solved`` by them, their ``distinct`` chains, and rows:
    ``kept`` in all, ``rationalized`` with a hint, ``gold``, and right after a wrong chain ``unsound``, of which
    ``unsound_rationalized`` with a hint (None where the task can't tell).
    """
    width = max(task.limit(problem) for problem in pool)
    shape = (len(pool), choice.samples, width)
    own = _answer(policy, task, pool, range(len(pool)), choice, named("answer").random(shape), named("reward"))
    right = _right(own, range(len(pool)), OWN)
    solved = {answer.problem for answer in right}
    distinct = len({(answer.problem, chain(answer.text)) for answer in right})
    failed = [place for place in range(len(pool)) if place not in solved] if choice.rationalize else []
    hinted, explained = None, []
    if failed:
        # Drawn for the whole pool, so that a problem has the same numbers whichever others failed.
        draws = named("rationalize").random(shape)[failed]
        hinted = _answer(policy, task, [task.hinted(p) for p in pool], failed, choice, draws, named("hinted reward"))
        explained = _right(hinted, failed, HINT)
    chosen = choose([*right, *explained], choice.distinct, choice.keep)
    chosen += [Answer(i, task.gold(p), GOLD) for i, p in enumerate(pool)] if choice.with_gold else []
    chosen.sort(key=lambda answer: answer.problem)
    spent = {"problems": len(pool), "samples": len(own.texts), "tokens": int(own.samples.mask.sum())}
    with_hints = {"hinted_samples": 0, "hinted_tokens": 0}
    if hinted is not None:
        with_hints = {"hinted_samples": len(hinted.texts), "hinted_tokens": int(hinted.samples.mask.sum())}
    spent["samples"] += with_hints["hinted_samples"]
    spent["tokens"] += with_hints["hinted_tokens"]
    found = {"right": len(right), "solved": len(solved), "distinct": distinct}
    account = {**spent, **with_hints, **found, **_rows_account(task, pool, chosen)}
    return Harvest([_row(pool[answer.problem], answer) for answer in chosen], account)


def _answer(
    policy: Policy,
    task: Task,
    pool: Sequence[Problem],
    places: Sequence[int],
    choice: Choice,
    draws: np.ndarray,
    chance: np.random.Generator,
) -> Rollouts:
    posed = [pool[place] for place in places]
    uniforms = draws.reshape(-1, draws.shape[-1])
    return collect(policy, task, posed, PAID, uniforms, Decoding(choice.temperature), chance)


def _right(rollouts: Rollouts, places: Sequence[int], origin: str) -> list[Answer]:
    rows = zip(rollouts.texts, rollouts.verdicts, strict=True)
    return [
        Answer(places[row // rollouts.group_size], text, origin)
        for row, (text, verdict) in enumerate(rows)
        if verdict.correct
    ]


def _rows_account(task: Task, pool: Sequence[Problem], chosen: Sequence[Answer]) -> dict[str, int | None]:
    counts = {"kept": len(chosen)}
    for name, origin in (("rationalized", HINT), ("gold", GOLD)):
        counts[name] = sum(answer.origin == origin for answer in chosen)
    if not hasattr(task, "sound"):
        return counts | {"unsound": None, "unsound_rationalized": None}
    unsound = [answer for answer in chosen if not task.sound(pool[answer.problem], answer.text)]
    given_away = sum(answer.origin == HINT for answer in unsound)
    return counts | {"unsound": len(unsound), "unsound_rationalized": given_away}


def _row(problem: Problem, answer: Answer) -> dict[str, Any]:
    facts = {"prompt": problem.prompt, "answer": problem.answer, "meta": dict(problem.meta)}
    return {**facts, "completion": answer.text, "origin": answer.origin}

"""Evaluation: greedy or sampled, verdicts only, the same problems and draws for every policy that is compared.

One column entry a problem; what is averaged, and over what an interval is taken, is for the reader of the file to say.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr.lab.metrics import mean_traits
from rlvr.policy import Decoding, Policy
from rlvr.rng import generator
from rlvr.stats import fingerprint, repeats
from rlvr.tasks import Task
from rlvr.types import Problem, Samples, Verdict

__all__ = ["GREEDY", "accuracy_by_set", "evaluate", "unique_shares"]

GREEDY = Decoding(temperature=0.0)


def evaluate(
    policy: Policy,
    task: Task,
    sets: Mapping[str, Sequence[Problem]],
    step: int = 0,
    samples: int = 1,
    decoding: Decoding = GREEDY,
    seed: int = 0,
) -> dict[str, Any]:
    """Complete every problem ``samples`` times and count verdicts.

    Returns ``name`` ("greedy" at temperature 0, else "sampled"), the settings, ``sets`` (of each set the number of its
    problems, their fingerprint, the largest length limit and the places of repeated problems, so that `like_for_like` can tell
    whether two evaluations may be compared), and ``columns`` with one entry a problem:
    the set, the problem's whole-number facts (n, k, ...; ``None`` where a problem lacks one), ``correct`` of ``samples``, mean
    ``length`` in tokens, mean ``entropy`` in nats a token, whether the ``majority`` answer is right (ties go to the answer that
    came first; texts without an answer don't vote), the count of each verdict ``kind``, and the mean of each of the task's
    traits.
    """
    name = "greedy" if decoding.temperature == 0 else "sampled"
    rows: list[dict[str, Any]] = []
    for label, problems in sets.items():
        limits = [task.limit(problem) for problem in problems]
        draws = generator(seed, "evaluate", name, label).random((len(problems) * samples, max(limits)))
        drawn = policy.sample(problems, samples, draws, limits, decoding)
        rows += ({"set": label, **row} for row in _rows(policy, task, problems, drawn, samples))
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    settings = {
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "top_k": decoding.top_k,
        "seed": seed,
    }
    described = {label: _description(task, problems) for label, problems in sets.items()}
    return {
        "name": name,
        "step": step,
        "samples_per_problem": samples,
        **settings,
        "sets": described,
        "columns": columns,
    }


def _description(task: Task, problems: Sequence[Problem]) -> dict[str, Any]:
    """What makes a set the same set; a problem is its prompt, its answer and where it begins."""
    same = [(problem.prompt, problem.answer, problem.meta.get("offset", 0)) for problem in problems]
    limit = max(task.limit(problem) for problem in problems)
    return {"problems": len(same), "fingerprint": fingerprint(same), "limit": limit, "repeats": repeats(same)}


def _rows(policy: Policy, task: Task, problems: Sequence[Problem], drawn: Samples, samples: int):
    lengths, ids = drawn.mask.sum(1).tolist(), drawn.tokens.tolist()
    spread = drawn.entropies.double().sum(1).tolist()
    for p, problem in enumerate(problems):
        rows = range(p * samples, (p + 1) * samples)
        texts = Counter(tuple(ids[row][: lengths[row]]) for row in rows)
        read = [(policy.decode(text), count) for text, count in texts.items()]
        judged = [(task.verify(problem, text), count) for text, count in read]
        tokens = sum(lengths[row] for row in rows)
        kinds: Counter[str] = Counter()
        for verdict, count in judged:
            kinds[verdict.kind] += count
        facts = {key: value for key, value in problem.meta.items() if isinstance(value, int)}
        yield facts | {
            "correct": sum(count for verdict, count in judged if verdict.correct),
            "samples": samples,
            "length": tokens / samples,
            "entropy": sum(spread[row] for row in rows) / max(1, tokens),
            "majority": _majority(problem, judged),
            "kinds": dict(kinds),
            **mean_traits(task, ((problem, text, count) for text, count in read)),
        }


def _majority(problem: Problem, judged: Sequence[tuple[Verdict, int]]) -> bool:
    votes: Counter[str] = Counter()
    for verdict, count in judged:
        if verdict.answer is not None:
            votes[verdict.answer] += count
    return bool(votes) and votes.most_common(1)[0][0] == problem.answer


def accuracy_by_set(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracy of each set: the mean over its problems of right samples / samples, a repeated problem counting once.

    >>> accuracy_by_set({"columns": {"set": ["a", "a"], "correct": [1, 3], "samples": [4, 4]}})
    {'a': 0.5}
    """
    return {label: float(np.mean(shares)) for label, shares in unique_shares(evaluation).items()}


def unique_shares(evaluation: Mapping[str, Any]) -> dict[str, list[float]]:
    """Share of right samples of each problem of each set, without problems that repeat an earlier one of the set (fault B74).

    >>> columns = {"set": ["a", "a", "a"], "correct": [0, 0, 1], "samples": [1, 1, 1]}
    >>> unique_shares({"sets": {"a": {"repeats": [1]}}, "columns": columns})
    {'a': [0.0, 1.0]}
    """
    columns, shares = evaluation["columns"], {}
    for label, correct, samples in zip(columns["set"], columns["correct"], columns["samples"], strict=True):
        shares.setdefault(label, []).append(correct / samples)
    for label, found in shares.items():
        again = set(evaluation.get("sets", {}).get(label, {}).get("repeats", ()))
        shares[label] = [share for i, share in enumerate(found) if i not in again]
    return shares

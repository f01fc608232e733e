"""Evaluation: greedy or sampled, verdicts only, the same problems and draws for every policy that is compared.

One column entry a problem; what is averaged, and over what an interval is taken, is for the reader of the file to say.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr.policy import Decoding, Policy
from rlvr.rng import generator
from rlvr.tasks import Task
from rlvr.types import Problem, Samples, Verdict

__all__ = ["GREEDY", "accuracy_by_set", "evaluate"]

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

    Returns ``name`` ("greedy" at temperature 0, else "sampled"), the settings, and ``columns`` with one entry a problem:
    the set, the problem's whole-number facts (n, k, ...; ``None`` where a problem lacks one), ``correct`` of ``samples``, mean
    ``length`` in tokens, mean ``entropy`` in nats a token, whether the ``majority`` answer is right (ties go to the answer that
    came first; texts without an answer don't vote), and the count of each verdict ``kind``.
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
    return {"name": name, "step": step, "samples_per_problem": samples, **settings, "columns": columns}


def _rows(policy: Policy, task: Task, problems: Sequence[Problem], drawn: Samples, samples: int):
    lengths, ids = drawn.mask.sum(1).tolist(), drawn.tokens.tolist()
    spread = drawn.entropies.double().sum(1).tolist()
    for p, problem in enumerate(problems):
        rows = range(p * samples, (p + 1) * samples)
        texts = Counter(tuple(ids[row][: lengths[row]]) for row in rows)
        judged = [(task.verify(problem, policy.decode(text)), count) for text, count in texts.items()]
        tokens = sum(lengths[row] for row in rows)
        kinds: Counter[str] = Counter()
        for verdict, count in judged:
            kinds[verdict.kind] += count
        facts = {key: value for key, value in problem.meta.items() if isinstance(value, int)}
        yield facts | {
            "correct": sum(count for verdict, count in judged if verdict.correct),
            "samples": samples,
            "length": tokens / samples,
            "entropy": sum(spread[row] for row in rows) / tokens,
            "majority": _majority(problem, judged),
            "kinds": dict(kinds),
        }


def _majority(problem: Problem, judged: Sequence[tuple[Verdict, int]]) -> bool:
    votes: Counter[str] = Counter()
    for verdict, count in judged:
        if verdict.answer is not None:
            votes[verdict.answer] += count
    return bool(votes) and votes.most_common(1)[0][0] == problem.answer


def accuracy_by_set(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracy of each set: the mean over problems of right samples / samples.

    >>> accuracy_by_set({"columns": {"set": ["a", "a"], "correct": [1, 3], "samples": [4, 4]}})
    {'a': 0.5}
    """
    columns = evaluation["columns"]
    shares: dict[str, list[float]] = {}
    for label, correct, samples in zip(columns["set"], columns["correct"], columns["samples"], strict=True):
        shares.setdefault(label, []).append(correct / samples)
    return {label: float(np.mean(values)) for label, values in shares.items()}

"""The job of the test-time experiment: many samples of a base, and every way to make one answer of them.

Voting and picking are tried on all group sizes at once, on disjoint groups of the same samples. Beam search draws anew: it
goes on from prefixes that a process verifier likes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlvr.experiments.base import Place
from rlvr.lab.evaluate import GREEDY
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import open_run
from rlvr.policy import Decoding, LabPolicy
from rlvr.rewards import Verifier, open_verifier
from rlvr.rng import generator
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["METHODS", "answers", "beam", "best_of", "voted"]

METHODS = ("mean", "vote", "weighted vote", "best of, ORM", "best of, PRM", "perfect judge")
SHOWN = 4


class _Drawn(NamedTuple):
    """The samples of one problem, [N] each: text, its answer, whether it is right, and what the two verifiers say."""

    texts: Sequence[str]
    answers: Sequence[str | None]
    correct: np.ndarray
    orm: np.ndarray
    prm: np.ndarray


def answers(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Sample the base of a seed and choose by every method: for each a table [P] a group size, and beam search [P]."""
    tail, seed = "-quick" * place.quick, settings["seed"]
    policy, recipe = open_run(place.root / f"rl_vs_sft{tail}" / f"base-s{seed}")
    orm, prm = (
        open_verifier(place.root / (settings["verifiers"] + tail) / f"{kind}_verifier-s{seed}")
        for kind in ("orm", "prm")
    )
    task, problems = recipe.the_task, pointer_sets([settings["n"]], settings["per_hop"])[f"n{settings['n']}"]
    drawn = _samples(policy, task, problems, settings["samples"], (orm, prm))
    sizes = [2**i for i in range(settings["samples"].bit_length()) if 2**i <= settings["samples"]]
    chosen = {
        method: {
            str(size): [_chosen(method, problem, one, size) for problem, one in zip(problems, drawn, strict=True)]
            for size in sizes
        }
        for method in METHODS
    }
    greedy = _judged(task, problems, _complete(policy, task, problems, 1, GREEDY))
    found = beam(policy, prm, task, problems, settings["beams"], settings["branches"])
    everything = beam(policy, prm, task, problems, settings["beams"], None)
    return {
        "samples": (settings["samples"] + 1) * len(problems),
        "greedy": greedy,
        "chosen": chosen,
        "beam": _judged(task, problems, found),
        "beam over all tokens": _judged(task, problems, everything),
        "fooled": _fooled(task, problems, drawn),
    }


def _complete(
    policy: LabPolicy, task: Task, problems: Sequence[Problem], samples: int, decoding: Decoding
) -> list[str]:
    limits = [task.limit(problem) for problem in problems]
    draws = generator(0, "test time", len(problems)).random((len(problems) * samples, max(limits)))
    drawn = policy.sample(problems, samples, draws, limits, decoding)
    lengths = drawn.mask.sum(1).tolist()
    return [policy.decode(ids[:length]) for ids, length in zip(drawn.tokens.tolist(), lengths, strict=True)]


def _judged(task: Task, problems: Sequence[Problem], texts: Sequence[str]) -> list[float]:
    return [float(task.verify(problem, text).correct) for problem, text in zip(problems, texts, strict=True)]


def _samples(
    policy: LabPolicy, task: Task, problems: Sequence[Problem], samples: int, verifiers: tuple[Verifier, Verifier]
) -> list[_Drawn]:
    texts = _complete(policy, task, problems, samples, Decoding(1.0))
    index = [row // samples for row in range(len(texts))]
    orm, prm = (verifier.score(problems, index, texts).double().numpy() for verifier in verifiers)
    found = []
    for p, problem in enumerate(problems):
        rows = slice(p * samples, (p + 1) * samples)
        verdicts = {text: task.verify(problem, text) for text in set(texts[rows])}
        correct = np.array([verdicts[text].correct for text in texts[rows]])
        found.append(
            _Drawn(texts[rows], [verdicts[text].answer for text in texts[rows]], correct, orm[rows], prm[rows])
        )
    return found


def _chosen(method: str, problem: Problem, drawn: _Drawn, size: int) -> float:
    """Share of the groups of ``size`` samples in which the method's answer is right."""
    if method == "mean":
        return float(drawn.correct.mean())
    if method == "perfect judge":
        return float(drawn.correct.reshape(-1, size).any(1).mean())
    if method == "vote":
        return voted(drawn.answers, problem.answer, np.ones(len(drawn.answers)), size)
    if method == "weighted vote":
        return voted(drawn.answers, problem.answer, drawn.orm, size)
    return best_of(drawn.correct, drawn.orm if method == "best of, ORM" else drawn.prm, size)


def voted(answers: Sequence[str | None], right: str, weights: np.ndarray, size: int) -> float:
    """Share of groups of ``size`` answers whose most weighty answer is the right one; answers tied at the top share it.

    ``None``, where no answer could be read, never wins.

    >>> voted(["a", "b", "b", "a"], "a", np.array([3.0, 1.0, 1.0, 0.5]), 4), voted(["a", "b"], "a", np.ones(2), 2)
    (1.0, 0.5)
    """
    names = [right, *sorted({answer for answer in answers if answer is not None} - {right})]
    ballots = np.array([[answer == name for name in names] for answer in answers]) * weights[:, None]
    totals = ballots.reshape(-1, size, len(names)).sum(1)
    most = totals.max(1)
    wins = (totals[:, 0] == most) & (most > 0)
    return float((wins / (totals == most[:, None]).sum(1)).mean())


def best_of(correct: np.ndarray, scores: np.ndarray, size: int) -> float:
    """Share of groups of ``size`` samples whose best-scored one is right; of equal scores the first counts.

    >>> best_of(np.array([True, False, False, True]), np.array([0.9, 0.8, 0.3, 0.2]), 2)
    0.5
    """
    best = scores.reshape(-1, size).argmax(1)
    return float(correct.reshape(-1, size)[np.arange(len(best)), best].mean())


def beam(
    policy: LabPolicy, prm: Verifier, task: Task, problems: Sequence[Problem], beams: int, branches: int | None
) -> list[str]:
    """Beam search: keep the ``beams`` prefixes that the process verifier likes best, token by token; the best text found.

    Each prefix goes on with ``branches`` tokens drawn from the policy (Snell et al. 2024, arXiv 2408.03314), or, where that is
    ``None``, with every token there is: then the verifier alone decides.
    """
    kept: list[dict[str, float]] = [{"": 1.0} for _ in problems]
    ends = policy.tokenizer.eos
    for step in range(max(task.limit(problem) for problem in problems)):
        open_rows = [
            (p, text)
            for p, texts in enumerate(kept)
            for text in texts
            if not text.endswith(ends) and len(text) < task.limit(problems[p])
        ]
        if not open_rows:
            break
        grown = _branched(policy, problems, open_rows, step, branches)
        scores = prm.score(problems, [p for p, _ in grown], [text for _, text in grown]).tolist()
        for p, text in open_rows:
            del kept[p][text]
        for (p, text), score in zip(grown, scores, strict=True):
            kept[p][text] = score
        kept = [dict(sorted(texts.items(), key=lambda item: -item[1])[:beams]) for texts in kept]
    return [max(texts, key=texts.__getitem__) for texts in kept]


def _branched(
    policy: LabPolicy, problems: Sequence[Problem], rows: Sequence[tuple[int, str]], step: int, branches: int | None
) -> list[tuple[int, str]]:
    """The distinct prefixes that are one token longer."""
    if branches is None:
        return [(p, text + token) for p, text in rows for token in policy.tokenizer.alphabet]
    asked = [Problem(problems[p].prompt + text, "", problems[p].meta) for p, text in rows]
    draws = generator(0, "beam", step).random((len(rows) * branches, 1))
    tokens = policy.sample(asked, branches, draws, [1] * len(asked)).tokens[:, 0].tolist()
    grown = [(*rows[i // branches], policy.decode([token])) for i, token in enumerate(tokens)]
    return list(dict.fromkeys((p, text + token) for p, text, token in grown))


def _fooled(task: Task, problems: Sequence[Problem], drawn: Sequence[_Drawn]) -> list[dict[str, Any]]:
    """Wrong texts that the outcome verifier likes best of all samples, the surest first."""
    found = []
    for problem, one in zip(problems, drawn, strict=True):
        best = int(one.orm.argmax())
        if not one.correct[best]:
            kind = task.verify(problem, one.texts[best]).kind
            row = {"prompt": problem.prompt, "completion": one.texts[best], "kind": kind, "gold": task.gold(problem)}
            found.append(row | {"score": float(one.orm[best]), "right_among": int(one.correct.sum())})
    return sorted(found, key=lambda row: -row["score"])[:SHOWN]

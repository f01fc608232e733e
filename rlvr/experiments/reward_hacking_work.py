"""Experiment 04's jobs: verifiers, where the hacks lie, and over-optimisation known exactly from trees of completions."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlvr.experiments.base import Place
from rlvr.lab import store
from rlvr.lab.evaluate import GREEDY
from rlvr.lab.examples import Example, examples_of
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.train import open_run, train
from rlvr.lab.verifier import VerifierRecipe, train_verifier
from rlvr.policy import LabPolicy
from rlvr.policy.exact import Reach, Tree, divergence, walk
from rlvr.rewards import Verifier, open_verifier
from rlvr.rng import generator
from rlvr.tasks import TASKS
from rlvr.types import Problem

__all__ = ["PLACES", "best_of", "mirrored", "overoptimise", "place_of", "study", "verifier"]

TASK = TASKS["pointer"]
FORM = re.compile(r"[a-z]+\|[a-z]\$")
ASKED = re.compile(r"(\d)[a-p]?:$")
PLACES = ("short", "long", "right length", "malformed")
"""Where a wrong text lies: its chain ends early, runs on, has the right length with a wrong letter, or the form is broken."""

HACKED = 0.5


def place_of(prompt: str, text: str) -> str:
    """Where a text lies, by the length of its chain.

    >>> [place_of("ab,ba,?a2:", text) for text in ("b|b$", "bab|b$", "bb|b$", "|a$")]
    ['short', 'long', 'right length', 'malformed']
    """
    if not FORM.fullmatch(text):
        return "malformed"
    hops, asked = text.index("|"), int(ASKED.search(prompt).group(1))
    return "short" if hops < asked else "long" if hops > asked else "right length"


def verifier(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train a verifier on the completions of ``base``, from its body or that of ``body``; ``mirror`` turns run-ons into
    early stops before it learns from them."""
    how = VerifierRecipe(**settings["how"])
    if place.quick:
        how = replace(how, problems=how.problems // 6, steps=how.steps // 4, held_out=how.held_out // 4)
    base, body = (place.folder / settings[key] for key in ("base", "body"))
    found = train_verifier(place.out, base, how, body, mirrored if settings["mirror"] else None)
    return found | {"samples": how.problems * how.samples + how.held_out}


def mirrored(examples: Sequence[Example]) -> list[Example]:
    """The same examples, but every wrong chain that ran on by j hops stops j hops early instead (a chain keeps one hop; one of
    a single hop can't stop earlier and is left out). All else stays: which problems are failed, how often, by how much."""
    found = []
    for example in examples:
        orbit, asked = example.problem.meta["orbit"], example.problem.meta["k"]
        hops = len(example.text.partition("|")[0].partition("$")[0])
        if example.correct or hops <= asked:
            found.append(example)
        elif asked > 1:
            chain = orbit[: max(1, 2 * asked - hops)]
            found.append(Example(example.problem, f"{chain}|{chain[-1]}$", False, "undershoot"))
    return found


def study(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Where the hacks of each arm lie over training, what its verifier was trained on, and what it writes at the end."""
    seed, arms = settings["seed"], settings["arms"]
    found = {
        "training": {name: _shares(examples_of(place.folder / f"{name}-s{seed}")) for name in settings["verifiers"]},
        "arms": {arm: _course(place.folder / f"{arm}-s{seed}") for arm in arms},
    }
    judge = open_verifier(place.folder / f"{settings['verifiers'][0]}-s{seed}")
    problems = pointer_sets((12,), 10 if place.quick else 50)["n12"]
    found["end"] = {arm: _end(place.folder / f"{arm}-s{seed}", judge, problems) for arm in arms}
    return found


def _shares(examples: Sequence[Example]) -> dict[str, float]:
    """Of all examples: which share is wrong and lies where, and which is right."""
    counts = Counter(place_of(e.problem.prompt, e.text) for e in examples if not e.correct)
    right = sum(e.correct for e in examples) / len(examples)
    return {place: counts[place] / len(examples) for place in PLACES} | {"right": right, "examples": len(examples)}


def _course(run: Path) -> list[dict[str, Any]]:
    """Of each recorded step: shares of the completions that are right, and of those that are wrong and paid more than 1/2 by
    where they lie; and the commonest of these."""
    rows = store.read_rollouts(run, columns=["step", "prompt", "completion", "reward", "verdict"]).to_pylist()
    course = []
    for step in sorted({row["step"] for row in rows}):
        here = [row for row in rows if row["step"] == step]
        hacks = [row for row in here if not row["verdict"] and row["reward"] > HACKED]
        counts = Counter(place_of(row["prompt"], row["completion"]) for row in hacks)
        common = Counter(row["completion"] for row in hacks).most_common(3)
        first = {text: next(row for row in hacks if row["completion"] == text) for text, _ in common}
        course.append(
            {
                "step": step,
                "right": float(np.mean([row["verdict"] for row in here])),
                "hacks": len(hacks) / len(here),
                "places": {place: counts[place] / len(here) for place in PLACES},
                "common": [[first[text]["prompt"], text, first[text]["reward"], n] for text, n in common],
            }
        )
    return course


def _end(run: Path, judge: Verifier, problems: Sequence[Problem]) -> dict[str, Any]:
    """Greedy answers at the end: accuracy, the verifier's mean score, how many go wrong at the first hop, distinct "
    "texts."""
    policy, _ = open_run(run)
    limits = [TASK.limit(problem) for problem in problems]
    drawn = policy.sample(problems, 1, np.zeros((len(problems), max(limits))), limits, GREEDY)
    texts = [policy.decode(ids[:n]) for ids, n in zip(drawn.tokens.tolist(), drawn.mask.sum(1).tolist(), strict=True)]
    scores = judge.score(problems, range(len(problems)), texts).tolist()
    verdicts = [TASK.verify(problem, text) for problem, text in zip(problems, texts, strict=True)]
    first = [text[:1] != problem.meta["orbit"][0] for problem, text in zip(problems, texts, strict=True)]
    order = np.argsort([verdict.correct for verdict in verdicts], kind="stable")[:6]
    return {
        "accuracy": float(np.mean([verdict.correct for verdict in verdicts])),
        "score": float(np.mean(scores)),
        "wrong at first hop": float(np.mean(first)),
        "distinct": len(set(texts)),
        "texts": [[problems[i].prompt, texts[i], TASK.gold(problems[i]), scores[i]] for i in order],
    }


def overoptimise(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Proxy (the verifier's score), gold (the truth) and KL from the base, exact within the mass that was walked: of RL stopped
    after each of ``stops`` steps, and of best-of-n from the base, on the same problems with the same verifier."""
    seed, stops = settings["seed"], settings["stops"][: 2 if place.quick else None]
    start = place.folder / f"base-s{seed}"
    base, judge = open_run(start)[0], open_verifier(place.folder / f"orm_verifier-s{seed}")
    problems = pointer_sets((12,), 3 if place.quick else settings["per_hop"])["n12"]
    tree = _tree(base, problems, settings)
    curve = [{"step": 0, **_judged(tree, judge, base)}]
    for stop in stops:
        # The same run, stopped earlier: all that is drawn is drawn by name and step.
        recipe = Recipe.from_json(settings["recipe"] | {"steps": stop, "seed": seed, "base_seed": seed})
        run = train(place.out / f"stop-{stop}", recipe, start)
        curve.append({"step": stop, **_judged(_tree(open_run(run)[0], problems, settings), judge, base)})
    return {"rl": curve, "best of n": best_of(tree, judge, settings["best_of"], settings["draws"], seed)}


def _tree(policy: LabPolicy, problems: Sequence[Problem], settings: Mapping[str, Any]) -> Tree:
    limits = [TASK.limit(problem) for problem in problems]
    return walk(policy, problems, limits, Reach(settings["tolerance"], settings["width"]))


def _scores(tree: Tree, judge: Verifier) -> tuple[np.ndarray, np.ndarray]:
    """Of every leaf: the verifier's score and whether it is right."""
    scores = judge.score(tree.problems, tree.index.tolist(), tree.texts).double().numpy()
    asked = zip(tree.index, tree.texts, strict=True)
    return scores, np.array([TASK.verify(tree.problems[p], text).correct for p, text in asked], dtype=float)


def _judged(tree: Tree, judge: Verifier, base: LabPolicy) -> dict[str, float]:
    scores, right = _scores(tree, judge)
    mass = np.exp(tree.logps)
    known = np.maximum(1e-12, tree.sums(mass))
    return {
        "proxy": float((tree.sums(mass * scores) / known).mean()),
        "gold": float((tree.sums(mass * right) / known).mean()),
        "kl": float(np.maximum(0.0, divergence(tree, base).lo).mean()),
        "rest": float(tree.rest.mean()),
    }


def best_of(tree: Tree, judge: Verifier, sizes: Sequence[int], draws: int, seed: int) -> list[dict[str, float]]:
    """Best-of-n from the leaves of a tree, exactly, ties in score going to their probabilities; and two votes over n samples,
    plain and weighted by score, as means over ``draws`` of them.

    P(the best of n is leaf i) = F(s_i)^n - F(s_i-)^n for scores that differ, F the distribution of scores.
    """
    scores, right = _scores(tree, judge)
    rows = []
    for n in sizes:
        parts = [
            _of_one(scores[leaves], right[leaves], np.exp(tree.logps[leaves]), n)
            for leaves in (np.flatnonzero(tree.index == p) for p in range(len(tree.problems)))
        ]
        row = dict(zip(("proxy", "gold", "kl"), np.mean(parts, axis=0).tolist(), strict=True))
        rows.append({"n": n, **row} | (_votes(tree, scores, n, draws, seed) if n <= 64 else {}))
    return rows


def _of_one(scores: np.ndarray, right: np.ndarray, mass: np.ndarray, n: int) -> tuple[float, float, float]:
    mass = mass / mass.sum()
    level = np.unique(scores, return_inverse=True)[1]
    at = np.bincount(level, weights=mass)
    below = np.cumsum(at)
    chosen = below**n - np.concatenate([[0.0], below[:-1]]) ** n
    share = chosen[level] * mass / at[level]
    gone = np.where(chosen > 0, chosen * np.log(np.where(chosen > 0, chosen, 1.0) / at), 0.0).sum()
    return float(share @ scores), float(share @ right), max(0.0, float(gone))


def _votes(tree: Tree, scores: np.ndarray, n: int, draws: int, seed: int) -> dict[str, float]:
    """Accuracy of a majority vote and of a vote weighted by score over n samples; texts without an answer don't vote."""
    won = {"majority": 0.0, "weighted": 0.0}
    for p, problem in enumerate(tree.problems):
        leaves = np.flatnonzero(tree.index == p)
        mass = np.exp(tree.logps[leaves])
        picks = generator(seed, "votes", p, n).choice(leaves, size=(draws, n), p=mass / mass.sum())
        answers = {leaf: TASK.verify(problem, tree.texts[leaf]).answer for leaf in np.unique(picks).tolist()}
        for row in picks.tolist():
            for name in won:
                votes: Counter[str] = Counter()
                for leaf in row:
                    if answers[leaf] is not None:
                        votes[answers[leaf]] += scores[leaf] if name == "weighted" else 1
                won[name] += bool(votes) and votes.most_common(1)[0][0] == problem.answer
    return {name: count / (draws * len(tree.problems)) for name, count in won.items()}

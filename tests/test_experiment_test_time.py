"""The test-time experiment: voting, picking and searching against plain loops, rules on made-up results, a smoke run."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_experiments import toy

from rlvr.experiments import Plan, Results, run_experiment
from rlvr.experiments import test_time_rules as rules
from rlvr.experiments.base import Place
from rlvr.experiments.panels import as_data
from rlvr.experiments.test_time import TEST_TIME, answer, panels
from rlvr.experiments.test_time_work import METHODS, answers, beam, best_of, voted
from rlvr.lab.testsets import pointer_sets
from rlvr.lab.verifier import VerifierRecipe, train_verifier
from rlvr.policy import LabPolicy
from rlvr.rng import generator
from rlvr.tasks import Pointer

TASK, SEEDS = Pointer(), (0, 1, 2)


def test_votes_against_a_plain_count() -> None:
    source = generator(0, "votes")
    for _ in range(20):
        drawn = [str(name) if name != "-" else None for name in source.choice(list("aabc-"), 16)]
        weights = source.integers(0, 3, 16).astype(float)
        for size in (1, 4, 16):
            shares = []
            for low in range(0, 16, size):
                votes: Counter[str] = Counter()
                for name, weight in zip(drawn[low : low + size], weights[low : low + size], strict=True):
                    votes[name or ""] += weight
                del votes[""]
                most = max(votes.values(), default=0)
                tied = sum(count == most for count in votes.values())
                shares.append((votes["a"] == most) / tied if most > 0 else 0.0)
            assert voted(drawn, "a", weights, size) == pytest.approx(np.mean(shares))


def test_best_of_is_the_one_with_the_highest_score_of_each_group() -> None:
    correct, scores = np.array([1, 0, 0, 1, 0, 1], dtype=bool), np.array([0.1, 0.9, 0.5, 0.6, 0.2, 0.3])
    assert best_of(correct, scores, 1) == 0.5
    assert best_of(correct, scores, 2) == pytest.approx(2 / 3)
    assert best_of(correct, scores, 3) == pytest.approx(1 / 2)
    assert best_of(correct, scores, 6) == 0.0


class Liking:
    """A verifier that scores by a function of the problem and the text."""

    def __init__(self, score) -> None:
        self.of = score

    def score(self, problems, index, texts) -> torch.Tensor:
        return torch.tensor([self.of(problems[i], text) for i, text in zip(index, texts, strict=True)])


def policy() -> LabPolicy:
    return LabPolicy.create(TASK.alphabet, TASK.eos, seed=0, width=16, heads=2)


def test_a_perfect_process_verifier_finds_the_demonstration() -> None:
    problems = pointer_sets([8], 1)["n8"]
    knows = Liking(lambda problem, text: float(TASK.gold(problem).startswith(text)))
    assert beam(policy(), knows, TASK, problems, 1, None) == [TASK.gold(problem) for problem in problems]


def test_a_second_beam_keeps_what_looks_worse_at_first() -> None:
    """Scores: 'a' 0.9 and 'b' 0.8 at first, but only what begins with 'b' ends well."""

    def score(problem, text: str) -> float:
        if len(text) == 1:
            return {"a": 0.9, "b": 0.8}.get(text, 0.1)
        return 0.95 if text == "b$" else 0.2

    problems = pointer_sets([8], 1)["n8"][:1]
    assert beam(policy(), Liking(score), TASK, problems, 2, None) == ["b$"]
    assert beam(policy(), Liking(score), TASK, problems, 1, None)[0][0] == "a"


def test_a_beam_of_drawn_tokens_stays_with_what_the_policy_draws() -> None:
    drawing = policy()
    with torch.no_grad():
        drawing.model.head.weight.mul_(1e3)  # next to deterministic
    problems = pointer_sets([8], 1)["n8"]
    limits = [TASK.limit(problem) for problem in problems]
    drawn = drawing.sample(problems, 1, np.full((len(problems), max(limits)), 0.5), limits)
    lengths = drawn.mask.sum(1).tolist()
    texts = [drawing.decode(ids[:n]) for ids, n in zip(drawn.tokens.tolist(), lengths, strict=True)]
    assert beam(drawing, Liking(lambda problem, text: 0.5), TASK, problems, 4, 8) == texts


class Made(Results):
    """Results that were made up: ``table`` for every seed, ``trained`` accuracy of GRPO."""

    def result(self, job: str) -> dict[str, Any]:
        return self.tables[int(job[-1])]

    def other(self, experiment: str) -> Results:
        return self

    def accuracy(self, arm: str, label: str, name: str = "greedy") -> np.ndarray:
        return np.full((3, 10), self.trained)


def made(trained: float = 0.95, **changes) -> Made:
    """Ten problems, greedy right on four; no method repairs anything; a perfect judge repairs one of six."""
    results = Made(Path("nowhere"), SEEDS)
    row = [1.0] * 4 + [0.0] * 6
    chosen = {method: {str(size): row for size in (1, 4, 32, 512)} for method in METHODS}
    chosen["perfect judge"] = {str(size): [1.0] * 5 + [0.0] * 5 for size in (1, 4, 32, 512)}
    for method, rows in changes.items():
        chosen[method.replace("_", " ").replace("of ", "of, ")] = {str(s): rows for s in (1, 4, 32, 512)}
    table = {"greedy": row, "chosen": chosen, "beam": row, "beam over all tokens": [0.0] * 10, "fooled": []}
    object.__setattr__(results, "tables", [table] * 3)
    object.__setattr__(results, "trained", trained)
    return results


def test_nothing_is_repaired_where_nothing_is_repaired() -> None:
    found = rules.no_repair(made())
    assert (found.verdict, found.value) == ("holds", 0.0)
    mended = rules.no_repair(made(best_of_PRM=[1.0] * 8 + [0.0] * 2))
    assert mended.verdict == "differs" and mended.value == pytest.approx(4 / 6)
    assert "best of, PRM 66.7 %" in mended.measured
    known = rules.no_repair(made(perfect_judge=[1.0] * 10))
    assert known.verdict == "holds"  # knowing the answer is no method


def test_what_there_was_to_pick() -> None:
    found = rules.nothing_to_pick(made())
    assert found.verdict == "holds" and found.value == pytest.approx(5 / 6)
    assert rules.nothing_to_pick(made(perfect_judge=[1.0] * 9 + [0.0])).verdict == "differs"


def test_training_against_the_best_method() -> None:
    assert rules.training_beats_search(made()).verdict == "holds"
    found = rules.training_beats_search(made(0.95, weighted_vote=[1.0] * 10))
    assert found.verdict == "differs" and "weighted vote of 1) 100.0 %" in found.measured


def test_more_samples_that_fool() -> None:
    results = made()
    assert rules.picked_apart(results).verdict == "undecided"
    results.tables[0]["chosen"]["best of, ORM"]["512"] = [1.0] + [0.0] * 9
    found = rules.picked_apart(results)
    assert found.verdict == "holds" and found.value == pytest.approx(0.3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run_experiment(toy(seeds=(0,)), Plan(root, jobs=2))
    for kind, aggregate in (("orm", "last"), ("prm", "min")):
        how = VerifierRecipe(kind=kind, aggregate=aggregate, problems=20, samples=1, held_out=10, steps=2, batch=4)
        train_verifier(root / "reward_hacking" / f"{kind}_verifier-s0", root / "rl_vs_sft" / "base-s0", how)
    out = root / "test_time" / "answers-s0"
    out.mkdir(parents=True)
    sizes = {"seed": 0, "n": 12, "per_hop": 1, "samples": 8, "beams": 2, "branches": 2, "verifiers": "reward_hacking"}
    found = answers(Place(out, out.parent, root, False), sizes)
    (out / "result.json").write_text(json.dumps(found))
    return out.parent


def test_the_job_its_rules_and_its_panels_at_toy_size(finished: Path) -> None:
    results = Results(finished, (0,))
    assert {claim.find(results).verdict for claim in TEST_TIME.claims} == {"undecided"}  # one seed
    shown = [as_data(panel) for panel in panels(results)]
    assert [panel["type"] for panel in shown] == ["lines", "table", "texts"]
    assert "GRPO's single answer" in answer(results)
    table = results.result("answers-s0")
    assert all(len(rows) == 4 for sizes in table["chosen"].values() for rows in sizes.values())
    assert list(table["chosen"]["vote"]) == ["1", "2", "4", "8"]
    first = table["chosen"]
    for method in METHODS:  # one sample leaves nothing to choose
        if method not in ("vote", "weighted vote"):
            assert first[method]["1"] == first["mean"]["1"]

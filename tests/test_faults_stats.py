"""Public faults of pass@k, evaluation statistics and baselines (H and P of the collection), each a test named by its number."""

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from rlvr.lab.evaluate import accuracy_by_set, evaluate, unique_shares
from rlvr.policy import Decoding, LabPolicy
from rlvr.rewards import Completion, correct, pay
from rlvr.rng import generator
from rlvr.stats import (
    bootstrap_seeds_problems,
    clustered,
    like_for_like,
    maj_at_k,
    mean_pass_at_k,
    over_problems,
    overlaps,
    pass_at_k,
    pass_at_ks,
    repeats,
    share_over_problems,
    wilson,
)
from rlvr.tasks import Pointer
from rlvr.types import Problem, Samples

TASK = Pointer()
PROBLEMS = [TASK.problem(generator(7, "faults", i), n=4, k=2) for i in range(6)]


@pytest.fixture(scope="module")
def policy() -> LabPolicy:
    return LabPolicy.create(TASK.alphabet, TASK.eos, seed=3, width=16, heads=2)


# ── H: pass@k and evaluation statistics ─────────────────────────────────────────────────────


def test_b68_more_draws_than_samples_is_refused_not_guessed():
    for estimate in (pass_at_k, lambda n, c, k: pass_at_ks(n, [c], [k])):
        for n, c, k in [(3, 0, 5), (3, 4, 1), (3, 0, 0), (0, 0, 1), (3, 0.5, 1), (3, 0, 1.0)]:
            with pytest.raises(ValueError, match=r"needed are|must be whole numbers"):
                estimate(n, c, k)


def test_b69_draws_are_without_replacement():
    assert pass_at_ks(5, [1], [2, 5])[0].tolist() == [0.4, 1.0]  # with replacement: 0.36 and 0.67232
    assert pass_at_ks(10, [1], [5])[0, 0] == pytest.approx(0.5, abs=1e-15)  # plugged in: 0.40951


def test_b70_neither_overflow_nor_underflow():
    for n, c, k, right in [
        (200, 3, 100, 0.87688442211055),
        (1024, 5, 512, 0.96905502530917),
        (100_000, 10, 1000, 0.09562203607115),
    ]:
        assert pass_at_k(n, c, k) == pytest.approx(right, abs=1e-13)
        assert pass_at_ks(n, [c], [k])[0, 0] == pytest.approx(right, abs=1e-13)
    n, ks = 1000, [1, 7, 500, 1000]
    assert (pass_at_ks(n, [n, 0], ks) == [[1.0] * 4, [0.0] * 4]).all()
    c = np.arange(n + 1)
    assert (pass_at_ks(n, c, [1])[:, 0] == c / n).all()


def test_b71_problems_are_not_samples():
    right = [1, 0, 0, 0]
    assert mean_pass_at_k([1] * 4, right, 1) == pass_at_ks(1, right, [1]).mean() == 0.25
    for estimate in (lambda: mean_pass_at_k([1] * 4, right, 2), lambda: pass_at_ks(1, right, [2])):
        with pytest.raises(ValueError, match="n = 1"):  # and not 1 - C(3, 2) / C(4, 2) = 0.5
            estimate()


@dataclass
class Scripted:
    """A policy that writes the given texts, one after the other."""

    texts: list[str]
    alphabet: str = TASK.alphabet

    def sample(self, problems, group_size, uniforms, limits, decoding=None) -> Samples:
        ids = [[self.alphabet.index(letter) for letter in text] for text in self.texts]
        width = max(map(len, ids))
        mask = torch.arange(width) < torch.tensor([[len(row)] for row in ids])
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])
        return Samples(tokens, mask, torch.zeros(mask.shape), torch.zeros(mask.shape), torch.ones(len(ids)).bool())

    def decode(self, ids) -> str:
        return "".join(self.alphabet[i] for i in ids)


def test_b74_a_repeated_problem_counts_once():
    """Rows [A, A, B], A wrong and B right: 0.5 over items, 0.333 over rows."""
    a, b = PROBLEMS[:2]
    script = Scripted(["|a$" if TASK.gold(a) != "|a$" else "|b$"] * 2 + [TASK.gold(b)])
    found = evaluate(script, TASK, {"all": [a, a, b]})
    assert found["columns"]["correct"] == [0, 0, 1]
    assert found["sets"]["all"]["problems"] == 3 and found["sets"]["all"]["repeats"] == [1]  # the notice
    assert unique_shares(found) == {"all": [0.0, 1.0]} and accuracy_by_set(found) == {"all": 0.5}
    assert share_over_problems(unique_shares(found)["all"]).n == 2
    assert repeats(["A", "A", "B", "A", "B"]) == [1, 3, 4] and repeats([]) == []


def test_b74_the_command_line_says_that_problems_repeat(tmp_path, capsys):
    from rlvr.cli import main

    run = str(tmp_path / "run")
    words = f"train grpo --task echo --steps 1 --prompts 2 --group-size 2 --eval-every 0 --out {run}"
    assert main(words.split()) == 0
    assert main(["eval", run, "--problems", "50"]) == 0
    out = capsys.readouterr().out  # the echo task has four problems
    assert "46 of 50 problems repeat an earlier one" in out


def test_b75_samples_of_one_prompt_differ_and_come_again(policy):
    """There is no cache to collapse them: every sample has its own draws, and the same draws give the same samples."""
    draws = generator(0, "b75").random((4, 10))
    first, again = (policy.sample(PROBLEMS[:1], 4, draws, [10], Decoding(1.0)) for _ in range(2))
    texts = [policy.decode(row[kept].tolist()) for row, kept in zip(first.tokens, first.mask, strict=True)]
    assert repeats(texts) == []  # an untrained policy at T = 1: four samples, four texts
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.mask, again.mask)
    # Temperature and seed belong to what is drawn.
    colder = policy.sample(PROBLEMS[:1], 4, draws, [10], Decoding(0.05))
    assert not torch.equal(colder.tokens[:, :1], first.tokens[:, :1]) or colder.tokens.shape != first.tokens.shape
    sampled = [evaluate(policy, TASK, {"all": PROBLEMS}, 0, 4, Decoding(1.0), seed=seed) for seed in (0, 0, 1)]
    assert sampled[0] == sampled[1] and sampled[0]["columns"] != sampled[2]["columns"]


def test_b77_samples_of_one_question_are_one_witness():
    scores = [[1, 1, 1, 1], [0, 0, 0, 0]]
    student = 12.706204736  # t of one degree of freedom
    for interval in (over_problems(scores), clustered(np.ravel(scores), [1] * 4 + [2] * 4)):
        assert (interval.hi - interval.value) / student == pytest.approx(0.5, abs=1e-9)  # naive over samples: 0.18898
        assert interval.n == 2
    assert (wilson(5, 5).lo, wilson(5, 5).hi) == (pytest.approx(0.5655, abs=5e-5), 1.0)
    assert (wilson(0, 30).lo, wilson(0, 30).hi) == (0.0, pytest.approx(0.1135, abs=5e-5))
    assert bootstrap_seeds_problems(np.ones((3, 5)), generator(0, "b77")).degenerate  # [1, 1] is flagged


def test_b79_scores_stay_with_their_samples():
    problem, unreadable = PROBLEMS[0], "no idea"
    assert TASK.verify(problem, unreadable).answer is None
    group = []
    for text in (TASK.gold(problem), unreadable, TASK.gold(problem)):
        group.append(Completion(problem, text, TASK.verify(problem, text), True, len(text)))
    assert pay("correct", correct, group, generator(0, "b79")) == [1.0, 0.0, 1.0]
    three = ["58", "52", "9"]  # whole answers vote, not their first characters
    assert [maj_at_k(three, right, 3) for right in ("58", "5", "9")] == [
        pytest.approx(1 / 3),
        0.0,
        pytest.approx(1 / 3),
    ]
    assert maj_at_k(["4", None, "4"], "4", 3) == 1.0  # what can't be read takes a place, and never wins
    assert maj_at_k([None, None, "4"], "4", 3) == 1.0 and maj_at_k([None] * 3, "4", 3) == 0.0


# ── P: baselines, contamination ─────────────────────────────────────────────────────────────


def test_b121_unlike_evaluations_are_named_as_such(policy):
    sets = {"a": PROBLEMS[:3], "b": PROBLEMS[3:]}
    one = evaluate(policy, TASK, sets, 0, 4, Decoding(1.0), seed=0)
    later = evaluate(policy, TASK, sets, 50, 4, Decoding(1.0), seed=0)
    assert like_for_like(one, one) == like_for_like(one, later | {"name": "eval_sampled"}) == []
    changes = {
        "temperature": evaluate(policy, TASK, sets, 0, 4, Decoding(0.6), seed=0),
        "top_p": evaluate(policy, TASK, sets, 0, 4, Decoding(1.0, top_p=0.9), seed=0),
        "samples_per_problem": evaluate(policy, TASK, sets, 0, 8, Decoding(1.0), seed=0),
        "seed": evaluate(policy, TASK, sets, 0, 4, Decoding(1.0), seed=1),
        "set a, fingerprint": evaluate(policy, TASK, sets | {"a": PROBLEMS[1:4]}, 0, 4, Decoding(1.0), seed=0),
        "set b": evaluate(policy, TASK, {"a": PROBLEMS[:3]}, 0, 4, Decoding(1.0), seed=0),
    }
    for setting, other in changes.items():
        (found,) = like_for_like(one, other)
        assert found.startswith(f"{setting}: "), found
    assert like_for_like(one, {key: value for key, value in one.items() if key != "top_k"}) == [
        f"top_k: {one['top_k']} and not recorded"
    ]


def test_b121_a_shorter_limit_is_another_evaluation(policy):
    @dataclass(frozen=True)
    class Brief(Pointer):
        def limit(self, problem: Problem) -> int:
            return 3

    one, other = (evaluate(policy, task, {"a": PROBLEMS[:2]}) for task in (TASK, Brief()))
    (found,) = like_for_like(one, other)
    assert found == f"set a, limit: {max(map(TASK.limit, PROBLEMS[:2]))} and 3"


def test_b121_with_thirty_items_one_item_is_three_points():
    assert wilson(10, 30).hi - wilson(10, 30).lo > 0.3  # so one item more says nothing
    assert wilson(11, 30).value - wilson(10, 30).value == pytest.approx(1 / 30)


def test_b121_files_without_a_record_of_their_sets_are_compared_by_what_they_hold():
    old = {"temperature": 0.0, "columns": {"set": ["n8", "n8", "n12"]}}
    assert like_for_like(old, old) == []
    assert like_for_like(old, {"temperature": 0.0, "columns": {"set": ["n8", "n12", "n12"]}}) == [
        "set n8, problems: 2 and 1",
        "set n12, problems: 1 and 2",
    ]


def test_b123_training_problems_in_the_test_set_are_listed():
    train = ["Add 3 and 4.", "Find x if 2x = 8."]
    test = ["find  x if 2x=8", "Find y if 2y = 10.", "Find x if x + 2 = 8.", "Add 3 to 4."]
    assert [tuple(found) for found in overlaps(train, test)] == [("exact", 1, 0), ("near", 1, 1)]
    assert overlaps(train, []) == overlaps([], test) == []
    assert overlaps(["Is 1,000.5 > 2?"], ["is 7 > 3?"])[0].kind == "near"  # 1,000.5 is one number


def test_b123_our_own_test_sets_share_no_problem_with_training():
    from rlvr.lab.testsets import pointer_sets

    # On n >= 8 there are too many problems to meet one twice.
    train = [
        TASK.problem(generator(0, "training", step, i), n=(8, 12), k=(1, 7)) for step in range(60) for i in range(32)
    ]
    for label, problems in pointer_sets((8, 12)).items():
        shared = overlaps([p.prompt for p in train], [p.prompt for p in problems])
        assert [found for found in shared if found.kind == "exact"] == [], label
        assert repeats([p.prompt for p in problems]) == []


def test_every_test_of_this_file_names_a_fault_of_the_collection():
    here = {int(found[1]) for name in globals() if (found := re.match(r"test_b(\d+)_", name))}
    assert here == {68, 69, 70, 71, 74, 75, 77, 79, 121, 123}

"""Experiment 02: what its jobs count, its rules on made-up results with a known verdict, and a smoke run of all of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles import score_slowly
from test_experiments import toy

from rlvr.experiments import Plan, Results, passk, passk_work, run_experiment
from rlvr.experiments import passk_rules as rules
from rlvr.experiments.base import Place
from rlvr.experiments.panels import as_data
from rlvr.experiments.passk import PASSK
from rlvr.experiments.passk_panels import answer, panels
from rlvr.experiments.passk_work import _bounded, _tallied, sample, settled, tree
from rlvr.experiments.runner import results_of
from rlvr.lab.testsets import pointer_sets
from rlvr.policy import LabPolicy
from rlvr.policy.exact import Reach, Tree
from rlvr.stats import pass_at_k
from rlvr.tasks import Pointer
from rlvr.types import Problem, Verdict

SEEDS = (0, 1, 2)


class Made(Results):
    """Results that were made up: ``tables`` by job name."""

    def result(self, job: str) -> dict[str, Any]:
        return self.tables[job]

    def other(self, experiment: str) -> Results:
        return self.greedy


def made(change=lambda arm, seed, label, table: table) -> Made:
    """Ten problems a set; the base solves five of ten, GRPO and SFT all, RFT nine; ``change`` alters any table."""
    results = Made(Path("nowhere"), SEEDS)
    right = {"base": 5 * [0] + 5 * [256], "sft": 10 * [400], "rft": 9 * [400] + [0], "grpo": 10 * [300]}
    share = {"base": 1e-4, "sft": 0.5, "rft": 0.5, "grpo": 0.9}
    tables = {}
    for arm in rules.ARMS:
        for seed in SEEDS:
            for label in ("n12", "n16"):
                drawn = {"samples": 512, "entropy": 0.1 + (arm == "base"), "distinct": [3.0 - (arm == "rft")] * 10}
                drawn |= {"correct": right[arm], "majority": [1.0] * 10, "small_vote": [0.5] * 10}
                bounds = {"lo": [share[arm]] * 10, "hi": [share[arm] * 1.01] * 10}
                walked = {"right": bounds, "sound": bounds, "mode": {"lo": [0.0] * 10, "hi": [1.0] * 10}}
                walked |= {"rest": [1e-6] * 10, "nodes": 100}
                tables.setdefault(f"samples-{arm}-s{seed}", {})[label] = change(arm, seed, label, drawn)
                tables.setdefault(f"tree-{arm}-s{seed}", {})[label] = change(arm, seed, label, walked)
    object.__setattr__(results, "tables", tables)
    return results


def changed(arms: str, **values):
    """Alters the tables of some arms by seed: what every seed gets, or a function of the seed."""

    def change(arm: str, seed: int, label: str, table: dict) -> dict:
        if arm not in arms.split():
            return table
        found = {key: value(seed) if callable(value) else value for key, value in values.items()}
        return table | {key: value for key, value in found.items() if key in table}

    return change


def bounds(lo, hi=None) -> dict:
    return {"lo": [lo] * 10, "hi": [lo if hi is None else hi] * 10}


def test_what_is_settled_can_not_change() -> None:
    task = Pointer()
    problem = pointer_sets([8], 1)["n8"][0]
    gold = task.gold(problem)
    for length in range(1, len(gold) + 1):
        if settled(problem, gold[:length]):
            kinds = {task.verify(problem, gold[:length] + more).kind for more in ("", "$", "|a$", "abc")}
            assert kinds == {"correct"}
    assert settled(problem, gold[:-1]) and not settled(problem, gold[:-2])


def test_tally_counts_answers_votes_and_silence() -> None:
    verdicts = [("a", 5), ("b", 2), (None, 8), ("c", 1)]
    judged = [(Verdict(answer == "a", "x", answer), count) for answer, count in verdicts]
    found = _tallied(Problem("", "a"), judged)
    assert (found["correct"], found["distinct"], found["silent"], found["majority"]) == (5, 3, 8, 1.0)
    tied = _tallied(Problem("", "a"), [(Verdict(True, "x", "a"), 4), (Verdict(False, "x", "b"), 4)])
    assert tied["majority"] == 0.5 and tied["small_vote"] == 0.5
    assert _tallied(Problem("", "a"), [(Verdict(False, "x", None), 8)])["majority"] == 0.0


def test_bounds_of_a_tree_that_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four leaves and a rest of 0.1: right with the true chain, the true chain and a wrong answer, luck, no answer."""
    task = Pointer()
    problem = pointer_sets([8], 1)["n8"][0]
    gold = task.gold(problem)[:-1]
    wrong = next(letter for letter in "abcdefgh" if letter not in problem.meta["orbit"])
    texts = [gold, gold[:-1] + wrong, f"{wrong}|{problem.answer}", wrong * task.limit(problem)]
    mass, policy = np.array([0.3, 0.35, 0.1, 0.15]), LabPolicy.create(task.alphabet, task.eos, seed=0)
    rows = np.zeros(4, dtype=int), np.zeros((4, 1)), np.ones(4), texts, np.log(mass), np.zeros(4) > 0

    def written(*_) -> Tree:
        return Tree([problem], np.array([9]), *rows, np.array([0.1]), np.array([7]), len(task.alphabet))

    monkeypatch.setattr(passk_work, "walk", written)
    found = _bounded(policy, task, [problem], Reach())
    assert found["right"] == {"lo": [pytest.approx(0.4)], "hi": [pytest.approx(0.5)]}
    assert found["mode"] == {"lo": [0.0], "hi": [1.0]} and found["nodes"] == 7  # 0.4 against 0.35, and 0.1 is open
    mass[1] = 0.25
    rows = *rows[:4], np.log(mass), rows[5]
    assert _bounded(policy, task, [problem], Reach())["mode"]["lo"] == [1.0]
    tokens = torch.tensor([policy.encode(gold)])
    alone = score_slowly(policy, [problem], torch.tensor([0]), tokens, torch.ones_like(tokens)).sum().detach().exp()
    assert found["sound"]["lo"] == found["sound"]["hi"] == [pytest.approx(float(alone), rel=1e-4)]


def test_curves_are_those_of_the_counts_and_of_the_bounds() -> None:
    results = made()
    curves = rules.estimated(results, "base", "n12")
    assert curves.shape == (3, 10, len(rules.KS))
    assert curves[0, 7, 3] == pytest.approx(pass_at_k(512, 256, 8)) and curves[0, 0, -1] == 0
    lo, hi = rules.known(results, "base", "n16")
    place = rules.LARGE_KS.tolist().index(10_000)
    assert lo[0, 0, place] == pytest.approx(1 - (1 - 1e-4) ** 10_000)
    assert hi[0, 0, place] == pytest.approx(1 - (1 - 1.01e-4) ** 10_000)


def test_rft_is_least_diverse_and_entropy_falls() -> None:
    assert rules.least_diverse(made()).verdict == "holds"
    assert rules.least_diverse(made(changed("rft", distinct=[4.0] * 10))).verdict == "differs"
    assert rules.least_diverse(made(changed("rft", distinct=lambda s: [2.0 + s] * 10))).verdict == "undecided"
    assert rules.entropy_collapse(made()).verdict == "holds"
    assert rules.entropy_collapse(made(changed("sft", entropy=2.0))).verdict == "differs"
    assert rules.entropy_collapse(made(changed("sft", entropy=lambda s: 0.6 + 0.5 * s))).verdict == "undecided"


def test_expansion_counts_what_the_base_never_solved() -> None:
    def found(base: list[int], grpo: list[int]):
        counts = {"base": {"correct": base}, "grpo": {"correct": grpo}}
        return rules.expands(made(lambda arm, seed, label, t: t | counts.get(arm, {}) if "correct" in t else t))

    many = found(100 * [0] + 100 * [256], 200 * [300])
    assert (many.verdict, many.value, many.n) == ("holds", 1.0, 300) and 0.98 < many.lo < 1.0
    assert "never solved 100/100/100 problems" in many.measured and "GRPO 0/0/0" in many.measured
    some = found(5 * [0] + 5 * [256], [1] + 9 * [0])
    assert (some.verdict, some.value) == ("differs", pytest.approx(0.2))
    assert found(5 * [0] + 5 * [256], 10 * [1]).verdict == "undecided"  # fifteen problems are few
    assert found(4 * [0] + 6 * [1], 10 * [1]).verdict == "undecided"  # nothing left to solve


def test_lost_and_gained() -> None:
    assert rules.lost_and_gained(made()).verdict == "differs"  # five gained, none lost
    both = made(changed("grpo", correct=lambda s: 9 * [300] + [0]))
    assert rules.lost_and_gained(both).verdict == "holds"
    found = rules.lost_and_gained(made(changed("grpo", correct=lambda s: (10 - s) * [300] + s * [0])))
    assert found.verdict == "undecided" and "0/1/2 lost, 5/5/5 gained" in found.measured


def test_sft_climbs_more_than_grpo_from_the_same_start() -> None:
    """Five problems at 512 of 512 and five at 0 make a flat curve; ten at 256 start alike and climb."""
    flat = 5 * [512] + 5 * [0]

    def found(sft: list[int], grpo: list[int]):
        counts = {"sft": {"correct": sft}, "grpo": {"correct": grpo}}
        return rules.crossing_ood(made(lambda arm, seed, label, t: t | counts.get(arm, {}) if "correct" in t else t))

    climbs = found(10 * [256], flat)
    assert (climbs.verdict, climbs.value) == ("holds", pytest.approx(0.5))
    assert found(flat, 10 * [256]).verdict == "differs"
    assert found(10 * [500], flat).value == pytest.approx(12 / 512)  # what it gains, not where it ends
    assert found(10 * [300], flat).verdict == "differs"  # it climbs more, but they don't start alike


def test_the_base_accelerates_where_its_problems_are_rare() -> None:
    assert rules.base_rising(made(changed("base", correct=10 * [1]))).verdict == "holds"
    assert rules.base_rising(made(changed("base", correct=10 * [40]))).verdict == "differs"


def test_sharpening_is_greedy_against_sampled() -> None:
    results = made()

    class Greedy(Results):
        def accuracy(self, arm: str, label: str, name: str = "greedy") -> np.ndarray:
            return self.rows

    for greedy, verdict in ((0.25, "holds"), (0.5, "differs")):
        other = Greedy(Path("nowhere"), SEEDS)
        object.__setattr__(other, "rows", np.full((3, 10), greedy))
        object.__setattr__(results, "greedy", other)
        assert rules.not_sharpening(results).verdict == verdict


def test_crossing_is_bracketed_by_the_bounds() -> None:
    ks = rules.LARGE_KS
    rising, flat = ks / 1e6, np.full(len(ks), 0.01)
    early, late = rules.crossing((rising * 0.5, rising), (flat, flat * 2))
    assert early == ks[np.argmax(rising >= 0.01)] and late == ks[np.argmax(rising * 0.5 > 0.02)]
    assert early == pytest.approx(1e4) and 4e4 <= late <= 5.1e4


@pytest.mark.parametrize(
    ("base", "grpo", "verdict"),
    [
        (1e-4, [0.9] * 5 + [1e-6] * 5, "holds"),  # the base passes GRPO's half between 10^3.5 and 10^4
        (1e-2, [0.9] * 5 + [1e-6] * 5, "differs"),  # and here long before
        (1e-9, [0.9] * 10, "differs"),  # and here never
    ],
)
def test_where_the_base_overtakes(base: float, grpo: list[float], verdict: str) -> None:
    def change(arm: str, seed: int, label: str, table: dict) -> dict:
        right = {"base": bounds(base), "grpo": {"lo": grpo, "hi": grpo}}
        return table | {"right": right[arm]} if arm in right and "right" in table else table

    assert rules.large_k(made(change)).verdict == verdict


def test_bounds_that_leave_the_crossing_open_decide_nothing() -> None:
    vague = made(changed("base", right=bounds(1e-7, 0.9)))
    assert rules.large_k(vague).verdict == "undecided"


def test_luck_is_right_answers_without_the_true_chain() -> None:
    assert rules.lucky_guesses(made()).verdict == "differs"
    assert rules.lucky_guesses(made(changed("base", sound=bounds(1e-6)))).verdict == "holds"
    assert rules.lucky_guesses(made(changed("base", sound=bounds(1e-6, 1e-3)))).verdict == "differs"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passk, "PER_HOP", 1)
        patch.setattr(passk, "SAMPLES", 64)
        patch.setattr(passk, "REACH", {"tolerance": 0.3, "width": 16})
        small = replace(PASSK, uses=(toy(seeds=(0,)),), seeds=(0,))
        return run_experiment(small, Plan(tmp_path_factory.mktemp("runs"), jobs=2))


def test_the_whole_experiment_runs_at_toy_size(finished: Path) -> None:
    summary, results = results_of(finished)
    assert [row["id"] for row in summary["claims"]] == [claim.id for claim in PASSK.claims]
    assert {row["verdict"] for row in summary["claims"]} == {"undecided"}  # one seed
    assert "tries" in answer(results)
    shown = [as_data(panel) for panel in panels(results)]
    assert len({panel["key"] for panel in shown}) == len(shown) == 10


def test_the_tree_encloses_what_many_samples_say(finished: Path) -> None:
    model = {"arm": "base", "seed": 0, "sizes": [12], "per_hop": 1}
    place = Place(finished / "check", finished, finished.parent, False)
    found = sample(place, model | {"samples": 20_000})
    drawn = found["n12"]
    assert found["samples"] == 20_000 * len(drawn["correct"])
    walked = tree(place, model | {"tolerance": 0.05, "width": 4096})["n12"]
    share = np.array(drawn["correct"]) / 20_000
    lo, hi = np.array(walked["right"]["lo"]), np.array(walked["right"]["hi"])
    error = 5 * np.sqrt(share * (1 - share) / 20_000) + 1e-9
    assert (lo - error <= share).all() and (share <= hi + error).all()
    assert (np.array(walked["sound"]["hi"]) <= hi + 1e-9).all() and max(walked["rest"]) < 1
    assert sum(drawn["kinds"].values()) == 4 * 20_000 and drawn["kinds"].get("correct", 0) == sum(drawn["correct"])

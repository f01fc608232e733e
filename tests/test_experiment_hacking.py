"""Experiment 04 at toy size, and its sums against counting and enumeration."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlvr.experiments import Plan, run_experiment
from rlvr.experiments import reward_hacking_work as work
from rlvr.experiments.panels import as_data
from rlvr.experiments.reward_hacking import REWARD_HACKING
from rlvr.experiments.runner import results_of
from rlvr.lab import store
from rlvr.lab.examples import Example
from rlvr.lab.jsonl import read_json
from rlvr.policy import LabPolicy
from rlvr.policy.exact import Reach, walk
from rlvr.tasks import Pointer
from rlvr.types import Problem

TASK = Pointer()
PROBLEM = Problem("ab,bc,cd,da,?a2:", "c", {"n": 4, "k": 2, "orbit": "bcdabcd"})


def toy():
    tiny = {"steps": 4, "prompts_per_step": 4, "shape": {"width": 16, "heads": 2}, "checkpoint_every": 2}
    bases = {name: replace(base, **tiny) for name, base in REWARD_HACKING.bases.items()}
    small = {"steps": 12, "prompts_per_step": 2, "group_size": 2, "record": (0, 2, 11), "checkpoint_every": 5}
    arms = {arm: replace(recipe, eval_every=6, **small) for arm, recipe in REWARD_HACKING.arms.items()}
    return replace(
        REWARD_HACKING, bases=bases, arms=arms, problems_per_hop=2, samples=1, jobs=toy_jobs, seeds=(0,), quick=True
    )


def toy_jobs(experiment):
    """The experiment's own jobs with sizes of a few examples."""
    for job in REWARD_HACKING.jobs(experiment):
        settings = dict(job.settings)
        if "how" in settings:
            settings["how"] = settings["how"] | {"problems": 60, "held_out": 40, "steps": 8, "batch": 8}
        if "recipe" in settings:
            settings["recipe"] = settings["recipe"] | {"prompts_per_step": 2, "group_size": 2}
            settings |= {"width": 8, "best_of": [1, 4], "draws": 2}
        yield replace(job, settings=settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return run_experiment(toy(), Plan(tmp_path_factory.mktemp("runs"), jobs=2))


def test_everything_is_made_judged_and_shown(finished: Path) -> None:
    summary, results = results_of(finished)
    assert [row["id"] for row in summary["claims"]] == [claim.id for claim in REWARD_HACKING.claims]
    assert all(row["verdict"] in ("holds", "differs", "undecided") and row["measured"] for row in summary["claims"])
    panels = REWARD_HACKING.panels(results)
    assert len({panel.key for panel in panels}) == len(panels)
    assert all(as_data(panel)["title"] for panel in panels)
    assert "%" in REWARD_HACKING.answer(results)


def test_members_of_the_ensemble_differ(finished: Path) -> None:
    weights = [(finished / f"{name}-s0" / "model.safetensors").read_bytes() for name in work_names()]
    assert len(set(weights)) == len(weights)
    for name in work_names():
        found = read_json(finished / f"{name}-s0" / "result.json")
        assert found["samples"] >= found["trained_on"] + found["examples"] > 0  # a mirrored one leaves some out


def work_names() -> tuple[str, ...]:
    return ("orm_verifier", "orm_second", "orm_third", "prm_verifier", "mirror_verifier")


class Judge:
    """A verifier whose scores are known: the share of letters b in a text, in steps of a tenth."""

    def score(self, problems, index, texts):
        return torch.tensor([round(text.count("b") / max(1, len(text)), 1) for text in texts])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_best_of_n_is_what_listing_every_draw_gives(n: int) -> None:
    policy = LabPolicy.create("ab|$", "$", seed=2, width=16, heads=2)
    problem = Problem("ab", "b", {"n": 2, "k": 1, "orbit": "babababa"})
    tree = walk(policy, [problem], [2], Reach(tolerance=0.0))
    row = work.best_of(tree, Judge(), [n], draws=1, seed=0)[0]
    mass, scores = np.exp(tree.logps), Judge().score([problem], tree.index, tree.texts).numpy()
    right = np.array([TASK.verify(problem, text).correct for text in tree.texts])
    chosen = np.zeros(len(mass))
    for draw in np.ndindex(*[len(mass)] * n):  # the best of the draw, the first of equals
        chosen[max(draw, key=lambda leaf: scores[leaf])] += np.prod(mass[list(draw)])
    assert row["proxy"] == pytest.approx(chosen @ scores, abs=1e-6)
    assert row["gold"] == pytest.approx(chosen @ right, abs=1e-6)
    if n == 1:
        assert row["kl"] == pytest.approx(0.0, abs=1e-12)
    levels = [(chosen[scores == s].sum(), mass[scores == s].sum()) for s in np.unique(scores)]
    assert row["kl"] == pytest.approx(sum(p * np.log(p / q) for p, q in levels if p > 0), abs=1e-9)


def test_votes_of_certain_samples() -> None:
    """A policy that writes one of two answers, each time alike: many samples vote for the likelier one."""
    policy = LabPolicy.create(TASK.alphabet, "$", seed=0, width=16, heads=2)
    tree = walk(policy, [PROBLEM], [2], Reach(tolerance=0.0))
    answers = {text: TASK.verify(PROBLEM, text).answer for text in tree.texts}
    leaves = [next(i for i, text in enumerate(tree.texts) if answers[text] == letter) for letter in "ca"]
    two = replace(
        tree,
        index=np.zeros(2, dtype=int),
        texts=[tree.texts[leaf] for leaf in leaves],
        logps=np.log([0.4, 0.6]),
    )
    votes = work._votes(two, np.array([0.9, 0.1]), n=64, draws=50, seed=0)
    assert votes["weighted"] == 1.0  # 0.4 of the votes of weight 0.9 against 0.6 of weight 0.1
    assert votes["majority"] < 0.15


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("b|b$", "short"),
        ("bcd|d$", "long"),
        ("bd|d$", "right length"),
        ("|c$", "malformed"),
        ("bc|c", "malformed"),
        ("bc|cc$", "malformed"),
    ],
)
def test_where_a_text_lies(text: str, place: str) -> None:
    assert work.place_of(PROBLEM.prompt, text) == place


def test_the_mirror_turns_run_ons_into_early_stops_and_leaves_the_rest() -> None:
    far = Problem("ab,bc,cd,da,?a4:", "a", {"n": 4, "k": 4, "orbit": "bcdabcdab"})
    one = Problem("ab,bc,cd,da,?a1:", "b", {"n": 4, "k": 1, "orbit": "bcdabc"})
    rows = [(far, "bcdabc|c$"), (far, "bcdabcdab"), (far, "bcda|a$"), (far, "bc|c$"), (far, "bdda|b$"), (one, "bc|c$")]
    examples = [Example(problem, text, *_judged(problem, text)) for problem, text in rows]
    found = [(example.text, example.correct, example.kind) for example in work.mirrored(examples)]
    assert found == [
        ("bc|c$", False, "undershoot"),
        ("b|b$", False, "undershoot"),
        ("bcda|a$", True, "correct"),
        ("bc|c$", False, "undershoot"),
        ("bdda|b$", False, "lookup"),
    ]


def _judged(problem: Problem, text: str) -> tuple[bool, str]:
    verdict = TASK.verify(problem, text)
    return verdict.correct, verdict.kind


def test_a_course_counts_what_was_paid_wrongly(tmp_path: Path) -> None:
    written = [("bc|c$", 0.9), ("b|b$", 0.9), ("b|b$", 0.9), ("bcd|d$", 0.8), ("|b$", 0.7), ("bd|d$", 0.4)]
    rows = [
        {
            "prompt_idx": 0,
            "sample_idx": sample,
            "prompt": PROBLEM.prompt,
            "completion": text,
            "token_ids": [0],
            "logps": [0.0],
            "signal": [0.0],
            "reward": paid,
            "rewards": {"verifier": paid},
            "verdict": TASK.verify(PROBLEM, text).correct,
            "kind": TASK.verify(PROBLEM, text).kind,
            "advantage": 0.0,
            "finish_reason": "stop",
        }
        for sample, (text, paid) in enumerate(written)
    ]
    store.write_rollouts(tmp_path, 7, rows)
    (moment,) = work._course(tmp_path)
    assert (moment["step"], moment["right"], moment["hacks"]) == (7, 1 / 6, 4 / 6)
    assert moment["places"] == {"short": 2 / 6, "long": 1 / 6, "right length": 0.0, "malformed": 1 / 6}
    assert moment["common"][0] == [PROBLEM.prompt, "b|b$", 0.9, 2]

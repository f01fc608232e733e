"""Learned verifiers against plain forward passes and counting, as rewards in a run, and refreshed without losing a bit."""

import itertools
import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from rlvr.lab import store
from rlvr.lab.divergence import ALARM, Watch, divergence
from rlvr.lab.examples import Example, draw_examples, examples_of, fit, labels_of
from rlvr.lab.jsonl import iter_jsonl
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import open_run, train
from rlvr.lab.verifier import VerifierRecipe, train_verifier
from rlvr.policy import LabPolicy
from rlvr.rewards import Completion, Verifier, combined, load_reward, models, open_verifier, pay_all
from rlvr.stats.auc import auc
from rlvr.tasks import Echo, Pointer
from rlvr.types import Problem

SMALL = {"layers": 1, "width": 16, "heads": 2}
START = Recipe(preset="sft", task="echo", base=None, shape=SMALL, steps=12, prompts_per_step=8, learning_rate=1e-2)
HOW = VerifierRecipe(difficulty={}, problems=400, samples=2, held_out=300, steps=80, batch=32, learning_rate=1e-2)
RUN = Recipe(
    task="echo",
    base=None,
    shape=SMALL,
    steps=6,
    prompts_per_step=4,
    group_size=4,
    learning_rate=1e-2,
    checkpoint_every=2,
    rewards={"verifier(path='../orm', refresh_every=2, labels=3, refresh_steps=2)": 1.0},
)
CLOCK = ("seconds", "tokens_per_second", "time/sample", "time/update", "time/step")
TASK = Pointer()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A half-trained echo base, with an outcome and a process verifier of its completions."""
    folder = tmp_path_factory.mktemp("verifiers")
    train(folder / "base", START)
    train_verifier(folder / "orm", folder / "base", HOW)
    train_verifier(folder / "prm", folder / "base", replace(HOW, kind="prm", aggregate="min"))
    return folder


def random_verifier(kind: str = "prm", aggregate: str = "last") -> Verifier:
    verifier = Verifier.of(LabPolicy.create(TASK.alphabet, "$", seed=3, **SMALL), kind, aggregate)
    torch.nn.init.normal_(verifier.critic.model.head.weight, generator=torch.Generator().manual_seed(1))
    return verifier


PROBLEMS = [TASK.problem(np.random.default_rng(i), n=(2, 5), k=(1, 3)) for i in range(4)]
TEXTS = ["ab|b$", "", "a", "ab|b$", "||$", "abcdefgh"]
INDEX = [0, 1, 1, 0, 3, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    right, wrong = ([score for score, truth in rows if truth == wanted] for wanted in (True, False))
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(right, wrong)]
    found = auc([score for score, _ in rows], [truth for _, truth in rows])
    assert found == pytest.approx(np.mean(pairs)) if pairs else np.isnan(found)


def test_log_odds_are_those_of_a_plain_pass_after_each_token() -> None:
    verifier = random_verifier()
    logits, exists = verifier.logits(PROBLEMS, INDEX, TEXTS)
    for row, (place, text) in enumerate(zip(INDEX, TEXTS, strict=True)):
        problem = PROBLEMS[place]
        ids = torch.tensor([verifier.tokenizer.encode(problem.prompt + text)])
        plain = verifier.critic.model(ids, torch.tensor([problem.meta["offset"]]))[0, len(problem.prompt) - 1 :, 0]
        assert exists[row].sum() == len(text) + 1
        torch.testing.assert_close(logits[row, : len(text) + 1], plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggregate", ["last", "min", "product"])
def test_a_score_is_made_of_its_steps_and_of_nothing_else_in_the_batch(aggregate: str, monkeypatch) -> None:
    verifier = random_verifier("prm", aggregate)
    scores, steps = verifier.score(PROBLEMS, INDEX, TEXTS), verifier.steps(PROBLEMS, INDEX, TEXTS)
    fold = {"last": lambda row: row[-1], "min": min, "product": np.prod}[aggregate]
    for row, text in enumerate(TEXTS):
        if text:
            known = steps[row][~steps[row].isnan()].double().numpy()
            assert len(known) == len(text)
            assert float(scores[row]) == pytest.approx(fold(known), rel=1e-5)
        alone = verifier.score([PROBLEMS[INDEX[row]]], [0], [text])
        assert float(alone) == pytest.approx(float(scores[row]), rel=1e-5)
    assert scores[0] == scores[3]
    assert len(set(scores.tolist())) == len(TEXTS) - 1
    monkeypatch.setattr(models, "TEXTS_AT_ONCE", 2)
    torch.testing.assert_close(verifier.score(PROBLEMS, INDEX, TEXTS), scores)


def test_ensembles_by_hand() -> None:
    scores = torch.tensor([[0.1, 0.9], [0.5, 0.9]])
    assert combined(scores, "mean").tolist() == pytest.approx([0.3, 0.9])
    assert combined(scores, "min").tolist() == pytest.approx([0.1, 0.9])
    assert combined(scores, "variance", 2.0).tolist() == pytest.approx([0.3 - 2 * 0.04, 0.9])


@pytest.mark.parametrize("text", ["bc|c$", "bb|c$", "b|b$", "bca|a$", "bc", "|c$", "bc|a$"])
def test_a_step_is_right_while_it_begins_the_demonstration_or_the_answer_is_right(text: str) -> None:
    problem = Problem("ab,bc,ca,?a2:", "c", {"k": 2, "orbit": "bcabcab"})
    bar = text.find("|")
    expected = [
        float(TASK.gold(problem)[: end + 1] == text[: end + 1] or (0 <= bar < end and text[bar + 1] == "c"))
        for end in range(len(text))
    ]
    assert labels_of(TASK, Example(problem, text, True, "")) == expected


def test_examples_are_the_policys_own_with_the_tasks_verdicts(home: Path) -> None:
    policy, recipe = open_run(home / "base")
    problems = [recipe.the_task.problem(np.random.default_rng(i)) for i in range(300)]
    drawn = draw_examples(policy, recipe.the_task, problems, 4, np.random.default_rng(0))
    assert [e.problem for e in drawn] == [problem for problem in problems for _ in range(4)]
    assert all(e.correct == Echo().verify(e.problem, e.text).correct for e in drawn)
    chance = []
    for letter in "abcd":  # P(right) of each letter, from the policy's log-probabilities
        tokens = torch.tensor([policy.encode(f"{letter}$")])
        logps = policy.score([Problem(f"{letter}:", letter)], torch.tensor([0]), tokens, tokens >= 0).logps
        chance.append(logps.detach().sum().exp().item())
    shares = [np.mean([e.correct for e in drawn if e.problem.answer == letter]) for letter in "abcd"]
    assert shares == pytest.approx(chance, abs=0.12)


@pytest.mark.parametrize("kind", ["orm", "prm"])
def test_a_verifier_learns_what_is_right_and_says_how_well(home: Path, kind: str) -> None:
    quality = json.loads((home / kind / "config.json").read_text())["quality"]
    assert 0.1 < quality["base_rate"] < 0.9
    assert quality["auc"] > 0.95
    assert quality["accuracy"] > 0.9
    verifier = open_verifier(home / kind)
    texts = ["a$", "b$", "c$", "d$"]
    problems = [Problem(f"{letter}:", letter) for letter in "abcd"]
    scores = verifier.score(problems, [p for p in range(4) for _ in texts], texts * 4).view(4, 4)
    assert scores.argmax(1).tolist() == [0, 1, 2, 3]


def test_the_same_verifier_is_made_once_and_reads_back_bit_equal(home: Path, tmp_path: Path) -> None:
    before = (home / "orm" / "model.safetensors").stat().st_mtime_ns
    train_verifier(home / "orm", home / "base", HOW)
    assert (home / "orm" / "model.safetensors").stat().st_mtime_ns == before
    train_verifier(tmp_path / "again", home / "base", HOW)
    first, again = (open_verifier(folder) for folder in (home / "orm", tmp_path / "again"))
    asked = [Problem("a:", "a"), Problem("b:", "b")], [0, 1, 1], ["a$", "ab", "b$"]
    assert torch.equal(first.score(*asked), again.score(*asked))
    assert len(examples_of(home / "orm")) == HOW.problems * HOW.samples
    train_verifier(tmp_path / "again", home / "base", replace(HOW, seed=1))
    assert not torch.equal(first.score(*asked), open_verifier(tmp_path / "again").score(*asked))


def test_an_orm_learns_from_whole_texts_only() -> None:
    verifier = random_verifier("orm")
    rows = [Example(PROBLEMS[0], "ab|b$", True, "correct"), Example(PROBLEMS[1], "a|a$", False, "lookup")]
    copy = {name: weight.clone() for name, weight in verifier.critic.model.state_dict().items()}
    losses = fit(verifier, TASK, [rows], learning_rate=1e-3, warmup_steps=0)
    verifier.critic.model.load_state_dict(copy)
    scores = verifier.score([row.problem for row in rows], [0, 1], [row.text for row in rows]).double()
    assert losses == pytest.approx([-float(scores[0].log() + (1 - scores[1]).log()) / 2], rel=1e-5)
    with pytest.raises(ValueError, match="has no scores for steps"):
        verifier.steps(PROBLEMS, INDEX, TEXTS)


def completions(problem: Problem, *texts: str) -> list[Completion]:
    return [Completion(problem, text, Echo().verify(problem, text), True, len(text)) for text in texts]


def test_a_batch_is_paid_its_scores_without_a_gradient(home: Path) -> None:
    groups = [completions(Problem("a:", "a"), "a$", "b$", "a$"), completions(Problem("b:", "b"), "b$", "aa", "cb")]
    reward = load_reward("verifier(path=('../orm', '../prm'), combine='min')")
    with pytest.raises(ValueError, match="is not open"):
        pay_all("verifier", reward, groups, np.random.default_rng(0))
    reward.open(home / "some run")
    paid = pay_all("verifier", reward, groups, np.random.default_rng(0))
    for group, values in zip(groups, paid, strict=True):
        for completion, value in zip(group, values, strict=True):
            each = [v.score([completion.problem], [0], [completion.text]).item() for v in reward.verifiers]
            assert value == pytest.approx(min(each), rel=1e-5)
    assert all(p.grad is None for v in reward.verifiers for p in v.critic.model.parameters())


def test_a_gate_is_a_factor(tmp_path: Path) -> None:
    verifier = random_verifier("orm")
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "config.json").write_text(json.dumps({"verifier": verifier.config()}))
    from rlvr.lab.checkpoint import save_weights

    save_weights(tmp_path / "v" / "model.safetensors", verifier.critic.model)
    group = [completions(PROBLEMS[0], "ab|b$", "|b$", "ab||$", "a|a$")]
    paid = {}
    for gate in (False, True):
        reward = load_reward(f"verifier(path='v', gate={gate})")
        reward.open(tmp_path)
        paid[gate] = pay_all("v", reward, group, np.random.default_rng(0))[0]
    assert all(0 < value < 1 for value in paid[False])
    assert paid[True] == [paid[False][0], 0.0, 0.0, paid[False][3]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("verifier", "path = ''"),
        ("verifier(path='x', combine='max')", "accepted: 'mean', 'min' or 'variance'"),
        ("verifier(path='x', labels=-1)", "labels = -1"),
        ("verifier(path='x', verifiers=())", "accepted: path, combine"),
    ],
)
def test_wrong_settings_are_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_reward(name)


def test_a_missing_verifier_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no trained verifier"):
        train(tmp_path / "run", replace(RUN, rewards={"verifier(path='../nowhere')": 1.0}))


def told(folder: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in store.read_metrics(folder)]


def arm(home: Path, name: str, stop_at: int | None = None, recipe: Recipe = RUN) -> Path:
    """Train from the base beside its verifiers, as often as it takes, killed once in the middle of a step."""

    def stop(step: int, metrics: object) -> None:
        if step == stop_at:
            raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            train(home / name, recipe, home / "base", on_step=stop)
        except KeyboardInterrupt:
            train(home / name, recipe, home / "base")
    return home / name


def test_a_refreshed_run_that_was_killed_ends_bit_equal(home: Path) -> None:
    whole = arm(home, "whole")
    for stop_at in (0, 2, 3, 4):
        broken = arm(home, f"broken-{stop_at}", stop_at)
        assert told(broken) == told(whole)
        assert (broken / "labels.jsonl").read_text() == (whole / "labels.jsonl").read_text()
        pairs = [load_file(folder / "model.safetensors") for folder in (whole, broken)]
        assert all(torch.equal(weight, pairs[1][name]) for name, weight in pairs[0].items())


def test_refreshing_keeps_its_budget_labels_the_truth_and_changes_what_is_paid(home: Path) -> None:
    refreshed = arm(home, "refreshed")
    rows = list(iter_jsonl(refreshed / "labels.jsonl"))
    steps = [row["step"] for row in rows]
    assert sorted(set(steps)) == [1, 3, 5]
    assert max(map(steps.count, steps)) <= 3
    assert all(row["correct"] == (row["completion"] == row["prompt"][0] + "$") for row in rows)
    budget = [row["verifier/labels"] for row in told(refreshed)]
    assert budget == [sum(step <= now for step in steps) for now in range(6)]
    assert all(("verifier/agreement" in row) == (row["step"] in (1, 3, 5)) for row in told(refreshed))
    plain = arm(home, "plain", recipe=replace(RUN, rewards={"verifier(path='../orm')": 1.0}))
    paid = [[row["reward"] for row in told(folder)] for folder in (refreshed, plain)]
    assert paid[0][:2] == paid[1][:2]
    assert paid[0][2] != paid[1][2]
    assert "verifier/labels" not in told(plain)[0]


def slow_divergence(rewards: list[float], accuracies: list[float], window: int) -> float:
    def mean(values: list[float], end: int) -> float:
        part = values[max(0, end + 1 - window) : end + 1]
        return sum(part) / len(part)

    last, worst = len(rewards) - 1, 0.0
    for earlier in range(2, last):
        if mean(rewards, earlier) <= mean(rewards, last):
            worst = max(worst, mean(accuracies, earlier) - mean(accuracies, last))
    return worst


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=14), st.integers(3, 5))
def test_divergence_is_the_largest_fall_that_the_reward_did_not_see(rows: list[tuple[int, int]], window: int) -> None:
    rewards, accuracies = [r / 8 for r, _ in rows], [a / 8 for _, a in rows]
    assert divergence(rewards, accuracies, window) == pytest.approx(slow_divergence(rewards, accuracies, window))
    assert divergence(accuracies, accuracies, window) == 0.0
    assert divergence([None] * len(rows), accuracies, window) == 0.0


def test_the_alarm_goes_off_once_and_goes_on_where_a_run_goes_on() -> None:
    reward, accuracy = [0.8] * 5 + [0.9] * 10, [0.8] * 5 + [0.1] * 10
    watch, rows = Watch(), []
    with pytest.warns(UserWarning, match="divergence alarm") as told_once:
        for step, (paid, true) in enumerate(zip(reward, accuracy, strict=True)):
            rows.append({"reward": paid, "accuracy": true} | watch.see(step, paid, true))
    assert len(told_once) == 1
    assert [row["divergence_alarm"] for row in rows] == [float(row["divergence"] > ALARM) for row in rows]
    assert [row["divergence_alarm"] for row in rows][4:8] == [0.0, 0.0, 1.0, 1.0]
    later, whole = Watch.of(rows), watch
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(15, 19):  # the reward falls too, so that only the lowest of the earlier windows count
            assert later.see(step, 0.1, 0.1) == whole.see(step, 0.1, 0.1)

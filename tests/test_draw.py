"""The batch of a step: what is drawn, what of it is learned from, and what is counted."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles import sample_slowly
from safetensors.torch import load_file
from test_step import table_rollouts
from torch.nn import functional as F

from rlvr.algo import preset
from rlvr.lab import draw as drawing
from rlvr.lab import store
from rlvr.lab import train as loop
from rlvr.lab.draw import draw
from rlvr.lab.metrics import kept_metrics, step_metrics
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts, join, take
from rlvr.policy import Decoding, LabPolicy
from rlvr.tasks import TASKS, Echo, Pointer
from rlvr.types import Verdict

SMALL = {"layers": 1, "width": 16, "heads": 2}
POINTER = Recipe(
    preset="dapo",
    overrides={"minibatches": 1, "sampling_rounds": 6},
    base=None,
    shape=SMALL,
    difficulty={"n": (3, 6), "k": (1, 4)},
    prompts_per_step=5,
    group_size=4,
)
ECHO = Recipe(
    preset="dapo",
    overrides={"minibatches": 1, "sampling_rounds": 4},
    task="echo",
    base=None,
    shape=SMALL,
    steps=3,
    prompts_per_step=3,
    group_size=5,
    checkpoint_every=1,
)


class Even(Pointer):
    """Right is what begins with a letter of the first half, so groups are mixed or not, whatever the policy knows."""

    def verify(self, problem, text):
        right = text[:1] in tuple("abcdefgh")
        return Verdict(right, "correct" if right else "format", text[:1])


class Always(Echo):
    """Everything is right."""

    def verify(self, problem, text):
        return Verdict(True, "correct", problem.answer)


class Never(Echo):
    """Nothing is."""

    def verify(self, problem, text):
        return Verdict(False, "wrong")


def policy_of(recipe: Recipe, device: str = "cpu", make=loop.make_policy) -> LabPolicy:
    """Random, and sure enough of itself that some of its groups agree."""
    policy = make(recipe, device)
    with torch.no_grad():
        policy.model.head.weight.mul_(6)
        policy.model.embed.weight.mul_(20)
    return policy


@pytest.fixture
def even(monkeypatch) -> None:
    monkeypatch.setitem(TASKS, "pointer", Even())


def row(rollouts: Rollouts, number: int) -> tuple:
    """All that a row is, without its padding."""
    samples, length = rollouts.samples, int(rollouts.samples.mask[number].sum())
    tables = (samples.tokens, samples.mask, samples.logps, samples.entropies)
    padding = [float(table[number, length:].double().abs().sum()) for table in tables]
    assert sum(padding) == 0
    return (
        *(table[number, :length].tolist() for table in tables),
        bool(samples.finished[number]),
        rollouts.problems[number // rollouts.group_size],
        rollouts.texts[number],
        rollouts.verdicts[number],
        float(rollouts.rewards.flatten()[number]),
        {name: float(paid.flatten()[number]) for name, paid in rollouts.rewards_by_function.items()},
    )


def rows(rollouts: Rollouts) -> list[tuple]:
    assert len(rollouts.problems) * rollouts.group_size == len(rollouts.texts) == len(rollouts.samples.tokens)
    return [row(rollouts, number) for number in range(len(rollouts.texts))]


def mixed(rollouts: Rollouts) -> list[int]:
    """The problems with right and wrong completions, from the texts alone."""
    groups, task = range(len(rollouts.problems)), Even()
    found = []
    for p in groups:
        texts = rollouts.texts[p * rollouts.group_size : (p + 1) * rollouts.group_size]
        if len({task.verify(None, text).correct for text in texts}) == 2:
            found.append(p)
    return found


def told(folder: Path) -> list[dict[str, Any]]:
    return store.read_metrics(folder)


# ── One round ────────────────────────────────────────────────────────────────────────────────────────


def test_without_dynamic_sampling_the_batch_is_what_was_drawn(even) -> None:
    recipe = replace(POINTER, overrides={"minibatches": 1, "sampling_rounds": 1})
    drawn = draw(policy_of(recipe), recipe, 3)
    assert drawn.batch is drawn.everything and drawn.rounds == 1 and drawn.greedy is drawn.greedy_answers is None
    assert len(drawn.batch.problems) == 5 and len(mixed(drawn.batch)) < 5  # dropped later, from the mask


def test_the_same_step_draws_the_same_for_every_algorithm_and_another_step_something_else(even) -> None:
    policy = policy_of(POINTER)
    first = draw(policy, replace(POINTER, preset="grpo", overrides={}), 3).batch
    for name in ("reinforce", "ppo", "dapo"):
        other = draw(policy, replace(POINTER, preset=name, overrides={"minibatches": 1}), 3).everything
        assert rows(other)[: len(first.texts)] == rows(first)
    assert draw(policy, replace(POINTER, preset="grpo", overrides={}), 4).batch.texts != first.texts
    gold = draw(policy, replace(POINTER, preset="sft", overrides={}), 3)
    assert gold.batch.problems == first.problems and gold.rounds == 1 and gold.batch is gold.everything


# ── Rounds until the batch is full ───────────────────────────────────────────────────────────────────


def drawn_in_rounds(recipe: Recipe, monkeypatch, step: int = 0):
    """A draw and its rounds as they came."""
    rounds, collect = [], drawing.collect
    with monkeypatch.context() as patch:
        patch.setattr(drawing, "collect", lambda *given: (rounds.append(collect(*given)), rounds[-1])[1])
        return draw(policy_of(recipe), recipe, step), rounds


@pytest.mark.parametrize("step", range(4))
def test_rounds_are_drawn_until_the_batch_is_full_and_no_further(even, monkeypatch, step: int) -> None:
    drawn, rounds = drawn_in_rounds(POINTER, monkeypatch, step)
    useful = [(number, p) for number, each in enumerate(rounds) for p in mixed(each)]
    before = sum(len(mixed(each)) for each in rounds[:-1])
    assert drawn.rounds == len(rounds) > 1 and before < 5 <= len(useful)
    expected = [row(rounds[number], 4 * p + g) for number, p in useful[:5] for g in range(4)]
    assert rows(drawn.batch) == expected  # in the order they came in, and what was too much is left out
    assert rows(drawn.everything) == [each for part in rounds for each in rows(part)]
    assert len(drawn.everything.problems) == 5 * len(rounds)
    assert len({each.prompt for each in drawn.everything.problems}) > 5 * (len(rounds) - 1)  # no round repeats another


def test_a_batch_that_is_not_full_at_the_cap_is_what_was_found(even, monkeypatch) -> None:
    recipe = replace(POINTER, overrides={"minibatches": 1, "sampling_rounds": 2}, prompts_per_step=8)
    drawn, rounds = drawn_in_rounds(recipe, monkeypatch)
    useful = [(number, p) for number, each in enumerate(rounds) for p in mixed(each)]
    assert drawn.rounds == len(rounds) == 2 and 0 < len(useful) < 8
    assert rows(drawn.batch) == [row(rounds[number], 4 * p + g) for number, p in useful for g in range(4)]


def test_a_partial_batch_is_learned_from_in_no_more_steps_than_it_has_prompts(even, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loop, "make_policy", policy_of)
    overrides = {"minibatches": 8, "sampling_rounds": 2, "mask_truncated": False}
    recipe = replace(POINTER, overrides=overrides, prompts_per_step=8, steps=4)
    metrics = told(loop.train(tmp_path / "run", recipe))
    kept = [each["sampling/prompts_kept"] for each in metrics]
    assert any(0 < count < 8 for count in kept)
    updates = np.diff([0, *(each["updates"] for each in metrics)]).tolist()
    assert updates == kept


@pytest.mark.parametrize("world", [Always, Never])
def test_b24_at_the_cap_with_nothing_found_the_step_is_skipped_and_the_run_goes_on(
    world, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(TASKS, "echo", world())
    recipe = replace(ECHO, record=(0, 1, 2), eval_every=1)
    run = loop.train(tmp_path / "run", recipe, sets={"test": [Echo().problem(np.random.default_rng(0))]})
    metrics = told(run)
    assert [each["sampling/rounds"] for each in metrics] == [4, 4, 4]
    assert [each["samples"] for each in metrics] == [60, 120, 180]  # 4 rounds of 3 prompts with 5 completions
    assert [each["updates"] for each in metrics] == [0, 0, 0]
    assert {each["sampling/prompts_kept"] for each in metrics} == {0}
    assert {(each["loss"], each["grad_norm"], each["rows_scored"]) for each in metrics} == {(0, 0, 0)}
    assert {(each["accuracy"], each["accuracy/kept"]) for each in metrics} == {(float(world is Always), None)}
    start = loop.make_policy(recipe).model.state_dict()
    assert all(torch.equal(start[name], found) for name, found in load_file(run / "model.safetensors").items())
    assert [each["step"] for each in store.read_evals(run)] == [0, 1, 2, 3]


def test_a_step_without_a_batch_still_moves_what_goes_by_steps(tmp_path, monkeypatch) -> None:
    """What follows the batch stays; reference and optimizer are reset when their step has come, batch or not."""
    monkeypatch.setitem(TASKS, "echo", Never())
    coefficients = {
        "kl": "KL",
        "kl.coef": 0.1,
        "kl.target": 0.01,
        "kl.reference_every": 2,
        "entropy": "AdaptiveEntropy",
    }
    more = {"entropy.target": 1.0, "restart": "RestartEvery", "restart.steps": 3}
    recipe = replace(ECHO, overrides={**ECHO.overrides, **coefficients, **more}, steps=6)
    metrics = told(loop.train(tmp_path / "run", recipe))
    assert [each["restart"] for each in metrics] == [0, 0, 1, 0, 0, 1]
    assert [each["kl/reference_moved"] for each in metrics] == [0, 1, 0, 1, 0, 1]
    assert {(each["kl_coef"], each["entropy_coef"]) for each in metrics} == {(0.1, 0.01)}


# ── What the filter reads ────────────────────────────────────────────────────────────────────────────

SHAPED = """
def shorter(completion, generator):
    return -float(completion.tokens) - generator.random()
"""


def test_b25_the_filter_reads_verdicts_not_shaped_rewards(tmp_path, monkeypatch) -> None:
    """Nothing is right, every reward differs: nothing is kept; asked to read rewards it keeps all, and so it would learn."""
    monkeypatch.setitem(TASKS, "echo", Never())
    (tmp_path / "own.py").write_text(SHAPED)
    recipe = replace(ECHO, rewards={"correct": 1.0, f"{tmp_path / 'own.py'}:shorter": 0.1})
    drawn = draw(policy_of(recipe), recipe, 0)
    assert drawn.everything.rewards.std(1).min() > 0
    assert drawn.batch is None and drawn.rounds == 4
    by_reward = replace(recipe, overrides={**ECHO.overrides, "select.by": "reward"})
    drawn = draw(policy_of(recipe), by_reward, 0)
    assert drawn.batch is not None and drawn.rounds == 1 and len(drawn.batch.problems) == 3


UNSCORED = """
def unscored(completion, generator):
    return None if completion.problem.answer == "a" else float(completion.text[:1] == "b")
"""


def test_a_prompt_without_a_reward_fills_no_batch(tmp_path) -> None:
    (tmp_path / "own.py").write_text(UNSCORED)
    recipe = replace(ECHO, preset="grpo", overrides={"sampling_rounds": 5}, prompts_per_step=6)
    recipe = replace(recipe, rewards={f"{tmp_path / 'own.py'}:unscored": 1.0})
    drawn = draw(policy_of(recipe), recipe, 0)
    assert drawn.rounds == 2 and drawn.everything.rewards.isnan().any()
    answers = [problem.answer for problem in drawn.everything.problems if problem.answer != "a"]
    assert [problem.answer for problem in drawn.batch.problems] == answers[:6]


def groups(*outcomes: list[float]) -> Rollouts:
    """Hand-made groups of two with these rewards, right where the reward is above 0."""
    return table_rollouts([2] * (2 * len(outcomes)), list(outcomes), width=2)


def test_b28_groups_are_kept_alike_one_by_one_and_all_at_once() -> None:
    algorithm, everything = preset("dapo"), groups([1.0, 1.0], [0.0, 0.0], [1.0, 0.0])
    together = algorithm.select(everything.rewards, everything.correct).any(1).nonzero()[:, 0]
    parts = [take(everything, torch.tensor([p])) for p in range(3)]
    kept = [bool(algorithm.select(part.rewards, part.correct).any()) for part in parts]
    assert together.tolist() == [2] and kept == [False, False, True]
    assert rows(take(everything, together)) == rows(
        join([part for part, keep in zip(parts, kept, strict=True) if keep])
    )


def test_b32_accuracy_of_all_and_of_what_was_kept_have_two_names() -> None:
    """Group accuracies 1, 1, 0.5: 0.8333 before the filter and 0.5 after it."""
    everything = groups([1.0, 1.0], [1.0, 1.0], [1.0, 0.0])
    keep = preset("dapo").select(everything.rewards, everything.correct).any(1).nonzero()[:, 0]
    before, after = step_metrics(everything), kept_metrics(take(everything, keep), 1)
    assert before["accuracy"] == pytest.approx(5 / 6) and after["accuracy/kept"] == 0.5
    assert not before.keys() & after.keys()
    assert after["sampling/prompts_kept"] == 1 and kept_metrics(None, 4)["accuracy/kept"] is None


def test_b32_metrics_of_a_run_say_both(even, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(loop, "make_policy", policy_of)
    recipe = replace(POINTER, steps=3, record=(0, 1, 2))
    run = loop.train(tmp_path / "run", recipe)
    for step, each in enumerate(told(run)):
        kept = store.read_rollouts(run, [step]).to_pylist()
        assert each["accuracy/kept"] == pytest.approx(np.mean([row["verdict"] for row in kept]))
        assert len(kept) == 4 * each["sampling/prompts_kept"] and each["accuracy/kept"] != each["accuracy"]
        # Everything that was drawn is in the budget and in the accuracy.
        assert each["samples"] - (told(run)[step - 1]["samples"] if step else 0) == 20 * each["sampling/rounds"]


# ── Parts of rollouts ────────────────────────────────────────────────────────────────────────────────


def test_what_is_taken_and_joined_again_is_the_same(even) -> None:
    recipe = replace(POINTER, preset="grpo", overrides={}, rewards={"correct": 1.0, "random": 0.5})
    policy = policy_of(recipe)
    first, second = (draw(policy, recipe, step).batch for step in (0, 1))
    both = join([first, second])
    assert rows(both) == [*rows(first), *rows(second)]
    assert rows(take(both, torch.arange(5))) == rows(first) and rows(take(both, torch.arange(5, 10))) == rows(second)
    turned = take(both, torch.tensor([7, 2]))
    assert rows(turned) == [row(both, 4 * p + g) for p in (7, 2) for g in range(4)]
    nothing = take(both, torch.tensor([], dtype=torch.long))
    assert rows(join([nothing, turned])) == rows(turned)


def test_rollouts_of_different_widths_are_joined_with_nothing_in_the_padding() -> None:
    narrow, wide = table_rollouts([2, 1], [[1.0, 0.0]], width=2), table_rollouts([5, 3], [[0.0, 1.0]], width=5)
    both = join([narrow, wide])
    assert both.samples.tokens.shape == (4, 5) and both.samples.mask.sum(1).tolist() == [2, 1, 5, 3]
    assert both.samples.mask.dtype == torch.bool and both.samples.tokens.dtype == torch.long
    assert torch.equal(both.samples.logps[:2], F.pad(narrow.samples.logps, (0, 3)))


# ── Baselines from outside ───────────────────────────────────────────────────────────────────────────


def test_the_greedy_answers_are_the_baseline_and_are_paid_for(tmp_path) -> None:
    recipe = replace(ECHO, preset="remax", overrides={}, steps=4, record=tuple(range(4)), prompts_per_step=6)
    recipe = replace(recipe, rewards={"correct": 2.0})  # a reward is no verdict
    drawn = draw(policy_of(recipe), recipe, 0)
    naive = sample_slowly(policy_of(recipe), drawn.batch.problems, 1, np.zeros((6, 2)), [2] * 6, Decoding(0.0))
    texts = [policy_of(recipe).decode(ids[mask].tolist()) for ids, mask in zip(naive.tokens, naive.mask, strict=True)]
    verdicts = [Echo().verify(each, text).correct for each, text in zip(drawn.batch.problems, texts, strict=True)]
    assert drawn.greedy_answers.texts == texts and drawn.greedy.tolist() == [2.0 * each for each in verdicts]
    base = loop.train(tmp_path / "base", replace(recipe, preset="sft", steps=12, learning_rate=1e-2, record=()))
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw", lambda *given: (answers.append(draw(*given)), answers[-1])[1])
        run = loop.train(tmp_path / "run", recipe, base)
    told_rows, samples, tokens = told(run), 0, 0
    for step, (each, found) in enumerate(zip(told_rows, answers, strict=True)):
        kept = store.read_rollouts(run, [step]).to_pylist()
        for p in range(6):
            greedy = 2.0 * Echo().verify(found.batch.problems[p], found.greedy_answers.texts[p]).correct
            assert [row["advantage"] for row in kept[5 * p : 5 * p + 5]] == [
                row["reward"] - greedy for row in kept[5 * p : 5 * p + 5]
            ]
        samples += 6 * 5 + 6
        tokens += sum(len(row["token_ids"]) for row in kept) + sum(len(text) for text in found.greedy_answers.texts)
        assert (each["samples"], each["tokens"]) == (samples, tokens)
    assert {greedy for found in answers for greedy in found.greedy.tolist()} == {0.0, 2.0}


def test_a_greedy_answer_without_a_reward_teaches_nothing(tmp_path) -> None:
    (tmp_path / "own.py").write_text(UNSCORED)
    recipe = replace(ECHO, preset="remax", overrides={}, steps=1, record=(0,), prompts_per_step=8)
    run = loop.train(tmp_path / "run", replace(recipe, rewards={f"{tmp_path / 'own.py'}:unscored": 1.0}))
    kept = store.read_rollouts(run).to_pylist()
    assert any(math.isnan(row["reward"]) for row in kept)
    assert all((row["advantage"] == 0) for row in kept if row["prompt"] == "a:")


def test_the_running_mean_by_hand_over_three_steps(tmp_path) -> None:
    base = loop.train(tmp_path / "base", replace(ECHO, preset="sft", overrides={}, steps=20, learning_rate=1e-2))
    overrides = {"advantage.decay": 0.75}
    recipe = replace(ECHO, preset="reinforce_running_mean", overrides=overrides, steps=3, record=(0, 1, 2))
    run = loop.train(tmp_path / "run", recipe, base)
    baseline = 0.0
    for step, each in enumerate(told(run)):
        kept = store.read_rollouts(run, [step]).to_pylist()
        assert each["baseline"] == pytest.approx(baseline, rel=1e-12)
        assert [row["advantage"] for row in kept] == pytest.approx([row["reward"] - baseline for row in kept], rel=1e-9)
        mean = sum(row["reward"] for row in kept) / len(kept)
        assert 0 < mean < 1
        baseline = 0.75 * baseline + 0.25 * mean


OTHERS: Mapping[str, Any] = {"grpo": {}, "ppo": {}, "rft": {}, "dapo": {"minibatches": 1}}


@pytest.mark.parametrize("name", OTHERS)
def test_nobody_else_asks_for_greedy_answers(name: str) -> None:
    recipe = replace(ECHO, preset=name, overrides=OTHERS[name])
    assert draw(policy_of(recipe), recipe, 0).greedy_answers is None

"""Which problems a step asks: streams that grow harder, pools in epochs, by success, and without what is solved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rlvr.cli.options import Train
from rlvr.cli.run import recipe_of
from rlvr.cli.words import Mistake, curriculum
from rlvr.lab import store
from rlvr.lab import train as loop
from rlvr.lab.curriculum import History, ask, fresh_history, pool_metrics, remembered
from rlvr.lab.draw import draw
from rlvr.lab.recipe import Recipe
from rlvr.rewards import REWARDS
from rlvr.tasks import TASKS, Echo
from rlvr.types import Verdict

SMALL = {"layers": 1, "width": 16, "heads": 2}
POOL = Recipe(difficulty={"n": (4, 8), "k": (1, 5)}, pool=10, prompts_per_step=4)
ECHO = Recipe(preset="grpo_lecture", task="echo", base=None, shape=SMALL, prompts_per_step=4, group_size=6, steps=6)


def places_of(recipe: Recipe, rounds: int, history: History | None = None) -> list[int]:
    """What is asked in so many rounds, if nothing is learned about anything."""
    history, found = fresh_history(recipe) if history is None else history, []
    for _ in range(rounds):
        asked = ask(recipe, 0, 0, history)
        assert [recipe.pool_problems[place] for place in asked.places] == asked.problems
        found += asked.places
        history = asked.history
    return found


# ── Curricula ────────────────────────────────────────────────────────────────────────────────────────


def test_a_curriculum_changes_what_it_names_from_its_step_on() -> None:
    stages = ((2, {"n": 6}), (5, {"n": 8, "k": (3, 4)}))
    recipe = Recipe(difficulty={"n": 4, "k": 2}, curriculum=stages, steps=9, prompts_per_step=5)
    for step in range(9):
        problems = ask(recipe, step, 0, History()).problems
        n, hops = (4, {2}) if step < 2 else (6, {2}) if step < 5 else (8, {3, 4})
        assert {problem.prompt.count(",") for problem in problems} == {n}
        assert {problem.meta["k"] for problem in problems} <= hops
    plain = replace(recipe, curriculum=())
    assert ask(recipe, 1, 3, History()) == ask(plain, 1, 3, History())  # and until then nothing
    assert Recipe.from_json(recipe.to_json()) == recipe


# ── Pools ────────────────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_meets_every_problem_once_in_an_order_of_its_own() -> None:
    asked = places_of(POOL, 10)  # 40 of 10 problems: batches of 4 cross from epoch to epoch
    epochs = [asked[start : start + 10] for start in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert places_of(POOL, 10) == asked != places_of(replace(POOL, seed=1), 10)


def test_pools_are_drawn_by_name_and_a_small_one_is_the_beginning_of_a_larger_one() -> None:
    large = replace(POOL, pool=30)
    assert large.pool_problems[:10] == POOL.pool_problems
    assert len({problem.prompt for problem in large.pool_problems}) == 30
    assert replace(POOL, seed=1).pool_problems != POOL.pool_problems
    assert replace(POOL, preset="sft").pool_problems == POOL.pool_problems


def test_a_pool_of_one_is_the_same_problem_in_groups_of_its_own() -> None:
    recipe = replace(ECHO, pool=1)
    drawn = draw(loop.make_policy(recipe), recipe, 2)
    assert drawn.batch.problems == [recipe.pool_problems[0]] * 4 and drawn.batch.rewards.shape == (4, 6)
    assert len({tuple(drawn.batch.texts[start : start + 6]) for start in range(0, 24, 6)}) == 4
    assert drawn.history == History(4, (24,), (int(drawn.batch.correct.sum()),))


def test_demonstrations_of_a_pool_come_in_the_same_epochs() -> None:
    recipe = replace(POOL, preset="sft", base=None, shape=SMALL)
    policy, history, shown = loop.make_policy(recipe), None, []
    for step in range(5):
        drawn = draw(policy, recipe, step, history)
        history, shown = drawn.history, shown + list(drawn.batch.problems)
    assert shown == [POOL.pool_problems[place] for place in places_of(POOL, 5)]
    assert pool_metrics(recipe, history) == {"pool/epochs": 2.0, "pool/seen": 0.0, "pool/dropped": 0.0}


# ── Success ──────────────────────────────────────────────────────────────────────────────────────────


class Halves(Echo):
    """Right is what begins with a or b, so that groups are mixed whatever is asked."""

    def verify(self, problem, text):
        return Verdict(text[:1] in ("a", "b"), "correct" if text[:1] in ("a", "b") else "wrong", text[:1])


@pytest.mark.parametrize("rounds", [1, 5])
def test_success_reads_verdicts_of_all_that_was_sampled(rounds: int, monkeypatch) -> None:
    """Rewards that say the opposite change nothing, nor does what a filter throws away."""
    monkeypatch.setitem(TASKS, "echo", Halves())
    monkeypatch.setitem(REWARDS, "correct", lambda completion, generator: 1.0 - completion.verdict.correct)
    overrides = {"sampling_rounds": rounds, "select": "DifficultyBand", "select.low": 0.4, "select.high": 0.6}
    recipe = replace(ECHO, pool=7, overrides=overrides)
    drawn = draw(loop.make_policy(recipe), recipe, 0)
    everything = drawn.everything
    assert drawn.rounds >= rounds / 2 and len(everything.problems) == 4 * drawn.rounds == drawn.history.asked
    places, counts, right = places_of(recipe, drawn.rounds), [0] * 7, [0] * 7
    assert [recipe.pool_problems[place] for place in places] == list(everything.problems)
    for row, text in enumerate(everything.texts):
        counts[places[row // 6]] += 1
        right[places[row // 6]] += text[:1] in ("a", "b")
    assert drawn.history[1:] == (tuple(counts), tuple(right)) and 0 < sum(right) < sum(counts)


def test_prioritized_problems_are_asked_in_proportion_to_their_failures() -> None:
    """Success rates 1, 3/4, 1/2 and 0: shares 0, 1/7, 2/7 and 4/7, within four standard errors of 20 000 draws."""
    recipe = replace(POOL, pool=4, pool_sampling="prioritized", prompts_per_step=20_000)
    history = History(4, (8, 8, 4, 8), (8, 6, 2, 0))
    counts = np.bincount(ask(recipe, 9, 0, history).places, minlength=4)
    shares = np.array([0, 1 / 7, 2 / 7, 4 / 7])
    assert counts[0] == 0
    assert (np.abs(counts / 20_000 - shares) <= 4 * np.sqrt(shares * (1 - shares) / 20_000)).all()
    solved = np.bincount(ask(recipe, 9, 0, History(4, (8,) * 4, (8,) * 4)).places, minlength=4)
    assert np.abs(solved / 20_000 - 0.25).max() < 0.013  # nothing ever failed: all alike
    later = ask(recipe, 9, 0, history._replace(asked=8)).places
    assert later != ask(recipe, 9, 0, history).places  # other draws the next time


def test_prioritized_sampling_begins_with_an_epoch() -> None:
    recipe = replace(POOL, pool_sampling="prioritized")
    assert places_of(recipe, 3)[:10] == places_of(POOL, 3)[:10]
    assert sorted(places_of(recipe, 6)[12:]) != sorted(places_of(POOL, 6)[12:])


@pytest.mark.parametrize("sampling", ["epochs", "prioritized"])
def test_what_is_solved_is_dropped_for_good(sampling: str) -> None:
    recipe = replace(POOL, pool=5, pool_sampling=sampling, drop_solved=0.75)
    # 3/4 has reached it, 5/8 has not, and what was never drawn has no rate.
    history = History(10, (4, 8, 8, 8, 0), (3, 5, 8, 0, 0))
    assert set(places_of(recipe, 40, history)) == {1, 3, 4}
    assert pool_metrics(recipe, history) == {"pool/epochs": 2.0, "pool/seen": 0.8, "pool/dropped": 0.4}
    assert set(places_of(replace(recipe, drop_solved=None), 40, history)) >= {0, 1, 3, 4}
    again = remembered(history, [3], torch.ones(1, 8, dtype=torch.bool))  # 8 of 16
    assert again.drawn[3] == 16 and again.right[3] == 8 and 3 in places_of(recipe, 40, again)


@pytest.mark.parametrize("sampling", ["epochs", "prioritized"])
def test_when_all_are_dropped_all_are_asked_again(sampling: str) -> None:
    recipe = replace(POOL, pool=3, pool_sampling=sampling, drop_solved=0.9)
    history = History(3, (10, 10, 10), (9, 9, 10))
    assert set(places_of(recipe, 40, history)) >= {0, 1} and pool_metrics(recipe, history)["pool/dropped"] == 1.0


def test_a_run_drops_what_it_has_solved_and_says_so(tmp_path, monkeypatch) -> None:
    class HalfSolved(Echo):
        """Prompts a and b are right whatever is said, c and d never."""

        def verify(self, problem, text):
            return Verdict(problem.answer in "ab", "correct" if problem.answer in "ab" else "wrong", problem.answer)

    monkeypatch.setitem(TASKS, "echo", HalfSolved())
    recipe = replace(ECHO, pool=8, drop_solved=0.9, prompts_per_step=8, record=(5,))
    run = loop.train(tmp_path / "run", recipe)
    share = np.mean([problem.answer in "ab" for problem in recipe.pool_problems])
    rows = store.read_metrics(run)
    assert 0 < share < 1 and [row["pool/dropped"] for row in rows] == [share] * 6
    assert [row["accuracy"] for row in rows] == [share] + [0.0] * 5
    assert rows[0]["pool/epochs"] == 1.0 and {row["pool/seen"] for row in rows} == {1.0}
    assert {row["prompt"][0] for row in store.read_rollouts(run).to_pylist()} <= set("cd")


# ── What is refused ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pool": -1}, "pool = -1; accepted: a whole number >= 0"),
        ({"pool": 2.0}, "pool = 2.0; accepted: a whole number >= 0"),
        ({"pool": 3, "pool_sampling": "random"}, "'random'; accepted: 'epochs' or 'prioritized'"),
        ({"pool_sampling": "prioritized"}, "accepted: a pool above 0, as problems of an endless stream don't return"),
        ({"drop_solved": 0.9}, "drop_solved = 0.9; accepted: a pool above 0"),
        ({"pool": 3, "drop_solved": 0.0}, "drop_solved = 0.0; accepted: a success rate above 0 and up to 1"),
        ({"pool": 3, "drop_solved": 1.1}, "drop_solved = 1.1; accepted"),
        ({"pool": 3, "drop_solved": 0.9, "preset": "sft"}, "a preset that samples, unlike sft"),
        ({"pool": 3, "curriculum": ((2, {"n": 5}),)}, "pool = 3; accepted: 0 with a curriculum"),
        ({"pool": 3, "preset": "sft", "corpus": "a.jsonl"}, "pool = 3; accepted: 0 with a corpus"),
        ({"curriculum": ((2, {"m": 5}),)}, r"curriculum = .*unexpected keyword argument 'm'"),
        ({"curriculum": ((2, {"n": 99}),)}, "99"),
        ({"curriculum": ((2, {"n": 5}), (2, {"n": 6}))}, "accepted: rising steps from 0, below 200"),
        ({"curriculum": ((200, {"n": 5}),)}, "accepted: rising steps from 0, below 200"),
        ({"curriculum": (("2", {"n": 5}),)}, "accepted: pairs of a step and a difficulty"),
        ({"record": (200,)}, "accepted: steps below 200"),
    ],
)
def test_what_can_not_be_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**{"difficulty": {"n": 4, "k": 2}, **changes})
    if "curriculum" in changes:
        with pytest.raises(ValueError, match=message):
            Recipe.from_json(
                {"difficulty": {"n": 4, "k": 2}, **changes, "curriculum": [*map(list, changes["curriculum"])]}
            )


def test_evaluations_without_sets_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="eval_every = 3 and there are no sets; accepted: sets, or eval_every 0"):
        loop.train(tmp_path / "run", replace(ECHO, eval_every=3))


# ── The command line ─────────────────────────────────────────────────────────────────────────────────


def test_every_setting_has_its_flag() -> None:
    recipe = recipe_of(Train("grpo", pool=5, pool_sampling="prioritized", drop_solved=0.9))
    assert (recipe.pool, recipe.pool_sampling, recipe.drop_solved) == (5, "prioritized", 0.9)
    recipe = recipe_of(Train("grpo", curriculum=("50:n=4,8", "100:n=12:k=3")))
    assert recipe.curriculum == ((50, {"n": (4, 8)}), (100, {"n": 12, "k": 3}))


@pytest.mark.parametrize("word", ["n=4", "50", "50:", "x:n=4", "50:n=four", "-1:n=4"])
def test_a_mistaken_curriculum_is_named(word: str) -> None:
    with pytest.raises(Mistake, match="--curriculum"):
        curriculum([word])

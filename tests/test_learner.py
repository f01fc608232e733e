"""What a run remembers from one step to the next, and what every preset does in a whole run."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_train import SETS, SMALL, Stopped, compare, told

from rlvr.algo import PRESETS, Algorithm, with_overrides
from rlvr.algo.slots import SLOTS, pieces
from rlvr.lab import store
from rlvr.lab import train as loop
from rlvr.lab.learner import Learner
from rlvr.lab.recipe import Recipe

ECHO = Recipe(
    preset="grpo",
    task="echo",
    base=None,
    shape=SMALL,
    steps=6,
    prompts_per_step=4,
    group_size=4,
    learning_rate=1e-2,
    checkpoint_every=2,
)
EVALUATED = {"eval_every": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """What runs start from where something has to be right now and then."""
    recipe = replace(ECHO, preset="sft", steps=8, prompts_per_step=8)
    return loop.train(tmp_path_factory.mktemp("base") / "sft", recipe)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return store.read_metrics(folder)


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


class Diary:
    """A run with its learner's weights before the first step and after every one."""

    def __init__(self, folder: Path, recipe: Recipe, base: Path | None = None, sets=None) -> None:
        self.learner: Learner
        self.policy, self.reference, self.moments, self.scores = [], [], [], []
        of, after = Learner.of, Learner.after

        def begin(*given) -> Learner:
            self.learner = of(*given)
            return self.learner

        def note(learner: Learner, *given) -> dict[str, float]:
            if not self.policy:
                self.reference.append(None if learner.reference is None else self.start)
            self.scores.append(list(learner.scores))
            found = after(learner, *given)
            self.policy.append(flat(learner.policy.model))
            self.moments.append(len(learner.optimizer.state))
            self.reference.append(None if learner.reference is None else flat(learner.reference.model))
            return found

        if base is not None:
            self.start = torch.cat([part.flatten() for part in self._ordered(base, recipe)])
        else:
            self.start = flat(loop.make_policy(recipe).model)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Learner, "of", begin)
            patch.setattr(Learner, "after", note)
            self.metrics = metrics(loop.train(folder, recipe, base, sets))

    @staticmethod
    def _ordered(base: Path, recipe: Recipe) -> Iterator[torch.Tensor]:
        saved = load_file(base / "model.safetensors")
        return (saved[name] for name, _ in loop.make_policy(recipe).model.named_parameters())

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.metrics]


def stopped_at(last: int) -> Callable:
    """A draw that doesn't come to this step."""
    draw = loop.draw

    def drawing(policy, recipe, step, history):
        if step == last:
            raise Stopped
        return draw(policy, recipe, step, history)

    return drawing


# ── The reference ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("micro_rows", [None, 3])
def test_b63_the_reference_is_the_start_policy_and_stays(base, tmp_path, micro_rows) -> None:
    diary = Diary(tmp_path / "run", replace(ECHO, overrides={"minibatches": 2}, micro_rows=micro_rows), base)
    assert all(torch.equal(each, diary.start) for each in diary.reference)
    assert all(float((each - diary.start).abs().max()) > 1e-3 for each in diary.policy)
    assert diary.column("kl")[0] == 0 and min(diary.column("kl")[1:]) > 0
    assert set(diary.column("kl/reference_moved")) == {0}


def test_b63_after_a_declared_refresh_the_kl_is_0_again_and_the_log_says_so(base, tmp_path) -> None:
    diary = Diary(tmp_path / "run", replace(ECHO, overrides={"kl.reference_every": 2}), base)
    assert diary.column("kl/reference_moved") == [0, 1, 0, 1, 0, 1]
    assert [value == 0 for value in diary.column("kl")] == [True, False, True, False, True, False]
    kept = [
        diary.start,
        diary.start,
        diary.policy[1],
        diary.policy[1],
        diary.policy[3],
        diary.policy[3],
        diary.policy[5],
    ]
    assert all(torch.equal(*pair) for pair in zip(diary.reference, kept, strict=True))


def test_a_moving_reference_by_hand(base, tmp_path) -> None:
    """reference ← 0.7 reference + 0.3 policy after steps 3 and 6."""
    moving = {"kl.reference_every": 3, "kl.reference_decay": 0.7}
    diary = Diary(tmp_path / "run", replace(ECHO, overrides=moving), base)
    assert diary.column("kl/reference_moved") == pytest.approx([0, 0, 0.3, 0, 0, 0.3])
    once = 0.7 * diary.start + 0.3 * diary.policy[2]
    twice = 0.7 * once + 0.3 * diary.policy[5]
    kept = [diary.start] * 3 + [once] * 3 + [twice]
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(diary.reference, kept, strict=True))
    assert float((once - diary.start).abs().max()) > 1e-3


LEARNING_FROM_EQUALS = ("sft", "rft", "reinforce", "reinforce_running_mean", "ppo")


@pytest.mark.parametrize("micro_rows", [None, 3])
@pytest.mark.parametrize("name", [name for name in PRESETS if name not in LEARNING_FROM_EQUALS])
def test_equal_rewards_move_nothing(name: str, micro_rows, tmp_path) -> None:
    """Not by one bit: no rounding between sampler, reference and trainer is taken for a signal, which Adam would enlarge."""
    overrides: dict[str, Any] = {"minibatches": 5, "sampling_rounds": 1, "restart": "None"}
    if PRESETS[name].focus.needs_draws:
        overrides["select"] = "KeepAll"
    recipe = Recipe(
        preset=name,
        overrides=overrides,
        base=None,
        shape={"layers": 1, "width": 24, "heads": 4},
        difficulty={"n": (4, 8), "k": (1, 4)},
        rewards={"constant(value=1)": 1.0},
        steps=2,
        prompts_per_step=5,
        group_size=3,
        micro_rows=micro_rows,
    )
    start = loop.make_policy(recipe).model.state_dict()
    run = loop.train(tmp_path / "run", recipe)
    assert all(torch.equal(start[key], value) for key, value in load_file(run / "model.safetensors").items())
    assert {row.get("kl", 0) for row in metrics(run)} == {0}


# ── Coefficients that follow ─────────────────────────────────────────────────────────────────────────


def test_the_kl_coefficient_follows_its_target_by_hand(base, tmp_path) -> None:
    """β ← β (1 + clip(KL/target − 1, ±0.2) n / horizon), KL in nats a completion, n = 16."""
    weak = replace(ECHO, overrides={"kl.coef": 0.01}, steps=8)
    target = metrics(loop.train(tmp_path / "probe", weak, base))[4]["kl/sequence"] / 1.1
    controlled = {"kl.coef": 0.01, "kl.target": target, "kl.horizon": 80.0}
    diary = Diary(tmp_path / "run", replace(weak, overrides=controlled), base)
    coef, errors = 0.01, []
    for row in diary.metrics:
        assert row["kl_coef"] == pytest.approx(coef, rel=1e-12)
        errors.append(min(max(row["kl/sequence"] / target - 1, -0.2), 0.2))
        coef *= 1 + errors[-1] * 16 / 80
    assert min(errors) == -0.2 and max(errors) == 0.2 and any(0 < abs(error) < 0.2 for error in errors)
    assert diary.learner.state["kl_coef"] == pytest.approx(coef, rel=1e-12)


def test_a_large_coefficient_holds_the_policy(base, tmp_path) -> None:
    runs = [replace(ECHO, overrides={"kl.coef": coef}, steps=8) for coef in (0.0, 5.0)]
    free, held = (metrics(loop.train(tmp_path / str(run.digest()), run, base))[-1]["kl"] for run in runs)
    assert 0 < held < free / 3


def test_the_entropy_coefficient_follows_its_target_by_hand(base, tmp_path) -> None:
    """Up by the step at or below the target, down above it, where it isn't used; the log has what was used."""
    diary = Diary(tmp_path / "probe", replace(ECHO, steps=8), base)
    target = float(np.median(diary.column("entropy")))
    follows = {"entropy": "AdaptiveEntropy", "entropy.target": target, "entropy.coef": 0.02, "entropy.step": 0.01}
    diary = Diary(tmp_path / "run", replace(ECHO, overrides=follows, steps=8), base)
    coef = 0.02
    for row in diary.metrics:
        assert row["entropy_coef"] == pytest.approx(coef if row["entropy"] <= target else 0.0, abs=1e-12)
        coef = min(max(coef + (0.01 if row["entropy"] <= target else -0.01), 0.0), 1.0)
    assert {row["entropy"] <= target for row in diary.metrics} == {True, False}
    assert diary.learner.state["entropy_coef"] == pytest.approx(coef, abs=1e-12)


def test_a_bonus_is_not_paid_above_its_target(base, tmp_path) -> None:
    above = {"entropy": "AdaptiveEntropy", "entropy.target": 0.0, "entropy.coef": 0.5}
    kinds = (above, {"entropy": "EntropyBonus", "entropy.coef": 0.0}, {**above, "entropy.target": 1.8})
    runs = [Diary(tmp_path / str(i), replace(ECHO, overrides=kind), base).policy[-1] for i, kind in enumerate(kinds)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_b65_a_bonus_keeps_a_policy_undecided(base, tmp_path) -> None:
    last = []
    for coef in (-0.1, 0.0, 0.1):
        bonus = {"kl": "None", "entropy": "EntropyBonus", "entropy.coef": coef}
        run = loop.train(tmp_path / str(coef), replace(ECHO, overrides=bonus, steps=10, group_size=8), base)
        last.append(metrics(run)[-1]["entropy"])
    assert last[0] < last[1] < last[2]


def test_the_critics_learning_rate_has_the_shape_of_the_policys(tmp_path) -> None:
    rates, step = [], torch.optim.AdamW.step

    def noted(self, *given, **named):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *given, **named)

    recipe = replace(ECHO, preset="ppo", overrides={"num_iterations": 1}, critic_learning_rate=4e-3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", noted)
        run = loop.train(tmp_path / "run", replace(recipe, schedule="cosine", warmup_steps=3))
    expected = [row["learning_rate"] for row in metrics(run)]
    assert rates[::2] == expected and len(set(expected)) == 6
    assert rates[1::2] == pytest.approx([0.4 * rate for rate in expected])


def test_the_draws_of_a_focus_belong_to_the_step_and_the_seed(tmp_path, monkeypatch) -> None:
    given, update = {}, loop.update

    def noted(*arguments):
        given.setdefault(key, []).append(arguments[-1].draws)
        return update(*arguments)

    monkeypatch.setattr(loop, "update", noted)
    for key in ((0, "clip_cov"), (0, "kl_cov"), (1, "clip_cov"), (0, "grpo")):
        overrides = {} if key[1] == "grpo" else {"minibatches": 1, "select": "KeepAll"}
        loop.train(tmp_path / str(key), replace(ECHO, preset=key[1], overrides=overrides, steps=2, seed=key[0]))
    first, second = given[0, "clip_cov"]
    assert first.shape == (16, 2) and 0 <= first.min() < first.max() < 1
    assert not np.array_equal(first, second) and not np.array_equal(first, given[1, "clip_cov"][0])
    assert np.array_equal(first, given[0, "kl_cov"][0]) and given[0, "grpo"] == [None, None]


# ── Restarts ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_restart_moves_the_reference_clears_the_optimizer_and_is_in_the_log(base, tmp_path) -> None:
    overrides = {"restart": "RestartEvery", "restart.steps": 3}
    diary = Diary(tmp_path / "run", replace(ECHO, overrides=overrides), base)
    assert diary.column("restart") == [0, 0, 1, 0, 0, 1]
    assert [count > 0 for count in diary.moments] == [True, True, False, True, True, False]
    assert [value == 0 for value in diary.column("kl")] == [True, False, False, True, False, False]
    kept = [diary.start] * 3 + [diary.policy[2]] * 3 + [diary.policy[5]]
    assert all(torch.equal(*pair) for pair in zip(diary.reference, kept, strict=True))


def test_a_restarted_optimizer_is_as_good_as_a_new_one(base, tmp_path) -> None:
    """A run that restarts after step 3 goes on as one that began with its weights: the same next step, bit for bit."""
    recipe = replace(ECHO, overrides={"kl": "None", "restart": "RestartEvery", "restart.steps": 3}, steps=4)
    half = loop.train(tmp_path / "half", replace(recipe, steps=3, overrides={"kl": "None"}), base)
    whole = Diary(tmp_path / "whole", recipe, base)
    began, step = [], loop._step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_step", lambda run, number: (began.append(number), step(run, 3))[1])
        loop.train(tmp_path / "second", replace(recipe, steps=1, overrides={"kl": "None"}), half)
    saved = load_file(tmp_path / "second" / "model.safetensors")
    found = torch.cat([saved[name].flatten() for name, _ in whole.learner.policy.model.named_parameters()])
    assert began == [0] and torch.equal(found, whole.policy[3])


@pytest.mark.parametrize("when", [3, 4, 5])
def test_a_restart_where_evaluations_stall_by_hand(base, tmp_path, when: int) -> None:
    """Patience 2; the evaluation before step t is scores[t]. A best at 1 and nothing better in the next two: a restart
    after the step that follows the second; then it counts anew."""
    better = [0.1 * t for t in range(when - 1)]
    script = iter([*better, *[0.05] * 20])
    recipe = replace(ECHO, overrides={"restart": "RestartOnStall", "restart.patience": 2}, steps=10, **EVALUATED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "accuracy_by_set", lambda found: {"a": (value := next(script)), "b": value})
        diary = Diary(tmp_path / "run", recipe, base, SETS)
    restarts = [t for t, flag in enumerate(diary.column("restart")) if flag]
    # Scores 0 … when−2 rise; when−1 and when do not.
    assert restarts[0] == when and restarts[1] == when + 3
    assert [len(each) for each in diary.scores[: when + 2]] == [*range(1, when + 2), 1]


def test_evaluations_before_a_stop_count_after_it(base, tmp_path, monkeypatch) -> None:
    """The best stands at step 1; with patience 3 the restart comes after step 4, whatever was stopped in between."""
    monkeypatch.setattr(loop, "accuracy_by_set", lambda found: {"a": 0.9 if found["step"] == 1 else 0.1})
    draw = loop.draw
    overrides = {"restart": "RestartOnStall", "restart.patience": 3}
    recipe = replace(ECHO, overrides=overrides, **EVALUATED)
    monkeypatch.setattr(loop, "draw", stopped_at(3))
    with pytest.raises(Stopped):
        loop.train(tmp_path / "run", recipe, base, SETS)
    monkeypatch.setattr(loop, "draw", draw)
    loop.train(tmp_path / "run", recipe, base, SETS)
    assert [row["restart"] for row in metrics(tmp_path / "run")] == [0, 0, 0, 0, 1, 0]


def test_a_rule_that_reads_evaluations_is_refused_where_there_are_none(tmp_path) -> None:
    recipe = replace(ECHO, overrides={"restart": "RestartOnStall", "restart.patience": 2}, **EVALUATED)
    for sets in (None, {}):
        with pytest.raises(ValueError, match=r"restart=RestartOnStall\(patience=2\) reads evaluations; accepted: sets"):
            loop.train(tmp_path / "run", recipe, sets=sets)
    with pytest.raises(ValueError, match="accepted: eval_every above 0"):
        replace(recipe, eval_every=0)


# ── Every preset ─────────────────────────────────────────────────────────────────────────────────────


def tiny(name: str, **changes) -> Recipe:
    """A preset on the echo task, small in every way."""
    overrides: dict[str, Any] = {"minibatches": min(2, PRESETS[name].minibatches)}
    if PRESETS[name].sampling_rounds > 1:
        overrides["sampling_rounds"] = 3
    evaluated = EVALUATED if name == "prorl" else {}
    return replace(ECHO, preset=name, overrides=overrides, **evaluated, **changes)


@pytest.mark.parametrize("name", PRESETS)
def test_b110_a_run_of_any_preset_that_was_stopped_ends_bit_equal(base, tmp_path, name: str) -> None:
    """Stopped right after a checkpoint, and with a step behind it that has to be made again."""
    recipe = tiny(name, record=(5,))
    if name == "prorl":
        recipe = replace(recipe, overrides={**recipe.overrides, "restart.patience": 1})
    unbroken = told(loop.train(tmp_path / "unbroken", recipe, base, SETS))
    assert len(unbroken["metrics"]) == 6
    for last in (4, 5):
        folder = tmp_path / str(last)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(loop, "draw", stopped_at(last))
            loop.train(folder, recipe, base, SETS)
        assert (folder / "checkpoint.safetensors").exists() and len(metrics(folder)) == last
        loop.train(folder, recipe, base, SETS)
        compare(folder, unbroken, f"step {last}")


class Solved(BaseException):
    """Enough."""


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_solves_the_echo_task_in_seconds(tmp_path, name: str) -> None:
    """As published, from a policy that is right in 3 % of its samples, to 95 % over five steps."""
    usual = {"task": "echo", "base": None, "shape": SMALL | {"width": 32}, "learning_rate": 2e-3}
    recipe = Recipe(preset=name, steps=60, eval_every=10, **usual)
    shares: list[float] = []

    def watch(step: int, row: Mapping[str, Any]) -> None:
        shares.append(row.get("accuracy", math.exp(-row["loss"])))  # demonstrations: e to the mean log-probability
        if np.mean(shares[-5:]) > 0.95:
            raise Solved

    with pytest.raises(Solved):
        loop.train(tmp_path / "run", recipe, sets=SETS, on_step=watch)
    assert shares[0] < 0.25 and len(shares) >= 5


# ── Every setting ────────────────────────────────────────────────────────────────────────────────────

# What a setting needs beside it to be more than ink, and another value where half of it is none.
ALONE: Mapping[str, Mapping[str, Any]] = {
    "KL.horizon": {"kl.target": 0.001},
    "KL.reference_decay": {"kl.reference_every": 1},
    "KL.weighted": {"kl.place": "loss"},
    "Clip.dual_clip": {"minibatches": 4},
    "Clip.epsilon_high": {"minibatches": 4},
    "ClipCov.low": {"focus.share": 1.0, "focus.high": 2.0},
    "ClipCov.high": {"focus.share": 1.0, "focus.low": -1.0},
    "ClipCov.share": {"focus.low": -1.0},
    "CISPO.cap": {"num_iterations": 3},
    "CISPO.floor": {"num_iterations": 3},
    "KLCov.coef": {"focus.share": 0.5},
}
VALUES: Mapping[str, Any] = {
    "Clip.epsilon": 0.05,
    "Clip.epsilon_high": 0.05,
    "Clip.dual_clip": 1.001,
    "CISPO.cap": 1.0001,
    "CISPO.floor": 0.9999,
    "ClipCov.share": 0.5,
    "ClipCov.low": 0.1,
    "ClipCov.high": 0.1,
    "KLCov.share": 0.5,
    "KL.target": 0.001,
    "KL.reference_every": 2,
    "KL.reference_decay": 0.5,
    "GAE.value_lam": 0.5,
    "ValueLoss.clip": 1e-4,
    "ValueLoss.warmup_steps": 1,
    "RestartOnStall.patience": 1,
    "RestartEvery.steps": 2,
    "DropConstant.by": "reward",
    "KL.place": {"loss": "advantage", "reward": "loss"},
    "BatchZScore.correction": 0,
    "ZScore.correction": 0,
    "GroupMeanBatchStd.correction": 0,
    "GroupMeanBatchStd.eps": 0.1,
    "ZScore.eps": 0.1,
    "BatchZScore.eps": 0.1,
    "KeepRewarded.threshold": 1.1,
    "DifficultyBand.low": 0.5,
    "DifficultyBand.high": 0.5,
    "AdaptiveEntropy.target": 0.0,
    "TruncatedMismatch.cap": 0.5,
    "MaskedMismatch.low": 1.1,
    "MaskedMismatch.high": 0.9,
}
PLAIN: Mapping[str, Any] = {"num_iterations": 2, "minibatches": 2, "sampling_rounds": 2, "mask_truncated": True}


def settings(algorithm: Algorithm) -> Iterator[tuple[str, str, Any]]:
    """Every plain setting of a row's pieces: its key, its piece and name, its value."""
    for slot in SLOTS:
        yield from _settings(slot, vars(algorithm)[slot])


def _settings(place: str, piece: Any) -> Iterator[tuple[str, str, Any]]:
    for item in fields(piece) if is_dataclass(piece) else ():
        value = getattr(piece, item.name)
        if is_dataclass(value):
            yield from _settings(f"{place}.{item.name}", value)
        else:
            yield f"{place}.{item.name}", f"{type(piece).__name__}.{item.name}", value


def another(name: str, value: Any) -> Any:
    found = VALUES.get(name, (not value) if isinstance(value, bool) else None)
    if isinstance(found, dict):
        return found[value]
    return value / 2 if found is None else found


# Pieces that no preset has.
OTHERS: list[Mapping[str, Any]] = [
    {"advantage": "BatchZScore"},
    {"select": "DifficultyBand", "select.low": 0.1, "select.high": 0.9},
    {"entropy": "EntropyBonus", "entropy.coef": 0.1},
    {"entropy": "AdaptiveEntropy", "entropy.target": 1.8},
    {"mismatch": "TruncatedMismatch"},
    {"mismatch": "MaskedMismatch"},
]
ROWS = [(name, {}, PRESETS[name]) for name in PRESETS]
ROWS += [("grpo", given, with_overrides(PRESETS["grpo"], given)) for given in OTHERS]
CASES = [(name, given, *case) for name, given, row in ROWS for case in settings(row)]


def test_b57_every_setting_of_every_registered_piece_is_tried() -> None:
    """`PARTS` hold pieces of the slots and estimators, which have no setting."""
    tried = {title for *_, title, _ in CASES}
    for slot in SLOTS:
        for piece in pieces(slot).values():
            known = {f"{piece.__name__}.{item.name}" for item in fields(piece)}
            assert known - {"KL.estimator", "PositiveOnly.of"} <= tried


@pytest.fixture(scope="module")
def run_of(base, tmp_path_factory) -> Callable[[Recipe], str]:
    """The weights that a recipe ends with, kept for the next who asks; the log could repeat a setting that does nothing."""
    found: dict[str, str] = {}

    def outcome(recipe: Recipe) -> str:
        if recipe.digest() not in found:
            folder = loop.train(tmp_path_factory.mktemp("run") / "run", recipe, base, SETS)
            found[recipe.digest()] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        return found[recipe.digest()]

    return outcome


def busy(name: str, title: str) -> dict[str, Any]:
    """Overrides under which the settings of a preset have something to do."""
    plain = {"minibatches": 2, "num_iterations": 2, "sampling_rounds": 1, "mask_truncated": False}
    focus = {"focus.share": 0.3} if name == "kl_cov" else {}
    return plain | focus | dict(ALONE.get(title, {}))


@pytest.mark.parametrize(
    ("name", "given", "key", "title", "value"), CASES, ids=[f"{name}-{title}" for name, _, _, title, _ in CASES]
)
def test_b57_every_setting_of_every_preset_moves_other_weights(run_of, name, given, key, title, value) -> None:
    overrides = {**given, **busy(name, title)}
    evaluated = EVALUATED if name == "prorl" else {}
    # Rewards of more than two values, so that a scale or a threshold shows.
    paid = {"correct": 1.0, "random": 0.3}
    recipe = replace(ECHO, preset=name, overrides=overrides, rewards=paid, steps=4, learning_rate=3e-2, **evaluated)
    changed = replace(recipe, overrides={**overrides, key: another(title, value)})
    assert run_of(changed) != run_of(recipe)


@pytest.mark.parametrize("key", PLAIN)
def test_b57_every_plain_field_moves_other_weights(run_of, key: str) -> None:
    recipe = replace(ECHO, overrides={"select": "DropConstant"}, steps=4)
    changed = replace(recipe, overrides={"select": "DropConstant", key: PLAIN[key]})
    assert run_of(changed) != run_of(recipe)


@pytest.mark.parametrize("name", PRESETS)
def test_b57_unknown_settings_of_any_preset_are_refused_by_name(name: str) -> None:
    for slot in SLOTS:
        with pytest.raises(ValueError, match=rf"unknown key '{slot}.clip_ratio_cc'"):
            with_overrides(PRESETS[name], {f"{slot}.clip_ratio_cc": 3})
    with pytest.raises(ValueError, match="unknown key 'clip_ratio_cc'; accepted: name, source, num_iterations"):
        Recipe(preset=name, overrides={"clip_ratio_cc": 3})

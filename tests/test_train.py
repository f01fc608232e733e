"""The training loop: a run that was stopped anywhere ends as one that was not, and what a recipe asks for is what happens."""

import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from rlvr.algo import PRESETS
from rlvr.lab import checkpoint, draw, pretrain, store
from rlvr.lab import train as loop
from rlvr.lab.checkpoint import save_weights
from rlvr.lab.evaluate import accuracy_by_set, evaluate
from rlvr.lab.lock import RunIsBusy
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import held_out
from rlvr.tasks import TASKS, Echo, Pointer

SMALL = {"layers": 1, "width": 16, "heads": 2}
SETS = held_out(Echo(), {}, count=6)
# Everything that a run has to take up again: momentum, a schedule, chance in the reward, four optimizer steps a batch.
RECIPE = Recipe(
    preset="grpo",
    overrides={"num_iterations": 2, "minibatches": 2},
    task="echo",
    rewards={"correct": 1.0, "random": 0.2},
    base=None,
    steps=5,
    prompts_per_step=4,
    group_size=4,
    learning_rate=1e-2,
    schedule="cosine",
    warmup_steps=2,
    weight_decay=0.01,
    eval_every=2,
    checkpoint_every=2,
    record=(0, 1, 3, 4),
)
FROM_NOTHING = replace(
    RECIPE, preset="sft", overrides={}, rewards={"correct": 1.0}, shape=SMALL, steps=8, record=(), eval_every=0
)
LEARNING = ("sft", "rft", "reinforce", "rloo", "grpo_lecture", "grpo", "dr_grpo")
CLOCK = ("seconds", "tokens_per_second", "time/sample", "time/update", "time/step")


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """What the runs start from: a policy that is right now and then."""
    return loop.train(tmp_path_factory.mktemp("base") / "sft", FROM_NOTHING)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, base: Path) -> Path:
    return loop.train(tmp_path_factory.mktemp("unbroken") / "run", RECIPE, base, SETS)


def told(folder: Path) -> dict[str, Any]:
    """Everything a run folder holds, apart from what the clock says."""
    metrics = [{key: row[key] for key in row if key not in CLOCK} for row in store.read_metrics(folder)]
    rollouts = store.read_rollouts(folder)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {
        # A stop between the last weights and the removal of the checkpoint leaves it behind; nothing reads it any more.
        "files": sorted(files - {".lock", "checkpoint.safetensors"}),
        "weights": (folder / "model.safetensors").read_bytes(),
        "metrics": metrics,
        "rollouts": repr(rollouts and rollouts.to_pylist()),  # as text, where NaN equals NaN
        "evals": store.read_evals(folder),
        "config": store.read_config(folder),
    }


def compare(folder: Path, expected: dict[str, Any], place: str = "") -> None:
    for part, found in told(folder).items():
        assert found == expected[part], f"{part} differ after a stop at {place}"


def weights(folder: Path) -> np.ndarray:
    return np.concatenate(
        [part.flatten().numpy() for _, part in sorted(load_file(folder / "model.safetensors").items())]
    )


def test_the_runs_have_something_to_lose(unbroken: Path, base: Path) -> None:
    metrics = store.read_metrics(unbroken)
    assert [row["step"] for row in metrics] == [0, 1, 2, 3, 4]
    assert all(row["grad_norm"] > 0.01 and row["frac_reward_zero_std"] < 1 for row in metrics)
    assert 0 < np.mean([row["accuracy"] for row in metrics]) < 1
    assert (
        len({round(row["reward"] - row["accuracy"], 6) for row in metrics}) > 2
    )  # chance pays something else each step
    assert np.abs(weights(unbroken) - weights(base)).max() > 1e-2
    assert store.rollout_steps(unbroken) == [0, 1, 3, 4]
    assert [evaluation["step"] for evaluation in store.read_evals(unbroken)] == [0, 2, 4, 5]
    assert not (unbroken / "checkpoint.safetensors").exists()


# ── Stopped by an exception, at any call that does something ─────────────────────────────────────────


class Stopped(BaseException):
    """As KeyboardInterrupt: nothing that catches ``Exception`` catches it."""


EFFECTS = {
    store: (
        "write_config",
        "truncate_metrics",
        "drop_rollouts_after",
        "append_metrics",
        "write_rollouts",
        "write_eval",
    ),
    loop: (
        "load_weights",
        "load_checkpoint",
        "draw",
        "update",
        "evaluate",
        "save_checkpoint",
        "write_environment",
        "save_weights",
    ),
    draw: ("collect",),
    torch.optim.AdamW: ("step",),
}


def stop(patch: pytest.MonkeyPatch, place: int, after: bool) -> list[str]:
    """Raise at call number ``place`` of all the functions with an effect, before or after its work; the calls so far."""
    calls: list[str] = []

    def stopping(name: str, function: Callable) -> Callable:
        def call(*arguments, **named):
            calls.append(name)
            last = len(calls) == place + 1
            if last and not after:
                raise Stopped
            result = function(*arguments, **named)
            if last:
                raise Stopped
            return result

        return call

    for owner, names in EFFECTS.items():
        for name in names:
            patch.setattr(owner, name, stopping(name, vars(owner)[name]))
    return calls


def attempt(folder: Path, base: Path, place: int, after: bool) -> str | None:
    """Train until call number ``place``; the name of the call, or none where the run ended before it."""
    with pytest.MonkeyPatch.context() as patch:
        calls = stop(patch, place, after)
        try:
            loop.train(folder, RECIPE, base, SETS)
        except Stopped:
            return calls[-1]
    return None


def test_b110_a_run_stopped_at_any_call_ends_bit_equal(unbroken, base, tmp_path) -> None:
    """Before each of them, and after the last: after any other is before the next."""
    expected, names = told(unbroken), []
    for place in count():
        folder = tmp_path / str(place)
        name = attempt(folder, base, place, after=False)
        if name is None:
            break
        names.append(name)
        loop.train(folder, RECIPE, base, SETS)
        compare(folder, expected, f"call {place}, {name}")
    never = {"load_checkpoint"}  # a first life has none to load
    assert set(names) == {name for group in EFFECTS.values() for name in group} - never
    assert names.count("step") == 5 * 4 and names.count("save_checkpoint") == 2
    assert attempt(tmp_path / "last", base, len(names) - 1, after=True) == "save_weights"
    loop.train(tmp_path / "last", RECIPE, base, SETS)
    compare(tmp_path / "last", expected, "the end")


def test_b110_a_run_stopped_again_and_again_ends_bit_equal(unbroken, base, tmp_path) -> None:
    lives = []
    for place in count():
        name = attempt(tmp_path / "run", base, 3 * place, after=place % 2 == 1)
        if name is None:
            break
        lives.append(name)
    compare(tmp_path / "run", told(unbroken))
    assert len(lives) > 5


def test_b112_a_stop_between_two_passes_draws_the_batch_again(unbroken, base, tmp_path) -> None:
    """Call 14 of the optimizer is the last of the first pass of step 3: the batch is drawn and passed over from the start."""
    drawn, calls = [], count(1)
    real_step, real_draw = torch.optim.AdamW.step, loop.draw

    def step(self, *arguments, **named):
        real_step(self, *arguments, **named)
        if next(calls) == 14:
            raise Stopped

    def draw(*arguments):
        found = real_draw(*arguments)
        drawn.append(found.batch)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        patch.setattr(loop, "draw", draw)
        with pytest.raises(Stopped):
            loop.train(tmp_path / "run", RECIPE, base, SETS)
        assert len(drawn) == 4
        loop.train(tmp_path / "run", RECIPE, base, SETS)
    assert len(drawn) == 4 + 3  # the checkpoint stands before step 2
    for first, second in ((2, 4), (3, 5)):
        assert drawn[first].texts == drawn[second].texts and torch.equal(drawn[first].rewards, drawn[second].rewards)
    compare(tmp_path / "run", told(unbroken))


# What an algorithm remembers beside weights and momentum.
STATEFUL: Mapping[str, dict[str, Any]] = {
    "kl_controller": {"overrides": {"kl": "KL", "kl.coef": 0.1, "kl.target": 0.01, "kl.horizon": 50}},
    "kl_reference": {"overrides": {"kl": "KL", "kl.coef": 0.1, "kl.reference_every": 3, "kl.reference_decay": 0.5}},
    "entropy": {"overrides": {"entropy": "AdaptiveEntropy", "entropy.target": 1.0, "entropy.step": 0.01}},
    "critic": {"preset": "ppo", "overrides": {}},
    "running_baseline": {"preset": "reinforce_running_mean", "overrides": {}},
    "restart_on_stall": {"preset": "prorl", "overrides": {"restart.patience": 1, "sampling_rounds": 2}},
    "restart_every": {"preset": "kimi", "overrides": {"restart.steps": 3}},
    "dynamic_sampling": {"preset": "dapo", "overrides": {"minibatches": 2, "sampling_rounds": 3}},
    "greedy_baseline": {"preset": "remax", "overrides": {}},
    "pool_in_rounds": {"preset": "dapo", "overrides": {"minibatches": 2, "sampling_rounds": 3}, "pool": 10},
    "prioritized": {"overrides": {}, "pool": 6, "pool_sampling": "prioritized"},
    "dropped": {"overrides": {}, "pool": 6, "drop_solved": 0.3},
}


@pytest.mark.parametrize("name", STATEFUL)
def test_b110_what_an_algorithm_remembers_is_taken_up_again(base, tmp_path, name: str) -> None:
    recipe = replace(RECIPE, steps=8, record=(6, 7), **STATEFUL[name])
    expected, draw_batch = told(loop.train(tmp_path / "unbroken", recipe, base, SETS)), loop.draw
    moving = {"kl_controller": "kl_coef", "entropy": "entropy_coef", "running_baseline": "baseline"}
    kept = moving.get(name, "restart" if name.startswith("restart") else "loss")
    assert len({row.get(kept) for row in expected["metrics"]} - {None}) > 1  # a step without a batch moves nothing
    for last in (3, 4, 7):

        def stopped(policy, recipe, step, history, last=last):
            if step == last:
                raise Stopped
            return draw_batch(policy, recipe, step, history)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(loop, "draw", stopped)
            loop.train(tmp_path / str(last), recipe, base, SETS)
        loop.train(tmp_path / str(last), recipe, base, SETS)
        compare(tmp_path / str(last), expected, f"step {last}")


def test_half_a_line_in_the_log_is_no_step(unbroken, base, tmp_path) -> None:
    assert attempt(tmp_path / "run", base, place=30, after=False) is not None
    before = len(store.read_metrics(tmp_path / "run"))
    assert before > 0
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": %d, "learning_ra' % before)
    loop.train(tmp_path / "run", RECIPE, base, SETS)
    compare(tmp_path / "run", told(unbroken))


def test_half_a_file_is_never_taken_for_one(unbroken, base, tmp_path) -> None:
    """The writers of weights, checkpoints and tables stop half-way: two checkpoints, the weights, four tables."""
    for owner, name, times in ((checkpoint, "save_file", 3), (store.pq, "write_table", 4)):
        for last in range(times):
            folder, calls, write = tmp_path / f"{name}{last}", count(), vars(owner)[name]

            def half(content, path, calls=calls, write=write, last=last, **named):
                write(content, path, **named)
                if next(calls) == last:
                    os.truncate(path, os.path.getsize(path) // 2)
                    raise Stopped

            with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
                patch.setattr(owner, name, half)
                loop.train(folder, RECIPE, base, SETS)
            loop.train(folder, RECIPE, base, SETS)
            compare(folder, told(unbroken), f"{name} {last}")


# ── Killed for good ──────────────────────────────────────────────────────────────────────────────────


def strike(folder: Path, place: int) -> None:
    """SIGKILL this process when Python opens, renames or removes a file of the folder for the ``place``-th time."""
    touched = count()

    def hook(event: str, arguments: tuple) -> None:
        if event in ("open", "os.rename", "os.remove") and str(arguments[0]).startswith(str(folder)):  # noqa: SIM102
            if next(touched) == place:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_a_child(work: Callable[[], Any]) -> int:
    """The signal that ended a child process, 0 where it ended well."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def sweep(root: Path, base: Path, stride: str) -> None:
    """One run for every ``stride``-th touch of a file: killed there, then gone on with in another process."""
    torch.set_num_threads(1)
    loop.train(root.with_name("warm"), RECIPE, base, SETS)  # so that no child has to import what the first step imports

    def killed(folder: Path, place: int) -> None:
        strike(folder, place)
        loop.train(folder, RECIPE, base, SETS)

    for place in count(step=int(stride)):
        folder = root / f"{place:03d}"
        ended = in_a_child(partial(killed, folder, place))
        if ended == 0:
            break
        assert ended == signal.SIGKILL
        in_a_child(partial(loop.train, folder, RECIPE, base, SETS))


def python(code: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{code}", *map(str, arguments)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the sweep forks, so that torch is imported once")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_b110_a_run_killed_at_any_touch_of_a_file_ends_bit_equal(unbroken, base, tmp_path, stride: int) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    code = "from test_train import sweep\nsweep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])"
    subprocess.run(python(code, root, base, stride), cwd=Path(__file__).parent, check=True)
    folders, expected = sorted(root.iterdir()), told(unbroken)
    for folder in folders:
        compare(folder, expected, f"touch {folder.name}")
    assert len(folders) * stride > 40


WAITING = """
import time, torch
from test_train import RECIPE, SETS, loop
torch.set_num_threads(1)
def wait(step, metrics):
    print(step, flush=True)
    time.sleep(120 * (step == 3))
loop.train(Path(sys.argv[1]), RECIPE, Path(sys.argv[2]), SETS, wait)
"""


def test_one_writer_a_folder_and_a_killed_one_lets_go(unbroken, base, tmp_path) -> None:
    """Step 3 is logged and not in the checkpoint; the second process is this one."""
    command = python(WAITING, tmp_path / "run", base)
    with subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert [line.strip() for _, line in zip(range(4), process.stdout, strict=False)] == ["0", "1", "2", "3"]
            with pytest.raises(RunIsBusy, match=f"process {process.pid}"):
                loop.train(tmp_path / "run", RECIPE, base, SETS)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert len(store.read_metrics(tmp_path / "run")) == 4
    loop.train(tmp_path / "run", RECIPE, base, SETS)
    compare(tmp_path / "run", told(unbroken))


# ── The same again, and something else ───────────────────────────────────────────────────────────────


def test_two_equal_runs_are_bit_equal(unbroken, base, tmp_path) -> None:
    compare(loop.train(tmp_path / "run", RECIPE, base, SETS), told(unbroken))


def test_a_finished_run_is_left_alone(unbroken, base) -> None:
    files = [path for path in unbroken.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: path.stat().st_mtime_ns for path in files}
    loop.train(unbroken, RECIPE, base, SETS, on_step=lambda step, metrics: pytest.fail("a step was made"))
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert told(unbroken)["files"] == sorted(path.relative_to(unbroken).as_posix() for path in files)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"seed": 1}, "seed"), ({"learning_rate": 1e-3}, "learning_rate"), ({"record": ()}, "recipe")],
    ids=["seed", "learning_rate", "record"],
)
@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_another_recipe_is_refused(unbroken, base, tmp_path, changes, named, finished: bool) -> None:
    folder = unbroken
    if not finished:
        folder = tmp_path / "run"
        assert attempt(folder, base, place=9, after=False) is not None
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="holds another run") as error:
        loop.train(folder, replace(RECIPE, **changes), base, SETS)
    assert named in str(error.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_b57_unknown_keys_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="unknown key 'stepps'"):
        Recipe.from_json({"stepps": 3})
    for wrong in ({"clip_ratio_cc": 3}, {"loss.clip_ratio_cc": 3}):
        with pytest.raises(ValueError, match="clip_ratio_cc"):
            Recipe(overrides=wrong)
    with pytest.raises(ValueError, match="corect"):
        Recipe(rewards={"corect": 1.0})


# Two runs that differ in one field; what they share beside RECIPE comes first.
FIELDS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "preset": ({}, "rloo"),
    "overrides": ({}, {"num_iterations": 2, "minibatches": 2, "loss.epsilon": 0.001}),
    "task": ({}, "pointer"),
    "difficulty": ({"task": "pointer"}, {"n": 4, "k": (1, 2)}),
    "rewards": ({}, {"correct": 1.0}),
    "shape": ({}, {**SMALL, "width": 18}),
    "curriculum": ({"task": "pointer", "difficulty": {"n": 6, "k": 1}}, ((2, {"n": 4}),)),
    "pool": ({}, 3),
    "pool_sampling": ({"pool": 3}, "prioritized"),
    "drop_solved": ({"pool": 3}, 0.1),
    "steps": ({"record": (0, 1, 3)}, 4),
    "prompts_per_step": ({}, 5),
    "group_size": ({}, 5),
    "learning_rate": ({}, 2e-2),
    "critic_learning_rate": ({"preset": "ppo"}, 1e-2),
    "schedule": ({}, "constant"),
    "warmup_steps": ({}, 1),
    "adam_betas": ({}, (0.5, 0.95)),
    "weight_decay": ({}, 0.5),
    "max_grad_norm": ({}, 1e-3),
    "temperature": ({}, 0.7),
    "seed": ({}, 1),
    "eval_every": ({}, 3),
    "record": ({}, (2,)),
    "corpus": ({"preset": "sft", "overrides": {}}, "../lessons.jsonl"),
}
WITHOUT_EFFECT = {"micro_rows": 3, "micro_tokens": 9, "checkpoint_every": 1}
OF_A_MODEL = {"model", "model_settings"}  # tests/test_hf_train.py
OF_THE_START = {"base", "base_seed"}  # read by start_of, which has a test of its own


def outcome(folder: Path, **changes) -> dict[str, Any]:
    recipe = replace(RECIPE, **{"shape": SMALL, "learning_rate": 3e-2, **changes})
    sets = held_out(TASKS[recipe.task], {}, count=4)
    found = told(loop.train(folder, recipe, None, sets))
    return {part: value for part, value in found.items() if part not in ("config", "files")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict[str, Any]:
    return outcome(tmp_path_factory.mktemp("plain"))


def test_every_field_of_a_recipe_is_tried() -> None:
    assert {item.name for item in fields(Recipe)} == {*FIELDS, *WITHOUT_EFFECT, *OF_THE_START, *OF_A_MODEL}


@pytest.mark.filterwarnings("ignore:step 0. all")
@pytest.mark.parametrize("name", FIELDS)
def test_b57_every_field_of_a_recipe_changes_a_number(name: str, plain, tmp_path) -> None:
    shared, value = FIELDS[name]
    (tmp_path / "lessons.jsonl").write_text('{"prompt": "a:", "answer": "a", "meta": {}, "completion": "a$"}\n')
    usual = outcome(tmp_path / "usual", **shared) if shared else plain
    assert outcome(tmp_path / "changed", **shared, **{name: value}) != usual


def test_checkpoints_change_nothing(plain, tmp_path) -> None:
    assert outcome(tmp_path / "run", checkpoint_every=1) == plain


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("preset", ["sft", "rft", "grpo"])
def test_b04_micro_batches_change_no_number_of_a_run(double, tmp_path, preset: str) -> None:
    """In float64, because Adam makes a rounding of a tiny gradient as large as any gradient."""
    recipe = replace(RECIPE, preset=preset, shape=SMALL, prompts_per_step=16)
    found = [
        told(loop.train(tmp_path / str(rows), replace(recipe, micro_rows=rows), None, SETS)) for rows in (None, 1, 7)
    ]
    runs = [weights(tmp_path / str(rows)) for rows in (None, 1, 7)]
    for run, other in zip(runs[1:], found[1:], strict=True):
        assert np.abs(run - runs[0]).max() < 1e-10
        assert other["evals"] == found[0]["evals"]
        for row, expected in zip(other["metrics"], found[0]["metrics"], strict=True):
            assert row.keys() == expected.keys()
            for name, value in expected.items():
                assert row[name] == (value if value is None else pytest.approx(value, rel=1e-9, abs=1e-10)), name


def test_b109_the_seed_decides_problems_and_draws(base, tmp_path, monkeypatch) -> None:
    """Another seed: other problems, other texts. Another method: the same problems, and at first the same texts."""
    runs, asked, collect = {}, {}, draw.collect
    for run in (("grpo", 0), ("rft", 0), ("sft", 0), ("grpo", 1)):
        calls = asked[run] = []

        def spy(*arguments, calls=calls):
            calls.append(arguments)
            return collect(*arguments)

        monkeypatch.setattr(draw, "collect", spy)
        recipe = replace(RECIPE, preset=run[0], seed=run[1], prompts_per_step=8, record=(0, 1, 4))
        runs[run] = store.read_rollouts(loop.train(tmp_path / "".join(map(str, run)), recipe, base, SETS))

    def column(run: tuple[str, int], name: str, step: int) -> list:
        table = runs[run].filter(pa.compute.equal(runs[run]["step"], step))
        return table[name].to_pylist()

    draws = {run: [arguments[4] for arguments in asked[run]] for run in asked}
    for same, other in zip(draws["grpo", 0], draws["grpo", 1], strict=True):
        assert same.shape == other.shape and (same != other).all()
    assert all(np.array_equal(*pair) for pair in zip(draws["grpo", 0], draws["rft", 0], strict=True))
    assert len(np.unique(np.concatenate(draws["grpo", 0]))) == 5 * draws["grpo", 0][0].size
    for step in (0, 1):
        prompts = column(("grpo", 0), "prompt", step)
        assert prompts == column(("rft", 0), "prompt", step)
        assert prompts[::4] == column(("sft", 0), "prompt", step)
        assert prompts != column(("grpo", 1), "prompt", step)
        # Fault B108: the siblings of a group don't repeat each other.
        texts = column(("grpo", 0), "completion", step)
        assert sum(len(set(texts[row : row + 4])) > 1 for row in range(0, 32, 4)) >= 4
    assert column(("grpo", 0), "completion", 0) == column(("rft", 0), "completion", 0)
    assert column(("grpo", 0), "completion", 0) != column(("grpo", 1), "completion", 0)


def test_what_a_recipe_starts_from(base, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pretrain, "BASES", {"tiny": replace(FROM_NOTHING, steps=1, eval_every=0)})
    first, again, second = (
        pretrain.start_of(replace(RECIPE, base="tiny", base_seed=seed), tmp_path) for seed in (0, 0, 1)
    )
    assert first == again != second and np.abs(weights(first) - weights(second)).max() > 0.1
    assert pretrain.start_of(replace(RECIPE, base=str(base)), tmp_path) == base
    assert pretrain.start_of(RECIPE, tmp_path) is None
    with pytest.raises(ValueError, match="base 'cot_L3' is unknown; accepted: tiny"):
        pretrain.start_of(replace(RECIPE, base="cot_L3"), tmp_path)


# ── What a run learns and writes down ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("preset", LEARNING)
def test_every_preset_learns_to_echo_in_seconds(preset: str, tmp_path) -> None:
    """From a policy that is right in 3 % of its samples by chance."""
    recipe = Recipe(preset=preset, task="echo", base=None, shape=SMALL | {"width": 32}, steps=60, learning_rate=3e-3)
    sets = held_out(Echo(), {}, count=40)
    run = loop.train(tmp_path / "run", replace(recipe, eval_every=60), sets=sets)
    before, after = (accuracy_by_set(evaluation)["test"] for evaluation in store.read_evals(run, "greedy"))
    assert before < 0.5 and after > 0.95
    if PRESETS[preset].source == "policy":
        shares = [row["accuracy"] for row in store.read_metrics(run)]
        assert shares[0] < 0.1 and np.mean(shares[-5:]) > 0.9


@pytest.mark.parametrize("preset", ["sft", "rft", "grpo"])
def test_the_budget_is_what_was_spent(base, tmp_path, preset: str) -> None:
    recipe = replace(RECIPE, preset=preset, record=tuple(range(5)), eval_every=0)
    run = loop.train(tmp_path / "run", recipe, base)
    rollouts, metrics = store.read_rollouts(run).to_pylist(), store.read_metrics(run)
    for step, row in enumerate(metrics):
        rows = [each for each in rollouts if each["step"] <= step]
        tokens = sum(len(each["token_ids"]) for each in rows)
        drawn = (0, 0, len(rows)) if preset == "sft" else (len(rows), tokens, 0)
        assert (row["samples"], row["tokens"], row["demonstrations"]) == drawn
        assert len(rows) == (step + 1) * 4 * (1 if preset == "sft" else 4)
        assert preset != "sft" or all(
            each["verdict"] and each["completion"] == each["prompt"][0] + "$" for each in rows
        )
        assert row["updates"] == (step + 1) * 2 * 2
        assert row["seconds"] == pytest.approx(sum(each["time/step"] for each in metrics[: step + 1]))
        assert row["learning_rate"] == pytest.approx(recipe.learning_rate_at(step))
    assert metrics[0]["learning_rate"] == pytest.approx(0.5e-2)  # half-way through the warm-up


def test_metrics_and_evaluations_say_what_the_rollouts_and_the_weights_say(unbroken) -> None:
    rollouts, metrics = store.read_rollouts(unbroken).to_pylist(), store.read_metrics(unbroken)
    for step in (0, 1, 3, 4):
        rows = [row for row in rollouts if row["step"] == step]
        assert metrics[step]["accuracy"] == pytest.approx(np.mean([row["verdict"] for row in rows]))
        assert metrics[step]["reward"] == pytest.approx(np.mean([row["reward"] for row in rows]))
        assert [row["verdict"] for row in rows] == [
            Echo().verify(held, row["completion"]).correct for row in rows for held in [problem_of(row["prompt"])]
        ]
        for row in rows:
            paid = dict(row["rewards"])
            assert row["reward"] == pytest.approx(paid["correct"] + 0.2 * paid["random"])
            assert paid["correct"] == row["verdict"] and paid["random"] in (0, 1)
            assert (row["finish_reason"] == "stop") == row["completion"].endswith("$")
    policy, recipe = loop.open_run(unbroken)
    assert recipe == RECIPE
    *_, last = store.read_evals(unbroken, "greedy")
    assert last == evaluate(policy, Echo(), SETS, step=5)


def problem_of(prompt: str):
    return next(problem for problem in held_out(Echo(), {}, count=40)["test"] if problem.prompt == prompt)


GRADER = """
def grader(completion, generator):
    if completion.text.startswith("a"):
        return None
    return float("nan") if completion.text.startswith("b") else float(completion.verdict.correct)
"""


def test_b18_missing_rewards_of_a_users_own_function_are_left_out_and_counted(base, tmp_path) -> None:
    (tmp_path / "own.py").write_text(GRADER)
    name = f"{tmp_path / 'own.py'}:grader"
    recipe = replace(RECIPE, rewards={name: 1.0}, record=tuple(range(5)), prompts_per_step=8)
    run = loop.train(tmp_path / "run", recipe, base, SETS)
    assert np.isfinite(weights(run)).all()
    unscored = 0
    for step, row in enumerate(store.read_metrics(run)):
        rows = store.read_rollouts(run, [step]).to_pylist()
        missing = [each for each in rows if math.isnan(each["reward"])]
        assert {id(each) for each in missing} == {id(each) for each in rows if each["completion"][0] in "ab"}
        assert row["rewards/unscored"] == len(missing)
        paid = [each["reward"] for each in rows if not math.isnan(each["reward"])]
        assert row["reward"] == row[f"rewards/{name}/mean"] == pytest.approx(np.mean(paid))
        assert all(each["advantage"] == 0 and set(each["signal"]) == {0.0} for each in missing)
        assert math.isfinite(row["loss"]) and math.isfinite(row["grad_norm"])
        unscored += len(missing)
    assert unscored > 20


# ── What is told before time is lost ─────────────────────────────────────────────────────────────────


def warnings_of(folder: Path, recipe: Recipe, base: Path | None) -> list[str]:
    """All warnings of a run; none may come after the first step."""
    early: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.train(folder, recipe, base, on_step=lambda step, metrics: early.append(len(caught)))
    assert set(early) == {len(caught)}
    return [str(warning.message) for warning in caught]


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> Path:
    """A policy of the pointer world that never writes the end sign."""
    folder, recipe = tmp_path_factory.mktemp("endless"), Recipe(base=None, shape=SMALL)
    policy = loop.make_policy(recipe)
    with torch.no_grad():
        policy.model.norm.bias[0] = 10.0
        policy.model.head.weight[:, 0] = 0.0
        policy.model.head.weight[policy.tokenizer.eos_ids[0], 0] = -100.0
    save_weights(folder / "model.safetensors", policy.model)
    store.write_config(folder, {"shape": SMALL})
    return folder


class Short(Pointer):
    """Three characters, where the shortest answer needs five."""

    def limit(self, problem):
        return 3


CUT = Recipe(base=None, shape=SMALL, difficulty={"n": 4, "k": 2}, steps=3, prompts_per_step=4, group_size=4)


def test_b43_nothing_finished_and_nothing_rewarded_is_told_at_the_first_step(endless, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(TASKS, "pointer", Short())
    (message,) = warnings_of(tmp_path / "run", replace(CUT, record=(0,)), endless)
    assert "step 0: all 16 completions were cut off at the limit of 3 tokens and none was rewarded" in message
    assert "raise the limit of task pointer" in message and "start from a base model that ends" in message
    assert store.read_metrics(tmp_path / "run")[0]["completions/clipped_ratio"] == 1
    assert {len(row["token_ids"]) for row in store.read_rollouts(tmp_path / "run").to_pylist()} == {3}


def test_b43_the_warning_names_a_range_where_limits_differ(endless, tmp_path) -> None:
    unpaid = replace(CUT, difficulty={"k": (1, 7)}, prompts_per_step=40, rewards={"constant(value=0)": 1.0})
    (message,) = warnings_of(tmp_path / "run", unpaid, endless)
    assert "limit of 6 to 12 tokens" in message


def test_b43_is_not_told_where_something_can_be_learned(endless, base, tmp_path) -> None:
    assert warnings_of(tmp_path / "paid", replace(CUT, rewards={"constant(value=1)": 1.0}), endless) == []
    assert warnings_of(tmp_path / "gold", replace(CUT, preset="sft"), endless) == []
    wrong = replace(RECIPE, rewards={"constant(value=0)": 1.0}, eval_every=0)
    assert warnings_of(tmp_path / "ended", wrong, base) == []


def test_b10_a_group_of_one_is_told_once_with_the_value_that_advantages_get(base, tmp_path) -> None:
    # Without its KL term, whose gradient is no advantage's.
    alone = {"group_size": 1, "overrides": {**RECIPE.overrides, "kl": "None"}}
    recipe = replace(RECIPE, **alone, eval_every=0, weight_decay=0.0, record=tuple(range(5)))
    (message,) = warnings_of(tmp_path / "run", recipe, base)
    assert "group_size = 1: ZScore(" in message and "every advantage is 0" in message
    assert "group_size 2 or more" in message and "advantage=Raw" in message
    rows = store.read_rollouts(tmp_path / "run").to_pylist()
    assert len(rows) == 20 and {row["advantage"] for row in rows} == {0.0}
    assert np.array_equal(weights(tmp_path / "run"), weights(base))


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "reinforce", "overrides": {}},
        {"preset": "rft", "overrides": {}},
        {"preset": "sft", "overrides": {}},
        {"preset": "rft", "overrides": {"advantage": "Center"}},  # a loss that reads no advantage
    ],
    ids=["reinforce", "rft", "sft", "rft_center"],
)
def test_a_group_of_one_is_fine_where_nobody_is_compared(base, tmp_path, changes) -> None:
    recipe = replace(RECIPE, group_size=1, eval_every=0, prompts_per_step=16, **changes)
    assert warnings_of(tmp_path / "run", recipe, base) == []
    assert not np.array_equal(weights(tmp_path / "run"), weights(base))

"""Trackers: tensorboard for real, the others against a stand-in that records how it is called."""

import subprocess
import sys

import numpy as np
import pytest

from rlvr.lab.track import TRACKERS, MissingExtra, open_tracker

METRICS = [
    {
        "step": 0,
        "reward": np.float32(0.25),
        "groups/mixed": 1,
        "kind": "text",
        "kl": None,
        "entropy": float("nan"),
    },
    {"step": 1, "reward": np.float32(0.5), "groups/mixed": 0, "kind": "text", "kl": 0.125, "entropy": 0.75},
]
NUMBERS = [
    {"reward": 0.25, "groups/mixed": 1.0},
    {"reward": 0.5, "groups/mixed": 0.0, "kl": 0.125, "entropy": 0.75},
]


def feed(name, folder, config=None):
    tracker = open_tracker(name, folder, config or {"arm": "grpo", "algorithm": {"loss": {"epsilon": 0.2}}})
    for metrics in METRICS:
        tracker.log(metrics["step"], metrics)
    tracker.close()


def recorder(calls):
    """A module or object on which every method notes its call."""

    class Recorder:
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: calls.append((name, args, kwargs)) or self

    return Recorder()


def test_tensorboard_files_hold_what_was_logged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    feed("tensorboard", tmp_path / "demo" / "grpo-s0")
    events = EventAccumulator(str(tmp_path / "demo" / "grpo-s0" / "tensorboard")).Reload()
    found = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert found == {
        "reward": [(0, 0.25), (1, 0.5)],
        "groups/mixed": [(0, 1.0), (1, 0.0)],
        "kl": [(1, 0.125)],
        "entropy": [(1, 0.75)],
    }
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert '"epsilon": 0.2' in text


def test_wandb_gets_the_run_and_its_numbers(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "wandb", recorder(calls))
    feed("wandb", tmp_path / "demo" / "grpo-s0", {"arm": "grpo"})
    folder = str((tmp_path / "demo" / "grpo-s0").resolve())
    assert calls == [
        ("init", (), {"project": "demo", "name": "grpo-s0", "dir": folder, "config": {"arm": "grpo"}}),
        ("log", (NUMBERS[0],), {"step": 0}),
        ("log", (NUMBERS[1],), {"step": 1}),
        ("finish", (), {}),
    ]


def test_trackio_gets_the_run_and_its_numbers(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "trackio", recorder(calls))
    feed("trackio", tmp_path / "demo" / "grpo-s0", {"arm": "grpo"})
    assert calls == [
        ("init", (), {"project": "demo", "name": "grpo-s0", "config": {"arm": "grpo"}}),
        ("log", (NUMBERS[0],), {"step": 0}),
        ("log", (NUMBERS[1],), {"step": 1}),
        ("finish", (), {}),
    ]


def test_mlflow_gets_flat_parameters_and_numbers(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "mlflow", recorder(calls))
    feed("mlflow", tmp_path / "demo" / "grpo-s0")
    assert calls == [
        ("set_experiment", ("demo",), {}),
        ("start_run", (), {"run_name": "grpo-s0"}),
        ("log_params", ({"arm": "grpo", "algorithm.loss.epsilon": 0.2},), {}),
        ("log_metrics", (NUMBERS[0],), {"step": 0}),
        ("log_metrics", (NUMBERS[1],), {"step": 1}),
        ("end_run", (), {}),
    ]


@pytest.mark.parametrize("name", [name for name in TRACKERS if name != "none"])
def test_a_tool_that_is_not_installed_is_one_line_with_the_command(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra) as caught:
        open_tracker(name, tmp_path, {})
    assert str(caught.value) == f"the tracker {name!r} is not installed: pip install {name}"


def test_a_tool_that_is_there_but_broken_keeps_its_own_message(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        open_tracker("wandb", tmp_path, {})


def test_none_shows_nothing_and_needs_nothing(tmp_path):
    code = (
        "import sys; from rlvr.lab.track import open_tracker; t = open_tracker('none', sys.argv[1], {}); "
        "t.log(0, {'reward': 1.0}); t.close(); "
        "sys.exit(bool({'torch', 'tensorboard', 'wandb'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert list(tmp_path.iterdir()) == []

"""Run folders: what is written reads back, survives a kill, and stays small in memory."""

import codecs
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rlvr.lab import store
from rlvr.lab.environment import environment, write_environment
from rlvr.lab.jsonl import append_jsonl, iter_jsonl, last_jsonl, plain, read_json, replacing, write_json
from rlvr.lab.lock import RunIsBusy, run_lock


def row(**changes):
    return {
        "prompt_idx": np.int64(1),
        "sample_idx": 0,
        "prompt": "ab,?a1:",
        "completion": "<think>b</think>$",
        "token_ids": np.array([3, 1]),
        "logps": np.array([-0.5, -0.25], dtype=np.float32),
        "signal": [0.5, np.float32(-0.5)],
        "reward": np.float32(0.5),
        "rewards": {"exact": 1.0, "format": np.float64(0.0)},
        "verdict": np.bool_(True),
        "kind": "correct",
        "advantage": -0.5,
        "finish_reason": "stop",
    } | changes


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_numpy_values_become_plain_json(tmp_path):
    """Fault B113: 3 stays a number, a numpy bool stays a bool, NaN is null, not the word NaN."""
    write_json(tmp_path / "a.json", {"score": np.int64(3), "ok": np.bool_(True), "v": np.float32("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"score": 3, "ok": True, "v": None}
    assert "NaN" not in (tmp_path / "a.json").read_text()
    append_jsonl(tmp_path / "a.jsonl", {"step": np.int32(3), "x": [np.float64("inf"), np.array([[1, 2]])]})
    assert (tmp_path / "a.jsonl").read_text() == '{"step": 3, "x": [null, [[1, 2]]]}\n'


def test_floats_read_back_bit_equal(tmp_path):
    """A resumed run must log what an unbroken one logs, so no digit may be lost on the way."""
    values = np.random.default_rng(0).standard_normal(1000)
    write_json(tmp_path / "a.json", values)
    assert np.array_equal(np.array(read_json(tmp_path / "a.json")), values)


@pytest.mark.parametrize("value", [{1, 2}, Path("a"), object(), b"x", 1j])
def test_a_type_without_a_json_word_is_refused_with_its_place(tmp_path, value):
    write_json(tmp_path / "config.json", {"steps": 1})
    with pytest.raises(ValueError, match=rf"config\.json\.algorithm\.loss\[1\] is .* of type {type(value).__name__}"):
        write_json(tmp_path / "config.json", {"algorithm": {"loss": [0, value]}})
    assert read_json(tmp_path / "config.json") == {"steps": 1}
    assert os.listdir(tmp_path) == ["config.json"]


def test_a_key_that_is_no_string_is_refused():
    with pytest.raises(ValueError, match=r"value\.kinds has the key 3 of type int"):
        plain({"kinds": {3: 1}})


def test_a_byte_order_mark_loses_no_record(tmp_path):
    """Fault B115: two records, and a first key without U+FEFF."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"r":1}\n{"r":0}')
    assert list(iter_jsonl(path)) == [{"r": 1}, {"r": 0}]
    path.write_bytes(codecs.BOM_UTF8 + b'{"r":1}\n')
    assert last_jsonl(path) == {"r": 1}
    path.write_bytes(codecs.BOM_UTF8 + b'{"r":1}')
    assert read_json(path) == {"r": 1}


STREAM = """
import resource, sys
from rlvr.lab.jsonl import iter_jsonl

def peak():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

before, notes = peak(), []
count = sum(record["step"] for record in iter_jsonl(sys.argv[1], on_broken=notes.append))
print(count, peak() - before, peak(), *notes)
"""


def test_a_million_lines_stream_in_bounded_memory(tmp_path):
    """Fault B118: a list of the million dicts takes more than 200 MB; a stream takes a line."""
    path = tmp_path / "metrics.jsonl"
    with open(path, "wb") as file:
        for _ in range(100):
            file.write(b'{"step":1}\n' * 10_000)
        file.write(b'{"step":')
    done = subprocess.run([sys.executable, "-c", STREAM, str(path)], capture_output=True, text=True, check=True)
    count, growth, peak, note = done.stdout.split(maxsplit=3)
    assert int(count) == 1_000_000
    assert float(growth) < 20
    assert float(peak) < 200
    assert "line 1000001 is cut off and was left out" in note


@pytest.mark.parametrize("tail", [b'{"step": 2, "reward"', b'{"step": 2, "prompt": "\xe4\xbd', b"{"])
def test_a_last_line_cut_off_is_named_and_the_rest_loads(tmp_path, tail):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n\n{"step": 1}\n' + tail)
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: line 4 is cut off"):
        assert store.read_metrics(tmp_path) == [{"step": 0}, {"step": 1}]
    assert store.last_metrics(tmp_path) == {"step": 1}


@pytest.mark.parametrize(("middle", "message"), [(b'{"step":\n', "line 2 is not JSON"), (b"3\n", "line 2 is 3")])
def test_a_broken_line_before_the_last_is_an_error(tmp_path, middle, message):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n' + middle + b'{"step": 2}\n')
    with pytest.raises(ValueError, match=message):
        store.read_metrics(tmp_path)


@pytest.mark.parametrize("width", [10, 8_190, 8_192, 30_000])
def test_the_last_line_is_found_whatever_its_length(tmp_path, width):
    path = tmp_path / "metrics.jsonl"
    assert store.last_metrics(tmp_path) is None
    for step in range(3):
        append_jsonl(path, {"step": step, "text": "é" * width})
        assert store.last_metrics(tmp_path)["step"] == step
    with open(path, "ab") as file:
        file.write(b"x" * width)
    assert store.last_metrics(tmp_path)["step"] == 2
    path.write_bytes(b'{"step"')
    assert store.last_metrics(tmp_path) is None


# ── Atomicity ───────────────────────────────────────────────────────────────────────────────────────────────


def die_before_the_move(path):
    os.replace = lambda *_: os._exit(9)
    write_json(path, {"steps": 2, "padding": "x" * 100_000})


def test_a_writer_killed_before_the_move_leaves_the_old_file(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"steps": 1})
    child = multiprocessing.get_context("fork").Process(target=die_before_the_move, args=(path,))
    child.start()
    child.join()
    assert child.exitcode == 9
    assert read_json(path) == {"steps": 1}
    leftovers = [name for name in os.listdir(tmp_path) if name != "config.json"]
    assert leftovers == [f".config.json.{child.pid}.tmp"]
    with run_lock(tmp_path):
        assert not (tmp_path / leftovers[0]).exists()
    write_json(path, {"steps": 3})
    assert read_json(path) == {"steps": 3}


def test_an_error_while_writing_leaves_the_old_file_and_no_litter(tmp_path):
    (tmp_path / "weights").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "weights") as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert (tmp_path / "weights").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["weights"]


def test_a_log_that_ends_in_half_a_line_is_not_glued_to(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 0}\n{"st')
    with pytest.raises(ValueError, match="ends in half a line"):
        store.append_metrics(tmp_path, {"step": 1})
    store.truncate_metrics(tmp_path, 1)
    store.append_metrics(tmp_path, {"step": 1})
    assert store.read_metrics(tmp_path) == [{"step": 0}, {"step": 1}]


# ── The run folder ──────────────────────────────────────────────────────────────────────────────────────────


def test_going_on_at_a_step_drops_it_and_all_later_ones(tmp_path):
    for step in range(6):
        store.append_metrics(tmp_path, {"step": step, "loss": step / 3})
        store.write_rollouts(tmp_path, step, [row()])
    store.truncate_metrics(tmp_path, 4)
    store.drop_rollouts_after(tmp_path, 4)
    assert [metrics["step"] for metrics in store.read_metrics(tmp_path)] == [0, 1, 2, 3]
    assert store.rollout_steps(tmp_path) == [0, 1, 2, 3]
    store.truncate_metrics(tmp_path, 0)
    store.drop_rollouts_after(tmp_path, 0)
    assert store.read_metrics(tmp_path) == []
    assert store.read_rollouts(tmp_path) is None


def test_rollouts_read_back_with_the_schema(tmp_path):
    store.write_rollouts(tmp_path, 50, [row(), row(sample_idx=1, reward=None, rewards={"exact": None})])
    store.write_rollouts(tmp_path, 5, [row(finish_reason="length")])
    table = store.read_rollouts(tmp_path)
    assert table.schema.equals(store.ROLLOUT_SCHEMA)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["token_ids"] == "list<element: int32>"
    assert kinds["logps"] == kinds["signal"] == "list<element: float>"
    assert (kinds["reward"], kinds["verdict"], kinds["step"]) == ("double", "bool", "int64")
    assert table["step"].to_pylist() == [5, 50, 50]
    assert (tmp_path / "rollouts.parquet" / "step_000050.parquet").is_file()
    first, second = table.to_pylist()[1:]
    assert first == row() | {
        "step": 50,
        "token_ids": [3, 1],
        "logps": [-0.5, -0.25],
        "rewards": [("exact", 1.0), ("format", 0.0)],
    }
    assert (second["reward"], second["rewards"]) == (None, [("exact", None)])
    chosen = store.read_rollouts(tmp_path, steps=[50], columns=["sample_idx"])
    assert chosen.to_pydict() == {"sample_idx": [0, 1]}
    with pytest.raises(ValueError, match=r"no rollouts of step \[7\]; recorded are \[5, 50\]"):
        store.read_rollouts(tmp_path, steps=[7])


def test_the_rollout_folder_is_one_parquet_dataset_even_beside_a_leftover(tmp_path):
    import pyarrow.dataset

    for step in (1, 2):
        store.write_rollouts(tmp_path, step, [row()])
    (tmp_path / "rollouts.parquet" / ".step_000003.parquet.1.tmp").write_bytes(b"half")
    assert pyarrow.dataset.dataset(tmp_path / "rollouts.parquet").to_table()["step"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(extra=1), r"row 1 has missing or unknown columns \['extra'\]"),
        ({key: value for key, value in row().items() if key != "kind"}, r"unknown columns \['kind'\]"),
        (row(finish_reason="eos"), r"finish_reason 'eos'; it is one of \('stop', 'length'\)"),
        (row(step=49), "row 1 says step 49 among the rows of step 50"),
        (row(token_ids=["a"]), "column token_ids does not fit list"),
        (row(rewards=1.0), "column rewards does not fit map"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(tmp_path, bad, message):
    with pytest.raises(ValueError, match=message):
        store.write_rollouts(tmp_path, 50, [row(), bad])
    assert store.rollout_steps(tmp_path) == []


def test_evaluations_come_back_in_order(tmp_path):
    for name, step in [("sampled", 100), ("greedy", 1_000_000), ("greedy", 100), ("greedy", 0)]:
        columns = {"set": ["n8"], "correct": np.array([1]), "kinds": [{"correct": 1}]}
        store.write_eval(tmp_path, {"name": name, "step": step, "columns": columns})
    found = [(evaluation["name"], evaluation["step"]) for evaluation in store.read_evals(tmp_path)]
    assert found == [("greedy", 0), ("greedy", 100), ("sampled", 100), ("greedy", 1_000_000)]
    assert [evaluation["step"] for evaluation in store.read_evals(tmp_path, "sampled")] == [100]
    assert (tmp_path / "evals" / "greedy-000100.json").is_file()
    assert store.read_evals(tmp_path)[0]["columns"]["kinds"] == [{"correct": 1}]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"name": "greedy", "step": 0}, r"without \['columns'\]"),
        ({"name": "../greedy", "step": 0, "columns": {}}, "it names a file"),
        (
            {"name": "greedy", "step": 0, "columns": {"n": [1], "k": [1, 2]}},
            r"different lengths: \{'n': 1, 'k': 2\}",
        ),
    ],
)
def test_an_evaluation_that_does_not_fit_is_refused(tmp_path, bad, message):
    with pytest.raises(ValueError, match=message):
        store.write_eval(tmp_path, bad)


def test_a_run_is_finished_when_its_model_is_there(tmp_path):
    store.write_config(tmp_path, {"arm": "grpo"})
    (tmp_path / "checkpoint.safetensors").touch()
    assert not store.is_finished(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert store.is_finished(tmp_path)


def test_metrics_without_a_step_are_refused(tmp_path):
    with pytest.raises(ValueError, match="without a step"):
        store.append_metrics(tmp_path, {"reward": 1.0})


def test_the_environment_names_versions_and_no_machine(tmp_path):
    write_environment(tmp_path, seed=3, threads=1, seconds=2.5)
    text = (tmp_path / "env.json").read_text()
    found = json.loads(text)
    assert (found["seed"], found["threads"], found["seconds"]) == (3, 1, 2.5)
    assert found["versions"]["numpy"] == np.__version__
    assert found["commit"] is None or len(found["commit"]) == 40
    assert str(Path.cwd()) not in text
    assert os.uname().nodename not in list(environment().values())
    assert Path.home().as_posix() not in text


# ── One writer a folder ─────────────────────────────────────────────────────────────────────────────────────

HOLD = """
import sys, time
from rlvr.lab.lock import run_lock
with run_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_refused_and_a_dead_ones_lock_is_taken_over(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(RunIsBusy, match=f"process {holder.pid};"), run_lock(tmp_path):
                pass
        finally:
            holder.kill()
    assert (tmp_path / ".writer").read_text() == f"{holder.pid}\n"
    started = time.monotonic()
    with run_lock(tmp_path):
        assert (tmp_path / ".writer").read_text() == f"{os.getpid()}\n"
    assert time.monotonic() - started < 2
    assert not (tmp_path / ".writer").exists()

"""Experiments end to end at toy size: nothing is done twice, nothing stale is compared, rules see folders only."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr.experiments import (
    EXPERIMENTS,
    Experiment,
    Job,
    Place,
    Plan,
    Results,
    experiment_named,
    judge,
    run_experiment,
    run_experiments,
)
from rlvr.experiments.base import no_answer, no_panels, over, percent
from rlvr.experiments.lr_search import RATES, best_rate, rates_chosen
from rlvr.experiments.rl_vs_sft import ARMS as METHODS
from rlvr.experiments.runner import results_of
from rlvr.lab import store
from rlvr.lab.jsonl import read_json
from rlvr.stats import Interval


def toy(name: str = "rl_vs_sft", **changes):
    experiment = EXPERIMENTS[name]
    tiny = {"steps": 4, "prompts_per_step": 4, "shape": {"width": 16, "heads": 2}, "checkpoint_every": 2}
    bases = {name: replace(base, **tiny) for name, base in experiment.bases.items()}
    arms = {
        arm: replace(recipe, steps=3, prompts_per_step=4, group_size=2, eval_every=2, checkpoint_every=2, record=(0, 2))
        for arm, recipe in experiment.arms.items()
    }
    small = replace(experiment, bases=bases, arms=arms, problems_per_hop=1, samples=2, seeds=(0, 1))
    return replace(small, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return run_experiment(toy(), Plan(tmp_path_factory.mktemp("runs"), jobs=2))


def test_every_arm_and_seed_is_there_with_its_evaluations(finished: Path) -> None:
    summary, results = results_of(finished)
    assert summary["preliminary"] and summary["seeds"] == [0, 1]
    for arm in ("base", *summary["arms"]):
        for seed in summary["seeds"]:
            assert store.is_finished(results.run(arm, seed))
            assert results.accuracy(arm, "n12").shape == (2, 4)
    assert results.metrics("grpo", "accuracy").shape == (2, 3)
    assert np.isnan(results.metrics("sft", "accuracy")).all()  # demonstrations have no accuracy
    assert len(results.curve("grpo", 0, "n12")) == 3  # steps 0 and 2, and the end
    assert sum(results.kinds("base", 0, "n8").values()) == 4


def test_every_claim_has_a_verdict_with_value_and_words(finished: Path) -> None:
    summary, _ = results_of(finished)
    assert [row["id"] for row in summary["claims"]] == [claim.id for claim in EXPERIMENTS["rl_vs_sft"].claims]
    for row in summary["claims"]:
        assert row["verdict"] in ("holds", "differs", "undecided")
        assert row["measured"] and row["rule"] and row["lecture"]


def test_common_random_numbers_across_arms(finished: Path) -> None:
    _, results = results_of(finished)
    tables = [store.read_rollouts(results.run(arm, 0), steps=[0]).to_pylist() for arm in ("rft", "grpo")]
    for key in ("prompt", "completion", "logps"):
        assert [row[key] for row in tables[0]] == [row[key] for row in tables[1]]
    demonstrations = store.read_rollouts(results.run("sft", 0), steps=[0]).to_pylist()
    assert [row["prompt"] for row in demonstrations] == [row["prompt"] for row in tables[0][::2]]


def test_finished_work_is_reused_and_stale_work_is_not(finished: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in finished.rglob("model.safetensors")}
    run_experiment(toy(), Plan(finished.parent, jobs=1))
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("model.safetensors")} == stamps
    changed = toy()
    changed = replace(changed, arms=changed.arms | {"rft": replace(changed.arms["rft"], learning_rate=1e-5)})
    run_experiment(changed, Plan(finished.parent, jobs=1))
    redone = {p.parent.name for p in finished.rglob("model.safetensors") if p.stat().st_mtime_ns != stamps[p]}
    assert redone == {"rft-s0", "rft-s1"}
    run_experiment(toy(), Plan(finished.parent, jobs=2))


def test_force_redoes_bases_too_and_gives_the_same_numbers(finished: Path) -> None:
    def weights() -> dict[str, bytes]:
        root = finished.parent
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("model.safetensors")}

    before, old = weights(), {p: p.stat().st_mtime_ns for p in finished.parent.rglob("model.safetensors")}
    run_experiment(toy(), Plan(finished.parent, jobs=2, force=True))
    assert weights() == before
    bases = {p for p in old if p.parent.parent.name == "bases"}
    assert all(p.stat().st_mtime_ns != old[p] for p in bases)


def test_a_failing_job_stops_the_run_with_its_own_error(tmp_path: Path) -> None:
    broken = toy(sizes=(8, 99))
    with pytest.raises(ValueError, match="n = 99"):
        run_experiment(broken, Plan(tmp_path, jobs=2))


def test_quick_is_a_folder_of_its_own_and_labelled(tmp_path: Path) -> None:
    folder = run_experiment(toy(), Plan(tmp_path, jobs=2, quick=True))
    summary, _ = results_of(folder)
    assert folder.name == "rl_vs_sft-quick" and summary["quick"] and summary["seeds"] == [0]
    assert "--quick" in summary["command"]


def test_lr_search_judges_its_claim(tmp_path: Path) -> None:
    folder = run_experiment(toy("lr_search", seeds=(100,)), Plan(tmp_path, jobs=2))
    summary, _ = results_of(folder)
    # One seed has no interval and chooses nothing.
    assert [row["verdict"] for row in summary["claims"]] == ["undecided"] * 2


def test_the_search_says_when_the_rates_in_use_are_not_its_best(tmp_path: Path) -> None:
    class Table(Results):
        def accuracy(self, arm: str, label: str, name: str = "greedy") -> np.ndarray:
            method, rate = arm.split("-", 1)
            return np.full((3, 4), 0.9 if (method, rate) in self.best else 0.8)

    results = Table(tmp_path, (100, 101, 102))
    object.__setattr__(results, "best", {(m, f"{recipe.learning_rate:g}") for m, recipe in METHODS.items()})
    assert rates_chosen(results).verdict == "holds"
    object.__setattr__(results, "best", {("sft", "0.001"), ("rft", "0.0003"), ("grpo", "0.0003")})
    found = rates_chosen(results)
    assert found.verdict == "differs" and "sft 0.001 (there 0.0003)" in found.measured
    object.__setattr__(results, "best", set())  # all equal: the smaller rate
    assert best_rate(results, "grpo") == min(RATES)


@pytest.mark.parametrize(
    ("lo", "hi", "side", "verdict"),
    [
        (0.31, 0.4, {"above": 0.3}, "holds"),
        (0.29, 0.4, {"above": 0.3}, "undecided"),
        (0.1, 0.29, {"above": 0.3}, "differs"),
        (0.1, 0.29, {"below": 0.3}, "holds"),
        (0.31, 0.4, {"below": 0.3}, "differs"),
        (-np.inf, np.inf, {"above": 0.3}, "undecided"),
        (float("nan"), 0.4, {"above": 0.3}, "undecided"),
    ],
)
def test_judge(lo: float, hi: float, side: dict, verdict: str) -> None:
    assert judge(lo, hi, **side) == verdict


def test_judge_wants_one_side() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        judge(0.0, 1.0)


def test_one_seed_has_no_interval_and_missing_seeds_are_dropped() -> None:
    assert over([0.5]) == Interval(0.5, -np.inf, np.inf, 1, "seeds")
    assert over([0.4, float("nan"), 0.6]).n == 2
    assert percent(over([0.5])) == "50.0 %"


def test_results_name_a_set_that_was_not_evaluated(finished: Path) -> None:
    with pytest.raises(ValueError, match="n99"):
        Results(finished, [0]).final("base", 0, "n99")
    with pytest.raises(ValueError, match="rl_vs_sft"):
        experiment_named("rl_vs_stf")


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_experiments import toy
from rlvr.experiments import Plan, run_experiment
if __name__ == "__main__":
    slow = toy()
    bases = {{name: replace(base, steps=100_000) for name, base in slow.bases.items()}}
    run_experiment(replace(slow, bases=bases), Plan(Path({out!r}), jobs=2))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are found through /proc")
def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(tests=str(Path(__file__).parent), out=str(tmp_path / "runs")))
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    _wait(lambda: len(list((tmp_path / "runs").rglob("metrics.jsonl"))) == 2)
    workers = [int(pid) for pid in children.read_text().split()]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert len(workers) >= 2
    _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def _wait(done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def count(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A job: how many runs it finds, and which number this call of it is."""
    calls = place.root / f"calls-{place.out.name}"
    calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
    return {"runs": len(list(place.folder.glob("*/model.safetensors"))), "asked": settings["number"]}


def two_jobs(experiment: Experiment) -> list[Job]:
    first = Job("first", count, {"number": 1}, ("grpo-s0",))
    return [Job("second", count, {"number": 2}, ("first",)), first]


def test_jobs_run_after_what_they_need_and_again_when_that_changed(tmp_path: Path) -> None:
    def calls() -> list[int]:
        return [len((tmp_path / f"calls-{name}").read_text()) for name in ("first", "second")]

    wanted = toy(seeds=(0,), jobs=two_jobs)
    folder = run_experiment(wanted, Plan(tmp_path, jobs=2))
    _, results = results_of(folder)
    assert results.result("first")["runs"] >= 2 and results.result("second")["asked"] == 2
    run_experiment(wanted, Plan(tmp_path, jobs=2))
    assert calls() == [1, 1]
    changed = replace(wanted, arms=wanted.arms | {"grpo": replace(wanted.arms["grpo"], learning_rate=1e-5)})
    run_experiment(changed, Plan(tmp_path, jobs=2))
    assert calls() == [2, 2]
    asked = replace(changed, jobs=partial(only_second, 3))
    run_experiment(asked, Plan(tmp_path, jobs=2))
    assert calls() == [2, 3]


def only_second(number: int, experiment: Experiment) -> list[Job]:
    return [two_jobs(experiment)[1], Job("second", count, {"number": number}, ("first",))]


def test_a_job_that_needs_what_there_is_not_is_refused(tmp_path: Path) -> None:
    lost = toy(seeds=(0,), jobs=lost_job)
    with pytest.raises(ValueError, match=r"lost need nobody-s0.*accepted"):
        run_experiment(lost, Plan(tmp_path, jobs=1))


def lost_job(experiment: Experiment) -> list[Job]:
    return [Job("lost", count, {"number": 1}, ("nobody-s0",))]


def test_an_experiment_reads_the_runs_of_another_that_is_made_first(tmp_path: Path) -> None:
    first = toy(seeds=(0,))
    second = Experiment(
        name="reader", title="", question="", setup="", uses=(first,), jobs=reader, seeds=(0,), answer=found_elsewhere
    )
    folder = run_experiment(second, Plan(tmp_path, jobs=1))
    assert read_json(folder / "experiment.json")["answer"] == "4 runs"
    changed = replace(second, uses=(toy(seeds=(0,), samples=3),))
    before = (tmp_path / "calls-reading").read_text()
    run_experiment(changed, Plan(tmp_path, jobs=1))
    assert (tmp_path / "calls-reading").read_text() == before + "x"


def reader(experiment: Experiment) -> list[Job]:
    return [Job("reading", count_elsewhere, {"number": 0})]


def count_elsewhere(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    return count(place._replace(folder=place.root / "rl_vs_sft"), settings)


def found_elsewhere(results: Results) -> str:
    assert results.other("rl_vs_sft").accuracy("grpo", "n12").shape == (1, 4)
    return f"{results.result('reading')['runs']} runs"


def test_experiments_share_processes_and_bases_and_are_told_of_when_they_are_over(tmp_path: Path) -> None:
    first = toy(seeds=(0,))
    arms = {"grpo": first.arms["grpo"]}
    # The same base under another experiment's name: with two processes both would make it at once.
    twin = replace(first, name="twin", arms=arms, claims=(), answer=no_answer, panels=no_panels)
    second = Experiment(name="reader", title="", question="", setup="", uses=(first,), jobs=reader, seeds=(0,))
    told = []
    folders = run_experiments([second, twin], Plan(tmp_path, jobs=2), told.append)
    assert [folder.name for folder in folders] == ["rl_vs_sft", "reader", "twin"]
    assert sorted(told) == sorted(folders) and told.index(folders[0]) < told.index(folders[1])
    assert len(list((tmp_path / "bases").iterdir())) == 1
    weights = [(folder / "grpo-s0" / "model.safetensors").read_bytes() for folder in (folders[0], folders[2])]
    assert weights[0] == weights[1]
    told.clear()
    run_experiments([twin], Plan(tmp_path, jobs=2), told.append)
    assert told == [folders[2]]


def test_arms_have_seeds_of_their_own_and_share_bases(tmp_path: Path) -> None:
    wide = toy(seeds=(0, 1), seeds_of={"grpo": (0, 1, 2)}, base_seeds=1, claims=(), answer=no_answer)
    folder = run_experiment(wide, Plan(tmp_path, jobs=2))
    _, results = results_of(folder)
    assert results.accuracy("grpo", "n12").shape == (3, 4) and results.accuracy("rft", "n12").shape == (2, 4)
    assert sorted(run.name for run in folder.glob("base-*")) == ["base-s0"]
    assert store.read_config(folder / "grpo-s2")["base"] == store.read_config(folder / "base-s0")["base"]

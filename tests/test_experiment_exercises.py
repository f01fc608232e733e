"""Exercises 1 to 3: the rules on made-up results, and the experiment end to end at toy size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_experiments import toy

from rlvr.experiments import Plan, Results, run_experiment
from rlvr.experiments.exercise_2 import above_rft, below_grpo, panels
from rlvr.experiments.exercises_rules import dynamic_sampling, positive_only, std_weight
from rlvr.lab.jsonl import read_json, write_jsonl


class Made(Results):
    """Results without folders: accuracies by arm, the same problems for all, and the same curves for all seeds."""

    accuracies: dict
    curves: dict

    def accuracy(self, arm: str, label: str, name: str = "greedy") -> np.ndarray:
        return np.repeat(np.array(self.accuracies[arm])[:, None], 4, axis=1)

    def curve(self, arm: str, seed: int, label: str) -> list[tuple[int, float]]:
        return self.curves[arm][seed]

    def other(self, experiment: str) -> Results:
        return self


def made(folder: Path = Path(), **changes) -> Made:
    results = Made(folder, (0, 1, 2))
    for name, value in changes.items():
        object.__setattr__(results, name, value)
    return results


def test_the_weight_of_a_hard_problem_is_the_closed_form() -> None:
    found = std_weight(made())
    # With std the ratio is sqrt(p(1-p)) / 0.5, without it p(1-p) / 0.25; their quotient is what std adds.
    assert found.value == pytest.approx((0.0475**0.5 / 0.5) / (0.0475 / 0.25), rel=1e-6)
    assert found.verdict == "holds"


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [
        ([0.60, 0.50, 0.55], "holds"),  # between, and no seed count tells
        ([0.90, 0.91, 0.90], "differs"),  # surely above GRPO
        ([0.10, 0.11, 0.10], "differs"),  # surely below RFT
        ([0.55, 0.56, 0.55], "undecided"),  # between, but told apart from one
    ],
)
def test_positive_only(mine: list[float], verdict: str) -> None:
    rows = {"positive_only": mine, "grpo": [0.62, 0.56, 0.60], "rft": [0.50, 0.50, 0.50]}
    found = positive_only(made(accuracies=rows))
    assert found.verdict == verdict
    assert ("points:" in found.measured) == (np.ptp(np.subtract(mine, rows["rft"])) > 0)


@pytest.mark.parametrize(("per_step", "verdict"), [(10, "holds"), (1, "differs")])
def test_dynamic_sampling_counts_what_it_throws_away(tmp_path: Path, per_step: int, verdict: str) -> None:
    for seed in range(3):
        for arm, samples in (("plain", 8), ("dynamic", 8 * per_step)):
            rows = [{"step": step, "samples": samples * (step + 1)} for step in range(40)]
            write_jsonl(tmp_path / f"{arm}-s{seed}" / "metrics.jsonl", rows)
    slow = [[(0, 0.4), (20, 0.6), (40, 0.8 + 0.01 * seed)] for seed in range(3)]
    fast = [[(0, 0.4), (10, 0.8 + 0.01 * seed)] for seed in range(3)]
    found = dynamic_sampling(made(tmp_path, curves={"plain": slow, "dynamic": fast}))
    assert found.verdict == verdict
    # Half of the gap from 0.4 is 0.7: plain passes it after 30 steps or a little less, dynamic after 7.5 or less.
    ratios = [(10 * 0.3 / (0.4 + 0.01 * s)) / (20 + 20 * 0.1 / (0.2 + 0.01 * s)) for s in range(3)]
    assert found.value == pytest.approx(per_step * np.mean(ratios))


def test_the_experiment_runs_and_compares_with_experiment_01(tmp_path: Path) -> None:
    small = replace(toy("exercises", seeds=(0,)), uses=(toy(seeds=(0,)),))
    folder = run_experiment(small, Plan(tmp_path, jobs=2))
    summary = read_json(folder / "experiment.json")
    assert [panel["key"] for panel in summary["panels"]] == ["by-step", "by-sample", "power"]
    assert "RFT" in summary["answer"] and summary["preliminary"]
    assert read_json(folder / "dynamic-s0/config.json")["algorithm"]["sampling_rounds"] == "10"


@pytest.mark.parametrize(("shift", "verdicts"), [(-0.04, ("holds", "differs")), (0.04, ("differs", "holds"))])
def test_sixteen_seeds_judge_each_neighbour_in_pairs(shift: float, verdicts: tuple[str, str]) -> None:
    # Seeds differ by 40 points and the pairs within a seed by 2: only a paired comparison can see 4.
    seeds, wobble = np.linspace(0.3, 0.7, 16), 0.01 * (-1.0) ** np.arange(16)
    rows = {"positive_only": seeds + shift + wobble, "grpo": seeds, "rft": seeds}
    results = made(accuracies=rows)
    assert (below_grpo(results).verdict, above_rft(results).verdict) == verdicts
    assert above_rft(results).value == pytest.approx(shift)
    even = made(accuracies=rows | {"positive_only": seeds + wobble})
    assert (below_grpo(even).verdict, above_rft(even).verdict) == ("undecided", "undecided")


def test_fewer_seeds_are_the_first_ones() -> None:
    mine = np.array([0.50, 0.54, 0.58, 0.62])
    narrowing = panels(made(accuracies={"positive_only": mine, "grpo": np.full(4, 0.5), "rft": np.zeros(4)}))[0]
    line = narrowing.series[0]
    assert list(line.x) == [3, 4] and line.y == pytest.approx([0.04, 0.06])
    # Student's 97.5 % point at two degrees of freedom is 4.303: 4.303 * 0.04 / sqrt(3).
    assert line.hi[0] - line.y[0] == pytest.approx(4.3027 * 0.04 / 3**0.5, rel=1e-4)


def test_sixteen_seeds_run_end_to_end(tmp_path: Path) -> None:
    folder = run_experiment(toy("exercise_2", seeds=(0, 1, 2)), Plan(tmp_path, jobs=2))
    summary = read_json(folder / "experiment.json")
    assert [row["id"] for row in summary["claims"]] == ["ex2-needs-negatives", "ex2-above-rft"]
    assert [panel["key"] for panel in summary["panels"]] == ["narrowing", "power"]
    assert sorted(run.name for run in folder.glob("rft-s*")) == ["rft-s0", "rft-s1", "rft-s2"]

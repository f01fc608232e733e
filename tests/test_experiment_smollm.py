"""The experiment with a language model: its rules on made-up counts, and the whole of it with a tiny model."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlvr.experiments import EXPERIMENTS, Plan, Results, run_experiment
from rlvr.experiments.smollm_rules import beyond_form, control, improves, sharpens
from rlvr.lab.jsonl import read_json
from rlvr.report.data import read_experiment


class Made(Results):
    """Sixteen samples of twenty problems: by arm, how many are right in form and how many in another form."""

    counts: dict

    def final(self, arm: str, seed: int, label: str, name: str = "greedy") -> dict:
        strict, loose = self.counts[arm]
        kinds = [{"correct": s, "form": f, "wrong": 16 - s - f} for s, f in zip(strict, loose, strict=True)]
        return {"correct": list(strict), "samples": [16] * len(strict), "kinds": kinds}


def made(**counts) -> Made:
    results = Made(Path(), (0,))
    object.__setattr__(results, "counts", {arm: (s, np.array(f)) for arm, (s, f) in counts.items()})
    return results


NONE, FEW, MANY = [0] * 20, [1, 2] * 10, [8, 12] * 10


def test_right_in_another_form_counts_leniently_and_pairs_are_problems() -> None:
    results = made(base=(NONE, FEW), grpo=(NONE, MANY), random=(NONE, FEW))
    found = improves(results)
    assert found.value == pytest.approx(np.mean(np.subtract(MANY, FEW)) / 16)
    assert found.verdict == control(results).verdict == "holds" and found.n == 20
    # Pass@16 was 1 and stays 1: the whole gain is at one sample.
    assert sharpens(results).value == pytest.approx(found.value) and sharpens(results).verdict == "holds"
    assert "strict 0.0 % [0.0, 0.0]" in beyond_form(results).measured


def test_seeds_stand_beside_the_interval_over_problems() -> None:
    class Apart(Made):
        def final(self, arm: str, seed: int, label: str, name: str = "greedy") -> dict:
            return super().final(f"{arm}{seed}" if arm == "grpo" else arm, seed, label, name)

    results = Apart(Path(), (0, 1))
    few, more = np.full(20, 4), np.full(20, 8)
    counts = {"base": (NONE, np.array(NONE)), "grpo0": (NONE, few), "grpo1": (NONE, more)}
    object.__setattr__(results, "counts", counts)
    # 4 and 8 of 16: 25 and 50 points, so 37.5 ± 12.706 * (25 / 2), Student with one degree of freedom.
    assert "by seed 25.0, 50.0; over seeds 37.5 % [-121.3, 196.3]" in improves(results).measured


def test_no_gain_is_not_called_one() -> None:
    flat = made(base=(NONE, FEW), grpo=(NONE, FEW[::-1]), random=(NONE, FEW))
    assert improves(flat).verdict == "undecided"
    worse = made(base=(NONE, MANY), grpo=(NONE, FEW), random=(NONE, MANY))
    assert improves(worse).verdict == control(worse).verdict == "differs"


def test_gaining_more_at_many_samples_is_not_sharpening() -> None:
    # Nothing is solved before; afterwards one sample in sixteen is right: 1/16 at one sample, 1 at sixteen.
    found = sharpens(made(base=(NONE, NONE), grpo=(NONE, [1] * 20)))
    assert found.value == pytest.approx(1 / 16 - 1) and found.verdict in ("differs", "undecided")


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs pip install 'rlvr[hf]'")
def test_the_whole_experiment_runs_with_a_tiny_model(tmp_path: Path) -> None:
    from tiny_models import save

    model, whole = str(save(tmp_path / "model")), EXPERIMENTS["smollm"]
    few = {"model": model, "prompts_per_step": 2, "group_size": 2, "task": "arithmetic(kind='sum', max_new_tokens=4)"}
    arms = {arm: replace(recipe, steps=2, record=(0, 1), **few) for arm, recipe in whole.arms.items()}
    bases = {name: replace(recipe, **few) for name, recipe in whole.bases.items()}
    small = replace(
        whole, arms=arms, bases=bases, seeds=(0,), held_out={"largest": {"digits": 1}}, problems=3, samples=2
    )
    folder = run_experiment(small, Plan(tmp_path, jobs=1))
    summary = read_json(folder / "experiment.json")
    assert [panel["key"] for panel in summary["panels"]] == ["passk", "learning", "form", "numbers", "texts"]
    assert [series["x"] for series in summary["panels"][0]["series"]] == [[1, 2]] * 4  # no more than there are samples
    assert (
        "At 2 samples" in summary["answer"]
        and len(summary["claims"]) == 4
        and "random" in summary["answer"]
        and summary["preliminary"]
    )
    assert read_experiment(folder).gaps == ()  # the model as it came is no unfinished run

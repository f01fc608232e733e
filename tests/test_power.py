"""`rlvr power` as a person uses it, on a made-up experiment whose accuracies are known."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlvr.cli import main
from rlvr.lab.store import write_config, write_eval
from rlvr.stats import minimum_detectable_effect, seeds_needed

GRPO = {"n8": (0.9, 0.8, 0.95), "n16": (0.6, 0.45, 0.7)}
RFT = {"n8": (0.9, 0.8, 0.95), "n16": (0.5, 0.4, 0.55)}


def write_runs(folder: Path, arm: str, accuracies, seeds=(0, 1, 2), **settings) -> None:
    """Run folders with one greedy evaluation of 20 problems a set, of which the wanted share is right."""
    for i, seed in enumerate(seeds):
        run = folder / f"{arm}-s{seed}"
        write_config(run, {"arm": arm, "seed": seed})
        sets = [label for label in accuracies for _ in range(20)]
        correct = [int(p < round(20 * shares[i])) for shares in accuracies.values() for p in range(20)]
        columns = {"set": sets, "correct": correct, "samples": [1] * len(sets)}
        record = {"name": "greedy", "step": 100, "temperature": 0.0, "seed": 0, "columns": columns}
        write_eval(run, record | settings)
        (run / "model.safetensors").write_bytes(b"not a model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_runs(tmp_path / "mine", "grpo", GRPO)
    write_runs(tmp_path / "mine", "rft", RFT)
    return tmp_path / "mine"


def cells(out: str, label: str) -> list[str]:
    return next(line for line in out.splitlines() if line.split()[:1] == [label]).split()


def test_two_arms_are_paired_by_seed(folder: Path, capsys) -> None:
    assert main(["power", str(folder), "grpo", "rft", "--effect", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "paired over the seeds 0, 1, 2" in out and "Preliminary" not in out and "like for like" not in out
    d = np.subtract(GRPO["n16"], RFT["n16"])
    half, sd = stats.t.ppf(0.975, 2) * d.std(ddof=1) / np.sqrt(3), d.std(ddof=1)
    label, one, other, difference, lo, hi, p, spread, needed, span, finds = cells(out, "n16")
    assert (label, one, other, difference) == ("n16", "58.3", "48.3", "+10.0")
    assert (lo, hi) == (f"[{100 * (d.mean() - half):.1f},", f"{100 * (d.mean() + half):.1f}]")
    assert float(p) == pytest.approx(stats.ttest_rel(GRPO["n16"], RFT["n16"]).pvalue, rel=0.05)
    assert (spread, needed) == (f"{100 * sd:.1f}", str(seeds_needed(0.1, sd, paired=True)))
    lowest, highest = (sd * np.sqrt(2 / stats.chi2.ppf(q, 2)) for q in (0.975, 0.025))
    assert span == f"[{seeds_needed(0.1, lowest, True)}-{seeds_needed(0.1, highest, True)}]"
    assert finds == f"{100 * minimum_detectable_effect(sd, 3, paired=True):.1f}"
    assert "all alike" in " ".join(cells(out, "n8")) and "no spread" in " ".join(cells(out, "n8"))


def test_unpaired_arms_pool_their_spread(folder: Path, capsys) -> None:
    assert main(["power", str(folder), "grpo", "rft", "--set", "n16", "--unpaired"]) == 0
    out = capsys.readouterr().out
    assert "n8" not in out and "unpaired" in out
    sd = np.sqrt((np.var(GRPO["n16"], ddof=1) + np.var(RFT["n16"], ddof=1)) / 2)
    row = cells(out, "n16")
    assert float(row[6]) == pytest.approx(stats.ttest_ind(GRPO["n16"], RFT["n16"], equal_var=False).pvalue, rel=0.05)
    assert row[7:9] == [f"{100 * sd:.1f}", str(seeds_needed(0.05, sd))]
    lowest, highest = (sd * np.sqrt(4 / stats.chi2.ppf(q, 4)) for q in (0.975, 0.025))
    assert row[9] == f"[{seeds_needed(0.05, lowest)}-{seeds_needed(0.05, highest)}]"


def test_arms_without_seeds_in_common_are_not_paired(tmp_path: Path, capsys) -> None:
    write_runs(tmp_path, "grpo", GRPO)
    write_runs(tmp_path, "rft", RFT, seeds=(7, 8, 9))
    assert main(["power", str(tmp_path), "grpo", "rft"]) == 0
    assert "unpaired" in capsys.readouterr().out


def test_few_seeds_and_other_settings_are_labelled(tmp_path: Path, capsys) -> None:
    write_runs(tmp_path, "grpo", GRPO, seeds=(0, 1))
    write_runs(tmp_path, "rft", RFT, seeds=(0, 1), temperature=0.6)
    assert main(["power", str(tmp_path), "grpo", "rft"]) == 0
    out = capsys.readouterr().out
    assert "Preliminary: 2 seeds" in out and "Not like for like: temperature: 0.0 and 0.6" in out


def test_numbers_alone_are_enough(capsys) -> None:
    assert main(["power", "--sd", "0.08", "--effect", "0.05"]) == 0
    out = capsys.readouterr().out
    assert f"{seeds_needed(0.05, 0.08)} seeds in each arm" in out
    assert f"{minimum_detectable_effect(0.08, 3):.3g}" in out and "0.246" in out
    assert main(["power", "--sd", "0.08", "--effect", "0.05", "--paired", "--power", "0.9"]) == 0
    assert f"{seeds_needed(0.05, 0.08, True, 0.9)} seeds, each run in both arms" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("", "FOLDER ARM1 ARM2"),
        ("{folder} grpo", "FOLDER ARM1 ARM2"),
        ("nowhere grpo rft", "nowhere is no folder"),
        ("{folder} grpo sft", "its arms: grpo, rft"),
        ("{folder} grpo grpo", "against itself"),
        ("{folder} grpo rft --set n12", "accepted: n8, n16"),
        ("{folder} grpo rft --effect 5", "5 points are 0.05"),
        ("{folder} grpo rft --effect 0", "--effect 0"),
        ("{folder} grpo rft --power 80", "--power 80"),
        ("{folder} grpo rft --sd 0.1", "--sd"),
        ("{folder} grpo rft --paired", "--paired"),
        ("--sd 0.1 --set n8", "--set"),
        ("--sd 0.1 --unpaired", "--unpaired"),
        ("--sd 0", "--sd 0"),
        ("--sd nan", "--sd nan"),
        ("--sd 1 --effect 1e-9", "more than 100000"),
        ("--sd x", "x"),
    ],
)
def test_a_mistake_is_one_line(words: str, part: str, folder: Path, capsys) -> None:
    assert main(["power", *words.format(folder=folder).split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rlvr: ") and error.count("\n") == 1 and part in error


def test_one_seed_and_unfinished_runs_are_refused(tmp_path: Path, capsys) -> None:
    write_runs(tmp_path, "grpo", GRPO, seeds=(0,))
    write_runs(tmp_path, "rft", RFT, seeds=(0,))
    assert main(["power", str(tmp_path), "grpo", "rft"]) == 2
    assert "no spread to measure" in capsys.readouterr().err
    (tmp_path / "rft-s0" / "model.safetensors").unlink()
    assert main(["power", str(tmp_path), "grpo", "rft"]) == 2
    assert "no finished run of rft" in capsys.readouterr().err

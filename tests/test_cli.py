"""The command line as a person uses it: results where they are said to be, mistakes as one line and exit code 2."""

import json
from pathlib import Path

import pytest
import torch

from rlvr.cli import look, main
from rlvr.cli.words import Mistake, rewards
from rlvr.lab import store
from rlvr.lab.jsonl import read_json

TRAIN = "train grpo_lecture --task echo --steps 6 --prompts 4 --group-size 4 --learning-rate 0.003 --eval-every 3"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A small finished run on the echo task."""
    folder = tmp_path_factory.mktemp("runs") / "echo"
    assert main([*TRAIN.split(), "--out", str(folder)]) == 0
    return folder


def test_no_arguments_teach(capsys) -> None:
    assert main([]) == 0
    assert "rlvr reproduce" in capsys.readouterr().out


def test_list_names_everything_registered(capsys) -> None:
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for name in ("rl_vs_sft", "lr_search", "grpo_lecture", "dr_grpo", "pointer", "echo", "correct", "random", "cot_L2"):
        assert name in out


def test_show_prints_the_equation_or_the_difference(capsys) -> None:
    assert main(["show", "grpo"]) == 0
    out = capsys.readouterr().out
    assert "clip(ρ, 1−0.2, 1+0.2)" in out and "SequenceMean" in out
    assert main(["show", "grpo", "dr_grpo"]) == 0
    out = capsys.readouterr().out
    assert "Constant" in out and "Clip" not in out


def test_train_leaves_a_run_folder(run: Path, capsys) -> None:
    assert [row["step"] for row in store.read_metrics(run)] == list(range(6))
    assert store.is_finished(run) and store.rollout_steps(run) == [0, 3, 5]
    assert [e["step"] for e in store.read_evals(run, "greedy")] == [0, 3, 6]


def test_eval_prints_intervals_and_keeps_the_result(run: Path, capsys) -> None:
    assert main(["eval", str(run), "--samples", "4", "--problems", "20"]) == 0
    assert "95 % interval" in capsys.readouterr().out
    (found,) = store.read_evals(run, "eval_sampled")
    assert found["samples_per_problem"] == 4 and len(found["columns"]["set"]) == 20


def test_eval_of_a_text_task_tells_the_form_from_the_answer(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    def kinds(**counts: int) -> dict:
        return {
            "set": "sum",
            "correct": counts.get("correct", 0),
            "samples": 4,
            "majority": False,
            "length": 3.0,
            "kinds": counts,
        }

    rows = [kinds(correct=1, form=2, wrong=1), kinds(wrong=4)]
    found = {
        "sets": {"sum": {"problems": 2, "repeats": []}},
        "columns": {key: [r[key] for r in rows] for key in rows[0]},
    }
    look._print_accuracy(found, ["sum"])
    head, row = (line for line in capsys.readouterr().out.splitlines() if "form" in line)
    assert "any form, %" in head
    assert row.split()[:2] == ["sum", "2"] and "12.5" in row and "37.5" in row  # 1 of 8 right, 3 of 8 in any form


def test_a_verifier_is_trained_on_what_a_run_writes_and_pays_another(run: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "orm"
    few = ["--problems", "40", "--steps", "5"]
    assert main(["verifier", str(run), *few, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "judged rightly" in said and "path='../orm'" in said
    assert main([*TRAIN.split(), "--reward", "verifier(path='../orm')", "--out", str(tmp_path / "paid")]) == 0
    assert store.is_finished(tmp_path / "paid")
    assert main(["verifier", str(run), *few, "--out", str(run)]) == 2
    assert "holds a run" in capsys.readouterr().err
    assert main(["verifier", "cot_L3", *few]) == 2
    assert "cot_L2" in capsys.readouterr().err
    assert main(["verifier", "cot_L2", *few, "--difficulty", "n=99", "--out", str(tmp_path / "new" / "orm")]) == 2
    assert "n = 99" in capsys.readouterr().err and not (tmp_path / "new").exists()


def test_a_verifier_that_is_not_there_is_told_of_before_a_base_is_made(tmp_path: Path, capsys) -> None:
    words = ["train", "grpo_lecture", "--reward", "verifier(path='../nowhere')", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sample_shows_texts_with_verdicts(run: Path, capsys) -> None:
    assert main(["sample", str(run), "--problems", "2", "--samples", "8"]) == 0
    out = capsys.readouterr().out
    assert out.count("gold") == 2 and ("wrong" in out or "format" in out)


def test_resume_of_a_finished_run_says_so(run: Path, capsys) -> None:
    assert main(["resume", str(run)]) == 0
    assert "finished" in capsys.readouterr().out


def test_report_of_a_run(run: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert "<html" in out.read_text(encoding="utf-8")


def test_a_recipe_file_trains_too(tmp_path: Path, capsys) -> None:
    recipe = {"preset": "rft", "task": "echo", "base": None, "steps": 2, "prompts_per_step": 2, "group_size": 2}
    (tmp_path / "mine.json").write_text(json.dumps(recipe), encoding="utf-8")
    assert main(["train", str(tmp_path / "mine.json"), "--out", str(tmp_path / "run")]) == 0
    assert store.read_config(tmp_path / "run")["arm"] == "rft"


def test_overrides_reach_the_run(tmp_path: Path) -> None:
    words = "train grpo --task echo --steps 1 --prompts 2 --eval-every 0 --set loss.epsilon=0.3 aggregate=TokenMean"
    assert main([*words.split(), "--out", str(tmp_path / "run")]) == 0
    algorithm = read_json(tmp_path / "run" / "config.json")["algorithm"]
    assert "0.3" in algorithm["loss"] and algorithm["aggregate"] == "TokenMean()"


def test_a_users_own_reward_is_one_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def brief(completion, generator):\n    return -len(completion.text)\n")
    reward = f"{tmp_path}/mine.py:brief=0.5"
    words = "train grpo_lecture --task echo --steps 1 --prompts 2 --eval-every 0 --reward correct"
    assert main([*words.split(), reward, "--out", str(tmp_path / "run")]) == 0
    (row,) = store.read_metrics(tmp_path / "run")
    assert row[f"rewards/{tmp_path}/mine.py:brief/mean"] < 0
    total = row["rewards/correct/mean"] + 0.5 * row[f"rewards/{tmp_path}/mine.py:brief/mean"]
    assert row["reward"] == pytest.approx(total)


MISTAKES = {
    "trian": "trian",
    "train": "Missing",
    "train grop": "grop",
    "train grpo --set loss.eps=1": "loss.eps",
    "train grpo --set loss.epsilon": "key=value",
    "train grpo --difficulty n=3,40": "(3, 40)",
    "train grpo --difficulty n=a": "n=a",
    "train grpo --difficulty m=3": "m",
    "train grpo --task chess": "chess",
    "train grpo --steps 0": "steps = 0",
    "train grpo --reward corect": "corect",
    "train grpo --reward nowhere.py:f": "nowhere.py",
    "train grpo --base nothing": "nothing",
    "train nowhere.json": "nowhere.json",
    "show": "presets",
    "show nope": "nope",
    "show grpo rloo sft": "one or two",
    "eval nowhere": "nowhere",
    "sample nowhere": "nowhere",
    "resume nowhere": "nowhere",
    "report nowhere": "nowhere",
    "report": "folder",
    "reproduce foo": "foo",
    "reproduce --seeds 0": "--seeds 0",
    "reproduce --jobs -1": "--jobs -1",
    "reproduce --seeds x": "x",
    "reproduce --seedz 3": "--seedz",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_that_names_it(words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("rlvr: ") and error.count("\n") == 1
    assert MISTAKES[words] in error
    assert not any(tmp_path.rglob("*.safetensors"))


def test_broken_recipe_files_are_named(tmp_path: Path, capsys) -> None:
    path = tmp_path / "r.json"
    for text, part in (("", "not JSON"), ("[1]", "list"), ('{"stepps": 3}', "stepps"), ('{"steps": "many"}', "many")):
        path.write_text(text)
        assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
        assert part in capsys.readouterr().err


def test_another_recipe_in_the_folder_is_refused(run: Path, capsys) -> None:
    assert main([*TRAIN.split(), "--seed", "1", "--out", str(run)]) == 2
    assert "another run" in capsys.readouterr().err


def test_rewards_carry_settings_and_weights() -> None:
    words = ["correct", "mine.py:brief=0.2", "random(probability=0.1)", "overlong(limit=9, cache=3)=-0.5"]
    expected = {
        "correct": 1.0,
        "mine.py:brief": 0.2,
        "random(probability=0.1)": 1.0,
        "overlong(limit=9, cache=3)": -0.5,
    }
    assert rewards(words) == expected
    with pytest.raises(Mistake, match="weight 'x' is no number"):
        rewards(["correct=x"])


def test_show_says_what_a_library_makes_of_a_name(capsys) -> None:
    assert main(["show", "dr_grpo", "--like", "trl"]) == 0
    out = capsys.readouterr().out
    assert "advantage" in out and "ZScore" in out and "aggregate" not in out  # the one slot in which they differ
    assert main(["show", "grpo", "dapo", "--like", "trl"]) == 2
    assert main(["show", "sft", "--like", "verl"]) == 2
    err = capsys.readouterr().err
    assert "accepted are one, with --like" in err and "accepted: one of" in err


@pytest.mark.parametrize("field", ["learning_rate", "steps", "warmup_steps", "temperature", "group_size"])
def test_a_recipe_file_with_text_for_a_number_is_one_line(tmp_path, capsys, field: str) -> None:
    (tmp_path / "mine.json").write_text(json.dumps({field: "x"}))
    assert main(["train", str(tmp_path / "mine.json")]) == 2
    err = capsys.readouterr().err
    assert f"{field} = 'x'; accepted" in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("device", ["nonsense", *([] if torch.cuda.is_available() else ["cuda"])])
def test_a_device_that_is_not_here_is_one_line_and_leaves_nothing(tmp_path, capsys, device: str) -> None:
    assert main([*TRAIN.split(), "--device", device, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert f"--device {device}: " in err and len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_command_is_named_once(capsys) -> None:
    assert main(["reproduec"]) == 2
    err = capsys.readouterr().err
    assert err.count("Unrecognized options") == 1 and "reproduec" in err and "Available subcommands: reproduce" in err


def test_a_users_reward_keeps_its_state_over_the_steps_of_a_run(tmp_path) -> None:
    """Its file is executed when a recipe is checked and once for the run, not at every step."""
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\ncalls = []\n"
        "def write(word):\n    with Path(__file__).with_name('log').open('a') as log:\n        log.write(f'{word}\\n')\n"
        "def count(completion, generator):\n    calls.append(1)\n    write(len(calls))\n    return 1.0\nwrite('load')\n"
    )
    words = TRAIN.replace("--eval-every 3", "--eval-every 0").split()
    assert main([*words, "--reward", f"{tmp_path}/mine.py:count", "--out", str(tmp_path / "run")]) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert [int(line) for line in lines if line != "load"] == list(range(1, 6 * 16 + 1))
    assert lines[-1] == "96" and "load" not in lines[lines.index("1") :]

"""A trained language model goes out as a Hugging Face folder and comes back in: the same model, with its card."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed: pip install 'rlvr[hf]'", allow_module_level=True)

from test_hf_train import SETS, recipe
from tiny_models import save
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlvr.lab.train as loop
from rlvr.cli import main
from rlvr.interop.export import export_run
from rlvr.lab.recipe import Recipe
from rlvr.policy import Decoding, HFPolicy


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save(tmp_path_factory.mktemp("model")))


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(3, 15)[None]).logits


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 3}], ids=str)
def test_what_goes_out_is_what_was_trained(model: str, tmp_path, settings: dict) -> None:
    wanted = recipe(model, preset="sft", steps=3, learning_rate=1e-2, model_settings=settings, eval_every=3)
    run = loop.train(tmp_path / "run", wanted, sets=SETS)
    folder = export_run(run, tmp_path / "out" / "model")
    there, policy = AutoModelForCausalLM.from_pretrained(folder), loop.open_run(run)[0]
    torch.testing.assert_close(logits(there), logits(policy.model), rtol=0, atol=1e-5)
    assert (logits(there) - logits(HFPolicy.open(model).model)).abs().max() > 0.05
    assert there.generation_config.eos_token_id == [1, 2]
    assert AutoTokenizer.from_pretrained(folder).chat_template == policy.tokens.tokenizer.chat_template
    assert {path.name for path in folder.parent.iterdir()} == {"model"}
    card = (folder / "README.md").read_text()
    assert (
        "| demonstrations | 12 |" in card
        and "| greedy | 0 | test | 8 |" in card
        and "| greedy | 3 | test | 8 |" in card
    )
    told = json.loads(card.split("```json\n")[1].split("```")[0])
    assert Recipe.from_json(told) == wanted
    again = HFPolicy.open(str(folder), eos="$")
    assert again.tokens.eos_ids == (1, 2) and again.encode("a$") == policy.encode("a$")


def test_the_card_carries_the_ledger_of_the_experiment(model: str, tmp_path) -> None:
    claims = [{"id": "helps", "claim": "It helps.", "measured": "12 %", "verdict": "holds"}]
    (tmp_path / "experiment.json").write_text(json.dumps({"claims": claims}))
    run = loop.train(tmp_path / "run", recipe(model, preset="sft", steps=1))
    card = (export_run(run, tmp_path / "out") / "README.md").read_text()
    assert "| helps | It helps. | 12 % | holds |" in card and "Not evaluated" in card


def test_export_refuses_what_it_cannot_do(model: str, tmp_path, capsys) -> None:
    run = loop.train(tmp_path / "run", recipe(model, preset="sft", steps=1))
    with pytest.raises(ValueError, match="there already"):
        export_run(run, run)
    assert main(["export", str(tmp_path / "nothing"), "--to", str(tmp_path / "out")]) != 0
    assert "not a run folder" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_eval_takes_a_model_or_a_run_with_another_task(model: str, tmp_path, capsys) -> None:
    threads = torch.get_num_threads()
    try:
        assert main(["eval", "--model", model, "--task", "echo", "--problems", "8"]) == 0
        assert "test" in capsys.readouterr().out
        run = loop.train(tmp_path / "run", recipe(model, preset="sft", steps=1))
        assert main(["eval", str(run), "--problems", "8"]) == 0
        assert [path.name for path in Path(run, "evals").iterdir()] == ["eval_greedy-000001.json"]
        for words in ([], [str(run), "--model", model], ["--model", model]):
            assert main(["eval", *words]) != 0
            assert "--task" in capsys.readouterr().err
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("padding", ["left", "right"])
def test_the_lab_goes_out_as_a_model_that_loads_without_the_lab(tmp_path, padding: str) -> None:
    """The same logits on padded prompts of different lengths, and the same greedy texts."""
    wanted = Recipe(preset="sft", base=None, difficulty={"n": 4, "k": (1, 3)}, steps=30, learning_rate=2e-3)
    policy = loop.open_run(loop.train(tmp_path / "run", wanted))[0]
    folder = export_run(tmp_path / "run", tmp_path / "out")
    there = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    tokenizer.padding_side = padding
    problems = [wanted.the_task.problem(np.random.default_rng(seed), n=2 + seed, k=2) for seed in range(4)]
    problems = [replace(problem, meta=problem.meta | {"offset": 0}) for problem in problems]
    asked = tokenizer([problem.prompt for problem in problems], return_tensors="pt", padding=True)
    with torch.no_grad():
        given = there(**asked).logits
        for row, problem in enumerate(problems):
            ids = torch.tensor([policy.encode(problem.prompt)])
            mine = policy.model(ids, torch.tensor([0]))[0]
            torch.testing.assert_close(given[row][asked["attention_mask"][row].bool()], mine, rtol=0, atol=1e-5)
    if padding == "left":
        drawn = policy.sample(problems, 1, np.zeros((4, 7)), [7] * 4, Decoding(0.0))
        written = there.generate(**asked, max_new_tokens=7, do_sample=False)[:, asked["input_ids"].shape[1] :]
        for row in range(4):
            length = int(drawn.mask[row].sum())
            assert written[row, :length].tolist() == drawn.tokens[row, :length].tolist()
    assert "trust_remote_code=True" in (folder / "README.md").read_text()

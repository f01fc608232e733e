"""A language model in the one loop: it learns, goes on after a kill, keeps its start as reference, and is refused by name."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed: pip install 'rlvr[hf]'", allow_module_level=True)

from tiny_models import save

import rlvr.lab.train as loop
from rlvr.lab import store
from rlvr.lab.evaluate import accuracy_by_set, evaluate
from rlvr.lab.recipe import Recipe
from rlvr.lab.testsets import held_out
from rlvr.policy import HFPolicy
from rlvr.tasks import TASKS, registry

CLOCK = {"seconds", "time/sample", "time/update", "time/step", "tokens_per_second"}
SETS = held_out(TASKS["echo"], {}, count=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A tiny Llama that was shown a few demonstrations: sometimes right, far from always."""
    folder = tmp_path_factory.mktemp("model")
    taught = loop.train(folder / "taught", recipe(str(save(folder / "new")), preset="sft", steps=8, record=()))
    policy, _ = loop.open_run(taught)
    return str(save(folder / "model", policy.model))


def recipe(name: str, **changes: Any) -> Recipe:
    usual = {"preset": "grpo", "task": "echo", "base": None, "model": name, "steps": 4, "prompts_per_step": 4}
    usual |= {"learning_rate": 3e-3, "checkpoint_every": 1, "record": (0,), "group_size": 6}
    return Recipe(**usual | changes)


def told(folder: Path) -> dict[str, Any]:
    rows = [{key: row[key] for key in row if key not in CLOCK} for row in store.read_metrics(folder)]
    kept = store.read_rollouts(folder)
    weights = (folder / "model.safetensors").read_bytes()
    return {"metrics": rows, "weights": weights, "rollouts": repr(kept and kept.to_pylist())}


def column(folder: Path, name: str) -> list[float]:
    return [row[name] for row in store.read_metrics(folder)]


def test_a_language_model_learns_in_the_loop_of_the_lab(model: str, tmp_path) -> None:
    wanted = recipe(model, preset="dr_grpo", steps=40, prompts_per_step=8, group_size=16, eval_every=20)
    folder = loop.train(tmp_path / "run", wanted, sets=SETS)
    rewards = column(folder, "reward")
    assert rewards[0] < 0.2 and sum(rewards[-5:]) / 5 > 0.9
    assert max(column(folder, "sampling/sampling_logp_difference/max")) < 1e-4
    policy, read = loop.open_run(folder)
    evaluations = store.read_evals(folder)
    before, after = (accuracy_by_set(evaluations[place])["test"] for place in (0, -1))
    assert read == wanted and before < 0.5 and after > 0.7
    assert evaluate(policy, TASKS["echo"], SETS, 40)["columns"] == evaluations[-1]["columns"]


def _greedy(policy: Any, problem: Any) -> list[int]:
    drawn = policy.sample([problem], 1, torch.zeros(1, 2).numpy(), [2], loop.Decoding(0.0))
    return drawn.tokens[0][drawn.mask[0]].tolist()


def test_demonstrations_teach_it_the_end(model: str, tmp_path) -> None:
    folder = loop.train(tmp_path / "run", recipe(model, preset="sft", steps=30, prompts_per_step=16))
    policy, _ = loop.open_run(folder)
    assert column(folder, "loss")[-1] < 0.2 * column(folder, "loss")[0]
    assert [policy.decode(_greedy(policy, problem)) for problem in SETS["test"]] == [
        p.answer + "$" for p in SETS["test"]
    ]


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 2}, {"checkpointing": True}], ids=str)
def test_b110_a_run_that_was_stopped_ends_bit_equal(model: str, tmp_path, settings: Mapping[str, Any]) -> None:
    wanted = recipe(model, model_settings=settings)
    unbroken = told(loop.train(tmp_path / "unbroken", wanted))

    class Stopped(Exception):
        pass

    def stop(step: int, metrics: Mapping[str, Any]) -> None:
        if step == 2:
            raise Stopped

    with pytest.raises(Stopped):
        loop.train(tmp_path / "stopped", wanted, on_step=stop)
    assert (tmp_path / "stopped" / "checkpoint.safetensors").is_file()
    assert told(loop.train(tmp_path / "stopped", wanted)) == unbroken


def test_the_run_keeps_texts_and_the_ids_that_were_sampled(model: str, tmp_path) -> None:
    folder = loop.train(tmp_path / "run", recipe(model, steps=1))
    policy = loop.make_policy(recipe(model))
    rows = store.read_rollouts(folder).to_pylist()
    assert len(rows) == 24
    for row in rows:
        assert row["prompt"] in {"a:", "b:", "c:", "d:"} and row["completion"] == policy.decode(row["token_ids"])
        problem = loop.Problem(row["prompt"], "")
        tokens = torch.tensor([row["token_ids"]])
        found = policy.score([problem], torch.tensor([0]), tokens, torch.ones_like(tokens, dtype=torch.bool))
        assert row["logps"] == pytest.approx(found.logps[0].tolist(), abs=1e-4)


def test_b63_the_reference_of_adapters_is_the_start_policy(model: str, tmp_path) -> None:
    """The start has adapters that were trained; switching them off would be another policy."""
    wanted = recipe(model, model_settings={"lora_rank": 4}, learning_rate=3e-2)
    start = loop.train(tmp_path / "start", wanted)
    going = loop.train(tmp_path / "going", replace(wanted, base=str(start)), start)
    kl = column(going, "kl")
    assert kl[0] == 0 and min(kl[1:]) > 0
    bare = loop.train(tmp_path / "bare", wanted)
    assert column(going, "reward") != column(bare, "reward")
    reset = replace(wanted, base=str(start), overrides={"kl.reference_every": 2})
    moved = loop.train(tmp_path / "reset", reset, start)
    assert [value == 0 for value in column(moved, "kl")] == [True, False, True, False]
    assert column(moved, "kl/reference_moved") == [0, 1, 0, 1]


def test_what_is_saved_is_what_was_trained_each_weight_once(model: str, tmp_path) -> None:
    full = load_file(loop.train(tmp_path / "full", recipe(model, steps=1)) / "model.safetensors")
    assert "model.embed_tokens.weight" in full and "lm_head.weight" not in full
    adapted = recipe(model, steps=1, model_settings={"lora_rank": 2})
    low = load_file(loop.train(tmp_path / "low", adapted) / "model.safetensors")
    assert low and all("lora_" in name for name in low)
    with pytest.raises(ValueError, match="do not fit"):
        loop.train(tmp_path / "mixed", replace(adapted, base=str(tmp_path / "full")), tmp_path / "full")


@pytest.mark.parametrize("micro", [{"micro_rows": 5}, {"micro_tokens": 6}, {"micro_tokens": 1}], ids=str)
def test_micro_batches_change_memory_only(model: str, tmp_path, micro: Mapping[str, int]) -> None:
    one, other = (
        loop.train(tmp_path / name, recipe(model, steps=1, preset="dr_grpo", **changes))
        for name, changes in (("whole", {}), ("parts", micro))
    )
    for name in ("loss", "grad_norm", "rows_scored"):
        assert column(other, name) == pytest.approx(column(one, name), rel=1e-4, abs=1e-6)


def test_micro_tokens_bound_what_is_scored_at_once(model: str, tmp_path, monkeypatch) -> None:
    score, sizes = HFPolicy.score, []

    def watched(self, problems, index, tokens, mask, decoding):
        sizes.append(mask.numel())
        return score(self, problems, index, tokens, mask, decoding)

    monkeypatch.setattr(HFPolicy, "score", watched)
    loop.train(tmp_path / "run", recipe(model, steps=1, micro_tokens=6))
    assert max(sizes) == 6 and len(sizes) > 4


@pytest.mark.parametrize(
    "settings",
    [{"lora_rank": 2}, {"bf16": True}, {"chat": False}, {"max_new_tokens": 1}, {"lora_rank": 2, "lora_alpha": 1.0}],
    ids=str,
)
def test_b57_every_setting_changes_a_number(model: str, tmp_path, settings: Mapping[str, Any]) -> None:
    base = {"lora_rank": 2} if "lora_alpha" in settings else {}
    one, other = (
        told(loop.train(tmp_path / name, recipe(model, steps=2, record=(), model_settings=given)))
        for name, given in (("usual", base), ("changed", settings))
    )
    assert one["metrics"] != other["metrics"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "ppo"}, "critic"),
        ({"base": "cot_L2"}, "base"),
        ({"shape": {"width": 32}}, "shape"),
        ({"model_settings": {"rank": 3}}, "rank"),
        ({"model": None, "model_settings": {"bf16": True}}, "model_settings"),
        ({"micro_tokens": 0}, "micro_tokens"),
        ({"model": None, "task": "arithmetic"}, "text task"),
    ],
    ids=str,
)
def test_a_recipe_refuses_what_does_not_go_with_a_model(model: str, changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(model, **changes)


def test_a_run_goes_on_only_with_the_questions_that_it_began_with(model: str, tmp_path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"question": "6 * 7?", "answer": "42"}\n')
    asked = recipe(model, task=f"file:{path}")
    loop._claim(tmp_path / "run", asked, None)
    loop._claim(tmp_path / "run", asked, None)
    path.write_text('{"question": "6 * 7?", "answer": "41"}\n')
    registry._made.cache_clear()  # what another process would find
    with pytest.raises(ValueError, match="questions differ"):
        loop._claim(tmp_path / "run", asked, None)

"""Writes a plausible experiment folder without training anything: for tests of what reads run folders, and only for them.

The numbers are invented; the prompts, the completions and their verdicts come from the pointer world, so
kinds are true.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlvr.lab.jsonl import write_json, write_jsonl
from rlvr.lab.store import write_config, write_eval, write_rollouts
from rlvr.rng import generator
from rlvr.tasks.pointer import Pointer
from rlvr.types import Problem

__all__ = ["EVIL", "SMALL", "Shape", "fake_base", "fake_experiment", "fake_run"]

EVIL = "<think>2<3 & 4>1</think><script>window.hacked=1</script></script><img src=x onerror=hacked=1>"
TASK = Pointer()
BASE = {8: 0.995, 9: 0.93, 10: 0.74, 11: 0.58, 12: 0.31, 14: 0.12, 16: 0.04}
FINAL = {
    "sft": {14: 0.68, 16: 0.29},
    "rft": {14: 0.52, 16: 0.15},
    "grpo": {14: 0.63, 16: 0.27},
}
SETUP = (
    "A two-layer transformer follows a chain of letters k steps and then writes the answer. It was trained on short lists of "
    "n = 4 to 8 letters. On longer lists it goes on past the answer. Three methods then train it on n = 4 to 12; lists of 14 "
    "and 16 letters are never trained."
)
ENVIRONMENT = {"versions": {"torch": "2.13.0", "numpy": "2.4.6", "rlvr": "0.1.0"}, "commit": "0" * 12, "threads": 1}
RATE = {"sft": 0.06, "rft": 0.05, "grpo": 0.09}


class Shape(NamedTuple):
    """How big the fake is; the defaults make a folder in about a second."""

    steps: int = 40
    every: int = 10
    per_k: int = 3
    prompts: int = 6
    group: int = 4
    curve_sets: tuple[int, ...] = (8, 12, 14, 16)
    sets: tuple[int, ...] = (8, 10, 12, 14, 16)


SMALL = Shape()


def fake_experiment(
    root: Path, arms: Sequence[str] = ("sft", "rft", "grpo"), seeds: int = 3, shape: Shape = SMALL, **changes: Any
) -> Path:
    """An experiment folder with all its runs and bases, ``experiment.json`` included; ``changes`` go into that file."""
    folder = Path(root, "three_methods")
    for seed in range(seeds):
        fake_base(folder, seed, shape)
        for arm in arms:
            fake_run(folder, arm, seed, shape)
    record = {
        "name": "three_methods",
        "title": "SFT, RFT and GRPO on the same base",
        "question": "Can a model that never stops thinking learn when to stop, from right and wrong alone?",
        "setup": SETUP,
        "command": f"rlvr reproduce three_methods --seeds {seeds}",
        "quick": False,
        "preliminary": seeds < 3,
        "arms": list(arms),
        "seeds": list(range(seeds)),
        "claims": CLAIMS,
        "notes": ["The methods share one learning rate, so a difference between them may be one of tuning."],
    }
    write_json(folder / "experiment.json", record | changes)
    return folder


def fake_base(folder: Path, seed: int, shape: Shape = SMALL) -> Path:
    """The run folder of a base model: weights and evaluations, no training log."""
    run = Path(folder, f"base-s{seed}")
    write_config(run, {"arm": "base", "seed": seed, "task": "pointer", "base": f"cot-s{seed}", "steps": 2000})
    for name, samples, sets in (("greedy", 1, shape.sets), ("sampled", 8, shape.curve_sets)):
        write_eval(run, _evaluation("base", seed, 0, (name, samples), sets, shape.per_k))
    write_json(run / "env.json", ENVIRONMENT | {"seed": seed})
    (run / "model.safetensors").write_bytes(b"not a model")
    return run


def fake_run(folder: Path, arm: str, seed: int, shape: Shape = SMALL) -> Path:
    """One finished run folder ``<arm>-s<seed>``."""
    run, gold = Path(folder, f"{arm}-s{seed}"), arm.startswith("sft")
    algorithm = {"name": arm, "advantage": "Group(epsilon=0.0001)" if arm.startswith("grpo") else "Raw()"}
    algorithm |= {"loss": "Likelihood()" if gold else "Reinforce()", "source": "gold" if gold else "policy"}
    rate = float(arm.partition("-")[2] or 3e-4)
    config = {"arm": arm, "seed": seed, "task": "pointer", "algorithm": algorithm, "base": f"cot-s{seed}"}
    config |= {"steps": shape.steps, "prompts_per_step": shape.prompts, "group_size": 1 if gold else shape.group}
    recipe = {"difficulty": {"n": [4, 12], "k": [1, 7]}, "rewards": {"correct": 1.0}}
    write_config(run, config | {"learning_rate": rate, "temperature": 1.0, "recipe": recipe})
    write_jsonl(run / "metrics.jsonl", iter(_metrics(arm, seed, shape)))
    for step in range(0, shape.steps + 1, shape.every):
        sets = shape.sets if step == shape.steps else shape.curve_sets
        write_eval(run, _evaluation(arm, seed, step, ("greedy", 1), sets, shape.per_k))
        if step < shape.steps:
            write_rollouts(run, step, _rollouts(arm, seed, step, shape))
    write_eval(run, _evaluation(arm, seed, shape.steps, ("sampled", 8), shape.curve_sets, shape.per_k))
    write_json(run / "env.json", ENVIRONMENT | {"seed": seed, "seconds": 61.0 + seed})
    (run / "model.safetensors").write_bytes(b"not a model")
    return run


def _right(arm: str, seed: int, step: int, n: int) -> float:
    method, _, rate = arm.partition("-")
    before = BASE.get(n, 0.99 if n < 8 else 0.0) + generator(seed, "base", n).normal(0, 0.05 if n > 9 else 0.002)
    after = FINAL.get(method, FINAL["grpo"]).get(n, 0.985) - 60 * max(0.0, float(rate or 0) - 5e-4)
    shift = generator(seed, arm, n).normal(0, 0.03 if n > 12 else 0.004)
    moved = 1 - np.exp(-RATE.get(method, 0.07) * step)
    return float(np.clip(before + (after + shift - before) * moved, 0, 1))


def _write(problem: Problem, right: bool, draw: float) -> str:
    k, orbit = problem.meta["k"], problem.meta["orbit"]
    if right:
        return TASK.gold(problem)
    if draw < 0.7:
        return orbit
    if draw < 0.86 or k < 2:
        return f"{orbit[: k + 1]}|{orbit[k]}$"
    if draw < 0.9:
        return f"{orbit[: k - 1]}|{orbit[k - 2]}$"
    return f"{orbit[: k - 1]}{orbit[k]}|{orbit[k]}$"


def _evaluation(
    arm: str, seed: int, step: int, how: tuple[str, int], sets: Sequence[int], per_k: int
) -> dict[str, Any]:
    name, samples = how
    columns: dict[str, list] = {key: [] for key in ("set", "n", "k", "offset", "correct", "samples", "length")}
    columns |= {"entropy": [], "majority": [], "kinds": []}
    luck = generator(seed, "start" if step == 0 else arm, step, name)
    for n in sets:
        for k in (3, 4, 5, 6):
            world = generator(0, "test set", n, k)
            for _ in range(per_k):
                problem, hardness = TASK.problem(world, n=n, k=k), world.random()
                kinds = _kinds(problem, hardness, _right(arm, seed, step, n) - 0.02 * (k - 4.5), samples, luck)
                correct = kinds.get("correct", 0)
                row = (f"n{n}", n, k, problem.meta["offset"], correct, samples, 7.0 + n / 8, 0.02 + 0.001 * n)
                for key, value in zip(columns, (*row, correct * 2 > samples, kinds), strict=True):
                    columns[key].append(value)
    settings = {"temperature": 0.0 if name == "greedy" else 1.0, "samples_per_problem": samples}
    return {"name": name, "step": step, **settings, "columns": columns}


def _kinds(problem: Problem, hardness: float, chance: float, samples: int, luck: np.random.Generator) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for _ in range(samples):
        right = (hardness < chance) == (luck.random() > 0.02)
        kind = TASK.verify(problem, _write(problem, right, hardness)).kind
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def _metrics(arm: str, seed: int, shape: Shape) -> list[dict[str, Any]]:
    luck, rows, gold = generator(seed, arm, "metrics"), [], arm.startswith("sft")
    size = shape.prompts * (1 if gold else shape.group)
    for step in range(shape.steps):
        row = {"step": step, "loss": float(luck.normal(0, 0.01)), "grad_norm": 0.2 + luck.random()}
        row |= {} if gold else _sampled_metrics(arm, seed, step, luck)
        spent, drawn = step + 1, 0 if gold else 1
        row |= {"samples": drawn * spent * size, "tokens": drawn * spent * size * 7, "updates": spent}
        row |= {"demonstrations": (1 - drawn) * spent * size, "seconds": spent * (0.05 if gold else 0.11) + 0.01 * seed}
        rows.append(row | {"learning_rate": 3e-4, "time/step": 0.11, "tokens_per_second": 9000.0})
    return rows


def _sampled_metrics(arm: str, seed: int, step: int, luck: np.random.Generator) -> dict[str, float | None]:
    share = np.mean([_right(arm, seed, step, n) for n in (6, 8, 10, 12)])
    accuracy = float(np.clip(share + luck.normal(0, 0.02), 0, 1))
    mixed = float(np.clip(0.07 + 0.25 * np.exp(-0.5 * ((step - 12) / 8) ** 2) + luck.normal(0, 0.02), 0, 1))
    right = min(max(0.0, accuracy - mixed / 2), 1 - mixed)
    row = {"reward": accuracy, "accuracy": accuracy, "groups/all_right": right, "groups/mixed": mixed}
    row |= {"groups/all_wrong": 1 - right - mixed, "frac_reward_zero_std": 1 - mixed}
    row |= {"entropy": 0.03 + 0.09 * np.exp(-((step - 10) ** 2) / 90) + 0.004 * luck.random()}
    row |= {"completions/mean_length": 7.4 - accuracy, "completions/clipped_ratio": 1 - accuracy}
    row |= {"completions/mean_length_right": 6.1 + 0.1 * luck.random()}
    row |= {"completions/mean_length_wrong": 9.3 + 0.4 * luck.random() if accuracy < 0.99 else None}
    return row


def _rollouts(arm: str, seed: int, step: int, shape: Shape) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    group = 1 if arm.startswith("sft") else shape.group
    luck = generator(seed, arm, step, "rollouts")
    for index in range(shape.prompts):
        problem = TASK.problem(generator(seed, "training", step, index), n=(4, 12), k=(1, 7))
        chance = _right(arm, seed, step, problem.meta["n"])
        chance = 1.0 if arm.startswith("sft") or chance > 0.97 else chance
        texts = [_write(problem, luck.random() < chance, luck.random()) for _ in range(group)]
        if index == 1 and step == 0 and group > 1:
            texts[0] = EVIL
        rows += _group(arm, problem, index, texts)
    tokens = sum(len(row["token_ids"]) for row in rows)
    for row in rows:
        row["signal"] = [row["advantage"] / tokens] * len(row["token_ids"])
        row["logps"] = list(-luck.exponential(0.05, len(row["token_ids"])))
    return rows


def _group(arm: str, problem: Problem, index: int, texts: list[str]) -> list[dict[str, Any]]:
    verdicts = [TASK.verify(problem, text) for text in texts]
    rewards = np.array([float(verdict.correct) for verdict in verdicts])
    advantages = rewards - rewards.mean() if arm.startswith("grpo") else rewards
    if arm.startswith("grpo"):
        advantages = advantages / (rewards.std(ddof=1) + 1e-4)
    rows = []
    for sample, (text, verdict) in enumerate(zip(texts, verdicts, strict=True)):
        row = {"prompt_idx": index, "sample_idx": sample, "prompt": problem.prompt, "completion": text}
        row |= {"token_ids": [ord(character) % 32 for character in text], "reward": float(rewards[sample])}
        row |= {
            "rewards": {"correct": float(rewards[sample])},
            "verdict": verdict.correct,
            "kind": verdict.kind,
        }
        row |= {
            "advantage": float(advantages[sample]),
            "finish_reason": "stop" if text.endswith("$") else "length",
        }
        rows.append(row)
    return rows


CLAIMS = [
    {
        "id": "all-fix-n12",
        "claim": "SFT, RFT and GRPO all repair n = 12.",
        "rule": "Each method ends at 90 % or more on n = 12 in at least two thirds of its seeds.",
        "lecture": "29.5 % -> over 98 %",
        "measured": "from 31.0 % [25.2, 37.6] to sft 98.5 % (3 of 3 seeds >= 90 %), rft 97.9 % (3 of 3), grpo 98.2 % (3 of 3)",
        "value": 0.979,
        "lo": 0.962,
        "hi": 0.995,
        "n": 3,
        "verdict": "holds",
        "why": "The worst of the three methods ends far above the bound.",
    },
    {
        "id": "zero-variance",
        "claim": "Most groups carry no signal at the start.",
        "rule": "holds if over 80 % of the groups of the first 25 steps are all right or all wrong",
        "lecture": "92.6 % of groups in the first 25 steps",
        "measured": "80.1 %",
        "value": 0.801,
        "lo": 0.772,
        "hi": 0.829,
        "n": 3,
        "verdict": "undecided",
        "why": "The interval holds the bound of 80 %.",
    },
    {
        "id": "rft-worse-ood",
        "claim": "RFT generalises worse than GRPO.",
        "rule": "holds if the whole interval of RFT minus GRPO at n = 16 is below zero",
        "lecture": "14.2 vs 26.8 %",
        "measured": "15.3 vs 26.8 %, gap -11.5 % [-16.1, -6.9]",
        "value": -0.115,
        "lo": -0.161,
        "hi": -0.069,
        "n": 3,
        "verdict": "holds",
        "why": "",
    },
    {
        "id": "base-ood",
        "claim": "The base is near perfect on n = 8 and fails on n = 12.",
        "rule": "holds if n = 8 is above 95 % and n = 12 below 40 %",
        "lecture": "29.5 %",
        "measured": "44.0 % on n = 12",
        "value": 0.44,
        "lo": 0.373,
        "hi": 0.509,
        "n": 200,
        "verdict": "differs",
        "why": "Our base reads positions it was never trained on better than the lecture's does.",
    },
]

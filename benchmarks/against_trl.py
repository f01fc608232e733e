"""TRL's GRPOTrainer at the same work: a Hugging Face Llama of the lab model's shape, the same prompts and rewards.

The Llama is first taught with demonstrations for a moment, so that its completions end where ours do: untaught ones would all
run to the limit. Everything is made in memory; no hub is asked for anything.
"""

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from rlvr.rng import generator
from rlvr.tasks import Task
from rlvr.types import Problem

__all__ = ["Measured", "measure"]

PAD = "_"
# On by default in TRL, it would spend time to save memory that nothing here needs; newer releases call it by the first name.
CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")
WARMUP = 2
TEACHING_STEPS, TEACHING_BATCH, TEACHING_RATE = 400, 32, 3e-3


class Measured(NamedTuple):
    """Seconds of each step, and how long completions were and how often right, over all measured steps."""

    version: str
    seconds: list[float]
    tokens: float
    accuracy: float


def measure(
    task: Task, batches: Sequence[Sequence[Problem]], group_size: int, limit: int, between: Callable[[int], None]
) -> Measured:
    """One trainer step for each batch of problems; ``between`` is called with the step's number after each.

    The first steps warm up and are not counted. Raises ``ImportError`` where TRL is not installed.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
    import trl
    from transformers import PrinterCallback, TrainerCallback

    tokenizer = character_tokenizer(task)
    model = llama(tokenizer, task)
    teach(model, tokenizer, task, batches[0])
    seconds, judged = [], []

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, arguments: Any, state: Any, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter() - self.started)
            between(state.global_step - 1)

    def reward(completions: list[str], completion_ids: list[list[int]], place: list[int], **_: Any) -> list[float]:
        verdicts = [task.verify(problems[p], text).correct for p, text in zip(place, completions, strict=True)]
        judged.append((sum(map(len, completion_ids)) / len(completions), sum(verdicts) / len(verdicts)))
        return [float(verdict) for verdict in verdicts]

    problems = [problem for batch in batches for problem in batch]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # The library's own calls to what Transformers will rename.
        settings = configuration(trl, folder, len(batches[0]), group_size, limit, len(batches))
        trainer = trl.GRPOTrainer(model, reward, settings, dataset(problems), processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Watch())
        trainer.train()
    lengths, shares = zip(*judged[WARMUP:], strict=True)
    return Measured(trl.__version__, seconds[WARMUP:], sum(lengths) / len(lengths), sum(shares) / len(shares))


def character_tokenizer(task: Task) -> Any:
    """One character, one token, in the form that Transformers wants."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(
        models.WordLevel({character: i for i, character in enumerate(task.alphabet + PAD)}, unk_token=PAD)
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=task.eos, pad_token=PAD, padding_side="left")


def llama(tokenizer: Any, task: Task) -> Any:
    """Two layers, width 64, four heads; the gated MLP is narrowed to the number of weights of an ungated one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=4 * 64 * 2 // 3,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def teach(model: Any, tokenizer: Any, task: Task, like: Sequence[Problem]) -> None:
    """Supervised fine-tuning on fresh problems of the kinds in ``like``."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=TEACHING_RATE, betas=(0.9, 0.98), fused=True)
    sizes = [problem.meta["n"] for problem in like]
    for step in range(TEACHING_STEPS):
        source = generator(0, "teach", step)
        asked = [task.problem(source, n=sizes[i % len(sizes)], k=(1, 7)) for i in range(TEACHING_BATCH)]
        texts = [tokenizer.encode(problem.prompt + task.gold(problem)) for problem in asked]
        width = max(map(len, texts))
        tokens = torch.tensor([ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in texts])
        slots, starts = torch.arange(width), torch.tensor([len(problem.prompt) for problem in asked])
        ends = torch.tensor([*map(len, texts)])
        labels = tokens.masked_fill((slots < starts[:, None]) | (slots >= ends[:, None]), -100)
        optimizer.zero_grad()
        logits = model(input_ids=tokens, attention_mask=(slots < ends[:, None]).long()).logits
        F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
        optimizer.step()


def configuration(trl: Any, folder: str, prompts: int, group_size: int, limit: int, steps: int) -> Any:
    """One update a batch, no KL term, temperature 1, nothing saved and nothing reported."""
    return trl.GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        **{name: False for name in CHECKPOINTING if name in trl.GRPOConfig.__dataclass_fields__},
        per_device_train_batch_size=prompts * group_size,
        gradient_accumulation_steps=1,
        num_generations=group_size,
        max_completion_length=limit,
        max_steps=steps,
        learning_rate=3e-4,
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
    """The prompts in order, each with its place among the problems."""
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [problem.prompt for problem in problems], "place": [*range(len(problems))]})

"""A real language model in the same tunnel: does RL sharpen or extend SmolLM2-135M-Instruct, and does chance move anything?

The task is one at which it is sometimes right. Its answers are graded twice: leniently (the number it says) and strictly (the
number and nothing else, which is what the prompt asks for), so that learning the form is not taken for learning the task.
"""

from rlvr.experiments import smollm_rules as rules
from rlvr.experiments.base import Claim, Experiment
from rlvr.lab.recipe import Recipe

__all__ = ["ARMS", "SMOLLM"]

STEPS = 20
MODEL = "smollm2-135m"
COMMON = {
    "task": "arithmetic(kind='largest')",
    "base": None,
    "model": MODEL,
    "steps": STEPS,
    "prompts_per_step": 8,
    "group_size": 8,
    "learning_rate": 1e-5,
    "checkpoint_every": 5,
    "record": (0, STEPS - 1),
}
ARMS = {
    "grpo": Recipe(preset="grpo_lecture", rewards={"lenient": 1.0}, **COMMON),
    "rft": Recipe(preset="rft", rewards={"lenient": 1.0}, **COMMON),
    "random": Recipe(preset="grpo_lecture", rewards={"random": 1.0}, **COMMON),
}

CLAIMS = (
    Claim(
        "smollm-improves",
        "GRPO improves a real language model on a task at which it is sometimes right.",
        "not in the lecture's runs; TRL's GRPO took this task from 9 to 52 % in 15 steps",
        "Lenient pass@1 at temperature 1, GRPO minus base on the same problems: interval over problems above 0.",
        rules.improves,
    ),
    Claim(
        "smollm-control",
        "A random reward does not do the same.",
        "spurious rewards helped some models (Shao et al. 2025)",
        "Lenient pass@1, GRPO minus random control on the same problems: interval over problems above 0.",
        rules.control,
    ),
    Claim(
        "smollm-sharpens",
        "RL sharpens: it gains more at one sample than at sixteen.",
        "Yue et al. 2025: the base catches up at large k",
        "Lenient gain over the base at pass@1 minus the gain at pass@16 (as many samples as a quick run has), by problem: "
        "interval above 0.",
        rules.sharpens,
    ),
    Claim(
        "smollm-form",
        "What GRPO gains is more than the form of the answer.",
        "not in the lecture",
        "Lenient gain: interval above 0, as lenient grading pays no form; the strict gain is shown beside it.",
        rules.beyond_form,
    ),
)

SMOLLM = Experiment(
    name="smollm",
    title="A real language model in the tunnel",
    question=(
        "SmolLM2-135M-Instruct is asked for the largest of four two-digit numbers, and is right one time in ten or so. With "
        "equal budgets, what do GRPO, learning from its own successes (RFT) and a random reward make of it?"
    ),
    setup=(
        f"{STEPS} steps of 8 prompts and 8 completions of at most 16 tokens at temperature 1, AdamW at 1e-5 on all weights in "
        "float32, the chat template applied. The reward is lenient: the right number in any form. 64 held-out problems, 16 "
        "samples each. The model, the problems and the draws are the same for all arms of a seed."
    ),
    bases={MODEL: Recipe(**(COMMON | {"preset": "grpo_lecture", "steps": 1, "record": ()}))},
    arms=ARMS,
    claims=CLAIMS,
    base_seeds=1,
    held_out={"largest": {}},
    problems=64,
    samples=16,
    panels=rules.panels,
    answer=rules.answer,
)

"""Exercises 2 and 3 of the lecture: is the negative half of the signal needed, and what does dynamic sampling buy?

Both start from the base of experiment 01 and are compared with its runs where their recipes are the same.
"""

from dataclasses import replace

from rlvr.experiments import exercises_rules as rules
from rlvr.experiments.base import Claim, Experiment
from rlvr.experiments.rl_vs_sft import ARMS as METHODS
from rlvr.experiments.rl_vs_sft import RL_VS_SFT
from rlvr.lab.pretrain import BASES

__all__ = ["EXERCISES"]

# A constant rate: with a decaying one, how long a run was planned to be would decide how fast it learns.
EARLY = replace(METHODS["grpo"], schedule="constant", eval_every=5, record=(0,))
ARMS = {
    "positive_only": replace(METHODS["grpo"], preset="positive_only", eval_every=0),
    "plain": replace(EARLY, steps=200),
    "dynamic": replace(EARLY, steps=60, overrides={"select": "DropConstant", "sampling_rounds": 10}),
}

CLAIMS = (
    Claim(
        "ex1-std-weight",
        "Dividing by the group's std makes a hard problem weigh 2.3 times more against an even one.",
        "0.436 with std, 0.19 without (2.3x)",
        "Exact: the right answers' summed advantages at p = 0.05 over those at p = 0.5, with and without std; holds when both "
        "agree with the lecture to the last digit that it prints.",
        rules.std_weight,
    ),
    Claim(
        "ex2-positive-only",
        "GRPO without its negative advantages lies between GRPO and RFT, and three seeds can't tell.",
        "n = 12 / 14 / 16: 99.5 / 52.8 / 23.2 %",
        "Positive-only minus GRPO and minus RFT, mean of n = 14 and 16, paired by seed: holds when it lies between them and "
        "neither interval excludes 0, differs when an interval puts it above GRPO or below RFT.",
        rules.positive_only,
    ),
    Claim(
        "ex3-dynamic-sampling",
        "Dynamic sampling is faster by gradient step and dearer by sample.",
        "step 5: 87.5-95 % after 15-19 k samples; plain 98-99.5 % after 12.8 k (step 50)",
        "Steps, and samples, until half of the gap on n = 12 is closed, dynamic over plain by seed: holds when the interval of "
        "the steps' ratio lies below 1 and that of the samples' ratio above 1; differs when one lies on the other side.",
        rules.dynamic_sampling,
    ),
)

EXERCISES = Experiment(
    name="exercises",
    title="Does RL need its negative signal, and what does dynamic sampling buy?",
    question=(
        "GRPO pushes away from wrong answers as well as towards right ones: what is lost without the push away? And if prompts "
        "whose answers are all right or all wrong teach nothing, is it worth sampling until there are enough of the others?"
    ),
    setup=(
        "The base, problems and evaluation of experiment 01. Positive-only is its GRPO recipe with advantages clamped at 0. "
        "Plain and dynamic take the same constant learning rate; dynamic draws up to ten rounds of prompts until 32 have mixed "
        "answers. Greedy accuracy every 5 steps."
    ),
    bases={"cot_L2": BASES["cot_L2"]},
    arms=ARMS,
    curve_sizes=(12,),
    claims=CLAIMS,
    uses=(RL_VS_SFT,),
    panels=rules.panels,
    answer=rules.answer,
)

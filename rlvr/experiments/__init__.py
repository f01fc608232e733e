"""Claims: one experiment a file. ``EXPERIMENTS`` is the registry, ``LECTURE`` the names of those that check the lecture."""

from rlvr.experiments.base import Claim, Experiment, Finding, Job, Place, Results, judge
from rlvr.experiments.exercise_2 import EXERCISE_2
from rlvr.experiments.exercises import EXERCISES
from rlvr.experiments.lr_search import LR_SEARCH
from rlvr.experiments.passk import PASSK
from rlvr.experiments.reward_hacking import REWARD_HACKING
from rlvr.experiments.rl_vs_sft import RL_VS_SFT
from rlvr.experiments.runner import Plan, run_experiment, run_experiments
from rlvr.experiments.smollm import SMOLLM
from rlvr.experiments.test_time import TEST_TIME
from rlvr.experiments.thinking import THINKING
from rlvr.experiments.zoo import ZOO

__all__ = [
    "EXPERIMENTS",
    "LECTURE",
    "Claim",
    "Experiment",
    "Finding",
    "Job",
    "Place",
    "Plan",
    "Results",
    "experiment_named",
    "judge",
    "run_experiment",
    "run_experiments",
]

OF_THE_LECTURE = (RL_VS_SFT, PASSK, THINKING, REWARD_HACKING, TEST_TIME, EXERCISES, LR_SEARCH)
EXPERIMENTS = {experiment.name: experiment for experiment in (*OF_THE_LECTURE, EXERCISE_2, SMOLLM, ZOO)}
LECTURE = tuple(experiment.name for experiment in OF_THE_LECTURE)


def experiment_named(name: str) -> Experiment:
    """The experiment of that name; an unknown one is refused with the known ones.

    >>> list(experiment_named("rl_vs_sft").arms)
    ['sft', 'rft', 'grpo']
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown; accepted: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]

"""Claims: one experiment a file. ``EXPERIMENTS`` is the registry, ``LECTURE`` the names of those that check the lecture."""

from rlvr.experiments.base import Claim, Experiment, Finding, Job, Place, Results, judge
from rlvr.experiments.exercises import EXERCISES
from rlvr.experiments.lr_search import LR_SEARCH
from rlvr.experiments.rl_vs_sft import RL_VS_SFT
from rlvr.experiments.runner import Plan, run_experiment
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
]

EXPERIMENTS = {experiment.name: experiment for experiment in (RL_VS_SFT, EXERCISES, LR_SEARCH, ZOO)}
LECTURE = ("rl_vs_sft", "exercises", "lr_search")


def experiment_named(name: str) -> Experiment:
    """The experiment of that name; an unknown one is refused with the known ones.

    >>> experiment_named("rl_vs_sft").base_name
    'cot_L2'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown; accepted: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]

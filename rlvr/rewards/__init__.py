"""Judges: what a completion is paid."""

from rlvr.rewards.base import Completion, GroupReward, Reward, pay
from rlvr.rewards.registry import REWARDS, load_reward
from rlvr.rewards.rules import Constant, Format, FormatGate, Majority, Random, WrongLabel, correct
from rlvr.rewards.shaping import Cosine, KimiLength, L1Exact, L1Max, Language, Length, Overlong

__all__ = [
    "REWARDS",
    "Completion",
    "Constant",
    "Cosine",
    "Format",
    "FormatGate",
    "GroupReward",
    "KimiLength",
    "L1Exact",
    "L1Max",
    "Language",
    "Length",
    "Majority",
    "Overlong",
    "Random",
    "Reward",
    "WrongLabel",
    "correct",
    "load_reward",
    "pay",
]

"""Judges: what a completion is paid."""

from rlvr.rewards.base import BatchReward, Completion, GroupReward, Reward, pay, pay_all
from rlvr.rewards.learned import Verified
from rlvr.rewards.models import Verifier, combined, open_verifier
from rlvr.rewards.registry import REWARDS, load_reward
from rlvr.rewards.rules import Constant, Format, FormatGate, Majority, Random, WrongLabel, correct
from rlvr.rewards.shaping import Cosine, KimiLength, L1Exact, L1Max, Language, Length, Overlong
from rlvr.rewards.text import gym_score, lenient

__all__ = [
    "REWARDS",
    "BatchReward",
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
    "Verified",
    "Verifier",
    "WrongLabel",
    "combined",
    "correct",
    "gym_score",
    "lenient",
    "load_reward",
    "open_verifier",
    "pay",
    "pay_all",
]

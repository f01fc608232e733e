"""Rewards by name: ``correct``, ``random(probability=0.1)``, or a user's own ``path.py:function``."""

import importlib.util
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from rlvr.rewards.base import GroupReward, Reward
from rlvr.rewards.learned import Verified
from rlvr.rewards.rules import Constant, Format, FormatGate, Majority, Random, WrongLabel, correct
from rlvr.rewards.shaping import Cosine, KimiLength, L1Exact, L1Max, Language, Length, Overlong
from rlvr.rewards.text import gym_score, lenient
from rlvr.tasks.registry import settings_of

__all__ = ["REWARDS", "load_reward"]

REWARDS: Mapping[str, Reward | GroupReward | type] = {
    "correct": correct,
    "format": Format,
    "format_gate": FormatGate,
    "language": Language,
    "length": Length,
    "overlong": Overlong,
    "kimi_length": KimiLength,
    "l1_exact": L1Exact,
    "l1_max": L1Max,
    "cosine": Cosine,
    "majority": Majority,
    "random": Random,
    "constant": Constant,
    "wrong_label": WrongLabel,
    "lenient": lenient,
    "gym_score": gym_score,
    "verifier": Verified,
}
"""Functions, and classes whose settings may be given in brackets."""


def load_reward(name: str) -> Reward | GroupReward:
    """A registered reward by name, with settings in brackets where it has some, or a user's own by ``path.py:function``.

    >>> load_reward("overlong(limit=20, cache=4)")
    Overlong(limit=20, cache=4)
    >>> load_reward("corect")
    Traceback (most recent call last):
    ValueError: reward 'corect' is unknown; accepted: correct, format, ..., or path.py:function
    """
    word, bracket, _ = name.partition("(")
    if word in REWARDS:
        made = REWARDS[word]
        if not is_dataclass(made):
            if bracket:
                raise ValueError(f"reward {name!r}: {word} has no settings")
            return made
        known = [item.name for item in fields(made) if item.init]
        return made(**settings_of("reward", name, name.removeprefix(word), known)) if bracket else made()
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise ValueError(f"reward {name!r} is unknown; accepted: {', '.join(REWARDS)}, or path.py:function")
    return _own(name, path, function)


def _own(name: str, path: str, function: str) -> Reward:
    if not Path(path).is_file():
        raise ValueError(f"reward {name!r}: there is no file {path!r}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"reward {name!r}: {path} does not load: {type(error).__name__}: {error}") from error
    found = vars(module).get(function)
    if not callable(found) and not isinstance(found, GroupReward):
        raise ValueError(f"reward {name!r}: {path} has no function {function!r}")
    return found

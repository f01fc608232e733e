"""Plain words for what a page shows: names of methods, of ways to fail, and of the terms a reader may not know.

A name that stands nowhere here is shown as it is, so a new task or method needs no entry to be reported.
"""

import re
from collections.abc import Sequence

__all__ = ["KIND_WORDS", "METHODS", "TERMS", "arm_label", "kind_label", "kind_meaning", "set_label", "sweep_of"]

ACRONYMS = ("sft", "rft", "grpo", "rloo", "dapo", "ppo", "orm", "prm", "kl", "cispo", "gspo", "sapo", "star")
METHODS = {
    "sft": "supervised fine-tuning: raises the likelihood of perfect demonstrations",
    "rft": "online rejection-sampling fine-tuning: raises the likelihood of its own right answers",
    "grpo": "group-relative policy optimisation: raises the likelihood of the better answers of a group, lowers the rest",
    "rloo": "REINFORCE leave-one-out: compares each answer with the mean of its siblings",
    "dapo": "GRPO with asymmetric clipping, dynamic sampling, a token-level mean and a soft length limit",
    "ppo": "proximal policy optimisation: a learned critic predicts how well an answer will do",
}
OCCASIONAL = ("n", "k", "greedy", "sampled")
KIND_WORDS = {
    "correct": ("right", ""),
    "no_bar": ("never stops", "still writing the chain when cut off"),
    "overshoot": ("stops too late", "went too far along the chain, then answered"),
    "undershoot": ("stops too early", "answered before the end of the chain"),
    "lookup": ("wrong step", "one step of the chain is wrong"),
    "format": ("unreadable", "no answer can be read"),
}
TERMS = {
    "n": "how many letters the prompt lists; a longer list is a longer prompt",
    "k": "how many steps of the chain the problem asks for",
    "accuracy": "share of right answers by the task's verifier",
    "greedy": "the likeliest token is always written; nothing is left to chance",
    "sampled": "each token is drawn with the model's own probabilities (temperature 1)",
    "seed": "one complete repetition of a training run with other random draws",
    "group": "the answers sampled for one problem in one step",
    "step": "one round of training: draw problems, answer them, update the weights",
    "signal": "weight × advantage of a token = −dL/dlogp: how hard a step pushes its probability up or down",
    "interval": "95 % confidence interval, over seeds from three seeds on, else over problems",
}


def arm_label(arm: str) -> str:
    """The name of an arm as a reader writes it.

    >>> arm_label("grpo"), arm_label("dr_grpo"), arm_label("grpo-3e-4"), arm_label("length penalty")
    ('GRPO', 'Dr. GRPO', 'GRPO 3e-4', 'length penalty')
    """
    words = re.split(r"[_ ]|(?<!e)-", arm)
    spelled = [word.upper() if word in ACRONYMS else "Dr." if word == "dr" else word for word in words]
    return " ".join(word for word in spelled if word) or arm


def kind_label(kind: str) -> str:
    """A kind of verdict in plain words.

    >>> kind_label("no_bar"), kind_label("timeout")
    ('never stops', 'timeout')
    """
    return KIND_WORDS.get(kind, (kind.replace("_", " "), ""))[0]


def kind_meaning(kind: str) -> str:
    """What a kind of verdict means; empty when unknown.

    >>> kind_meaning("lookup")
    'one step of the chain is wrong'
    """
    return KIND_WORDS.get(kind, ("", ""))[1]


def set_label(name: str) -> str:
    """The name of a test set; ``n12`` is read as n = 12.

    >>> set_label("n12"), set_label("held out")
    ('n = 12', 'held out')
    """
    found = re.fullmatch(r"([a-z])(\d+)", name)
    return f"{found[1]} = {found[2]}" if found else name


def sweep_of(arms: Sequence[str]) -> dict[str, dict[float, str]]:
    """Method to value to arm when every arm is ``<method>-<number>`` and some method has several; else nothing.

    >>> sweep_of(["sft-0.1", "grpo-3e-4", "grpo-1e-3"])
    {'sft': {0.1: 'sft-0.1'}, 'grpo': {0.0003: 'grpo-3e-4', 0.001: 'grpo-1e-3'}}
    >>> sweep_of(["sft", "grpo-1"])
    {}
    """
    parts = [re.fullmatch(r"(.+?)-(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", arm) for arm in arms]
    found: dict[str, dict[float, str]] = {}
    for arm, part in zip(arms, parts, strict=True):
        if part:
            found.setdefault(part[1], {})[float(part[2])] = arm
    return found if all(parts) and any(len(values) > 1 for values in found.values()) else {}

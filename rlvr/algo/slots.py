"""The slots of an algorithm and the registers of their pieces; how a piece is changed by the names of its settings."""

import ast
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

from rlvr.algo import (
    advantages,
    aggregation,
    baselines,
    critic,
    entropy,
    estimators,
    focus,
    gae,
    importance,
    kl,
    losses,
    mismatch,
    restart,
    selection,
)

__all__ = ["PARTS", "SLOTS", "changed", "parsed", "pieces"]


class _Slot(NamedTuple):
    modules: tuple[ModuleType, ...]
    protocol: type
    article: str
    optional: bool = False


SLOTS: Mapping[str, _Slot] = {
    "advantage": _Slot((advantages, baselines, gae), advantages.Advantage, "an Advantage"),
    "loss": _Slot((losses,), losses.Loss, "a Loss"),
    "aggregate": _Slot((aggregation,), aggregation.Aggregator, "an Aggregator"),
    "select": _Slot((selection,), selection.Selector, "a Selector"),
    "importance": _Slot((importance,), importance.Importance, "an Importance"),
    "focus": _Slot((focus,), focus.Focus, "a Focus"),
    "kl": _Slot((kl,), kl.Penalty, "a Penalty", optional=True),
    "entropy": _Slot((entropy,), entropy.Bonus, "a Bonus", optional=True),
    "critic": _Slot((critic,), critic.Critic, "a Critic", optional=True),
    "mismatch": _Slot((mismatch,), mismatch.Mismatch, "a Mismatch", optional=True),
    "restart": _Slot((restart,), restart.Restart, "a Restart", optional=True),
}
"""The slots that hold a piece, each with the modules whose ``__all__`` is the register of its pieces."""

PARTS: Mapping[str, _Slot] = {
    "estimator": _Slot((estimators,), estimators.Estimator, "an Estimator"),
    "of": SLOTS["advantage"],
}
"""Settings of pieces that are pieces themselves, by the name of the setting."""


def pieces(slot: str) -> dict[str, type]:
    """The registered pieces of a slot by name: the dataclasses that its modules' ``__all__`` list.

    >>> list(pieces("select"))
    ['DifficultyBand', 'DropConstant', 'KeepAll', 'KeepRewarded', 'KeepRight']
    """
    if slot not in SLOTS and slot not in PARTS:
        raise ValueError(f"no slot {slot!r}; accepted: {', '.join([*SLOTS, *PARTS])}")
    modules = {**SLOTS, **PARTS}[slot].modules
    public = {name: vars(module)[name] for module in modules for name in module.__all__}
    return {name: value for name, value in public.items() if isinstance(value, type) and is_dataclass(value)}


def parsed(value: Any) -> Any:
    """Text that spells a Python number, True, False or None as that value; anything else as it is.

    >>> parsed("0.5"), parsed("None"), parsed("verdict")
    (0.5, None, 'verdict')
    """
    if not isinstance(value, str):
        return value
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return literal if literal is None or isinstance(literal, int | float) else value


def changed(place: str, slot: str, piece: Any, values: Mapping[str | None, Any]) -> Any:
    """What a slot holds after some settings: ``None`` is the piece itself, other keys are its settings, dots go inside.

    >>> from rlvr.algo import KL
    >>> changed("kl", "kl", KL(0.1), {"estimator": "K1", "place": "reward"}).estimator
    K1()
    """
    settings = {key: value for key, value in values.items() if key is not None}
    if None in values:
        piece = _named(place, slot, values[None])
    if piece is None and settings:
        hint = f"{place}=<piece> first, one of {', '.join(pieces(slot))}"
        raise ValueError(f"unknown key '{place}.{next(iter(settings))}': {place} is None; accepted: {hint}")
    return _built(place, piece, settings) if settings or isinstance(piece, type) else piece


def _named(place: str, slot: str, value: Any) -> Any:
    """A piece, the type of that name, or None where a slot may be empty."""
    if not isinstance(value, str):
        return value
    if {**SLOTS, **PARTS}[slot].optional and parsed(value) is None:
        return None
    if value not in pieces(slot):
        raise ValueError(f"{place} is {value!r}; accepted: {', '.join(pieces(slot))}")
    return pieces(slot)[value]


def _built(place: str, piece: Any, values: Mapping[str, Any]) -> Any:
    """A piece of the given type, or a changed copy of the given piece."""
    known = {item.name: item for item in fields(piece)}
    title = piece.__name__ if isinstance(piece, type) else type(piece).__name__
    inner: dict[str, dict[str | None, Any]] = {}
    for key, value in values.items():
        setting, dot, rest = key.partition(".")
        if setting not in known or (dot and setting not in PARTS):
            accepted = ", ".join(f"{place}.{name}" for name in known) or "none"
            raise ValueError(f"unknown key '{place}.{key}': {title} has no such setting; accepted: {accepted}")
        inner.setdefault(setting, {})[rest if dot else None] = value
    settings = {
        setting: _setting(f"{place}.{setting}", setting, piece, known[setting], given)
        for setting, given in inner.items()
    }
    if not isinstance(piece, type):
        return replace(piece, **settings)
    missing = [f"{place}.{name}" for name, item in known.items() if _required(item) and name not in settings]
    if missing:
        raise ValueError(f"{place}={title} lacks {', '.join(missing)}; accepted: a value for each")
    return piece(**settings)


def _required(item: Any) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def _setting(place: str, name: str, piece: Any, item: Any, given: Mapping[str | None, Any]) -> Any:
    if name not in PARTS:
        return parsed(given[None])
    current = item.default_factory() if isinstance(piece, type) else vars(piece)[name]
    return changed(place, name, current, given)

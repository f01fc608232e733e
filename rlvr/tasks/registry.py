"""Tasks by name: ``pointer``, ``arithmetic(kind='largest')``, ``gym:countdown``, ``file:questions.jsonl``."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from rlvr.tasks.arithmetic import Arithmetic
from rlvr.tasks.base import Task
from rlvr.tasks.bilingual import Bilingual
from rlvr.tasks.countdown import Countdown, Game24
from rlvr.tasks.echo import Echo
from rlvr.tasks.gym import Gym
from rlvr.tasks.pointer import Pointer
from rlvr.tasks.questions import Questions

__all__ = ["TASKS", "load_task", "settings_of"]

TASKS: dict[str, Task] = {
    task.name: task for task in (Pointer(), Bilingual(), Echo(), Arithmetic(), Countdown(), Game24())
}
FIXED = ("name", "alphabet", "eos", "kinds", "stopping", "dataset", "path")
ACCEPTED = "gym:NAME (reasoning-gym) or file:PATH (.jsonl or .parquet)"


def load_task(name: str) -> Task:
    """A registered task by name, with settings in brackets where wanted, a reasoning-gym task or a file of questions.

    >>> load_task("arithmetic(kind='largest', max_new_tokens=8)").max_new_tokens
    8
    >>> load_task("pointr")
    Traceback (most recent call last):
    ValueError: task 'pointr' is unknown; accepted: pointer, ..., gym:NAME (reasoning-gym) or file:PATH (.jsonl or .parquet)
    """
    return TASKS[name] if name in TASKS else _made(name)


@lru_cache(maxsize=64)
def _made(name: str) -> Task:
    head, given = _split(name)
    if head in TASKS:
        made = type(TASKS[head])
        return made(**settings_of("task", name, given, _settings(made)))
    kind, _, rest = head.partition(":")
    if kind == "file" and rest:
        return Questions(rest, **settings_of("task", name, given, _settings(Questions)))
    if kind == "gym" and rest:
        settings = settings_of("task", name, given, None)
        own = {key: settings.pop(key) for key in _settings(Gym) if key in settings}
        return Gym(rest, **own, options=settings)
    raise ValueError(f"task {name!r} is unknown; accepted: {', '.join(TASKS)}, {ACCEPTED}")


def _split(name: str) -> tuple[str, str]:
    """The name and what stands in its brackets; a path may hold brackets of its own before its ending."""
    match = re.fullmatch(r"(file:.*\.(?:jsonl|json|parquet)|[^(]*)(\(.*\))?", name, re.DOTALL)
    return (match[1], match[2] or "") if match else (name, "")


def _settings(made: type) -> list[str]:
    return [item.name for item in fields(made) if item.name not in (*FIXED, "options")]


def settings_of(what: str, name: str, bracket: str, known: Sequence[str] | None) -> Mapping[str, Any]:
    """The settings of ``name(setting=1)``, read as literals; ``known`` is what is accepted, ``None`` for anything.

    >>> settings_of("task", "echo(a=1)", "(a=1)", ["a", "b"])
    {'a': 1}
    """
    if not bracket:
        return {}
    accepted = f"accepted: {', '.join(known or ['its own fields'])}, such as name(setting=1)"
    accepted = "it has no settings" if known == [] else accepted
    try:
        call = ast.parse(f"name{bracket}", mode="eval").body
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, AttributeError, MemoryError, RecursionError):
        raise ValueError(f"{what} {name!r} can't be read; {accepted}") from None
    if call.args or not set(given) <= set(given if known is None else known):
        wrong = sorted(set(given) - set(known or ()), key=str) or "a setting without its name"
        raise ValueError(f"{what} {name!r}: {wrong}; {accepted}")
    return given

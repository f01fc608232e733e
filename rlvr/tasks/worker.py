"""A grading process: reads one JSON item a line, grades it with somebody else's library, writes one JSON line back.

It runs as a script of its own (`rlvr.tasks.grading` starts it), imports nothing of this project and only what an item needs, so
that it starts quickly and can be killed at any moment. What is graded may be anything that a policy wrote: libraries that would
hand it to ``eval`` are given only texts that pass a list of harmless characters and names, or a literal reader instead.
"""

import ast
import contextlib
import importlib
import json
import os
import re
import signal
import sys
from functools import lru_cache

__all__ = []

MEMORY = 2 << 30  # bytes that imports and items may take beyond what the process starts with
LIMITS: list[int] = []  # bytes of address space, once set
LONGEST, DEEPEST = 2000, 60
# Scorers of reasoning-gym that hand a completion to eval, and those that hand it to sympy's parser, which evaluates, too.
EVALUATE = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
PARSE = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
PUZZLES = ("countdown", "puzzle24")  # whose numbers our verdict looks at
NAMES = (
    "sqrt|factorial|exp|log|ln|sin|cos|tan|sec|csc|cot|asin|acos|atan|sinh|cosh|tanh|Abs|pi|erf|Integral|Ei|Si|Ci|li"
)
# Read character by character, so that no text takes long; a dot stands only before a digit, so there are no attributes.
HARMLESS = re.compile(rf"(?:[\d\s+\-*/^(),!]|(?<![A-Za-z)])\.(?=\d)|(?<![A-Za-z])(?:{NAMES}|[A-Za-z])(?![A-Za-z]))*")


def serve() -> None:
    """Answer items until the input ends. Libraries may print: their output goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        item = json.loads(line)
        try:
            if "path" in item:
                sys.path[:] = item["path"]
                found = {"kind": "ready"}
            else:
                _bound(item["seconds"])
                found = GRADERS[item["grader"]](item)
        except (MemoryError, RecursionError, OverflowError) as error:
            found = {"kind": "timeout", "why": f"too big: {type(error).__name__}"}
        except Exception as error:
            found = {"kind": "error", "why": f"{type(error).__name__}: {error}"[:300]}
        _unbound()
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def _bound(seconds: float) -> None:
    """Processor time and memory of the next item: the kernel ends this process, also when its parent is gone.

    Processor time, not the clock: a busy machine must not make a right answer late.
    """
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
    with contextlib.suppress(ImportError, OSError):
        import resource

        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        if not LIMITS:
            LIMITS.append(size + MEMORY)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (LIMITS[0], hard))


def _unbound() -> None:
    """No time runs between items."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, 0)


def load(item: dict) -> dict:
    """Import what later items need, outside of their time limit."""
    importlib.import_module(item["module"])
    return {"kind": "ready"}


def math(item: dict) -> dict:
    """Whether math-verify finds the two equal; a side that does not parse as a whole is never judged by a part of it."""
    gold = _parsed(item["gold"])
    if not gold:
        return {"kind": "error", "why": f"the right answer {item['gold']!r} can't be parsed"}
    if item.get("answer") is None:
        return {"kind": "right"}
    answer = _parsed(item["answer"])
    if not answer:
        return {"kind": "unparsed"}
    from math_verify import verify

    equal = verify(gold, answer, timeout_seconds=None, raise_on_error=True)
    return {"kind": "right" if equal else "wrong"}


@lru_cache(maxsize=512)
def _parsed(text: str) -> list:
    depth = most = 0
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        most = max(most, depth)
    if len(text) > LONGEST or most > DEEPEST:
        raise OverflowError(f"{len(text)} characters, {most} brackets deep")
    import logging

    logging.disable()  # it warns that its own alarm is off: this process has a better one
    from math_verify import LatexExtractionConfig, parse

    # A letter in upright type is the letter; math-verify reads it only in one of the two.
    text = re.sub(r"\\(?:mathrm|mathit|operatorname)\{(\w)\}", r"\1", text.strip().strip("$").strip())
    return parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)


def gym_names(item: dict) -> dict:
    """The names of its tasks."""
    from reasoning_gym.factory import DATASETS

    return {"kind": "ready", "data": {"names": sorted(DATASETS)}}


def gym_entry(item: dict) -> dict:
    """An entry by its number, and where `gym` finds it again: ``config`` with a seed, ``index``."""
    name, config, number = item["name"], item["config"], item["number"]
    try:
        place = {"config": {**config, "seed": 0}, "index": number}
        _, entry = _entry(name, json.dumps(place["config"], sort_keys=True), number)
    except IndexError:  # a data set that is made as a whole: one of its own for each number
        place = {"config": {**config, "seed": number}, "index": 0}
        _, entry = _entry(name, json.dumps(place["config"], sort_keys=True), 0)
    numbers = {key: entry["metadata"].get(key) for key in ("numbers", "target")} if name in PUZZLES else {}
    answer = None if entry["answer"] is None else str(entry["answer"])
    return {"kind": "ready", "data": {"question": str(entry["question"]), "answer": answer, "place": place, **numbers}}


def gym(item: dict) -> dict:
    """The score that reasoning-gym's own scorer gives to a text, between 0 and 1; a scorer that raises gives 0."""
    name, answer = item["name"], item["answer"]
    dataset, entry = _entry(name, json.dumps(item["config"], sort_keys=True), item["index"])
    if name in EVALUATE:
        sys.modules[type(dataset).__module__].eval = _literal
    if name in PARSE and (not HARMLESS.fullmatch(answer) or len(answer) > LONGEST):
        return {"kind": "unparsed", "score": 0.0}
    try:
        return {"kind": "scored", "score": float(dataset.score_answer(answer, entry=entry))}
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        return {"kind": "scored", "score": 0.0, "why": f"its scorer raised {type(error).__name__}"}


def _literal(text: object) -> object:
    """What a literal says, in the place of ``eval``."""
    return ast.literal_eval(str(text))


@lru_cache(maxsize=256)
def _entry(name: str, config: str, index: int) -> tuple:
    dataset = _dataset(name, config)
    return dataset, dataset[index]


@lru_cache(maxsize=64)
def _dataset(name: str, config: str) -> object:
    from dataclasses import fields

    from reasoning_gym.factory import DATASETS, create_dataset

    given, known = json.loads(config), [field.name for field in fields(DATASETS[name][1])]
    for key in given:
        if key not in known:
            raise ValueError(
                f"unknown difficulty {key!r}; accepted: {', '.join(key for key in known if key not in ('seed', 'size'))}"
            )
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return create_dataset(name, **given)


GRADERS = {"load": load, "math": math, "gym": gym, "gym_entry": gym_entry, "gym_names": gym_names}

if __name__ == "__main__":
    serve()

"""What everything cost: seconds and samples of every run, base and job, each counted once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.lab.jsonl import read_json
from rlvr.report.data import Experiment, Run, attempt

__all__ = ["Cost", "costs", "total"]


class Cost(NamedTuple):
    """Pieces of work with what they spent; ``untimed`` of them recorded no time, so ``seconds`` is too low by theirs.

    >>> Cost(runs=1, seconds=2.0) + Cost(runs=2, seconds=0.5)
    Cost(runs=3, jobs=0, seconds=2.5, samples=0, demonstrations=0, updates=0, untimed=0)
    """

    runs: int = 0
    jobs: int = 0
    seconds: float = 0.0
    samples: int = 0
    demonstrations: int = 0
    updates: int = 0
    untimed: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def costs(experiments: Mapping[str, Experiment]) -> dict[str, Cost]:
    """What each experiment spent; a base that several share counts with the first.

    >>> costs({"mine": Experiment("mine")})["mine"].seconds
    0.0
    """
    bases: set[str] = set()
    found = {}
    for folder, experiment in experiments.items():
        own = [_run(run) for run in experiment.runs] + [_job(path) for path in experiment.jobs]
        for run in experiment.bases:
            name = str(run.config.get("base") or run.folder)
            if name not in bases:
                own.append(_run(run))
            bases.add(name)
        found[folder] = total(own)
    return found


def total(found: list[Cost]) -> Cost:
    """The sum.

    >>> total([]).runs
    0
    """
    return sum(found, Cost())


def _run(run: Run) -> Cost:
    last = run.metrics[-1] if run.metrics else {}
    spent = {key: int(_number(last.get(key)) or 0) for key in ("samples", "demonstrations", "updates")}
    seconds = _number(last.get("seconds")) or _number(run.environment.get("seconds"))
    return Cost(runs=1, seconds=seconds or 0.0, untimed=int(seconds is None), **spent)


def _job(folder: Path) -> Cost:
    """A job says what it spent in its result or, as runs do, in its environment."""
    found: dict[str, Any] = {}
    for name in ("env.json", "result.json"):
        record = attempt([], name, lambda name=name: read_json(folder / name), {})
        found |= record if isinstance(record, Mapping) else {}
    seconds = _number(found.get("seconds"))
    samples = int(_number(found.get("samples")) or 0)
    return Cost(jobs=1, seconds=seconds or 0.0, samples=samples, untimed=int(seconds is None))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

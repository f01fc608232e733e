"""An experiment read from its folders; what is missing or broken becomes a sentence in ``gaps``, never an exception.

Only a folder that holds nothing to report is refused. No numbers are made here; that is
``rlvr.report.summary``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyarrow import ArrowException

from rlvr.lab.jsonl import read_json
from rlvr.lab.store import is_finished, read_config, read_evals, read_metrics

__all__ = ["Claim", "Evaluation", "Experiment", "Run", "attempt", "claim_of", "is_base"]
__all__ += ["read_experiment", "read_loose_runs"]

BASE = "base"
TEXTS = ("title", "question", "answer", "setup", "command")


class Evaluation(NamedTuple):
    """One evaluation of one run: ``columns`` have one entry a problem, ``samples`` answers were judged a problem; ``settings``
    are how it was decoded and what is recorded of its sets.

    >>> Evaluation("greedy", 50, 1, {"set": ["n8", "n12"], "correct": [1, 0], "samples": [1, 1]}).shares(set="n8")
    array([1.])
    """

    name: str
    step: int
    samples: int
    columns: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any] = {}

    def shares(self, votes: bool = False, **where: Any) -> np.ndarray:
        """Share of right answers [N] of the problems whose columns equal ``where``, in file order.

        With ``votes``, 1 where the majority of a problem's answers is right and 0 elsewhere.
        """
        columns = self.columns
        keys = [columns.get(key, ()) for key in where]
        wanted = tuple(where.values())
        chosen = [i for i, row in enumerate(zip(*keys, strict=False)) if row == wanted]
        if votes:
            return np.array([float(columns["majority"][i]) for i in chosen if "majority" in columns])
        return np.array([columns["correct"][i] / columns["samples"][i] for i in chosen])


@dataclass(frozen=True)
class Run:
    """One training run: an arm with a seed, and whatever its folder holds; ``evals`` maps name to step to evaluation.

    >>> Run("grpo", 0, Path("grpo-s0")).finished
    False
    """

    arm: str
    seed: int
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()
    evals: Mapping[str, Mapping[int, Evaluation]] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False

    @property
    def samples_itself(self) -> bool:
        """Whether it learned from its own samples rather than from demonstrations."""
        algorithm = self.config.get("algorithm")
        return not isinstance(algorithm, Mapping) or algorithm.get("source", "policy") != "gold"


class Claim(NamedTuple):
    """One claim of the ledger with its rule, what was measured, and the verdict that the rule gave.

    >>> Claim("zero-variance", "Most groups carry no signal.").verdict
    'undecided'
    """

    id: str
    claim: str
    rule: str = ""
    lecture: str = ""
    measured: str = ""
    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    n: int | None = None
    verdict: str = "undecided"
    why: str = ""


@dataclass(frozen=True)
class Experiment:
    """Everything a page shows, before any arithmetic.

    ``runs`` are those of the arms, ``bases`` the models that they set out from, where these have folders
    (``base-s<seed>``, with several kinds ``base_<kind>-s<seed>``), ``jobs`` the folders of other work.
    ``panels`` are drawn by ``rlvr.report.panels``. ``preliminary`` when the experiment says so or an arm has
    fewer than three finished seeds; without arms, when it has fewer than three seeds.

    >>> Experiment("mine").of("grpo")
    []
    """

    name: str
    title: str = ""
    question: str = ""
    answer: str = ""
    setup: str = ""
    command: str = ""
    page_command: str = ""
    quick: bool = False
    preliminary: bool = True
    arms: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    panels: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    bases: tuple[Run, ...] = ()
    jobs: tuple[Path, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def base_kinds(self) -> list[str]:
        """The names of the bases; more than one where arms set out from different ones."""
        return list(dict.fromkeys(run.arm for run in self.bases))

    def of(self, arm: str) -> list[Run]:
        """The runs of an arm, by seed."""
        return [run for run in self.runs if run.arm == arm]


def read_experiment(folder: Path) -> Experiment:
    """The experiment in ``folder`` (``experiment.json`` and run folders ``<arm>-s<seed>``).

    >>> read_experiment(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere holds nothing to report: no readable experiment.json and no run folder <arm>-s<seed>
    """
    folder = Path(folder)
    gaps: list[str] = []
    if (folder / "experiment.json").is_file():
        record = attempt(gaps, "experiment.json", lambda: read_json(folder / "experiment.json"), {})
    else:
        record = {}
        gaps.append("There is no experiment.json: the question, the setup and the claims are not known.")
    if not isinstance(record, Mapping):
        gaps.append("experiment.json is not an object: the question, the setup and the claims are not known.")
        record = {}
    found = _run_folders(folder)
    if not found and not record:
        raise ValueError(
            f"{folder} holds nothing to report: no readable experiment.json and no run folder <arm>-s<seed>"
        )
    listed = tuple(str(arm) for arm in _list(record, "arms"))
    if isinstance(record.get("arms"), list):
        found = [path for path in found if is_base(_split(path.name)[0]) or _split(path.name)[0] in listed]
    runs = [_read_run(path, *(_split(path.name) or ("", 0)), gaps) for path in found]
    arms = listed or tuple(dict.fromkeys(run.arm for run in runs if not is_base(run.arm)))
    there = {(run.arm, run.seed) for run in runs}
    own = record.get("seeds_of") if isinstance(record.get("seeds_of"), Mapping) else {}
    for arm in listed:
        for seed in _list(own if arm in own else record, arm if arm in own else "seeds"):
            if (arm, seed) not in there:
                gaps.append(f"The run {arm}-s{seed} is not there.")
    experiment = _experiment(folder.name, record, arms, runs, gaps)
    experiment = replace(experiment, jobs=tuple(sorted(path.parent for path in folder.glob("*/result.json"))))
    return experiment if folder.is_absolute() else replace(experiment, page_command=f"rlvr report {folder}")


def claim_of(record: Mapping[str, Any]) -> Claim:
    """A claim from a row of ``experiment.json`` or of the ledger; ``ValueError`` when a number of it is none.

    >>> claim_of({"id": "a", "claim": "A.", "value": 0.5, "lo": None}).value
    0.5
    """
    numbers = {key: record.get(key) for key in ("value", "lo", "hi", "n")}
    for key, value in numbers.items():
        if value is not None and not isinstance(value, (int, float)):
            raise ValueError(f"{record.get('id')}: {key} is {value!r}, not a number")
    texts = {key: str(record[key]) for key in ("rule", "lecture", "measured", "verdict", "why") if record.get(key)}
    return Claim(str(record["id"]), str(record["claim"]), **numbers, **texts)


def is_base(arm: str) -> bool:
    """Whether runs of this name are starting points rather than an arm.

    >>> is_base("base"), is_base("base_think10"), is_base("grpo")
    (True, True, False)
    """
    return arm == BASE or arm.startswith(f"{BASE}_")


def read_loose_runs(folders: Sequence[Path]) -> Experiment:
    """Any run folders as one experiment without claims; a folder that is no run but holds runs stands for them.

    >>> read_loose_runs([])
    Traceback (most recent call last):
    ValueError: no run folders given; at least one is needed
    """
    given = [Path(folder) for folder in folders]
    if not given:
        raise ValueError("no run folders given; at least one is needed")
    gaps: list[str] = []
    runs = []
    for folder in (run for each in given for run in (_run_folders(each) or [each])):
        config = read_config(folder)
        arm, seed = _split(folder.name) or (str(config.get("arm", folder.name)), config.get("seed", 0))
        runs.append(_read_run(folder, arm, seed, gaps))
    runs = _told_apart(runs)
    names = " ".join(folder.name if folder.is_absolute() else str(folder) for folder in given)
    record = {"title": "Runs side by side", "question": "How did these runs go?"}
    record |= {"title": f"Run {runs[0].folder.name}"} if len(runs) == 1 else {}
    record["setup"] = "Run folders, read as they are; nothing was claimed beforehand."
    arms = dict.fromkeys(run.arm for run in runs)
    arms = {arm: None for arm in arms if not is_base(arm)} or arms
    experiment = _experiment("runs", record, tuple(arms), runs, gaps)
    return replace(experiment, page_command=f"rlvr report {names}")


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Runs of one arm are its seeds only if nothing but the seed differs; others keep their folders' names."""
    seeds: dict[str, list[int]] = {}
    settings: dict[str, set[str]] = {}
    for run in runs:
        seeds.setdefault(run.arm, []).append(run.seed)
        settings.setdefault(run.arm, set()).add(_settings(run.config))
    told = []
    names = [run.folder.name for run in runs]
    for run, name in zip(runs, names, strict=True):
        one = len(set(seeds[run.arm])) == len(seeds[run.arm]) and len(settings[run.arm]) == 1
        unique = name if names.count(name) == 1 else f"{run.folder.parent.name} {name}"
        told.append(run if one else replace(run, arm=unique))
    return told


def _settings(config: Mapping[str, Any]) -> str:
    """All that a run was asked to do but its seed and its seed's base, in a form to compare."""
    recipe = config.get("recipe")
    found = {key: value for key, value in config.items() if key not in ("arm", "base", "recipe")}
    found |= recipe if isinstance(recipe, Mapping) else {}
    return json.dumps({key: found[key] for key in sorted(found) if key not in ("seed", "base_seed")})


def attempt(gaps: list[str], place: str, read: Callable[[], Any], default: Any) -> Any:
    """What ``read`` returns, or ``default`` and a sentence in ``gaps`` when a file is missing, damaged or incomplete.

    >>> gaps = []
    >>> attempt(gaps, "config.json", lambda: {}["arm"], "unknown"), gaps
    ('unknown', ["config.json could not be read: KeyError: 'arm'."])
    """
    try:
        return read()
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, ArrowException) as error:
        gaps.append(f"{place} could not be read: {type(error).__name__}: {error}.")
        return default


def _read_run(folder: Path, arm: str, seed: int, gaps: list[str]) -> Run:
    name = folder.name
    config = attempt(gaps, f"{name}/config.json", lambda: dict(read_config(folder)), {})
    metrics = attempt(gaps, f"{name}/metrics.jsonl", lambda: read_metrics(folder, on_broken=gaps.append), [])
    raw = attempt(gaps, f"{name}/evals", lambda: read_evals(folder), [])
    evals: dict[str, dict[int, Evaluation]] = {}
    for record in raw:
        evaluation = attempt(gaps, f"{name}/evals", lambda record=record: _evaluation(record), None)
        if evaluation:
            evals.setdefault(evaluation.name, {})[evaluation.step] = evaluation
    environment = attempt(gaps, f"{name}/env.json", lambda: dict(read_json(folder / "env.json")), {})
    # A language model that is evaluated as it came was never trained here: there is nothing to finish.
    finished = is_finished(folder) or config.get("trained") is False
    if not finished:
        done, planned = len(metrics), config.get("steps")
        gaps.append(f"{name} is unfinished: {done} of {planned or 'an unknown number of'} steps are logged.")
    if not evals and not is_base(arm):
        gaps.append(f"{name} has no evaluations: it is missing from every accuracy on this page.")
    return Run(arm, seed, folder, config, metrics, evals, environment, finished)


def _evaluation(record: Mapping[str, Any]) -> Evaluation:
    columns = record["columns"]
    size = len(columns["set"])
    for key, column in columns.items():
        if len(column) != size:
            raise ValueError(f"column {key} has {len(column)} entries, not {size}")
    if not size or min(columns["samples"]) < 1 or len(columns["correct"]) != size:
        raise ValueError("an evaluation without problems or samples")
    settings = {key: value for key, value in record.items() if key not in ("name", "step", "columns")}
    return Evaluation(str(record["name"]), int(record["step"]), int(max(columns["samples"])), columns, settings)


def _experiment(
    name: str, record: Mapping[str, Any], arms: tuple[str, ...], found: Sequence[Run], gaps: list[str]
) -> Experiment:
    texts = {key: record[key] for key in TEXTS if _is_text(record.get(key))}
    claims = [attempt(gaps, "a claim", lambda claim=claim: claim_of(claim), None) for claim in _list(record, "claims")]
    runs = sorted((run for run in found if run.arm in arms), key=lambda run: (arms.index(run.arm), run.seed))
    seeds = [sum(run.finished for run in runs if run.arm == arm) for arm in arms]
    # Without arms an experiment has only its word for how many seeds it stands on.
    seeds = seeds or [len(_list(record, "seeds"))]
    return Experiment(
        name=name,
        title=texts.get("title", name),
        question=texts.get("question", f"What did {name} show?"),
        answer=texts.get("answer", ""),
        setup=texts.get("setup", ""),
        command=texts.get("command", ""),
        page_command=f"rlvr report {name}",
        quick=record.get("quick") is True,
        preliminary=record.get("preliminary") is True or min(seeds) < 3,
        arms=arms,
        claims=tuple(claim for claim in claims if claim),
        panels=tuple(_list(record, "panels")),
        notes=tuple(str(note) for note in _list(record, "notes")),
        runs=tuple(runs),
        bases=tuple(run for run in _ordered(found, _list(record, "bases")) if is_base(run.arm) and run.arm not in arms),
        gaps=tuple(dict.fromkeys(gaps)),
    )


def _ordered(runs: Sequence[Run], names: Sequence[Any]) -> list[Run]:
    places = {name: place for place, name in enumerate(map(str, names))}
    return sorted(runs, key=lambda run: places.get(run.arm, len(places)))


def _run_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*-s*") if path.is_dir() and _split(path.name))


def _split(name: str) -> tuple[str, int] | None:
    found = re.fullmatch(r"(.+)-s(\d+)", name)
    return (found[1], int(found[2])) if found else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record.get(key)
    return list(value) if isinstance(value, (list, tuple)) else []

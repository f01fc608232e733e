"""Bootstrapping: sample from the policy, keep what was right, train on it, and again with the policy that came out.

STaR, RFT and ReST-EM are rows of the same settings. A bootstrap is a folder; its training is that of `rlvr.lab.train`:

====================  ==============================================================================
bootstrap.json        what was asked for
round-1/, ...         one folder a round:
    corpus.jsonl      what the round learns from
    accounting.json   what it cost; once it counts updates, the round is over and is never done again
    train/            the run folder of its training, from the base or from the round before
====================  ==============================================================================

A round samples with one fixed policy and every draw has a name, so a bootstrap that was stopped ends as one that was not.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.lab import store
from rlvr.lab.evaluate import accuracy_by_set
from rlvr.lab.harvest import Harvest, harvest
from rlvr.lab.jsonl import read_json, write_json, write_jsonl
from rlvr.lab.lock import run_lock
from rlvr.lab.recipe import Recipe
from rlvr.lab.train import make_policy, open_run, train
from rlvr.rng import generator
from rlvr.types import Problem

__all__ = ["ABOUT", "BOOTSTRAPS", "Bootstrap", "OnRoundStep", "accounts", "bootstrap", "with_settings"]

OnRoundStep = Callable[[str, int, int, Mapping[str, Any]], None]
SETTINGS, CORPUS, ACCOUNTING = "bootstrap.json", "corpus.jsonl", "accounting.json"


@dataclass(frozen=True)
class Bootstrap:
    """How to learn from one's own successes.

    ``problems`` are drawn once and are the same every round; each is answered ``samples`` times at ``temperature`` (0 is
    greedy). With ``rationalize`` a problem that no answer solved is posed again with its answer as a hint, which the corpus
    does not show. Of the right answers to a problem one a chain is kept if ``distinct``, and at most ``keep``;
    ``with_gold`` adds the task's demonstration of every problem. Round r trains ``steps * growth^(r-1)`` steps, or
    ``epochs`` likewise, from the base where ``restart`` says so and else from the policy it sampled with.

    >>> [Bootstrap(steps=40, growth=1.2).steps_of(r, rows=0) for r in (1, 2, 3)]
    [40, 48, 57]
    """

    task: str = "pointer"
    difficulty: Mapping[str, Any] = field(default_factory=lambda: {"n": (4, 12), "k": (1, 7)})
    base: str | None = "cot_hint"
    base_seed: int = 0
    rounds: int = 3
    problems: int = 2048
    samples: int = 1
    temperature: float = 0.0
    rationalize: bool = False
    distinct: bool = False
    keep: int | None = None
    restart: bool = True
    with_gold: bool = False
    steps: int | None = 150
    epochs: float | None = None
    growth: float = 1.0
    prompts_per_step: int = 32
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    warmup_steps: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rounds", "problems", "samples"):
            _require(self, name, type(vars(self)[name]) is int and vars(self)[name] >= 1, "a whole number >= 1")
        for name in ("keep", "steps"):
            value = vars(self)[name]
            _require(self, name, value is None or (type(value) is int and value >= 1), "a whole number >= 1, or none")
        _require(self, "base", self.base is None or isinstance(self.base, str), "a base model, a run folder, or none")
        _require(self, "difficulty", isinstance(self.difficulty, Mapping), "names with numbers or ranges")
        for name in ("base_seed", "seed"):
            _require(self, name, type(vars(self)[name]) is int, "a whole number")
        for name in ("rationalize", "distinct", "restart", "with_gold"):
            _require(self, name, type(vars(self)[name]) is bool, "true or false")
        for name in ("growth", "learning_rate"):
            _require(self, name, _number(vars(self)[name]) and vars(self)[name] > 0, "a number above 0")
        for name in ("temperature", "warmup_steps"):
            _require(self, name, _number(vars(self)[name]) and vars(self)[name] >= 0, "a number, 0 or more")
        alone = self.samples == 1 or self.temperature > 0
        _require(self, "samples", alone, "1 at temperature 0, where all answers are the same")
        epochs = self.epochs is None or (_number(self.epochs) and self.epochs > 0)
        _require(self, "epochs", epochs, "a number above 0, or none")
        _require(self, "epochs", (self.epochs is None) != (self.steps is None), "steps or epochs, the other one none")
        self.recipe(1, rows=self.problems)
        unhinted = not self.difficulty.get("hint")
        _require(self, "difficulty", unhinted, "problems without a hint, because a corpus must not show one")
        hints = not self.rationalize or hasattr(Recipe(task=self.task).the_task, "hinted")
        _require(self, "rationalize", hints, f"false, because task {self.task} poses no problem with a hint")

    def steps_of(self, number: int, rows: int) -> int:
        """The training steps of a round (from 1) whose corpus has so many rows."""
        amount = self.steps if self.epochs is None else self.epochs * rows / self.prompts_per_step
        # As STaR's code rounds it; the slack keeps 100 * 1.15 from losing a step to a float.
        return max(1, int(amount * self.growth ** (number - 1) + 1e-9))

    def recipe(self, number: int, rows: int) -> Recipe:
        """The training of a round."""
        steps, resumed = self.steps_of(number, rows), number > 1 and not self.restart
        return Recipe(
            preset="sft",
            task=self.task,
            difficulty=self.difficulty,
            base=f"../../round-{number - 1}/train" if resumed else self.base,
            base_seed=self.base_seed,
            steps=steps,
            prompts_per_step=self.prompts_per_step,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warmup_steps=self.warmup_steps,
            seed=self.seed,
            eval_every=steps,
            corpus=f"../{CORPUS}",
        )

    def pool(self) -> list[Problem]:
        """The problems of every round."""
        task, source = Recipe(task=self.task).the_task, generator(self.seed, "pool")
        return [task.problem(source, **self.difficulty) for _ in range(self.problems)]


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _require(settings: Bootstrap, name: str, good: bool, accepted: str) -> None:
    if not good:
        raise ValueError(f"bootstrap: {name} = {vars(settings)[name]!r}; accepted: {accepted}")


STAR = Bootstrap(rationalize=True, growth=1.2)

BOOTSTRAPS: Mapping[str, Bootstrap] = {
    "star": STAR,
    "star_no_rationalization": replace(STAR, rationalize=False),
    "star_continue": replace(STAR, restart=False),
    "rft": Bootstrap(rounds=1, samples=100, temperature=0.7, distinct=True, with_gold=True),
    "rest_em": Bootstrap(samples=32, temperature=0.7, keep=10),
}
"""Settings by name. What a paper fixes is the paper's; pool, rounds, steps and rates are this laboratory's, equal for all."""

ABOUT: Mapping[str, str] = {
    "star": "Zelikman et al. 2022 (arXiv 2203.14465): greedy, failures explained with the answer as a hint, from the base each "
    "round, 20 % more steps a round.",
    "star_no_rationalization": "STaR without the hint: problems that were not solved teach nothing.",
    "star_continue": "STaR that goes on from the last round's model.",
    "rft": "Yuan et al. 2023 (arXiv 2308.01825): one round, 100 samples at 0.7, one answer a distinct chain, beside the gold.",
    "rest_em": "Singh et al. 2023 (arXiv 2312.06585): 32 samples at 0.7, at most 10 answers a problem, from the base each "
    "round.",
}


def with_settings(settings: Bootstrap, changes: Mapping[str, Any]) -> Bootstrap:
    """Settings with some values replaced, epochs in place of steps where they are asked for; unknown names are refused.

    >>> with_settings(BOOTSTRAPS["star"], {"rouds": 2})
    Traceback (most recent call last):
    ValueError: bootstrap: unknown setting 'rouds'; accepted: task, difficulty, base, ...
    """
    known = [item.name for item in fields(Bootstrap)]
    for name in changes:
        if name not in known:
            raise ValueError(f"bootstrap: unknown setting {name!r}; accepted: {', '.join(known)}")
    unasked = {"steps": None} if changes.get("epochs") is not None else {}
    return replace(settings, **{**unasked, **changes})


class _Work(NamedTuple):
    folder: Path
    settings: Bootstrap
    base: Path | None
    sets: Mapping[str, Sequence[Problem]]
    on_step: OnRoundStep
    device: str


def bootstrap(
    folder: Path,
    settings: Bootstrap,
    base: Path | None = None,
    sets: Mapping[str, Sequence[Problem]] | None = None,
    on_step: OnRoundStep = lambda job, done, total, metrics: None,
    device: str = "cpu",
) -> Path:
    """Do all rounds into a folder, from the run folder ``base`` (fresh weights without one).

    Finished rounds are left as they are, an unfinished one goes on, and a folder with other settings is refused. ``sets`` are
    evaluated greedily before and after the training of a round.
    """
    work = _Work(Path(folder), settings, base, sets or {}, on_step, device)
    with run_lock(work.folder):
        _claim(work.folder, settings, base)
        last = base
        for number in range(1, settings.rounds + 1):
            last = _round(work, number, last)
    return work.folder


def accounts(folder: Path) -> list[dict[str, Any]]:
    """What the rounds cost, in order, those that are not finished included."""
    homes = sorted(Path(folder).glob("round-*"), key=lambda home: int(home.name.removeprefix("round-")))
    return [found for home in homes if (found := _account(home))]


def _claim(folder: Path, settings: Bootstrap, base: Path | None) -> None:
    """Write what was asked for, or refuse a folder that belongs to something else."""
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a training run; give another folder")
    wanted = json.loads(json.dumps({"base": Path(base).name if base else None, "settings": asdict(settings)}))
    path = folder / SETTINGS
    if not path.exists():
        write_json(path, wanted)
        return
    there = read_json(path)
    differing = [name for name in wanted["settings"] if there["settings"].get(name) != wanted["settings"][name]]
    differing += ["base folder"] if there["base"] != wanted["base"] and "base" not in differing else []
    if differing:
        raise ValueError(
            f"{folder} holds another bootstrap: its {', '.join(differing)} differ; give another folder or remove it"
        )


def _account(home: Path) -> dict[str, Any]:
    path = home / ACCOUNTING
    return read_json(path) if path.is_file() else {}


def _round(work: _Work, number: int, last: Path | None) -> Path:
    """What is missing of a round: its corpus, its training, its account. Returns the run folder."""
    home, settings = work.folder / f"round-{number}", work.settings
    account, run = _account(home), home / "train"
    if "updates" in account:
        return run
    if not (home / CORPUS).exists():
        found = _harvest(work, number, last)
        account = {"round": number, **found.account}
        write_json(home / ACCOUNTING, account)
        write_jsonl(home / CORPUS, found.rows)
    recipe = settings.recipe(number, account["kept"])
    recipe = recipe if work.sets else replace(recipe, eval_every=0)
    watch = partial(_watch, work.on_step, f"round {number}", recipe.steps)
    train(run, recipe, work.base if settings.restart else last, work.sets, watch, work.device)
    spent = store.last_metrics(run)
    account |= {"updates": spent["updates"], "demonstrations": spent["demonstrations"]}
    account |= {"accuracy": accuracy_by_set(store.read_evals(run, "greedy")[-1]) if work.sets else {}}
    write_json(home / ACCOUNTING, account)
    return run


def _watch(on_step: OnRoundStep, job: str, total: int, step: int, metrics: Mapping[str, Any]) -> None:
    on_step(job, step + 1, total, metrics)


def _harvest(work: _Work, number: int, last: Path | None) -> Harvest:
    settings = work.settings
    recipe = settings.recipe(number, settings.problems)
    policy = open_run(last, work.device)[0] if last else make_policy(recipe, work.device)
    named = partial(generator, settings.seed, "bootstrap", number)
    found = harvest(policy, recipe.the_task, settings.pool(), settings, named)
    if not found.rows:
        raise ValueError(
            f"round {number}: none of {found.account['samples']} completions of {settings.problems} problems was right, so "
            "there is nothing to learn from; accepted: easier problems (difficulty), more samples, or a better base"
        )
    return found

"""The units of an experiment: bases, arms and jobs, each a folder, with what it needs and a digest of all that made it."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlvr.experiments.base import Experiment, Job, Place
from rlvr.experiments.work import Looks, run_arm, run_base, run_job
from rlvr.lab.jsonl import read_json, write_json
from rlvr.lab.pretrain import base_folder

__all__ = ["Unit", "clear_stale", "finished", "units_of"]

MADE_OF, DONE = "unit.json", "DONE"


@dataclass(frozen=True)
class Unit:
    """One piece of work for a worker process: ``call`` fills ``folder``; ``steps`` are logged in ``progress``'s metrics.

    A ``large`` one works on a language model.
    """

    folder: Path
    needs: tuple[Path, ...]
    call: Callable[[], None]
    settings: Mapping[str, Any]
    progress: Path
    steps: int = 1
    large: bool = False

    @property
    def name(self) -> str:
        """What the unit is called in the experiment."""
        return self.folder.name

    def start(self) -> None:
        """Do the work and say that it is done; the first line says what it is made of, so that a change is seen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / MADE_OF, self.made_of())
        self.call()
        (self.folder / DONE).touch()

    def made_of(self) -> dict[str, Any]:
        """The settings, and the digest of what each needed unit is made of."""
        return json.loads(
            json.dumps({"settings": self.settings, "needs": {"/".join(n.parts[-2:]): _digest(n) for n in self.needs}})
        )

    def stale(self) -> bool:
        """Whether the folder was made of something else than it would be made of now."""
        if not self.folder.exists():
            return False
        return not (self.folder / MADE_OF).exists() or read_json(self.folder / MADE_OF) != self.made_of()


def finished(folder: Path) -> bool:
    """Whether the unit of a folder is done."""
    return (folder / DONE).exists()


def _digest(folder: Path) -> str | None:
    made_of = folder / MADE_OF
    return hashlib.sha256(made_of.read_bytes()).hexdigest()[:10] if made_of.exists() else None


def units_of(experiment: Experiment, folder: Path) -> list[Unit]:
    """All units, each after those that it needs; needs that no unit is called by are refused."""
    looks = Looks.of(experiment)
    bases = [(base, seed) for seed in experiment.seeds_of_bases() for base in experiment.bases]
    units = [_base(experiment, base, seed, folder, looks) for base, seed in bases]
    arms = [(arm, seed) for arm in experiment.arms for seed in experiment.arm_seeds(arm)]
    arms.sort(key=lambda pair: pair[1])
    units += [_arm(experiment, arm, seed, folder, looks) for arm, seed in arms]
    elsewhere = tuple(
        unit.folder for other in experiment.uses for unit in units_of(other, other.folder_in(folder.parent))
    )
    units += [
        _job(job, Place(folder / job.name, folder, folder.parent, experiment.quick), elsewhere)
        for job in experiment.jobs(experiment)
    ]
    return _in_order(experiment, units, set(elsewhere))


def _base(experiment: Experiment, base: str, seed: int, folder: Path, looks: Looks) -> Unit:
    recipe, run = experiment.base_recipe(base, seed), folder / f"{experiment.base_arm(base)}-s{seed}"
    place = base_folder(base, recipe, folder.parent)
    settings = {"base": place.name, "looks": asdict(looks)}
    # A second stage starts where the first ended, so two processes must not make the first at once.
    needs = (folder / f"{experiment.base_arm(recipe.base)}-s{seed}",) if recipe.base in experiment.bases else ()
    return Unit(
        run,
        needs,
        partial(run_base, run, base, recipe, place, looks),
        settings,
        place,
        recipe.steps,
        recipe.model is not None,
    )


def _arm(experiment: Experiment, arm: str, seed: int, folder: Path, looks: Looks) -> Unit:
    recipe, run, of_base = experiment.recipe(arm, seed), folder / f"{arm}-s{seed}", experiment.base_seed(seed)
    needs = [folder / name.replace("{seed}", str(of_base)) for name in experiment.after.get(arm, ())]
    base = None  # a language model needs none to be made
    if recipe.base is not None:
        needs.insert(0, folder / f"{experiment.base_arm(recipe.base)}-s{of_base}")
        base = base_folder(recipe.base, experiment.base_recipe(recipe.base, of_base), folder.parent)
    settings = {"recipe": recipe.to_json(), "looks": asdict(looks)}
    return Unit(
        run,
        tuple(needs),
        partial(run_arm, run, recipe, base, looks),
        settings,
        run,
        recipe.steps,
        recipe.model is not None,
    )


def _job(job: Job, place: Place, elsewhere: tuple[Path, ...]) -> Unit:
    needs = tuple(place.folder / name for name in job.needs) + elsewhere
    settings = {"work": f"{job.work.__module__}.{job.work.__name__}", "settings": job.settings, "quick": place.quick}
    return Unit(place.out, needs, partial(run_job, place, job.work, job.settings), settings, place.out)


def _in_order(experiment: Experiment, units: Sequence[Unit], placed: set[Path]) -> list[Unit]:
    waiting, ordered = list(units), []
    while waiting:
        ready = [unit for unit in waiting if placed.issuperset(unit.needs)]
        if not ready:
            lacking = sorted({need.name for unit in waiting for need in unit.needs if need not in placed})
            raise ValueError(
                f"experiment {experiment.name}: {', '.join(unit.name for unit in waiting)} need {', '.join(lacking)}, which "
                "don't exist or need each other; accepted: names of runs and jobs of this experiment"
            )
        ordered += ready
        placed |= {unit.folder for unit in ready}
        waiting = [unit for unit in waiting if unit not in ready]
    return ordered


def clear_stale(units: Sequence[Unit]) -> None:
    """Remove what was made of something else: it would be compared with what it is not."""
    for unit in units:
        if unit.stale():
            shutil.rmtree(unit.folder)

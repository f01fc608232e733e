"""What a careful reader asks of a paper on RL for reasoning, asked of our own pages and answered from the run folders.

The lecture's own list (its section 10) was lost when it became text. Its last entry, the summary of the
lecture and the rules that its other sections end with survive; the questions here are those, in our words,
and ``source`` says where each stands.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlvr.report.claims import Row
from rlvr.report.data import Evaluation, Experiment, Run
from rlvr.report.record import arm_differences
from rlvr.report.results import trained_range
from rlvr.report.words import arm_label, sweep_of

__all__ = ["Item", "Lecture", "checklist"]

SHARED = ("task", "shape", "steps", "prompts_per_step", "temperature")
ENOUGH_SEEDS, ENOUGH_PROBLEMS, LARGE_K = 3, 100, 512


class Item(NamedTuple):
    """A question with its answer (``yes``, ``partly``, ``no``), what was found, and the places that show it: (folder, anchor).

    >>> Item("Is there a control?", "12", "no", "None.").where
    ()
    """

    asked: str
    source: str
    answer: str
    found: str
    where: Sequence[tuple[str, str]] = ()


class Lecture(NamedTuple):
    """All experiments by folder, and the ledger.

    >>> Lecture({}, []).trained
    {}
    """

    experiments: Mapping[str, Experiment]
    rows: Sequence[Row]

    @property
    def trained(self) -> dict[str, Experiment]:
        """The experiments that train arms."""
        return {folder: each for folder, each in self.experiments.items() if each.arms}

    def sampled(self) -> dict[str, list[Run]]:
        """By folder the runs with a log that learn from their own samples."""
        found = {
            folder: [run for run in each.runs if run.samples_itself and run.metrics]
            for folder, each in self.trained.items()
        }
        return {folder: runs for folder, runs in found.items() if runs}


def checklist(lecture: Lecture) -> list[Item]:
    """Every question with its answer.

    >>> {item.answer for item in checklist(Lecture({}, []))}
    {'no'}
    """
    return [ask(lecture) for ask in QUESTIONS]


def _graded(good: int, of: int) -> str:
    return "no" if not of or not good else "yes" if good == of else "partly"


def _places(folders: Iterable[str], anchor: str) -> tuple[tuple[str, str], ...]:
    return tuple((folder, anchor) for folder in dict.fromkeys(folders))


def _spelled(folder: str) -> str:
    return folder.replace("_", " ")


def _bases(lecture: Lecture) -> Item:
    runs = [run for each in lecture.trained.values() for run in each.runs if run.config.get("base")]
    names = sorted({re.sub(r"-s\d+(-.*)?$", "", str(run.config["base"])) for run in runs})
    shapes = {(str(run.config.get("task")), str(run.config.get("shape"))) for run in runs}
    answer = "no" if len(names) < 2 else "partly" if len(shapes) < 2 else "yes"
    found = (
        f"{len(names)} kind{'s' * (len(names) != 1)} of base ({', '.join(names)})" if names else "No run names its base"
    )
    one = ", all of one size and one task: that another family of models behaves alike is not shown here"
    found += f"{one if len(shapes) == 1 else ''}."
    asked = "Is it shown on more than one family of base models?"
    return Item(asked, "9.5, 12", answer, found, _places(lecture.trained, "settings"))


def _random_reward(lecture: Lecture) -> Item:
    arms = [
        (folder, arm)
        for folder, each in lecture.trained.items()
        for arm in each.arms
        if any("random" in name for run in each.of(arm) for name in _rewards(run))
    ]
    found = ", ".join(f"{arm_label(arm)} in {_spelled(folder)}" for folder, arm in arms)
    asked = "Is there a control that is paid at random, so that a gain can be traced to what the reward says?"
    words = f"Arms paid at random: {found}." if arms else "No arm is paid at random."
    return Item(asked, "9.5, 12", "yes" if arms else "no", words, _places((folder for folder, _ in arms), "curves"))


def _rewards(run: Run) -> Sequence[str]:
    recipe = run.config.get("recipe")
    rewards = recipe.get("rewards") if isinstance(recipe, Mapping) else None
    return list(rewards) if isinstance(rewards, Mapping) else []


def _seeds(lecture: Lecture) -> Item:
    counts = {
        (folder, arm): sum(run.finished for run in each.of(arm))
        for folder, each in lecture.trained.items()
        for arm in each.arms
    }
    few: dict[str, list[str]] = {}
    for (folder, arm), n in counts.items():
        if n < ENOUGH_SEEDS:
            few.setdefault(folder, []).append(f"{arm_label(arm)} {n}")
    good = len(counts) - sum(map(len, few.values()))
    found = f"{good} of {len(counts)} arms have three or more finished seeds."
    fewer = "; ".join(f"{_spelled(folder)} ({', '.join(arms)})" for folder, arms in few.items())
    found += f" Fewer, and labelled preliminary: {fewer}." if few else ""
    asked = "Are there several seeds, and is each of them shown?"
    return Item(asked, "10, 12", _graded(good, len(counts)), found, _places(lecture.trained, "numbers"))


def _intervals(lecture: Lecture) -> Item:
    whole = [row for row in lecture.rows if None not in (row.claim.lo, row.claim.hi, row.claim.n)]
    few = sum(row.preliminary for row in lecture.rows)
    found = f"{len(whole)} of {len(lecture.rows)} claims have an interval and its n. {few} are labelled preliminary."
    asked = "Does every number come with an interval, and with the n it is from?"
    return Item(asked, "10", _graded(len(whole), len(lecture.rows)), found, [("", "ledger")])


def _rules(lecture: Lecture) -> Item:
    ruled = sum(bool(row.claim.rule) for row in lecture.rows)
    differ = [row for row in lecture.rows if row.claim.verdict == "differs"]
    found = f"{ruled} of {len(lecture.rows)} claims have a rule in words beside their verdict, which code applies. "
    found += (
        f"{len(differ)} differ from the lecture, {sum(bool(row.claim.why) for row in differ)} of them with a reason. "
    )
    found += "That a rule is older than its run can be seen in the history of the code alone."
    asked = "Was it written down beforehand what would count as agreement, and are failures shown too?"
    explained = all(row.claim.why for row in differ)
    answer = _graded(ruled, len(lecture.rows))
    return Item(asked, "10", answer if explained or answer == "no" else "partly", found, [("", "ledger")])


def _large_k(lecture: Lecture) -> Item:
    ranges = {}
    for folder, each in lecture.experiments.items():
        for index, panel in enumerate(each.panels):
            xs = _tries(panel)
            if xs and min(xs) <= 1 and max(xs) >= LARGE_K:
                ranges.setdefault(folder, (index, max(xs)))
    most = max((k for _, k in ranges.values()), default=0)
    found = f"Curves from one try to {most:,.0f}." if ranges else "There is no curve from one try to 512 or more."
    asked = "Is pass@k shown for large k as well as for one try, and what was lost beside what was gained?"
    where = [(folder, f"panel-{index}") for folder, (index, _) in ranges.items()]
    return Item(asked, "7.4, 12", "yes" if ranges else "no", found, where)


def _tries(panel: Any) -> list[float]:
    """The x values of a panel that draws something against k on a logarithmic axis."""
    if not isinstance(panel, Mapping) or panel.get("log_x") is not True:
        return []
    if not re.search(r"\bk\b", str(panel.get("x_title"))) or not isinstance(panel.get("series"), list):
        return []
    columns = [one.get("x") for one in panel["series"] if isinstance(one, Mapping)]
    return [x for xs in columns if isinstance(xs, list) for x in xs if isinstance(x, (int, float))]


def _budget(lecture: Lecture) -> Item:
    runs = [run for each in lecture.trained.values() for run in each.runs if run.metrics]
    keys = ("samples", "tokens", "updates", "seconds")
    good = [run for run in runs if all(isinstance(run.metrics[-1].get(key), (int, float)) for key in keys)]
    found = (
        f"{len(good)} of {len(runs)} runs count samples, tokens, updates and seconds; accuracy is drawn against each."
    )
    asked = "Is the budget stated, and in which currency: samples, tokens, updates or seconds?"
    return Item(asked, "12, exercise 3", _graded(len(good), len(runs)), found, _places(lecture.trained, "cost"))


def _tuning(lecture: Lecture) -> Item:
    sweeps = {folder: sweep_of(each.arms) for folder, each in lecture.trained.items()}
    sweeps = {folder: sweep for folder, sweep in sweeps.items() if sweep}
    fair = [folder for folder, sweep in sweeps.items() if len({len(values) for values in sweep.values()}) == 1]
    tried = "; ".join(
        f"{_spelled(folder)}: "
        + ", ".join(f"{arm_label(method)} {len(values)} values" for method, values in sweep.items())
        for folder, sweep in sweeps.items()
    )
    found = f"Searched alike ({tried})." if sweeps else "No search for settings is among these experiments."
    asked = "Was every method tuned with the same effort, baselines included?"
    return Item(asked, "12, 13", _graded(len(fair), len(sweeps)), found, _places(sweeps, "where"))


def _same_footing(lecture: Lecture) -> Item:
    apart = {
        folder: [key for key, _ in arm_differences(each)["differ"] if key in SHARED]
        for folder, each in lecture.trained.items()
    }
    odd = [f"{_spelled(folder)} ({', '.join(keys)})" for folder, keys in apart.items() if keys]
    found = f"Within {len(apart) - len(odd)} of {len(apart)} experiments all arms share {', '.join(SHARED)}."
    found = found.replace("_", " ") + (f" Not within {'; '.join(odd)}." if odd else "")
    asked = "Are the methods compared like for like, so that only the thing under study differs?"
    return Item(asked, "4, 10", _graded(len(apart) - len(odd), len(apart)), found, _places(apart, "settings"))


def _baselines(lecture: Lecture) -> Item:
    started = [
        folder for folder, each in lecture.trained.items() if any(_at_start(run) for run in (*each.bases, *each.runs))
    ]
    taught = [folder for folder, each in lecture.trained.items() if any(not run.samples_itself for run in each.runs)]
    found = f"The untrained start is evaluated in {len(started)} of {len(lecture.trained)} experiments"
    found += f"; training on demonstrations stands beside RL in {', '.join(map(_spelled, taught))}." if taught else "."
    asked = "Is there the plain alternative beside it: the untrained model, and supervised training?"
    answer = _graded(len(started), len(lecture.trained))
    return Item(asked, "4", "partly" if answer == "yes" and not taught else answer, found, _places(started, "where"))


def _at_start(run: Run) -> bool:
    return any(0 in steps for steps in run.evals.values())


def _decoding(lecture: Lecture) -> Item:
    both = [
        folder
        for folder, each in lecture.trained.items()
        if {"greedy", "sampled"} <= {name for run in (*each.runs, *each.bases) for name in run.evals}
    ]
    found = f"Greedy and sampled accuracy stand beside each other in {len(both)} of {len(lecture.trained)} experiments."
    asked = "Are greedy and sampled accuracy both given, with the settings they were decoded with?"
    return Item(asked, "7.4, 10", _graded(len(both), len(lecture.trained)), found, _places(both, "where"))


def _problems(lecture: Lecture) -> Item:
    sizes = {folder: size for folder, each in lecture.trained.items() if (size := _smallest_set(each))}
    good = [folder for folder, size in sizes.items() if size >= ENOUGH_PROBLEMS]
    fewest = min(sizes.values(), default=0)
    found = (
        "No run was evaluated."
        if not sizes
        else f"The smallest test set has {fewest} problems, so that one problem is "
    )
    found += f"{100 / fewest:.2g} points (a test of 30 problems: 3.3)." if sizes else ""
    asked = "Is the test large enough, and the same for all?"
    return Item(asked, "10", _graded(len(good), len(sizes)), found, _places(sizes, "where"))


def _smallest_set(experiment: Experiment) -> int:
    found = [evaluation for run in experiment.runs for steps in run.evals.values() for evaluation in steps.values()]
    return min((size for evaluation in found for size in _set_sizes(evaluation)), default=0)


def _set_sizes(evaluation: Evaluation) -> list[int]:
    names = list(evaluation.columns["set"])
    return [names.count(name) for name in dict.fromkeys(names)]


def _distribution(lecture: Lecture) -> Item:
    ranges = {folder: found for folder, each in lecture.trained.items() if (found := trained_range(each, "n"))}
    found = "; ".join(f"{_spelled(folder)} trains on n = {low} to {high}" for folder, (low, high) in ranges.items())
    found = f"{found}. Pages mark what lies beyond." if ranges else "No experiment says what it trains on."
    asked = "Is it said how the test relates to the training problems: the same kind, longer, harder?"
    return Item(asked, "7.4", _graded(len(ranges), len(lecture.trained)), found, _places(ranges, "where"))


def _truth(lecture: Lecture) -> Item:
    runs = [run for found in lecture.sampled().values() for run in found]
    good = [run for run in runs if {"reward", "accuracy"} <= set(run.metrics[-1])]
    watched = [run for run in runs if "divergence_alarm" in run.metrics[-1]]
    found = f"{len(good)} of {len(runs)} runs log the verifier's verdict beside the reward at every step"
    found += f"; an alarm watches their gap in {len(watched)}." if watched else "."
    asked = "Is success measured by something that the policy is not paid by?"
    return Item(asked, "9.4, 12", _graded(len(good), len(runs)), found, _places(lecture.sampled(), "training"))


def _length(lecture: Lecture) -> Item:
    runs = [run for found in lecture.sampled().values() for run in found]
    keys = {"completions/mean_length_right", "completions/mean_length_wrong"}
    good = [run for run in runs if any(keys <= set(row) for row in run.metrics)]
    found = f"{len(good)} of {len(runs)} runs split the length into that of right and of wrong answers."
    asked = "If answers grow longer: is it shown what grew?"
    return Item(asked, "8.1", _graded(len(good), len(runs)), found, _places(lecture.sampled(), "training"))


def _again(lecture: Lecture) -> Item:
    runs = [run for each in lecture.trained.values() for run in each.runs]
    good = [run for run in runs if {"versions", "commit", "seed"} <= set(run.environment)]
    found = f"{len(good)} of {len(runs)} runs record versions, commit and seed; every page ends with the command that makes it."
    asked = "Can a stranger make every number again?"
    return Item(asked, "10", _graded(len(good), len(runs)), found, _places(lecture.experiments, "again"))


QUESTIONS: tuple[Callable[[Lecture], Item], ...] = (
    _bases,
    _random_reward,
    _seeds,
    _intervals,
    _rules,
    _large_k,
    _budget,
    _tuning,
    _same_footing,
    _baselines,
    _problems,
    _decoding,
    _distribution,
    _truth,
    _length,
    _again,
)

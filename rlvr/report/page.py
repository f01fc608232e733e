"""One experiment, one HTML file: everything inlined, nothing fetched, every text that a model wrote escaped."""

import re
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rlvr.report import plots, record, results, theme, tokens, words
from rlvr.report.canvas import Figure, looks
from rlvr.report.claims import claim_numbers, gauge, verdict_counts
from rlvr.report.data import Experiment, read_experiment, read_loose_runs
from rlvr.report.document import fill, write
from rlvr.report.panels import shown_panels
from rlvr.report.summary import after, headline_name, headline_set, set_names, unlike

__all__ = ["INDEX", "PLACE_OF_INDEX", "UP", "has_index", "render", "write_report", "write_run_report"]

INDEX = "index.html"
UP = f'<a class="up" href="../{INDEX}">← All experiments</a>'
PLACE_OF_INDEX = "<!-- the index -->"
OURS = '<meta name="generator" content="rlvr">'


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes the page of an experiment folder, by default into ``report.html`` inside it, and returns its path.

    Missing or broken parts become sentences on the page. Raises ``ValueError`` when the folder holds
    nothing to report.

    >>> write_report(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere holds nothing to report: no readable experiment.json and no run folder <arm>-s<seed>
    """
    folder = Path(folder)
    out = folder / "report.html" if out is None else Path(out)
    return write(render(read_experiment(folder), has_index(out)), out)


def has_index(page: Path) -> bool:
    """Whether the index of the whole lecture lies one folder above that of a page.

    >>> has_index(Path("nowhere/passk/report.html"))
    False
    """
    path = Path(page).parent.parent / INDEX
    # The folder may be a web site of somebody else's.
    return path.is_file() and OURS in path.read_text(encoding="utf-8", errors="replace")[:2000]


def write_run_report(folders: list[Path], out: Path) -> Path:
    """Writes one page about any run folders, without a question or claims, and returns its path.

    Raises ``ValueError`` when a folder is no run folder or none is given.

    >>> write_run_report([Path("nowhere")], Path("page.html"))
    Traceback (most recent call last):
    ValueError: nowhere is not a run folder: it has no config.json
    """
    return write(render(read_loose_runs(folders)), Path(out))


def render(experiment: Experiment, index: bool = False) -> str:
    """The page as text, with a link to the ``index`` where there is one. The same folders give the same text.

    >>> page = render(Experiment("mine", question="Is <it> so?"))
    >>> "Is &lt;it&gt; so?" in page, "<it>" in page
    (True, False)
    """
    gaps = list(experiment.gaps)
    content = _content(experiment, gaps)
    shown = tokens.shown_rollouts(experiment, gaps) if experiment.arms else tokens.Shown({}, {}, 0, [])
    data = {
        "figures": {figure.key: figure.spec for figure in _figures(experiment, content)},
        "rollouts": {"arms": shown.arms, **_labels(experiment, shown)},
        "twins": theme.dark_twins(),
    }
    return fill(
        "page.html",
        data,
        **content,
        experiment=experiment,
        up=Markup(UP if index else PLACE_OF_INDEX),
        gaps=gaps,
        shown=shown,
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        terms=_terms(experiment),
        most_lines=plots.MOST_LINES,
    )


def _content(experiment: Experiment, gaps: list[str]) -> dict[str, Any]:
    """Every section's content; a section that nothing is known for is empty, and its template says so."""
    look, label, hardest = looks(experiment.arms), headline_set(experiment), _hardest(experiment)
    table = results.outcomes(experiment, look, label)
    sweep = results.sweep_figures(experiment, look)
    swept = dict(sweep).get(words.set_label(label)) if label else None
    curves, failures = results.curve_figures(experiment, look), record.failure_figures(experiment, look)
    return {
        "look": look,
        "panels": shown_panels(experiment.panels, look, gaps),
        "outcomes": table,
        "answer": [(experiment.answer, "")]
        if experiment.answer
        else results.answer_parts(experiment, table, label, hardest),
        "hero": None
        if experiment.panels
        else swept or results.curve_figure(experiment, look, label, "hero", height=400),
        "verdicts": verdict_counts(experiment.claims),
        "claims": [(claim, gauge(claim), *claim_numbers(claim)) for claim in experiment.claims],
        "curves": curves,
        "curve_tab": results.default_tab(curves, hardest),
        "sweep": sweep,
        "sweep_tab": results.default_tab(sweep, hardest),
        "failures": failures,
        "failure_tab": results.default_tab(failures, label),
        "by_length": results.length_figure(experiment, look),
        "accuracy": results.accuracy_table(experiment, look),
        "heat": results.heat_tables(experiment, look),
        "votes": results.vote_table(experiment, look),
        "kinds": record.kind_glossary(experiment),
        "groups": record.group_figures(experiment, look),
        "training": record.training_figures(experiment, look),
        "alarms": record.alarm_words(experiment, look),
        "unlike": unlike(experiment),
        "chips": plots.chips(list(look.values())),
        "budget": record.budget(experiment),
        "costs": record.cost_figures(experiment, look, label),
        "seeds": record.seed_table(experiment, look),
        "csv": record.csv_numbers(experiment),
        "differences": record.arm_differences(experiment),
        "environment": record.environment(experiment),
    }


def _terms(experiment: Experiment) -> dict[str, str]:
    """The words that this page uses: its methods, and those of the pointer world and of sampling where they occur."""
    evaluations = [e for run in experiment.runs for steps in run.evals.values() for e in steps.values()]
    there = {key for evaluation in evaluations for key in evaluation.columns} | {e.name for e in evaluations}
    methods = {words.arm_label(word): text for word, text in words.METHODS.items() if _uses(experiment, word)}
    return methods | {term: text for term, text in words.TERMS.items() if term in there or term not in words.OCCASIONAL}


def _uses(experiment: Experiment, method: str) -> bool:
    return any(method in re.split(r"[_\- ]", arm) for arm in experiment.arms)


def _hardest(experiment: Experiment) -> str | None:
    """The test set after the opening one that training leaves the most room on: the learning curve to look at next."""
    name, labels = headline_name(experiment), set_names(experiment)
    ends = {label: [after(experiment, arm, name, set=label) for arm in experiment.arms] for label in labels}
    best = {label: max(found.value for found in values if found) for label, values in ends.items() if any(values)}
    room = [label for label, value in best.items() if value < 0.9 and label != headline_set(experiment)]
    return max(room, key=lambda label: best[label]) if room else headline_set(experiment)


def _figures(experiment: Experiment, content: dict[str, Any]) -> list[Figure]:
    """The figures that have a place on the page: without arms those of the panels alone."""
    found = [panel.figure for panel in content["panels"]]
    if experiment.arms:
        found += [content["hero"], content["by_length"], *content["groups"], *content["training"]]
        found += [figure for key in ("curves", "failures", "costs", "sweep") for _, figure in content[key]]
    return [figure for figure in found if figure]


def _labels(experiment: Experiment, shown: tokens.Shown) -> dict[str, Any]:
    look = looks(experiment.arms)
    return {
        "labels": {arm: look[arm].label for arm in shown.arms},
        "colours": {arm: look[arm].variable for arm in shown.arms},
        "kinds": {kind: words.kind_label(kind) for kind in shown.kinds},
        "seeds": shown.seeds,
    }

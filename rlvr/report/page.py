"""One experiment, one HTML file: everything inlined, nothing fetched, every text that a model wrote escaped.

The content security policy of the page allows no connection at all and only the scripts that carry its
nonce, so even a text that slipped through the escaping could neither run nor call anybody.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from rlvr.lab.jsonl import replacing
from rlvr.report import plots, record, results, theme, tokens, words
from rlvr.report.canvas import Figure, looks
from rlvr.report.data import Claim, Experiment, read_experiment, read_loose_runs
from rlvr.report.summary import after, headline_name, headline_set, set_names
from rlvr.stats import Interval

__all__ = ["embed", "render", "write_report", "write_run_report"]


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Writes the page of an experiment folder, by default into ``report.html`` inside it, and returns its path.

    Missing or broken parts become sentences on the page. Raises ``ValueError`` when the folder holds
    nothing to report.

    >>> write_report(Path("nowhere"))
    Traceback (most recent call last):
    ValueError: nowhere holds nothing to report: no readable experiment.json and no run folder <arm>-s<seed>
    """
    folder = Path(folder)
    return _write(render(read_experiment(folder)), folder / "report.html" if out is None else Path(out))


def write_run_report(folders: list[Path], out: Path) -> Path:
    """Writes one page about any run folders, without a question or claims, and returns its path.

    Raises ``ValueError`` when a folder is no run folder or none is given.

    >>> write_run_report([Path("nowhere")], Path("page.html"))
    Traceback (most recent call last):
    ValueError: nowhere is not a run folder: it has no config.json
    """
    return _write(render(read_loose_runs(folders)), Path(out))


def render(experiment: Experiment) -> str:
    """The page as text. The same folders give the same text.

    >>> page = render(Experiment("mine", question="Is <it> so?"))
    >>> "Is &lt;it&gt; so?" in page, "<it>" in page
    (True, False)
    """
    gaps = list(experiment.gaps)
    content = _content(experiment, gaps)
    figures = {figure.key: figure.spec for figure in _figures(content)}
    shown = tokens.shown_rollouts(experiment, gaps)
    data = {
        "figures": embed(figures),
        "rollouts": embed({"arms": shown.arms, **_labels(experiment, shown)}),
        "twins": embed(theme.dark_twins()),
    }
    nonce = base64.b64encode(hashlib.sha256("".join(data.values()).encode()).digest()[:18]).decode()
    environment = _environment()
    return environment.get_template("page.html").render(
        content,
        experiment=experiment,
        gaps=gaps,
        data=data,
        shown=shown,
        nonce=nonce,
        light=theme.css_variables(dark=False),
        dark=theme.css_variables(dark=True),
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script")),
        terms=_terms(experiment),
        most_lines=plots.MOST_LINES,
        raw=lambda name: Markup(environment.loader.get_source(environment, name)[0]),
    )


def embed(value: Any) -> Markup:
    """JSON that may stand inside a ``<script>`` element: no ``<``, ``>`` or ``&`` is left in it.

    Numbers that are not finite become ``null``.

    >>> str(embed({"text": "</script><b>"}))
    '{"text":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _content(experiment: Experiment, gaps: list[str]) -> dict[str, Any]:
    """Every section's content; a section that nothing is known for is empty, and its template says so."""
    look, label, hardest = looks(experiment.arms), headline_set(experiment), _hardest(experiment)
    table = results.outcomes(experiment, look, label)
    sweep = results.sweep_figures(experiment, look)
    swept = dict(sweep).get(words.set_label(label)) if label else None
    curves, failures = results.curve_figures(experiment, look), record.failure_figures(experiment, look)
    return {
        "look": look,
        "outcomes": table,
        "answer": results.answer_parts(experiment, table, label, hardest),
        "hero": swept or results.curve_figure(experiment, look, label, "hero", height=420),
        "verdicts": _verdicts(experiment.claims),
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


def _figures(content: dict[str, Any]) -> list[Figure]:
    single = [content["hero"], content["by_length"], *content["groups"], *content["training"]]
    tabbed = [figure for key in ("curves", "failures", "costs", "sweep") for _, figure in content[key]]
    return [figure for figure in (*single, *tabbed) if figure]


def gauge(claim: Claim) -> dict[str, float | None] | None:
    """Where a claim's interval and the lecture's number lie between 0 and 100 %, if both are plain shares.

    >>> gauge(Claim("a", "b", lecture="29.5 %", measured="31.0 %", value=0.31, lo=0.25, hi=0.38))
    {'value': 31.0, 'lo': 25.0, 'hi': 38.0, 'lecture': 29.5}
    """
    if claim.value is None or claim.lo is None or claim.hi is None or not 0 <= claim.lo <= claim.hi <= 1:
        return None
    head = _leading_percent(claim.measured)
    if head is None or abs(head - 100 * claim.value) > 0.06:
        return None
    scaled = {name: round(100 * getattr(claim, name), 2) for name in ("value", "lo", "hi")}
    # A second percentage in the lecture's words makes it unclear which one is meant.
    return {**scaled, "lecture": _leading_percent(claim.lecture) if claim.lecture.count("%") == 1 else None}


def claim_numbers(claim: Claim) -> tuple[str, str]:
    """What a claim's rule read, in the unit of the claim's words: the value, and its interval with n.

    Shares become percent where the words speak of percent.

    >>> claim_numbers(Claim("a", "b", measured="gap -11.5 %", value=-0.115, lo=-0.161, hi=-0.069, n=3))
    ('-11.5 %', '[-16.1, -6.9], n = 3')
    >>> claim_numbers(Claim("a", "b", measured="0.0170 nats", value=0.017, lo=0.015, hi=0.02))
    ('0.017', '[0.015, 0.02]')
    >>> claim_numbers(Claim("a", "b", n=1))
    ('', 'no interval, n = 1')
    """
    # Student's interval of a share may reach beyond 100 %, so its ends don't decide.
    shares = "%" in claim.measured and abs(claim.value or 0.0) <= 1
    value = "" if claim.value is None else f"{100 * claim.value:.1f} %" if shares else f"{claim.value:.3g}"
    ends = "no interval"
    if claim.lo is not None and claim.hi is not None:
        low, high = (f"{100 * end:.1f}" if shares else f"{end:.3g}" for end in (claim.lo, claim.hi))
        ends = f"[{low}, {high}]"
    return value, ends + ("" if claim.n is None else f", n = {claim.n}")


def _leading_percent(text: str) -> float | None:
    try:
        return float(text.partition("%")[0]) if "%" in text else None
    except ValueError:
        return None


def _verdicts(claims: Sequence[Claim]) -> list[tuple[str, int]]:
    order = ("holds", "differs", "undecided")
    names = [*order, *sorted({claim.verdict for claim in claims} - set(order))]
    return [(name, n) for name in names if (n := sum(claim.verdict == name for claim in claims))]


def _labels(experiment: Experiment, shown: tokens.Shown) -> dict[str, Any]:
    look = looks(experiment.arms)
    return {
        "labels": {arm: look[arm].label for arm in shown.arms},
        "colours": {arm: look[arm].variable for arm in shown.arms},
        "kinds": {kind: words.kind_label(kind) for kind in shown.kinds},
        "seeds": shown.seeds,
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("rlvr.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"pct": results.percent, "interval": interval_words, "set_label": words.set_label}
    environment.filters |= {"sentence": sentence, "typeset": typeset}
    return environment


def interval_words(interval: Interval) -> str:
    """An interval as percent.

    >>> interval_words(Interval(0.295, 0.236, 0.361, 200, "problems"))
    '23.6 to 36.1'
    """
    return f"{100 * interval.lo:.1f} to {100 * interval.hi:.1f}"


def sentence(text: str) -> str:
    """A text with a full stop at its end, if it has no end yet.

    >>> sentence("It holds"), sentence("Does it?")
    ('It holds.', 'Does it?')
    """
    return text if text.rstrip().endswith((".", "!", "?", "…")) else f"{text.rstrip()}."


def typeset(text: str) -> str:
    """Arrows, dashes and comparisons as one would print them, with spaces where a line may break.

    >>> typeset("n = 4-8: 29.5 % -> over 98 %, at >= 90 %, -0.2")
    'n\xa0=\xa04–8: 29.5\xa0% → over 98\xa0%, at ≥ 90\xa0%, −0.2'
    """
    plain = (("->", "→"), (">=", "≥"), ("<=", "≤"), (" - ", " − "), (" %", "\u00a0%"))
    for typed, printed in plain:
        text = text.replace(typed, printed)
    text = re.sub(r"\b([a-z]) ([=≤≥<>]) (?=\d)", "\\1\u00a0\\2\u00a0", text)
    return re.sub(r"(?<![\w−])-(?=\d)", "−", re.sub(r"(?<=\d)-(?=\d)", "–", text))


def _write(page: str, out: Path) -> Path:
    with replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return out

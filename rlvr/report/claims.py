"""Claims as a reader meets them: their numbers in their own unit, tallies of verdicts, and the ledger of all experiments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.lab.jsonl import read_json
from rlvr.report.data import Claim, Experiment, attempt, claim_of

__all__ = ["LEDGER", "Row", "claim_numbers", "gauge", "read_ledger", "verdict_counts"]

LEDGER = "ledger.json"
VERDICTS = ("holds", "differs", "undecided")


class Row(NamedTuple):
    """A claim of the ledger: whose it is, the page it stands on (relative to the ledger), and whether its seeds are too few.

    >>> Row("passk", Claim("crossing", "The curves cross."), "passk/report.html", True).claim.verdict
    'undecided'
    """

    experiment: str
    claim: Claim
    page: str
    preliminary: bool


def read_ledger(root: Path, experiments: Mapping[str, Experiment], gaps: list[str]) -> list[Row]:
    """The rows of ``ledger.json`` in ``root``; without that file, the claims of ``experiments`` (by folder name).

    A row that can't be read becomes a sentence in ``gaps``.

    >>> read_ledger(Path("nowhere"), {}, [])
    []
    """
    path = Path(root) / LEDGER
    if not path.is_file():
        return [
            Row(experiment.name, claim, f"{folder}/report.html", experiment.preliminary)
            for folder, experiment in experiments.items()
            for claim in experiment.claims
        ]
    record = attempt(gaps, LEDGER, lambda: read_json(path), {"claims": []})
    found = record.get("claims") if isinstance(record, Mapping) else None
    if not isinstance(found, list):
        gaps.append(f"{LEDGER} has no list of claims: no claim is shown.")
        found = []
    rows = [attempt(gaps, f"row {i} of {LEDGER}", lambda each=each: _row(each), None) for i, each in enumerate(found)]
    return [row for row in rows if row]


def _row(record: Mapping[str, Any]) -> Row:
    name = str(record["experiment"])
    return Row(name, claim_of(record), str(record.get("page") or ""), record.get("preliminary") is True)


def verdict_counts(claims: Sequence[Claim]) -> list[tuple[str, int]]:
    """How many claims have each verdict; verdicts that nobody knows come last.

    >>> verdict_counts([Claim("a", "A"), Claim("b", "B", verdict="holds")])
    [('holds', 1), ('undecided', 1)]
    """
    names = [*VERDICTS, *sorted({claim.verdict for claim in claims} - set(VERDICTS))]
    return [(name, n) for name in names if (n := sum(claim.verdict == name for claim in claims))]


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

"""Panels: what an experiment wants its page to show, handed over as plain data and rendered without knowing what it means.

Each is an object with a ``type`` (lines, bars, table, texts), a title and a text. One that can't be drawn
becomes a sentence in its place.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlvr.report.canvas import Figure, Look
from rlvr.report.data import attempt, is_base
from rlvr.report.drawings import Curve, bars, lines
from rlvr.report.theme import ARMS, MARKERS, ROLES
from rlvr.report.words import arm_label

__all__ = ["Panel", "Table", "Text", "as_curves", "shown_panels"]

LONGEST_TEXT, WORDY = 3000, 26
BASE = Look("before training", ROLES["base"].light, "circle-open", "--base", "dot")


class Text(NamedTuple):
    """One completion, shown literally; ``cut`` is how many characters of it are left out.

    >>> Text("hack", "? a b", "||$", "scored 0.98").cut
    0
    """

    label: str
    prompt: str
    completion: str
    note: str
    cut: int = 0


class Table(NamedTuple):
    """A table's cells as text; ``wordy`` says of each column whether it holds sentences rather than numbers.

    >>> Table(["k"], [["1"]], [False]).wordy
    [False]
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    wordy: Sequence[bool]


@dataclass(frozen=True)
class Panel:
    """A panel ready for its template: exactly one of ``figure``, ``table``, ``texts`` and ``gap`` has content.

    >>> Panel("panel-0", "Does it hold?").gap
    ''
    """

    anchor: str
    title: str
    text: str = ""
    y_title: str = ""
    caption: str = ""
    figure: Figure | None = None
    table: Table | None = None
    texts: Sequence[Text] = ()
    gap: str = ""


def shown_panels(panels: Sequence[Any], look: Mapping[str, Look], gaps: list[str]) -> list[Panel]:
    """The panels in order. An arm has the colour it has in ``look``, and one that isn't there the same in all panels.

    >>> panel, gaps = {"type": "table", "title": "T", "columns": ["k"], "rows": [[1]]}, []
    >>> shown_panels([panel, 7], {}, gaps)[0].table.rows, len(gaps)
    ([['1']], 1)
    """
    palette, shown = _palette(panels, look), []
    for index, panel in enumerate(panels):
        told: list[str] = []
        place = f"The panel {_name(panel, index)}"
        found = attempt(told, place, lambda p=panel, i=index: _panel(p, f"panel-{i}", palette), None)
        shown.append(found or Panel(f"panel-{index}", _words(panel, "title") or "A panel", gap=told[0]))
        gaps += told
    return shown


def _name(panel: Any, index: int) -> str:
    return _words(panel, "key") or _words(panel, "title") or str(index + 1)


def _words(panel: Any, key: str) -> str:
    value = panel.get(key) if isinstance(panel, Mapping) else None
    return "" if value is None else str(value)


def _palette(panels: Sequence[Any], look: Mapping[str, Look]) -> dict[str, Look]:
    palette = dict(look)
    for panel in panels:
        series = panel.get("series") if isinstance(panel, Mapping) else None
        for one in series if isinstance(series, (list, tuple)) else ():
            arm = _words(one, "arm")
            if arm and arm not in palette:
                place = sum(not is_base(each) for each in palette)
                palette[arm] = BASE if is_base(arm) else _look(arm_label(arm), place)
    return palette


def _look(label: str, place: int) -> Look:
    index = place % len(ARMS)
    return Look(label, ARMS[index].light, MARKERS[index], f"--arm-{index}")


def _panel(panel: Any, anchor: str, palette: Mapping[str, Look]) -> Panel:
    if not isinstance(panel, Mapping):
        raise ValueError(f"it is {panel!r:.40}, not an object")
    kinds = {"lines": _lines, "bars": _bars, "table": _table, "texts": _texts}
    kind = panel.get("type")
    if kind not in kinds:
        raise ValueError(f"its type is {kind!r}; accepted: {', '.join(kinds)}")
    words = {key: _words(panel, key) for key in ("title", "text", "y_title", "caption")}
    return Panel(anchor, **words | kinds[kind](panel, anchor, palette))


def _lines(panel: Mapping[str, Any], key: str, palette: Mapping[str, Look]) -> dict[str, Any]:
    found, log_x = as_curves(panel, palette), panel.get("log_x") is True
    left = [curve.drawable(log_x) for curve in found]
    drawn = [curve for curve in left if any(map(math.isfinite, curve.y))]
    if not drawn:
        raise ValueError("no series has a point to draw")
    marks = [(_number(x, "a mark"), str(label)) for x, label in panel.get("marks") or ()]
    percent = panel.get("percent", True) is not False
    caption = _words(panel, "caption")
    if empty := [curve.look.label for curve in left if curve not in drawn]:
        caption = f"{caption} Without a point to draw: {', '.join(empty)}.".strip()
    if lost := sum(len(a.x) - len(b.x) for a, b in zip(found, left, strict=True)):
        caption = f"{caption} Points that this axis has no place for: {lost}.".strip()
    figure = lines(key, drawn, _words(panel, "x_title"), log_x, percent, marks)
    return {"figure": figure._replace(caption=caption), "caption": ""}


def as_curves(panel: Mapping[str, Any], palette: Mapping[str, Look]) -> list[Curve]:
    """The series of a panel of lines, each with its colour; ``ValueError`` names the series and what is wrong with it.

    >>> as_curves({"series": [{"label": "a", "x": [1], "y": [None]}]}, {})[0].y
    [nan]
    """
    series, curves = panel["series"], []
    if odd := [one for one in series if not isinstance(one, Mapping)]:
        raise ValueError(f"a series is {odd[0]!r:.40}, not an object")
    taken = {palette[arm].variable for one in series if (arm := _words(one, "arm")) in palette}
    free = [place for place in range(len(ARMS)) if f"--arm-{place}" not in taken] or list(range(len(ARMS)))
    for one in series:
        label, arm = _words(one, "label"), _words(one, "arm")
        if arm in palette:
            look = palette[arm]._replace(label=label or palette[arm].label)
        else:
            look = _look(label, free[0])
            free = free[1:] + free[:1]
        look = _unlike(look._replace(dash="dash") if one.get("dashed") is True else look, curves)
        x, y, lo, hi = (_column(one, name, label) for name in ("x", "y", "lo", "hi"))
        if bool(lo) != bool(hi):
            raise ValueError(f"series {label}: a band needs both lo and hi")
        for name, column in (("y", y), ("lo", lo or x), ("hi", hi or x)):
            if len(column) != len(x):
                raise ValueError(f"series {label}: {len(x)} values of x and {len(column)} of {name}")
        curves.append(Curve(look, x, y, lo, hi))
    return curves


def _unlike(look: Look, curves: Sequence[Curve]) -> Look:
    """The look with another dash where a line of this colour has its dash already."""
    there = {(curve.look.variable, curve.look.dash) for curve in curves}
    dashes = (look.dash, "dot", "longdash", "dashdot", "dash")
    return look._replace(dash=next((dash for dash in dashes if (look.variable, dash) not in there), look.dash))


def _column(one: Mapping[str, Any], name: str, label: str) -> list[float]:
    return [_number(value, f"{name} of series {label}") for value in one.get(name) or ()]


def _number(value: Any, place: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{place} is {value!r}, not a number")
    return float(value)


def _bars(panel: Mapping[str, Any], key: str, palette: Mapping[str, Look]) -> dict[str, Any]:
    rows = [
        (str(label), {str(part): _number(value, f"{part} of {label}") for part, value in shares.items()})
        for label, shares in panel["rows"]
    ]
    rows = [(label, {part: v for part, v in shares.items() if math.isfinite(v)}) for label, shares in rows]
    parts = [str(part) for part in panel.get("parts") or dict.fromkeys(part for _, shares in rows for part in shares)]
    if unknown := sorted({part for _, shares in rows for part in shares} - set(parts)):
        raise ValueError(f"the rows have {', '.join(unknown)}, which is not among its parts {', '.join(parts)}")
    if not any(shares for _, shares in rows):
        raise ValueError("no row has a bar to draw")
    figure = bars(key, rows, parts, _words(panel, "x_title"), panel.get("percent", True) is not False)
    return {"figure": figure._replace(caption=_words(panel, "caption")), "caption": ""}


def _table(panel: Mapping[str, Any], key: str, palette: Mapping[str, Look]) -> dict[str, Any]:
    columns = [str(column) for column in panel["columns"]]
    rows = [[_cell(cell) for cell in row] for row in panel["rows"]]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} cells, not {len(columns)}: {row}")
    if not rows:
        raise ValueError("it has no rows")
    wordy = [max(len(row[i]) for row in rows) > WORDY for i in range(len(columns))]
    return {"table": Table(columns, rows, wordy)}


def _cell(value: Any) -> str:
    """A number with its thousands marked; words stay as they are, for they may be a model's."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        whole = isinstance(value, int) or abs(value) >= 1e4
        return (f"{value:,.0f}" if whole else f"{value:.4g}").replace("-", "−")
    return "—" if value is None or isinstance(value, float) else str(value)


def _texts(panel: Mapping[str, Any], key: str, palette: Mapping[str, Look]) -> dict[str, Any]:
    rows = [[_visible("" if part is None else str(part)) for part in row] for row in panel["rows"]]
    if not rows:
        raise ValueError("it has no texts")
    return {
        "texts": [
            Text(label, prompt[:LONGEST_TEXT], text[:LONGEST_TEXT], note, max(0, len(text) - LONGEST_TEXT))
            for label, prompt, text, note in rows
        ]
    }


def _visible(text: str) -> str:
    """Control characters as their pictures: a page must not swallow what a model wrote."""
    return "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else c for c in text)

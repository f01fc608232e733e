"""Figures from plain data: lines with bands over any x, and stacked bars. What they mean is said by whoever hands them over."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Any, NamedTuple

import plotly.graph_objects as go

from rlvr.report.canvas import AXES, PERCENT, Chip, Figure, Look, band_tone, end_labels, layout, note, spec
from rlvr.report.plots import chips, kind_variable
from rlvr.report.theme import KINDS, PALE_KINDS, ROLES
from rlvr.report.words import KIND_WORDS, kind_label

__all__ = ["Curve", "bars", "lines"]

MOST_LABELS, LONGEST_LABEL, WRAP = 6, 16, 20
POWERS = {0: "1", 1: "10", 2: "100", 3: "1k", 4: "10k", 5: "100k", 6: "1M", 7: "10M", 8: "100M", 9: "1G"}


class Curve(NamedTuple):
    """A line to draw: NaN is a hole in it; ``lo`` and ``hi`` are the edges of its band, empty when it has none.

    >>> Curve(Look("GRPO", "#c8502d", "diamond", "--arm-2"), [1.0], [0.5]).lo
    ()
    """

    look: Look
    x: Sequence[float]
    y: Sequence[float]
    lo: Sequence[float] = ()
    hi: Sequence[float] = ()

    def drawable(self, log_x: bool) -> "Curve":
        """Without the points that have no place: x not finite or, on a logarithmic axis, not above zero."""
        kept = [i for i, x in enumerate(self.x) if math.isfinite(x) and (x > 0 or not log_x)]
        columns = [[column[i] for i in kept] if column else () for column in (self.x, self.y, self.lo, self.hi)]
        return Curve(self.look, *columns)


def lines(
    key: str, curves: Sequence[Curve], x_title: str, log_x: bool, percent: bool, marks: Sequence[tuple[float, str]]
) -> Figure:
    """Lines with their bands, their names at their ends where these are few and short, and vertical ``marks``.

    >>> look = Look("GRPO", "#c8502d", "diamond", "--arm-2")
    >>> lines("a", [Curve(look, [1.0, 10.0], [0.1, 0.9])], "k", True, True, []).spec["data"][0]["y"]
    [10.0, 90.0]
    """
    scale = 100.0 if percent else 1.0
    curves = [
        curve._replace(**{name: [scale * v for v in getattr(curve, name)] for name in ("y", "lo", "hi")})
        for curve in curves
    ]
    axis, low, high = _y_axis(curves, percent)
    arrangement = layout(x_title, axis)
    arrangement["xaxis"] |= _x_axis(sorted({x for curve in curves for x in curve.x}), log_x)
    if low < 0 < high:
        zero = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": 0, "layer": "below"}
        arrangement["shapes"] = [zero | {"line": {"color": ROLES["base"].light, "width": 1}}]
    _mark(arrangement, marks, log_x, max(x for curve in curves for x in curve.x))
    legend = chips([curve.look for curve in curves])
    labelled = len(curves) <= MOST_LABELS and max(len(curve.look.label) for curve in curves) <= LONGEST_LABEL
    if labelled and len(curves) > 1:
        ends = [(next(y for y in reversed(curve.y) if math.isfinite(y)), curve.look) for curve in curves]
        labels = end_labels(ends, 0.066 * (high - low), high)
        arrangement["annotations"] = [*arrangement.get("annotations", []), *labels]
        arrangement["margin"]["r"] = 18 + 10 * max(len(curve.look.label) for curve in curves)
    traces = [trace for curve in curves for trace in _band(curve)]
    traces += [_line(curve, (" %" if percent else "", x_title)) for curve in curves]
    found = Figure(key, spec(traces, arrangement), "", legend, 340)
    return found._replace(labelled=True) if labelled else found


def _y_axis(curves: Sequence[Curve], percent: bool) -> tuple[dict[str, Any], float, float]:
    """The axis, and the lowest and highest value on it."""
    values = [v for curve in curves for column in (curve.y, curve.lo, curve.hi) for v in column if math.isfinite(v)]
    low, high = min(values), max(values)
    if percent and low >= 0 and (50 < high <= 100.5 or high == 0):
        return dict(PERCENT), 0.0, 104.0
    bottom = 0.0 if low >= 0 else low - 0.06 * (high - low)
    top = high + 0.06 * ((high - bottom) or abs(high) or 1.0)
    axis = AXES["zoomed share" if percent else ""] | {"range": [bottom, top]}
    return axis, bottom, top


def _x_axis(values: Sequence[float], log_x: bool) -> dict[str, Any]:
    low, high = values[0], values[-1]
    if not log_x:
        near_zero = 0 <= low <= 0.35 * high
        apart = min((b - a for a, b in pairwise(values)), default=0.0) >= 0.07 * (high - low)
        ticks = {"tickvals": values, "ticktext": [f"{v:g}" for v in values]} if len(values) <= 8 and apart else {}
        return {"rangemode": "tozero" if near_zero else "normal"} | ticks
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    pad = 0.03 * (math.log10(high / low) or 1.0)
    axis = {"type": "log", "range": [math.log10(low) - pad, math.log10(high) + pad]}
    if len(values) <= 6 or high < 10 * low:
        return axis | {"tickvals": values, "ticktext": [f"{v:g}" for v in values]}
    powers = range(first, last + 1, 1 + (last - first) // 8)
    return axis | {"tickvals": [10.0**p for p in powers], "ticktext": [POWERS.get(p, f"{10.0**p:g}") for p in powers]}


def _mark(arrangement: dict[str, Any], marks: Sequence[tuple[float, str]], log_x: bool, highest: float) -> None:
    def side(x: float) -> dict[str, Any]:
        late = x > (highest**0.65 if log_x else 0.65 * highest)
        return {"xanchor": "right", "xshift": -4} if late else {"xanchor": "left", "xshift": 4}

    places = [(x, label) for x, label in marks if math.isfinite(x) and (x > 0 or not log_x)]
    line = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    style = {"color": ROLES["faint"].light, "width": 1.2, "dash": "dot"}
    shapes = [line | {"x0": x, "x1": x, "line": style} for x, _ in places]
    # Plotly places shapes by value and annotations by the axis' own number, which is a logarithm on a logarithmic axis.
    notes = [
        note(escape(label), math.log10(x) if log_x else x, 1 - 0.07 * (i % 4), yref="paper", yanchor="top", **side(x))
        for i, (x, label) in enumerate(places)
    ]
    arrangement["shapes"] = [*arrangement.get("shapes", []), *shapes]
    arrangement["annotations"] = [*arrangement.get("annotations", []), *notes]


def _band(curve: Curve) -> list[go.Scatter]:
    """The area between ``lo`` and ``hi``, a piece for every stretch where both are known."""
    stretches: list[list[int]] = [[]]
    for index, edges in enumerate(zip(curve.lo, curve.hi, strict=True)):
        if all(map(math.isfinite, edges)):
            stretches[-1].append(index)
        elif stretches[-1]:
            stretches.append([])
    return [
        go.Scatter(
            x=[curve.x[i] for i in (*stretch, *reversed(stretch))],
            y=[*(curve.lo[i] for i in stretch), *(curve.hi[i] for i in reversed(stretch))],
            fill="toself",
            fillcolor=band_tone(curve.look.colour),
            mode="lines",
            line={"width": 0 if len(stretch) > 1 else 1.4, "color": curve.look.colour},
            hoverinfo="skip",
            name=f"{escape(curve.look.label)} band",
        )
        for stretch in stretches
        if stretch
    ]


def _line(curve: Curve, axes: tuple[str, str]) -> go.Scatter:
    unit, x_title = axes
    edges = list(zip(curve.lo, curve.hi, strict=True)) or [(math.nan, math.nan)] * len(curve.x)
    words = [f"<br>band {lo:.4g} to {hi:.4g}" if math.isfinite(lo + hi) else "" for lo, hi in edges]
    return go.Scatter(
        x=list(curve.x),
        y=list(curve.y),
        mode="lines+markers",
        line={"width": 2.4, "color": curve.look.colour, "dash": curve.look.dash},
        marker={"size": 7, "symbol": curve.look.marker, "color": curve.look.colour, "maxdisplayed": 9},
        name=escape(curve.look.label),
        customdata=words,
        hovertemplate=f"<b>{escape(curve.look.label)}</b> %{{y:.4g}}{unit}<br>{escape(x_title)} %{{x:,.6~g}}"
        "%{customdata}<extra></extra>",
        cliponaxis=False,
    )


def bars(
    key: str, rows: Sequence[tuple[str, Mapping[str, float]]], parts: Sequence[str], x_title: str, percent: bool
) -> Figure:
    """Horizontal bars, one a row, stacked from ``parts``; kinds of verdict have the colours that they have elsewhere.

    >>> bars("a", [("GRPO", {"right": 0.25, "wrong": 0.75})], ["right", "wrong"], "", True).spec["data"][1]["x"]
    [75.0]
    """
    scale, kinds = 100.0 if percent else 1.0, set(parts) <= set(KIND_WORDS)
    colours = _part_colours(parts, kinds)
    scaled = [(label, {part: scale * value for part, value in shares.items()}) for label, shares in rows]
    sums = [sum(v for v in shares.values() if v > 0) for _, shares in scaled]
    low, high = min(0.0, *(v for _, shares in scaled for v in shares.values())), max(sums)
    whole = percent and low >= 0 and 60 < high <= 100.5
    axis = {"autorange": "reversed", "showgrid": False, "automargin": True, "linewidth": 0}
    arrangement = layout(x_title, axis, small=not x_title)
    arrangement |= {"barmode": "relative", "bargap": 0.34}
    arrangement["margin"]["r"] = 40
    arrangement["xaxis"] |= {"showgrid": True}
    top = 100 if whole else (high or 1.0) * (1.12 if len(parts) == 1 else 1.02)
    arrangement["xaxis"] |= {"range": [low * 1.12, top], "nticks": 5, "ticksuffix": " %" if percent else ""}
    names = [kind_label(part) if kinds else part for part in parts]
    traces = [
        _bar((part, name), scaled, colours[part], (top - low, len(parts) == 1, " %" if percent else ""))
        for part, name in zip(parts, names, strict=True)
    ]
    shown = [Chip(name, colours[part][1]) for part, name in zip(parts, names, strict=True)]
    tallest = max(len(_wrapped(label).split("<br>")) for label, _ in rows)
    return Figure(key, spec(traces, arrangement), "", shown, 56 + (24 + 16 * tallest) * len(rows))


def _part_colours(parts: Sequence[str], kinds: bool) -> dict[str, tuple[str, str, str]]:
    """Part to fill, the style sheet's name of it, and the colour of a text on it."""
    found = {}
    for index, part in enumerate(parts):
        variable = kind_variable(part, parts) if kinds else f"--kind-{index % len(KINDS)}" if index else "--heat"
        place = variable.rpartition("-")[2]
        if place.isdigit():
            on = ROLES["on_pale" if int(place) in PALE_KINDS else "paper"].light
            found[part] = (KINDS[int(place)].light, variable, on)
        else:
            role, on = ("all_right", "ink") if kinds else ("heat", "paper")
            found[part] = (ROLES[role].light, variable, ROLES[on].light)
    return found


def _bar(
    part: tuple[str, str],
    rows: Sequence[tuple[str, Mapping[str, float]]],
    colour: tuple[str, str, str],
    how: tuple[float, bool, str],
) -> go.Bar:
    (key, name), (width, alone, unit) = part, how
    values = [shares.get(key, 0.0) for _, shares in rows]
    shown = [f"{value:.3g}" if alone or abs(value) >= 0.07 * width else "" for value in values]
    return go.Bar(
        x=values,
        y=[_wrapped(label) for label, _ in rows],
        orientation="h",
        name=escape(name),
        marker={"color": colour[0], "line": {"width": 1, "color": ROLES["paper"].light}},
        text=shown,
        textposition="outside" if alone else "inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": ROLES["ink"].light if alone else colour[2], "size": 12},
        hovertemplate="%{y}<br>" + escape(name) + f" %{{x:.4g}}{unit}<extra></extra>",
        cliponaxis=False,
    )


def _wrapped(label: str) -> str:
    return "<br>".join(escape(line) for line in wrap(label, WRAP) or [""])

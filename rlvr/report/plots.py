"""The figures of a page, drawn in the light tones; the page's script swaps tones and fits widths.

Numbers come in ready from ``rlvr.report.summary``; here they only get a place, a colour and a caption.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from rlvr.report.canvas import AXES, PERCENT, QUARTERS, Chip, Figure, Look, end_labels, layout, note, spec, start_line
from rlvr.report.summary import Line
from rlvr.report.theme import KINDS, PALE_KINDS, ROLES
from rlvr.report.words import KIND_WORDS, kind_label
from rlvr.stats import Interval

__all__ = ["MOST_LINES", "against", "chips", "curves", "group_shares", "kind_bars", "kind_variable"]

MOST_LINES = 6


def curves(key: str, lines: Sequence[Line], look: Mapping[str, Look], **options: Any) -> Figure:
    """A bold mean and thin seeds for every arm.

    Options: ``caption``, ``title``, ``x`` (words on the axis), ``unit`` (a key of `canvas.AXES`; those of
    shares draw percent), ``start`` (an `Interval`, drawn as a dotted line "before"), ``labels``
    (names at the ends of the lines), ``alarms`` (steps by arm and seed, marked on the means), ``height``, ``small``.

    >>> from rlvr.report.canvas import looks
    >>> curves("a", [Line("grpo", {0: ([0, 1], [0.2, 0.9])})], looks(["grpo"]), unit="%").spec["data"][0]["y"]
    [20.0, 90.0]
    """
    unit, start, small = options.get("unit", ""), options.get("start"), options.get("small", False)
    scale, words = (100.0, " %") if unit == "%" or "share" in unit else (1.0, "")
    few, x = len(look) <= MOST_LINES, options.get("x", "step")
    # With many arms the seeds would hide the means.
    traces = [trace for line in lines if few for trace in _seed_traces(line, look[line.arm], scale)]
    traces += [_mean_trace(line, look[line.arm], scale, (words, x), small) for line in lines]
    traces += [
        _alarm_trace(line, options["alarms"][line.arm], scale)
        for line in lines
        if line.arm in options.get("alarms", {})
    ]
    arrangement = layout(x, AXES[unit], small)
    legend = chips([look[line.arm] for line in lines])
    if start is not None:
        arrangement |= start_line(start.value * scale)
    if options.get("labels") and few:
        legend = []
        ends = [(scale * line.mean()[1][-1], look[line.arm]) for line in lines if line.mean()[1]]
        arrangement["annotations"] = [*arrangement.get("annotations", []), *end_labels(ends)]
        arrangement["margin"]["r"] = 18 + 10 * max((len(found.label) for _, found in ends), default=0)
    shown = {name: options[name] for name in ("height", "title") if name in options}
    return Figure(key, spec(traces, arrangement), options.get("caption", ""), legend, **shown)


def chips(shown: Sequence[Look]) -> list[Chip]:
    """Legend entries; where some lines are dashed or share a colour, with the pattern of each.

    >>> from rlvr.report.canvas import looks
    >>> [chip.dash for chip in chips(list(looks(["sft", "grpo"]).values()))]
    ['', '']
    >>> [chip.dash for chip in chips(list(looks(["sft-1", "sft-2"]).values()))]
    ['solid', 'dot']
    """
    patterned = len({found.variable for found in shown}) < len(shown) or any(found.dash != "solid" for found in shown)
    return [Chip(found.label, found.variable, found.dash if patterned else "") for found in shown]


def against(
    key: str,
    series: Sequence[tuple[Look, Sequence[tuple[float, Interval]]]],
    start: Sequence[tuple[float, Interval]],
    **options: Any,
) -> Figure:
    """Accuracy against a number, with intervals; ``start`` is the same before training.

    Options: ``caption``, ``x`` (axis title), ``trained`` (the highest value in training: up to it the
    figure is shaded), ``log`` (a logarithmic axis).

    >>> look = Look("GRPO", "#c8502d", "diamond", "--arm-0")
    >>> figure = against("a", [(look, [(8, Interval(1.0, 0.9, 1.0, 3, "seeds"))])], [], caption="", x="n")
    >>> figure.spec["data"][0]["error_y"]["arrayminus"]
    [10.0]
    """
    traces, count, log = [], len(series), options.get("log", False)
    if start:
        before = Look("before training", ROLES["base"].light, "circle-open", "--base", "dot")
        traces.append(_points(before, start, lambda x: x))
    for index, (look, points) in enumerate(series):
        # Neighbouring whiskers must not hide each other, so arms stand a little apart.
        shift = min(0.09, 0.8 / count) * (index - (count - 1) / 2)
        traces.append(
            _points(look, points, (lambda x, s=shift: x * (1 + s / 3)) if log else (lambda x, s=shift: x + s))
        )
    values = sorted({x for points in (start, *(points for _, points in series)) for x, _ in points})
    arrangement = layout(options["x"], PERCENT)
    arrangement["xaxis"] |= {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}
    arrangement["xaxis"] |= {"type": "log"} if log else {"range": [values[0] - 0.5, values[-1] + 0.5]}
    if options.get("trained") is not None:
        arrangement |= _trained_band(values, options["trained"])
    legend = chips([look for look, _ in series])
    legend += [Chip("before training", "--base", "dot")] if start else []
    return Figure(key, spec(traces, arrangement), options["caption"], legend, 360)


def kind_bars(key: str, rows: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str], caption: str) -> Figure:
    """Stacked bars, one a row: right answers first, then each way to fail in the order of ``kinds``.

    >>> figure = kind_bars("a", [("before", {"correct": 0.25, "lookup": 0.75})], ["correct", "lookup"], "")
    >>> [bar["x"] for bar in figure.spec["data"]]
    [[25.0], [75.0]]
    """
    order = ["correct", *(kind for kind in kinds if kind != "correct")]
    arrangement = layout(
        "", {"autorange": "reversed", "showgrid": False, "automargin": True, "linewidth": 0}, small=True
    )
    arrangement |= {"barmode": "stack", "bargap": 0.34}
    arrangement["margin"]["r"] = 34
    arrangement["xaxis"] |= {"range": [0, 100], "tickvals": QUARTERS, "ticktext": PERCENT["ticktext"]}
    traces = [_bar(kind, rows, kinds) for kind in order]
    return Figure(key, spec(traces, arrangement), caption, height=40 + 40 * len(rows))


def _bar(kind: str, rows: Sequence[tuple[str, Mapping[str, float]]], kinds: Sequence[str]) -> go.Bar:
    values = [100 * shares.get(kind, 0.0) for _, shares in rows]
    return go.Bar(
        x=values,
        y=[escape(name) for name, _ in rows],
        orientation="h",
        name=escape(kind_label(kind)),
        marker={"color": _kind_colour(kind, kinds), "line": {"width": 1, "color": ROLES["paper"].light}},
        text=[f"{value:.0f}" if value >= 7 else "" for value in values],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": _text_colour(kind, kinds), "size": 12},
        hovertemplate="%{y}<br>" + escape(kind_label(kind)) + " %{x:.1f} %<extra></extra>",
    )


def group_shares(key: str, shares: Mapping[str, Line], title: str) -> Figure:
    """Shares of groups over steps, stacked: mixed at the bottom, where its height can be read, all wrong on top.

    >>> line = Line("grpo", {0: ([0, 1], [0.1, 0.2])})
    >>> [trace["name"] for trace in group_shares("a", {"mixed": line}, "GRPO").spec["data"]]
    ['mixed', 'all right', 'all wrong']
    """
    traces = []
    for name, role in (("mixed", "mixed"), ("all right", "all_right"), ("all wrong", "all_wrong")):
        xs, ys = shares[role].mean() if role in shares else ([], [])
        traces.append(
            go.Scatter(
                x=xs,
                y=[100 * y for y in ys],
                name=name,
                stackgroup="groups",
                mode="lines",
                line={"width": 0, "color": ROLES[role].light},
                fillcolor=ROLES[role].light,
                hovertemplate="%{y:.1f} % " + name + "<extra></extra>",
            )
        )
    arrangement = layout("step", {**PERCENT, "range": [0, 100]}, small=True) | {"hovermode": "x unified"}
    return Figure(key, spec(traces, arrangement), "", (), 230, title)


def kind_variable(kind: str, kinds: Sequence[str]) -> str:
    """The style sheet's name of a kind's colour: its own on every page if it is a known one, else by its place in ``kinds``.

    >>> kind_variable("lookup", ["correct", "no_bar", "lookup"]), kind_variable("timeout", ["correct", "timeout"])
    ('--kind-3', '--kind-5')
    """
    known = [name for name in KIND_WORDS if name != "correct"]
    places = dict.fromkeys([*known, *(name for name in kinds if name != "correct")])
    return "--all-right" if kind == "correct" else f"--kind-{list(places).index(kind) % len(KINDS)}"


def _kind_colour(kind: str, kinds: Sequence[str]) -> str:
    if kind == "correct":
        return ROLES["all_right"].light
    return KINDS[int(kind_variable(kind, kinds).rpartition("-")[2])].light


def _text_colour(kind: str, kinds: Sequence[str]) -> str:
    if kind == "correct":
        return ROLES["ink"].light
    place = int(kind_variable(kind, kinds).rpartition("-")[2])
    return ROLES["on_pale" if place in PALE_KINDS else "paper"].light


def _seed_traces(line: Line, look: Look, scale: float) -> list[go.Scatter]:
    if len(line.seeds) < 2:
        return []
    return [
        go.Scatter(
            x=xs,
            y=[scale * y for y in ys],
            mode="lines",
            line={"width": 1, "color": look.colour},
            opacity=0.4,
            hoverinfo="skip",
            name=f"{escape(look.label)} seed {seed}",
        )
        for seed, (xs, ys) in line.seeds.items()
    ]


def _mean_trace(line: Line, look: Look, scale: float, axes: tuple[str, str], small: bool) -> go.Scatter:
    (xs, ys), (unit, x_title) = line.mean(), axes
    by_seed = [dict(zip(*points, strict=True)) for points in line.seeds.values()]
    template = f"<b>{escape(look.label)}</b> %{{y:.4g}}{unit}<br>{escape(x_title)} %{{x:,.6~g}}"
    template += "<br>by seed: %{customdata}<extra></extra>" if len(by_seed) > 1 else "<extra></extra>"
    return go.Scatter(
        x=xs,
        y=[scale * y for y in ys],
        mode="lines" if small else "lines+markers",
        line={"width": 1.8 if small else 2.6, "color": look.colour, "dash": look.dash},
        # A marker on every point would make beads of a line.
        marker={"size": 7, "symbol": look.marker, "color": look.colour, "maxdisplayed": 8},
        name=escape(look.label),
        customdata=[" · ".join(f"{scale * seed[x]:.4g}" for seed in by_seed) for x in xs],
        hovertemplate=template,
        cliponaxis=False,
    )


def _alarm_trace(line: Line, steps: Mapping[int, int | None], scale: float) -> go.Scatter:
    """A cross on the mean where the alarm of each seed first fired."""
    (xs, ys), fired = line.mean(), {seed: step for seed, step in steps.items() if step is not None}
    return go.Scatter(
        x=list(fired.values()) if xs else [],
        y=[scale * float(np.interp(step, xs, ys)) for step in fired.values()] if xs else [],
        mode="markers",
        marker={"size": 10, "symbol": "x-thin", "line": {"width": 2.2, "color": ROLES["differs"].light}},
        name="divergence alarm",
        customdata=list(fired),
        hovertemplate="divergence alarm, seed %{customdata}<br>step %{x}<extra></extra>",
        cliponaxis=False,
    )


def _points(look: Look, points: Sequence[tuple[float, Interval]], place: Any) -> go.Scatter:
    values = [100 * interval.value for _, interval in points]
    pairs = [(interval, value) for (_, interval), value in zip(points, values, strict=True)]
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [100 * interval.hi - value for interval, value in pairs],
        "arrayminus": [value - 100 * interval.lo for interval, value in pairs],
        "thickness": 1.4,
        "width": 0,
    }
    return go.Scatter(
        x=[place(x) for x, _ in points],
        y=values,
        error_y=whiskers,
        mode="lines+markers",
        line={"width": 2, "color": look.colour, "dash": look.dash},
        marker={"size": 8, "symbol": look.marker, "color": look.colour},
        name=escape(look.label),
        customdata=[_words(interval) for _, interval in points],
        hovertemplate=f"<b>{escape(look.label)}</b> %{{customdata}}<extra></extra>",
        cliponaxis=False,
    )


def _words(interval: Interval) -> str:
    ends = f"{100 * interval.lo:.1f} to {100 * interval.hi:.1f}"
    return f"{100 * interval.value:.1f} %<br>95 % interval {ends}<br>n = {interval.n} {interval.unit}"


def _trained_band(values: Sequence[float], highest: float) -> dict[str, Any]:
    edge = min(highest + 0.5, values[-1] + 0.5)
    band = {"type": "rect", "xref": "x", "yref": "paper", "x0": values[0] - 0.5, "x1": edge, "y0": 0, "y1": 1}
    changes = {"yref": "paper", "yanchor": "bottom", "font": {"size": 12, "color": ROLES["faint"].light}}
    notes = [note("trained", values[0] - 0.42, 0.01, **changes)]
    if edge < values[-1]:
        notes.append(note("never trained", edge + 0.08, 0.01, **changes))
    return {
        "shapes": [band | {"fillcolor": ROLES["wash"].light, "line": {"width": 0}, "layer": "below"}],
        "annotations": notes,
    }

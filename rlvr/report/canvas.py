"""How every figure looks: fonts, axes, the labels at the ends of lines. What is drawn is for ``rlvr.report.plots``.

Nothing can be dragged or zoomed, so that a finger on a phone scrolls the page and not the axes.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go

from rlvr.report.theme import ARMS, BAND, MARKERS, ROLES
from rlvr.report.words import arm_label, sweep_of

__all__ = ["AXES", "PERCENT", "Chip", "Figure", "Look", "band_tone", "end_labels", "layout", "looks", "note", "spec"]
__all__ += ["start_line"]

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
QUARTERS = [0, 25, 50, 75, 100]
PERCENT = {"range": [-3, 104], "tickvals": QUARTERS, "ticktext": ["0", "25", "50", "75", "100 %"]}
AXES = {
    "%": PERCENT,
    "share": {"rangemode": "tozero", "nticks": 5, "ticksuffix": " %"},
    "from zero": {"rangemode": "tozero", "nticks": 5},
    "": {"nticks": 5},
    "zoomed share": {"nticks": 5, "ticksuffix": " %"},
}
PATTERNS = {"solid": "none", "dot": "2 3", "dash": "6 4", "longdash": "12 5", "dashdot": "8 3 2 3"}
DASHES = tuple(PATTERNS)


class Look(NamedTuple):
    """How an arm looks everywhere on a page; ``variable`` is the style sheet's name of its colour.

    >>> Look("GRPO", "#c8502d", "diamond", "--arm-2").dash
    'solid'
    """

    label: str
    colour: str
    marker: str
    variable: str
    dash: str = "solid"


class Chip(NamedTuple):
    """One entry of a legend; ``dash`` is plotly's name of a line's pattern, empty for a dot.

    >>> Chip("GRPO", "--arm-2").dash
    ''
    """

    label: str
    variable: str
    dash: str = ""

    @property
    def pattern(self) -> str:
        """The pattern as SVG writes it.

        >>> Chip("before training", "--base", "dot").pattern
        '2 3'
        """
        return PATTERNS[self.dash]


class Figure(NamedTuple):
    """A drawing with what must stand around it. ``spec`` is plotly's JSON, ``height`` is in pixels.

    Where it is ``labelled``, its lines have names at their ends, and on a narrow screen its legend instead.

    >>> Figure("hero", {}, "What to see.").height
    340
    """

    key: str
    spec: Mapping[str, Any]
    caption: str
    legend: Sequence[Chip] = ()
    height: int = 340
    title: str = ""
    labelled: bool = False


def looks(arms: Sequence[str]) -> dict[str, Look]:
    """Colour and marker of each arm, by its place; they repeat after eight, with another dash.

    In a sweep (``grpo-0.0001``, ``grpo-0.0003``, ``rft-0.0001``, ...) the method has the colour and the
    value the dash.

    >>> looks(["sft", "grpo"])["grpo"].variable
    '--arm-1'
    >>> found = looks(["sft-1", "sft-2", "grpo-1", "grpo-2"])
    >>> found["grpo-2"].variable, found["grpo-2"].dash
    ('--arm-1', 'dot')
    """
    sweep = sweep_of(arms)
    places = {arm: (index, index // len(ARMS)) for index, arm in enumerate(arms)}
    for index, values in enumerate(sweep.values()):
        places |= {arm: (index, rank) for rank, arm in enumerate(values.values())}
    return {
        arm: Look(
            arm_label(arm),
            ARMS[index % len(ARMS)].light,
            MARKERS[index % len(MARKERS)],
            f"--arm-{index % len(ARMS)}",
            DASHES[rank % len(DASHES)],
        )
        for arm, (index, rank) in places.items()
    }


def layout(x_title: str, y_axis: Mapping[str, Any], small: bool = False) -> dict[str, Any]:
    """The layout that all figures share; a ``small`` one has no title on its x axis.

    >>> layout("step", PERCENT)["dragmode"]
    False
    """
    axis = {"fixedrange": True, "zeroline": False, "gridcolor": ROLES["grid"].light, "automargin": True}
    axis |= {"linecolor": ROLES["rule"].light, "tickcolor": ROLES["rule"].light}
    title = {} if small else {"title": {"text": escape(x_title), "standoff": 8, "font": {"size": 13}}}
    label = {"color": ROLES["ink"].light, "size": 13, "family": FONT}
    return {
        "font": {"family": FONT, "size": 12 if small else 13, "color": ROLES["soft"].light},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 16, "t": 12, "b": 8},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": ROLES["card"].light, "bordercolor": ROLES["rule"].light, "font": label},
        "xaxis": axis | title | {"showgrid": False, "ticks": "outside", "nticks": 7, "rangemode": "tozero"},
        "yaxis": {**axis, **y_axis},
    }


def note(text: str, x: float, y: float, **changes: Any) -> dict[str, Any]:
    """A small text on a figure without an arrow.

    >>> note("never trained", 12.5, 0, yref="paper")["yref"]
    'paper'
    """
    font = {"size": 12, "color": ROLES["soft"].light}
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": "left", "font": font} | changes


def band_tone(colour: str) -> str:
    """A colour thinned for the band around a line.

    >>> band_tone("#c8502d")
    '#c8502d2e'
    """
    return colour + BAND


def start_line(value: float) -> dict[str, Any]:
    """A dotted level over the whole figure with its words: where training began.

    >>> start_line(27.0)["annotations"][0]["text"]
    'before training 27 %'
    """
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "layer": "below"}
    # Curves mostly rise from this level, so the room is below it.
    side = "top" if value > 8 else "bottom"
    words = note(f"before training {value:.3g} %", 1, value, xref="paper", xanchor="right", yanchor=side)
    return {
        "shapes": [line | {"line": {"color": ROLES["base"].light, "width": 1.5, "dash": "dot"}}],
        "annotations": [words],
    }


def end_labels(ends: Sequence[tuple[float, Look]], gap: float = 7.0, top: float = 104.0) -> list[dict[str, Any]]:
    """Names at the right of lines that end at these heights, at least ``gap`` apart and none above ``top``.

    >>> look = looks(["a", "b"])
    >>> [label["y"] for label in end_labels([(99.0, look["a"]), (98.0, look["b"])])]
    [97.0, 104.0]
    """
    ordered = sorted(ends, key=lambda end: end[0])
    places: list[float] = []
    for height, _ in ordered:
        places.append(max(height, places[-1] + gap) if places else height)
    # A pile of labels at the top is pushed down from its last one, which may not leave the figure.
    places = [min(place, top - gap * (len(places) - 1 - index)) for index, place in enumerate(places)]
    return [
        note(
            f"<b>{escape(look.label)}</b>",
            1,
            place,
            xref="paper",
            xshift=8,
            name="end",
            font={"size": 13, "color": look.colour},
        )
        for place, (_, look) in zip(places, ordered, strict=True)
    ]


def spec(traces: Sequence[Any], arrangement: Mapping[str, Any]) -> dict[str, Any]:
    """Plotly's JSON of a figure, checked by plotly, without its default template.

    >>> sorted(spec([], layout("step", PERCENT)))
    ['data', 'layout']
    """
    found = json.loads(go.Figure(traces, arrangement).to_json())
    found["layout"].pop("template", None)
    return {"data": found["data"], "layout": found["layout"]}

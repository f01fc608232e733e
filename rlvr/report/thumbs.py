"""Small still pictures of figures, for cards: drawn from a figure's own data as SVG, without any script."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from rlvr.report.canvas import PATTERNS, Figure
from rlvr.report.theme import ARMS, KINDS, ROLES

__all__ = ["thumbnail"]

WIDTH, HEIGHT, PAD = 320.0, 132.0, 5.0
VARIABLES = {tone.light: f"--{name.replace('_', '-')}" for name, tone in ROLES.items()}
VARIABLES |= {tone.light: f"--arm-{index}" for index, tone in enumerate(ARMS)}
VARIABLES |= {tone.light: f"--kind-{index}" for index, tone in enumerate(KINDS)}

Points = list[tuple[float, float]]


def thumbnail(figure: Figure) -> Markup:
    """The lines or bars of a figure without its axes; empty when there is nothing to draw.

    >>> thumbnail(Figure("a", {"data": [], "layout": {"xaxis": {}}}, ""))
    Markup('')
    """
    traces = figure.spec["data"]
    bars = [trace for trace in traces if trace["type"] == "bar"]
    shapes = list(_bars(bars) if bars else _lines(traces, figure.spec["layout"]))
    if not shapes:
        return Markup("")
    words = escape(figure.caption or figure.title)
    inside = Markup("").join(shapes)
    return Markup(
        f'<svg class="thumb" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f"{inside}</svg>"
    )


def _lines(traces: Sequence[dict[str, Any]], layout: dict[str, Any]) -> Iterator[Markup]:
    log_x = layout["xaxis"].get("type") == "log"
    lines = [trace for trace in traces if "lines" in trace.get("mode", "") and not trace.get("fill")]
    drawn = [(trace, list(_pieces(trace, log_x))) for trace in lines]
    points = [point for _, pieces in drawn for piece in pieces for point in piece]
    if not points:
        return
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = layout["yaxis"].get("range") or (min(0.0, *(y for _, y in points)), max(y for _, y in points))
    for trace, pieces in drawn:
        line = trace["line"]
        for piece in pieces:
            placed = [(_place(x, left, right, WIDTH), HEIGHT - _place(y, low, high, HEIGHT)) for x, y in piece]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            faint = trace.get("opacity", 1)
            width = 1 if faint < 1 else 2.4
            dash = PATTERNS.get(line.get("dash", "solid"), "none")
            yield Markup(
                f'<polyline points="{path}" fill="none" stroke="var({VARIABLES[line["color"]]})" stroke-width="{width}" '
                f'stroke-dasharray="{dash}" opacity="{faint}" vector-effect="non-scaling-stroke"/>'
            )


def _pieces(trace: dict[str, Any], log_x: bool) -> Iterator[Points]:
    """The stretches of a line between its holes."""
    piece: Points = []
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if y is None or not math.isfinite(y):
            if piece:
                yield piece
            piece = []
        else:
            piece.append((math.log10(x) if log_x else x, y))
    if piece:
        yield piece


def _place(value: float, low: float, high: float, size: float) -> float:
    return PAD + (size - 2 * PAD) * ((value - low) / (high - low) if high > low else 0.5)


def _bars(traces: Sequence[dict[str, Any]]) -> Iterator[Markup]:
    rows = len(traces[0]["x"])
    sums = [sum(max(0.0, trace["x"][row] or 0.0) for trace in traces) for row in range(rows)]
    tall, longest = (HEIGHT - 2 * PAD) / rows, max(sums) or 1.0
    for row in range(rows):
        left = 0.0
        for trace in traces:
            width = WIDTH * max(0.0, trace["x"][row] or 0.0) / longest
            if width > 0:
                yield Markup(
                    f'<rect x="{left:.1f}" y="{PAD + row * tall + 0.14 * tall:.1f}" width="{width:.1f}" '
                    f'height="{0.72 * tall:.1f}" fill="var({VARIABLES[trace["marker"]["color"]]})"/>'
                )
            left += width

"""What an experiment's page shows, as plain data: the experiment says what, the report says how it looks.

A panel opens with its title, a question or a statement in plain words, and a text; its ``key`` is its name on the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Bars", "Lines", "Panel", "Series", "Table", "Texts", "as_data"]


@dataclass(frozen=True)
class Series:
    """One line of a figure, with a band from ``lo`` to ``hi`` where they are given; ``arm`` lends it that arm's colour."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    lo: Sequence[float] | None = None
    hi: Sequence[float] | None = None
    dashed: bool = False
    arm: str = ""


@dataclass(frozen=True)
class Lines:
    """A figure of lines; shares are shown in percent; ``marks`` are vertical lines, each with its label."""

    key: str
    title: str
    text: str
    series: Sequence[Series]
    x_title: str
    y_title: str
    log_x: bool = False
    percent: bool = True
    caption: str = ""
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, each stacked from ``parts``."""

    key: str
    title: str
    text: str
    rows: Sequence[tuple[str, Mapping[str, float]]]
    parts: Sequence[str]
    x_title: str
    percent: bool = True
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of words or numbers under their columns."""

    key: str
    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    caption: str = ""


@dataclass(frozen=True)
class Texts:
    """Completions, literally: a label, the prompt, the completion and a note each."""

    key: str
    title: str
    text: str
    rows: Sequence[tuple[str, str, str, str]]


Panel = Lines | Bars | Table | Texts


def as_data(panel: Panel) -> dict[str, Any]:
    """A panel as the page reads it.

    >>> as_data(Texts("hacks", "What it writes", "", []))["type"]
    'texts'
    """
    return {"type": type(panel).__name__.lower()} | asdict(panel)

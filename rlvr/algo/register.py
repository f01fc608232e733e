"""The register of the algorithms: rows, a line about each, and where every value of a row comes from."""

from rlvr.algo.algorithm import Algorithm, difference

__all__ = ["PRESETS", "SOURCES", "SUMMARIES", "row"]

PRESETS: dict[str, Algorithm] = {}
"""Every row by its name."""

SUMMARIES: dict[str, str] = {}
"""One line a row: what it is, and what it takes away from the row it is made from."""

SOURCES: dict[str, dict[str, str]] = {}
"""For each row the slots it sets, and what fixes the value: a paper and the place in it, in our words."""


def row(algorithm: Algorithm, summary: str, parent: Algorithm | None = None, **sources: str) -> Algorithm:
    """Registers a row and returns it; slots it shares with ``parent`` keep the parent's sources.

    >>> SOURCES["rloo"]["advantage"] == SOURCES["reinforce_leave_one_out"]["advantage"]
    True
    """
    kept = {}
    if parent is not None:
        kept = {slot: text for slot, text in SOURCES[parent.name].items() if slot not in difference(parent, algorithm)}
    PRESETS[algorithm.name], SUMMARIES[algorithm.name] = algorithm, summary
    SOURCES[algorithm.name] = kept | sources
    return algorithm

"""Texts that share beginnings, laid out so that a language model reads each beginning once.

A *bundle* is a prompt with some of its completions, one row for the model: the prompt, then every distinct prefix of the
completions once, each token of the tree looking at the prompt, at its own ancestors and at itself. Attention needs nothing but
the table of who sees whom (a 4D mask) and each token's depth as its position, so any model with full attention reads it; the
gradient of a shared piece is the sum of what its readers ask for.

A wide bundle saves tokens but makes a token look past its siblings, so the completions of a bundle may be as long together as
their prompt or as ``ROOM`` tokens, whichever is more; a longer completion is alone with its prompt.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Tree", "bundles", "plant"]

ROOM = 512


class Tree(NamedTuple):
    """N bundles of at most W tokens, and where each completion token is drawn from.

    ``tokens`` and ``positions`` are [N W], ``seen`` [N W W] says which column a column may look at (a column of padding sees
    itself). ``places`` [M] are the cells ``row * W + column`` whose logits are wanted, ``rows`` and ``ids`` [K] the distinct
    (place, drawn token) pairs, in the order of their places, and ``pair`` [R T] the pair of each completion token.
    """

    tokens: np.ndarray
    positions: np.ndarray
    seen: np.ndarray
    places: np.ndarray
    rows: np.ndarray
    ids: np.ndarray
    pair: np.ndarray


def bundles(problem: np.ndarray, lengths: Sequence[int], width: int) -> tuple[np.ndarray, np.ndarray]:
    """The bundle of each completion [R] of at most ``width`` tokens, and the problem of each bundle [N].

    >>> bundles(np.array([0, 0, 1, 1, 1]), [9, 9], width=200)
    (array([0, 0, 1, 1, 2]), array([0, 1, 1]))
    """
    most = np.maximum(1, np.maximum(ROOM, np.asarray(lengths)) // width)
    counts = np.bincount(problem, minlength=len(lengths))
    order = np.argsort(problem, kind="stable")
    rank = np.empty_like(problem)
    rank[order] = np.arange(len(problem)) - np.repeat(np.cumsum(counts) - counts, counts)
    pairs = np.stack([problem, rank // most[problem]], axis=1)
    found, bundle = np.unique(pairs, axis=0, return_inverse=True)
    return bundle.reshape(-1), found[:, 0]


def plant(prompts: Sequence[Sequence[int]], problem: np.ndarray, tokens: np.ndarray, mask: np.ndarray) -> Tree:
    """Completions [R T] of ``prompts[problem[r]]`` as trees; ``mask`` is true for a beginning of each row, of some row at all.

    >>> tree = plant([[7, 8]], np.array([0, 0]), np.array([[1, 2], [1, 3]]), np.ones((2, 2), dtype=bool))
    >>> tree.tokens, tree.ids, tree.pair
    (array([[7, 8, 1]]), array([1, 2, 3]), array([[0, 1],
           [0, 2]]))
    """
    lengths = np.array([len(prompt) for prompt in prompts])
    bundle, asked = bundles(problem, lengths, max(1, int(mask.sum(1).max())))
    starts = lengths[asked]
    levels, source = _grow(bundle, len(asked), tokens, mask)
    home = np.concatenate([np.arange(len(asked)), *(home for home, *_ in levels)])
    column = _columns(home, starts)
    width = int(column.max()) + 1
    table = np.zeros((len(asked), width), dtype=np.int64)
    positions, seen = np.zeros_like(table), np.zeros((len(asked), width, width), dtype=bool)
    for row, p in enumerate(asked):
        table[row, : starts[row]] = prompts[p]
    steps = np.arange(width)
    positions[:] = np.minimum(steps, starts[:, None] - 1)
    seen[:] = (steps <= steps[:, None]) & (steps < starts[:, None, None]) & (steps[:, None] < starts[:, None, None])
    first = len(asked)
    for depth, (rows, parent, token) in enumerate(levels):
        at = column[first : first + len(rows)]
        table[rows, at], positions[rows, at] = token, starts[rows] + depth
        seen[rows, at] = seen[rows, column[parent]]
        seen[rows, at, at] = True
        first += len(rows)
    seen[:, steps, steps] = True
    cells = home * width + column
    return Tree(table, positions, seen, *_pairs(cells, source, tokens, mask))


Level = tuple[np.ndarray, np.ndarray, np.ndarray]


def _grow(bundle: np.ndarray, count: int, tokens: np.ndarray, mask: np.ndarray) -> tuple[list[Level], np.ndarray]:
    """The distinct prefixes level by level (bundle, parent, token), and the node [R T] that each token is drawn from.

    Nodes are numbered in order, the first ``count`` being the prompts; what is drawn last is never read, so it is no node.
    """
    node, source, levels, known = bundle.copy(), np.zeros(tokens.shape, dtype=np.int64), [], count
    home = np.arange(count)
    for step in range(tokens.shape[1]):
        rows = mask[:, step].nonzero()[0]
        source[rows, step] = node[rows]
        going = mask[:, step + 1].nonzero()[0] if step + 1 < tokens.shape[1] else rows[:0]
        if not len(going):
            break
        pairs = np.stack([node[going], tokens[going, step]], axis=1)
        found, which = np.unique(pairs, axis=0, return_inverse=True)
        node[going] = known + which.reshape(-1)
        levels.append((home[found[:, 0]], found[:, 0], found[:, 1]))
        home = np.concatenate([home, levels[-1][0]])
        known += len(found)
    return levels, source


def _columns(home: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The column of each node: a prompt's is its last token, the others follow it in their order."""
    order = np.argsort(home, kind="stable")
    counts = np.bincount(home, minlength=len(starts))
    rank = np.empty_like(home)
    rank[order] = np.arange(len(home)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[home] - 1 + rank


def _pairs(cells: np.ndarray, source: np.ndarray, tokens: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, ...]:
    used, place = np.unique(source[mask], return_inverse=True)
    drawn = np.stack([place.reshape(-1), tokens[mask]], axis=1)
    found, which = np.unique(drawn, axis=0, return_inverse=True)
    pair = np.zeros(tokens.shape, dtype=np.int64)
    pair[mask] = which.reshape(-1)
    return cells[used], *np.ascontiguousarray(found.T), pair

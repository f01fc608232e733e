"""The tree of a policy's completions, walked by probability mass: what sampling estimates, known within bounds.

A completion is short and a trained policy nearly deterministic, so a few hundred prefixes carry almost all of its mass. The
walk goes down level by level, one row of arithmetic for each prefix. At every level the least likely continuations are let go,
as long as everything that was let go of a problem stays within the tolerance; their mass is the ``rest``, of which nothing is
known. Whatever a sum over leaves says of the policy is therefore true up to a share ``rest`` of the mass, without chance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlvr.policy.decoding import Decoding
from rlvr.policy.lab import PROMPTS_AT_ONCE, LabPolicy
from rlvr.policy.transformer import SharedPast
from rlvr.types import Problem

__all__ = ["Bounds", "Divergence", "Reach", "Tree", "divergence", "walk"]

# Keys and values of more prefixes than this leave the cache of a processor: beyond it the problems are walked in two halves.
ROWS_AT_ONCE = 256


class Bounds(NamedTuple):
    """Lowest and highest possible value for each problem, [P] each."""

    lo: np.ndarray
    hi: np.ndarray


class Divergence(NamedTuple):
    """KL(policy ‖ reference) in nats a completion, [P]: at least ``lo``, and exactly that where ``rest`` is 0."""

    lo: np.ndarray
    rest: np.ndarray


@dataclass(frozen=True)
class Reach:
    """How far to walk: until at most ``tolerance`` of each problem's mass is let go, and never with more than ``width``
    prefixes of a problem at one level.

    The second binds before the first where a policy is far from deterministic; ``Tree.rest`` says what it came to.

    >>> Reach(tolerance=2.0)
    Traceback (most recent call last):
    ValueError: reach: tolerance 2.0 must be in [0, 1), width 1024 at least 1
    """

    tolerance: float = 1e-6
    width: int = 1024

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < 1 or self.width < 1:
            raise ValueError(f"reach: tolerance {self.tolerance} must be in [0, 1), width {self.width} at least 1")


@dataclass(frozen=True)
class Tree:
    """The completions that a walk came to, by problem and then by falling probability.

    Leaf i belongs to ``problems[index[i]]``, reads ``texts[i]`` with ``lengths[i]`` of the ``tokens`` [N T], has
    probability exp(``logps[i]``) and ``finished[i]`` with an end token; else it met its limit, or what was asked is settled.
    ``rest`` [P] is the mass of all completions that are not among the leaves, ``nodes`` [P] how many prefixes were expanded,
    ``limits`` [P] how long a completion may get.

    >>> policy = LabPolicy.create("ab$", "$", seed=0)
    >>> tree = walk(policy, [Problem("a", "b")], [2], Reach(tolerance=0.0))
    >>> len(tree.texts), tree.rest, bool(abs(np.exp(tree.logps).sum() - 1) < 1e-12)
    (7, array([0.]), True)
    """

    problems: Sequence[Problem]
    limits: np.ndarray
    index: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    texts: Sequence[str]
    logps: np.ndarray
    finished: np.ndarray
    rest: np.ndarray
    nodes: np.ndarray
    vocabulary: int

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """Σ of one amount a leaf, by problem: [N] -> [P].

        >>> tree = walk(LabPolicy.create("ab$", "$", seed=0), [Problem("a", "b")], [2], Reach(tolerance=0.0))
        >>> tree.sums(np.ones(7))
        array([7.])
        """
        return np.bincount(self.index, weights=amounts, minlength=len(self.problems))

    def expected(self, value: Callable[[Problem, str], float], low: float = 0.0, high: float = 1.0) -> Bounds:
        """Bounds on E[value(problem, text)] of a function that lies within [``low``, ``high``]; a predicate's probability.

        lo, hi = Σ_leaves p·value + rest·(low, high).

        >>> tree = walk(LabPolicy.create("ab$", "$", seed=0), [Problem("a", "b")], [2], Reach(tolerance=0.0))
        >>> bool(tree.expected(lambda problem, text: "$" in text).lo < tree.expected(lambda problem, text: True).hi)
        True
        """
        values = np.array(
            [value(self.problems[p], text) for p, text in zip(self.index, self.texts, strict=True)], float
        )
        if len(values) and not low <= values.min() <= values.max() <= high:
            raise ValueError(f"expected: values from {values.min()} to {values.max()}; they must be in [{low}, {high}]")
        known = self.sums(np.exp(self.logps) * values)
        return Bounds(known + self.rest * low, known + self.rest * high)

    def shares(self, key: Callable[[Problem, str], object]) -> list[dict]:
        """For each problem the known mass of each value of ``key(problem, text)``: of answers, of kinds of failure.

        >>> tree = walk(LabPolicy.create("ab$", "$", seed=0), [Problem("a", "b")], [1], Reach(tolerance=0.0))
        >>> sorted(tree.shares(lambda problem, text: text)[0])
        ['$', 'a', 'b']
        """
        found: list[dict] = [{} for _ in self.problems]
        for p, text, mass in zip(self.index, self.texts, np.exp(self.logps), strict=True):
            value = key(self.problems[p], text)
            found[p][value] = found[p].get(value, 0.0) + float(mass)
        return found

    def entropy(self) -> Bounds:
        """Bounds on the entropy of a whole completion in nats, H = -Σ p log p.

        The rest counts as one completion for ``lo`` and as evenly spread over all texts there are for ``hi``. Divided by the
        expected length it is the mean entropy a token. A tree whose leaves were settled early has the entropy up to there.

        >>> tree = walk(LabPolicy.create("ab$", "$", seed=0), [Problem("a", "b")], [1], Reach(tolerance=0.0))
        >>> bool(0 < tree.entropy().lo[0] == tree.entropy().hi[0] < np.log(3))
        True
        """
        lo = self.sums(-np.exp(self.logps) * self.logps) - _x_log(self.rest, self.rest)
        # No more than V^L texts of at most L tokens end with an end token or at the limit.
        return Bounds(lo, lo + self.rest * self.limits * np.log(self.vocabulary))


def _x_log(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x·log y, 0 where x is."""
    return np.where(x > 0, x * np.log(np.where(x > 0, y, 1.0)), 0.0)


def divergence(tree: Tree, reference: LabPolicy, decoding: Decoding = Decoding()) -> Divergence:
    """KL(policy ‖ reference) by problem: Σ_leaves p·(log p - log q) + rest·log(rest / rest_q), rest_q = 1 - Σ_leaves q.

    Taking the rest as one outcome can only lose divergence (the log-sum inequality), so the sum is a lower bound, and the
    divergence itself where nothing was let go. ``tree`` must be one of whole completions, none settled early.

    >>> policy, other = (LabPolicy.create("ab$", "$", seed=seed) for seed in (0, 1))
    >>> tree = walk(policy, [Problem("a", "b")], [2], Reach(tolerance=0.0))
    >>> bool(abs(divergence(tree, policy).lo[0]) < 1e-6 < divergence(tree, other).lo[0])
    True
    """
    logq = np.concatenate([_scored(tree, reference, decoding, low) for low in range(0, len(tree.index), ROWS_AT_ONCE)])
    left = np.clip(1.0 - tree.sums(np.exp(logq)), 1e-300, 1.0)
    known = tree.sums(np.exp(tree.logps) * (tree.logps - logq))
    return Divergence(known + _x_log(tree.rest, tree.rest / left), tree.rest)


@torch.no_grad()
def _scored(tree: Tree, reference: LabPolicy, decoding: Decoding, low: int) -> np.ndarray:
    rows = slice(low, low + ROWS_AT_ONCE)
    tokens, lengths = (torch.from_numpy(part[rows]).to(reference.device) for part in (tree.tokens, tree.lengths))
    index = torch.from_numpy(tree.index[rows]).to(reference.device)
    mask = torch.arange(tokens.shape[1], device=reference.device) < lengths[:, None]
    return reference.score(tree.problems, index, tokens, mask, decoding).logps.double().sum(1).cpu().numpy()


@dataclass(frozen=True)
class _Level:
    """Prefixes of one length, by problem: what stands in each row, its log-probability and how the policy goes on."""

    problem: np.ndarray
    tokens: np.ndarray
    logps: np.ndarray
    logits: Tensor
    past: SharedPast
    position: Tensor

    def rows(self, low: int, high: int) -> "_Level":
        """The rows from ``low`` to ``high``."""
        index = torch.arange(low, high, device=self.logits.device)
        tensors = self.logits[low:high], self.past.rows(index), self.position[low:high]
        return _Level(self.problem[low:high], self.tokens[low:high], self.logps[low:high], *tensors)


@dataclass
class _Walk:
    """A walk under way: what it was asked, the leaves found so far, and the mass let go."""

    policy: LabPolicy
    problems: Sequence[Problem]
    limits: np.ndarray
    reach: Reach
    decoding: Decoding
    settled: Callable[[Problem, str], bool] | None

    def __post_init__(self) -> None:
        self.rest, self.nodes = np.zeros(len(self.problems)), np.zeros(len(self.problems), dtype=np.int64)
        self.leaves: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.ends = np.isin(np.arange(self.policy.model.config.vocab), self.policy.tokenizer.eos_ids)

    def begin(self, low: int, high: int) -> _Level:
        """The prompts of some problems, read."""
        prompts = self.policy.prompts(self.problems[low:high])
        logits, past = self.policy.model.encode(prompts, extra=int(self.limits[low:high].max()))
        problem, after = np.arange(low, high), prompts.offsets + prompts.lengths
        empty = np.zeros((high - low, 0), dtype=np.int64)
        return _Level(problem, empty, np.zeros(high - low), logits, SharedPast.of(past, prompts.tokens.shape[1]), after)

    def descend(self, level: _Level) -> None:
        """Expand a level and all below it."""
        while len(level.problem):
            borders = np.flatnonzero(np.diff(level.problem)) + 1
            if len(level.problem) > ROWS_AT_ONCE and len(borders):
                half = int(borders[np.abs(borders - len(level.problem) / 2).argmin()])
                self.descend(level.rows(0, half))
                self.descend(level.rows(half, len(level.problem)))
                return
            level = self.below(level)

    def below(self, level: _Level) -> _Level:
        """The next level: every prefix is expanded, leaves are noted, and what goes on is read one token further."""
        parents, token, logps = self.chosen(level)
        problem = level.problem[parents]
        tokens = np.concatenate([level.tokens[parents], token[:, None]], axis=1)
        leaf = self.ends[token] | (tokens.shape[1] == self.limits[problem])
        if self.settled is not None:
            texts = map(self.policy.decode, tokens.tolist())
            known = [self.settled(self.problems[p], text) for p, text in zip(problem, texts, strict=True)]
            leaf |= np.array(known, dtype=bool)
        self.leaves.append((problem[leaf], tokens[leaf], logps[leaf]))
        on = np.flatnonzero(~leaf)
        rows = torch.from_numpy(parents[on]).to(level.logits.device)
        past, position = level.past.rows(rows), level.position[rows]
        logits = level.logits[:0]
        if len(on):
            follow = torch.from_numpy(token[on]).to(rows.device)
            logits = self.policy.model.decode(follow, position, past, tokens.shape[1] - 1)
        return _Level(problem[on], tokens[on], logps[on], logits, past, position + 1)

    def chosen(self, level: _Level) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Continuations that are kept: their row, their token, their log-probability."""
        ahead = self.decoding.log_probs(level.logits.double()).cpu().numpy() + level.logps[:, None]
        depth, kept = level.tokens.shape[1] + 1, []
        counts = np.bincount(level.problem, minlength=len(self.problems))
        self.nodes += counts
        starts = np.cumsum(counts) - counts
        for p in np.flatnonzero(counts):
            part = ahead[starts[p] : starts[p] + counts[p]]
            # What may be let go by this depth: an even share of the tolerance a level, less what is gone.
            spare = self.reach.tolerance * depth / self.limits[p] - self.rest[p]
            places, gone = _likeliest(np.exp(part).ravel(), spare, self.reach.width)
            self.rest[p] += gone
            kept.append(places + starts[p] * ahead.shape[1])
        places = np.concatenate(kept)
        return *np.divmod(places, ahead.shape[1]), ahead.ravel()[places]

    def tree(self) -> Tree:
        """All leaves as one table."""
        width = int(self.limits.max())
        problem = np.concatenate([part[0] for part in self.leaves])
        tokens = np.concatenate([np.pad(part[1], ((0, 0), (0, width - part[1].shape[1]))) for part in self.leaves])
        lengths = np.concatenate([np.full(len(part[0]), part[1].shape[1]) for part in self.leaves])
        logps = np.concatenate([part[2] for part in self.leaves])
        order = np.lexsort((-logps, problem))
        tokens, lengths = tokens[order], lengths[order]
        texts = [self.policy.decode(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        finished = self.ends[tokens[np.arange(len(tokens)), lengths - 1]]
        columns = problem[order], tokens, lengths, texts, logps[order], finished
        return Tree(self.problems, self.limits, *columns, self.rest, self.nodes, len(self.ends))


def _likeliest(mass: np.ndarray, spare: float, width: int) -> tuple[np.ndarray, float]:
    """Places of the masses to keep, ascending, and the sum of the others: the least ones that sum to no more than ``spare``,
    and all but ``width``."""
    order = np.argsort(mass, kind="stable")
    order = order[np.searchsorted(mass[order], 0.0, side="right") :]
    lost = np.cumsum(mass[order])
    drop = max(int(np.searchsorted(lost, spare, side="right")), len(order) - width)
    return np.sort(order[drop:]), float(lost[drop - 1]) if drop else 0.0


@torch.no_grad()
def walk(
    policy: LabPolicy,
    problems: Sequence[Problem],
    limits: Sequence[int],
    reach: Reach = Reach(),
    settled: Callable[[Problem, str], bool] | None = None,
    decoding: Decoding = Decoding(),
) -> Tree:
    """The completions of each problem by falling probability, until no more than the tolerance is left.

    A prefix for which ``settled(problem, text)`` holds is a leaf of its own: whatever follows, what is asked of the text has
    its answer. That saves the part of the tree below it, and sums over leaves stay exact for what is settled there.

    >>> policy = LabPolicy.create("ab$", "$", seed=0)
    >>> tree = walk(policy, [Problem("a", "b")], [3], Reach(tolerance=0.0), settled=lambda problem, text: "b" in text)
    >>> sorted(tree.texts)
    ['$', 'a$', 'aa$', 'aaa', 'aab', 'ab', 'b']
    """
    if not problems or len(problems) != len(limits) or min(limits) < 1:
        raise ValueError(
            f"walk: {len(problems)} problems with limits {list(limits)[:8]}; one limit, at least 1, a problem"
        )
    policy.check_room(problems, limits)
    under_way = _Walk(policy, problems, np.asarray(limits), reach, decoding, settled)
    for low in range(0, len(problems), PROMPTS_AT_ONCE):
        under_way.descend(under_way.begin(low, min(low + PROMPTS_AT_ONCE, len(problems))))
    return under_way.tree()

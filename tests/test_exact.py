"""The tree of completions against every completion listed, against sampling, and bounds against the truth they enclose."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from oracles import score_slowly
from tiny_world import TinyWorld

from rlvr.policy import Decoding, LabPolicy, exact
from rlvr.policy.exact import Reach, Tree, divergence, walk
from rlvr.rng import generator
from rlvr.tasks import Pointer
from rlvr.types import Problem

WORLD = TinyWorld(vocabulary=4, length=4)
PROBLEMS = [Problem("ab", "a", {"offset": 3}), Problem("bca", "b"), Problem("c", "c", {"offset": 1})]
LIMITS = [WORLD.length] * 3
DECODINGS = [Decoding(1.0), Decoding(0.5), Decoding(1.0, top_k=2), Decoding(1.0, top_p=0.7)]
EVERYTHING = Reach(tolerance=0.0, width=10**6)


def tiny_policy(seed: int = 0, scale: float = 4.0) -> LabPolicy:
    """A policy over the tiny world's alphabet, far from uniform, in float64; the end token comes first there."""
    policy = LabPolicy.create("$abc", "$", seed=seed, width=16, heads=2)
    policy.model.double()
    with torch.no_grad():
        policy.model.head.weight.mul_(scale)
        policy.model.embed.weight.mul_(20)
    return policy


@cache
def listed(seed: int = 0, decoding: Decoding = Decoding()) -> np.ndarray:
    """Log-probabilities [P N] of all completions under `tiny_policy(seed)`, each by a full forward pass of its own."""
    policy = tiny_policy(seed)
    tokens = torch.zeros(len(WORLD.completions), WORLD.length, dtype=torch.long)
    for row, word in enumerate(WORLD.completions):
        tokens[row, : len(word)] = torch.tensor(word)
    with torch.no_grad():
        rows = [
            score_slowly(policy, PROBLEMS, torch.full((len(tokens),), p), tokens, WORLD.mask, decoding).sum(1)
            for p in range(len(PROBLEMS))
        ]
    return torch.stack(rows).numpy()


def by_text(tree: Tree, p: int) -> dict[tuple[int, ...], float]:
    chosen = np.flatnonzero(tree.index == p)
    return {tuple(tree.tokens[i, : tree.lengths[i]]): tree.logps[i] for i in chosen}


def has_b(problem: Problem, text: str) -> bool:
    return "b" in text


def truth_of(value, logps: np.ndarray, policy: LabPolicy) -> np.ndarray:
    values = np.array(
        [[value(problem, policy.decode(word)) for word in WORLD.completions] for problem in PROBLEMS], dtype=float
    )
    return (np.exp(logps) * values).sum(1)


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
def test_without_tolerance_the_tree_is_the_list_of_all_completions(decoding: Decoding) -> None:
    policy = tiny_policy()
    tree, logps = walk(policy, PROBLEMS, LIMITS, EVERYTHING, decoding=decoding), listed(0, decoding)
    assert (tree.rest == 0).all()
    for p in range(len(PROBLEMS)):
        true = {word: logp for word, logp in zip(WORLD.completions, logps[p], strict=True) if logp > -np.inf}
        found = by_text(tree, p)
        assert found.keys() == true.keys()
        np.testing.assert_allclose([found[word] for word in true], list(true.values()), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tree.sums(np.exp(tree.logps)), 1.0, rtol=1e-12)
    assert [tree.tokens[i, tree.lengths[i] - 1] == 0 for i in range(len(tree.index))] == tree.finished.tolist()
    order = list(zip(tree.index, -tree.logps, strict=True))
    assert order == sorted(order)


def test_all_prefixes_are_expanded_once() -> None:
    tree = walk(tiny_policy(), PROBLEMS, LIMITS, EVERYTHING)
    assert tree.nodes.tolist() == [len(WORLD.prefixes)] * 3


@pytest.mark.parametrize("tolerance", [1e-3, 0.03, 0.3])
def test_bounds_enclose_the_truth_and_are_as_narrow_as_promised(tolerance: float) -> None:
    policy = tiny_policy()
    tree, logps = walk(policy, PROBLEMS, LIMITS, Reach(tolerance)), listed()
    assert (tree.rest > 0).all() and (tree.rest <= tolerance).all()
    np.testing.assert_allclose(tree.sums(np.exp(tree.logps)) + tree.rest, 1.0, rtol=1e-12)
    for p in range(len(PROBLEMS)):
        true = dict(zip(WORLD.completions, logps[p], strict=True))
        assert all(abs(true[word] - logp) < 1e-9 for word, logp in by_text(tree, p).items())
    bounds, true = tree.expected(has_b), truth_of(has_b, logps, policy)
    assert (bounds.lo < true).all() and (true < bounds.hi).all()
    np.testing.assert_allclose(bounds.hi - bounds.lo, tree.rest, rtol=1e-9)
    reward = lambda problem, text: len(text) - 3.0  # noqa: E731
    paid, owed = tree.expected(reward, -2.0, 1.0), truth_of(reward, logps, policy)
    assert (paid.lo <= owed).all() and (owed <= paid.hi).all()
    np.testing.assert_allclose(paid.hi - paid.lo, 3 * tree.rest, rtol=1e-9)


def test_what_is_let_go_is_the_least_likely() -> None:
    """With one level only, the leaves kept are the most likely ones, and one more could not have been let go."""
    policy = tiny_policy(scale=8.0)
    logps = walk(policy, PROBLEMS[:1], [1], EVERYTHING).logps
    mass = np.sort(np.exp(logps))
    for spare in (0.0, mass[0] * 1.01, mass[:2].sum() * 1.01, 0.5):
        tree = walk(policy, PROBLEMS[:1], [1], Reach(spare))
        gone = int((mass.cumsum() <= spare).sum())
        np.testing.assert_allclose(np.sort(np.exp(tree.logps)), mass[gone:], rtol=1e-12)


def test_a_width_binds_and_what_it_leaves_out_is_owned_up_to() -> None:
    policy = tiny_policy()
    tree, logps = walk(policy, PROBLEMS, LIMITS, Reach(0.0, width=5)), listed()
    assert (tree.nodes <= 1 + 5 * (WORLD.length - 1)).all()
    np.testing.assert_allclose(tree.rest, 1 - tree.sums(np.exp(tree.logps)), rtol=1e-9)
    bounds, true = tree.expected(has_b), truth_of(has_b, logps, policy)
    assert (tree.rest > 0.001).all() and (bounds.lo <= true).all() and (true <= bounds.hi).all()


def test_what_is_settled_needs_no_further_walk() -> None:
    policy = tiny_policy()
    whole, short = (walk(policy, PROBLEMS, LIMITS, EVERYTHING, settled) for settled in (None, has_b))
    np.testing.assert_allclose(short.expected(has_b).lo, truth_of(has_b, listed(), policy), rtol=1e-9)
    assert (short.nodes < whole.nodes).all() and not any("b" in text[:-1] for text in short.texts)
    shares = short.shares(has_b)
    assert [share[True] + share[False] for share in shares] == pytest.approx([1.0] * 3)
    np.testing.assert_allclose([share[True] for share in shares], whole.expected(has_b).lo, rtol=1e-9)


def test_each_problem_has_its_own_limit_and_greedy_has_one_leaf() -> None:
    policy = tiny_policy()
    tree = walk(policy, PROBLEMS, [1, 2, 4], EVERYTHING)
    assert [int(tree.lengths[tree.index == p].max()) for p in range(3)] == [1, 2, 4]
    assert tree.finished.tolist() == [text.endswith("$") for text in tree.texts] and not tree.finished.all()
    np.testing.assert_allclose(tree.sums(np.exp(tree.logps)), 1.0, rtol=1e-12)
    greedy = walk(policy, PROBLEMS, LIMITS, Reach(0.0), decoding=Decoding(0.0))
    drawn = policy.sample(PROBLEMS, 1, np.zeros((3, 4)), LIMITS, Decoding(0.0))
    assert greedy.index.tolist() == [0, 1, 2] and (greedy.logps == 0).all()
    for p in range(3):
        assert greedy.tokens[p, : greedy.lengths[p]].tolist() == drawn.tokens[p][drawn.mask[p]].tolist()


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_entropy_against_the_list(tolerance: float) -> None:
    policy = tiny_policy()
    logps = listed()
    true = -(np.exp(logps) * logps).sum(1)
    bounds = walk(policy, PROBLEMS, LIMITS, Reach(tolerance)).entropy()
    if tolerance:
        assert (bounds.lo < true).all() and (true < bounds.hi).all()
    else:
        np.testing.assert_allclose(bounds.lo, true, rtol=1e-9)
        np.testing.assert_allclose(bounds.hi, true, rtol=1e-9)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_divergence_against_the_list(tolerance: float) -> None:
    policy, reference = tiny_policy(0), tiny_policy(1)
    logps, logqs = listed(0), listed(1)
    true = (np.exp(logps) * (logps - logqs)).sum(1)
    found = divergence(walk(policy, PROBLEMS, LIMITS, Reach(tolerance)), reference)
    if tolerance:
        assert (0.8 * true < found.lo).all() and (found.lo < true).all() and (found.rest > 0).all()
    else:
        np.testing.assert_allclose(found.lo, true, rtol=1e-9)
        assert (found.rest == 0).all()


def pointer_policy(scale: float) -> LabPolicy:
    task = Pointer()
    policy = LabPolicy.create(task.alphabet, task.eos, seed=0, width=32)
    with torch.no_grad():
        policy.model.head.weight.mul_(scale)
        policy.model.embed.weight.mul_(20)
    return policy


def test_the_sampler_draws_what_the_tree_says() -> None:
    task, policy, count = Pointer(), pointer_policy(12.0), 20_000
    asked = [task.problem(generator(3, "test", i), n=6, k=2) for i in range(2)]
    limits = [task.limit(problem) for problem in asked]
    tree = walk(policy, asked, limits, Reach(1e-4))
    drawn = policy.sample(asked, count, generator(0, "u").random((2 * count, max(limits))), limits)
    for p in range(2):
        seen: dict[tuple[int, ...], int] = {}
        for row in range(p * count, (p + 1) * count):
            text = tuple(drawn.tokens[row][drawn.mask[row]].tolist())
            seen[text] = seen.get(text, 0) + 1
        likely = {text: count * math.exp(logp) for text, logp in by_text(tree, p).items() if count * math.exp(logp) > 5}
        assert len(likely) > 20
        cells = [(seen.get(text, 0), expected) for text, expected in likely.items()]
        others = count - sum(expected for _, expected in cells)
        cells.append((count - sum(number for number, _ in cells), others))
        chi2 = sum((number - expected) ** 2 / expected for number, expected in cells)
        assert chi2 < len(cells) + 5 * math.sqrt(2 * len(cells))


def test_walking_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task, policy = Pointer(), pointer_policy(12.0)
    policy.model.double()  # leaves stand by falling probability: in float32 some of these would change places
    asked = [task.problem(generator(4, "test", i), n=(4, 9), k=(1, 4)) for i in range(9)]
    limits = [task.limit(problem) for problem in asked]
    whole = walk(policy, asked, limits, Reach(1e-2))
    monkeypatch.setattr(exact, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(exact, "PROMPTS_AT_ONCE", 4)
    parts = walk(policy, asked, limits, Reach(1e-2))
    assert parts.texts == whole.texts and parts.nodes.tolist() == whole.nodes.tolist()
    np.testing.assert_allclose(parts.logps, whole.logps, atol=1e-9)
    np.testing.assert_allclose(parts.rest, whole.rest, rtol=1e-9)
    other = pointer_policy(10.0)
    np.testing.assert_allclose(divergence(parts, other).lo, divergence(whole, other).lo, rtol=1e-4)


def test_nonsense_is_refused() -> None:
    policy = tiny_policy()
    for problems, limits in (([], []), (PROBLEMS, [1]), (PROBLEMS, [1, 0, 1])):
        with pytest.raises(ValueError, match="one limit, at least 1, a problem"):
            walk(policy, problems, limits)
    with pytest.raises(ValueError, match="needs 105 positions; the model has 96"):
        walk(policy, PROBLEMS[:1], [100])
    for bad in ({"tolerance": 1.0}, {"tolerance": -0.1}, {"width": 0}):
        with pytest.raises(ValueError, match="reach"):
            Reach(**bad)
    tree = walk(policy, PROBLEMS, LIMITS, Reach(0.1))
    with pytest.raises(ValueError, match=r"must be in \[0.0, 1.0\]"):
        tree.expected(lambda problem, text: 2.0)

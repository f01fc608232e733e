"""Selectors: who takes part, asked of the verdicts where shaping could lie."""

import pytest
import torch
from algo_examples import EXAMPLES

from rlvr.algo import DifficultyBand, DropConstant, KeepAll, KeepRewarded, KeepRight, pieces

NAN = float("nan")
SELECTORS = EXAMPLES["select"]


def kept(select, rewards, correct=None):
    rewards = torch.tensor(rewards, dtype=torch.float32)
    correct = rewards > 0 if correct is None else torch.tensor(correct, dtype=torch.bool)
    return select(rewards, correct).int().tolist()


def test_every_selector_is_examined():
    assert {type(piece).__name__ for piece in SELECTORS} == set(pieces("select"))


def test_b25_shaping_does_not_save_an_all_wrong_group():
    """Fault B25: verdicts all wrong, length penalties 0, -.5, -1, 0."""
    shaped, wrong = [[0.0, -0.5, -1.0, 0.0]], [[0, 0, 0, 0]]
    assert kept(DropConstant(), shaped, wrong) == [[0, 0, 0, 0]]
    assert kept(DropConstant(by="reward"), shaped, wrong) == [[1, 1, 1, 1]]


@pytest.mark.parametrize("value", [0.5, 0.7, 0.1])
def test_b26_constant_continuous_rewards(value):
    """Fault B26: a constant inside (0, 1) is a constant."""
    assert kept(DropConstant(by="reward"), [[value] * 4]) == [[0, 0, 0, 0]]


@pytest.mark.parametrize("by", ["verdict", "reward"])
def test_b28_groups_one_by_one_or_together(by):
    """Fault B28: only the third group stays, either way."""
    groups = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    assert kept(DropConstant(by=by), groups) == [[0, 0], [0, 0], [1, 1]]
    assert [kept(DropConstant(by=by), [group])[0] for group in groups] == [[0, 0], [0, 0], [1, 1]]


def test_mixed_verdicts_keep_a_group_of_equal_rewards():
    assert kept(DropConstant(), [[0.5, 0.5]], [[1, 0]]) == [[1, 1]]


def test_the_only_right_row_without_a_reward_makes_no_group():
    assert kept(DropConstant(), [[NAN, 0.0, 0.0]], [[1, 0, 0]]) == [[0, 0, 0]]
    assert kept(DropConstant(), [[NAN, 1.0, 0.0]], [[0, 1, 0]]) == [[0, 1, 1]]


@pytest.mark.parametrize("by", ["verdict", "reward"])
def test_group_of_one_is_constant(by):
    assert kept(DropConstant(by=by), [[1.0], [NAN]]) == [[0], [0]]


def test_keep_rewarded_is_strict():
    assert kept(KeepRewarded(), [[1.0, 0.0, 0.2, -1.0, NAN]]) == [[1, 0, 1, 0, 0]]
    assert kept(KeepRewarded(0.5), [[1.0, 0.5, 0.2]]) == [[1, 0, 0]]
    assert kept(KeepRewarded(), [[0.0, 0.5]], [[1, 0]]) == [[0, 1]]


def test_keep_right_asks_the_verdict():
    assert kept(KeepRight(), [[1.0, 0.0, NAN, -1.0]], [[0, 1, 1, 1]]) == [[0, 1, 0, 1]]


def test_difficulty_band_reads_verdicts_and_keeps_its_ends():
    """Shares right: 0, 1/4, 1/2, 3/4, 1; the shaped rewards say otherwise."""
    correct = [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    rewards = [[1.0, 0.0, 0.0, 1.0]] * 5
    assert [row[0] for row in kept(DifficultyBand(0.25, 0.5), rewards, correct)] == [0, 1, 1, 0, 0]
    assert [row[3] for row in kept(DifficultyBand(0.0, 0.2), rewards, correct)] == [1, 0, 0, 0, 0]
    assert kept(DifficultyBand(), rewards, correct) == kept(KeepAll(), rewards, correct)
    mixed = kept(DifficultyBand(1e-9, 1 - 1e-9), rewards, correct)
    assert mixed == kept(DropConstant(), rewards, correct)


def test_difficulty_band_counts_scored_rows():
    # One of two scored rows is right; with the missing one counted it would be two of three.
    assert kept(DifficultyBand(0.5, 0.5), [[1.0, 0.0, NAN]], [[1, 0, 1]]) == [[1, 1, 0]]
    assert kept(DifficultyBand(0.2, 0.2), [[0.0] * 10], [[1, 1, *[0] * 8]]) == [[1] * 10]


@pytest.mark.parametrize("select", SELECTORS, ids=str)
def test_missing_rewards_never_stay(select):
    assert kept(select, [[1.0, NAN, 0.0], [NAN, NAN, NAN]], [[1, 1, 0], [1, 0, 1]])[1] == [0, 0, 0]
    assert kept(select, [[1.0, NAN, 0.0]], [[1, 1, 0]])[0][1] == 0


@pytest.mark.parametrize("select", SELECTORS, ids=str)
def test_order_is_free(select):
    rewards = torch.tensor([[1.0, 0.0, NAN], [0.5, 0.5, 0.5], [0.0, -1.0, 2.0]])
    correct = torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    rows, columns = torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])
    expected = select(rewards, correct)
    assert expected.dtype == torch.bool
    assert torch.equal(select(rewards[rows][:, columns], correct[rows][:, columns]), expected[rows][:, columns])


def test_refusals():
    with pytest.raises(ValueError, match=r"DropConstant.by is 'std'; accepted: 'verdict' or 'reward'"):
        DropConstant(by="std")
    with pytest.raises(ValueError, match=r"DifficultyBand.high is 0.2; accepted: a finite number >= 0.5 and <= 1"):
        DifficultyBand(0.5, 0.2)
    with pytest.raises(ValueError, match=r"DifficultyBand.low is -1; accepted: a finite number >= 0 and <= 1"):
        DifficultyBand(-1)
    with pytest.raises(ValueError, match=r"KeepRewarded.threshold is 'high'; accepted: a finite number"):
        KeepRewarded("high")

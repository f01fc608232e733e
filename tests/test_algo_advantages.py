"""Advantages: the published numbers, and what estimators owe to missing rewards, constants and order."""

import random

import pytest
import torch
from algo_examples import EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from rlvr.algo import (
    GAE,
    BaselineAdvantage,
    BatchMean,
    BatchZScore,
    Center,
    GreedyBaseline,
    GroupMeanBatchStd,
    LeaveOneOut,
    MaxRL,
    PositiveOnly,
    Raw,
    RunningMean,
    TokenAdvantage,
    ZScore,
    by_group,
    check_groups,
    pieces,
)

NAN = float("nan")
BATCHWISE = BatchMean | BatchZScore | GroupMeanBatchStd
ESTIMATORS = [piece for piece in EXAMPLES["advantage"] if not isinstance(piece, BaselineAdvantage | TokenAdvantage)]
GROUP_ESTIMATORS = [piece for piece in ESTIMATORS if piece.needs_group]
each = pytest.mark.parametrize("advantage", ESTIMATORS, ids=str)
each_groupwise = pytest.mark.parametrize(
    "advantage", [piece for piece in ESTIMATORS if not isinstance(piece, BATCHWISE)], ids=str
)
each_relative = pytest.mark.parametrize("advantage", GROUP_ESTIMATORS, ids=str)
quick = settings(deadline=None, max_examples=40, derandomize=True)


def of(advantage, *rewards, dtype=torch.float64):
    return advantage(torch.tensor([rewards], dtype=dtype))[0].tolist()


def test_every_estimator_is_examined():
    assert {type(piece).__name__ for piece in EXAMPLES["advantage"]} == set(pieces("advantage"))
    alone = {type(piece).__name__ for piece in EXAMPLES["advantage"] if not piece.needs_group}
    assert alone == {
        "BatchMean", "BatchZScore", "GAE", "GreedyBaseline", "PositiveOnly", "Raw", "RewardToGo", "RunningMean",
    }  # fmt: skip
    assert not PositiveOnly(Raw()).needs_group and PositiveOnly(Center()).needs_group


def test_zscore_golden_of_the_lecture():
    # mean .0025, deviations (-.0025, -.0025, .0075, -.0025), sample std sqrt(7.5e-5 / 3) = .005, plus 1e-4.
    assert of(ZScore(), 0, 0, 0.01, 0)[2] == pytest.approx(0.0075 / 0.0051, abs=1e-9)
    assert of(ZScore(), 0, 0, 0.01, 0)[2] == pytest.approx(1.4706, abs=5e-5)
    assert of(ZScore(correction=0), 0, 0, 0.01, 0)[2] == pytest.approx(1.6930, abs=5e-5)


def test_b15_sample_or_population_std():
    """Fault B15: [1, 0, 0, 0] has sample std 1/2 and population std sqrt(3)/4."""
    assert of(ZScore(eps=0.0), 1, 0, 0, 0) == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert of(ZScore(eps=0.0, correction=0), 1, 0, 0, 0) == pytest.approx([3**0.5, *[-(3**-0.5)] * 3])
    assert "stdₙ₋₁" in ZScore().formula and "stdₙ(" in ZScore(correction=0).formula


def test_b20_leave_one_out_is_neither_centred_nor_scaled():
    """Fault B20: the first row stands against a mean of 0, the others against 1/3."""
    assert of(LeaveOneOut(), 1, 0, 0, 0) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert of(Center(), 1, 0, 0, 0) == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert of(Raw(), 1, 0, 0, 0) == [1, 0, 0, 0]


def test_b18_missing_reward_is_excluded():
    """Fault B18: the mean of the three scorable rewards is 2/3, not 1/2."""
    assert of(Center(), 1, NAN, 0, 1) == pytest.approx([1 / 3, 0, -2 / 3, 1 / 3])
    assert of(LeaveOneOut(), 1, NAN, 0, 1) == pytest.approx([0.5, 0, -1, 0.5])
    assert of(Raw(), 1, NAN, 0, 1) == [1, 0, 0, 1]
    # Sample std of (1, 0, 1) is sqrt((1/9 + 4/9 + 1/9) / 2) = sqrt(1/3).
    assert of(ZScore(eps=0.0), 1, NAN, 0, 1) == pytest.approx([3**-0.5, 0, -2 * 3**-0.5, 3**-0.5])


@each_relative
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, 0.7, 0.1, 1 / 3, -2.3, 1e8, 1e-30])
def test_b10_b17_constant_groups_are_exactly_zero(advantage, dtype, value):
    """Faults B10 and B17: no rounding of a mean of 0.7s may look like a signal."""
    for group in range(1, 18):
        rewards = torch.full((2, group), value, dtype=dtype)
        rewards[1, 1:] = NAN
        assert torch.equal(advantage(rewards), torch.zeros_like(rewards))


@each_relative
def test_b10_b11_group_of_one(advantage):
    """Faults B10 and B11: 0, in the table and in the flat form alike."""
    assert of(advantage, 1.0) == [0.0]
    flat = by_group(["p", "q"], torch.tensor([1.0, 0.3]), advantage)
    assert flat.tolist() == [0.0, 0.0]


def test_group_of_one_keeps_its_raw_reward():
    assert by_group(["p", "q"], torch.tensor([1.0, 0.3]), Raw()).tolist() == pytest.approx([1.0, 0.3])


@each
def test_all_missing(advantage):
    assert of(advantage, NAN, NAN) == [0.0, 0.0]


@each
def test_b17_float_noise_never_explodes(advantage):
    """Fault B17: 0 against seven 0.7s; a standard deviation of the seven would be rounding noise."""
    values = of(advantage, 0.0, *[0.7] * 7, dtype=torch.float32)
    assert max(map(abs, values)) <= 10
    if advantage == LeaveOneOut():
        assert values == pytest.approx([-0.7, *[0.1] * 7])
    assert max(map(abs, of(advantage, 1.0, 0.0, 0.0, 0.0, dtype=torch.float32))) <= 10


@each
def test_large_offsets_keep_their_differences(advantage):
    if advantage.needs_group and advantage != MaxRL():
        near, far = (
            of(advantage, 0, 1, 1, 0),
            of(advantage, 2**20, 2**20 + 1, 2**20 + 1, 2**20, dtype=torch.float32),
        )
        assert far == pytest.approx(near, rel=1e-6)


@each
@pytest.mark.parametrize("bad", [torch.tensor([[1.0, torch.inf]]), torch.tensor([[1, 0]])], ids=["inf", "int"])
def test_unusable_rewards_are_refused(advantage, bad):
    with pytest.raises(ValueError, match=r"rewards .*accepted: .*NaN"):
        advantage(bad)


@pytest.mark.parametrize("settings", [{"eps": -1e-4}, {"eps": NAN}, {"eps": "1e-4"}, {"correction": 2}])
def test_zscore_refuses(settings):
    with pytest.raises(ValueError, match=rf"ZScore.{next(iter(settings))} is .*accepted"):
        ZScore(**settings)


# Dyadic rewards of small size: every estimator's sums are then exact in any order up to the last division.
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from([0.0, 0.25, 1.0, -0.5, NAN]), min_size=width, max_size=width),
        min_size=1,
        max_size=4,
    )
)


@each
@given(table=tables, seed=st.integers(0, 99))
@quick
def test_order_and_padding(advantage, table, seed):
    rewards = torch.tensor(table, dtype=torch.float64)
    expected = advantage(rewards)
    assert expected.isfinite().all()
    assert (expected[rewards.isnan()] == 0).all()
    rows = torch.randperm(rewards.shape[0], generator=torch.Generator().manual_seed(seed))
    columns = torch.randperm(rewards.shape[1], generator=torch.Generator().manual_seed(seed))
    assert_close(advantage(rewards[rows][:, columns]), expected[rows][:, columns], rtol=0, atol=1e-12)
    padded = torch.nn.functional.pad(rewards, (0, 3), value=NAN)
    assert_close(advantage(padded)[:, : rewards.shape[1]], expected, rtol=0, atol=1e-12)
    for row, group in zip(rewards, expected, strict=True):
        if not isinstance(advantage, BATCHWISE):
            assert_close(advantage(row[None])[0], group, rtol=0, atol=1e-12)


@pytest.mark.parametrize("advantage", [p for p in GROUP_ESTIMATORS if not isinstance(p, PositiveOnly)], ids=str)
@given(table=tables)
@quick
def test_relative_estimators_have_no_mean(advantage, table):
    rewards = torch.tensor(table, dtype=torch.float64)
    assert_close(advantage(rewards).sum(-1), torch.zeros(len(table), dtype=torch.float64), rtol=0, atol=1e-12)
    if advantage != MaxRL():
        assert_close(advantage(rewards + 3.0), advantage(rewards), rtol=0, atol=1e-12)


def test_b12_flat_rows_are_grouped_by_key():
    """Fault B12: slices of two would give [.5, -.5, 0, 0], the whole batch [.75, -.25, -.25, -.25]."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert by_group(["p", "q", "p", "q"], rewards, Center()).tolist() == [0.5, 0.0, -0.5, 0.0]
    assert by_group(torch.tensor([7, 9, 7, 9]), rewards, Center()).tolist() == [0.5, 0.0, -0.5, 0.0]
    assert by_group([], torch.empty(0), Center()).shape == (0,)


def slowly_by_group(keys, rewards, advantage):
    """The loop twin of `by_group`."""
    result = torch.empty_like(rewards)
    for key in set(keys):
        rows = [row for row, other in enumerate(keys) if other == key]
        result[rows] = advantage(rewards[rows][None])[0]
    return result


@each_groupwise
@given(
    rows=st.lists(st.tuples(st.sampled_from("pqrs"), st.sampled_from([0.0, 0.25, 1.0, NAN])), min_size=1, max_size=12),
    seed=st.integers(0, 99),
)
@quick
def test_b12_by_group_in_any_order(advantage, rows, seed):
    keys, values = [key for key, _ in rows], torch.tensor([value for _, value in rows], dtype=torch.float64)
    expected = slowly_by_group(keys, values, advantage)
    assert_close(by_group(keys, values, advantage), expected, rtol=0, atol=1e-12)
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    shuffled = by_group([keys[row] for row in order], values[order], advantage)
    assert_close(shuffled, expected[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("keys", [["p"], ["p", "p", "p"], []])
def test_by_group_refuses_other_lengths(keys):
    with pytest.raises(ValueError, match=f"{len(keys)} keys for 2 rewards; accepted: one key a row"):
        by_group(keys, torch.tensor([1.0, 0.0]), Center())


def test_b13_check_groups():
    """Fault B13: the members of a group answer one question."""
    check_groups(["a", "b", "a"], ["1+1=", "1+1=", "1+1="], ["2", "2", "2"])
    check_groups(torch.tensor([0, 1, 0]), ["x", "y", "x"], ["1", "2", "1"])
    with pytest.raises(ValueError, match=r"group 'a': row 2 has prompt '1\+2=', row 0 has '1\+1='"):
        check_groups(["a", "b", "a"], ["1+1=", "1+1=", "1+2="], ["2", "2", "2"])
    with pytest.raises(ValueError, match="group 0: row 2 has answer '3', row 0 has '1'"):
        check_groups(torch.tensor([0, 1, 0]), ["x", "y", "x"], ["1", "2", "3"])
    with pytest.raises(ValueError, match="2 keys, 1 prompts, 2 answers; accepted: one of each a row"):
        check_groups(["a", "b"], ["x"], ["1", "2"])


# ── Beyond the group ────────────────────────────────────────────────────────────────────────────────


def test_maxrl_divides_by_success():
    # mean 1/4: (1 - 1/4) / (1/4) = 3; a missing row is neither in the mean nor paid.
    assert of(MaxRL(), 1, 0, 0, 0) == pytest.approx([3, -1, -1, -1])
    assert of(MaxRL(), 1, NAN, 0, 1) == pytest.approx([0.5, 0, -1, 0.5])
    assert of(MaxRL(), 0, 0) == of(MaxRL(), -1, 0) == of(MaxRL(), -1, 1) == [0, 0]


def test_positive_only_keeps_the_upper_half():
    assert of(PositiveOnly(Center()), 1, 0, 0, 0) == [0.75, 0, 0, 0]
    assert of(PositiveOnly(Raw()), 1, -1, NAN) == [1, 0, 0]
    assert of(PositiveOnly(ZScore(eps=0.0)), 1, 0, 0, 0) == pytest.approx([1.5, 0, 0, 0])
    for wrong in (GAE(), GreedyBaseline(), PositiveOnly(), Center, 3):
        with pytest.raises(ValueError, match=r"PositiveOnly.of is .*; accepted: an Advantage object that reads"):
            PositiveOnly(wrong)


def table(*groups):
    return torch.tensor(groups, dtype=torch.float64)


def test_batch_mean_compares_with_everybody():
    # Scorable rewards 1, 1, 1, 0, 0: mean 3/5.
    found = BatchMean()(table([1, 1, NAN], [1, 0, 0]))
    assert_close(found, table([0.4, 0.4, 0], [0.4, -0.6, -0.6]))


def test_batch_zscore_has_one_scale():
    # 1, 0, 0, 0 over two groups: sample std 1/2, population std sqrt(3)/4.
    assert_close(BatchZScore(eps=0.0)(table([1, 0], [0, 0])), table([1.5, -0.5], [-0.5, -0.5]))
    assert BatchZScore(eps=0.0, correction=0)(table([1, 0], [0, 0]))[0, 0].item() == pytest.approx(3**0.5)
    # With eps 1/2 the divisor doubles.
    assert BatchZScore(eps=0.5)(table([1, 0], [0, 0]))[0, 0].item() == pytest.approx(0.75)


def test_group_mean_batch_std():
    # Centred: ±1/2 twice, then two zeros. Sum of squares 1/2; divisors 3 over all four rows, 1 over the mixed two.
    rewards = table([1, 0], [1, 1])
    assert GroupMeanBatchStd(eps=0.0)(rewards)[0, 0].item() == pytest.approx(0.5 / (0.5 / 3) ** 0.5)
    assert GroupMeanBatchStd(eps=0.0, count_constant=False)(rewards)[0, 0].item() == pytest.approx(0.5 / 0.5**0.5)
    assert GroupMeanBatchStd(eps=0.0, correction=0)(rewards)[0, 0].item() == pytest.approx(0.5 / (0.5 / 4) ** 0.5)
    assert (GroupMeanBatchStd()(rewards)[1] == 0).all()
    # A missing reward counts nowhere: two rows, then, and their sum of squares 1/2.
    assert GroupMeanBatchStd(eps=0.0)(table([1, 0], [NAN, NAN]))[0, 0].item() == pytest.approx(0.5 / 0.5**0.5)
    # Every group alone would be scaled to ±0.7; here the wide group keeps its width.
    wide = GroupMeanBatchStd()(table([10, 0], [1, 0]))
    assert wide[0, 0] / wide[1, 0] == pytest.approx(10)


@pytest.mark.parametrize("advantage", [piece for piece in ESTIMATORS if isinstance(piece, BATCHWISE)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [0.0, 0.7, 1 / 3, -2.3, 1e8])
def test_constant_batches_are_exactly_zero(advantage, dtype, value):
    for shape in ((1, 1), (1, 7), (7, 1), (5, 3)):
        assert (advantage(torch.full(shape, value, dtype=dtype)) == 0).all()


@pytest.mark.parametrize("advantage", [GreedyBaseline(), RunningMean()], ids=str)
def test_baselines_from_outside(advantage):
    found = advantage(table([1, 0, NAN], [1, 0, 0]), torch.tensor([0.25, NAN], dtype=torch.float64))
    assert found.tolist() == [[0.75, -0.25, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="infinities; accepted"):
        advantage(table([1, 0]), torch.tensor([torch.inf], dtype=torch.float64))
    assert advantage.needs_baseline == {"GreedyBaseline": "greedy", "RunningMean": "running"}[type(advantage).__name__]


def test_the_running_mean_runs():
    b, past = RunningMean.start, RunningMean(decay=0.5)
    for rewards, expected in (([1, 0], 0.25), ([1, NAN], 0.625), ([NAN, NAN], 0.625)):
        b = past.next_baseline(b, table(rewards))
        assert b == pytest.approx(expected)
    assert RunningMean(decay=1.0).next_baseline(0.3, table([1, 1])) == 0.3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunningMean(decay=1.5), r"RunningMean.decay is 1.5; accepted: a finite number >= 0 and <= 1"),
        (lambda: BatchZScore(eps=-1), r"BatchZScore.eps is -1"),
        (lambda: GroupMeanBatchStd(correction=2), r"GroupMeanBatchStd.correction is 2; accepted: 1"),
        (lambda: GroupMeanBatchStd(count_constant=1), r"GroupMeanBatchStd.count_constant is 1; accepted: True or F"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()

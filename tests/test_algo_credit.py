"""Credit: a reward lands on the last real token, and a sampler that is not the policy shows."""

import math

import pytest
import torch
from torch.testing import assert_close

from rlvr.algo import ratio_report, terminal_rewards


def test_b37_reward_on_eos_not_on_padding():
    """Fault B37: ids [5, 7, eos, pad]."""
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [True] * 4, [False] * 4])
    rewards = torch.tensor([0.25, 2.0, float("nan"), 9.0])
    paid = terminal_rewards(rewards, mask)
    assert paid[0].tolist() == [0, 0, 0.25, 0]
    assert paid[1].tolist() == [2.0, 0, 0, 0]
    assert paid[2, :3].tolist() == [0, 0, 0] and paid[2, 3].isnan()
    assert paid[3].tolist() == [0, 0, 0, 0]
    wide = terminal_rewards(rewards[:2], torch.nn.functional.pad(mask[:2], (0, 5)))
    assert torch.equal(wide[:, :4], paid[:2]) and (wide[:, 4:] == 0).all()
    assert terminal_rewards(rewards, torch.zeros(4, 0, dtype=torch.bool)).shape == (4, 0)


def test_a_gap_in_the_mask_is_never_paid():
    """Tokens written by a tool sit inside a completion and outside its mask."""
    mask = torch.tensor([[False, True, False, True, False]])
    assert terminal_rewards(torch.tensor([1.0]), mask).tolist() == [[0, 0, 0, 1, 0]]


def test_b48_report_shows_the_tail():
    """Fault B48: trained -1, -2, sampler -1.1, -1.5."""
    logps = torch.tensor([[-1.0, -2.0, -torch.inf]], dtype=torch.float64)
    sampler = torch.tensor([[-1.1, -1.5, float("nan")]], dtype=torch.float64)
    report = ratio_report(logps, sampler, torch.tensor([[True, True, False]]))
    assert report.token_ratios[0].tolist() == pytest.approx([1.1052, 0.6065, 1.0], abs=5e-5)
    assert report.sequence_ratios.tolist() == pytest.approx([0.6703], abs=5e-5)
    assert report.geometric_means.tolist() == pytest.approx([0.8187], abs=5e-5)
    assert report.max_abs_difference == pytest.approx(0.5)
    assert report.mean_abs_difference == pytest.approx(0.3)
    assert report.mean_difference == pytest.approx(-0.2)


def test_report_counts_tokens_not_slots():
    logps = torch.tensor([[0.1, 0.0], [0.5, 0.3]], dtype=torch.float64)
    report = ratio_report(logps, torch.zeros_like(logps), torch.tensor([[True, False], [True, True]]))
    assert report.mean_difference == pytest.approx(0.3)
    assert report.geometric_means.tolist() == pytest.approx([math.exp(0.1), math.exp(0.4)])


def test_report_of_nothing():
    report = ratio_report(torch.full((2, 3), torch.nan), torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    assert report.sequence_ratios.tolist() == report.geometric_means.tolist() == [1.0, 1.0]
    assert report[3:] == (0.0, 0.0, 0.0)
    assert ratio_report(torch.zeros(1, 0), torch.zeros(1, 0), torch.zeros(1, 0).bool()).max_abs_difference == 0.0


def test_report_carries_no_gradient():
    logps = torch.zeros(1, 1, requires_grad=True)
    assert not ratio_report(logps, torch.zeros(1, 1), torch.ones(1, 1).bool()).token_ratios.requires_grad


def scored(temperature):
    return (torch.tensor([2.0, 0.0], dtype=torch.float64) / temperature).log_softmax(-1)[:1][None]


@pytest.mark.parametrize(("temperature", "logp"), [(0.5, -0.01815), (1.0, -0.12693), (2.0, -0.31326)])
def test_b45_temperature_on_both_sides(temperature, logp):
    """Fault B45: with equal temperatures the ratio is 1; a trainer that scores at 1 shows at once."""
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert scored(temperature).item() == pytest.approx(logp, abs=5e-6)
    assert ratio_report(scored(temperature), scored(temperature), mask).token_ratios.item() == 1.0
    forgotten = ratio_report(scored(1.0), scored(temperature), mask)
    assert forgotten.max_abs_difference == pytest.approx(abs(-0.12693 - logp), abs=1e-5)


def test_b47_truncated_sampler_shows():
    """Fault B47: top-p keeps 0.8 of the mass, so token 0 was drawn with 0.5 / 0.8."""
    mask = torch.ones(1, 1, dtype=torch.bool)
    sampler = torch.tensor([[math.log(0.5 / 0.8)]])
    assert sampler.item() == pytest.approx(-0.4700, abs=5e-5)
    assert_close(ratio_report(torch.tensor([[math.log(0.5)]]), sampler, mask).token_ratios, torch.tensor([[0.8]]))
    assert ratio_report(sampler, sampler, mask).token_ratios.item() == 1.0

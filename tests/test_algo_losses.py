"""Losses: values on and off the policy, equal gradients where theory says so, and silence at masked slots."""

import math

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import (
    CISPO,
    Clip,
    Constant,
    Likelihood,
    MirrorDescent,
    Ratio,
    Reinforce,
    SequenceMean,
    TokenMean,
    masked,
    pieces,
)

NAN, INF = float("nan"), float("inf")
LOSSES = EXAMPLES["loss"]
each = pytest.mark.parametrize("loss", LOSSES, ids=str)


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def scalar(loss, log_ratio, advantage, logp=-1.0):
    return loss(row(logp), row(logp - log_ratio), row(advantage)).item()


def gradient(loss, logps, old_logps, advantages, weights=1.0):
    logps = logps.detach().requires_grad_()
    total = (weights * loss(logps, old_logps, advantages)).sum()
    return torch.autograd.grad(total, logps)[0]


def batch(seed=0, shape=(4, 5)):
    draw = torch.Generator().manual_seed(seed)
    logps = -torch.rand(shape, generator=draw, dtype=torch.float64) - 0.1
    old_logps = logps + 0.6 * torch.randn(shape, generator=draw, dtype=torch.float64)
    advantages = torch.randn(shape[0], 1, generator=draw, dtype=torch.float64).expand(shape)
    return logps, old_logps, advantages


def test_every_loss_is_examined():
    assert {type(piece).__name__ for piece in LOSSES} == set(pieces("loss"))


def test_values_of_one_token():
    # log π = -2, ratio e^0.1: the score-function losses read log π, the ratio losses read ρ.
    assert scalar(Reinforce(), 0.1, 0.5, logp=-2.0) == pytest.approx(1.0)
    assert scalar(Likelihood(), 0.1, 0.5, logp=-2.0) == pytest.approx(2.0)
    assert scalar(Ratio(), 0.1, 0.5, logp=-2.0) == pytest.approx(-0.5 * math.exp(0.1))
    assert scalar(Clip(), 0.1, 0.5, logp=-2.0) == pytest.approx(-0.5 * math.exp(0.1))


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (2.0, 1.0, -1.2),  # gain capped at 1 + ε
        (0.5, 1.0, -0.5),  # a fall of a good token is not capped
        (2.0, -1.0, 2.0),  # a rise of a bad token is not capped
        (0.5, -1.0, 0.8),  # gain capped at 1 - ε
        (1.1, 1.0, -1.1),
        (0.9, -1.0, 0.9),
    ],
)
def test_clip_is_pessimistic(ratio, advantage, expected):
    assert scalar(Clip(0.2), math.log(ratio), advantage) == pytest.approx(expected)
    slope = gradient(Clip(0.2), row(-1.0), row(-1.0 - math.log(ratio)), row(advantage)).item()
    capped = abs(expected) in (1.2, 0.8)
    assert slope == pytest.approx(0.0 if capped else -advantage * ratio)


def test_clip_edges_move_apart():
    assert scalar(Clip(0.2, 0.28), math.log(2), 1.0) == pytest.approx(-1.28)
    assert scalar(Clip(0.2, 0.28), math.log(0.5), -1.0) == pytest.approx(0.8)


def test_b55_dual_clip_spares_good_tokens():
    """Fault B55: ratio 10, ε 0.2, c 3."""
    assert scalar(Clip(0.2, dual_clip=3.0), math.log(10), -1.0) == pytest.approx(3.0)
    assert scalar(Clip(0.2), math.log(10), -1.0) == pytest.approx(10.0)
    assert scalar(Clip(0.2, dual_clip=3.0), math.log(10), 1.0) == pytest.approx(-1.2)
    assert gradient(Clip(0.2, dual_clip=3.0), row(0.0), row(-math.log(10)), row(-1.0)).item() == 0.0


@pytest.mark.parametrize("loss", [Ratio(), Clip()], ids=str)
def test_b06_zero_loss_is_not_zero_gradient(loss):
    """Fault B06: logits [0, 0], one sample of each token, rewards 1 and 0, centred."""
    logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    logps = logits.log_softmax(-1)[:, None]
    weights = SequenceMean()(torch.ones(1, 2, 1, dtype=torch.bool))[0]
    total = (weights * loss(logps, logps.detach(), torch.tensor([[0.5], [-0.5]], dtype=torch.float64))).sum()
    assert total.item() == 0.0
    assert_close(torch.autograd.grad(total, logits)[0], torch.tensor([-0.25, 0.25], dtype=torch.float64))


@pytest.mark.parametrize(
    ("aggregate", "surrogate"), [(SequenceMean(), 0.0), (TokenMean(), 0.5), (Constant(10), 0.2)], ids=str
)
def test_b07_on_policy_value_depends_on_the_aggregator(aggregate, surrogate):
    """Fault B07: A = ±1, lengths 2 and 6; with every log π = -1 the score-function loss changes sign."""
    mask = torch.arange(6) < torch.tensor([[[2], [6]]])
    weights = aggregate(mask)[0]
    advantages = torch.tensor([[1.0], [-1.0]]).expand(2, 6)
    logps = torch.full((2, 6), -1.0)
    for loss in (Ratio(), Clip()):
        assert (weights * loss(logps, logps, advantages)).sum().item() == pytest.approx(surrogate, abs=1e-6)
    assert (weights * Reinforce()(logps, logps, advantages)).sum().item() == pytest.approx(-surrogate, abs=1e-6)


@each
def test_on_policy_gradients_agree(loss):
    """One policy gradient, whatever the value: -A at every token, or -1 for plain likelihood."""
    logps, _, advantages = batch()
    expected = -advantages if loss.reads_advantage else torch.full_like(logps, -1.0)
    assert_close(gradient(loss, logps, logps, advantages), expected)


@each
def test_needs_advantage_means_what_it_says(loss):
    logps, old_logps, advantages = batch()
    slopes = gradient(loss, logps, old_logps, torch.zeros_like(advantages))
    assert loss.needs_advantage == bool((slopes == 0).all())
    moved = gradient(loss, logps, old_logps, advantages + 1)
    assert loss.reads_advantage == bool((moved != gradient(loss, logps, old_logps, advantages)).any())


@each
def test_gradcheck(loss):
    # Seed 0 keeps every ratio away from the edges of the clip; the assertion says so rather than the reader.
    logps, old_logps, advantages = batch()
    ratios = (logps - old_logps).exp()
    for edge in (0.7, 0.8, 1.2, 1.28, 1.3, 3.0, 5.0):
        assert (ratios - edge).abs().min() > 1e-4
    if isinstance(loss, CISPO):
        # Its weight is a constant: gradcheck would see it move.
        weight = ratios.clamp(loss.floor, loss.cap)
        assert_close(gradient(loss, logps, old_logps, advantages), -weight * advantages)
        return
    assert torch.autograd.gradcheck(loss, (logps.requires_grad_(), old_logps, advantages))


@each
def test_old_logps_are_constants(loss):
    logps, _, advantages = batch()
    attached = logps.clone().requires_grad_()
    total = loss(attached, attached, advantages).sum()
    assert_close(torch.autograd.grad(total, attached)[0], gradient(loss, logps, logps, advantages))


@each
def test_slots_do_not_see_each_other(loss):
    """Compaction: the losses of some slots are the losses at those slots, and order is free."""
    logps, old_logps, advantages = batch()
    keep = torch.rand(logps.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    whole = loss(logps, old_logps, advantages)
    assert whole.shape == logps.shape
    assert torch.equal(loss(logps[keep][None], old_logps[keep][None], advantages[keep][None])[0], whole[keep])
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(loss(logps[order], old_logps[order], advantages[order]), whole[order])


@each
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [-1e4, -200.0, 200.0, 1e4])
def test_huge_ratios_stay_finite(loss, advantage, log_ratio):
    logps, old_logps = torch.tensor([[-1.0]]), torch.tensor([[-1.0 - log_ratio]])
    advantages = torch.tensor([[advantage]])
    assert loss(logps, old_logps, advantages).isfinite().all()
    assert gradient(loss, logps, old_logps, advantages).isfinite().all()


@each
@pytest.mark.parametrize("junk", [-1.0, -INF, INF, NAN])
@pytest.mark.parametrize("old_junk", [-201.0, -INF, INF, NAN])
def test_b51_masked_slots_are_silent(loss, junk, old_junk):
    """Fault B51: selected, not multiplied. new [-1, junk], old [-1, old junk], mask [1, 0], A = 1."""
    logps = torch.tensor([[-1.0, junk]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    weights = TokenMean()(mask[None])[0]
    clean = masked(logps, torch.tensor([[-1.0, old_junk]]), mask)
    total = (weights * loss(clean.logps, clean.old_logps, torch.ones(1, 2))).sum()
    values = {Reinforce: 1.0, Likelihood: 1.0, CISPO: 1.0, MirrorDescent: 0.0}
    assert total.item() == pytest.approx(values.get(type(loss), -1.0))
    assert torch.autograd.grad(total, logps)[0].tolist() == [[-1.0, 0.0]]


def test_masked_keeps_the_rest():
    logps, old_logps, _ = batch()
    mask = torch.rand(logps.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    clean = masked(logps, old_logps, mask)
    assert torch.equal(clean.logps[mask], logps[mask]) and torch.equal(clean.old_logps[mask], old_logps[mask])
    assert (clean.logps[~mask] == 0).all() and (clean.old_logps[~mask] == 0).all()
    assert clean.logps.dtype == torch.float64


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epsilon", -0.1),
        ("epsilon", INF),
        ("epsilon_high", -1),
        ("dual_clip", 1.0),
        ("dual_clip", "3"),
        ("epsilon", True),
    ],
)
def test_clip_refuses(setting, value):
    with pytest.raises(ValueError, match=rf"Clip.{setting} is {value!r}; accepted: a finite number >=? [01]"):
        Clip(**{setting: value})


def test_cispo_bounds_the_weight_not_the_gradient():
    # ρ = 8, cap 5: value -5 · A · log π with log π = -2, slope -5 A; the clip would have no slope at all.
    assert scalar(CISPO(cap=5.0), math.log(8), 1.0, logp=-2.0) == pytest.approx(10.0)
    assert gradient(CISPO(cap=5.0), row(-2.0), row(-2.0 - math.log(8)), row(1.0)).item() == pytest.approx(-5.0)
    assert gradient(Clip(), row(-2.0), row(-2.0 - math.log(8)), row(1.0)).item() == 0.0
    # Below the floor, and in between.
    assert gradient(CISPO(5.0, 0.8), row(-2.0), row(-2.0 - math.log(0.5)), row(1.0)).item() == pytest.approx(-0.8)
    assert gradient(CISPO(5.0), row(-2.0), row(-2.0 - math.log(0.5)), row(1.0)).item() == pytest.approx(-0.5)


def test_mirror_descent_is_zero_at_its_target():
    """ℓ = (A - τ d)² / 2τ - A² / 2τ: the slope vanishes where d = A / τ, wherever log π itself is."""
    tau, advantage = 0.5, 0.3
    assert scalar(MirrorDescent(tau), 0.2, advantage) == pytest.approx(
        ((advantage - tau * 0.2) ** 2 - 0.09) / (2 * tau)
    )
    assert gradient(MirrorDescent(tau), row(-1.0), row(-1.0 - 0.6), row(advantage)).item() == pytest.approx(
        0.0, abs=1e-12
    )
    # Twice as far as wanted: pulled back as hard as it was pushed at the start.
    assert gradient(MirrorDescent(tau), row(-1.0), row(-1.0 - 1.2), row(advantage)).item() == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CISPO(cap=0.5, floor=0.5), "CISPO.cap is 0.5; accepted: a finite number > 0.5"),
        (lambda: CISPO(floor=-1), "CISPO.floor is -1; accepted: a finite number >= 0"),
        (lambda: MirrorDescent(0), "MirrorDescent.tau is 0; accepted: a finite number > 0"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()

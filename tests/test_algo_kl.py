"""KL: values and gradients of the estimators against exact ones, where the penalty lands, what moves with time."""

import math
from dataclasses import replace

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import K1, K2, K3, KL, K3StraightThrough, masked, pieces

NAN, INF = float("nan"), float("inf")
each = pytest.mark.parametrize("estimator", EXAMPLES["estimator"], ids=str)
each_kl = pytest.mark.parametrize("kl", EXAMPLES["kl"], ids=str)
HALF = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
REF = torch.tensor([0.25, 0.75], dtype=torch.float64).log()


def expected_gradient(penalty, logits, old=None):
    """E_{y ~ old} ∇ penalty(log π(y)) over a vocabulary: exact, as all tokens are listed."""
    logits = logits.clone().requires_grad_()
    logps = logits.log_softmax(-1)
    mass = (logps if old is None else old).detach().exp()
    return torch.autograd.grad((mass * penalty(logps[None])[0]).sum(), logits)[0]


def divergence(logits, ref, forward=False):
    logps = logits.log_softmax(-1)
    return (ref.exp() * (ref - logps)).sum() if forward else (logps.exp() * (logps - ref)).sum()


def true_gradient(logits, ref, forward=False):
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(divergence(leaf, ref, forward), leaf)[0]


def test_every_piece_is_examined():
    assert {type(piece).__name__ for piece in EXAMPLES["estimator"]} == set(pieces("estimator"))
    assert set(pieces("kl")) == {"KL"}
    assert {type(kl.estimator) for kl in EXAMPLES["kl"]} == set(pieces("estimator").values())


def test_b60_values_of_the_fault_case():
    """Fault B60: p = (.5, .5), q = (.25, .75)."""
    values = {
        K1(): [0.69315, -0.40547],
        K2(): [0.24023, 0.08220],
        K3(): [0.19315, 0.09453],
        K3StraightThrough(): [0.19315, 0.09453],
    }
    for estimator, expected in values.items():
        found = estimator(HALF[None], REF[None])[0]
        assert found.tolist() == pytest.approx(expected, abs=5e-6)
    means = [(HALF.exp() * estimator(HALF[None], REF[None])[0]).sum().item() for estimator in values]
    assert means == pytest.approx([0.14384, 0.16121, 0.14384, 0.14384], abs=1e-5)
    assert divergence(HALF, REF).item() == pytest.approx(0.14384, abs=5e-6)


def test_b60_gradients_of_the_fault_case():
    """Fault B60: d/d logit 0 of KL(p‖q) is 0.27465; k1 in the loss has 0, k2 the true one, k3 p₀ − q₀ = 0.25."""
    slopes = {K1(): 0.0, K2(): 0.27465, K3(): 0.25, K3StraightThrough(): 0.27465}
    assert true_gradient(torch.zeros(2, dtype=torch.float64), REF)[0].item() == pytest.approx(0.27465, abs=5e-6)
    for estimator, expected in slopes.items():
        found = expected_gradient(lambda logps, k=estimator: k(logps, REF[None]), torch.zeros(2, dtype=torch.float64))
        assert found[0].item() == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_five_tokens(seed):
    """The table of the module, on random policies: 0, reverse, forward, reverse."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, generator=draw, dtype=torch.float64)
    ref = torch.randn(5, generator=draw, dtype=torch.float64).log_softmax(-1)
    truths = {
        K1(): torch.zeros(5, dtype=torch.float64),
        K2(): true_gradient(logits, ref),
        K3(): true_gradient(logits, ref, forward=True),
        K3StraightThrough(): true_gradient(logits, ref),
    }
    for estimator, expected in truths.items():
        found = expected_gradient(lambda logps, k=estimator: k(logps, ref[None]), logits)
        assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("estimator", [K1(), K3()], ids=str)
def test_weighted_estimators_are_right_on_old_samples(estimator, seed):
    """ρ k under the old policy has the value and the gradient of KL(π ‖ π_ref), for estimators with its value."""
    draw = torch.Generator().manual_seed(seed)
    logits, old, ref = (torch.randn(5, generator=draw, dtype=torch.float64) for _ in range(3))
    old, ref = old.log_softmax(-1), ref.log_softmax(-1)
    kl = KL(1.0, estimator, weighted=True)
    found = expected_gradient(lambda logps: kl(logps, old[None], ref[None]), logits, old)
    assert_close(found, true_gradient(logits, ref), rtol=0, atol=1e-12)
    value = (old.exp() * kl(logits.log_softmax(-1)[None], old[None], ref[None])[0]).sum()
    assert_close(value, divergence(logits, ref), rtol=0, atol=1e-12)
    plain = expected_gradient(lambda logps: KL(1.0, estimator)(logps, old[None], ref[None]), logits, old)
    assert (plain - found).abs().max() > 1e-2


@pytest.mark.parametrize("estimator", [K2(), K3(), K3StraightThrough()], ids=str)
def test_b62_never_negative(estimator):
    """Fault B62: only k1 averages below 0 where the sampler isn't the policy: always token 1 of the tie."""
    draw = torch.Generator().manual_seed(0)
    logps, ref = (3 * torch.randn(2, 100, generator=draw, dtype=torch.float64) for _ in range(2))
    assert (estimator(logps, ref) >= 0).all()
    assert K1()(HALF[None, 1:], REF[None, 1:]).item() == pytest.approx(-0.40547, abs=5e-6)
    assert K3()(HALF[None, 1:], REF[None, 1:]).item() > 0


@each
def test_b63_zero_at_the_reference(estimator):
    """Fault B63: a policy that is its reference has divergence 0, to the last bit, and no gradient but k1's."""
    logps = torch.tensor([[-0.3, -1.7, 0.0]], requires_grad=True)
    found = estimator(logps, logps.detach())
    assert (found == 0).all()
    slope = torch.autograd.grad(found.sum(), logps)[0]
    assert (slope == (1.0 if estimator == K1() else 0.0)).all()


def test_small_steps_keep_their_digits():
    """exp(x) − 1 − x of a hundred-thousandth is 5e-11; float32 would round it to 0 or to 6e-8."""
    found = K3()(torch.tensor([[-1.0]]), torch.tensor([[-1.00001]]))
    assert 0 <= found.item() < 1e-9


@each
@pytest.mark.parametrize("gap", [-1e4, -100.0, 100.0, 1e4])
def test_huge_gaps_stay_finite(estimator, gap):
    logps = torch.tensor([[-1.0]], requires_grad=True)
    found = estimator(logps, torch.tensor([[-1.0 + gap]]))
    assert found.isfinite().all() and torch.autograd.grad(found.sum(), logps)[0].isfinite().all()


@each_kl
@pytest.mark.parametrize("junk", [0.0, 7.0, -INF, INF, NAN])
def test_masked_slots_are_silent(kl, junk):
    mask = torch.tensor([[True, False]])
    leaf = torch.tensor([[-1.0, junk]], requires_grad=True)
    logps, old = masked(leaf, torch.tensor([[-1.2, junk]]), mask)
    ref = torch.where(mask, torch.tensor([[-1.5, junk]]), 0.0)
    found = kl(logps, old, ref)
    assert found[0, 1].item() == 0 and kl.charge(old, ref)[0, 1].item() == 0
    assert torch.autograd.grad(found.sum(), leaf)[0][0, 1].item() == 0


@each_kl
def test_charges_carry_no_gradient(kl):
    old = torch.tensor([[-1.0]], requires_grad=True)
    charge = kl.charge(old, torch.tensor([[-1.5]]))
    assert not charge.requires_grad
    assert charge.item() == pytest.approx(kl.estimator(torch.tensor([[-1.0]]), torch.tensor([[-1.5]])).item())


@each_kl
def test_references_are_constants(kl):
    logps = torch.tensor([[-1.0]], requires_grad=True)
    ref, old = torch.tensor([[-1.5]], requires_grad=True), torch.tensor([[-1.2]], requires_grad=True)
    kl(logps, old, ref).sum().backward()
    assert ref.grad is None and old.grad is None


# ── In time ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_controller():
    """Ziegler et al. 2019: β (1 + clip(KL/target − 1, ±0.2) n / horizon)."""
    kl = KL(0.1, K1(), "reward", target=6.0, horizon=10_000)
    assert kl.next_coef(0.1, 6.6, 1000) == pytest.approx(0.1 * (1 + 0.1 * 0.1))
    assert kl.next_coef(0.1, 60.0, 1000) == pytest.approx(0.1 * (1 + 0.2 * 0.1))
    assert kl.next_coef(0.1, 0.0, 1000) == pytest.approx(0.1 * (1 - 0.2 * 0.1))
    assert kl.next_coef(0.1, 6.0, 1000) == 0.1
    assert kl.next_coef(0.1, NAN, 1000) == 0.1
    assert KL(0.1).next_coef(0.3, 60.0, 1000) == 0.3
    # Two batches of 500 follow two steps of half the size.
    assert kl.next_coef(kl.next_coef(0.1, 60.0, 500), 60.0, 500) == pytest.approx(0.1 * 1.01**2)


def test_the_controller_finds_its_target():
    """A policy whose divergence is 1/β settles where β = 1/target, from either side."""
    kl = KL(1.0, target=0.5, horizon=100)
    for coef in (0.1, 30.0):
        for _ in range(3000):
            coef = kl.next_coef(coef, 1 / coef, 10)
        assert coef == pytest.approx(2.0, rel=1e-3)


def test_the_reference_moves_when_asked():
    fixed, r1, average = KL(0.1), KL(0.1, reference_every=400), KL(0.1, reference_every=2, reference_decay=0.9)
    assert [fixed.refresh(step) for step in (0, 1, 400)] == [0, 0, 0]
    assert [r1.refresh(step) for step in (0, 399, 400, 401, 800)] == [0, 0, 1, 0, 1]
    assert [average.refresh(step) for step in range(5)] == pytest.approx([0, 0, 0.1, 0, 0.1])


def test_formulas():
    assert KL(0.04).formula == "k = x − 1 − log x,  x = π_ref / π"
    assert KL(0.04, K1()).formula == "k = log π − log π_ref"
    assert KL(0.04, weighted=True).formula == "k = ρ (x − 1 − log x),  x = π_ref / π"
    assert KL(0.04, K2(), weighted=True).formula == "k = ρ (½ (log π − log π_ref)²)"
    assert KL(0.04, reference_every=400).formula.endswith(",  π_ref ← π every 400 steps")
    moving = KL(0.04, reference_every=2, reference_decay=0.9, target=6)
    assert moving.formula.endswith(",  π_ref ← 0.9 π_ref + 0.1 π every 2 steps,  β follows KL to 6")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coef": -1}, "KL.coef is -1; accepted: a finite number >= 0"),
        ({"estimator": K1}, "KL.estimator is <class .*; accepted: an Estimator object, K1"),
        ({"estimator": "k3"}, "KL.estimator is 'k3'; accepted"),
        ({"place": "rewards"}, "KL.place is 'rewards'; accepted: 'loss', 'reward' or 'advantage'"),
        ({"weighted": 1}, "KL.weighted is 1; accepted: True or False"),
        ({"weighted": True, "place": "reward"}, "KL.weighted is True with place 'reward'; accepted"),
        ({"target": 0}, "KL.target is 0; accepted: a finite number > 0"),
        ({"horizon": 0}, "KL.horizon is 0; accepted: a finite number > 0"),
        ({"reference_every": -1}, "KL.reference_every is -1; accepted: a whole number >= 0"),
        (
            {"reference_every": 2, "reference_decay": 1.5},
            "KL.reference_decay is 1.5; accepted: a finite number >= 0 and",
        ),
        ({"reference_decay": 0.5}, "KL.reference_decay is 0.5; accepted: 0 with reference_every 0"),
    ],
    ids=str,
)
def test_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(KL(0.1), **change)


def test_closed_form_of_two_tokens():
    """The truth of the fault case by hand: KL = ½ ln 2 + ½ ln ⅔, slope ¼ ln 3."""
    assert divergence(HALF, REF).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert true_gradient(torch.zeros(2, dtype=torch.float64), REF)[0].item() == pytest.approx(0.25 * math.log(3))

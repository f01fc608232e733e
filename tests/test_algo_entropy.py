"""The entropy bonus, its controller, and the rules for starting over: pure functions of what was measured."""

import pytest
import torch
from algo_examples import EXAMPLES

from rlvr.algo import AdaptiveEntropy, EntropyBonus, RestartEvery, RestartOnStall, entropy_losses, pieces

NAN = float("nan")


def entropy_of(*probabilities):
    p = torch.tensor([probabilities], dtype=torch.float64)
    return -(p * p.log()).sum(-1, keepdim=True)


def test_every_piece_is_examined():
    for slot in ("entropy", "restart"):
        assert {type(piece).__name__ for piece in EXAMPLES[slot]} == set(pieces(slot))


def test_b65_the_flatter_policy_has_the_lower_loss():
    """Fault B65: coefficient 0.1 on (0.5, 0.5) and (0.9, 0.1)."""
    assert entropy_losses(entropy_of(0.5, 0.5), 0.1).item() == pytest.approx(-0.0693, abs=5e-5)
    assert entropy_losses(entropy_of(0.9, 0.1), 0.1).item() == pytest.approx(-0.0325, abs=5e-5)


def test_descent_flattens():
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    logps = logits.log_softmax(-1)
    entropy = -(logps.exp() * logps).sum()
    slope = torch.autograd.grad(entropy_losses(entropy[None, None], 0.1).sum(), logits)[0]
    assert slope[0] > 0 > slope[1]


def test_a_fixed_bonus_is_fixed():
    bonus = EntropyBonus(0.005)
    assert bonus.used(0.005, 0.1) == bonus.next_coef(0.005, 0.1) == bonus.used(0.005, NAN) == 0.005


def test_the_controller():
    bonus = AdaptiveEntropy(target=0.2, coef=0.01, step=0.005)
    assert [bonus.used(0.01, h) for h in (0.1, 0.2, 0.2001)] == [0.01, 0.01, 0.0]
    assert [bonus.next_coef(0.01, h) for h in (0.1, 0.2, 0.2001)] == pytest.approx([0.015, 0.015, 0.005])
    assert bonus.next_coef(0.002, 0.3) == 0.0 and bonus.next_coef(0.999, 0.1) == 1.0
    assert bonus.next_coef(0.01, NAN) == 0.01 and bonus.used(0.01, NAN) == 0.0


def test_the_controller_pushes_until_it_works():
    """A policy whose entropy is 20 times the coefficient in use: it rises from 0 and then stays about the target."""
    bonus, coef, seen = AdaptiveEntropy(target=0.2, coef=0.0), 0.0, []
    measured = 0.0
    for _ in range(200):
        measured += 0.5 * (20 * bonus.used(coef, measured) - measured)
        coef = bonus.next_coef(coef, measured)
        seen.append(measured)
    assert max(seen[50:]) < 0.4 and sum(seen[50:]) / len(seen[50:]) == pytest.approx(0.2, abs=0.1)


def test_restart_every():
    assert [step for step in range(10) if RestartEvery(3)(step, [])] == [3, 6, 9]
    assert RestartEvery(1).formula == "every step" and RestartEvery(3).formula == "every 3 steps"


def test_restart_on_stall():
    stall = RestartOnStall(2)
    assert not stall(5, []) and not stall(5, [0.5, 0.4])
    assert stall(5, [0.5, 0.4, 0.4]) and stall(5, [0.5, 0.5, 0.5])
    assert not stall(5, [0.5, 0.4, 0.6]) and not stall(5, [0.5, 0.6, 0.4])
    assert stall(5, [0.1, 0.9, 0.2, 0.8])
    assert stall.formula == "after 2 evaluations without a new best"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EntropyBonus("much"), "EntropyBonus.coef is 'much'; accepted: a finite number"),
        (lambda: AdaptiveEntropy(-0.1), "AdaptiveEntropy.target is -0.1; accepted: a finite number >= 0"),
        (lambda: AdaptiveEntropy(0.1, coef=2), "AdaptiveEntropy.coef is 2; accepted: a finite number >= 0 and <= 1"),
        (lambda: AdaptiveEntropy(0.1, step=0), "AdaptiveEntropy.step is 0; accepted: a finite number > 0"),
        (lambda: RestartEvery(0), "RestartEvery.steps is 0; accepted: a whole number >= 1"),
        (lambda: RestartOnStall(1.5), "RestartOnStall.patience is 1.5; accepted: a whole number >= 1"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_formulas():
    assert EntropyBonus(0.005).formula == "α = 0.005"
    assert AdaptiveEntropy(0.2).formula == "α = 0.01 ± 0.005 a step, 0 while H > 0.2"

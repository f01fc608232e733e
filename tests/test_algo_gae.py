"""Credit by token: GAE against sums written out, whitening, the critic's loss and what it explains."""

import math

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import GAE, RewardToGo, TokenAdvantage, ValueLoss, explained_variance, pieces, whiten
from rlvr.algo.gae import gae

NAN, INF = float("nan"), float("inf")
TOKENWISE = [piece for piece in EXAMPLES["advantage"] if isinstance(piece, TokenAdvantage)]
each = pytest.mark.parametrize("advantage", TOKENWISE, ids=str)
critics = pytest.mark.parametrize("critic", EXAMPLES["critic"], ids=str)


def batch(seed=0, gaps=True):
    """Rows of lengths 5, 3, 1 and 0; row 0 has two tokens inside that are not the policy's."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(6) < torch.tensor([[5], [3], [1], [0]])
    if gaps:
        mask[0, 1] = mask[0, 3] = False
    rewards, values = (torch.randn(4, 6, generator=draw, dtype=torch.float64) for _ in range(2))
    return rewards, values, mask


def by_definition(rewards, values, mask, gamma, lam):
    """Σ_l (γλ)^l δ_{t+l} for every token, from scratch, on a list of the row's own tokens."""
    advantages = torch.zeros_like(values)
    for row in range(len(values)):
        places = mask[row].nonzero()[:, 0].tolist()
        r, v = rewards[row, places].tolist(), [*values[row, places].tolist(), 0.0]
        errors = [r[i] + gamma * v[i + 1] - v[i] for i in range(len(places))]
        for i, place in enumerate(places):
            advantages[row, place] = sum((gamma * lam) ** j * error for j, error in enumerate(errors[i:]))
    return advantages


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("gaps", [False, True])
def test_gae_is_its_definition(gamma, lam, gaps):
    rewards, values, mask = batch(gaps=gaps)
    found = gae(rewards, values, mask, gamma, lam)
    expected = by_definition(rewards, values, mask, gamma, lam)
    assert_close(found.advantages, expected, rtol=0, atol=1e-12)
    assert_close(found.returns, torch.where(mask, expected + values, 0.0), rtol=0, atol=1e-12)


def test_gae_is_the_weighted_mean_of_n_step_advantages():
    """The other definition: (1 − λ) Σ_n λ^(n−1) (n-step return − V), the rest of the weight on the full return."""
    rewards, values, mask = batch(gaps=False)
    gamma, lam = 0.9, 0.7
    found = gae(rewards, values, mask, gamma, lam).advantages
    r, v = rewards[0, :5].tolist(), [*values[0, :5].tolist(), 0.0]
    for t in range(5):
        steps = [sum(gamma**i * r[t + i] for i in range(n)) + gamma**n * v[t + n] - v[t] for n in range(1, 5 - t + 1)]
        weights = [(1 - lam) * lam ** (n - 1) for n in range(1, 5 - t)] + [lam ** (4 - t)]
        assert found[0, t].item() == pytest.approx(sum(w * a for w, a in zip(weights, steps, strict=True)))


def test_by_hand():
    # r = (0, 0, 1), V = (.5, .6, .8): δ = (.1, .2, .2); λ .5: Â = (.1 + .1 + .05, .2 + .1, .2).
    rewards, values = torch.tensor([[0.0, 0.0, 1.0, 9.0]]), torch.tensor([[0.5, 0.6, 0.8, 9.0]])
    mask = torch.tensor([[True, True, True, False]])
    found = gae(rewards, values, mask, lam=0.5)
    assert found.advantages[0].tolist() == pytest.approx([0.25, 0.3, 0.2, 0.0])
    assert found.returns[0].tolist() == pytest.approx([0.75, 0.9, 1.0, 0.0])
    to_go = RewardToGo(gamma=0.5, whiten=False)(rewards, values, mask)
    assert to_go.advantages[0].tolist() == pytest.approx([0.25, 0.5, 1.0, 0.0])
    # Reward decays: with γ λ = 0.95 the first of a hundred tokens sees 0.6 % of it.
    long = gae(torch.eye(1, 100).flip(1), torch.zeros(1, 100), torch.ones(1, 100).bool(), lam=0.95)
    assert long.advantages[0, 0].item() == pytest.approx(0.95**99, rel=1e-5)


def test_settings_reach_the_sum():
    rewards, values, mask = batch()
    plain = GAE(0.9, 0.8, whiten=False)(rewards, values, mask)
    assert_close(plain.advantages, by_definition(rewards, values, mask, 0.9, 0.8))
    decoupled = GAE(0.9, 0.8, value_lam=1.0, whiten=False)(rewards, values, mask)
    assert_close(decoupled.advantages, plain.advantages)
    monte_carlo = torch.where(mask, by_definition(rewards, values, mask, 0.9, 1.0) + values, 0.0)
    assert_close(decoupled.returns, monte_carlo)
    white = GAE(0.9, 0.8)(rewards, values, mask)
    assert_close(white.returns, plain.returns)
    kept = white.advantages[mask]
    assert kept.mean().item() == pytest.approx(0, abs=1e-7) and kept.std().item() == pytest.approx(1)
    assert_close(white.advantages, torch.where(mask, whiten(plain.advantages, mask), 0.0))


def test_whitening_by_hand():
    """verl's masked_whiten: mean and Bessel-corrected variance over the mask. Tokens 1, 2, 6: mean 3, std √7."""
    values, mask = torch.tensor([[1.0, 2.0, 50.0], [6.0, -9.0, 4.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    found = whiten(values, mask)
    assert found[0, 0].item() == pytest.approx(-2 / math.sqrt(7)) and found[1, 0].item() == pytest.approx(3 / 7**0.5)
    assert (found[~mask] == 0).all()
    assert whiten(torch.full((2, 3), 0.7), torch.ones(2, 3).bool()).tolist() == [[0.0] * 3] * 2
    assert whiten(torch.ones(1, 1), torch.ones(1, 1).bool()).tolist() == [[0.0]]
    assert whiten(torch.zeros(2, 0), torch.zeros(2, 0).bool()).shape == (2, 0)


@each
@pytest.mark.parametrize("junk", [0.0, -INF, INF, NAN])
def test_masked_slots_are_silent(advantage, junk):
    rewards, values, mask = batch()
    dirty = advantage(torch.where(mask, rewards, junk), torch.where(mask, values, junk), mask)
    clean = advantage(torch.where(mask, rewards, 0.0), torch.where(mask, values, 0.0), mask)
    assert_close(dirty, clean)
    assert (dirty.advantages[~mask] == 0).all() and (dirty.returns[~mask] == 0).all()


@each
def test_padding_and_order(advantage):
    rewards, values, mask = batch()
    expected = advantage(rewards, values, mask)
    wide = advantage(*(torch.nn.functional.pad(x, (0, 3)) for x in (rewards, values, mask)))
    assert_close(wide.advantages[:, :6], expected.advantages)
    order = torch.tensor([2, 0, 3, 1])
    assert_close(advantage(rewards[order], values[order], mask[order]).advantages, expected.advantages[order])
    nothing = advantage(rewards, values, torch.zeros_like(mask))
    assert (nothing.advantages == 0).all() and (nothing.returns == 0).all()
    assert advantage(rewards[:, :0], values[:, :0], mask[:, :0]).advantages.shape == (4, 0)


@each
def test_a_missing_reward_leaves_its_row_out(advantage):
    rewards, values, mask = batch()
    missing = rewards.clone()
    missing[1, 2] = NAN
    found = advantage(missing, values, mask)
    assert (found.advantages[1] == 0).all() and (found.returns[1] == 0).all()
    # As if the row were not there, in the whitening as well.
    others = torch.tensor([0, 2, 3])
    assert_close(found.advantages[others], advantage(rewards[others], values[others], mask[others]).advantages)
    with pytest.raises(ValueError, match="rewards hold 1 infinities"):
        missing[1, 2] = INF
        advantage(missing, values, mask)


def test_values_are_constants():
    rewards, values, mask = batch()
    leaf = values.clone().requires_grad_()
    found = GAE()(rewards, leaf, mask)
    assert not found.advantages.requires_grad and not found.returns.requires_grad


# ── The critic ──────────────────────────────────────────────────────────────────────────────────────


def test_every_critic_is_examined():
    assert {type(piece).__name__ for piece in EXAMPLES["critic"]} == set(pieces("critic"))


@pytest.mark.parametrize(
    ("value", "old", "target", "expected"),
    [
        (0.5, 0.0, 1.0, 0.32),  # (0.2 − 1)²/2: the clip stands in for the jump
        (0.1, 0.0, 1.0, 0.405),  # within reach: plain
        (0.5, 0.0, 0.5, 0.045),  # right, but too fast: (0.2 − 0.5)²/2
        (-0.5, 0.0, 1.0, 1.125),  # away from the target: unclipped and worse
        (0.5, 0.6, 1.0, 0.125),
    ],
)
def test_value_loss_is_pessimistic(value, old, target, expected):
    values = torch.tensor([[value]], requires_grad=True)
    loss = ValueLoss(clip=0.2)(values, torch.tensor([[old]]), torch.tensor([[target]]))
    assert loss.item() == pytest.approx(expected)
    slope = torch.autograd.grad(loss.sum(), values)[0].item()
    held = abs(value - old) > 0.2 and expected != pytest.approx(0.5 * (value - target) ** 2)
    assert slope == pytest.approx(0.0 if held else value - target)


def test_value_loss_without_a_clip():
    values = torch.tensor([[0.5, 2.0]])
    assert ValueLoss(clip=None)(values, values - 9, torch.ones(1, 2)).tolist() == [[0.125, 0.5]]
    assert ValueLoss().formula == "ℓ_V = ½ max((V − R)², (clip(V, V_old ± 0.2) − R)²)"
    assert ValueLoss(None).formula == "ℓ_V = ½ (V − R)²"


@critics
def test_targets_are_constants(critic):
    leaves = [torch.tensor([[x]], requires_grad=True) for x in (0.1, 0.2, 0.9)]
    critic(*leaves).sum().backward()
    assert leaves[0].grad is not None and leaves[1].grad is None and leaves[2].grad is None


def test_explained_variance_by_hand():
    # Returns 1, 0, 2 with variance 2/3; errors .5, −.5, 0 with variance 1/6.
    returns = torch.tensor([[1.0, 0.0], [2.0, 77.0]])
    values, mask = torch.tensor([[0.5, 0.5], [2.0, -77.0]]), torch.tensor([[True, True], [True, False]])
    assert explained_variance(values, returns, mask) == pytest.approx(0.75)
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(torch.zeros(2, 2), returns, mask) == pytest.approx(0.0)
    # A constant offset is no error in variance; the opposite is worse than nothing.
    assert explained_variance(returns + 3, returns, mask) == pytest.approx(1.0)
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3.0)
    assert math.isnan(explained_variance(values, torch.ones(2, 2), mask))
    assert math.isnan(explained_variance(values, returns, torch.zeros(2, 2).bool()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GAE(gamma=1.1), "GAE.gamma is 1.1; accepted: a finite number >= 0 and <= 1"),
        (lambda: GAE(lam=-1), "GAE.lam is -1"),
        (lambda: GAE(value_lam=2), "GAE.value_lam is 2"),
        (lambda: GAE(whiten=0), "GAE.whiten is 0; accepted: True or False"),
        (lambda: RewardToGo(gamma=-0.1), "RewardToGo.gamma is -0.1"),
        (lambda: RewardToGo(whiten="yes"), "RewardToGo.whiten is 'yes'"),
        (lambda: ValueLoss(clip=0), "ValueLoss.clip is 0; accepted: a finite number > 0"),
        (lambda: ValueLoss(coef=0), "ValueLoss.coef is 0"),
        (lambda: ValueLoss(warmup_steps=-1), "ValueLoss.warmup_steps is -1; accepted: a whole number >= 0"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_formulas():
    assert GAE(1.0, 0.95).formula == "A_t = Σ_l 0.95^l (r_{t+l} + V_{t+l+1} − V_{t+l}), whitened over the batch"
    assert GAE(0.9, 0.5, whiten=False).formula == "A_t = Σ_l 0.45^l (r_{t+l} + 0.9 V_{t+l+1} − V_{t+l})"
    assert RewardToGo(0.9, whiten=False).formula == "A_t = Σ_l 0.9^l r_{t+l}"

"""Focus and mismatch: which tokens the policy loss acts on, and by how much a second engine's tokens count."""

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import (
    AllTokens,
    ClipCov,
    KLCov,
    MaskedMismatch,
    Ratio,
    Tokens,
    TruncatedMismatch,
    covariances,
    pieces,
    preset,
    token_losses,
    with_overrides,
)

NAN, INF = float("nan"), float("inf")
each = pytest.mark.parametrize("focus", EXAMPLES["focus"], ids=str)
each_mismatch = pytest.mark.parametrize("mismatch", EXAMPLES["mismatch"], ids=str)


def batch(seed=0, rows=6, width=8):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=draw)
    logps = torch.where(mask, -3 * torch.rand(rows, width, generator=draw, dtype=torch.float64), 0.0)
    advantages = torch.randn(rows, 1, generator=draw, dtype=torch.float64).expand(rows, width)
    return logps, advantages, mask, torch.rand(rows, width, generator=draw, dtype=torch.float64)


def test_every_piece_is_examined():
    for slot in ("focus", "mismatch"):
        assert {type(piece).__name__ for piece in EXAMPLES[slot]} == set(pieces(slot))


def test_covariances_by_hand():
    # log π: −1, −3, −2 about −2; A: 1, −1, 3 about 1; the masked slot is nobody's.
    logps, advantages = torch.tensor([[-1.0, -3.0, -2.0, 50.0]]), torch.tensor([[1.0, -1.0, 3.0, 50.0]])
    mask = torch.tensor([[True, True, True, False]])
    assert covariances(logps, advantages, mask)[0].tolist() == [0.0, 2.0, 0.0, 0.0]
    logps, advantages, mask, _ = batch()
    pair = torch.stack([logps[mask], advantages[mask]])
    assert_close(covariances(logps, advantages, mask)[mask].mean(), torch.cov(pair, correction=0)[0, 1])


def test_clip_cov_draws_from_its_band():
    logps, advantages, mask, draws = batch()
    focus, spread = ClipCov(0.2, 0.1, 1.0), covariances(logps, advantages, mask)
    band = mask & (spread > 0.1) & (spread < 1.0)
    left_out = focus(logps, advantages, mask, draws).weight == 0
    count = int(0.2 * int(mask.sum()))
    assert 0 < left_out.sum() == min(count, int(band.sum())) < band.sum()
    assert (left_out <= band).all()
    # The lowest draws of the band are the ones.
    assert draws[left_out].max() < draws[band & ~left_out].min()
    assert not torch.equal(focus(logps, advantages, mask, 1 - draws).weight == 0, left_out)


def test_clip_cov_takes_no_more_than_there_are():
    logps, advantages, mask, draws = batch()
    spread = covariances(logps, advantages, mask)
    everything = ClipCov(1.0, 0.1, 1.0)(logps, advantages, mask, draws).weight
    assert torch.equal(everything == 0, mask & (spread > 0.1) & (spread < 1.0))
    assert (ClipCov(1.0, 90, 99)(logps, advantages, mask, draws).weight == 1).all()
    # A share of a ten-thousandth of thirty tokens is one token.
    assert (ClipCov(1e-4, 0.1, 1.0)(logps, advantages, mask, draws).weight == 0).sum() == 1


def test_kl_cov_takes_the_top():
    logps, advantages, mask, draws = batch()
    leash = KLCov(0.2, 0.7)(logps, advantages, mask, draws).leash
    spread, count = covariances(logps, advantages, mask), int(0.2 * int(mask.sum()))
    expected = torch.zeros_like(spread)
    best = torch.where(mask, spread, -INF).flatten().topk(count).indices
    expected.view(-1)[best] = 0.7
    assert_close(leash, expected)
    assert (KLCov(1e-4)(logps, advantages, mask, draws).leash > 0).sum() == 1


def test_ties_go_to_the_lower_draw():
    """Copies of one completion are the rule in a trained policy: the count stays exact, the draws decide."""
    logps, advantages = torch.tensor([[-0.1], [-0.1], [-3.0], [-0.1]]), torch.tensor([[1.0], [1.0], [-1.0], [1.0]])
    draws = torch.tensor([[0.5], [0.2], [0.9], [0.1]])
    assert KLCov(0.75)(logps, advantages, torch.ones(4, 1).bool(), draws).leash[:, 0].tolist() == [0, 1, 1, 1]


def slopes(algorithm, batch_, drift):
    logps, advantages, mask, draws = batch_
    leaf = logps.clone().requires_grad_()
    focused = algorithm.focus(logps, advantages, mask, draws)
    inputs = Tokens(leaf + drift, logps, advantages, mask, focused=focused)
    return torch.autograd.grad(token_losses(algorithm, inputs).sum(), leaf)[0]


def test_b66_inert_or_not_on_the_first_pass():
    """Fault B66: on-policy KL-Cov is the plain loss, in value and in gradient; Clip-Cov isn't."""
    material = batch()
    plain = with_overrides(preset("kl_cov"), {"focus": "AllTokens"})
    held = with_overrides(preset("kl_cov"), {"focus.share": 0.3})
    assert plain.loss == held.loss == Ratio()
    assert torch.equal(slopes(held, material, 0.0), slopes(plain, material, 0.0))
    assert not torch.equal(slopes(held, material, 0.1), slopes(plain, material, 0.1))
    cut = with_overrides(preset("clip_cov"), {"focus.share": 0.3, "focus.low": 0.1})
    uncut = with_overrides(preset("clip_cov"), {"focus": "AllTokens"})
    chosen = cut.focus(*material).weight == 0
    assert (slopes(cut, material, 0.0)[chosen] == 0).all() and (slopes(uncut, material, 0.0)[chosen] != 0).all()
    assert torch.equal(slopes(cut, material, 0.0)[~chosen], slopes(uncut, material, 0.0)[~chosen])


def test_the_leash_pulls_back():
    """ℓ = −ρ A + coef |log π − log π_old| for the chosen: slope ± coef besides the plain one."""
    material = batch()
    logps, advantages, mask, draws = material
    plain, held = (
        with_overrides(preset("kl_cov"), change) for change in ({"focus": "AllTokens"}, {"focus.share": 0.3})
    )
    chosen = held.focus(logps, advantages, mask, draws).leash > 0
    for drift in (0.1, -0.1):
        pull = slopes(held, material, drift) - slopes(plain, material, drift)
        assert_close(pull, torch.where(chosen, 1.0 if drift > 0 else -1.0, 0.0).double())


@each
@pytest.mark.parametrize("junk", [0.0, -INF, NAN])
def test_masked_slots_are_silent(focus, junk):
    logps, advantages, mask, draws = batch()
    expected = focus(logps, advantages, mask, draws)
    dirty = focus(torch.where(mask, logps, junk), torch.where(mask, advantages, junk), mask, draws)
    assert_close(dirty, expected)
    assert (expected.leash[~mask] == 0).all() and (expected.weight[~mask] == 1).all()


@each
def test_padding_and_order(focus):
    material = batch()
    expected = focus(*material)
    wide = focus(*(torch.nn.functional.pad(x, (0, 3)) for x in material))
    assert_close([x[:, :8] for x in wide], list(expected))
    order = torch.tensor([2, 0, 3, 1, 5, 4])
    assert_close(list(focus(*(x[order] for x in material))), [x[order] for x in expected])


@each
def test_nothing_to_choose_from(focus):
    logps, advantages, mask, draws = batch()
    found = focus(logps, advantages, torch.zeros_like(mask), draws)
    assert (found.weight == 1).all() and (found.leash == 0).all()
    equal = focus(torch.full_like(logps, -0.7), torch.full_like(advantages, 0.7), mask, draws)
    assert equal.weight.isfinite().all() and equal.leash.isfinite().all()


@each
def test_the_flags_mean_what_they_say(focus):
    logps, advantages, mask, draws = batch()
    one, other = focus(logps, advantages, mask, draws), focus(logps, advantages, mask, 1 - draws)
    tied = [torch.full_like(logps, -0.7), advantages]
    moved = not torch.equal(one.weight, other.weight)
    moved |= not torch.equal(focus(*tied, mask, draws).leash, focus(*tied, mask, 1 - draws).leash)
    assert focus.needs_draws == moved
    assert focus.pulls_back == bool((one.leash > 0).any())
    if focus == AllTokens():
        assert focus.formula == ""


# ── Two engines ─────────────────────────────────────────────────────────────────────────────────────


def test_b48_mismatch_by_hand():
    """Fault B48's ratios 1.1052 and 0.6065, one of 7.4 and one of 0.1."""
    old = torch.tensor([[-1.0, -2.0, -1.0, -3.0]])
    sampler = torch.tensor([[-1.1, -1.5, -3.0, -0.7]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    assert TruncatedMismatch()(old, sampler, mask)[0].tolist() == pytest.approx([1.1052, 0.6065, 2.0, 0.1003], abs=5e-5)
    assert MaskedMismatch()(old, sampler, mask)[0].tolist() == pytest.approx([1.1052, 0.6065, 0.0, 0.0], abs=5e-5)


@each_mismatch
@pytest.mark.parametrize("junk", [-INF, INF, NAN])
def test_mismatch_is_a_constant_of_the_mask(mismatch, junk):
    old = torch.tensor([[-1.0, junk]], requires_grad=True)
    found = mismatch(old, torch.tensor([[-1.0, junk]]), torch.tensor([[True, False]]))
    assert found.tolist() == [[1.0, 1.0]] and not found.requires_grad


def test_mismatch_multiplies_the_policy_loss_only():
    row = with_overrides(preset("grpo"), {"loss": "Ratio", "mismatch": "TruncatedMismatch"})
    logps, ref = torch.tensor([[-1.0]]), torch.tensor([[-2.0]])
    common = {"advantages": torch.ones(1, 1), "mask": torch.ones(1, 1).bool(), "ref_logps": ref, "kl_coef": 1.0}
    penalty = row.kl(logps, logps, ref).item()
    found = token_losses(row, Tokens(logps, logps, mismatch=torch.tensor([[2.0]]), **common))
    assert found.item() == pytest.approx(-2.0 + penalty)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClipCov(share=0), "ClipCov.share is 0; accepted: a finite number > 0 and <= 1"),
        (lambda: ClipCov(low=2, high=2), "ClipCov.high is 2; accepted: a finite number > 2"),
        (lambda: KLCov(share=1.1), "KLCov.share is 1.1"),
        (lambda: KLCov(coef=0), "KLCov.coef is 0; accepted: a finite number > 0"),
        (lambda: TruncatedMismatch(0), "TruncatedMismatch.cap is 0"),
        (lambda: MaskedMismatch(2, 1), "MaskedMismatch.high is 1; accepted: a finite number > 2"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Importance: whose ratio a loss sees, values by hand, gradients through the mean, silence at masked slots."""

import math

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import (
    Clip,
    MirrorDescent,
    Ratio,
    Reinforce,
    SequenceMean,
    SequenceProduct,
    SequenceRatio,
    SequenceTokenRatio,
    TokenRatio,
    log_ratio,
    masked,
    pieces,
)

each = pytest.mark.parametrize("importance", EXAMPLES["importance"], ids=str)
NAN, INF = float("nan"), float("inf")


def batch(seed=0):
    """Three rows of lengths 4, 2 and 1 with ratios well away from 1."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(4) < torch.tensor([[4], [2], [1]])
    logps = torch.where(mask, -torch.rand(3, 4, generator=draw, dtype=torch.float64) - 0.1, 0.0)
    old = torch.where(mask, logps + 0.4 * torch.randn(3, 4, generator=draw, dtype=torch.float64), 0.0)
    return logps, old, mask


def ratios(importance, logps, old, mask):
    pair = importance(logps, old, mask)
    return (pair.logps - pair.old_logps).exp()


def test_every_piece_is_examined():
    assert {type(piece).__name__ for piece in EXAMPLES["importance"]} == set(pieces("importance"))


def test_values_by_hand():
    """Log-ratios 0.1 and 0.5: the geometric mean has 0.3, the product 0.6."""
    logps, old = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-1.1, -2.5, 0.0]])
    mask = torch.tensor([[True, True, False]])
    expected = {
        TokenRatio(): [0.1, 0.5],
        SequenceRatio(): [0.3, 0.3],
        SequenceTokenRatio(): [0.3, 0.3],
        SequenceProduct(): [0.6, 0.6],
    }
    for importance, logs in expected.items():
        found = ratios(importance, logps, old, mask)[0].log().tolist()
        assert found == pytest.approx([*logs, 0.0], abs=1e-6)


def test_the_gradient_flows_through_the_mean():
    logps, old, mask = batch()
    logps.requires_grad_()
    lengths = mask.sum(-1)
    for importance, share in ((SequenceRatio(), 1 / lengths), (SequenceProduct(), torch.ones(3))):
        pair = importance(logps, old, mask)
        # One slot a row is read, and every token of the row moves it.
        slope = torch.autograd.grad((pair.logps - pair.old_logps)[:, 0].sum(), logps)[0]
        assert_close(slope, torch.where(mask, share.double()[:, None], 0.0))


def test_the_token_form_has_its_own_gradient():
    """sg[s] · π_t / sg[π_t]: value s, slope s at its own token and nowhere else."""
    logps, old, mask = batch()
    logps.requires_grad_()
    found = ratios(SequenceTokenRatio(), logps, old, mask)
    assert_close(found, torch.where(mask, ratios(SequenceRatio(), logps, old, mask), 1.0))
    slope = torch.autograd.grad(found[0, 1], logps)[0]
    assert slope[0, 1].item() == pytest.approx(found[0, 1].item())
    assert (slope != 0).sum() == 1


@pytest.mark.parametrize("loss", [Ratio(), Clip(0.05), Clip(0.1, 0.3)], ids=str)
def test_both_forms_of_gspo_agree(loss):
    """One advantage a row, averaged over its tokens: equal values, equal gradients (arXiv 2507.18071, section 4.3)."""
    logps, old, mask = batch()
    weights = SequenceMean()(mask[None])[0].double()
    advantages = torch.tensor([[1.0], [-0.5], [0.3]], dtype=torch.float64).expand(3, 4)
    found = []
    for importance in (SequenceRatio(), SequenceTokenRatio()):
        leaf = logps.clone().requires_grad_()
        total = (weights * loss(*importance(leaf, old, mask), advantages)).sum()
        found.append((total.detach(), torch.autograd.grad(total, leaf)[0]))
    assert_close(found[0], found[1])


def test_gspo_by_the_book():
    """(1/G) Σ min(s A, clip(s) A), s = (π(y) / π_old(y))^(1/|y|), written out row by row."""
    logps, old, mask = batch()
    advantages = [1.0, -0.5, 0.3]
    expected = 0.0
    for row, advantage in enumerate(advantages):
        length = int(mask[row].sum())
        s = math.exp((logps[row, :length] - old[row, :length]).sum().item() / length)
        expected -= min(s * advantage, min(max(s, 1 - 0.05), 1 + 0.07) * advantage) / 3
    weights = SequenceMean()(mask[None])[0].double()
    pair = SequenceRatio()(logps, old, mask)
    spread = torch.tensor(advantages, dtype=torch.float64)[:, None].expand(3, 4)
    assert (weights * Clip(0.05, 0.07)(*pair, spread)).sum().item() == pytest.approx(expected)


def test_kimi_by_the_book():
    """The gradient (1/k) Σ ∇log π(y)(r − mean) − (τ/2) ∇(log π(y)/π_old(y))², by its own formula."""
    logps, old, mask = batch()
    advantages, tau = torch.tensor([1.0, -0.5, -0.5], dtype=torch.float64), 0.3
    leaf = logps.clone().requires_grad_()
    total, before = (torch.where(mask, x, 0.0).sum(-1) for x in (leaf, old))
    surrogate = (advantages * total - tau / 2 * (total - before) ** 2).mean()
    expected = torch.autograd.grad(surrogate, leaf)[0]
    leaf = logps.clone().requires_grad_()
    losses = MirrorDescent(tau)(*SequenceProduct()(leaf, old, mask), advantages[:, None].expand(3, 4))
    found = torch.autograd.grad((SequenceMean()(mask[None])[0].double() * losses).sum(), leaf)[0]
    assert_close(-found, expected)


@each
def test_equal_policies_have_ratio_one(importance):
    logps, _, mask = batch()
    assert_close(ratios(importance, logps, logps, mask), torch.ones_like(logps))


@each
@pytest.mark.parametrize("junk", [0.0, 5.0, -INF, NAN])
def test_masked_slots_are_silent(importance, junk):
    logps, old, mask = batch()
    leaf = torch.where(mask, logps, junk).requires_grad_()
    pair = importance(*masked(leaf, torch.where(mask, old, junk), mask), mask)
    assert (pair.logps[~mask] == pair.old_logps[~mask]).all()
    total = ((pair.logps - pair.old_logps).exp() * mask).sum()
    slope = torch.autograd.grad(total, leaf)[0]
    assert slope.isfinite().all() and (slope[~mask] == 0).all()
    assert_close(pair, importance(*masked(logps, old, mask), mask))


@each
def test_padding_and_order(importance):
    logps, old, mask = batch()
    expected = importance(logps, old, mask)
    wide = importance(*(torch.nn.functional.pad(x, (0, 3)) for x in (logps, old, mask)))
    assert_close(wide.logps[:, :4], expected.logps)
    assert_close(wide.old_logps[:, :4], expected.old_logps)
    assert (wide.logps[:, 4:] == 0).all()
    order = torch.tensor([2, 0, 1])
    assert_close(importance(logps[order], old[order], mask[order]).logps, expected.logps[order])


@each
def test_an_empty_row(importance):
    mask = torch.zeros(1, 3, dtype=torch.bool)
    pair = importance(torch.zeros(1, 3), torch.zeros(1, 3), mask)
    assert pair.logps.tolist() == pair.old_logps.tolist() == [[0, 0, 0]]


@each
def test_per_row_means_what_it_says(importance):
    logps, old, mask = batch()
    moved = logps.clone()
    moved[0, 2] += 0.7
    changed = (ratios(importance, moved, old, mask) != ratios(importance, logps, old, mask))[0]
    assert importance.per_row == bool(changed[:2].any())


def test_score_functions_read_the_whole_completion():
    logps, old, mask = batch()
    advantages = torch.ones_like(logps)
    assert_close(Reinforce()(*SequenceProduct()(logps, old, mask), advantages)[0, 0], -logps[0].sum())
    assert_close(Reinforce()(*SequenceRatio()(logps, old, mask), advantages)[0, 0], -logps[0].mean())


def test_log_ratio_is_held():
    logps = torch.tensor([[-1.0, -1.0, -1.0]], requires_grad=True)
    held = log_ratio(logps, torch.tensor([[-1.5, -500.0, 500.0]]))
    assert held.tolist() == [[0.5, 20.0, -20.0]]
    assert torch.autograd.grad(held.sum(), logps)[0].tolist() == [[1.0, 0.0, 0.0]]

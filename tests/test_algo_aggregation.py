"""Aggregators: the five published weightings, and why no way of packing rows can change a loss."""

import pytest
import torch
from algo_examples import EXAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from rlvr.algo import Constant, PromptMean, SequenceMean, SequenceSum, TokenMean, pieces

AGGREGATORS = [SequenceMean(), PromptMean(), TokenMean(), SequenceSum(), Constant(10)]
each = pytest.mark.parametrize("aggregate", AGGREGATORS, ids=str)
quick = settings(deadline=None, max_examples=40, derandomize=True)
LOSSES = EXAMPLES["loss"]


def lengths_to_mask(lengths, width=None):
    """A mask [P G T] from nested lists of lengths."""
    lengths = torch.tensor(lengths)
    return torch.arange(width or max(1, int(lengths.max()))) < lengths[..., None]


def test_every_aggregator_is_examined():
    assert {type(piece).__name__ for piece in AGGREGATORS} == set(pieces("aggregate"))


@pytest.mark.parametrize("width", [6, 50])
@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (TokenMean(), 1.5),  # (2·3 + 6·1) / 8
        (SequenceMean(), 2.0),  # (3 + 1) / 2
        (Constant(10), 0.6),  # 12 / (2·10)
        (SequenceSum(), 6.0),  # 12 / 2
        (PromptMean(), 1.5),
    ],
    ids=str,
)
def test_b01_b02_packing_changes_nothing(aggregate, expected, micro, width):
    """Faults B01 and B02: lengths 2 and 6, token losses 3 and 1, micro-batches, padded to 6 and to 50."""
    scale = torch.tensor(1.0, requires_grad=True)
    losses = scale * torch.tensor([[3.0], [1.0]]).expand(2, width)
    weights = aggregate(lengths_to_mask([[2, 6]], width))[0]
    total = sum((weights[start : start + micro] * losses[start : start + micro]).sum() for start in range(0, 2, micro))
    total.backward()
    assert total.item() == pytest.approx(expected)
    assert scale.grad.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [(SequenceMean(), [1 / 4, 1 / 12]), (TokenMean(), [1 / 8, 1 / 8]), (Constant(10), [1 / 20, 1 / 20])],
    ids=str,
)
def test_b08_weight_of_one_token(aggregate, expected):
    """Fault B08: lengths 2 and 6."""
    assert aggregate(lengths_to_mask([[2, 6]]))[0, :, 0].tolist() == pytest.approx(expected)


def test_prompt_mean_weighs_prompts_alike():
    # Two prompts with 2 + 6 and 1 + 1 tokens: 1/(2·8) and 1/(2·2); over the batch each token weighs 1/10.
    mask = lengths_to_mask([[2, 6], [1, 1]])
    assert PromptMean()(mask)[:, :, 0].flatten().tolist() == pytest.approx([1 / 16, 1 / 16, 1 / 4, 1 / 4])
    assert TokenMean()(mask)[:, :, 0].flatten().tolist() == pytest.approx([1 / 10] * 4)


@each
def test_all_empty_mask(aggregate):
    weights = aggregate(torch.zeros(2, 3, 4, dtype=torch.bool))
    assert weights.shape == (2, 3, 4) and (weights == 0).all()


@each
def test_weights_follow_the_default_dtype(aggregate):
    assert aggregate(lengths_to_mask([[1, 2]])).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert aggregate(lengths_to_mask([[1, 2]])).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


masks = st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 4), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@each
@given(lengths=masks, seed=st.integers(0, 99))
@quick
def test_padding_order_and_empty_rows(aggregate, lengths, seed):
    mask = lengths_to_mask(lengths, 4)
    weights = aggregate(mask)
    assert weights.isfinite().all() and (weights[~mask] == 0).all() and (weights[mask] > 0).all()
    # Columns of padding, rows without a token, a prompt without a row.
    assert torch.equal(aggregate(torch.nn.functional.pad(mask, (0, 3)))[..., :4], weights)
    assert torch.equal(aggregate(torch.nn.functional.pad(mask, (0, 0, 0, 2)))[:, : mask.shape[1]], weights)
    assert torch.equal(aggregate(torch.nn.functional.pad(mask, (0, 0, 0, 0, 0, 2)))[: mask.shape[0]], weights)
    draw = torch.Generator().manual_seed(seed)
    prompts, rows = (
        torch.randperm(mask.shape[0], generator=draw),
        torch.randperm(mask.shape[1], generator=draw),
    )
    assert torch.equal(aggregate(mask[prompts][:, rows]), weights[prompts][:, rows])


@pytest.mark.parametrize("aggregate", [SequenceMean(), PromptMean(), TokenMean()], ids=str)
@given(lengths=masks)
@quick
def test_means_are_means(aggregate, lengths):
    mask = lengths_to_mask(lengths, 4)
    assert aggregate(mask).sum().item() == pytest.approx(float(mask.any()), abs=1e-6)


@given(lengths=masks)
@quick
def test_constant_is_a_scaled_sum(lengths):
    mask = lengths_to_mask(lengths, 4)
    assert_close(10 * Constant(10)(mask), SequenceSum()(mask))


@each
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("micro", [1, 2, 3, 8])
def test_b04_accumulation_keeps_the_gradient(aggregate, loss, micro):
    """Fault B04: eight rows at once, and in micro-batches whose gradients add up."""
    draw = torch.Generator().manual_seed(0)
    mask = lengths_to_mask([[1, 5, 3, 2], [4, 4, 1, 6]])
    weights = aggregate(mask).flatten(0, 1).double()
    old_logps = -torch.rand(8, 6, generator=draw, dtype=torch.float64)
    advantages = torch.randn(8, 1, generator=draw, dtype=torch.float64).expand(8, 6)
    parameter = torch.zeros(6, dtype=torch.float64, requires_grad=True)

    def gradient(size):
        parameter.grad = None
        for start in range(0, 8, size):
            rows = slice(start, start + size)
            logps = old_logps[rows] + 0.1 * parameter.tanh() + 0.05 * parameter
            (weights[rows] * loss(logps, old_logps[rows], advantages[rows])).sum().backward()
        return parameter.grad.clone()

    whole = gradient(8)
    assert whole.abs().max() > 1e-4
    assert_close(gradient(micro), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("length", [0, -1, float("inf"), None, "12"])
def test_constant_refuses(length):
    with pytest.raises(ValueError, match=rf"Constant.length is {length!r}; accepted: a finite number > 0"):
        Constant(length)

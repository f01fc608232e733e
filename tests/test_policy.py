"""The fast sampler and scorer against plain recomputation, and the faults of masks, temperature and truncation."""

import math

import numpy as np
import pytest
import torch
from oracles import sample_slowly, score_slowly

from rlvr.policy import CharTokenizer, Decoding, LabPolicy, entropy
from rlvr.policy.lab import PROMPTS_AT_ONCE
from rlvr.policy.sampler import cumulated, pick
from rlvr.rng import generator
from rlvr.tasks import Pointer
from rlvr.types import Problem

TASK = Pointer()
DECODINGS = [
    Decoding(0.0),
    Decoding(0.3),
    Decoding(1.0),
    Decoding(2.5),
    Decoding(1.0, top_k=3),
    Decoding(0.7, top_p=0.8),
]


def sharpened(seed: int = 0, scale: float = 1.0) -> LabPolicy:
    """A random policy in float64 whose head is scaled, so that samples share prefixes but not all of them."""
    policy = LabPolicy.create(TASK.alphabet, TASK.eos, seed=seed, width=32)
    policy.model.double()
    with torch.no_grad():
        policy.model.head.weight.mul_(scale)
        policy.model.embed.weight.mul_(20)
    return policy


def problems(count: int = 5, seed: int = 1) -> list[Problem]:
    return [TASK.problem(generator(seed, "test", i), n=(4, 10), k=(1, 7)) for i in range(count)]


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_sampler_is_token_identical_to_recomputation(decoding: Decoding, scale: float) -> None:
    policy, asked = sharpened(scale=scale), problems()
    uniforms, limits = generator(0, "u").random((5 * 6, 12)), [TASK.limit(p) for p in asked]
    fast = policy.sample(asked, 6, uniforms, limits, decoding)
    slow = sample_slowly(policy, asked, 6, uniforms, limits, decoding)
    assert torch.equal(fast.tokens, slow.tokens)
    assert torch.equal(fast.mask, slow.mask)
    assert torch.equal(fast.finished, slow.finished)
    torch.testing.assert_close(fast.logps, slow.logps, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fast.entropies, slow.entropies, rtol=1e-9, atol=1e-9)


def test_more_prompts_than_are_sampled_at_once() -> None:
    policy, asked = sharpened(scale=3.0), problems(PROMPTS_AT_ONCE + 5)
    uniforms, limits = generator(0, "many").random((2 * len(asked), 12)), [TASK.limit(p) for p in asked]
    fast, slow = (sample(policy, asked, 2, uniforms, limits) for sample in (LabPolicy.sample, sample_slowly))
    assert torch.equal(fast.tokens, slow.tokens) and torch.equal(fast.mask, slow.mask)
    assert torch.equal(fast.finished, slow.finished)
    torch.testing.assert_close(fast.logps, slow.logps, rtol=1e-9, atol=1e-9)


def test_sampler_draws_the_distribution_it_claims() -> None:
    policy, asked = sharpened(), problems(1)
    samples = policy.sample(asked, 20_000, generator(0, "chi").random((20_000, 1)), [1], Decoding(1.3))
    ids = torch.tensor([policy.encode(asked[0].prompt)])
    logits = policy.model(ids, torch.tensor([asked[0].meta["offset"]]))[0, -1].detach()
    expected = 20_000 * torch.softmax(logits / 1.3, -1)
    counts = torch.bincount(samples.tokens[:, 0], minlength=len(expected))
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < len(expected) + 6 * math.sqrt(2 * len(expected))  # mean and six standard deviations


@pytest.mark.parametrize("decoding", [d for d in DECODINGS if d.temperature > 0], ids=str)
def test_scores_and_gradients_equal_the_naive_ones(decoding: Decoding) -> None:
    policy, asked = sharpened(scale=3.0), problems()
    samples = policy.sample(asked, 6, generator(0, "u").random((30, 12)), [TASK.limit(p) for p in asked], decoding)
    index = torch.arange(30) // 6
    weights = torch.from_numpy(generator(0, "w").standard_normal(samples.tokens.shape))
    gradients = []
    for logps in (
        policy.score(asked, index, samples.tokens, samples.mask, decoding).logps,
        score_slowly(policy, asked, index, samples.tokens, samples.mask, decoding),
    ):
        torch.testing.assert_close(logps.detach(), samples.logps, rtol=1e-9, atol=1e-9)
        policy.model.zero_grad()
        (weights * logps).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in policy.model.parameters()])
    for fast, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-12)


def test_float32_gradients_agree_to_1e_5() -> None:
    policy, asked = sharpened(scale=3.0), problems()
    policy.model.float()
    samples = policy.sample(asked, 6, generator(0, "u").random((30, 12)), [TASK.limit(p) for p in asked])
    index = torch.arange(30) // 6
    gradients = []
    for score in (policy.score, lambda *a: (score_slowly(policy, *a),)):
        policy.model.zero_grad()
        score(asked, index, samples.tokens, samples.mask)[0].sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[1].norm()


def test_a_sibling_changes_nothing() -> None:
    policy, asked = sharpened(), problems(2)
    tokens = torch.from_numpy(generator(0, "t").integers(0, 16, (4, 6)))
    mask, index = torch.ones_like(tokens, dtype=torch.bool), torch.tensor([0, 0, 1, 1])
    before = policy.score(asked, index, tokens, mask).logps
    tokens[1] = (tokens[1] + 1) % 16
    after = policy.score(asked, index, tokens, mask).logps
    torch.testing.assert_close(before[[0, 2, 3]], after[[0, 2, 3]], rtol=0, atol=1e-12)
    assert not torch.allclose(before[1], after[1])


def test_padding_and_masked_tokens_change_nothing() -> None:
    policy, asked = sharpened(), problems(2)
    tokens, mask = (
        torch.tensor([[3, 4, 5], [6, 7, 0]]),
        torch.tensor([[True, True, True], [True, True, False]]),
    )
    wide = torch.nn.functional.pad(tokens, (0, 4), value=9)
    index = torch.arange(2)
    with torch.no_grad():
        narrow = policy.score(asked, index, tokens, mask)
        padded = policy.score(asked, index, wide, torch.nn.functional.pad(mask, (0, 4)))
    assert torch.equal(torch.nn.functional.pad(narrow.logps, (0, 4)), padded.logps)
    assert float(narrow.logps[1, 2]) == 0 and float(narrow.entropies[1, 2]) == 0


def test_b34_truncation_keeps_the_last_token() -> None:
    policy, asked = sharpened(), problems(3)
    with torch.no_grad():
        policy.model.head.weight[TASK.alphabet.index("$")] = 0
    policy.model.head.weight.data *= 50  # every other logit is large for some token, so "$" never wins
    samples = policy.sample(asked, 2, generator(0, "u").random((6, 4)), [4, 4, 4], Decoding(0.0))
    slow = sample_slowly(policy, asked, 2, generator(0, "u").random((6, 4)), [4, 4, 4], Decoding(0.0))
    assert not samples.finished.any() and samples.mask.all()
    assert torch.equal(samples.tokens, slow.tokens) and not (samples.tokens == TASK.alphabet.index("$")).any()


def test_b45_temperature_is_on_both_sides() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64)
    for temperature, right in ((0.5, -0.01815), (1.0, -0.12693), (2.0, -0.31326)):
        assert float(Decoding(temperature).log_probs(logits)[0]) == pytest.approx(right, abs=5e-6)
    policy, asked = sharpened(), problems(2)
    for temperature in (0.5, 1.0, 2.0):
        samples = policy.sample(asked, 4, generator(0, "u").random((8, 9)), [9, 9], Decoding(temperature))
        scores = policy.score(asked, torch.arange(8) // 4, samples.tokens, samples.mask, Decoding(temperature))
        assert float((scores.logps.detach() - samples.logps).exp().sub(1).abs().max()) < 1e-9


def test_b46_entropy_is_of_the_scaled_distribution() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64)
    for temperature, right in ((0.5, 0.09009), (1.0, 0.36533), (2.0, 0.58220)):
        assert float(entropy(Decoding(temperature).log_probs(logits))) == pytest.approx(right, abs=5e-6)


def test_b47_truncated_sampler_renormalises_on_both_sides() -> None:
    log_probs = Decoding(top_p=0.8).log_probs(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log())
    assert float(log_probs[0]) == pytest.approx(math.log(0.625), abs=1e-9)
    assert float(log_probs[2]) == -math.inf
    assert Decoding(top_k=2).log_probs(torch.tensor([0.5, 0.3, 0.2]).log())[2] == -math.inf


def test_b52_first_pass_ratio_is_one_in_float32() -> None:
    policy, asked = sharpened(scale=3.0), problems()
    policy.model.float()
    samples = policy.sample(asked, 8, generator(0, "u").random((40, 12)), [TASK.limit(p) for p in asked])
    scores = policy.score(asked, torch.arange(40) // 8, samples.tokens, samples.mask)
    assert float((scores.logps.detach() - samples.logps).exp().sub(1).abs().max()) < 1e-5


def test_b108_b109_draws_belong_to_their_seed() -> None:
    drawn = {
        (seed, worker): [tuple(generator(seed, "worker", worker, i).integers(0, 1000, 5)) for i in range(4)]
        for seed in (1, 2)
        for worker in (0, 1)
    }
    assert len({sample for samples in drawn.values() for sample in samples}) == 16
    assert drawn[1, 0] == [tuple(generator(1, "worker", 0, i).integers(0, 1000, 5)) for i in range(4)]


def test_pick_never_takes_a_token_of_probability_zero() -> None:
    log_probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).log()
    uniforms = np.concatenate([generator(0, "p").random(1000), [0.0, 0.5, np.nextafter(1.0, 0)]])
    assert set(pick(cumulated(log_probs).repeat(1003, 0), uniforms).tolist()) == {1, 3}


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}])
def test_decoding_refuses_nonsense(bad: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Decoding(**bad)


def test_tokenizer_refuses_strangers_by_name() -> None:
    with pytest.raises(ValueError, match="'!' at place 1"):
        CharTokenizer("ab$", "$").encode("a!")
    with pytest.raises(ValueError, match="repeats"):
        CharTokenizer("aab$", "$")


def test_sample_refuses_wrong_draws() -> None:
    policy, asked = sharpened(), problems(2)
    with pytest.raises(ValueError, match="uniforms"):
        policy.sample(asked, 2, generator(0, "u").random((3, 9)), [9, 9])
    with pytest.raises(ValueError, match="empty prompt"):
        policy.prompts([Problem("", "a")])

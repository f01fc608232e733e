"""What every policy must be, asked of the lab transformer and of a Hugging Face model alike."""

import copy
import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tiny_models import save
from torch import Tensor

from rlvr.policy import Decoding, HFPolicy, LabPolicy, ModelSettings, Policy, entropy
from rlvr.rng import generator
from rlvr.tasks import Pointer
from rlvr.types import Problem, Samples

MISSING = importlib.util.find_spec("transformers") is None
NEEDS_HF = pytest.mark.skipif(MISSING, reason="transformers is not installed: pip install 'rlvr[hf]'")
DECODINGS = [Decoding(0.0), Decoding(0.4), Decoding(), Decoding(2.0), Decoding(top_k=3), Decoding(0.8, top_p=0.7)]
WARM = [decoding for decoding in DECODINGS if decoding.temperature > 0]
GROUP, LIMITS = 6, [7, 5, 7, 6]
ROWS = torch.arange(GROUP * len(LIMITS)) // GROUP


class Mind(NamedTuple):
    """A policy in float64, four problems of unlike lengths, and its plain logits after a prompt and each token given.

    ``rounding`` is that of its gradients: Llama's norms compute in float32 whatever the weights are.
    """

    policy: Policy
    problems: list[Problem]
    ends: tuple[int, ...]
    logits: Callable[[Policy, Problem, list[int]], Tensor]
    rounding: float


def lab() -> Mind:
    task = Pointer()
    policy = LabPolicy.create(task.alphabet, task.eos, seed=0, width=32)
    policy.model.double()
    with torch.no_grad():
        policy.model.head.weight.mul_(4)
        policy.model.embed.weight.mul_(20)
        policy.model.head.weight[task.alphabet.index("$")] += 0.1
    problems = [task.problem(generator(1, "test", i), n=(3, 8), k=(1, 7)) for i in range(len(LIMITS))]

    def logits(policy: LabPolicy, problem: Problem, ids: list[int]) -> Tensor:
        prompt = policy.encode(problem.prompt)
        text, offset = torch.tensor([prompt + ids]), torch.tensor([problem.meta.get("offset", 0)])
        return policy.model(text, offset)[0, len(prompt) - 1 :]

    return Mind(policy, problems, policy.tokenizer.eos_ids, logits, 1e-9)


def language_model(folder: Any, settings: ModelSettings | None = None) -> Mind:
    policy = HFPolicy.open(str(save(folder)), settings)
    policy.model.double()
    problems = [Problem(text, "a") for text in ("a12:", "bc?1 2:", "h", "12121212 fed")]

    def logits(policy: HFPolicy, problem: Problem, ids: list[int]) -> Tensor:
        prompt = policy.tokens.prompt(problem)
        return policy.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 :]

    return Mind(policy, problems, policy.tokens.eos_ids, logits, 1e-6)


@pytest.fixture(scope="module", params=["lab", pytest.param("language model", marks=NEEDS_HF)])
def mind(request, tmp_path_factory) -> Mind:
    return lab() if request.param == "lab" else language_model(tmp_path_factory.mktemp("model"))


def uniforms(name: str = "u", rows: int = len(ROWS)) -> np.ndarray:
    return generator(0, name).random((rows, max(LIMITS)))


def drawn(mind: Mind, decoding: Decoding = DECODINGS[2]) -> Samples:
    return mind.policy.sample(mind.problems, GROUP, uniforms(), LIMITS, decoding)


@torch.no_grad()
def slowly(
    mind: Mind, problem: Problem, numbers: np.ndarray, limit: int, decoding: Decoding
) -> tuple[list, list, list]:
    """One completion, every token from a plain pass over the whole text before it: ids, log-probabilities, entropies."""
    ids, logps, entropies = [], [], []
    while len(ids) < limit and not (ids and ids[-1] in mind.ends):
        log_probs = decoding.log_probs(mind.logits(mind.policy, problem, ids)[-1])
        cdf = log_probs.exp().cumsum(0)
        token = int((cdf / cdf[-1] > numbers[len(ids)]).nonzero()[0, 0])
        ids.append(token)
        logps.append(float(log_probs[token]))
        entropies.append(float(entropy(log_probs)))
    return ids, logps, entropies


def naive(mind: Mind, samples: Samples, decoding: Decoding, policy: Policy | None = None) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies [R T], row by row, by a softmax over the whole vocabulary, with their gradients."""
    logps, entropies = [], []
    for row, p in enumerate(ROWS.tolist()):
        length, width = int(samples.mask[row].sum()), samples.mask.shape[1]
        ids = samples.tokens[row, :length]
        log_probs = decoding.log_probs(mind.logits(policy or mind.policy, mind.problems[p], ids.tolist())[:-1])
        pad = (0, width - length)
        logps.append(torch.nn.functional.pad(log_probs[torch.arange(length), ids], pad))
        entropies.append(torch.nn.functional.pad(entropy(log_probs), pad))
    return torch.stack(logps), torch.stack(entropies)


def gradients(policy: Policy, value: Tensor) -> Tensor:
    policy.model.zero_grad()
    value.backward()
    return torch.cat([each.grad.flatten() for each in policy.model.parameters() if each.grad is not None])


# ── Sampling ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("decoding", DECODINGS, ids=str)
def test_tokens_are_those_of_plain_decoding_with_the_same_numbers(mind: Mind, decoding: Decoding) -> None:
    samples, numbers = drawn(mind, decoding), uniforms()
    for row, p in enumerate(ROWS.tolist()):
        ids, logps, entropies = slowly(mind, mind.problems[p], numbers[row], LIMITS[p], decoding)
        length = len(ids)
        assert samples.tokens[row, :length].tolist() == ids
        assert samples.mask[row].tolist() == [t < length for t in range(samples.mask.shape[1])]
        assert samples.logps[row, :length].tolist() == pytest.approx(logps, abs=1e-9)
        assert samples.entropies[row, :length].tolist() == pytest.approx(entropies, abs=1e-9)
        assert bool(samples.finished[row]) == (ids[-1] in mind.ends)


def test_the_samples_have_something_to_show(mind: Mind) -> None:
    """Some end, some are cut; some siblings part, some share a beginning of at least two tokens."""
    samples = drawn(mind)
    assert 0 < samples.finished.sum() < len(ROWS)
    groups = samples.tokens[:, :2].view(len(LIMITS), GROUP, 2)
    assert {len(group.unique(dim=0)) for group in groups} - {1, GROUP}


def test_it_draws_the_distribution_it_claims(mind: Mind) -> None:
    problem, count = mind.problems[0], 20_000
    samples = mind.policy.sample([problem], count, generator(0, "chi").random((count, 1)), [1], Decoding(1.3))
    with torch.no_grad():
        expected = count * torch.softmax(mind.logits(mind.policy, problem, [])[-1] / 1.3, -1)
    counts = torch.bincount(samples.tokens[:, 0], minlength=len(expected))
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert chi2 < len(expected) + 6 * math.sqrt(2 * len(expected))  # mean and six standard deviations


def test_b34_a_cut_completion_keeps_its_last_token_and_is_not_finished(mind: Mind) -> None:
    samples = drawn(mind)
    cut = ~samples.finished
    lengths = samples.mask.sum(1)
    assert cut.any()
    assert lengths[cut].tolist() == torch.tensor(LIMITS)[ROWS][cut].tolist()
    ends = torch.isin(samples.tokens, torch.tensor(mind.ends)) & samples.mask
    assert not ends[cut].any() and (ends[~cut].sum(1) == 1).all()


def test_the_company_of_other_prompts_changes_nothing(mind: Mind) -> None:
    together, numbers = drawn(mind), uniforms()
    for p, problem in enumerate(mind.problems):
        rows = slice(p * GROUP, (p + 1) * GROUP)
        alone = mind.policy.sample([problem], GROUP, numbers[rows], [LIMITS[p]], Decoding())
        width = alone.tokens.shape[1]
        assert torch.equal(alone.tokens, together.tokens[rows, :width]) and torch.equal(
            alone.mask, together.mask[rows, :width]
        )
        torch.testing.assert_close(alone.logps, together.logps[rows, :width], rtol=0, atol=1e-9)


# ── Scoring ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("decoding", WARM, ids=str)
def test_scores_and_their_gradients_are_the_naive_ones(mind: Mind, decoding: Decoding) -> None:
    samples = drawn(mind, decoding)
    weights = torch.from_numpy(generator(0, "w").standard_normal((2, *samples.tokens.shape)))
    scores = mind.policy.score(mind.problems, ROWS, samples.tokens, samples.mask, decoding)
    found = []
    for logps, entropies in (scores, naive(mind, samples, decoding)):
        torch.testing.assert_close(logps.detach(), samples.logps, rtol=0, atol=1e-9)
        torch.testing.assert_close(entropies.detach(), samples.entropies, rtol=0, atol=1e-9)
        found.append(gradients(mind.policy, (weights[0] * logps + weights[1] * entropies).sum()))
    assert (found[0] - found[1]).norm() < mind.rounding * found[1].norm()


@pytest.mark.parametrize("decoding", WARM, ids=str)
def test_b45_b47_b52_the_first_ratio_is_one_in_float32(mind: Mind, decoding: Decoding) -> None:
    policy = copy.deepcopy(mind.policy)
    policy.model.float()
    samples = policy.sample(mind.problems, GROUP, uniforms(), LIMITS, decoding)
    scores = policy.score(mind.problems, ROWS, samples.tokens, samples.mask, decoding)
    assert float((scores.logps.detach() - samples.logps).exp().sub(1).abs().max()) < 2e-5


def test_group_sharing_equals_rows_apart(mind: Mind) -> None:
    samples = drawn(mind)
    together = mind.policy.score(mind.problems, ROWS, samples.tokens, samples.mask)
    shared = gradients(mind.policy, together.logps.sum())
    parts = [
        mind.policy.score(mind.problems, ROWS[[row]], samples.tokens[[row]], samples.mask[[row]])
        for row in range(len(ROWS))
    ]
    apart = torch.cat([part.logps for part in parts])
    torch.testing.assert_close(apart.detach(), together.logps.detach(), rtol=0, atol=1e-9)
    assert (gradients(mind.policy, apart.sum()) - shared).norm() < mind.rounding * shared.norm()


def test_padding_and_masked_tokens_change_nothing(mind: Mind) -> None:
    samples = drawn(mind)
    pad = torch.nn.functional.pad
    stale = torch.where(samples.mask, samples.tokens, 3)
    with torch.no_grad():
        narrow = mind.policy.score(mind.problems, ROWS, samples.tokens, samples.mask)
        wide = mind.policy.score(mind.problems, ROWS, pad(stale, (0, 4), value=2), pad(samples.mask, (0, 4)))
    for part, other in zip(narrow, wide, strict=True):
        assert torch.equal(pad(part, (0, 4)), other)
        assert not part[~samples.mask].any()


def test_rows_that_say_nothing_score_nothing(mind: Mind) -> None:
    samples = drawn(mind)
    mask = samples.mask.clone()
    mask[::2] = False
    scores = mind.policy.score(mind.problems, ROWS, samples.tokens, mask)
    torch.testing.assert_close(scores.logps.detach(), torch.where(mask, samples.logps, 0.0), rtol=0, atol=1e-9)
    for part in mind.policy.score(mind.problems, ROWS, samples.tokens, torch.zeros_like(mask)):
        assert part.shape == mask.shape and not part.any()


def test_a_sibling_changes_nothing(mind: Mind) -> None:
    tokens = torch.from_numpy(generator(0, "t").integers(5, 16, (4, 6)))
    mask, index = torch.ones_like(tokens, dtype=torch.bool), torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        before = mind.policy.score(mind.problems, index, tokens, mask).logps
        tokens[1] = 5 + (tokens[1] - 4) % 11
        after = mind.policy.score(mind.problems, index, tokens, mask).logps
    torch.testing.assert_close(before[[0, 2, 3]], after[[0, 2, 3]], rtol=0, atol=1e-9)
    assert not torch.allclose(before[1], after[1])


# ── Texts and refusals ──────────────────────────────────────────────────────────────────────


def test_text_goes_to_ids_and_back(mind: Mind) -> None:
    for text in ("ab|c", "b", "a,b:"):
        assert mind.policy.decode(mind.policy.encode(text)) == text


def test_a_copy_has_weights_of_its_own(mind: Mind) -> None:
    samples = drawn(mind)
    other = copy.deepcopy(mind.policy)
    with torch.no_grad():
        for weight in other.model.parameters():
            weight.mul_(0.5)
        moved = other.score(mind.problems, ROWS, samples.tokens, samples.mask).logps
        kept = mind.policy.score(mind.problems, ROWS, samples.tokens, samples.mask).logps
    torch.testing.assert_close(kept, samples.logps, rtol=0, atol=1e-9)
    assert not torch.allclose(moved, kept)


def test_what_cannot_be_sampled_is_refused_by_name(mind: Mind) -> None:
    with pytest.raises(ValueError, match="uniforms"):
        mind.policy.sample(mind.problems, GROUP, uniforms(rows=3), LIMITS)
    with pytest.raises(ValueError, match=r"positions|room"):
        mind.policy.sample(mind.problems[:1], 1, np.zeros((1, 500)), [500])

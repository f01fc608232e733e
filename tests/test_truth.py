"""Expected gradients over every group that can be drawn, against the gradient they claim to estimate.

Nothing is sampled: a world of fifteen completions lists all its groups, so "unbiased" means equal to 1e-10,
and each known bias is compared with the target that the piece's documentation states.
"""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from tiny_world import Known, TinyWorld, expected_ascent, gradient
from torch.testing import assert_close

from rlvr.algo import (
    CISPO,
    GAE,
    K1,
    K2,
    K3,
    KL,
    Algorithm,
    BatchMean,
    BatchZScore,
    Center,
    Clip,
    Constant,
    DifficultyBand,
    DropConstant,
    EntropyBonus,
    GreedyBaseline,
    GroupMeanBatchStd,
    K3StraightThrough,
    KeepRewarded,
    KeepRight,
    LeaveOneOut,
    Likelihood,
    MaxRL,
    MirrorDescent,
    PositiveOnly,
    PromptMean,
    Ratio,
    Raw,
    Reinforce,
    RewardToGo,
    RunningMean,
    SequenceMean,
    SequenceProduct,
    SequenceRatio,
    SequenceSum,
    SequenceTokenRatio,
    TokenMean,
    ValueLoss,
    ZScore,
    pieces,
)

WORLD = TinyWorld()
COUNT = len(WORLD.completions)
LENGTHS = WORLD.mask.sum(-1)
EXACT = Algorithm("exact", LeaveOneOut(), Reinforce(), SequenceSum())
# What is claimed of every registered piece: an unbiased gradient here, a stated target further down.
UNBIASED = {
    "advantage": [
        Raw(),
        LeaveOneOut(),
        GreedyBaseline(),
        RunningMean(),
        RewardToGo(whiten=False),
        GAE(lam=1.0, whiten=False),
    ],
    "loss": [Reinforce(), Ratio(), Clip(), Clip(0.1, 0.3, dual_clip=2.0), CISPO(), MirrorDescent(0.5)],
    "aggregate": [SequenceSum(), Constant(12)],
}
BIASED = {
    "advantage": {Center, ZScore, MaxRL, PositiveOnly, BatchMean, BatchZScore, GroupMeanBatchStd},
    "loss": {Likelihood},
    "aggregate": {SequenceMean, TokenMean, PromptMean},
}
sizes = pytest.mark.parametrize("size", [2, 3])


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def logits():
    return WORLD.random_logits(seed=0)


@pytest.fixture
def rewards():
    """One real reward a completion, no two alike."""
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def verdicts():
    """One 0/1 reward a completion; five of the fifteen are right."""
    return torch.tensor([1.0, 0.0, 0.0] * 5)


def truth(logits, rewards):
    """∇ E[r]."""
    return gradient((WORLD.probabilities(logits) * rewards).sum(), logits)


def score(logits, credit):
    """E[credit(y) ∇ log π(y)], the credit held constant."""
    probabilities = WORLD.probabilities(logits)
    return gradient((probabilities * credit.detach()).sum(), logits)


def same(found, expected):
    assert_close(found, expected, rtol=0, atol=1e-10)
    assert found.abs().max() > 1e-3


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()


def test_the_world_is_complete(logits):
    assert COUNT == 15 and len(set(WORLD.completions)) == COUNT and len(WORLD.prefixes) == 7
    assert_close(WORLD.probabilities(logits).sum(), torch.tensor(1.0), rtol=0, atol=1e-14)
    every = set(product(range(3), repeat=3))
    assert {word + (0,) * (3 - len(word)) for word in WORLD.completions} <= every
    assert torch.equal(WORLD.logps(logits).isnan(), ~WORLD.mask)
    # A chain rule: the entropies met on the way add up to the entropy of the completion.
    p = WORLD.probabilities(logits)
    assert_close(WORLD.expected(logits, WORLD.entropies(logits)), -(p * p.log()).sum(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("slot", UNBIASED)
def test_every_piece_makes_a_claim(slot):
    assert {type(piece) for piece in UNBIASED[slot]} | BIASED[slot] == set(pieces(slot).values())


# ── What is unbiased ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("aggregate", UNBIASED["aggregate"], ids=str)
@pytest.mark.parametrize("loss", UNBIASED["loss"], ids=str)
@pytest.mark.parametrize("advantage", UNBIASED["advantage"], ids=str)
def test_what_claims_to_be_unbiased_is(logits, rewards, advantage, loss, aggregate):
    """Every advantage, loss and aggregator that claims it, together: ∇ E[r], on a critic and a baseline made up."""
    noise = torch.Generator().manual_seed(3)
    state_values = torch.randn(len(WORLD.prefixes), generator=noise)
    known = Known(baseline=0.3, values=state_values[WORLD.states()])
    row = Algorithm("claim", advantage, loss, aggregate, critic=critic_of(advantage))
    found = expected_ascent(WORLD, row, rewards, logits, 2, known=known)
    same(found * (12 if aggregate == Constant(12) else 1), truth(logits, rewards))


def critic_of(advantage):
    return ValueLoss() if isinstance(advantage, GAE) else None


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("advantage", [Raw(), LeaveOneOut()], ids=str)
def test_other_group_sizes(logits, rewards, advantage, size):
    if size > 1 or advantage == Raw():
        same(expected_ascent(WORLD, replace(EXACT, advantage=advantage), rewards, logits, size), truth(logits, rewards))


@sizes
def test_centring_shrinks(logits, rewards, size):
    row = replace(EXACT, advantage=Center())
    same(expected_ascent(WORLD, row, rewards, logits, size), (size - 1) / size * truth(logits, rewards))


@sizes
def test_dropping_constant_groups_of_one_prompt_is_free(logits, verdicts, size):
    row = replace(EXACT, select=DropConstant())
    same(expected_ascent(WORLD, row, verdicts, logits, size), truth(logits, verdicts))


def test_ratio_corrects_one_token_exactly():
    """Off-policy, the token ratio is the sequence ratio only where a completion is one token."""
    world = TinyWorld(vocabulary=5, length=1)
    old, new = world.random_logits(0), world.random_logits(1)
    rewards = torch.randn(len(world.completions), generator=torch.Generator().manual_seed(2))
    expected = gradient((world.probabilities(new) * rewards).sum(), new)
    for advantage in (Raw(), LeaveOneOut()):
        row = Algorithm("off-policy", advantage, Ratio(), SequenceSum())
        same(expected_ascent(world, row, rewards, new, 2, old), expected)
    wrong = expected_ascent(world, replace(EXACT, advantage=Raw()), rewards, new, 2, old)
    assert (wrong - expected).abs().max() > 1e-2


def test_token_ratios_do_not_correct_sequences(logits, rewards):
    new = WORLD.random_logits(1)
    row = Algorithm("off-policy", Raw(), Ratio(), SequenceSum())
    assert (expected_ascent(WORLD, row, rewards, new, 1, logits) - truth(new, rewards)).abs().max() > 1e-2


# ── What is biased, and towards what ──────────────────────────────────────────


@sizes
def test_sequence_mean_divides_credit_by_length(logits, rewards, size):
    """Target: E[(r - E r) / |y| · ∇ log π]; without a baseline E[r / |y| · ∇ log π]."""
    mean = (WORLD.probabilities(logits) * rewards).sum()
    target = score(logits, (rewards - mean) / LENGTHS)
    row = replace(EXACT, aggregate=SequenceMean())
    same(expected_ascent(WORLD, row, rewards, logits, size), target)
    same(
        expected_ascent(WORLD, replace(row, advantage=Center()), rewards, logits, size),
        (size - 1) / size * target,
    )
    same(
        expected_ascent(WORLD, replace(row, advantage=Raw()), rewards, logits, size),
        score(logits, rewards / LENGTHS),
    )
    assert cosine(target, truth(logits, rewards)) < 0.999


@pytest.mark.parametrize("aggregate", [TokenMean(), PromptMean()], ids=str)
def test_token_mean_divides_credit_by_the_lengths_of_both(logits, rewards, aggregate):
    """Target for groups of two: E[(r - r') · 2 / (|y| + |y'|) · ∇ log π(y)], y' an independent sibling."""
    other = WORLD.probabilities(logits)
    credit = ((rewards[:, None] - rewards) * 2 / (LENGTHS[:, None] + LENGTHS) * other).sum(-1)
    same(expected_ascent(WORLD, replace(EXACT, aggregate=aggregate), rewards, logits, 2), score(logits, credit))
    assert cosine(score(logits, credit), truth(logits, rewards)) < 0.9999


def test_pairs_scaled_by_their_std_learn_ranks(logits, rewards):
    """Target for groups of two, eps 0: E[sign(r - r') ∇ log π(y)] / √2: the size of a difference is gone."""
    wins = ((rewards[:, None] - rewards).sign() * WORLD.probabilities(logits)).sum(-1)
    row = replace(EXACT, advantage=ZScore(eps=0.0))
    same(expected_ascent(WORLD, row, rewards, logits, 2), score(logits, wins) / 2**0.5)


@sizes
@pytest.mark.parametrize("advantage", [ZScore(eps=0.0), ZScore(), ZScore(eps=0.1, correction=0)], ids=str)
def test_zscore_weighs_a_prompt_by_its_difficulty(logits, verdicts, advantage, size):
    """Target for 0/1 rewards: f(p) ∇p, f(p) = E[A | right] - E[A | wrong] over the siblings."""
    p = (WORLD.probabilities(logits) * verdicts).sum().item()
    factor = 0.0
    for siblings in product([0.0, 1.0], repeat=size - 1):
        chance = p ** sum(siblings) * (1 - p) ** (size - 1 - sum(siblings))
        pair = advantage(torch.tensor([[1.0, *siblings], [0.0, *siblings]]))
        factor += chance * (pair[0, 0] - pair[1, 0])
    row = replace(EXACT, advantage=advantage)
    same(expected_ascent(WORLD, row, verdicts, logits, size), factor * truth(logits, verdicts))


@sizes
def test_learning_from_successes_climbs_the_log(logits, verdicts, size):
    """Target, 0/1 rewards: P(some sample is right) · ∇ log p, where raw REINFORCE climbs p itself."""
    p = (WORLD.probabilities(logits) * verdicts).sum()
    row = Algorithm("rft", Raw(), Likelihood(), SequenceSum(), KeepRewarded())
    found = expected_ascent(WORLD, row, verdicts, logits, size)
    same(found, ((1 - (1 - p) ** size) / p).detach() * truth(logits, verdicts))
    assert expected_ascent(WORLD, replace(row, select=EXACT.select), verdicts, logits, size).abs().max() < 1e-12


@sizes
def test_a_missing_reward_conditions_on_being_scored(logits, rewards, size):
    """Target: P(two or more of a group are scored) · ∇ E[r | scored]; filling in 0 would move it."""
    scored = torch.arange(COUNT) % 4 != 1
    probabilities = WORLD.probabilities(logits)
    share = (probabilities * scored).sum()
    conditional = gradient((probabilities * scored * rewards).sum() / share, logits)
    s = share.item()
    at_least_two = 1 - (1 - s) ** size - size * s * (1 - s) ** (size - 1)
    missing = torch.where(scored, rewards, torch.nan)
    same(expected_ascent(WORLD, EXACT, missing, logits, size), at_least_two * conditional)


# ── What compares beyond the group ────────────────────────────────────────────


def chance_and_slope(world, logits, rewards):
    p = (world.probabilities(logits) * rewards).sum()
    return p.item(), gradient(p, logits)


def test_maxrl_climbs_a_truncated_logarithm(logits, verdicts):
    """Target: Σ_{k<n} (1 − p)^(k−1) ∇p, the first n − 1 terms of ∇ log p."""
    p, slope = chance_and_slope(WORLD, logits, verdicts)
    for size in (2, 3):
        found = expected_ascent(WORLD, replace(EXACT, advantage=MaxRL()), verdicts, logits, size)
        same(found, sum((1 - p) ** (k - 1) for k in range(1, size)) * slope)


@sizes
def test_positive_advantages_forget_easy_prompts(logits, verdicts, size):
    """Target, 0/1 rewards, centred: (n−1)/n (1 − p) ∇p."""
    p, slope = chance_and_slope(WORLD, logits, verdicts)
    row = replace(EXACT, advantage=PositiveOnly(Center()))
    same(expected_ascent(WORLD, row, verdicts, logits, size), (size - 1) / size * (1 - p) * slope)


SMALL = TinyWorld(vocabulary=2, length=2)


@pytest.fixture
def two_prompts():
    """A policy over three completions and the 0/1 rewards of two prompts."""
    return SMALL.random_logits(4), torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])


def test_the_batch_mean_shrinks_by_one_in_all(two_prompts):
    """Target: (N−1)/N of the mean gradient over prompts, N rows in the batch; offsets between prompts cancel."""
    logits, rewards = two_prompts
    for shift in (0.0, 5.0):
        paid = rewards + torch.tensor([[0.0], [shift]])
        slopes = [chance_and_slope(SMALL, logits, table)[1] for table in paid]
        for size in (1, 2):
            row = replace(EXACT, advantage=BatchMean())
            found = expected_ascent(SMALL, row, paid, logits, size, batchwise=True)
            same(found, (2 * size - 1) / (2 * size) * sum(slopes) / 2)


def test_one_scale_for_the_batch(two_prompts):
    """Target for two prompts and pairs: ½ (a₁ ∇p₁ + a₂ ∇p₂), a the size of a mixed group's advantage, which depends
    on whether the other group is mixed as well: ½ over the std of four rows, or of the mixed groups' rows."""
    logits, rewards = two_prompts
    (p, slope), (q, other) = (chance_and_slope(SMALL, logits, table) for table in rewards)
    for advantage, alone in (
        (GroupMeanBatchStd(eps=0.0), 0.5 / (0.5 / 3) ** 0.5),
        (GroupMeanBatchStd(eps=0.0, count_constant=False), 0.5 / 0.5**0.5),
    ):
        together = 0.5 / (1.0 / 3) ** 0.5
        mixed = [2 * p * (1 - p), 2 * q * (1 - q)]
        first = (1 - mixed[1]) * alone + mixed[1] * together
        second = (1 - mixed[0]) * alone + mixed[0] * together
        row = replace(EXACT, advantage=advantage)
        found = expected_ascent(SMALL, row, rewards, logits, 2, batchwise=True)
        same(found, (first * slope + second * other) / 2)


def test_a_batch_zscore_of_one_prompt_is_a_zscore(logits, verdicts):
    for batch, group in ((BatchZScore(eps=0.0), ZScore(eps=0.0)), (GroupMeanBatchStd(eps=0.1), ZScore(eps=0.1))):
        found = expected_ascent(WORLD, replace(EXACT, advantage=batch), verdicts, logits, 2, batchwise=True)
        same(found, expected_ascent(WORLD, replace(EXACT, advantage=group), verdicts, logits, 2))


def test_whitened_returns_are_biased_but_climb(logits, verdicts):
    row = replace(EXACT, advantage=RewardToGo(whiten=True))
    found = expected_ascent(WORLD, row, verdicts, logits, 2, batchwise=True)
    assert 0.5 < cosine(found, truth(logits, verdicts)) < 0.9999


@pytest.mark.parametrize("select", [DifficultyBand(0.2, 0.5), DifficultyBand(0.5, 1.0), DifficultyBand()], ids=str)
def test_a_difficulty_band_reweighs_a_prompt(logits, verdicts, select):
    """Target, groups of three: Σ_k in the band P(k right) k (n−k) / (n (n−1) p (1−p)) · ∇p; 1 · ∇p for all of them."""
    p, slope = chance_and_slope(WORLD, logits, verdicts)
    factor = sum(
        math.comb(3, k) * p**k * (1 - p) ** (3 - k) * k * (3 - k) / (6 * p * (1 - p))
        for k in range(4)
        if select.low <= k / 3 <= select.high
    )
    same(expected_ascent(WORLD, replace(EXACT, select=select), verdicts, logits, 3), factor * slope)


def test_keeping_what_is_right_is_keeping_what_is_rewarded(logits, verdicts):
    row = Algorithm("rft", Raw(), Likelihood(), SequenceSum(), KeepRight())
    other = replace(row, select=KeepRewarded())
    same(*(expected_ascent(WORLD, each, verdicts, logits, 2) for each in (row, other)))


# ── Ratios of tokens and of completions ───────────────────────────────────────


@pytest.mark.parametrize("advantage", [Raw(), LeaveOneOut(), RunningMean()], ids=str)
def test_the_product_corrects_completions_exactly(logits, rewards, advantage):
    """Off-policy by any amount: ∇ E[r] under the new policy from samples of the old one."""
    new = WORLD.random_logits(1)
    row = Algorithm("off", advantage, Ratio(), SequenceMean(), importance=SequenceProduct())
    same(expected_ascent(WORLD, row, rewards, new, 2, logits, Known(baseline=0.4)), truth(new, rewards))


@pytest.mark.parametrize("importance", [SequenceRatio(), SequenceTokenRatio()], ids=str)
@pytest.mark.parametrize("loss", [Ratio(), Clip()], ids=str)
def test_gspo_keeps_the_length_bias(logits, rewards, importance, loss):
    """Target on-policy: E[(r − E r) / |y| · ∇ log π(y)], GRPO's own; off-policy E_old[s r / |y| · ∇ log π(y)]."""
    mean = (WORLD.probabilities(logits) * rewards).sum()
    row = replace(EXACT, loss=loss, importance=importance, aggregate=SequenceMean())
    same(expected_ascent(WORLD, row, rewards, logits, 2), score(logits, (rewards - mean) / LENGTHS))
    if loss == Ratio():
        new = WORLD.random_logits(1)
        old_mass, new_mass = WORLD.probabilities(logits).detach(), WORLD.probabilities(new)
        s = (new_mass.detach() / old_mass) ** (1 / LENGTHS)
        target = gradient((old_mass * s * rewards / LENGTHS * new_mass.log()).sum(), new)
        same(expected_ascent(WORLD, replace(row, advantage=Raw()), rewards, new, 1, logits), target)


BANDIT = TinyWorld(vocabulary=5, length=1)


@pytest.fixture
def moved():
    """A one-token world: the old policy, a new one with ratios on both sides of 1, and rewards."""
    rewards = torch.randn(len(BANDIT.completions), generator=torch.Generator().manual_seed(2))
    return BANDIT.random_logits(0), BANDIT.random_logits(1), rewards


def test_cispo_bounds_weights(moved):
    """Target: E_old[min(ρ, cap) r ∇ log π]: every token, at most cap times."""
    old, new, rewards = moved
    row = Algorithm("cispo", Raw(), CISPO(cap=1.5), SequenceSum())
    mass, ratio = BANDIT.probabilities(old), BANDIT.probabilities(new) / BANDIT.probabilities(old)
    assert (ratio > 1.5).any() and (ratio < 1.5).any()
    weight = (mass * ratio.clamp(max=1.5) * rewards).detach()
    same(
        expected_ascent(BANDIT, row, rewards, new, 2, old),
        gradient((weight * BANDIT.probabilities(new).log()).sum(), new),
    )


def test_mirror_descent_rests_at_its_target(moved):
    """Target: E_old[(A − τ log π/π_old) ∇ log π]; zero at π ∝ π_old exp(r / τ) once A is r minus its log-partition."""
    old, new, rewards = moved
    tau = 0.7
    row = Algorithm("kimi", Raw(), MirrorDescent(tau), SequenceMean(), importance=SequenceProduct())
    mass, distance = BANDIT.probabilities(old), BANDIT.probabilities(new).log() - BANDIT.probabilities(old).log()
    credit = (mass * (rewards - tau * distance)).detach()
    found = expected_ascent(BANDIT, row, rewards, new, 2, old)
    same(found, gradient((credit * BANDIT.probabilities(new).log()).sum(), new))
    optimum = (BANDIT.probabilities(old).log() + rewards / tau).detach()
    partition = optimum.logsumexp(0)
    best = (optimum - partition)[torch.tensor([BANDIT.completions.index((token,)) for token in range(5)])]
    best = best[None].requires_grad_()
    at_rest = expected_ascent(BANDIT, row, rewards - tau * partition, best, 2, old)
    assert at_rest.abs().max() < 1e-12


def test_the_clip_pulls_back_what_noise_moved(moved):
    """Fault B122, Spurious Rewards appendix B.1: with rewards of ±1 that know nothing of the answer the unclipped
    gradient is 0, the clipped one μ E_old[+∇ρ below 1−ε, 0 inside, −∇ρ above 1+ε], μ = P(A > 0) E[A | A > 0] = ½."""
    old, new, _ = moved
    one, epsilon = torch.ones(len(BANDIT.completions)), 0.2

    def over_both_signs(loss):
        row = Algorithm("noise", Raw(), loss, SequenceSum())
        return sum(expected_ascent(BANDIT, row, sign * one, new, 1, old) for sign in (1, -1)) / 2

    assert over_both_signs(Ratio()).abs().max() < 1e-12
    assert over_both_signs(CISPO(cap=1.2)).abs().max() < 1e-12
    ratio = BANDIT.probabilities(new) / BANDIT.probabilities(old).detach()
    side = (ratio < 1 - epsilon).double() - (ratio > 1 + epsilon).double()
    assert {-1.0, 1.0} <= set(side.tolist())
    target = gradient(0.5 * (BANDIT.probabilities(old).detach() * side * ratio).sum(), new)
    same(over_both_signs(Clip(epsilon)), target)
    # On-policy there is nothing to pull back.
    row = Algorithm("noise", Raw(), Clip(epsilon), SequenceSum())
    found = sum(expected_ascent(BANDIT, row, sign * one, new, 1) for sign in (1, -1))
    assert found.abs().max() < 1e-12


def test_likely_tokens_are_never_clipped_from_above():
    """π ≤ 1: where π_old > 1/(1+ε) no ρ exceeds 1+ε, so noise pushes down unlikely tokens only."""
    old = torch.tensor([[4.0, 0.0, 0.0]])
    new = torch.tensor([[9.0, 0.0, 0.0]]).requires_grad_()
    world = TinyWorld(vocabulary=3, length=1)
    assert world.probabilities(old).max() > 1 / 1.2
    row = Algorithm("noise", Raw(), Clip(0.2), SequenceSum())
    found = sum(expected_ascent(world, row, sign * torch.ones(3), new, 1, old) for sign in (1, -1))
    # Pulled towards the old policy through the unlikely tokens alone, which fell below 1−ε.
    assert found[0, 0] < 0 < found[0, 1]


# ── A critic ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_a_true_critic_makes_every_lambda_unbiased(logits, rewards, lam):
    row = replace(EXACT, advantage=GAE(lam=lam, whiten=False), critic=ValueLoss())
    known = Known(values=WORLD.values(logits, rewards))
    same(expected_ascent(WORLD, row, rewards, logits, 1, known=known), truth(logits, rewards))


def test_a_false_critic_is_believed(logits, rewards):
    """Target for λ 0: Σ_s d(s) Σ_a ∇π(a|s) (r(s, a) + V(s, a)): what the critic says of the next state is the truth."""
    values = torch.randn(len(WORLD.prefixes), generator=torch.Generator().manual_seed(5))
    policy, expected = logits.softmax(-1), torch.zeros(())
    for number, prefix in enumerate(WORLD.prefixes):
        reached = math.prod(policy[WORLD.prefixes.index(prefix[:i]), prefix[i]].item() for i in range(len(prefix)))
        for token in range(WORLD.vocabulary):
            word = (*prefix, token)
            ends = word in WORLD.completions
            worth = rewards[WORLD.completions.index(word)] if ends else values[WORLD.prefixes.index(word)]
            expected = expected + reached * policy[number, token] * worth
    row = replace(EXACT, advantage=GAE(lam=0.0, whiten=False), critic=ValueLoss())
    found = expected_ascent(WORLD, row, rewards, logits, 1, known=Known(values=values[WORLD.states()]))
    same(found, gradient(expected, logits))
    assert cosine(found, truth(logits, rewards)) < 0.99


# ── KL and entropy ────────────────────────────────────────────────────────────


@pytest.fixture
def reference():
    return WORLD.random_logits(7).detach()


def by_state(logits, reference, forward=False):
    """Σ_s d(s) KL(π(·|s) ‖ π_ref(·|s)), or the other way round, the states' probabilities d held fixed."""
    policy, ref = logits.log_softmax(-1), reference.log_softmax(-1)
    total = torch.zeros(())
    for number, prefix in enumerate(WORLD.prefixes):
        logs = [policy[WORLD.prefixes.index(prefix[:i]), prefix[i]] for i in range(len(prefix))]
        reached = math.exp(sum(log.item() for log in logs))
        one, other = (ref, policy) if forward else (policy, ref)
        total = total + reached * (one[number].exp() * (one[number] - other[number])).sum()
    return total


def divergence(logits, reference):
    """KL(π ‖ π_ref) of whole completions."""
    p, q = WORLD.probabilities(logits), WORLD.probabilities(reference)
    return (p * (p.log() - q.log())).sum()


def test_the_divergence_is_a_sum_over_states(logits, reference):
    assert_close(divergence(logits, reference), by_state(logits, reference), rtol=0, atol=1e-12)


@pytest.mark.parametrize("place", ["reward", "advantage"])
@pytest.mark.parametrize(
    "advantage", [Raw(), LeaveOneOut(), RewardToGo(whiten=False), GAE(lam=1.0, whiten=False)], ids=str
)
def test_k1_outside_the_loss_is_the_penalty_it_names(logits, rewards, reference, advantage, place):
    """RLOO and PPO: the true gradient of E[r] − β KL(π ‖ π_ref), later tokens' divergence included."""
    known = Known(values=torch.zeros(COUNT, WORLD.length), ref_logits=reference)
    row = replace(EXACT, advantage=advantage, critic=critic_of(advantage), kl=KL(0.3, K1(), place))
    target = truth(logits, rewards) - 0.3 * gradient(divergence(logits, reference), logits)
    same(expected_ascent(WORLD, row, rewards, logits, 2, known=known), target)


def test_other_estimators_in_the_reward_are_not(logits, rewards, reference):
    target = truth(logits, rewards) - 0.3 * gradient(divergence(logits, reference), logits)
    for estimator in (K2(), K3(), K3StraightThrough()):
        row = replace(EXACT, kl=KL(0.3, estimator, "reward"))
        found = expected_ascent(WORLD, row, rewards, logits, 2, known=Known(ref_logits=reference))
        assert (found - target).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("estimator", "weighted", "direction"),
    [
        (K1(), False, None),
        (K2(), False, "reverse"),
        (K3(), False, "forward"),
        (K3StraightThrough(), False, "reverse"),
        (K1(), True, "reverse"),
        (K3(), True, "reverse"),
    ],
    ids=str,
)
def test_what_an_estimator_in_the_loss_descends(logits, rewards, reference, estimator, weighted, direction):
    """Fault B60 over whole completions: nothing, KL(π ‖ π_ref) or KL(π_ref ‖ π) of each state that was visited."""
    target = truth(logits, rewards)
    if direction is not None:
        target = target - 0.3 * gradient(by_state(logits, reference, direction == "forward"), logits)
    row = replace(EXACT, kl=KL(0.3, estimator, weighted=weighted))
    same(expected_ascent(WORLD, row, rewards, logits, 2, known=Known(ref_logits=reference)), target)


def test_a_kl_in_the_loss_forgets_later_tokens(logits, reference):
    """A token's effect on the divergence of later ones is missing: the two gradients differ."""
    whole, visited = (gradient(f(logits, reference), logits) for f in (divergence, by_state))
    assert (whole - visited).abs().max() > 1e-2


def test_a_kl_in_the_loss_forgets_the_length_unless_summed(logits, rewards, reference):
    """With `SequenceMean` the penalty of a completion is its mean over tokens: long ones are charged less."""
    row = replace(EXACT, kl=KL(0.3, K2()), aggregate=SequenceMean())
    with_kl, without = (
        expected_ascent(WORLD, each, rewards, logits, 2, known=Known(ref_logits=reference))
        for each in (row, replace(row, kl=None))
    )
    held = torch.where(WORLD.mask, WORLD.logps(logits) - WORLD.logps(reference), 0.0).square() / 2
    mass = WORLD.probabilities(logits).detach()
    same(without - with_kl, 0.3 * gradient((mass * held.sum(-1) / LENGTHS).sum(), logits))


def test_an_entropy_bonus_climbs_the_entropy_of_visited_states(logits, rewards):
    row = replace(EXACT, entropy=EntropyBonus(0.2))
    mass = WORLD.probabilities(logits).detach()
    bonus = (mass * torch.where(WORLD.mask, WORLD.entropies(logits), 0.0).sum(-1)).sum()
    found = expected_ascent(WORLD, row, rewards, logits, 2)
    same(found, truth(logits, rewards) + 0.2 * gradient(bonus, logits))
    # Against the uniform policy the divergence of a state is log 3 minus its entropy.
    uniform = by_state(logits, torch.zeros_like(logits))
    assert_close(bonus, math.log(3) * (mass * LENGTHS).sum() - uniform, rtol=0, atol=1e-12)

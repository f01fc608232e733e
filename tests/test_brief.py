"""What a batch asks of the policy beside its rewards: KL, entropy, focus, ratios and masks against naive twins and by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import score_slowly
from test_critic import moved, trained_critic
from test_step import FREE, REWARDS, Spy, Table, close, gradient, random_policy, still, table_rollouts, weights
from test_step import batch as drawn
from torch import Tensor, nn
from torch.nn import functional as F

from rlvr.algo import PRESETS, Algorithm, preset, with_overrides
from rlvr.lab.brief import Supplies, brief
from rlvr.lab.rollout import Rollouts, demonstrate
from rlvr.lab.step import update
from rlvr.policy import Decoding, LabPolicy, Scores
from rlvr.rng import generator
from rlvr.tasks import Pointer
from rlvr.types import Samples, Verdict

EQUAL = [[1] * 4] * 6  # rewards that teach nothing
SEVERAL = (1, 2, 5)  # rows at once


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def row(name: str, **overrides) -> Algorithm:
    return with_overrides(preset(name), {key.replace("__", "."): value for key, value in overrides.items()})


def batch(policy: LabPolicy, rewards=REWARDS) -> Rollouts:
    """Completions that are right where they are paid."""
    rollouts = drawn(policy, rewards)
    verdicts = [Verdict(reward > 0, "correct" if reward > 0 else "lookup") for group in rewards for reward in group]
    return replace(rollouts, verdicts=verdicts)


def learn(policy, rollouts: Rollouts, algorithm: Algorithm, given=None, micro_rows=None, optimizer=None):
    """The result of an update and the gradient it left."""
    moving = optimizer or still(policy)
    result = update(policy, moving, rollouts, algorithm, Decoding(), FREE, micro_rows, given or Supplies())
    return result, gradient(policy).clone()


def scored(policy, rollouts: Rollouts) -> Tensor:
    samples = rollouts.samples
    return score_slowly(policy, rollouts.problems, rollouts.index, samples.tokens, samples.mask)


def off_policy() -> tuple[LabPolicy, Rollouts, LabPolicy]:
    """A policy, what it sampled before it moved, and a reference that is neither."""
    policy = random_policy()
    rollouts, reference = batch(policy), moved(policy, 0.08)
    with torch.no_grad():
        for mine, other in zip(policy.model.parameters(), moved(policy, 0.01).model.parameters(), strict=True):
            mine.copy_(other)
    return policy, rollouts, reference


def zscore(group: list[float]) -> list[float]:
    mean = sum(group) / len(group)
    std = math.sqrt(sum((x - mean) ** 2 for x in group) / (len(group) - 1))
    return [(x - mean) / (std + 1e-4) for x in group]


def grpo_loss(policy, rollouts: Rollouts, extra: Callable[[int, Tensor, Tensor], Tensor], problems=range(6)) -> Tensor:
    """Row by row: the clipped surrogate and what ``extra`` adds to a row's tokens, mean over tokens, mean over rows."""
    logps, old, means = scored(policy, rollouts), rollouts.samples.logps, []
    for p in problems:
        for g, advantage in enumerate(zscore(rollouts.rewards[p].tolist())):
            number = 4 * p + g
            length = int(rollouts.samples.mask[number].sum())
            now, before = logps[number, :length], old[number, :length]
            ratio = (now - before).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            means.append((extra(number, now, before) - surrogate).mean())
    return torch.stack(means).mean()


def backward(policy, loss: Tensor) -> Tensor:
    policy.model.zero_grad()
    loss.backward()
    return gradient(policy).clone()


# ── KL in the loss ───────────────────────────────────────────────────────────────────────────────────


def k(name: str, gap: Tensor) -> Tensor:
    """Of log π − log π_ref, from the definitions."""
    k2, k3 = gap**2 / 2, (-gap).exp() - 1 + gap
    return {"K1": gap, "K2": k2, "K3": k3, "K3StraightThrough": k2 + (k3 - k2).detach()}[name]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["K1", "K2", "K3", "K3StraightThrough"])
def test_kl_in_the_loss_equals_the_naive_one(double, name: str, weighted: bool) -> None:
    policy, rollouts, reference = off_policy()
    target = scored(reference, rollouts).detach()

    def extra(number: int, now: Tensor, before: Tensor) -> Tensor:
        penalty = k(name, now - target[number, : len(now)])
        return 0.3 * ((now - before).exp() * penalty if weighted else penalty)

    algorithm = row("grpo", kl__estimator=name, kl__weighted=weighted, kl__coef=0.3)
    result, found = learn(policy, rollouts, algorithm, Supplies(reference))
    loss = grpo_loss(policy, rollouts, extra)
    close(found, backward(policy, loss))
    assert result.metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-10)
    close(learn(policy, rollouts, algorithm, Supplies(reference), 5)[1], found)
    plain = learn(policy, rollouts, replace(algorithm, kl=None))[1]
    assert float((found - plain).norm()) > 1e-3
    # The coefficient in force is that of the supplies, where they have one.
    close(learn(policy, rollouts, algorithm, Supplies(reference, kl_coef=0.0))[1], plain)


def test_passes_and_minibatches_with_a_kl_equal_naive_descent(double) -> None:
    fast = random_policy()
    rollouts, reference = batch(fast), moved(fast, 0.01)
    slow, target = moved(fast, 0.0), scored(reference, rollouts).detach()
    algorithm = row("grpo", num_iterations=2, minibatches=3, kl__coef=0.5)
    moving = torch.optim.SGD(fast.model.parameters(), lr=0.01)
    learn(fast, rollouts, algorithm, Supplies(reference), 3, moving)
    for low in (0, 2, 4) * 2:
        add = lambda number, now, before: 0.5 * k("K3", now - target[number, : len(now)])  # noqa: E731
        backward(slow, grpo_loss(slow, rollouts, add, range(low, low + 2)))
        with torch.no_grad():
            for parameter in slow.model.parameters():
                parameter.sub_(0.01 * parameter.grad)
    close(weights(fast), weights(slow))
    assert float((weights(fast) - weights(reference)).abs().max()) < 1


def test_b30_equal_rewards_leave_the_kl_its_gradient(double) -> None:
    """Without a policy gradient the KL's is all there is; a filter that masks such groups leaves nothing."""
    policy = random_policy()
    rollouts, reference = batch(policy, EQUAL), moved(policy)
    target = scored(reference, rollouts).detach()
    algorithm = row("grpo", kl__coef=0.1)
    result, found = learn(policy, rollouts, algorithm, Supplies(reference))
    logps = scored(policy, rollouts)
    rows = [0.1 * k("K3", logps[b, mask] - target[b, mask]).mean() for b, mask in enumerate(rollouts.samples.mask)]
    close(found, backward(policy, torch.stack(rows).mean()))
    assert result.metrics["grad_norm"] > 1e-3 and result.metrics["rows_scored"] == 24
    masked, none = learn(policy, rollouts, row("grpo", select="DropConstant"), Supplies(reference))
    assert masked.metrics["rows_scored"] == 0 and (none == 0).all() and masked.metrics["kl"] == result.metrics["kl"] > 0


def test_the_kl_that_is_reported_is_over_everything_that_was_sampled(double) -> None:
    policy = random_policy()
    rollouts, reference = batch(policy), moved(policy)
    gap, mask = scored(policy, rollouts) - scored(reference, rollouts), rollouts.samples.mask
    for name in ("K1", "K2", "K3"):
        expected = torch.where(mask, k(name, gap), 0.0).detach()
        for more in ({}, {"select": "KeepRight"}, {"mask_truncated": True}):
            found = brief(policy, rollouts, row("grpo", kl__estimator=name, **more), Decoding(), Supplies(reference))
            total = float(expected.sum())
            assert found.measured == pytest.approx({"kl": total / int(mask.sum()), "kl/sequence": total / 24}, rel=1e-9)


# ── KL in the reward and in the advantage, by hand ───────────────────────────────────────────────────

# k1 of the tokens is (0.5, −1) and (−1): −0.5 and −1 a row.
HAND = torch.tensor([[-1.0, -2.0], [-3.0, 9.0]]), torch.tensor([[-1.5, -1.0], [-2.0, 9.0]])


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        # 1 + 0.05 against 0.5 + 0.1: the difference of 0.45, up and down.
        ("rloo", "reward", [[0.45, 0.45], [-0.45, 0.0]]),
        # ±0.5, then minus β Σ of the token's own and later k.
        ("rloo", "advantage", [[0.5 + 0.05, 0.5 + 0.1], [-0.5 + 0.1, 0.0]]),
        # Reward to go: (−0.05 + 0.1 + 1, 0.1 + 1) and (0.1 + 0.5).
        ("reinforce_pp", "reward", [[1.05, 1.1], [0.6, 0.0]]),
    ],
)
def test_kl_in_reward_and_advantage_by_hand(double, name: str, place: str, expected) -> None:
    whiten = {"advantage__whiten": False} if name == "reinforce_pp" else {}
    algorithm = row(name, kl__coef=0.1, kl__place=place, **whiten)
    old, target = (table.double() for table in HAND)
    policy, rollouts = Table(old), table_rollouts([2, 1], [[1.0, 0.5]], old)
    found = brief(policy, rollouts, algorithm, Decoding(), Supplies(Table(target)))
    close(found.advantages, torch.tensor(expected))
    assert found.measured == pytest.approx({"kl": -0.5, "kl/sequence": -0.75})
    result, _ = learn(policy, rollouts, algorithm, Supplies(Table(target)))
    share = algorithm.aggregate(rollouts.samples.mask[None])[0]
    close(result.pull, share * torch.tensor(expected))


def test_a_row_that_was_cut_off_pays_its_kl_in_its_siblings_baseline(double) -> None:
    """As above: 1 + 0.05 against 0.5 + 0.1, though the second row is left out, and not against 0.5."""
    old, target = (table.double() for table in HAND)
    rollouts = table_rollouts([2, 1], [[1.0, 0.5]], old)
    rollouts = replace(rollouts, samples=rollouts.samples._replace(finished=torch.tensor([True, False])))
    algorithm = row("rloo", kl__coef=0.1, mask_truncated=True)
    found = brief(Table(old), rollouts, algorithm, Decoding(), Supplies(Table(target)))
    close(found.advantages, torch.tensor([[0.45, 0.45], [0.0, 0.0]]))


def test_b30_a_kl_in_the_reward_tells_equal_rewards_apart(double) -> None:
    policy = random_policy()
    rollouts, reference = batch(policy, EQUAL), moved(policy)
    gap = (scored(policy, rollouts) - scored(reference, rollouts)).detach()
    paid = (1 - 0.03 * torch.where(rollouts.samples.mask, gap, 0.0).sum(1)).view(6, 4)
    expected = paid - (paid.sum(1, keepdim=True) - paid) / 3
    found = brief(policy, rollouts, preset("rloo"), Decoding(), Supplies(reference))
    close(found.advantages, torch.where(rollouts.samples.mask, expected.flatten()[:, None], 0.0))
    assert float(found.advantages.abs().max()) > 1e-3


# ── Equal weights ────────────────────────────────────────────────────────────────────────────────────


def uneven(width: int) -> tuple[LabPolicy, Rollouts]:
    """In float32, of a shape whose products round differently for other numbers of rows."""
    task = Pointer()
    policy = LabPolicy.create(task.alphabet, task.eos, seed=2, width=width, heads=4)
    rollouts = batch(policy, [[1] * 4] * 5)
    return policy, rollouts


@pytest.mark.parametrize("width", [16, 24])
@pytest.mark.parametrize("micro_rows", [None, 1, 3])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(("name", "place"), [("K3", "loss"), ("K2", "loss"), ("K1", "reward"), ("K1", "advantage")])
def test_b63_a_reference_of_equal_weights_is_no_gradient_at_all(name, place, count, micro_rows, width) -> None:
    """Not 1e-9: Adam would make a step of any size of it."""
    policy, rollouts = uneven(width)
    algorithm = row("grpo", minibatches=count, kl__coef=1.0, kl__estimator=name, kl__place=place)
    given, before = Supplies(moved(policy, 0.0)), weights(policy)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1, weight_decay=0.0)
    result, found = learn(policy, rollouts, algorithm, given, micro_rows, optimizer)
    assert result.metrics["kl"] == result.metrics["kl/sequence"] == result.metrics["grad_norm"] == 0
    assert (found == 0).all() and torch.equal(weights(policy), before)


@pytest.mark.parametrize("whitens", ["reinforce_pp", "ppo"])
def test_b63_nothing_is_whitened_into_something(whitens: str) -> None:
    """Equal rewards and equal weights: advantages of 0, where a rounding would have become a standard deviation of 1."""
    policy, rollouts = uneven(16)
    rollouts = replace(rollouts, rewards=torch.zeros(5, 4, dtype=torch.float64))
    critic = policy.critic()
    given = Supplies(moved(policy, 0.0), critic, still(critic))
    found = brief(policy, rollouts, preset(whitens), Decoding(), given)
    assert (found.advantages == 0).all() and found.measured == {"kl": 0, "kl/sequence": 0}


@pytest.mark.parametrize("micro_rows", [None, 3])
def test_constants_are_read_in_the_parts_that_are_learned_from(micro_rows) -> None:
    """Every comparison has its policy's rows, and no more at once than asked for; the rows left out come last."""
    policy, rollouts = uneven(24)
    rewards = torch.ones(5, 4, dtype=torch.float64)
    rewards[3, 1] = math.nan
    rollouts, reference, spy = replace(rollouts, rewards=rewards), Spy(moved(policy, 0.1)), Spy(policy)
    algorithm = row("grpo", minibatches=2, mismatch="TruncatedMismatch")
    result, _ = learn(spy, rollouts, algorithm, Supplies(reference), micro_rows)
    asked = [[(index, tokens) for index, tokens, _ in each.calls] for each in (reference, spy)]
    half = len(asked[0])
    assert asked[0] == asked[1][:half] and asked[1][half:] == asked[0][:-1]  # mismatch and training ask alike
    assert len(asked[0][-1][0]) == 1 and len(asked[1]) - half > (5 if micro_rows else 1)
    for (_, _, before), (_, _, now) in zip(spy.calls, spy.calls[half:], strict=False):
        assert torch.equal(before, now)  # a ratio of exactly 1
    assert result.metrics["rows_scored"] == 9.5


# ── Entropy ──────────────────────────────────────────────────────────────────────────────────────────


def naive_entropies(policy: LabPolicy, rollouts: Rollouts) -> list[Tensor]:
    """Of every row's tokens, from plain forward passes."""
    found = []
    for b, p in enumerate(rollouts.index.tolist()):
        prompt, problem = policy.encode(rollouts.problems[p].prompt), rollouts.problems[p]
        completion = rollouts.samples.tokens[b, rollouts.samples.mask[b]].tolist()
        logits = policy.model(torch.tensor([prompt + completion]), torch.tensor([problem.meta["offset"]]))[0]
        chances = logits[len(prompt) - 1 : -1].softmax(-1)
        found.append(-(chances * chances.log()).sum(-1))
    return found


@pytest.mark.parametrize("coef", [0.2, -0.2])
def test_an_entropy_bonus_equals_the_naive_one(double, coef: float) -> None:
    policy, rollouts, _ = off_policy()
    algorithm = row("grpo", kl=None, entropy="EntropyBonus", entropy__coef=coef)
    result, found = learn(policy, rollouts, algorithm)
    entropies = naive_entropies(policy, rollouts)
    loss = grpo_loss(policy, rollouts, lambda number, now, before: -coef * entropies[number])
    close(found, backward(policy, loss))
    assert result.metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-10)
    close(learn(policy, rollouts, algorithm, None, 5)[1], found)
    close(learn(policy, rollouts, algorithm, Supplies(entropy_coef=coef))[1], found)
    other = learn(policy, rollouts, algorithm, Supplies(entropy_coef=0.0))[1]
    close(other, learn(policy, rollouts, replace(algorithm, entropy=None))[1])


@pytest.mark.parametrize("coef", [0.1, -0.1])
def test_b65_a_bonus_flattens_the_policy_and_a_malus_sharpens_it(double, coef: float) -> None:
    policy, optimizer = random_policy(), None
    rollouts = batch(policy, EQUAL)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.2)
    before = torch.cat(naive_entropies(policy, rollouts)).detach().mean()
    algorithm = row("grpo", kl=None, entropy="EntropyBonus", entropy__coef=coef)
    for _ in range(5):
        learn(policy, rollouts, algorithm, None, None, optimizer)
    after = torch.cat(naive_entropies(policy, rollouts)).detach().mean()
    assert float((after - before) / coef) > 0.05


class Bandit:
    """One token, given probabilities."""

    def __init__(self, *chances: float) -> None:
        self.model = nn.ParameterList([nn.Parameter(torch.tensor(chances).log())])

    def score(self, problems, index, tokens, mask, decoding) -> Scores:
        table = decoding.log_probs(self.model[0])
        entropies = -(table.exp() * table).sum().expand(mask.shape)
        return Scores(table[tokens], torch.where(mask, entropies, 77.0))


@pytest.mark.parametrize(("chances", "expected"), [((0.5, 0.5), -0.0693), ((0.9, 0.1), -0.0325)])
def test_b65_the_value_worked_out_by_hand(double, chances, expected: float) -> None:
    algorithm = row("reinforce", aggregate="TokenMean", entropy="EntropyBonus", entropy__coef=0.1)
    rollouts = table_rollouts([1, 1], [[0.0, 0.0]], width=3)  # two places of padding, whose 77 must not be seen
    result, _ = learn(Bandit(*chances), rollouts, algorithm)
    assert result.metrics["loss"] == pytest.approx(expected, abs=5e-5)


# ── Focus ────────────────────────────────────────────────────────────────────────────────────────────


def naive_covariances(rollouts: Rollouts, advantages: Tensor) -> Tensor:
    mask, flat = rollouts.samples.mask, rollouts.samples.logps
    apart = [table - table[mask].mean() for table in (flat, advantages)]
    return torch.where(mask, apart[0] * apart[1], -math.inf)


def with_draws(rollouts: Rollouts, reference: LabPolicy | None = None) -> Supplies:
    return Supplies(reference, draws=generator(0, "focus").random(rollouts.samples.tokens.shape))


def test_clip_cov_leaves_out_a_share_of_the_tokens_in_its_band(double) -> None:
    policy = random_policy()
    rollouts = batch(policy)
    algorithm = row("clip_cov", minibatches=1, focus__share=0.1, focus__low=0.05, focus__high=2.0, select="KeepAll")
    given = with_draws(rollouts)
    result, _ = learn(policy, rollouts, algorithm, given)
    plain, _ = learn(policy, rollouts, row("clip_cov", minibatches=1, focus="AllTokens", select="KeepAll"))
    spread = naive_covariances(rollouts, brief(policy, rollouts, algorithm, Decoding(), given).advantages)
    band = ((spread > 0.05) & (spread < 2.0)).nonzero().tolist()
    count = int(0.1 * int(rollouts.samples.mask.sum()))
    chosen = sorted(band, key=lambda place: given.draws[tuple(place)])[:count]
    assert 0 < count < len(band)
    expected = plain.pull.clone()
    for place in chosen:
        expected[tuple(place)] = 0.0
    close(result.pull, expected)


def test_b66_kl_cov_is_inert_on_the_first_pass_and_pulls_back_on_the_second(double) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), with_draws(batch(policy))
    one = row("kl_cov", minibatches=1, focus__share=0.2, focus__coef=2.0, select="KeepAll")
    plain = replace(one, focus=PRESETS["grpo"].focus)
    for algorithm, same in ((one, True), (replace(one, num_iterations=2), False)):
        found = []
        for each in (algorithm, replace(plain, num_iterations=algorithm.num_iterations)):
            copy = moved(policy, 0.0)
            optimizer = torch.optim.SGD(copy.model.parameters(), lr=0.1)
            found.append(learn(copy, rollouts, each, given, None, optimizer)[1])
        assert bool((found[0] - found[1]).abs().max() < 1e-9) == same
    # Off-policy from the start: the top fifth by covariance is held back by |log π − log π_old|.
    policy, rollouts, _ = off_policy()
    result, _ = learn(policy, rollouts, one, with_draws(rollouts))
    bare, _ = learn(policy, rollouts, plain)
    advantages = brief(policy, rollouts, one, Decoding(), with_draws(rollouts)).advantages
    spread = naive_covariances(rollouts, advantages).flatten()
    top = spread.argsort(descending=True)[: int(0.2 * int(rollouts.samples.mask.sum()))]
    leash = torch.zeros(spread.shape)
    leash[top] = 2.0 / int(rollouts.samples.mask.sum())
    side = (scored(policy, rollouts).detach() - rollouts.samples.logps).sign()
    close(result.pull, bare.pull - leash.view(side.shape) * side)


# ── Whole completions ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["SequenceRatio", "SequenceTokenRatio", "SequenceProduct"])
def test_ratios_of_whole_completions_equal_the_naive_ones(double, name: str) -> None:
    policy, rollouts, _ = off_policy()
    algorithm = row("gspo", minibatches=1, importance=name, loss__epsilon=0.1, loss__epsilon_high=0.1)
    result, found = learn(policy, rollouts, algorithm)
    logps, losses, clipped = scored(policy, rollouts), [], []
    for p in range(6):
        for g, advantage in enumerate(zscore(rollouts.rewards[p].tolist())):
            mask = rollouts.samples.mask[4 * p + g]
            gap = (logps - rollouts.samples.logps)[4 * p + g, mask]
            ratio = (gap.sum() if name == "SequenceProduct" else gap.mean()).exp()
            losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage))
            clipped.append(abs(float(ratio.detach()) - 1) > 0.1)
    loss = torch.stack(losses).mean()
    close(found, backward(policy, loss))
    assert result.metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-10)
    assert float(found.norm()) > 1e-3 and 0 < sum(clipped) < 24


# ── What must never matter ───────────────────────────────────────────────────────────────────────────


def everything(policy: LabPolicy, rollouts: Rollouts, algorithm: Algorithm) -> Supplies:
    """All that an algorithm may ask for."""
    critic = trained_critic(policy) if algorithm.critic is not None else None
    return Supplies(
        moved(policy) if algorithm.kl is not None else None,
        critic,
        still(critic) if critic is not None else None,
        torch.tensor([0.5, 0.0, 1.0, 0.25, 0.0, 1.0]),
        generator(0, "focus").random(rollouts.samples.tokens.shape),
    )


def small(name: str) -> Algorithm:
    """A preset with two steps a pass at most and a focus that has something to choose."""
    algorithm = replace(preset(name), minibatches=min(2, preset(name).minibatches))
    bands = {"clip_cov": {"focus.share": 0.2, "focus.low": 0.0}, "kl_cov": {"focus.share": 0.2}}
    return with_overrides(algorithm, bands.get(name, {}))


@pytest.mark.parametrize("name", PRESETS)
def test_micro_batches_and_padding_change_no_preset(double, name: str) -> None:
    policy, rollouts, _ = off_policy()
    algorithm = small(name)
    if algorithm.source == "gold":
        rollouts = demonstrate(policy, Pointer(), rollouts.problems)
    given = everything(policy, rollouts, algorithm)
    whole, expected = learn(policy, rollouts, algorithm, given)
    assert float(expected.norm()) > 1e-4
    tokens, mask, logps, entropies, finished = rollouts.samples
    wide = Samples(
        F.pad(tokens, (0, 4), value=9),
        F.pad(mask, (0, 4)),
        F.pad(logps, (0, 4), value=math.nan),
        F.pad(entropies, (0, 4), value=math.nan),
        finished,
    )
    padded = replace(rollouts, samples=wide), given._replace(draws=np.pad(given.draws, ((0, 0), (0, 4))))
    for part, supplied, width in ((rollouts, given, 0), (*padded, 4)):
        for rows in SEVERAL if not width else (None, 2):
            result, found = learn(policy, part, algorithm, supplied, rows)
            close(found, expected)
            close(result.pull, F.pad(whole.pull, (0, width)))
            # A KL in the reward leaves 1e-18 of an advantage to rows that don't differ, so they may be scored in vain.
            same = {**result.metrics, "rows_scored": whole.metrics["rows_scored"]}
            assert same == pytest.approx(whole.metrics, rel=1e-9, abs=1e-11, nan_ok=True)
            close(result.signal.advantages, whole.signal.advantages)


# ── Two engines ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["TruncatedMismatch", "MaskedMismatch"])
def test_in_the_lab_sampler_and_trainer_agree(double, name: str) -> None:
    policy = random_policy()
    rollouts, algorithm = batch(policy), row("grpo", kl=None, mismatch=name)
    found = brief(policy, rollouts, algorithm, Decoding(), Supplies())
    close(found.mismatch[rollouts.samples.mask], torch.ones(int(rollouts.samples.mask.sum())))
    close(learn(policy, rollouts, algorithm)[1], learn(policy, rollouts, replace(algorithm, mismatch=None))[1])


def test_b48_a_sampler_of_its_own_is_weighed_and_reported(double) -> None:
    """Trainer (−1, −2), sampler (−1.1, −1.5): weights 1.1052 and 0.6065, of which 0.6065 is outside a band from 0.8."""
    trainer, sampler = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.1, -1.5]])
    rollouts = table_rollouts([2], [[1.0]], sampler)
    weighed = {
        "TruncatedMismatch": [math.exp(0.1), math.exp(-0.5)],
        "MaskedMismatch": [math.exp(0.1), 0.0],
    }
    for name, expected in weighed.items():
        band = {"mismatch__low": 0.8} if name == "MaskedMismatch" else {}
        algorithm = row("reinforce", loss="Ratio", mismatch=name, **band)
        result, _ = learn(Table(trainer), rollouts, algorithm)
        close(result.pull, torch.tensor([expected]))  # the ratio itself is that of the trainer's own weights: 1
        assert result.metrics["sampling/sampling_logp_difference/max"] == pytest.approx(0.5)


# ── Masks ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("aggregate", ["TokenMean", "SequenceMean", "SequenceSum", "PromptMean"])
def test_cut_off_completions_count_nowhere_but_in_their_groups_baseline(double, aggregate: str) -> None:
    policy = random_policy()
    rollouts = batch(policy)
    ended, mask = rollouts.samples.finished, rollouts.samples.mask
    algorithm = row("grpo_lecture", mask_truncated=True, aggregate=aggregate)
    result, found = learn(policy, rollouts, algorithm)
    logps, total = scored(policy, rollouts), 0.0
    tokens = [int(mask[b].sum()) * bool(ended[b]) for b in range(24)]
    prompts = [sum(tokens[4 * p : 4 * p + 4]) for p in range(6)]
    for b in (b for b in range(24) if ended[b]):
        share = {
            "TokenMean": 1 / sum(tokens),
            "SequenceMean": 1 / (tokens[b] * sum(count > 0 for count in tokens)),
            "SequenceSum": 1 / sum(count > 0 for count in tokens),
            "PromptMean": 1 / (prompts[b // 4] * sum(count > 0 for count in prompts)),
        }[aggregate]
        advantage = zscore(rollouts.rewards[b // 4].tolist())[b % 4] if rollouts.rewards[b // 4].std() > 0 else 0.0
        total = total - share * advantage * logps[b, mask[b]].sum()
    close(found, backward(policy, total))
    assert (result.pull[~ended] == 0).all() and 0 < int(ended.sum()) < 24
    close(learn(policy, rollouts, algorithm, None, 5)[1], found)


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────────────

LACKING = {
    "grpo": (Supplies(), r"kl=KL\(.* needs reference"),
    "ppo": (Supplies(critic_only=True), r"kl=KL\(.* needs reference"),
    "remax": (Supplies(), r"advantage=GreedyBaseline\(\) needs greedy baseline"),
    "reinforce_running_mean": (Supplies(), r"advantage=RunningMean\(.* needs running baseline"),
    "clip_cov": (Supplies(), r"focus=ClipCov\(.* needs draws"),
    "kl_cov": (Supplies(), r"focus=KLCov\(.* needs draws"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_is_missing_is_refused_in_words(name: str) -> None:
    policy = random_policy()
    given, message = LACKING[name]
    with pytest.raises(ValueError, match=f"{message} and there is none; accepted: supplies with"):
        learn(policy, batch(policy), small(name), given)


def test_a_signal_without_a_policy_refuses_what_only_a_policy_knows() -> None:
    rollouts = batch(random_policy())
    with pytest.raises(ValueError, match=r"mismatch=TruncatedMismatch\(.* needs trainer logps"):
        brief(None, rollouts, row("grpo", kl=None, mismatch="TruncatedMismatch"), Decoding(), Supplies())


# ── Demonstrations ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("weighted", [False, True])
def test_demonstrations_have_no_sampler_and_are_compared_with_the_policy_itself(double, weighted: bool) -> None:
    policy = random_policy()
    rollouts, reference = demonstrate(policy, Pointer(), batch(policy).problems), moved(policy)
    algorithm = row("sft", kl="KL", kl__coef=0.4, kl__weighted=weighted)
    result, found = learn(policy, rollouts, algorithm, Supplies(reference))
    mask, logps = rollouts.samples.mask, scored(policy, rollouts)
    gap = logps - scored(reference, rollouts).detach()
    ratio = (logps - logps.detach()).exp() if weighted else 1.0
    loss = (0.4 * ratio * k("K3", gap) - logps)[mask].mean()
    close(found, backward(policy, loss))
    assert result.metrics["kl"] == pytest.approx(float(k("K3", gap.detach())[mask].mean()), rel=1e-9)


@pytest.mark.parametrize(
    ("named", "overrides"),
    [
        ("mismatch=Trunc", {"mismatch": "TruncatedMismatch"}),
        ("entropy=Adaptive", {"entropy": "AdaptiveEntropy", "entropy.target": 0.2}),
        ("kl=KL", {"kl": "KL", "kl.coef": 0.1, "kl.target": 1.0}),
        ("sampling_rounds=3", {"sampling_rounds": 3}),
    ],
)
def test_demonstrations_refuse_what_asks_samples(named: str, overrides) -> None:
    policy = random_policy()
    rollouts = demonstrate(policy, Pointer(), batch(policy).problems)
    with pytest.raises(ValueError, match=rf"{named}.* asks samples and source is 'gold'; accepted: source='policy'"):
        learn(policy, rollouts, with_overrides(preset("sft"), overrides), Supplies(policy))

"""The update step against a naive twin that scores every row alone, skips nothing and spells its formulas out."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from oracles import score_slowly
from torch import Tensor, nn

from rlvr.algo import PRESETS, Center, Likelihood, Ratio, SequenceMean, TokenMean, preset, with_overrides
from rlvr.lab.metrics import spend, step_metrics
from rlvr.lab.rollout import Rollouts, collect, demonstrate
from rlvr.lab.step import signal, update
from rlvr.policy import Decoding, LabPolicy, Scores
from rlvr.policy.sampler import sample_unique
from rlvr.rewards import correct
from rlvr.rng import generator
from rlvr.tasks import Pointer
from rlvr.types import Problem, Samples, Verdict

TASK = Pointer()
REWARDS = [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1], [0.5, 0, 1, 0.25], [1, 0, 1, 1]]
# What needs nothing but samples and rewards; references, critics and the like have tests of their own.
ROWS = {
    **PRESETS,
    "rloo": PRESETS["reinforce_leave_one_out"],
    "grpo": replace(PRESETS["grpo"], kl=None),
}
POLICY_PRESETS = ("rft", "reinforce", "rloo", "grpo_lecture", "grpo", "dr_grpo")
TWINNED = ("sft", *POLICY_PRESETS)  # the rows that the naive twin has a formula for
FREE = math.inf  # no gradient clipping


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# ── The naive twin ───────────────────────────────────────────────────────────────────────────────────


def naive_advantages(name: str, group: list[float]) -> list[float]:
    n, mean = len(group), sum(group) / len(group)
    if name == "reinforce":
        return group
    if name == "rloo":
        return [reward - (sum(group) - reward) / (n - 1) for reward in group]
    if name == "dr_grpo":
        return [reward - mean for reward in group]
    std = math.sqrt(sum((reward - mean) ** 2 for reward in group) / (n - 1))
    return [(reward - mean) / (std + 1e-4) for reward in group]


def naive_row(name: str, logps: Tensor, old: Tensor, advantage: float) -> Tensor:
    """The losses of one row's tokens."""
    if name in ("sft", "rft"):
        return -logps
    if name in ("reinforce", "rloo", "grpo_lecture"):
        return -advantage * logps
    ratio = (logps - old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)


def naive_loss(name: str, rows: list[Tensor]) -> Tensor:
    """From the rows' token losses to one number."""
    if name in ("sft", "rft", "grpo_lecture"):
        return torch.cat(rows).sum() / sum(len(row) for row in rows)
    if name in ("reinforce", "rloo"):
        return torch.stack([row.sum() for row in rows]).mean()
    if name == "dr_grpo":
        return torch.stack([row.sum() / 12 for row in rows]).mean()
    assert name == "grpo", f"the twin has no formula for {name}: write one"
    return torch.stack([row.mean() for row in rows]).mean()


def naive(name: str, policy: LabPolicy, rollouts: Rollouts, problems: range, decoding=Decoding()) -> Tensor:
    """The loss over the rows of some problems."""
    samples, group, rows = rollouts.samples, rollouts.group_size, []
    logps = score_slowly(policy, rollouts.problems, rollouts.index, samples.tokens, samples.mask, decoding)
    for p in problems:
        rewards = rollouts.rewards[p].tolist()
        for g, advantage in enumerate(naive_advantages(name, rewards) if group > 1 else [0.0]):
            row = p * group + g
            length = int(samples.mask[row].sum())
            if name != "rft" or rewards[g] > 0:
                rows.append(naive_row(name, logps[row, :length], samples.logps[row, :length], advantage))
    return naive_loss(name, rows)


# ── Material ─────────────────────────────────────────────────────────────────────────────────────────


def random_policy() -> LabPolicy:
    """Random, but far from uniform: samples share prefixes, some are equal, about half of them end by themselves."""
    policy = LabPolicy.create(TASK.alphabet, TASK.eos, seed=2, width=16, heads=2)
    with torch.no_grad():
        policy.model.head.weight.mul_(8)
        policy.model.embed.weight.mul_(20)
    return policy


def perturb(policy: LabPolicy, size: float = 0.02) -> None:
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=noise))


def batch(policy: LabPolicy, rewards=REWARDS, decoding=Decoding()) -> Rollouts:
    """Completions of the policy, paid as the table says."""
    problems = [TASK.problem(generator(1, "step", i), n=(3, 6), k=(1, 4)) for i in range(len(rewards))]
    draws = generator(0, "draws").random((len(rewards) * len(rewards[0]), 9))
    rollouts = collect(policy, TASK, problems, {"correct": (1.0, correct)}, draws, decoding, generator(0, "r"))
    return replace(rollouts, rewards=torch.tensor(rewards, dtype=torch.float64))


def rollouts_of(name: str, policy: LabPolicy, off: bool = False) -> Rollouts:
    """What a preset learns from, by the policy itself or by one that has moved since."""
    rollouts = batch(policy)
    if ROWS[name].source == "gold":
        rollouts = demonstrate(policy, TASK, rollouts.problems)
    if off:
        perturb(policy)
    return rollouts


def still(policy: LabPolicy) -> torch.optim.Optimizer:
    """An optimizer that leaves the weights alone, so that the gradient of a step can be looked at."""
    return torch.optim.SGD(policy.model.parameters(), lr=0.0)


def gradient(policy: LabPolicy) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in policy.model.parameters()])


def weights(policy: LabPolicy) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in policy.model.parameters()])


def step(policy: LabPolicy, rollouts: Rollouts, algorithm, micro_rows=None):
    result = update(policy, still(policy), rollouts, algorithm, Decoding(), FREE, micro_rows)
    return result, gradient(policy).clone()


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class Spy:
    """A policy that remembers what it was asked to score, and what it answered."""

    def __init__(self, policy: LabPolicy) -> None:
        self.policy, self.model, self.calls = policy, policy.model, []

    def score(self, problems, index, tokens, mask, decoding) -> Scores:
        scores = self.policy.score(problems, index, tokens, mask, decoding)
        self.calls.append((index.tolist(), tokens.tolist(), scores.logps.detach().clone()))
        return scores


class Table:
    """The smallest policy: its parameters are the log-probabilities; the first token of a row is the row's number."""

    def __init__(self, logps: Tensor) -> None:
        self.model = nn.ParameterList([nn.Parameter(logps.clone())])

    def score(self, problems, index, tokens, mask, decoding) -> Scores:
        logps = self.model[0][tokens[:, 0], : tokens.shape[1]] * 1.0
        return Scores(logps, torch.zeros_like(logps))


def table_rollouts(lengths, rewards, old=None, width: int | None = None) -> Rollouts:
    """Rollouts for a `Table`: rows of given lengths and rewards [P G]."""
    rewards, width = torch.tensor(rewards), width or max(lengths)
    tokens = torch.zeros(len(lengths), width, dtype=torch.long)
    tokens[:, 0] = torch.arange(len(lengths))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    old = torch.zeros(len(lengths), width) if old is None else old
    samples = Samples(tokens, mask, old, torch.zeros_like(old), torch.ones(len(lengths), dtype=torch.bool))
    verdicts = [Verdict(bool(reward > 0), "correct" if reward > 0 else "wrong") for reward in rewards.flatten()]
    problems = [Problem("?", "a")] * len(rewards)
    return Rollouts(problems, samples, [""] * len(lengths), verdicts, rewards, {})


def test_the_material_is_rich() -> None:
    rollouts = batch(random_policy())
    rows = {(row // 4, text) for row, text in enumerate(rollouts.texts)}
    assert 12 < len(rows) < 24  # equal rows, and many different ones
    assert len({len(text) for text in rollouts.texts}) > 3
    assert 6 <= int(rollouts.samples.finished.sum()) <= 18


# ── Fast step and naive twin ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("off", [False, True], ids=["on_policy", "off_policy"])
@pytest.mark.parametrize("name", TWINNED)
def test_loss_and_gradient_equal_the_naive_ones(name: str, off: bool) -> None:
    policy = random_policy()
    rollouts = rollouts_of(name, policy, off)
    result, found = step(policy, rollouts, ROWS[name])
    policy.model.zero_grad()
    loss = naive(name, policy, rollouts, range(len(rollouts.problems)))
    loss.backward()
    assert result.metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-10, abs=1e-12)
    assert float(found.norm()) > 1e-3
    close(found, gradient(policy))
    assert result.metrics["grad_norm"] == pytest.approx(float(found.norm()), rel=1e-10)
    assert result.metrics["updates"] == 1


@pytest.mark.parametrize("name", TWINNED)
def test_passes_and_minibatches_equal_naive_descent(name: str) -> None:
    """Two passes of three optimizer steps, each over two whole groups, end at the same weights."""
    fast, slow = random_policy(), random_policy()
    rollouts = rollouts_of(name, fast)
    algorithm = replace(ROWS[name], num_iterations=2, minibatches=3)
    optimizers = [torch.optim.SGD(policy.model.parameters(), lr=0.05) for policy in (fast, slow)]
    result = update(fast, optimizers[0], rollouts, algorithm, Decoding(), FREE)
    losses, norms = [], []
    for _ in range(2):
        for low in (0, 2, 4):
            optimizers[1].zero_grad()
            loss = naive(name, slow, rollouts, range(low, low + 2))
            loss.backward()
            losses.append(float(loss.detach()))
            norms.append(float(gradient(slow).norm()))
            optimizers[1].step()
    close(weights(fast), weights(slow))
    assert result.metrics["updates"] == 6
    assert result.metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-10, abs=1e-12)
    assert result.metrics["grad_norm"] == pytest.approx(np.mean(norms), rel=1e-10)


def test_gradient_clipping_scales_the_whole_gradient() -> None:
    policy = random_policy()
    rollouts = batch(policy)
    _, free = step(policy, rollouts, ROWS["grpo"])
    bound = float(free.norm()) / 3
    result = update(policy, still(policy), rollouts, ROWS["grpo"], Decoding(), bound)
    assert result.metrics["grad_norm"] == pytest.approx(3 * bound, rel=1e-9)  # before clipping
    torch.testing.assert_close(gradient(policy), free / 3, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", TWINNED)
def test_b01_b04_micro_batches_change_nothing(name: str) -> None:
    policy = random_policy()
    rollouts = rollouts_of(name, policy, off=True)
    whole, expected = step(policy, rollouts, ROWS[name])
    for micro_rows in (1, 2, 5):
        result, found = step(policy, rollouts, ROWS[name], micro_rows)
        close(found, expected)
        close(result.pull, whole.pull)
        assert result.metrics == pytest.approx(whole.metrics, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("micro_rows", [1, 2])
@pytest.mark.parametrize("width", [6, 50])
@pytest.mark.parametrize(
    ("aggregate", "expected"), [("TokenMean", 1.5), ("SequenceMean", 2.0), ("Constant", 0.6), ("SequenceSum", 6.0)]
)
def test_b01_b02_values(aggregate: str, expected: float, width: int, micro_rows: int) -> None:
    """Lengths 2 and 6, losses 3 and 1 a token: (6 + 6) / 8, (3 + 1) / 2, (6 + 6) / (2 * 10), (6 + 6) / 2."""
    length = {"aggregate.length": 10} if aggregate == "Constant" else {}
    algorithm = with_overrides(preset("rft"), {"aggregate": aggregate, **length})
    table = Table(torch.tensor([[-3.0], [-1.0]]).expand(2, width))
    rollouts = table_rollouts([2, 6], [[1.0, 1.0]], width=width)
    result = update(table, still(table), rollouts, algorithm, Decoding(), FREE, micro_rows)
    assert result.metrics["loss"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("aggregate", "loss", "share"),
    [("SequenceMean", 0.0, [1 / 4, 1 / 12]), ("TokenMean", 0.5, [1 / 8, 1 / 8]), ("Constant", 0.2, [1 / 20, 1 / 20])],
)
def test_b07_b08_values(aggregate: str, loss: float, share: list[float]) -> None:
    """A = +1 and -1 on lengths 2 and 6 at ratio 1: on-policy losses differ by aggregation, and so do the pulls."""
    length = {"aggregate.length": 10} if aggregate == "Constant" else {}
    algorithm = with_overrides(preset("reinforce"), {"loss": "Ratio", "aggregate": aggregate, **length})
    rollouts = table_rollouts([2, 6], [[1.0, -1.0]])
    result = update(Table(torch.zeros(2, 6)), torch.optim.SGD([nn.Parameter(torch.zeros(1))]), rollouts, algorithm,
                    Decoding(), FREE)  # fmt: skip
    assert result.metrics["loss"] == pytest.approx(loss, abs=1e-12)
    close(result.pull, torch.stack([share[0] * rollouts.samples.mask[0], -share[1] * rollouts.samples.mask[1]]))


@pytest.mark.parametrize("name", TWINNED)
def test_padding_columns_change_nothing(name: str) -> None:
    policy = random_policy()
    rollouts = rollouts_of(name, policy, off=True)
    result, expected = step(policy, rollouts, ROWS[name])
    tokens, mask, logps, entropies, finished = rollouts.samples
    # What stands in the padding must not matter: another token, an impossible log-probability.
    padded = Samples(
        torch.where(nn.functional.pad(mask, (0, 7)), nn.functional.pad(tokens, (0, 7)), 11),
        nn.functional.pad(mask, (0, 7)),
        torch.where(nn.functional.pad(mask, (0, 7)), nn.functional.pad(logps, (0, 7)), math.nan),
        nn.functional.pad(entropies, (0, 7)),
        finished,
    )
    wide, found = step(policy, replace(rollouts, samples=padded), ROWS[name])
    close(found, expected)
    close(wide.pull, nn.functional.pad(result.pull, (0, 7)))
    assert wide.metrics == pytest.approx(result.metrics, rel=1e-10, abs=1e-12)
    if ROWS[name].source == "policy":
        assert step_metrics(replace(rollouts, samples=padded)) == step_metrics(rollouts)


@pytest.mark.parametrize("name", POLICY_PRESETS)
def test_order_of_problems_and_samples_does_not_matter(name: str) -> None:
    policy = random_policy()
    rollouts = rollouts_of(name, policy, off=True)
    _, expected = step(policy, rollouts, ROWS[name])
    groups, members = [4, 0, 5, 2, 1, 3], [2, 0, 3, 1]
    rows = torch.tensor([4 * p + g for p in groups for g in members])
    shuffled = Rollouts(
        [rollouts.problems[p] for p in groups],
        Samples(*(part[rows] for part in rollouts.samples)),
        [rollouts.texts[row] for row in rows],
        [rollouts.verdicts[row] for row in rows],
        rollouts.rewards[groups][:, members],
        {},
    )
    close(step(policy, shuffled, ROWS[name])[1], expected)


# ── Rows without a signal ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", POLICY_PRESETS)
def test_only_rows_with_a_signal_are_scored(name: str) -> None:
    policy = random_policy()
    rollouts, spy = batch(policy), Spy(policy)
    moved = {
        "reinforce": [row for row in range(24) if rollouts.rewards.flatten()[row] != 0],
        "rft": [row for row in range(24) if rollouts.rewards.flatten()[row] > 0],
    }.get(name, [4 * p + g for p in (0, 2, 4, 5) for g in range(4)])
    result = update(spy, still(policy), rollouts, ROWS[name], Decoding(), FREE)
    asked = [row for index, tokens, _ in spy.calls for row in zip(index, tokens, strict=True)]
    assert asked == [(row // 4, rollouts.samples.tokens[row].tolist()) for row in moved]
    assert result.metrics["rows_scored"] == len(moved) < 24
    unmoved = [row for row in range(24) if row not in moved]
    assert (result.pull[unmoved] == 0).all() and all((result.pull[row] != 0).any() for row in moved)


def test_rows_without_a_signal_still_count_in_the_denominator() -> None:
    """A constant group beside a mixed one halves the step of the mean over rows."""
    policy = random_policy()
    rollouts = batch(policy, [[1, 0, 0, 1], [0, 0, 0, 0]])
    alone = Rollouts(
        rollouts.problems[:1],
        Samples(*(part[:4] for part in rollouts.samples)),
        rollouts.texts[:4],
        rollouts.verdicts[:4],
        rollouts.rewards[:1],
        {},
    )
    close(step(policy, rollouts, ROWS["rloo"])[1], step(policy, alone, ROWS["rloo"])[1] / 2)
    dropped = with_overrides(ROWS["rloo"], {"select": "DropConstant", "select.by": "reward"})
    close(step(policy, rollouts, dropped)[1], step(policy, alone, ROWS["rloo"])[1])


@pytest.mark.parametrize("value", [0.0, 1.0, 0.7])
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "grpo_lecture"])
def test_b06_equal_rewards_give_no_loss_and_no_gradient(name: str, value: float) -> None:
    policy = random_policy()
    rollouts, spy, before = batch(policy, [[value] * 4] * 3), Spy(policy), weights(policy)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.1, weight_decay=0.0)
    result = update(spy, optimizer, rollouts, ROWS[name], Decoding(), 1.0)
    assert spy.calls == [] and result.metrics["rows_scored"] == 0
    assert result.metrics["loss"] == 0 and result.metrics["grad_norm"] == 0
    assert (gradient(policy) == 0).all() and (result.pull == 0).all()
    assert torch.equal(weights(policy), before)
    assert step_metrics(rollouts)["frac_reward_zero_std"] == 1


def test_b06_mixed_rewards_give_no_loss_but_a_gradient() -> None:
    policy = random_policy()
    algorithm = with_overrides(ROWS["grpo"], {"loss": "Ratio"})
    result, found = step(policy, batch(policy, [[1, 0, 0, 1], [0, 1, 1, 1]]), algorithm)
    assert abs(result.metrics["loss"]) < 1e-12 and float(found.norm()) > 1e-2


def test_b06_the_value_worked_out_by_hand() -> None:
    """One token, logits (0, 0), A = (0.5, -0.5): the loss is 0, its gradient (-0.25, 0.25)."""

    class Bandit:
        def __init__(self) -> None:
            self.model = nn.ParameterList([nn.Parameter(torch.zeros(2))])

        def score(self, problems, index, tokens, mask, decoding) -> Scores:
            logps = decoding.log_probs(self.model[0])[tokens]
            return Scores(logps, torch.zeros_like(logps))

    bandit, old = Bandit(), torch.full((2, 1), math.log(0.5))
    algorithm = replace(ROWS["grpo"], advantage=Center(), loss=Ratio(), aggregate=SequenceMean())
    result = update(bandit, still(bandit), table_rollouts([1, 1], [[1.0, 0.0]], old), algorithm, Decoding(), FREE)
    assert result.metrics["loss"] == 0
    close(bandit.model[0].grad, torch.tensor([-0.25, 0.25]))


# ── Off-policy ───────────────────────────────────────────────────────────────────────────────────────


def test_b53_the_second_pass_is_off_policy() -> None:
    """Two passes of four micro-batches: an optimizer step lies between them, and then ratios are not 1."""
    policy = random_policy()
    rollouts, spy, events = batch(policy, [[1, 0, 0, 1], [0, 1, 1, 0]]), Spy(policy), []
    score, optimizer = spy.score, torch.optim.SGD(policy.model.parameters(), lr=0.3)
    spy.score = lambda *arguments: (events.append("score"), score(*arguments))[1]
    optimizer.register_step_post_hook(lambda *arguments: events.append("step"))
    algorithm = replace(ROWS["grpo"], num_iterations=2)
    result = update(spy, optimizer, rollouts, algorithm, Decoding(), FREE, micro_rows=2)
    assert events == (["score"] * 4 + ["step"]) * 2 and result.metrics["updates"] == 2
    gaps = [
        float((logps - rollouts.samples.logps[2 * part : 2 * part + 2]).abs().max())
        for part, (_, _, logps) in zip([0, 1, 2, 3] * 2, spy.calls, strict=True)
    ]
    assert max(gaps[:4]) < 1e-12 and min(gaps[4:]) > 1e-3
    assert result.metrics["sampling/sampling_logp_difference/max"] < 1e-12  # of the first pass


def test_the_pull_is_that_of_the_first_pass() -> None:
    policy = random_policy()
    rollouts = batch(policy)
    once, _ = step(policy, rollouts, ROWS["grpo"])
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.3)
    twice = update(policy, optimizer, rollouts, replace(ROWS["grpo"], num_iterations=2), Decoding(), FREE)
    close(twice.pull, once.pull)


@pytest.mark.parametrize("decoding", [Decoding(0.5), Decoding(1.0), Decoding(2.0), Decoding(0.9, top_k=5)], ids=str)
def test_b45_b52_the_first_pass_is_on_policy_in_float32(decoding: Decoding) -> None:
    policy = random_policy()
    policy.model.float()
    rollouts = batch(policy, decoding=decoding)
    result = update(policy, still(policy), rollouts, ROWS["grpo"], decoding, FREE)
    assert result.metrics["sampling/sampling_logp_difference/max"] < 1e-5
    other = Decoding(decoding.temperature * 1.5)
    result = update(policy, still(policy), rollouts, ROWS["grpo"], other, FREE)
    assert result.metrics["sampling/sampling_logp_difference/max"] > 1e-2


@pytest.mark.parametrize("stale", [-201.0, -math.inf, math.nan])
@pytest.mark.parametrize("fresh", [-1.0, -math.inf, math.nan])
@pytest.mark.parametrize("loss", ["Ratio", "Clip", "Reinforce"])
def test_b51_what_stands_in_a_masked_slot_reaches_nothing(loss: str, fresh: float, stale: float) -> None:
    """New log-probabilities -1 and old ones -1 at the one token, A = 1: the loss is -1 (1 for the score function)."""
    algorithm = with_overrides(preset("reinforce"), {"loss": loss, "aggregate": "TokenMean"})
    table = Table(torch.tensor([[-1.0, fresh]]))
    rollouts = table_rollouts([1], [[1.0]], torch.tensor([[-1.0, stale]]), width=2)
    result = update(table, still(table), rollouts, algorithm, Decoding(), FREE)
    assert result.metrics["loss"] == pytest.approx(1.0 if loss == "Reinforce" else -1.0)
    assert table.model[0].grad.tolist() == [[-1.0, 0.0]] and result.pull.tolist() == [[1.0, 0.0]]
    assert result.metrics["sampling/sampling_logp_difference/max"] == 0 and result.metrics["grad_norm"] == 1


def test_the_gap_is_the_largest_difference_from_the_sampler() -> None:
    old = torch.tensor([[-1.1, -1.5], [-2.0, -7.0]])
    rollouts = table_rollouts([2, 1], [[1.0, 0.0]], old)  # the difference of 6 is outside the mask
    result = update(Table(torch.tensor([[-1.0, -2.0], [-2.25, -1.0]])), still(Table(old)), rollouts, ROWS["grpo"],
                    Decoding(), FREE)  # fmt: skip
    assert result.metrics["sampling/sampling_logp_difference/max"] == pytest.approx(0.5)


# ── Missing rewards ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", [None, math.nan])
@pytest.mark.parametrize(("name", "advantages"), [("dr_grpo", [1 / 3, 0, -2 / 3, 1 / 3]), ("rloo", [0.5, 0, -1, 0.5])])
def test_b18_a_missing_reward_is_left_out_and_counted(name: str, advantages: list[float], missing) -> None:
    policy = random_policy()
    asked = [TASK.problem(generator(1, "step", 0), n=4, k=2)]
    paid = iter([1.0, missing, 0.0, 1.0])
    draws = generator(0, "draws").random((4, 9))
    rewards = {"grader": (1.0, lambda completion, chance: next(paid))}
    rollouts = collect(policy, TASK, asked, rewards, draws, Decoding(), generator(0, "r"))
    assert signal(rollouts, ROWS[name]).advantages.tolist() == [pytest.approx(advantages)]
    assert (signal(rollouts, ROWS[name]).weights[0, 1] == 0).all()
    metrics = step_metrics(rollouts)
    assert metrics["rewards/unscored"] == 1
    assert metrics["reward"] == metrics["rewards/grader/mean"] == pytest.approx(2 / 3)
    assert metrics["frac_reward_zero_std"] == 0
    result, found = step(policy, rollouts, ROWS[name])
    rest = [0, 2, 3]
    without = Rollouts(
        asked,
        Samples(*(part[rest] for part in rollouts.samples)),
        [rollouts.texts[row] for row in rest],
        [rollouts.verdicts[row] for row in rest],
        rollouts.rewards[:, rest],
        {},
    )
    close(found, step(policy, without, ROWS[name])[1])
    assert result.metrics["rows_scored"] == 3 and (result.pull[1] == 0).all()


@pytest.mark.parametrize("name", POLICY_PRESETS)
def test_b18_nothing_scorable_is_a_step_that_does_nothing(name: str) -> None:
    policy = random_policy()
    rollouts, before = batch(policy, [[math.nan] * 4] * 2), weights(policy)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    result = update(policy, optimizer, rollouts, ROWS[name], Decoding(), 1.0)
    assert result.metrics["loss"] == 0 and result.metrics["grad_norm"] == 0
    assert torch.equal(weights(policy), before)
    metrics = step_metrics(rollouts)
    assert metrics["reward"] is None and metrics["rewards/unscored"] == 8


def test_b22_rewards_are_weighted_and_any_missing_part_makes_the_whole_missing() -> None:
    """Fault B22: 0.8 * 2 + 0.2 * 1 = 1.8."""
    policy = random_policy()
    asked = [TASK.problem(generator(1, "step", 0), n=4, k=2)]
    second = iter([1.0, None])
    rewards = {"one": (0.8, lambda completion, chance: 2), "two": (0.2, lambda completion, chance: next(second))}
    draws = generator(0, "draws").random((2, 9))
    rollouts = collect(policy, TASK, asked, rewards, draws, Decoding(), generator(0, "r"))
    assert rollouts.rewards[0, 0] == pytest.approx(1.8) and math.isnan(rollouts.rewards[0, 1])
    metrics = step_metrics(rollouts)
    assert metrics["reward"] == pytest.approx(1.8)
    assert (metrics["rewards/one/mean"], metrics["rewards/two/mean"]) == (2, 1)


# ── How each token is pushed ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", POLICY_PRESETS)
def test_the_pull_is_minus_the_derivative_of_the_loss(name: str) -> None:
    """Central differences in every log-probability of a small table."""
    draw = generator(3, "table")
    old = torch.from_numpy(-draw.random((6, 4)))
    logps = old + torch.from_numpy(draw.normal(0, 0.3, (6, 4)))
    rollouts = table_rollouts([4, 2, 3, 1, 4, 2], [[1.0, 0.0, 0.5], [0.0, 1.0, 1.0]], old)

    def loss(table: Tensor) -> float:
        policy = Table(table)
        return update(policy, still(policy), rollouts, ROWS[name], Decoding(), FREE).metrics["loss"]

    policy, found = Table(logps), torch.zeros(6, 4)
    result = update(policy, still(policy), rollouts, ROWS[name], Decoding(), FREE)
    for place in np.ndindex(6, 4):
        nudge = torch.zeros(6, 4)
        nudge[place] = 1e-6
        found[place] = (loss(logps - nudge) - loss(logps + nudge)) / 2e-6
    torch.testing.assert_close(result.pull, found, rtol=1e-6, atol=1e-8)
    close(result.pull, -policy.model[0].grad)
    assert (result.pull[~rollouts.samples.mask] == 0).all()


def test_the_pull_on_policy_is_weight_times_advantage() -> None:
    policy = random_policy()
    rollouts = batch(policy)
    for name in ("grpo", "grpo_lecture", "dr_grpo", "rloo"):
        advantages, share = signal(rollouts, ROWS[name])
        result, _ = step(policy, rollouts, ROWS[name])
        close(result.pull, (share * advantages[..., None]).flatten(0, 1))


# ── Masks ────────────────────────────────────────────────────────────────────────────────────────────


def test_b33_the_end_sign_is_learned_and_nothing_after_it() -> None:
    policy = random_policy()
    rollouts = batch(policy, [[1, 0, 0, 1, 1, 0, 1, 0]] * 4)
    tokens, mask, _, _, finished = rollouts.samples
    result, _ = step(policy, rollouts, ROWS["grpo"])
    ends = set()
    for row in range(len(tokens)):
        length = int(mask[row].sum())
        assert (mask[row] == (torch.arange(mask.shape[1]) < length)).all()
        assert bool(finished[row]) == (rollouts.texts[row][-1] == "$") and "$" not in rollouts.texts[row][:-1]
        assert len(rollouts.texts[row]) == length
        assert (result.pull[row, :length] != 0).all() and (result.pull[row, length:] == 0).all()
        ends.add(bool(finished[row]))
    assert ends == {True, False}


def test_b35_every_end_sign_counts() -> None:
    """A second end sign ends a row as the first does; what it ended is finished."""
    policy = random_policy()
    asked = [TASK.problem(generator(1, "step", i), n=4, k=2) for i in range(3)]
    ends = (TASK.alphabet.index("$"), TASK.alphabet.index("e"))
    draws = generator(0, "ends").random((60, 12))
    samples = sample_unique(policy.model, policy.prompts(asked), draws, np.array([12] * 3), ends, Decoding())
    seen = set()
    for tokens, mask, finished in zip(samples.tokens, samples.mask, samples.finished, strict=True):
        row = tokens[mask].tolist()
        assert not set(row[:-1]) & set(ends) and bool(finished) == (row[-1] in ends)
        seen.add(row[-1] if finished else "length")
    assert seen == {*ends, "length"}


def test_b42_supervised_targets_are_the_completion_with_its_end_and_nothing_of_the_prompt() -> None:
    """Against torch's own cross-entropy with labels of -100 on the prompt."""
    policy = random_policy()
    asked = [TASK.problem(generator(1, "gold", i), n=(3, 6), k=(1, 4)) for i in range(5)]
    rollouts = demonstrate(policy, TASK, asked)
    assert rollouts.texts == [TASK.gold(problem) for problem in asked]
    assert rollouts.samples.mask.sum(1).tolist() == [problem.meta["k"] + 3 for problem in asked]
    assert rollouts.samples.finished.all() and rollouts.rewards.shape == (5, 1)
    result, found = step(policy, rollouts, preset("sft"))
    policy.model.zero_grad()
    total, targets = 0.0, 0
    for problem in asked:
        prompt, completion = policy.encode(problem.prompt), policy.encode(TASK.gold(problem))
        logits = policy.model(torch.tensor([prompt + completion]), torch.tensor([problem.meta["offset"]]))[0, :-1]
        labels = torch.tensor(([-100] * len(prompt) + completion)[1:])
        total = total + nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
        targets += int((labels != -100).sum())
    (total / targets).backward()
    assert targets == sum(problem.meta["k"] + 3 for problem in asked)
    assert result.metrics["loss"] == pytest.approx(float(total.detach()) / targets, rel=1e-12)
    close(found, gradient(policy))


def test_b42_a_truncated_row_has_no_end_among_its_targets() -> None:
    policy = random_policy()
    rollouts = batch(policy, [[1] * 8] * 4)
    spy = Spy(policy)
    update(spy, still(policy), rollouts, preset("rft"), Decoding(), FREE)
    ((_, tokens, _),) = spy.calls
    end = TASK.alphabet.index("$")
    for row in (~rollouts.samples.finished).nonzero()[:, 0].tolist():
        length = int(rollouts.samples.mask[row].sum())
        assert end not in tokens[row][:length] and length == TASK.limit(rollouts.problems[row // 8])


# ── Metrics ──────────────────────────────────────────────────────────────────────────────────────────


def hand_made() -> Rollouts:
    """Three groups of two: all right, mixed, all wrong; lengths 1 2 | 3 3 | 2 1; one row ran into the limit."""
    right, wrong = Verdict(True, "correct", "a"), Verdict(False, "lookup")
    mask = torch.arange(3) < torch.tensor([1, 2, 3, 3, 2, 1])[:, None]
    entropies = torch.where(mask, torch.tensor([[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]]), 99.0)
    zeros, finished = torch.zeros(6, 3), torch.tensor([True, True, True, False, True, True])
    rewards = torch.tensor([[1.0, 1.0], [0.5, math.nan], [0.0, 0.25]])
    return Rollouts(
        [Problem("?", "a")] * 3,
        Samples(zeros.long(), mask, zeros, entropies, finished),
        [""] * 6,
        [right, right, right, wrong, wrong, wrong],
        rewards,
        {"correct": rewards},
    )


def test_b40_step_metrics_by_hand() -> None:
    assert step_metrics(hand_made()) == pytest.approx(
        {
            "reward": (1 + 1 + 0.5 + 0 + 0.25) / 5,
            "reward_std/group": (0 + 0 + 0.25 / math.sqrt(2)) / 3,
            "reward_std/batch": math.sqrt((2 * 0.45**2 + 0.05**2 + 0.55**2 + 0.3**2) / 4),
            "accuracy": 3 / 6,
            "groups/all_right": 1 / 3,
            "groups/all_wrong": 1 / 3,
            "groups/mixed": 1 / 3,
            "frac_reward_zero_std": 2 / 3,  # the group with one reward left has no spread
            "rewards/unscored": 1,
            # Fault B40: over the mask only, each token once: 1, 2, 3, 3, 2, 1 tokens.
            "entropy": (0.1 + 2 * 0.2 + 3 * 0.3 + 3 * 0.4 + 2 * 0.5 + 0.6) / 12,
            "completions/mean_length": 12 / 6,
            "completions/mean_length_right": (1 + 2 + 3) / 3,
            "completions/mean_length_wrong": (3 + 2 + 1) / 3,
            "completions/clipped_ratio": 1 / 6,
            "rewards/correct/mean": (1 + 1 + 0.5 + 0 + 0.25) / 5,
        },
        rel=1e-12,
    )


def test_step_metrics_without_right_or_wrong_rows() -> None:
    rollouts = hand_made()
    none_right = step_metrics(replace(rollouts, verdicts=[Verdict(False, "lookup")] * 6))
    assert none_right["completions/mean_length_right"] is None and none_right["groups/all_wrong"] == 1
    all_right = step_metrics(replace(rollouts, verdicts=[Verdict(True, "correct", "a")] * 6))
    assert all_right["completions/mean_length_wrong"] is None and all_right["groups/all_right"] == 1
    assert none_right["reward"] == all_right["reward"]  # verdicts are not rewards


def test_spend_counts_what_was_drawn_or_read() -> None:
    nothing = {"samples": 0, "tokens": 0, "demonstrations": 0, "updates": 0, "seconds": 0.0}
    drawn = spend(nothing, hand_made(), sampled=True, updates=2.0, seconds=0.5)
    assert drawn == {"samples": 6, "tokens": 12, "demonstrations": 0, "updates": 2, "seconds": 0.5}
    read = spend(drawn, hand_made(), sampled=False, updates=1.0, seconds=0.25)
    assert read == {"samples": 6, "tokens": 12, "demonstrations": 6, "updates": 3, "seconds": 0.75}


def test_more_minibatches_than_problems_are_refused() -> None:
    policy = random_policy()
    algorithm = replace(ROWS["grpo"], minibatches=3)
    with pytest.raises(ValueError, match="minibatches = 3 but there are only 2 problems"):
        update(policy, still(policy), batch(policy, [[1, 0], [0, 1]]), algorithm, Decoding(), 1.0)


def test_likelihood_with_a_token_mean_is_the_mean_negative_log_probability() -> None:
    table = torch.tensor([[-1.0, -2.0], [-4.0, -100.0]])
    algorithm = replace(preset("rft"), loss=Likelihood(), aggregate=TokenMean())
    policy = Table(table)
    result = update(policy, still(policy), table_rollouts([2, 1], [[1.0, 1.0]]), algorithm, Decoding(), FREE)
    assert result.metrics["loss"] == pytest.approx(7 / 3)

"""The critic against plain forward passes, loops over tokens, and the exact success rates of the echo world."""

import copy
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from oracles import score_slowly
from safetensors.torch import load_file
from test_step import FREE, Table, batch, close, gradient, perturb, random_policy, still, table_rollouts, weights
from torch import Tensor, nn
from torch.nn import functional as F

from rlvr.algo import GAE, ValueLoss, preset, with_overrides
from rlvr.lab import store
from rlvr.lab import train as loop
from rlvr.lab.brief import Brief, Supplies, brief
from rlvr.lab.recipe import Recipe
from rlvr.lab.rollout import Rollouts, take
from rlvr.lab.step import update
from rlvr.policy import Decoding, LabPolicy
from rlvr.policy.critic import LabCritic
from rlvr.types import Problem, Samples

PPO = replace(preset("ppo"), num_iterations=1)
# The policy stays as it is, so that a critic can be right.
FIXED = {"kl": "None", "critic.warmup_steps": 10_000, "critic.clip": "None"}


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# ── Material ─────────────────────────────────────────────────────────────────────────────────────────


def trained_critic(policy: LabPolicy, seed: int = 3) -> LabCritic:
    """A critic that is no copy any more: other body weights, a head that says something."""
    critic, noise = policy.critic(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in critic.model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))
        critic.model.head.weight.mul_(5)
    return critic


def moved(policy: LabPolicy, size: float = 0.05) -> LabPolicy:
    """Another policy, not far away."""
    other = copy.deepcopy(policy)
    perturb(other, size)
    return other


def supplies(policy: LabPolicy, critic: LabCritic, lr: float = 0.0, **more) -> Supplies:
    return Supplies(moved(policy), critic, torch.optim.SGD(critic.model.parameters(), lr=lr), **more)


def settled(policy: LabPolicy, rollouts: Rollouts, algorithm, given: Supplies) -> Brief:
    return brief(policy, rollouts, algorithm, Decoding(), given)


def critic_gradient(critic: LabCritic) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in critic.model.parameters()])


# ── Naive twins ──────────────────────────────────────────────────────────────────────────────────────


def naive_values(critic: LabCritic, rollouts: Rollouts) -> Tensor:
    """Row by row: what the body makes of the whole text just before each token, times the head."""
    samples, rows, hidden = rollouts.samples, [], []
    hook = critic.model.norm.register_forward_hook(lambda module, inputs, output: hidden.append(output))
    for row, problem in enumerate(rollouts.problems[p] for p in rollouts.index.tolist()):
        length = int(samples.mask[row].sum())
        text = [critic.prompts([problem]).tokens[0].tolist(), samples.tokens[row, :length].tolist()]
        critic.model(torch.tensor([text[0] + text[1]]), torch.tensor([problem.meta.get("offset", 0)]))
        before = hidden.pop()[0, len(text[0]) - 1 : -1]
        rows.append(F.pad(before @ critic.model.head.weight[0], (0, samples.mask.shape[1] - length)))
    hook.remove()
    return torch.stack(rows)


def naive_row(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """Σ_l (γλ)^l δ_{t+l}, every sum from its start."""
    errors = [rewards[t] + gamma * ([*values, 0.0][t + 1]) - values[t] for t in range(len(rewards))]
    return [sum((gamma * lam) ** k * errors[t + k] for k in range(len(errors) - t)) for t in range(len(errors))]


def naive_credit(policy, rollouts: Rollouts, algorithm, given: Supplies, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Advantages and returns from lists: the KL of every token in its reward, the reward of the row in the last."""
    samples, scores = rollouts.samples, {}
    for name, owner in (("now", policy), ("reference", given.reference)):
        scores[name] = score_slowly(owner, rollouts.problems, rollouts.index, samples.tokens, samples.mask).detach()
    values = naive_values(given.critic, rollouts).detach()
    gae, advantages, returns = algorithm.advantage, torch.zeros(values.shape), torch.zeros(values.shape)
    for row in range(len(values)):
        length = int(samples.mask[row].sum()) * bool(kept[row])
        gap = (scores["now"] - scores["reference"])[row, :length].tolist()
        paid = [-algorithm.kl.coef * x for x in gap]
        if length:
            paid[-1] += float(rollouts.rewards.flatten()[row])
        expected = values[row, :length].tolist()
        credit = naive_row(paid, expected, gae.gamma, gae.lam)
        target = naive_row(paid, expected, gae.gamma, gae.lam if gae.value_lam is None else gae.value_lam)
        advantages[row, :length] = torch.tensor(credit)
        returns[row, :length] = torch.tensor([a + v for a, v in zip(target, expected, strict=True)])
    if gae.whiten:
        mask = samples.mask & kept[:, None]
        flat = advantages[mask]
        advantages[mask] = (flat - flat.mean()) / (flat.std(correction=1) + 1e-8)
    return advantages, returns


def naive_value_loss(
    critic: LabCritic, rollouts: Rollouts, old: Tensor, returns: Tensor, rows: range, piece: ValueLoss
):
    """The mean over the tokens of some rows of ½ max((V − R)², (clip(V, V_old ± c) − R)²), times the coefficient."""
    values, total, tokens = naive_values(critic, rollouts), 0.0, 0
    for row in rows:
        for t in range(int(rollouts.samples.mask[row].sum())):
            v, error = values[row, t], (values[row, t] - returns[row, t]) ** 2
            if piece.clip is not None:
                held = torch.minimum(torch.maximum(v, old[row, t] - piece.clip), old[row, t] + piece.clip)
                error = torch.maximum(error, (held - returns[row, t]) ** 2)
            total, tokens = total + error / 2, tokens + 1
    return piece.coef * total / tokens


# ── Values ───────────────────────────────────────────────────────────────────────────────────────────


def test_values_are_the_bodys_hidden_states_times_the_head(double) -> None:
    policy = random_policy()
    rollouts, critic = batch(policy), trained_critic(policy)
    samples = rollouts.samples
    found = critic.values(rollouts.problems, rollouts.index, samples.tokens, samples.mask)
    close(found, naive_values(critic, rollouts))
    assert (found[~samples.mask] == 0).all() and float(found[samples.mask].detach().std()) > 0.1


def test_the_gradient_of_the_values_is_the_naive_one(double) -> None:
    policy = random_policy()
    rollouts, critic = batch(policy), trained_critic(policy)
    samples = rollouts.samples
    weight = torch.randn(samples.mask.shape, generator=torch.Generator().manual_seed(0))
    found = []
    for values in (
        critic.values(rollouts.problems, rollouts.index, samples.tokens, samples.mask),
        naive_values(critic, rollouts),
    ):
        critic.model.zero_grad()
        (values * weight).sum().backward()
        found.append(critic_gradient(critic).clone())
    close(*found)
    assert float(found[0].norm()) > 1


def test_a_fresh_critic_expects_nothing_and_shares_nothing() -> None:
    policy = random_policy()
    rollouts, critic, before = batch(policy), policy.critic(), weights(policy)
    samples = rollouts.samples
    asks = (rollouts.problems, rollouts.index, samples.tokens, samples.mask)
    assert (critic.values(*asks) == 0).all() and critic.values(*asks).requires_grad
    assert torch.equal(critic.model.embed.weight, policy.model.embed.weight)
    with torch.no_grad():
        for parameter in critic.model.parameters():
            parameter.add_(1.0)
    assert torch.equal(weights(policy), before)
    assert (critic.values(*asks[:3], torch.zeros_like(samples.mask)) == 0).all()  # no token, no value


@pytest.mark.parametrize("extra", [1, 9])
def test_padding_and_order_change_no_value(double, extra: int) -> None:
    policy = random_policy()
    rollouts, critic = batch(policy), trained_critic(policy)
    tokens, mask, order = rollouts.samples.tokens, rollouts.samples.mask, torch.arange(len(rollouts.texts)).flip(0)
    expected = critic.values(rollouts.problems, rollouts.index, tokens, mask)
    wide = critic.values(rollouts.problems, rollouts.index, F.pad(tokens, (0, extra), value=7), F.pad(mask, (0, extra)))
    close(wide, F.pad(expected, (0, extra)))
    turned = critic.values(rollouts.problems, rollouts.index[order], tokens[order], mask[order])
    close(turned, expected[order])


# ── Advantages and returns ───────────────────────────────────────────────────────────────────────────

GAES = {
    "ppo": GAE(1.0, 0.95),
    "discount": GAE(0.9, 0.8, whiten=False),
    "decoupled": GAE(0.95, 0.7, value_lam=1.0),
    "one_step": GAE(1.0, 0.0, whiten=False),
}


@pytest.mark.parametrize("name", GAES)
def test_advantages_and_returns_equal_naive_ones_on_a_trained_critic(double, name: str) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), supplies(policy, trained_critic(policy))
    algorithm = replace(PPO, advantage=GAES[name])
    found = settled(policy, rollouts, algorithm, given)
    advantages, returns = naive_credit(policy, rollouts, algorithm, given, torch.ones(24).bool())
    close(found.advantages, advantages)
    close(found.returns, returns)
    assert float(found.advantages[found.mask].std()) > 0.1


def test_a_missing_reward_and_a_cut_off_row_teach_neither_policy_nor_critic(double) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), supplies(policy, trained_critic(policy))
    rewards = rollouts.rewards.clone()
    rewards[1, 2] = math.nan
    rollouts = replace(rollouts, rewards=rewards)
    algorithm = replace(PPO, mask_truncated=True)
    kept = rollouts.samples.finished & ~rewards.flatten().isnan()
    assert 0 < int(kept.sum()) < 23
    found = settled(policy, rollouts, algorithm, given)
    advantages, returns = naive_credit(policy, rollouts, algorithm, given, kept)
    close(found.advantages, advantages)
    close(found.returns, returns)
    result = update(policy, still(policy), rollouts, algorithm, Decoding(), FREE, None, given)
    assert result.metrics["rows_scored"] == int(kept.sum()) and (result.pull[~kept] == 0).all()
    whole = critic_gradient(given.critic).clone()
    # Whatever a row without a signal holds, it can't reach the critic.
    other = replace(rollouts, rewards=torch.where(kept.view(rewards.shape), rewards, math.nan))
    update(policy, still(policy), other, PPO, Decoding(), FREE, None, given)
    close(critic_gradient(given.critic), whole)


class ValueTable:
    """The smallest critic: its parameters are the values; the first token of a row is the row's number."""

    def __init__(self, values: Tensor) -> None:
        self.model = nn.ParameterList([nn.Parameter(values.clone())])

    def values(self, problems, index, tokens, mask) -> Tensor:
        return self.model[0][tokens[:, 0], : tokens.shape[1]] * 1.0


def test_the_kl_of_every_token_is_paid_by_its_own_reward_value_by_hand(double) -> None:
    """β 0.1, log π (−1, −2), log π_ref (−1.5, −1), reward 1, V (0.2, 0.3), λ 0.95: r = (−0.05, 1.1),
    δ = (−0.05 + 0.3 − 0.2, 1.1 − 0.3), A = (0.05 + 0.95 · 0.8, 0.8), R = A + V."""
    old = torch.tensor([[-1.0, -2.0]])
    policy, reference = Table(old), Table(torch.tensor([[-1.5, -1.0]]))
    critic = ValueTable(torch.tensor([[0.2, 0.3]]))
    given = Supplies(reference, critic, still(critic))
    algorithm = replace(PPO, kl=replace(PPO.kl, coef=0.1), advantage=GAE(1.0, 0.95, whiten=False))
    found = settled(policy, table_rollouts([2], [[1.0]], old), algorithm, given)
    close(found.advantages, torch.tensor([[0.81, 0.8]]))
    close(found.returns, torch.tensor([[1.01, 1.1]]))
    assert found.measured == pytest.approx({"kl": -0.25, "kl/sequence": -0.5})


# ── The value loss ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clip", [0.2, None])
def test_the_value_loss_and_its_gradient_equal_the_naive_ones(double, clip: float | None) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), supplies(policy, trained_critic(policy))
    algorithm = replace(PPO, critic=ValueLoss(clip, coef=0.3))
    result = update(policy, still(policy), rollouts, algorithm, Decoding(), FREE, None, given)
    found, critic = critic_gradient(given.critic).clone(), given.critic
    _, returns = naive_credit(policy, rollouts, algorithm, given, torch.ones(24).bool())
    critic.model.zero_grad()
    old = naive_values(critic, rollouts).detach()
    loss = naive_value_loss(critic, rollouts, old, returns, range(24), algorithm.critic)
    loss.backward()
    close(found, critic_gradient(critic))
    assert result.metrics["value_loss"] == pytest.approx(float(loss.detach()), rel=1e-10)
    assert (
        result.metrics["value_grad_norm"] == pytest.approx(float(found.norm()), rel=1e-10) and float(found.norm()) > 0.1
    )
    flat, mask = returns - old, rollouts.samples.mask
    expected = 1 - float(flat[mask].var(correction=0) / returns[mask].var(correction=0))
    assert result.metrics["explained_variance"] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("clip", [0.02, None])
def test_passes_and_minibatches_of_a_critic_equal_naive_descent(double, clip: float | None) -> None:
    """Two passes of three steps; V_old and the returns stay those of the start, so the clip binds on later steps."""
    policy = random_policy()
    rollouts, rate = batch(policy), 0.2
    fast, slow = trained_critic(policy), trained_critic(policy)
    algorithm = replace(PPO, critic=ValueLoss(clip, coef=0.5), num_iterations=2, minibatches=3)
    given = supplies(policy, fast, lr=rate)
    _, returns = naive_credit(policy, rollouts, algorithm, given, torch.ones(24).bool())
    old = naive_values(slow, rollouts).detach()
    result = update(policy, still(policy), rollouts, algorithm, Decoding(), FREE, None, given)
    losses, free = [], []
    for low in (0, 8, 16) * 2:
        rows = range(low, low + 8)
        slow.model.zero_grad()
        loss = naive_value_loss(slow, rollouts, old, returns, rows, algorithm.critic)
        free.append(float(naive_value_loss(slow, rollouts, old, returns, rows, ValueLoss(None, 0.5)).detach()))
        loss.backward()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for parameter in slow.model.parameters():
                parameter.sub_(rate * parameter.grad)
    close(weights(SimpleNamespace(model=fast.model)), weights(SimpleNamespace(model=slow.model)))
    assert result.metrics["value_loss"] == pytest.approx(np.mean(losses), rel=1e-10)
    assert (losses != free) == (clip is not None)  # the clip did bind


def test_gradients_of_policy_and_critic_are_clipped_apart(double) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), supplies(policy, trained_critic(policy))
    free = update(policy, still(policy), rollouts, PPO, Decoding(), FREE, None, given)
    wanted = critic_gradient(given.critic).clone()
    bound = free.metrics["value_grad_norm"] / 3
    held = update(policy, still(policy), rollouts, PPO, Decoding(), bound, None, given)
    torch.testing.assert_close(critic_gradient(given.critic), wanted / 3, rtol=1e-4, atol=1e-9)
    assert held.metrics["value_grad_norm"] == free.metrics["value_grad_norm"]
    assert held.metrics["grad_norm"] == pytest.approx(free.metrics["grad_norm"], rel=1e-12)


@pytest.mark.parametrize("micro_rows", [1, 5])
def test_micro_batches_and_padding_change_nothing(double, micro_rows: int) -> None:
    policy = random_policy()
    rollouts, given = batch(policy), supplies(policy, trained_critic(policy))
    algorithm = replace(PPO, minibatches=2)
    whole = update(policy, still(policy), rollouts, algorithm, Decoding(), FREE, None, given)
    expected = gradient(policy).clone(), critic_gradient(given.critic).clone()
    tokens, mask, logps, entropies, finished = rollouts.samples
    wide = Samples(
        F.pad(tokens, (0, 5), value=9),
        F.pad(mask, (0, 5)),
        F.pad(logps, (0, 5), value=math.nan),
        F.pad(entropies, (0, 5)),
        finished,
    )
    for part, width in ((rollouts, 0), (replace(rollouts, samples=wide), 5)):
        result = update(policy, still(policy), part, algorithm, Decoding(), FREE, micro_rows, given)
        close(gradient(policy), expected[0])
        close(critic_gradient(given.critic), expected[1])
        close(result.pull, F.pad(whole.pull, (0, width)))
        assert result.metrics == pytest.approx(whole.metrics, rel=1e-10, abs=1e-12)


def test_a_batch_without_a_token_to_learn_from_moves_no_critic(double) -> None:
    policy = random_policy()
    rollouts, given = batch(policy, [[math.nan] * 4] * 2), supplies(policy, trained_critic(policy), lr=1.0)
    before = weights(SimpleNamespace(model=given.critic.model))
    result = update(policy, still(policy), rollouts, PPO, Decoding(), FREE, None, given)
    assert torch.equal(weights(SimpleNamespace(model=given.critic.model)), before)
    assert result.metrics["value_loss"] == 0 and math.isnan(result.metrics["explained_variance"])


# ── In training ──────────────────────────────────────────────────────────────────────────────────────


def echo(**changes) -> Recipe:
    usual = {"preset": "ppo", "task": "echo", "base": None, "shape": {"layers": 1, "width": 32, "heads": 2}}
    return Recipe(**{**usual, "prompts_per_step": 16, "learning_rate": 3e-3, **changes})


def saved(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_warm_up_leaves_the_policy_bit_equal_and_moves_the_critic(tmp_path) -> None:
    start = loop.make_policy(echo()).model.state_dict()
    critics = []
    keep = lambda path, modules, *rest: critics.append(modules["critic"].head.weight.detach().clone())  # noqa: E731
    for steps in (3, 4):
        recipe = echo(overrides={"critic.warmup_steps": 3}, steps=steps, checkpoint_every=1, weight_decay=0.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "save_checkpoint", keep)
            run = loop.train(tmp_path / str(steps), recipe)
        found = saved(run)
        assert all(torch.equal(found[name], start[name]) for name in found) == (steps == 3)
    assert len(critics) == 5 and all(float(head.abs().max()) > 1e-3 for head in critics)
    rows = store.read_metrics(tmp_path / "4")
    assert all(row["kl"] == 0 for row in rows) and all(row["value_grad_norm"] > 0 for row in rows)


def test_explained_variance_rises_in_seconds(tmp_path) -> None:
    """From 0, where nothing is expected, to most of it; once the policy is nearly always right little is left to foresee."""
    run = loop.train(tmp_path / "run", echo(steps=20))
    found = [row["explained_variance"] for row in store.read_metrics(run)]
    best = max(np.mean(found[low : low + 5]) for low in range(15))
    assert found[0] == 0 and np.mean(found[:3]) < 0.2 and best > 0.5


def test_the_critic_learns_the_true_success_rates(tmp_path, monkeypatch) -> None:
    """With λ = 1 it is to expect P(right | prompt) and P(right | prompt, first letter), both known exactly."""
    base = loop.train(tmp_path / "base", echo(preset="sft", steps=8))
    learners, of = [], loop.Learner.of
    monkeypatch.setattr(loop.Learner, "of", lambda *given: (learners.append(of(*given)), learners[-1])[1])
    overrides = {**FIXED, "advantage.lam": 1.0}
    loop.train(
        tmp_path / "run",
        echo(overrides=overrides, steps=150, group_size=16, critic_learning_rate=3e-3, schedule="cosine"),
        base,
    )
    policy, critic = learners[0].policy, learners[0].critic
    for letter in "abcd":
        problem, end = Problem(f"{letter}:", letter), policy.encode("$")[0]
        logits = policy.model(torch.tensor([policy.encode(f"{letter}:{letter}")]), torch.tensor([0]))[0]
        first, second = logits.detach().softmax(-1)[1:].unbind(0)
        right = float(second[end])
        truth = [float(first[policy.encode(letter)[0]]) * right, right, 0.0]
        texts = [policy.encode(f"{letter}$"), policy.encode(f"{'b' if letter == 'a' else 'a'}$")]
        tokens = torch.tensor(texts)
        found = critic.values([problem], torch.zeros(2, dtype=torch.long), tokens, torch.ones(2, 2).bool()).detach()
        told = [float(found[0, 0]), float(found[0, 1]), float(found[1, 1])]
        assert told == pytest.approx(truth, abs=0.1), letter


def test_a_critic_sees_only_what_its_problems_ask(double) -> None:
    """Rows of some problems are read as among all of them."""
    policy = random_policy()
    rollouts, critic = batch(policy), trained_critic(policy)
    some = take(rollouts, torch.tensor([4, 1]))
    found = [
        critic.values(each.problems, each.index, each.samples.tokens, each.samples.mask) for each in (rollouts, some)
    ]
    rows = torch.tensor([16, 17, 18, 19, 4, 5, 6, 7])
    close(found[1], found[0][rows])


def test_a_critic_needs_its_optimizer_and_an_advantage_that_reads_it() -> None:
    policy = random_policy()
    rollouts, critic = batch(policy), policy.critic()
    for given in (Supplies(moved(policy)), Supplies(moved(policy), critic)):
        with pytest.raises(ValueError, match=r"advantage=GAE\(.* needs values and there is none"):
            update(policy, still(policy), rollouts, PPO, Decoding(), FREE, None, given)
    with pytest.raises(
        ValueError, match=r"Algorithm.critic is ValueLoss\(.* accepted: None, as this advantage reads no"
    ):
        with_overrides(preset("ppo"), {"advantage": "Center"})

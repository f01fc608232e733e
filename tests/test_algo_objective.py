"""Credit and the token loss put together: every kind of advantage, every term, over everything that is registered."""

from dataclasses import replace

import pytest
import torch
from algo_examples import EXAMPLES
from torch.testing import assert_close

from rlvr.algo import (
    GAE,
    K1,
    KL,
    PRESETS,
    AdaptiveEntropy,
    Algorithm,
    BatchMean,
    Center,
    EntropyBonus,
    Focused,
    GreedyBaseline,
    KLCov,
    LeaveOneOut,
    MirrorDescent,
    Ratio,
    Raw,
    Reinforce,
    RestartOnStall,
    RewardToGo,
    RunningMean,
    SequenceSum,
    TokenAdvantage,
    TokenMean,
    Tokens,
    TruncatedMismatch,
    ValueLoss,
    ZScore,
    assign,
    can_skip,
    needs,
    preset,
    token_losses,
)
from rlvr.algo.gae import gae

NAN, INF = float("nan"), float("inf")
each_advantage = pytest.mark.parametrize("advantage", EXAMPLES["advantage"], ids=str)
each_preset = pytest.mark.parametrize("name", sorted(PRESETS))
REWARDS = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, NAN]], dtype=torch.float64)
MASK = torch.arange(4) < torch.tensor([[[3], [1], [4]], [[2], [2], [1]]])
DRAW = torch.Generator().manual_seed(0)
CHARGE, VALUES = (torch.rand(2, 3, 4, generator=DRAW, dtype=torch.float64) for _ in range(2))
EXTRA = {"baseline": torch.tensor([0.25, 0.5], dtype=torch.float64), "values": VALUES}


def credit(advantage, rewards=REWARDS, mask=MASK, **more):
    return assign(advantage, rewards, mask, **(EXTRA | more))


# ── Who gets what ───────────────────────────────────────────────────────────────────────────────────


def test_rows_get_one_advantage():
    found = credit(Center())
    assert found.returns is None
    assert_close(found.advantages, torch.where(MASK, Center()(REWARDS)[..., None], 0.0))


def test_a_charge_in_the_reward_is_paid_before_the_baseline():
    """RLOO: r − Σ_t charge, then the siblings' mean of the same."""
    paid = REWARDS - torch.where(MASK, CHARGE, 0.0).sum(-1)
    expected = torch.where(MASK, LeaveOneOut()(paid)[..., None], 0.0)
    assert_close(credit(LeaveOneOut(), charge=CHARGE).advantages, expected)
    # Fault B30: equal rewards, unequal charges: not zero.
    equal = torch.ones(1, 2, dtype=torch.float64)
    charge = torch.tensor([[[0.1, 0.1], [0.0, 0.2]]], dtype=torch.float64)
    mask = torch.ones(1, 2, 2, dtype=torch.bool)
    assert (assign(LeaveOneOut(), equal, mask, charge=charge).advantages.abs() < 1e-12).all()
    charge[0, 1, 1] = 0.4
    assert assign(LeaveOneOut(), equal, mask, charge=charge).advantages[0, :, 0].tolist() == pytest.approx([0.2, -0.2])


def test_a_row_that_is_not_kept_enters_its_siblings_baseline_with_its_charge():
    """Paid 1 − 0.1, 0 − 0.2 and, of the row that was left out, 1 − 0.3: that is what the other two stand against."""
    mask = torch.tensor([[[True, False], [True, True], [False, False]]])
    sampled = torch.tensor([[[True, False], [True, True], [True, True]]])
    charge = torch.tensor([[[0.1, NAN], [0.1, 0.1], [0.1, 0.2]]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    found = assign(LeaveOneOut(), rewards, mask, charge=charge, sampled=sampled).advantages[0]
    assert found.tolist() == [pytest.approx([0.65, 0]), pytest.approx([-1.0, -1.0]), [0, 0]]
    # Token by token a row is its own business.
    for advantage, place in ((RewardToGo(whiten=False), "reward"), (Center(), "advantage")):
        alone, known = (
            assign(advantage, rewards, mask, charge=charge, place=place, **s) for s in ({}, {"sampled": sampled})
        )
        assert_close(known.advantages, alone.advantages)


def test_a_charge_in_the_reward_is_paid_token_by_token():
    """PPO: −β k at every token and the reward at the last; the first row has tokens 0, 1, 2."""
    found = credit(RewardToGo(whiten=False), charge=CHARGE).advantages
    tail = CHARGE[0, 0, :3].flip(0).cumsum(0).flip(0)
    assert_close(found[0, 0, :3], 1.0 - tail)
    paid = torch.zeros(6, 4, dtype=torch.float64)
    for row, (reward, mask) in enumerate(zip(REWARDS.flatten(), MASK.flatten(0, 1), strict=True)):
        paid[row, int(mask.sum()) - 1] = reward
    paid = paid - torch.where(MASK, CHARGE, 0.0).flatten(0, 1)
    expected = gae(paid, VALUES.flatten(0, 1), MASK.flatten(0, 1), 1.0, 0.95)
    found = credit(GAE(whiten=False), charge=CHARGE)
    assert_close(found.advantages, expected.advantages.view(2, 3, 4))
    assert_close(found.returns, expected.returns.view(2, 3, 4))


@each_advantage
def test_a_charge_in_the_advantage_is_paid_after(advantage):
    """OpenRLHF: each token's own charge and all later ones, once the rewards have been compared."""
    plain, found = credit(advantage), credit(advantage, charge=CHARGE, place="advantage")
    later = torch.where(MASK, CHARGE, 0.0).flip(-1).cumsum(-1).flip(-1)
    scored = MASK & ~REWARDS.isnan()[..., None]
    assert_close(found.advantages, torch.where(scored, plain.advantages - later, 0.0))
    assert (found.returns is None) == (plain.returns is None)


def test_baselines_reach_their_piece():
    found = credit(GreedyBaseline()).advantages
    assert found[0, :, 0].tolist() == [0.75, -0.25, 0.25] and found[1, :, 0].tolist() == [-0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("advantage", "message"),
    [
        (GAE(), r"advantage is GAE.* and values is None; accepted: a critic's values \[P G T\]"),
        (GreedyBaseline(), r"advantage is Greedy.* and baseline is None; accepted: the greedy baseline \[P\]"),
        (RunningMean(), r"accepted: the running baseline \[P\]"),
    ],
    ids=str,
)
def test_what_is_missing_is_named(advantage, message):
    with pytest.raises(ValueError, match=message):
        assign(advantage, REWARDS, MASK)


@each_advantage
@pytest.mark.parametrize("place", ["reward", "advantage"])
@pytest.mark.parametrize("junk", [0.0, -INF, INF, NAN])
def test_nothing_masked_is_read(advantage, place, junk):
    dirty = {"charge": torch.where(MASK, CHARGE, junk), "values": torch.where(MASK, VALUES, junk), "place": place}
    found = credit(advantage, **dirty)
    assert_close(found, credit(advantage, charge=CHARGE, place=place))
    assert (found.advantages[~MASK] == 0).all() and (found.advantages[REWARDS.isnan()] == 0).all()
    assert found.advantages.isfinite().all() and not found.advantages.requires_grad


@each_advantage
def test_order_and_padding(advantage):
    expected = credit(advantage, charge=CHARGE).advantages
    prompts, rows = torch.tensor([1, 0]), torch.tensor([2, 0, 1])
    moved = {
        "charge": CHARGE[prompts][:, rows],
        "values": VALUES[prompts][:, rows],
        "baseline": EXTRA["baseline"][prompts],
    }
    found = credit(advantage, REWARDS[prompts][:, rows], MASK[prompts][:, rows], **moved).advantages
    assert_close(found, expected[prompts][:, rows])
    pad = torch.nn.functional.pad
    wide = credit(advantage, REWARDS, pad(MASK, (0, 2)), charge=pad(CHARGE, (0, 2)), values=pad(VALUES, (0, 2)))
    assert_close(wide.advantages[..., :4], expected)


@each_advantage
def test_an_empty_mask_gets_nothing(advantage):
    found = credit(advantage, mask=torch.zeros_like(MASK), charge=CHARGE)
    assert (found.advantages == 0).all()


@each_advantage
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 4)])
def test_ones_and_constants_are_finite(advantage, shape):
    """A batch of one, groups of one, one constant group: documented values, never NaN."""
    mask = torch.ones(*shape, 2, dtype=torch.bool)
    extra = {"baseline": torch.full((shape[0],), 0.7), "values": torch.zeros(*shape, 2)}
    found = assign(advantage, torch.full(shape, 0.7), mask, **extra).advantages
    assert found.isfinite().all()
    if advantage.needs_group:
        assert (found == 0).all()


# ── The loss of a token ─────────────────────────────────────────────────────────────────────────────


def material(seed=0):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(5) < torch.tensor([[5], [2], [3], [0]])
    old, ref, advantages = (torch.randn(4, 5, generator=draw, dtype=torch.float64) for _ in range(3))
    logps = old + 0.3 * torch.randn(4, 5, generator=draw, dtype=torch.float64)
    entropies, draws = (torch.rand(4, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    return (
        {"logps": logps, "old_logps": old, "advantages": advantages, "mask": mask, "ref_logps": ref},
        entropies,
        draws,
    )


def inputs(algorithm, seed=0, junk=None, rows=None):
    """Tokens with gradients on logps and entropies; ``junk`` is written wherever the mask is false."""
    columns, entropies, draws = material(seed)
    mask = columns["mask"]
    focused = algorithm.focus(columns["old_logps"], columns["advantages"], mask, draws)
    columns |= {"entropies": entropies, "mismatch": None if algorithm.mismatch is None else 2 * draws}
    if junk is not None:
        columns = {k: x if k == "mask" or x is None else torch.where(mask, x, junk) for k, x in columns.items()}
    columns |= {"focused": focused}
    if rows is not None:
        sliced = {k: x[rows] for k, x in columns.items() if k != "focused" and x is not None}
        columns |= sliced | {"focused": Focused(*(x[rows] for x in focused))}
    columns = {k: x.clone().requires_grad_() if k in ("logps", "entropies") else x for k, x in columns.items()}
    return Tokens(**columns, kl_coef=0.3, entropy_coef=0.2)


def value_and_slopes(algorithm, tokens):
    losses = token_losses(algorithm, tokens)
    found = torch.autograd.grad(losses.sum(), [tokens.logps, tokens.entropies], allow_unused=True)
    return losses.detach(), *(torch.zeros_like(losses) if slope is None else slope for slope in found)


FULL = replace(preset("grpo"), loss=Ratio(), entropy=EntropyBonus(0.2), focus=KLCov(0.3, 0.5), kl=KL(0.3))
ROWS = [
    *PRESETS.values(),
    FULL,
    replace(FULL, name="weighted", kl=KL(0.3, K1(), weighted=True)),
    replace(preset("grpo"), name="bonus", entropy=EntropyBonus(0.2), kl=None),
    replace(preset("grpo"), name="leash", focus=KLCov(0.3, 0.5), kl=None),
    replace(preset("gspo"), name="mismatch", mismatch=TruncatedMismatch()),
]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def test_every_term_by_hand():
    """−ρA + leash |d| + β k3 − α H at every token of the mask."""
    tokens = inputs(FULL)
    d = tokens.logps - tokens.old_logps
    x = tokens.ref_logps - tokens.logps
    expected = -d.exp() * tokens.advantages + tokens.focused.leash * d.abs()
    expected = expected + 0.3 * (x.exp() - 1 - x) - 0.2 * tokens.entropies
    assert tokens.focused.leash.max() == 0.5
    assert_close(token_losses(FULL, tokens), torch.where(tokens.mask, expected, 0.0))
    slopes = torch.autograd.grad(token_losses(FULL, tokens).sum(), tokens.entropies)[0]
    assert_close(slopes, torch.where(tokens.mask, -0.2, 0.0).double())


def test_a_weight_scales_the_policy_loss_only():
    row = replace(preset("clip_cov"), kl=KL(0.3), entropy=EntropyBonus(0.2))
    tokens = inputs(row)
    chosen = tokens.mask.clone()
    chosen[0, :] = False
    weights = {"all": 1.0, "half": torch.where(chosen, 0.5, 1.0).double(), "none": 0.0}
    found = {
        name: token_losses(row, tokens._replace(focused=tokens.focused._replace(weight=weight + 0 * tokens.advantages)))
        for name, weight in weights.items()
    }
    assert_close(found["half"] - found["none"], weights["half"] * (found["all"] - found["none"]))
    assert (found["none"][tokens.mask] != 0).all()


@each_row
@pytest.mark.parametrize("junk", [0.0, -INF, INF, NAN])
def test_b51_masked_tokens_are_silent(row, junk):
    """Fault B51, for every row of the library: nothing outside the mask is read, and nothing flows there."""
    expected, found = (value_and_slopes(row, inputs(row, junk=x)) for x in (None, junk))
    assert_close(found, expected)
    outside = ~material()[0]["mask"]
    assert all((x[outside] == 0).all() for x in found)


@each_row
def test_b04_micro_batches_and_order_change_nothing(row):
    """Fault B04: rows one at a time, backwards; what a whole step decides (focus, weights) was decided before."""
    whole = value_and_slopes(row, inputs(row))
    for r in (3, 2, 1, 0):
        alone = value_and_slopes(row, inputs(row, rows=torch.tensor([r])))
        assert_close([x[0] for x in alone], [x[r] for x in whole], rtol=0, atol=1e-14)


@each_row
def test_skipping_is_safe(row):
    """A row without advantage has exactly zero gradient where `can_skip` says so, and not elsewhere."""
    tokens = inputs(row)._replace(advantages=torch.zeros(4, 5, dtype=torch.float64))
    _, *slopes = value_and_slopes(row, tokens)
    # The critic's own loss is outside this sum.
    assert can_skip(row) == (all((x == 0).all() for x in slopes) and row.critic is None)


def test_a_term_without_its_input_is_refused():
    tokens = inputs(FULL)
    with pytest.raises(ValueError, match=r"kl is KL.* and tokens.ref_logps is None; accepted: a tensor \[B T\]"):
        token_losses(FULL, tokens._replace(ref_logps=None))
    with pytest.raises(ValueError, match=r"entropy is Entropy.* and tokens.entropies is None"):
        token_losses(FULL, tokens._replace(entropies=None))


def test_b30_zero_variance_groups_still_pay_the_kl():
    """Fault B30: policy gradient 0, KL gradient not; without a KL both are 0."""
    row = replace(preset("grpo"), kl=KL(0.1))
    tokens = inputs(row)._replace(advantages=torch.zeros(4, 5, dtype=torch.float64))
    assert (value_and_slopes(row, tokens)[1][tokens.mask] != 0).all()
    assert (value_and_slopes(replace(row, kl=None), tokens)[1] == 0).all()


# ── What a trainer must bring ───────────────────────────────────────────────────────────────────────


def test_needs_name_what_asks():
    plain = Algorithm("plain", Raw(), Reinforce(), SequenceSum())
    assert needs(plain) == {} and can_skip(plain)
    asked = {
        "values": {"advantage": GAE(), "critic": ValueLoss()},
        "greedy baseline": {"advantage": GreedyBaseline()},
        "running baseline": {"advantage": RunningMean()},
        "reference": {"kl": KL(0.1)},
        "entropies": {"entropy": AdaptiveEntropy(0.1)},
        "trainer logps": {"mismatch": TruncatedMismatch()},
        "restart": {"restart": RestartOnStall(2)},
        "draws": {"focus": KLCov()},
        "finished": {"mask_truncated": True},
        "sampling rounds": {"sampling_rounds": 2},
    }
    for name, change in asked.items():
        slot, value = next(iter(change.items()))
        assert needs(replace(plain, **change)) == {name: f"{slot}={value!r}"}
    assert needs(replace(plain, advantage=BatchMean(), loss=MirrorDescent(), num_iterations=3)) == {}


@each_preset
def test_needs_of_the_presets(name):
    row = preset(name)
    assert ("reference" in needs(row)) == (row.kl is not None)
    assert ("values" in needs(row)) == (name == "ppo")
    for setting in needs(row).values():
        slot, _, value = setting.partition("=")
        assert repr(vars(row)[slot]) == value


def test_only_what_reads_tokens_returns_returns():
    for advantage in EXAMPLES["advantage"]:
        assert (credit(advantage).returns is not None) == isinstance(advantage, TokenAdvantage)


def test_grpo_with_and_without_its_kl():
    row = replace(preset("grpo"), aggregate=TokenMean(), advantage=ZScore())
    assert not can_skip(row) and can_skip(replace(row, kl=None))
    assert can_skip(replace(row, kl=KL(0.1, K1(), place="reward")))

"""What libraries do under a preset's name: each row against that library's formula, written out in plain numbers.

One batch for all: two prompts, completions of 1 to 3 tokens, ratios on both sides of every clip.
"""

import math
from statistics import mean, stdev

import pytest
import torch
from tiny_world import gradient

from rlvr.algo import (
    LIKES,
    PRESETS,
    Center,
    Constant,
    Credit,
    TokenMean,
    Tokens,
    ZScore,
    assign,
    difference,
    like,
    preset,
    token_losses,
)

REWARDS = [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0]]
LENGTHS = [[2, 3, 1], [1, 2, 3]]
DRAW = torch.Generator().manual_seed(3)
OLD = -0.2 - torch.rand(6, 3, generator=DRAW, dtype=torch.float64)
NEW = OLD + torch.tensor(
    [[0.5, -0.4, 0], [1.9, -0.1, -0.5], [0.05, 0, 0], [-0.3, 0, 0], [0.6, 0.1, 0], [1.5, -0.3, 0.3]]
)
REF = OLD - 0.3 + 0.6 * torch.rand(6, 3, generator=DRAW, dtype=torch.float64)
DRAWS = torch.rand(6, 3, generator=DRAW, dtype=torch.float64)
MASK = torch.arange(3) < torch.tensor(LENGTHS).view(6, 1)
GREEDY = [1.0, 0.5]


def ours(row):
    """The loss of the batch and its gradient on the log-probabilities, by the slots."""
    charge = None
    if row.kl is not None and row.kl.place != "loss":
        charge = (row.kl.coef * row.kl.charge(OLD, REF)).view(2, 3, 3)
    rewards, mask = torch.tensor(REWARDS, dtype=torch.float64), MASK.view(2, 3, 3)
    mask = mask & row.select(rewards, rewards > 0)[..., None]
    credit: Credit = assign(
        row.advantage,
        rewards,
        mask,
        charge=charge,
        place="reward" if charge is None else row.kl.place,
        baseline=torch.tensor(GREEDY, dtype=torch.float64),
        values=torch.zeros(2, 3, 3, dtype=torch.float64),
    )
    advantages = credit.advantages.flatten(0, 1)
    leaf = NEW.clone().requires_grad_()
    focused = row.focus(OLD, advantages, mask.flatten(0, 1), DRAWS)
    losses = token_losses(row, Tokens(leaf, OLD, advantages, mask.flatten(0, 1), focused=focused))
    total = (row.aggregate(mask).flatten(0, 1).double() * losses).sum()
    return total.item(), gradient(total, leaf)


# ── Their formulas ──────────────────────────────────────────────────────────────────────────────────


def rows():
    """(prompt, sample, tokens' log-ratios and log-probabilities, reward) of each completion."""
    for i in range(6):
        p, g = divmod(i, 3)
        yield i, p, g, LENGTHS[p][g]


def group_norm(p, g, eps):
    return (REWARDS[p][g] - mean(REWARDS[p])) / (stdev(REWARDS[p]) + eps)


def leave_one_out(p, g):
    return REWARDS[p][g] - (sum(REWARDS[p]) - REWARDS[p][g]) / 2


def clipped(ratio, a, low=0.2, high=0.2, dual=None):
    value = min(ratio * a, min(max(ratio, 1 - low), 1 + high) * a)
    return -max(value, dual * a) if dual and a < 0 else -value


def ratio(i, t):
    return math.exp(NEW[i, t] - OLD[i, t])


def k1(i, t):
    return (OLD[i, t] - REF[i, t]).item()


def token_mean(loss):
    """Over the batch: ``loss(i, p, g, t)`` of every token, by the number of tokens."""
    return sum(loss(i, p, g, t) for i, p, g, n in rows() for t in range(n)) / sum(map(sum, LENGTHS))


def trl(eps=1e-4, **clip):
    return token_mean(lambda i, p, g, t: clipped(ratio(i, t), group_norm(p, g, eps), **clip))


def verl(advantage, dual=3.0, **clip):
    return token_mean(lambda i, p, g, t: clipped(ratio(i, t), advantage(i, p, g, t), dual=dual, **clip))


def openrlhf(advantage):
    """The shaped reward at the end minus 0.01 k1 at each token, summed from each token on, under PPO's clip."""

    def loss(i, p, g, t):
        later = sum(k1(i, s) for s in range(t, LENGTHS[p][g]))
        return clipped(ratio(i, t), advantage(p, g) - 0.01 * later)

    return token_mean(loss)


def token_whitened(returns):
    """verl's masked_whiten over tokens: mean, Bessel-corrected variance plus 1e-8."""
    flat = [returns(i, p, g, t) for i, p, g, n in rows() for t in range(n)]
    centre, spread = mean(flat), math.sqrt(stdev(flat) ** 2 + 1e-8)
    return lambda i, p, g, t: (returns(i, p, g, t) - centre) / spread


def population_whitened(returns):
    flat = [returns(i, p, g, t) for i, p, g, n in rows() for t in range(n)]
    centre = mean(flat)
    spread = math.sqrt(mean((x - centre) ** 2 for x in flat))
    return lambda i, p, g, t: (returns(i, p, g, t) - centre) / spread


def to_go(coef):
    """Reward at the last token, k1 at each."""
    return lambda i, p, g, t: REWARDS[p][g] - coef * sum(k1(i, s) for s in range(t, LENGTHS[p][g]))


def geometric(i, n):
    return math.exp(sum(NEW[i, t] - OLD[i, t] for t in range(n)) / n)


def trl_rloo():
    """One ratio a completion; k1 summed over it in the reward, 0.05."""
    charged = [
        [REWARDS[p][g] - 0.05 * sum(k1(i, t) for t in range(n)) for i, p, g, n in rows() if p == q] for q in (0, 1)
    ]
    total = 0.0
    for i, p, g, n in rows():
        a = charged[p][g] - (sum(charged[p]) - charged[p][g]) / 2
        total += clipped(math.exp(sum(NEW[i, t] - OLD[i, t] for t in range(n))), a) / 6
    return total


def openrlhf_gspo():
    """The mean over completions of the mean over tokens; the advantage falls with the k1 still to come."""
    total = 0.0
    for i, p, g, n in rows():
        for t in range(n):
            a = group_norm(p, g, 1e-9) - 0.01 * sum(k1(i, s) for s in range(t, n))
            total += clipped(geometric(i, n), a) / (6 * n)
    return total


def verl_kl_cov():
    """−ρA, and 0.1 |log ρ| for the token of highest covariance: 2e-4 of twelve tokens is one."""
    advantage = lambda i, p, g, t: group_norm(p, g, 1e-6)  # noqa: E731
    places = [(i, p, g, t) for i, p, g, n in rows() for t in range(n)]
    logp, a = mean(OLD[i, t].item() for i, _, _, t in places), mean(advantage(*place) for place in places)
    top = max(places, key=lambda place: (OLD[place[0], place[3]] - logp) * (advantage(*place) - a))
    plain = token_mean(lambda i, p, g, t: -ratio(i, t) * advantage(i, p, g, t))
    return plain + 0.1 * abs(math.log(ratio(top[0], top[3]))) / len(places)


THEIRS = {
    ("grpo", "trl"): trl,
    ("grpo", "verl"): lambda: verl(lambda i, p, g, t: group_norm(p, g, 1e-6)),
    ("grpo", "openrlhf"): lambda: openrlhf(lambda p, g: group_norm(p, g, 1e-9)),
    ("dr_grpo", "trl"): lambda: trl() * sum(map(sum, LENGTHS)) / (6 * 12),
    ("dr_grpo", "verl"): lambda: verl(lambda i, p, g, t: REWARDS[p][g] - mean(REWARDS[p])),
    ("dr_grpo", "openrlhf"): lambda: openrlhf(lambda p, g: REWARDS[p][g] - mean(REWARDS[p])),
    ("dapo", "trl"): trl,
    ("dapo", "verl"): lambda: verl(lambda i, p, g, t: group_norm(p, g, 1e-6), high=0.28),
    ("rloo", "trl"): trl_rloo,
    ("rloo", "verl"): lambda: verl(lambda i, p, g, t: leave_one_out(p, g)),
    ("rloo", "openrlhf"): lambda: openrlhf(leave_one_out),
    ("gspo", "trl"): lambda: token_mean(
        lambda i, p, g, t: clipped(geometric(i, LENGTHS[p][g]), group_norm(p, g, 1e-4))
    ),
    ("gspo", "verl"): lambda: token_mean(
        lambda i, p, g, t: clipped(geometric(i, LENGTHS[p][g]), group_norm(p, g, 1e-6))
    ),
    ("gspo", "openrlhf"): openrlhf_gspo,
    ("cispo", "trl"): lambda: token_mean(
        lambda i, p, g, t: -min(ratio(i, t), 5.0) * group_norm(p, g, 1e-4) * NEW[i, t].item()
    ),
    ("cispo", "verl"): lambda: token_mean(
        lambda i, p, g, t: -min(max(ratio(i, t), 0.8), 1.2) * group_norm(p, g, 1e-6) * NEW[i, t].item()
    ),
    ("reinforce_pp", "verl"): lambda: verl(token_whitened(to_go(0.0))),
    ("reinforce_pp", "openrlhf"): lambda: verl(population_whitened(to_go(0.01)), dual=None),
    ("reinforce_pp_baseline", "verl"): lambda: verl(
        token_whitened(lambda i, p, g, t: REWARDS[p][g] - mean(REWARDS[p]))
    ),
    ("remax", "verl"): lambda: verl(lambda i, p, g, t: REWARDS[p][g] - GREEDY[p]),
    ("ppo", "verl"): lambda: verl(token_whitened(to_go(0.0))),
    ("ppo", "openrlhf"): lambda: verl(population_whitened(to_go(0.01)), dual=None),
    ("clip_cov", "verl"): lambda: trl(eps=1e-6),
    ("kl_cov", "verl"): verl_kl_cov,
}
# Where their std divides by n and ours by n − 1, the loss is smaller by that factor; over twelve tokens:
SCALES = {("reinforce_pp", "openrlhf"): (11 / 12) ** 0.5, ("ppo", "openrlhf"): (11 / 12) ** 0.5}
# Where their std counts tokens and ours rows, no factor is right: two numbers, and the row's words.
TOKENS_COUNTED = ("reinforce_pp_baseline", "verl")


def test_every_row_has_a_formula():
    assert set(THEIRS) == set(LIKES)
    assert {name for name, _ in LIKES} <= set(PRESETS)


@pytest.mark.parametrize("pair", [pair for pair in THEIRS if pair != TOKENS_COUNTED], ids="-".join)
def test_a_row_is_what_the_library_computes(pair):
    found, _ = ours(like(*pair).algorithm)
    assert found == pytest.approx(SCALES.get(pair, 1.0) * THEIRS[pair](), rel=1e-6)
    assert like(*pair).words.endswith(".") and (("population" in like(*pair).words) == (pair in SCALES))


def test_a_std_over_tokens_is_said_to_be_one():
    found, theirs = ours(like(*TOKENS_COUNTED).algorithm)[0], THEIRS[TOKENS_COUNTED]()
    spread = stdev(REWARDS[p][g] - mean(REWARDS[p]) for _, p, g, _ in rows())
    assert found == pytest.approx(verl(lambda i, p, g, t: (REWARDS[p][g] - mean(REWARDS[p])) / spread), rel=1e-6)
    assert theirs == pytest.approx(THEIRS_PINNED, abs=5e-6) and abs(theirs - found) > 0.01
    assert "its std counts tokens" in like(*TOKENS_COUNTED).words


PINNED = {
    ("grpo", "trl"): 0.63472,
    ("grpo", "verl"): 0.33403,
    ("grpo", "openrlhf"): 0.63847,
    ("dr_grpo", "trl"): 0.10579,
    ("dr_grpo", "verl"): 0.17451,
    ("dr_grpo", "openrlhf"): 0.34227,
    ("dapo", "trl"): 0.63472,
    ("dapo", "verl"): 0.31966,
    ("rloo", "trl"): 0.63485,
    ("rloo", "verl"): 0.26177,
    ("rloo", "openrlhf"): 0.51158,
    ("gspo", "trl"): 0.28301,
    ("gspo", "verl"): 0.28307,
    ("gspo", "openrlhf"): 0.12339,
    ("cispo", "trl"): 0.69416,
    ("cispo", "verl"): 0.09406,
    ("reinforce_pp", "verl"): 0.23955,
    ("reinforce_pp", "openrlhf"): 0.57703,
    ("reinforce_pp_baseline", "verl"): 0.36128,
    ("remax", "verl"): 0.59820,
    ("ppo", "verl"): 0.23955,
    ("ppo", "openrlhf"): 0.57703,
    ("clip_cov", "verl"): 0.63484,
    ("kl_cov", "verl"): 0.52974,
}
THEIRS_PINNED = 0.24775


@pytest.mark.parametrize("pair", THEIRS, ids="-".join)
def test_pinned(pair):
    assert ours(like(*pair).algorithm)[0] == pytest.approx(PINNED[pair], abs=5e-6)


def test_one_flag_is_not_the_paper():
    """names.md, section 2: what each library's flag called Dr. GRPO leaves of GRPO."""
    left = {library: like("dr_grpo", library).algorithm for library in ("trl", "verl", "openrlhf")}
    assert left["trl"].advantage == ZScore(1e-4) and left["trl"].aggregate == Constant(12)
    assert left["verl"].advantage == left["openrlhf"].advantage == Center()
    assert left["verl"].aggregate == left["openrlhf"].aggregate == TokenMean()
    assert preset("dr_grpo").advantage == Center() and preset("dr_grpo").aggregate == Constant(12)


@pytest.mark.parametrize("pair", THEIRS, ids="-".join)
def test_differences_are_shown(pair):
    changed = difference(preset(pair[0]), like(*pair).algorithm)
    assert (pair == ("reinforce_pp", "openrlhf")) == (changed == {})


@pytest.mark.parametrize("reward", [(0.0, 1.0)])
def test_two_samples_under_three_stds(reward):
    """names.md: G = 2, rewards 0 and 1: |A| is 0.707 (sample std), 1 (population) or 0.5 (none)."""
    rewards = torch.tensor([reward], dtype=torch.float64)
    sizes = [a(rewards)[0, 1].item() for a in (ZScore(eps=0.0), ZScore(eps=0.0, correction=0), Center())]
    assert sizes == pytest.approx([2**-0.5, 1.0, 0.5])


def test_a_group_of_one():
    """verl's GRPO leaves a single sample its raw score; ours gives 0, and its row's words say so."""
    assert like("grpo", "verl").algorithm.advantage(torch.tensor([[0.7]])).item() == 0.0
    assert "a group of one keeps its raw reward" in like("grpo", "verl").words


@pytest.mark.parametrize(
    ("name", "library", "accepted"),
    [("grpo", "skyrl", "for grpo: openrlhf, trl, verl"), ("sft", "trl", "one of cispo, clip_cov, dapo")],
)
def test_unknown_pairs(name, library, accepted):
    with pytest.raises(ValueError, match=f"no '{name}' like '{library}'; accepted: {accepted}"):
        like(name, library)

"""Algorithms as rows: what they hold, how they differ, what they refuse; no setting is without effect."""

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

from rlvr.algo import (
    GAE,
    K1,
    K2,
    K3,
    KL,
    PRESETS,
    SLOTS,
    SOURCES,
    SUMMARIES,
    Algorithm,
    AllTokens,
    BaselineAdvantage,
    Center,
    Clip,
    ClipCov,
    Constant,
    DropConstant,
    EntropyBonus,
    KeepRewarded,
    KLCov,
    LeaveOneOut,
    Likelihood,
    PositiveOnly,
    PromptMean,
    Raw,
    Reinforce,
    RestartEvery,
    RunningMean,
    SequenceMean,
    SequenceProduct,
    SequenceSum,
    TokenAdvantage,
    TokenMean,
    TokenRatio,
    TruncatedMismatch,
    ValueLoss,
    ZScore,
    describe,
    difference,
    equation,
    pieces,
    preset,
    with_overrides,
)

GRPO = preset("grpo")
each_preset = pytest.mark.parametrize("name", sorted(PRESETS))


def test_the_rows_of_the_library():
    assert set(PRESETS) == {
        "sft", "rft", "reinforce", "reinforce_batch_mean", "reinforce_running_mean", "reinforce_group_mean",
        "reinforce_leave_one_out", "rloo", "remax", "reinforce_pp", "reinforce_pp_baseline", "ppo", "grpo_lecture",
        "positive_only", "grpo", "dual_clip", "dr_grpo", "dapo", "gspo", "cispo", "scalerl", "maxrl", "clip_cov",
        "kl_cov", "prorl", "kimi",
    }  # fmt: skip
    assert preset("grpo_lecture") == Algorithm("grpo_lecture", ZScore(1e-4), Reinforce(), TokenMean())
    assert preset("rft") == Algorithm("rft", Raw(), Likelihood(), TokenMean(), KeepRewarded(0.0))
    assert preset("grpo") == Algorithm("grpo", ZScore(1e-4), Clip(0.2), SequenceMean(), kl=KL(0.04, K3(), "loss"))
    assert preset("reinforce") == Algorithm("reinforce", Raw(), Reinforce(), SequenceSum())
    assert set(difference(preset("sft"), preset("rft"))) == {"source", "select"}
    assert difference(GRPO, replace(GRPO, name="other")) == {}


def test_what_sets_a_row_apart():
    apart = {
        ("reinforce", "reinforce_leave_one_out"): {"advantage"},
        ("reinforce_leave_one_out", "rloo"): {"kl"},
        ("reinforce", "reinforce_batch_mean"): {"advantage"},
        ("reinforce", "reinforce_running_mean"): {"advantage"},
        ("reinforce", "reinforce_group_mean"): {"advantage"},
        ("reinforce", "remax"): {"advantage"},
        ("reinforce", "maxrl"): {"advantage"},
        ("reinforce", "grpo_lecture"): {"advantage", "aggregate"},
        ("grpo_lecture", "positive_only"): {"advantage"},
        ("reinforce_pp", "reinforce_pp_baseline"): {"advantage", "kl"},
        ("grpo", "dr_grpo"): {"advantage", "aggregate", "kl"},
        ("grpo", "dual_clip"): {"loss", "minibatches"},
        ("grpo", "gspo"): {"importance", "loss", "kl", "minibatches"},
        ("cispo", "scalerl"): {"advantage", "minibatches", "sampling_rounds"},
        ("clip_cov", "kl_cov"): {"focus", "loss"},
    }
    for (a, b), slots in apart.items():
        assert set(difference(preset(a), preset(b))) == slots, (a, b)
    assert difference(GRPO, preset("dr_grpo"))["aggregate"] == ("SequenceMean()", "Constant(length=12)")


def test_dapo_is_four_switches():
    """Clip higher, dynamic sampling, token-level loss, overlong filtering: each alone, in fields of its own."""
    patches = {
        "clip higher": {"loss": Clip(0.2, 0.28)},
        "dynamic sampling": {"select": DropConstant(), "sampling_rounds": 10},
        "token level": {"aggregate": PromptMean()},
        "overlong": {"mask_truncated": True},
    }
    row = replace(GRPO, name="dapo", kl=None, minibatches=16)
    for change in patches.values():
        assert set(difference(row, replace(row, **change))) == set(change)
        row = replace(row, **change)
    assert row == preset("dapo")


def test_published_values():
    assert preset("rloo").kl == KL(0.03, K1(), "reward")
    ppo = preset("ppo")
    assert (ppo.advantage, ppo.kl, ppo.num_iterations) == (GAE(1.0, 0.95), KL(0.05, K1(), "reward"), 4)
    assert (ppo.loss, ppo.critic) == (Clip(0.2), ValueLoss(0.2, 0.1))
    assert preset("gspo").loss == Clip(3e-4, 4e-4) and preset("gspo").minibatches == 4
    assert preset("prorl").loss == Clip(0.2, 0.4) and preset("prorl").minibatches == 4
    assert preset("dual_clip").loss.dual_clip == 3
    assert preset("clip_cov").focus == ClipCov(2e-4, 1.0, 5.0) and preset("kl_cov").focus == KLCov(2e-3, 1.0)
    assert preset("kimi").importance == SequenceProduct() and preset("kimi").restart == RestartEvery(1)


@each_preset
def test_each_row_says_what_it_is_and_why(name):
    row = preset(name)
    assert row.name == name and SUMMARIES[name].endswith(".")
    assert set(PRESETS) == set(SUMMARIES) == set(SOURCES)
    assert set(SOURCES[name]) <= {item.name for item in fields(Algorithm)}
    plain = Algorithm("plain", Raw(), Reinforce(), SequenceSum())
    assert set(difference(plain, row)) <= set(SOURCES[name])
    # A paper, a library, the lecture or the definition; or it says that the value is ours.
    known = ("arXiv", "et al.", "19", "20", "lecture", "definition", "usual", "ours", "TRL", "OpenRLHF", "Kimi", "code")
    known = (*known, "MiniMax", "log-probability")
    assert all(any(word in text for word in known) for text in SOURCES[name].values())


@each_preset
def test_descriptions_and_equations(name):
    row = preset(name)
    text = describe(row)
    assert list(text) == [item.name for item in fields(Algorithm)]
    assert text["loss"] == repr(row.loss) and text["num_iterations"] == str(row.num_iterations)
    lines = equation(row).splitlines()
    assert "" not in lines
    assert row.aggregate.formula in lines and row.loss.formula in lines
    assert (row.advantage.formula in lines) == row.loss.reads_advantage
    for piece in (row.kl, row.critic):
        assert piece is None or piece.formula in lines
    assert (row.importance == TokenRatio()) or row.importance.formula in lines
    assert (row.focus == AllTokens()) or row.focus.formula in lines
    assert row.select.formula in lines[0] and ("gold" in lines[0]) == (row.source == "gold")


def test_formulas_show_their_settings():
    assert Clip(0.1, 0.3).formula == "ℓ = −min(ρA, clip(ρ, 1−0.1, 1+0.3) A),  ρ = π / π_old"
    assert "at least 3A where A < 0" in Clip(dual_clip=3).formula
    assert Constant(12).formula == "w = 1 / (12 N)"
    assert KeepRewarded(0.5).formula == "rows with r > 0.5"
    assert DropConstant().formula == "groups with more than one verdict"


def test_equations_hold_every_term():
    row = replace(preset("ppo"), entropy=EntropyBonus(0.01), mask_truncated=True, mismatch=TruncatedMismatch())
    assert equation(row).splitlines() == [
        "L = Σ w · (ℓ − α H + 0.1 ℓ_V)  over all rows of policy samples that ended by themselves",
        "w = 1 / Σ |y|",
        "ℓ = −min(ρA, clip(ρ, 1−0.2, 1+0.2) A),  ρ = π / π_old",
        "A_t = Σ_l 0.95^l (r_{t+l} + V_{t+l+1} − V_{t+l}), whitened over the batch",
        "r_t ← r_t − 0.05 k_t",
        "k = log π − log π_ref",
        "α = 0.01",
        "ℓ_V = ½ max((V − R)², (clip(V, V_old ± 0.2) − R)²)",
        "ℓ ← ℓ · min(π_old / π_sampler, 2)",
        "4 × 1 updates a batch",
    ]
    assert "r ← r − 0.03 Σ_t k_t" in equation(preset("rloo"))
    late = replace(preset("rloo"), kl=KL(0.03, K1(), "advantage"))
    assert "A_t ← A_t − 0.03 Σ_{l≥0} k_{t+l}" in equation(late)
    assert equation(preset("prorl")).splitlines()[-1] == (
        "up to 10 rounds of sampling to fill a batch;  1 × 4 updates a batch;  "
        "π_ref ← π and a fresh optimizer after 5 evaluations without a new best"
    )


def test_rows_are_frozen():
    with pytest.raises(FrozenInstanceError):
        GRPO.name = "other"
    assert hash(GRPO) == hash(replace(GRPO))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "Algorithm.name is ''; accepted: a non-empty string"),
        ({"advantage": 3}, "Algorithm.advantage is 3; accepted: an Advantage object, such as one of Center"),
        ({"advantage": Center}, "Algorithm.advantage is <class .*accepted: an Advantage object"),
        ({"loss": TokenMean()}, r"Algorithm.loss is TokenMean\(\); accepted: a Loss object"),
        ({"aggregate": "TokenMean"}, "Algorithm.aggregate is 'TokenMean'; accepted: an Aggregator object"),
        ({"select": None}, "Algorithm.select is None; accepted: a Selector object"),
        ({"importance": None}, "Algorithm.importance is None; accepted: an Importance object, such as one of Seq"),
        ({"focus": Center()}, "Algorithm.focus is Center.*; accepted: a Focus object"),
        ({"kl": K3()}, r"Algorithm.kl is K3\(\); accepted: a Penalty object, such as one of KL, or None"),
        ({"entropy": 0.01}, "Algorithm.entropy is 0.01; accepted: a Bonus object, such as one of .*, or None"),
        ({"critic": ValueLoss()}, r"Algorithm.critic is ValueLoss.* with ZScore.*; accepted: None, as this adv"),
        ({"advantage": GAE()}, r"Algorithm.critic is None with GAE.*; accepted: ValueLoss\(\)"),
        ({"mismatch": 2.0}, "Algorithm.mismatch is 2.0; accepted: a Mismatch object"),
        ({"restart": RestartEvery}, "Algorithm.restart is <class .*accepted: a Restart object"),
        ({"sampling_rounds": 0}, "Algorithm.sampling_rounds is 0; accepted: a whole number >= 1"),
        ({"mask_truncated": 1}, "Algorithm.mask_truncated is 1; accepted: True or False"),
        ({"source": "human"}, "Algorithm.source is 'human'; accepted: 'policy' or 'gold'"),
        ({"num_iterations": 0}, "Algorithm.num_iterations is 0; accepted: a whole number >= 1"),
        ({"minibatches": 1.0}, "Algorithm.minibatches is 1.0; accepted: a whole number >= 1"),
        ({"minibatches": True}, "Algorithm.minibatches is True; accepted"),
        (
            {"source": "gold"},
            r"Algorithm.loss is Clip\(.*\) with source='gold'; accepted: a loss that needs no",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_refused_rows(change, message):
    with pytest.raises(ValueError, match=message):
        replace(GRPO, **change)


def test_unknown_names_list_the_known():
    with pytest.raises(ValueError, match=r"no preset 'GRPO'; accepted: cispo, .*grpo, .*sft"):
        preset("GRPO")
    with pytest.raises(ValueError, match="no slot 'kl_coef'; accepted: advantage, loss, aggregate, select"):
        pieces("kl_coef")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"clip_ratio_cc": 3}, "unknown key 'clip_ratio_cc'; accepted: name, source, num_iterations"),
        ({"loss.clip_ratio_cc": 3}, "unknown key 'loss.clip_ratio_cc': Clip has no .*loss.dual_clip"),
        ({"aggregate.length": 3}, "unknown key 'aggregate.length': SequenceMean has no .*accepted: none"),
        ({"losses.epsilon": 3}, "unknown key 'losses.epsilon'; accepted: "),
        ({"loss.": 3}, "unknown key 'loss.': "),
        ({"kl.estimator.": 3}, "unknown key 'kl.estimator.': "),
        ({"name.x": 3}, "unknown key 'name.x'"),
        ({"aggregate": "token_mean"}, "aggregate is 'token_mean'; accepted: Constant, PromptMean"),
        ({"aggregate": "Aggregator"}, "aggregate is 'Aggregator'; accepted: Constant"),
        ({"aggregate": "Constant"}, "aggregate=Constant lacks aggregate.length; accepted: a value for each"),
        ({"loss": "Ratio", "loss.epsilon": 1}, "unknown key 'loss.epsilon': Ratio has no such setting"),
        ({"loss.epsilon": "big"}, "Clip.epsilon is 'big'; accepted: a finite number >= 0"),
        ({"loss": Center()}, r"Algorithm.loss is Center\(\); accepted: a Loss object"),
        ({"num_iterations": "two"}, "Algorithm.num_iterations is 'two'; accepted"),
        ({"kl": "K3"}, "kl is 'K3'; accepted: KL"),
        ({"kl": "KL"}, "kl=KL lacks kl.coef; accepted: a value for each"),
        ({"kl": "None", "kl.coef": 0.1}, "unknown key 'kl.coef': kl is None; accepted: kl=<piece> first, one of KL"),
        ({"entropy.coef": 0.1}, "unknown key 'entropy.coef': entropy is None; accepted: entropy=<piece> first"),
        ({"kl.estimator": "k3"}, "kl.estimator is 'k3'; accepted: K1, K2, K3, K3StraightThrough"),
        ({"kl.estimator.x": 1}, "unknown key 'kl.estimator.x': K3 has no such setting; accepted: none"),
        ({"kl.coef.x": 1}, "unknown key 'kl.coef.x': KL has no such setting; accepted: kl.coef, kl.estimator"),
        ({"advantage": "None"}, "advantage is 'None'; accepted: Center"),
        ({"advantage": "PositiveOnly", "advantage.of": "Ratio"}, "advantage.of is 'Ratio'; accepted: Center"),
    ],
    ids=str,
)
def test_b57_refused_overrides(overrides, message):
    """Fault B57: nothing that was asked for is ignored."""
    with pytest.raises(ValueError, match=message):
        with_overrides(GRPO, overrides)


def test_overrides():
    assert with_overrides(GRPO, {}) == GRPO
    changed = with_overrides(GRPO, {"loss.epsilon": "0.3", "loss.epsilon_high": 0.4, "name": "1"})
    assert changed == replace(GRPO, loss=Clip(0.3, 0.4), name="1")
    swapped = with_overrides(GRPO, {"aggregate.length": 7, "aggregate": "Constant", "advantage": LeaveOneOut()})
    assert swapped == replace(GRPO, aggregate=Constant(7), advantage=LeaveOneOut())
    assert with_overrides(GRPO, {"select": "DropConstant", "select.by": "reward"}).select == DropConstant("reward")
    assert with_overrides(GRPO, {"minibatches": "4", "num_iterations": 2}).minibatches == 4
    assert with_overrides(changed, {"loss.epsilon_high": "None"}).loss == Clip(0.3)
    assert with_overrides(preset("rft"), {"source": "gold"}).source == "gold"


def test_overrides_of_optional_slots_and_inner_pieces():
    assert with_overrides(GRPO, {"kl": "None"}) == replace(GRPO, kl=None) == with_overrides(GRPO, {"kl": None})
    made = with_overrides(preset("dr_grpo"), {"kl": "KL", "kl.coef": "0.1", "kl.estimator": "K1", "kl.place": "reward"})
    assert made.kl == KL(0.1, K1(), "reward")
    assert with_overrides(GRPO, {"kl.estimator": "K2"}).kl == KL(0.04, K2())
    assert with_overrides(GRPO, {"kl.estimator": K1()}).kl == KL(0.04, K1())
    assert with_overrides(GRPO, {"kl": KL(0.5), "kl.weighted": "True"}).kl == KL(0.5, weighted=True)
    inner = {"advantage": "PositiveOnly", "advantage.of": "ZScore", "advantage.of.eps": "0.5"}
    assert with_overrides(GRPO, inner).advantage == PositiveOnly(ZScore(eps=0.5))
    assert with_overrides(GRPO, {"advantage": "PositiveOnly", "advantage.of.eps": 0.5}).advantage.of == ZScore(eps=0.5)
    assert with_overrides(preset("positive_only"), {"advantage.of.correction": 0}).advantage.of == ZScore(correction=0)
    critic = {"advantage": "GAE", "advantage.whiten": "False", "critic": "ValueLoss", "critic.clip": "None"}
    assert with_overrides(GRPO, critic) == replace(GRPO, advantage=GAE(whiten=False), critic=ValueLoss(clip=None))
    assert with_overrides(GRPO, {"mask_truncated": "True", "sampling_rounds": "4"}).sampling_rounds == 4
    assert pieces("estimator").keys() == {"K1", "K2", "K3", "K3StraightThrough"}


ROWS = torch.tensor([[-0.1, -0.5, -2.0]]), torch.tensor([[-0.5, -0.5, -4.5]])
SIGNS = torch.tensor([[1.0, 2.0, -1.0]])
REWARDS = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0], [0.3, 0.3, 0.3]])
CORRECT = torch.tensor([[False, False, True], [False, False, False], [True, True, True]])
RIGHT_MASK = torch.ones(1, 2, 3, dtype=torch.bool)
TOKENS = torch.tensor([[0.1, -0.3, 0.8], [0.0, 0.2, 0.1]]), torch.tensor([[0.5, 0.3, 0.6], [0.1, 0.4, 0.2]])
OTHER_VALUES = {
    "advantage.ZScore": ({}, {"eps": 0.5, "correction": 0}),
    "advantage.PositiveOnly": ({}, {"of": Raw()}),
    "advantage.BatchZScore": ({}, {"eps": 0.5, "correction": 0}),
    "advantage.GroupMeanBatchStd": ({}, {"eps": 0.5, "correction": 0, "count_constant": False}),
    "advantage.RunningMean": ({}, {"decay": 0.5}),
    "advantage.GAE": ({}, {"gamma": 0.5, "lam": 0.5, "value_lam": 0.5, "whiten": False}),
    "advantage.RewardToGo": ({}, {"gamma": 0.5, "whiten": False}),
    "loss.Clip": ({}, {"epsilon": 0.9, "epsilon_high": 0.3, "dual_clip": 2.0}),
    "loss.CISPO": ({}, {"cap": 1.5, "floor": 1.2}),
    "loss.MirrorDescent": ({}, {"tau": 0.5}),
    "aggregate.Constant": ({"length": 10}, {"length": 11}),
    "select.KeepRewarded": ({}, {"threshold": 0.7}),
    "select.DropConstant": ({}, {"by": "reward"}),
    "select.DifficultyBand": ({}, {"low": 0.2, "high": 0.8}),
    "focus.ClipCov": ({"share": 0.1, "low": -9.0, "high": 9.0}, {"share": 0.9, "low": 0.5, "high": 0.3}),
    "focus.KLCov": ({}, {"share": 0.9, "coef": 0.5}),
    "kl.KL": (
        {"coef": 0.1, "target": 1.0, "reference_every": 3},
        {
            "coef": 0.2,
            "estimator": K1(),
            "place": "reward",
            "weighted": True,
            "target": 2.0,
            "horizon": 5.0,
            "reference_every": 2,
            "reference_decay": 0.5,
        },
    ),
    "entropy.EntropyBonus": ({"coef": 0.1}, {"coef": 0.2}),
    "entropy.AdaptiveEntropy": ({"target": 0.3}, {"target": 0.1, "coef": 0.02, "step": 0.01}),
    "critic.ValueLoss": ({}, {"clip": None, "coef": 0.5, "warmup_steps": 3}),
    "mismatch.TruncatedMismatch": ({}, {"cap": 1.2}),
    "mismatch.MaskedMismatch": ({}, {"low": 1.2, "high": 1.3}),
    "restart.RestartEvery": ({"steps": 3}, {"steps": 2}),
    "restart.RestartOnStall": ({"patience": 2}, {"patience": 3}),
}


def advantage_output(piece):
    if isinstance(piece, TokenAdvantage):
        return piece(*TOKENS, torch.ones(2, 3, dtype=torch.bool))
    if isinstance(piece, RunningMean):
        return piece(REWARDS, torch.zeros(3)), piece.next_baseline(0.1, REWARDS)
    return piece(REWARDS, torch.zeros(3)) if isinstance(piece, BaselineAdvantage) else piece(REWARDS)


def kl_output(piece):
    logps, old = ROWS
    later = piece.next_coef(0.1, 1.5, 10), [piece.refresh(step) for step in range(7)]
    return piece.coef, piece.place, piece(logps, old, SIGNS - 2), piece.charge(old, SIGNS - 2), later


DRAWS = torch.tensor([[0.5, 0.1, 0.9]])
OUTPUT = {
    "advantage": advantage_output,
    "loss": lambda piece: piece(*ROWS, SIGNS),
    "aggregate": lambda piece: piece(RIGHT_MASK),
    "select": lambda piece: piece(REWARDS, CORRECT),
    "importance": lambda piece: piece(*ROWS, torch.ones(1, 3, dtype=torch.bool)),
    "focus": lambda piece: piece(ROWS[0], SIGNS, torch.ones(1, 3, dtype=torch.bool), DRAWS),
    "kl": kl_output,
    "entropy": lambda piece: (piece.coef, [(piece.used(0.01, h), piece.next_coef(0.01, h)) for h in (0.05, 0.2, 0.5)]),
    "critic": lambda piece: (piece(*ROWS, SIGNS), piece.coef, piece.warmup_steps),
    "mismatch": lambda piece: piece(*ROWS, torch.ones(1, 3, dtype=torch.bool)),
    "restart": lambda piece: [piece(step, [0.5, 0.4, 0.6, 0.3, 0.2][:step]) for step in range(6)],
}


def output(slot, piece):
    return str(OUTPUT[slot](piece))


@pytest.mark.parametrize("slot", SLOTS)
def test_b57_every_setting_changes_a_number(slot):
    """Fault B57, the other half: an accepted key is a key with an effect."""
    for name, kind in pieces(slot).items():
        base, others = OTHER_VALUES.get(f"{slot}.{name}", ({}, {}))
        assert set(others) == {item.name for item in fields(kind)}, name
        for setting, value in others.items():
            other = {**base, setting: value}
            changed = kind(**({**other, "low": -9.0} if setting == "high" and name == "ClipCov" else other))
            assert output(slot, changed) != output(slot, kind(**base)), f"{name}.{setting} has no effect"

"""What today's libraries optimise under the name of a preset: the same slots, filled as their code fills them.

Read in TRL 1.16.0 (``grpo_trainer.py``, ``rloo_trainer.py``), verl 0.9.1 (``core_algos.py`` and its default
configuration) and OpenRLHF 0.11.2 (``loss.py``, ``experience_maker.py``), each with its own defaults and the setting
that carries the name. Learning rates, batch sizes and the number of updates are left as in the preset.
"""

from dataclasses import replace
from typing import NamedTuple

from rlvr.algo.advantages import Center, LeaveOneOut, ZScore
from rlvr.algo.aggregation import Constant, SequenceMean, TokenMean
from rlvr.algo.algorithm import Algorithm
from rlvr.algo.baselines import GreedyBaseline, GroupMeanBatchStd
from rlvr.algo.critic import ValueLoss
from rlvr.algo.estimators import K1
from rlvr.algo.focus import ClipCov, KLCov
from rlvr.algo.gae import GAE, RewardToGo
from rlvr.algo.importance import SequenceProduct, SequenceRatio, SequenceTokenRatio
from rlvr.algo.kl import KL
from rlvr.algo.losses import CISPO, Clip, Ratio
from rlvr.algo.presets import preset
from rlvr.algo.selection import KeepAll

__all__ = ["LIKES", "VERSIONS", "Like", "like"]


class Like(NamedTuple):
    """A preset as a library has it, and in words what its name switches on and what it leaves."""

    algorithm: Algorithm
    words: str


LIKES: dict[tuple[str, str], Like] = {}
"""Rows by preset and library; ``difference(preset(name), like(name, library).algorithm)`` is the table to read."""

VERSIONS = {"trl": "1.16.0", "verl": "0.9.1", "openrlhf": "0.11.2"}
"""What was read of each library."""


def like(name: str, library: str) -> Like:
    """What a library optimises under a preset's name; an unknown pair is refused with the known ones.

    >>> from rlvr.algo import difference, preset
    >>> list(difference(preset("dr_grpo"), like("dr_grpo", "trl").algorithm))
    ['advantage']
    """
    if (name, library) not in LIKES:
        known = sorted(other for preset_name, other in LIKES if preset_name == name)
        accepted = f"for {name}: {', '.join(known)}" if known else f"one of {', '.join(sorted({p for p, _ in LIKES}))}"
        raise ValueError(f"no {name!r} like {library!r}; accepted: {accepted}")
    return LIKES[name, library]


def _as(name: str, library: str, words: str, **slots: object) -> None:
    LIKES[name, library] = Like(replace(preset(name), **slots), words)


# Each library's own way of doing what its names don't mention.
TRL = {"advantage": ZScore(eps=1e-4), "loss": Clip(0.2), "aggregate": TokenMean(), "kl": None}
VERL = {"advantage": ZScore(eps=1e-6), "loss": Clip(0.2, dual_clip=3.0), "aggregate": TokenMean(), "kl": None}
OPENRLHF = {
    "advantage": ZScore(eps=1e-9),
    "loss": Clip(0.2),
    "aggregate": TokenMean(),
    "kl": KL(0.01, K1(), place="advantage"),
}
ONE_ROUND = {"select": KeepAll(), "sampling_rounds": 1, "mask_truncated": False}

_as(
    "grpo",
    "trl",
    "GRPOConfig's defaults: loss_type is 'dapo', so tokens are averaged over the batch, and beta is 0: no KL.",
    **TRL,
)
_as(
    "grpo",
    "verl",
    "adv_estimator=grpo: token-mean over the batch, dual clip at 3, the KL off; a group of one keeps its raw reward.",
    **VERL,
)
_as(
    "grpo",
    "openrlhf",
    "estimator group_norm: token mean, and k1 is charged token by token after the normalisation.",
    **OPENRLHF,
)

_as(
    "dr_grpo",
    "trl",
    "loss_type='dr_grpo' changes the denominator only: rewards are still divided by the group's std.",
    **TRL | {"aggregate": Constant(12)},
)
_as(
    "dr_grpo",
    "verl",
    "norm_adv_by_std_in_grpo=False changes the advantage only; the constant denominator needs loss_agg_mode"
    " seq-mean-token-sum-norm and a loss_scale_factor, without which it is the padded width.",
    **VERL | {"advantage": Center()},
)
_as(
    "dr_grpo",
    "openrlhf",
    "estimator dr_grpo changes the advantage only; there is no constant denominator.",
    **OPENRLHF | {"advantage": Center()},
)

_as(
    "dapo",
    "trl",
    "loss_type='dapo', the default, is the token mean alone: equal clips, no resampling, cut-off rows kept.",
    **TRL | ONE_ROUND,
)
_as(
    "dapo",
    "verl",
    "DAPO's own code, with its four switches on: tokens averaged over the batch, not a prompt's group, and dual clip.",
    **VERL | {"loss": Clip(0.2, 0.28, dual_clip=3.0)},
)

_as(
    "rloo",
    "trl",
    "RLOOTrainer: one ratio for the whole completion, clipped; k1 summed over it in the reward, 0.05.",
    loss=Clip(0.2),
    importance=SequenceProduct(),
    aggregate=SequenceMean(),
    kl=KL(0.05, K1(), place="reward"),
)
_as(
    "rloo",
    "verl",
    "adv_estimator=rloo is the baseline alone: PPO's token ratios, dual clip, token mean, no KL.",
    **VERL | {"advantage": LeaveOneOut()},
)
_as(
    "rloo",
    "openrlhf",
    "estimator rloo is the baseline alone: PPO's token ratios and token mean; k1 is charged after the baseline.",
    **OPENRLHF | {"advantage": LeaveOneOut()},
)

_as(
    "gspo",
    "trl",
    "importance_sampling_level='sequence' is the ratio alone: the token mean lets long completions count several times.",
    **TRL,
)
_as(
    "gspo",
    "verl",
    "loss_mode=gspo takes each token's own gradient, and the token mean unless loss_agg_mode says otherwise.",
    **VERL | {"loss": Clip(0.2), "importance": SequenceTokenRatio()},
)
_as(
    "gspo",
    "openrlhf",
    "policy loss gspo takes the mean over completions by itself; the clip stays 0.2.",
    **OPENRLHF | {"importance": SequenceRatio(), "aggregate": SequenceMean()},
)

_as(
    "cispo",
    "trl",
    "loss_type='cispo': epsilon_high is the cap itself, 5 as its documentation advises (its default caps at 0.2).",
    **TRL | ONE_ROUND | {"loss": CISPO(cap=5.0)},
)
_as(
    "cispo",
    "verl",
    "loss_mode=cispo: the weight is held between 1 - clip_ratio_low and 1 + clip_ratio_high, 0.8 and 1.2.",
    **VERL | ONE_ROUND | {"loss": CISPO(cap=1.2, floor=0.8)},
)

_as(
    "reinforce_pp",
    "verl",
    "adv_estimator=reinforce_plus_plus: dual clip, and no KL unless use_kl_in_reward.",
    **VERL | {"advantage": RewardToGo()},
)
_as(
    "reinforce_pp",
    "openrlhf",
    "estimator reinforce: the preset, written by the same authors; its std is the population's.",
)
_as(
    "reinforce_pp_baseline",
    "verl",
    "adv_estimator=reinforce_plus_plus_baseline: dual clip, no KL; its std counts tokens, long completions more.",
    **VERL | {"advantage": GroupMeanBatchStd()},
)
_as(
    "remax",
    "verl",
    "adv_estimator=remax: the greedy baseline under PPO's clip with dual clip and token mean.",
    **VERL | {"advantage": GreedyBaseline()},
)
_as(
    "ppo",
    "verl",
    "adv_estimator=gae: λ is 1, the loss has dual clip at 3, one epoch, no KL; the critic is a model of its own.",
    **VERL | {"advantage": GAE(lam=1.0), "critic": ValueLoss(clip=0.5, coef=1.0), "num_iterations": 1},
)
_as(
    "ppo",
    "openrlhf",
    "estimator gae: λ is 1, k1 with 0.01 in every token's reward, one epoch, the population's std; a critic of its own.",
    advantage=GAE(lam=1.0),
    critic=ValueLoss(clip=0.5, coef=1.0),
    kl=KL(0.01, K1(), place="reward"),
    num_iterations=1,
)
_as(
    "clip_cov",
    "verl",
    "loss_mode=clip_cov: as published, on the verl defaults around it; constant groups stay unless filtered.",
    **VERL | ONE_ROUND | {"loss": Clip(0.2), "focus": ClipCov()},
)
_as(
    "kl_cov",
    "verl",
    "loss_mode=kl_cov: its defaults are 2e-4 of the tokens and a coefficient of 0.1, not the paper's 2e-3 and 1.",
    **VERL | ONE_ROUND | {"loss": Ratio(), "focus": KLCov(share=2e-4, coef=0.1)},
)

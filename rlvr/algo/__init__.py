"""Reinforcement-learning mathematics as pure pieces: an axis of an algorithm is a slot, a file and a list.

An update is a few independent choices and one sum::

    keep = select(rewards, verdicts)              [P G]    which rows take part
    A = assign(advantage, rewards, mask & keep)   [P G T]  who did better than expected
    ℓ = token_losses(algorithm, tokens)           [B T]    per token, unreduced: loss, focus, kl, entropy
    w = aggregate(mask & keep)                    [P G T]  how much each token counts
    L = Σ w · ℓ                                            the only reduction, in the training step
"""

from rlvr.algo.advantages import (
    Advantage,
    BaselineAdvantage,
    Center,
    LeaveOneOut,
    MaxRL,
    PositiveOnly,
    Raw,
    TokenAdvantage,
    TokenCredit,
    ZScore,
    by_group,
    check_groups,
)
from rlvr.algo.aggregation import Aggregator, Constant, PromptMean, SequenceMean, SequenceSum, TokenMean
from rlvr.algo.algorithm import Algorithm, describe, difference, equation, with_overrides
from rlvr.algo.baselines import BatchMean, BatchZScore, GreedyBaseline, GroupMeanBatchStd, RunningMean
from rlvr.algo.credit import Credit, RatioReport, assign, ratio_report, terminal_rewards
from rlvr.algo.critic import Critic, ValueLoss, explained_variance
from rlvr.algo.entropy import AdaptiveEntropy, Bonus, EntropyBonus, entropy_losses
from rlvr.algo.estimators import K1, K2, K3, Estimator, K3StraightThrough
from rlvr.algo.focus import AllTokens, ClipCov, Focus, Focused, KLCov, covariances
from rlvr.algo.gae import GAE, RewardToGo
from rlvr.algo.importance import (
    Importance,
    LogPair,
    SequenceProduct,
    SequenceRatio,
    SequenceTokenRatio,
    TokenRatio,
    log_ratio,
)
from rlvr.algo.kl import KL, Penalty
from rlvr.algo.likes import LIKES, Like, like
from rlvr.algo.losses import CISPO, Clip, Likelihood, Loss, Masked, MirrorDescent, Ratio, Reinforce, masked
from rlvr.algo.mismatch import MaskedMismatch, Mismatch, TruncatedMismatch
from rlvr.algo.moments import whiten
from rlvr.algo.objective import Tokens, can_skip, needs, token_losses
from rlvr.algo.presets import PRESETS, SOURCES, SUMMARIES, preset
from rlvr.algo.restart import Restart, RestartEvery, RestartOnStall
from rlvr.algo.selection import DifficultyBand, DropConstant, KeepAll, KeepRewarded, KeepRight, Selector
from rlvr.algo.slots import SLOTS, pieces

__all__ = [
    "CISPO",
    "GAE",
    "K1",
    "K2",
    "K3",
    "KL",
    "LIKES",
    "PRESETS",
    "SLOTS",
    "SOURCES",
    "SUMMARIES",
    "AdaptiveEntropy",
    "Advantage",
    "Aggregator",
    "Algorithm",
    "AllTokens",
    "BaselineAdvantage",
    "BatchMean",
    "BatchZScore",
    "Bonus",
    "Center",
    "Clip",
    "ClipCov",
    "Constant",
    "Credit",
    "Critic",
    "DifficultyBand",
    "DropConstant",
    "EntropyBonus",
    "Estimator",
    "Focus",
    "Focused",
    "GreedyBaseline",
    "GroupMeanBatchStd",
    "Importance",
    "K3StraightThrough",
    "KLCov",
    "KeepAll",
    "KeepRewarded",
    "KeepRight",
    "LeaveOneOut",
    "Like",
    "Likelihood",
    "LogPair",
    "Loss",
    "Masked",
    "MaskedMismatch",
    "MaxRL",
    "MirrorDescent",
    "Mismatch",
    "Penalty",
    "PositiveOnly",
    "PromptMean",
    "Ratio",
    "RatioReport",
    "Raw",
    "Reinforce",
    "Restart",
    "RestartEvery",
    "RestartOnStall",
    "RewardToGo",
    "RunningMean",
    "Selector",
    "SequenceMean",
    "SequenceProduct",
    "SequenceRatio",
    "SequenceSum",
    "SequenceTokenRatio",
    "TokenAdvantage",
    "TokenCredit",
    "TokenMean",
    "TokenRatio",
    "Tokens",
    "TruncatedMismatch",
    "ValueLoss",
    "ZScore",
    "assign",
    "by_group",
    "can_skip",
    "check_groups",
    "covariances",
    "describe",
    "difference",
    "entropy_losses",
    "equation",
    "explained_variance",
    "like",
    "log_ratio",
    "masked",
    "needs",
    "pieces",
    "preset",
    "ratio_report",
    "terminal_rewards",
    "token_losses",
    "whiten",
    "with_overrides",
]

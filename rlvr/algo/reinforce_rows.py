"""Rows that learn from examples, REINFORCE with each of its baselines, and PPO."""

from dataclasses import replace

from rlvr.algo.advantages import Center, LeaveOneOut, MaxRL, Raw
from rlvr.algo.aggregation import SequenceSum, TokenMean
from rlvr.algo.algorithm import Algorithm
from rlvr.algo.baselines import BatchMean, GreedyBaseline, GroupMeanBatchStd, RunningMean
from rlvr.algo.critic import ValueLoss
from rlvr.algo.estimators import K1, K2
from rlvr.algo.gae import GAE, RewardToGo
from rlvr.algo.kl import KL
from rlvr.algo.losses import Clip, Likelihood, Reinforce
from rlvr.algo.register import row
from rlvr.algo.selection import KeepRewarded

__all__ = ["reinforce"]

# ── Learning from examples ──────────────────────────────────────────────────────────────────

reinforce = row(
    Algorithm("reinforce", advantage=Raw(), loss=Reinforce(), aggregate=SequenceSum()),
    "The plain policy gradient: reward times the log-probability of a completion, without a baseline.",
    advantage="Williams 1992: the reward itself; a baseline is an option there, left to other rows",
    loss="Williams 1992: the score function times the reward",
    aggregate="the log-probability of a completion is the sum over its tokens; the mean is over samples",
)

sft = row(
    replace(reinforce, name="sft", source="gold", loss=Likelihood(), aggregate=TokenMean()),
    "Maximum likelihood on the task's gold demonstrations; no sampling, no reward.",
    source="the definition of supervised fine-tuning",
    loss="the definition of supervised fine-tuning: cross-entropy",
    aggregate="the usual mean over all target tokens of a batch, also the lecture's",
)

rft = row(
    replace(sft, name="rft", source="policy", select=KeepRewarded()),
    "Online rejection-sampling fine-tuning: maximum likelihood on the current policy's own rewarded samples.",
    sft,
    source="Shao et al. 2024 (arXiv 2402.03300, section 5.2): online means sampled from the current policy",
    select="the lecture: learn from what was right; Yuan et al. 2023 (arXiv 2308.01825) do so once, offline",
)

# ── REINFORCE and its baselines ─────────────────────────────────────────────────────────────

row(
    replace(reinforce, name="reinforce_batch_mean", advantage=BatchMean()),
    "REINFORCE with the mean reward of the whole batch as its baseline.",
    reinforce,
    advantage="Williams 1992's reinforcement comparison, with the present batch in place of the past",
)

row(
    replace(reinforce, name="reinforce_running_mean", advantage=RunningMean(decay=0.9)),
    "REINFORCE with the mean reward of past batches as its baseline.",
    reinforce,
    advantage="Williams 1992's reinforcement comparison: an exponential mean of past rewards; the decay 0.9 is ours",
)

row(
    replace(reinforce, name="reinforce_group_mean", advantage=Center()),
    "REINFORCE with the mean reward of a prompt's samples as its baseline, the sample itself included.",
    reinforce,
    advantage="Liu et al. 2025 (arXiv 2503.20783, section 3): reward minus the group's mean, nothing else",
)

leave_one_out = row(
    replace(reinforce, name="reinforce_leave_one_out", advantage=LeaveOneOut()),
    "REINFORCE with the mean of a sample's siblings as its baseline: RLOO without its KL term.",
    reinforce,
    advantage="Ahmadian et al. 2024 (arXiv 2402.14740): the baseline is the mean of the other k−1 rewards",
)

rloo = row(
    replace(leave_one_out, name="rloo", kl=KL(0.03, K1(), place="reward")),
    "REINFORCE with the mean of a sample's siblings as its baseline and the KL in the reward; no clip, no std.",
    leave_one_out,
    loss="Ahmadian et al. 2024 (arXiv 2402.14740): no clip, needless for a strong start",
    aggregate="Ahmadian et al. 2024: the whole completion is one action, so token log-probabilities are summed",
    kl="Ahmadian et al. 2024: log π/π_ref of the whole completion is taken off its reward; β 0.03 as TRL quotes it",
)

row(
    replace(reinforce, name="remax", advantage=GreedyBaseline()),
    "REINFORCE with the reward of the greedy answer as its baseline.",
    reinforce,
    advantage="Li et al. 2023 (arXiv 2310.10505): minus the reward of the greedy completion",
    loss="Li et al. 2023: the plain policy gradient; its KL term, made for reward models, is left out",
)

row(
    replace(reinforce, name="maxrl", advantage=MaxRL()),
    "REINFORCE that climbs the log of the success rate, as far as a group's size lets it.",
    reinforce,
    advantage="Tajwar et al. 2026 (Maximum Likelihood Reinforcement Learning): centred rewards over their mean",
)

reinforce_pp = row(
    Algorithm(
        "reinforce_pp",
        advantage=RewardToGo(gamma=1.0, whiten=True),
        loss=Clip(epsilon=0.2),
        aggregate=TokenMean(),
        kl=KL(0.01, K1(), place="reward"),
    ),
    "REINFORCE++: token rewards still to come, normalised over the whole batch, under PPO's clip; no critic, no group.",
    advantage="Hu et al. 2025 (arXiv 2501.03262): returns by token, then mean and std over all tokens of the batch",
    loss="Hu et al. 2025: PPO's clipped surrogate; 0.2 is OpenRLHF's default",
    aggregate="OpenRLHF, the authors' library: the mean over the tokens of a batch",
    kl="Hu et al. 2025: k1 of every token in its reward; 0.01 is OpenRLHF's default",
)

row(
    replace(reinforce_pp, name="reinforce_pp_baseline", advantage=GroupMeanBatchStd(), kl=KL(1e-5, K2(), place="loss")),
    "REINFORCE++ with a group's mean as baseline and the batch's std as the one scale.",
    reinforce_pp,
    advantage="Hu et al. 2025 (arXiv 2501.03262): minus the group's mean, then the batch's std; no group std",
    kl="OpenRLHF's example script for it: k2 in the loss with 1e-5 (from memory, not read again)",
)

# ── PPO ─────────────────────────────────────────────────────────────────────────────────────

ppo = row(
    Algorithm(
        "ppo",
        advantage=GAE(gamma=1.0, lam=0.95, whiten=True),
        loss=Clip(epsilon=0.2),
        aggregate=TokenMean(),
        kl=KL(0.05, K1(), place="reward"),
        critic=ValueLoss(clip=0.2, coef=0.1),
        num_iterations=4,
    ),
    "PPO for language models: a critic, generalised advantages, a clipped ratio, a KL in every token's reward.",
    advantage="Schulman et al. 2017 (arXiv 1707.06347, equation 11) with γ 1, λ 0.95 as in TRL's PPOConfig",
    loss="Schulman et al. 2017, equation 7 and section 6.1: ε 0.2",
    aggregate="'N+ implementation details' (arXiv 2403.17031) and TRL: the masked mean over a minibatch's tokens",
    kl="'N+ implementation details': −β (log π_old − log π_ref) by token; 0.05 is TRL's default",
    critic="TRL's PPOConfig: value clip 0.2, value coefficient 0.1",
    num_iterations="TRL's PPOConfig: 4 epochs over a batch, 1 minibatch",
)

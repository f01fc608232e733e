"""GRPO, as the lecture has it and as published, and what came of it."""

from dataclasses import replace

from rlvr.algo.advantages import Center, PositiveOnly, ZScore
from rlvr.algo.aggregation import Constant, PromptMean, SequenceMean, TokenMean
from rlvr.algo.algorithm import Algorithm
from rlvr.algo.baselines import GroupMeanBatchStd
from rlvr.algo.estimators import K3
from rlvr.algo.focus import ClipCov, KLCov
from rlvr.algo.importance import SequenceProduct, SequenceRatio
from rlvr.algo.kl import KL
from rlvr.algo.losses import CISPO, Clip, MirrorDescent, Ratio
from rlvr.algo.register import row
from rlvr.algo.reinforce_rows import reinforce
from rlvr.algo.restart import RestartEvery, RestartOnStall
from rlvr.algo.selection import DropConstant

__all__ = ["grpo"]

grpo_lecture = row(
    replace(reinforce, name="grpo_lecture", advantage=ZScore(eps=1e-4, correction=1), aggregate=TokenMean()),
    "The lecture's train_rl: GRPO with one update a batch, which leaves REINFORCE with a group baseline.",
    advantage="the lecture: group mean, sample std plus 1e-4 (only so does its raw 0.0075 become 1.47)",
    loss="the lecture: minus advantage times log-probability, as the ratio is 1 with one update a batch",
    aggregate="the lecture: divided by the number of response tokens of the whole batch",
)

row(
    replace(grpo_lecture, name="positive_only", advantage=PositiveOnly(ZScore(eps=1e-4, correction=1))),
    "The lecture's exercise 2: train_rl without negative advantages; nothing is pushed down.",
    grpo_lecture,
    advantage="the lecture, exercise 2: advantages clamped at 0 from below",
)

grpo = row(
    Algorithm("grpo", ZScore(eps=1e-4, correction=1), Clip(epsilon=0.2), SequenceMean(), kl=KL(0.04, K3())),
    "GRPO as published: clipped ratio, mean over each completion's own tokens, k3 in the loss.",
    advantage="Shao et al. 2024 (arXiv 2402.03300, section 4.1): group mean and std; the guard 1e-4 is TRL's",
    loss="Shao et al. 2024, section 4.1: clipped as in PPO; the value 0.2 is PPO's, DeepSeek-R1 has 10",
    aggregate="Shao et al. 2024, equation 3: 1/G over samples, 1/|o| over the tokens of each",
    kl="Shao et al. 2024, equations 3 and 4, section 4.1.4: k3 by token in the loss, β 0.04; 0.001 in DeepSeek-R1",
    num_iterations="Shao et al. 2024, section 4.1.4: a single update a round of sampling, so the clip is inert",
)

row(
    replace(grpo, name="dual_clip", loss=Clip(epsilon=0.2, dual_clip=3.0), minibatches=4),
    "GRPO with a bound on how much one bad token can weigh; needs more than one update a batch to differ.",
    grpo,
    loss="Ye et al. 2020 (arXiv 1912.09729): at least cA where A < 0; c 3 is theirs and verl's default",
    minibatches="ours: without a second update the ratio is 1 and the bound inert",
)

row(
    replace(grpo, name="dr_grpo", advantage=Center(), aggregate=Constant(length=12), kl=None),
    "GRPO done right: neither a completion's length nor its group's standard deviation divides anything.",
    grpo,
    advantage="Liu et al. 2025 (arXiv 2503.20783, section 3): the division by the std is removed",
    loss="Liu et al. 2025, appendix: ε 0.2",
    aggregate="Liu et al. 2025: the generation budget; a constant only rescales; set it to the run's limit",
    kl="Liu et al. 2025, appendix: no KL term",
)

dapo = row(
    replace(
        grpo,
        name="dapo",
        loss=Clip(epsilon=0.2, epsilon_high=0.28),
        aggregate=PromptMean(),
        select=DropConstant(),
        kl=None,
        minibatches=16,
        sampling_rounds=10,
        mask_truncated=True,
    ),
    "GRPO with four patches: a higher upper clip, dynamic sampling, token-level loss, cut-off completions left out.",
    grpo,
    loss="Yu et al. 2025 (arXiv 2503.14476, section 3.1): clip higher, 0.2 below and 0.28 above",
    select="Yu et al. 2025, section 3.2: prompts that are all right or all wrong are dropped, by accuracy",
    sampling_rounds="Yu et al. 2025, section 3.2: sample until the batch is full; the cap of 10 rounds is ours",
    aggregate="Yu et al. 2025, equation 8: all tokens of a prompt's group alike; their code averages over the batch",
    mask_truncated="Yu et al. 2025, section 3.4: overlong filtering; its soft punishment is a reward, not a slot",
    kl="Yu et al. 2025, section 2.3: no KL term",
    minibatches="Yu et al. 2025, section 4.1: 16 updates a round of sampling",
)

row(
    replace(
        grpo,
        name="gspo",
        importance=SequenceRatio(),
        loss=Clip(epsilon=3e-4, epsilon_high=4e-4),
        kl=None,
        minibatches=4,
    ),
    "GRPO with one ratio a completion, the geometric mean of its tokens', clipped as a whole.",
    grpo,
    importance="Zheng et al. 2025 (arXiv 2507.18071, section 4.1): (π(y) / π_old(y))^(1/|y|)",
    loss="Zheng et al. 2025, section 5: 3e-4 and 4e-4; completions of ten tokens need far more, 0.05 to 0.2",
    aggregate="Zheng et al. 2025, equation 5: the mean over completions, each counted once",
    kl="Zheng et al. 2025, section 5: no KL term",
    minibatches="Zheng et al. 2025, section 5: four minibatches a round of sampling",
)

cispo = row(
    replace(
        grpo,
        name="cispo",
        loss=CISPO(cap=5.0),
        aggregate=PromptMean(),
        select=DropConstant(),
        kl=None,
        minibatches=16,
        sampling_rounds=10,
    ),
    "GRPO with the importance weight bounded instead of the update: no token loses its gradient.",
    grpo,
    loss="MiniMax-M1 (arXiv 2506.13585, section 3.1): only the upper bound matters; its value isn't given, 5 is ScaleRL's",
    aggregate="MiniMax-M1, equation 4: all tokens of a prompt's group alike",
    select="MiniMax-M1, section 3.1: dynamic sampling as in DAPO",
    sampling_rounds="MiniMax-M1, section 3.1: dynamic sampling as in DAPO; the cap of 10 rounds is ours",
    kl="MiniMax-M1, section 3.1: no KL term",
    minibatches="MiniMax-M1, section 3.1: 16 off-policy updates a round of sampling",
)

row(
    replace(
        cispo,
        name="scalerl",
        advantage=GroupMeanBatchStd(count_constant=False),
        minibatches=8,
        sampling_rounds=1,
    ),
    "ScaleRL as far as one machine goes: CISPO, prompt average, one std for the batch, constant groups dropped.",
    cispo,
    advantage="Khatri et al. 2025 (arXiv 2510.13786, section 3.2): minus the group's mean, over the batch's std",
    loss="Khatri et al. 2025, section 3.2: CISPO; caps of 4, 5 and 8 were alike",
    aggregate="Khatri et al. 2025, section 3.2: the prompt average did best",
    select="Khatri et al. 2025, section 3.2: zero-variance prompts are dropped; solved ones for good only in a pool, "
    "which no preset has: --pool 1000 --drop-solved 0.9",
    sampling_rounds="Khatri et al. 2025, section 3.2: dropped prompts aren't replaced",
    minibatches="Khatri et al. 2025, section 3.1: 8 steps off-policy; its stream of stale weights is one batch here",
)

clip_cov = row(
    replace(
        grpo, name="clip_cov", aggregate=TokenMean(), select=DropConstant(), focus=ClipCov(), kl=None, minibatches=8
    ),
    "GRPO that leaves out a few tokens whose update would cost most entropy.",
    grpo,
    focus="Cui et al. 2025 (arXiv 2505.22617, section 4): 2e-4 of the tokens, covariance between 1 and 5",
    aggregate="Cui et al. 2025's code (verl): the mean over a batch's tokens",
    select="Cui et al. 2025, section 2: prompts that are all right or all wrong are filtered",
    kl="Cui et al. 2025, section 2: no KL to a reference",
    minibatches="Cui et al. 2025, section 4: 8 updates a round of sampling",
)

row(
    replace(clip_cov, name="kl_cov", loss=Ratio(), focus=KLCov(share=2e-3, coef=1.0)),
    "GRPO without a clip that holds back the few tokens whose update would cost most entropy.",
    clip_cov,
    loss="Cui et al. 2025 (arXiv 2505.22617, section 4): the plain ratio for all tokens",
    focus="Cui et al. 2025, section 4: the top 2e-3 (for a 7B model) by covariance, coefficient 1",
)

row(
    replace(
        dapo,
        name="prorl",
        loss=Clip(epsilon=0.2, epsilon_high=0.4),
        aggregate=TokenMean(),
        kl=KL(0.001, K3()),
        restart=RestartOnStall(patience=5),
        minibatches=4,
        mask_truncated=False,
    ),
    "Prolonged RL: GRPO with a wide clip, dynamic sampling, a KL, and restarts of reference and optimizer.",
    dapo,
    loss="Liu et al. 2025 (arXiv 2505.24864, section 3): clip 0.2 below, 0.4 above",
    aggregate="DAPO's code, which it builds on: the mean over a batch's tokens",
    kl="Liu et al. 2025, section 3: a KL in the loss; its coefficient isn't in the text read, 0.001 is ours",
    restart="Liu et al. 2025, section 3: where validation stalls or falls, judged by eye; 5 evaluations is ours",
    minibatches="Liu et al. 2025, appendix: batch 256, minibatch 64",
)

row(
    Algorithm(
        "kimi",
        advantage=Center(),
        loss=MirrorDescent(tau=0.1),
        aggregate=SequenceMean(),
        importance=SequenceProduct(),
        restart=RestartEvery(steps=1),
        minibatches=4,
    ),
    "Kimi k1.5: a squared loss that pulls the whole completion's log-ratio towards its centred reward.",
    advantage="Kimi k1.5 (arXiv 2501.12599, section 2.3): the reward minus the mean of the prompt's samples",
    loss="Kimi k1.5, section 2.3: mirror descent's squared surrogate; τ isn't given, 0.1 is ours",
    importance="Kimi k1.5, section 2.3: log π/π_old of the whole completion",
    aggregate="Kimi k1.5, section 2.3: 1/k over samples, each counted once",
    restart="Kimi k1.5, section 2.3: every iteration a new reference and a fresh optimizer",
    minibatches="ours: without a second update the square is inert",
)

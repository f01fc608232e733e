"""Experiment 02: does training with rewards teach something new, or only pick out what the base could do already?

The models are those of experiment 01; nothing is trained here. Each answers every test problem 512 times, and its tree of
completions is walked, which gives pass@k for any k without sampling. Rules were written before the jobs ran.
"""

from collections.abc import Sequence

from rlvr.experiments import passk_rules as rules
from rlvr.experiments.base import Claim, Experiment, Job
from rlvr.experiments.passk_panels import answer, panels
from rlvr.experiments.passk_work import sample, tree
from rlvr.experiments.rl_vs_sft import RL_VS_SFT

__all__ = ["PASSK"]

SIZES = [12, 16]
SAMPLES, FEW_SAMPLES = 512, 128
PER_HOP, FEW_PER_HOP = 50, 10
# Chosen by cost on one base: prefixes walked grow tenfold for each factor ten of tolerance.
REACH, SHORT_REACH = {"tolerance": 1e-5, "width": 512}, {"tolerance": 1e-3, "width": 128}


def jobs(experiment: Experiment) -> Sequence[Job]:
    """For every model and seed of experiment 01 the samples and the tree."""
    sizes = {"sizes": SIZES, "per_hop": FEW_PER_HOP if experiment.quick else PER_HOP}
    reach = SHORT_REACH if experiment.quick else REACH
    samples = FEW_SAMPLES if experiment.quick else SAMPLES
    found = []
    for seed in experiment.seeds:
        for arm in rules.ARMS:
            model = {"arm": arm, "seed": seed, **sizes}
            found.append(Job(f"samples-{arm}-s{seed}", sample, model | {"samples": samples}))
            found.append(Job(f"tree-{arm}-s{seed}", tree, model | reach))
    return found


CLAIMS = (
    Claim(
        "expands-in-distribution",
        "On n = 12 reward training solves what the base never does.",
        "base never solved 107 of 200; after training 0; GRPO pass@1 99.6 %, base 29.4 %",
        "Of the problems that the base never solved in 512 samples, the share that GRPO solves at least once, by seed: "
        "interval above 90 % (over the problems of all seeds where the seeds agree). A seed whose base left fewer than "
        "five is left out.",
        rules.expands,
    ),
    Claim(
        "crossing-ood",
        "On n = 16 GRPO's curve is flat and SFT's climbs: equal at k = 1, apart at large k.",
        "GRPO 35.3 -> 49.5 %; SFT 35.0 -> 58.0 %",
        "Gain from k = 1 to 512 of SFT minus that of GRPO, paired by seed: interval above 0, while their gap at k = 1 "
        "contains 0.",
        rules.crossing_ood,
    ),
    Claim(
        "base-still-rising",
        "The base's pass@k on n = 16 is still accelerating at k = 512.",
        "pass@512 17.0 %; +1.4, 1.7, 3.1, 5.1 points per 4x k",
        "pass@512 - pass@128 minus pass@128 - pass@32, by seed: interval above 0.",
        rules.base_rising,
    ),
    Claim(
        "lost-and-gained",
        "Expansion and narrowing happen at once.",
        "n = 16: 14 problems lost, 79 gained",
        "Problems of n = 16 solved in 512 samples of the base and none of GRPO (lost), and the reverse (gained): the "
        "intervals of both counts above 0; differs when one is 0 in all seeds.",
        rules.lost_and_gained,
    ),
    Claim(
        "diversity",
        "Learning only from own successes narrows answers most.",
        "distinct answers of 512: base 2.96, SFT 2.65, GRPO 2.01, RFT 1.44",
        "Distinct answers on n = 16, RFT minus SFT and RFT minus GRPO, paired by seed: both intervals below 0; differs "
        "when one is above 0.",
        rules.least_diverse,
    ),
    Claim(
        "entropy-collapse",
        "Token entropy falls with training.",
        "0.136 base; 0.026 SFT, 0.040 GRPO, 0.019 RFT",
        "Nats a token on n = 16, each method minus its base, paired by seed: all intervals below 0; differs when one is "
        "above 0.",
        rules.entropy_collapse,
    ),
    Claim(
        "not-just-sharpening",
        "The gain on n = 12 is not sharpening: the base's greedy and sampled accuracies already agree.",
        "29.5 vs 29.4 %",
        "Greedy minus sampled accuracy of the base: interval within 5 points of 0; differs when all of it is outside.",
        rules.not_sharpening,
    ),
    Claim(
        "ex5-large-k",
        "To see whether base and GRPO cross one needs k of 10⁴ to 10⁵.",
        "20 million samples, about 2 hours at 2,800 samples/s",
        "On n = 16, between the first k at which the base's exact curve may have reached GRPO's and the first at which "
        "it surely has: holds when this lies within 10^3.5 and 10^5.5 in all of at least three seeds, differs when in "
        "none of them.",
        rules.large_k,
    ),
    Claim(
        "large-k-is-luck",
        "At large k the base's pass@k counts lucky guesses: right answers after wrong chains.",
        "not in the lecture",
        "On n = 16 at k = 10^4, the lower bound on the base's pass@k minus that of right answers after the true chain, by "
        "seed: interval above 5 points. (Written when the base's own curve was known, not the share of true chains in it; "
        "that share was first bounded from the tree, which left it open, and is now computed exactly.)",
        rules.lucky_guesses,
    ),
)

PASSK = Experiment(
    name="passk",
    title="Does reward training teach something new?",
    question=(
        "A model after reward training is better at the first try. But give its base many tries: does it get there too? "
        "Then training only picked out what was there. Here is pass@k, the share of problems solved within k tries, for "
        "the base and three trained models, up to a million tries."
    ),
    setup=(
        "The base, SFT, RFT and GRPO models of experiment 01, all seeds; 200 test problems each of n = 12 (the longest "
        "of training) and n = 16 (never trained); 512 samples a problem at temperature 1, with the same random numbers "
        "for all models. The exact curves come from walking each problem's tree of completions until all but 0.00001 of "
        "its probability is known, with at most 512 prefixes a level."
    ),
    uses=(RL_VS_SFT,),
    jobs=jobs,
    claims=CLAIMS,
    panels=panels,
    answer=answer,
    sizes=(12, 16),
    curve_sizes=(12, 16),
)

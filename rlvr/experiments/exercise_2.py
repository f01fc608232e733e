"""Exercise 2 with seeds enough: is the negative half of GRPO's signal needed beyond the lengths that it trains on?

Three seeds can't tell (experiment ``exercises``). Its power analysis asked for 5 seeds to find a difference of five points from
GRPO, and for 26 from RFT; sixteen is what ten minutes on two cores hold. Rules were written before the runs.
"""

from dataclasses import replace

import numpy as np

from rlvr.experiments.base import Claim, Experiment, Finding, Results, judge, over, percent
from rlvr.experiments.exercises import ARMS as EXERCISED
from rlvr.experiments.exercises_rules import outside, power_table
from rlvr.experiments.panels import Lines, Panel, Series
from rlvr.experiments.rl_vs_sft import ARMS as METHODS
from rlvr.lab.pretrain import BASES
from rlvr.stats import Interval

__all__ = ["EXERCISE_2"]

SEEDS = tuple(range(16))
# Looked at once, at the end: everything along the way would cost a third of the run.
ARMS = {
    name: replace(recipe, eval_every=0, record=(0, recipe.steps - 1))
    for name, recipe in (METHODS | {"positive_only": EXERCISED["positive_only"]}).items()
    if name != "sft"
}
NEIGHBOURS = ("grpo", "rft")


def gaps(results: Results) -> dict[str, np.ndarray]:
    """Positive-only minus each neighbour, a number a seed."""
    mine = outside(results, "positive_only")
    return {arm: mine - outside(results, arm) for arm in NEIGHBOURS}


def below_grpo(results: Results) -> Finding:
    """Whether GRPO without its negative half ends below GRPO."""
    gap = over(gaps(results)["grpo"])
    words = (
        f"positive-only {_level(results, 'positive_only')}, GRPO {_level(results, 'grpo')}; paired gap {percent(gap)}"
    )
    verdict = judge(gap.lo, gap.hi, below=0.0)
    why = "What pushes towards the right answers alone reaches further here." if verdict == "differs" else ""
    return Finding(gap.value, gap.lo, gap.hi, gap.n, words, verdict, why)


def above_rft(results: Results) -> Finding:
    """Whether it ends above RFT, which imitates own successes and doesn't weigh them by their rarity."""
    gap = over(gaps(results)["rft"])
    words = f"positive-only {_level(results, 'positive_only')}, RFT {_level(results, 'rft')}; paired gap {percent(gap)}"
    verdict = judge(gap.lo, gap.hi, above=0.0)
    why = "Weighing successes by their rarity did not help beyond imitating them here." if verdict == "differs" else ""
    return Finding(gap.value, gap.lo, gap.hi, gap.n, words, verdict, why)


def _level(results: Results, arm: str) -> str:
    return percent(over(outside(results, arm), 0, 1))


def answer(results: Results) -> str:
    """What the seeds say, in one sentence."""
    found = {arm: over(gap) for arm, gap in gaps(results).items()}
    told = [arm.upper() for arm, gap in found.items() if gap.lo > 0 or gap.hi < 0]
    verdict = f"It can be told from {' and '.join(told)}." if told else "That tells it from neither."
    ends = " and ".join(f"{_points(gap)} {arm.upper()}" for arm, gap in found.items())
    return (
        f"Over {len(results.seeds)} seeds, GRPO without its negative half ends {ends} on prompts longer than any trained ones "
        f"(mean of n = 14 and 16). {verdict}"
    )


def _points(gap: Interval) -> str:
    span = f" [{100 * gap.lo:.1f}, {100 * gap.hi:.1f}]" if np.isfinite([gap.lo, gap.hi]).all() else ""
    return f"{100 * gap.value:+.1f} points{span} from"


def panels(results: Results) -> list[Panel]:
    """How the difference narrows with every seed, and what is still too small to be seen."""
    found = gaps(results)
    lines = [_narrowing(arm, gap) for arm, gap in found.items() if len(gap) >= 3]
    return [
        Lines(
            "narrowing",
            "What would fewer seeds have said?",
            "Positive-only minus GRPO, and minus RFT, over the first seeds only: the mean and its 95 % interval.",
            lines,
            "seeds",
            "difference, mean of n = 14 and 16",
            marks=((3.0, "as in the lecture"),),
        ),
        power_table(found),
    ]


def _narrowing(arm: str, gap: np.ndarray) -> Series:
    counts = list(range(3, len(gap) + 1))
    first = [over(gap[:count]) for count in counts]
    sides = {"lo": [each.lo for each in first], "hi": [each.hi for each in first]}
    return Series(f"minus {arm.upper()}", counts, [each.value for each in first], arm=arm, **sides)


EXERCISE_2 = Experiment(
    name="exercise_2",
    title="Does RL need its negative signal? Sixteen seeds",
    question=(
        "Three seeds could not tell whether GRPO loses anything when it only pushes towards right answers. With as many seeds "
        "as ten minutes hold: does it end below GRPO, and above learning from its own successes (RFT)?"
    ),
    setup=(
        "The base, recipes and test problems of experiment 01, base and runs made anew for each of sixteen seeds; the "
        "first three are those of the exercises. Positive-only is GRPO with advantages clamped at 0."
    ),
    bases={"cot_L2": BASES["cot_L2"]},
    arms=ARMS,
    seeds=SEEDS,
    samples=1,
    claims=(
        Claim(
            "ex2-needs-negatives",
            "Without its negative advantages GRPO ends lower on prompts longer than any trained ones.",
            "n = 14 / 16: 52.8 / 23.2 %, GRPO 62.3 / 26.8 %; three seeds can't tell",
            "Positive-only minus GRPO, mean of n = 14 and 16, paired by seed, sixteen seeds: interval below 0.",
            below_grpo,
        ),
        Claim(
            "ex2-above-rft",
            "It still ends above RFT, which learns from the same right answers.",
            "n = 14 / 16: 52.8 / 23.2 %, RFT 50.2 / 14.2 %; three seeds can't tell",
            "Positive-only minus RFT, mean of n = 14 and 16, paired by seed, sixteen seeds: interval above 0.",
            above_rft,
        ),
    ),
    panels=panels,
    answer=answer,
    notes=(
        "The rules were written before these runs, when the outcome of the first three of the sixteen seeds was known.",
    ),
)

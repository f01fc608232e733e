"""The learning-rate search behind experiment 01: the same grid, budget, seeds and dev problems for every method.

Its base seeds and problems are not those that experiment 01 reports on. It also judges the lecture's warning that the
learning rate moves out-of-distribution results as much as the method does.
"""

from dataclasses import replace

import numpy as np

from rlvr.experiments.base import Claim, Experiment, Finding, Results, judge, over, percent
from rlvr.experiments.rl_vs_sft import ARMS as METHODS
from rlvr.lab.pretrain import BASES

__all__ = ["LR_SEARCH", "RATES"]

RATES = (1e-4, 3e-4, 1e-3)
ARMS = {
    f"{method}-{rate:g}": replace(recipe, learning_rate=rate, eval_every=300, record=())
    for method, recipe in METHODS.items()
    for rate in RATES
}


def lr_as_big(results: Results) -> Finding:
    """Spread over rates (best method's range) against spread over methods (each at its own best n = 12 rate), on n = 14."""
    table = {arm: results.accuracy(arm, "n14").mean(1) for arm in ARMS}
    tuned = {method: table[f"{method}-{best_rate(results, method):g}"] for method in METHODS}
    by_rate = np.array([np.ptp([table[f"grpo-{rate:g}"][s] for rate in RATES]) for s in range(len(results.seeds))])
    by_method = np.array([np.ptp([tuned[method][s] for method in METHODS]) for s in range(len(results.seeds))])
    gap = over(by_rate - by_method)
    words = f"n = 14: range over GRPO's rates {percent(over(by_rate))}, over tuned methods {percent(over(by_method))}"
    return Finding(gap.value, gap.lo, gap.hi, gap.n, words, judge(gap.lo, gap.hi, above=0.0))


def best_rate(results: Results, method: str) -> float:
    """The rate with the best mean greedy accuracy on dev n = 12; of equals the smaller one."""
    return max(RATES, key=lambda rate: (results.accuracy(f"{method}-{rate:g}", "n12").mean(), -rate))


def rates_chosen(results: Results) -> Finding:
    """Whether experiment 01 uses what this search finds: the number of methods whose rate there is the best one here."""
    best = {method: best_rate(results, method) for method in METHODS}
    agree = sum(best[method] == METHODS[method].learning_rate for method in METHODS)
    words = ", ".join(f"{method} {rate:g} (there {METHODS[method].learning_rate:g})" for method, rate in best.items())
    verdict = "undecided" if len(results.seeds) < 3 else "holds" if agree == len(METHODS) else "differs"
    return Finding(agree, agree, agree, len(METHODS), f"best: {words}", verdict)


def answer(results: Results) -> str:
    """Each method's best rate, in plain words."""
    best = ", ".join(f"{method.upper()} {best_rate(results, method):g}" for method in METHODS)
    return f"Best on the longest prompts of training (n = 12), of equals the smaller: {best}."


LR_SEARCH = Experiment(
    name="lr_search",
    title="Which learning rate does each method get?",
    question="Every method gets the same three learning rates, steps, seeds and problems; which one is best for each?",
    setup="As experiment 01, on other base seeds and other problems (dev).",
    bases={"cot_L2": BASES["cot_L2"]},
    arms=ARMS,
    answer=answer,
    claims=(
        Claim(
            "rates-chosen",
            "Every method's learning rate in experiment 01 is the best that this search finds.",
            "not in the lecture",
            "Best mean greedy accuracy on dev n = 12, of equals the smaller rate, is the rate that experiment 01 uses, for all "
            "methods and with at least three seeds.",
            rates_chosen,
        ),
        Claim(
            "lr-as-big",
            "The learning rate moves out-of-distribution results as much as the method does.",
            "GRPO n = 14: 50-58 % at 3e-4, 68-72 % at 1e-3",
            "Range of GRPO's n = 14 accuracy over rates minus the range over tuned methods, by seed: interval above 0.",
            lr_as_big,
        ),
    ),
    sizes=(8, 12, 14, 16),
    curve_sizes=(8, 12, 14, 16),
    seeds=(100, 101, 102),
    samples=1,
    split="dev",
)

"""Every preset on the same problems with the same draws and the same number of steps: what each does in its first 150.

Nothing is tuned here, on purpose: one learning rate for all. What an algorithm can do at its own best setting is another
question.
"""

import numpy as np

from rlvr.algo import PRESETS
from rlvr.experiments.base import Claim, Experiment, Finding, Results, over, percent
from rlvr.lab.pretrain import BASES
from rlvr.lab.recipe import Recipe

__all__ = ["ZOO"]

STEPS = 150
ARMS = {
    name: Recipe(
        preset=name,
        difficulty={"n": (4, 12), "k": (1, 7)},
        steps=STEPS,
        learning_rate=3e-4,
        schedule="cosine",
        warmup_steps=10,
        eval_every=15,
        checkpoint_every=75,
        record=(0, STEPS - 1),
    )
    for name in PRESETS
}


def all_learn(results: Results) -> Finding:
    """Which presets end above the base on n = 12, seed by seed."""
    before = results.accuracy("base", "n12").mean(1)
    gains = {arm: over(results.accuracy(arm, "n12").mean(1) - before, -1, 1) for arm in ARMS}
    sure = [arm for arm, gain in gains.items() if gain.lo > 0]
    worse = [arm for arm, gain in gains.items() if gain.hi < 0]
    best, worst = max(gains, key=lambda arm: gains[arm].value), min(gains, key=lambda arm: gains[arm].value)
    words = f"{len(sure)} of {len(gains)} surely above the base, {len(worse)} surely below"
    words += f"; gains from {worst} {percent(gains[worst])} to {best} {percent(gains[best])}"
    verdict = "differs" if worse else "holds" if len(sure) == len(gains) else "undecided"
    low = gains[worst]
    return Finding(low.value, low.lo, low.hi, low.n, words, verdict)


def samples_differ(results: Results) -> Finding:
    """What dynamic sampling costs: DAPO's samples over GRPO's, for the same number of steps."""
    spent = {arm: results.metrics(arm, "samples")[:, -1] for arm in ("dapo", "grpo")}
    ratio = over(np.divide(spent["dapo"], spent["grpo"]), 0)
    verdict = (
        "undecided"
        if not np.isfinite(ratio.lo)
        else "holds"
        if ratio.lo > 2
        else "differs"
        if ratio.hi < 2
        else "undecided"
    )
    words = f"{ratio.value:.1f} [{ratio.lo:.1f}, {ratio.hi:.1f}] times the samples of GRPO"
    return Finding(ratio.value, ratio.lo, ratio.hi, ratio.n, words, verdict)


ZOO = Experiment(
    name="zoo",
    title="Every algorithm, the same 150 steps",
    question="What does each preset do to the base with the same prompts, the same random draws and one learning rate for all?",
    setup=(
        "The base, problems and evaluation of experiment 01. Every preset takes 150 steps of 32 prompts and 8 samples at 3e-4 "
        "(cosine, warm-up 10). Presets differ in how many samples and optimizer steps they make of that: see the budget."
    ),
    bases={"cot_L2": BASES["cot_L2"]},
    arms=ARMS,
    claims=(
        Claim(
            "zoo-learns",
            "Every algorithm improves the base on n = 12 within 150 steps.",
            "not in the lecture",
            "Gain on n = 12 paired by seed: holds when every preset's interval lies above 0, differs when one lies below.",
            all_learn,
        ),
        Claim(
            "dapo-samples",
            "Dynamic sampling multiplies the samples of a step.",
            "3-6 times (Yue et al. 2025)",
            "DAPO's samples over GRPO's after as many steps, by seed: interval above 2.",
            samples_differ,
        ),
    ),
    sizes=(8, 12, 14, 16),
    curve_sizes=(8, 12, 14, 16),
)

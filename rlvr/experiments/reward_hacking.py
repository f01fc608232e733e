"""Experiment 04: what happens when the reward is a model? A verifier that is nearly always right, and an optimizer that looks
for where it isn't.

Verifiers are trained on the base's own completions and then pay GRPO in place of the truth. Rules were written before the runs.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rlvr.experiments import reward_hacking_rules as rules
from rlvr.experiments.base import Claim, Experiment, Job
from rlvr.experiments.reward_hacking_panels import answer, panels
from rlvr.experiments.reward_hacking_work import overoptimise, study, verifier
from rlvr.lab.pretrain import BASES
from rlvr.lab.recipe import Recipe
from rlvr.lab.verifier import VerifierRecipe

__all__ = ["ARMS", "REWARD_HACKING"]

STEPS = 80
STOPS = (2, 5, 8, 12, 18, 30)
COMMON = Recipe(
    preset="grpo_lecture",
    difficulty={"n": (4, 12), "k": (1, 7)},
    steps=STEPS,
    learning_rate=3e-4,
    eval_every=10,
    checkpoint_every=40,
    record=(0, 1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, STEPS - 1),
)
MEMBERS = tuple(f"../{name}-s{{seed}}" for name in ("orm_verifier", "orm_second", "orm_third"))
# Chosen on dev problems and base seeds 100 and 101, before the runs that are reported: see the laboratory log.
BETA = 1.0
OFTEN, SELDOM = "refresh_every=1, labels=64, refresh_steps=4", "refresh_every=10, labels=64, refresh_steps=20"


def _paid(by: str, **overrides: Any) -> Recipe:
    return replace(COMMON, rewards={by: 1.0}, overrides=overrides)


def _by(path: str | tuple[str, ...], *more: str) -> str:
    return f"verifier({', '.join((f'path={path!r}', *more))})"


ORM, PRM, GATE = "../orm_verifier-s{seed}", "../prm_verifier-s{seed}", "gate=True"
ARMS = {
    "true": _paid("correct"),
    "orm": _paid(_by(ORM)),
    "orm_gate": _paid(_by(ORM, GATE)),
    "orm_kl": _paid(_by(ORM, GATE), **{"kl": "KL", "kl.coef": BETA}),
    "prm": _paid(_by(PRM)),
    "prm_gate": _paid(_by(PRM, GATE)),
    "random": _paid("random"),
    "ensemble_mean": _paid(_by(MEMBERS, GATE)),
    "ensemble_min": _paid(_by(MEMBERS, GATE, "combine='min'")),
    "ensemble_var": _paid(_by(MEMBERS, GATE, "combine='variance'")),
    "refresh_seldom": _paid(_by(ORM, GATE, SELDOM)),
    "refresh_often": _paid(_by(ORM, GATE, OFTEN)),
    "mirror": replace(
        _paid(_by("../mirror_verifier-s{seed}", GATE)), steps=31, record=COMMON.record[:11], eval_every=0
    ),
}
ORM_NEEDS, PRM_NEEDS = ("orm_verifier-s{seed}",), ("prm_verifier-s{seed}",)
ALL_MEMBERS = tuple(path.removeprefix("../") for path in MEMBERS)
AFTER = {
    **dict.fromkeys(("orm", "orm_gate", "orm_kl", "refresh_seldom", "refresh_often"), ORM_NEEDS),
    **dict.fromkeys(("prm", "prm_gate"), PRM_NEEDS),
    **dict.fromkeys(("ensemble_mean", "ensemble_min", "ensemble_var"), ALL_MEMBERS),
    "mirror": ("mirror_verifier-s{seed}",),
}


def _jobs(experiment: Experiment) -> Sequence[Job]:
    """Five verifiers a seed, then the study of its arms and the exact over-optimisation curve."""
    seeds, found = list(experiment.seeds), []
    for place, seed in enumerate(seeds):
        # The ensemble's members differ in pretraining where there are other bases, and in the samples that they learned from.
        second, third = (seeds[(place + shift) % len(seeds)] for shift in (1, 2))
        how = VerifierRecipe(seed=seed)
        found += [
            _verifier(f"orm_verifier-s{seed}", how, seed),
            _verifier(f"prm_verifier-s{seed}", replace(how, kind="prm", aggregate="min"), seed),
            _verifier(f"orm_second-s{seed}", replace(how, seed=seed + 1000), seed, second),
            _verifier(f"orm_third-s{seed}", replace(how, seed=seed + 2000), seed, third),
            _verifier(f"mirror_verifier-s{seed}", how, seed, mirror=True),
        ]
        arms = [arm for arm in experiment.arms if seed in experiment.arm_seeds(arm)]
        runs = tuple(f"{arm}-s{seed}" for arm in arms)
        judges = ["orm_verifier", "prm_verifier", "mirror_verifier"]
        settings = {"seed": seed, "arms": arms, "verifiers": judges}
        found.append(Job(f"study-s{seed}", study, settings, (*runs, *(f"{judge}-s{seed}" for judge in judges))))
        recipe = replace(COMMON, rewards={_by(f"../../orm_verifier-s{seed}"): 1.0}, record=(), eval_every=0)
        settings = {"seed": seed, "stops": STOPS, "recipe": recipe.to_json(), "per_hop": 15, "width": 128}
        settings |= {"tolerance": 1e-3, "best_of": [2**power for power in range(13)], "draws": 20}
        found.append(Job(f"overoptimise-s{seed}", overoptimise, settings, (f"base-s{seed}", f"orm_verifier-s{seed}")))
    return found


def _verifier(name: str, how: VerifierRecipe, seed: int, body: int | None = None, mirror: bool = False) -> Job:
    runs = (f"base-s{seed}", f"base-s{seed if body is None else body}")
    settings = {"how": asdict(how), "base": runs[0], "body": runs[1], "mirror": mirror}
    return Job(name, verifier, settings, tuple(dict.fromkeys(runs)))


CLAIMS = (
    Claim(
        "orm-hacked",
        "With an outcome verifier as reward the training reward goes to its maximum and the truth to nothing.",
        "reward 100 % within 50 steps, truth 84 % -> 0 %",
        "Reward minus accuracy of the training samples over the last ten steps: interval above 50 points; differs as "
        "well when the interval of the accuracy lies above 30 %.",
        rules.orm_hacked,
    ),
    Claim(
        "hack-moves",
        "A format gate moves the hole, it does not close it.",
        "afbd|d$, then k|k$; 179 of 200 wrong at the first hop",
        "With the gate: reward minus accuracy over the last ten steps above 50 points, and of the wrong completions "
        "that are paid more than 1/2 at the end at least 90 % have the form in every seed.",
        rules.hack_moves,
    ),
    Claim(
        "prm-hacked",
        "A verifier of every step is hacked as well.",
        "l|l$ scores 1.000",
        "As orm-hacked, for the process verifier.",
        rules.prm_hacked,
    ),
    Claim(
        "blind-spot",
        "The hole lies where the verifier saw no data.",
        "early stops are near 0 in its training data",
        "At the first recorded step where 20 % of completions are hacks (wrong and paid more than 1/2) with the "
        "gate: where most hacks lie (early stop, run-on, right length), the share of the verifier's training "
        "examples that are wrong and lie there: interval below 2 %.",
        rules.blind_spot,
    ),
    Claim(
        "hacked-opposite",
        "The hole lies opposite to the failures the verifier saw: early stops where it knew run-ons, or the reverse.",
        "not in the lecture (its explanation, put to the test)",
        "Share of run-ons among early stops and run-ons that are hacks at the first hack (gate on): verifier whose run-on "
        "examples were turned into equally early stops minus the verifier as it was, paired by seed: interval above 0.5.",
        rules.hacked_opposite,
    ),
    Claim(
        "kl-mitigates",
        "A KL penalty on leaving the base mitigates, at a cost.",
        "the lecture's table is lost",
        "Accuracy over the last ten steps, with gate and KL minus with the gate alone: interval above 0. The cost is "
        "what is missing to the true reward.",
        rules.kl_mitigates,
    ),
    Claim(
        "random-reward-harms",
        "A coin flip is not a harmless reward here.",
        "84 % -> 9 %",
        "Accuracy over the last ten steps minus that of the first step: interval below -20 points.",
        rules.random_harms,
    ),
    Claim(
        "refresh-reward-model",
        "Retraining the verifier on the policy's own new samples closes the holes if it is done often enough.",
        "design asked, no number (exercise 7)",
        "Refreshed every step: accuracy over the last ten steps minus that of the first step: interval above -10 points; "
        "differs when it lies below.",
        rules.refresh_holds,
    ),
    Claim(
        "ensemble-shares-the-hole",
        "The worst case of three verifiers trained on the same policy's samples is hacked too: they share the blind spot.",
        "not in the lecture (Coste et al. 2023 found ensembles to help)",
        "Reward minus accuracy over the last ten steps, worst case of three: interval above 50 points.",
        rules.ensemble_hacked,
    ),
    Claim(
        "rl-over-optimises",
        "Best-of-n against the same verifier is a far weaker optimizer than RL: it does not fall off.",
        "best-of-N meets the hole by chance, RL looks for it",
        "Exact accuracy on n = 12 of best-of-4096 from the base minus that of RL after 30 steps: interval above 10 points.",
        rules.rl_over_optimises,
    ),
    Claim(
        "alarm-fires",
        "The divergence alarm goes off in every hacked run and never where the truth is paid.",
        "not in the lecture",
        "In all of orm, orm_gate, prm and prm_gate, all seeds, and in no run of the true reward.",
        rules.alarm_fires,
    ),
    Claim(
        "early-stopping",
        "Looking at 40 labelled problems every ten steps and keeping the best policy saves what hacking destroys.",
        "not in the lecture",
        "orm_gate on the other 160 problems of n = 12, greedy: the policy kept minus the last one: interval above 0.",
        rules.early_stopping,
    ),
)


REWARD_HACKING = Experiment(
    name="reward_hacking",
    title="When the reward is a model",
    question="A verifier judges nearly all of the base's own answers rightly. What does RL make of the rest?",
    setup=(
        "From the base of experiment 01, GRPO with 32 prompts x 8 samples at 3e-4 on n = 4-12; only the reward "
        "differs. Verifiers start from the base's body and learn from 12,000 of its own completions: one judges "
        "whole texts (ORM), one every step (PRM, the worst step counts). Accuracy is always the task's verdict, "
        "which no reward can touch."
    ),
    bases={"cot_L2": BASES["cot_L2"]},
    arms=ARMS,
    after=AFTER,
    jobs=_jobs,
    claims=CLAIMS,
    sizes=(8, 12),
    curve_sizes=(12,),
    samples=8,
    panels=panels,
    answer=answer,
)

"""Experiment 03: does reinforcement learning create long chains, or does it select a habit that the base already has?

Bases whose skill (looking up) and habit (writing the chain down) were set apart, GRPO that pays for right answers only, and
what happens to the length of what is written. Rules were written before the runs.
"""

from rlvr.experiments import thinking_rules as rules
from rlvr.experiments.base import Claim, Experiment, Job
from rlvr.experiments.thinking_panels import answer, panels
from rlvr.experiments.thinking_work import habit
from rlvr.lab.pretrain import BASES
from rlvr.lab.recipe import Recipe

__all__ = ["ARMS", "THINKING"]

STEPS = 300
RECORD = (0, 10, 25, 50, 100, 200, STEPS - 1)
COMMON = {
    "preset": "grpo_lecture",
    "difficulty": {"n": (4, 8), "k": (1, 7)},
    "steps": STEPS,
    "learning_rate": 3e-4,
    "checkpoint_every": 100,
    "record": RECORD,
}
# Letters if any, a bar, one answer, the end sign; written in brackets because a reward's name is read as a Python literal.
GATE = "format_gate(pattern='[a-z]*[|][a-z][$]')"
PLAIN = {"advantage": "Center"}
FAST = {"learning_rate": 1e-3}
HUNDREDTH = {"correct": 1.0, "length": 0.01}
PRICED = {"overrides": PLAIN, **COMMON}
ARMS = {
    "think10": Recipe(base="think10", **COMMON),
    "think2": Recipe(base="think2", **COMMON),
    "think0": Recipe(base="think0", **COMMON | {"steps": 400}),  # some wait for long
    "noskill": Recipe(base="noskill", **COMMON),
    "think2_gate": Recipe(base="think2", rewards={GATE: 1.0}, **COMMON),
    # Below what a chain brings on average, so that it pays to tell problems apart; that takes longer than to think at all.
    "price_0.15": Recipe(base="think10", rewards={"correct": 1.0, "length": 0.15}, **PRICED | {"steps": 2 * STEPS}),
    "price_0.2": Recipe(base="think10", rewards={"correct": 1.0, "length": 0.2}, **PRICED),
    "price_0.3": Recipe(base="think10", rewards={"correct": 1.0, "length": 0.3}, **PRICED),
    # At 3e-4 noskill never writes anything of another length, so there is no difference to amplify: the lecture's own rate.
    "noskill_std": Recipe(base="noskill", rewards=HUNDREDTH, **COMMON | FAST),
    "noskill_no_std": Recipe(base="noskill", rewards=HUNDREDTH, **PRICED | FAST),
}

CLAIMS = (
    Claim(
        "base-habit",
        "think2 writes a chain in about 2 % of its completions, think0 practically never.",
        "1.9 % and 0 of 4480",
        "Exact probability of beginning with a letter, on problems like the base's own: think2 between 0.5 and 5 %, think0 "
        "below 0.2 % and below a tenth of think2's, think10 above think2, in each of at least three base seeds.",
        rules.base_habit,
    ),
    Claim(
        "direct-fails",
        "Without a chain, two hops or more are nearly always wrong.",
        "one hop per forward pass",
        "think2's exact share of right answers among direct ones for k >= 2 on n = 8: interval over base seeds below 25 %.",
        rules.direct_fails,
    ),
    Claim(
        "rl-selects",
        "Paid for right answers only, think10, think2 and think0 end with chains everywhere, right and exactly long enough.",
        "length about 3 -> about 7",
        "On n = 8, sampled, at the end: share that thinks and accuracy above 90 %, and letters before the bar within 0.25 of k "
        "on average; every interval over seeds, for all three.",
        rules.rl_selects,
    ),
    Claim(
        "no-skill-no-gain",
        "From noskill, reward finds nothing.",
        "10-14 % throughout; letters in 5 % of responses at step 284",
        "Accuracy of the last 25 steps minus the first 25: interval below 5 points.",
        rules.no_skill_no_gain,
    ),
    Claim(
        "aha-is-chance",
        "The wait until 5 % of completions think is short and stable with a habit, long and random without.",
        "think10 5, think2 10; think0 differs by nearly 90 steps over 3 seeds, then 5 % -> 95 % in a dozen steps",
        "Mean wait of think0 minus think2's above 0 (Welch), and variance of think0's waits over think2's beyond the 97.5 % "
        "point of F.",
        rules.aha_is_chance,
    ),
    Claim(
        "aha-predicted",
        "think0's waits are what its base's exact probability of a useful chain predicts.",
        "not in the lecture",
        "Observed wait over the mean of the model (thinking_model.py, its one constant fitted on other seeds): interval "
        "between 1/2 and 2.",
        rules.aha_predicted,
    ),
    Claim(
        "unchecked-drifts",
        "What the reward does not check drifts: think2 stops ending its answer.",
        "length 7 -> about 12 at step 300, oj|j|j|j|",
        "Characters after the answer in the last 25 steps of think2: interval above 1.",
        rules.unchecked_drifts,
    ),
    Claim(
        "format-check-holds",
        "A format check removes the drift.",
        "7.0, 7.0, 6.95, 7.0 at steps 25, 100, 200, 300; 98 %",
        "With the gate, characters beyond the needed ones in the last 25 steps: interval below 0.25; accuracy on n = 8 above "
        "90 %.",
        rules.format_check_holds,
    ),
    Claim(
        "length-penalty-hardest-first",
        "A price on length makes the policy give up the longest problems first, and the mean hides it; a higher one ends all "
        "thinking.",
        "lambda 0.2: k <= 5 as usual, k = 6, 7 stop after 1-3 hops, mean about 77 %; lambda 0.3: gives up everywhere",
        "At 0.15: accuracy for k <= 5 above that for k = 6, 7 by 30 points and mean accuracy above 50 %; at 0.3: less than 5 % "
        "think. All intervals over seeds. (0.15 was chosen on other seeds: here a direct answer is right at k = 1, so a chain "
        "brings less on average than in the lecture.)",
        rules.length_penalty_hardest_first,
    ),
    Claim(
        "length-penalty-same-price",
        "It does so at the lecture's own price, 0.2 a character.",
        "lambda 0.2: k <= 5 as usual, k = 6, 7 stop after 1-3 hops, mean about 77 %",
        "At 0.2: accuracy for k <= 5 above that for k = 6, 7 by 30 points and mean accuracy above 50 %, intervals over seeds.",
        rules.length_penalty_same_price,
    ),
    Claim(
        "std-amplifies",
        "A price of 0.01 a character, divided by the group's std, collapses noskill to the end sign; undivided it does not.",
        "collapse at step 100; [0, 0, .01, 0]: 0.0075 -> 1.47",
        "Length in the last 25 steps, undivided minus divided: interval above 1, and accuracy where divided below 5 %.",
        rules.std_amplifies,
    ),
)


def jobs(experiment: Experiment) -> list[Job]:
    """The exact habit of each base."""
    settings = {"difficulty": COMMON["difficulty"], "problems": 280, "hops": list(experiment.hops)}
    found = []
    for base in experiment.bases:
        for seed in experiment.seeds_of_bases():
            run = f"{experiment.base_arm(base)}-s{seed}"
            found.append(Job(f"habit-{base}-s{seed}", habit, settings | {"run": run}, (run,)))
    return found


THINKING = Experiment(
    name="thinking",
    title="Where do long chains of thought come from?",
    question=(
        "Answers get longer and better under reinforcement learning, and one day the model begins to think. Did the reward "
        "create that, or did it select a habit that the base had already? And when does it happen?"
    ),
    setup=(
        "Bases whose skill and habit were set apart: 2000 steps with chains in half of the demonstrations teach looking up, "
        "500 more with chains in 10, 2 or 0 % of them set how often one is written (think10, think2, think0); noskill never "
        "saw one. GRPO on n = 4-8, k = 1-7, 32 prompts x 8 samples, pays for right answers only, but where it says otherwise. "
        "Three bases of each kind, three seeds an arm, ten for think0. Tested on n = 8, k = 1-7, 40 problems each, 16 samples."
    ),
    bases={name: BASES[name] for name in ("think_stage1", "think10", "think2", "think0", "noskill")},
    arms=ARMS,
    claims=CLAIMS,
    sizes=(8,),
    curve_sizes=(8,),
    hops=(1, 2, 3, 4, 5, 6, 7),
    problems_per_hop=40,
    samples=16,
    seeds_of={"think0": tuple(range(10))},
    base_seeds=rules.BASE_SEEDS,
    jobs=jobs,
    panels=panels,
    answer=answer,
)

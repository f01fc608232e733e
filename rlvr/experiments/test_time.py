"""What test-time compute can do about a systematic error: vote, pick with a verifier, search; and what training does instead.

Nothing is trained here: the bases are those of experiment 01, the verifiers those of experiment 04.
"""

from collections.abc import Sequence

from rlvr.experiments import test_time_rules as rules
from rlvr.experiments.base import Claim, Experiment, Job, Results
from rlvr.experiments.panels import Lines, Panel, Series, Table, Texts
from rlvr.experiments.reward_hacking import REWARD_HACKING
from rlvr.experiments.rl_vs_sft import RL_VS_SFT
from rlvr.experiments.test_time_work import METHODS, answers

__all__ = ["TEST_TIME"]

SAMPLES, FEW_SAMPLES = 512, 64
PER_HOP, FEW_PER_HOP = 50, 10
SEARCH = {"n": 12, "beams": 4, "branches": 8}


def jobs(experiment: Experiment) -> Sequence[Job]:
    """One job a base seed."""
    size = (
        {"samples": FEW_SAMPLES, "per_hop": FEW_PER_HOP}
        if experiment.quick
        else {"samples": SAMPLES, "per_hop": PER_HOP}
    )
    settings = {"verifiers": REWARD_HACKING.name, **SEARCH, **size}
    return [Job(f"answers-s{seed}", answers, {"seed": seed, **settings}) for seed in experiment.seeds]


def panels(results: Results) -> list[Panel]:
    """Accuracy against the number of samples, all methods in a table, and texts that fooled the verifier."""
    return [_curves(results), _table(results), _texts(results)]


def _sizes(results: Results) -> list[int]:
    return list(map(int, results.result(f"answers-s{results.seeds[0]}")["chosen"]["vote"]))


def _curves(results: Results) -> Lines:
    sizes, series = _sizes(results), []
    for method in METHODS[1:]:
        rows = [rules.accuracies(results, method, size) for size in sizes]
        ranges = [float(row.min()) for row in rows], [float(row.max()) for row in rows]
        series.append(
            Series(method, sizes, [float(row.mean()) for row in rows], *ranges, dashed=method == "perfect judge")
        )
    trained = float(results.other("rl_vs_sft").accuracy("grpo", "n12").mean())
    series.append(Series("GRPO, one answer", sizes, [trained] * len(sizes), arm="grpo"))
    return Lines(
        "test-time",
        "Does choosing among more samples help?",
        "The base answers each problem many times; then a vote or a verifier chooses one answer. Verifiers were trained "
        "on this base's own samples. A perfect judge, who knows the answer, shows what there was to find.",
        series,
        "samples a problem",
        "right",
        log_x=True,
        caption=f"n = 12; mean of {len(results.seeds)} base seeds, the band is their range.",
    )


def _table(results: Results) -> Table:
    most, size = _sizes(results)[-1], min(rules.GROUP, _sizes(results)[-1])
    rows = [("greedy, one answer", *_cells(results, "greedy"))]
    rows += [(f"{method} of {n}", *_cells(results, method, n)) for method in METHODS[1:] for n in (size, most)]
    rows += [(method, *_cells(results, method)) for method in rules.SEARCHES]
    return Table(
        "methods",
        "Every method, seed by seed",
        f"Beam search keeps the {SEARCH['beams']} prefixes that the process verifier likes best and goes on from each with "
        f"{SEARCH['branches']} tokens drawn from the policy, or with all tokens there are.",
        ["method", *(f"base {seed}" for seed in results.seeds)],
        rows,
        "Share of problems of n = 12 answered right.",
    )


def _cells(results: Results, method: str, size: int = 1) -> list[str]:
    return [f"{100 * value:.1f} %" for value in rules.accuracies(results, method, size)]


def _texts(results: Results) -> Texts:
    rows = []
    for seed in results.seeds:
        for row in results.result(f"answers-s{seed}")["fooled"]:
            note = f"{row['kind']}; right would be {row['gold']}, and {row['right_among']} of the samples were right"
            rows.append((f"base {seed}, score {row['score']:.3f}", row["prompt"], row["completion"], note))
    return Texts(
        "fooled",
        f"What the outcome verifier likes best among {_sizes(results)[-1]} samples",
        "Wrong answers, the surest first: the more samples there are to pick from, the surer one of them fools the verifier.",
        rows,
    )


def answer(results: Results) -> str:
    """What choosing achieves, and what training does."""
    size, most = min(rules.GROUP, _sizes(results)[-1]), _sizes(results)[-1]
    shares = {
        method: 100 * rules.accuracies(results, method, n).mean()
        for method, n in (("greedy", 1), ("vote", size), ("best of, ORM", size), ("beam", 1), ("perfect judge", size))
    }
    late = 100 * rules.accuracies(results, "best of, ORM", most).mean()
    trained = 100 * results.other("rl_vs_sft").accuracy("grpo", "n12").mean()
    return (
        f"One greedy answer is right {shares['greedy']:.0f} % of the time, a vote of {size} {shares['vote']:.0f} %, the "
        f"best of {size} by a verifier {shares['best of, ORM']:.0f} % (of {most}: {late:.0f} %), beam search "
        f"{shares['beam']:.0f} %, though a perfect judge would find {shares['perfect judge']:.0f} %. GRPO's single "
        f"answer is right {trained:.0f} % of the time."
    )


CLAIMS = (
    Claim(
        "test-time-no-repair",
        "Test-time compute can't repair a systematic error.",
        "all 32 samples overshoot; voting and verifiers don't repair it",
        "Of the problems of n = 12 that greedy gets wrong, the share that the best of majority vote, weighted vote, "
        "best of 32 by the ORM or the PRM, and beam search repairs: interval below one third.",
        rules.no_repair,
    ),
    Claim(
        "nothing-to-pick",
        "Often there is no right sample to pick.",
        "all 32 samples overshoot",
        "Of the problems of n = 12 that greedy gets wrong, the share for which none of 32 samples is right: interval "
        "above one half.",
        rules.nothing_to_pick,
    ),
    Claim(
        "training-beats-search",
        "Training repairs what search does not.",
        "29.5 % -> over 98 % by training",
        "Greedy accuracy of GRPO on n = 12 minus that of the best test-time method at its best group size, paired by seed: "
        "interval above 0.",
        rules.training_beats_search,
    ),
    Claim(
        "more-samples-fool",
        "The more samples there are, the surer one of them fools the verifier.",
        "the larger N, the likelier best-of-N picks what fools it (section 9.1)",
        "Accuracy of the best of 4 by the ORM minus that of the best of 512, paired by seed: interval above 0. (Written "
        "after one trial run of all three seeds with verifiers of the same recipe had shown it.)",
        rules.picked_apart,
    ),
)

TEST_TIME = Experiment(
    name="test_time",
    title="Can more samples repair a systematic error?",
    question=(
        "A base that fails in one systematic way may be asked many times. Does a vote over its answers help, or a "
        "verifier that picks one, or a search that a verifier guides?"
    ),
    setup=(
        "The bases of experiment 01 on 200 problems of n = 12, 512 samples each at temperature 1. The verifiers (ORM: "
        "the whole text; PRM: every token, the least score counts) are those of experiment 04, trained on 12,000 of the "
        "same base's samples on n = 4-12. Groups are disjoint parts of the same samples."
    ),
    uses=(RL_VS_SFT, REWARD_HACKING),
    jobs=jobs,
    claims=CLAIMS,
    panels=panels,
    answer=answer,
    sizes=(12,),
    curve_sizes=(12,),
    notes=(
        "The rules were written after a trial run of these bases with verifiers of an earlier version had been looked at. "
        "One third is the threshold that base-systematic of experiment 01 had before; the others are one half and 0.",
    ),
)

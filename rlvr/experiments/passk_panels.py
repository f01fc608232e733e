"""What the page of experiment 02 shows: estimated and exact pass@k curves, their difference, and the spread of answers."""

import numpy as np

from rlvr.experiments.base import Results
from rlvr.experiments.panels import Lines, Panel, Series, Table
from rlvr.experiments.passk_rules import (
    ARMS,
    KS,
    LARGE_KS,
    MANY,
    crossing,
    distinct,
    entropies,
    estimated,
    known,
    sampled,
)
from rlvr.experiments.passk_work import SMALL_VOTE
from rlvr.rng import generator
from rlvr.stats import band_over_problems, mean_g_pass_at_k, solved

__all__ = ["answer", "panels"]

LABELS = ("n12", "n16")
WHERE = {"n12": "n = 12, the longest prompts of training", "n16": "n = 16, longer than any of training"}
NAMES = {"base": "base", "sft": "SFT", "rft": "RFT", "grpo": "GRPO"}
G_K = 16


def panels(results: Results) -> list[Panel]:
    """All panels, the picture that answers the question first."""
    figures = [_exact(results, label) for label in LABELS[::-1]] + [_by_seed(results)]
    figures += [_curves(results, label) for label in LABELS]
    tables = [_diversity(results), _solved(results), _large(results)]
    return [*figures, *(_difference(results, label) for label in LABELS), *tables]


def _ks(results: Results) -> list[int]:
    most = sampled(results, "base", results.seeds[0], "n12")["samples"]
    return [k for k in KS if k <= most]


def _curves(results: Results, label: str) -> Lines:
    ks, series = _ks(results), []
    for arm in ARMS:
        curves = estimated(results, arm, label).mean(1)
        lo, hi = curves.min(0).tolist(), curves.max(0).tolist()
        series.append(Series(NAMES[arm], ks, curves.mean(0).tolist(), lo, hi, arm=arm))
    return Lines(
        f"passk-{label}",
        f"How many problems does each model solve within k tries, {WHERE[label]}?",
        f"pass@k from {ks[-1]} samples a problem at temperature 1, without bias.",
        series,
        "samples k",
        "solved within k",
        log_x=True,
        caption=f"Mean of {len(results.seeds)} seeds; the band is their range.",
    )


def _exact(results: Results, label: str) -> Lines:
    ks, series = _ks(results), []
    for arm in ARMS:
        lo, hi = (side.mean((0, 1)) for side in known(results, arm, label))
        x, middle = LARGE_KS.tolist(), ((lo + hi) / 2).tolist()
        series.append(Series(f"{NAMES[arm]}, exact", x, middle, lo.tolist(), hi.tolist(), arm=arm))
        guess = estimated(results, arm, label).mean((0, 1)).tolist()
        series.append(Series(f"{NAMES[arm]}, sampled", ks, guess, dashed=True, arm=arm))
    for arm in ("base", "grpo"):
        chain = known(results, arm, label, "sound")[0].mean((0, 1)).tolist()
        series.append(Series(f"{NAMES[arm]}, true chain only", LARGE_KS.tolist(), chain, dashed=True))
    return Lines(
        f"exact-{label}",
        f"And within a million tries? On {WHERE[label]}.",
        "No one has to draw a million samples: the tree of completions gives each problem's probability of a right "
        "answer within bounds, and that gives pass@k for every k. A band is not chance but what the part of the tree "
        "that was not walked leaves open. Two lines count an answer only after the true chain: what the others have "
        "more is luck, as one answer in sixteen is right whatever the reasons.",
        series,
        "samples k",
        "solved within k",
        log_x=True,
        caption=f"Mean over {len(results.seeds)} seeds; dashed: estimates from {ks[-1]} samples.",
    )


def _by_seed(results: Results) -> Lines:
    series = []
    for arm in ("base", "grpo"):
        lo, hi = (side.mean(1) for side in known(results, arm, "n16"))
        for s, seed in enumerate(results.seeds):
            middle, name = ((lo[s] + hi[s]) / 2).tolist(), f"{NAMES[arm]}, seed {seed}"
            band = lo[s].tolist(), hi[s].tolist()
            series.append(Series(name, LARGE_KS.tolist(), middle, *band, dashed=arm == "base", arm=arm))
    return Lines(
        "exact-seeds",
        "Do base and GRPO cross? It depends on the base.",
        "The exact curves on n = 16 seed by seed: seed s of GRPO was trained from base s. Whether and where the two "
        "cross differs from base to base more than any single run could tell.",
        series,
        "samples k",
        "solved within k",
        log_x=True,
        caption="Bands are rigorous bounds; they have no width where the whole tree was walked.",
    )


def _difference(results: Results, label: str) -> Lines:
    ks = _ks(results)
    gaps = estimated(results, "grpo", label) - estimated(results, "base", label)
    band = band_over_problems(gaps.mean(0), generator(0, "passk", "band", label), whole=True)
    series = [Series("mean of seeds", ks, band.mean.tolist(), band.lo.tolist(), band.hi.tolist(), arm="grpo")]
    series += [
        Series(f"seed {seed}", ks, gap.mean(0).tolist(), dashed=True)
        for seed, gap in zip(results.seeds, gaps, strict=True)
    ]
    return Lines(
        f"gap-{label}",
        f"Does GRPO's lead over its base shrink with k? On {WHERE[label]}.",
        "pass@k of GRPO minus that of the base it started from, problem by problem: what both find hard cancels.",
        series,
        "samples k",
        "GRPO minus base",
        log_x=True,
        caption=f"Band: 95 % bootstrap over {band.n} problems for the whole curve at once; dashed: the seeds, whose spread it "
        "doesn't contain.",
    )


def _diversity(results: Results) -> Table:
    rows = []
    for label in LABELS:
        for arm in ARMS:
            tables = [sampled(results, arm, seed, label) for seed in results.seeds]
            votes = [np.mean([table[key] for table in tables]) for key in ("small_vote", "majority")]
            sure = np.mean([mean_g_pass_at_k(t["samples"], t["correct"], G_K).mean() for t in tables])
            once, most = estimated(results, arm, label).mean((0, 1))[[0, -1]]
            row = [_percent(value) for value in (once, most, *votes, sure)]
            spread = [f"{distinct(results, arm, label).mean():.2f}", f"{entropies(results, arm, label).mean():.3f}"]
            rows.append((label.replace("n", "n = "), NAMES[arm], *row, *spread))
    top = _ks(results)[-1]
    columns = ["set", "model", "pass@1", f"pass@{top}", f"vote of {SMALL_VOTE}", f"vote of {top}", f"mG-Pass@{G_K}"]
    return Table(
        "diversity",
        "What training does to the spread of answers",
        "A vote picks the most frequent answer; mG-Pass@k asks for at least half of k samples to be right, on average "
        "over how many more; distinct answers are those among all samples of a problem.",
        [*columns, "distinct answers", "nats a token"],
        rows,
        f"Mean of {len(results.seeds)} seeds, {top} samples a problem.",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _solved(results: Results) -> Table:
    rows = []
    for label in LABELS:
        for arm in ARMS[1:]:
            counts = [
                solved(*(sampled(results, each, seed, label)["correct"] for each in ("base", arm)))
                for seed in results.seeds
            ]
            cells = ["/".join(str(getattr(c, key)) for c in counts) for key in ("never", "lost", "gained", "both")]
            rows.append((label.replace("n", "n = "), NAMES[arm], *cells))
    return Table(
        "solved",
        "Which problems are gained, and which are lost?",
        f"Solved means at least once in {_ks(results)[-1]} samples; before is the base, after the trained model.",
        ["set", "model", "never", "lost", "gained", "both"],
        rows,
        "By seed, of the same problems.",
    )


def _large(results: Results) -> Table:
    rows = []
    for label in LABELS:
        base = [side.mean(1) for side in known(results, "base", label)]
        for arm in ARMS:
            tables = [results.result(f"tree-{arm}-s{seed}")[label] for seed in results.seeds]
            mine = [side.mean(1) for side in known(results, arm, label)]
            ends = [
                crossing((base[0][s], base[1][s]), (mine[0][s], mine[1][s])) if arm != "base" else ()
                for s in range(len(results.seeds))
            ]
            mode = [100 * np.mean([table["mode"][side] for table in tables]) for side in ("lo", "hi")]
            rest = np.mean([table["rest"] for table in tables])
            cells = [_range(mine, k) for k in (1, 10_000, 1_000_000)]
            chain = [side.mean(1) for side in known(results, arm, label, "sound")]
            cells += [_range(chain, 10_000), _from_to(*mode)]
            crossed = ", ".join(_span(*end) for end in ends if end) or "-"
            prefixes = f"{np.mean([table['nodes'] for table in tables]):,.0f}"
            rows.append((label.replace("n", "n = "), NAMES[arm], *cells, crossed, prefixes, f"{rest:.1e}"))
    columns = ["set", "model", "pass@1", "pass@10,000", "pass@1,000,000", "pass@10,000, true chain", "endless vote"]
    return Table(
        "large-k",
        "Known without sampling",
        "Bounds, not estimates. An endless vote is right where the right answer is the most likely one: sampling more "
        "can't repair the others. The base overtakes a model between the two k, seed by seed.",
        [*columns, "base overtakes at k", "prefixes walked", "mass left out"],
        rows,
        f"Mean of {len(results.seeds)} seeds; prefixes for all problems of a set together.",
    )


def _range(bounds: list[np.ndarray], k: int) -> str:
    place = int(np.searchsorted(LARGE_KS, k))
    lo, hi = (100 * side[..., place].mean() for side in bounds)
    return _from_to(lo, hi)


def _from_to(lo: float, hi: float) -> str:
    return f"{lo:.1f} %" if hi - lo < 0.05 else f"{lo:.1f} to {hi:.1f} %"


def _span(early: float, late: float) -> str:
    """When the base may and when it surely has overtaken."""
    if not np.isfinite(early):
        return "never"
    return f"{early:,.0f} to {late:,.0f}" if np.isfinite(late) else f"not before {early:,.0f}"


def answer(results: Results) -> str:
    """Whether reward training only picks out what the base could do already, in a few sentences."""
    top, place = _ks(results)[-1], int(np.searchsorted(LARGE_KS, MANY))
    ends = {arm: estimated(results, arm, "n12").mean((0, 1))[[0, -1]] for arm in ("base", "grpo")}
    far = {arm: estimated(results, arm, "n16").mean((0, 1))[[0, -1]] for arm in ("base", "grpo")}
    sure, honest = _overtaken(results, "right"), _overtaken(results, "sound")
    luck = known(results, "base", "n16")[0].mean((0, 1))[place]
    chain = known(results, "base", "n16", "sound")[0].mean((0, 1))[place]
    return (
        f"On the longest prompts of training GRPO solves {_percent(ends['grpo'][0])} at the first try, the base "
        f"{_percent(ends['base'][1])} in {top} tries: training did more than pick out what the base could do. On longer "
        f"prompts it leads by {100 * (far['grpo'][0] - far['base'][0]):.0f} points at k = 1 and "
        f"{100 * (far['grpo'][1] - far['base'][1]):.0f} at k = {top}, and the base surely overtakes it within a million "
        "tries "
        f"in {len(sure)} of {len(results.seeds)} seeds"
        + (f" (by k = {max(sure):,.0f})" if sure else "")
        + ". But large k "
        f"rewards luck: the base solves {_percent(luck)} or more at k = {MANY:,}, but {_percent(chain)} with "
        f"the true chain, and counting only those it overtakes GRPO in {len(honest)} of {len(results.seeds)} seeds."
    )


def _overtaken(results: Results, what: str) -> list[float]:
    """The k by which the base has surely overtaken GRPO on n = 16, for the seeds where it does."""
    bounds = {arm: [side.mean(1) for side in known(results, arm, "n16", what)] for arm in ("base", "grpo")}
    seeds = range(len(results.seeds))
    late = [crossing(*((lo[s], hi[s]) for lo, hi in (bounds["base"], bounds["grpo"])))[1] for s in seeds]
    return [k for k in late if np.isfinite(k)]

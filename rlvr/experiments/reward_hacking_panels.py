"""What experiment 04's page shows, and its answer in plain words."""

from collections.abc import Sequence

import numpy as np

from rlvr.experiments.base import Results, over, percent
from rlvr.experiments.panels import Bars, Lines, Panel, Series, Table, Texts
from rlvr.experiments.reward_hacking_rules import first_alarm, first_hack, kept_and_last, last
from rlvr.stats import Fit, overoptimisation_best_of_n, overoptimisation_rl

__all__ = ["answer", "panels"]

SHOWN = ("true", "orm", "orm_gate", "prm", "prm_gate", "orm_kl", "refresh_often", "random")
WORDS = {
    "true": "the truth",
    "orm": "outcome verifier",
    "orm_gate": "outcome verifier and format gate",
    "orm_kl": "outcome verifier, gate and KL penalty",
    "prm": "process verifier",
    "prm_gate": "process verifier and format gate",
    "random": "a coin flip",
    "ensemble_mean": "mean of three outcome verifiers, gate",
    "ensemble_min": "worst case of three, gate",
    "ensemble_var": "variance-weighted three, gate",
    "refresh_seldom": "outcome verifier refreshed every 10 steps, gate",
    "refresh_often": "outcome verifier refreshed every step, gate",
    "mirror": "mirrored outcome verifier, gate",
}
PLACES = {
    "short": "stops early",
    "long": "runs on",
    "right length": "right length, wrong letter",
    "malformed": "no form",
}
SMOOTH = 5


def answer(results: Results) -> str:
    """The question's answer with this run's numbers."""
    quality = [results.result(f"orm_verifier-s{seed}")["accuracy"] for seed in results.seeds]
    start = 100 * results.metrics("orm", "accuracy")[:, 0].mean()
    paid, true = (100 * last(results, "orm_gate", key).mean() for key in ("reward", "accuracy"))
    kept = {arm: 100 * last(results, arm).mean() for arm in ("orm", "prm", "orm_kl", "true")}
    alarms = np.concatenate([first_alarm(results, arm) for arm in ("orm", "orm_gate", "prm", "prm_gate")])
    when = f"step {np.nanmean(alarms):.0f}" if np.isfinite(alarms).any() else "no step"
    found = (
        "It finds it within a few dozen steps and stays there." if true < 50 else "It has not found it yet in this run."
    )
    return (
        f"{found} A verifier that judges {100 * np.mean(quality):.0f} % of "
        f"the base's answers rightly pays GRPO {paid:.0f} % at the end while {true:.0f} % of the answers are right, down from "
        f"{start:.0f} %, format gate and all (without the gate {kept['orm']:.0f} %, judged step by step "
        f"{kept['prm']:.0f} %). Paid by the truth the same training ends at {kept['true']:.0f} %; a KL penalty that "
        f"lets it move little keeps {kept['orm_kl']:.0f} %. The divergence alarm went off at {when} on average."
    )


def panels(results: Results) -> Sequence[Panel]:
    """The page's panels, the one that answers first."""
    return (
        _gap(results, "orm_gate", "What it is paid, and what is true"),
        _truths(results),
        *(
            _gap(results, arm, f"Paid by: {WORDS[arm]}")
            for arm in ("orm", "prm_gate", "orm_kl", "refresh_often", "random")
        ),
        _hacks(results),
        _places(results),
        _blind(results),
        _mirror(results),
        _over(results),
        _best_of(results),
        _verifiers(results),
        _costs(results),
        _ends(results),
    )


def _smooth(rows: np.ndarray) -> np.ndarray:
    """[S steps] means over the last five steps, as far as there are as many."""
    return np.stack([rows[:, max(0, end - SMOOTH) : end].mean(1) for end in range(1, rows.shape[1] + 1)], axis=1)


def _line(rows: np.ndarray, label: str, arm: str = "", dashed: bool = False) -> Series:
    smooth = _smooth(rows)
    band = smooth.min(0).tolist(), smooth.max(0).tolist()
    return Series(label, list(range(rows.shape[1])), smooth.mean(0).tolist(), *band, dashed=dashed, arm=arm)


def _gap(results: Results, arm: str, title: str) -> Lines:
    alarms = first_alarm(results, arm)
    marks = [(float(np.nanmin(alarms)), "alarm")] if np.isfinite(alarms).any() else []
    return Lines(
        f"gap-{arm}",
        title,
        f"GRPO paid by: {WORDS[arm]}. Dashed: the training reward. Solid: the share of the same completions that is "
        "right. Where they part, the reward is being gamed; the mark is where the alarm first went off in any seed.",
        [
            _line(results.metrics(arm, "reward"), "training reward", dashed=True),
            _line(results.metrics(arm, "accuracy"), "right (truth)", arm=arm),
        ],
        "step",
        "mean over the step's completions",
        caption=f"Means of {SMOOTH} steps over seeds, with their range.",
        marks=marks,
    )


def _truths(results: Results) -> Lines:
    return Lines(
        "truths",
        "What is true, by what was paid",
        "Share of training completions that are right, step by step. Only what pays differs between the lines.",
        [_line(results.metrics(arm, "accuracy"), WORDS[arm], arm=arm) for arm in SHOWN],
        "step",
        "completions that are right",
        caption=f"Means of {SMOOTH} steps over seeds, with their range.",
    )


def _study(results: Results, seed: int) -> dict:
    return results.result(f"study-s{seed}")


def _hacks(results: Results) -> Texts:
    rows = []
    for arm in ("orm", "orm_gate", "prm_gate", "orm_kl"):
        course = _study(results, results.seeds[0])["arms"][arm]
        moments = [moment for moment in course if moment["hacks"] > 0.05]
        for moment in moments[:: max(1, len(moments) // 3)][:4]:
            for prompt, text, score, count in moment["common"][:1]:
                note = f"wrong, paid {score:.3f}; {count} times among this step's completions"
                rows.append((f"{WORDS[arm]}, step {moment['step']}", prompt, text, note))
    return Texts(
        "hacks",
        "The hacks, and what the verifier gave for them",
        f"The commonest wrong completion that was paid more than 1/2, seed {results.seeds[0]}. The right answer is "
        "the k-th letter of the chain that begins after the start letter.",
        rows,
    )


def _places(results: Results) -> Bars:
    rows = []
    for arm in ("orm", "orm_gate", "prm_gate"):
        courses = [_study(results, seed)["arms"][arm] for seed in results.seeds]
        for step in [moment["step"] for moment in courses[0]][2::3]:
            here = [next(m for m in course if m["step"] == step) for course in courses]
            parts = {PLACES[p]: float(np.mean([m["places"][p] for m in here])) for p in PLACES}
            rows.append((f"{arm}, step {step}", parts))
    return Bars(
        "places",
        "Where the hacks lie",
        "Share of completions that are wrong and paid more than 1/2, by where they lie. The gate closes one place; "
        "the hole moves.",
        rows,
        list(PLACES.values()),
        "share of the step's completions",
        caption="Means over seeds.",
    )


def _blind(results: Results) -> Table:
    rows = []
    for seed in results.seeds:
        found = _study(results, seed)
        moment = first_hack(found["arms"]["orm_gate"])
        for place, words in PLACES.items():
            hacks = f"{100 * moment['places'][place] / moment['hacks']:.0f} %" if moment else "no hack"
            known = found["training"]["orm_verifier"][place]
            rows.append((f"seed {seed}", words, f"{100 * known:.2f} %", hacks))
    return Table(
        "blind",
        "What the verifier never saw",
        "Of the examples that the outcome verifier was trained on, the share that is wrong in each way; beside it "
        "how the first hacks divide (the first recorded step where a fifth of the completions is wrong and paid more "
        "than 1/2, gate on).",
        ("base", "wrong because it", "of the training data", "of the first hacks"),
        rows,
    )


def _mirror(results: Results) -> Table:
    rows = []
    for seed in results.seeds:
        found = _study(results, seed)
        for arm, judge in (("orm_gate", "orm_verifier"), ("mirror", "mirror_verifier")):
            known, moment = found["training"][judge], first_hack(found["arms"][arm])
            cells = [f"{100 * known[place]:.1f} %" for place in ("short", "long")]
            hacks = [
                f"{100 * moment['places'][p] / moment['hacks']:.0f} %" if moment else "-" for p in ("short", "long")
            ]
            rows.append((f"seed {seed}", WORDS[arm], *cells, moment["step"] if moment else "none", *hacks))
    return Table(
        "mirror",
        "Turn the verifier's data around, and the hole turns with it?",
        "The mirrored verifier learned from the same completions, but each wrong chain that ran on by j hops was "
        "replaced with one that stops j hops early. If the hole is where no data was, its hacks must run on.",
        (
            "base",
            "paid by",
            "data: stops early",
            "data: runs on",
            "first hack at step",
            "hacks: stop early",
            "hacks: run on",
        ),
        rows,
    )


def _over(results: Results) -> Lines:
    curves = [results.result(f"overoptimise-s{seed}") for seed in results.seeds]
    series, notes = [], []
    for name, fitted, word in (
        ("rl", overoptimisation_rl, "RL"),
        ("best of n", overoptimisation_best_of_n, "best of n"),
    ):
        rows = [curve[name] for curve in curves]
        x = np.sqrt(np.mean([[point["kl"] for point in row] for row in rows], axis=0))
        for key, dashed in (("gold", False), ("proxy", True)):
            y = np.mean([[point[key] for point in row] for row in rows], axis=0)
            series.append(Series(f"{word}: {key}", x.tolist(), y.tolist(), dashed=dashed))
        fits = [_fit(fitted, row) for row in rows]
        if all(fits):
            alpha, beta = (over([fit.parameters[p].value for fit in fits]) for p in ("alpha", "beta"))
            notes.append(f"{word}: {fits[0].form} with α {_number(alpha)}, β {_number(beta)}")
    return Lines(
        "over",
        "How far from the base can a verifier be trusted?",
        "Proxy (the verifier's score, dashed) and gold (the truth) against the square root of the KL divergence from "
        "the base, for RL stopped ever later and for best-of-n with ever larger n, on the same problems of n = 12 "
        "with the same outcome verifier. All three numbers are exact: they come from the trees of completions, not "
        "from samples.",
        series,
        "square root of KL(policy, base), nats",
        "mean over problems",
        caption="Means over seeds. Gao et al.'s forms fitted to each seed's gain in gold, parameters over seeds. "
        + "; ".join(notes),
    )


def _fit(fitted, row: list[dict[str, float]]) -> Fit | None:
    d, gold = np.sqrt([point["kl"] for point in row]), np.array([point["gold"] for point in row])
    return fitted(d, gold - gold[0]) if len(np.unique(d)) >= 4 else None


def _number(interval) -> str:
    spread = f" [{interval.lo:.2f}, {interval.hi:.2f}]" if np.isfinite([interval.lo, interval.hi]).all() else ""
    return f"{interval.value:.2f}{spread}"


def _best_of(results: Results) -> Lines:
    rows = [results.result(f"overoptimise-s{seed}")["best of n"] for seed in results.seeds]
    sizes = [point["n"] for point in rows[0]]

    def line(key: str, label: str, dashed: bool = False) -> Series:
        shown = [n for n, point in zip(sizes, rows[0], strict=True) if key in point]
        values = np.array([[point[key] for point in row if key in point] for row in rows])
        return Series(
            label, shown, values.mean(0).tolist(), values.min(0).tolist(), values.max(0).tolist(), dashed=dashed
        )

    return Lines(
        "best-of",
        "The same verifier, used to pick",
        "Accuracy on n = 12 when the verifier picks the best of n samples of the base, against votes of the same "
        "samples. The base fails in one way, so the right answer is rarely among them.",
        [
            line("gold", "best of n by outcome verifier (exact)"),
            line("proxy", "its score (exact)", dashed=True),
            line("weighted", "vote weighted by score"),
            line("majority", "majority vote"),
        ],
        "n, samples of the base",
        "right",
        log_x=True,
        caption="Means over seeds, with their range.",
    )


def _verifiers(results: Results) -> Table:
    rows = []
    for name in ("orm_verifier", "orm_second", "orm_third", "prm_verifier", "mirror_verifier"):
        for seed in results.seeds:
            found = results.result(f"{name}-s{seed}")
            rows.append(
                (
                    name,
                    f"seed {seed}",
                    f"{100 * found['accuracy']:.1f} %",
                    "-" if found["auc"] is None else f"{found['auc']:.4f}",
                    f"{100 * found['base_rate']:.1f} %",
                )
            )
    return Table(
        "verifiers",
        "How good the verifiers are",
        "On held-out completions of the base that they were trained for: accuracy at a score of 1/2, area under the "
        "ROC curve, and what always saying right would reach.",
        ("verifier", "base", "accuracy", "AUC", "right answers"),
        rows,
    )


def _costs(results: Results) -> Table:
    rows = []
    for arm in WORDS:
        if arm == "mirror":
            continue
        kept, ends, steps = kept_and_last(results, arm)
        alarms = first_alarm(results, arm)
        when = ", ".join("-" if np.isnan(step) else f"{step:.0f}" for step in alarms)
        stops = ", ".join(map(str, steps))
        rows.append((WORDS[arm], percent(over(kept, 0, 1)), stops, percent(over(ends, 0, 1)), when))
    return Table(
        "stopping",
        "What an independent truth would have saved",
        "Greedy accuracy on n = 12: of the policy that 40 labelled problems, looked at every ten steps, would have "
        "kept, and of the last one, both on the other problems. Beside them when the alarm first went off, seed by "
        "seed.",
        ("paid by", "kept by early stopping", "at steps", "last", "alarm at step"),
        rows,
    )


def _ends(results: Results) -> Texts:
    rows = []
    for arm in ("orm", "orm_gate", "prm_gate", "orm_kl", "refresh_often", "random"):
        found = _study(results, results.seeds[0])["end"][arm]
        for prompt, text, gold, score in found["texts"][:2]:
            rows.append((WORDS[arm], prompt, text, f"right would be {gold}; the outcome verifier gives {score:.3f}"))
    return Texts(
        "ends",
        "What each policy writes at the end",
        f"Greedy answers on n = 12 after the last step, seed {results.seeds[0]}, wrong ones first, with the plain "
        f"outcome verifier's score.",
        rows,
    )

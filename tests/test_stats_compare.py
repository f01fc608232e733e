"""Tests of two arms, power and seeds against scipy, against counting and against numerical integration."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from rlvr.rng import generator
from rlvr.stats import (
    clustered,
    iqm,
    mcnemar,
    minimum_detectable_effect,
    over_problems,
    paired_difference,
    paired_t,
    power,
    probability_of_improvement,
    sd_over_seeds,
    seeds_needed,
    sign_flip,
    welch,
)


def test_clustered_equals_over_problems_where_every_problem_has_equally_many_samples():
    scores = generator(0, "test", "clusters").random((12, 5)) < 0.4
    ragged = clustered(scores.ravel(), np.repeat(np.arange(12), 5))
    plain = over_problems(scores)
    assert (ragged.value, ragged.n) == (pytest.approx(plain.value), 12)
    assert (ragged.lo, ragged.hi) == (pytest.approx(plain.lo), pytest.approx(plain.hi))


def test_clustered_takes_ragged_problems_and_says_what_miller_says():
    scores, labels = [1, 0, 1, 1, 0, 1], ["a", "a", "b", "b", "b", "c"]
    mean = 4 / 6
    pairs = [(scores[i] - mean) * (scores[j] - mean) for i, j in product(range(6), repeat=2) if labels[i] == labels[j]]
    error = math.sqrt(3 / 2 * sum(pairs)) / 6
    found = clustered(scores, labels)
    assert (found.hi - found.value) / stats.t.ppf(0.975, 2) == pytest.approx(error)
    with pytest.raises(ValueError, match="1 problems"):
        clustered([1, 0], [7, 7])
    with pytest.raises(ValueError, match="one label a score"):
        clustered([1, 0], [7])


def test_seed_tests_match_scipy():
    rng = generator(0, "test", "seeds")
    a, b = rng.normal(0.6, 0.05, 6), rng.normal(0.55, 0.09, 6)
    paired, reference = paired_t(a, b), stats.ttest_rel(a, b)
    interval = reference.confidence_interval(0.95)
    assert paired.p == pytest.approx(reference.pvalue)
    assert (paired.difference.lo, paired.difference.hi) == (pytest.approx(interval.low), pytest.approx(interval.high))
    alone, reference = welch(a, b[:4]), stats.ttest_ind(a, b[:4], equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert alone.p == pytest.approx(reference.pvalue)
    assert (alone.difference.lo, alone.difference.hi) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert alone.difference.value == pytest.approx(a.mean() - b[:4].mean())


def test_seeds_that_never_vary_have_a_stated_p():
    assert paired_t([0.7, 0.7, 0.7], [0.7, 0.7, 0.7]).p == 1.0
    assert paired_t([0.7, 0.7, 0.7], [0.5, 0.5, 0.5]).p == 0.0
    assert welch([0.7, 0.7, 0.7], [0.7, 0.7]).p == 1.0


def test_sign_flips_count_every_pattern():
    a, b = [0.9, 0.6, 0.7, 0.2], [0.5, 0.7, 0.4, 0.1]
    d = np.subtract(a, b)
    seen = [abs(np.dot(signs, d)) >= abs(d.sum()) - 1e-12 for signs in product((1, -1), repeat=4)]
    found = sign_flip(a, b, generator(0, "test"))
    assert found.p == pytest.approx(np.mean(seen)) and found.test == "sign flips, all 16"
    assert found.difference == paired_difference(a, b)
    assert sign_flip([1, 1, 1], [0, 0, 0], generator(0, "test")).p == 0.25  # three seeds can't do better


def test_drawn_sign_flips_agree_with_the_paired_t_and_never_say_never():
    rng = generator(0, "test", "flips")
    a = rng.normal(0, 1, 60)
    b = a + rng.normal(0.25, 1, 60)
    assert sign_flip(a, b, rng).p == pytest.approx(stats.ttest_rel(a, b).pvalue, abs=0.02)
    assert sign_flip(np.ones(60), np.zeros(60), rng, draws=500).p == pytest.approx(1 / 501)


def test_sign_flips_are_right_under_no_difference():
    rng = generator(0, "test", "null")
    p = [sign_flip(*rng.normal(0, 1, (2, 8)), rng).p for _ in range(400)]
    assert 0.03 <= np.mean(np.array(p) <= 0.05) <= 0.075  # 0.047 is attainable with 2^8 patterns


def test_mcnemar_is_the_exact_binomial_of_the_problems_that_differ():
    first = [1] * 9 + [0] * 2 + [1] * 20 + [0] * 10
    second = [0] * 9 + [1] * 2 + [1] * 20 + [0] * 10
    found = mcnemar(first, second)
    assert found.p == pytest.approx(stats.binomtest(9, 11).pvalue)
    assert found.difference.value == pytest.approx(7 / 41)
    # Agresti and Min: half a problem in each cell.
    b, c, n = 9.5, 2.5, 43
    half = stats.norm.ppf(0.975) * math.sqrt(b + c - (b - c) ** 2 / n) / n
    assert (found.difference.lo, found.difference.hi) == (pytest.approx(7 / n - half), pytest.approx(7 / n + half))
    same = mcnemar([1, 0, 1], [1, 0, 1])
    assert same.p == 1.0 and same.difference.lo < 0 < same.difference.hi
    with pytest.raises(ValueError, match="sign_flip"):
        mcnemar([0.5, 1], [0, 1])


def test_iqm_and_probability_of_improvement_by_hand():
    rng = generator(0, "test", "iqm")
    scores = rng.random((4, 3))
    assert iqm(scores, rng).value == pytest.approx(np.sort(scores.ravel())[3:9].mean())
    a, b = rng.random((5, 2)), rng.random((3, 2))
    u = [stats.mannwhitneyu(a[:, task], b[:, task]).statistic / 15 for task in (0, 1)]
    assert probability_of_improvement(a, b, rng).value == pytest.approx(np.mean(u))
    assert probability_of_improvement([0.5, 0.5], [0.5, 0.5], rng).value == 0.5
    ahead = probability_of_improvement([0.8, 0.9], [0.1, 0.2], rng)
    assert (ahead.value, ahead.lo, ahead.degenerate) == (1.0, 1.0, True)


def test_with_many_runs_the_bootstrap_is_the_large_sample_interval():
    rng = generator(0, "test", "many runs")
    a, b = rng.normal(0, 1, 200), rng.normal(0, 1, 150)
    found = iqm(a, rng, draws=4000)
    assert found.hi - found.lo == pytest.approx(2 * 1.96 * stats.mstats.trimmed_stde(a, (0.25, 0.25)), rel=0.08)
    u = probability_of_improvement(a[:60], b[:50], rng)
    assert u.hi - u.lo == pytest.approx(2 * 1.96 * math.sqrt(111 / (12 * 60 * 50)), rel=0.1)


def test_the_bootstrap_of_runs_is_stratified():
    """Tasks far apart: resampling runs within each task keeps the spread between tasks out of the interval."""
    rng = generator(0, "test", "strata")
    scores = np.array([0.1, 0.5, 0.9]) + rng.normal(0, 0.001, (6, 3))
    found = iqm(scores, rng)
    assert found.hi - found.lo < 0.005 and found.lo <= found.value <= found.hi
    with pytest.raises(ValueError, match="same tasks"):
        probability_of_improvement(scores, scores[:, :2], rng)
    for bad in ([0.5], [[float("nan")], [1.0]], 3.0):
        with pytest.raises(ValueError, match="R >= 2 runs"):
            iqm(bad, rng)


# ── Seeds ───────────────────────────────────────────────────────────────────────────────────


def power_by_integration(effect: float, sd: float, seeds: int, paired: bool) -> float:
    """E over the measured sd of P(|Z + shift| > edge * sd/sigma): the definition of the noncentral t."""
    freedom = seeds - 1 if paired else 2 * seeds - 2
    shift = effect / sd * math.sqrt(seeds if paired else seeds / 2)
    edge = stats.t.ppf(0.975, freedom)

    def integrand(q: float) -> float:
        s = math.sqrt(q / freedom)
        return stats.chi2.pdf(q, freedom) * (stats.norm.sf(edge * s - shift) + stats.norm.cdf(-edge * s - shift))

    return integrate.quad(integrand, 0, freedom + 40 * math.sqrt(2 * freedom), limit=200)[0]


@pytest.mark.parametrize(("seeds", "paired"), [(3, False), (3, True), (5, False), (10, True), (30, False)])
def test_power_is_the_noncentral_t(seeds, paired):
    for effect in (0.0, 0.02, 0.05, 0.2):
        expected = power_by_integration(effect, 0.05, seeds, paired)
        assert power(effect, 0.05, seeds, paired) == pytest.approx(expected, abs=1e-6)
        assert power(-effect, 0.05, seeds, paired) == power(effect, 0.05, seeds, paired)


def test_power_counts_rejections():
    rng = generator(0, "test", "power")
    arms = rng.normal(0, 0.05, (4000, 2, 4)) + np.array([[[0.1], [0.0]]])
    rejected = stats.ttest_ind(arms[:, 0], arms[:, 1], axis=1).pvalue < 0.05
    assert rejected.mean() == pytest.approx(power(0.1, 0.05, 4), abs=0.03)
    rejected = stats.ttest_rel(arms[:, 0], arms[:, 1], axis=1).pvalue < 0.05
    assert rejected.mean() == pytest.approx(power(0.1, 0.05 * math.sqrt(2), 4, paired=True), abs=0.03)


def test_the_lectures_exercise_takes_more_seeds_than_the_normal_rule_says():
    sd = sd_over_seeds([0.355, 0.545, 0.685]).value
    assert sd == pytest.approx(0.166, abs=5e-4)
    normal = 2 * (1.959964 + 0.841621) ** 2 * (sd / 0.1) ** 2
    needed = seeds_needed(0.1, sd)
    assert math.ceil(normal) == 44 and needed == 45
    assert power(0.1, sd, needed) >= 0.8 > power(0.1, sd, needed - 1)


def test_seeds_and_effect_are_inverse():
    for seeds in (2, 3, 10, 40):
        for paired in (False, True):
            effect = minimum_detectable_effect(0.07, seeds, paired)
            assert power(effect, 0.07, seeds, paired) == pytest.approx(0.8, abs=1e-6)
            assert seeds_needed(effect * 1.001, 0.07, paired) == seeds
    assert seeds_needed(1.0, 0.01) == 2
    assert power(50.0, 1.0, 3) == 1.0 and power(5.0, 0.01, 1000) == 1.0


def test_the_sd_of_three_seeds_is_hardly_known():
    found = sd_over_seeds([0.68, 0.62, 0.72])
    assert found.hi / found.lo > 12
    assert found.lo == pytest.approx(found.value * math.sqrt(2 / stats.chi2.ppf(0.975, 2)))


def test_power_refuses_nonsense():
    for call in (
        lambda: power(0.1, 0.0, 3),
        lambda: power(0.1, 0.1, 1),
        lambda: power(0.1, 0.1, 3, level=95),
        lambda: seeds_needed(0.0, 0.1),
        lambda: seeds_needed(float("nan"), 0.1),
        lambda: seeds_needed(1e-6, 0.1),
        lambda: seeds_needed(0.1, 0.1, chance=1.0),
        lambda: seeds_needed(0.1, 0.1, chance=0.01),
        lambda: minimum_detectable_effect(0.1, 1),
        lambda: minimum_detectable_effect(-0.1, 3),
        lambda: sd_over_seeds([0.1]),
        lambda: paired_t([0.1, 0.2], [0.1]),
        lambda: paired_t([0.1], [0.1]),
        lambda: welch([0.1], [0.1, 0.2]),
        lambda: sign_flip([float("nan"), 1], [0, 0], generator(0, "test")),
    ):
        with pytest.raises(ValueError, match=r"accepted|at least|more than"):
            call()

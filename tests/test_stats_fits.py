"""Fits recover what made their points, know how well, and refuse what can't be fitted."""

import math

import numpy as np
import pytest
from scipy import stats

from rlvr.rng import generator
from rlvr.stats import (
    best_of_n_kl,
    entropy_performance,
    overoptimisation_best_of_n,
    overoptimisation_rl,
    sigmoid_compute,
)

H = np.linspace(0.02, 1.2, 24)
D = np.linspace(0.0, 3.0, 24)
C = np.arange(25.0, 625.0, 25.0)

# name: the fit, its x, the noiseless curve, the true parameters
CASES = {
    "entropy": (entropy_performance, H, 0.9 - 0.2 * np.exp(H), {"a": 0.2, "b": 0.9, "ceiling": 0.7}),
    "best_of_n": (overoptimisation_best_of_n, D, D * (0.6 - 0.15 * D), {"alpha": 0.6, "beta": 0.15}),
    "rl": (
        overoptimisation_rl,
        D,
        D * (0.4 - 0.3 * np.log(np.maximum(D, 1e-300))),
        {"alpha": 0.4, "beta": 0.3},
    ),
    "sigmoid": (
        lambda c, r: sigmoid_compute(c, np.clip(r, 0, 1), 0.3),
        C,
        0.3 + 0.6 / (1 + (120 / C) ** 1.8),
        {"A": 0.9, "B": 1.8, "C_mid": 120.0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fits_recover_what_made_the_points(name):
    fit_to, x, y, truth = CASES[name]
    fit = fit_to(x, y)
    assert {key: value.value for key, value in fit.parameters.items()} == pytest.approx(truth, rel=1e-5)
    assert fit.predict(x) == pytest.approx(y, abs=1e-6) and fit.rmse < 1e-6 and fit.n == 24
    noisy = fit_to(x, y + generator(0, "test", "fit", name).normal(0, 0.01, len(x)))
    assert {key: value.value for key, value in noisy.parameters.items()} == pytest.approx(truth, rel=0.1)
    assert noisy.rmse == pytest.approx(0.01, rel=0.4)
    assert all(value.lo < value.value < value.hi for value in noisy.parameters.values())
    assert noisy.warning == ""


def test_a_linear_fit_has_the_textbooks_intervals():
    y = 0.9 - 0.2 * np.exp(H) + generator(0, "test", "line").normal(0, 0.02, len(H))
    fit, line = entropy_performance(H, y), stats.linregress(np.exp(H), y)
    t = stats.t.ppf(0.975, len(H) - 2)
    assert fit.parameters["a"].value == pytest.approx(-line.slope)
    assert fit.parameters["a"].hi == pytest.approx(-line.slope + t * line.stderr)
    assert fit.parameters["b"].lo == pytest.approx(line.intercept - t * line.intercept_stderr)
    # The ceiling is b - a, whose parts are correlated: the curve's value at H = 0, not at e^H = 0.
    assert fit.parameters["ceiling"].value == pytest.approx(float(fit.predict(0.0)))
    x = np.exp(H)
    error = fit.rmse * math.sqrt(1 / len(x) + (1 - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    assert fit.parameters["ceiling"].hi - fit.parameters["ceiling"].value == pytest.approx(t * error)


def test_overoptimisation_says_where_it_turns():
    peak = overoptimisation_best_of_n(D, D * (0.6 - 0.15 * D)).predict(0.6 / 0.3)
    assert peak == pytest.approx(0.6**2 / (4 * 0.15))
    fit = overoptimisation_rl(D, CASES["rl"][2])
    top = math.exp(0.4 / 0.3 - 1)
    assert fit.predict(top) == pytest.approx(0.3 * top) and fit.predict(0.0) == 0.0
    assert fit.predict(top) > fit.predict(top * 1.1) and fit.predict(top) > fit.predict(top * 0.9)
    assert "beyond the last point" in overoptimisation_best_of_n(D, D * (0.6 - 0.05 * D)).warning
    assert "never turns down" in overoptimisation_best_of_n(D, D * (0.6 + 0.05 * D)).warning
    assert "never turns down" in overoptimisation_rl(D, D * 0.4 + 0.05 * D * np.log(np.maximum(D, 1e-9))).warning


def test_a_curve_without_its_bend_is_labelled():
    early = np.arange(5.0, 60.0, 5.0)
    fit = sigmoid_compute(early, 0.3 + 0.6 / (1 + (300 / early) ** 1.8), 0.3)
    assert "not determined" in fit.warning
    assert float(sigmoid_compute(C, CASES["sigmoid"][2], 0.3).predict(0.0)) == 0.3


def test_best_of_n_kl_is_the_closed_form():
    """Of n draws the best: density n F^(n-1), so the KL is E log(n U^(n-1)) with U^n uniform."""
    u = (np.arange(200_000) + 0.5) / 200_000
    for n in (2, 16, 64):
        assert best_of_n_kl(n) == pytest.approx(np.mean(math.log(n) + (n - 1) * np.log(u) / n), abs=1e-3)
    with pytest.raises(ValueError, match="from 1"):
        best_of_n_kl([0.5])


def test_fits_refuse_what_cannot_be_fitted():
    refused = [
        (lambda: entropy_performance([0.1, 0.2, 0.3], [1, 2, 3]), "3 points"),
        (lambda: entropy_performance([0.1] * 5, [1, 2, 3, 4, 5]), "unequal"),
        (lambda: entropy_performance([-0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4]), ">= 0"),
        (lambda: entropy_performance([0.1, 0.2, 0.3, 0.4], [1, 2, 3]), "equally long"),
        (lambda: entropy_performance([0.1, 0.2, 0.3, 0.4], [1, 2, 3, float("nan")]), "finite"),
        (lambda: overoptimisation_best_of_n([0, 1, 2], [0, 1, 1]), "3 points"),
        (lambda: overoptimisation_best_of_n([0, 1, 1, 1], [0, 1, 1, 1]), "two different"),
        (lambda: overoptimisation_rl([-1, 1, 2, 3], [0, 1, 1, 1]), "d >= 0"),
        (lambda: sigmoid_compute([1, 2, 3, 4, 5], [0.1] * 5, 0.0), "5 points"),
        (lambda: sigmoid_compute([0, 1, 2, 3, 4, 5], [0.1] * 6, 0.0), "above 0"),
        (lambda: sigmoid_compute([1, 2, 3, 4, 5, 6], [0.1] * 6, 0.2), "rise above"),
        (lambda: sigmoid_compute([1, 2, 3, 4, 5, 6], [0.1] * 5 + [1.2], 0.0), "in \\[0, 1\\]"),
    ]
    for call, words in refused:
        with pytest.raises(ValueError, match=words):
            call()

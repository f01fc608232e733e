"""Curves of the field fitted with intervals: reward against compute, against entropy, and gold reward against √KL.

Least squares; an interval is Student's around each parameter. It takes the points as independent around the curve. Points
of *one* training run are not (what a run has missed at step 50 it still misses at 60), so such intervals are a lower bound
of what isn't known: fit each seed by itself and put `over_seeds` around the parameters for a claim. What this module is
not: a test whether the form is right; look at ``rmse`` and at the picture.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from rlvr.stats.intervals import Interval

__all__ = [
    "Fit",
    "best_of_n_kl",
    "entropy_performance",
    "overoptimisation_best_of_n",
    "overoptimisation_rl",
    "sigmoid_compute",
]


@dataclass(frozen=True)
class Fit:
    """A fitted curve: its form in words, parameters with intervals, the typical miss ``rmse``, n points, and a warning if any.

    ``predict(x)`` is the curve itself.

    >>> fit = entropy_performance([0.0, 0.5, 1.0, 1.5], [0.7, 0.57, 0.36, 0.02])
    >>> print(fit.form, "|", fit.parameters["ceiling"])
    R = b - a exp(H) | 0.698 [0.689, 0.707], n = 4 points
    """

    form: str
    parameters: Mapping[str, Interval]
    rmse: float
    n: int
    curve: Callable[[np.ndarray], np.ndarray]
    warning: str = ""

    def predict(self, x: ArrayLike) -> np.ndarray:
        """The fitted curve at ``x``, in the units of the fit."""
        return self.curve(np.asarray(x, dtype=float))


def entropy_performance(entropy: ArrayLike, reward: ArrayLike, level: float = 0.95) -> Fit:
    """R = b - a·exp(H): validation reward [n] against mean token entropy [n] in nats, by ordinary least squares on e^H.

    Parameters ``a``, ``b`` and ``ceiling`` = b - a, the reward predicted when the entropy is used up (H = 0; not b). Refuses
    fewer than 4 points and entropies that are negative or all equal. Cui et al. 2025, arXiv 2505.22617, who fit runs
    without KL term and without entropy bonus; others dispute that entropy predicts reward (Khatri et al. 2025).

    >>> H = [1.0, 0.8, 0.5, 0.2, 0.1]
    >>> fit = entropy_performance(H, [0.9 - 0.2 * 2.718281828459045**h for h in H])
    >>> round(fit.parameters["a"].value, 6), round(fit.parameters["ceiling"].value, 6)
    (0.2, 0.7)
    """
    h, r = _points("entropy_performance", entropy, reward, 4)
    if h.min() < 0 or np.ptp(h) == 0:
        raise ValueError(f"entropy_performance: entropies from {h.min()} to {h.max()}; accepted are unequal ones >= 0")
    design = np.column_stack([-np.exp(h), np.ones(len(h))])
    combinations = {"a": (1, 0), "b": (0, 1), "ceiling": (-1, 1)}
    (a, b), parameters, rmse = _least_squares(design, r, combinations, level)
    return Fit("R = b - a exp(H)", parameters, rmse, len(h), lambda x: b - a * np.exp(x))


def overoptimisation_best_of_n(distance: ArrayLike, gold: ArrayLike, level: float = 0.95) -> Fit:
    """R(d) = d (α - β d): gold reward [n] gained by best-of-n against d = √KL from the start policy, least squares in d and d².

    ``gold`` is the gain over the start policy, so that R(0) = 0. α is the first slope, β how fast the proxy is used up; for
    β > 0 the curve turns at d* = α/2β. Refuses fewer than 4 points and d that are negative or never differ. Gao et
    al. 2023, arXiv 2210.10760.

    >>> d = [0.5, 1.0, 1.5, 2.0, 2.5]
    >>> fit = overoptimisation_best_of_n(d, [x * (0.6 - 0.1 * x) for x in d])
    >>> {name: round(value.value, 6) for name, value in fit.parameters.items()}
    {'alpha': 0.6, 'beta': 0.1}
    """
    d, r = _distances("overoptimisation_best_of_n", distance, gold)
    (alpha, beta), parameters, rmse = _least_squares(np.column_stack([d, -(d**2)]), r, _ALPHA_BETA, level)
    warning = _turning(beta, alpha / (2 * beta) if beta else math.inf, d)
    return Fit("R = d (α - β d)", parameters, rmse, len(d), lambda x: x * (alpha - beta * x), warning)


def overoptimisation_rl(distance: ArrayLike, gold: ArrayLike, level: float = 0.95) -> Fit:
    """R(d) = d (α - β log d): gold reward [n] gained by RL against d = √KL from the start policy.

    Least squares in d and d log d, else as `overoptimisation_best_of_n`, with 0 log 0 = 0; for β > 0 the curve turns at
    d* = exp(α/β - 1), of height β d*. Its slope at 0 is infinite, which can't be right: trust it where there are points.
    Gao et al. 2023, arXiv 2210.10760.

    >>> d = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    >>> fit = overoptimisation_rl(d, d * (0.5 - 0.2 * np.log(d)))
    >>> {name: round(value.value, 6) for name, value in fit.parameters.items()}
    {'alpha': 0.5, 'beta': 0.2}
    """
    d, r = _distances("overoptimisation_rl", distance, gold)
    (alpha, beta), parameters, rmse = _least_squares(np.column_stack([d, -_x_log_x(d)]), r, _ALPHA_BETA, level)
    warning = _turning(beta, math.exp(min(700.0, alpha / beta - 1)) if beta else math.inf, d)
    return Fit("R = d (α - β log d)", parameters, rmse, len(d), lambda x: alpha * x - beta * _x_log_x(x), warning)


def best_of_n_kl(n: ArrayLike) -> np.ndarray:
    """KL of best-of-n from the policy that it samples: log n - (n-1)/n, in nats.

    Exact for scores without ties; with ties, as of few distinct completions, it is an upper bound. Refuses n < 1.

    >>> best_of_n_kl([1, 2, 16]).round(4)
    array([0.    , 0.1931, 1.8351])
    """
    count = np.asarray(n, dtype=float)
    if not (count >= 1).all():
        raise ValueError(f"best_of_n_kl: n = {n!r}; accepted are numbers from 1")
    return np.log(count) - (count - 1) / count


def sigmoid_compute(compute: ArrayLike, reward: ArrayLike, start: float, level: float = 0.95) -> Fit:
    """R = R0 + (A - R0) / (1 + (C_mid / C)^B): reward [n] in [0, 1] against compute [n] > 0 (samples, tokens or updates).

    ``start`` is R0, measured before training. Parameters ``A`` (where the curve would end), ``B`` (how steep) and ``C_mid``
    (half of the way, in units of compute). Intervals linearise the fit, those of B and C_mid on a log scale, A's is cut
    off at 1. A curve that ends before its midpoint can't know A: the fit then carries a warning. Refuses fewer than 6
    points, C <= 0, no rise above R0. Khatri et al. 2025 (ScaleRL), arXiv 2510.13786.

    >>> C = np.array([50, 100, 200, 400, 800, 1600])
    >>> fit = sigmoid_compute(C, 0.3 + 0.6 / (1 + (300 / C) ** 1.5), start=0.3)
    >>> {name: round(value.value, 4) for name, value in fit.parameters.items()}
    {'A': 0.9, 'B': 1.5, 'C_mid': 300.0}
    """
    c, r = _points("sigmoid_compute", compute, reward, 6)
    if c.min() <= 0 or np.ptp(c) == 0:
        raise ValueError(f"sigmoid_compute: compute from {c.min()} to {c.max()}; accepted are unequal numbers above 0")
    if r.max() <= start or r.max() > 1 or r.min() < 0 or not 0 <= start < 1:
        raise ValueError(
            f"sigmoid_compute: rewards from {r.min():.3g} to {r.max():.3g}, start {start:.3g}; "
            "accepted are rewards in [0, 1] that rise above the start"
        )
    best = _fit_sigmoid(c, r, start)
    a, log_b, log_mid = best.x
    freedom = len(c) - 3
    rmse = math.sqrt(2 * best.cost / freedom)
    error = rmse * np.sqrt(np.diag(np.linalg.pinv(best.jac.T @ best.jac)))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error

    def on_log_scale(value: float, width: float) -> Interval:
        ends = (math.exp(min(700.0, value + sign * width)) for sign in (-1, 1))
        return Interval(math.exp(value), *ends, len(c), "points", level)

    top = Interval(float(a), max(start, float(a - half[0])), min(1.0, float(a + half[0])), len(c), "points", level)
    parameters = {"A": top, "B": on_log_scale(log_b, half[1]), "C_mid": on_log_scale(log_mid, half[2])}
    late = math.exp(log_mid) > c.max()
    warning = "the curve ends before its midpoint: A and C_mid are not determined by these points" if late else ""
    curve = _sigmoid(start, *best.x)
    return Fit("R = R0 + (A - R0) / (1 + (C_mid / C)^B)", parameters, rmse, len(c), curve, warning)


_ALPHA_BETA = {"alpha": (1, 0), "beta": (0, 1)}


def _sigmoid(start: float, a: float, log_b: float, log_mid: float) -> Callable[[np.ndarray], np.ndarray]:
    def curve(c: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore"):  # no compute at all is infinitely far before the midpoint
            return start + (a - start) / (1 + np.exp(math.exp(log_b) * (log_mid - np.log(c))))

    return curve


def _fit_sigmoid(c: np.ndarray, r: np.ndarray, start: float) -> optimize.OptimizeResult:
    """The best of several starts, since the surface has valleys where the curve has not bent yet."""

    def miss(x: np.ndarray) -> np.ndarray:
        return _sigmoid(start, *x)(c) - r

    lowest, highest = start + 1e-6, 1.0
    reach = np.log([c.min() / 100, c.max() * 100])
    bounds = ([lowest, math.log(0.05), reach[0]], [highest, math.log(50.0), reach[1]])
    top = min(highest - 1e-9, max(lowest + 1e-9, float(r.max())))
    tries = [
        optimize.least_squares(miss, (top, math.log(b), float(np.log(np.quantile(c, q)))), bounds=bounds, x_scale="jac")
        for b in (0.7, 2.0)
        for q in (0.2, 0.5, 0.9)
    ]
    return min(tries, key=lambda one: one.cost)


def _least_squares(
    design: np.ndarray, y: np.ndarray, combinations: Mapping[str, Sequence[float]], level: float
) -> tuple[np.ndarray, dict[str, Interval], float]:
    """Coefficients, an interval for each linear combination of them, and the residual sd."""
    n, p = design.shape
    if np.linalg.matrix_rank(design) < p:
        raise ValueError(f"{n} points at too few different places to tell {p} parameters apart")
    coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
    residual = y - design @ coefficients
    rmse = math.sqrt(float(residual @ residual) / (n - p))
    covariance = rmse**2 * np.linalg.inv(design.T @ design)
    t = float(stats.t.ppf((1 + level) / 2, n - p))
    found = {}
    for name, weights in combinations.items():
        w = np.asarray(weights, dtype=float)
        value, half = float(w @ coefficients), t * math.sqrt(max(0.0, float(w @ covariance @ w)))
        found[name] = Interval(value, value - half, value + half, n, "points", level)
    return coefficients, found, rmse


def _turning(beta: float, peak: float, d: np.ndarray) -> str:
    if beta <= 0:
        return "the fit never turns down (β <= 0): no over-optimisation in these points"
    return "" if peak <= d.max() else f"the fit turns at d = {peak:.3g}, beyond the last point at {d.max():.3g}"


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.where(x > 0, x, 1.0))


def _distances(place: str, distance: ArrayLike, gold: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    d, r = _points(place, distance, gold, 4)
    if d.min() < 0 or len(np.unique(d[d > 0])) < 2:
        raise ValueError(f"{place}: d from {d.min()} to {d.max()}; accepted are d >= 0 with two different ones above 0")
    return d, r


def _points(place: str, x: ArrayLike, y: ArrayLike, fewest: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if a.ndim != 1 or a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError(
            f"{place}: shapes {a.shape} and {b.shape}; accepted are two equally long lists of finite numbers"
        )
    if len(a) < fewest:
        raise ValueError(f"{place}: {len(a)} points; a fit with intervals needs at least {fewest}")
    return a, b

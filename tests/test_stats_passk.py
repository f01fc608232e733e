"""pass@k of many problems and many k, G-Pass@k, exact pass@k and bands over problems, against exact rationals and counting."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from rlvr.rng import generator
from rlvr.stats import (
    band_over_problems,
    exact_pass_at_ks,
    g_pass_at_k,
    mean_g_pass_at_k,
    mean_pass_at_k,
    pass_at_k,
    pass_at_ks,
    resample_curves,
    solved,
)


def exact_pass(n: int, c: int, k: int) -> float:
    return float(1 - Fraction(math.comb(n - c, k), math.comb(n, k)))


def test_many_at_once_equal_exact_rationals():
    n = [1, 7, 7, 7, 7, 30, 30, 30, 30, 30]
    c = [1, 0, 1, 3, 7, 0, 2, 15, 29, 30]
    for size, right in zip(n, c, strict=True):
        ks = np.arange(1, size + 1)
        (row,) = pass_at_ks(size, [right], ks)
        assert row == pytest.approx([exact_pass(size, right, int(k)) for k in ks], abs=1e-15)
    table = pass_at_ks(n[1:], c[1:], [1, 4, 7])  # different n side by side
    assert table.shape == (9, 3)
    assert table[:, 1] == pytest.approx([exact_pass(a, b, 4) for a, b in zip(n[1:], c[1:], strict=True)], abs=1e-15)
    assert (table[:, 0] == np.divide(c[1:], n[1:])).all()  # pass@1 is c/n to the last digit


def test_many_at_once_are_stable_to_a_hundred_thousand_samples():
    n, ks = 100_000, [1, 2, 1000, 60_000, 99_999, 100_000]
    for c in (1, 2, 10, 400, 50_000, 99_999):
        assert pass_at_ks(n, [c], ks)[0] == pytest.approx([exact_pass(n, c, k) for k in ks], rel=1e-12, abs=0)
    assert (pass_at_ks(n, [0, n], ks) == [[0.0] * 6, [1.0] * 6]).all()


def test_many_at_once_agree_with_one_at_a_time():
    rng = generator(0, "test", "pass_at_ks")
    n, ks = 512, [1, 3, 8, 64, 500, 512]
    c = rng.integers(0, n + 1, 40)
    one = [[pass_at_k(n, int(each), k) for k in ks] for each in c]
    assert pass_at_ks(n, c, ks) == pytest.approx(np.array(one), abs=1e-13)
    assert pass_at_ks(n, c, ks).mean(0)[2] == pytest.approx(mean_pass_at_k([n] * 40, c.tolist(), 8))


@pytest.mark.parametrize(
    ("samples", "correct", "ks"),
    [
        (3, [0], [5]),
        (3, [1], [1, 5]),
        (3, [0, 4], [1]),
        (3, [-1], [1]),
        (3, [1], [0]),
        (0, [0], [1]),
        ([4, 2], [1, 1], [3]),
        ([4, 4], [1], [1]),
        (3.0, [1], [1]),
        (3, [0.5], [1]),
        (3, [1], [1.0]),
        (3, [None], [1]),
        (3, [True], [1]),
        (3, [], [1]),
        (3, [1], []),
    ],
)
def test_many_at_once_refuse_what_the_samples_cannot_answer(samples, correct, ks):
    with pytest.raises(ValueError, match=r"pass_at_ks: .*(needed are|must be|accepted are)"):
        pass_at_ks(samples, correct, ks)
    if len(ks) == 1:
        with pytest.raises(ValueError, match=r"g_pass_at_k: .*(needed are|must be|accepted are)"):
            g_pass_at_k(samples, correct, ks[0], 0.5)


@pytest.mark.parametrize("tau", [0.0, 0.25, 0.5, 0.7, 0.75, 1.0])
def test_g_pass_at_k_equals_counting_all_subsets(tau):
    for n, c in [(6, 0), (6, 2), (6, 5), (6, 6), (5, 3)]:
        right = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            subsets = [sum(subset) for subset in combinations(right, k)]
            share = np.mean([hits >= max(1, math.ceil(Fraction(tau).limit_denominator(100) * k)) for hits in subsets])
            assert g_pass_at_k(n, [c], k, tau)[0] == pytest.approx(share, abs=1e-12)


def test_g_pass_at_k_ends_are_pass_at_k_and_all_right():
    c = np.arange(0, 33)
    assert g_pass_at_k(32, c, 10, 0.0) == pytest.approx(pass_at_ks(32, c, [10])[:, 0], abs=1e-12)
    every = [math.comb(int(each), 10) / math.comb(32, 10) for each in c]
    assert g_pass_at_k(32, c, 10, 1.0) == pytest.approx(every, abs=1e-12)
    # 0.28 * 25 is a hair above 7 in floating point: 7 of 25 are enough all the same.
    assert g_pass_at_k(25, [7], 25, 0.28)[0] == 1.0
    with pytest.raises(ValueError, match=r"tau = 1\.5"):
        g_pass_at_k(10, [7], 10, 1.5)


def test_mean_g_pass_at_k_is_the_sum_of_the_paper():
    n, c, k = 16, [3, 9, 16], 8
    by_hand = 2 / k * sum(g_pass_at_k(n, c, k, i / k) for i in range(5, 9))
    assert mean_g_pass_at_k(n, c, k) == pytest.approx(by_hand)
    assert mean_g_pass_at_k(n, [16], 8)[0] == pytest.approx(1.0) and mean_g_pass_at_k(n, [16], 7)[0] < 1
    with pytest.raises(ValueError, match="k = 1"):
        mean_g_pass_at_k(n, c, 1)


def test_exact_pass_at_k_needs_no_samples():
    p = [0.0, 1e-12, 1e-6, 0.3, 1.0]
    ks = [1, 2, 1000, 10**6]
    table = exact_pass_at_ks(p, ks)
    for i, share in enumerate(p):
        exact = [float(1 - (1 - Fraction(share)) ** k) if k <= 1000 else None for k in ks]
        assert table[i, :3] == pytest.approx(exact[:3], rel=1e-12, abs=0)
    assert table[2, 3] == pytest.approx(1 - math.exp(-1.0000005), rel=1e-9)
    assert table[1, 3] == pytest.approx(1e-6, rel=1e-6)
    assert (np.diff(table, axis=1) >= 0).all()
    for bad in ([1.1], [-0.1], [float("nan")], [[0.5]]):
        with pytest.raises(ValueError, match="exact_pass_at_ks"):
            exact_pass_at_ks(bad, ks)
    with pytest.raises(ValueError, match="k > 0"):
        exact_pass_at_ks(p, [0])


def test_the_estimate_is_unbiased_for_the_exact_value():
    rng, p, n, ks = generator(0, "test", "unbiased"), 0.08, 32, [1, 4, 16, 32]
    drawn = pass_at_ks(n, rng.binomial(n, p, 20_000), ks)
    error = (drawn.mean(0) - exact_pass_at_ks([p], ks)[0]) / (drawn.std(0) / math.sqrt(20_000))
    assert (np.abs(error) < 4).all()


def test_solved_puts_every_problem_in_one_box():
    found = solved([0, 3, 0, 9, 0], [0, 0, 1, 9, 2])
    assert found._asdict() == {"never": 1, "lost": 1, "gained": 2, "both": 1}
    with pytest.raises(ValueError, match="same problems"):
        solved([0, 1], [0, 1, 1])


# ── Bands ───────────────────────────────────────────────────────────────────────────────────


def test_one_draw_of_problems_gives_one_whole_curve():
    """Columns that are equal stay equal in every draw, as independent draws at each k would not leave them."""
    rng = generator(0, "test", "curves")
    column = rng.random((30, 1))
    drawn = resample_curves(np.hstack([column, column, 1 - column]), generator(1, "boot"), 500)
    assert drawn.shape == (500, 3)
    assert drawn[:, 0] == pytest.approx(drawn[:, 1], abs=1e-12)
    assert drawn[:, 0] + drawn[:, 2] == pytest.approx(np.ones(500), abs=1e-12)
    assert drawn[:, 0].std() == pytest.approx(column.std() / math.sqrt(30), rel=0.12)


def test_a_band_of_a_rising_curve_rises():
    rng = generator(0, "test", "rising")
    curves = pass_at_ks(64, rng.binomial(64, rng.beta(0.3, 1.0, 100)), [1, 4, 16, 64])
    for whole in (False, True):
        band = band_over_problems(curves, generator(1, "boot"), whole=whole)
        assert (band.lo <= band.mean).all() and (band.mean <= band.hi).all()
        assert band.mean == pytest.approx(curves.mean(0)) and (band.n, band.whole) == (100, whole)
    assert (np.diff(band_over_problems(curves, generator(1, "boot")).lo) > 0).all()


def test_the_band_for_the_whole_curve_is_wider():
    curves = generator(0, "test", "wider").normal(0, 1, (80, 12))
    pointwise, whole = (band_over_problems(curves, generator(1, "boot"), whole=each) for each in (False, True))
    assert ((whole.hi - whole.lo) > 1.2 * (pointwise.hi - pointwise.lo)).all()
    normal = 2 * 1.96 * curves.std(axis=0, ddof=1) / math.sqrt(80)
    many = band_over_problems(curves, generator(1, "boot"), 8000)
    assert many.hi - many.lo == pytest.approx(normal, rel=0.06)
    # With one point on the curve there is nothing more to cover.
    one, all_of_it = (band_over_problems(curves[:, :1], generator(1, "boot"), 8000, whole=w) for w in (False, True))
    assert all_of_it.hi - all_of_it.lo == pytest.approx(one.hi - one.lo, rel=0.05)


def test_pairing_makes_the_band_of_a_difference_narrow():
    rng = generator(0, "test", "pairing")
    difficulty = rng.beta(0.5, 0.5, 200)
    first, second = (pass_at_ks(64, rng.binomial(64, difficulty**power), [1, 8]) for power in (1.0, 1.2))
    paired = band_over_problems(first - second, generator(1, "boot"))
    alone = [band_over_problems(curves, generator(1, "boot")) for curves in (first, second)]
    separate = np.hypot(*(band.hi - band.lo for band in alone))
    assert (paired.hi - paired.lo < 0.5 * separate).all()


def test_bands_refuse_nonsense():
    rng = generator(0, "test")
    for curves in ([[1.0, 2.0]], [1.0, 2.0], [[1.0], [float("nan")]], np.ones((3, 0))):
        with pytest.raises(ValueError, match="band_over_problems"):
            band_over_problems(curves, rng)
    with pytest.raises(ValueError, match="level = 95"):
        band_over_problems([[0.0], [1.0]], rng, level=95)
    with pytest.raises(ValueError, match="draws = 5"):
        band_over_problems([[0.0], [1.0]], rng, draws=5)
    flat = band_over_problems([[0.0, 0.5], [0.0, 0.7]], rng, whole=True)
    assert flat.lo[0] == flat.hi[0] == 0.0 and flat.lo[1] < flat.hi[1]

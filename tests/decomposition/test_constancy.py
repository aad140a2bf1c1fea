"""Tests of constancy: exact tails, the level they promise, the power they should have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from invariant_bandits import WindowedMoments
from invariant_bandits.decomposition.paths import CoefficientPaths, window_paths
from invariant_bandits.decomposition.split import (
    ConstancyTest,
    constancy_test,
    log_survival,
)
from worlds import drawn_paths, random_basis, random_spd, within

M, D = 6, 3

# -- the χ² tail --


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 20, 56, 101, 400])
def test_log_survival_agrees_with_scipy_wherever_scipy_does_not_underflow(freedom):
    statistics = np.concatenate([[0.0, 1e-3], np.geomspace(0.1, 1000.0, 60)])
    ours = np.array([log_survival(statistic, freedom) for statistic in statistics])
    theirs = stats.chi2.logsf(statistics, freedom)
    usable = theirs > -700
    np.testing.assert_allclose(ours[usable], theirs[usable], rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("freedom", [2, 4, 20, 56, 400, 5000])
def test_log_survival_is_exact_far_beyond_underflow(freedom):
    """For even freedom 2a the tail is e^(−x/2) Σ_{k<a} (x/2)^k / k!, summed here in logarithms."""
    powers = np.arange(freedom // 2)
    for statistic in np.geomspace(10.0, 1e8, 40):
        half = statistic / 2.0
        exact = (
            special.logsumexp(powers * np.log(half) - special.gammaln(powers + 1.0))
            - half
        )
        assert log_survival(statistic, freedom) == pytest.approx(
            exact, rel=2e-6, abs=1e-9
        )


@pytest.mark.parametrize("freedom", [1, 5, 40])
def test_more_evidence_never_raises_the_p_value(freedom):
    values = np.array(
        [
            log_survival(statistic, freedom)
            for statistic in np.linspace(0.0, 5000.0, 4001)
        ]
    )
    assert (np.diff(values) <= 0).all()
    assert values[0] == 0.0


# -- the tests of constancy --


def test_p_values_are_uniform_when_coefficients_are_constant():
    # Exact χ² here: each Kolmogorov–Smirnov p-value falls below 1e-3 with probability 1e-3 for fresh seeds.
    tests = [
        constancy_test(
            drawn_paths(np.random.default_rng(seed), np.ones((M, 1)) * [1.0, -2.0, 0.5])
        )
        for seed in range(1000)
    ]
    assert (
        stats.kstest(np.exp([test.log_wald for test in tests]), "uniform").pvalue > 1e-3
    )
    assert (
        stats.kstest(np.exp([test.log_trend for test in tests]), "uniform").pvalue
        > 1e-3
    )


def test_p_values_from_logs_are_uniform_when_coefficients_are_constant():
    # As above, with noise and covariances estimated from 60 rounds per window.
    values = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((6 * 60, 3)) + 5.0
        rewards = features @ [1.0, -1.0, 2.0] + rng.standard_normal(6 * 60)
        paths, *_ = window_paths(
            WindowedMoments.from_arrays(features, rewards, windows=6)
        )
        values.append(np.exp(constancy_test(paths).log_wald))
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_the_combined_p_value_keeps_the_level():
    # P(p ≤ 0.05) ≤ 0.05: Binomial(3000, 0.05) exceeds its mean by four sd with probability below 1e-3.
    # The smaller of the two p-values alone would fall below 0.05 in about 8 % of the runs.
    rejected = sum(
        constancy_test(
            drawn_paths(np.random.default_rng(5000 + seed), np.zeros((M, D)))
        ).log_p
        <= np.log(0.05)
        for seed in range(3000)
    )
    assert rejected <= 3000 * 0.05 + 4 * np.sqrt(3000 * 0.05 * 0.95)


@pytest.mark.parametrize("drift", [0.1, 0.2, 0.3])
def test_the_power_against_planted_drift_is_that_of_the_noncentral_chi_square(drift):
    # Binomial(400, power), four standard deviations: fails with probability below 1e-3 for fresh seeds.
    centres = drift * np.cos(np.arange(M * D)).reshape(M, D)
    covariance = 0.1**2 * np.eye(D)
    rejected = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        coefficients = centres + 0.1 * rng.standard_normal((M, D))
        paths = CoefficientPaths(coefficients, np.broadcast_to(covariance, (M, D, D)))
        rejected += constancy_test(paths).log_wald < np.log(0.01)
    noncentrality = ((centres - centres.mean(axis=0)) ** 2).sum() / 0.1**2
    freedom = (M - 1) * D
    power = stats.ncx2.sf(stats.chi2.isf(0.01, freedom), freedom, noncentrality)
    assert within(rejected, 400, power)


def test_the_trend_test_sees_slow_drift_that_the_wald_test_misses():
    centres = 0.12 * np.linspace(-1.0, 1.0, 20)[:, None] * np.ones(2)
    found = {"wald": 0, "trend": 0}
    for seed in range(100):
        test = constancy_test(
            drawn_paths(np.random.default_rng(seed), centres, scale=0.1)
        )
        found["wald"] += test.log_wald < np.log(0.01)
        found["trend"] += test.log_trend < np.log(0.01)
    assert found["trend"] >= found["wald"] + 20


def quadratic_trend(paths):
    """What a quadratic in window time explains beyond a constant, by one weighted regression each."""
    m = len(paths.coefficients)
    roots = np.linalg.cholesky(np.linalg.inv(paths.covariances)).swapaxes(1, 2)
    target = np.einsum("mij,mj->mi", roots, paths.coefficients).ravel()
    left = []
    for degree in (0, 2):
        powers = np.arange(m)[:, None] ** np.arange(degree + 1.0)
        design = np.concatenate(
            [np.kron(powers[window], roots[window]) for window in range(m)]
        )
        left.append(
            np.linalg.lstsq(design, target, rcond=None)[1].sum()
            if len(target) > design.shape[1]
            else 0.0
        )
    return left[0] - left[1]


@pytest.mark.parametrize("windows", [4, 5, 12])
def test_the_trend_test_is_that_of_a_weighted_quadratic(windows):
    rng = np.random.default_rng(windows)
    paths = drawn_paths(rng, 0.1 * rng.standard_normal((windows, D)))
    expected = stats.chi2.logsf(quadratic_trend(paths), 2 * D)
    assert constancy_test(paths).log_trend == pytest.approx(expected, rel=1e-8)


def test_the_trend_test_sees_a_bend_that_ends_where_it_began():
    """A straight line explains nothing of it.

    The noncentrality is near 25. Over the 4 degrees of freedom of the trend that is power 0.95, so fewer than
    80 of 100 have probability below 1e-7; over the 38 of the Wald test it is power 0.52.
    """
    bend = np.linspace(-1.0, 1.0, 20) ** 2
    centres = 0.25 * (bend - bend.mean())[:, None] * np.ones(2)
    found = {"wald": 0, "trend": 0}
    for seed in range(100):
        test = constancy_test(
            drawn_paths(np.random.default_rng(seed), centres, scale=0.1)
        )
        found["wald"] += test.log_wald < np.log(0.01)
        found["trend"] += test.log_trend < np.log(0.01)
    assert found["trend"] >= 80
    assert found["trend"] >= found["wald"] + 20


def test_two_tests_share_the_level_between_them():
    assert ConstancyTest(-5.0, -3.0).log_p == pytest.approx(-5.0 + np.log(2.0))
    assert ConstancyTest(-3.0, -7.0).log_p == pytest.approx(-7.0 + np.log(2.0))
    assert ConstancyTest(-0.1, -0.2).log_p == 0.0


@given(st.integers(0, 2**32 - 1))
def test_the_wald_test_does_not_care_about_the_order_of_the_windows(seed):
    rng = np.random.default_rng(seed)
    paths = drawn_paths(rng, rng.standard_normal((M, D)) * 0.1)
    order = rng.permutation(M)
    shuffled = CoefficientPaths(paths.coefficients[order], paths.covariances[order])
    assert constancy_test(shuffled).log_wald == pytest.approx(
        constancy_test(paths).log_wald, rel=1e-9, abs=1e-12
    )


@given(st.integers(0, 2**32 - 1))
def test_both_tests_do_not_care_about_the_coordinates_of_the_block(seed):
    rng = np.random.default_rng(seed)
    paths = drawn_paths(rng, rng.standard_normal((M, D)) * 0.1)
    change = random_basis(D, rng) @ np.diag(rng.uniform(0.1, 10.0, D))
    one, other = constancy_test(paths), constancy_test(paths.along(change))
    assert other.log_wald == pytest.approx(one.log_wald, rel=1e-7, abs=1e-9)
    assert other.log_trend == pytest.approx(one.log_trend, rel=1e-7, abs=1e-9)


def test_coefficients_that_never_change_are_no_evidence_at_all():
    covariances = np.stack(
        [random_spd(D, np.random.default_rng(seed)) for seed in range(M)]
    )
    test = constancy_test(
        CoefficientPaths(np.tile([1.0, -2.0, 0.5], (M, 1)), covariances)
    )
    assert test.log_wald == pytest.approx(0.0, abs=1e-9)
    assert test.log_trend == pytest.approx(0.0, abs=1e-9)


def test_two_windows_leave_only_the_wald_test():
    paths = CoefficientPaths(np.array([[0.0], [3.0]]), np.ones((2, 1, 1)))
    test = constancy_test(paths)
    assert np.exp(test.log_wald) == pytest.approx(stats.chi2.sf(4.5, 1), rel=1e-9)
    assert test.log_trend == test.log_wald

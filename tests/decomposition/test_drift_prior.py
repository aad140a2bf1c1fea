"""The drift prior: plants how far each direction moves, and recovers it from windowed moments."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import invariant_bandits as ib
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.paths import CoefficientPaths, random_effects
from worlds import random_basis


def logs_with_drift(rng, drift, windows=40, rounds=400, baseline=None):
    """Features of changing scale; the coefficients of every window are drawn around a mean with variances
    `drift`.
    """
    p = len(drift)
    mean = np.linspace(1.0, -1.0, p)
    features, rewards = [], []
    for window in range(windows):
        rows = rng.normal(size=(rounds, p)) * rng.uniform(0.5, 2.0, p)
        coefficients = mean + np.sqrt(drift) * rng.normal(size=p)
        level = 0.0 if baseline is None else baseline[window]
        features.append(rows)
        rewards.append(level + rows @ coefficients + rng.normal(size=rounds))
    return ib.WindowedMoments.from_arrays(
        np.vstack(features), np.concatenate(rewards), windows=windows
    ), mean


def test_planted_drift_variances_are_recovered():
    drift = np.array([0.0, 0.05, 0.5, 0.0])
    found = []
    for seed in range(20):
        moments, _ = logs_with_drift(np.random.default_rng(seed), drift)
        found.append(DriftPrior.from_moments(moments, np.eye(4)).drift)
    mean = np.mean(found, axis=0)
    # 20 × 40 windows: a variance is known to about 5 %; four standard errors: one false alarm in 10^4.
    np.testing.assert_allclose(mean[1:3], drift[1:3], rtol=0.2)
    assert (mean[[0, 3]] < 2e-3).all()


def test_the_mean_and_its_covariance_cover_the_truth():
    # χ²(4) beyond its 0.999 quantile in 5 or more of 60 runs has probability below 1e-7.
    misses = 0
    for seed in range(60):
        moments, mean = logs_with_drift(
            np.random.default_rng(seed), np.array([0.0, 0.1, 0.3, 0.0])
        )
        prior = DriftPrior.from_moments(moments, np.eye(4))
        error = prior.mean - mean
        misses += error @ np.linalg.solve(prior.mean_covariance, error) > 18.5
    assert misses < 5


def test_the_expectation_maximisation_never_lowers_the_likelihood():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(12, 3)) * [0.1, 1.0, 0.5]
    H = np.stack([np.diag(rng.uniform(0.01, 0.3, 3)) + 0.01 for _ in range(12)])

    def likelihood(iterations):
        mean, _, drift = random_effects(CoefficientPaths(g, H), iterations)
        total = 0.0
        for one, error in zip(g, H, strict=True):
            covariance = error + np.diag(drift)
            rest = one - mean
            total -= 0.5 * (
                np.linalg.slogdet(covariance)[1]
                + rest @ np.linalg.solve(covariance, rest)
            )
        return total

    values = [likelihood(n) for n in (1, 2, 5, 20, 100, 400)]
    # The reported mean lags the reported drift by one half-step; rounding aside the sequence climbs.
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(values))


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e5])
def test_units_scale_as_they_should(scale):
    rng = np.random.default_rng(3)
    features = rng.normal(size=(1600, 3)) * np.repeat(
        rng.uniform(0.5, 2.0, (8, 3)), 200, axis=0
    )
    rewards = 2.0 + features @ [1.0, -1.0, 0.5] + rng.normal(size=1600)
    plain = DriftPrior.from_moments(
        ib.WindowedMoments.from_arrays(features, rewards, windows=8), np.eye(3)
    )
    other = ib.WindowedMoments.from_arrays(features * scale, rewards, windows=8)
    scaled = DriftPrior.from_moments(other, np.eye(3))
    np.testing.assert_allclose(scaled.mean * scale, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(scaled.unit * scale**2, plain.unit, rtol=1e-6)
    np.testing.assert_allclose(scaled.noise_variance, plain.noise_variance, rtol=1e-6)
    assert scaled.baseline == pytest.approx(plain.baseline, rel=1e-6)


def intercepts(features, rewards, windows):
    """Intercept of each window by least squares, and its sampling variance, the noise being that of all."""
    levels, variances, squares, freedom = [], [], 0.0, 0
    for rows in np.split(np.arange(len(rewards)), windows):
        design = np.column_stack([np.ones(len(rows)), features[rows]])
        solution, left, _, _ = np.linalg.lstsq(design, rewards[rows], rcond=None)
        levels.append(solution[0])
        variances.append(np.linalg.inv(design.T @ design)[0, 0])
        squares, freedom = squares + left[0], freedom + len(rows) - design.shape[1]
    return np.array(levels), squares / freedom * np.array(variances)


def test_the_baseline_is_the_weighted_mean_of_the_intercepts_and_moves_where_chi_square_says_so():
    """Steps of growing height, features far from centred: p-values on both sides of 0.01 and near it."""
    rng = np.random.default_rng(4)
    features = rng.normal(loc=[1.5, -0.5], size=(600, 2))
    noise = rng.normal(size=600)
    seen = []
    for height in np.linspace(0.0, 1.0, 101):
        rewards = (
            features @ [1.0, 0.5]
            + height * np.repeat([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], 100)
            + noise
        )
        levels, variances = intercepts(features, rewards, 6)
        center = np.average(levels, weights=1.0 / variances)
        p_value = stats.chi2.sf(((levels - center) ** 2 / variances).sum(), 5)
        moments = ib.WindowedMoments.from_arrays(features, rewards, windows=6)
        prior = DriftPrior.from_moments(moments, np.eye(2), iterations=1)
        assert prior.baseline == pytest.approx(center, rel=1e-9)
        assert prior.baseline_error == pytest.approx(
            1.0 / (1.0 / variances).sum(), rel=1e-9
        )
        assert prior.baseline_variance == pytest.approx(
            max(((levels - center) ** 2 - variances).mean(), 0.0), rel=1e-7, abs=1e-12
        )
        assert prior.baseline_moves == (p_value < 0.01)
        seen.append(p_value)
    for low, high in ((0.001, 0.005), (0.005, 0.01), (0.01, 0.02), (0.02, 0.05)):
        assert any(low < p_value < high for p_value in seen)


def test_the_unit_is_the_mean_square_of_an_effect_whatever_the_basis():
    """Four uncorrelated features of sd 2: a coefficient of typical size has the mean square of all four
    effects.
    """
    rng = np.random.default_rng(5)
    features = np.linalg.qr(rng.normal(size=(4000, 4)))[0] * 2.0 * np.sqrt(4000)
    rewards = features @ [1.0, -2.0, 0.0, 3.0]
    moments = ib.WindowedMoments.from_arrays(features, rewards, windows=4)
    for basis in (np.eye(4), random_basis(4, rng)):
        unit = DriftPrior.from_moments(moments, basis).unit
        np.testing.assert_allclose(unit, np.full(4, (1.0 + 4.0 + 9.0) / 4.0), rtol=0.02)


def test_the_default_number_of_iterations_is_enough():
    for seed in range(5):
        moments, _ = logs_with_drift(
            np.random.default_rng(seed), np.array([0.0, 0.05, 0.5, 0.0])
        )
        short, long = (
            DriftPrior.from_moments(moments, np.eye(4), **more).drift
            for more in ({}, {"iterations": 2000})
        )
        np.testing.assert_allclose(short, long, atol=1.5e-4)


def test_a_moving_baseline_is_noticed_and_a_still_one_is_not():
    rng = np.random.default_rng(1)
    still, _ = logs_with_drift(rng, np.zeros(2), windows=10)
    moving, _ = logs_with_drift(
        rng, np.zeros(2), windows=10, baseline=np.linspace(0.0, 1.0, 10)
    )
    assert not DriftPrior.from_moments(still, np.eye(2)).baseline_moves
    found = DriftPrior.from_moments(moving, np.eye(2))
    assert found.baseline_moves
    assert found.baseline == pytest.approx(0.5, abs=0.1)
    assert found.baseline_variance == pytest.approx(
        np.var(np.linspace(0.0, 1.0, 10)), rel=0.3
    )


def test_false_alarms_about_the_baseline_are_rare():
    # Level 0.01: more than 8 of 200 has probability below 1e-4.
    alarms = 0
    for seed in range(200):
        moments, _ = logs_with_drift(
            np.random.default_rng(seed), np.array([0.0, 0.2]), windows=8, rounds=60
        )
        alarms += DriftPrior.from_moments(
            moments, np.eye(2), iterations=5
        ).baseline_moves
    assert alarms <= 8


@pytest.mark.parametrize("intercept", [True, False])
def test_logged_actions_are_as_unusual_as_they_have_coordinates(intercept):
    rng = np.random.default_rng(4)
    features = rng.normal(size=(900, 3)) @ rng.normal(size=(3, 3)) + [0.3, -2.0, 1.0]
    moments = ib.WindowedMoments.from_arrays(features, rng.normal(size=900), windows=3)
    basis = random_basis(3, rng)
    prior = DriftPrior.from_moments(moments, basis)
    z = features @ basis
    z = np.column_stack([z, np.ones(len(z))]) if intercept else z
    unusual = np.einsum("nd,de,ne->n", z, prior.usual_precision(intercept), z)
    assert unusual.mean() == pytest.approx(z.shape[1], rel=0.05)


def test_the_signal_of_a_selective_log_is_that_of_the_offered_actions():
    """Greedy choices among five vary along γ with 0.45 of the variance of all offered actions, whose expected
    rewards have variance ‖γ‖² = 4; 20,000 rounds fix either within a few percent.
    """
    rng = np.random.default_rng(7)
    gamma = np.array([2.0, 0.0, 0.0])
    offered = rng.normal(size=(20_000, 5, 3))
    chosen = offered[np.arange(20_000), (offered @ gamma).argmax(axis=1)]
    rewards = chosen @ gamma + rng.normal(size=20_000)
    signals = [
        DriftPrior.from_moments(
            ib.WindowedMoments.from_arrays(chosen, rewards, windows=8, offered=sets),
            np.eye(3),
        ).signal_variance
        for sets in (offered, None)
    ]
    assert signals[0] == pytest.approx(4.0, rel=0.1)
    assert signals[1] == pytest.approx(0.45 * 4.0, rel=0.1)


def test_the_signal_of_drift_is_that_of_the_direction_where_it_moves_rewards_most():
    """Along the second of three directions the coefficient has variance 0.25 over windows and the features
    have variance 4, along the third 1 and 0.09: drift gives rewards a variance of 1 and 0.09.

    Forty windows fix a variance with a standard error of 22 %.
    """
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    inner = rng.normal(size=(20_000, 3)) * [1.0, 2.0, 0.3]
    drawn = [1.0, 0.0, 0.0] + rng.normal(size=(40, 3)) * [0.0, 0.5, 1.0]
    drawn[:, 1] /= 2.0 * drawn[:, 1].std()
    rewards = (inner * np.repeat(drawn, 500, axis=0)).sum(axis=1)
    moments = ib.WindowedMoments.from_arrays(
        inner @ basis.T, rewards + rng.normal(size=20_000), windows=40
    )
    prior = DriftPrior.from_moments(moments, basis)
    assert prior.drift_signal == pytest.approx(1.0, rel=0.1)

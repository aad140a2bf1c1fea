"""Least squares per window: sampling covariances that are honest in small windows, and their weighted
mean.
"""

import numpy as np
import pytest

from invariant_bandits import WindowedMoments
from invariant_bandits.decomposition.paths import CoefficientPaths, window_paths
from worlds import piecewise_world, random_spd


def test_squared_errors_in_units_of_their_covariance_have_mean_p_in_small_windows():
    """With ν = 13 degrees of freedom the form is 3·F(3, 13)·11/13, mean 3 only because H is widened by
    ν/(ν − 2).
    """
    windows, rounds, truth = 4000, 17, np.array([1.0, -2.0, 0.5])
    rng = np.random.default_rng(0)
    features = rng.standard_normal((windows * rounds, 3))
    rewards = features @ truth + rng.standard_normal(windows * rounds)
    paths, *_ = window_paths(
        WindowedMoments.from_arrays(features, rewards, windows=windows)
    )
    error = paths.coefficients - truth
    forms = np.einsum("mi,mij,mj->m", error, np.linalg.inv(paths.covariances), error)
    # Four standard errors: fails with probability below 1e-3 for fresh seeds; not widened, the mean is 3.5.
    assert abs(forms.mean() - 3.0) < 4 * forms.std() / np.sqrt(windows)


def test_tiny_windows_share_one_noise_variance():
    rng = np.random.default_rng(1)
    moments = WindowedMoments.from_arrays(
        rng.standard_normal((60, 3)), rng.standard_normal(60), windows=5
    )
    paths, noise, _ = window_paths(moments)
    assert (moments.counts - 4 <= 8).all()
    np.testing.assert_allclose(noise, noise[0])
    np.testing.assert_allclose(
        paths.covariances @ moments.gram,
        np.tile(noise[0] * np.eye(3), (5, 1, 1)),
        atol=1e-9,
    )


def test_a_window_estimates_its_own_noise_from_nine_degrees_of_freedom_on():
    """Windows of 12 and 13 rounds with 3 features have 8 and 9: the first takes the pooled variance,
    unwidened.
    """
    rng = np.random.default_rng(4)
    features, rewards = rng.standard_normal((50, 3)), rng.standard_normal(50)
    place = np.repeat(np.arange(4), [12, 13, 12, 13])
    moments = WindowedMoments.empty(3, 4).update(features, rewards, window=place)
    paths, noise, _ = window_paths(moments)
    squares = []
    for window in range(4):
        design = np.column_stack(
            [np.ones((place == window).sum()), features[place == window]]
        )
        squares.append(
            np.linalg.lstsq(design, rewards[place == window], rcond=None)[1][0]
        )
    pooled = sum(squares) / (50 - 4 * 4)
    np.testing.assert_allclose(
        noise, [pooled, squares[1] / 9, pooled, squares[3] / 9], rtol=1e-9
    )
    widened = noise * [1.0, 9 / 7, 1.0, 9 / 7]
    np.testing.assert_allclose(
        paths.covariances,
        widened[:, None, None] * np.linalg.inv(moments.gram),
        rtol=1e-9,
    )


def test_the_mean_along_directions_is_least_squares_with_the_rest_partialled_out():
    """Within-window estimator: β = (ΣA_i/s_i²)⁻¹ Σa_i/s_i² with A_i the Schur complement of the residual
    part.
    """
    world = piecewise_world(np.random.default_rng(2))
    moments = world.moments
    paths, noise, _ = window_paths(moments)
    W, V = world.split.invariant, world.split.residual
    left, right = np.zeros((3, 3)), np.zeros(3)
    for gram, cross, count, variance in zip(
        moments.gram, moments.cross, moments.counts, noise, strict=True
    ):
        part = W.T @ gram @ V @ np.linalg.inv(V.T @ gram @ V)
        freedom = count - 6
        weight = (freedom - 2) / freedom / variance
        left += weight * (W.T @ gram @ W - part @ V.T @ gram @ W)
        right += weight * (W.T @ cross - part @ V.T @ cross)
    mean, covariance = paths.along(W).weighted_mean()
    np.testing.assert_allclose(mean, np.linalg.solve(left, right), rtol=1e-9)
    np.testing.assert_allclose(covariance, np.linalg.inv(left), rtol=1e-9, atol=1e-14)


def test_the_weighted_mean_has_the_smallest_variance():
    rng = np.random.default_rng(3)
    covariances = np.stack([random_spd(2, rng) * scale for scale in (0.1, 1.0, 10.0)])
    _, covariance = CoefficientPaths(
        rng.standard_normal((3, 2)), covariances
    ).weighted_mean()
    plain = covariances.sum(axis=0) / 9.0
    assert np.linalg.eigvalsh(plain - covariance)[0] > 0
    assert covariance[0, 0] == pytest.approx(
        np.linalg.inv(np.linalg.inv(covariances).sum(axis=0))[0, 0]
    )

"""Random effects: one model in two forms; the filter over the windows is conditioning, and finds where a
walk ended.
"""

from types import SimpleNamespace

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.decomposition.arm_effects import condition_windows
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.fit_constants import PRIOR
from invariant_bandits.decomposition.log_end import (
    last_window,
    persistence,
    walk_end,
)
from invariant_bandits.decomposition.paths import CoefficientPaths, random_effects
from invariant_bandits.simulation.stress_worlds import StressEpisodes


def regular_windows(rng, windows, p):
    """Coefficients ĝ and covariances H, and the same windows in precision form, Λ = H⁻¹ and η = Λĝ."""
    roots = rng.normal(size=(windows, p, p))
    H = roots @ roots.swapaxes(1, 2) / p + 0.1 * np.eye(p)
    g = rng.normal(size=p) + rng.normal(size=(windows, p)) * np.linspace(0.0, 2.0, p)
    information = np.linalg.inv(H)
    return (
        g,
        H,
        SimpleNamespace(
            information=information, scores=np.einsum("mpq,mq->mp", information, g)
        ),
    )


@pytest.mark.parametrize("iterations", [1, 2, 30])
def test_where_all_windows_are_regular_both_forms_of_the_maximisation_agree(iterations):
    g, H, windows = regular_windows(np.random.default_rng(3), 7, 4)
    drift = ((g - g.mean(axis=0)) ** 2).mean(axis=0)
    for _ in range(iterations):
        given = condition_windows(windows, np.diag(drift), np.zeros((4, 4)))
        change = (given.pull**2 - np.einsum("mpp->mp", given.weights)).sum(axis=0)
        drift = drift + drift**2 * change / len(g)
    mean, covariance, fitted = random_effects(CoefficientPaths(g, H), iterations)
    np.testing.assert_allclose(mean, given.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(covariance, given.covariance, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fitted, drift, rtol=1e-12, atol=1e-12)


def test_a_walk_is_filtered_as_conditioning_on_all_windows():
    rng = np.random.default_rng(1)
    m, p = 5, 3
    g, H, windows = regular_windows(rng, m, p)
    root = rng.normal(size=(p, p))
    drift, prior = root @ root.T, np.diag([1.0, 0.5, 2.0])
    steps = np.minimum.outer(np.arange(m), np.arange(m))
    joint = np.kron(np.ones((m, m)), np.linalg.inv(prior) + drift) + np.kron(
        steps, 6.0 / m * drift
    )
    observed = joint.copy()
    for i in range(m):
        observed[i * p : (i + 1) * p, i * p : (i + 1) * p] += H[i]
    gain = np.linalg.solve(observed, joint[:, -p:]).T
    mean, covariance = walk_end(windows, prior, drift)
    np.testing.assert_allclose(mean, gain @ g.ravel(), rtol=1e-8)
    left = (
        joint[-p:, -p:] - gain @ joint[:, -p:] + 3.0 / m * drift
    )  # the walk goes on for half a window
    np.testing.assert_allclose(covariance, left, rtol=1e-8, atol=1e-10)


def test_the_filter_is_conditioning_on_all_windows():
    rng = np.random.default_rng(0)
    m, p, factor, lasting = 6, 3, 2.0, 0.5
    mean, drift = rng.normal(size=p), np.array([0.0, 0.5, 2.0])
    roots = rng.normal(size=(m, p, p))
    noise = roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(p)
    g = rng.normal(size=(m, p))
    vague = np.diag([1.0, 2.0, 3.0])
    kept = np.exp(-1.0 / (m * lasting))
    decay = kept ** np.abs(np.subtract.outer(np.arange(m), np.arange(m)))
    joint = np.kron(decay, np.diag(factor * drift)) + np.kron(
        np.ones((m, m)), PRIOR.vague * vague
    )
    observed = joint + np.zeros_like(joint)
    for i in range(m):
        observed[i * p : (i + 1) * p, i * p : (i + 1) * p] += noise[i]
    gain = np.linalg.solve(observed, joint[:, -p:]).T
    wanted = mean + gain @ (g - mean).ravel()
    left = joint[-p:, -p:] - gain @ joint[:, -p:]
    found, covariance = last_window(
        CoefficientPaths(g, noise), mean, factor * drift, vague, kept
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    np.testing.assert_allclose(covariance, left, rtol=1e-8, atol=1e-10)


def test_where_a_walk_has_ended_is_closer_than_its_mean():
    """Steps of 0.02 over 4,000 rounds: the end is far from the mean; 20 logs, none of which may be the
    other way.
    """
    closer = 0
    for seed in range(20):
        world = StressEpisodes(drift="walk", step=0.02, residual_dim=10)
        episode = world.draw(1, np.random.default_rng(seed))
        prior = DriftPrior.from_moments(
            episode.moments, episode.past.decomposition.basis_
        )
        end = prior.basis.T @ episode.coefficients[0]
        off = np.linalg.norm(prior.last_means - end, axis=1)
        closer += off.min() < 0.7 * np.linalg.norm(prior.mean - end)
        for covariance in prior.last_covariances:
            assert np.linalg.eigvalsh(covariance)[0] > 0.0
    assert closer >= 18


def _log_density(apart, covariance):
    """Log-density of N(0, covariance)."""
    _, size = np.linalg.slogdet(2.0 * np.pi * covariance)
    return -0.5 * (size + apart @ np.linalg.solve(covariance, apart))


def test_the_evidence_of_a_break_is_the_density_of_all_windows():
    """Before and after a break windows share a value drawn with the variance of the drift."""
    rng = np.random.default_rng(3)
    m, mean, drift = 6, 0.3, 2.0
    estimates, errors = rng.normal(size=m), rng.uniform(0.1, 1.0, size=m)
    likelihoods = []
    for first in range(1, m):
        after = np.arange(m) >= first
        together = drift * (after[:, None] == after) + np.diag(errors)
        likelihoods.append(np.exp(_log_density(estimates - mean, together)))
    found = persistence(
        estimates[:, None], errors[:, None], np.array([mean]), np.array([drift])
    )
    np.testing.assert_allclose(
        found.breaks[1:, 0], np.array(likelihoods) / np.sum(likelihoods), rtol=1e-8
    )
    afresh = np.exp(_log_density(estimates - mean, np.diag(drift + errors)))
    break_odds = (
        PRIOR.rarely_persistent / (1.0 - PRIOR.rarely_persistent) / len(found.courses)
    )
    odds = found.probability / (1.0 - found.probability) * found.courses[-1]
    # A single direction persists by itself, or as all directions do: twice the odds.
    np.testing.assert_allclose(odds, 2.0 * break_odds * np.mean(likelihoods) / afresh)


def test_effects_that_change_together_show_that_the_change_lasts():
    """Three effects step by 4 standard errors at the same time or at different times; a fourth does not drift.

    Alone each leaves it open whether its windows are drawn afresh.
    """
    errors = np.ones((8, 4))
    noise = np.random.default_rng(0).normal(size=(8, 4))
    drift = np.array([4.0, 4.0, 4.0, 0.01])
    together, apart = [
        noise + 4.0 * (np.arange(8)[:, None] >= starts) * (drift > 1.0)
        for starts in ([5, 5, 5, 5], [3, 5, 6, 5])
    ]
    found, alone = [
        persistence(estimates, errors, estimates.mean(axis=0), drift)
        for estimates in (together, apart)
    ]
    assert found.probability.min() > 0.9
    assert (found.breaks[5] > 0.9).all()
    assert alone.probability.max() < 0.9
    assert alone.probability[3] < 0.5


@pytest.mark.parametrize("windows", [8, 16])
@pytest.mark.parametrize("step", [0.4, 2.0])
def test_a_policy_starts_behind_a_step_in_the_middle_of_the_logs(windows, step):
    """The start is within two standard errors of a last window, and as sure as half of the logs make it."""
    rng = np.random.default_rng(5)
    features = rng.normal(size=(8000, 3))
    coefficients = np.repeat([step, 0.0], 4000)
    rewards = features[:, 0] * coefficients + features[:, 1] + rng.normal(size=8000)
    moments = ib.WindowedMoments.from_arrays(features, rewards, windows=windows)
    prior = DriftPrior.from_moments(moments, np.eye(3))
    start, covariance = prior.where_logs_ended(prior.pooled, prior.pooled_covariance)
    of_last_window = np.sqrt(windows / 8000)
    assert abs(start[0]) < 2.0 * of_last_window
    assert 0.9 < np.sqrt(covariance[0, 0] * 4000) < 3.0
    np.testing.assert_allclose(start[1:], [1.0, 0.0], atol=0.05)


def test_an_arm_starts_behind_a_step_in_the_middle_of_the_logs():
    rng = np.random.default_rng(6)
    n, windows = 12_000, 8
    contexts = np.column_stack([np.ones(n), rng.normal(size=n)])
    arms, window = rng.integers(3, size=n), np.arange(n) * windows // n
    slopes = np.where((arms == 1) & (window < windows // 2), 1.0, 0.0)
    rewards = slopes * contexts[:, 1] + rng.normal(size=n)
    statistics = ArmStatistics.from_rounds(contexts, arms, rewards, windows=window)
    prior = DriftPrior.from_arms(statistics)
    start, _ = prior.where_logs_ended(prior.pooled, prior.pooled_covariance)
    of_last_window = np.sqrt(3 * windows / n)
    assert abs(start[3]) < 2.0 * of_last_window

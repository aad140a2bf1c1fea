"""Windows in their order: the filter over them is Gaussian conditioning, and finds where a walk has ended."""

import numpy as np

from invariant_bandits.decomposition.drift_prior import DriftPrior
from invariant_bandits.decomposition.paths import CoefficientPaths
from invariant_bandits.decomposition.state_space import VAGUE, last_window
from invariant_bandits.simulation.stress import StressEpisodes


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
    joint = np.kron(decay, np.diag(factor * drift)) + np.kron(np.ones((m, m)), VAGUE * vague)
    observed = joint + np.zeros_like(joint)
    for i in range(m):
        observed[i * p : (i + 1) * p, i * p : (i + 1) * p] += noise[i]
    gain = np.linalg.solve(observed, joint[:, -p:]).T
    wanted = mean + gain @ (g - mean).ravel()
    left = joint[-p:, -p:] - gain @ joint[:, -p:]
    found, covariance = last_window(CoefficientPaths(g, noise), mean, drift, vague, factor, lasting)
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    np.testing.assert_allclose(covariance, left, rtol=1e-8, atol=1e-10)


def test_where_a_walk_has_ended_is_closer_than_its_mean():
    """Steps of 0.02 over 4,000 rounds: the end is far from the mean; 20 logs, none of which may be the other way."""
    closer = 0
    for seed in range(20):
        world = StressEpisodes(drift="walk", step=0.02, residual_dim=10)
        episode = world.draw(1, np.random.default_rng(seed))
        prior = DriftPrior.from_moments(episode.moments, episode.past.decomposition.basis_)
        end = prior.basis.T @ episode.coefficients[0]
        off = np.linalg.norm(prior.last_means - end, axis=1)
        closer += off.min() < 0.7 * np.linalg.norm(prior.mean - end)
        for covariance in prior.last_covariances:
            assert np.linalg.eigvalsh(covariance)[0] > 0.0
    assert closer >= 18

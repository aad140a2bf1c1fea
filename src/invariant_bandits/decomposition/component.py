"""β_inv along known invariant directions, with its covariance."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths
from invariant_bandits.moments.windowed import WindowedMoments

COMPONENTS = ("within-window", "pooled")


def component_along(
    invariant: Array, moments: WindowedMoments, paths: CoefficientPaths, kind: str
) -> tuple[Array, Array]:
    """Coordinates of β_inv (p_inv,) along the columns of `invariant` (p, p_inv), and their covariance.

    "within-window" is the precision-weighted mean of the window coefficients, with the residual coordinates partialled
    out. "pooled" is the paper's estimator, which a selective logging policy biases.
    """
    if invariant.shape[1] == 0:
        return np.zeros(0), np.zeros((0, 0))
    if kind == "within-window":
        return paths.along(invariant).weighted_mean()
    return _pooled(invariant, moments)


def _pooled(invariant: Array, moments: WindowedMoments) -> tuple[Array, Array]:
    """Least squares over all rounds on the invariant coordinates, without an intercept."""
    second = moments.second_moment()
    weights = moments.counts[:, None] * moments.feature_mean
    cross = moments.cross.sum(axis=0) + weights.T @ moments.reward_mean
    square = float(moments.reward_square.sum() + moments.counts @ moments.reward_mean**2)
    gram = invariant.T @ second @ invariant
    inverse = np.linalg.inv(gram)
    pull = invariant.T @ cross
    mean = inverse @ pull
    variance = max(square - float(mean @ pull), 0.0) / (moments.rounds - invariant.shape[1])
    return mean, variance * 0.5 * (inverse + inverse.T)

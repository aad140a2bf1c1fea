"""The windows of a log read in their order: where coefficients that drift persistently stood when the logs ended."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths

VAGUE = 100.0


def last_window(
    paths: CoefficientPaths, mean: Array, drift: Array, vague: Array, factor: float, lasting: float
) -> tuple[Array, Array]:
    """Mean (p,) and covariance (p, p) of the coefficients of the last window, all windows considered.

    State space: γ_i = μ + x_i, x_i = a·x_{i−1} + noise along every direction, of stationary variance `factor` · ω and
    time constant `lasting` log lengths, a = exp(−1/(m·lasting)); ĝ_i | γ_i ~ N(γ_i, H_i). A Kalman filter over the m
    windows.

    Parameters
    ----------
    paths : CoefficientPaths
        ĝ (m, p) and H (m, p, p), along the directions.
    mean, drift : array, shape (p,)
        μ, where the filter starts, and ω.
    vague : array, shape (p, p)
        What μ may be off by, a hundredth of its prior covariance.
    """
    g, H = paths.coefficients, paths.covariances
    m, p = g.shape
    kept = np.exp(-1.0 / (m * lasting))
    state = np.concatenate([mean, np.zeros(p)])
    spread = np.zeros((2 * p, 2 * p))
    spread[:p, :p] = VAGUE * vague
    spread[p:, p:] = np.diag(factor * drift)
    move = np.concatenate([np.ones(p), np.full(p, kept)])
    news = np.concatenate([np.zeros(p), factor * drift * (1.0 - kept**2)])
    for i in range(m):
        if i:
            state = move * state
            spread = spread * np.outer(move, move) + np.diag(news)
        seen = spread[:, :p] + spread[:, p:]  # covariance of the state with μ + x
        gain = np.linalg.solve(seen[:p] + seen[p:] + H[i], seen.T).T
        state = state + gain @ (g[i] - state[:p] - state[p:])
        spread = spread - gain @ seen.T
        spread = 0.5 * (spread + spread.T)
    total = spread[:p, :p] + spread[p:, p:] + spread[:p, p:] + spread[p:, :p]
    return state[:p] + state[p:], 0.5 * (total + total.T)

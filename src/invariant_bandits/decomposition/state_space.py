"""The windows of a log read in their order: where coefficients that drift persistently stood when the logs ended."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.decomposition.paths import CoefficientPaths

VAGUE = 100.0


def last_window(
    paths: CoefficientPaths, mean: Array, drift: Array, vague: Array, factor: float, lasting: float
) -> tuple[Array, Array]:
    """Mean (p,) and covariance (p, p) of the coefficients of the last window, all windows considered.

    State space: γ_i = μ + x_i, x_i = a·x_{i−1} + noise along every direction, of stationary variance `factor` · ω and
    time constant `lasting` log lengths, a = exp(−1/(m·lasting)); ĝ_i | γ_i ~ N(γ_i, H_i). A Kalman filter over the m
    windows, in which a window that is silent about some direction tells nothing of it.

    Parameters
    ----------
    paths : CoefficientPaths
        ĝ (m, p) and H (m, p, p), along the directions.
    mean, drift : array, shape (p,)
        μ, where the filter starts, and ω.
    vague : array, shape (p, p)
        What μ may be off by, a hundredth of its prior covariance.
    """
    g, H, silence = paths.coefficients, paths.covariances, paths.silence
    roots = {} if silence is None else dict(zip(silence.windows.tolist(), silence.roots, strict=True))
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
        gain = _gain(seen, seen[:p] + seen[p:], H[i], roots.get(i))
        state = state + gain @ (g[i] - state[:p] - state[p:])
        spread = spread - gain @ seen.T
        spread = 0.5 * (spread + spread.T)
    total = spread[:p, :p] + spread[p:, p:] + spread[:p, p:] + spread[p:, :p]
    return state[:p] + state[p:], 0.5 * (total + total.T)


def _gain(seen: Array, spread: Array, error: Array, root: Array | None) -> Array:
    """Kalman gain (2p, p) of ĝ_i, from its covariance with the state (2p, p), that of γ_i (p, p) and H_i or its root L.

    seen·(P + H)⁻¹, where (P + H)⁻¹ = L(I + LᵀPL)⁻¹Lᵀ in a silent window.
    """
    if root is None:
        return np.linalg.solve(spread + error, seen.T).T
    return np.asarray(seen @ root @ np.linalg.solve(np.eye(root.shape[1]) + root.T @ spread @ root, root.T))


VARIANCE_OF_A_WALK = 6.0
"""A walk of m steps of variance s² varies by m·s²/6 about its mean."""


def walked(statistics: ArmStatistics, prior: Array, drift: Array) -> tuple[Array, Array]:
    """Mean (p,) and covariance (p, p) of the coefficients when the logs end, if their drift is a walk.

    θ_1 ~ N(0, Π⁻¹ + Ω), θ_i = θ_{i−1} + N(0, 6Ω/m): a walk that varies as much over the m windows as Ω says. A Kalman
    filter in precision form: P ← P − P(I + ΛP)⁻¹ΛP, θ ← θ + P(I + ΛP)⁻¹(η − Λθ). The last window tells of its middle:
    after it the walk went on for half a window.

    Parameters
    ----------
    prior : array, shape (p, p)
        Π, the prior precision of the coefficients.
    drift : array, shape (p, p)
        Ω.
    """
    step = VARIANCE_OF_A_WALK / statistics.windows * drift
    p = len(drift)
    state, P = np.zeros(p), np.linalg.inv(prior) + drift
    for i, (information, scores) in enumerate(zip(statistics.information, statistics.scores, strict=True)):
        if i:
            P = P + step
        joined = np.column_stack([information @ P, scores - information @ state])
        gain = np.linalg.solve(np.eye(p) + information @ P, joined)
        state = state + P @ gain[:, p]
        P = P - P @ gain[:, :p]
        P = 0.5 * (P + P.T)
    return state, P + 0.5 * step

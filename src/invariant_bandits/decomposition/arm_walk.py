"""The windows of a log of arms read in their order: where coefficients that walk stood when the logs ended."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics

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

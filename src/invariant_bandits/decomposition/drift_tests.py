"""Whether a coefficient drifts from window to window: the likelihood ratio of one effect."""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array

LARGEST_FACTOR, STEPS = 1e4, 200
SMALLEST = 1e-12


def no_drift(weights: Array, pull: Array, covariance: Array, direction: Array, size: float) -> float:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit; the others' stay as fitted.

    Against two kinds of drift: drawn afresh in every window, and a walk over the windows; the smaller p-value, times 2.

    Parameters
    ----------
    weights : array, shape (m, p, p)
        W of every window.
    pull : array, shape (m, p)
        w_i − W_iμ.
    covariance : array, shape (p, p)
        C_μ.
    """
    rows = weights @ direction
    Q = np.diag(rows @ direction) - rows @ covariance @ rows.T
    # As they would be without drift along the direction.
    still = np.linalg.inv(np.eye(len(Q)) - size * Q)
    Q, u = still @ Q, still @ (pull @ direction)
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    return min(1.0, 2.0 * min(_against(Q, u, size), _against(step.T @ Q @ step, step.T @ u, size)))


def _against(Q: Array, u: Array, size: float) -> float:
    """p-value of δ = 0, where drift δ changes the log-likelihood by −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u.

    Q (m, m) is the joint precision of the effect in all windows, μ integrated out, and u (m,) its score: exact. The
    best δ is searched on a grid about `size`; twice the logarithm of the ratio to δ = 0 is ½χ²₀ + ½χ²₁ if there is no
    drift (Self and Liang 1987).
    """
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ u) ** 2
    drifts = size * np.geomspace(1.0 / LARGEST_FACTOR, LARGEST_FACTOR, STEPS)
    grown = np.maximum(1.0 + np.outer(drifts, np.maximum(values, 0.0)), SMALLEST)
    likelihood = 0.5 * (drifts[:, None] * squares / grown - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max())
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0))) if ratio > 0.0 else 0.5

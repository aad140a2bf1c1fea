"""Whether a coefficient drifts from window to window: the likelihood ratio of one effect."""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array

LARGEST_FACTOR, STEPS = 1e4, 200
SMALLEST = 1e-12


def no_drift(weights: Array, pull: Array, covariance: Array, direction: Array, size: float) -> float:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit; the others' stay as fitted.

    Drift of size + δ changes the log-likelihood by −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u, with u_i = rᵀpull_i (m,) and Q
    (m, m) = diag(rᵀW_ir) − (rᵀW_iC_μW_lr): exact, μ integrated out. The best δ is searched on a grid; twice the
    logarithm of the ratio to no drift is ½χ²₀ + ½χ²₁ if there is none (Self and Liang 1987).

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
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ (pull @ direction)) ** 2
    change = np.concatenate([[0.0], size * np.geomspace(1.0 / LARGEST_FACTOR, LARGEST_FACTOR, STEPS)]) - size
    grown = np.maximum(1.0 + np.outer(change, values), SMALLEST)
    likelihood = 0.5 * (change[:, None] * squares / grown - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max() - likelihood[0])
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0))) if ratio > 0.0 else 1.0

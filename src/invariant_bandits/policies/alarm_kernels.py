"""The compiled loops of the alarm: sums of the online rounds, and Gaussian likelihoods of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.kernels import OPTIONS, V1, V2, V3

ROUNDING = 1e-10


@njit(types.void(V1, float64, float64, V3), **OPTIONS)
def gather(z: Any, apart: float, square: float, online: Any) -> Any:
    """Add a round to the sums of the alarm, online (2, d + 1, d + 1), lower triangles.

    First [Σzzᵀ; Σz·apart, count], then Σsquare·zzᵀ; `apart` is how far the reward is from what the logs expect, and
    `square` what this round says of the variance of the noise.
    """
    d = len(z)
    for i in range(d):
        for j in range(i + 1):
            product = z[i] * z[j]
            online[0, i, j] += product
            online[1, i, j] += square * product
        online[0, d, i] += z[i] * apart
    online[0, d, d] += 1.0


@njit(float64(V2, V1, V2, V2, int64), **OPTIONS)
def half_solved(G: Any, w: Any, rest: Any, U: Any, columns: int) -> Any:
    """U ← L⁻¹U in its first `columns`, LLᵀ = rest + G·diag(w)·G (p, p); returns the log determinant of L.

    Rows and columns are scaled to a unit diagonal, which is raised a little: directions never tried do no harm.
    """
    p = len(w)
    M, scales, total = np.empty((p, p)), np.empty(p), 0.0
    row = np.empty(p)
    for i in range(p):
        for k in range(p):
            row[k] = G[i, k] * w[k]
        for j in range(i + 1):
            product = 0.0
            for k in range(p):
                product += row[k] * G[j, k]
            M[i, j] = product + rest[i, j]
        scales[i] = np.sqrt(M[i, i]) if M[i, i] > 0.0 else 1.0
        total += np.log(scales[i])
    for i in range(p):
        for j in range(i + 1):
            M[i, j] /= scales[i] * scales[j]
        M[i, i] += ROUNDING
    for i in range(p):
        for j in range(i + 1):
            product = M[i, j]
            for k in range(j):
                product -= M[i, k] * M[j, k]
            if j < i:
                M[i, j] = product / M[j, j]
            else:
                M[i, i] = np.sqrt(max(product, ROUNDING * ROUNDING))
        total += np.log(M[i, i])
        for c in range(columns):
            U[i, c] /= scales[i]
        for k in range(i):
            for c in range(columns):
                U[i, c] -= M[i, k] * U[k, c]
        for c in range(columns):
            U[i, c] /= M[i, i]
    return total


@njit(float64(V1, V2, V1, V2), **OPTIONS)
def log_normal(u: Any, G: Any, w: Any, rest: Any) -> Any:
    """log N(u; 0, rest + G·diag(w)·G) up to a constant."""
    half = u.copy().reshape(-1, 1)
    result = -half_solved(G, w, rest, half, 1)
    for i in range(len(u)):
        result -= 0.5 * half[i, 0] * half[i, 0]
    return result


@njit(float64(V1, V2, V2, V1, V1, int64), **OPTIONS)
def likeliest_drift(u: Any, G: Any, rest: Any, low: Any, high: Any, steps: int) -> Any:
    """Largest log N(u; 0, M), M = rest + G·diag(w)·G, over low ≤ w ≤ high (p,), up to the same constant.

    Found by w_j ← w_j·(g_jᵀM⁻¹u)²/g_jᵀM⁻¹g_j, the fixed point of the likelihood's gradient, from w = high; the best of
    all points visited.
    """
    p = len(u)
    best = log_normal(u, G, low, rest)
    w, half = high.copy(), np.empty((p, p + 1))
    for _ in range(steps):
        half[:, :p] = G
        half[:, p] = u
        value = -half_solved(G, w, rest, half, p + 1)
        for i in range(p):
            value -= 0.5 * half[i, p] * half[i, p]
        best = max(best, value)
        for j in range(p):
            pull, precision = 0.0, 1e-300
            for i in range(p):
                pull += half[i, j] * half[i, p]
                precision += half[i, j] * half[i, j]
            w[j] = min(max(w[j] * pull * pull / precision, low[j]), high[j])
    return best


@njit(float64(V1, V2, V2, V1, V1), **OPTIONS)
def best_multiple(u: Any, G: Any, rest: Any, w: Any, direction: Any) -> Any:
    """The a for which u − a·direction is likeliest as N(0, rest + G·diag(w)·G); 0 if nothing tells."""
    half = np.empty((len(u), 2))
    half[:, 0] = u
    half[:, 1] = direction
    half_solved(G, w, rest, half, 2)
    along, size = 0.0, 0.0
    for i in range(len(u)):
        along += half[i, 0] * half[i, 1]
        size += half[i, 1] * half[i, 1]
    return along / size if size > 0.0 else 0.0

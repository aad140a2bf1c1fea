"""The compiled loop of the drift prior: expectation–maximisation of random effects over windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def _invert(A: Any) -> None:
    """Replace a symmetric positive definite matrix (p, p) by its inverse, through Cholesky."""
    p = len(A)
    for j in range(p):
        for k in range(j):
            for i in range(j, p):
                A[i, j] -= A[i, k] * A[j, k]
        root = np.sqrt(A[j, j])
        for i in range(j, p):
            A[i, j] /= root
    for j in range(p):
        A[j, j] = 1.0 / A[j, j]
        for i in range(j + 1, p):
            total = 0.0
            for k in range(j, i):
                total += A[i, k] * A[k, j]
            A[i, j] = -total / A[i, i]
    for j in range(p):
        for i in range(j, p):
            total = 0.0
            for k in range(i, p):
                total += A[k, i] * A[k, j]
            A[i, j] = total
            A[j, i] = total


@njit(cache=True)
def _information(L: Any, drift: Any, out: Any) -> None:
    """What a silent window knows of the mean: out (p, p) ← L(I + LᵀΩL)⁻¹Lᵀ, L (p, r), Ω = diag(drift)."""
    p, r = L.shape
    inner = np.zeros((r, r))
    for k in range(r):
        inner[k, k] = 1.0
        for a in range(p):
            scaled = L[a, k] * drift[a]
            for j in range(r):
                inner[k, j] += scaled * L[a, j]
    _invert(inner)
    half = np.zeros((p, r))
    for a in range(p):
        for k in range(r):
            weight = L[a, k]
            for j in range(r):
                half[a, j] += weight * inner[k, j]
    for a in range(p):
        for b in range(p):
            total = 0.0
            for j in range(r):
                total += half[a, j] * L[b, j]
            out[a, b] = total


@njit(cache=True)
def random_effects(
    g: Any,
    H: Any,
    regular: Any,
    roots: Any,
    informing: Any,
    drift: Any,
    iterations: int,
    mean: Any,
    covariance: Any,
) -> None:
    """Iterate EM in place: drift ω (p,), mean μ (p,), covariance C_μ (p, p), from ĝ (m, p) and H (m, p, p).

    E: K_i = Ω(Ω + H_i)⁻¹, e_i = K_i(ĝ_i − μ); M: ω_j = mean_i[e_ij² + (Ω − K_iΩ)_jj]. For windows that are not
    `regular` (m,), in their order, roots (k, p, r) stand in for H_i; their mean is over the informing (p,) windows.
    """
    m, p = g.shape
    precision = np.empty((m, p, p))
    weighted = np.empty(p)
    for _ in range(iterations):
        covariance[:] = 0.0
        weighted[:] = 0.0
        silent = 0
        for i in range(m):
            A = precision[i]
            if regular[i]:
                for a in range(p):
                    for b in range(p):
                        A[a, b] = H[i, a, b]
                    A[a, a] += drift[a]
                _invert(A)
            else:
                _information(roots[silent], drift, A)
                silent += 1
            for a in range(p):
                for b in range(p):
                    covariance[a, b] += A[a, b]
                    weighted[a] += A[a, b] * g[i, b]
        _invert(covariance)
        for a in range(p):
            mean[a] = 0.0
            for b in range(p):
                mean[a] += covariance[a, b] * weighted[b]
        for a in range(p):
            change = 0.0
            for i in range(m):
                pull = 0.0
                for b in range(p):
                    pull += precision[i, a, b] * (g[i, b] - mean[b])
                change += pull * pull - precision[i, a, a]
            drift[a] = max(drift[a] + drift[a] * drift[a] * change / informing[a], 1e-300)

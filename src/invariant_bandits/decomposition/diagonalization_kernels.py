"""The compiled loops of joint diagonalisation and of the pairwise tests, on plain arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def jacobi_sweeps(S: Any, U: Any, n: Any, likelihood: bool, tolerance: float, most: int) -> Any:
    """Rotate the stack S (p, p, m) and the basis U (p, p), in place, towards joint diagonality.

    The window comes last, so that a rotation works on contiguous runs.

    Per pair (a, b) and window write s_aa, s_bb = α ± β and s_ab = γ; a rotation by θ turns β into
    u(θ) = β cos 2θ + γ sin 2θ. Frobenius criterion: maximise Σ u² (Cardoso & Souloumiac 1996). Likelihood criterion:
    minimise Σ n log(α² − u²) (Flury & Gautschi 1986, Pham 2001), each step maximising the linearised
    Σ n/(α² − u²)·u², which never increases it. Both are the leading eigenvector of one 2×2 matrix.
    At most `most` sweeps, until no angle reaches `tolerance`. Returns the largest angle of the last one.
    """
    p, _, m = S.shape
    largest = 0.0
    for _ in range(most):
        largest = 0.0
        for a in range(p - 1):
            for b in range(a + 1, p):
                co, si = 1.0, 0.0
                for _ in range(3 if likelihood else 1):
                    h11, h12, h22 = 0.0, 0.0, 0.0
                    for i in range(m):
                        beta = 0.5 * (S[a, a, i] - S[b, b, i])
                        gamma = S[a, b, i]
                        weight = n[i]
                        if likelihood:
                            alpha = 0.5 * (S[a, a, i] + S[b, b, i])
                            u = beta * co + gamma * si
                            weight /= max(alpha * alpha - u * u, 1e-14 * alpha * alpha)
                        h11 += weight * beta * beta
                        h12 += weight * beta * gamma
                        h22 += weight * gamma * gamma
                    twice = np.arctan2(2.0 * h12, h11 - h22) * 0.5
                    change = abs(np.cos(twice) * si - np.sin(twice) * co)
                    co, si = np.cos(twice), np.sin(twice)
                    if change < 0.1 * tolerance:
                        break
                theta = 0.5 * np.arctan2(si, co)
                if abs(theta) < 0.01 * tolerance:
                    continue
                largest = max(largest, abs(theta))
                c, s = np.cos(theta), np.sin(theta)
                for k in range(p):
                    for i in range(m):
                        x, y = S[a, k, i], S[b, k, i]
                        S[a, k, i] = c * x + s * y
                        S[b, k, i] = c * y - s * x
                for k in range(p):
                    for i in range(m):
                        x, y = S[k, a, i], S[k, b, i]
                        S[k, a, i] = c * x + s * y
                        S[k, b, i] = c * y - s * x
                for k in range(p):
                    x, y = U[k, a], U[k, b]
                    U[k, a] = c * x + s * y
                    U[k, b] = c * y - s * x
        if largest < tolerance:
            break
    return largest


@njit(cache=True, nogil=True)
def pair_statistics(S: Any, n: Any) -> Any:
    """T_ab = −Σ_i n_i log(1 − r²_{i,ab}) for every pair of columns; S is (p, p, m), the result (p, p)."""
    p, _, m = S.shape
    T = np.zeros((p, p))
    for a in range(p):
        for b in range(a):
            for i in range(m):
                square = S[a, b, i] * S[a, b, i] / (S[a, a, i] * S[b, b, i])
                T[a, b] -= n[i] * np.log(max(1.0 - square, 1e-300))
            T[b, a] = T[a, b]
    return T

"""The compiled inner loops of the published recipe: plain functions on arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

UNDETERMINED = 1e-13  # share of a variance that is left of it when the coordinates before have explained the rest
TINY = 2.0**-52


@njit(cache=True, nogil=True)
def _invert(A: Any, inverse: Any) -> None:
    """inverse ← A⁻¹ by Gauss–Jordan elimination with row pivoting; A (p, p) is used up, a zero pivot becomes tiny."""
    p = len(A)
    for i in range(p):
        for j in range(p):
            inverse[i, j] = 1.0 if i == j else 0.0
    for k in range(p):
        lead = k
        for i in range(k + 1, p):
            if abs(A[i, k]) > abs(A[lead, k]):
                lead = i
        if lead != k:
            for j in range(p):
                A[k, j], A[lead, j] = A[lead, j], A[k, j]
                inverse[k, j], inverse[lead, j] = inverse[lead, j], inverse[k, j]
        pivot = A[k, k] if A[k, k] != 0.0 else TINY
        for j in range(p):
            A[k, j] /= pivot
            inverse[k, j] /= pivot
        for i in range(p):
            weight = A[i, k]
            if i != k and weight != 0.0:
                for j in range(p):
                    A[i, j] -= weight * A[k, j]
                    inverse[i, j] -= weight * inverse[k, j]


@njit(cache=True, nogil=True)
def make_orthogonal(X: Any) -> None:
    """X (p, p) ← the orthogonal matrix nearest to it, by Newton's iteration X ← (X + X⁻ᵀ)/2 (Higham 1986)."""
    p = len(X)
    work, inverse = np.empty((p, p)), np.empty((p, p))
    for _ in range(100):
        for i in range(p):
            for j in range(p):
                work[i, j] = X[i, j]
        _invert(work, inverse)
        change = 0.0
        for i in range(p):
            for j in range(p):
                step = 0.5 * (inverse[j, i] - X[i, j])
                X[i, j] += step
                change = max(change, abs(step))
        if change < 1e-14:
            return


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def diagonalize_by_least_squares(S: Any, U: Any, tolerance: float, most: int) -> Any:
    """Turn the orthogonal U (p, p), in place, until UᵀSU is as diagonal as least squares can make it; S is (p, p, m).

    Each step fits the mixing matrix A ≈ I of UᵀS_iU ≈ A·diag·Aᵀ to all m matrices with equal weights (Tichavský &
    Yeredor 2009, equation 24 with unit weights), unmixes with A⁻¹, and goes back to the nearest orthogonal matrix:
    that of A⁻¹Uᵀ is Uᵀ times the transpose of A's. Returns the largest change of the last step.
    """
    p, _, m = S.shape
    half, R = np.empty((p, p, m)), np.empty((p, p, m))
    A, D, K, new = np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    change = 0.0
    for _ in range(most):
        for a in range(p):
            for b in range(p):
                for i in range(m):
                    half[a, b, i] = 0.0
                for k in range(p):
                    weight = U[k, a]
                    for i in range(m):
                        half[a, b, i] += weight * S[k, b, i]
        for a in range(p):
            for b in range(a + 1):
                for i in range(m):
                    R[a, b, i] = 0.0
                for k in range(p):
                    weight = U[k, b]
                    for i in range(m):
                        R[a, b, i] += weight * half[a, k, i]
                for i in range(m):
                    R[b, a, i] = R[a, b, i]
        for a in range(p):
            for b in range(p):
                diagonals, mixed = 0.0, 0.0
                for i in range(m):
                    diagonals += R[a, a, i] * R[b, b, i]
                    mixed += R[b, b, i] * R[a, b, i]
                D[a, b], K[a, b] = diagonals, mixed
        for a in range(p):
            for b in range(p):
                determinant = D[a, a] * D[b, b] - D[a, b] * D[a, b]
                if determinant == 0.0:
                    determinant = TINY
                A[a, b] = 1.0 if a == b else (D[a, a] * K[a, b] - D[a, b] * K[b, a]) / determinant
        make_orthogonal(A)
        change = 0.0
        for k in range(p):
            for a in range(p):
                total = 0.0
                for b in range(p):
                    total += U[k, b] * A[b, a]
                new[k, a] = total
        for k in range(p):
            for a in range(p):
                change = max(change, abs(new[k, a] - U[k, a]))
                U[k, a] = new[k, a]
        if change < tolerance:
            break
    return change


@njit(cache=True, nogil=True)
def adapted_explained_variance(Z: Any, r: Any, starts: Any, length: int, lag: int, residual_dims: Any, B: Any) -> Any:
    """Mean of 2rẑ − ẑ², ẑ = zᵀ(β + δ), over the rows of each fold; δ is adapted to the `lag` rows before each.

    Z (n, p) coordinates and r (n,) rewards; fold f is the rows starts[f] : starts[f] + length. Candidate k keeps
    β = B[f, k] (p,) fixed on the coordinates from q = residual_dims[k] on, and is zero on the first q, the
    residual ones; δ is the least squares fit, with an intercept, of r − zᵀβ on those. The first test row of a fold has
    `lag` rows of the same fold before it; its last row is not used. Returns (folds, candidates).

    Because residual sets are nested, one Cholesky factor C of a window's centred Gram matrix serves all of them. With
    w = C⁻¹z, y = C⁻¹·cross: zᵀδ = Σ_{i<q} w_i(y_i − Σ_{j≥q} C_ji β_j). Each Gram matrix is summed afresh. A coordinate
    that those before it determine within the window gets no coefficient.
    """
    p, candidates = Z.shape[1], len(residual_dims)
    G, C = np.zeros((p, p)), np.zeros((p, p))
    cross, mean, row, w, y = np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p)
    result = np.zeros((len(starts), candidates))
    tests = length - lag - 1
    for f in range(len(starts)):
        for first in range(starts[f], starts[f] + tests):
            test = first + lag
            level = 0.0
            for i in range(p):
                mean[i] = cross[i] = 0.0
                for j in range(i + 1):
                    G[i, j] = 0.0
            for t in range(first, test):
                level += r[t] / lag
                for i in range(p):
                    mean[i] += Z[t, i] / lag
            for t in range(first, test):
                for i in range(p):
                    row[i] = Z[t, i] - mean[i]
                    cross[i] += row[i] * (r[t] - level)
                    for j in range(i + 1):
                        G[i, j] += row[i] * row[j]
            for j in range(p):
                pivot = G[j, j]
                for k in range(j):
                    pivot -= C[j, k] * C[j, k]
                known = pivot > UNDETERMINED * G[j, j]
                C[j, j] = np.sqrt(pivot) if known else 0.0
                for i in range(j + 1, p):
                    total = G[i, j]
                    for k in range(j):
                        total -= C[i, k] * C[j, k]
                    C[i, j] = total / C[j, j] if known else 0.0
                left, right = Z[test, j], cross[j]
                for k in range(j):
                    left -= C[j, k] * w[k]
                    right -= C[j, k] * y[k]
                w[j] = left / C[j, j] if known else 0.0
                y[j] = right / C[j, j] if known else 0.0
            for k in range(candidates):
                q = residual_dims[k]
                guess = 0.0
                for j in range(q, p):
                    guess += Z[test, j] * B[f, k, j]
                for i in range(q):
                    rest = y[i]
                    for j in range(q, p):
                        rest -= C[j, i] * B[f, k, j]
                    guess += w[i] * rest
                result[f, k] += (2.0 * r[test] * guess - guess * guess) / tests
    return result

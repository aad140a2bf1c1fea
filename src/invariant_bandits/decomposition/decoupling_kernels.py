"""The compiled loops that uncouple groups of coordinates by rotation, on plain arrays, in the paper's letters.

All in one file: a compiled function is compiled anew when its own file changes, not when another one does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

DIRECT_SOLVE_UNKNOWNS = 300


@njit(cache=True, nogil=True, fastmath={"contract"})
def product(A: Any, B: Any) -> Any:
    """A @ B; plain loops, since matrices here are small and library calls are slow to compile and to enter."""
    rows, inner = A.shape
    columns = B.shape[1]
    out = np.zeros((rows, columns))
    for i in range(rows):
        for k in range(inner):
            weight = A[i, k]
            for j in range(columns):
                out[i, j] += weight * B[k, j]
    return out


@njit(cache=True, nogil=True)
def factor(A: Any) -> Any:
    """Lower Cholesky factor of a symmetric positive definite matrix; a vanishing pivot becomes tiny, not NaN."""
    size = len(A)
    C = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= C[i, k] * C[j, k]
            if i == j:
                C[i, i] = np.sqrt(max(total, 1e-15 * A[i, i]))
            else:
                C[i, j] = total / C[j, j]
    return C


@njit(cache=True, nogil=True)
def inverse(A: Any) -> Any:
    """Inverse of a symmetric positive definite matrix, symmetric by construction."""
    size = len(A)
    C = factor(A)
    T = np.zeros((size, size))
    for j in range(size):
        T[j, j] = 1.0 / C[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= C[i, k] * T[k, j]
            T[i, j] = total / C[i, i]
    out = np.zeros((size, size))
    for k in range(size):
        for i in range(k + 1):
            weight = T[k, i]
            for j in range(i + 1):
                out[i, j] += weight * T[k, j]
    for i in range(size):
        for j in range(i):
            out[j, i] = out[i, j]
    return out


@njit(cache=True, nogil=True)
def solve_rotation(L: Any, R: Any, G: Any, damping: float) -> Any:
    """Solve Σ_k L_k E R_k + damping·E = G for E (q, s), where L (k, q, q) and R (k, s, s) are symmetric.

    The sum must be positive semi-definite. Few unknowns: Cholesky of Σ L_k ⊗ R_k; many: conjugate gradients.
    """
    q, s = G.shape
    if q * s > DIRECT_SOLVE_UNKNOWNS:
        return _conjugate_gradients(L, R, G, damping)
    size = q * s
    K = np.zeros((size, size))
    for k in range(len(L)):
        for a in range(q):
            for b in range(a + 1):
                weight = L[k, a, b]
                for c in range(s):
                    for d in range(s):
                        K[a * s + c, b * s + d] += weight * R[k, c, d]
    for j in range(size):
        K[j, j] += damping
    C = factor(K)
    x = np.empty(size)
    for i in range(size):
        total = G[i // s, i % s]
        for k in range(i):
            total -= C[i, k] * x[k]
        x[i] = total / C[i, i]
    for i in range(size - 1, -1, -1):
        total = x[i]
        for k in range(i + 1, size):
            total -= C[k, i] * x[k]
        x[i] = total / C[i, i]
    return x.reshape((q, s))


@njit(cache=True, nogil=True)
def _inner(A: Any, B: Any) -> float:
    total = 0.0
    for a in range(A.shape[0]):
        for b in range(A.shape[1]):
            total += A[a, b] * B[a, b]
    return total


@njit(cache=True, nogil=True)
def _conjugate_gradients(L: Any, R: Any, G: Any, damping: float) -> Any:
    """`solve_rotation` by conjugate gradients, scaled by the diagonal of Σ L_k ⊗ R_k."""
    q, s = G.shape
    scale = np.full((q, s), damping)
    for k in range(len(L)):
        for a in range(q):
            for c in range(s):
                scale[a, c] += L[k, a, a] * R[k, c, c]
    E, image = np.zeros((q, s)), np.zeros((q, s))
    rest, z, direction = G.copy(), np.zeros((q, s)), np.zeros((q, s))
    old, goal = 0.0, 0.0
    for iteration in range(100):
        for a in range(q):
            for c in range(s):
                z[a, c] = rest[a, c] / scale[a, c]
        new = _inner(rest, z)
        if iteration == 0:
            goal = 1e-8 * new
        elif new <= goal:
            break
        keep = new / old if iteration > 0 else 0.0
        for a in range(q):
            for c in range(s):
                direction[a, c] = z[a, c] + keep * direction[a, c]
                image[a, c] = damping * direction[a, c]
        for k in range(len(L)):
            term = product(product(L[k], direction), R[k])
            for a in range(q):
                for c in range(s):
                    image[a, c] += term[a, c]
        curvature = _inner(direction, image)
        if curvature <= 0.0:
            break
        step = new / curvature
        for a in range(q):
            for c in range(s):
                E[a, c] += step * direction[a, c]
                rest[a, c] -= step * image[a, c]
        old = new
    return E


@njit(cache=True, nogil=True)
def picked(M: Any, rows: Any, columns: Any) -> Any:
    """M[rows][:, columns] as a new array."""
    out = np.empty((len(rows), len(columns)))
    for a in range(len(rows)):
        for b in range(len(columns)):
            out[a, b] = M[rows[a], columns[b]]
    return out


@njit(cache=True, nogil=True)
def _joined(first: Any, second: Any) -> Any:
    both = np.empty(len(first) + len(second), dtype=np.int64)
    for a in range(len(first)):
        both[a] = first[a]
    for b in range(len(second)):
        both[len(first) + b] = second[b]
    return both


@njit(cache=True, nogil=True)
def _log_determinant(A: Any) -> float:
    C = factor(A)
    total = 0.0
    for j in range(len(A)):
        total += 2.0 * np.log(C[j, j])
    return total


@njit(cache=True, nogil=True)
def dependence(S: Any, n: Any, first: Any, second: Any) -> float:
    """Σ n_i[logdet A_i + logdet B_i − logdet S_i] of two groups of coordinates; S is (m, p, p).

    Twice the log-likelihood ratio of "the groups are uncorrelated in every window"; zero where they are.
    """
    both = _joined(first, second)
    total = 0.0
    for i in range(len(S)):
        separate = _log_determinant(picked(S[i], first, first)) + _log_determinant(picked(S[i], second, second))
        total += n[i] * (separate - _log_determinant(picked(S[i], both, both)))
    return total


@njit(cache=True, nogil=True)
def decoupling_step(S: Any, n: Any, first: Any, second: Any) -> Any:
    """Gradient and curvature of `dependence` in the rotation E (|first|, |second|) that couples the groups.

    With blocks A, B, C of S_i: half gradient Σ n(C B⁻¹ − A⁻¹C), half curvature
    E ↦ Σ n(A E B⁻¹ + A⁻¹E B − 2E), returned as the pairs (L, R) of its terms.
    """
    q, s, m = len(first), len(second), len(S)
    G = np.zeros((q, s))
    L = np.zeros((2 * m + 1, q, q))
    R = np.zeros((2 * m + 1, s, s))
    for i in range(m):
        A = picked(S[i], first, first)
        B = picked(S[i], second, second)
        C = picked(S[i], first, second)
        Ai, Bi = inverse(A), inverse(B)
        right, left = product(C, Bi), product(Ai, C)
        for a in range(q):
            L[2 * m, a, a] -= 2.0 * n[i]
            for b in range(s):
                G[a, b] += n[i] * (right[a, b] - left[a, b])
            for b in range(q):
                L[2 * i, a, b] = n[i] * A[a, b]
                L[2 * i + 1, a, b] = n[i] * Ai[a, b]
        for a in range(s):
            R[2 * m, a, a] = 1.0
            for b in range(s):
                R[2 * i, a, b] = Bi[a, b]
                R[2 * i + 1, a, b] = B[a, b]
    return G, L, R


@njit(cache=True, nogil=True)
def cayley(E: Any) -> Any:
    """Orthogonal Q = (I − X/2)⁻¹(I + X/2) with X = [[0, E], [−Eᵀ, 0]]; equals I + X to first order.

    With F = E/2, M = (I + FFᵀ)⁻¹ and N = (I + FᵀF)⁻¹ it is [[2M − I, 2MF], [−2FᵀM, 2N − I]].
    """
    q, s = E.shape
    F, Ft = np.empty((q, s)), np.empty((s, q))
    for a in range(q):
        for b in range(s):
            F[a, b] = Ft[b, a] = 0.5 * E[a, b]
    left, right = product(F, Ft), product(Ft, F)
    for a in range(q):
        left[a, a] += 1.0
    for b in range(s):
        right[b, b] += 1.0
    M, N = inverse(left), inverse(right)
    corner = product(M, F)
    Q = np.empty((q + s, q + s))
    for a in range(q):
        for b in range(q):
            Q[a, b] = 2.0 * M[a, b]
        for b in range(s):
            Q[a, q + b] = 2.0 * corner[a, b]
            Q[q + b, a] = -2.0 * corner[a, b]
    for a in range(s):
        for b in range(s):
            Q[q + a, q + b] = 2.0 * N[a, b]
    for a in range(q + s):
        Q[a, a] -= 1.0
    return Q


@njit(cache=True, nogil=True)
def _rotate(M: Any, both: Any, Q: Any, rows: bool) -> None:
    """M[:, both] ← M[:, both] Q in place, and with `rows` M[both] ← Qᵀ M[both] after it."""
    k, p = len(both), len(M)
    turned = product(picked(M, np.arange(p), both), Q)
    for a in range(p):
        for b in range(k):
            M[a, both[b]] = turned[a, b]
    if not rows:
        return
    for b in range(p):
        for a in range(k):
            turned[b, a] = M[both[a], b]
    turned = product(turned, Q)
    for b in range(p):
        for a in range(k):
            M[both[a], b] = turned[b, a]


@njit(cache=True, nogil=True)
def _improving_rotation(S: Any, n: Any, first: Any, second: Any, E: Any) -> Any:
    """Halve E until the Cayley rotation lowers the dependence of the two groups; returns it and the step's size.

    Size 0 means that no step did.
    """
    both = _joined(first, second)
    k = len(both)
    head, tail, every = np.arange(len(first)), np.arange(len(first), k), np.arange(k)
    trial = np.empty((len(S), k, k))
    before = dependence(S, n, first, second)
    for _ in range(8):
        Q = cayley(E)
        for i in range(len(S)):
            turned = picked(S[i], both, both)
            _rotate(turned, every, Q, True)
            for a in range(k):
                for b in range(k):
                    trial[i, a, b] = turned[a, b]
        if dependence(trial, n, head, tail) <= before:
            return Q, np.sqrt(_inner(E, E))
        for a in range(E.shape[0]):
            for b in range(E.shape[1]):
                E[a, b] *= 0.5
    return cayley(E), 0.0


@njit(cache=True, nogil=True)
def decouple(S: Any, U: Any, n: Any, order: Any, starts: Any, tolerance: float, most: int) -> Any:
    """Minimise the dependence between all pairs of blocks over rotations; S (m, p, p) and U (p, p) in place.

    Block k holds the columns order[starts[k]:starts[k+1]]. Sweeps over pairs, one damped Gauss–Newton step each,
    halved until the criterion falls, at most `most` sweeps. Returns the largest step of the last one.
    """
    blocks = len(starts) - 1
    rows = 0.0
    for i in range(len(n)):
        rows += n[i]
    largest = 0.0
    for _ in range(most):
        largest = 0.0
        for k in range(blocks):
            first = order[starts[k] : starts[k + 1]]
            for j in range(k + 1, blocks):
                second = order[starts[j] : starts[j + 1]]
                G, L, R = decoupling_step(S, n, first, second)
                E = solve_rotation(L, R, G, 1e-6 * rows)
                size = np.sqrt(_inner(E, E))
                if size < 0.1 * tolerance:
                    continue
                shrink = -min(1.0, 0.5 / size)
                for a in range(len(first)):
                    for b in range(len(second)):
                        E[a, b] *= shrink
                Q, step = _improving_rotation(S, n, first, second, E)
                if step > 0.0:
                    both = _joined(first, second)
                    for i in range(len(S)):
                        _rotate(S[i], both, Q, True)
                    _rotate(U, both, Q, False)
                    largest = max(largest, step)
        if largest < tolerance:
            break
    return largest

"""The compiled inner loops of the decomposition: plain functions on arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

DIRECT_SOLVE_UNKNOWNS = 300


@njit(cache=True, nogil=True)
def jacobi_sweeps(S: Any, U: Any, n: Any, likelihood: bool, tolerance: float, most: int) -> Any:
    """Rotate the stack S (p, p, m) and the basis U (p, p), in place, towards joint diagonality.

    The window comes last, so that a rotation works on contiguous runs.

    Per pair (a, b) and window write s_aa, s_bb = α ± β and s_ab = γ; a rotation by θ turns β into
    u(θ) = β cos 2θ + γ sin 2θ. Frobenius criterion: maximise Σ u² (Cardoso & Souloumiac 1996). Likelihood criterion:
    minimise Σ n log(α² − u²) (Flury & Gautschi 1986, Pham 2001), each step maximising the linearised
    Σ n/(α² − u²)·u², which never increases it. Both are the leading eigenvector of one 2×2 matrix.
    Returns the number of sweeps and the largest angle of the last one.
    """
    p, _, m = S.shape
    largest = 0.0
    for sweep in range(most):
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
            return sweep + 1, largest
    return most, largest


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


@njit(cache=True, nogil=True)
def solve_rotation(L: Any, R: Any, G: Any, damping: float) -> Any:
    """Solve Σ_k L_k E R_k + damping·E = G for E (q, s), where L (k, q, q) and R (k, s, s) are symmetric.

    The sum must be positive semi-definite. Few unknowns: Cholesky of Σ L_k ⊗ R_k; many: conjugate gradients.
    """
    q, s = G.shape
    if q * s <= DIRECT_SOLVE_UNKNOWNS:
        K = np.zeros((q * s, q * s))
        for k in range(len(L)):
            for a in range(q):
                for b in range(q):
                    weight = L[k, a, b]
                    for c in range(s):
                        for d in range(s):
                            K[a * s + c, b * s + d] += weight * R[k, c, d]
        for j in range(q * s):
            K[j, j] += damping
        return np.linalg.solve(K, G.copy().reshape(q * s)).reshape(q, s)
    scale = np.full((q, s), damping)
    for k in range(len(L)):
        for a in range(q):
            for c in range(s):
                scale[a, c] += L[k, a, a] * R[k, c, c]
    E = np.zeros((q, s))
    rest = G.copy()
    z = rest / scale
    direction = z.copy()
    old = np.sum(rest * z)
    goal = 1e-12 * old
    for _ in range(200):
        image = damping * direction
        for k in range(len(L)):
            image += L[k] @ direction @ R[k]
        step = old / np.sum(direction * image)
        E += step * direction
        rest -= step * image
        z = rest / scale
        new = np.sum(rest * z)
        if new <= goal:
            break
        direction = z + (new / old) * direction
        old = new
    return E


@njit(cache=True, nogil=True)
def log_determinant(A: Any) -> float:
    """log det of a symmetric positive definite matrix by Cholesky."""
    C = np.linalg.cholesky(A)
    total = 0.0
    for j in range(len(A)):
        total += 2.0 * np.log(C[j, j])
    return total


@njit(cache=True, nogil=True)
def dependence(S: Any, n: Any, first: Any, second: Any) -> float:
    """Σ n_i[logdet A_i + logdet B_i − logdet S_i] of two groups of coordinates; S is (m, p, p).

    Twice the log-likelihood ratio of "the groups are uncorrelated in every window"; zero where they are.
    """
    both = np.concatenate((first, second))
    total = 0.0
    for i in range(len(S)):
        A = _picked(S[i], first, first)
        B = _picked(S[i], second, second)
        total += n[i] * (log_determinant(A) + log_determinant(B) - log_determinant(_picked(S[i], both, both)))
    return total


@njit(cache=True, nogil=True)
def block_dependence(S: Any, n: Any, order: Any, starts: Any) -> Any:
    """`dependence` of every pair of blocks; block k holds the columns order[starts[k]:starts[k+1]]."""
    blocks = len(starts) - 1
    T = np.zeros((blocks, blocks))
    for k in range(blocks):
        for j in range(k):
            first, second = order[starts[k] : starts[k + 1]], order[starts[j] : starts[j + 1]]
            T[k, j] = T[j, k] = dependence(S, n, first, second)
    return T


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
        A = _picked(S[i], first, first)
        B = _picked(S[i], second, second)
        C = _picked(S[i], first, second)
        Ai = _symmetric(np.linalg.inv(A))
        Bi = _symmetric(np.linalg.inv(B))
        G += n[i] * (C @ Bi - Ai @ C)
        L[2 * i], R[2 * i] = n[i] * A, Bi
        L[2 * i + 1], R[2 * i + 1] = n[i] * Ai, B
    L[2 * m] = -2.0 * n.sum() * np.eye(q)
    R[2 * m] = np.eye(s)
    return G, L, R


@njit(cache=True, nogil=True)
def _picked(M: Any, rows: Any, columns: Any) -> Any:
    out = np.empty((len(rows), len(columns)))
    for a in range(len(rows)):
        for b in range(len(columns)):
            out[a, b] = M[rows[a], columns[b]]
    return out


@njit(cache=True, nogil=True)
def _symmetric(M: Any) -> Any:
    return 0.5 * (M + M.T)


@njit(cache=True, nogil=True)
def cayley(E: Any) -> Any:
    """Orthogonal Q = (I − X/2)⁻¹(I + X/2) with X = [[0, E], [−Eᵀ, 0]]; equals I + X to first order."""
    q, s = E.shape
    X = np.zeros((q + s, q + s))
    X[:q, q:] = 0.5 * E
    X[q:, :q] = -0.5 * E.T
    unit = np.eye(q + s)
    return np.linalg.solve(unit - X, unit + X)


@njit(cache=True, nogil=True)
def rotate_groups(S: Any, U: Any, first: Any, second: Any, Q: Any) -> None:
    """Apply the rotation Q to the coordinates [first, second] of the stack S (m, p, p) and the basis U, in place."""
    both = np.concatenate((first, second))
    k, p = len(both), U.shape[0]
    every = np.arange(p)
    for i in range(len(S)):
        turned = Q.T @ _picked(S[i], both, every)
        for a in range(k):
            for b in range(p):
                S[i, both[a], b] = turned[a, b]
        turned = _picked(S[i], every, both) @ Q
        for a in range(p):
            for b in range(k):
                S[i, a, both[b]] = turned[a, b]
    turned = _picked(U, every, both) @ Q
    for a in range(p):
        for b in range(k):
            U[a, both[b]] = turned[a, b]


@njit(cache=True, nogil=True)
def decouple(
    S: Any, U: Any, n: Any, order: Any, starts: Any, tolerance: float, most: int
) -> Any:
    """Minimise the dependence between all pairs of blocks over rotations; S (m, p, p) and U (p, p) in place.

    Block k holds the columns order[starts[k]:starts[k+1]]. Sweeps over pairs, one damped Gauss–Newton step each,
    halved until the criterion falls. Returns the number of sweeps and the largest step of the last one.
    """
    blocks = len(starts) - 1
    largest = 0.0
    for sweep in range(most):
        largest = 0.0
        for k in range(blocks):
            first = order[starts[k] : starts[k + 1]]
            for j in range(k + 1, blocks):
                second = order[starts[j] : starts[j + 1]]
                G, L, R = decoupling_step(S, n, first, second)
                E = solve_rotation(L, R, -G, 1e-6 * n.sum())
                size = np.sqrt(np.sum(E * E))
                if size < 0.1 * tolerance:
                    continue
                if size > 0.5:
                    E *= 0.5 / size
                both = np.concatenate((first, second))
                part = np.empty((len(S), len(both), len(both)))
                for i in range(len(S)):
                    part[i] = _picked(S[i], both, both)
                head, tail = np.arange(len(first)), np.arange(len(first), len(both))
                before = dependence(part, n, head, tail)
                for _ in range(8):
                    Q = cayley(E)
                    trial = np.empty_like(part)
                    for i in range(len(S)):
                        trial[i] = Q.T @ part[i] @ Q
                    if dependence(trial, n, head, tail) <= before:
                        rotate_groups(S, U, first, second, Q)
                        largest = max(largest, np.sqrt(np.sum(E * E)))
                        break
                    E *= 0.5
        if largest < tolerance:
            return sweep + 1, largest
    return most, largest

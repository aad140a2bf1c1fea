"""The compiled loops of joint diagonalisation and of the pairwise tests, on plain arrays, in the paper's
letters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

CONVERGED = 0
INDISTINCT = 1
STALLED = 2
"""How a search ended: its last sweep turned by less than the tolerance; or it gained less than sampling could
produce, so that any of these bases is as good; or at its limit of sweeps.
"""
STEADY_DECOUPLING = 0.5
"""The refinement of blocks, which converges at once where windows distinguish them, is indistinct only with
this share of the gain before.
"""


@njit(cache=True, nogil=True)
def _log_variances(S: Any, n: Any) -> float:
    """Σ n_i Σ_a log s_aa,i of a stack (p, p, m)."""
    total = 0.0
    for a, i in np.ndindex((len(S), len(n))):
        total += n[i] * np.log(S[a, a, i])
    return total


@njit(cache=True, nogil=True)
def _turn(x: Any, y: Any, c: float, s: float) -> None:
    """Turn two matrices in their plane, in place, by the angle whose cosine and sine are c and s."""
    rows, columns = x.shape
    for k in range(rows):
        for i in range(columns):
            u = x[k, i]
            v = y[k, i]
            x[k, i] = c * u + s * v
            y[k, i] = c * v - s * u


@njit(cache=True, nogil=True)
def jacobi_sweeps(
    S: Any,
    U: Any,
    n: Any,
    likelihood: bool,
    tolerance: float,
    most: int,
    noise: float,
    patient: int,
) -> int:
    """Rotate covariances S (p, p, m) and their basis U (p, p), in place, towards joint diagonality.

    n (m,) are the sizes of the windows. Returns how the search ended.

    The window comes last, so that a rotation works on contiguous runs.

    Per pair (a, b) and window write s_aa, s_bb = α ± β and s_ab = γ; a rotation by θ turns β into u(θ) = β
    cos 2θ + γ sin 2θ. Frobenius criterion: maximise Σ u² (Cardoso & Souloumiac 1996). Likelihood criterion:
    minimise Σ n log(α² − u²) (Flury & Gautschi 1986, Pham 2001), each step maximising the linearised Σ n/(α²
    − u²)·u², which never increases it. Both are the leading eigenvector of one 2×2 matrix. At most `most`
    sweeps, until no angle reaches `tolerance`, or, after `patient` sweeps, until a sweep lowers the criterion
    by less than `noise`.
    """
    p, _, m = S.shape
    value = _log_variances(S, n)
    for sweep in range(most):
        largest = 0.0
        for a in range(p - 1):
            for b in range(a + 1, p):
                # cos 2θ and sin 2θ; the likelihood's weights depend on them, so that it takes three rounds.
                co = 1.0
                si = 0.0
                for _ in range(3 if likelihood else 1):
                    h11 = 0.0
                    h12 = 0.0
                    h22 = 0.0
                    for i in range(m):
                        beta = 0.5 * (S[a, a, i] - S[b, b, i])
                        gamma = S[a, b, i]
                        weight = n[i]
                        if likelihood:
                            alpha = 0.5 * (S[a, a, i] + S[b, b, i])
                            u = beta * co + gamma * si
                            # α² − u² is a product of variances; rounding may take it to 0.
                            square = alpha * alpha
                            weight /= max(square - u * u, 1e-14 * square)
                        h11 += weight * beta * beta
                        h12 += weight * beta * gamma
                        h22 += weight * gamma * gamma
                    # Leading eigenvector of [[h11, h12], [h12, h22]]; sin of the turn since the last.
                    twice = np.arctan2(2.0 * h12, h11 - h22) * 0.5
                    change = abs(np.cos(twice) * si - np.sin(twice) * co)
                    co = np.cos(twice)
                    si = np.sin(twice)
                    if change < 0.1 * tolerance:
                        break
                theta = 0.5 * np.arctan2(si, co)
                if abs(theta) < 0.01 * tolerance:
                    continue
                largest = max(largest, abs(theta))
                # S ← RᵀSR turns rows, then columns; U ← UR columns alone.
                c = np.cos(theta)
                s = np.sin(theta)
                _turn(S[a], S[b], c, s)
                _turn(S[:, a], S[:, b], c, s)
                _turn(U[:, a : a + 1], U[:, b : b + 1], c, s)
        if largest < tolerance:
            return CONVERGED
        before = value
        value = _log_variances(S, n)
        if sweep >= patient and before - value < noise:
            return INDISTINCT
    return STALLED


DIRECT_SOLVE_UNKNOWNS = 300
"""Up to so many unknowns a Cholesky factor is solved for; beyond, its cubic cost exceeds the iteration's."""
SMALL_MATRIX = 32
"""Rows up to which plain loops are as fast as the library's products of matrices."""


@njit(cache=True, nogil=True, fastmath={"contract"})
def product(A: Any, B: Any) -> Any:
    """A @ B: plain loops while the matrices are small, since a library call takes long to enter."""
    rows, inner = A.shape
    columns = B.shape[1]
    if rows * inner * columns > SMALL_MATRIX**3:
        return np.dot(np.ascontiguousarray(A), np.ascontiguousarray(B))
    out = np.zeros((rows, columns))
    for i in range(rows):
        for k in range(inner):
            weight = A[i, k]
            for j in range(columns):
                out[i, j] += weight * B[k, j]
    return out


@njit(cache=True, nogil=True)
def factor(A: Any) -> Any:
    """Lower Cholesky factor of a symmetric positive definite matrix; a vanishing pivot becomes tiny, not
    NaN.
    """
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
def inverse(C: Any) -> Any:
    """Inverse of CCᵀ, symmetric by construction; C is lower triangular."""
    size = len(C)
    # T = C⁻¹, column by column.
    T = np.zeros((size, size))
    for j in range(size):
        T[j, j] = 1.0 / C[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= C[i, k] * T[k, j]
            T[i, j] = total / C[i, i]
    # TᵀT: the lower half, then its mirror image.
    out = np.zeros((size, size))
    for k in range(size):
        for i in range(k + 1):
            weight = T[k, i]
            for j in range(i + 1):
                out[i, j] += weight * T[k, j]
    for i in range(size):
        out[:i, i] = out[i, :i]
    return out


@njit(cache=True, nogil=True)
def invert(A: Any) -> Any:
    """A⁻¹ of a symmetric positive definite matrix, of a large one by halves (Banachiewicz 1937).

    With A = [[P, Q], [Qᵀ, R]], W = P⁻¹Q and the Schur complement C = R − QᵀW, the inverse is
    [[P⁻¹ + WC⁻¹Wᵀ, −WC⁻¹], [−C⁻¹Wᵀ, C⁻¹]]. Nearly all of the work is in products of matrices.
    """
    size = len(A)
    if size <= SMALL_MATRIX:
        return inverse(factor(A))
    half = size // 2
    Q = np.ascontiguousarray(A[:half, half:])
    inverse_P = np.linalg.inv(np.ascontiguousarray(A[:half, :half]))
    W = product(inverse_P, Q)
    inverse_C = np.linalg.inv(A[half:, half:] - product(Q.T, W))
    corner = product(W, inverse_C)
    result = np.empty((size, size))
    result[:half, :half] = inverse_P + product(corner, W.T)
    result[:half, half:] = -corner
    result[half:, :half] = -corner.T
    result[half:, half:] = inverse_C
    return result


@njit(cache=True, nogil=True)
def solve_rotation(L: Any, R: Any, G: Any, damping: float) -> Any:
    """Solve Σ_k L_k E R_k + damping·E = G for E (q, s), where L (k, q, q) and R (k, s, s) are symmetric.

    The sum must be positive semi-definite. Few unknowns: Cholesky of Σ L_k ⊗ R_k; many: conjugate gradients.
    """
    q, s = G.shape
    if q * s > DIRECT_SOLVE_UNKNOWNS:
        return _conjugate_gradients(L, R, G, damping)
    size = q * s
    # The lower blocks of Σ L_k ⊗ R_k; the Cholesky factor needs no others.
    K = np.zeros((size, size))
    for k in range(len(L)):
        for a in range(q):
            rows = slice(a * s, (a + 1) * s)
            for b in range(a + 1):
                K[rows, b * s : (b + 1) * s] += L[k, a, b] * R[k]
    C = factor(K + damping * np.eye(size))
    # Forward, then backward substitution.
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
def _conjugate_gradients(L: Any, R: Any, G: Any, damping: float) -> Any:
    """`solve_rotation` by conjugate gradients, scaled by the diagonal of Σ L_k ⊗ R_k."""
    q, s = G.shape
    scale = np.full((q, s), damping)
    for k, a in np.ndindex((len(L), q)):
        scale[a] += L[k, a, a] * np.diag(R[k])
    E = np.zeros((q, s))
    residual = G.copy()
    direction = np.zeros((q, s))
    old = np.inf
    # The step is halved or damped anyway: four digits of it are enough.
    goal = 1e-8 * (G * (G / scale)).sum()
    for _ in range(100):
        z = residual / scale
        new = (residual * z).sum()
        if new <= goal:
            break
        direction = z + new / old * direction
        image = damping * direction
        for k in range(len(L)):
            image += product(product(L[k], direction), R[k])
        curvature = (direction * image).sum()
        if curvature <= 0.0:
            break
        step = new / curvature
        E += step * direction
        residual -= step * image
        old = new
    return E


@njit(cache=True, nogil=True)
def _submatrix(S: Any, rows: Any, columns: Any) -> Any:
    """S[rows][:, columns], without a copy of whole rows."""
    out = np.empty((len(rows), len(columns)))
    for a, b in np.ndindex(out.shape):
        out[a, b] = S[rows[a], columns[b]]
    return out


@njit(cache=True, nogil=True)
def _log_determinant(S: Any, group: Any) -> Any:
    """Of S (p, p) in the coordinates of a group."""
    return 2.0 * np.log(np.diag(factor(_submatrix(S, group, group)))).sum()


@njit(cache=True, nogil=True)
def dependence(S: Any, n: Any, first: Any, second: Any) -> float:
    """Σ n_i[logdet A_i + logdet B_i − logdet S_i] of two groups of coordinates; S is (m, p, p).

    Twice the log-likelihood ratio of "the groups are uncorrelated in every window"; zero where they are.
    """
    both = np.concatenate((first, second))
    total = 0.0
    for i in range(len(S)):
        separate = _log_determinant(S[i], first) + _log_determinant(S[i], second)
        total += n[i] * (separate - _log_determinant(S[i], both))
    return total


@njit(cache=True, nogil=True)
def dependences(S: Any, n: Any, order: Any, starts: Any) -> Any:
    """`dependence` of all pairs of K blocks (K, K); block k holds order[starts[k]:starts[k + 1]]."""
    blocks = len(starts) - 1
    out = np.zeros((blocks, blocks))
    for k in range(blocks):
        first = order[starts[k] : starts[k + 1]]
        for j in range(k):
            second = order[starts[j] : starts[j + 1]]
            out[k, j] = dependence(S, n, first, second)
            out[j, k] = out[k, j]
    return out


@njit(cache=True, nogil=True)
def decoupling_step(S: Any, n: Any, first: Any, second: Any) -> Any:
    """Gradient and curvature of `dependence` in the rotation E (|first|, |second|) that couples the groups.

    With blocks A, B, C of S_i: half gradient Σ n(C B⁻¹ − A⁻¹C), half curvature
    E ↦ Σ n(A E B⁻¹ + A⁻¹E B − 2E), returned as the pairs (L, R) of its terms.
    """
    q = len(first)
    s = len(second)
    m = len(S)
    G = np.zeros((q, s))
    L = np.zeros((2 * m + 1, q, q))
    R = np.zeros((2 * m + 1, s, s))
    for i in range(m):
        A = _submatrix(S[i], first, first)
        B = _submatrix(S[i], second, second)
        C = _submatrix(S[i], first, second)
        Ai = invert(A)
        Bi = invert(B)
        G += n[i] * (product(C, Bi) - product(Ai, C))
        L[2 * i] = n[i] * A
        R[2 * i] = Bi
        L[2 * i + 1] = n[i] * Ai
        R[2 * i + 1] = B
        L[2 * m] -= 2.0 * n[i] * np.eye(q)
    R[2 * m] = np.eye(s)
    return G, L, R


@njit(cache=True, nogil=True)
def cayley(E: Any) -> Any:
    """Orthogonal Q = (I − X/2)⁻¹(I + X/2) with X = [[0, E], [−Eᵀ, 0]]; equals I + X to first order.

    With F = E/2, M = (I + FFᵀ)⁻¹ and N = (I + FᵀF)⁻¹ it is [[2M − I, 2MF], [−2FᵀM, 2N − I]].
    """
    q, s = E.shape
    F = 0.5 * E
    Ft = np.ascontiguousarray(F.T)
    M = invert(product(F, Ft) + np.eye(q))
    N = invert(product(Ft, F) + np.eye(s))
    corner = product(M, F)
    Q = np.empty((q + s, q + s))
    Q[:q, :q] = 2.0 * M
    Q[q:, q:] = 2.0 * N
    Q[:q, q:] = 2.0 * corner
    Q[q:, :q] = -2.0 * corner.T
    return Q - np.eye(q + s)


@njit(cache=True, nogil=True)
def _turned(Q: Any, rows: Any) -> Any:
    """QᵀM for rows M (k, p, m) of all windows, in contiguous runs."""
    k, p, m = rows.shape
    return product(Q.T, rows.reshape((k, p * m))).reshape((k, p, m))


@njit(cache=True, nogil=True)
def _rotate(S: Any, both: Any, Q: Any) -> None:
    """S ← QᵀSQ in place for the coordinates `both` of symmetric matrices S (p, p, m)."""
    rows = _turned(Q, S[both])
    # By symmetry the new columns are the new rows; what lies in both is turned from both sides.
    for a, column in enumerate(both):
        S[column] = rows[a]
        S[:, column] = rows[a]
    inner = _turned(Q, np.ascontiguousarray(rows[:, both].transpose(1, 0, 2)))
    for a, b in np.ndindex(Q.shape):
        S[both[a], both[b]] = inner[a, b]


@njit(cache=True, nogil=True)
def _improving_rotation(S: Any, n: Any, head: Any, tail: Any, E: Any) -> Any:
    """Halve E until the Cayley rotation lowers the dependence of the two groups that make up S (m, k, k).

    Returns the rotation, the step's size, 0 if no step did, and by how much the dependence fell.
    """
    before = dependence(S, n, head, tail)
    trial = np.empty_like(S)
    for _ in range(8):
        Q = cayley(E)
        for i in range(len(S)):
            trial[i] = product(product(Q.T, S[i]), Q)
        after = dependence(trial, n, head, tail)
        if after <= before:
            return Q, np.sqrt((E * E).sum()), before - after
        E *= 0.5
    return cayley(E), 0.0, 0.0


@njit(cache=True, nogil=True)
def decouple(
    S: Any,
    U: Any,
    n: Any,
    order: Any,
    starts: Any,
    tolerance: float,
    most: int,
    noise: float,
) -> int:
    """Minimise the dependence between all pairs of blocks over rotations, in place, of S (m, p, p) and U.

    Block k holds the columns order[starts[k]:starts[k+1]]. Sweeps over pairs, one damped Gauss–Newton step
    each, halved until the criterion falls, at most `most` sweeps, until no step reaches `tolerance`, or the
    dependence hardly falls: by less than `noise` in a sweep. Returns how the search ended.
    """
    blocks = len(starts) - 1
    rows = n.sum()
    gain = np.inf
    # The window comes last, so that a rotation works on contiguous runs.
    work = np.ascontiguousarray(S.transpose(1, 2, 0))
    status = STALLED
    for _ in range(most):
        largest = 0.0
        earlier = gain
        gain = 0.0
        for k in range(blocks):
            first = order[starts[k] : starts[k + 1]]
            head = np.arange(len(first))
            for j in range(k + 1, blocks):
                second = order[starts[j] : starts[j + 1]]
                both = np.concatenate((first, second))
                tail = np.arange(len(first), len(both))
                pair = np.empty((len(S), len(both), len(both)))
                for a, b in np.ndindex(pair.shape[1:]):
                    pair[:, a, b] = work[both[a], both[b]]
                G, L, R = decoupling_step(pair, n, head, tail)
                E = solve_rotation(L, R, G, 1e-6 * rows)
                size = np.sqrt((E * E).sum())
                if size < 0.1 * tolerance:
                    continue
                E *= -min(1.0, 0.5 / size)
                Q, step, fall = _improving_rotation(pair, n, head, tail, E)
                if step > 0.0:
                    gain += fall
                    _rotate(work, both, Q)
                    U[:, both] = product(U[:, both], Q)
                    largest = max(largest, step)
        if largest < tolerance:
            status = CONVERGED
            break
        if STEADY_DECOUPLING * earlier <= gain < noise:
            status = INDISTINCT
            break
    S[:] = work.transpose(2, 0, 1)
    return status


@njit(cache=True)
def _information(L: Any, drift: Any) -> Any:
    """What a partial window knows of the mean: L(I + LᵀΩL)⁻¹Lᵀ (p, p), L (p, r), Ω = diag(drift)."""
    weighted = drift.reshape((-1, 1)) * L
    inner = np.eye(L.shape[1]) + product(L.T, weighted)
    return product(product(L, invert(inner)), L.T)


@njit(cache=True)
def random_effects(
    g: Any,
    H: Any,
    regular: Any,
    roots: Any,
    informing: Any,
    drift: Any,
    iterations: int,
) -> Any:
    """μ (p,) and C_μ (p, p) after so many steps of EM, which change the drift ω (p,) in place.

    E: K_i = Ω(Ω + H_i)⁻¹, e_i = K_i(ĝ_i − μ); M: ω_j = mean_i[e_ij² + (Ω − K_iΩ)_jj].

    From coefficients by window ĝ (m, p) and H (m, p, p). For the windows that are not regular (m,), in their
    order, roots (k, p, r) stand in for H_i; informing (p,) windows inform each direction.
    """
    m, p = g.shape
    precision = np.empty((m, p, p))
    mean = np.empty(p)
    covariance = np.empty((p, p))
    for _ in range(iterations):
        total = np.zeros((p, p))
        weighted = np.zeros(p)
        partial = 0
        for i in range(m):
            if regular[i]:
                precision[i] = invert(H[i] + np.diag(drift))
            else:
                precision[i] = _information(roots[partial], drift)
                partial += 1
            total += precision[i]
            for a, b in np.ndindex((p, p)):
                weighted[a] += precision[i, a, b] * g[i, b]
        covariance = invert(total)
        for a in range(p):
            mean[a] = (covariance[a] * weighted).sum()
        change = np.zeros(p)
        for i in range(m):
            departure = g[i] - mean
            for a in range(p):
                pull = (precision[i, a] * departure).sum()
                change[a] += pull * pull - precision[i, a, a]
        # e = ω·pull and Ω − KΩ = Ω − ΩWΩ, so that ω grows by ω²·mean(pull² − W_jj).
        for a in range(p):
            step = drift[a] * drift[a] * change[a] / informing[a]
            drift[a] = max(drift[a] + step, 1e-300)
    return mean, covariance


UNDETERMINED = 1e-13
"""Share of a variance that is left when the coordinates before have explained the rest."""
TINY = 2.0**-52
"""Rounding of 1: what a pivot of 0 may have been."""


@njit(cache=True, nogil=True)
def _gauss_jordan(A: Any) -> Any:
    """A⁻¹ (p, p) by Gauss–Jordan elimination with row pivoting; a zero pivot becomes tiny."""
    p = len(A)
    both = np.hstack((A, np.eye(p)))
    for k in range(p):
        lead = k + np.argmax(np.abs(both[k:, k]))
        # Exchange the rows, so that the largest entry is the pivot.
        pivot_row = both[lead].copy()
        both[lead] = both[k]
        both[k] = pivot_row
        both[k] /= pivot_row[k] if pivot_row[k] != 0.0 else TINY
        for i in range(p):
            weight = both[i, k]
            if i != k and weight != 0.0:
                for j in range(2 * p):
                    both[i, j] -= weight * both[k, j]
    return both[:, p:]


@njit(cache=True, nogil=True)
def make_orthogonal(X: Any) -> None:
    """X (p, p) ← the orthogonal matrix nearest to it, by Newton's iteration X ← (X + X⁻ᵀ)/2 (Higham 1986)."""
    for _ in range(100):
        step = 0.5 * (_gauss_jordan(X).T - X)
        X += step
        if np.abs(step).max() < 1e-14:
            return


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def diagonalize_by_least_squares(S: Any, U: Any, tolerance: float, most: int) -> int:
    """Turn the orthogonal U (p, p), in place, until UᵀSU is as diagonal as least squares can make it; S is
    (p, p, m).

    Each step fits the mixing matrix A ≈ I of UᵀS_iU ≈ A·diag·Aᵀ to all m matrices with equal weights
    (Tichavský & Yeredor 2009, equation 24 with unit weights), unmixes with A⁻¹, and goes back to the nearest
    orthogonal matrix: that of A⁻¹Uᵀ is Uᵀ times the transpose of A's. Returns CONVERGED when no entry of U
    changes by `tolerance` any more, else STALLED.
    """
    p, _, m = S.shape
    half = np.empty((p, p, m))
    R = np.empty((p, p, m))
    A = np.empty((p, p))
    D = np.empty((p, p))
    K = np.empty((p, p))
    new = np.empty((p, p))
    for _ in range(most):
        # R = UᵀSU in two products, the upper half mirrored.
        for a in range(p):
            for b in range(p):
                half[a, b] = 0.0
                for k in range(p):
                    weight = U[k, a]
                    for i in range(m):
                        half[a, b, i] += weight * S[k, b, i]
        for a in range(p):
            for b in range(a + 1):
                R[a, b] = 0.0
                for k in range(p):
                    weight = U[k, b]
                    for i in range(m):
                        R[a, b, i] += weight * half[a, k, i]
                R[b, a] = R[a, b]
        for a, b in np.ndindex((p, p)):
            diagonals = 0.0
            mixed = 0.0
            for i in range(m):
                diagonals += R[a, a, i] * R[b, b, i]
                mixed += R[b, b, i] * R[a, b, i]
            D[a, b] = diagonals
            K[a, b] = mixed
        # A_ab and A_ba minimise Σ(R_ab − A_ab·R_bb − A_ba·R_aa)²: two equations, by Cramer's rule.
        for a, b in np.ndindex((p, p)):
            determinant = D[a, a] * D[b, b] - D[a, b] * D[a, b]
            if determinant == 0.0:
                determinant = TINY
            numerator = D[a, a] * K[a, b] - D[a, b] * K[b, a]
            A[a, b] = 1.0 if a == b else numerator / determinant
        make_orthogonal(A)
        for k in range(p):
            for a in range(p):
                total = 0.0
                for b in range(p):
                    total += U[k, b] * A[b, a]
                new[k, a] = total
        change = np.abs(new - U).max()
        U[:] = new
        if change < tolerance:
            return CONVERGED
    return STALLED


@njit(cache=True, nogil=True)
def adapted_explained_variance(
    Z: Any, r: Any, starts: Any, length: int, lag: int, residual_dims: Any, B: Any
) -> Any:
    """Mean of 2rẑ − ẑ², ẑ = zᵀ(β + δ), over the rows of each fold; δ is adapted to the `lag` rows before
    each.

    Z (n, p) coordinates and r (n,) rewards; fold f is the rows starts[f] : starts[f] + length. Candidate k
    keeps β = B[f, k] (p,) fixed on the coordinates from q = residual_dims[k] on, and is zero on the first q,
    the residual ones; δ is the least squares fit, with an intercept, of r − zᵀβ on those. The first test row
    of a fold has `lag` rows of the same fold before it; its last row is not used. Returns (folds,
    candidates).

    Because residual sets are nested, one Cholesky factor C of a window's centred Gram matrix serves all of
    them. With w = C⁻¹z, y = C⁻¹·cross: zᵀδ = Σ_{i<q} w_i(y_i − Σ_{j≥q} C_ji β_j). Each Gram matrix is summed
    afresh. A coordinate that those before it determine within the window gets no coefficient.
    """
    p, candidates = Z.shape[1], len(residual_dims)
    G = np.zeros((p, p))
    C = np.zeros((p, p))
    w = np.zeros(p)
    y = np.zeros(p)
    result = np.zeros((len(starts), candidates))
    tests = length - lag - 1
    for f in range(len(starts)):
        for first in range(starts[f], starts[f] + tests):
            test = first + lag
            level = (r[first:test] / lag).sum()
            mean = np.zeros(p)
            cross = np.zeros(p)
            G[:] = 0.0
            for t in range(first, test):
                mean += Z[t] / lag
            for t in range(first, test):
                row = Z[t] - mean
                cross += row * (r[t] - level)
                for i in range(p):
                    G[i, : i + 1] += row[i] * row[: i + 1]
            # Cholesky column by column, with forward substitution of the test row and of the cross products.
            for j in range(p):
                column = G[j:, j].copy()
                left = Z[test, j]
                right = cross[j]
                for k in range(j):
                    column -= C[j:, k] * C[j, k]
                    left -= C[j, k] * w[k]
                    right -= C[j, k] * y[k]
                # A coordinate that the others determine gets no coefficient: division by infinity.
                root = np.inf
                if column[0] > UNDETERMINED * G[j, j]:
                    root = np.sqrt(column[0])
                C[j:, j] = column / root
                w[j] = left / root
                y[j] = right / root
            for k in range(candidates):
                q = residual_dims[k]
                guess = (Z[test, q:] * B[f, k, q:]).sum()
                for i in range(q):
                    remaining = y[i]
                    for j in range(q, p):
                        remaining -= C[j, i] * B[f, k, j]
                    guess += w[i] * remaining
                result[f, k] += (2.0 * r[test] * guess - guess * guess) / tests
    return result

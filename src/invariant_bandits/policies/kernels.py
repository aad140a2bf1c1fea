"""The compiled inner loops of the online phase: plain functions on arrays, in the paper's letters.

A memory of dimension q is summed up by its *factor* (q, q+1): [R | w] with R upper triangular, RᵀR = A = λI +
Σzzᵀ and w = R⁻ᵀb, b = Σzr. Then zᵀA⁻¹b = v·w and zᵀA⁻¹z = v·v for v = R⁻ᵀz: one triangular solve per action,
no inverse. A discounted memory appends its second matrix Ṽ = λI + G̃ as q more rows [G̃ | λ], the upper part.

A *lift* (p, 1 + q + r) holds the columns [β | U_res | W] of an invariant part: z = U_resᵀφ, and ‖Wᵀφ‖ is the
norm of φ in the covariance of β, W lower trapezoidal. A lift of no columns, shape (p, 0), means z = φ.

If the last `stable` coordinates of z are those of stable coefficients with a prior from the logs, the norm of
φ that belongs to the error of this prior is ‖y‖, y the last `stable` coordinates of A⁻¹z.

Signatures are explicit: an array of another type or layout is a TypeError, never a new compilation. Input is
checked here; if a result is REFUSED, nothing was changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, types
from numba.core.errors import NumbaError

WRONG_TYPE = (TypeError, OverflowError, NumbaError)
"""What a call raises if it is given something else than the signature says."""
REFUSED = -1
"""Status of a call with bad input, which has changed nothing; actions and volumes are not negative."""
LARGEST_SQUARE = 1e200
"""Sums of squares stay below it: products of two of them with moderate numbers are finite or refused."""

# Contiguous arrays of one to three dimensions: input that is only read, and arrays that may be written.
IN1 = types.Array(float64, 1, "C", readonly=True)
IN2 = types.Array(float64, 2, "C", readonly=True)
V1 = float64[::1]
V2 = float64[:, ::1]
V3 = float64[:, :, ::1]

# Sums may be reordered and fused; NaN and infinity keep their meaning, because the checks rest on it.
OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},
}
# The shortest loops keep the interpreter's lock: giving it back and taking it takes as long as a lock of
# one's own.
SHORT: dict[str, Any] = {**OPTIONS, "nogil": False}


@njit(types.void(IN2, IN2, int64, V2), **OPTIONS)
def _project(X: Any, lift: Any, q: int, Y: Any) -> Any:
    """Write the first columns of X · lift to Y (K, m).

    Four features at a time, so that a row of Y is read and written a quarter as often. Row j of a lift
    ends at column q + 1 + j, because W is lower trapezoidal: the zeros behind it are skipped.
    """
    K, m = Y.shape
    p = X.shape[1]
    Y[:] = 0.0
    j = 0
    while j + 4 <= p:
        end = min(m, q + 5 + j)
        B0 = lift[j]
        B1 = lift[j + 1]
        B2 = lift[j + 2]
        B3 = lift[j + 3]
        for k in range(K):
            x0 = X[k, j]
            x1 = X[k, j + 1]
            x2 = X[k, j + 2]
            x3 = X[k, j + 3]
            y = Y[k]
            for c in range(end):
                y[c] += x0 * B0[c] + x1 * B1[c] + x2 * B2[c] + x3 * B3[c]
        j += 4
    for j in range(p - p % 4, p):
        for k in range(K):
            x0 = X[k, j]
            for c in range(min(m, q + 2 + j)):
                Y[k, c] += x0 * lift[j, c]


@njit(types.boolean(IN2), **OPTIONS)
def usable(X: Any) -> Any:
    """Whether all entries are finite and their squares can be summed."""
    total = 0.0
    for k in range(X.shape[0]):
        for j in range(X.shape[1]):
            total += X[k, j] * X[k, j]
    return total < LARGEST_SQUARE


# -- deciding --


@njit(types.void(V2, IN2, V2), **OPTIONS)
def _solve(Z: Any, factor: Any, parts: Any) -> Any:
    """Turn the rows z of Z (K, q) into v = R⁻ᵀz, with v·w in parts[0] and v·v in parts[1].

    Forward substitution, four columns at a time: v_i = (z_i − Σ_{j<i} R_ji v_j)/R_ii.
    """
    K, q = Z.shape
    i = 0
    while i + 4 <= q:
        R0 = factor[i]
        R1 = factor[i + 1]
        R2 = factor[i + 2]
        R3 = factor[i + 3]
        d0 = 1.0 / R0[i]
        d1 = 1.0 / R1[i + 1]
        d2 = 1.0 / R2[i + 2]
        d3 = 1.0 / R3[i + 3]
        for k in range(K):
            z = Z[k]
            # Most are 0 where actions are labelled arms with coefficients of their own, and
            # stay so, because R couples no two arms: then v = 0 changes nothing below.
            if z[i] == 0.0 and z[i + 1] == 0.0 and z[i + 2] == 0.0 and z[i + 3] == 0.0:
                continue
            v0 = z[i] * d0
            v1 = (z[i + 1] - v0 * R0[i + 1]) * d1
            v2 = (z[i + 2] - v0 * R0[i + 2] - v1 * R1[i + 2]) * d2
            v3 = (z[i + 3] - v0 * R0[i + 3] - v1 * R1[i + 3] - v2 * R2[i + 3]) * d3
            z[i] = v0
            z[i + 1] = v1
            z[i + 2] = v2
            z[i + 3] = v3
            parts[0, k] += v0 * R0[q] + v1 * R1[q] + v2 * R2[q] + v3 * R3[q]
            parts[1, k] += v0 * v0 + v1 * v1 + v2 * v2 + v3 * v3
            for j in range(i + 4, q):
                z[j] -= v0 * R0[j] + v1 * R1[j] + v2 * R2[j] + v3 * R3[j]
        i += 4
    for i in range(q - q % 4, q):
        R = factor[i]
        for k in range(K):
            z = Z[k]
            v = z[i] / R[i]
            z[i] = v
            parts[0, k] += v * R[q]
            parts[1, k] += v * v
            for j in range(i + 1, q):
                z[j] -= v * R[j]


@njit(types.void(V2, IN2, V2), **OPTIONS)
def _sandwich(V: Any, factor: Any, parts: Any) -> Any:
    """Put zᵀA⁻¹ṼA⁻¹z (Russac et al. 2019) in parts[1] for the rows v = R⁻ᵀz of V (K, q).

    y = R⁻¹v by substitution from below, and yᵀG̃y from the same rows. As G̃ ⪰ 0, yᵀṼy is at least λ·y·y:
    rounding may not push it below.
    """
    K, q = V.shape
    squares, forms = np.zeros(K), np.zeros(K)
    for i in range(q - 1, -1, -1):
        R, G = factor[i, i + 1 : q], factor[q + i, i + 1 : q]
        for k in range(K):
            y = V[k, i + 1 :]
            known, inner = 0.0, 0.0
            for j in range(y.shape[0]):
                known += R[j] * y[j]
                inner += G[j] * y[j]
            new = (V[k, i] - known) / factor[i, i]
            V[k, i] = new
            squares[k] += new * new
            forms[k] += new * (2.0 * inner + factor[q + i, i] * new)
    for k in range(K):
        parts[1, k] = factor[q, q] * squares[k] + max(forms[k], 0.0)


@njit(types.void(V2, IN2, int64, V2), **OPTIONS)
def _prior_norms(V: Any, factor: Any, stable: int, parts: Any) -> Any:
    """Put ‖y‖² in parts[2], y the last `stable` coordinates of A⁻¹z, for the rows v = R⁻ᵀz of V (K, q).

    A⁻¹z = R⁻¹v by substitution from below, which reaches the last coordinates first.
    """
    K, q = V.shape
    for i in range(q - 1, q - 1 - stable, -1):
        R = factor[i, i + 1 : q]
        for k in range(K):
            y = V[k, i + 1 :]
            known = 0.0
            for j in range(y.shape[0]):
                known += R[j] * y[j]
            new = (V[k, i] - known) / factor[i, i]
            V[k, i] = new
            parts[2, k] += new * new


@njit(int64(IN2, IN2, IN2, int64, V2), **SHORT)
def score(X: Any, lift: Any, factor: Any, stable: int, parts: Any) -> Any:
    """Fill parts (3, K) with means, squared residual and squared invariant norms of actions X (K, p)."""
    K, p = X.shape
    m, q = lift.shape[1], factor.shape[1] - 1
    if K == 0 or p != lift.shape[0] or 0 < m <= q or not usable(X):
        return REFUSED
    parts[:] = 0.0
    Z = np.empty((K, q))
    if m == 0:
        Z[:] = X
    else:
        Y = np.empty((K, m))
        _project(X, lift, q, Y)
        parts[0], Z[:] = Y[:, 0], Y[:, 1 : 1 + q]
        for k in range(K):
            for j in range(1 + q, m):
                parts[2, k] += Y[k, j] * Y[k, j]
    _solve(Z, factor, parts)
    if factor.shape[0] > q:
        _sandwich(Z, factor, parts)
    elif stable:
        _prior_norms(Z, factor, stable, parts)
    for k in range(K):
        if not abs(parts[0, k]) + parts[1, k] + parts[2, k] < np.inf:
            return REFUSED
    return 0


@njit(int64(IN2, IN2, IN2, int64, float64, float64), **SHORT)
def choose(
    X: Any,
    lift: Any,
    factor: Any,
    stable: int,
    residual_radius: float,
    invariant_radius: float,
) -> Any:
    """The action of X (K, p) with the highest mean + radii · norms (Algorithm 1); the first one in a tie."""
    parts = np.empty((3, X.shape[0]))
    if score(X, lift, factor, stable, parts) < 0:
        return REFUSED
    best, chosen = -np.inf, 0
    for k in range(X.shape[0]):
        value = (
            parts[0, k]
            + residual_radius * np.sqrt(parts[1, k])
            + invariant_radius * np.sqrt(parts[2, k])
        )
        if value > best:
            best, chosen = value, k
    return chosen


# -- learning --


@njit(V1(IN1, float64, IN2, int64), **SHORT)
def residual_row(x: Any, r: float, lift: Any, q: int) -> Any:
    """[z, r − φᵀβ] (q+1,) of one round; empty if the round is refused."""
    p, size = x.shape[0], r * r
    for j in range(p):
        size += x[j] * x[j]
    if p != lift.shape[0] or not size < LARGEST_SQUARE:
        return np.empty(0)
    row = np.empty(q + 1)
    if lift.shape[1] == 0:
        for j in range(q):
            row[j] = x[j]
        row[q] = r
    else:
        Y = np.empty((1, q + 1))
        _project(x.reshape((1, p)), lift, q, Y)
        for j in range(q):
            row[j] = Y[0, 1 + j]
        row[q] = r - Y[0, 0]
    return row


@njit(float64(IN2, float64), **OPTIONS)
def log_volume(factor: Any, ridge: float) -> Any:
    """log det A − log det λI, at least 0 because A ⪰ λI; two diagonal entries per logarithm."""
    q = factor.shape[1] - 1
    scale = 1.0 / np.sqrt(ridge)
    total = 0.0
    for i in range(0, q - 1, 2):
        total += np.log((factor[i, i] * scale) * (factor[i + 1, i + 1] * scale))
    if q % 2 == 1:
        total += np.log(factor[q - 1, q - 1] * scale)
    return max(0.0, 2.0 * total)


@njit(types.void(V2, V1), **OPTIONS)
def _rotate_in(factor: Any, x: Any) -> Any:
    """Add the row x (q+1,) to [R | w] by Givens rotations, two rows of R at a time; x is used up.

    Only orthogonal transformations: diagonal entries never shrink, so A stays positive definite however long
    it runs.
    """
    q = x.shape[0] - 1
    i = 0
    while i + 2 <= q:
        R0, R1 = factor[i], factor[i + 1]
        # The rotation [c s; −s c] takes the pair (R_ii, x_i) to (h, 0), and is applied to the rows behind.
        h = np.sqrt(R0[i] * R0[i] + x[i] * x[i])
        c0, s0 = R0[i] / h, x[i] / h
        R0[i] = h
        f, y = R0[i + 1], x[i + 1]
        R0[i + 1] = c0 * f + s0 * y
        y = c0 * y - s0 * f
        # The second rotation sees x_{i+1} after the first one, which is y.
        h = np.sqrt(R1[i + 1] * R1[i + 1] + y * y)
        c1, s1 = R1[i + 1] / h, y / h
        R1[i + 1] = h
        for j in range(i + 2, q + 1):
            f0 = R0[j]
            f1 = R1[j]
            y = x[j]
            R0[j] = c0 * f0 + s0 * y
            y = c0 * y - s0 * f0
            R1[j] = c1 * f1 + s1 * y
            x[j] = c1 * y - s1 * f1
        i += 2
    if i < q:  # the last row, if q is odd: only the column w stands behind it
        R0 = factor[i]
        h = np.sqrt(R0[i] * R0[i] + x[i] * x[i])
        c0, s0 = R0[i] / h, x[i] / h
        R0[i] = h
        R0[q] = c0 * R0[q] + s0 * x[q]


@njit(float64(V2, float64), **OPTIONS)
def factorise(factor: Any, ridge: float) -> Any:
    """Replace the upper part of [G | b] (q, q+1) in place by [R | w], RᵀR = λI + G; returns log det A/det λI.

    A pivot is the Schur complement of a matrix ⪰ λI, so it is at least λ: rounding may not push it below.
    """
    q = factor.shape[1] - 1
    spare = np.empty(q + 1)
    for i in range(q):
        row = factor[i, i:]  # loops that start at 0 are vectorised
        if i % 2 == 0:  # two rows at a time
            below = factor[i + 1, i:] if i + 1 < q else spare[i:]
            a = 0
            while a + 4 <= i:
                R0 = factor[a, i:]
                R1 = factor[a + 1, i:]
                R2 = factor[a + 2, i:]
                R3 = factor[a + 3, i:]
                f0 = R0[0]
                f1 = R1[0]
                f2 = R2[0]
                f3 = R3[0]
                g0 = R0[1]
                g1 = R1[1]
                g2 = R2[1]
                g3 = R3[1]
                for j in range(row.shape[0]):
                    y0 = R0[j]
                    y1 = R1[j]
                    y2 = R2[j]
                    y3 = R3[j]
                    row[j] -= f0 * y0 + f1 * y1 + f2 * y2 + f3 * y3
                    below[j] -= g0 * y0 + g1 * y1 + g2 * y2 + g3 * y3
                a += 4
            below[0] = 0.0
        for a in range(i - i % 4, i):
            R = factor[a, i:]
            f = R[0]
            for j in range(row.shape[0]):
                row[j] -= f * R[j]
        # R_ii² = λ + G_ii − Σ_{a<i} R_ai², and row i of R is what is left of row i of [G | b] over R_ii.
        pivot = np.sqrt(max(row[0] + ridge, ridge))
        row[0] = pivot
        rest = row[1:]
        for j in range(rest.shape[0]):
            rest[j] /= pivot
    return log_volume(factor, ridge)


@njit(float64(IN1, float64, IN2, V2, float64), **SHORT)
def learn_growing(x: Any, r: float, lift: Any, factor: Any, ridge: float) -> Any:
    """Add one round to a memory that forgets nothing; returns log det A/det λI, or REFUSED."""
    row = residual_row(x, r, lift, factor.shape[1] - 1)
    if not len(row):
        return REFUSED
    _rotate_in(factor, row)
    return log_volume(factor, ridge)


@njit(float64(IN1, float64, IN2, V2, V2, float64, float64), **SHORT)
def learn_discounted(
    x: Any, r: float, lift: Any, factor: Any, sums: Any, gamma: float, ridge: float
) -> Any:
    """Discount by γ and γ² and add one round (Russac et al. 2019, Algorithm 1).

    sums (q, q+1) become Σγ^s[zzᵀ | zr], the second half of factor (2q, q+1) Σγ^{2s}zzᵀ, each discounted from
    itself. Adding the ridge afresh is the same as re-injecting (1−γ)λI every round. Returns as
    `learn_growing`.
    """
    q = factor.shape[1] - 1
    row = residual_row(x, r, lift, q)
    if not len(row):
        return REFUSED
    for i in range(q):
        z = row[i:]
        first = sums[i, i:]
        second = factor[q + i, i:q]
        copy = factor[i, i:]
        for j in range(z.shape[0]):
            first[j] = gamma * first[j] + z[0] * z[j]
            copy[j] = first[j]
        for j in range(second.shape[0]):
            second[j] = gamma * gamma * second[j] + z[0] * z[j]
    return factorise(factor[:q], ridge)


# -- a sliding window, additions only --
#
# Rounds are cut into blocks of w. After k + 1 rounds of a block, the window is the rest of the previous
# block, its rows k + 1 to w − 1, and the rows 0 to k of this one. The sum over this block is a running sum.
# The sums over the rest of the previous one run from its end: they are kept after every B-th row (B ≈ √w),
# and for each row of the segment of B rows that the window is leaving. So nothing is ever subtracted, which
# would cancel digits. A round costs three additions of zzᵀ on average, and memory is 2√w matrices.
#
#   rows (w, q + 1)               the ring of rounds, [z | r] each
#   clock (2,)                    k, and whether a previous block exists
#   sums (1 + C + B, q, q + 1)    C = ⌈w/B⌉ segments
#     sums[0]                     the running sum of this block
#     sums[1 + c]                 of the previous block, after its segment c; sums[C] is therefore 0
#     sums[1 + C + i]             of the previous block, after row i of the present segment


@njit(types.void(V2, V2, IN1), **OPTIONS)
def _sum_to(total: Any, start: Any, row: Any) -> Any:
    """total = start + z[z, r]ᵀ in the upper part; total may be start."""
    q = row.shape[0] - 1
    for i in range(q):
        for j in range(i, q + 1):
            total[i, j] = start[i, j] + row[i] * row[j]


@njit(types.void(IN2, V3, int64), **OPTIONS)
def _close_block(rows: Any, sums: Any, B: int) -> Any:
    """Sums from the end of a finished block, after each of its segments."""
    w = rows.shape[0]
    C = (w + B - 1) // B
    for c in range(C - 1, 0, -1):
        last = min(w, (c + 1) * B) - 1
        _sum_to(sums[c], sums[c + 1], rows[last])
        for k in range(last - 1, c * B - 1, -1):
            _sum_to(sums[c], sums[c], rows[k])


@njit(types.void(IN2, V3, int64, int64), **OPTIONS)
def _open_segment(rows: Any, sums: Any, B: int, c: int) -> Any:
    """Sums of the previous block after each row of its segment c but the last, whose sum is sums[1 + c]."""
    w = rows.shape[0]
    first = 1 + (w + B - 1) // B
    last = min(B, w - c * B) - 1
    for i in range(last - 1, -1, -1):
        after = sums[1 + c] if i + 1 == last else sums[first + i + 1]
        _sum_to(sums[first + i], after, rows[c * B + i + 1])


@njit(float64(IN1, float64, IN2, V2, V3, V2, int64[::1], float64), **SHORT)
def learn_windowed(
    x: Any,
    r: float,
    lift: Any,
    factor: Any,
    sums: Any,
    rows: Any,
    clock: Any,
    ridge: float,
) -> Any:
    """Add one round to the window and drop the oldest. Returns as `learn_growing`."""
    w, q = rows.shape[0], factor.shape[1] - 1
    row = residual_row(x, r, lift, q)
    if not len(row):
        return REFUSED
    B = max(1, int(np.sqrt(w)))
    C = (w + B - 1) // B
    k = clock[0]
    c, i = k // B, k % B
    if clock[1] and i == 0:
        _open_segment(rows, sums, B, c)
    rows[k] = row
    _sum_to(sums[0], sums[C] if k == 0 else sums[0], row)
    rest = sums[C]
    if clock[1]:
        rest = sums[1 + c] if i + 1 == min(B, w - c * B) else sums[1 + C + i]
    for i in range(q):
        for j in range(i, q + 1):
            factor[i, j] = sums[0, i, j] + rest[i, j]
    clock[0] = k + 1
    if k + 1 == w:
        _close_block(rows, sums, B)
        clock[0], clock[1] = 0, 1
    return factorise(factor, ridge)

"""The compiled inner loops of memories that forget: discounting and the sliding window.

They keep sums G of z[z, r]ᵀ, upper parts only, shape (q, q+1), without ridge, and factor λI + G afresh every round;
factor, lift and status as in `kernels`. Apart from those so that only who forgets waits for their first compilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.kernels import (
    IN1,
    IN2,
    OPTIONS,
    V2,
    clear,
    copy,
    factorise,
    log_volume,
    residual_row,
)

IN3 = types.Array(float64, 3, "C", readonly=True)
V3 = float64[:, :, ::1]


@njit(types.void(V3, V2, float64), **OPTIONS)
def discounted_factor(sums: Any, factor: Any, ridge: float) -> Any:
    """Fill factor (2q, q+1) with [R | w] of the first sum and of the second."""
    q = factor.shape[1] - 1
    for half in range(2):
        part = factor[half * q : (half + 1) * q]
        copy(part, sums[half])
        factorise(part, ridge)


@njit(float64(IN1, float64, IN2, V2, V3, float64, float64), **OPTIONS)
def learn_discounted(x: Any, r: float, lift: Any, factor: Any, sums: Any, gamma: float, ridge: float) -> Any:
    """Discount by γ and γ², each sum from itself, and add one round (Russac et al. 2019, Algorithm 1).

    sums (2, q, q+1) are the upper parts of Σγ^s[zzᵀ | zr] and Σγ^{2s}[zzᵀ | zr] without ridge; it is added afresh,
    which is the same as re-injecting (1−γ)λI every round. Returns log det A/det λI, or a negative status.
    """
    q = factor.shape[1] - 1
    row = np.empty(q + 1)
    status = residual_row(x, r, lift, row)
    if status < 0:
        return float(status)
    for i in range(q):
        for j in range(i, q + 1):
            sums[0, i, j] = gamma * sums[0, i, j] + row[i] * row[j]
            sums[1, i, j] = gamma * gamma * sums[1, i, j] + row[i] * row[j]
    discounted_factor(sums, factor, ridge)
    return log_volume(factor, ridge)


# -- a sliding window, additions only ---------------------------------------------------------------------------------
#
# Rounds are cut into blocks of w. After k+1 rounds of a block, the window is the rest of the previous block, rows
# k+1..w-1, and the rows 0..k of this one. The second is a running sum; the first are sums from the end of a finished
# block, kept at every B-th row (B ≈ √w) and for each row of the present B. So nothing is ever subtracted, a round costs
# three additions of zzᵀ on average, and memory is 2√w matrices.
#
# rows (w, q+1) is the ring of rounds [z, r]; clock = (k, whether a previous block exists); sums (1 + C + B, q, q+1),
# C = ⌈w/B⌉, holds the running sum, the sums after each stretch of B rows, and the sums after each row of the present
# stretch.


@njit(int64(int64), **OPTIONS)
def window_stretch(w: int) -> Any:
    """Length B of the stretches of a window of w rounds, about √w."""
    return max(1, int(np.sqrt(w)))


@njit(types.void(V2, IN1), **OPTIONS)
def _add(G: Any, x: Any) -> Any:
    """G += z[z, r]ᵀ in the upper part, for x = [z, r]."""
    q = x.shape[0] - 1
    for i in range(q):
        for j in range(i, q + 1):
            G[i, j] += x[i] * x[j]


@njit(types.void(IN2, V3, int64), **OPTIONS)
def close_block(rows: Any, sums: Any, stretch: int) -> Any:
    """Sums from the end of a finished block of rows, after each stretch; the running sum starts again."""
    w = rows.shape[0]
    count = (w + stretch - 1) // stretch
    clear(sums[0])
    clear(sums[count])
    for c in range(count - 1, 0, -1):
        copy(sums[c], sums[c + 1])
        for k in range(min(w, (c + 1) * stretch) - 1, c * stretch - 1, -1):
            _add(sums[c], rows[k])


@njit(types.void(IN2, V3, int64, int64), **OPTIONS)
def open_stretch(rows: Any, sums: Any, stretch: int, c: int) -> Any:
    """Sums of the previous block after each row of its stretch c."""
    w = rows.shape[0]
    first = 1 + (w + stretch - 1) // stretch
    last = min(stretch, w - c * stretch) - 1
    copy(sums[first + last], sums[1 + c])
    for i in range(last - 1, -1, -1):
        copy(sums[first + i], sums[first + i + 1])
        _add(sums[first + i], rows[c * stretch + i + 1])


@njit(types.void(IN3, V2, int64, int64, int64, float64), **OPTIONS)
def window_factor(sums: Any, factor: Any, k: int, previous: int, stretch: int, ridge: float) -> Any:
    """Fill factor with [R | w] of the window after row k of the present block."""
    q = factor.shape[1] - 1
    first = sums.shape[0] - stretch
    rest = sums[first + k % stretch]
    for i in range(q):
        for j in range(i, q + 1):
            factor[i, j] = sums[0, i, j] + (rest[i, j] if previous else 0.0)
    factorise(factor, ridge)


@njit(float64(IN1, float64, IN2, V2, V3, V2, int64[::1], float64), **OPTIONS)
def learn_windowed(x: Any, r: float, lift: Any, factor: Any, sums: Any, rows: Any, clock: Any, ridge: float) -> Any:
    """Add one round to a sliding window, dropping the oldest; returns log det A/det λI, or a negative status."""
    w, q = rows.shape[0], factor.shape[1] - 1
    row = np.empty(q + 1)
    status = residual_row(x, r, lift, row)
    if status < 0:
        return float(status)
    stretch = window_stretch(w)
    k, previous = clock[0], clock[1]
    if previous and k % stretch == 0:
        open_stretch(rows, sums, stretch, k // stretch)
    for j in range(q + 1):
        rows[k, j] = row[j]
    _add(sums[0], row)
    window_factor(sums, factor, k, previous, stretch, ridge)
    clock[0] = k + 1
    if k + 1 == w:
        close_block(rows, sums, stretch)
        clock[0], clock[1] = 0, 1
    return log_volume(factor, ridge)

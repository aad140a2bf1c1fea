"""The compiled inner loops of memories that forget: discounting and the sliding window.

They keep sums of z[z, r]ᵀ, upper parts only, shape (q, q+1), without ridge, and hand the present one to
`kernels.factorise`. A round is the row [z, r] (q+1,) that `kernels.residual_row` has checked and made.

This file calls no compiled function of another file: numba's cache on disk would not notice a change there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, types

from invariant_bandits.policies.kernels import IN1, IN2, OPTIONS, SHORT, V2, V3


@njit(types.void(IN1, V3, V2, float64), **SHORT)
def discount(row: Any, sums: Any, factor: Any, gamma: float) -> Any:
    """Discount by γ and γ², each sum from itself, and add one round (Russac et al. 2019, Algorithm 1).

    sums (2, q, q+1) become Σγ^s[zzᵀ | zr] and Σγ^{2s}[zzᵀ | zr], factor (2q, q+1) a copy of both. Adding the ridge
    afresh to these is the same as re-injecting (1−γ)λI every round.
    """
    q = row.shape[0] - 1
    for i in range(q):
        for j in range(i, q + 1):
            product = row[i] * row[j]
            sums[0, i, j] = gamma * sums[0, i, j] + product
            sums[1, i, j] = gamma * gamma * sums[1, i, j] + product
            factor[i, j] = sums[0, i, j]
            factor[q + i, j] = sums[1, i, j]


# -- a sliding window, additions only ---------------------------------------------------------------------------------
#
# Rounds are cut into blocks of w. After k+1 rounds of a block, the window is the rest of the previous block, rows
# k+1..w-1, and the rows 0..k of this one. The second is a running sum; the first are sums from the end of a finished
# block, kept at every B-th row (B ≈ √w) and for each row of the present B. So nothing is ever subtracted, a round costs
# three additions of zzᵀ on average, and memory is 2√w matrices.
#
# rows (w, q+1) is the ring of rounds; clock = (k, whether a previous block exists). sums (1 + C + B, q, q+1), C =
# ⌈w/B⌉: sums[0] is the running sum, sums[1 + c] the sum of the previous block after its stretch c of B rows, so
# sums[C] is zero, and sums[1 + C + i] the one after row i of the present stretch.


@njit(int64(int64), **OPTIONS)
def window_stretch(w: int) -> Any:
    """Length B of the stretches of a window of w rounds, about √w."""
    return max(1, int(np.sqrt(w)))


@njit(types.void(V2, V2, IN1), **OPTIONS)
def _sum_to(total: Any, start: Any, row: Any) -> Any:
    """total = start + z[z, r]ᵀ in the upper part; total may be start."""
    q = row.shape[0] - 1
    for i in range(q):
        for j in range(i, q + 1):
            total[i, j] = start[i, j] + row[i] * row[j]


@njit(types.void(IN2, V3, int64), **OPTIONS)
def _close_block(rows: Any, sums: Any, B: int) -> Any:
    """Sums from the end of a finished block, after each of its stretches."""
    w = rows.shape[0]
    C = (w + B - 1) // B
    for c in range(C - 1, 0, -1):
        last = min(w, (c + 1) * B) - 1
        _sum_to(sums[c], sums[c + 1], rows[last])
        for k in range(last - 1, c * B - 1, -1):
            _sum_to(sums[c], sums[c], rows[k])


@njit(types.void(IN2, V3, int64, int64), **OPTIONS)
def _open_stretch(rows: Any, sums: Any, B: int, c: int) -> Any:
    """Sums of the previous block after each row of its stretch c but the last, whose sum is sums[1 + c]."""
    w = rows.shape[0]
    first = 1 + (w + B - 1) // B
    last = min(B, w - c * B) - 1
    for i in range(last - 1, -1, -1):
        after = sums[1 + c] if i + 1 == last else sums[first + i + 1]
        _sum_to(sums[first + i], after, rows[c * B + i + 1])


@njit(types.void(IN1, V2, V3, V2, int64[::1]), **SHORT)
def slide(row: Any, factor: Any, sums: Any, rows: Any, clock: Any) -> Any:
    """Add one round to the window and drop the oldest; the sum over the window goes to factor (q, q+1)."""
    w, q = rows.shape[0], row.shape[0] - 1
    B = window_stretch(w)
    C = (w + B - 1) // B
    k = clock[0]
    c, i = k // B, k % B
    if clock[1] and i == 0:
        _open_stretch(rows, sums, B, c)
    for j in range(q + 1):
        rows[k, j] = row[j]
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

"""The compiled inner loops: plain functions on arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath={"contract"})
def power_sums(X: Any, r: Any, per_round: int) -> Any:
    """Column sums of powers of the rows [φ, r]; X is (n, p), r is (n,), n a multiple of `per_round`.

    Returns (5, p+1): sums of x, x², x³, x⁴ and x·r, and (p+1,): Σ over rounds of (sum over the round)² /
    per_round.
    """
    n, p = X.shape
    sums = np.zeros((5, p + 1))
    between = np.zeros(p + 1)
    inside = np.zeros(p)
    for t in range(n):
        reward = r[t]
        square = reward * reward
        sums[0, p] += reward
        sums[1, p] += square
        sums[2, p] += square * reward
        sums[3, p] += square * square
        for j in range(p):
            x = X[t, j]
            xx = x * x
            sums[0, j] += x
            sums[1, j] += xx
            sums[2, j] += xx * x
            sums[3, j] += xx * xx
            sums[4, j] += x * reward
        if per_round > 1:
            for j in range(p):
                inside[j] += X[t, j]
            if (t + 1) % per_round == 0:
                for j in range(p):
                    between[j] += inside[j] * inside[j] / per_round
                    inside[j] = 0.0
    sums[4, p] = sums[1, p]
    if per_round == 1:
        for j in range(p + 1):
            between[j] = sums[1, j]
    return sums, between


@njit(cache=True, nogil=True)
def round_sums(X: Any, counts: Any) -> Any:
    """Σ over rounds of (sum of its rows)² / its number of rows, per column (p,); X is (Σ counts, p),
    round by round.
    """
    p = X.shape[1]
    between, inside = np.zeros(p), np.zeros(p)
    row = 0
    for count in counts:
        inside[:] = 0.0
        for _ in range(count):
            for j in range(p):
                inside[j] += X[row, j]
            row += 1
        for j in range(p):
            between[j] += inside[j] * inside[j] / count
    return between

"""The compiled inner loops: plain functions on arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

ROWS_PER_TASK = 4096


@njit(cache=True, parallel=True, nogil=True, fastmath={"contract"})
def power_sums(X: Any, r: Any, per_round: int) -> Any:
    """Column sums of powers of the rows [φ, r]; X is (n, p), r is (n,), n a multiple of `per_round`.

    Returns (5, p+1): sums of x, x², x³, x⁴ and x·r, and (p+1,): Σ over rounds of (sum over the round)² / per_round.
    """
    n, p = X.shape
    rows = max(1, ROWS_PER_TASK // per_round) * per_round
    tasks = (n + rows - 1) // rows
    parts = np.zeros((tasks, 6, p + 1))
    for task in prange(tasks):
        sums = np.zeros((6, p + 1))
        inside = np.zeros(p)
        for t in range(task * rows, min(n, (task + 1) * rows)):
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
                        sums[5, j] += inside[j] * inside[j] / per_round
                        inside[j] = 0.0
        parts[task] = sums
    total = np.zeros((6, p + 1))
    for task in range(tasks):
        total += parts[task]
    total[4, p] = total[1, p]
    between = total[5] if per_round > 1 else total[1]
    return total[:5], between


@njit(cache=True, nogil=True)
def ridge_choices(X: Any, r: Any, ridge: float, exploration: float, eta: float) -> Any:
    """Actions that LinUCB (Abbasi-Yadkori et al. 2011, noise and norm bound 1) would have chosen.

    X (T, K, p) offered features, r (T, K) their rewards; exploration 0 is the greedy policy. The Gram matrix is kept
    and factored afresh every round: no drift of rounding errors.
    """
    T, K, p = X.shape
    A = ridge * np.eye(p)
    b = np.zeros(p)
    actions = np.zeros(T, dtype=np.int64)
    for t in range(T):
        C = np.linalg.cholesky(A)
        logdet = 0.0
        for j in range(p):
            logdet += 2.0 * np.log(C[j, j])
        radius = np.sqrt(2.0 * np.log(1.0 / eta) + logdet - p * np.log(ridge)) + np.sqrt(ridge)
        Z = np.linalg.solve(C, np.ascontiguousarray(X[t].T))
        w = np.linalg.solve(C, b)
        best, chosen = -np.inf, 0
        for k in range(K):
            mean, norm = 0.0, 0.0
            for j in range(p):
                mean += Z[j, k] * w[j]
                norm += Z[j, k] * Z[j, k]
            score = mean + exploration * radius * np.sqrt(norm)
            if score > best:
                best, chosen = score, k
        actions[t] = chosen
        for i in range(p):
            b[i] += X[t, chosen, i] * r[t, chosen]
            for j in range(p):
                A[i, j] += X[t, chosen, i] * X[t, chosen, j]
    return actions

"""The compiled inner loops: plain functions on arrays, in the paper's letters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, fastmath={"contract"})
def power_sums(X: Any, r: Any, per_round: int) -> Any:
    """Column sums of powers of the rows [φ, r]; X is (n, p), r is (n,), n a multiple of `per_round`.

    Returns (5, p+1): sums of x, x², x³, x⁴ and x·r, and (p+1,): Σ over rounds of (sum over the round)² / per_round.
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
    """Σ over rounds of (sum of its rows)² / its number of rows, per column (p,); X is (Σ counts, p), round by round."""
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


@njit(cache=True, nogil=True)
def ridge_choices(X: Any, r: Any, forced: Any, ridge: float, exploration: float, eta: float) -> Any:
    """Actions that LinUCB (Abbasi-Yadkori et al. 2011, noise and norm bound 1) would have preferred.

    X (T, K, p) offered features, r (T, K) their rewards; exploration 0 is the greedy policy. forced (T,): the action
    that is played and learned whatever is preferred, or −1 to play what is preferred. The Gram matrix is kept and
    factored afresh every round: no drift of rounding errors.
    """
    T, K, p = X.shape
    A, C = np.zeros((p, p)), np.zeros((p, p))
    b, w, z = np.zeros(p), np.zeros(p), np.zeros(p)
    for j in range(p):
        A[j, j] = ridge
    actions = np.zeros(T, dtype=np.int64)
    for t in range(T):
        logdet = 0.0
        for i in range(p):
            for j in range(i + 1):
                total = A[i, j]
                for k in range(j):
                    total -= C[i, k] * C[j, k]
                C[i, j] = np.sqrt(total) if i == j else total / C[j, j]
            logdet += 2.0 * np.log(C[i, i] / np.sqrt(ridge))
            total = b[i]
            for k in range(i):
                total -= C[i, k] * w[k]
            w[i] = total / C[i, i]
        radius = np.sqrt(2.0 * np.log(1.0 / eta) + logdet) + np.sqrt(ridge)
        best, chosen = -np.inf, 0
        for action in range(K):
            mean, norm = 0.0, 0.0
            for i in range(p):
                total = X[t, action, i]
                for k in range(i):
                    total -= C[i, k] * z[k]
                z[i] = total / C[i, i]
                mean += z[i] * w[i]
                norm += z[i] * z[i]
            score = mean + exploration * radius * np.sqrt(norm)
            if score > best:
                best, chosen = score, action
        actions[t] = chosen
        if forced[t] >= 0:
            chosen = forced[t]
        for i in range(p):
            b[i] += X[t, chosen, i] * r[t, chosen]
            for j in range(i + 1):
                A[i, j] += X[t, chosen, i] * X[t, chosen, j]
    return actions

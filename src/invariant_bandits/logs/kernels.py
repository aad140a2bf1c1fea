"""Compiled loops over the rows of a log; import this module where they run, because it needs numba."""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def lots(rows: Any) -> Any:
    """Return a number in [0, 1) for each of the rows (n,), without pattern (the finaliser of SplitMix64)."""
    result = np.empty(len(rows))
    for t in range(len(rows)):
        bits = (np.uint64(rows[t]) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result[t] = np.float64(bits ^ (bits >> np.uint64(31))) / 2.0**64
    return result


@njit(cache=True, nogil=True)
def weigh_clicks(
    X: Any,
    rewards: Any,
    codes: Any,
    weights: Any,
    kept: Any,
    shift: Any,
    scale: Any,
    least: float,
) -> Any:
    """Return √h·z (n, 1 + q) and √h·(u + (r − π)/h) (n,) of clicks.

    z = [1, (X[:, kept] − shift) / scale] are contexts, u the product of z with the row of `weights`
    (arms, 1 + q) that `codes` (n,) names, π = σ(u), and h = π(1 − π), at least `least`.
    """
    n = len(X)
    q = len(kept)
    contexts = np.empty((n, 1 + q))
    targets = np.empty(n)
    for t in range(n):
        linear = weights[codes[t], 0]
        for j in range(q):
            contexts[t, 1 + j] = (X[t, kept[j]] - shift[j]) / scale[j]
            linear += contexts[t, 1 + j] * weights[codes[t], 1 + j]
        chance = 1.0 / (1.0 + exp(-linear))
        root = sqrt(max(chance * (1.0 - chance), least))
        targets[t] = root * linear + (rewards[t] - chance) / root
        contexts[t, 0] = root
        for j in range(q):
            contexts[t, 1 + j] *= root
    return contexts, targets

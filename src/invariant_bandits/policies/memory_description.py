"""What the arrays of a stored memory must be: factors, sums, and the ring of a window."""

from __future__ import annotations

from functools import partial
from math import isqrt

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.description import ROUNDING, Numbers, sums_of_squares
from invariant_bandits.policies import kernels

LARGEST_NUMBER = 1e101
"""Features and rewards are smaller: the sum of their squares is below 1e200."""
LARGEST_ROOT, LARGEST_SUM = 1e150, 1e250


def sums_of_window(window: int) -> int:
    """How many sums a window keeps, see `forgetting_kernels`: its stretches are ⌊√window⌋ rounds long."""
    stretch = max(1, isqrt(window))
    return 1 + -(-window // stretch) + stretch


def stored_factor(ridge: float, *shape: int | str) -> Numbers:
    """Factors [R | w] (..., q, q + 1) of A ⪰ λI, whose pivots are at least √λ."""
    return Numbers(shape, least=-LARGEST_ROOT, most=LARGEST_ROOT, law=partial(_wrong_pivots, ridge))


def stored_sums(ridge: float, count: int, q: str) -> Numbers:
    """Sums [Σzzᵀ | Σzr] (count, q, q + 1), upper parts."""
    return Numbers((count, q, f"{q}+1"), least=-LARGEST_SUM, most=LARGEST_SUM, law=partial(_wrong_sums, ridge))


def stored_rows(window: int, q: str) -> Numbers:
    """The ring of rounds [z, r] (window, q + 1)."""
    return Numbers((window, f"{q}+1"), least=-LARGEST_NUMBER, most=LARGEST_NUMBER)


def stored_clock(window: int) -> Numbers:
    """Where the ring stands, and whether it was filled before."""
    return Numbers((2,), "int64", law=partial(_wrong_clock, window))


def _wrong_pivots(ridge: float, values: Array) -> str:
    q = values.shape[-1] - 1
    pivots = np.diagonal(values.reshape(-1, q, q + 1), axis1=1, axis2=2) if q else np.ones(1) * np.sqrt(ridge)
    return "" if (pivots >= np.sqrt(ridge) * (1.0 - ROUNDING)).all() else "must have pivots of at least √ridge"


def _wrong_sums(ridge: float, values: Array) -> str:
    """bᵀA⁻¹b is at most the sum of the squared rewards."""
    for block in values:
        factor = np.array(block)
        kernels.factorise(factor, ridge)
        if not np.abs(factor[:, -1]).max(initial=0.0) < 1e9 * LARGEST_NUMBER:
            return "must be sums of products of features and rewards"
    return sums_of_squares(values)


def _wrong_clock(window: int, values: Array) -> str:
    position, wrapped = values.tolist()
    if 0 <= position < window and wrapped in (0, 1):
        return ""
    return f"must lie in the window of {window} rounds, got {values.tolist()}"

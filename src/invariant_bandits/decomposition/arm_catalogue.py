"""How alike arms are by their features: what a catalogue says of an arm that was never played.

The coefficients of A arms have covariance Ψ·M about an unknown mean, M = (1 − part)·I + part·FFᵀ/c with F the
standardised features (A, c): the part of the differences between arms that is linear in their features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import Array


class Likened(NamedTuple):
    """A new arm seen from the known ones.

    weights (A,): its expectation is this mean of the arms, adding up to 1; rest: variance left, in units of Ψ, that of
    the unknown mean included; row (A,), own: covariances with the known arms, and its variance, in the same units.
    """

    weights: Array
    rest: float
    row: Array
    own: float


def standardised(described: Array, arms: int) -> tuple[Array, Array, Array]:
    """Features of the arms with mean 0 and variance 1, their means and scales; columns that are all the same are 0."""
    if not described.size:
        return np.zeros((arms, 0)), np.zeros(0), np.zeros(0)
    center, scale = described.mean(axis=0), described.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return (described - center) / scale, center, scale


def relation(described: Array, part: float) -> Array:
    """M (A, A) of arms with standardised features (A, c), of which they explain this part."""
    A, c = described.shape
    return np.asarray((1.0 - part) * np.eye(A) + part * described @ described.T / max(c, 1))


def contrast(alike: Array) -> Array:
    """Precision (A, A) of arms with covariance M = `alike` about an unknown mean: flat along (1, …, 1)."""
    inverse = np.linalg.inv(alike)
    total = inverse.sum(axis=0)
    return np.asarray(inverse - np.outer(total, total) / total.sum())


def likened(alike: Array, described: Array, part: float, features: Array | None) -> Likened:
    """A new arm with standardised features (c,), or with unknown ones, by the best linear unbiased prediction."""
    c = max(described.shape[1], 1)
    known = np.zeros(described.shape[1]) if features is None else features
    row = part * described @ known / c
    own = 1.0 if features is None else 1.0 - part + part * float(known @ known) / c
    inverse = np.linalg.inv(alike)
    total = inverse.sum(axis=0)
    missing = (1.0 - float(total @ row)) / float(total.sum())
    rest = own - float(row @ inverse @ row) + missing**2 * float(total.sum())
    return Likened(inverse @ row + total * missing, rest, row, own)

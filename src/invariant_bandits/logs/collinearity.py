"""Features that say nothing new: constant within windows, or combinations of others; found from moments alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

TOLERANCE = 1e-9
"""Share of a feature's variance that must be left by the earlier ones."""
ROUNDING = 1e-12
"""Standard deviation, relative to the mean, below which a feature counts as constant."""
MOST_TERMS = 6
"""Longer combinations are told by their first terms and the number of the others."""
LEAST_SHARE = 1e-6
"""Terms of a combination that explain less of the standard deviation are not told."""


@dataclass(frozen=True)
class Dropped:
    """A feature that was left out: constant, or the combination of others.

    Parameters
    ----------
    name : str
        Name of the feature.
    combination : mapping of str to float
        Coefficients of the features that it is a combination of; empty if it is constant.
    window : int or None
        The first window in which that is so, counted from 0; None if it is so in all of them.

    >>> print(Dropped("cents", {"euros": 100.0}))
    cents = +100·euros + a constant per window
    """

    name: str
    combination: Mapping[str, float]
    window: int | None = None

    def __str__(self) -> str:
        if not self.combination:
            where = "every window" if self.window is None else f"window {self.window + 1}"
            return f"{self.name} is constant within {where}"
        told = list(self.combination.items())
        told = told if len(told) <= MOST_TERMS else told[: MOST_TERMS - 2]
        terms = " ".join(f"{value:+.4g}·{name}" for name, value in told)
        terms += f" … and {len(self.combination) - len(told)} more" if len(told) < len(self.combination) else ""
        where = "per window" if self.window is None else f"in window {self.window + 1}"
        return f"{self.name} = {terms} + a constant {where}"


def collinear_features(moments: WindowedMoments, names: Sequence[str]) -> list[Dropped]:
    """Features whose variance within windows is explained by earlier ones.

    Both the chosen and the offered actions must leave some of it.

    Parameters
    ----------
    moments : WindowedMoments
        Moments of p features.
    names : sequence of str, length p
        Their names.

    >>> import numpy as np
    >>> euros = np.random.default_rng(0).normal(size=50)
    >>> moments = WindowedMoments.from_arrays(np.column_stack([euros, 100.0 * euros]), euros, windows=2)
    >>> [str(one) for one in collinear_features(moments, ["euros", "cents"])]
    ['cents = +100·euros + a constant per window']
    """
    dropped: list[Dropped] = []
    kept = list(range(moments.dim))
    for sums in (moments.offered, moments.chosen):
        if sums is not None:
            kept, found = _independent(sums, kept, names)
            dropped += found
    return dropped


def _independent(sums: PowerSums, candidates: list[int], names: Sequence[str]) -> tuple[list[int], list[Dropped]]:
    """(indices of the candidates that are kept, the others with the reason).

    Cholesky of the pooled correlation matrix, row by row in the order of the features: a pivot is the share of a
    feature's variance that the earlier, kept ones leave.
    """
    p = len(names)
    gram = sums.scatter[:, :p, :p].sum(axis=0)
    alive = _varies(sums, gram)
    size = np.sqrt(np.where(alive, np.diagonal(gram), 1.0))
    correlation = gram / np.outer(size, size)
    dropped = [Dropped(names[j], {}) for j in candidates if not alive[j]]
    kept: list[int] = []
    factor = np.zeros((0, 0))
    for j in (j for j in candidates if alive[j]):
        row = _forward(factor, correlation[kept, j])
        pivot = 1.0 - row @ row
        if pivot <= TOLERANCE:
            dropped.append(Dropped(names[j], _combination(factor, row, size[kept], size[j], [names[k] for k in kept])))
            continue
        factor = np.block([[factor, np.zeros((len(kept), 1))], [row[None, :], np.sqrt(pivot)]])
        kept.append(j)
    return kept, dropped


def _varies(sums: PowerSums, gram: Array) -> Array:
    """Mask (p,) of the features that are not constant within every window, up to rounding."""
    level = np.abs(sums.mean[:, : len(gram)]).max(axis=0)
    return np.asarray(np.diagonal(gram) > sums.count.sum() * (ROUNDING * level) ** 2)


def _combination(factor: Array, row: Array, sizes: Array, size: float, names: Sequence[str]) -> dict[str, float]:
    """Coefficients of the kept features (of these sizes and names) that make up one of this `size`."""
    weights = _backward(factor, row) * size / sizes
    share = np.abs(weights) * sizes / size
    return {name: float(weights[i]) for i, name in enumerate(names) if share[i] > LEAST_SHARE}


def _forward(factor: Array, values: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor, values, lower=True)) if len(values) else np.zeros(0)


def _backward(factor: Array, values: Array) -> Array:
    from scipy.linalg import solve_triangular

    return np.asarray(solve_triangular(factor.T, values, lower=False))

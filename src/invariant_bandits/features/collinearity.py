"""Features that are constant within every window, or linear combinations of other features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

TOLERANCE = 1e-9
"""Share of a feature's variance that must be left by the earlier ones."""
ROUNDING = 1e-12
"""Standard deviation, relative to the mean, below which a feature counts as constant."""
MOST_TERMS = 6
"""Longer combinations are described by their first terms and the number of the others."""
LEAST_SHARE = 1e-6
"""Terms of a combination that explain less of the standard deviation are left out of its description."""


@dataclass(frozen=True)
class Dropped:
    """A feature that was left out: constant, the combination of others, or for a reason of its own.

    Parameters
    ----------
    name : str
        Name of the feature.
    combination : mapping of str to float
        Coefficients of the features that it is a combination of; empty if it is constant.
    why : str
        The reason, if it is another one.

    >>> print(Dropped("cents", {"euros": 100.0}))
    cents = +100·euros + a constant per window
    """

    name: str
    combination: Mapping[str, float]
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"{self.name}: {self.why}"
        if not self.combination:
            return f"{self.name} is constant within every window"
        shown = list(self.combination.items())
        shown = shown if len(shown) <= MOST_TERMS else shown[: MOST_TERMS - 2]
        terms = " ".join(f"{value:+.4g}·{name}" for name, value in shown)
        more = len(self.combination) - len(shown)
        terms += f" … and {more} more" if more else ""
        return f"{self.name} = {terms} + a constant per window"


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
    >>> [str(feature) for feature in collinear_features(moments, ["euros", "cents"])]
    ['cents = +100·euros + a constant per window']
    """
    dropped: list[Dropped] = []
    kept = list(range(moments.dim))
    for sums in (moments.offered, moments.chosen):
        if sums is not None:
            kept, dependent = _independent(sums, kept, names)
            dropped += dependent
    return dropped


def _independent(
    sums: PowerSums, candidates: list[int], names: Any
) -> tuple[list[int], list[Dropped]]:
    """(indices of the candidates that are kept, the others with the reason).

    Cholesky of the pooled correlation matrix, row by row in the order of the features: a pivot is the share
    of a feature's variance that the earlier, kept ones leave.
    """
    from scipy.linalg import solve_triangular

    p = len(names)
    gram = sums.scatter[:, :p, :p].sum(axis=0)
    level = np.abs(sums.mean[:, :p]).max(axis=0)
    # Not constant within every window.
    alive = np.diagonal(gram) > sums.count.sum() * (ROUNDING * level) ** 2
    size = np.sqrt(np.where(alive, np.diagonal(gram), 1.0))
    correlation = gram / np.outer(size, size)
    dropped = [Dropped(names[j], {}) for j in candidates if not alive[j]]
    kept: list[int] = []
    factor = np.zeros((0, 0))
    for j in (j for j in candidates if alive[j]):
        row = (
            solve_triangular(factor, correlation[kept, j], lower=True)
            if kept
            else np.zeros(0)
        )
        pivot = 1.0 - row @ row
        if pivot <= TOLERANCE:
            weights = (
                solve_triangular(factor.T, row, lower=False) * size[j] / size[kept]
            )
            shares = np.abs(weights) * size[kept] / size[j]
            terms = zip(kept, weights.tolist(), shares, strict=True)
            combination = {
                names[k]: value for k, value, share in terms if share > LEAST_SHARE
            }
            dropped.append(Dropped(names[j], combination))
            continue
        factor = np.block(
            [[factor, np.zeros((len(kept), 1))], [row[None, :], np.sqrt(pivot)]]
        )
        kept.append(j)
    return kept, dropped

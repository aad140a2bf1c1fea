"""How much drift the windows of a log could be hiding, and whether they agree with drift along the basis at all."""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths

HIDDEN_LEVEL = 0.08
HALVINGS = 60


def informing_windows(paths: CoefficientPaths) -> Array:
    """How many windows inform each direction (p,): all of them, unless some are silent about it."""
    return np.asarray(np.isfinite(paths.singly()[1]).sum(axis=0), dtype=np.float64)


def drift_limit(paths: CoefficientPaths) -> Array:
    """Upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

    If ω is the drift of a direction, Q(ω) = Σ_i (g_i − ḡ_ω)²/(ω + h_i), with ḡ_ω the mean weighted by 1/(ω + h_i), is
    χ² with m − 1 degrees of freedom, and it falls with ω; ω⁺ is where it reaches the 8 % quantile (the Q-profile
    interval of Viechtbauer 2007). With two windows ω⁺ is a hundred times what was seen, with eight three times. m
    counts the windows that inform the direction; ω⁺ is infinite if there are fewer than two.
    """
    g, h = paths.singly()
    informing = np.isfinite(h).sum(axis=0)
    freedom = np.maximum(informing - 1, 1)
    quantile = 2.0 * special.gammaincinv(freedom / 2.0, HIDDEN_LEVEL)
    low, high = np.zeros(g.shape[1]), _sample_squares(g, h) / quantile + 1e-300
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(informing > 1, high, np.inf)


def _sample_squares(g: Array, h: Array) -> Array:
    """Sums of squares (p,) of the coefficients g (m, p) about their means over the windows with finite variances h."""
    if np.isfinite(h).all():
        return np.asarray(g.var(axis=0, ddof=1) * (len(g) - 1))
    heard = np.where(np.isfinite(h), g, np.nan)
    return np.asarray(np.nansum((heard - np.nanmean(heard, axis=0)) ** 2, axis=0))


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """How far the windows contradict independent drift along the directions, in standard deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations
    (Ω + H_i)^(−1/2)(ĝ_i − μ), less its mean Σ1/n and over its standard deviation if there are none, n = m − 1
    (Schott 2005), m the windows that inform both directions of a pair. Large where the basis is not identified: then
    drift has no directions of its own. 0 if there are too few windows or directions to tell.
    """
    m, p = paths.coefficients.shape
    if m < 3 or p < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    roots = 1.0 / np.sqrt(values)
    if paths.silence is not None:
        L = paths.silence.roots
        A = L @ np.linalg.solve(np.eye(L.shape[2]) + (L.swapaxes(1, 2) * drift) @ L, L.swapaxes(1, 2))
        values, vectors[paths.silence.windows] = np.linalg.eigh(A)
        roots[paths.silence.windows] = np.sqrt(np.maximum(values, 0.0))
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) * roots
    standard = np.einsum("mij,mj->mi", vectors, apart)
    told = np.ones((m, p)) if paths.silence is None else np.isfinite(paths.singly()[1]).astype(np.float64)
    standard = standard * told - told * ((standard * told).sum(axis=0) / np.maximum(told.sum(axis=0), 1.0))
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (told.T @ told - 1.0)[pairs]
    squares = ((standard.T @ standard) ** 2)[pairs][n >= 2.0]
    n = n[n >= 2.0]
    if not len(n):
        return 0.0
    return float((squares.sum() - (1.0 / n).sum()) / np.sqrt((2.0 * (n - 1.0) / (n**2 * (n + 2.0))).sum()))

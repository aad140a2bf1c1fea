"""How much drift the windows of a log could be hiding, and whether they agree with drift along the basis at all."""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.paths import CoefficientPaths

HIDDEN_LEVEL = 0.08
HALVINGS = 60


def drift_limit(paths: CoefficientPaths) -> Array:
    """Upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

    If ω is the drift of a direction, Q(ω) = Σ_i (g_i − ḡ_ω)²/(ω + h_i), with ḡ_ω the mean weighted by 1/(ω + h_i), is
    χ² with m − 1 degrees of freedom, and it falls with ω; ω⁺ is where it reaches the 8 % quantile (the Q-profile
    interval of Viechtbauer 2007). With two windows ω⁺ is a hundred times what was seen, with eight three times.
    """
    g, h = paths.coefficients, np.einsum("mii->mi", paths.covariances)
    freedom = len(g) - 1
    quantile = 2.0 * float(special.gammaincinv(freedom / 2.0, HIDDEN_LEVEL))
    low, high = np.zeros(g.shape[1]), g.var(axis=0, ddof=1) * freedom / quantile + 1e-300
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(high)


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """How far the windows contradict independent drift along the directions, in standard deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations
    (Ω + H_i)^(−1/2)(ĝ_i − μ), less its mean p(p − 1)/2n and over its standard deviation if there are none, n = m − 1
    (Schott 2005). Large where the basis is not identified: then drift has no directions of its own. 0 if there are too
    few windows or directions to tell.
    """
    m, p = paths.coefficients.shape
    n = m - 1
    if n < 2 or p < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) / np.sqrt(values)
    standard = np.einsum("mij,mj->mi", vectors, apart)
    standard = standard - standard.mean(axis=0)
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    squares = float(((standard.T @ standard) ** 2).sum() - p) / 2.0
    return float((squares - p * (p - 1) / (2.0 * n)) / np.sqrt(p * (p - 1) * (n - 1) / (n**2 * (n + 2.0))))

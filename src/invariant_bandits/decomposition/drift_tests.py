"""Tests of drift along given directions, and limits of the drift that the windows may hide."""

from __future__ import annotations

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_effects import (
    ArmEffects,
    ConditionedWindows,
    informs,
)
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.fit_constants import ARM, PRIOR, SMALLEST
from invariant_bandits.decomposition.paths import CoefficientPaths, detectable_drift


def drift_p_value(
    effects: ConditionedWindows,
    direction: Array,
    size: float,
    inflation: float = 1.0,
    usual: float = 0.0,
) -> tuple[float, Array, float]:
    """p-value of no drift along a direction (p,), whose drift is `size` in the fit, the eigenvalues (m − 1,)
    of what the windows know of its contrasts, and the drift that they may hide, where `usual` is usual; the
    others' drift stays as fitted.

    Against two kinds of drift: drawn afresh in every window, and a walk over the windows; the smaller
    p-value, times 2. inflation: by which sampling variances exceed those of the model.
    """
    rows = effects.weights @ direction
    Q = np.diag(rows @ direction) - rows @ effects.covariance @ rows.T
    # As they would be without drift along the direction.
    still = np.linalg.inv(np.eye(len(Q)) - size * Q)
    Q, u = still @ Q / inflation, still @ (effects.pull @ direction) / inflation
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    walk = _ratio_p_value(step.T @ Q @ step, step.T @ u, size)
    p_value = min(1.0, 2.0 * min(_ratio_p_value(Q, u, size), walk))
    known = np.linalg.eigvalsh(0.5 * (Q + Q.T))[1:].clip(0.0)  # without their mean
    return p_value, known, contrast_limit(0.5 * (Q + Q.T), u, usual)


def contrast_limit(Q: Array, u: Array, usual: float) -> float:
    """Upper confidence limit ω⁺ of the drift along a direction, pooled over arms as drift is.

    As in `drift_limit`: with λ and c the eigenvalues of Q (m, m), the joint precision of the effect in all
    windows, and its scores u (m,) along them, both without the mean, Σ c²/λ(1 + ωλ) is χ². ARM.shrinkage more
    contrasts have the drift that is usual. The level is 40 %, because the alarm searches for the likeliest
    drift of all coefficients at once. Infinite without two informed contrasts.
    """
    level, total = Q.sum(axis=0), float(Q.sum())
    if total > ARM.uninformed * np.trace(Q):  # else nothing is known of the mean
        Q, u = Q - np.outer(level, level) / total, u - level * (u.sum() / total)
    values, vectors = np.linalg.eigh(Q)
    scores, known = vectors.T @ u, informs(values)
    if known.sum() < 2:
        return np.inf
    values, squares = values[known], scores[known] ** 2 / values[known]
    typical, count = float(np.median(values)), len(values) + ARM.shrinkage
    values = np.append(values, typical)
    squares = np.append(squares, ARM.shrinkage * (1.0 + usual * typical))
    quantile = 2.0 * float(special.gammaincinv(count / 2.0, PRIOR.pooled_hidden_level))
    low, high = 0.0, float((squares / values).sum()) / quantile
    for _ in range(PRIOR.halvings):
        middle = 0.5 * (low + high)
        above = float((squares / (1.0 + middle * values)).sum()) > quantile
        low, high = (middle, high) if above else (low, middle)
    return high


def _ratio_p_value(Q: Array, u: Array, size: float) -> float:
    """p-value of δ = 0, where drift δ changes the log-likelihood by −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u.

    Q (m, m) is the joint precision of the effect in all windows, μ integrated out, and u (m,) its score:
    exact. The best δ is searched on a grid about `size`; twice the logarithm of the ratio to δ = 0 is ½χ²₀ +
    ½χ²₁ if there is no drift (Self and Liang 1987).
    """
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ u) ** 2
    drifts = size * np.geomspace(
        1.0 / PRIOR.largest_factor, PRIOR.largest_factor, PRIOR.grid_points
    )
    grown = np.maximum(1.0 + np.outer(drifts, np.maximum(values, 0.0)), SMALLEST)
    likelihood = 0.5 * (drifts[:, None] * squares / grown - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max())
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0))) if ratio > 0.0 else 0.5


def drift_limit(paths: CoefficientPaths) -> Array:
    """Upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

    If ω is the drift of a direction, Q(ω) = Σ_i (g_i − ḡ_ω)²/(ω + h_i), with ḡ_ω the mean weighted by 1/(ω +
    h_i), is χ² with m − 1 degrees of freedom, and it falls with ω; ω⁺ is where it reaches the 8 % quantile
    (the Q-profile interval of Viechtbauer 2007). With two windows ω⁺ is a hundred times what was seen, with
    eight three times. m counts the windows that inform the direction; ω⁺ is infinite if there are fewer than
    two.
    """
    g, h = paths.marginals()
    informing = np.isfinite(h).sum(axis=0)
    freedom = np.maximum(informing - 1, 1)
    quantile = 2.0 * special.gammaincinv(freedom / 2.0, PRIOR.hidden_level)
    squares = g.var(axis=0, ddof=1) * (len(g) - 1)
    if not np.isfinite(h).all():
        known = np.where(np.isfinite(h), g, np.nan)
        squares = np.nansum((known - np.nanmean(known, axis=0)) ** 2, axis=0)
    low, high = np.zeros(g.shape[1]), squares / quantile + 1e-300
    for _ in range(PRIOR.halvings):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(informing > 1, high, np.inf)


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """How far the windows contradict independent drift along the directions, in standard deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations (Ω
    + H_i)^(−1/2)(ĝ_i − μ), less its mean Σ1/n and over its standard deviation if there are none, n = m − 1
    (Schott 2005), m the windows that inform both directions of a pair. Large where the basis is not
    identified: then drift has no directions of its own. 0 if there are too few windows or directions.
    """
    m, p = paths.coefficients.shape
    if m < 3 or p < 2:
        return 0.0
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    roots = 1.0 / np.sqrt(values)
    if paths.partial is not None:
        L = paths.partial.roots
        A = L @ np.linalg.solve(
            np.eye(L.shape[2]) + (L.swapaxes(1, 2) * drift) @ L, L.swapaxes(1, 2)
        )
        values, vectors[paths.partial.windows] = np.linalg.eigh(A)
        roots[paths.partial.windows] = np.sqrt(np.maximum(values, 0.0))
    apart = np.einsum("mji,mj->mi", vectors, paths.coefficients - mean) * roots
    standard = np.einsum("mij,mj->mi", vectors, apart)
    informed = np.isfinite(paths.marginals()[1]).astype(np.float64)
    center = (standard * informed).sum(axis=0) / np.maximum(informed.sum(axis=0), 1.0)
    standard = standard * informed - informed * center
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (informed.T @ informed - 1.0)[pairs]
    squares = ((standard.T @ standard) ** 2)[pairs][n >= 2.0]
    n = n[n >= 2.0]
    if not len(n):
        return 0.0
    return float(
        (squares.sum() - (1.0 / n).sum())
        / np.sqrt((2.0 * (n - 1.0) / (n**2 * (n + 2.0))).sum())
    )


def informing_windows(statistics: ArmStatistics, directions: Array) -> Array:
    """How many windows inform each direction (J, p); a window of clicks by about five of the rarer kind."""
    known = ((statistics.information @ directions.T) * directions.T).sum(axis=1)
    least = PRIOR.enough_clicks if statistics.link == "logit" else 0.0
    return np.asarray((informs(known) & (known >= least)).sum(axis=0), dtype=np.float64)


def drift_tests_along(
    fit: ArmEffects,
    layout: ArmLayout,
    directions: Array,
    sizes: Array,
    inflation: Array,
) -> tuple[Array, Array, Array]:
    """p-values (J,) of no drift along directions (J, p) that have these sizes in the fit, the drift that
    would have been detected, and the drift that may be hidden; inflation (p,): of the sampling variances of
    the coefficients. Usual is the median over arms of their drift, or the own drift of what arms share.
    """
    usual, own = sizes.copy(), layout.own_dim
    usual[:own] = np.tile(np.median(layout.by_arm(sizes), axis=0), layout.arms)
    squares = directions**2
    factors = (squares @ inflation) / squares.sum(axis=1).clip(1e-300)
    of_each = zip(
        directions, sizes.tolist(), factors.tolist(), usual.tolist(), strict=True
    )
    tests = [drift_p_value(fit.windows, *each) for each in of_each]
    level = 0.5 * PRIOR.drift_level / len(tests)
    detectable = [detectable_drift(known, level) for _, known, _ in tests]
    p_values, _, limits = zip(*tests, strict=True)
    return np.array(p_values), np.array(detectable), np.array(limits)


def missing_inflation(statistics: ArmStatistics, mean: Array, drift: Array) -> Array:
    """How far sampling variances (p,) of indicators of missing values exceed those of the model.

    Rewards with noise only: the variance of a click follows from its mean. mean, drift: (p,), of the
    coefficients.
    """
    layout, noise = statistics.layout, statistics.noise_variance
    result, own = np.ones(layout.dim), layout.own
    slopes = max(len(statistics.context_square) - own, 1)

    def coordinate(arm: int, entry: int) -> int:
        """Where the coefficient of an arm for an entry of the context stands, or the shared one."""
        return arm * own + entry if entry < own else layout.own_dim + entry - own

    for column in statistics.missing if statistics.link == "identity" else ():
        for arm in range(layout.arms):
            values = [coordinate(arm, entry) for entry in column.values]
            spread = np.outer(mean[values], mean[values]) + np.diag(drift[values])
            factor = column.inflation(spread, statistics.context_square, noise)
            indicator = coordinate(arm, column.indicator)
            result[indicator] = factor
            if (
                indicator >= layout.own_dim
            ):  # products with the catalogue follow in steps of the slopes
                result[indicator::slopes] = factor
    return result

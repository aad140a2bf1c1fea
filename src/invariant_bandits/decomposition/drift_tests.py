"""Tests of drift along given directions, and limits of the drift that the windows may hide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_effects import (
    ArmEffects,
    ConditionedWindows,
    informs,
)
from invariant_bandits.decomposition.arm_statistics import ArmLayout, ArmStatistics
from invariant_bandits.decomposition.fit_constants import ARM, PRIOR, SMALLEST, TINY
from invariant_bandits.decomposition.paths import CoefficientPaths, detectable_drift


class DriftTest(NamedTuple):
    """The test of no drift along one direction.

    Attributes
    ----------
    p_value : float
    contrast_information : array, shape (m − 1,)
        Eigenvalues of what the windows know of the direction's contrasts.
    upper_limit : float
        Drift that the windows may hide (`contrast_limit`).
    """

    p_value: float
    contrast_information: Array
    upper_limit: float


def assess_direction(
    effects: ConditionedWindows,
    direction: Array,
    size: float,
    inflation: float,
    typical: float,
) -> DriftTest:
    """Test for drift along one direction: against fresh draws in every window, a walk, and a line.

    The drift of all other directions stays as fitted.

    Parameters
    ----------
    effects : ConditionedWindows
    direction : array, shape (p,)
    size : float
        Drift of the direction in the fit.
    inflation : float
        By which sampling variances exceed those of the model.
    typical : float
        Typical drift of such directions, for the upper limit.
    """
    # Joint precision of the effect in all windows, μ integrated out: dᵀW_id − dᵀW_iC_μW_jd (m, m).
    rows = effects.weights @ direction
    with_drift = np.diag(rows @ direction) - rows @ effects.covariance @ rows.T
    # Without drift along the direction it is (I − sQ)⁻¹Q, and so with the scores: s is taken out of Ω.
    still = np.linalg.inv(np.eye(len(with_drift)) - size * with_drift)
    Q = still @ with_drift / inflation
    u = still @ (effects.pull @ direction) / inflation
    afresh = _ratio_p_value(Q, u, size)
    # A walk adds its steps up: the effect is T·steps, T lower triangular, scaled to keep the size.
    step = np.tril(np.ones_like(Q)) / np.sqrt(len(Q))
    walk = _ratio_p_value(step.T @ Q @ step, step.T @ u, size)
    symmetric = 0.5 * (Q + Q.T)
    return DriftTest(
        p_value=_combine([afresh, walk, _line_p_value(symmetric, u)]),
        # The smallest eigenvalue is that of the mean, of which contrasts say nothing.
        contrast_information=np.linalg.eigvalsh(symmetric)[1:].clip(0.0),
        upper_limit=contrast_limit(symmetric, u, typical),
    )


def _line_p_value(Q: Array, u: Array) -> float:
    """Return the p-value of no slope over the windows: tᵀu is N(0, tᵀQt) without drift, t the centred times.

    Q (m, m) and u (m,) as in `_ratio_p_value`. A slow drift is found in one contrast of m − 1.
    """
    times = np.arange(len(u)) - 0.5 * (len(u) - 1.0)
    information = float(times @ Q @ times)
    if information <= TINY:
        return 0.5
    return float(special.erfc(abs(times @ u) / np.sqrt(2.0 * information)))


def _combine(p_values: list[float]) -> float:
    """Return the p-value of dependent tests: the mean of cot(πp) is Cauchy (Liu and Xie 2020).

    Three small p-values that agree lose nothing, a single small one is multiplied by three.
    """
    cotangents = 1.0 / np.tan(np.pi * np.clip(p_values, TINY, 0.99))
    return float(np.arctan2(1.0, cotangents.mean()) / np.pi)


def contrast_limit(Q: Array, u: Array, typical: float) -> float:
    """Return the upper confidence limit ω⁺ of the drift along a direction, pooled over arms as drift is.

    As in `drift_limit`: with λ and c the eigenvalues of Q (m, m), the joint precision of the effect in all
    windows, and its scores u (m,) along them, both without the mean, Σ c²/λ(1 + ωλ) is χ². `ARM.shrinkage`
    more contrasts have the typical drift. The level is 40 %, because the alarm searches for the likeliest
    drift of all coefficients at once. Infinite without two informed contrasts.
    """
    level = Q.sum(axis=0)
    total = float(Q.sum())
    if total > ARM.uninformed * np.trace(Q):  # else nothing is known of the mean
        # Project the mean out: Q − Q11ᵀQ/1ᵀQ1.
        Q = Q - np.outer(level, level) / total
        u = u - level * (u.sum() / total)
    values, vectors = np.linalg.eigh(Q)
    known = informs(values)
    if known.sum() < 2:
        return np.inf
    values = values[known]
    squares = (vectors.T @ u)[known] ** 2 / values
    # The pooled contrasts have the median information and the square that the typical drift lets expect.
    median = float(np.median(values))
    count = len(values) + ARM.shrinkage
    values = np.append(values, median)
    squares = np.append(squares, ARM.shrinkage * (1.0 + typical * median))
    level_share = PRIOR.pooled_hidden_level
    quantile = 2.0 * float(special.gammaincinv(count / 2.0, level_share))
    # The sum falls with ω: halve the interval that holds ω⁺.
    low, high = 0.0, float((squares / values).sum()) / quantile
    for _ in range(PRIOR.halvings):
        middle = 0.5 * (low + high)
        if float((squares / (1.0 + middle * values)).sum()) > quantile:
            low = middle
        else:
            high = middle
    return high


def _ratio_p_value(Q: Array, u: Array, size: float) -> float:
    """Return the p-value of δ = 0: drift δ adds −½log|I + δQ| + ½δuᵀ(I + δQ)⁻¹u to the log-likelihood.

    Q (m, m) is the joint precision of the effect in all windows, μ integrated out, and u (m,) its score:
    exact. The best δ is searched on a grid about `size`; twice the logarithm of the ratio to δ = 0 is ½χ²₀ +
    ½χ²₁ if there is no drift (Self and Liang 1987).
    """
    values, vectors = np.linalg.eigh(0.5 * (Q + Q.T))
    squares = (vectors.T @ u) ** 2
    most = PRIOR.largest_factor
    drifts = size * np.geomspace(1.0 / most, most, PRIOR.grid_points)
    # Eigenvalues 1 + δλ of I + δQ (grid, m); rounding may leave λ below 0.
    grown = 1.0 + np.outer(drifts, np.maximum(values, 0.0))
    grown = np.maximum(grown, SMALLEST)
    explained = drifts[:, None] * squares / grown
    likelihood = 0.5 * (explained - np.log(grown)).sum(axis=1)
    ratio = 2.0 * float(likelihood.max())
    if ratio <= 0.0:
        return 0.5
    return 0.5 * float(special.erfc(np.sqrt(ratio / 2.0)))


def drift_limit(paths: CoefficientPaths) -> Array:
    """Return upper confidence limits ω⁺ (p,) of the drift along every direction, each at level 8 %.

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
    low = np.zeros(g.shape[1])
    high = squares / quantile + TINY
    for _ in range(PRIOR.halvings):
        middle = 0.5 * (low + high)
        weight = 1.0 / (middle + h)
        center = (weight * g).sum(axis=0) / weight.sum(axis=0)
        above = (weight * (g - center) ** 2).sum(axis=0) > quantile
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return np.where(informing > 1, high, np.inf)


def drift_misfit(paths: CoefficientPaths, mean: Array, drift: Array) -> float:
    """Return how far the windows contradict independent drift along the directions, in deviations.

    Sum of the squared correlations, over all pairs of directions, of the windows' standardised deviations (Ω
    + H_i)^(−1/2)(ĝ_i − μ), less its mean Σ1/n and over its standard deviation if there are none, n = m − 1
    (Schott 2005), m the windows that inform both directions of a pair. Large where the basis is not
    identified: then drift has no directions of its own. 0 if there are too few windows or directions.
    """
    m, p = paths.coefficients.shape
    if m < 3 or p < 2:
        return 0.0
    # (Ω + H_i)^(−1/2) = V·diag(λ^(−1/2))·Vᵀ, window by window.
    values, vectors = np.linalg.eigh(np.diag(drift) + paths.covariances)
    roots = 1.0 / np.sqrt(values)
    if paths.partial is not None:
        # A partial window has (Ω + H_i)⁻¹ = L(I + LᵀΩL)⁻¹Lᵀ, which is singular.
        L = paths.partial.roots
        Lt = L.swapaxes(1, 2)
        inner = np.eye(L.shape[2]) + (Lt * drift) @ L
        values, vectors[paths.partial.windows] = np.linalg.eigh(
            L @ np.linalg.solve(inner, Lt)
        )
        roots[paths.partial.windows] = np.sqrt(np.maximum(values, 0.0))
    departures = paths.coefficients - mean
    along = np.einsum("mji,mj->mi", vectors, departures) * roots
    standard = np.einsum("mij,mj->mi", vectors, along)
    # Correlations over the windows that inform a direction: centre, then scale to length 1.
    informed = np.isfinite(paths.marginals()[1]).astype(np.float64)
    count = np.maximum(informed.sum(axis=0), 1.0)
    center = (standard * informed).sum(axis=0) / count
    standard = standard * informed - informed * center
    length = np.sqrt((standard**2).sum(axis=0))
    standard = standard / np.where(length > 0.0, length, 1.0)
    pairs = np.triu_indices(p, 1)
    n = (informed.T @ informed - 1.0)[pairs]
    comparable = n >= 2.0
    n = n[comparable]
    if not len(n):
        return 0.0
    squares = ((standard.T @ standard) ** 2)[pairs][comparable]
    # r² of independent columns is Beta(½, (n − 1)/2): mean 1/n, variance 2(n − 1)/(n²(n + 2)).
    variance = (2.0 * (n - 1.0) / (n**2 * (n + 2.0))).sum()
    return float((squares.sum() - (1.0 / n).sum()) / np.sqrt(variance))


def informing_windows(statistics: ArmStatistics, directions: Array) -> Array:
    """Return how many windows inform each direction (J, p); of clicks it takes about five of the rarer."""
    known = ((statistics.information @ directions.T) * directions.T).sum(axis=1)
    least = PRIOR.enough_clicks if statistics.link == "logit" else 0.0
    return np.asarray((informs(known) & (known >= least)).sum(axis=0), dtype=np.float64)


class DriftTests(NamedTuple):
    """Tests along J directions: p-values, detectable drift and the drift that may be hidden, each (J,)."""

    p_values: Array
    detectable: Array
    limits: Array


def assess_drift(
    fit: ArmEffects,
    layout: ArmLayout,
    directions: Array,
    sizes: Array,
    inflation: Array,
) -> DriftTests:
    """Test for drift along directions (J, p) that have these sizes (J,) in the fit.

    inflation (J,): by which sampling variances exceed those of the model. Typical is the median over arms of
    their drift, or the own drift of what arms share.
    """
    typical = sizes.copy()
    median = np.median(layout.by_arm(sizes), axis=0)
    typical[: layout.own_dim] = np.tile(median, layout.arms)
    numbers = zip(sizes.tolist(), inflation.tolist(), typical.tolist(), strict=True)
    tests = [
        assess_direction(fit.windows, direction, *each)
        for direction, each in zip(directions, numbers, strict=True)
    ]
    # Half the level, because each test is the smaller of two p-values, doubled.
    level = 0.5 * PRIOR.drift_level / len(tests)
    return DriftTests(
        np.array([test.p_value for test in tests]),
        np.array(
            [detectable_drift(test.contrast_information, level) for test in tests]
        ),
        np.array([test.upper_limit for test in tests]),
    )


def variance_inflation(statistics: ArmStatistics, mean: Array, drift: Array) -> Array:
    """Return how far sampling variances (p,) exceed those of equal noise.

    They do where the noise depends on the context or the arm, and for indicators of missing values. The
    variance of a click follows from its mean. mean, drift: (p,), of the coefficients.
    """
    layout, noise = statistics.layout, statistics.noise_variance
    own = layout.own
    result = np.ones(layout.dim)
    if len(statistics.noise_inflation):
        result = statistics.noise_inflation.copy()
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
            result[indicator] = max(result[indicator], factor)
            if indicator >= layout.own_dim:
                # Products with the catalogue follow in steps of the slopes.
                products = slice(indicator, None, slopes)
                result[products] = np.maximum(result[products], factor)
    return result

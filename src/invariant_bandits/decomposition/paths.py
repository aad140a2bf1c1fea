"""Least-squares coefficients window by window, their precision, and windows that do not inform every
direction.

A window in which a feature is constant, or in which there are few rounds, has a singular Σφφᵀ. What it knows
of the coefficients is a singular information matrix Λ_i = L_iL_iᵀ. It is a *partial* window: nothing is lost
but what it lacks, and there the paths hold what the other windows expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.features.maps import FeatureMap
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

INFORMS = 1e-6
"""Share of what all windows know of a direction below which a window does not inform it."""
LEAST_DRIFT, LARGEST_DRIFT = 1e-300, 1e100
"""A variance that is not 0 and has an inverse, and a standard deviation whose square is a number."""
POWER = 0.85
"""Nominal power of `detectable_drift`; in simulations the tests detect such drift in about four of five logs.
"""
RELATIVE_NULL = 100.0 * float(np.finfo(np.float64).eps)
"""Relative eigenvalue, per feature, below which a direction is singular up to rounding."""
CONSTANT = 1e-20
"""Variance in units of the mean square below which a feature is constant up to rounding."""
EXACT = 1e-12
"""Share of the rewards' variance below which noise cannot be distinguished from rounding."""
ROUNDING = 1e-30  # share of a square that rounding can leave behind, (4.5 eps)²
ITERATIONS = 100  # of expectation–maximisation, for what is expected of partial windows


def singular_roots(sums: PowerSums, p: int) -> dict[int, Array]:
    """F (p, r) with Σ(φ − φ̄)(φ − φ̄)ᵀ = FFᵀ for every window in which that is singular, of rank r, by
    window.
    """
    grams = sums.scatter[:, :p, :p]
    variances = np.einsum("mii->mi", grams)
    squares = sums.count[:, None] * sums.mean[:, :p] ** 2
    alive = variances > CONSTANT * (squares + variances)
    size = np.sqrt(np.where(alive, variances, 1.0))
    correlations = np.where(
        alive[:, :, None] & alive[:, None, :],
        grams / (size[:, :, None] * size[:, None, :]),
        0.0,
    )
    values, vectors = np.linalg.eigh(correlations)
    seen = values > RELATIVE_NULL * p * values[:, -1:]
    roots = (
        np.where(alive, size, 0.0)[:, :, None]
        * vectors
        * np.sqrt(np.where(seen, values, 0.0))[:, None]
    )
    return {
        int(window): roots[window][:, seen[window]]
        for window in np.flatnonzero(~seen.all(axis=1))
    }


def unseen_directions(roots: dict[int, Array], windows: int, p: int) -> Array:
    """Projections (windows, p, p) on the directions in which each window does not vary; zero for the
    others.
    """
    result = np.zeros((windows, p, p))
    for window, root in roots.items():
        left, _, _ = np.linalg.svd(root, full_matrices=True)
        null = left[:, root.shape[1] :]
        result[window] = null @ null.T
    return result


class MissingColumn(NamedTuple):
    """A column whose missing values are filled in: its features, their indicator, and the share missing.

    The reward of a row with a filled-in value varies by as much more as the value would have explained, so
    the usual standard error of the indicator's coefficient is too small.
    """

    values: tuple[int, ...]
    indicator: int
    share: float

    def inflation(self, spread: Array, covariance: Array, noise: float) -> float:
        """Factor on the sampling variance of the indicator's coefficient.

        With q missing, b the variance that the values explain where they are known, and s² the mean noise,
        rows vary by s² − qb, or s² + (1 − q)b if filled in. The difference of the two groups' means then
        has 1 + (1 − 2q)b/s² times the variance that equal noise would give.

        Parameters
        ----------
        spread : array, shape (k, k)
            Mean of ββᵀ, β the coefficients of the values.
        covariance : array, shape (p, p)
            Of all features.
        noise : float
            s².
        """
        at = list(self.values)
        with_indicator = covariance[list(self.values), self.indicator]
        within = covariance[np.ix_(at, at)] - np.outer(
            with_indicator, with_indicator
        ) / max(float(covariance[self.indicator, self.indicator]), 1e-300)
        explained = float(np.trace(spread @ within)) / max(1.0 - self.share, 1e-12)
        most = 1.0 / max(self.share, 1e-12)
        return 1.0 + max(1.0 - 2.0 * self.share, 0.0) * min(
            max(explained, 0.0) / max(noise, 1e-300), most
        )


def missing_columns(
    features: FeatureMap, names: Sequence[str], mean: Array | None = None
) -> tuple[MissingColumn, ...]:
    """The indicators of missing values among features of these names, by their place.

    mean: of all features of the map, 0 if not given, as after standardising.
    """
    place = {name: j for j, name in enumerate(names)}
    shares = features.missing_shares(mean)
    result = []
    for column in features.columns:
        *values, indicator = column.features
        known = tuple(place[name] for name in values if name in place)
        if known and indicator in place and indicator in shares:
            result.append(MissingColumn(known, place[indicator], shares[indicator]))
    return tuple(result)


class PartialWindows(NamedTuple):
    """What partial windows know, and what the others expect of the coefficients in any window.

    Attributes
    ----------
    windows : array of int, shape (k,)
        The windows that do not inform every direction.
    roots : array, shape (k, p, r)
        L. The information of each about the coefficients γ is LLᵀ.
    seen : array, shape (k, r)
        y = Lᵀγ + N(0, I), all that each saw of them.
    mean : array, shape (p,)
        Expected coefficients.
    spread : array, shape (p, p)
        Their covariance: that of the drift, and the error of the mean.
    """

    windows: np.ndarray[tuple[int], np.dtype[np.int64]]
    roots: Array
    seen: Array
    mean: Array
    spread: Array

    def along(self, directions: Array, known: PartialEstimate) -> PartialWindows:
        """The same of the coordinates c = Wᵀγ, W = `directions` (p, d).

        A window estimates γ − Πγ, Π the projection on what it does not inform. With γ = Bc + rest, it follows
        that (I − WᵀΠB)c = Wᵀ(γ − Πγ) + WᵀΠ·rest: of the rest what is expected, give or take its spread.
        Without that it would know nothing of any coordinate that is not quite perpendicular to a direction
        that it does not inform.
        """
        back = np.linalg.pinv(directions).T
        rest = np.eye(len(directions)) - back @ directions.T
        mixed = directions.T @ known.unknown
        error = directions.T @ known.covariances @ directions
        error = error + mixed @ (rest @ self.spread @ rest.T) @ mixed.swapaxes(1, 2)
        value = known.estimates @ directions + mixed @ (rest @ self.mean)
        variance = np.einsum("kii->ki", error)
        most = np.einsum(
            "ia,kij,ja->ka", directions, known.covariances + self.spread, directions
        )
        size = np.sqrt(np.where(variance > RELATIVE_NULL * most, variance, np.inf))
        values, vectors = np.linalg.eigh(error / (size[:, :, None] * size[:, None, :]))
        known_part = values > RELATIVE_NULL * len(back) * values[:, -1:]
        inverse = (
            vectors
            / size[:, :, None]
            * (known_part / np.sqrt(np.where(known_part, values, 1.0)))[:, None, :]
        )
        roots = (np.eye(directions.shape[1]) - mixed @ back).swapaxes(1, 2) @ inverse
        seen = np.einsum("kij,ki->kj", inverse, value)
        spread = directions.T @ self.spread @ directions
        return PartialWindows(
            self.windows, roots, seen, directions.T @ self.mean, spread
        )


class PartialEstimate(NamedTuple):
    """Least squares in partial windows.

    Attributes
    ----------
    estimates, covariances : arrays, shapes (k, p), (k, p, p)
        Of γ − Πγ, the part of the coefficients that they inform.
    unknown : array, shape (k, p, p)
        Π, the projection on what each does not inform, perpendicular in the metric of what all windows know.
    """

    estimates: Array
    covariances: Array
    unknown: Array


def in_units_of_all(precisions: Array) -> tuple[Array, Array]:
    """C (d, d) with CCᵀ = ΣP_i, and C⁻¹P_iC⁻ᵀ (m, d, d), which add up to the identity; precisions P are (m,
    d, d).
    """
    factor = np.linalg.cholesky(precisions.sum(axis=0))
    half = np.linalg.solve(factor, precisions)
    whole = np.linalg.solve(factor, half.swapaxes(1, 2))
    return factor, np.asarray(0.5 * (whole + whole.swapaxes(1, 2)))


def informed_directions(precisions: Array) -> int:
    """How many directions the windows inform, summed over the windows: m·d unless some are partial."""
    _, shares = in_units_of_all(precisions)
    return int((np.linalg.eigvalsh(shares) > INFORMS).sum())


@dataclass(frozen=True)
class CoefficientPaths:
    """Least-squares coefficients window by window.

    Attributes
    ----------
    coefficients : array, shape (m, p)
        In rewards per unit of each feature.
    covariances : array, shape (m, p, p)
        Their sampling covariances.
    partial : PartialWindows, optional
        If some windows cannot estimate every direction: what they know. In such directions the two above hold
        what the other windows expect, which is not evidence.
    """

    coefficients: Array
    covariances: Array
    partial: PartialWindows | None = None

    def along(self, directions: Array) -> CoefficientPaths:
        """The paths of the coordinates along `directions` (p, d)."""
        straight = CoefficientPaths(
            self.coefficients @ directions, directions.T @ self.covariances @ directions
        )
        if self.partial is None:
            return straight
        return replace(
            straight, partial=self.partial.along(directions, self._partial_estimate)
        ).complete()

    @cached_property
    def _partial_estimate(self) -> PartialEstimate:
        """What each partial window estimates of the coefficients, and what it does not."""
        assert self.partial is not None
        roots = self.partial.roots
        factor = np.linalg.cholesky(self.precisions().sum(axis=0))
        whitened = np.linalg.solve(factor, roots)
        values, vectors = np.linalg.eigh(whitened @ whitened.swapaxes(1, 2))
        informed = values > INFORMS
        across = np.linalg.solve(factor.T, vectors)
        own = (
            across * (informed / np.where(informed, values, 1.0))[:, None, :]
        ) @ across.swapaxes(1, 2)
        unknown = (across * ~informed[:, None, :]) @ (vectors.swapaxes(1, 2) @ factor.T)
        estimate = (own @ (roots @ self.partial.seen[:, :, None]))[:, :, 0]
        return PartialEstimate(estimate, own, unknown)

    def complete(self) -> CoefficientPaths:
        """The same, with what is expected where windows do not inform."""
        if self.partial is None:
            return self
        known = self._partial_estimate
        at = self.partial.windows
        spread = self.partial.spread
        coefficients, covariances = self.coefficients.copy(), self.covariances.copy()
        coefficients[at] = known.estimates + known.unknown @ self.partial.mean
        covariances[at] = (
            known.covariances + known.unknown @ spread @ known.unknown.swapaxes(1, 2)
        )
        return replace(self, coefficients=coefficients, covariances=covariances)

    def precisions(self) -> Array:
        """What each window knows of the coefficients, (m, p, p); singular if it is partial."""
        if self.partial is None:
            return np.linalg.inv(self.covariances)
        result = np.empty_like(self.covariances)
        informed = np.ones(len(result), dtype=bool)
        informed[self.partial.windows] = False
        result[informed] = np.linalg.inv(self.covariances[informed])
        result[self.partial.windows] = self.partial.roots @ self.partial.roots.swapaxes(
            1, 2
        )
        return result

    def weighted_mean(self) -> tuple[Array, Array]:
        """Precision-weighted mean of the coefficients (p,) and its covariance (p, p).

        For the coordinates along W this is the within-window estimator: least squares in every window with
        the other coordinates partialled out, pooled over the windows.
        """
        precisions = self.precisions()
        covariance = np.linalg.inv(precisions.sum(axis=0))
        covariance = 0.5 * (covariance + covariance.T)
        return covariance @ np.einsum(
            "mij,mj->i", precisions, self.coefficients
        ), covariance

    def marginals(self) -> tuple[Array, Array]:
        """Every coordinate by itself: coefficients (m, p), and sampling variances (m, p), infinite where
        unknown.
        """
        coefficients = self.coefficients
        variances = np.einsum("mii->mi", self.covariances)
        if self.partial is None:
            return coefficients, variances
        coefficients = coefficients.copy()
        known = 1.0 / variances
        mean = self.partial.mean
        estimates, errors, unknown = self._partial_estimate
        others = unknown * (1.0 - np.eye(len(mean)))
        own = 1.0 - np.einsum("kii->ki", unknown)
        error = np.einsum(
            "kii->ki", errors + others @ self.partial.spread @ others.swapaxes(1, 2)
        )
        informed = (np.abs(own) > INFORMS) & (error > 0.0)
        value = (estimates + others @ mean) / np.where(informed, own, 1.0)
        coefficients[self.partial.windows] = np.where(informed, value, mean)
        known[self.partial.windows] = np.where(
            informed, own**2 / np.where(informed, error, 1.0), 0.0
        )
        informed = known > INFORMS * known.sum(axis=0)
        return coefficients, np.where(
            informed, 1.0 / np.where(informed, known, 1.0), np.inf
        )


def detectable_drift(known: Array, level: float, idle: int = 0) -> float:
    """Standard deviation between windows that a test of this level detects in about four of five logs.

    With drift ω the squared contrasts of the windows are 1 + ω·known times χ². The test is taken for one of
    their weighted sum, which has (Σknown)²/Σknown² degrees of freedom (Satterthwaite 1946).

    Parameters
    ----------
    known : array, shape (m - 1,)
        Information about the effect along contrasts of the windows.
    level : float
        Of the test.
    idle : int
        Further contrasts that the test adds up, and that have no drift.
    """
    total, square = float(known.sum()), float((known**2).sum())
    if not square > 0.0:
        return LARGEST_DRIFT
    half = 0.5 * total**2 / square
    from scipy import special  # moments and splits do without it

    limit = 2.0 * float(special.gammainccinv(half + 0.5 * idle, level)) - idle
    ratio = limit / (2.0 * float(special.gammaincinv(half, 1.0 - POWER)))
    return float(np.sqrt(max(ratio - 1.0, 0.0) * total / square))


class RandomEffects(NamedTuple):
    """Mean μ (p,) of the windows' coefficients, its covariance (p, p), and the drift variances ω (p,)."""

    mean: Array
    covariance: Array
    drift: Array


def random_effects(paths: CoefficientPaths, iterations: int) -> RandomEffects:
    """Fit γ_i ~ N(μ, diag(ω)) and ĝ_i ~ N(γ_i, H_i) by expectation–maximisation.

    Windows that do not inform some direction enter with what they know, (Ω + H_i)⁻¹ = L(I + LᵀΩL)⁻¹Lᵀ. A step
    of ω counts the windows that inform its direction.
    """
    from invariant_bandits.decomposition import kernels

    g = np.ascontiguousarray(paths.coefficients)
    H = np.ascontiguousarray(paths.covariances)
    m, p = g.shape
    regular = np.ones(m, dtype=np.bool_)
    roots, informing = np.zeros((0, p, 1)), np.full(p, float(m))
    if paths.partial is not None:
        regular[paths.partial.windows] = False
        roots = np.ascontiguousarray(paths.partial.roots)
        known = np.concatenate(
            [1.0 / np.einsum("mii->mi", H[regular]), (roots**2).sum(axis=2)]
        )
        informing = (known > INFORMS * known.sum(axis=0)).sum(axis=0).astype(np.float64)
    drift = np.maximum(((g - g.mean(axis=0)) ** 2).mean(axis=0), LEAST_DRIFT)
    mean, covariance = kernels.random_effects(
        g, H, regular, roots, informing, drift, iterations
    )
    return RandomEffects(mean, covariance, drift)


class WindowEstimates(NamedTuple):
    """Coefficients of every window, its noise variance (m,), and the mean noise variance over all rows."""

    paths: CoefficientPaths
    noise: Array
    noise_variance: float


def window_paths(
    moments: WindowedMoments,
    directions: Array | None = None,
    *,
    singular: dict[int, Array] | None = None,
    common_noise: bool = False,
    missing: Sequence[MissingColumn] = (),
) -> WindowEstimates:
    """Estimate the coefficients in every window (period of the log) by least squares with an intercept.

    The function returns the coefficients with their covariances, the noise variance of each window (m,), and
    the mean noise variance over all rounds. The covariances are multiplied by ν/(ν − 2), with ν residual
    degrees of freedom in the window, so that Wald tests keep their significance level. Windows with ν ≤ 8
    degrees of freedom use the noise variance pooled over all windows.

    Parameters
    ----------
    moments : WindowedMoments
        Means and covariances of features and rewards in each window (period); the summed covariance must be
        nonsingular.
    directions : array, shape (p, d), optional
        Directions along which coefficients drift independently, by default the features. The parameter
        `directions` matters only for windows that cannot estimate every coefficient.
    singular : mapping of int to array, optional
        Square root (p, r) of each singular scatter matrix of the features, of rank r, by index of the window
        (period), if it is already computed.
    common_noise : bool
        Whether all windows use one pooled noise variance, which makes the result less sensitive to outliers.
    missing : sequence of MissingColumn
        Features that indicate missing values, whose coefficients get larger variances.
    """
    roots = (
        singular_roots(moments.chosen, moments.dim) if singular is None else singular
    )
    # in the order of axes that a file has: products of matrices depend on it in their last bit
    freedom = moments.counts - moments.dim - 1
    inverses = np.zeros_like(moments.gram, order="C")
    regular = [window for window in range(moments.windows) if window not in roots]
    inverses[regular] = np.linalg.inv(moments.gram[regular])
    for window, root in roots.items():
        freedom[window] = max(float(moments.counts[window]) - root.shape[1] - 1.0, 0.0)
        length = np.sqrt((root**2).sum(axis=1))
        length = np.where(length > 0.0, length, 1.0)
        back = np.linalg.pinv(root / length[:, None]) / length
        inverses[window] = back.T @ back
    cross = moments.cross[:, :, None]
    coefficients = (
        inverses @ cross if roots else np.linalg.solve(moments.gram, cross)
    )[:, :, 0]
    unexplained = moments.reward_square - np.einsum(
        "mi,mi->m", coefficients, moments.cross
    )
    level = float(moments.counts @ moments.reward_mean**2)
    square = float(moments.reward_square.sum())
    floor = float(EXACT * square + ROUNDING * level) / moments.rounds
    if (
        square <= ROUNDING * level
    ):  # rewards that do not vary have no scale but their own
        floor = max(floor, EXACT * (level / moments.rounds if level > 0.0 else 1.0))
    few = (freedom <= 8) | common_noise
    pooled = max(float(unexplained.sum() / freedom.sum()), floor)
    noise = np.where(
        few, pooled, np.maximum(unexplained / np.maximum(freedom, 1.0), floor)
    )
    widened = noise * np.where(few, 1.0, freedom / np.maximum(freedom - 2.0, 1.0))
    covariances = widened[:, None, None] * inverses
    covariances = 0.5 * (covariances + covariances.swapaxes(1, 2))
    if missing:
        weight = moments.counts / moments.rounds
        spread = np.einsum("m,mi,mj->ij", weight, coefficients, coefficients)
        of_features = moments.gram.sum(axis=0) / moments.rounds
        root = np.ones(moments.dim)
        for column in missing:
            own = spread[np.ix_(column.values, column.values)]
            root[column.indicator] = np.sqrt(column.inflation(own, of_features, pooled))
        covariances = covariances * np.outer(root, root)
        roots = {window: known / root[:, None] for window, known in roots.items()}
    paths = CoefficientPaths(coefficients, covariances)
    if roots:
        partial = _partial_windows(roots, coefficients, widened)
        paths = _expect(replace(paths, partial=partial), partial, directions)
    return WindowEstimates(paths, noise, float(freedom @ noise / freedom.sum()))


def _partial_windows(
    singular: dict[int, Array], coefficients: Array, noise: Array
) -> PartialWindows:
    """What the partial windows saw; nothing is expected of them yet."""
    p = coefficients.shape[1]
    windows = np.array(sorted(singular), dtype=np.int64)
    roots = np.zeros(
        (len(windows), p, max(1, *(root.shape[1] for root in singular.values())))
    )
    for place, window in enumerate(windows.tolist()):
        root = singular[window]
        roots[place, :, : root.shape[1]] = root / np.sqrt(noise[window])
    seen = np.einsum("kir,ki->kr", roots, coefficients[windows])
    return PartialWindows(windows, roots, seen, np.zeros(p), np.zeros((p, p)))


def _expect(
    paths: CoefficientPaths, partial: PartialWindows, directions: Array | None
) -> CoefficientPaths:
    """Paths whose partial windows are completed by random effects along the directions (p, p)."""
    directions = np.eye(len(partial.mean)) if directions is None else directions
    pooled, _ = paths.weighted_mean()
    paths = replace(paths, partial=partial._replace(mean=pooled)).complete()
    mean, error, drift = random_effects(paths.along(directions), ITERATIONS)
    back = np.linalg.inv(directions).T
    spread = back @ (np.diag(drift) + error) @ back.T
    return replace(
        paths, partial=partial._replace(mean=back @ mean, spread=spread)
    ).complete()


class NoLogsError(InputError):
    """Nothing was logged, and without logs there is nothing to estimate."""


def check_logged(moments: WindowedMoments) -> None:
    """Raise NoLogsError if the moments hold no rounds."""
    if not moments.rounds:
        raise NoLogsError(
            "moments hold no rounds: nothing was logged (an episode has its logs as `logs`)"
        )


def check_estimable(
    moments: WindowedMoments,
    names: Sequence[str],
    *,
    use_offered: bool,
    every: bool = False,
) -> None:
    """Raise unless the windows together can carry a least-squares fit with an intercept; say what cannot, and
    why.

    Parameters
    ----------
    use_offered : bool
        The offered actions must vary in every direction as well.
    every : bool
        Each window must carry a fit of its own.
    """
    p, m = moments.dim, moments.windows
    check_logged(moments)
    if m < 2:
        raise InputError(f"moments must have at least 2 windows to compare, got {m}")
    short = np.flatnonzero(moments.counts < p + 2)
    if len(short) > (0 if every else m - 2):
        who = "each window needs" if every else "at least 2 windows need"
        raise InputError(
            f"{who} at least p + 2 = {p + 2} rounds, but window {short[0]} has"
            f" {int(moments.counts[short[0]])} ({len(short)} of {m} windows are too short): use fewer windows"
        )
    for what, sums in {
        "features": moments.chosen,
        "offered features": moments.offered,
    }.items():
        if sums is not None and (use_offered or sums is moments.chosen):
            grams = sums.scatter[:, :p, :p]
            squares = sums.count[:, None] * sums.mean[:, :p] ** 2
            _check_regular(grams.sum(axis=0), squares.sum(axis=0), names, what, "")
            for window in range(m if every else 0):
                _check_regular(
                    grams[window],
                    squares[window],
                    names,
                    what,
                    f" within window {window}",
                )


def _check_regular(
    gram: Array, mean_square: Array, names: Sequence[str], what: str, where: str
) -> None:
    variance = np.diagonal(gram)
    constant = variance <= CONSTANT * (mean_square + variance)
    if constant.any():
        raise InputError(
            f"{what} are constant{where}: {', '.join(compress(names, constant))}; leave them out"
        )
    root = np.sqrt(variance)
    values, vectors = np.linalg.eigh(gram / np.outer(root, root))
    null = vectors[:, values <= RELATIVE_NULL * len(root) * values[-1]]
    if null.shape[1]:
        involved = ", ".join(compress(names, np.abs(null).max(axis=1) > 1e-4))
        relations = (
            f"{null.shape[1]} exact linear relation{'s' if null.shape[1] > 1 else ''}"
        )
        raise InputError(
            f"{what} are collinear{where}: {involved} satisfy {relations}; leave out as many of them"
        )

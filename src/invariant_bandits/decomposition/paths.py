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

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.random_effects import INFORMS, random_effects
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

RELATIVE_NULL = 100.0 * float(np.finfo(np.float64).eps)
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
    constant = variances <= CONSTANT * (squares + variances)
    alive = ~constant
    size = np.sqrt(np.where(alive, variances, 1.0))
    correlations = np.where(
        alive[:, :, None] & alive[:, None, :], grams / (size[:, :, None] * size[:, None, :]), 0.0
    )
    values, vectors = np.linalg.eigh(correlations)
    seen = values > RELATIVE_NULL * p * values[:, -1:]
    size = np.where(alive, size, 0.0)
    return {
        int(window): size[window][:, None]
        * vectors[window][:, seen[window]]
        * np.sqrt(values[window][seen[window]])
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


@dataclass(frozen=True, eq=False)
class PartialWindows:
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

    @property
    def precisions(self) -> Array:
        """LLᵀ (k, p, p)."""
        return np.asarray(self.roots @ self.roots.swapaxes(1, 2))

    def estimate(self, total: Array) -> PartialEstimate:
        """What each estimates of the coefficients, and what it does not; total (p, p): the precision of all
        windows.
        """
        factor = np.linalg.cholesky(total)
        whitened = np.linalg.solve(factor, self.roots)
        values, vectors = np.linalg.eigh(whitened @ whitened.swapaxes(1, 2))
        informed = values > INFORMS
        across = np.linalg.solve(factor.T, vectors)
        own = (across * (informed / np.where(informed, values, 1.0))[:, None, :]) @ across.swapaxes(1, 2)
        unknown = (across * ~informed[:, None, :]) @ (vectors.swapaxes(1, 2) @ factor.T)
        estimate = (own @ (self.roots @ self.seen[:, :, None]))[:, :, 0]
        return PartialEstimate(estimate, own, unknown)

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
        most = np.einsum("ia,kij,ja->ka", directions, known.covariances + self.spread, directions)
        size = np.sqrt(np.where(variance > RELATIVE_NULL * most, variance, np.inf))
        values, vectors = np.linalg.eigh(error / (size[:, :, None] * size[:, None, :]))
        known_part = values > RELATIVE_NULL * len(back) * values[:, -1:]
        inverse = (
            vectors / size[:, :, None] * (known_part / np.sqrt(np.where(known_part, values, 1.0)))[:, None, :]
        )
        return PartialWindows(
            self.windows,
            (np.eye(directions.shape[1]) - mixed @ back).swapaxes(1, 2) @ inverse,
            np.einsum("kij,ki->kj", inverse, value),
            directions.T @ self.mean,
            directions.T @ self.spread @ directions,
        )

    def complete(self, known: PartialEstimate) -> tuple[Array, Array]:
        """Coefficients (k, p) and covariances (k, p, p) of the partial windows, completed by what is
        expected.
        """
        coefficients = known.estimates + known.unknown @ self.mean
        return coefficients, known.covariances + known.unknown @ self.spread @ known.unknown.swapaxes(1, 2)

    def marginals(self, known: PartialEstimate) -> tuple[Array, Array]:
        """Every coordinate by itself, as `along` has it: values and precisions (k, p)."""
        others = known.unknown * (1.0 - np.eye(len(self.mean)))
        own = 1.0 - np.einsum("kii->ki", known.unknown)
        error = np.einsum("kii->ki", known.covariances + others @ self.spread @ others.swapaxes(1, 2))
        informed = (np.abs(own) > INFORMS) & (error > 0.0)
        value = (known.estimates + others @ self.mean) / np.where(informed, own, 1.0)
        return np.where(informed, value, self.mean), np.where(
            informed, own**2 / np.where(informed, error, 1.0), 0.0
        )


@dataclass(frozen=True, eq=False)
class PartialEstimate:
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
        what the other windows expect, which is no evidence.
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
        return replace(straight, partial=self.partial.along(directions, self._partial_estimate)).complete()

    @cached_property
    def _partial_estimate(self) -> PartialEstimate:
        assert self.partial is not None
        return self.partial.estimate(self.precisions().sum(axis=0))

    def complete(self) -> CoefficientPaths:
        """The same, with what is expected where windows do not inform."""
        if self.partial is None:
            return self
        coefficients, covariances = self.coefficients.copy(), self.covariances.copy()
        windows = self.partial.windows
        coefficients[windows], covariances[windows] = self.partial.complete(self._partial_estimate)
        return replace(self, coefficients=coefficients, covariances=covariances)

    def precisions(self) -> Array:
        """What each window knows of the coefficients, (m, p, p); singular if it is partial."""
        if self.partial is None:
            return np.linalg.inv(self.covariances)
        result = np.empty_like(self.covariances)
        informed = np.ones(len(result), dtype=bool)
        informed[self.partial.windows] = False
        result[informed] = np.linalg.inv(self.covariances[informed])
        result[self.partial.windows] = self.partial.precisions
        return result

    def weighted_mean(self) -> tuple[Array, Array]:
        """Precision-weighted mean of the coefficients (p,) and its covariance (p, p).

        For the coordinates along W this is the within-window estimator: least squares in every window with
        the other coordinates partialled out, pooled over the windows.
        """
        precisions = self.precisions()
        covariance = np.linalg.inv(precisions.sum(axis=0))
        covariance = 0.5 * (covariance + covariance.T)
        return covariance @ np.einsum("mij,mj->i", precisions, self.coefficients), covariance

    def marginals(self) -> tuple[Array, Array]:
        """Every coordinate by itself: coefficients (m, p), and sampling variances (m, p), infinite where
        unknown.
        """
        coefficients, variances = self.coefficients, np.einsum("mii->mi", self.covariances)
        if self.partial is None:
            return coefficients, variances
        coefficients, known = coefficients.copy(), 1.0 / variances
        windows = self.partial.windows
        coefficients[windows], known[windows] = self.partial.marginals(self._partial_estimate)
        informed = known > INFORMS * known.sum(axis=0)
        return coefficients, np.where(informed, 1.0 / np.where(informed, known, 1.0), np.inf)


def window_paths(
    moments: WindowedMoments, directions: Array | None = None, *, singular: dict[int, Array] | None = None
) -> tuple[CoefficientPaths, Array]:
    """Least squares with an intercept in every window: g_i, H_i = s_i²·Gc_i⁻¹, and the noise variances s_i²
    (m,).

    H_i is widened by ν/(ν − 2), ν = n_i − rank − 1, the mean of the ratio of a true to an estimated variance,
    so that Wald statistics keep their level in small windows; where ν ≤ 8 the variance pooled over all
    windows is used.

    Parameters
    ----------
    moments : WindowedMoments
        Regular over all windows together.
    directions : array, shape (p, d), optional
        Along which coefficients drift independently, for what is expected of partial windows; the features if
        not given.
    singular : mapping of int to array, optional
        The `singular_roots` of the chosen actions, where they are known.
    """
    roots = singular_roots(moments.chosen, moments.dim) if singular is None else singular
    freedom = window_freedom(moments, roots)
    inverses = _inverses(moments.gram, roots)
    coefficients = _least_squares(moments, inverses, roots)
    unexplained = moments.reward_square - np.einsum("mi,mi->m", coefficients, moments.cross)
    level = float(moments.counts @ moments.reward_mean**2)
    floor = float(EXACT * moments.reward_square.sum() + ROUNDING * level) / moments.rounds
    if (
        float(moments.reward_square.sum()) <= ROUNDING * level
    ):  # rewards that do not vary have no scale but their own
        floor = max(floor, EXACT * (level / moments.rounds if level > 0.0 else 1.0))
    pooled = max(float(unexplained.sum() / freedom.sum()), floor)
    few = freedom <= 8
    noise = np.where(few, pooled, np.maximum(unexplained / np.maximum(freedom, 1.0), floor))
    widened = noise * np.where(few, 1.0, freedom / np.maximum(freedom - 2.0, 1.0))
    covariances = widened[:, None, None] * inverses
    covariances = 0.5 * (covariances + covariances.swapaxes(1, 2))
    paths = CoefficientPaths(coefficients, covariances)
    if not roots:
        return paths, noise
    return _expect(replace(paths, partial=_partial_windows(roots, coefficients, widened)), directions), noise


def window_freedom(moments: WindowedMoments, singular: dict[int, Array]) -> Array:
    """Degrees of freedom (m,) that least squares with an intercept leaves to the noise of each window."""
    freedom = moments.counts - moments.dim - 1
    for window, root in singular.items():
        freedom[window] = max(float(moments.counts[window]) - root.shape[1] - 1.0, 0.0)
    return freedom


def _inverses(grams: Array, singular: dict[int, Array]) -> Array:
    """Inverses of the centred Σφφᵀ (m, p, p), generalised ones of those that are singular."""
    if not singular:
        return np.linalg.inv(grams)
    result = np.zeros_like(grams)
    regular = [window for window in range(len(grams)) if window not in singular]
    result[regular] = np.linalg.inv(grams[regular])
    for window, root in singular.items():
        back = np.linalg.pinv(root / (size := _lengths(root))[:, None]) / size
        result[window] = back.T @ back
    return result


def _least_squares(moments: WindowedMoments, inverses: Array, singular: dict[int, Array]) -> Array:
    """Least-squares coefficients (m, p), one of many where a window is singular."""
    if not singular:
        return np.linalg.solve(moments.gram, moments.cross[:, :, None])[:, :, 0]
    return np.asarray((inverses @ moments.cross[:, :, None])[:, :, 0])


def _lengths(root: Array) -> Array:
    """Lengths of the rows (p,), 1 for those that vanish."""
    length = np.sqrt((root**2).sum(axis=1))
    return np.where(length > 0.0, length, 1.0)


def _partial_windows(singular: dict[int, Array], coefficients: Array, noise: Array) -> PartialWindows:
    """What the partial windows saw; nothing is expected of them yet."""
    p = coefficients.shape[1]
    windows = np.array(sorted(singular), dtype=np.int64)
    roots = np.zeros((len(windows), p, max(max(root.shape[1] for root in singular.values()), 1)))
    for place, window in enumerate(windows):
        root = singular[int(window)]
        roots[place, :, : root.shape[1]] = root / np.sqrt(noise[window])
    seen = np.einsum("kir,ki->kr", roots, coefficients[windows])
    return PartialWindows(windows, roots, seen, np.zeros(p), np.zeros((p, p)))


def _expect(paths: CoefficientPaths, directions: Array | None) -> CoefficientPaths:
    """Paths whose partial windows are completed by random effects along the directions (p, p)."""
    partial = paths.partial
    assert partial is not None
    p = len(partial.mean)
    directions = np.eye(p) if directions is None else directions
    pooled, _ = paths.weighted_mean()
    paths = replace(paths, partial=replace(partial, mean=pooled)).complete()
    turned = paths.along(directions)
    mean, error, drift = random_effects(turned.coefficients, turned.covariances, ITERATIONS, turned.partial)
    back = np.linalg.inv(directions).T
    spread = back @ (np.diag(drift) + error) @ back.T
    return replace(paths, partial=replace(partial, mean=back @ mean, spread=spread)).complete()


def check_estimable(
    moments: WindowedMoments, names: Sequence[str], *, use_offered: bool, every: bool = False
) -> None:
    """Raise unless the windows together can carry a least-squares fit with an intercept; say what cannot, and
    why.

    Parameters
    ----------
    use_offered : bool
        The offered actions must vary in every direction, too.
    every : bool
        Each window must carry a fit of its own.
    """
    p, m = moments.dim, moments.windows
    if m < 2:
        raise InputError(f"moments must have at least 2 windows to compare, got {m}")
    short = np.flatnonzero(moments.counts < p + 2)
    if len(short) > (0 if every else m - 2):
        who = "each window needs" if every else "at least 2 windows need"
        raise InputError(
            f"{who} at least p + 2 = {p + 2} rounds, but window {short[0]} has"
            f" {int(moments.counts[short[0]])} ({len(short)} of {m} windows are too short): use fewer windows"
        )
    _check_all_regular("features", moments.chosen, names, every)
    if use_offered and moments.offered is not None:
        _check_all_regular("offered features", moments.offered, names, every)


def _check_all_regular(what: str, sums: PowerSums, names: Sequence[str], every: bool) -> None:
    p = len(names)
    grams = sums.scatter[:, :p, :p]
    scales = sums.count[:, None] * sums.mean[:, :p] ** 2
    _check_regular(grams.sum(axis=0), scales.sum(axis=0), names, what, "")
    if every:
        for window, (gram, scale) in enumerate(zip(grams, scales, strict=True)):
            _check_regular(gram, scale, names, what, f" within window {window}")


def _check_regular(gram: Array, mean_square: Array, names: Sequence[str], what: str, where: str) -> None:
    variance = np.diagonal(gram)
    constant = np.flatnonzero(variance <= CONSTANT * (mean_square + variance))
    if len(constant):
        raise InputError(f"{what} are constant{where}: {_listed(names, constant)}; leave them out")
    root = np.sqrt(variance)
    values, vectors = np.linalg.eigh(gram / np.outer(root, root))
    limit = RELATIVE_NULL * len(root) * values[-1]
    if values[0] > limit:
        return
    null = vectors[:, values <= limit]
    involved = np.flatnonzero(np.abs(null).max(axis=1) > 1e-4)
    raise InputError(
        f"{what} are collinear{where}: {_listed(names, involved)} satisfy"
        f" {null.shape[1]} exact linear relation{'s' if null.shape[1] > 1 else ''}; leave out as many of them"
    )


def _listed(names: Sequence[str], indices: Array) -> str:
    return ", ".join(names[int(index)] for index in indices)

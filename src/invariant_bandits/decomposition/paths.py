"""Least-squares coefficients window by window: what they are, how sure they are, and their precision-weighted mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.decomposition.random_effects import random_effects
from invariant_bandits.decomposition.rank_deficiency import (
    CONSTANT,
    INFORMS,
    RELATIVE_NULL,
    Silence,
    Told,
    singular_roots,
)
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

EXACT = 1e-12
"""Share of the rewards' variance below which noise cannot be told from rounding."""
ROUNDING = 1e-30  # share of a square that rounding can leave behind, (4.5 eps)²
ITERATIONS = 100  # of expectation–maximisation, for what silent windows are expected to say


@dataclass(frozen=True)
class CoefficientPaths:
    """Least-squares coefficients window by window.

    Attributes
    ----------
    coefficients : array, shape (m, p)
        In rewards per unit of each feature.
    covariances : array, shape (m, p, p)
        Their sampling covariances.
    silence : Silence, optional
        If some windows cannot estimate every direction: what they know. In such directions the two above hold what the
        other windows expect, which is no evidence.
    """

    coefficients: Array
    covariances: Array
    silence: Silence | None = None

    def along(self, directions: Array) -> CoefficientPaths:
        """The paths of the coordinates along `directions` (p, d)."""
        straight = CoefficientPaths(self.coefficients @ directions, directions.T @ self.covariances @ directions)
        if self.silence is None:
            return straight
        return replace(straight, silence=self.silence.along(directions, self._told)).completed()

    @cached_property
    def _told(self) -> Told:
        assert self.silence is not None
        return self.silence.told(self.precisions().sum(axis=0))

    def completed(self) -> CoefficientPaths:
        """The same, with what is expected where windows are silent."""
        if self.silence is None:
            return self
        coefficients, covariances = self.coefficients.copy(), self.covariances.copy()
        windows = self.silence.windows
        coefficients[windows], covariances[windows] = self.silence.completed(self._told)
        return replace(self, coefficients=coefficients, covariances=covariances)

    def precisions(self) -> Array:
        """What each window knows of the coefficients, (m, p, p); singular where it is silent."""
        if self.silence is None:
            return np.linalg.inv(self.covariances)
        result = np.empty_like(self.covariances)
        heard = np.ones(len(result), dtype=bool)
        heard[self.silence.windows] = False
        result[heard] = np.linalg.inv(self.covariances[heard])
        result[self.silence.windows] = self.silence.precisions
        return result

    def weighted_mean(self) -> tuple[Array, Array]:
        """Precision-weighted mean of the coefficients (p,) and its covariance (p, p).

        For the coordinates along W this is the within-window estimator: least squares in every window with the
        other coordinates partialled out, pooled over the windows.
        """
        precisions = self.precisions()
        covariance = np.linalg.inv(precisions.sum(axis=0))
        covariance = 0.5 * (covariance + covariance.T)
        return covariance @ np.einsum("mij,mj->i", precisions, self.coefficients), covariance

    def singly(self) -> tuple[Array, Array]:
        """Every coordinate by itself: coefficients (m, p), and sampling variances (m, p), infinite where silent."""
        coefficients, variances = self.coefficients, np.einsum("mii->mi", self.covariances)
        if self.silence is None:
            return coefficients, variances
        coefficients, known = coefficients.copy(), 1.0 / variances
        windows = self.silence.windows
        coefficients[windows], known[windows] = self.silence.singly(self._told)
        informed = known > INFORMS * known.sum(axis=0)
        return coefficients, np.where(informed, 1.0 / np.where(informed, known, 1.0), np.inf)


def window_paths(
    moments: WindowedMoments, directions: Array | None = None, *, singular: dict[int, Array] | None = None
) -> tuple[CoefficientPaths, Array]:
    """Least squares with an intercept in every window: g_i, H_i = s_i²·Gc_i⁻¹, and the noise variances s_i² (m,).

    H_i is widened by ν/(ν − 2), ν = n_i − rank − 1, the mean of the ratio of a true to an estimated variance, so that
    Wald statistics keep their level in small windows; where ν ≤ 8 the variance pooled over all windows is used.

    Parameters
    ----------
    moments : WindowedMoments
        Regular over all windows together.
    directions : array, shape (p, d), optional
        Along which coefficients drift independently, for what silent windows are expected to say; the features if not
        given.
    singular : mapping of int to array, optional
        The `singular_roots` of the chosen actions, where they are known.
    """
    roots = singular_roots(moments.chosen, moments.dim) if singular is None else singular
    freedom = window_freedom(moments, roots)
    inverses = _inverses(moments.gram, roots)
    coefficients = _solved(moments, inverses, roots)
    unexplained = moments.reward_square - np.einsum("mi,mi->m", coefficients, moments.cross)
    level = float(moments.counts @ moments.reward_mean**2)
    floor = float(EXACT * moments.reward_square.sum() + ROUNDING * level) / moments.rounds
    if float(moments.reward_square.sum()) <= ROUNDING * level:  # rewards that do not vary have no scale but their own
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
    return _expecting(replace(paths, silence=_silence(roots, coefficients, widened)), directions), noise


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


def _solved(moments: WindowedMoments, inverses: Array, singular: dict[int, Array]) -> Array:
    """Least-squares coefficients (m, p), one of many where a window is singular."""
    if not singular:
        return np.linalg.solve(moments.gram, moments.cross[:, :, None])[:, :, 0]
    return np.asarray((inverses @ moments.cross[:, :, None])[:, :, 0])


def _lengths(root: Array) -> Array:
    """Lengths of the rows (p,), 1 for those that vanish."""
    length = np.sqrt((root**2).sum(axis=1))
    return np.where(length > 0.0, length, 1.0)


def _silence(singular: dict[int, Array], coefficients: Array, noise: Array) -> Silence:
    """What the silent windows saw; nothing is expected of them yet."""
    p = coefficients.shape[1]
    windows = np.array(sorted(singular), dtype=np.int64)
    roots = np.zeros((len(windows), p, max(max(root.shape[1] for root in singular.values()), 1)))
    for place, window in enumerate(windows):
        root = singular[int(window)]
        roots[place, :, : root.shape[1]] = root / np.sqrt(noise[window])
    seen = np.einsum("kir,ki->kr", roots, coefficients[windows])
    return Silence(windows, roots, seen, np.zeros(p), np.zeros((p, p)))


def _expecting(paths: CoefficientPaths, directions: Array | None) -> CoefficientPaths:
    """Paths whose silent windows are expected to say what random effects along the directions (p, p) say."""
    silence = paths.silence
    assert silence is not None
    p = len(silence.mean)
    directions = np.eye(p) if directions is None else directions
    pooled, _ = paths.weighted_mean()
    paths = replace(paths, silence=silence.expecting(pooled, silence.spread)).completed()
    turned = paths.along(directions)
    mean, error, drift = random_effects(turned.coefficients, turned.covariances, ITERATIONS, turned.silence)
    back = np.linalg.inv(directions).T
    spread = back @ (np.diag(drift) + error) @ back.T
    return replace(paths, silence=silence.expecting(back @ mean, spread)).completed()


def check_estimable(moments: WindowedMoments, names: Sequence[str], *, use_offered: bool, every: bool = False) -> None:
    """Raise unless the windows together can carry a least-squares fit with an intercept; say what cannot, and why.

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

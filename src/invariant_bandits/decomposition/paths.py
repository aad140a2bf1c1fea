"""Least-squares coefficients window by window: what they are, how sure they are, and their precision-weighted mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

RELATIVE_NULL = 100.0 * float(np.finfo(np.float64).eps)
ROUNDING = 1e-30  # share of a square that rounding can leave behind, (4.5 eps)²


@dataclass(frozen=True)
class CoefficientPaths:
    """Least-squares coefficients window by window.

    Attributes
    ----------
    coefficients : array, shape (m, p)
        In rewards per unit of each feature.
    covariances : array, shape (m, p, p)
        Their sampling covariances.
    """

    coefficients: Array
    covariances: Array

    def along(self, directions: Array) -> CoefficientPaths:
        """The paths of the coordinates along `directions` (p, d)."""
        return CoefficientPaths(self.coefficients @ directions, directions.T @ self.covariances @ directions)

    def weighted_mean(self) -> tuple[Array, Array]:
        """Precision-weighted mean of the coefficients (p,) and its covariance (p, p).

        For the coordinates along W this is the within-window estimator: least squares in every window with the
        other coordinates partialled out, pooled over the windows.
        """
        precisions = np.linalg.inv(self.covariances)
        covariance = np.linalg.inv(precisions.sum(axis=0))
        covariance = 0.5 * (covariance + covariance.T)
        return covariance @ np.einsum("mij,mj->i", precisions, self.coefficients), covariance


def window_paths(moments: WindowedMoments) -> tuple[CoefficientPaths, Array]:
    """Least squares with an intercept in every window: g_i, H_i = s_i²·Gc_i⁻¹, and the noise variances s_i² (m,).

    H_i is widened by ν/(ν − 2), ν = n_i − p − 1, the mean of the ratio of a true to an estimated variance, so that
    Wald statistics keep their level in small windows; where ν ≤ 8 the variance pooled over all windows is used.
    """
    freedom = moments.counts - moments.dim - 1
    coefficients = np.linalg.solve(moments.gram, moments.cross[:, :, None])[:, :, 0]
    unexplained = moments.reward_square - np.einsum("mi,mi->m", coefficients, moments.cross)
    level = float(moments.counts @ moments.reward_mean**2)
    floor = float(1e-12 * moments.reward_square.sum() + ROUNDING * level) / moments.rounds
    floor = floor if floor > 0 else 1e-300
    pooled = max(float(unexplained.sum() / freedom.sum()), floor)
    few = freedom <= 8
    noise = np.where(few, pooled, np.maximum(unexplained / freedom, floor))
    widened = noise * np.where(few, 1.0, freedom / np.maximum(freedom - 2.0, 1.0))
    covariances = widened[:, None, None] * np.linalg.inv(moments.gram)
    covariances = 0.5 * (covariances + covariances.swapaxes(1, 2))
    return CoefficientPaths(coefficients, covariances), noise


def check_estimable(moments: WindowedMoments, names: Sequence[str], *, use_offered: bool) -> None:
    """Raise unless every window can carry a least-squares fit with an intercept; say which cannot, and why.

    With `use_offered` the offered actions must vary in every direction, too.
    """
    p, m = moments.dim, moments.windows
    if m < 2:
        raise InputError(f"moments must have at least 2 windows to compare, got {m}")
    short = np.flatnonzero(moments.counts < p + 2)
    if len(short):
        raise InputError(
            f"each window needs at least p + 2 = {p + 2} rounds, but window {short[0]} has"
            f" {int(moments.counts[short[0]])} ({len(short)} of {m} windows are too short): use fewer windows"
        )
    _check_all_regular("features", moments.chosen, names)
    if use_offered and moments.offered is not None:
        _check_all_regular("offered features", moments.offered, names)


def _check_all_regular(what: str, sums: PowerSums, names: Sequence[str]) -> None:
    p = len(names)
    grams = sums.scatter[:, :p, :p]
    scales = sums.count[:, None] * sums.mean[:, :p] ** 2
    _check_regular(grams.sum(axis=0), scales.sum(axis=0), names, what, "")
    for window, (gram, scale) in enumerate(zip(grams, scales, strict=True)):
        _check_regular(gram, scale, names, what, f" within window {window}")


def _check_regular(gram: Array, mean_square: Array, names: Sequence[str], what: str, where: str) -> None:
    variance = np.diagonal(gram)
    constant = np.flatnonzero(variance <= 1e-20 * (mean_square + variance))
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

"""Windows that are silent about some directions: what they do tell, and what the others would expect of the rest.

A window in which a feature is constant, or in which there are few rounds, has a singular Σφφᵀ. What it knows of the
coefficients is a singular information matrix Λ_i = L_iL_iᵀ, and nothing is lost but what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.moments.power_sums import PowerSums

RELATIVE_NULL = 100.0 * float(np.finfo(np.float64).eps)
CONSTANT = 1e-20
"""Variance in units of the mean square below which a feature is constant up to rounding."""
INFORMS = 1e-6
"""Share of what all windows know of a direction below which one of them is silent about it."""


def singular_roots(sums: PowerSums, p: int) -> dict[int, Array]:
    """F (p, r) with Σ(φ − φ̄)(φ − φ̄)ᵀ = FFᵀ for every window in which that is singular, of rank r, by window."""
    grams = sums.scatter[:, :p, :p]
    variances = np.einsum("mii->mi", grams)
    squares = sums.count[:, None] * sums.mean[:, :p] ** 2
    constant = variances <= CONSTANT * (squares + variances)
    alive = ~constant
    size = np.sqrt(np.where(alive, variances, 1.0))
    correlations = np.where(alive[:, :, None] & alive[:, None, :], grams / (size[:, :, None] * size[:, None, :]), 0.0)
    values, vectors = np.linalg.eigh(correlations)
    seen = values > RELATIVE_NULL * p * values[:, -1:]
    size = np.where(alive, size, 0.0)
    return {
        int(window): size[window][:, None] * vectors[window][:, seen[window]] * np.sqrt(values[window][seen[window]])
        for window in np.flatnonzero(~seen.all(axis=1))
    }


def unseen_directions(roots: dict[int, Array], windows: int, p: int) -> Array:
    """Projections (windows, p, p) on the directions in which each window does not vary; zero for the others."""
    result = np.zeros((windows, p, p))
    for window, root in roots.items():
        left, _, _ = np.linalg.svd(root, full_matrices=True)
        null = left[:, root.shape[1] :]
        result[window] = null @ null.T
    return result


@dataclass(frozen=True, eq=False)
class Silence:
    """What the silent ones among the windows saw, and what the others expect of the coefficients in any window.

    Attributes
    ----------
    windows : array of int, shape (k,)
        The windows that are silent about some direction.
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

    def expecting(self, mean: Array, spread: Array) -> Silence:
        """The same with another expectation of the coefficients."""
        return replace(self, mean=mean, spread=spread)

    def told(self, total: Array) -> Told:
        """What each tells of the coefficients, and where it is silent; total (p, p): what all windows know together."""
        factor = np.linalg.cholesky(total)
        whitened = np.linalg.solve(factor, self.roots)
        values, vectors = np.linalg.eigh(whitened @ whitened.swapaxes(1, 2))
        informed = values > INFORMS
        across = np.linalg.solve(factor.T, vectors)
        own = (across * (informed / np.where(informed, values, 1.0))[:, None, :]) @ across.swapaxes(1, 2)
        silent = (across * ~informed[:, None, :]) @ (vectors.swapaxes(1, 2) @ factor.T)
        estimate = (own @ (self.roots @ self.seen[:, :, None]))[:, :, 0]
        return Told(estimate, own, silent)

    def along(self, directions: Array, told: Told) -> Silence:
        """The same of the coordinates c = Wᵀγ, W = `directions` (p, d).

        A window tells γ − Πγ, Π the projection on what it is silent about. With γ = Bc + rest, it tells of c that
        (I − WᵀΠB)c = Wᵀ(γ − Πγ) + WᵀΠ·rest: of the rest what is expected, give or take its spread. Without that it
        would know nothing of any coordinate that is not quite perpendicular to a silent direction.
        """
        back = np.linalg.pinv(directions).T
        rest = np.eye(len(directions)) - back @ directions.T
        mixed = directions.T @ told.silent
        error = directions.T @ told.covariances @ directions
        error = error + mixed @ (rest @ self.spread @ rest.T) @ mixed.swapaxes(1, 2)
        value = told.estimates @ directions + mixed @ (rest @ self.mean)
        variance = np.einsum("kii->ki", error)
        most = np.einsum("ia,kij,ja->ka", directions, told.covariances + self.spread, directions)
        size = np.sqrt(np.where(variance > RELATIVE_NULL * most, variance, np.inf))
        values, vectors = np.linalg.eigh(error / (size[:, :, None] * size[:, None, :]))
        kept = values > RELATIVE_NULL * len(back) * values[:, -1:]
        inverse = vectors / size[:, :, None] * (kept / np.sqrt(np.where(kept, values, 1.0)))[:, None, :]
        return Silence(
            self.windows,
            (np.eye(directions.shape[1]) - mixed @ back).swapaxes(1, 2) @ inverse,
            np.einsum("kij,ki->kj", inverse, value),
            directions.T @ self.mean,
            directions.T @ self.spread @ directions,
        )

    def completed(self, told: Told) -> tuple[Array, Array]:
        """Coefficients (k, p) and covariances (k, p, p) of the silent windows; as expected where they are silent."""
        coefficients = told.estimates + told.silent @ self.mean
        return coefficients, told.covariances + told.silent @ self.spread @ told.silent.swapaxes(1, 2)

    def singly(self, told: Told) -> tuple[Array, Array]:
        """Every coordinate by itself, as `along` has it: values and precisions (k, p)."""
        others = told.silent * (1.0 - np.eye(len(self.mean)))
        own = 1.0 - np.einsum("kii->ki", told.silent)
        error = np.einsum("kii->ki", told.covariances + others @ self.spread @ others.swapaxes(1, 2))
        heard = (np.abs(own) > INFORMS) & (error > 0.0)
        value = (told.estimates + others @ self.mean) / np.where(heard, own, 1.0)
        return np.where(heard, value, self.mean), np.where(heard, own**2 / np.where(heard, error, 1.0), 0.0)


@dataclass(frozen=True, eq=False)
class Told:
    """Least squares in silent windows.

    Attributes
    ----------
    estimates, covariances : arrays, shapes (k, p), (k, p, p)
        Of γ − Πγ, the part of the coefficients that they tell.
    silent : array, shape (k, p, p)
        Π, the projection on what each is silent about, perpendicular in the metric of what all windows know.
    """

    estimates: Array
    covariances: Array
    silent: Array


def in_units_of_all(precisions: Array) -> tuple[Array, Array]:
    """C (d, d) with CCᵀ = ΣP_i, and C⁻¹P_iC⁻ᵀ (m, d, d), which add up to the identity; precisions P are (m, d, d)."""
    factor = np.linalg.cholesky(precisions.sum(axis=0))
    half = np.linalg.solve(factor, precisions)
    whole = np.linalg.solve(factor, half.swapaxes(1, 2))
    return factor, np.asarray(0.5 * (whole + whole.swapaxes(1, 2)))


def informed_directions(precisions: Array) -> int:
    """How many directions the windows inform, summed over the windows: m·d unless some are silent."""
    _, shares = in_units_of_all(precisions)
    return int((np.linalg.eigvalsh(shares) > INFORMS).sum())

"""The estimation recipe that was published with ISD, rebuilt for comparison: it needs rows, and keeps its
weaknesses.

Lazzaretto, Peters & Pfister (2025), "Invariant subspace decomposition": windows that overlap, a joint
diagonaliser by iterated least squares, blocks by a threshold on the largest covariances, invariant blocks by
a threshold on correlations that cross-validation chooses, and pooled least squares. Where the description
leaves a choice, the functions below say which one they take.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.decomposition.joint_diagonalization import (
    Columns,
    connected_columns,
    with_fixed_signs,
)
from invariant_bandits.decomposition.paths import (
    CoefficientPaths,
    check_estimable,
    window_paths,
)
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments

# Choices of ours where the paper's description leaves them open, except where it says them.
WINDOWS = 25
"""Overlapping windows for the coefficients."""
WINDOWS_SIDE_BY_SIDE = 8
"""So many windows would fill the log if they did not overlap."""
BLOCK_THRESHOLDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Linkages above which columns form one block; the cost of each partition chooses."""
FOLDS = 10
"""Of the cross-validation."""
TOLERANCE = 1e-10
"""Change of the cost, relative to it, at which the diagonaliser has converged."""
MOST_STEPS = 1000
"""Steps of the diagonaliser at most."""


def published_decomposition(
    features: Any, rewards: Any, *, names: Sequence[str] | None = None
) -> SimpleNamespace:
    """Estimate stable directions and coefficients by the recipe of Lazzaretto, Peters & Pfister (2025).

    Parameters
    ----------
    features : array, shape (n, p)
        Features of the chosen actions in time order, at least 20(p + 1) rows for cross-validation.
    rewards : array, shape (n,)
        Rewards of the chosen actions.
    names : p strings, optional
        Names of the p features for error messages.

    Returns
    -------
    SimpleNamespace
        The attributes of a fitted InvariantSubspaceDecomposition, without the underscore at the end of their
        names. The additional attribute `moments` has the statistics of each window, and `block_threshold` is
        the limit of covariance above which features form one block. The attribute
        `thresholds` (k,) has the drift limits that cross-validation tried, and `explained_variance`
        (FOLDS, k) has the result for each fold and limit.
    """
    features = finite_array("features", features, ("n", "p"))
    n, p = features.shape
    rewards = finite_array("rewards", rewards, (n,))
    least = 2 * FOLDS * (p + 1)
    if n < least:
        raise InputError(
            f"recipe='published' needs at least 20(p + 1) = {least} rows of features, got {n}"
        )
    moments = overlapping_moments(features, rewards)
    names = [f"x{index}" for index in range(p)] if names is None else names
    check_estimable(moments, names, use_offered=False, every=True)
    paths, noise, noise_variance = window_paths(moments, singular={})
    covariances = moments.gram / moments.counts[:, None, None]
    basis, converged = diagonalizing_basis(covariances)
    columns, block_threshold = threshold_blocks(basis.T @ covariances @ basis)
    directions = [basis[:, block] for block in columns]
    statistics = np.array(
        [variation_statistic(block, moments, paths) for block in directions]
    )
    order = np.argsort(statistics, kind="stable")
    directions, statistics = [directions[index] for index in order], statistics[order]
    thresholds, explained = cross_validate(directions, statistics, features, rewards)
    threshold = chosen_threshold(thresholds, explained)

    varies = statistics >= threshold
    basis = with_fixed_signs(np.hstack(directions))
    blocks = np.split(
        np.arange(p), np.cumsum([block.shape[1] for block in directions])[:-1]
    )
    invariant_dim = sum(
        len(block) for block, moves in zip(blocks, varies, strict=True) if not moves
    )
    split = Split(basis[:, :invariant_dim], basis[:, invariant_dim:])
    component, covariance = pooled_component(split.invariant, features, rewards)
    return SimpleNamespace(
        split=split,
        component=component,
        component_covariance=covariance,
        noise_scale=float(np.sqrt(noise_variance)),
        basis=basis,
        blocks=blocks,
        varies=varies,
        statistics=statistics,
        threshold=threshold,
        block_threshold=block_threshold,
        thresholds=thresholds,
        explained_variance=explained,
        moments=moments,
        paths=paths,
        window_noise=noise,
        converged=converged,
        rounds=n,
        min_eigenvalue=float(np.linalg.eigvalsh(features.T @ features / n)[0]),
    )


def overlapping_moments(features: Array, rewards: Array) -> WindowedMoments:
    """Moments of 25 windows of n/8 rows each, whose starts are spread evenly from the first to the last
    possible.
    """
    n = len(features)
    length = n // WINDOWS_SIDE_BY_SIDE
    starts = np.linspace(0, n - length, WINDOWS).astype(int)
    rows = (starts[:, None] + np.arange(length)).ravel()
    return WindowedMoments.from_arrays(features[rows], rewards[rows], windows=WINDOWS)


def diagonalizing_basis(covariances: Array) -> tuple[Array, bool]:
    """An orthogonal basis (p, p) that nearly diagonalises the covariances (m, p, p), and whether the search
    converged.

    It starts at the eigenvectors of the first window, and all windows weigh the same: see
    `kernels.diagonalize_by_least_squares`.
    """
    from invariant_bandits.decomposition import kernels

    basis = np.ascontiguousarray(np.linalg.eigh(covariances[0])[1])
    stack = np.ascontiguousarray(covariances.transpose(1, 2, 0))
    status = kernels.diagonalize_by_least_squares(stack, basis, TOLERANCE, MOST_STEPS)
    kernels.make_orthogonal(basis)
    return basis, status == kernels.CONVERGED


def threshold_blocks(turned: Array) -> tuple[list[Columns], float]:
    """Blocks of columns and the threshold that gave them, from the covariances (m, p, p) in the diagonalising
    basis.

    Columns are linked where max_i |S_i| exceeds the threshold; "normalised" means that this matrix of maxima
    has Frobenius norm 1. Among the thresholds the first with the smallest cost is taken: the size of what is
    off the blocks plus the mean smallest eigenvalue times Σ|b|²/p². That size is described as the mean
    absolute entry off the blocks, but as such it links nearly everything; here, as in the authors'
    computations, it is the largest column sum of absolute entries off the blocks over the number of such
    entries, and for a single block, which has none, the mean Frobenius norm of the covariances, so that a
    single block is practically never taken.
    """
    p = turned.shape[1]
    largest = np.abs(turned).max(axis=0)
    linkage = largest / np.linalg.norm(largest)
    smallest_eigenvalue = float(np.linalg.eigvalsh(turned)[:, 0].mean())
    best_cost = np.inf
    best_blocks = [np.arange(p)]
    best_threshold = 0.0
    for threshold in BLOCK_THRESHOLDS:
        blocks = connected_columns(linkage > threshold)
        inside = np.zeros((p, p), dtype=bool)
        for block in blocks:
            inside[np.ix_(block, block)] = True
        if len(blocks) == 1:
            size = float(np.linalg.norm(turned, axis=(1, 2)).mean())
        else:
            column_sums = np.where(inside, 0.0, np.abs(turned)).sum(axis=1)
            size = float(column_sums.max(axis=1).mean() / (p * p - inside.sum()))
        cost = size + smallest_eigenvalue * float(inside.sum()) / p**2
        if cost < best_cost:
            best_cost = cost
            best_blocks = blocks
            best_threshold = threshold
    return best_blocks, best_threshold


def variation_statistic(
    directions: Array, moments: WindowedMoments, paths: CoefficientPaths
) -> float:
    """Mean over windows of |corr(r − φᵀμ, φᵀμ)|, μ the mean window coefficients along `directions` (p, d).

    Correlations are centred within the window; one with a constant counts as 0.
    """
    mean = directions @ (directions.T @ paths.coefficients.mean(axis=0))
    explained = np.einsum("i,mij,j->m", mean, moments.gram, mean)
    shared = moments.cross @ mean
    rest = np.maximum(moments.reward_square - 2.0 * shared + explained, 0.0)
    scale = np.sqrt(rest * explained)
    correlation = np.divide(
        shared - explained, scale, out=np.zeros_like(scale), where=scale > 0.0
    )
    return float(np.minimum(np.abs(correlation), 1.0).mean())


def cross_validate(
    directions: list[Array], statistics: Array, features: Array, rewards: Array
) -> tuple[Array, Array]:
    """Thresholds (k,), increasing, and the explained variance (FOLDS, k) of the rewards in each fold under
    each.

    Thresholds are the statistics and 1. A block is invariant if its statistic lies strictly below, so the
    smallest threshold keeps none and 1 keeps all. Folds are consecutive rows. β_inv comes from the rows
    outside the fold, by least squares with an intercept on the invariant coordinates. To it is added an
    adaptation of the residual coordinates, with an intercept, on the 2p rows before the test row, all within
    the fold. Intercepts serve the fits alone: what is explained, 2rφᵀγ − (φᵀγ)², is not centred. It is
    averaged over the rows of the fold.

    Parameters
    ----------
    directions : list of arrays, shape (p, d)
        Bases of the blocks in increasing order of their statistics.
    statistics : array, shape (blocks,)
        From `variation_statistic`.
    features : array, shape (n, p)
        Of the chosen actions, in time order.
    rewards : array, shape (n,)
        Their rewards.
    """
    from invariant_bandits.decomposition import kernels

    n, p = features.shape
    sizes = np.array([block.shape[1] for block in directions])
    thresholds = np.unique(np.append(statistics, 1.0))
    residual_dims = np.array(
        [int(sizes[statistics >= threshold].sum()) for threshold in thresholds]
    )
    varying_first = features @ np.hstack(directions[::-1])
    length = n // FOLDS
    starts = np.linspace(0, n - length, FOLDS).astype(int)
    components = np.zeros((FOLDS, len(thresholds), p))
    for fold, start in enumerate(starts):
        outside = np.r_[0:start, start + length : n]
        gram, cross, _ = _centred_products(varying_first[outside], rewards[outside])
        for candidate, residual in enumerate(residual_dims):
            if residual < p:
                solution = np.linalg.solve(gram[residual:, residual:], cross[residual:])
                components[fold, candidate, residual:] = solution
    explained = kernels.adapted_explained_variance(
        varying_first,
        np.ascontiguousarray(rewards),
        starts,
        length,
        2 * p,
        residual_dims,
        components,
    )
    return thresholds, np.asarray(explained)


def chosen_threshold(thresholds: Array, explained_variance: Array) -> float:
    """The smallest threshold whose mean over the folds is within one standard error of the best mean.

    The standard error is that of the best threshold. 0, which no statistic lies below, if under every
    threshold but the last, 1, there is a fold where nothing is explained. Folds also differ because the
    rewards of some vary more than those of others: where rewards are strong beside the noise, the standard
    error is large and the rule calls little invariant, however well the thresholds differ fold by fold.
    """
    mean = explained_variance.mean(axis=0)
    if (explained_variance.min(axis=0)[:-1] <= 0.0).all():
        return 0.0
    best = int(np.argmax(mean))
    allowed = mean[best] - explained_variance[:, best].std() / np.sqrt(
        len(explained_variance)
    )
    return float(thresholds[np.flatnonzero(mean[: best + 1] >= allowed)[0]])


def pooled_component(
    invariant: Array, features: Array, rewards: Array
) -> tuple[Array, Array]:
    """Estimate the stable coefficients β_inv (p,) by one regression on all rows, and return their covariance.

    The regression has an intercept and uses only the stable directions. Rewards that the drifting
    coefficients explain count as noise.
    """
    n, p = features.shape
    dim = invariant.shape[1]
    if dim == 0:
        return np.zeros(p), np.zeros((p, p))
    gram, cross, square = _centred_products(features @ invariant, rewards)
    coordinates = np.linalg.solve(gram, cross)
    variance = max(square - float(coordinates @ cross), 1e-12 * square, 1e-300) / (
        n - dim - 1
    )
    covariance = invariant @ np.linalg.inv(gram) @ invariant.T
    return invariant @ coordinates, variance * 0.5 * (covariance + covariance.T)


def _centred_products(coordinates: Array, rewards: Array) -> tuple[Array, Array, float]:
    """Sums of products about the means, of coordinates (n, d) with themselves and with rewards, and of the
    rewards.
    """
    coordinates = coordinates - coordinates.mean(axis=0)
    rewards = rewards - rewards.mean()
    return (
        coordinates.T @ coordinates,
        coordinates.T @ rewards,
        float(rewards @ rewards),
    )

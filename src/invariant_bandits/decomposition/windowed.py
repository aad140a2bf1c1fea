"""Our own estimation recipe, from windowed moments alone: covariances, blocks, invariance, component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.blocks import Columns, find_blocks, floored
from invariant_bandits.decomposition.component import component_along
from invariant_bandits.decomposition.invariance import InvarianceResult, constancy_test, select_invariant
from invariant_bandits.decomposition.parameters import Parameters, block_bases
from invariant_bandits.decomposition.paths import CoefficientPaths, window_freedom, window_paths
from invariant_bandits.decomposition.silence import singular_roots, unseen_directions
from invariant_bandits.decomposition.split import Split
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True, eq=False)
class FeatureCovariances:
    """Whose covariances reveal the basis, and how much they may be trusted.

    Attributes
    ----------
    used : "offered" or "chosen"
        Whose features they are of.
    stack : array, shape (m, p, p)
        One covariance per window.
    sizes : array, shape (m,)
        How many independent Gaussian rows each is worth.
    tails : array, shape (m,)
        Mean kurtosis of the features over 3, by window: 1 for Gaussian ones.
    singular : mapping of int to array, shape (p, r)
        Roots of the singular ones among them, by window (`singular_roots`).
    """

    used: str
    stack: Array
    sizes: Array
    tails: Array
    singular: dict[int, Array]

    @classmethod
    def of(cls, moments: WindowedMoments, asked: str, singular: dict[int, Array]) -> FeatureCovariances:
        """Those of the offered actions where there are any and not only chosen ones are `asked` for.

        singular: the `singular_roots` of the chosen actions.
        """
        p = moments.dim
        if moments.offered is None or asked == "chosen":
            source, used, rows = moments.chosen, "chosen", moments.chosen.count
        else:
            source, used, rows = moments.offered, "offered", moments.offered.independent_rows(moments.counts)
            singular = singular_roots(source, p)
        tails = source.tail_weight(p)
        stack = source.scatter[:, :p, :p] / np.maximum(source.count, 1.0)[:, None, None]
        return cls(used, stack, rows / np.maximum(1.0, tails), tails, singular)

    def turned(self, change: Array, counts: Array) -> tuple[Array, Array, Array | None]:
        """Of the windows whose rounds, `counts` (m,), are enough for a covariance of full rank: what finds the blocks.

        Covariances of change @ φ, (w, p, p), floored; their sizes (w,); and the projections (w, p, p) on the directions
        in which each does not vary, None if there are none.
        """
        p = self.stack.shape[1]
        enough = counts >= p + 2
        covariances = floored(change @ self.stack[enough] @ change.T)
        turned = {window: change @ root for window, root in self.singular.items() if enough[window]}
        unseen = unseen_directions(turned, len(counts), p)[enough] if turned else None
        return covariances, self.sizes[enough], unseen


@dataclass(frozen=True, eq=False)
class WindowedFit:
    """What the recipe finds.

    Attributes
    ----------
    split : Split
        Invariant and residual part.
    component : array, shape (p,)
        β̂_inv, in rewards per unit of each feature.
    component_covariance : array, shape (p, p)
        Its sampling covariance.
    basis : array, shape (p, p)
        Columns are the found directions, invariant ones first.
    blocks : list of arrays of int, shape (d,)
        For each block its columns of the basis.
    varies : array of bool, shape (blocks,)
        The verdict on each block.
    log_p_values : array, shape (blocks,)
        Logarithm of the p-value of constant coefficients.
    testable : array of bool, shape (blocks,)
        Whether at least two windows inform every direction of a block.
    paths : CoefficientPaths
        Least squares in every window.
    window_noise : array, shape (m,)
        Its noise variances.
    noise_scale : float
        Standard deviation of the noise over all windows.
    covariances : FeatureCovariances
        What the basis was found from.
    min_eigenvalue : float
        λ0 of Assumption 2.
    converged : bool
        Whether the search for the basis has converged.
    """

    split: Split
    component: Array
    component_covariance: Array
    basis: Array
    blocks: list[Columns]
    varies: np.ndarray[Any, Any]
    log_p_values: Array
    testable: np.ndarray[Any, Any]
    paths: CoefficientPaths
    window_noise: Array
    noise_scale: float
    covariances: FeatureCovariances
    min_eigenvalue: float
    converged: bool


def windowed_decomposition(original: WindowedMoments, given: Parameters) -> WindowedFit:
    """Split and component from moments that have been checked, as the parameters ask."""
    p = original.dim
    singular = singular_roots(original.chosen, p)
    observed = FeatureCovariances.of(original, given.covariances, singular)
    whitened = given.metric == "whitened"
    change = _whitening(observed.stack.mean(axis=0)) if whitened else np.eye(p)
    moments = original.transformed(change) if whitened else original
    covariances, sizes, unseen = observed.turned(change, original.counts)
    blocks, converged = _blocks(given, covariances, sizes, unseen)
    directions = np.linalg.solve(change, np.hstack(blocks)) if singular else None
    own, own_noise = window_paths(original, directions, singular=singular)
    if not whitened:
        paths = own
    else:
        paths = own.along(np.linalg.inv(change)) if singular else window_paths(moments, singular={})[0]
    result = _judged(given, blocks, paths, covariances, sizes)
    invariant, residual = (_side_by_side(result, varies, p) for varies in (False, True))
    mean, covariance = component_along(invariant, moments, paths, given.component)

    freedom = window_freedom(original, singular)
    return WindowedFit(
        split=_oblique_split(change.T @ residual) if whitened else Split(invariant, residual),
        component=change.T @ invariant @ mean,
        component_covariance=change.T @ invariant @ covariance @ invariant.T @ change,
        basis=change.T @ np.hstack([invariant, residual]),
        blocks=np.split(np.arange(p), np.cumsum([block.shape[1] for block in result.blocks])[:-1]),
        varies=np.array(result.varies, dtype=bool),
        log_p_values=np.array([test.log_p for test in result.tests]),
        testable=np.array([test.possible for test in result.tests], dtype=bool),
        paths=own,
        window_noise=own_noise,
        noise_scale=float(np.sqrt(freedom @ own_noise / freedom.sum())),
        covariances=observed,
        min_eigenvalue=float(np.linalg.eigvalsh(original.second_moment() / original.rounds)[0]),
        converged=converged,
    )


def _blocks(given: Parameters, covariances: Array, sizes: Array, unseen: Array | None) -> tuple[list[Array], bool]:
    """Bases (p, d) of the blocks, and whether the search for them has converged; what is given is kept."""
    if given.split is not None:
        return [np.asarray(part) for part in (given.split.invariant, given.split.residual)], True
    if given.blocks is not None:
        return block_bases(given.blocks, covariances.shape[1]), True
    found = find_blocks(covariances, sizes, alpha=given.block_alpha, unseen=unseen)
    return [found.basis[:, columns] for columns in found.blocks], found.converged


def _judged(
    given: Parameters, blocks: list[Array], paths: CoefficientPaths, covariances: Array, sizes: Array
) -> InvarianceResult:
    """The blocks with their verdicts; those of a given split are known, and the tests are told, not heeded."""
    if given.split is not None:
        kept = [(part, varies) for part, varies in zip(blocks, (False, True), strict=True) if part.shape[1]]
        tests = [constancy_test(paths.along(part)) for part, _ in kept]
        return InvarianceResult([part for part, _ in kept], [varies for _, varies in kept], tests)
    return select_invariant(
        blocks,
        paths,
        covariances,
        sizes,
        alpha=given.alpha,
        invariant_dim=given.invariant_dim,
        refine=given.blocks is None,
    )


def _side_by_side(result: InvarianceResult, varies: bool, p: int) -> Array:
    """The blocks of one side as one basis; rotations have left it orthonormal up to rounding, made exact here."""
    blocks = [block for block, moves in zip(result.blocks, result.varies, strict=True) if moves == varies]
    if not blocks:
        return np.zeros((p, 0))
    left, _, right = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    return np.asarray(left @ right)


def _whitening(covariance: Array) -> Array:
    """A matrix T (p, p) with T S Tᵀ = I; features get unit variance first, so that units cost no digits."""
    scale = np.sqrt(np.diagonal(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T / scale)


def _oblique_split(residual: Array) -> Split:
    """The orthogonal split whose residual part is spanned by columns (p, p_res) that need not be orthogonal."""
    p, dim = residual.shape
    return Split.from_residual(residual) if dim < p else Split(np.zeros((p, 0)), np.eye(p))

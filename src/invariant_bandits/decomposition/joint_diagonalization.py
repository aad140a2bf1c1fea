"""One orthogonal basis in which a stack of covariances is as diagonal, or as block diagonal, as it can be."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from invariant_bandits.checks import (
    Array,
    InputError,
    finite_array,
    number_between,
    whole_number,
)

Columns: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

NEIGHBOURHOOD_SWEEPS, PATIENT_SWEEPS = 50, 30
"""At most so many sweeps on the Frobenius criterion, which only finds the neighbourhood; and so many on the
likelihood before they may end because they gain little.
"""
MANY_FEATURES = 100
"""Beyond so many features sweeps, whose cost grows with the cube of their number, are rationed."""
NOISE_SHARE = 0.01
"""Gain of a sweep, in twice the log-likelihood and per angle, below which it may well be chance: a hundredth
of the mean of its χ² distribution, if the basis is right already, of one degree of freedom per angle.
"""
FLOOR = 0.05
"""Share of the mean covariance that `floored` adds to each window."""


class ConvergenceWarning(UserWarning):
    """Warning that an iterative algorithm stopped before it converged, and returned its last state.

    >>> import warnings, numpy as np, invariant_bandits as ib
    >>> draws = np.random.default_rng(0).normal(size=(8, 20, 5))
    >>> matrices = np.einsum("wni,wnj->wij", draws, draws)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     basis = ib.joint_diagonalize(matrices, max_sweeps=1)
    >>> caught[0].category.__name__
    'ConvergenceWarning'
    """


def _warn(search: str, sweeps: int) -> None:
    warnings.warn(
        f"{search} has not converged after {sweeps} sweeps",
        ConvergenceWarning,
        stacklevel=3,
    )


class JointDiagonalization(NamedTuple):
    """The result of `joint_diagonalize`.

    Attributes
    ----------
    basis : array, shape (p, p)
        Columns are basis vectors, in a fixed order with fixed signs.
    stack : array, shape (m, p, p)
        The matrices in that basis.
    criterion : float
        The likelihood criterion Σ w_i [Σ_a log (UᵀS_iU)_aa − log det S_i] / Σ w_i, zero when all are exactly
        diagonal.
    converged : bool
        Whether the last sweep turned by less than the tolerance, or gained no more than chance would.
    """

    basis: Array
    stack: Array
    criterion: float
    converged: bool


def joint_diagonalize(
    matrices: Any,
    weights: Any = None,
    *,
    tolerance: float = 1e-6,
    max_sweeps: int = 100,
) -> JointDiagonalization:
    """Find one orthogonal basis in which several positive definite matrices are as diagonal as possible.

    Jacobi rotations first minimise the Frobenius norm of the off-diagonal entries. Further rotations maximise
    the Gaussian likelihood of covariance matrices that are diagonal in the basis. The basis vectors are
    sorted by the mean diagonal entry of the rotated matrices, the largest first. In every basis vector, the
    entry with the largest absolute value is positive.

    Parameters
    ----------
    matrices : array, shape (m, p, p)
        Symmetric and positive definite matrices.
    weights : array, shape (m,), optional
        Sample size behind each of the m matrices; by default, sample sizes are equal and unknown.
    tolerance : float
        Angle in radians; the iteration stops when no rotation is larger than this angle. If sample sizes
        (`weights`) are given, the iteration also stops when the likelihood grows by less than
        sampling error.
    max_sweeps : int
        Largest number of sweeps; one sweep rotates every pair of columns once. If the iteration has not
        converged after `max_sweeps` sweeps, joint_diagonalize issues a ConvergenceWarning.

    >>> import numpy as np
    >>> basis = np.array([[3.0, 4.0], [-4.0, 3.0]]) / 5.0
    >>> result = joint_diagonalize([basis @ np.diag(d) @ basis.T for d in ([4, 1], [3, 2], [5, 1])])
    >>> np.abs(result.basis.T @ basis).round(6)
    array([[1., 0.],
           [0., 1.]])
    """
    stack, counts = _checked(matrices, weights)
    number_between("tolerance", tolerance, 0.0, 1.0)
    whole_number("max_sweeps", max_sweeps, 1)
    try:
        logdet = 2.0 * np.log(
            np.diagonal(np.linalg.cholesky(stack), axis1=1, axis2=2)
        ).sum(axis=1)
    except np.linalg.LinAlgError:
        raise InputError("matrices must be positive definite") from None
    p = stack.shape[1]
    noise = 0.0 if weights is None else NOISE_SHARE * (p * (p - 1) / 2) / counts.sum()
    basis, converged = _swept_basis(stack, counts, tolerance, max_sweeps, noise)
    if not converged:
        _warn("joint diagonalisation", max_sweeps)
    basis = in_fixed_order(basis, stack)
    turned = basis.T @ stack @ basis
    diagonal = np.log(np.diagonal(turned, axis1=1, axis2=2)).sum(axis=1)
    criterion = float(counts @ (diagonal - logdet) / counts.sum())
    return JointDiagonalization(basis, turned, criterion, converged)


def _checked(matrices: Any, weights: Any) -> tuple[Array, Array]:
    """The matrices (m, p, p), square and symmetric, and their weights (m,), positive."""
    stack = finite_array("matrices", matrices, ("m", "p", "p"))
    m, p, columns = stack.shape
    if p != columns:
        raise InputError(f"matrices must be square, got shape {stack.shape}")
    if not np.allclose(
        stack, stack.swapaxes(1, 2), rtol=1e-8, atol=1e-12 * float(np.abs(stack).max())
    ):
        raise InputError("matrices must be symmetric")
    counts = np.ones(m) if weights is None else finite_array("weights", weights, (m,))
    if (counts <= 0).any():
        raise InputError("weights must be positive")
    return stack, counts


def _swept_basis(
    stack: Array, counts: Array, tolerance: float, max_sweeps: int, noise: float
) -> tuple[Array, bool]:
    """The basis (p, p) after both kinds of sweeps, and whether they came to an end before their limit."""
    from invariant_bandits.decomposition import kernels

    m, p, _ = stack.shape
    basis, traces = np.eye(p), np.trace(stack, axis1=1, axis2=2)
    work = np.ascontiguousarray((stack / traces[:, None, None]).transpose(1, 2, 0))
    # As many rotations for more features as for MANY_FEATURES: sweeps fall with the number of pairs.
    ration = min(1.0, (MANY_FEATURES / p) ** 2)
    few = min(max_sweeps, math.ceil(NEIGHBOURHOOD_SWEEPS * ration))
    patient = math.ceil(PATIENT_SWEEPS * ration)
    kernels.jacobi_sweeps(work, basis, np.ones(m), False, 1e-2, few, 0.0, few)
    work = np.ascontiguousarray((basis.T @ stack @ basis).transpose(1, 2, 0))
    end = kernels.jacobi_sweeps(
        work, basis, counts / counts.sum(), True, tolerance, max_sweeps, noise, patient
    )
    return basis, end != kernels.STALLED


def in_fixed_order(basis: Array, stack: Array) -> Array:
    """Columns by decreasing mean diagonal of the stack (m, p, p) in this basis; largest entries positive.

    Means equal up to rounding, as all are after whitening, are ordered by the diagonal of the first matrix.
    """
    diagonal = np.diagonal(basis.T @ stack @ basis, axis1=1, axis2=2)
    mean = diagonal.mean(axis=0)
    rounded = np.round(mean / mean.max(), 9)
    return with_fixed_signs(basis[:, np.lexsort((-diagonal[0], -rounded))])


def with_fixed_signs(basis: Array) -> Array:
    """Turn each column so that its entry of largest magnitude is positive."""
    if basis.size == 0:
        return basis
    lead = basis[np.argmax(np.abs(basis), axis=0), np.arange(basis.shape[1])]
    return np.asarray(basis * np.where(lead < 0, -1.0, 1.0))


class BlockStructure(NamedTuple):
    """A basis whose columns fall into blocks that are uncorrelated with each other in every window.

    Attributes
    ----------
    basis : array, shape (p, p)
        Columns are basis vectors.
    blocks : list of arrays of int, shape (d,)
        For each block its columns of the basis.
    converged : bool
        Whether every search on the way came to an end before its limit.
    distinct : bool
        Whether the windows distinguish the blocks. If not, other directions fit them as well.
    """

    basis: Array
    blocks: list[Columns]
    converged: bool
    distinct: bool


def floored(covariances: Array) -> Array:
    """S_i + 0.05·mean(S): a window that straddles two regimes no longer looks like a sharp one of its own."""
    return np.asarray(covariances + FLOOR * covariances.mean(axis=0))


def find_blocks(
    covariances: Array,
    sizes: Array,
    *,
    alpha: float = 0.002,
    unseen: Array | None = None,
) -> BlockStructure:
    """Rotate the features and group them into blocks that are uncorrelated in every window (period of the
    log).

    The function diagonalises all covariance matrices jointly. Rotated features that are significantly
    correlated are merged into blocks and the rotation is refined, until no more blocks merge.

    Parameters
    ----------
    covariances : array, shape (m, p, p)
        Covariance matrix of the features in each of m windows (periods), with 5 % of the mean matrix added.
    sizes : array, shape (m,)
        Effective number of rows behind each covariance matrix.
    alpha : float
        Significance level of all correlation tests together, divided equally among the pairs of features.
    unseen : array, shape (m, p, p), optional
        Matrix for each window (period) that projects on the directions in which its features do not vary.
    """
    from invariant_bandits.decomposition import kernels

    diagonal = joint_diagonalize(covariances, sizes, tolerance=1e-4)
    basis, stack = diagonal.basis.copy(), np.ascontiguousarray(diagonal.stack)
    p = len(basis)
    converged = diagonal.converged
    distinct = True
    level = alpha / max(p * (p - 1) / 2, 1)
    blocks = merge_dependent(
        stack, sizes, np.split(np.arange(p), p), level, _varied(basis, unseen)
    )
    while len(blocks) > 1:
        status = refine(stack, basis, sizes, blocks)
        converged = converged and status != kernels.STALLED
        distinct = status != kernels.INDISTINCT
        merged = merge_dependent(stack, sizes, blocks, level, _varied(basis, unseen))
        if len(merged) == len(blocks):
            break
        blocks = merged
    return BlockStructure(basis, blocks, converged, distinct)


def _varied(basis: Array, unseen: Array | None) -> Array | None:
    """How much of each column a window sees vary, from 0 to 1: (m, p); None if all of every column."""
    return (
        None
        if unseen is None
        else 1.0 - np.einsum("ja,mjk,ka->ma", basis, unseen, basis)
    )


def refine(
    stack: Array,
    basis: Array,
    sizes: Array,
    blocks: list[Columns],
    *,
    max_sweeps: int = 50,
) -> int:
    """Rotate covariance matrices and basis, in place, to maximise the likelihood of given blocks (groups of
    features that are uncorrelated with other groups).

    The array `stack` (m, p, p) has the covariance matrix of the features in each of m windows (periods of the
    log). The returned status of the search is CONVERGED, INDISTINCT or STALLED, constants of
    `decomposition.kernels`.
    """
    from invariant_bandits.decomposition import kernels

    lengths, order, starts = _block_layout(blocks)
    noise = NOISE_SHARE * (float(lengths.sum() ** 2 - (lengths**2).sum()) / 2.0)
    status = kernels.decouple(
        stack, basis, sizes, order, starts, 1e-6, max_sweeps, noise
    )
    if status == kernels.STALLED:
        _warn("the refinement of the blocks", max_sweeps)
    return int(status)


def _block_layout(blocks: list[Columns]) -> tuple[Columns, Columns, Columns]:
    """Lengths (K,) of the blocks, their columns in a row (p,), and where each begins and ends (K + 1,)."""
    lengths = np.array([len(block) for block in blocks])
    return lengths, np.concatenate(blocks), np.append(0, np.cumsum(lengths))


def merge_dependent(
    stack: Array,
    sizes: Array,
    blocks: list[Columns],
    alpha: float,
    varied: Array | None = None,
) -> list[Columns]:
    """Join the blocks whose dependence, Σ n[logdet A + logdet B − logdet S] ~ χ²((m − 1)|a||b|), is
    significant.

    varied: (m, p), how much of each column every window sees vary; m counts the windows that see both blocks
    vary.
    """
    from scipy import special

    from invariant_bandits.decomposition import kernels

    lengths, order, starts = _block_layout(blocks)
    statistic = kernels.dependences(stack, sizes, order, starts)
    freedom = max(len(stack) - 1, 1) * np.outer(lengths, lengths)
    if varied is not None:
        seen = np.stack([varied[:, block].sum(axis=1) for block in blocks], axis=1)
        freedom = np.maximum(
            seen.T @ seen - np.outer(lengths, lengths), np.outer(lengths, lengths)
        )
    linked = statistic > special.chdtri(freedom, alpha)
    return [
        np.sort(np.concatenate([blocks[k] for k in group]))
        for group in connected_columns(linked)
    ]


def connected_columns(linked: Array) -> list[Columns]:
    """Groups of columns that chains of links join; linked (p, p) is symmetric and boolean."""
    from scipy.sparse import (
        csr_array,
    )  # here: a tenth of a second that a service which starts does not have
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(linked), directed=False)
    return [np.flatnonzero(label == group) for group in range(count)]

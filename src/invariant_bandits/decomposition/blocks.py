"""Which columns of the joint basis belong together, and the rotation that best uncouples the blocks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.joint_diagonalization import (
    ConvergenceWarning,
    joint_diagonalize,
    sampling_noise,
)

Columns: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

FLOOR = 0.05


@dataclass(frozen=True)
class BlockStructure:
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
    covariances: Array, sizes: Array, *, alpha: float = 0.002, unseen: Array | None = None
) -> BlockStructure:
    """Joint diagonalisation, then blocks by pairwise tests, refinement, and re-tests until nothing merges.

    Parameters
    ----------
    covariances : array, shape (m, p, p)
        One per window, floored.
    sizes : array, shape (m,)
        Effective numbers of rows behind each.
    alpha : float
        Level of the tests that link two columns, shared over the pairs.
    unseen : array, shape (m, p, p), optional
        Projections on the directions in which a window does not vary: it says nothing of their correlations.
    """
    from invariant_bandits.decomposition import kernels

    diagonal = joint_diagonalize(covariances, sizes, tolerance=1e-4)
    p = diagonal.basis.shape[0]
    blocks = linked_columns(diagonal.stack, sizes, alpha, _varied(diagonal.basis, unseen))
    basis, stack = diagonal.basis.copy(), np.ascontiguousarray(diagonal.stack)
    converged, distinct = diagonal.converged, True
    while len(blocks) > 1:
        status = refine(stack, basis, sizes, blocks)
        converged, distinct = converged and status != kernels.STALLED, status != kernels.INDISTINCT
        merged = merge_dependent(stack, sizes, blocks, alpha / (p * (p - 1) / 2), _varied(basis, unseen))
        if len(merged) == len(blocks):
            break
        blocks = merged
    return BlockStructure(basis, blocks, converged, distinct)


def _varied(basis: Array, unseen: Array | None) -> Array | None:
    """How much of each column a window sees vary, from 0 to 1: (m, p); None if all of every column."""
    return None if unseen is None else 1.0 - np.einsum("ja,mjk,ka->ma", basis, unseen, basis)


def linked_columns(stack: Array, sizes: Array, alpha: float, varied: Array | None = None) -> list[Columns]:
    """Connected components of the graph of pairs (a, b) with T_ab beyond its χ²(m − 1) quantile, Bonferroni.

    varied: (m, p), how much of each column every window sees vary; m counts the windows that see both columns
    vary.
    """
    from invariant_bandits.decomposition import kernels

    m, p, _ = stack.shape
    if p == 1:
        return [np.array([0])]
    statistic = kernels.pair_statistics(np.ascontiguousarray(stack.transpose(1, 2, 0)), sizes)
    freedom = max(m - 1, 1) if varied is None else np.maximum(varied.T @ varied - 1.0, 1.0)
    limit = special.chdtri(freedom, alpha / (p * (p - 1) / 2))
    return connected_columns(statistic > limit)


def refine(stack: Array, basis: Array, sizes: Array, blocks: list[Columns], *, max_sweeps: int = 50) -> int:
    """Rotate `stack` (m, p, p) and `basis`, in place, to the likelihood optimum of this block structure.

    Returns how the search ended: CONVERGED, INDISTINCT or STALLED of the kernels.
    """
    from invariant_bandits.decomposition import kernels

    lengths = np.array([len(block) for block in blocks])
    noise = sampling_noise(float(lengths.sum() ** 2 - (lengths**2).sum()) / 2.0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rotation = kernels.Rotation(stack, basis, sizes)
    status = kernels.decouple(rotation, np.concatenate(blocks), starts, 1e-6, max_sweeps, noise)
    if status == kernels.STALLED:
        warnings.warn(
            f"the refinement of the blocks has not converged after {max_sweeps} sweeps",
            ConvergenceWarning,
            stacklevel=2,
        )
    return int(status)


def merge_dependent(
    stack: Array, sizes: Array, blocks: list[Columns], alpha: float, varied: Array | None = None
) -> list[Columns]:
    """Join the blocks whose dependence, Σ n[logdet A + logdet B − logdet S] ~ χ²((m − 1)|a||b|), is
    significant.

    varied: as in `linked_columns`.
    """
    from invariant_bandits.decomposition import kernels

    statistic = np.zeros((len(blocks), len(blocks)))
    for k, block in enumerate(blocks):
        for j, other in enumerate(blocks[:k]):
            statistic[k, j] = statistic[j, k] = kernels.dependence(stack, sizes, block, other)
    lengths = np.array([len(block) for block in blocks])
    freedom = max(len(stack) - 1, 1) * np.outer(lengths, lengths)
    if varied is not None:
        seen = np.stack([varied[:, block].sum(axis=1) for block in blocks], axis=1)
        freedom = np.maximum(seen.T @ seen - np.outer(lengths, lengths), np.outer(lengths, lengths))
    linked = statistic > special.chdtri(freedom, alpha)
    return [np.sort(np.concatenate([blocks[k] for k in group])) for group in connected_columns(linked)]


def connected_columns(linked: Array) -> list[Columns]:
    """Groups of columns that chains of links join; linked (p, p) is symmetric and boolean."""
    from scipy.sparse import csr_array  # here: a tenth of a second that a service which starts does not have
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(linked), directed=False)
    return [np.flatnonzero(label == group) for group in range(count)]

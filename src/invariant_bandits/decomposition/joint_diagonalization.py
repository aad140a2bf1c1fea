"""One orthogonal basis in which a stack of symmetric matrices is as diagonal as it can be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, number_between, whole_number

NEIGHBOURHOOD_SWEEPS = 50
"""At most so many on the Frobenius criterion, which only finds the neighbourhood."""
NOISE_SHARE = 0.01


def sampling_noise(angles: float) -> float:
    """Gain of a sweep over so many angles, in twice the log-likelihood, below which it may well be chance.

    A hundredth of the mean of its χ² distribution, if the basis is right already: one degree of freedom per
    angle.
    """
    return NOISE_SHARE * angles


class ConvergenceWarning(UserWarning):
    """An iteration stopped before it had converged; the result is its last state."""


@dataclass(frozen=True)
class JointDiagonalization:
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
    matrices: Any, weights: Any = None, *, tolerance: float = 1e-6, max_sweeps: int = 100
) -> JointDiagonalization:
    """Jointly diagonalise positive definite matrices by an orthogonal basis.

    Jacobi angles on the Frobenius criterion of the trace-normalised matrices find the neighbourhood. Jacobi
    sweeps on the likelihood criterion finish. Columns come in a fixed order (decreasing mean diagonal, then
    that of the first matrix) with fixed signs (the largest entry of each is positive).

    Parameters
    ----------
    matrices : array, shape (m, p, p)
        Symmetric and positive definite.
    weights : array, shape (m,), optional
        Their sample sizes, positive; all the same, and unknown, unless given.
    tolerance : float
        Sweeps stop when no pair of columns turns by more, in radians. If sample sizes are known they stop,
        too, when many of them in turn gain less likelihood than sampling could produce.
    max_sweeps : int
        At most so many for each criterion; a ConvergenceWarning says when they were not enough.

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
        logdet = 2.0 * np.log(np.diagonal(np.linalg.cholesky(stack), axis1=1, axis2=2)).sum(axis=1)
    except np.linalg.LinAlgError:
        raise InputError("matrices must be positive definite") from None
    p = stack.shape[1]
    noise = 0.0 if weights is None else sampling_noise(p * (p - 1) / 2) / counts.sum()
    basis, converged = _swept_basis(stack, counts, tolerance, max_sweeps, noise)
    if not converged:
        warnings.warn(
            f"joint diagonalisation has not converged after {max_sweeps} sweeps",
            ConvergenceWarning,
            stacklevel=2,
        )
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
    if not np.allclose(stack, stack.swapaxes(1, 2), rtol=1e-8, atol=1e-12 * float(np.abs(stack).max())):
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
    traces = np.trace(stack, axis1=1, axis2=2)
    basis = np.eye(p)
    work = np.ascontiguousarray((stack / traces[:, None, None]).transpose(1, 2, 0))
    rotation = kernels.Rotation(work, basis, np.ones(m))
    kernels.jacobi_sweeps(rotation, False, 1e-2, min(max_sweeps, NEIGHBOURHOOD_SWEEPS), 0.0)
    work = np.ascontiguousarray((basis.T @ stack @ basis).transpose(1, 2, 0))
    rotation = kernels.Rotation(work, basis, counts / counts.sum())
    return basis, kernels.jacobi_sweeps(rotation, True, tolerance, max_sweeps, noise) != kernels.STALLED


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

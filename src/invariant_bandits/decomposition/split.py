"""Split: an orthogonal decomposition of the feature space into an invariant and a residual part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array

SHAPE = ("p", "columns")


@dataclass(frozen=True, eq=False)
class Split:
    """Orthonormal bases of the two parts of R^p, checked at birth and immutable. Either part may be empty.

    Parameters
    ----------
    invariant : array, shape (p, p_inv)
        Columns span what never changes.
    residual : array, shape (p, p_res)
        Columns span the rest, p_inv + p_res = p.

    >>> import numpy as np, invariant_bandits as ib
    >>> split = ib.Split(invariant=np.eye(3)[:, :2], residual=np.eye(3)[:, 2:])
    >>> split.dim, split.invariant_dim, split.residual_dim
    (3, 2, 1)
    >>> turned = ib.Split(invariant=np.eye(3)[:, 1:], residual=np.eye(3)[:, :1])
    >>> split.distance(turned)
    1.0
    """

    invariant: Array
    residual: Array

    def __post_init__(self) -> None:
        parts = {"invariant": self.invariant, "residual": self.residual}
        for name, value in parts.items():
            array = (
                np.asarray(value, dtype=np.float64)
                if np.size(value) == 0
                else finite_array(name, value, SHAPE)
            )
            if array.ndim != 2:
                raise InputError(f"{name} must have shape (p, columns), got {array.shape}")
            frozen = np.array(array, order="C")
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)
        rows, columns = self.invariant.shape
        if self.residual.shape != (rows, rows - columns):
            raise InputError(
                f"residual must have shape ({rows}, {rows - columns}) beside invariant"
                f" {self.invariant.shape}, got {self.residual.shape}"
            )
        error = float(np.abs(self.basis.T @ self.basis - np.eye(rows)).max(initial=0.0))
        if error > 1e-8:
            raise InputError(f"the columns of a split must be orthonormal, they are off by {error:.1e}")

    @classmethod
    def from_residual(cls, residual: Array) -> Split:
        """The split whose residual part is spanned by given columns.

        Parameters
        ----------
        residual : array, shape (p, p_res)
            Linearly independent, not necessarily orthogonal.
        """
        if np.ndim(residual) == 2 and np.shape(residual)[1] == 0:
            return cls(np.eye(np.shape(residual)[0]), np.zeros(np.shape(residual)))
        array = finite_array("residual", residual, SHAPE)
        full, values, _ = np.linalg.svd(array, full_matrices=True)
        if array.shape[1] > array.shape[0] or values[-1] <= 1e-12 * values[0]:
            raise InputError("the columns of residual must be linearly independent")
        rank = array.shape[1]
        return cls(full[:, rank:], full[:, :rank])

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.invariant.shape[0])

    @property
    def invariant_dim(self) -> int:
        """Dimension of the invariant part."""
        return int(self.invariant.shape[1])

    @property
    def residual_dim(self) -> int:
        """Dimension of the residual part."""
        return int(self.residual.shape[1])

    @property
    def basis(self) -> Array:
        """[invariant, residual] (p, p), orthogonal."""
        return np.hstack([self.invariant, self.residual])

    def distance(self, other: Split) -> float:
        """‖Π − Π'‖_op of the projections on the residual parts; the same for the invariant ones.

        1 whenever the dimensions differ.
        """
        if self.dim != other.dim:
            raise InputError(f"other must have dim {self.dim}, got {other.dim}")
        if self.residual_dim != other.residual_dim:
            return 1.0
        if min(self.residual_dim, self.invariant_dim) == 0:
            return 0.0
        return float(np.linalg.norm(self.invariant.T @ other.residual, ord=2))

    def __repr__(self) -> str:
        return f"Split(invariant_dim={self.invariant_dim}, residual_dim={self.residual_dim})"

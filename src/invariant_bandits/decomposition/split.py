"""Split: the invariant and the residual part of the feature space, and which blocks belong to which: those
with constant coefficients from window to window are invariant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.decomposition.joint_diagonalization import with_fixed_signs
from invariant_bandits.decomposition.paths import (
    INFORMS,
    CoefficientPaths,
    in_units_of_all,
)
from invariant_bandits.moments.windowed import WindowedMoments

SHAPE = ("p", "columns")
COMPONENTS = ("within-window", "pooled")
TREND_DEGREE = 2
"""Of the polynomial in time: slow drift is a line or a bend, and each degree costs power."""


@dataclass(frozen=True, eq=False)
class Split:
    """Split of the feature space into an invariant part (stable directions) and a residual part (drifting).

    Each part is given by an orthonormal basis, and one part may be empty. A Split object is immutable.

    Parameters
    ----------
    invariant : array, shape (p, p_inv)
        Orthonormal basis of the directions, one per column, along which the coefficients never change.
    residual : array, shape (p, p_res)
        Orthonormal basis of the directions, one per column, along which the coefficients may drift.

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
            empty = np.ndim(value) == 2 and np.size(value) == 0
            frozen = np.array(
                value if empty else finite_array(name, value, SHAPE),
                dtype=float,
                order="C",
            )
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
            raise InputError(
                f"the columns of a split must be orthonormal, they are off by {error:.1e}"
            )

    @classmethod
    def from_residual(cls, residual: Array) -> Split:
        """Create a split from directions that span its residual part (where coefficients may drift).

        Parameters
        ----------
        residual : array, shape (p, p_res)
            Linearly independent directions, one per column, not necessarily orthogonal.
        """
        if np.ndim(residual) == 2 and np.shape(residual)[1] == 0:
            return cls(np.eye(len(residual)), residual)
        array = finite_array("residual", residual, SHAPE)
        full, values, _ = np.linalg.svd(array, full_matrices=True)
        if array.shape[1] > array.shape[0] or values[-1] <= 1e-12 * values[0]:
            raise InputError("the columns of residual must be linearly independent")
        return cls(full[:, array.shape[1] :], full[:, : array.shape[1]])

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.invariant.shape[0])

    @property
    def invariant_dim(self) -> int:
        """Dimension of the invariant part (number of stable directions)."""
        return int(self.invariant.shape[1])

    @property
    def residual_dim(self) -> int:
        """Dimension of the residual part (number of drifting directions)."""
        return int(self.residual.shape[1])

    @property
    def basis(self) -> Array:
        """Orthogonal matrix (p, p) whose columns are the stable directions, then the drifting directions."""
        return np.hstack([self.invariant, self.residual])

    def distance(self, other: Split) -> float:
        """Return the distance to another split, from 0 (equal) to 1.

        The distance is the operator norm of Π − Π', where Π and Π' project on the residual (drifting) parts
        of the two splits. Two splits with different numbers of drifting directions have distance 1.
        """
        if self.dim != other.dim:
            raise InputError(f"other must have dim {self.dim}, got {other.dim}")
        if self.residual_dim != other.residual_dim:
            return 1.0
        if min(self.residual_dim, self.invariant_dim) == 0:
            return 0.0
        return float(np.linalg.norm(self.invariant.T @ other.residual, ord=2))

    def tested(self, paths: CoefficientPaths) -> InvarianceResult:
        """The parts that are not empty as blocks, with the tests of their constancy, which decide nothing."""
        parts = {False: self.invariant, True: self.residual}
        sides = [varies for varies, part in parts.items() if part.size]
        blocks = [np.asarray(parts[varies]) for varies in sides]
        return InvarianceResult(
            blocks, sides, [constancy_test(paths.along(block)) for block in blocks]
        )

    def __repr__(self) -> str:
        return f"Split(invariant_dim={self.invariant_dim}, residual_dim={self.residual_dim})"


class ConstancyTest(NamedTuple):
    """Evidence against constant coefficients in one block.

    Attributes
    ----------
    log_wald : float
        Log p-value of equal coefficients in all windows.
    log_trend : float
        Log p-value of no quadratic trend over the windows.
    possible : bool
        Whether at least two windows inform each of its directions.
    """

    log_wald: float
    log_trend: float
    possible: bool = True

    @property
    def log_p(self) -> float:
        """Log of the Bonferroni-combined p-value, at most 0."""
        return float(min(0.0, min(self.log_wald, self.log_trend) + np.log(2.0)))


class InvarianceResult(NamedTuple):
    """Blocks in their final position, invariant ones first, then residual ones in the order of their moving.

    Attributes
    ----------
    blocks : list of arrays, shape (p, d)
        Orthonormal directions of each.
    varies : list of bool
        The verdicts.
    tests : list of ConstancyTest
        The evidence on which each was judged.
    """

    blocks: list[Array]
    varies: list[bool]
    tests: list[ConstancyTest]

    def side(self, varies: bool) -> Array:
        """The blocks of one side as one basis; rotations have left it orthonormal up to rounding, made exact
        here.
        """
        blocks = [
            block
            for block, moves in zip(self.blocks, self.varies, strict=True)
            if moves == varies
        ]
        if not blocks:
            return np.zeros((len(self.blocks[0]), 0))
        left, _, right = np.linalg.svd(np.hstack(blocks), full_matrices=False)
        return np.asarray(left @ right)


def constancy_test(paths: CoefficientPaths) -> ConstancyTest:
    """Test whether the d coefficients of a block (group of rotated features) are equal in all m windows
    (periods of the log).

    The function makes two Wald tests: one of equal coefficients, with (m − 1)d degrees of freedom, and one
    against a quadratic trend, with 2d degrees. If some windows cannot estimate every coefficient, the tests
    have fewer degrees of freedom.
    """
    m, d = paths.coefficients.shape
    precisions = paths.precisions()
    if paths.partial is not None:
        return _test_partial_windows(paths.coefficients, precisions)
    constant = _misfit(paths.coefficients, precisions, 0)
    log_wald = log_survival(constant, (m - 1) * d)
    if m <= TREND_DEGREE + 1:
        return ConstancyTest(log_wald, log_wald)
    explained = constant - _misfit(paths.coefficients, precisions, TREND_DEGREE)
    return ConstancyTest(log_wald, log_survival(max(explained, 0.0), TREND_DEGREE * d))


def _test_partial_windows(coefficients: Array, precisions: Array) -> ConstancyTest:
    """`constancy_test` if some precisions (m, d, d) are singular; their sum is not.

    In units of what all windows know together, so that the precisions add up to the identity.
    """
    m, d = coefficients.shape
    factor, shares = in_units_of_all(precisions)
    known = np.linalg.eigvalsh(shares)
    possible = bool((known < 1.0 - INFORMS).all())
    freedom = int((known > INFORMS).sum()) - d
    if freedom < 1:
        return ConstancyTest(0.0, 0.0, possible=False)
    apart = coefficients @ factor
    apart = apart - np.einsum("mij,mj->i", shares, apart)
    pull = np.einsum("mij,mj->mi", shares, apart)
    log_wald = log_survival(float((apart * pull).sum()), freedom)
    design = window_trend(m, TREND_DEGREE)
    left = np.einsum("ma,mb,mij->aibj", design, design, shares).reshape(
        (TREND_DEGREE + 1) * d, -1
    )
    values, vectors = np.linalg.eigh(left)
    informed = values > INFORMS
    bends = int(informed.sum()) - d
    if not 1 <= bends < freedom:
        return ConstancyTest(log_wald, log_wald, possible)
    right = np.einsum("ma,mi->ai", design, pull).ravel() @ vectors[:, informed]
    return ConstancyTest(
        log_wald,
        log_survival(float((right**2 / values[informed]).sum()), bends),
        possible,
    )


def window_trend(m: int, degree: int) -> Array:
    """Powers 0 to `degree` of the windows' places in time, from −1 to 1: (m, degree + 1)."""
    return np.asarray(np.linspace(-1.0, 1.0, m)[:, None] ** np.arange(degree + 1))


def log_survival(statistic: float, freedom: int) -> float:
    """Log of P(χ²(freedom) > statistic), also far beyond where the probability itself underflows."""
    from scipy import special  # here: a Split that is loaded needs no test

    half, x = freedom / 2.0, statistic / 2.0
    survival = float(special.gammaincc(half, x))
    if survival > 1e-290:
        return float(np.log(survival))
    # Upper incomplete gamma: its leading term, x^(a−1)e^(−x)(1 + (a−1)/x + …), and a bound of the rest.
    return float(
        (half - 1.0) * np.log(x)
        - x
        - special.gammaln(half)
        - np.log1p(-min((half - 1.0) / x, 0.99))
    )


def _misfit(coefficients: Array, precisions: Array, degree: int) -> float:
    """Weighted sum of squares about the best polynomial of this degree in window time, coordinate by
    coordinate.
    """
    m, d = coefficients.shape
    design = window_trend(m, degree)
    left = np.einsum("ma,mb,mij->aibj", design, design, precisions).reshape(
        (degree + 1) * d, -1
    )
    pull = np.einsum("mij,mj->mi", precisions, coefficients)
    right = np.einsum("ma,mi->ai", design, pull).ravel()
    fitted = design @ np.linalg.solve(left, right).reshape(degree + 1, d)
    error = coefficients - fitted
    return float(np.einsum("mi,mij,mj->", error, precisions, error))


def select_invariant(
    blocks: list[Array],
    paths: CoefficientPaths,
    covariances: Array,
    sizes: Array,
    *,
    alpha: float = 0.002,
    invariant_dim: int | None = None,
    refine: bool = True,
) -> InvarianceResult:
    """Decide which blocks of rotated features have stable coefficients, by forward selection.

    Each step moves the block with the strongest evidence of change to the drifting side, refines the
    directions and tests the remaining blocks again. A block counts as drifting if fewer than two windows
    (periods of the log) have data along one of its directions. Calling a drifting direction stable is more
    expensive than the opposite error, which only slows learning.

    Parameters
    ----------
    blocks : list of arrays, shape (p, d)
        Orthonormal directions of each block, which together span the whole space of p features.
    paths : CoefficientPaths
        Estimated coefficients in each window (period of the log), with their covariances.
    covariances : array, shape (m, p, p)
        Covariance matrix of the features in each window (period), as passed to `find_blocks`.
    sizes : array, shape (m,)
        Effective number of rows behind each covariance matrix.
    alpha : float
        Significance level: the selection stops when no remaining block has a p-value below alpha / number of
        blocks.
    invariant_dim : int, optional
        Number of stable directions at which the selection stops, whatever the p-values.
    refine : bool
        Whether the directions may be rotated after each move of a block.
    """
    stay = list(blocks)
    moved: list[Array] = []
    moved_tests: list[ConstancyTest] = []
    limit = np.log(alpha / len(blocks))
    tests = [constancy_test(paths.along(block)) for block in stay]
    while stay:
        worst = int(
            np.argmin([test.log_p if test.possible else -np.inf for test in tests])
        )
        left = sum(block.shape[1] for block in stay)
        none_varies = tests[worst].possible and tests[worst].log_p > limit
        if none_varies if invariant_dim is None else left <= invariant_dim:
            break
        block, evidence = stay.pop(worst), tests.pop(worst)
        if invariant_dim is not None and left - block.shape[1] < invariant_dim:
            block, rest = _divide(block, paths, invariant_dim - (left - block.shape[1]))
            stay.append(rest)
        moved.append(block)
        moved_tests.append(evidence)
        if refine and stay:
            stay, moved = refine_split(stay, moved, paths, covariances, sizes)
        tests = [constancy_test(paths.along(block)) for block in stay]
    return InvarianceResult(
        [with_fixed_signs(block) for block in stay + moved],
        [False] * len(stay) + [True] * len(moved),
        tests + moved_tests,
    )


def _divide(block: Array, paths: CoefficientPaths, keep: int) -> tuple[Array, Array]:
    """Split a block into directions that move and the `keep` directions whose coefficients move least."""
    inside = paths.along(block)
    mean, _ = inside.weighted_mean()
    error = inside.coefficients - mean
    moving = np.einsum("mi,mj->ij", error, error)
    noise = np.linalg.cholesky(inside.covariances.sum(axis=0))
    whitened = np.linalg.solve(noise, np.linalg.solve(noise, moving).T)
    _, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
    directions, _ = np.linalg.qr(np.linalg.solve(noise.T, vectors))
    return block @ directions[:, keep:], block @ directions[:, :keep]


def refine_split(
    stay: list[Array],
    moved: list[Array],
    paths: CoefficientPaths,
    covariances: Array,
    sizes: Array,
) -> tuple[list[Array], list[Array]]:
    """Improve the stable (invariant) and the drifting (residual) directions together, by rotation.

    Gauss–Newton steps minimise a criterion J, which is 0 if stable and drifting directions are uncorrelated
    in every window (period of the log) and the stable coefficients do not change::

        J = Σ n_i[logdet WᵀS_iW + logdet VᵀS_iV − logdet S_i] + Σ e_iᵀ(WᵀH_iW)⁻¹e_i

        W, V        stable and drifting directions
        S_i, n_i    covariance matrix of the features in window i, effective number of rows behind it
        g_i, H_i    coefficients in window i and their covariance
        e_i         deviation of Wᵀg_i from its weighted mean over the windows
    """
    from invariant_bandits.decomposition import kernels

    W, V = np.hstack(stay), np.hstack(moved)
    q, s = W.shape[1], V.shape[1]
    head, tail = np.arange(q), np.arange(q, q + s)
    best = _joint_criterion(W, V, paths, covariances, sizes)
    for _ in range(10):
        basis = np.hstack([W, V])
        turned = np.ascontiguousarray(basis.T @ covariances @ basis)
        G, L, R = kernels.decoupling_step(turned, sizes, head, tail)
        inside = paths.along(W)
        precisions = inside.precisions()
        deviation = inside.coefficients - inside.weighted_mean()[0]
        moving = paths.coefficients @ V
        moving = moving - moving.mean(axis=0)
        G = G - np.einsum("mij,mj,mk->ik", precisions, deviation, moving)
        L = np.concatenate([L, precisions])
        R = np.concatenate([R, np.einsum("mi,mj->mij", moving, moving)])
        E = kernels.solve_rotation(L, R, -G, 1e-6 * float(sizes.sum()))
        size = float(np.linalg.norm(E))
        if size < 1e-5:
            break
        E *= min(1.0, 0.5 / size)
        for _ in range(8):
            Q = kernels.cayley(E)
            newW, newV = np.hsplit(basis @ Q, [q])
            value = _joint_criterion(newW, newV, paths, covariances, sizes)
            if value <= best:
                break
            E *= 0.5
        else:
            break
        gain, best = best - value, value
        W, V = newW, newV
        if gain < 1e-3:
            break
    cut = np.cumsum([block.shape[1] for block in stay])[:-1]
    back = np.cumsum([block.shape[1] for block in moved])[:-1]
    return np.hsplit(W, cut), np.hsplit(V, back)


def _joint_criterion(
    W: Array, V: Array, paths: CoefficientPaths, covariances: Array, sizes: Array
) -> float:
    logdet = (
        np.linalg.slogdet(W.T @ covariances @ W)[1]
        + np.linalg.slogdet(V.T @ covariances @ V)[1]
    )
    inside = paths.along(W)
    misfit = _misfit(inside.coefficients, inside.precisions(), 0)
    return float(sizes @ logdet) + misfit


def component_along(
    invariant: Array, moments: WindowedMoments, paths: CoefficientPaths, kind: str
) -> tuple[Array, Array]:
    """Return the coordinates of the stable coefficients β_inv along given stable directions, and their
    covariance.

    With kind "within-window" the estimate is the precision-weighted mean of the coefficients in all windows
    (periods of the log). With kind "pooled" the estimate is the paper's regression over all rounds, which is
    biased if the logging policy prefers some actions.
    """
    if invariant.shape[1] == 0:
        return np.zeros(0), np.zeros((0, 0))
    if kind == "within-window":
        return paths.along(invariant).weighted_mean()
    weights = moments.counts[:, None] * moments.feature_mean
    square = float(
        moments.reward_square.sum() + moments.counts @ moments.reward_mean**2
    )
    inverse = np.linalg.inv(invariant.T @ moments.second_moment() @ invariant)
    pull = invariant.T @ (moments.cross.sum(axis=0) + weights.T @ moments.reward_mean)
    mean = inverse @ pull
    variance = max(square - float(mean @ pull), 0.0) / (
        moments.rounds - invariant.shape[1]
    )
    return mean, variance * 0.5 * (inverse + inverse.T)

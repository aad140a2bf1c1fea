"""Expectation–maximisation arm by arm, for labelled arms that share no coefficient.

The same numbers as `condition_windows` and `drift_change`, up to rounding, in O(mAd³ + p³) instead of O(mp³)
operations: Λ_i has one block (d, d) per arm, and Ω = D + GSGᵀ with diagonal D and S and few directions G.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.decomposition.arm_statistics import ArmStatistics


class BlockStep(NamedTuple):
    """One E step, and by how much the variances of the drift want to change.

    Attributes
    ----------
    mean, covariance : arrays, shapes (p,), (p, p)
        μ and C_μ.
    change : array, shape (p,)
        `drift_change` along the coordinates.
    change_along : array, shape (e,)
        `drift_change` along the directions.
    """

    mean: Array
    covariance: Array
    change: Array
    change_along: Array


class ArmBlocks:
    """Blocks of the information and scores of every window and arm."""

    def __init__(self, statistics: ArmStatistics) -> None:
        layout = statistics.layout
        self.shape = (layout.arms, layout.own)
        windows = len(statistics.scores)
        whole = statistics.information.reshape(windows, *self.shape, *self.shape)
        self.information = np.ascontiguousarray(np.einsum("makal->makl", whole))
        self.scores = statistics.scores.reshape(windows, *self.shape)

    def step(
        self, own: Array, along: Array, sizes: Array, precision: Array
    ) -> BlockStep:
        """The E step at D = diag(own) (p,), G = `along` (p, e), S = diag(sizes) (e,), and Π (p, p).

        W₀ = (I + ΛD)⁻¹Λ is block-diagonal. By the identity of Woodbury W = W₀ − LKLᵀ and w = w₀ − LKGᵀw₀,
        with L = W₀G, M = GᵀW₀G and K = (I + SM)⁻¹S.
        """
        arms, d = self.shape
        m = len(self.scores)
        p = arms * d
        e = along.shape[1]
        blocks = self.information
        scaled = np.eye(d) + blocks * own.reshape(arms, 1, d)
        solved = np.linalg.solve(
            scaled, np.concatenate([blocks, self.scores[..., None]], axis=3)
        )
        W0 = solved[..., :d]
        W0 = 0.5 * (W0 + W0.swapaxes(2, 3))
        w0 = solved[..., d].reshape(m, p)
        L = (W0 @ along.reshape(arms, d, e)).reshape(m, p, e)
        M = along.T @ L
        K = np.linalg.solve(
            np.eye(e) + sizes[:, None] * M, np.broadcast_to(np.diag(sizes), M.shape)
        )
        K = 0.5 * (K + K.swapaxes(1, 2))
        LK = L @ K
        w = w0 - np.einsum("mpe,me->mp", LK, w0 @ along)
        # ΣW_i
        total = -np.tensordot(LK, L, axes=([0, 2], [0, 2]))
        view = total.reshape(arms, d, arms, d)
        for arm in range(arms):
            view[arm, :, arm] += W0[:, arm].sum(axis=0)
        covariance = np.linalg.inv(precision + total)
        covariance = 0.5 * (covariance + covariance.T)
        mean = covariance @ w.sum(axis=0)
        of_mean = (W0 @ mean.reshape(arms, d, 1)).reshape(m, p)
        pull = w - of_mean + np.einsum("mpe,me->mp", LK, mean @ L)
        # diag(W_iC_μW_i) in three parts, W₀CW₀, twice W₀CLKLᵀ and LKLᵀCLKLᵀ, and diag(W_i).
        CL = covariance @ L
        own_blocks = np.einsum("akal->akl", covariance.reshape(arms, d, arms, d))
        inner = ((W0 @ own_blocks) * W0).sum(axis=3).reshape(m, p)
        W0CL = (W0 @ CL.reshape(m, arms, d, e)).reshape(m, p, e)
        LCL = L.swapaxes(1, 2) @ CL
        inner -= 2.0 * (W0CL * LK).sum(axis=2)
        inner += ((LK @ LCL) * LK).sum(axis=2)
        diagonal = np.einsum("makk->mak", W0).reshape(m, p) - (LK * L).sum(axis=2)
        change = (pull**2 - diagonal + inner).sum(axis=0)
        # Along G: W_iG = L(I − K_iM_i).
        rest = np.eye(e) - K @ M
        along_diagonal = np.einsum("mef,mfe->me", M, rest)
        along_inner = ((LCL @ rest) * rest).sum(axis=1)
        change_along = ((pull @ along) ** 2 - along_diagonal + along_inner).sum(axis=0)
        return BlockStep(mean, covariance, change, change_along)

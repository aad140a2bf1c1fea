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
        self.information, self.scores = statistics.blocks

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

        # W₀ and w₀ arm by arm (m, A, d, d + 1): I + ΛD is regular even where Λ is not.
        scaled = np.eye(d) + blocks * own.reshape(arms, 1, d)
        right = np.concatenate([blocks, self.scores[..., None]], axis=3)
        solved = np.linalg.solve(scaled, right)
        W0 = solved[..., :d]
        W0 = 0.5 * (W0 + W0.swapaxes(2, 3))
        w0 = solved[..., d].reshape(m, p)

        # The few common directions by Woodbury: L (m, p, e), M and K (m, e, e).
        L = (W0 @ along.reshape(arms, d, e)).reshape(m, p, e)
        M = along.T @ L
        inner = np.eye(e) + sizes[:, None] * M
        K = np.linalg.solve(inner, np.broadcast_to(np.diag(sizes), M.shape))
        K = 0.5 * (K + K.swapaxes(1, 2))
        LK = L @ K
        w = w0 - np.einsum("mpe,me->mp", LK, w0 @ along)

        # ΣW_i (p, p), and from it C_μ = (Π + ΣW_i)⁻¹ and μ = C_μΣw_i.
        total = -np.tensordot(LK, L, axes=([0, 2], [0, 2]))
        by_arms = total.reshape(arms, d, arms, d)
        for arm in range(arms):
            by_arms[arm, :, arm] += W0[:, arm].sum(axis=0)
        covariance = np.linalg.inv(precision + total)
        covariance = 0.5 * (covariance + covariance.T)
        mean = covariance @ w.sum(axis=0)

        # pull_i = w_i − W_iμ (m, p), with W_iμ in the same two parts.
        of_mean = (W0 @ mean.reshape(arms, d, 1)).reshape(m, p)
        of_directions = np.einsum("mpe,me->mp", LK, mean @ L)
        pull = w - of_mean + of_directions

        # diag(W_iC_μW_i) in three parts: W₀CW₀ − 2·W₀CLKLᵀ + LKLᵀCLKLᵀ.
        CL = covariance @ L
        own_blocks = np.einsum("akal->akl", covariance.reshape(arms, d, arms, d))
        of_blocks = ((W0 @ own_blocks) * W0).sum(axis=3).reshape(m, p)
        W0CL = (W0 @ CL.reshape(m, arms, d, e)).reshape(m, p, e)
        mixed = (W0CL * LK).sum(axis=2)
        LCL = L.swapaxes(1, 2) @ CL
        low_rank = ((LK @ LCL) * LK).sum(axis=2)
        uncertainty = of_blocks - 2.0 * mixed + low_rank
        diagonal = np.einsum("makk->mak", W0).reshape(m, p)
        diagonal = diagonal - (LK * L).sum(axis=2)
        change = (pull**2 - diagonal + uncertainty).sum(axis=0)

        # The same along G, where W_iG = L(I − K_iM_i).
        remaining = np.eye(e) - K @ M
        along_diagonal = np.einsum("mef,mfe->me", M, remaining)
        along_uncertainty = ((LCL @ remaining) * remaining).sum(axis=1)
        along_square = (pull @ along) ** 2
        change_along = (along_square - along_diagonal + along_uncertainty).sum(axis=0)
        return BlockStep(mean, covariance, change, change_along)

"""ArmMoments: additive statistics of contexts and rewards, per window and arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ArmMoments:
    """Sums over the rounds of m windows in which each of A arms was chosen; shards of the same windows add.

    Parameters
    ----------
    cells : WindowedMoments of m·A windows
        Of whole contexts [1, x] and rewards; window i·A + a holds arm a in window i of the log.
    features : ArmFeatures
        What the contexts are, and what becomes of them.
    edges : array, shape (m + 1,), or None
        Times that bound the windows.

    >>> import numpy as np
    >>> from invariant_bandits.logs.columns import Column
    >>> from invariant_bandits.logs.features import FeatureMap
    >>> features = ArmFeatures(FeatureMap((Column("hour"),)), ("a", "b"))
    >>> cells = WindowedMoments.empty(2, 2).update([[1.0, 9.0], [1.0, 7.0]], [1.0, 0.0], window=[0, 1])
    >>> moments = ArmMoments(cells, features)
    >>> moments.rounds, moments.cross[0, 0]
    (array([[1., 1.]]), array([1., 9.]))
    >>> moments.of_features().dim
    4
    """

    cells: WindowedMoments
    features: ArmFeatures
    edges: Any = None

    def __post_init__(self) -> None:
        if self.cells.windows % self.arms:
            raise InputError(f"cells must be windows × {self.arms} arms, got {self.cells.windows}")

    @property
    def arms(self) -> int:
        """Number of arms A."""
        return len(self.features.labels)

    @property
    def windows(self) -> int:
        """Number of windows m."""
        return self.cells.windows // self.arms

    @property
    def rounds(self) -> Array:
        """Rounds (m, A) in which each arm was chosen."""
        return self.cells.chosen.count.reshape(self.windows, self.arms)

    @property
    def gram(self) -> Array:
        """Σ z zᵀ (m, A, d, d)."""
        return self._own_products()[..., :-1, :-1]

    @property
    def cross(self) -> Array:
        """Σ z r (m, A, d)."""
        return self._own_products()[..., :-1, -1]

    @property
    def reward_squares(self) -> Array:
        """Σ r² (m, A)."""
        return self._own_products()[..., -1, -1]

    def _own_products(self) -> Array:
        """Σ [z, r] [z, r]ᵀ (m, A, d + 1, d + 1)."""
        whole = self.cells.chosen.products()
        whole = whole.reshape(self.windows, self.arms, *whole.shape[1:])
        own = np.column_stack([self.features.own_entries, np.full(self.arms, self.cells.dim)])
        return np.stack([whole[:, arm][:, entries[:, None], entries] for arm, entries in enumerate(own)], axis=1)

    @property
    def rewards_are_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        return are_binary(self.cells)

    def of_features(self) -> WindowedMoments:
        """Moments of φ(x, a) of the chosen arms, m windows of p features; all powers exact."""
        total = PowerSums.empty(self.windows, self.features.dim + 1)
        for arm in range(self.arms):
            total = total.merged(self._placed(arm))
        return WindowedMoments(total, None, self.edges)

    def _placed(self, arm: int) -> PowerSums:
        """Sums of [φ, r] over the rounds of one arm: each feature is an entry of the context times a number."""
        sums = self.cells.chosen
        entry = np.append(self.features.entries[arm], self.cells.dim)
        factor = np.append(self.features.factors[arm], 1.0)
        rows = slice(arm, None, self.arms)
        return PowerSums(
            count=sums.count[rows],
            mean=sums.mean[rows][:, entry] * factor,
            scatter=sums.scatter[rows][:, entry[:, None], entry] * np.outer(factor, factor),
            cubes=sums.cubes[rows][:, entry] * factor**3,
            quartics=sums.quartics[rows][:, entry] * factor**4,
            between=sums.between[rows][:, entry] * factor**2,
        )

    def of_contexts(self) -> WindowedMoments:
        """Moments of whole contexts and rewards, whatever the arm, m windows."""
        return self.cells.regrouped(np.arange(0, self.cells.windows, self.arms))

    def __add__(self, other: object) -> ArmMoments:
        """Moments of two shards of the same windows."""
        if not isinstance(other, ArmMoments):
            return NotImplemented
        return ArmMoments(self.cells + other.cells, self.features, self.edges)


def are_binary(moments: WindowedMoments) -> bool:
    """Whether every reward is 0 or 1: Σ r²(r − 1)² = 0."""
    pooled = moments.chosen.grouped(np.array([0]))
    n, mean = pooled.count[0], pooled.mean[0, -1]
    second, third, fourth = pooled.scatter[0, -1, -1], pooled.cubes[0, -1], pooled.quartics[0, -1]
    squares = second + n * mean**2
    cubes = third + 3.0 * mean * second + n * mean**3
    quartics = fourth + 4.0 * mean * third + 6.0 * mean**2 * second + n * mean**4
    return bool(abs(quartics - 2.0 * cubes + squares) <= ROUNDING * max(squares, 1.0))


def telling_rounds(moments: WindowedMoments) -> int:
    """How many rounds there are or, of rewards that are 0 or 1, how many with mean ½ would tell as much: 4nπ(1 − π)."""
    if not are_binary(moments):
        return int(moments.rounds)
    mean = moments.chosen.grouped(np.array([0])).mean[0, -1]
    return int(4.0 * moments.rounds * mean * (1.0 - mean))

"""ArmMoments: sums of contexts and rewards per window and arm; ArmSample: some rounds themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.features.sharing import has_binary_rewards
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

if TYPE_CHECKING:
    from invariant_bandits.features.arm_maps import ArmCoefficients


@dataclass(frozen=True, eq=False)
class ArmMoments:
    """Sums over the rounds of m windows in which each of A arms was chosen; shards of the same windows add.

    Parameters
    ----------
    cells : WindowedMoments of m·A windows
        Of whole contexts [1, x] and rewards; window i·A + a holds arm a in window i of the log.
    features : ArmCoefficients
        What the contexts are, and what becomes of them.
    edges : array, shape (m + 1,), or None
        Times that bound the windows.

    >>> import numpy as np
    >>> from invariant_bandits.features.columns import Column
    >>> from invariant_bandits.features.arm_maps import OwnCoefficients
    >>> from invariant_bandits.features.rows import RowFeatures
    >>> features = OwnCoefficients(RowFeatures((Column("hour"),)), ("a", "b"))
    >>> cells = WindowedMoments.empty(2, 2).update([[1.0, 9.0], [1.0, 7.0]], [1.0, 0.0], window=[0, 1])
    >>> moments = ArmMoments(cells, features)
    >>> moments.rounds, moments.cross[0, 0]
    (array([[1., 1.]]), array([1., 9.]))
    >>> moments.of_features().dim
    4
    """

    cells: WindowedMoments
    features: ArmCoefficients
    edges: Any = None

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
        return self.cells.counts.reshape(self.windows, self.arms)

    @property
    def gram(self) -> Array:
        """Σ z zᵀ (m, A, d, d)."""
        return self._own_products()[..., :-1, :-1]

    @property
    def cross(self) -> Array:
        """Σ z r (m, A, d)."""
        return self._own_products()[..., :-1, -1]

    def _own_products(self) -> Array:
        """Return Σ [z, r] [z, r]ᵀ (m, A, d + 1, d + 1)."""
        whole = self.cells.chosen.products()
        whole = whole.reshape(self.windows, self.arms, *whole.shape[1:])
        own = np.column_stack(
            [self.features.own_entries, np.full(self.arms, self.cells.dim)]
        )
        return whole[
            :, np.arange(self.arms)[:, None, None], own[:, :, None], own[:, None, :]
        ]

    @property
    def rewards_are_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        return has_binary_rewards(self.cells)

    def of_features(self) -> WindowedMoments:
        """Return moments of φ(x, a) of the chosen arms, m windows of p features; all powers exact.

        A feature is an entry of the context times a number, by arm. The sums of the arms merge at once: δ
        is the distance of an arm's mean from that of all rounds, and nδδᵀ is added to its scatter.
        """
        sums = self.cells.chosen
        every = np.arange(self.arms)[:, None]
        entry = np.column_stack(
            [self.features.entries, np.full(self.arms, self.cells.dim)]
        )
        factor = np.column_stack([self.features.factors, np.ones(self.arms)])

        def by_arm(values: Array) -> Array:
            """Numbers of the entries (m·A, 1 + q) as those of [φ, r] (m, A, p + 1), without the factors."""
            return values.reshape(self.windows, self.arms, -1)[:, every, entry]

        n = self.rounds[:, :, None]
        total = n.sum(axis=1)
        mean = by_arm(sums.mean) * factor
        center = (n / np.maximum(total, 1.0)[:, None] * mean).sum(axis=1)
        step = mean - center[:, None]
        square = by_arm(np.diagonal(sums.scatter, axis1=1, axis2=2)) * factor**2
        cubes = by_arm(sums.cubes) * factor**3
        quartics = by_arm(sums.quartics) * factor**4
        between = by_arm(sums.between) * factor**2
        scatter = step.swapaxes(1, 2) @ (n * step)
        for arm in range(self.arms):
            # All other features are 0 in the rounds of the arm.
            used = np.flatnonzero(factor[arm])
            places = entry[arm, used]
            own = sums.scatter[arm :: self.arms, places[:, None], places]
            own = own * np.outer(factor[arm, used], factor[arm, used])
            scatter[:, used[:, None], used] += own
        merged = PowerSums(
            count=total[:, 0],
            mean=center,
            scatter=scatter,
            # δ³n + 3δM₂ and δ⁴n + 6δ²M₂ + 4δM₃ (Pébay 2008).
            cubes=(cubes + 3.0 * step * square + n * step**3).sum(axis=1),
            quartics=(
                quartics + 4.0 * step * cubes + 6.0 * step**2 * square + n * step**4
            ).sum(axis=1),
            between=(between + n * step**2).sum(axis=1),
        )
        return WindowedMoments(merged, None, self.edges)

    def __add__(self, other: object) -> ArmMoments:
        """Return moments of two shards of the same windows."""
        if not isinstance(other, ArmMoments):
            return NotImplemented
        return ArmMoments(self.cells + other.cells, self.features, self.edges)


class ArmSample(NamedTuple):
    """Rounds spread evenly over a log.

    Parameters
    ----------
    contexts : array, shape (n, d)
        z of the chosen arm, the leading 1 included.
    arms : array of int, shape (n,)
        Index of the chosen arm.
    rewards : array, shape (n,)
        Its reward.
    share : float
        Which share of the rows of the log was taken; 1 if all were.
    windows : array of int, shape (n,)
        Window of the round.
    """

    contexts: Array
    arms: Array
    rewards: Array
    share: float
    windows: Any = None

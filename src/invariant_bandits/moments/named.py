"""The parts of windowed moments under the names that the theory gives them."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.moments.power_sums import PowerSums


class NamedMoments:
    """What `chosen`, the sums over [features of the chosen action, reward], says of m windows and p features."""

    chosen: PowerSums

    @property
    def dim(self) -> int:
        """Number of features p."""
        return int(self.chosen.mean.shape[1]) - 1

    @property
    def windows(self) -> int:
        """Number of windows m."""
        return len(self.chosen.count)

    @property
    def rounds(self) -> int:
        """Number of logged rounds in all windows."""
        return int(self.chosen.count.sum())

    @property
    def counts(self) -> Array:
        """Rounds per window (m,)."""
        return self.chosen.count

    @property
    def feature_mean(self) -> Array:
        """Mean features of the chosen actions per window (m, p)."""
        return self.chosen.mean[:, :-1]

    @property
    def reward_mean(self) -> Array:
        """Mean reward per window (m,)."""
        return self.chosen.mean[:, -1]

    @property
    def gram(self) -> Array:
        """Centred sums of products of the chosen features per window (m, p, p)."""
        return self.chosen.scatter[:, :-1, :-1]

    @property
    def cross(self) -> Array:
        """Centred sums of chosen features times rewards per window (m, p)."""
        return self.chosen.scatter[:, :-1, -1]

    @property
    def reward_square(self) -> Array:
        """Centred sums of squared rewards per window (m,)."""
        return self.chosen.scatter[:, -1, -1]

    def second_moment(self) -> Array:
        """Uncentred Σφφᵀ of the chosen actions over all rounds (p, p), as in Assumption 2 of the paper."""
        mean = self.feature_mean
        return np.asarray(self.gram.sum(axis=0) + (mean * self.counts[:, None]).T @ mean)

"""PowerSums: counts, means and centred power sums of several variables in several windows, and how they
merge.

Two sets of rows merge by adding their sums plus one rank-one term for the distance of their means (Chan,
Golub & LeVeque 1983), so large means cost no digits and rows may arrive in any order, batch or shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.storage import MOST_ROUNDS, ArraySpec

LARGEST_MEAN, LARGEST_SQUARE, LARGEST_POWER = 1e78, 1e180, 1.7e308
"""Of numbers whose fourth powers can be summed."""
FAR_FROM_ZERO = 100.0  # a squared mean beyond so many variances would cost digits


@dataclass(eq=False)
class PowerSums:
    """Counts, means and centred power sums of d variables in each of m windows.

    Attributes
    ----------
    count : array, shape (m,)
        Number of rows.
    mean : array, shape (m, d)
        Mean of every variable.
    scatter : array, shape (m, d, d)
        Sums of products about the means.
    cubes : array, shape (m, d)
        Sums of third powers about the means.
    quartics : array, shape (m, d)
        Sums of fourth powers about the means.
    between : array, shape (m, d)
        The part of the diagonal of `scatter` that lies between rounds, smaller than all of it where one round
        contributes several rows.

    >>> import numpy as np
    >>> rows = np.array([[1.0, 0.0], [3.0, 4.0]])
    >>> power_sums_of_rows(rows, None, 1).covariance()
    array([[[1., 2.],
            [2., 4.]]])
    """

    count: Annotated[Array, ArraySpec(("m",), least=0.0, most=MOST_ROUNDS)]
    mean: Annotated[Array, ArraySpec(("m", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN)]
    scatter: Annotated[Array, ArraySpec(("m", "d", "d"), least=-LARGEST_SQUARE, most=LARGEST_SQUARE)]
    cubes: Annotated[Array, ArraySpec(("m", "d"), least=-LARGEST_POWER, most=LARGEST_POWER)]
    quartics: Annotated[Array, ArraySpec(("m", "d"), least=-LARGEST_POWER, most=LARGEST_POWER)]
    between: Annotated[Array, ArraySpec(("m", "d"), least=-LARGEST_SQUARE, most=LARGEST_SQUARE)]

    @classmethod
    def empty(cls, windows: int, dim: int) -> Self:
        """Sums over no rows."""
        flat = (windows, dim)
        return cls(
            np.zeros(windows),
            np.zeros(flat),
            np.zeros((windows, dim, dim)),
            np.zeros(flat),
            np.zeros(flat),
            np.zeros(flat),
        )

    def arrays(self) -> dict[str, Array]:
        """The fields by name."""
        return dict(vars(self))

    # -- windows --

    def at(self, windows: slice) -> PowerSums:
        """Some of the windows, as their own arrays."""
        return PowerSums(**{name: array[windows].copy() for name, array in self.arrays().items()})

    def put(self, window: int, sums: PowerSums) -> None:
        """Merge the single window of `one` into `window`, in place."""
        new = self.at(slice(window, window + 1)).merged(sums)
        for name, array in self.arrays().items():
            array[window] = getattr(new, name)[0]

    def followed_by(self, later: PowerSums) -> PowerSums:
        """These windows, then those of `later`."""
        theirs = later.arrays()
        return PowerSums(
            **{name: np.concatenate([mine, theirs[name]]) for name, mine in self.arrays().items()}
        )

    def grouped(self, starts: Array) -> PowerSums:
        """Merge runs of neighbouring windows; run g begins at `starts[g]`."""
        ends = [*starts[1:], len(self.count)]
        result = PowerSums.empty(len(starts), self.mean.shape[1])
        for group, (first, last) in enumerate(zip(starts, ends, strict=True)):
            for window in range(int(first), int(last)):
                result.put(group, self.at(slice(window, window + 1)))
        return result

    # -- rows --

    def merged(self, other: PowerSums) -> PowerSums:
        """Sums over both sets of rows, window by window (Pébay 2008 for the third and fourth powers)."""
        total = self.count + other.count
        n = np.where(total > 0, total, 1.0)[:, None]
        a, b = self.count[:, None], other.count[:, None]
        step = other.mean - self.mean
        square = step * step
        share = a * b / n
        own, foreign = (np.diagonal(side.scatter, axis1=1, axis2=2) for side in (self, other))
        return PowerSums(
            count=total,
            mean=self.mean * (a / n) + other.mean * (b / n),
            scatter=self.scatter + other.scatter + share[:, :, None] * (step[:, :, None] * step[:, None, :]),
            cubes=self.cubes
            + other.cubes
            + share * (a - b) / n * square * step
            + 3.0 * step * (a * foreign - b * own) / n,
            quartics=self.quartics
            + other.quartics
            + share * (a * a - a * b + b * b) / (n * n) * square * square
            + 6.0 * square * (a * a * foreign + b * b * own) / (n * n)
            + 4.0 * step * (a * other.cubes - b * self.cubes) / n,
            between=self.between + other.between + share * square,
        )

    # -- variables --

    def transformed(self, change: Array) -> PowerSums:
        """Sums of change @ x; third and fourth powers do not follow a linear map and stay as they are."""
        fields = self.at(slice(None)).arrays() | {
            "mean": self.mean @ change.T,
            "scatter": change @ self.scatter @ change.T,
        }
        return PowerSums(**fields)

    def rescaled(self, kept: Array, shift: Array, scale: Array) -> PowerSums:
        """Sums of (x[kept] − shift) / scale, every power exactly."""
        return PowerSums(
            count=self.count.copy(),
            mean=(self.mean[:, kept] - shift) / scale,
            scatter=self.scatter[:, kept[:, None], kept] / (scale[:, None] * scale),
            cubes=self.cubes[:, kept] / scale**3,
            quartics=self.quartics[:, kept] / scale**4,
            between=self.between[:, kept] / scale**2,
        )

    # -- reading --

    def products(self) -> Array:
        """Sums of products (m, d, d), not about the means."""
        return np.asarray(
            self.scatter + self.count[:, None, None] * self.mean[:, :, None] * self.mean[:, None, :]
        )

    def padded(self, places: Array) -> PowerSums:
        """The same rows with variables that are always 0 before the variables at `places`, as in
        numpy.insert.
        """
        grown = {
            name: np.insert(array, places, 0.0, axis=1)
            for name, array in self.arrays().items()
            if array.ndim > 1
        }
        grown["scatter"] = np.insert(grown["scatter"], places, 0.0, axis=2)
        return PowerSums(count=self.count, **grown)

    def covariance(self) -> Array:
        """Within-window covariances (m, d, d)."""
        return np.asarray(self.scatter / self.count[:, None, None])

    def tail_weight(self, columns: int) -> Array:
        """Mean over the first `columns` variables of kurtosis / 3, per window (m,): 1 for Gaussian rows.

        For elliptical rows this is the factor by which the variance of a sample correlation is inflated.
        """
        variance = np.diagonal(self.scatter, axis1=1, axis2=2)[:, :columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.quartics[:, :columns] * self.count[:, None] / (3.0 * variance * variance)
        return np.asarray(np.nan_to_num(ratio, nan=1.0, posinf=1.0).mean(axis=1))

    def independent_rows(self, rounds: Array) -> Array:
        """How many independent rows the rows of each window are worth (m,).

        Actions offered in one round often share their context. With K rows per round and correlation ρ
        between them, products of features are correlated by about ρ², so n rows are worth n / (1 + (K −
        1)ρ²).
        """
        per_round = self.count / np.maximum(rounds, 1.0)
        total = np.diagonal(self.scatter, axis1=1, axis2=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.nan_to_num(self.between / total, nan=1.0)
            correlation = (per_round[:, None] * share - 1.0) / (per_round[:, None] - 1.0)
        square = np.nan_to_num(np.clip(correlation, 0.0, 1.0) ** 2, nan=0.0).mean(axis=1)
        return np.asarray(self.count / (1.0 + (per_round - 1.0) * square))


def power_sums_of_rows(features: Array, rewards: Array | None, per_round: int | Array) -> PowerSums:
    """Sums over one batch of rows as a single window.

    Parameters
    ----------
    features : array, shape (n, p)
        One row per action.
    rewards : array, shape (n,), optional
        They become the last variable.
    per_round : int, or array of int, shape (rounds,)
        How many rows each round has.
    """
    n = float(len(features))
    keep = features.shape[1] + (rewards is not None)
    if rewards is None:
        rewards = np.zeros(len(features))
    origin = np.zeros(features.shape[1] + 1)
    gram, powers, between = _raw_sums(features, rewards, per_round)
    mean = powers[0] / n
    if (n * mean * mean > FAR_FROM_ZERO * (powers[1] - n * mean * mean)).any():
        origin = mean
        gram, powers, between = _raw_sums(features - origin[:-1], rewards - origin[-1], per_round)
        mean = powers[0] / n
    d = features.shape[1] + 1
    scatter = np.empty((d, d))
    scatter[:-1, :-1] = gram - n * np.outer(mean[:-1], mean[:-1])
    scatter[-1, :-1] = scatter[:-1, -1] = powers[4][:-1] - n * mean[:-1] * mean[-1]
    scatter[-1, -1] = (powers[1] - n * mean * mean)[-1]
    cubes = powers[2] - 3.0 * mean * powers[1] + 2.0 * n * mean**3
    quartics = powers[3] - 4.0 * mean * powers[2] + 6.0 * mean**2 * powers[1] - 3.0 * n * mean**4
    between = between - n * mean * mean
    return PowerSums(
        np.array([n]),
        (mean + origin)[None, :keep],
        scatter[None, :keep, :keep],
        cubes[None, :keep],
        quartics[None, :keep],
        between[None, :keep],
    )


def _raw_sums(features: Array, rewards: Array, per_round: int | Array) -> tuple[Array, Array, Array]:
    """About zero: Σφφᵀ (p, p), sums of powers (5, p + 1) and the sums between rounds (p + 1,) of [φ,
    reward].
    """
    from invariant_bandits.moments import kernels

    gram = features.T @ features
    if isinstance(per_round, int):
        powers, between = kernels.power_sums(features, rewards, per_round)
    else:
        powers, between = kernels.power_sums(features, rewards, 1)
        between[:-1] = kernels.round_sums(features, per_round)
    return gram, powers, between

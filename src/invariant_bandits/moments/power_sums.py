"""PowerSums: counts, means and centred power sums of several variables in several windows, and how they
merge.

Two sets of rows merge by adding their sums plus one rank-one term for the distance of their means (Chan,
Golub & LeVeque 1983), so large means cost no digits and rows may arrive in any order, batch or shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, NamedTuple, Self

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
    >>> power_sums_of_rows(rows, None).covariance()
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
        mean, cubes, quartics, between = np.zeros((4, windows, dim))
        return cls(np.zeros(windows), mean, np.zeros((windows, dim, dim)), cubes, quartics, between)

    def arrays(self) -> dict[str, Array]:
        """The fields by name."""
        return dict(vars(self))

    # -- windows --

    def at(self, windows: slice) -> PowerSums:
        """Some of the windows, as their own arrays."""
        return PowerSums(**{name: array[windows].copy() for name, array in self.arrays().items()})

    def put(self, window: int, sums: PowerSums) -> None:
        """Merge the single window of `sums` into `window`, in place."""
        new = self.at(slice(window, window + 1)).merged(sums)
        for name, array in self.arrays().items():
            array[window] = getattr(new, name)[0]

    def followed_by(self, later: PowerSums) -> PowerSums:
        """These windows, then those of `later`."""
        pairs = zip(self.arrays().values(), later.arrays().values(), strict=True)
        return PowerSums(*map(np.concatenate, pairs))

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
        changed = {"mean": self.mean @ change.T, "scatter": change @ self.scatter @ change.T}
        return replace(self.at(slice(None)), **changed)

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

    def about_zero(self) -> PowerSums:
        """The same rows with sums about 0 instead of about the means."""
        n, mean, square = self.count[:, None], self.mean, np.diagonal(self.scatter, axis1=1, axis2=2)
        return PowerSums(
            count=self.count.copy(),
            mean=np.zeros_like(mean),
            scatter=self.products(),
            cubes=self.cubes + 3.0 * mean * square + n * mean**3,
            quartics=self.quartics + 4.0 * mean * self.cubes + 6.0 * mean**2 * square + n * mean**4,
            between=self.between + n * mean**2,
        )

    def padded(self, places: Array) -> PowerSums:
        """The same rows with variables that are always 0 before the variables at `places`, as in
        numpy.insert.
        """
        count, *others = self.arrays().values()
        padded = PowerSums(count, *(np.insert(array, places, 0.0, axis=1) for array in others))
        return replace(padded, scatter=np.insert(padded.scatter, places, 0.0, axis=2))

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


def power_sums_of_rows(features: Array, rewards: Array | None, counts: Array | None = None) -> PowerSums:
    """Sums over one batch of rows as a single window.

    Parameters
    ----------
    features : array, shape (n, p)
        One row per action.
    rewards : array, shape (n,), optional
        They become the last variable.
    counts : array of int, shape (rounds,), optional
        How many rows each round has; one if not given.
    """
    n, d = float(len(features)), features.shape[1] + 1
    keep = d - (rewards is None)
    if rewards is None:
        rewards = np.zeros(len(features))
    origin = np.zeros(d)
    # A column of ones is far from zero: then only the means of a first pass are needed.
    if counts is None and (features[:, 0] == 1.0).all():
        mean, is_far = _compiled_loops().means(features, rewards) / n, True
    else:
        gram, powers, between = _raw_sums(features, rewards, counts)
        mean = powers[0] / n
        is_far = bool((n * mean * mean > FAR_FROM_ZERO * (powers[1] - n * mean * mean)).any())
    if is_far:
        origin = mean
        gram, powers, between = _raw_sums(features - origin[:-1], rewards - origin[-1], counts)
        mean = powers[0] / n
    scatter = np.empty((d, d))
    scatter[:-1, :-1] = gram - n * np.outer(mean[:-1], mean[:-1])
    scatter[-1, :-1] = scatter[:-1, -1] = powers[4][:-1] - n * mean[:-1] * mean[-1]
    scatter[-1, -1] = (powers[1] - n * mean * mean)[-1]
    cubes = powers[2] - 3.0 * mean * powers[1] + 2.0 * n * mean**3
    quartics = powers[3] - 4.0 * mean * powers[2] + 6.0 * mean**2 * powers[1] - 3.0 * n * mean**4
    between = between - n * mean * mean
    per_variable = (array[None, :keep] for array in (cubes, quartics, between))
    return PowerSums(np.array([n]), (mean + origin)[None, :keep], scatter[None, :keep, :keep], *per_variable)


def _raw_sums(features: Array, rewards: Array, counts: Array | None) -> tuple[Array, Array, Array]:
    """About zero: Σφφᵀ (p, p), sums of powers (5, p + 1) and the sums between rounds (p + 1,) of [φ,
    reward].
    """
    loops = _compiled_loops()
    powers = loops.columns(features, rewards)
    between = powers[1].copy()
    if counts is not None:
        between[:-1] = loops.rounds(features, counts)
    return features.T @ features, powers, between


class _Loops(NamedTuple):
    """`_column_sums`, `_plain_sums` and `_round_sums`, compiled."""

    columns: Any
    means: Any
    rounds: Any


@cache
def _compiled_loops() -> _Loops:
    """Return the compiled loops; importing numba takes too long to do it earlier."""
    from numba import njit

    columns = njit(cache=True, nogil=True, fastmath={"contract"})(_column_sums)
    plain = njit(cache=True, nogil=True)
    return _Loops(columns, plain(_plain_sums), plain(_round_sums))


def _plain_sums(X: Any, r: Any) -> Any:
    """Sums (p + 1,) of the rows [φ, r], added in the order of `_column_sums`; X is (n, p), r is (n,)."""
    n, p = X.shape
    sums = np.zeros(p + 1)
    for t in range(n):
        sums[p] += r[t]
        for j in range(p):
            sums[j] += X[t, j]
    return sums


def _column_sums(X: Any, r: Any) -> Any:
    """Sums (5, p + 1) of x, x², x³, x⁴ and x·r over the rows [φ, r]; X is (n, p), r is (n,)."""
    n, p = X.shape
    sums = np.zeros((5, p + 1))
    for t in range(n):
        reward = r[t]
        square = reward * reward
        sums[0, p] += reward
        sums[1, p] += square
        sums[2, p] += square * reward
        sums[3, p] += square * square
        for j in range(p):
            x = X[t, j]
            xx = x * x
            sums[0, j] += x
            sums[1, j] += xx
            sums[2, j] += xx * x
            sums[3, j] += xx * xx
            sums[4, j] += x * reward
    sums[4, p] = sums[1, p]
    return sums


def _round_sums(X: Any, counts: Any) -> Any:
    """Σ over rounds of (sum of its rows)² / its number of rows, per column (p,); X is (Σ counts, p),
    round by round.
    """
    p = X.shape[1]
    between, inside = np.zeros(p), np.zeros(p)
    row = 0
    for count in counts:
        inside[:] = 0.0
        for _ in range(count):
            for j in range(p):
                inside[j] += X[row, j]
            row += 1
        for j in range(p):
            between[j] += inside[j] * inside[j] / count
    return between

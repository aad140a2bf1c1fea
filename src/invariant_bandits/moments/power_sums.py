"""PowerSums: counts, means and centred power sums of several variables in several windows.

Two sets of rows merge by adding their sums plus one rank-one term for the distance of their means (Chan,
Golub & LeVeque 1983), so large means cost no digits and rows may arrive in any order, batch or shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.storage import MOST_ROUNDS, ArraySpec

LARGEST_MEAN = 1e78
LARGEST_SQUARE = 1e180
LARGEST_POWER = 1.7e308
"""Of the means, and of sums of squares and of higher powers, of numbers whose fourth powers can be summed."""


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
    mean: Annotated[
        Array, ArraySpec(("m", "d"), least=-LARGEST_MEAN, most=LARGEST_MEAN)
    ]
    scatter: Annotated[
        Array, ArraySpec(("m", "d", "d"), least=-LARGEST_SQUARE, most=LARGEST_SQUARE)
    ]
    cubes: Annotated[
        Array, ArraySpec(("m", "d"), least=-LARGEST_POWER, most=LARGEST_POWER)
    ]
    quartics: Annotated[
        Array, ArraySpec(("m", "d"), least=-LARGEST_POWER, most=LARGEST_POWER)
    ]
    between: Annotated[
        Array, ArraySpec(("m", "d"), least=-LARGEST_SQUARE, most=LARGEST_SQUARE)
    ]

    @classmethod
    def empty(cls, windows: int, dim: int) -> Self:
        """Sums over no rows."""
        return cls(
            count=np.zeros(windows),
            mean=np.zeros((windows, dim)),
            scatter=np.zeros((windows, dim, dim)),
            cubes=np.zeros((windows, dim)),
            quartics=np.zeros((windows, dim)),
            between=np.zeros((windows, dim)),
        )

    # -- windows --

    def at(self, windows: slice | Array) -> PowerSums:
        """Some of the windows, as their own arrays."""
        return PowerSums(
            **{name: array[windows].copy() for name, array in vars(self).items()}
        )

    def put(self, windows: slice | Array, sums: PowerSums) -> None:
        """Merge the windows of `sums` into these different `windows`, in place."""
        new = self.at(windows).merged(sums)
        for name, array in vars(self).items():
            array[windows] = getattr(new, name)

    def followed_by(self, later: PowerSums) -> PowerSums:
        """These windows, then those of `later`."""
        pairs = zip(vars(self).values(), vars(later).values(), strict=True)
        return PowerSums(*map(np.concatenate, pairs))

    def grouped(self, starts: Array) -> PowerSums:
        """Merge runs of neighbouring windows; run g begins at `starts[g]`."""
        group = np.searchsorted(starts, np.arange(len(self.count)), side="right") - 1
        result = PowerSums.empty(len(starts), self.mean.shape[1])
        for window, into in enumerate(group.tolist()):
            one = self.at(slice(window, window + 1))
            result.put(slice(into, into + 1), one)
        return result

    # -- rows --

    def merged(self, other: PowerSums) -> PowerSums:
        """Sums over both sets of rows, window by window (Pébay 2008 for the third and fourth powers)."""
        total = self.count + other.count
        n = np.where(total > 0, total, 1.0)[:, None]
        a = self.count[:, None]
        b = other.count[:, None]
        step = other.mean - self.mean
        square = step * step
        share = a * b / n
        # The second powers of each side (m, d) enter the third and fourth powers of both.
        mine = np.diagonal(self.scatter, axis1=1, axis2=2)
        others = np.diagonal(other.scatter, axis1=1, axis2=2)
        # M₂: δδᵀab/n, one rank-one term for the distance δ of the means.
        rank_one = share[:, :, None] * (step[:, :, None] * step[:, None, :])
        # M₃: δ³ab(a − b)/n² + 3δ(a·M₂ᵇ − b·M₂ᵃ)/n
        cubes = (
            self.cubes
            + other.cubes
            + share * (a - b) / n * square * step
            + 3.0 * step * (a * others - b * mine) / n
        )
        # M₄: δ⁴ab(a² − ab + b²)/n³ + 6δ²(a²M₂ᵇ + b²M₂ᵃ)/n² + 4δ(a·M₃ᵇ − b·M₃ᵃ)/n
        quartics = (
            self.quartics
            + other.quartics
            + share * (a * a - a * b + b * b) / (n * n) * square * square
            + 6.0 * square * (a * a * others + b * b * mine) / (n * n)
            + 4.0 * step * (a * other.cubes - b * self.cubes) / n
        )
        return PowerSums(
            count=total,
            # A weighted mean, not mean + step·b/n: exact where one side is empty.
            mean=self.mean * (a / n) + other.mean * (b / n),
            scatter=self.scatter + other.scatter + rank_one,
            cubes=cubes,
            quartics=quartics,
            between=self.between + other.between + share * square,
        )

    def times(self, weight: float) -> PowerSums:
        """Sums over the same rows, each of which counts `weight` times."""
        weighted = {name: weight * array for name, array in vars(self).items()}
        return PowerSums(**weighted | {"mean": self.mean})

    # -- variables --

    def transformed(self, change: Array) -> PowerSums:
        """Sums of change @ x; third and fourth powers do not follow a linear map and stay as they are."""
        return replace(
            self.at(slice(None)),
            mean=self.mean @ change.T,
            scatter=change @ self.scatter @ change.T,
        )

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
            self.scatter
            + self.count[:, None, None] * self.mean[:, :, None] * self.mean[:, None, :]
        )

    def about_zero(self) -> PowerSums:
        """The same rows with sums about 0 instead of about the means."""
        n = self.count[:, None]
        mean = self.mean
        square = np.diagonal(self.scatter, axis1=1, axis2=2)
        # Σ(x̄ + d)^k by the binomial theorem, where Σd = 0.
        quartics = (
            self.quartics
            + 4.0 * mean * self.cubes
            + 6.0 * mean**2 * square
            + n * mean**4
        )
        return PowerSums(
            count=self.count.copy(),
            mean=np.zeros_like(mean),
            scatter=self.products(),
            cubes=self.cubes + 3.0 * mean * square + n * mean**3,
            quartics=quartics,
            between=self.between + n * mean**2,
        )

    def padded(self, indices: Array) -> PowerSums:
        """Add variables that are always 0 before those at `indices`, as numpy.insert does."""
        padded = {
            name: np.insert(array, indices, 0.0, axis=1)
            for name, array in vars(self).items()
            if name != "count"
        }
        padded["scatter"] = np.insert(padded["scatter"], indices, 0.0, axis=2)
        return PowerSums(self.count, **padded)

    def covariance(self) -> Array:
        """Within-window covariances (m, d, d)."""
        return self.scatter / self.count[:, None, None]

    def tail_weight(self, columns: int) -> Array:
        """Mean over the first `columns` variables of kurtosis / 3, per window (m,): 1 for Gaussian rows.

        For elliptical rows this is the factor by which the variance of a sample correlation is inflated.
        """
        variance = np.diagonal(self.scatter, axis1=1, axis2=2)[:, :columns]
        # n·M₄ / (3·M₂²): 1 for Gaussian columns; constant ones count as such.
        fourth = self.quartics[:, :columns] * self.count[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = fourth / (3.0 * variance * variance)
        ratio = np.nan_to_num(ratio, nan=1.0, posinf=1.0)
        return np.asarray(ratio.mean(axis=1))

    def independent_rows(self, rounds: Array) -> Array:
        """How many independent rows the rows of each window are worth (m,).

        Actions offered in one round often share their context. With K rows per round and correlation ρ
        between them, products of features are correlated by about ρ², so n rows are worth n / (1 + (K −
        1)ρ²).
        """
        per_round = self.count / np.maximum(rounds, 1.0)
        total = np.diagonal(self.scatter, axis1=1, axis2=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Between rounds lies the share (1 + (K − 1)ρ)/K of the variance.
            share = np.nan_to_num(self.between / total, nan=1.0)
            excess = per_round[:, None] * share - 1.0
            correlation = excess / (per_round[:, None] - 1.0)
        square = np.clip(correlation, 0.0, 1.0) ** 2
        mean_square = np.nan_to_num(square, nan=0.0).mean(axis=1)
        return np.asarray(self.count / (1.0 + (per_round - 1.0) * mean_square))


def power_sums_of_rows(
    features: Array,
    rewards: Array | None,
    counts: Array | None = None,
    window: Array | None = None,
    windows: int = 1,
) -> PowerSums:
    """Sums over one batch of rows in one or several windows, none of them empty.

    Parameters
    ----------
    features : array, shape (n, p)
        One row per action.
    rewards : array, shape (n,), optional
        They become the last variable.
    counts : array of int, shape (rounds,), optional
        How many rows each round has; one if not given.
    window : array of int, shape (n,), optional
        Window of every row, rows of a round in the same; the first one if not given.
    windows : int
        Their number.
    """
    if window is None:
        window = np.zeros(len(features), dtype=np.int64)
    last = np.empty(0) if rewards is None else rewards
    # About the mean of its window, so that no digits are lost to a distant mean.
    loops = _compiled_loops()
    origin, starts = loops.means(features, last, window, windows)
    centred, powers = loops.centre(features, last, window, origin, starts)
    products = []
    for first, end in pairwise(starts.tolist()):
        part = centred[first:end]
        products.append(part.T @ part)
    about_origin = np.array(products)
    n = np.diff(starts).astype(np.float64)[:, None]
    # What rounding left between the origin and the mean (m, d); the sums move by it.
    mean = powers[:, 0] / n
    squares = np.diagonal(about_origin, axis1=1, axis2=2)
    between = squares
    if counts is not None:
        between = loops.round_sums(features, counts, window, origin)
    # Σ(d − mean)^k by the binomial theorem, where Σd = n·mean.
    quartics = (
        powers[:, 2]
        - 4.0 * mean * powers[:, 1]
        + 6.0 * mean**2 * squares
        - 3.0 * n * mean**4
    )
    return PowerSums(
        count=n[:, 0],
        mean=mean + origin,
        scatter=about_origin - n[:, :, None] * mean[:, :, None] * mean[:, None, :],
        cubes=powers[:, 1] - 3.0 * mean * squares + 2.0 * n * mean**3,
        quartics=quartics,
        between=between - n * mean * mean,
    )


class _Loops(NamedTuple):
    """The compiled `_means`, `_centre` and `_round_sums`."""

    means: Any
    centre: Any
    round_sums: Any


@cache
def _compiled_loops() -> _Loops:
    """Return the compiled loops; numba takes too long to import it earlier."""
    from numba import njit

    compiled = njit(cache=True, nogil=True, fastmath={"contract"})
    return _Loops(compiled(_means), compiled(_centre), compiled(_round_sums))


def _means(X: Any, r: Any, window: Any, m: int) -> Any:
    """Return the means (m, d) of the rows [φ, r] of every window, and where its rows start (m + 1,).

    Parameters
    ----------
    X : array, shape (n, p)
    r : array, shape (n,), or (0,) for rows of p variables without a reward
    window : array of int, shape (n,), 0 to m - 1, each of which has rows
    """
    n, p = X.shape
    d = p + (len(r) > 0)
    starts = np.zeros(m + 1, dtype=np.int64)
    mean = np.zeros((m, d))
    for t in range(n):
        w = window[t]
        starts[w + 1] += 1
        for j in range(p):
            mean[w, j] += X[t, j]
        if d > p:
            mean[w, p] += r[t]
    for w in range(m):
        mean[w] /= starts[w + 1]
        starts[w + 1] += starts[w]
    return mean, starts


def _centre(X: Any, r: Any, window: Any, mean: Any, starts: Any) -> Any:
    """Return rows [φ, r] less the mean of their window, sorted by window, and sums of their powers.

    The rows are (n, d), the sums of their first, third and fourth powers (m, 3, d).
    """
    n, p = X.shape
    m, d = mean.shape
    centred = np.empty((n, d))
    free = starts[:-1].copy()
    for t in range(n):
        w = window[t]
        for j in range(p):
            centred[free[w], j] = X[t, j] - mean[w, j]
        if d > p:
            centred[free[w], p] = r[t] - mean[w, p]
        free[w] += 1
    powers = np.zeros((m, 3, d))
    for w in range(m):
        for t in range(starts[w], starts[w + 1]):
            for j in range(d):
                x = centred[t, j]
                xx = x * x
                powers[w, 0, j] += x
                powers[w, 1, j] += xx * x
                powers[w, 2, j] += xx * xx
    return centred, powers


def _round_sums(X: Any, counts: Any, window: Any, mean: Any) -> Any:
    """Return Σ over rounds of (sum of its centred rows)² / its number of rows, per window and column (m, p).

    X is (Σ counts, p), round by round.
    """
    m, p = mean.shape
    between = np.zeros((m, p))
    inside = np.zeros(p)
    row = 0
    for count in counts:
        w = window[row]
        inside[:] = 0.0
        for _ in range(count):
            for j in range(p):
                inside[j] += X[row, j] - mean[w, j]
            row += 1
        for j in range(p):
            between[w, j] += inside[j] * inside[j] / count
    return between

"""A batch of logged rounds, checked and summed, and the windows that its rounds belong to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite, shaped_array
from invariant_bandits.moments.power_sums import PowerSums, power_sums_of_rows

ROWS_AT_ONCE = 65_536
"""Rounds that are summed at once; longer runs are merged from parts."""
LARGEST = 1e70
"""Of a feature or reward: the fourth powers of many such rows can be added up."""


@dataclass(frozen=True)
class Batch:
    """n logged rounds in memory.

    Attributes
    ----------
    features : array, shape (n, p)
        Of the chosen actions.
    rewards : array, shape (n,)
        Of the chosen actions.
    offered : array, shape (Σ counts, p), optional
        Features of all offered actions, one row per action, round after round.
    counts : array of int, shape (n,), optional
        How many actions each round offers.
    """

    features: Array
    rewards: Array
    offered: Array | None = None
    counts: Array | None = None

    def sums(self, index: Array, rounds: slice) -> BatchSums:
        """Return the sums of some of the rounds; `index` is the window of every round (n,)."""
        first = index[rounds].min()
        above_first = index[rounds] - first
        has_rounds = np.bincount(above_first) > 0
        windows = first + np.flatnonzero(has_rounds)
        window = (np.cumsum(has_rounds) - 1)[above_first]
        # What is not finite shows in the sums and is reported from there.
        with np.errstate(all="ignore"):
            chosen = power_sums_of_rows(
                self.features[rounds],
                self.rewards[rounds],
                window=window,
                windows=len(windows),
            )
            if self.offered is None or self.counts is None:
                return BatchSums(windows, chosen)
            counts = self.counts[rounds]
            start = self.counts[: rounds.start].sum()
            offered = power_sums_of_rows(
                self.offered[start : start + counts.sum()],
                None,
                counts=counts,
                window=np.repeat(window, counts),
                windows=len(windows),
            )
        return BatchSums(windows, chosen, offered)


class BatchSums(NamedTuple):
    """Sums of some rounds of a batch, by window.

    Attributes
    ----------
    windows : array of int, shape (k,)
        The windows that have rounds.
    chosen : PowerSums
        Of the features of the chosen actions and, last, the reward.
    offered : PowerSums or None
        Of the features of all offered actions.
    """

    windows: Array
    chosen: PowerSums
    offered: PowerSums | None = None

    @property
    def are_usable(self) -> bool:
        """Whether all rows were finite and small enough for their fourth powers."""
        return all(
            (sums.quartics <= LARGEST**4).all() and (np.abs(sums.mean) <= LARGEST).all()
            for sums in (self.chosen, self.offered)
            if sums is not None
        )


def checked_batch(
    features: Any,
    rewards: Any,
    offered: Any,
    offered_counts: Any,
    *,
    dim: int,
    keeps_offered: bool,
) -> Batch:
    """Return a batch for moments of `dim` features, with offered actions if they keep them.

    Shapes are checked, not yet whether numbers are finite.
    """
    features = np.ascontiguousarray(shaped_array("features", features, ("n", dim)))
    n = len(features)
    rewards = np.ascontiguousarray(shaped_array("rewards", rewards, (n,)))
    if offered is None and keeps_offered:
        raise InputError("offered is missing: these moments keep the offered actions")
    if offered is not None and not keeps_offered:
        raise InputError(
            "offered was given, but these moments keep chosen actions only"
        )
    if offered is None:
        if offered_counts is not None:
            raise InputError("offered_counts were given without offered")
        return Batch(features, rewards)
    if offered_counts is None:
        array = np.ascontiguousarray(shaped_array("offered", offered, (n, "K", dim)))
        return Batch(
            features, rewards, array.reshape(-1, dim), np.full(n, array.shape[1])
        )
    rows = np.ascontiguousarray(shaped_array("offered", offered, ("rows", dim)))
    return Batch(
        features,
        rewards,
        rows,
        checked_counts("offered_counts", offered_counts, len(rows), n),
    )


def checked_counts(
    name: str, counts: Any, rows: int, rounds: int | None = None
) -> Array:
    """How many of the `rows` of offered actions each round has (rounds,), or InputError."""
    array = np.asarray(counts)
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or rounds not in (None, len(array))
    ):
        raise InputError(
            f"{name} must be whole numbers of shape ({'n' if rounds is None else rounds},), "
            f"got {array.dtype} of shape {array.shape}"
        )
    if not len(array) or array.min() < 1:
        raise InputError(f"{name} must be at least 1, got {array.min(initial=0)}")
    if array.sum() != rows:
        raise InputError(
            f"{name} must add up to the {rows} rows of offered, got {array.sum()}"
        )
    return array.astype(np.int64)


def segments(index: Array) -> Iterator[slice]:
    """Yield runs of rounds that lie in one window, none longer than ROWS_AT_ONCE.

    One run if the windows (n,) are not in order.
    """
    starts = np.flatnonzero(index[:-1] != index[1:]) + 1
    if (index[:-1] > index[1:]).any():
        starts = starts[:0]
    for start, stop in pairwise([0, *starts.tolist(), len(index)]):
        for first in range(start, stop, ROWS_AT_ONCE):
            yield slice(first, min(first + ROWS_AT_ONCE, stop))


def explain_unusable(**arrays: Any) -> None:
    """Raise InputError with the reason why sums over these rows are not finite.

    Looking at every entry is slow, so it is only done when the sums are not finite.
    """
    for name, array in arrays.items():
        if array is not None:
            array = np.asarray(array, dtype=np.float64)
            require_finite(name, array)
            if np.abs(array).max() > LARGEST:
                raise InputError(
                    f"{name} must lie within ±{LARGEST:g}, or fourth powers overflow: rescale"
                )
    raise InputError(
        "features and rewards are too large: sums of fourth powers overflow; rescale them"
    )


def finite_times(name: str, times: Any) -> Array:
    """Return numbers or datetimes as an array, or raise InputError."""
    array = np.asarray(times)
    if array.dtype.kind not in "iufM":
        raise InputError(
            f"{name} must be numbers or datetimes, got dtype {array.dtype}"
        )
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite")
    return array


def checked_edges(edges: Any) -> Array:
    """Edges (m + 1,) as an array of their own, strictly increasing, or InputError."""
    array = finite_times("edges", edges)
    if array.ndim != 1 or len(array) < 2:
        raise InputError(
            f"edges must be at least two times in one row, got shape {array.shape}"
        )
    falling = np.flatnonzero(~(array[:-1] < array[1:]))
    if len(falling):
        at = int(falling[0])
        raise InputError(
            f"edges must increase strictly (windows may not overlap), got {array[at]} before "
            f"{array[at + 1]} at index {at}"
        )
    return array.copy()


def window_of_rounds(
    n: int, window: Any, times: Any, windows: int, edges: Array | None
) -> Array:
    """Return the index of the window of each of n rounds (n,).

    From `window`, an int or one per round, or from their `times` (n,).
    """
    if (window is None) == (times is None):
        raise InputError(
            "give either window (an index per round) or times (if there are edges)"
        )
    if times is not None:
        return window_of_times(n, times, edges)
    index = np.asarray(window)
    if index.dtype.kind not in "iu":
        raise InputError(f"window must be whole numbers, got dtype {index.dtype}")
    if index.shape not in ((), (n,)):
        raise InputError(
            f"window must be an int or have shape ({n},), got shape {index.shape}"
        )
    if (index < 0).any() or (index >= windows).any():
        raise InputError(
            f"window must lie in 0..{windows - 1}, got {int(index.min())}..{int(index.max())}"
        )
    return np.broadcast_to(index, n)


def window_of_times(n: int, times: Any, edges: Array | None) -> Array:
    """Return the index of the window of each of n times (n,), which must lie within the edges."""
    if edges is None:
        raise InputError("times were given, but these moments have no edges")
    array = finite_times("times", times)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    if (array.dtype.kind == "M") != (edges.dtype.kind == "M"):
        raise InputError(
            f"times and edges must be of one kind, got {array.dtype} and {edges.dtype}"
        )
    outside = (array < edges[0]) | (array > edges[-1])
    if outside.any():
        raise InputError(
            f"times must lie within the edges {edges[0]} to {edges[-1]}: "
            f"{int(outside.sum())} of {n} do not, the first {array[outside][0]}"
        )
    return np.minimum(np.searchsorted(edges, array, side="right") - 1, len(edges) - 2)


def even_windows(n: int, windows: int) -> Array:
    """Return the index of the window of each of n rounds in time order (n,), windows being equally long."""
    if windows > n:
        raise InputError(
            f"windows must be at most the number of rounds, {n}, got {windows}"
        )
    bounds = np.linspace(0, n, windows + 1).round().astype(int)
    return np.repeat(np.arange(windows), np.diff(bounds))


def even_starts(count: Array, groups: int) -> Array:
    """Return the first window of each of `groups` runs of windows whose sizes are as even as possible."""
    before = np.concatenate([[0.0], np.cumsum(count)])
    goals = before[-1] * np.arange(1, groups) / groups
    starts = [0]
    for index, goal in enumerate(goals, start=1):
        low = starts[-1] + 1
        high = len(count) - (groups - index)
        candidates = np.arange(low, high + 1)
        starts.append(int(candidates[np.argmin(np.abs(before[candidates] - goal))]))
    return np.array(starts)

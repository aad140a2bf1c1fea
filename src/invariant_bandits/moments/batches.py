"""Batches of logged rounds: one of them, checked and summed, and any number of them in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite, shaped_array, whole_number
from invariant_bandits.moments.power_sums import PowerSums, power_sums_of_rows

if TYPE_CHECKING:
    from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class OfferedRows:
    """Features of the actions offered in n rounds, one row per action, round after round.

    Attributes
    ----------
    rows : array, shape (Σ K_t, p)
        One row per action.
    per_round : int, or array of int, shape (n,)
        K if every round has K rows, else their numbers K_t.
    """

    rows: Array
    per_round: int | Array

    def offsets(self) -> Array:
        """Where each round begins, and the end (n + 1,)."""
        if isinstance(self.per_round, int):
            return np.arange(0, len(self.rows) + 1, self.per_round)
        return np.concatenate([[0], np.cumsum(self.per_round)])

    def between(self, rounds: slice) -> OfferedRows:
        """The rounds from rounds.start up to rounds.stop."""
        if isinstance(self.per_round, int):
            return OfferedRows(
                self.rows[rounds.start * self.per_round : rounds.stop * self.per_round], self.per_round
            )
        start, stop = self.per_round[: rounds.start].sum(), self.per_round[: rounds.stop].sum()
        return OfferedRows(self.rows[start:stop], self.per_round[rounds])

    def taken(self, rounds: Array) -> OfferedRows:
        """The rounds at these indices, in their order."""
        begin = self.offsets()
        counts = np.diff(begin)[rounds]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self.rows[np.repeat(begin[:-1][rounds], counts) + within]
        return OfferedRows(rows, self.per_round if isinstance(self.per_round, int) else counts)


def offered_rows(offered: Any, counts: Any, rounds: int, dim: int) -> OfferedRows:
    """Check offered (n, K, p), or (rows, p) with counts (n,), against the number of rounds n and of
    features p.
    """
    if counts is None:
        array = np.ascontiguousarray(shaped_array("offered", offered, (rounds, "K", dim)))
        return OfferedRows(array.reshape(-1, dim), int(array.shape[1]))
    rows = np.ascontiguousarray(shaped_array("offered", offered, ("rows", dim)))
    counts = np.asarray(counts)
    if counts.shape != (rounds,) or counts.dtype.kind not in "iu":
        raise InputError(
            f"offered_counts must be whole numbers of shape ({rounds},), got {counts.dtype} of shape "
            f"{counts.shape}"
        )
    if (counts < 1).any():
        raise InputError(f"offered_counts must be at least 1, got {int(counts.min())}")
    if counts.sum() != len(rows):
        raise InputError(
            f"offered_counts must add up to the {len(rows)} rows of offered, got {int(counts.sum())}"
        )
    return OfferedRows(rows, counts.astype(np.int64))


ROWS_AT_ONCE = 65_536  # longer runs are merged from parts of this length
LARGEST = 1e70
CELLS_PER_WINDOW = 16

# -- one batch --


@dataclass(frozen=True)
class Batch:
    """Logged rounds in memory.

    Attributes
    ----------
    features : array, shape (n, p)
        Of the chosen actions.
    rewards : array, shape (n,)
        Of the chosen actions.
    offered : OfferedRows, optional
        Features of all offered actions.
    """

    features: Array
    rewards: Array
    offered: OfferedRows | None

    def taken(self, rounds: Array) -> Batch:
        """The rounds at these indices, in their order."""
        offered = None if self.offered is None else self.offered.taken(rounds)
        return Batch(self.features[rounds], self.rewards[rounds], offered)

    def sums(self, rounds: slice) -> tuple[PowerSums, PowerSums | None]:
        """Sums over the rounds from rounds.start up to rounds.stop: of [chosen features, reward], of
        offered ones.
        """
        with np.errstate(all="ignore"):  # what is not finite shows in the sums and is reported from there
            chosen = power_sums_of_rows(self.features[rounds], self.rewards[rounds], 1)
            if self.offered is None:
                return chosen, None
            part = self.offered.between(rounds)
            return chosen, power_sums_of_rows(part.rows, None, part.per_round)


def checked_batch(
    features: Any, rewards: Any, offered: Any, offered_counts: Any, *, dim: int, keeps_offered: bool
) -> Batch:
    """A batch for moments of `dim` features, with offered actions if they keep them; shapes only, not yet
    finite.
    """
    features = np.ascontiguousarray(shaped_array("features", features, ("n", dim)))
    n = len(features)
    rewards = np.ascontiguousarray(shaped_array("rewards", rewards, (n,)))
    if offered is None and keeps_offered:
        raise InputError("offered is missing: these moments keep the offered actions")
    if offered is not None and not keeps_offered:
        raise InputError("offered was given, but these moments keep chosen actions only")
    if offered is None and offered_counts is not None:
        raise InputError("offered_counts were given without offered")
    return Batch(
        features, rewards, None if offered is None else offered_rows(offered, offered_counts, n, dim)
    )


def segments(place: Array) -> Iterator[tuple[int, slice]]:
    """Runs of rows (n,) that lie in one window, as (window, rows), none longer than ROWS_AT_ONCE."""
    starts = np.concatenate([[0], np.flatnonzero(place[:-1] != place[1:]) + 1, [len(place)]])
    for start, stop in pairwise(starts.tolist()):
        for first in range(start, stop, ROWS_AT_ONCE):
            yield int(place[start]), slice(first, min(first + ROWS_AT_ONCE, stop))


def are_usable(sums: PowerSums) -> bool:
    """Whether all rows were finite and small enough for their fourth powers."""
    return bool((sums.quartics <= LARGEST**4).all() and (np.abs(sums.mean) <= LARGEST).all())


def explain_unusable(**arrays: Any) -> None:
    """Say why sums over these rows are not finite; looking at every entry is slow, so only done when they
    are not.
    """
    for name, array in arrays.items():
        if array is not None:
            array = np.asarray(array, dtype=np.float64)
            require_finite(name, array)
            if np.abs(array).max() > LARGEST:
                raise InputError(
                    f"{name} must lie within ±{LARGEST:g}, or sums of fourth powers overflow: rescale"
                )
    raise InputError("features and rewards are too large: sums of fourth powers overflow; rescale them")


# -- many batches --


def gather(
    cls: type[WindowedMoments], batches: Iterable[Any], windows: int | None, edges: Any
) -> WindowedMoments:
    """Moments of all batches, in a number of `windows` or between `edges`: see
    `WindowedMoments.from_batches`.
    """
    mappings = (_as_mapping(batch) for batch in batches)
    if edges is None:
        return _in_time_order(cls, mappings, whole_number("windows", 8 if windows is None else windows, 1))
    if windows is not None:
        raise InputError("give either windows or edges, not both")
    return _by_their_times(cls, mappings, edges)


def _as_mapping(batch: Any) -> Mapping[str, Any]:
    if isinstance(batch, Mapping):
        for name in ("features", "rewards"):
            if name not in batch:
                raise InputError(f"each batch must have {name}, got only {', '.join(map(repr, batch))}")
        return batch
    names = ("features", "rewards", "offered")
    if not isinstance(batch, tuple) or not 2 <= len(batch) <= 3:
        raise InputError("each batch must be a mapping or a tuple (features, rewards[, offered])")
    return dict(zip(names, batch, strict=False))


def _by_their_times(
    cls: type[WindowedMoments], batches: Iterator[Mapping[str, Any]], edges: Any
) -> WindowedMoments:
    moments: WindowedMoments | None = None
    for batch in batches:
        if "times" not in batch:
            raise InputError("each batch must carry its times when edges are given")
        if moments is None:
            dim = shaped_array("features", batch["features"], ("n", "p")).shape[1]
            moments = cls.empty(dim, edges=edges, offered=batch.get("offered") is not None)
        moments.update(**_rows_of(batch), times=batch["times"])
    if moments is None:
        raise InputError("batches are empty: at least one is needed")
    return moments


def _in_time_order(
    cls: type[WindowedMoments], batches: Iterator[Mapping[str, Any]], windows: int
) -> WindowedMoments:
    """Fill cells of equal length, joining neighbours whenever they run out; at last group the cells into
    windows.
    """
    cells = 2 * CELLS_PER_WINDOW * windows
    length, filled, moments = 1, 0, None
    for batch in batches:
        n, dim = shaped_array("features", batch["features"], ("n", "p")).shape
        offered = batch.get("offered") is not None
        if moments is None:
            moments = cls.empty(dim, cells, offered=offered)
            length = -(-n // cells)
        while filled + n > cells * length:
            half = moments.regrouped(np.arange(0, cells, 2))
            moments = half.followed_by(cls.empty(moments.dim, cells // 2, offered=offered))
            length *= 2
        moments.update(**_rows_of(batch), window=(filled + np.arange(n)) // length)
        filled += n
    if moments is None:
        raise InputError("batches are empty: at least one is needed")
    if filled < windows:
        raise InputError(f"windows must be at most the number of rounds, {filled}, got {windows}")
    used = -(-filled // length)
    return moments.between(0, used).coarsen(windows)


def _rows_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: batch.get(name) for name in ("features", "rewards", "offered", "offered_counts")}


def checked_edges(edges: Any) -> np.ndarray[Any, Any]:
    """Edges (m + 1,) as an array of their own, strictly increasing, or InputError."""
    array = np.asarray(edges)
    if array.ndim != 1 or len(array) < 2:
        raise InputError(f"edges must be at least two times in one row, got shape {array.shape}")
    if array.dtype.kind not in "iufM":
        raise InputError(f"edges must be numbers or datetimes, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("edges must be finite")
    falling = np.flatnonzero(~(array[:-1] < array[1:]))
    if len(falling):
        at = int(falling[0])
        raise InputError(
            f"edges must increase strictly (windows may not overlap), got {array[at]} before {array[at + 1]}"
            f" at index {at}"
        )
    return array.copy()


def place_rounds(
    n: int, window: Any, times: Any, windows: int, edges: np.ndarray[Any, Any] | None
) -> np.ndarray[Any, Any]:
    """Window index of each of n rounds (n,), from `window`, an int or one per round, or from their
    `times` (n,).
    """
    if (window is None) == (times is None):
        raise InputError("give either window (an index per round) or times (if there are edges)")
    if times is not None:
        return place_times(n, times, edges)
    place = np.asarray(window)
    if place.dtype.kind not in "iu":
        raise InputError(f"window must be whole numbers, got dtype {place.dtype}")
    if place.ndim > 1 or (place.ndim == 1 and len(place) != n):
        raise InputError(f"window must be an int or have shape ({n},), got shape {place.shape}")
    if (place < 0).any() or (place >= windows).any():
        raise InputError(f"window must lie in 0..{windows - 1}, got {int(place.min())}..{int(place.max())}")
    return np.broadcast_to(place, n)


def finite_times(n: int, times: Any) -> np.ndarray[Any, Any]:
    """Return times (n,), numbers or datetimes, or raise InputError."""
    array = np.asarray(times)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    if array.dtype.kind not in "iufM":
        raise InputError(f"times must be numbers or datetimes, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("times must be finite")
    return array


def place_times(n: int, times: Any, edges: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    """Window index of each of n times (n,); every one must lie within the edges."""
    if edges is None:
        raise InputError("times were given, but these moments have no edges")
    array = finite_times(n, times)
    if (array.dtype.kind == "M") != (edges.dtype.kind == "M"):
        raise InputError(f"times and edges must be of one kind, got {array.dtype} and {edges.dtype}")
    outside = (array < edges[0]) | (array > edges[-1])
    if outside.any():
        raise InputError(
            f"times must lie within the edges {edges[0]} to {edges[-1]}:"
            f" {int(outside.sum())} of {n} do not, the first {array[outside][0]}"
        )
    return np.minimum(np.searchsorted(edges, array, side="right") - 1, len(edges) - 2)


def same_edges(a: np.ndarray[Any, Any] | None, b: np.ndarray[Any, Any] | None) -> bool:
    """Whether both are missing, or both equal."""
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)


def even_places(n: int, windows: int) -> Array:
    """Window index of each of n rounds in time order (n,): in as many windows of equal length."""
    if windows > n:
        raise InputError(f"windows must be at most the number of rounds, {n}, got {windows}")
    bounds = np.linspace(0, n, windows + 1).round().astype(int)
    return np.repeat(np.arange(windows), np.diff(bounds))


def even_starts(count: Array, groups: int) -> Array:
    """First window of each of `groups` runs whose sizes are as even as possible; every run has at least
    one.
    """
    before = np.concatenate([[0.0], np.cumsum(count)])
    goals = before[-1] * np.arange(1, groups) / groups
    starts = [0]
    for index, goal in enumerate(goals, start=1):
        low, high = starts[-1] + 1, len(count) - (groups - index)
        candidates = np.arange(low, high + 1)
        starts.append(int(candidates[np.argmin(np.abs(before[candidates] - goal))]))
    return np.array(starts)

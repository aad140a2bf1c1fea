"""Which window a round belongs to: edges of times, and even groups of neighbouring windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError


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
    """Window index of each of n rounds (n,), from `window`, an int or one per round, or from their `times` (n,)."""
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


def place_times(n: int, times: Any, edges: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    """Window index of each of n times (n,); every one must lie within the edges."""
    if edges is None:
        raise InputError("times were given, but these moments have no edges")
    array = np.asarray(times)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    if array.dtype.kind not in "iufM":
        raise InputError(f"times must be numbers or datetimes, got dtype {array.dtype}")
    if (array.dtype.kind == "M") != (edges.dtype.kind == "M"):
        raise InputError(f"times and edges must be of one kind, got {array.dtype} and {edges.dtype}")
    if not np.isfinite(array).all():
        raise InputError("times must be finite")
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
    """Window index of each of n rounds in time order (n,): as many equal stretches."""
    if windows > n:
        raise InputError(f"windows must be at most the number of rounds, {n}, got {windows}")
    bounds = np.linspace(0, n, windows + 1).round().astype(int)
    return np.repeat(np.arange(windows), np.diff(bounds))


def even_starts(count: Array, groups: int) -> Array:
    """First window of each of `groups` runs whose sizes are as even as possible; every run has at least one."""
    before = np.concatenate([[0.0], np.cumsum(count)])
    goals = before[-1] * np.arange(1, groups) / groups
    starts = [0]
    for index, goal in enumerate(goals, start=1):
        low, high = starts[-1] + 1, len(count) - (groups - index)
        candidates = np.arange(low, high + 1)
        starts.append(int(candidates[np.argmin(np.abs(before[candidates] - goal))]))
    return np.array(starts)

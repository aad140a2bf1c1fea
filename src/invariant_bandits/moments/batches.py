"""Batches of logged rounds: one of them, checked and summed, and any number of them in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, require_finite, shaped_array, whole_number
from invariant_bandits.moments.power_sums import PowerSums, power_sums_of_rows
from invariant_bandits.moments.rows import OfferedRows, offered_rows

if TYPE_CHECKING:
    from invariant_bandits.moments.windowed import WindowedMoments

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
        """Sums over the rounds from rounds.start up to rounds.stop: of [chosen features, reward], of offered ones."""
        with np.errstate(all="ignore"):  # what is not finite shows in the sums and is reported from there
            chosen = power_sums_of_rows(self.features[rounds], self.rewards[rounds], 1)
            if self.offered is None:
                return chosen, None
            part = self.offered.stretch(rounds)
            return chosen, power_sums_of_rows(part.rows, None, part.per_round)


def checked_batch(
    features: Any, rewards: Any, offered: Any, offered_counts: Any, *, dim: int, keeps_offered: bool
) -> Batch:
    """A batch for moments of `dim` features, with offered actions if they keep them; shapes only, not yet finite."""
    features = np.ascontiguousarray(shaped_array("features", features, ("n", dim)))
    n = len(features)
    rewards = np.ascontiguousarray(shaped_array("rewards", rewards, (n,)))
    if offered is None and keeps_offered:
        raise InputError("offered is missing: these moments keep the offered actions")
    if offered is not None and not keeps_offered:
        raise InputError("offered was given, but these moments keep chosen actions only")
    if offered is None and offered_counts is not None:
        raise InputError("offered_counts were given without offered")
    return Batch(features, rewards, None if offered is None else offered_rows(offered, offered_counts, n, dim))


def stretches(place: Array) -> Iterator[tuple[int, slice]]:
    """Runs of rows (n,) that lie in one window, as (window, rows), none longer than ROWS_AT_ONCE."""
    starts = np.concatenate([[0], np.flatnonzero(place[:-1] != place[1:]) + 1, [len(place)]])
    for start, stop in pairwise(starts.tolist()):
        for first in range(start, stop, ROWS_AT_ONCE):
            yield int(place[start]), slice(first, min(first + ROWS_AT_ONCE, stop))


def are_usable(sums: PowerSums) -> bool:
    """Whether all rows were finite and small enough for their fourth powers."""
    return bool((sums.quartics <= LARGEST**4).all() and (np.abs(sums.mean) <= LARGEST).all())


def explain_unusable(**arrays: Any) -> None:
    """Say why sums over these rows are not finite; looking at every entry is slow, so only done when they are not."""
    for name, array in arrays.items():
        if array is not None:
            array = np.asarray(array, dtype=np.float64)
            require_finite(name, array)
            if np.abs(array).max() > LARGEST:
                raise InputError(f"{name} must lie within ±{LARGEST:g}, or sums of fourth powers overflow: rescale")
    raise InputError("features and rewards are too large: sums of fourth powers overflow; rescale them")


# -- many batches --


def gathered(cls: type[WindowedMoments], batches: Iterable[Any], windows: int | None, edges: Any) -> WindowedMoments:
    """Moments of all batches, in a number of `windows` or between `edges`: see `WindowedMoments.from_batches`."""
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


def _by_their_times(cls: type[WindowedMoments], batches: Iterator[Mapping[str, Any]], edges: Any) -> WindowedMoments:
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


def _in_time_order(cls: type[WindowedMoments], batches: Iterator[Mapping[str, Any]], windows: int) -> WindowedMoments:
    """Fill cells of equal length, joining neighbours whenever they run out; at last group the cells into windows."""
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
    return moments.stretch(0, used).coarsen(windows)


def _rows_of(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: batch.get(name) for name in ("features", "rewards", "offered", "offered_counts")}

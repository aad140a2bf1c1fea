"""The times of a log, as a first pass sees them: their span, whether they are in order, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.sources import Task

if TYPE_CHECKING:
    from invariant_bandits.logs.survey import Survey

MOST_TIMES = 1 << 18
"""So many times are kept, all of them where a log has no more."""


@dataclass(frozen=True, eq=False)
class TimesSeen:
    """What the usable times of a log are.

    Parameters
    ----------
    first, last : datetime64 or number
        The earliest and the latest.
    in_order : bool
        Whether none is earlier than the one before.
    sample : array
        All times, or those of rows drawn by lot, sorted.
    """

    first: Any
    last: Any
    in_order: bool
    sample: Array

    def equal_shares(self, count: int) -> Array | None:
        """Edges (count + 1,) between which about equally many rows lie; None if too few times differ."""
        if count > len(self.sample):
            return None
        rows = -(-np.arange(1, count) * len(self.sample) // count)
        edges = np.unique(np.concatenate([[self.first], self.sample[rows], [self.last]]))
        return edges if len(edges) == count + 1 else None


class TimeQuestion:
    """Looks at the column of times."""

    def __init__(self, column: str, dates: bool) -> None:
        self.columns, self.dates = [column], dates
        self.in_order = True
        self._first: Any = None
        self._last: Any = None
        self._latest: Any = None
        self._share = 1.0
        self._kept: list[tuple[Array, Array]] = []
        self._size = 0

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        name, problems = self.columns[0], RowProblems(len(batch))
        times = decoding.times(batch.column(name), name, self.dates, problems)
        good = problems.usable
        times = times[good]
        if not len(times):
            return
        first, last = times.min(), times.max()
        falls = bool((times[1:] < times[:-1]).any())
        self.in_order &= not falls and (self._latest is None or not times[0] < self._latest)
        self._latest = times[-1]
        self._first = first if self._first is None else min(self._first, first)
        self._last = last if self._last is None else max(self._last, last)
        self._keep(times, lots(task.position + row - task.first_row + np.flatnonzero(good)))

    def _keep(self, times: Array, drawn: Array) -> None:
        """Keep the times whose lot is small enough; when they become too many, ask for half the lot."""
        taken = drawn < self._share
        self._kept.append((times[taken], drawn[taken]))
        self._size += int(taken.sum())
        while self._size > MOST_TIMES:
            self._share /= 2.0
            times, drawn = (np.concatenate(part) for part in zip(*self._kept, strict=True))
            taken = drawn < self._share
            self._kept, self._size = [(times[taken], drawn[taken])], int(taken.sum())

    def answered(self, found: Survey) -> Survey:
        """The survey with what the times are."""
        if self._first is None:
            return replace(found, time_span=(None, None))
        sample = np.sort(np.concatenate([times for times, _ in self._kept]))
        return replace(
            found,
            time_span=(self._first, self._last),
            times=TimesSeen(self._first, self._last, self.in_order, sample),
        )


def lots(rows: Array) -> Array:
    """A number in [0, 1) for every row of the log, equally likely and without pattern (the finaliser of SplitMix64)."""
    bits = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)

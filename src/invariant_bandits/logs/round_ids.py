"""Which rounds come again in a log, as a first pass sees it: twice logged, or torn apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Task

if TYPE_CHECKING:
    from invariant_bandits.logs.survey import Survey

TORN_SHARE = 0.1
"""More rounds than this share must come again to count as torn apart rather than logged twice."""


@dataclass(frozen=True, eq=False)
class TornRounds:
    """Where the rounds of a log began whose rows do not stand together.

    Parameters
    ----------
    ids : array, shape (rounds,)
        Hashes of their ids, sorted.
    firsts : array, shape (rounds,)
        Place in the log of the first row of each.
    """

    ids: Array
    firsts: Array

    def began(self, column: Any) -> Array:
        """Where the round of every row of a column of ids began (n,)."""
        return np.asarray(self.firsts[np.searchsorted(self.ids, hashes(column))])


class RoundIds:
    """Which rounds come again; sixteen bytes per round are kept to find them."""

    def __init__(self, schema: Schema) -> None:
        self.round, self.several_rows = str(schema.round), schema.one_row_per_action
        self.chosen = schema.chosen if self.several_rows else None
        self.columns = [name for name in (schema.round, self.chosen) if name is not None]
        self.ids: list[Array] = []
        self.starts: list[Array] = []
        self._chosen_rows: int | None = 0 if self.chosen is not None else None
        self._task: Task | None = None
        self._previous: Any = None

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        if not len(batch):
            return
        ids = hashes(batch.column(self.round))
        begins = np.ones(len(ids), dtype=bool)
        if self.several_rows:
            before = self._previous if task is self._task else ~ids[0]
            begins = ids != np.concatenate([[before], ids[:-1]])
            self._count_chosen(batch)
        self.ids.append(ids[begins])
        self.starts.append(task.position + row - task.first_row + np.flatnonzero(begins))
        self._task, self._previous = task, ids[-1]

    def _count_chosen(self, batch: Any) -> None:
        if self._chosen_rows is None or self.chosen is None:
            return
        column = batch.column(self.chosen)
        flagged = decoding.are_flags(column)
        self._chosen_rows = self._chosen_rows + int(decoding.flags(column).sum()) if flagged else None

    def answered(self, found: Survey) -> Survey:
        """The survey with the rounds that come again."""
        if not self.ids:
            return found
        ids, starts = np.concatenate(self.ids), np.concatenate(self.starts)
        order = np.argsort(ids, kind="stable")
        again = np.zeros(len(ids), dtype=bool)
        again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
        if self.several_rows:
            again &= ~self._continued(ids, starts, found.tasks)
        if not again.any():
            return found
        firsts = order[np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])]
        torn = TornRounds(ids[firsts], starts[firsts]) if self._are_torn(again, len(firsts)) else None
        return replace(found, duplicates=np.sort(starts[again]), torn=torn)

    def _continued(self, ids: Array, starts: Array, tasks: Sequence[Task]) -> Array:
        """Mask of the rounds that continue in the next row group of their file: they are no second rounds."""
        continued = np.zeros(len(ids), dtype=bool)
        continued[1:] = ids[1:] == ids[:-1]
        return continued & np.isin(starts, [task.position for task in tasks if task.part > 0])

    def _are_torn(self, again: Array, rounds: int) -> bool:
        """Whether rounds are torn apart: many come again, and yet hardly any has a second chosen row."""
        if not self.several_rows or again.sum() <= TORN_SHARE * rounds:
            return False
        return self._chosen_rows is None or self._chosen_rows <= (1.0 + TORN_SHARE) * rounds


def hashes(column: Any) -> Array:
    """One int64 per value, equal for equal values; for text, different ones collide with probability 2⁻⁶⁴ a pair."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    return np.fromiter((hash(value) for value in column.to_pylist()), dtype=np.int64, count=len(column))

"""Batches of a log with one row per offered action, put together so that no round is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs.sources import Source, Task, joined


def whole_rounds(source: Source, task: Task, columns: Sequence[str], name: str) -> Iterator[tuple[int, Any]]:
    """Pairs (row within the file, batch) of a task, whole rounds only; column `name` tells rounds apart.

    A task owns the rounds that begin in it: rows of a round that began before are left to the task before, and the
    last round is completed with rows from behind the task.
    """

    held: Any = None
    held_row = end = task.first_row
    for row, batch in _own_batches(source, task, columns, name):
        if held is not None:
            batch, row = joined([held, batch]), held_row
        cut = int(run_starts(batch.column(name))[-1])
        held, held_row, end = batch.slice(cut), row + cut, row + len(batch)
        if cut:
            yield row, batch.slice(0, cut)
    if held is not None:
        yield held_row, _completed(held, source.batches(task, columns, first_row=end), name)


def _own_batches(source: Source, task: Task, columns: Sequence[str], name: str) -> Iterator[tuple[int, Any]]:
    """Batches of a task without the rows of a round that began before it."""
    before = _last_round_before(source, task, name)
    for row, batch in source.batches(task, columns):
        if before is not None:
            own = _first_other(batch.column(name), before)
            if own == len(batch):
                continue
            batch, row, before = batch.slice(own), row + own, None
        yield row, batch


def _completed(held: Any, behind: Iterator[tuple[int, Any]], name: str) -> Any:
    """The last round of a task with its rows from behind the task."""

    last = held.column(name)[0]
    for _, batch in behind:
        stop = _first_other(batch.column(name), last)
        held = joined([held, batch.slice(0, stop)])
        if stop < len(batch):
            break
    return held


def _last_round_before(source: Source, task: Task, name: str) -> Any:
    """The round id in the row just before a task, if its file has one."""
    before = [one for one in source.tasks if one.file == task.file and one.part < task.part]
    for previous in reversed(before):
        last = None
        for _, batch in source.batches(previous, [name]):
            if len(batch):
                last = batch.column(name)[-1]
        if last is not None:
            return last
    return None


def run_starts(column: Any) -> Array:
    """Where runs of equal values begin."""
    codes = _codes(column)
    return np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])


def _codes(column: Any) -> Array:
    """Integers that are equal exactly where the values of a column are."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False))


def _first_other(column: Any, value: Any) -> int:
    """Index of the first entry that differs from the scalar `value`; the length if none does."""
    starts = run_starts(column)
    if column[0].as_py() != value.as_py():
        return 0
    return int(starts[1]) if len(starts) > 1 else len(column)

"""The first pass over a log, of the few columns that need one: how many rows, which times, categories and rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decoding
from invariant_bandits.logs.decoding import Marks
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, Task

MOST_CATEGORIES = 100_000


@dataclass
class Survey:
    """What the first pass found.

    tasks: those of the source, with their positions in the whole log; duplicates: positions of the first row of every
    round whose id had come before (eight bytes per round are kept to find them); categories: counts per column.
    """

    tasks: tuple[Task, ...]
    total_rows: int
    first_time: Any = None
    last_time: Any = None
    duplicates: Array | None = None
    categories: dict[str, Counter[str]] = field(default_factory=dict)

    def most_frequent(self, column: str, most: int) -> tuple[str, ...]:
        """The most frequent categories of a column, at most so many, in the order of the alphabet."""
        counts = self.categories[column]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return tuple(sorted(ranked[:most]))


def survey(source: Source, schema: Schema, *, dates: bool, times: bool, rows: bool) -> Survey:
    """Read what is needed: `times` for calendar windows, `rows` for windows of equal counts."""
    columns = [name for name in (schema.round, schema.time if times else None) if name is not None]
    columns += schema.categorical
    if not columns and (source.total_rows is not None or not rows):
        return Survey(tuple(source.tasks), source.total_rows or 0)
    columns = columns or [schema.reward]
    found = Survey((), 0, categories={name: Counter() for name in schema.categorical})
    ids: list[Array] = []
    starts: list[Array] = []
    for task in source.tasks:
        task = replace(task, position=found.total_rows)
        found.tasks += (task,)
        end = task.first_row
        previous: Any = None
        for row, batch in source.batches(task, columns):
            end = row + len(batch)
            if schema.round is not None and len(batch):
                values = _hashes(batch.column(schema.round))
                begins = np.ones(len(batch), dtype=bool)
                if schema.one_row_per_action:
                    before = ~values[0] if previous is None else previous
                    begins = values != np.concatenate([[before], values[:-1]])
                ids.append(values[begins])
                starts.append(task.position + row - task.first_row + np.flatnonzero(begins))
                previous = values[-1]
            if times and schema.time is not None:
                _widen(found, batch.column(schema.time), schema.time, dates)
            for name in schema.categorical:
                _count(found.categories[name], name, batch.column(name))
        skipped = source.skipped(task)
        end = max([end, *(row + 1 for row in skipped)])
        found.total_rows += end - task.first_row
    if ids:
        found.duplicates = _repeated(np.concatenate(ids), np.concatenate(starts), schema, found.tasks)
    return found


def _widen(found: Survey, column: Any, name: str, dates: bool) -> None:
    marks = Marks(len(column))
    values = decoding.times(column, name, dates, marks)[marks.codes == 0]
    if len(values):
        found.first_time = values.min() if found.first_time is None else min(found.first_time, values.min())
        found.last_time = values.max() if found.last_time is None else max(found.last_time, values.max())


def _count(counts: Counter[str], name: str, column: Any) -> None:
    import pyarrow as pa

    for pair in column.cast(pa.string()).value_counts().to_pylist():
        if pair["values"] is not None:
            counts[pair["values"]] += pair["counts"]
    if len(counts) > MOST_CATEGORIES:
        raise InputError(f"column {name!r} has more than {MOST_CATEGORIES:,} categories: it is no categorical feature")


def _hashes(column: Any) -> Array:
    """One int64 per value, equal for equal values; for text, different ones collide with probability 2⁻⁶⁴ a pair."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    return np.fromiter((hash(value) for value in column.to_pylist()), dtype=np.int64, count=len(column))


def _repeated(ids: Array, starts: Array, schema: Schema, tasks: tuple[Task, ...]) -> Array | None:
    """Starts of the rounds whose id came before.

    A round may continue in the next row group of its file; there it is no second round.
    """
    order = np.argsort(ids, kind="stable")
    again = np.zeros(len(ids), dtype=bool)
    again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
    if schema.one_row_per_action:
        continued = np.zeros(len(ids), dtype=bool)
        continued[1:] = ids[1:] == ids[:-1]
        inner = [task.position for task in tasks if task.part > 0]
        again &= ~(continued & np.isin(starts, inner))
    return np.sort(starts[again]) if again.any() else None


def calendar_edges(every: Any, first: Any, last: Any) -> Array:
    """Edges of windows of length `every` that cover the times from `first` to `last`.

    every: "7d", "12h", "30min", "2w", "1mo", "1y" for dates, a number for times that are numbers. Days begin at
    midnight UTC, months on their first day.
    """
    if first is None:
        raise InputError("every needs times: the log has no time column, or no usable time in it")
    if not isinstance(first, np.datetime64):
        return _numeric_edges(every, float(first), float(last))
    number = str(every).rstrip("abcdefghijklmnopqrstuvwxyz")
    units = {"min": "m", "h": "h", "d": "D", "w": "W", "mo": "M", "y": "Y"}
    unit = units.get(str(every)[len(number) :])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise InputError(f"every must be a whole number and one of {', '.join(units)}, such as '7d', got {every!r}")
    steps, unit = (7 * int(number), "D") if unit == "W" else (int(number), unit)
    origin, end = (int(time.astype(f"datetime64[{unit}]").astype(np.int64)) for time in (first, last))
    whole = (end - origin) // steps + 1
    edges = origin + steps * np.arange(min(whole, 10_001) + 1)
    return _few_enough(every, whole, edges.astype(f"datetime64[{unit}]").astype(decoding.MICROSECONDS))


def _numeric_edges(every: Any, first: float, last: float) -> Array:
    try:
        step = float(every)
    except (TypeError, ValueError):
        raise InputError(f"every must be a number because the times are numbers, got {every!r}") from None
    if not step > 0.0 or not np.isfinite(step):
        raise InputError(f"every must be positive, got {every!r}")
    whole = int((last - first) // step) + 1
    return _few_enough(every, whole, first + step * np.arange(min(whole, 10_001) + 1))


def _few_enough(every: Any, windows: int, edges: Array) -> Array:
    if windows > 10_000:
        raise InputError(f"every={every!r} makes {windows:,} windows; at most 10,000 are meant")
    return edges

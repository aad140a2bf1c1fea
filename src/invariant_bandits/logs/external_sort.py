"""Logs sorted in temporary files: by time, or by round where the rows of a round are split.

Rows are dealt to files by the value of a key, few enough rows to a file that it can be sorted in memory. A
stable sort of every file, one after the other, is a stable sort of the whole log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import (
    run_starts,
)
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    Batches,
    Source,
    Task,
    join_batches,
)
from invariant_bandits.logs.spill import SpillSource
from invariant_bandits.optional import pyarrow as pa

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log
    from invariant_bandits.logs.survey import SplitRounds


def round_batches(source: Source, task: Task, schema: Schema) -> Batches:
    """Pairs (row within the file, batch) of a task.

    If rounds have several rows, batches hold whole rounds, and the task stands for its whole file.
    """
    if not schema.one_row_per_action:
        yield from source.batches(task, schema.used_columns)
        return
    held: Any = None
    held_row = 0
    parts = (part for part in source.tasks if part.file == task.file)
    for row, batch in (
        pair for part in parts for pair in source.batches(part, schema.used_columns)
    ):
        if held is not None:
            batch = join_batches([held, batch])
            row = held_row
        cut = int(run_starts(batch.column(schema.round))[-1])
        held = batch.slice(cut)
        held_row = row + cut
        if cut:
            yield row, batch.slice(0, cut)
    if held is not None:
        yield held_row, held


ROWS_AT_ONCE = 400_000
"""Rows that are sorted in memory."""
MOST_FILES = 200
"""Files that are written at once; some systems allow a process 256 open files."""
KEY = "__key"


class RearrangedSource(SpillSource):
    """Rows sorted by their keys.

    Parameters
    ----------
    source : Source
        The rows as they were.
    columns : sequence of str
        The columns that `keyed` has.
    keyed : iterable of pairs (record batch, array of shape (n,))
        Its rows, and the key of each.
    sample : array
        Some of the keys, or all, sorted: they divide the rows into parts, each sorted in memory; one Arrow
        file and one task per part.
    rows : int
        About how many rows there are.
    """

    skips_lines = True

    def __init__(
        self,
        source: Source,
        columns: Sequence[str],
        keyed: Iterable[Any],
        sample: Array,
        rows: int,
    ) -> None:
        super().__init__()
        parts = min(-(-rows // ROWS_AT_ONCE), MOST_FILES)
        bounds = np.unique(sample[np.arange(1, parts) * len(sample) // parts])
        self.arrow_schema = pa.schema(
            [source.arrow_schema.field(name) for name in columns]
        )
        counts = _dealt(self.folder, keyed, bounds)
        starts = np.cumsum(counts) - counts
        self.total_rows = int(counts.sum())
        filled = np.flatnonzero(counts).tolist()
        self.tasks = [
            Task(f"sorted log, part {part + 1}", part, 0, int(starts[part]))
            for part in filled
        ]
        for part in filled:
            _sort(self.folder, part)
        self.lost: dict[str, list[int]] = {}
        for task in source.tasks:
            for reason, unparsed in source.skipped(task).items():
                self.lost.setdefault(reason, []).extend(unparsed)

    def skipped(self, task: Task) -> dict[str, list[int]]:
        """Return the rows of the original that could not be parsed, with the first part."""
        return self.lost if task == self.tasks[0] else {}


def in_time_order(log: Log) -> Log:
    """The log with its rounds sorted by time; the log itself if it has no times, or they are in order.

    Rounds of the same time stay in their order; a round is as early as its first row.
    """
    times = None if log.schema.time is None else log.survey(times=True).times
    if times is None or times.in_order:
        return log
    rows = log.survey(rows=True).total_rows or 0
    columns = log.schema.used_columns
    return log.with_source(
        RearrangedSource(log.source, columns, _keyed_by_time(log), times.sample, rows)
    )


def _keyed_by_time(log: Log) -> Iterator[tuple[Any, Array]]:
    """(batch, time of the round of every row (n,))."""
    name = str(log.schema.time)
    for task in log.survey().tasks:
        for _, batch in round_batches(log.source, task, log.schema):
            times = decode.times(
                batch.column(name), name, log.times_are_dates, RowProblems(len(batch))
            )
            if log.schema.one_row_per_action:
                starts = run_starts(batch.column(log.schema.round))
                times = np.repeat(times[starts], np.diff(np.append(starts, len(batch))))
            yield batch, times


def with_whole_rounds(source: Source, schema: Schema, split: SplitRounds) -> Source:
    """The source of a log with split rounds: every row goes where its round began.

    Parameters
    ----------
    source : Source
        One row per offered action.
    schema : Schema
        What the columns mean.
    split : SplitRounds
        Where each round began.
    """

    def keyed() -> Iterator[tuple[Any, Array]]:
        for task in source.tasks:
            for _, batch in source.batches(task, schema.used_columns):
                if len(batch):
                    yield batch, split.start_of(batch.column(schema.round))

    firsts = np.sort(split.firsts)
    return RearrangedSource(
        source, schema.used_columns, keyed(), firsts, int(firsts[-1]) + 1
    )


def _dealt(folder: Path, keyed: Iterable[tuple[Any, Array]], bounds: Array) -> Array:
    """Write every row to the file of its part, with its key; returns the rows (parts,) of each.

    A part goes on in a new file where the types of the columns change, as between files of a log.
    """
    counts = np.zeros(len(bounds) + 1, dtype=np.int64)
    with ExitStack() as open_files:
        writers: dict[int, _PartWriter] = {}
        for batch, keys in keyed:
            names = [*batch.schema.names, KEY]
            batch = pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(keys)], names=names
            )
            part_of = np.searchsorted(bounds, keys, side="right")
            for part in np.unique(part_of).tolist():
                if part not in writers:
                    writers[part] = open_files.enter_context(
                        closing(_PartWriter(folder, part))
                    )
                rows = np.flatnonzero(part_of == part)
                writers[part].write(batch.take(pa.array(rows)))
                counts[part] += len(rows)
    return counts


class _PartWriter:
    """Rows of one part, not sorted yet, in as many files as there are changes of types."""

    def __init__(self, folder: Path, part: int) -> None:
        self.folder = folder
        self.part = part
        self._files = 0
        self._stream: Any = None
        self._types: Any = None

    def write(self, batch: Any) -> None:
        """Append rows."""
        if self._stream is None or batch.schema != self._types:
            self.close()
            path = self.folder / f"{self.part}-{self._files:06}.dealt"
            self._stream = pa.ipc.new_stream(str(path), batch.schema)
            self._types = batch.schema
            self._files += 1
        self._stream.write_batch(batch)

    def close(self) -> None:
        """End the present file."""
        if self._stream is not None:
            self._stream.close()


def _sort(folder: Path, part: int) -> None:
    """Sort one part by its keys, rows with the same key in their order, and let go of the unsorted files."""
    dealt = sorted(folder.glob(f"{part}-*.dealt"))
    tables = []
    for path in dealt:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            tables.append(reader.read_all())
    if len(tables) > 1:
        tables = [
            pa.Table.from_batches(
                [join_batches([_one_batch(table) for table in tables])]
            )
        ]
    order = np.argsort(tables[0].column(KEY).to_numpy(), kind="stable")
    table = tables[0].drop_columns([KEY]).combine_chunks().take(pa.array(order))
    with pa.ipc.new_file(str(folder / f"{part}.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    for path in dealt:
        path.unlink()


def _one_batch(table: Any) -> Any:
    """The rows of a table as one record batch; words of dictionaries are written out."""
    plain = [
        column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        for column in table.schema
    ]
    kinds = zip(table.schema.names, plain, strict=True)
    return table.cast(pa.schema(list(kinds))).combine_chunks().to_batches()[0]

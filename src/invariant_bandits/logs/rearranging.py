"""Logs put in order in bounded memory: rounds that were torn apart made whole, rounds sorted by time.

Rows are dealt to files by the value of a key, few enough rows to a file that it can be sorted in memory; a stable sort
of every file, one after the other, is a stable sort of the whole.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.round_ids import TornRounds
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import BATCH_ROWS, Source, Task, skipped_by_reason
from invariant_bandits.logs.whole_rounds import run_starts, whole_rounds

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

ROWS_AT_ONCE = 400_000
"""Rows that are sorted in memory."""
MOST_FILES = 200
KEY = "__key"


@dataclass(eq=False)
class RearrangedSource:
    """Rows in files of our own, in another order than they were; the files go when nobody needs them any more.

    Parameters
    ----------
    folder : Path
        Holds one Arrow file per part.
    arrow_schema : pyarrow.Schema
        Names and types of the columns as the original has them.
    tasks : tuple of Task
        One per part.
    lost : dict of str to list of int
        Rows of the original that could not be parsed, by reason.
    """

    folder: Path
    arrow_schema: Any
    tasks: tuple[Task, ...]
    total_rows: int
    lost: dict[str, list[int]]
    in_files: bool = False

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of one part; no round goes on behind it."""
        import pyarrow as pa

        if first_row is not None:
            return
        row = 0
        with pa.memory_map(str(self.folder / f"{task.part}.arrow")) as file, pa.ipc.open_file(file) as reader:
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index).select(list(columns))
                yield row, batch
                row += len(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """All rows of our own files can be parsed."""
        return ()

    def skipped_by_reason(self, task: Task) -> dict[str, list[int]]:
        """Rows of the original that could not, with the first part."""
        return self.lost if task == self.tasks[0] else {}


def in_time_order(log: Log) -> Log:
    """The log with its rounds sorted by time; the log itself if it has no times, or they are in order.

    Rounds of the same time stay in their order; a round is as early as its first row.
    """
    if log.schema.time is None:
        return log
    times = log.survey(times=True).times
    if times is None or times.in_order:
        return log
    rows = log.survey(rows=True).total_rows or 0
    parts = min(-(-rows // ROWS_AT_ONCE), MOST_FILES)
    bounds = np.unique(times.sample[np.arange(1, parts) * len(times.sample) // parts])
    return log.with_source(_rearranged(log.source, _keyed_by_time(log), bounds))


def _keyed_by_time(log: Log) -> Iterator[tuple[Any, Array]]:
    """(batch, time of the round of every row (n,))."""
    name, source, columns = str(log.schema.time), log.source, log.schema.used_columns
    for task in log.survey().tasks:
        whole = log.schema.one_row_per_action
        batches = whole_rounds(source, task, columns, str(log.schema.round)) if whole else source.batches(task, columns)
        for _, batch in batches:
            times = decoding.times(batch.column(name), name, log.times_are_dates, RowProblems(len(batch)))
            if whole:
                starts = run_starts(batch.column(log.schema.round))
                times = np.repeat(times[starts], np.diff(np.append(starts, len(batch))))
            yield batch, times


def with_whole_rounds(source: Source, schema: Schema, torn: TornRounds) -> Source:
    """The source of a log whose rounds were torn apart: every row goes to the place where its round began.

    Parameters
    ----------
    source : Source
        One row per offered action.
    schema : Schema
        What the columns mean.
    torn : TornRounds
        Where each round began.
    """

    def keyed() -> Iterator[tuple[Any, Array]]:
        for task in source.tasks:
            for _, batch in source.batches(task, schema.used_columns):
                if len(batch):
                    yield batch, torn.began(batch.column(schema.round))

    rows = int(torn.firsts.max()) + 1
    parts = min(-(-rows // ROWS_AT_ONCE), MOST_FILES)
    return _rearranged(source, keyed(), np.arange(1, parts) * rows // parts)


def _rearranged(source: Source, keyed: Iterable[tuple[Any, Array]], bounds: Array) -> RearrangedSource:
    """Rows sorted by their keys (n,), in parts between the bounds."""
    folder = Path(tempfile.mkdtemp(prefix="invariant-bandits-"))
    try:
        counts = _dealt(folder, keyed, bounds)
        for part in np.flatnonzero(counts).tolist():
            _sort(folder, part)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    lost: dict[str, list[int]] = {}
    for task in source.tasks:
        for reason, rows in skipped_by_reason(source, task).items():
            lost.setdefault(reason, []).extend(rows)
    starts = np.cumsum(counts) - counts
    parts = np.flatnonzero(counts).tolist()
    tasks = tuple(Task(f"sorted log, part {part + 1}", part, 0, int(starts[part])) for part in parts)
    return RearrangedSource(folder, source.arrow_schema, tasks, int(counts.sum()), lost)


def _dealt(folder: Path, keyed: Iterable[tuple[Any, Array]], bounds: Array) -> Array:
    """Write every row to the file of its part, with its key; returns the rows (parts,) of each."""
    import pyarrow as pa

    counts = np.zeros(len(bounds) + 1, dtype=np.int64)
    writers: dict[int, Any] = {}
    with ExitStack() as open_files:
        for batch, keys in keyed:
            batch = pa.RecordBatch.from_arrays([*batch.columns, pa.array(keys)], names=[*batch.schema.names, KEY])
            part_of = np.searchsorted(bounds, keys, side="right")
            for part in np.unique(part_of).tolist():
                if part not in writers:
                    path = str(folder / f"{part}.dealt")
                    writers[part] = open_files.enter_context(pa.ipc.new_stream(path, batch.schema))
                rows = np.flatnonzero(part_of == part)
                writers[part].write_batch(batch.take(pa.array(rows)))
                counts[part] += len(rows)
    return counts


def _sort(folder: Path, part: int) -> None:
    """Sort one part by its keys, rows with the same key in their order, and let go of the unsorted one."""
    import pyarrow as pa

    dealt = folder / f"{part}.dealt"
    with pa.OSFile(str(dealt)) as file, pa.ipc.open_stream(file) as reader:
        table = reader.read_all()
    order = np.argsort(table.column(KEY).to_numpy(), kind="stable")
    table = table.drop_columns([KEY]).combine_chunks().take(pa.array(order))
    with pa.ipc.new_file(str(folder / f"{part}.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    dealt.unlink()

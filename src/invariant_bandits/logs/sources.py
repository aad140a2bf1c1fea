"""What a source of rows is, whatever its format, and what the formats share.

A source is cut into tasks (one row group of a Parquet file, one CSV file, one table) whose order is the order of the
log. A source of files can be sent to another machine: it holds paths only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError
from invariant_bandits.logs.schema import Schema, listed

BATCH_ROWS = 65_536
SAMPLE_ROWS = 1000
MOST_COLUMNS = 10_000
LONGEST_NAME = 10_000


@dataclass(frozen=True)
class Task:
    """A part of the log that is read in one go.

    Parameters
    ----------
    file : str
        Path of the file, or a name for what is in memory.
    part : int
        Which part of the file (the row group, for Parquet), 0 if there is one only.
    first_row : int
        Its first row within the file.
    position : int
        Its first row within the whole log; 0 where the source does not count rows, then the survey does.
    """

    file: str
    part: int
    first_row: int
    position: int


@runtime_checkable
class Source(Protocol):
    """Rows in the order of the log, as Arrow record batches; what a format makes of its files or objects.

    A source whose columns can mean one thing only says so itself: it has an attribute `schema`, see `own_schema`.
    Several threads may read different tasks at the same time.
    """

    @property
    def arrow_schema(self) -> Any:
        """Names and types of the columns."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Its parts in the order of the log."""

    @property
    def total_rows(self) -> int | None:
        """The number of rows, where it is known before reading."""

    @property
    def in_files(self) -> bool:
        """Whether other machines can open it by its paths."""

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Pairs (row within the file, record batch) of a task.

        Parameters
        ----------
        task : Task
            One of `tasks`.
        columns : sequence of str
            The columns that are wanted, in this order.
        first_row : int, optional
            Instead of the task: everything in its file from this row on, which is behind the task; nothing if the task
            is the whole file.
        """

    def skipped(self, task: Task) -> Sequence[int]:
        """Rows of a task's file that could not be parsed at all, known once its batches are read."""


def skipped_by_reason(source: Source, task: Task) -> Mapping[str, Sequence[int]]:
    """Rows of a task's file that could not be parsed, by the reason; a source may have a method of this name."""
    told = getattr(source, "skipped_by_reason", None)
    if told is not None:
        return dict(told(task))
    return {"row with another number of values than the header": source.skipped(task)}


def own_schema(source: Source) -> Schema | None:
    """The schema that a source brings along, None if it has to be inferred from its columns."""
    schema = getattr(source, "schema", None)
    return schema if isinstance(schema, Schema) else None


@dataclass
class SourceAround:
    """What a source that changes the columns of another one shares with it; it has batches and a schema of its own.

    Parameters
    ----------
    inner : Source
        The other one.
    """

    inner: Source

    @property
    def tasks(self) -> Sequence[Task]:
        """Its parts in the order of the log."""
        return self.inner.tasks

    @property
    def total_rows(self) -> int | None:
        """The number of rows, where it is known before reading."""
        return self.inner.total_rows

    @property
    def in_files(self) -> bool:
        """Whether other machines can open it by its paths."""
        return self.inner.in_files

    @property
    def schema(self) -> Schema | None:
        """What the other one says about its columns."""
        return own_schema(self.inner)

    def skipped(self, task: Task) -> Sequence[int]:
        """Rows that could not be parsed at all."""
        return self.inner.skipped(task)

    def skipped_by_reason(self, task: Task) -> Mapping[str, Sequence[int]]:
        """The same by reason."""
        return skipped_by_reason(self.inner, task)


def sample_of(source: Source) -> Any:
    """The first rows, an Arrow table of its own memory: it may be kept while the batch it came from is let go."""
    for task in source.tasks:
        for _, batch in source.batches(task, source.arrow_schema.names):
            return _copied(batch.slice(0, SAMPLE_ROWS))
    raise InputError(f"the log is empty: {', '.join(task.file for task in source.tasks[:3]) or 'no rows'}")


def _copied(batch: Any) -> Any:
    """A table of these rows; writing cuts the buffers to them, a slice would hold those of the whole batch."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Errors of pyarrow and of the disk about a file become FileError with its path."""
    import pyarrow as pa

    try:
        yield
    except FileError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path} is not readable: {' '.join(str(error).split())}") from error


def require_same_names(path: str, schema: Any, first: str, expected: Any) -> None:
    """FileError if the Arrow `schema` of a file lacks a column that the `first` file of the log has."""
    missing = sorted(set(expected.names) - set(schema.names))
    if missing:
        raise FileError(f"{path} lacks the columns {', '.join(missing)} that {first} has")


def require_usable_names(path: str, names: Sequence[str]) -> None:
    """FileError if a file has too many columns, two of the same name, or a name that is none."""
    if len(names) > MOST_COLUMNS:
        raise FileError(f"{path} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    longest = max(map(len, names), default=0)
    if longest > LONGEST_NAME:
        raise FileError(f"{path} has the name of a column with {longest:,} signs; at most {LONGEST_NAME:,} can be read")
    if len(set(names)) < len(names):
        twice = [name or "(no name)" for name, times in Counter(names).items() if times > 1]
        raise FileError(f"{path} has several columns of the same name: {listed(twice)}; rename them")


def cut_at(table: Any, skipped: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Batches of a block with their first row in it, cut where rows were skipped."""
    row = passed = 0
    for batch in table.to_batches():
        while passed < len(skipped) and skipped[passed] < row + len(batch):
            before = batch.slice(0, skipped[passed] - row)
            if len(before):
                yield row, before
            batch, row, passed = batch.slice(len(before)), skipped[passed] + 1, passed + 1
        if len(batch):
            yield row, batch
        row += len(batch)


def joined(batches: Sequence[Any]) -> Any:
    """One record batch of several; a column that is text in some of them is text in all."""
    import pyarrow as pa

    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.concat_batches(batches)
    columns = [[batch.column(name) for batch in batches] for name in first.names]
    alike = [
        parts if len({part.type for part in parts}) == 1 else [_as_text(part) for part in parts] for parts in columns
    ]
    return pa.RecordBatch.from_arrays([pa.concat_arrays(parts) for parts in alike], names=first.names)


def _as_text(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.string())

"""Sources of rows.

A source is cut into tasks (row groups of a Parquet file, a CSV file, one table) whose order is the
order of the log. A source of files can be sent to another machine: it holds paths only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from invariant_bandits.checks import InputError, format_names
from invariant_bandits.logs.decode import TimeFormat, is_number
from invariant_bandits.logs.schema import Schema
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError

BATCH_ROWS = 65_536
"""Rows that are decoded at once: ten columns of them take 5 MB, which fits into a processor's cache."""
LEAST_SAMPLE = 1000
"""First rows from which fillers of missing values are computed, however wide the log is."""
SAMPLE_ROWS = 10_000
"""First rows that show what the columns mean: a share of 1 % has a standard error of 0.1 %."""
SAMPLE_VALUES = 2_000_000
"""Of wide logs, so many values are looked at before what their columns mean is decided."""
MOST_COLUMNS = 10_000
"""A table with more columns was transposed, or cut at the wrong delimiter."""
Batches: TypeAlias = Iterator[tuple[int, Any]]
"""Pairs (row within the file, record batch)."""


@dataclass(frozen=True)
class Task:
    """A part of the log that is read in one go.

    Parameters
    ----------
    file : str
        Path of the file, or a name for what is in memory.
    part : int
        Which part of the file (its first row group, for Parquet), 0 if there is one only.
    first_row : int
        Its first row within the file.
    position : int
        Its first row within the whole log; 0 where the source does not count rows, then the survey does.
    """

    file: str
    part: int
    first_row: int
    position: int

    def positions(self, rows: Any) -> Any:
        """Return positions in the whole log of rows within the file."""
        return self.position - self.first_row + rows


class Source:
    """Rows in the order of the log, as Arrow record batches; what a format makes of its files or objects.

    A format derives its source from this class. It sets `arrow_schema` and `tasks` and has `batches`; several
    threads may read different tasks at the same time.

    Attributes
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of the columns.
    tasks : sequence of Task
        Its parts in the order of the log.
    total_rows : int or None
        The number of rows, where it is known before reading.
    in_files : bool
        Whether other machines can open it by its paths.
    schema : Schema or None
        What the columns mean, if they can mean one thing only; None if that has to be inferred.
    skips_lines : bool
        Whether `skipped` names lines of the file that are not rows of the log.
    parses : bool
        Whether its files are text, which costs more to read than typed columns.
    dictionaries : sequence of str
        Columns of categories, which `batches` may give as Arrow dictionaries.
    """

    arrow_schema: Any
    tasks: Sequence[Task]
    total_rows: int | None = None
    in_files: bool = True
    schema: Schema | None = None
    skips_lines: bool = False
    parses: bool = False
    dictionaries: Sequence[str] = ()

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield pairs (row within the file, record batch) of a task.

        Parameters
        ----------
        task : Task
            One of `tasks`.
        columns : sequence of str
            The columns that are wanted, in this order.
        """
        raise NotImplementedError

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the rows of a task's file that could not be parsed, by reason.

        They are known once the batches of the task are read.
        """
        return {}

    def give_dictionaries(self, columns: Sequence[str]) -> None:
        """Say which columns hold categories."""
        self.dictionaries = tuple(columns)


@dataclass
class FileSource(Source):
    """What sources of files share: one task per file.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)


def shared_schema(paths: Sequence[str], schema_of: Callable[[str], Any]) -> Any:
    """Return the Arrow schema of the first file.

    FileError if it is not usable, or a later file lacks a column.
    """
    first = schema_of(paths[0])
    require_usable_names(paths[0], first.names)
    for path in paths[1:]:
        missing = sorted(set(first.names) - set(schema_of(path).names))
        if missing:
            raise FileError(
                f"{path} lacks the columns {', '.join(missing)} that {paths[0]} has"
            )
    return first


class SourceAround(Source):
    """A source that changes the columns of another one, `inner`."""

    def __init__(self, inner: Source) -> None:
        self.inner = inner
        self.tasks = inner.tasks
        self.total_rows = inner.total_rows
        self.in_files = inner.in_files
        self.schema = inner.schema
        self.skips_lines = inner.skips_lines
        self.parses = inner.parses

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the rows that the other one could not parse."""
        return self.inner.skipped(task)

    def give_dictionaries(self, columns: Sequence[str]) -> None:
        """Say to the other one which columns hold categories."""
        self.inner.give_dictionaries(columns)


class DatedSource(SourceAround):
    """A source with its times as timestamps.

    Parameters
    ----------
    inner : Source
        The rows as they are.
    column : str
        The times.
    form : TimeFormat
        What makes timestamps of them.
    """

    def __init__(self, inner: Source, column: str, form: TimeFormat) -> None:
        super().__init__(inner)
        self.column = column
        self.form = form
        index = inner.arrow_schema.get_field_index(column)
        dated = inner.arrow_schema.field(index).with_type(pa.timestamp("us"))
        self.arrow_schema = inner.arrow_schema.set(index, dated)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches with timestamps."""
        for row, batch in self.inner.batches(task, columns):
            if self.column in columns:
                index = batch.schema.get_field_index(self.column)
                batch = batch.set_column(
                    index, self.column, self.form(batch.column(index))
                )
            yield row, batch


def first_rows(source: Source) -> Any:
    """Return a table of copies of the first rows, so that the batches they came from are let go."""
    names = source.arrow_schema.names
    most = max(min(SAMPLE_ROWS, SAMPLE_VALUES // max(len(names), 1)), LEAST_SAMPLE)
    copies: list[Any] = []
    for _, batch in (
        pair for task in source.tasks for pair in source.batches(task, names)
    ):
        # Another file, whose types differ.
        if copies and batch.schema != copies[0].schema:
            break
        copies.append(batch.take(pa.array(range(min(len(batch), most)))))
        if sum(map(len, copies)) >= LEAST_SAMPLE:
            break
    if not copies:
        files = ", ".join(task.file for task in source.tasks[:3])
        raise InputError(f"the log is empty: {files or 'no rows'}")
    return pa.Table.from_batches(copies)


def require_usable_names(path: str, names: Sequence[str]) -> None:
    """FileError if a file has too many columns, two of the same name, or a name that is none."""
    if len(names) > MOST_COLUMNS:
        raise FileError(
            f"{path} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read"
        )
    if len(set(names)) < len(names):
        twice = [
            name or "(no name)" for name, times in Counter(names).items() if times > 1
        ]
        raise FileError(
            f"{path} has several columns of the same name: {format_names(twice)}; rename them"
        )


def flattened(table: Any) -> Any:
    """The table with the fields of objects as columns of their own, such as "user.age"."""
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def cut_at(table: Any, skipped: Sequence[int]) -> Batches:
    """Batches of a block with their first row in it, cut where rows were skipped."""
    row = passed = 0
    for batch in table.to_batches():
        while passed < len(skipped) and skipped[passed] < row + len(batch):
            before = batch.slice(0, skipped[passed] - row)
            if len(before):
                yield row, before
            batch = batch.slice(len(before))
            row = skipped[passed] + 1
            passed = passed + 1
        if len(batch):
            yield row, batch
        row += len(batch)


def join_batches(batches: Sequence[Any]) -> Any:
    """One record batch of several; a column whose types differ holds numbers if all are, else text."""
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.concat_batches(batches)
    columns = []
    for name in first.names:
        parts = [batch.column(name) for batch in batches]
        if len({part.type for part in parts}) > 1:
            kind = (
                pa.float64()
                if all(is_number(part.type) for part in parts)
                else pa.string()
            )
            parts = [part.cast(kind) for part in parts]
        columns.append(pa.concat_arrays(parts))
    return pa.RecordBatch.from_arrays(columns, names=first.names)

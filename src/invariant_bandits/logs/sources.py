"""Where rows come from: Parquet and CSV files, tables and frames in memory, obp feedback; all as Arrow batches.

A source is cut into tasks (one row group of a Parquet file, one CSV file, one table) whose order is the order of the
log. A source of files can be sent to another machine: it holds paths only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from invariant_bandits.files import FileError

BATCH_ROWS = 65_536
CSV_BLOCK_BYTES = 8 << 20
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class Task:
    """A part of the log that is read in one go.

    file: its path, or a name for what is in memory; part: the row group, 0 if there is one part only; first_row: its
    first row within the file; position: its first row within the whole log, where the source counts rows.
    """

    file: str
    part: int
    first_row: int
    position: int


class Source(Protocol):
    """Rows in the order of the log."""

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
        """Pairs (row within the file, record batch) of a task, only these columns.

        With `first_row`, instead: of everything in the task's file from that row on, which is behind the task.
        """

    def skipped(self, task: Task) -> Sequence[int]:
        """Rows of a task's file that could not be parsed at all, known once its batches are read."""


@dataclass
class ParquetSource:
    """Parquet files; one task per row group."""

    paths: tuple[str, ...]
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int = field(init=False)
    in_files: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        tasks: list[Task] = []
        position = 0
        for path in self.paths:
            with _parquet_file(path) as file:
                if path == self.paths[0]:
                    self.arrow_schema = file.schema_arrow
                else:
                    _require_same_names(path, file.schema_arrow, self.paths[0], self.arrow_schema)
                first_row = 0
                for part in range(file.metadata.num_row_groups):
                    tasks.append(Task(path, part, first_row, position))
                    first_row += file.metadata.row_group(part).num_rows
                    position += file.metadata.row_group(part).num_rows
        self.tasks, self.total_rows = tuple(tasks), position

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of one row group, or of those behind it."""
        with _parquet_file(task.file) as file, _naming(task.file):
            groups = [task.part] if first_row is None else list(range(task.part + 1, file.metadata.num_row_groups))
            row = task.first_row if first_row is None else first_row
            if not groups:
                return
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns), use_threads=False):
                yield row, batch
                row += len(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """Parquet has typed values: a row group is read or it is not."""
        return ()


@dataclass
class CsvSource:
    """CSV files with a header; every column is read as text, so that a value that is no number costs one row only."""

    paths: tuple[str, ...]
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int | None = field(init=False, default=None)
    in_files: bool = field(init=False, default=True)
    _skipped: dict[str, list[int]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.arrow_schema = self._guessed_schema(self.paths[0])
        for path in self.paths[1:]:
            _require_same_names(path, self._guessed_schema(path), self.paths[0], self.arrow_schema)
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)

    def _guessed_schema(self, path: str) -> Any:
        """Names, and the types that most values of the first block suggest."""
        import pyarrow as pa
        from pyarrow import csv

        parsing = csv.ParseOptions(invalid_row_handler=lambda row: "skip")
        with _naming(path), csv.open_csv(path, parse_options=parsing, convert_options=self._converting(None)) as reader:
            schema, first = reader.schema, next(iter(reader), None)
        for index, one in enumerate(schema):
            if first is not None and pa.types.is_string(one.type) and _mostly_numbers(first.column(index)):
                schema = schema.set(index, one.with_type(pa.float64()))
        return schema

    def _converting(self, columns: Sequence[str] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        if columns is None:
            return csv.ConvertOptions(strings_can_be_null=True)
        texts = {name: pa.string() for name in columns}
        return csv.ConvertOptions(include_columns=list(columns), column_types=texts, strings_can_be_null=True)

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of one file; nothing is behind it."""
        from pyarrow import csv

        if first_row is not None:
            return
        skipped: list[int] = []
        self._skipped[task.file] = skipped

        def skip(row: Any) -> str:
            skipped.append(row.number - 2)  # counted from 1, and the header is a row
            return "skip"

        reading = csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False)
        parsing = csv.ParseOptions(invalid_row_handler=skip)
        row, passed = 0, 0
        with (
            _naming(task.file),
            csv.open_csv(
                task.file, read_options=reading, parse_options=parsing, convert_options=self._converting(columns)
            ) as reader,
        ):
            for batch in reader:
                while passed < len(skipped) and skipped[passed] < row + len(batch):
                    before = batch.slice(0, skipped[passed] - row)
                    if len(before):
                        yield row, before
                    batch, row, passed = batch.slice(len(before)), skipped[passed] + 1, passed + 1
                if len(batch):
                    yield row, batch
                row += len(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """Rows with more or fewer values than the header."""
        return self._skipped.get(task.file, ())


@dataclass
class TableSource:
    """An Arrow table, or anything that becomes one."""

    table: Any
    name: str = "table"
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int = field(init=False)
    in_files: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.arrow_schema, self.total_rows = self.table.schema, self.table.num_rows
        self.tasks = (Task(self.name, 0, 0, 0),)

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of the table; nothing is behind it."""
        if first_row is not None:
            return
        row = 0
        for batch in self.table.select(list(columns)).to_batches(BATCH_ROWS):
            yield row, batch
            row += len(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """A table has typed values."""
        return ()


def _mostly_numbers(column: Any) -> bool:
    """Whether at least nine in ten of the first values are numbers: the others are then mistakes, not categories."""
    words = column.drop_null().slice(0, SAMPLE_ROWS).to_pylist()
    numbers = 0
    for word in words:
        try:
            float(word)
            numbers += 1
        except ValueError:
            continue
    return numbers >= 0.9 * len(words) > 0.0


def _parquet_file(path: str) -> Any:
    from pyarrow import parquet

    with _naming(path):
        return parquet.ParquetFile(path, pre_buffer=False)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of pyarrow about a file become FileError with its path."""
    import pyarrow as pa

    try:
        yield
    except FileError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path} is not readable: {error}") from error


def _require_same_names(path: str, schema: Any, first: str, expected: Any) -> None:
    missing = sorted(set(expected.names) - set(schema.names))
    if missing:
        raise FileError(f"{path} lacks the columns {', '.join(missing)} that {first} has")

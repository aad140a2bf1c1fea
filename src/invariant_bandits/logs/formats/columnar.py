"""Files of typed columns: Parquet, and Arrow files and streams, of which Feather is one.

Parquet has one task per row group or several small ones, Arrow one task per file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from invariant_bandits.logs.decode import batch_without_views, schema_without_views
from invariant_bandits.logs.files import is_remote, naming_file, open_file
from invariant_bandits.logs.formats.registry import register_log_format
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    Batches,
    FileSource,
    Task,
    shared_schema,
)
from invariant_bandits.optional import LazyModule
from invariant_bandits.optional import pyarrow as pa

parquet: Any = LazyModule("pyarrow.parquet")

FILE_MAGIC = b"ARROW1"
ROWS_PER_TASK = BATCH_ROWS
"""Row groups with fewer rows are read together with their neighbours."""


@register_log_format("parquet", label="Parquet", suffixes=(".parquet", ".pq"))
@dataclass
class ParquetSource(FileSource):
    """Parquet files, all with the columns of the first.

    Neighbouring row groups are one task until they have ROWS_PER_TASK rows.
    """

    def __post_init__(self) -> None:
        tasks: list[Task] = []
        position = 0
        self._ends: dict[tuple[str, int], int] = {}
        self._footers: dict[str, Any] = {}

        def schema_of(path: str) -> Any:
            nonlocal position
            with _parquet_file(path) as file:
                groups = file.metadata.num_row_groups
                first_row = 0
                part = 0
                rows = 0
                for group in range(groups):
                    rows += file.metadata.row_group(group).num_rows
                    if rows >= ROWS_PER_TASK or group == groups - 1:
                        tasks.append(Task(path, part, first_row, position))
                        self._ends[path, part] = group + 1
                        first_row = first_row + rows
                        position = position + rows
                        part = group + 1
                        rows = 0
                # Several tasks open it again.
                if part > 0 and self._ends.get((path, 0)) != groups:
                    self._footers[path] = file.metadata
                return schema_without_views(file.schema_arrow)

        self.arrow_schema = shared_schema(self.paths, schema_of)
        self.tasks = tuple(tasks)
        self.total_rows = position

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of the row groups of a task."""
        dictionaries = [
            name for name in self.dictionaries if name in self.arrow_schema.names
        ]
        footer = self._footers.get(task.file)
        with (
            _parquet_file(task.file, dictionaries, footer) as file,
            naming_file(task.file),
        ):
            groups = list(range(task.part, self._ends[task.file, task.part]))
            row = task.first_row
            how: dict[str, Any] = {"columns": list(columns), "use_threads": False}
            rows = sum(file.metadata.row_group(group).num_rows for group in groups)
            # Else every small group would be a batch.
            if len(groups) > 1 and rows <= 2 * BATCH_ROWS:
                joined = (
                    file.read_row_groups(groups, **how)
                    .unify_dictionaries()
                    .combine_chunks()
                )
                batches = joined.to_batches(BATCH_ROWS)
            else:
                batches = file.iter_batches(BATCH_ROWS, row_groups=groups, **how)
            for batch in batches:
                yield row, batch_without_views(batch)
                row += len(batch)


def _parquet_file(
    path: str, dictionaries: Sequence[str] = (), footer: Any = None
) -> Any:
    with naming_file(path):
        file = open_file(path) if is_remote(path) else path
        names = list(dictionaries)
        return parquet.ParquetFile(
            file, pre_buffer=False, read_dictionary=names, metadata=footer
        )


@register_log_format("arrow", label="Arrow", suffixes=(".arrow", ".feather", ".ipc"))
@dataclass
class ArrowSource(FileSource):
    """Arrow IPC files or streams, all with the columns of the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrow_schema = shared_schema(self.paths, _schema)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of one file."""
        row = 0
        with _reader(task.file, columns) as (_, batches):
            for large in batches:
                chosen = large.select(list(columns))
                # Positions outside of a damaged file are read otherwise.
                chosen.validate(full=True)
                for start in range(0, len(chosen), BATCH_ROWS):
                    yield (
                        row + start,
                        batch_without_views(chosen.slice(start, BATCH_ROWS)),
                    )
                row += len(chosen)


def _schema(path: str) -> Any:
    with _reader(path, None) as (schema, _):
        return schema_without_views(schema)


@contextmanager
def _reader(
    path: str, columns: Sequence[str] | None
) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and record batches of a file; of the other columns nothing is decoded if it can be helped."""
    with naming_file(path), open_file(path) as file:
        is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
        file.seek(0)
        if not is_file:
            stream = pa.ipc.open_stream(file)
            yield stream.schema, iter(stream)
            return
        whole = pa.ipc.open_file(file)
        if columns is not None:
            wanted = [whole.schema.get_field_index(name) for name in columns]
            file.seek(0)
            whole = pa.ipc.open_file(
                file, options=pa.ipc.IpcReadOptions(included_fields=sorted(set(wanted)))
            )
        yield (
            whole.schema,
            (whole.get_batch(index) for index in range(whole.num_record_batches)),
        )

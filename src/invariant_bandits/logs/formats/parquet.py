"""Parquet files, one task per row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.logs.decode import batch_without_views, schema_without_views
from invariant_bandits.logs.formats.registry import log_format
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    Task,
    is_remote,
    naming_file,
    open_file,
    require_same_names,
    require_usable_names,
)


@log_format("parquet", label="Parquet", suffixes=(".parquet", ".pq"))
@dataclass
class ParquetSource:
    """Parquet files; one task per row group.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log; all have the columns of the first.
    """

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
                    require_usable_names(path, file.schema_arrow.names)
                    self.arrow_schema = schema_without_views(file.schema_arrow)
                else:
                    require_same_names(path, file.schema_arrow, self.paths[0], self.arrow_schema)
                first_row = 0
                for part in range(file.metadata.num_row_groups):
                    tasks.append(Task(path, part, first_row, position))
                    first_row += file.metadata.row_group(part).num_rows
                    position += file.metadata.row_group(part).num_rows
        self.tasks, self.total_rows = tuple(tasks), position

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of one row group, or of those behind it."""
        with _parquet_file(task.file) as file, naming_file(task.file):
            groups = [task.part] if first_row is None else list(range(task.part + 1, file.metadata.num_row_groups))
            row = task.first_row if first_row is None else first_row
            if not groups:
                return
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(columns), use_threads=False):
                yield row, batch_without_views(batch)
                row += len(batch)

    @staticmethod
    def write_table(sink: Any, path: str, arrow_schema: Any, batches: Iterable[Any]) -> None:
        """Write row groups of about a batch each."""
        from pyarrow import parquet

        with parquet.ParquetWriter(sink, arrow_schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """Parquet has typed values: a row group is read or it is not."""
        return ()


def _parquet_file(path: str) -> Any:
    from pyarrow import parquet

    with naming_file(path):
        return parquet.ParquetFile(open_file(path) if is_remote(path) else path, pre_buffer=False)

"""Parquet files, one task per row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from invariant_bandits.logs.decode import batch_without_views, schema_without_views
from invariant_bandits.logs.formats.registry import log_format
from invariant_bandits.logs.sources import (
    BATCH_ROWS,
    FileSource,
    Task,
    is_remote,
    naming_file,
    open_file,
    shared_schema,
)


@log_format("parquet", label="Parquet", suffixes=(".parquet", ".pq"))
@dataclass
class ParquetSource(FileSource):
    """Parquet files, all with the columns of the first; one task per row group."""

    def __post_init__(self) -> None:
        tasks: list[Task] = []
        position = 0

        def schema_of(path: str) -> Any:
            nonlocal position
            with _parquet_file(path) as file:
                first_row = 0
                for part in range(file.metadata.num_row_groups):
                    tasks.append(Task(path, part, first_row, position))
                    first_row += file.metadata.row_group(part).num_rows
                    position += file.metadata.row_group(part).num_rows
                return schema_without_views(file.schema_arrow)

        self.arrow_schema = shared_schema(self.paths, schema_of)
        self.tasks, self.total_rows = tuple(tasks), position

    def batches(
        self, task: Task, columns: Sequence[str], first_row: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Batches of one row group, or of those behind it."""
        with _parquet_file(task.file) as file, naming_file(task.file):
            groups = (
                [task.part] if first_row is None else list(range(task.part + 1, file.metadata.num_row_groups))
            )
            row = task.first_row if first_row is None else first_row
            if not groups:
                return
            for batch in file.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=list(columns), use_threads=False
            ):
                yield row, batch_without_views(batch)
                row += len(batch)

    @staticmethod
    def write_table(sink: Any, path: str, arrow_schema: Any, batches: Iterable[Any]) -> None:
        """Write row groups of about a batch each."""
        from pyarrow import parquet

        with parquet.ParquetWriter(sink, arrow_schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def _parquet_file(path: str) -> Any:
    from pyarrow import parquet

    with naming_file(path):
        return parquet.ParquetFile(open_file(path) if is_remote(path) else path, pre_buffer=False)

"""Arrow tables, and frames that become one: pandas, Polars, and whatever else speaks Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.arrow_types import batch_without_views, schema_without_views
from invariant_bandits.logs.formats.registry import log_format
from invariant_bandits.logs.sources import BATCH_ROWS, Task, require_usable_names


@dataclass
class TableSource:
    """An Arrow table as a source of rows.

    Parameters
    ----------
    table : pyarrow.Table
        The rows.
    name : str
        What messages call it.
    """

    table: Any
    name: str = "table"
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int = field(init=False)
    in_files: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        require_usable_names(self.name, self.table.schema.names)
        self.arrow_schema, self.total_rows = schema_without_views(self.table.schema), self.table.num_rows
        self.tasks = (Task(self.name, 0, 0, 0),)

    def batches(self, task: Task, columns: Sequence[str], first_row: int | None = None) -> Iterator[tuple[int, Any]]:
        """Batches of the table; nothing is behind it."""
        if first_row is not None:
            return
        row = 0
        for batch in self.table.select(list(columns)).to_batches(BATCH_ROWS):
            yield row, batch_without_views(batch)
            row += len(batch)

    def skipped(self, task: Task) -> Sequence[int]:
        """A table has typed values."""
        return ()


def _is_pandas(source: Any) -> bool:
    return type(source).__module__.partition(".")[0] == "pandas"


def _is_table(source: Any) -> bool:
    import pyarrow as pa

    return isinstance(source, pa.Table | pa.RecordBatch) or _is_pandas(source) or hasattr(source, "__arrow_c_stream__")


@log_format("table", label="an Arrow table, a pandas or Polars frame", accepts=_is_table)
def open_table(source: Any) -> TableSource:
    """The table behind an Arrow table, a record batch or a frame."""
    import pyarrow as pa

    if isinstance(source, pa.Table):
        return TableSource(source)
    if isinstance(source, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([source]))
    if _is_pandas(source):
        require_usable_names("frame", [str(name) for name in source.columns])
        return TableSource(_from_pandas(source), "frame")
    return TableSource(pa.table(source), "frame")


def _from_pandas(frame: Any) -> Any:
    """The table of a pandas frame, or InputError for columns of mixed types."""
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"source: the frame cannot be read: {' '.join(map(str, error.args))}") from None

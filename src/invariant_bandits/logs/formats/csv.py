"""CSV files with a header, one task per file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.logs.formats.registry import log_format
from invariant_bandits.logs.sources import SAMPLE_ROWS, Task, naming_file, require_same_names

BLOCK_BYTES = 8 << 20


@log_format("csv", label="CSV", suffixes=(".csv", ".csv.gz"))
@dataclass
class CsvSource:
    """CSV files with a header; every column is read as text, so that a value that is no number costs one row only.

    Parameters
    ----------
    paths : tuple of str
        The files in the order of the log; all have the columns of the first.
    """

    paths: tuple[str, ...]
    arrow_schema: Any = field(init=False)
    tasks: tuple[Task, ...] = field(init=False)
    total_rows: int | None = field(init=False, default=None)
    in_files: bool = field(init=False, default=True)
    _skipped: dict[str, list[int]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.arrow_schema = self._guessed_schema(self.paths[0])
        for path in self.paths[1:]:
            require_same_names(path, self._guessed_schema(path), self.paths[0], self.arrow_schema)
        self.tasks = tuple(Task(path, 0, 0, 0) for path in self.paths)

    def _guessed_schema(self, path: str) -> Any:
        """Names, and the types that most values of the first block suggest."""
        import pyarrow as pa
        from pyarrow import csv

        parsing = csv.ParseOptions(invalid_row_handler=lambda row: "skip")
        with (
            naming_file(path),
            csv.open_csv(path, parse_options=parsing, convert_options=self._converting(None)) as reader,
        ):
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
        skipped = self._skipped[task.file] = list[int]()

        def skip(row: Any) -> str:
            skipped.append(row.number - 2)  # counted from 1, and the header is a row
            return "skip"

        options = {
            "read_options": csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            "parse_options": csv.ParseOptions(invalid_row_handler=skip),
            "convert_options": self._converting(columns),
        }
        with naming_file(task.file), csv.open_csv(task.file, **options) as reader:
            yield from _with_rows(reader, skipped)

    def skipped(self, task: Task) -> Sequence[int]:
        """Rows with more or fewer values than the header."""
        return self._skipped.get(task.file, ())


def _with_rows(batches: Iterable[Any], skipped: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Batches with their first row in the file, cut where rows were skipped; `skipped` grows while they are read."""
    row, passed = 0, 0
    for batch in batches:
        while passed < len(skipped) and skipped[passed] < row + len(batch):
            before = batch.slice(0, skipped[passed] - row)
            if len(before):
                yield row, before
            batch, row, passed = batch.slice(len(before)), skipped[passed] + 1, passed + 1
        if len(batch):
            yield row, batch
        row += len(batch)


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

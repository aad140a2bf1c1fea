"""Text tables with a header: CSV, TSV and their kin."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from invariant_bandits.checks import format_names
from invariant_bandits.logs.decode import is_time
from invariant_bandits.logs.files import naming_file
from invariant_bandits.logs.formats.registry import (
    register_log_format,
    without_compression,
)
from invariant_bandits.logs.sources import (
    SAMPLE_ROWS,
    Batches,
    Task,
    require_usable_names,
    shared_schema,
)
from invariant_bandits.logs.text_files import TextSource, first_lines
from invariant_bandits.optional import LazyModule, compute
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError

arrow_csv: Any = LazyModule("pyarrow.csv")

DELIMITERS = (",", ";", "\t", "|")
LINES = 200
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$")
DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+$")
THOUSANDS = {
    ",": r"^[+-]?\d{1,3}(\.\d{3})+(,\d*)?$",
    ".": r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$",
}
"""Numbers with separators of thousands, by the decimal separator."""
SIGNS = r"^(-?)[$€£¥]\s?|\s?([%$€£¥]|EUR|USD|GBP|CHF)$"
"""What stands beside amounts and percentages."""
PREAMBLE = re.compile(rb'("?sep=(?P<sign>[,;|\t])"?\r?\n)?(#[^\n]*\n)*')


@dataclass(frozen=True)
class Dialect:
    """How the values of a text table are written.

    Parameters
    ----------
    delimiter : str
        What separates values.
    decimal : str
        "." or ",".
    before : int
        Bytes before the header: a line such as sep=; and comments (#).

    >>> Dialect.of(b"price;reward\\n1,5;0\\n2,25;1\\n")
    Dialect(delimiter=';', decimal=',', before=0)
    """

    delimiter: str = ","
    decimal: str = "."
    before: int = 0

    @classmethod
    def of(cls, sample: bytes, likely: str = ",") -> Dialect:
        """The dialect of a table that begins with `sample`; `likely` is tried first."""
        preamble = PREAMBLE.match(sample)
        before = len(preamble.group()) if preamble else 0
        if preamble and preamble["sign"]:
            likely = preamble["sign"].decode()
        lines = sample[before:].decode(errors="replace")
        tables = {
            sign: _table(lines, sign) for sign in dict.fromkeys((likely, *DELIMITERS))
        }
        delimiter = max(tables, key=lambda sign: _regularity(tables[sign]))
        if len(tables[delimiter][0]) < 2:
            return cls(likely, before=before)
        values = [
            re.sub(SIGNS, r"\1", value.strip())
            for row in tables[delimiter][1:]
            for value in row
        ]
        return cls(
            delimiter,
            "," if delimiter != "," and _has_decimal_commas(values) else ".",
            before,
        )

    def header(self, sample: bytes) -> list[str]:
        """Names of the columns of a table that begins with `sample`."""
        lines = sample[self.before :].decode(errors="replace")
        return _table(lines, self.delimiter)[0]

    def with_points(self, column: Any) -> Any:
        """A column of text numbers with decimal points, nothing between thousands and no signs of units."""
        column = compute.replace_substring_regex(column, SIGNS, r"\1")
        between = "," if self.decimal == "." else "."
        grouped = compute.match_substring_regex(column, THOUSANDS[self.decimal])
        joined = compute.replace_substring(column, between, "")
        column = compute.if_else(grouped, joined, column)
        # Without decimal commas none is left.
        return compute.replace_substring(column, ",", ".") if between == "." else column


def _has_decimal_commas(values: list[str]) -> bool:
    """Return whether commas stand before decimals.

    Three digits behind a separator decide only if nothing else does.
    """
    commas = [value for value in values if DECIMAL_COMMA.match(value)]
    points = [value for value in values if DECIMAL_POINT.match(value)]
    sure_commas = [value for value in commas if not re.match(THOUSANDS["."], value)]
    sure_points = [value for value in points if not re.match(THOUSANDS[","], value)]
    return (len(sure_commas), len(commas)) > (len(sure_points), len(points))


def _table(lines: str, delimiter: str) -> list[list[str]]:
    """The first rows, without empty ones, up to one with a value that is too long; at least one."""
    rows: list[list[str]] = []
    reader = csv.reader(io.StringIO(lines), delimiter=delimiter)
    with suppress(csv.Error):
        rows.extend(filter(None, islice(reader, LINES)))
    return rows or [[]]


def _regularity(table: list[list[str]]) -> tuple[float, int]:
    """The share of rows with as many values as the header, and how many; one column says nothing."""
    width = len(table[0])
    if width < 2:
        return 0.0, width
    return sum(len(row) == width for row in table) / len(table), width


TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES")
FALSE = ("false", "False", "FALSE", "no", "No", "NO")


@register_log_format("csv", label="CSV", suffixes=(".csv", ".tsv"), packed=True)
@dataclass
class CsvSource(TextSource):
    """Text tables with a header.

    Every column is read as text, so that a value that is not a number costs one row only.

    Delimiters (comma, semicolon, tab, bar), decimal commas and encodings are recognised file by file.

    Attributes
    ----------
    dialects, headers : dict
        By file, how it is written, and the names of its columns.
    grouped : dict of str to set of str
        By file, columns of numbers with separators of thousands, or with decimal commas.
    """

    dialects: dict[str, Dialect] = field(init=False, default_factory=dict, repr=False)
    headers: dict[str, list[str]] = field(init=False, default_factory=dict, repr=False)
    grouped: dict[str, set[str]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrow_schema = shared_schema(self.paths, self._guessed_schema)

    def _guessed_schema(self, path: str) -> Any:
        """Names, and the types that most values of the first lines suggest."""
        sample = first_lines(path, quoted=True)
        if not sample.strip():
            raise FileError(f"{path} is not readable: it is empty")
        usual = "\t" if without_compression(path).endswith(".tsv") else ","
        dialect = self.dialects[path] = Dialect.of(sample, usual)
        self.headers[path] = dialect.header(sample)
        if not self.headers[path]:
            raise FileError(f"{path} is not readable: its first line is not a header")
        require_usable_names(path, self.headers[path])
        with naming_file(path):
            table, bad = _parsed(sample[dialect.before :], dialect, None)
        if bad and not len(table):
            raise FileError(
                f"{path} is not readable: none of its first rows has as many values as its "
                f"header ({format_names(self.headers[path])})"
            )
        schema = table.schema
        grouped = self.grouped.setdefault(path, set())
        for index, column_field in enumerate(schema):
            column = table.column(index)
            commas = dialect.decimal == ","
            if not pa.types.is_string(column_field.type):
                if commas and not is_time(column_field.type):
                    grouped.add(column_field.name)
                continue
            plain = not commas and _mostly_numbers(column)
            if not plain and _mostly_numbers(dialect.with_points(column)):
                grouped.add(column_field.name)
            if plain or column_field.name in grouped:
                schema = schema.set(index, column_field.with_type(pa.float64()))
        return schema

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Batches of one file, or of a part of it."""
        dialect = self.dialects[task.file]
        header = self.headers[task.file]

        def parse(
            block: bytes, names: list[str] | None
        ) -> tuple[Any, list[str], list[int]]:
            table, bad = _parsed(
                block if names else block[dialect.before :], dialect, columns, names
            )
            return table, header, bad

        for row, batch in self.parsed_batches(task, parse, quoted=True):
            for index, name in enumerate(batch.schema.names):
                if name in self.grouped[task.file]:
                    batch = batch.set_column(
                        index, name, dialect.with_points(batch.column(index))
                    )
            yield row, batch

    def skipped(self, task: Task) -> Mapping[str, Sequence[int]]:
        """Return the rows with more or fewer values than the header."""
        return {
            "row with another number of values than the header": self.unparsed_rows(
                task
            )
        }


def _parsed(
    text: bytes, dialect: Dialect, columns: Any, names: Any = None
) -> tuple[Any, list[int]]:
    """Return a table of whole lines, and the rows with another number of values, which it lacks.

    Columns are text, or have the types that they seem to have if no columns are named. No thread runs
    on after it.
    """
    bad: list[int] = []

    def skip(row: Any) -> str:
        bad.append(row.number - (1 if names else 2))  # from 1, and the header is a row
        return "skip"

    converting = arrow_csv.ConvertOptions(
        decimal_point=dialect.decimal,
        strings_can_be_null=True,
        true_values=TRUE,
        false_values=FALSE,
    )
    if columns is not None:
        converting.include_columns = list(columns)
        converting.column_types = {name: pa.string() for name in columns}
    reading = arrow_csv.ReadOptions(
        use_threads=False, block_size=len(text) + 1, column_names=names
    )
    parsing = arrow_csv.ParseOptions(
        delimiter=dialect.delimiter,
        newlines_in_values=True,
        invalid_row_handler=skip,
    )
    return arrow_csv.read_csv(pa.BufferReader(text), reading, parsing, converting), bad


def _mostly_numbers(column: Any) -> bool:
    """Return whether at least nine in ten of the first values are numbers.

    The others are then mistakes, not categories.
    """
    words = column.drop_null().slice(0, SAMPLE_ROWS).to_pylist()
    numbers = 0
    for word in words:
        with suppress(ValueError):
            numbers += float(word) is not None
    return numbers >= 0.9 * len(words) > 0.0

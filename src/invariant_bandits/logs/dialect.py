"""How a text table was written: what separates its values, and which sign its decimals have."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

DELIMITERS = (",", ";", "\t", "|")
LINES = 200
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$")
DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+$")
THOUSANDS = r"^([+-]?\d{1,3}(\.\d{3})+)(,\d*)?$"


@dataclass(frozen=True)
class Dialect:
    """How the values of a text table are written.

    Parameters
    ----------
    delimiter : str
        What separates values.
    decimal : str
        "." or ",".

    >>> Dialect.of(b"price;reward\\n1,5;0\\n2,25;1\\n")
    Dialect(delimiter=';', decimal=',')
    """

    delimiter: str = ","
    decimal: str = "."

    @classmethod
    def of(cls, sample: bytes, likely: str = ",") -> Dialect:
        """The dialect of a table that begins with `sample`; `likely` is tried first."""
        lines = sample.decode(errors="replace")
        tables = {one: _table(lines, one) for one in dict.fromkeys((likely, *DELIMITERS))}
        delimiter = max(tables, key=lambda one: _regularity(tables[one]))
        if len(tables[delimiter][0]) < 2:
            return cls(likely)
        values = [value.strip() for row in tables[delimiter][1:] for value in row]
        commas = sum(DECIMAL_COMMA.match(value) is not None for value in values)
        points = sum(DECIMAL_POINT.match(value) is not None for value in values)
        return cls(delimiter, "," if delimiter != "," and commas > points else ".")

    def header(self, sample: bytes) -> list[str]:
        """Names of the columns of a table that begins with `sample`."""
        return next(iter(_table(sample.decode(errors="replace"), self.delimiter)), [])

    def with_points(self, column: Any) -> Any:
        """A column of text numbers with decimal points and nothing between thousands."""
        from pyarrow import compute

        if self.decimal == ".":
            return column
        grouped = compute.match_substring_regex(column, THOUSANDS)
        column = compute.if_else(grouped, compute.replace_substring(column, ".", ""), column)
        return compute.replace_substring(column, ",", ".")


def _table(lines: str, delimiter: str) -> list[list[str]]:
    """The first rows, without empty ones; at least one."""
    rows = csv.reader(io.StringIO(lines), delimiter=delimiter)
    try:
        return [row for row in islice(rows, LINES) if row] or [[]]
    except csv.Error:
        return [[]]


def _regularity(table: list[list[str]]) -> tuple[float, int]:
    """The share of rows with as many values as the header, and how many; one column says nothing."""
    width = len(table[0])
    if width < 2:
        return 0.0, width
    return sum(len(row) == width for row in table) / len(table), width

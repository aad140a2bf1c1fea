"""How a text table was written: what separates its values, and which sign its decimals have."""

from __future__ import annotations

import csv
import io
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

DELIMITERS = (",", ";", "\t", "|")
LINES = 200
DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$")
DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+$")
THOUSANDS = {",": r"^[+-]?\d{1,3}(\.\d{3})+(,\d*)?$", ".": r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"}
"""Numbers with signs between thousands, by the sign of decimals."""
TOLD = re.compile(rb'("?sep=(?P<sign>[,;|\t])"?\r?\n)?(#[^\n]*\n)*')


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
        told = TOLD.match(sample)
        before = len(told.group()) if told else 0
        if told and told["sign"]:
            likely = told["sign"].decode()
        lines = sample[before:].decode(errors="replace")
        tables = {one: _table(lines, one) for one in dict.fromkeys((likely, *DELIMITERS))}
        delimiter = max(tables, key=lambda one: _regularity(tables[one]))
        if len(tables[delimiter][0]) < 2:
            return cls(likely, before=before)
        values = [value.strip() for row in tables[delimiter][1:] for value in row]
        return cls(delimiter, "," if delimiter != "," and _has_decimal_commas(values) else ".", before)

    def header(self, sample: bytes) -> list[str]:
        """Names of the columns of a table that begins with `sample`."""
        return next(iter(_table(sample[self.before :].decode(errors="replace"), self.delimiter)), [])

    def with_points(self, column: Any) -> Any:
        """A column of text numbers with decimal points and nothing between thousands."""
        from pyarrow import compute

        between = "," if self.decimal == "." else "."
        grouped = compute.match_substring_regex(column, THOUSANDS[self.decimal])
        column = compute.if_else(grouped, compute.replace_substring(column, between, ""), column)
        return column if self.decimal == "." else compute.replace_substring(column, ",", ".")


def _has_decimal_commas(values: list[str]) -> bool:
    """Whether commas stand before decimals; three digits behind a sign tell only if nothing else does."""
    commas = [value for value in values if DECIMAL_COMMA.match(value)]
    points = [value for value in values if DECIMAL_POINT.match(value)]
    sure_commas = sum(re.match(THOUSANDS["."], value) is None for value in commas)
    sure_points = sum(re.match(THOUSANDS[","], value) is None for value in points)
    if sure_commas or sure_points:
        return sure_commas > sure_points
    return len(commas) > len(points)


def _table(lines: str, delimiter: str) -> list[list[str]]:
    """The first rows, without empty ones, up to one with a value that is too long; at least one."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(row for row in islice(csv.reader(io.StringIO(lines), delimiter=delimiter), LINES) if row)
    return rows or [[]]


def _regularity(table: list[list[str]]) -> tuple[float, int]:
    """The share of rows with as many values as the header, and how many; one column says nothing."""
    width = len(table[0])
    if width < 2:
        return 0.0, width
    return sum(len(row) == width for row in table) / len(table), width

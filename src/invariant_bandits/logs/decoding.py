"""Arrow columns → NumPy arrays; rows whose value cannot be used are marked with the reason and hold zeros."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs.schema import is_text, is_time

MICROSECONDS = "datetime64[us]"
ZONE = re.compile(r":.*(Z|[+-]\d\d(:?\d\d)?)\s*$")


class Marks:
    """The first problem of each of n rows, if it has one."""

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros(rows, dtype=np.int64)
        self.reasons = [""]
        self.notes: dict[str, Array] = {}

    def mark(self, rows: Array, reason: str) -> None:
        """Mark the rows where the mask `rows` is true, unless they are marked already."""
        if not rows.any():
            return
        if reason not in self.reasons:
            self.reasons.append(reason)
        self.codes[rows & (self.codes == 0)] = self.reasons.index(reason)

    def note(self, rows: Array, reason: str) -> None:
        """Remember the rows where the mask `rows` is true, without keeping them from being used."""
        if rows.any():
            self.notes[reason] = rows

    @property
    def any(self) -> bool:
        """Whether any row is marked."""
        return len(self.reasons) > 1

    def spread_to(self, starts: Array) -> Marks:
        """Marks of groups of rows that begin at `starts`: one of the problems of its rows."""
        groups = Marks(len(starts))
        groups.notes = self.notes
        if self.any and len(starts):
            groups.codes, groups.reasons = np.maximum.reduceat(self.codes, starts), list(self.reasons)
        return groups


def numbers(column: Any, name: str, marks: Marks) -> Array:
    """float64 values (n,) of a column of numbers, truth values, or text that should be numbers."""
    import pyarrow as pa

    if is_text(column.type):
        column = _parsed(column, pa.float64(), float, name, marks)
    elif column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    column = _without_nulls(column, 0.0, name, marks)
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    with np.errstate(all="ignore"):
        total = values.sum()
    if not np.isfinite(total):
        bad = ~np.isfinite(values)
        marks.mark(bad, f"{name} not finite")
        values = np.where(bad, 0.0, values)
    return values


def times(column: Any, name: str, are_dates: bool, marks: Marks) -> Array:
    """datetime64[us] (UTC), or numbers, of a column of times."""
    import pyarrow as pa

    if not are_dates:
        if pa.types.is_integer(column.type):
            return np.asarray(_without_nulls(column.cast(pa.int64()), 0, name, marks).to_numpy(zero_copy_only=False))
        return numbers(column, name, marks)
    if is_text(column.type):
        column = _parsed_dates(column, name, marks)
    elif is_time(column.type):
        zone = getattr(column.type, "tz", None)
        column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.timestamp("us"))
    else:
        marks.mark(np.ones(len(column), dtype=bool), f"{name} is no date")
        return np.zeros(len(column), dtype=MICROSECONDS)
    column = _without_nulls(column.cast(pa.int64()), 0, name, marks)
    return np.asarray(column.to_numpy(zero_copy_only=False)).view(MICROSECONDS)


def texts(column: Any, name: str, marks: Marks) -> Array:
    """Text (n,) of a column of categories."""
    import pyarrow as pa

    return np.asarray(_without_nulls(column.cast(pa.string()), "", name, marks).to_numpy(zero_copy_only=False))


def unknown(column: Any, categories: Sequence[str]) -> Array:
    """Mask (n,) of the values that are none of the categories; missing ones are not meant."""
    import pyarrow as pa
    from pyarrow import compute

    known = compute.is_in(column.cast(pa.string()), value_set=pa.array(list(categories), type=pa.string()))
    return np.asarray(compute.and_(compute.invert(known), column.is_valid()).to_numpy(zero_copy_only=False))


def vectors(column: Any, width: int, name: str, marks: Marks) -> Array:
    """float64 values (n, width) of a column of lists of `width` numbers."""
    import pyarrow as pa
    from pyarrow import compute

    lengths = np.asarray(compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False))
    marks.mark(lengths < 0, f"missing {name}")
    fits = lengths == width
    marks.mark(~fits, f"{name} without its {width} numbers")
    whole = bool(fits.all())
    inside = (column if whole else column.filter(pa.array(fits))).flatten()
    entries = Marks(len(inside))
    values = numbers(inside, name, entries).reshape(-1, width)
    result = values if whole else np.zeros((len(column), width))
    if not whole:
        result[fits] = values
    if entries.any:
        rows = entries.spread_to(np.arange(0, len(inside), width))
        for code, reason in enumerate(entries.reasons[1:], start=1):
            bad = np.zeros(len(column), dtype=bool)
            bad[fits] = rows.codes == code
            marks.mark(bad, reason)
    return result


def nested_vectors(column: Any, width: int, name: str, marks: Marks) -> tuple[Array, Array]:
    """Rows (Σ counts, width) and counts (n,) of a column of lists of lists; counts are 0 where there is none."""
    import pyarrow as pa
    from pyarrow import compute

    counts = np.asarray(compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)).astype(np.int64)
    marks.mark(counts == 0, "no offered actions")
    inner = (column if counts.all() else column.filter(pa.array(counts > 0))).flatten()
    entries = Marks(len(inner))
    rows = vectors(inner, width, name, entries)
    if entries.any:
        filled = np.flatnonzero(counts)
        rounds = entries.spread_to(np.cumsum(counts[filled]) - counts[filled])
        for code, reason in enumerate(entries.reasons[1:], start=1):
            bad = np.zeros(len(counts), dtype=bool)
            bad[filled] = rounds.codes == code
            marks.mark(bad, reason)
    return rows, counts


def _without_nulls(column: Any, filler: Any, name: str, marks: Marks) -> Any:
    if column.null_count == 0:
        return column
    marks.mark(np.asarray(column.is_null().to_numpy(zero_copy_only=False)), f"missing {name}")
    return column.fill_null(filler)


def _parsed(column: Any, kind: Any, parse: Any, name: str, marks: Marks) -> Any:
    """Text cast to `kind`; if that fails for some value, value by value."""
    import pyarrow as pa

    try:
        return column.cast(pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return _one_by_one(column, kind, parse, name, marks)


def _parsed_dates(column: Any, name: str, marks: Marks) -> Any:
    import pyarrow as pa

    column = column.cast(pa.string())
    first = next((word for word in column.slice(0, 100).to_pylist() if word is not None), "")
    zone = "UTC" if ZONE.search(first) else None  # a cast that fails is slow, so the likely one is tried
    try:
        return column.cast(pa.timestamp("us", zone)).cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        return _one_by_one(column, pa.timestamp("us"), as_utc, name, marks)


def _one_by_one(column: Any, kind: Any, parse: Any, name: str, marks: Marks) -> Any:
    import pyarrow as pa

    values, bad = [], np.zeros(len(column), dtype=bool)
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(None if text is None else parse(text))
        except (ValueError, OverflowError):
            bad[row] = True
            values.append(None)
    marks.mark(bad, f"unparsable {name}")
    return pa.array(values, type=kind)


def as_utc(text: str) -> datetime:
    """An ISO 8601 date or time as UTC without its zone; no zone means UTC."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)

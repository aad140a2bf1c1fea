"""Batches with the types that their source says: the text of text formats becomes numbers, truth and
times here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import is_number, is_text, is_time
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, SourceAround, Task


class TypedRows:
    """All rows of a source, typed; what cannot be read as its type is missing, and counted.

    Parameters
    ----------
    source : Source
        Where the rows come from.

    Attributes
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of what `batches` gives: plain text instead of dictionaries, times in microseconds.
    unreadable : Counter of str
        By column, how many values were not of its type.
    rows : int
        Rows that `batches` has given.
    """

    def __init__(self, source: Source) -> None:
        import pyarrow as pa

        self.source, self.rows, self.unreadable = source, 0, Counter[str]()
        schema = source.arrow_schema
        fractions = _columns_with_fractions(source)
        kinds = [pa.float64() if column.name in fractions else _plain(column.type) for column in schema]
        self.arrow_schema = pa.schema(list(zip(schema.names, kinds, strict=True)))

    def batches(self) -> Iterator[Any]:
        """The rows in the order of the log."""
        for task in self.source.tasks:
            for _, batch in self.source.batches(task, self.arrow_schema.names):
                self.rows += len(batch)
                yield self.typed(batch)

    def typed(self, batch: Any) -> Any:
        """A batch of some of the columns with their types."""
        import pyarrow as pa

        fields = [self.arrow_schema.field(name) for name in batch.schema.names]
        columns = [self._column(batch.column(index), wanted) for index, wanted in enumerate(fields)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _column(self, column: Any, wanted: Any) -> Any:
        import pyarrow as pa

        if column.type == wanted.type:
            return column
        if not is_text(column.type) or is_text(wanted.type):
            return column.cast(wanted.type, safe=False)
        if pa.types.is_integer(wanted.type):
            return self._whole(column, wanted)
        problems = RowProblems(len(column))
        if is_time(wanted.type):
            values = decode.times(column, wanted.name, True, problems)
        elif is_number(wanted.type):
            values = decode.numbers(column, wanted.name, problems)
        else:
            return column
        missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        self.unreadable[wanted.name] += int((~problems.usable & ~missing).sum())
        return pa.array(values, mask=~problems.usable).cast(wanted.type)

    def _whole(self, column: Any, wanted: Any) -> Any:
        """Text as whole numbers, to the last digit."""
        import pyarrow as pa

        words = column.cast(pa.string())
        try:
            return words.cast(wanted.type)
        except pa.ArrowInvalid:
            values = [
                int(word) if word is not None and _is_whole(word) else None for word in words.to_pylist()
            ]
        self.unreadable[wanted.name] += sum(value is None for value in values) - words.null_count
        return pa.array(values, type=wanted.type)


def _plain(kind: Any) -> Any:
    """The type as every format can hold it."""
    import pyarrow as pa

    if is_text(kind):
        return pa.string()
    if is_time(kind):
        return pa.timestamp("us", getattr(kind, "tz", None))
    return kind


def _is_whole(word: str) -> bool:
    return word.strip().lstrip("+-").isdigit()


def _columns_with_fractions(source: Source) -> set[str]:
    """Columns of text that seemed to be whole numbers in the first lines, and are not."""
    import pyarrow as pa

    whole = [
        column_field.name for column_field in source.arrow_schema if pa.types.is_integer(column_field.type)
    ]
    fractions: set[str] = set()
    for task in source.tasks if whole else ():
        for _, batch in source.batches(task, whole):
            for name in whole:
                column = batch.column(name)
                if pa.types.is_integer(column.type):
                    continue
                if pa.types.is_floating(column.type) or (is_text(column.type) and _has_fraction(column)):
                    fractions.add(name)
    return fractions


def _has_fraction(column: Any) -> bool:
    """Whether some text is a number, but no whole one."""
    import pyarrow as pa

    words = column.cast(pa.string())
    try:
        words.cast(pa.int64())
        return False
    except pa.ArrowInvalid:
        problems = RowProblems(len(words))
        values = decode.numbers(words, "", problems)[problems.usable]
        return bool((values != np.floor(values)).any())


EPOCHS = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
"""The least number of a unit since 1970 that is taken for a time: 1973. The greatest is 41 times that:
2100.
"""
WRITTEN = re.compile(
    r"\s*(?P<one>\d{1,2})(?P<sign>[/.-])(?P<two>\d{1,2})(?P=sign)(?P<year>\d{4}|\d{2})"
    r"(?P<between>,?[ T]+)?(?P<clock>\d{1,2}:\d{2}(?P<seconds>:\d{2})?)?(?P<half>\s?[AaPp][Mm])?\s*$"
)
YEAR_FIRST = re.compile(r"\s*\d{4}/\d{1,2}/\d{1,2}(?P<clock>[ T]\d{1,2}:\d{2}(?P<seconds>:\d{2})?)?\s*$")


@dataclass(frozen=True)
class TimeFormat:
    """How the times of a column are written.

    Parameters
    ----------
    unit : str
        "s", "ms", "us" or "ns" for numbers since 1970; empty for text.
    formats : tuple of str
        For text: the forms that it may have, as for strptime.
    """

    unit: str = ""
    formats: tuple[str, ...] = ()

    def timestamps(self, column: Any) -> Any:
        """The column as timestamps in microseconds, UTC; missing where a value has none of the forms."""
        return _since_1970(column, self.unit) if self.unit else _from_text(column, self.formats)


def _since_1970(column: Any, unit: str) -> Any:
    """Numbers, or text that should be numbers, as timestamps."""
    import pyarrow as pa
    from pyarrow import compute

    if is_text(column.type):
        column = _numbers(column)
    if pa.types.is_integer(column.type):
        whole = column.cast(pa.int64())
        return whole.cast(pa.timestamp(unit)).cast(pa.timestamp("us"), safe=False)
    scaled = compute.multiply(column.cast(pa.float64()), {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[unit])
    usable = compute.less(compute.fill_null(compute.abs(scaled), np.inf), 9e18)
    return compute.if_else(usable, compute.round(scaled), None).cast(pa.int64()).cast(pa.timestamp("us"))


def _numbers(column: Any) -> Any:
    """Text as whole numbers if it is such, as fractions otherwise; missing where it is not a number."""
    import pyarrow as pa

    words = column.cast(pa.string())
    for kind in (pa.int64(), pa.float64()):
        try:
            return words.cast(kind)
        except pa.ArrowInvalid:
            continue
    return pa.array([_float(word) for word in words.to_pylist()], type=pa.float64())


def _float(word: str | None) -> float | None:
    try:
        return None if word is None else float(word)
    except ValueError:
        return None


def _from_text(column: Any, formats: Sequence[str]) -> Any:
    """Text as timestamps: the first form that a value has."""
    import pyarrow as pa
    from pyarrow import compute

    words = compute.utf8_trim_whitespace(column.cast(pa.string()))
    times = pa.nulls(len(words), pa.timestamp("us"))
    for form in formats:
        if times.null_count == words.null_count:
            break
        times = compute.coalesce(times, compute.strptime(words, format=form, unit="us", error_is_null=True))
    return times


def find_time_format(source: Source, schema: Schema, sample: Any) -> TimeFormat | None:
    """How the times of a log are written, None if there is nothing to do; InputError if days may be months.

    Parameters
    ----------
    source : Source
        Where the rows come from; read until some day is greater than 12, if the sample does not tell.
    schema : Schema
        What the columns mean.
    sample : pyarrow.Table
        The first rows.
    """
    if schema.time is None or schema.time not in source.arrow_schema.names:
        return None
    kind, column = source.arrow_schema.field(schema.time).type, sample.column(schema.time).drop_null()
    if not len(column):
        return None
    if is_number(kind):
        return _epoch(column)
    if not is_text(kind):
        return None
    words = column.to_pylist()
    if YEAR_FIRST.match(words[0]):
        return TimeFormat(formats=_clocks("%Y/%m/%d"))
    return _written(source, schema, words) if WRITTEN.match(words[0]) else None


def _epoch(column: Any) -> TimeFormat | None:
    """The unit in which all values are times between 1973 and 2100."""
    import pyarrow as pa
    from pyarrow import compute

    numbers = _numbers(column.combine_chunks()) if is_text(column.type) else column
    least, most = (
        float(value or 0.0)
        for value in compute.min_max(numbers.cast(pa.float64(), safe=False)).as_py().values()
    )
    units = [unit for unit, from_here in EPOCHS.items() if from_here <= least and most <= 41.0 * from_here]
    return TimeFormat(unit=units[0]) if units else None


def _written(source: Source, schema: Schema, words: Sequence[str]) -> TimeFormat:
    """Day or month first, as the schema says, as the sign says (points: the day), or as some day above 12
    says.
    """
    sign = _parts(words[0])["sign"]
    day_first = schema.day_first
    if day_first is None and sign == ".":
        day_first = True
    if day_first is None:
        day_first = _decided(words)
    if day_first is None:
        day_first = _decided(_all_words(source, str(schema.time)))
    if day_first is None:
        raise InputError(
            f"schema: dates of {schema.time!r} such as {words[0].strip()} may begin with the day or the "
            f"month;"
            " say which (day_first = true or false; --day-first or --month-first)"
        )
    order = f"%d{sign}%m{sign}" if day_first else f"%m{sign}%d{sign}"
    year = "%Y" if len(_parts(words[0])["year"]) == 4 else "%y"
    comma = "," if "," in (_parts(words[0])["between"] or "") else ""
    return TimeFormat(formats=_clocks(f"{order}{year}{comma}"))


def _clocks(day: str) -> tuple[str, ...]:
    """Forms of a day with and without a time of day."""
    clocks = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
    return (*(f"{day} {clock}" for clock in clocks), f"{day}T%H:%M:%S", day.rstrip(","))


def _parts(word: str) -> dict[str, Any]:
    match = WRITTEN.match(word)
    return {"sign": "", "year": "", "between": ""} if match is None else match.groupdict()


def _decided(words: Iterable[str]) -> bool | None:
    """True if the first number of some date is greater than 12, False if the second of some is; None if
    neither.
    """
    for word in words:
        match = WRITTEN.match(word)
        if match is not None and int(match["one"]) > 12:
            return True
        if match is not None and int(match["two"]) > 12:
            return False
    return None


def _all_words(source: Source, name: str) -> Iterator[str]:
    """The different values of a column, batch by batch."""
    for task in source.tasks:
        for _, batch in source.batches(task, [name]):
            yield from batch.column(name).drop_null().unique().to_pylist()


def with_timestamps(source: Source, schema: Schema, sample: Any) -> Source:
    """The source itself, or with the times that `find_time_format` found as timestamps."""
    form = find_time_format(source, schema, sample)
    return source if form is None else DatedSource(source, str(schema.time), form)


@dataclass
class DatedSource(SourceAround):
    """A source with its times as timestamps.

    Parameters
    ----------
    inner : Source
        The rows as they are.
    column : str
        The times.
    form : TimeForm
        How they are written.
    """

    column: str
    form: TimeFormat
    arrow_schema: Any = field(init=False)

    def __post_init__(self) -> None:
        import pyarrow as pa

        before = self.inner.arrow_schema
        index = before.get_field_index(self.column)
        self.arrow_schema = before.set(index, before.field(index).with_type(pa.timestamp("us")))

    def batches(
        self, task: Task, columns: Sequence[str], first_row: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Batches with timestamps."""
        for row, batch in self.inner.batches(task, columns, first_row):
            if self.column in columns:
                index = batch.schema.get_field_index(self.column)
                batch = batch.set_column(index, self.column, self.form.timestamps(batch.column(index)))
            yield row, batch

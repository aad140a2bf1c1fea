"""Batches with the types that their source says: the text of text formats becomes numbers, truth and times here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from invariant_bandits.logs import decoding
from invariant_bandits.logs.arrow_types import is_number, is_text, is_time
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.sources import Source


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
        given = source.arrow_schema
        fractions = _columns_with_fractions(source)
        kinds = [pa.float64() if one.name in fractions else _plain(one.type) for one in given]
        self.arrow_schema = pa.schema(list(zip(given.names, kinds, strict=True)))

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
        columns = [self._column(batch.column(index), one) for index, one in enumerate(fields)]
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
            values = decoding.times(column, wanted.name, True, problems)
        elif is_number(wanted.type):
            values = decoding.numbers(column, wanted.name, problems)
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
            values = [int(word) if word is not None and _is_whole(word) else None for word in words.to_pylist()]
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

    whole = [one.name for one in source.arrow_schema if pa.types.is_integer(one.type)]
    found: set[str] = set()
    for task in source.tasks if whole else ():
        for _, batch in source.batches(task, whole):
            for name in whole:
                column = batch.column(name)
                if pa.types.is_integer(column.type):
                    continue
                if pa.types.is_floating(column.type) or (is_text(column.type) and _has_fraction(column)):
                    found.add(name)
    return found


def _has_fraction(column: Any) -> bool:
    """Whether some text is a number, but no whole one."""
    import pyarrow as pa

    words = column.cast(pa.string())
    try:
        words.cast(pa.int64())
        return False
    except pa.ArrowInvalid:
        problems = RowProblems(len(words))
        values = decoding.numbers(words, "", problems)[problems.usable]
        return bool((values != np.floor(values)).any())

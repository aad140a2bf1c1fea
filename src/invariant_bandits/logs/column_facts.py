"""Facts about one column: what its name, its type and its first values say, each computed once."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_names import (
    NUMBER_OF_A_THING,
    PARTICIPLE,
    UNIT_NAMES,
    has_word,
    identifies,
    name_words,
    usual_name,
)
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import PROBABILITIES
from invariant_bandits.optional import pyarrow as pa

LOOKED_AT = 1000
"""First rows whose values say what a column is; relations between columns are looked for in more of them."""
MOST_LABELS = 200
"""Different values in the first rows beyond which a column holds no labels."""
MOST_FRACTIONS = 12
"""Different fractions in the first rows beyond which they are amounts: prices often have ten levels."""
LEAST_PLAYS = 20
"""Rows per fraction that labels need, and rounds per label from which on Σ 1/p says something."""
ROWS_PER_LABEL = 20
"""Rows per label from which on more than `MOST_LABELS` are labels all the same."""
MANY_CATEGORIES = 100
"""Different words in the first rows beyond which they are text, not categories."""
MOST_PROBABILITIES_OFF = 0.1
"""Share of values outside of 0 to 1 that a column of probabilities may have, such as 0 for unknown."""
FEWEST_NUMBERED = 10
"""Half of the rows must be more than these before values that differ number a thing."""


class ColumnFacts:
    """What the name, the type and the first values of a column say.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : pyarrow.DataType
        Type that the log announces; text formats may give numbers as text.
    rows : pyarrow.ChunkedArray
        The first values, n of them.

    Attributes
    ----------
    first : pyarrow.ChunkedArray
        The first 1,000 of them.
    """

    def __init__(self, name: str, kind: Any, rows: Any) -> None:
        self.name = name
        self.kind = kind
        self.rows = rows
        self.first = rows.slice(0, LOOKED_AT)
        self.words = name_words(name)
        self.is_number = decode.is_number(kind)
        self.is_text = decode.is_text(kind)
        self.is_list = decode.is_list(kind)
        self.is_vector = decode.is_vector(kind)
        self.is_time = decode.is_time(kind)
        self.identifies = identifies(name)
        self.says_what_was_done = PARTICIPLE.search(name) is not None

    def has_word(self, words: AbstractSet[str]) -> bool:
        """Whether one of the words is a part of the name."""
        return has_word(self.name, words)

    def usual_name(self, role: str) -> str | None:
        """Return the usual name of a role that the name ends in; None if there is none."""
        return usual_name(self.name, role)

    @cached_property
    def array(self) -> Any:
        """The values as one array; those of lists one after the other."""
        return _flat(self.rows)

    @cached_property
    def codes(self) -> Array:
        """Integers (n,) that are equal exactly where the values are."""
        return decode.value_codes(self.array)

    @cached_property
    def numbers(self) -> Array:
        """Numbers (n,), NaN where there is none."""
        return decode.numbers_or_nan(self.array)

    @property
    def finite_numbers(self) -> Array:
        """The usable numbers."""
        return self.numbers[np.isfinite(self.numbers)]

    @cached_property
    def first_numbers(self) -> Array:
        """The usable numbers of the first 1,000 rows."""
        numbers = decode.numbers_or_nan(_flat(self.first))
        return numbers[np.isfinite(numbers)]

    @cached_property
    def present(self) -> Any:
        """The first 1,000 values without the missing ones."""
        return self.first.drop_null()

    @cached_property
    def levels(self) -> int:
        """Different values among the first ones, missing ones aside."""
        return len(self.present.unique())

    @cached_property
    def different(self) -> int:
        """Different values among the first ones, with the missing one."""
        return len(self.first.unique())

    @property
    def levels_in_words(self) -> str:
        """How many different values the first rows have."""
        return f"{self.different} different in the first {len(self.first)} rows"

    @property
    def is_two_valued(self) -> bool:
        """Whether the first rows have two different values."""
        return self.levels == 2

    @cached_property
    def is_whole(self) -> bool:
        """Whether the usable numbers of the first rows are whole."""
        return are_whole(self.first_numbers)

    @cached_property
    def holds_times(self) -> bool:
        """Whether the first values are times."""
        return decode.holds_times(self.first, self.kind)

    @cached_property
    def holds_flags(self) -> bool:
        """Whether all values can only be truth values."""
        return decode.are_flags(self.rows)

    @cached_property
    def flags(self) -> Array:
        """Truth values (n,); missing is false."""
        return decode.flags(self.array)

    @cached_property
    def missing(self) -> Array:
        """Mask (n,) of the missing values."""
        return decode.is_missing(self.array)

    @cached_property
    def holds_labels(self) -> bool:
        """Whether the values may be labels of arms: text or numbers, few different ones."""
        if not (self.is_text or self.is_number):
            return False
        rows = len(self.present)
        most = min(max(MOST_LABELS, rows // ROWS_PER_LABEL), max(rows // 2, 2))
        if self.is_number and not self.is_whole:
            most = min(MOST_FRACTIONS, rows // LEAST_PLAYS)
        return 0 < self.levels <= most

    @property
    def holds_lists_of_labels(self) -> bool:
        """Whether the values are lists of labels, or text that separates labels by one of | ; ,."""
        if self.is_list:
            inner = self.kind.value_type
            return decode.is_text(inner) or (decode.is_number(inner) and self.is_whole)
        if not self.is_text:
            return False
        words = [word for word in self.present.slice(0, 100).to_pylist() if word]
        separated = [word for word in words if any(mark in word for mark in "|;,")]
        return len(separated) > len(words) / 2

    @cached_property
    def holds_probabilities(self) -> bool:
        """Whether the usable values lie above 0 and at most at 1, up to one in ten."""
        return len(self.first_numbers) > 0 and _are_mostly_probabilities(
            self.first_numbers
        )

    @cached_property
    def holds_numeric_words(self) -> bool:
        """Whether the first values are text that is read as numbers, or words such as yes and no."""
        return are_numeric_words(self.first)

    @cached_property
    def holds_truth_words(self) -> bool:
        """Whether the first values are words such as yes and no."""
        return decode.are_truth_words(self.first)

    @cached_property
    def counts_up(self) -> bool:
        """Whether each of the first values is one more than the one before."""
        numbers = self.first_numbers
        is_complete = 1 < len(numbers) == len(self.first)
        return is_complete and bool((np.diff(numbers) == 1.0).all())

    @cached_property
    def numbers_things(self) -> bool:
        """Whether this is a number of a thing, such as a card_number: most values differ."""
        half = len(self.first) // 2
        is_named = NUMBER_OF_A_THING.search(self.name) is not None
        return is_named and self.different > half > FEWEST_NUMBERED

    @property
    def only_identifies(self) -> bool:
        """Whether the name says that the values identify a row or a thing."""
        return self.identifies or self.numbers_things

    @property
    def is_constant(self) -> bool:
        """Whether the rows, more than the first 1,000, have one value only."""
        if len(self.rows) <= LOOKED_AT or self.rows.null_count:
            return False
        return len(self.rows.unique()) == 1

    def probability_unit(self, is_propensity: bool) -> str | None:
        """Return how the numbers are written as probabilities; None if they are not.

        Every unit but the plain one needs a name that says so, unless the caller says that the column
        `is_propensity`.
        """
        numbers = self.first_numbers
        if not len(numbers):
            return None
        for unit, name in UNIT_NAMES.items():
            if not (is_propensity or name.search(self.name)):
                continue
            varies = unit == "probability" or np.ptp(numbers) > 0.0
            if varies and _are_mostly_probabilities(PROBABILITIES[unit](numbers)):
                return unit
        return None

    def chances(self, unit: str) -> Array:
        """Return probabilities (n,) written in a unit, NaN where there is none."""
        with np.errstate(invalid="ignore"):
            chances = PROBABILITIES[unit](self.numbers)
        return np.where(np.isfinite(self.numbers), chances, np.nan)

    def times(self, day_first: bool | None) -> Array:
        """Return times (n,) as whole numbers; empty if some cannot be read."""
        try:
            to_timestamps = decode.find_time_format(self.rows, self.kind, day_first)
        except InputError:  # days may be months
            return np.zeros(0)
        column = self.array if to_timestamps is None else to_timestamps(self.array)
        are_dates = decode.is_time(column.type) or not self.is_number
        problems = RowProblems(len(column))
        times = decode.times(column, self.name, are_dates, problems)
        return times.astype(np.int64) if problems.usable.all() else np.zeros(0)


def are_numeric_words(column: Any) -> bool:
    """Whether text is read as numbers: numbers, or words such as yes and no."""
    return decode.are_truth_words(column) or decode.are_text_numbers(column)


def are_whole(numbers: Array) -> bool:
    """Whether all numbers are whole."""
    return bool((numbers == np.floor(numbers)).all())


def _are_mostly_probabilities(numbers: Array) -> bool:
    inside = (numbers > 0.0) & (numbers <= 1.0)
    return bool(inside.mean() >= 1.0 - MOST_PROBABILITIES_OFF)


def _flat(column: Any) -> Any:
    """One array of a column that may be chunked, lists flattened."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.flatten() if decode.is_list(array.type) else array

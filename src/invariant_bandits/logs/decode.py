"""Arrow columns → NumPy arrays; rows whose value cannot be used hold zeros, and `problems` say why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.features.columns import Categories
from invariant_bandits.logs.quality import IMPUTED, RowProblems
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is a number or a truth value."""
    of = pa.types
    return bool(
        of.is_integer(kind)
        or of.is_floating(kind)
        or of.is_boolean(kind)
        or of.is_decimal(kind)
    )


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is a timestamp or a date."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a dictionary of text."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    )


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of any form."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def is_vector(kind: Any) -> bool:
    """Whether an Arrow type is a list of numbers."""
    return is_list(kind) and is_number(kind.value_type)


def value_codes(column: Any) -> Array:
    """Return integers (n,) that are equal exactly where the values of a column are."""
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return to_array(column)
    encoded = (
        column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    )
    return to_array(encoded.indices.fill_null(-1))


def run_starts(column: Any) -> Array:
    """Return where runs of equal values begin."""
    codes = value_codes(column)
    return np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])


def without_views(kind: Any) -> Any:
    """The type with plain text instead of string views, which most of Arrow's functions do not know."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(
            kind.index_type, without_views(kind.value_type), kind.ordered
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = without_views(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    return kind


def schema_without_views(schema: Any) -> Any:
    """The schema with plain text instead of string views."""
    return pa.schema(
        [column.with_type(without_views(column.type)) for column in schema]
    )


def batch_without_views(batch: Any) -> Any:
    """The record batch with plain text instead of string views."""
    wanted = schema_without_views(batch.schema)
    if wanted == batch.schema:
        return batch
    columns = [
        _plain(batch.column(index), kind) for index, kind in enumerate(wanted.types)
    ]
    return pa.RecordBatch.from_arrays(columns, names=wanted.names)


def _plain(column: Any, kind: Any) -> Any:
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    return pa.DictionaryArray.from_arrays(
        column.indices, column.dictionary.cast(kind.value_type)
    )


MICROSECONDS = "datetime64[us]"
ZONE = re.compile(r":.*(Z|[+-]\d\d(:?\d\d)?)\s*$")
NANOSECONDS = re.compile(r"\.\d{7,9}")
TRUE = ("1", "1.0", "true", "t", "yes", "y")
ANSWERS = (
    (
        "true yes t y won win success pass accepted",
        "false no f n lost loss failure fail rejected",
    ),
    ("up thumbs_up thumbsup 👍", "down thumbs_down thumbsdown 👎"),
    ("good positive", "bad negative"),
    ("wahr ja j", "falsch nein n nee"),
    ("vrai oui", "faux non"),
    ("verdadero sí si", "falso no"),
    ("vero sì si", "falso no"),
    ("verdadeiro sim", "falso não nao"),
    ("sant ja j", "falskt nej nei n"),
    ("kyllä kylla jah", "ei"),
    ("prawda tak", "fałsz nie"),
    ("pravda ano áno", "nepravda ne nie"),
    ("da", "ne nu"),
    ("igaz igen", "hamis nem"),
    ("taip jā", "ne nē"),
    ("doğru evet", "yanlış hayır hayir"),
    ("да истина так", "нет не ложь ні"),
    ("ναι", "όχι"),
    ("כן", "לא"),
    ("نعم", "لا"),
    ("हाँ हां", "नहीं"),
    ("是", "否"),
    ("はい", "いいえ"),
    ("예 네", "아니요 아니오"),
    ("ya", "tidak"),
    ("có", "không"),
)
"""Words for 1 and for 0 by language, or by what is answered; a column holds words of one line only."""
TRUTH = {word: "1" for ones, _ in ANSWERS for word in ones.split()}
TRUTH |= {word: "0" for _, zeros in ANSWERS for word in zeros.split()}
FLAGS = {"0", "1", "true", "false", "none"}


def to_array(column: Any) -> Array:
    """Return an Arrow array of numbers or truth values as a NumPy array (n,)."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


def is_missing(column: Any) -> Array:
    """Return a mask (n,) of the missing values of a column."""
    return to_array(column.is_null())


def numbers(
    column: Any,
    name: str,
    problems: RowProblems,
    *,
    impute: bool = False,
) -> Array:
    """float64 values (n,) of a column of numbers, truth values, or text that should be numbers.

    With `impute`, missing values are NaN and their rows are kept.
    """
    if is_text(column.type):
        column = _parsed_numbers(column, name, problems)
    elif column.type != pa.float64():
        column = column.cast(pa.float64(), safe=False)
    if not impute:
        column = _without_nulls(column, 0.0, name, problems)
    values = to_array(column)
    with np.errstate(all="ignore"):
        total = values.sum()
    if np.isfinite(total):
        return values
    missing = np.isnan(values) if impute else np.zeros(len(values), dtype=bool)
    problems.keep(missing & problems.usable, f"{IMPUTED}{name}")
    bad = ~np.isfinite(values) & ~missing
    problems.leave_out(bad, f"{name} not finite")
    return np.where(bad, 0.0, values)


def numbers_or_nan(column: Any) -> Array:
    """float64 values (n,) of a column of numbers, NaN where there is none."""
    problems = RowProblems(len(column))
    values = numbers(column, "", problems)
    return np.where(problems.usable, values, np.nan)


def times(
    column: Any,
    name: str,
    are_dates: bool,
    problems: RowProblems,
) -> Array:
    """datetime64[us] (UTC), or numbers, (n,) of a column of times."""
    if not are_dates and not pa.types.is_integer(column.type):
        return numbers(column, name, problems)
    if are_dates and is_text(column.type):
        column = _parsed_dates(column, name, problems)
    elif are_dates and is_time(column.type):
        zone = getattr(column.type, "tz", None)
        column = column.cast(pa.timestamp("us", zone), safe=False)
        column = column.cast(pa.timestamp("us"))
    elif are_dates:
        problems.leave_out(np.ones(len(column), dtype=bool), f"{name} is not a date")
        column = pa.nulls(len(column), pa.int64())
    column = _without_nulls(column.cast(pa.int64()), 0, name, problems)
    values = to_array(column)
    return values.view(MICROSECONDS) if are_dates else values


def masked(values: Any, good: Array) -> Any:
    """The values of an array, or the categories, where a mask (n,) is true."""
    if isinstance(values, Categories):
        return Categories(values.places[good], values.missing[good])
    return values[good]


def categories_of(
    column: Any,
    known: Sequence[str],
    name: str,
    problems: RowProblems,
    *,
    impute: bool = False,
) -> Categories:
    """Decode a column of categories, of which some are `known`.

    With `impute`, rows with a missing value are kept.
    """
    categories = category_places(as_dictionary(column), known)
    missing = categories.missing
    unknown = (categories.places < 0) & ~missing
    problems.keep(unknown, f"unknown category of {name}")
    if impute:
        problems.keep(missing, f"{IMPUTED}{name}")
    else:
        problems.leave_out(missing, f"missing {name}")
    return categories


def as_dictionary(column: Any) -> Any:
    """The column as a dictionary of text."""
    if not pa.types.is_dictionary(column.type) or column.dictionary.null_count:
        return column.cast(pa.string()).dictionary_encode()
    if column.dictionary.type == pa.string():
        return column
    return pa.DictionaryArray.from_arrays(
        column.indices, column.dictionary.cast(pa.string())
    )


def category_places(words: Any, categories: Sequence[str]) -> Categories:
    """Find the values of a dictionary of text among the categories."""
    missing = len(words.dictionary)
    known = pa.array(list(categories), type=pa.string())
    index = compute.index_in(words.dictionary, value_set=known).fill_null(-1)
    index_of_word = np.append(to_array(index), -1).astype(np.int64)
    codes = dictionary_codes(words, missing)
    return Categories(index_of_word[codes], codes == missing)


def dictionary_codes(words: Any, missing: int) -> Array:
    """The indices (n,) of an Arrow dictionary; `missing` where a value is missing."""
    codes = words.indices
    return to_array(codes.fill_null(missing) if codes.null_count else codes)


def count_words(words: Any) -> dict[str, int]:
    """Rows of every word of a dictionary of text."""
    counts = words.cast(pa.string()).drop_null().value_counts()
    return dict(zip(*(part.to_pylist() for part in counts.flatten()), strict=True))


def flags(column: Any) -> Array:
    """Truth values (n,) of a column of booleans, numbers or words; missing is false."""
    if pa.types.is_boolean(column.type):
        return to_array(column.fill_null(False))
    words = as_dictionary(column)
    is_true = [str(word).lower() in TRUE for word in words.dictionary.to_pylist()]
    return np.array([*is_true, False])[dictionary_codes(words, len(is_true))]


def are_flags(column: Any) -> bool:
    """Whether the values of a column can only be truth values."""
    return {str(value).lower() for value in column.unique().to_pylist()} <= FLAGS


def are_truth_words(column: Any) -> bool:
    """Whether a column of text holds words such as yes and no only, of one language, at least one."""
    values = column.drop_null().unique().to_pylist()
    words = {str(value).strip().lower() for value in values} - {"0", "1"}
    return any(
        words and words <= {*ones.split(), *zeros.split()} for ones, zeros in ANSWERS
    )


def are_text_numbers(column: Any) -> bool:
    """Whether all values of a column of text, at least one, are finite numbers."""
    words = column.drop_null().unique()
    if not len(words):
        return False
    with suppress(pa.ArrowInvalid):
        return bool(np.isfinite(np.asarray(words.cast(pa.float64()))).all())
    return False


def vectors(
    column: Any,
    width: int,
    name: str,
    problems: RowProblems,
    *,
    impute: bool = False,
) -> Array:
    """Return float64 values (n, width) of a column of lists of `width` numbers.

    With `impute`, missing numbers are NaN.
    """
    lengths = list_lengths(column, missing=-1)
    if not impute:
        problems.leave_out(lengths < 0, f"missing {name}")
    fits = lengths == width
    wrong = ~fits if not impute else ~fits & (lengths >= 0)
    problems.leave_out(wrong, f"{name} without its {width} numbers")
    inside = _where(column, fits).flatten()
    entries = RowProblems(len(inside))
    result = np.full((len(column), width), np.nan if impute else 0.0)
    result[fits] = numbers(inside, name, entries, impute=impute).reshape(-1, width)
    if entries.any:
        problems.leave_out_at(fits, entries.of_groups(np.arange(0, len(inside), width)))
    if impute:
        imputed = np.isnan(result).any(axis=1) & problems.usable
        problems.keep(imputed, f"{IMPUTED}{name}")
    return result


def _where(column: Any, rows: Array) -> Any:
    """Return a column without the rows where a mask (n,) is false."""
    return column if rows.all() else column.filter(pa.array(rows))


def nested_vectors(
    column: Any,
    width: int,
    name: str,
    problems: RowProblems,
    *,
    impute: bool,
) -> Any:
    """Return rows (Σ counts, width) and counts (n,) of a column of lists of lists.

    Counts are 0 where there is no list.
    """
    counts = list_lengths(column, missing=0).astype(np.int64)
    problems.leave_out(counts == 0, "no offered actions")
    inner = _where(column, counts > 0).flatten()
    entries = RowProblems(len(inner))
    rows = vectors(inner, width, name, entries, impute=impute)
    filled = np.flatnonzero(counts)
    starts = np.cumsum(counts[filled]) - counts[filled]
    if entries.any:
        problems.leave_out_at(filled, entries.of_groups(starts))
    for reason, of_row in entries.kept.items():
        of_round = np.zeros(len(counts), dtype=bool)
        of_round[filled] = np.logical_or.reduceat(of_row, starts)
        problems.keep(of_round, reason)
    return rows, counts


def list_lengths(column: Any, missing: int) -> Array:
    """Lengths (n,) of a column of lists; `missing` where there is none."""
    return to_array(compute.list_value_length(column).fill_null(missing))


def vector_width(column: Any) -> int:
    """The usual number of entries of a column of lists, or of lists of lists."""
    if not is_vector(column.type):
        column = compute.list_flatten(column)
    lengths = compute.drop_null(compute.list_value_length(column))
    return int(compute.mode(lengths)[0]["mode"].as_py()) if len(lengths) else 0


def as_utc(text: str) -> datetime:
    """An ISO 8601 date or time as UTC without its zone; no zone means UTC."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def _without_nulls(
    column: Any,
    filler: Any,
    name: str,
    problems: RowProblems,
) -> Any:
    if column.null_count == 0:
        return column
    problems.leave_out(is_missing(column), f"missing {name}")
    return column.fill_null(filler)


def _parsed_numbers(
    column: Any,
    name: str,
    problems: RowProblems,
) -> Any:
    """Text as numbers; if that fails for some value, value by value."""
    column = parsed_whole(column, dates=False)
    if column.type == pa.float64():
        return column
    words = compute.utf8_lower(compute.utf8_trim_whitespace(column))
    indices = compute.index_in(words, value_set=pa.array(list(TRUTH)))
    column = compute.coalesce(pa.array(list(TRUTH.values())).take(indices), column)
    with suppress(pa.ArrowInvalid):
        return column.cast(pa.float64())
    return _one_by_one(column, pa.float64(), float, name, problems)


def _parsed_dates(
    column: Any,
    name: str,
    problems: RowProblems,
) -> Any:
    """Text as timestamps; if that fails for some value, value by value."""
    kind = pa.timestamp("us")
    column = parsed_whole(column, dates=True)
    if column.type == kind:
        return column
    return _one_by_one(column, kind, as_utc, name, problems)


def parsed_whole(column: Any, *, dates: bool) -> Any:
    """Text as timestamps or as numbers; as text if that fails for some value."""
    column = column.cast(pa.string())
    with suppress(pa.ArrowInvalid):
        if not dates:
            return column.cast(pa.float64())
        words = column.slice(0, 100).drop_null()
        first = words[0].as_py() if len(words) else ""
        # A cast that fails is slow, so the likely one is tried.
        zone = "UTC" if ZONE.search(first) else None
        unit = "ns" if NANOSECONDS.search(first) else "us"
        return column.cast(pa.timestamp(unit, zone)).cast(
            pa.timestamp("us"), safe=False
        )
    return column


def _one_by_one(
    column: Any,
    kind: Any,
    parse: Any,
    name: str,
    problems: RowProblems,
) -> Any:
    values = []
    bad = np.zeros(len(column), dtype=bool)
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(None if text is None else parse(text))
        except (ValueError, OverflowError):
            bad[row] = True
            values.append(None)
    problems.leave_out(bad, f"unparsable {name}")
    return pa.array(values, type=kind)


EPOCHS = {"s": 1e8, "ms": 1e11, "us": 1e14, "ns": 1e17}
"""The least number of a unit since 1970 that is taken for a time: 1973. The greatest is 41 times that:
2100.
"""
WRITTEN = re.compile(
    r"\s*(?P<first>\d{1,2})(?P<sign>[/.-])(?P<second>\d{1,2})(?P=sign)(?P<year>\d{4}|\d{2})"
    r"(?P<between>,?[ T]+)?(?P<clock>\d{1,2}:\d{2}(?P<seconds>:\d{2})?)?(?P<half>\s?[AaPp][Mm])?\s*$"
)
MICROSECONDS_PER_UNIT = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""Microseconds in a unit of time: timestamps are kept in these."""
LARGEST_INT64 = 9e18
"""Larger numbers do not fit into 64 bits (2⁶³ is 9.2e18)."""
YEAR_FIRST = re.compile(
    r"\s*\d{4}/\d{1,2}/\d{1,2}(?P<clock>[ T]\d{1,2}:\d{2}(?P<seconds>:\d{2})?)?\s*$"
)


TimeFormat: TypeAlias = Callable[[Any], Any]
"""A column of times → timestamps in microseconds, UTC; missing where a value cannot be read."""


def from_text(formats: Sequence[str], column: Any) -> Any:
    """Text in one of several forms, as for strptime, as timestamps."""
    words = compute.utf8_trim_whitespace(column.cast(pa.string()))
    times = pa.nulls(len(words), pa.timestamp("us"))
    for form in formats:
        if times.null_count > words.null_count:
            parsed = compute.strptime(words, format=form, unit="us", error_is_null=True)
            times = compute.coalesce(times, parsed)
    return times


def since_1970(unit: str, column: Any) -> Any:
    """Numbers since 1970 in a unit, "s", "ms", "us" or "ns", or text that should be such, as timestamps."""
    if is_text(column.type):
        column = _numbers(column)
    if pa.types.is_integer(column.type):
        whole = column.cast(pa.int64())
        return whole.cast(pa.timestamp(unit)).cast(pa.timestamp("us"), safe=False)
    scaled = compute.multiply(column.cast(pa.float64()), MICROSECONDS_PER_UNIT[unit])
    fits = compute.less(compute.fill_null(compute.abs(scaled), np.inf), LARGEST_INT64)
    whole = compute.if_else(fits, compute.round(scaled), None).cast(pa.int64())
    return whole.cast(pa.timestamp("us"))


def _numbers(column: Any) -> Any:
    """Text as whole numbers if it is such, as fractions otherwise; missing where it is not a number."""
    words = column.cast(pa.string())
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return words.cast(kind)
    return _one_by_one(words, pa.float64(), float, "", RowProblems(len(words)))


def find_time_format(
    column: Any,
    kind: Any,
    day_first: bool | None = None,
    more: Iterable[str] = (),
) -> TimeFormat | None:
    """Return what makes timestamps of the times of a column, None if there is nothing to do.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        The first times of a log.
    kind : pyarrow.DataType
        What they are: numbers or text, even where text formats give numbers as text.
    day_first : bool, optional
        Whether dates begin with the day, where the caller knows.
    more : iterable of str
        All other times, asked for until some day is greater than 12 if the first ones do not tell.

    Raises
    ------
    InputError
        If days may be months.
    """
    column = column.drop_null()
    if not len(column) or not (is_number(kind) or is_text(kind)):
        return None
    if is_number(kind):
        return _epoch(column)
    words = column.to_pylist()
    if YEAR_FIRST.match(words[0]):
        return partial(from_text, _clocks("%Y/%m/%d"))
    parts = WRITTEN.match(words[0])
    if parts is None:
        return None
    sign = parts["sign"]
    if day_first is None:
        day_first = True if sign == "." else _is_day_first(chain(words, more))
    if day_first is None:
        raise InputError(
            f"schema: dates such as {words[0].strip()} may begin with the day or the month; say "
            "which (day_first = true or false; --day-first or --month-first)"
        )
    order = f"%d{sign}%m{sign}" if day_first else f"%m{sign}%d{sign}"
    year = "%Y" if len(parts["year"]) == 4 else "%y"
    comma = "," if "," in (parts["between"] or "") else ""
    return partial(from_text, _clocks(f"{order}{year}{comma}"))


def holds_times(column: Any, kind: Any) -> bool:
    """Whether the first values of a column are times: of such a type, written so, or counted since 1970.

    Numbers are only taken for times if they lie close together, compared with the time since 1970.
    """
    present = column.drop_null()
    if is_time(kind) or not len(present):
        return is_time(kind)
    if is_text(kind):
        words = present.slice(0, 20).to_pylist()
        return all(
            WRITTEN.match(word) or YEAR_FIRST.match(word) or _is_iso(word)
            for word in words
        )
    if not is_number(kind) or pa.types.is_boolean(kind):
        return False
    least, most = _range(present)
    return _epoch(present) is not None and least < most <= NEARBY * least


def _is_iso(word: str) -> bool:
    with suppress(ValueError):
        return len(word.strip()) >= 10 and as_utc(word) is not None
    return False


NEARBY = 1.2
"""Ratio of the latest to the earliest time since 1970 within a log."""


def _range(column: Any) -> tuple[float, float]:
    """The least and the greatest of numbers, or of text that should be numbers; 0 if there is none."""
    numbers = _numbers(column.combine_chunks()) if is_text(column.type) else column
    ends = compute.min_max(numbers.cast(pa.float64(), safe=False)).as_py()
    return ends["min"] or 0.0, ends["max"] or 0.0


def _epoch(column: Any) -> TimeFormat | None:
    """The unit in which all values are times between 1973 and 2100."""
    least, most = _range(column)
    units = [
        unit
        for unit, least_time in EPOCHS.items()
        if least_time <= least and most <= 41.0 * least_time
    ]
    return partial(since_1970, units[0]) if units else None


def _clocks(day: str) -> tuple[str, ...]:
    """Forms of a day with and without a time of day."""
    clocks = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
    return (*(f"{day} {clock}" for clock in clocks), f"{day}T%H:%M:%S", day.rstrip(","))


def _is_day_first(words: Iterable[str]) -> bool | None:
    """Whether the first number of some date is above 12, not the second; None if neither number is."""
    for match in filter(None, map(WRITTEN.match, words)):
        for number in ("first", "second"):
            if int(match[number]) > 12:
                return number == "first"
    return None

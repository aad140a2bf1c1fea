"""Preparation: what a caller says about names and values of a log, before anything is made of its columns.

Columns get other names, values that stand for missing ones become missing, words of a reward become numbers,
and numbers that are actions become levels. Text that holds fractions only is announced as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError, format_names, whole_number
from invariant_bandits.logs.decode import (
    are_text_numbers,
    is_number,
    is_text,
    numbers_or_nan,
)
from invariant_bandits.logs.schema import require_column
from invariant_bandits.logs.sources import Batches, Source, SourceAround, Task
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa

LEAST_LEVELS = 2
"""Levels that an arm column of numbers can be cut into, at least: one arm is no choice."""
MOST_LEVELS = 100
"""Levels at most: every one needs rounds of its own."""


class RenamedSource(SourceAround):
    """A source with some columns under other names.

    Where a log has columns of both names, such as files from before and after a change, a missing value of
    the one is taken from the other.

    Parameters
    ----------
    inner : Source
        The rows as they are.
    names : mapping of str to str
        New name → old name.
    """

    def __init__(self, inner: Source, names: Mapping[str, str]) -> None:
        super().__init__(inner)
        self.names = dict(names)
        self.both = set(names) & set(inner.arrow_schema.names)
        new_names = {old: new for new, old in names.items()}
        columns = []
        for column in inner.arrow_schema:
            name = new_names.get(column.name, column.name)
            is_second = column.name in new_names and name in self.both
            if not is_second:
                columns.append(column.with_name(name))
        self.arrow_schema = pa.schema(columns)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches under the new names."""
        old = [self.names.get(name, name) for name in columns]
        both = [name for name in columns if name in self.both]
        wanted = list(dict.fromkeys(old + both))
        for row, batch in self.inner.batches(task, wanted):
            arrays = [self._column(batch, name) for name in columns]
            yield row, pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def _column(self, batch: Any, name: str) -> Any:
        old = batch.column(self.names.get(name, name))
        if name not in self.both:
            return old
        new = batch.column(name)
        if old.type != new.type:
            old = old.cast(new.type)
        return compute.coalesce(new, old)


class ChangedSource(SourceAround):
    """A source with the values of some columns changed, or their types announced as others.

    Parameters
    ----------
    inner : Source
        The rows as they are.
    changes : mapping of str to callable, Arrow array -> Arrow array
        By column.
    types : mapping of str to pyarrow.DataType
        New types of columns. A batch may hold text where numbers are announced, as those of text files.
    """

    def __init__(
        self,
        inner: Source,
        changes: Mapping[str, Callable[[Any], Any]],
        types: Mapping[str, Any],
    ) -> None:
        super().__init__(inner)
        self.changes = dict(changes)
        fields = [
            column.with_type(types.get(column.name, column.type))
            for column in inner.arrow_schema
        ]
        self.arrow_schema = pa.schema(fields)

    def batches(self, task: Task, columns: Sequence[str]) -> Batches:
        """Yield batches with changed values."""
        changed = [name for name in columns if name in self.changes]
        for row, batch in self.inner.batches(task, columns):
            for name in changed:
                index = batch.schema.get_field_index(name)
                values = self.changes[name](batch.column(index))
                batch = batch.set_column(index, name, values)
            yield row, batch


def prepared(source: Source, known: Mapping[str, Any]) -> Source:
    """Return the source with names and values as the caller says.

    Parameters
    ----------
    source : Source
        The rows as they are.
    known : mapping
        Fields of a Schema that the caller gives.
    """
    if known.get("rename"):
        source = _renamed(source, known["rename"])
    if known.get("missing"):
        source = _with_missing(source, known["missing"])
    if known.get("reward_values"):
        values = known["reward_values"]
        source = _with_reward_values(source, known.get("reward"), values)
    if known.get("level_values"):
        edges = known.get("level_edges") or ()
        source = with_levels(
            source, str(known.get("arm")), edges, known["level_values"]
        )
    return source


def _renamed(source: Source, renamed: Mapping[str, str]) -> Source:
    """The source under new names; a name that is not there is fine where the new one is."""
    there = source.arrow_schema.names
    for old, new in renamed.items():
        if old not in there and new not in there:
            raise InputError(
                f"rename: column {old!r} is not in the log, which has {format_names(there)}"
            )
    olds = [old for old in renamed if old in there]
    names = {renamed[old]: old for old in olds}
    if len(names) < len(olds):
        raise InputError(
            f"rename: two columns cannot get the same name, got {dict(renamed)!r}"
        )
    return RenamedSource(source, names) if names else source


def missing_values(
    missing: Sequence[str], columns: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the values that stand for a missing one, by column.

    >>> missing_values(("-999", "age=-1"), ("age", "crp"))
    {'age': ('-999', '-1'), 'crp': ('-999',)}
    """
    by_column: dict[str, tuple[str, ...]] = {}
    for word in missing:
        name, sign, value = word.partition("=")
        if sign and name in columns:
            by_column[name] = (*by_column.get(name, ()), value)
            continue
        for column in columns:
            by_column[column] = (*by_column.get(column, ()), word)
    return by_column


def _with_missing(source: Source, missing: Sequence[str]) -> Source:
    """The source with some values of numbers and text as missing ones."""
    usable = []
    for column in source.arrow_schema:
        is_flag = pa.types.is_boolean(column.type)
        if is_text(column.type) or (is_number(column.type) and not is_flag):
            usable.append(column.name)
    by_column = missing_values(missing, usable)
    changes = {name: _blanking(values) for name, values in by_column.items()}
    return ChangedSource(source, changes, {})


def _blanking(values: Sequence[str]) -> Callable[[Any], Any]:
    """Return a function that makes these values of a column missing.

    Numbers are compared as numbers, also where a text format gives them as text.
    """
    words = {value.strip() for value in values}
    numbers = {number for number in map(number_of, values) if number is not None}

    def stands_for_missing(word: str) -> bool:
        return word.strip() in words or number_of(word) in numbers

    def blank(column: Any) -> Any:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if is_number(column.type):
            stand_ins = pa.array(sorted(numbers), pa.float64())
            missing = compute.is_in(column.cast(pa.float64(), safe=False), stand_ins)
        else:
            different = column.drop_null().unique()
            stand_ins = list(filter(stands_for_missing, different.to_pylist()))
            missing = compute.is_in(column, pa.array(stand_ins, different.type))
        return compute.if_else(missing, pa.scalar(None, column.type), column)

    return blank


def without_values(
    columns: Mapping[str, Any], missing: Sequence[str]
) -> dict[str, Any]:
    """Return raw columns of live decisions with the values that stand for a missing one as None.

    >>> without_values({"age": [31.0, -999.0], "device": ["phone", "-999"]}, ["-999"])
    {'age': [31.0, None], 'device': ['phone', None]}
    """
    by_column = missing_values(missing, list(columns))
    cleaned = dict(columns)
    for name, words in by_column.items():
        stand_ins = {*words, *map(number_of, words)} - {None}
        cleaned[name] = [
            None
            if isinstance(value, str | int | float) and value in stand_ins
            else value
            for value in columns[name]
        ]
    return cleaned


def number_of(word: str) -> float | None:
    """Return the number that a word is; None if it is none."""
    try:
        return float(word)
    except ValueError:
        return None


def _with_reward_values(
    source: Source,
    reward: Any,
    values: Mapping[str, float],
) -> Source:
    """The source with words of the reward as numbers; other words stay, and are counted as unparsable."""
    if not isinstance(reward, str):
        raise InputError(
            "reward_values says what words of the reward are worth: name its column as reward"
        )
    require_column("reward", reward, source.arrow_schema.names)
    words = pa.array([word.strip().lower() for word in values])
    numbers = pa.array([repr(float(number)) for number in values.values()])

    def worth(column: Any) -> Any:
        text = column.cast(pa.string())
        said = compute.utf8_lower(compute.utf8_trim_whitespace(text))
        indices = compute.index_in(said, value_set=words)
        return compute.coalesce(numbers.take(indices), text)

    return ChangedSource(source, {reward: worth}, {reward: pa.float64()})


def cut_levels(
    source: Source,
    arm: Any,
    levels: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (edges (k − 1,), medians (k,)) of k levels of a column with about equally many rows each.

    Parameters
    ----------
    source : Source
        The rows.
    arm : str
        Column of numbers, which is read once.
    levels : int
        How many levels.
    """
    count = whole_number("levels", levels, LEAST_LEVELS)
    if count > MOST_LEVELS:
        raise InputError(f"levels must be at most {MOST_LEVELS}, got {levels}")
    if not isinstance(arm, str):
        raise InputError(
            "levels cuts the column of the arm into levels: name it (--arm COLUMN)"
        )
    require_column("arm", arm, source.arrow_schema.names)
    parts = [np.zeros(0)]
    for task in source.tasks:
        for _, batch in source.batches(task, [arm]):
            parts.append(numbers_or_nan(batch.column(0)))
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    impossible = f"levels: column {arm!r} cannot be cut into {count} levels"
    different = len(np.unique(values))
    if different < count:
        raise InputError(f"{impossible}, it has {different} different numbers")
    edges = np.unique(np.quantile(values, np.arange(1, count) / count))
    levels_of_rows = np.searchsorted(edges, values, side="right")
    medians = [
        float(np.median(values[levels_of_rows == level]))
        for level in np.unique(levels_of_rows)
    ]
    # The labels are rounded: each must still lie in its level.
    labels = [float(label) for label in level_labels(medians)]
    if len(np.unique(np.searchsorted(edges, labels, side="right"))) < count:
        raise InputError(
            f"{impossible}, some numbers come so often that fewer levels are needed"
        )
    return tuple(edges.tolist()), tuple(medians)


def with_levels(
    source: Source,
    arm: str,
    edges: Sequence[float],
    medians: Sequence[float],
) -> Source:
    """The source with its column of numbers as labels: the median of the level of each number."""
    bounds = np.array(edges)
    labels = pa.array(level_labels(medians))

    def level(column: Any) -> Any:
        numbers = numbers_or_nan(column)
        indices = np.searchsorted(bounds, numbers, side="right")
        # NaN lies after the last level: take no label there.
        return labels.take(pa.array(indices, mask=np.isnan(numbers)))

    return ChangedSource(source, {arm: level}, {arm: pa.string()})


def level_labels(medians: Sequence[float]) -> list[str]:
    """Return the labels of levels: their medians."""
    return [f"{median:.4g}" for median in medians]


def describe_levels(
    arm: str,
    edges: Sequence[float],
    medians: Sequence[float],
) -> str:
    """Return what the levels of an arm column are, in words.

    >>> describe_levels("price", (10.0,), (8.0, 12.0))
    'the arms are 2 levels of price, named by their medians: 8 (below 10), 12 (10 and more)'
    """
    bounds = [f"{edge:.4g}" for edge in edges]
    ranges = [f"below {bounds[0]}"]
    ranges += [f"{low} to {high}" for low, high in pairwise(bounds)]
    ranges.append(f"{bounds[-1]} and more")
    pairs = zip(level_labels(medians), ranges, strict=True)
    named = ", ".join(f"{label} ({words})" for label, words in pairs)
    return (
        f"the arms are {len(medians)} levels of {arm}, named by their medians: {named}"
    )


def text_of_numbers(source: Source, first: Callable[[], Any]) -> list[str]:
    """Return the columns of text whose first values are numbers, not all of them whole.

    Whole numbers in text may be codes, such as "007"; fractions are not.

    Parameters
    ----------
    source : Source
        The rows.
    first : callable
        Returns a table of the first of them.
    """
    texts = [column.name for column in source.arrow_schema if is_text(column.type)]
    if not texts or source.schema is not None:
        return []
    rows = first()
    return [name for name in texts if _are_text_fractions(rows.column(name))]


def _are_text_fractions(column: Any) -> bool:
    """Whether text holds numbers only, some of them with a decimal point."""
    if not is_text(column.type) or not are_text_numbers(column):
        return False
    has_point = compute.match_substring(column.cast(pa.string()), ".")
    return bool(compute.any(has_point).as_py())

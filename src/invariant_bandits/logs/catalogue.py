"""Catalogue: what is known about arms beside the log: their features, and when they could be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decoding, labels
from invariant_bandits.logs.arrow_types import is_number, is_text, is_time
from invariant_bandits.logs.opening import open_source
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import NAMES, listed
from invariant_bandits.logs.schema_inference import identifies

VALID_FROM = "valid_from from start start_date starts launched launched_at available_from"
VALID_UNTIL = "valid_until until valid_to end end_date ends retired retired_at available_until"
ARMS_PER_FEATURE = 3
"""So many arms are needed for one feature of the catalogue."""
INDEPENDENT = 1e-6
"""Share of a feature's variance over the arms that the earlier ones must leave."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Features of A arms, and when each of them could be chosen.

    Parameters
    ----------
    labels : tuple of str
        The arms.
    names : tuple of str
        Names of k features.
    values : array, shape (A, k)
        The features, mean 0 and standard deviation 1 over the arms.
    shift, scale : arrays, shape (k,)
        What was subtracted from them, and what they were then divided by.
    valid_from, valid_until : sequences of A times or None
        When each could be chosen; None is not bounded.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    values: Array
    shift: Array
    scale: Array
    valid_from: tuple[Any, ...]
    valid_until: tuple[Any, ...]

    def features_of(self, wanted: Sequence[str]) -> Array:
        """Features (len(wanted), k) of some arms; zeros, the mean, for those that are not in the catalogue."""
        rows = {label: row for row, label in enumerate(self.labels)}
        found = np.zeros((len(wanted), len(self.names)))
        for place, label in enumerate(wanted):
            if label in rows:
                found[place] = self.values[rows[label]]
        return found


def read_catalogue(source: Any, *, arm: str, used: Sequence[str], dates: bool) -> Catalogue:
    """A catalogue from a file or a table with one row per arm.

    Parameters
    ----------
    source : path, Arrow table, frame, or whatever else is a source of rows
        One row per arm: a column of labels, features, and perhaps columns such as valid_from and valid_until.
    arm : str
        Name of the label column of the log; the catalogue's has the same name, or is the one that holds its labels.
    used : sequence of str
        Labels that occur in the log.
    dates : bool
        Whether the times of the log are dates.
    """
    opened = open_source(source)
    table = _whole(opened)
    kinds = {name: opened.arrow_schema.field(name).type for name in opened.arrow_schema.names}
    name = _label_column(table, arm, used)
    words = labels.as_labels(table.column(name).combine_chunks()).to_pylist()
    if None in words or len(set(words)) < len(words):
        raise InputError(f"catalogue: column {name!r} must hold every label once")
    begin, end = (_named(kinds, usual, name) for usual in (VALID_FROM, VALID_UNTIL))
    others = [one for one in kinds if one not in (name, begin, end) and not identifies(one) and one.strip()]
    names, raw = _features(table, {one: kinds[one] for one in others})
    shift, scale = raw.mean(axis=0), raw.std(axis=0)
    until = _times(table, end, dates)
    if end is not None and _are_days(table, end, kinds[end]):  # the last day is meant as a whole
        until = tuple(None if day is None else day + np.timedelta64(86_399_999_999, "us") for day in until)
    return Catalogue(tuple(words), names, (raw - shift) / scale, shift, scale, _times(table, begin, dates), until)


def _whole(source: Any) -> Any:
    import pyarrow as pa

    names = source.arrow_schema.names
    batches = [batch for task in source.tasks for _, batch in source.batches(task, names)]
    if not batches:
        raise InputError("catalogue is empty: one row per arm is needed")
    return pa.Table.from_batches(batches)


def _label_column(table: Any, arm: str, used: Sequence[str]) -> str:
    """The column of labels: named as in the log, usually named, or the one that holds the log's labels."""
    usual = [name for name in table.column_names if name.lower() in ("label", "name", "id", *NAMES["arm"].split())]
    for name in [*(name for name in table.column_names if name == arm), *usual, *table.column_names]:
        there = set(labels.as_labels(table.column(name).combine_chunks()).to_pylist())
        if there & set(used):
            return str(name)
    raise InputError(
        f"catalogue: no column holds the labels of the log, such as {listed(list(used)[:5])}; it has the columns"
        f" {listed(table.column_names)}"
    )


def _named(kinds: dict[str, Any], usual: str, taken: str) -> str | None:
    return next((name for word in usual.split() for name in kinds if name.lower() == word and name != taken), None)


def _are_days(table: Any, name: str, kind: Any) -> bool:
    """Whether a column holds dates without a time of the day."""
    from pyarrow import types

    words = [word for word in table.column(name).to_pylist() if word is not None]
    return bool(types.is_date(kind)) or all(isinstance(word, str) and len(word.strip()) == 10 for word in words)


def _times(table: Any, name: str | None, dates: bool) -> tuple[Any, ...]:
    """Times of a column of the catalogue, None where there is none."""
    if name is None:
        return tuple(None for _ in range(table.num_rows))
    column = table.column(name).combine_chunks()
    problems = RowProblems(len(column))
    values = decoding.times(column, name, dates, problems)
    missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    if (~problems.usable & ~missing).any():
        raise InputError(f"catalogue: column {name!r} must hold {'dates' if dates else 'numbers'}, as the log's times")
    return tuple(None if gone else value for value, gone in zip(values, missing, strict=True))


def _features(table: Any, kinds: dict[str, Any]) -> tuple[tuple[str, ...], Array]:
    """Names (k,) and raw values (A, k) of the features: numbers first, then the categories that several arms share."""
    arms = table.num_rows
    candidates = [(name, _numbers(table, name)) for name, kind in kinds.items() if is_number(kind)]
    shared: list[tuple[str, Array]] = []
    for name, kind in kinds.items():
        if is_text(kind) and not is_time(kind):
            shared += _shared_categories(table, name)
    candidates += sorted(shared, key=lambda pair: -float(pair[1].sum()))
    names: list[str] = []
    basis = np.zeros((arms, 0))
    values = np.zeros((arms, 0))
    for name, column in candidates:
        centred = column - column.mean()
        size = float(np.sqrt((centred**2).mean()))
        if len(names) >= max(arms // ARMS_PER_FEATURE, 1) or size <= 1e-12 * (1.0 + np.abs(column).max()):
            continue
        left = centred - basis @ (basis.T @ centred)
        if (left @ left) <= INDEPENDENT * (centred @ centred):
            continue
        names.append(name)
        basis = np.column_stack([basis, left / np.linalg.norm(left)])
        values = np.column_stack([values, column])
    return tuple(names), values


def _numbers(table: Any, name: str) -> Array:
    """Numbers (A,), the mean where one is missing."""
    column = table.column(name).combine_chunks()
    problems = RowProblems(len(column))
    values = decoding.numbers(column, name, problems)
    good = problems.usable
    return np.where(good, values, values[good].mean() if good.any() else 0.0)


def _shared_categories(table: Any, name: str) -> list[tuple[str, Array]]:
    """(name=category, indicator (A,)) of the categories that at least two arms have."""
    words = np.array(labels.as_labels(table.column(name).combine_chunks()).fill_null("").to_pylist())
    levels, counts = np.unique(words, return_counts=True)
    several = [level for level, count in zip(levels, counts, strict=True) if level and 2 <= count < len(words)]
    return [(f"{name}={level}", (words == level).astype(float)) for level in several]

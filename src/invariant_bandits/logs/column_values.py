"""What the first values of a column say about its role, where its name and its type do not suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from invariant_bandits.logs import decoding
from invariant_bandits.logs.arrow_types import is_list, is_number, is_text
from invariant_bandits.logs.quality import RowProblems

MOST_LABELS = 200
"""Different values in the first rows beyond which a column holds no labels of arms."""


def are_labels(column: Any, kind: Any) -> bool:
    """Whether the values of a column of this type may be labels of arms: text or whole numbers, few different ones."""
    if not (is_text(kind) or (is_number(kind) and _are_whole(column))):
        return False
    there = column.drop_null()
    return 0 < len(there.unique()) <= min(MOST_LABELS, max(len(there) // 2, 2))


def are_lists_of_labels(column: Any, kind: Any) -> bool:
    """Whether a column of this type holds lists of labels, or text that separates them by one of | ; ,."""
    if is_list(kind):
        return is_text(kind.value_type) or (is_number(kind.value_type) and _are_whole(column))
    if not is_text(kind):
        return False
    words = [word for word in column.drop_null().slice(0, 100).to_pylist() if word]
    return bool(words) and sum(any(mark in word for mark in "|;,") for word in words) > len(words) / 2


def are_probabilities(column: Any) -> bool:
    """Whether the usable values lie above 0 and at most at 1, up to one in ten."""
    problems = RowProblems(len(column))
    values = decoding.numbers(_flat(column), "", problems)[problems.usable]
    return bool(len(values)) and bool(((values > 0.0) & (values <= 1.0)).mean() >= 0.9)


def count_up(column: Any) -> bool:
    """Whether every value is one more than the one before."""
    problems = RowProblems(len(column))
    values = decoding.numbers(_flat(column), "", problems)
    return len(values) > 1 and bool(problems.usable.all() and (np.diff(values) == 1.0).all())


def vary_within(sample: Any, round_name: str, features: Sequence[str], label: str) -> bool:
    """Whether some of the features, or none of the labels, differ between rows of one round."""
    table = sample.combine_chunks()
    same = _equal_to_next(table.column(round_name))
    if not same.any() or _equal_to_next(table.column(label))[same].all():
        return True
    return any(not _equal_to_next(table.column(name))[same].all() for name in features)


def _equal_to_next(column: Any) -> Any:
    codes = _flat(column).dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes[1:] == codes[:-1])


def _are_whole(column: Any) -> bool:
    """Whether the usable values of a column of numbers are whole."""
    flat = _flat(column)
    problems = RowProblems(len(flat))
    values = decoding.numbers(flat, "", problems)[problems.usable]
    return bool((values == np.floor(values)).all())


def _flat(column: Any) -> Any:
    """One array of a column that may be chunked, lists flattened."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.flatten() if is_list(array.type) else array

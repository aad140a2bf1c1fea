"""Labels of arms in Arrow columns: as text, as lists, and as places in a table of arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arrow_types import is_list
from invariant_bandits.logs.schema import listed

WHOLE = r"^(-?\d+)\.0+$"
SEPARATOR = r"[|;,]"
AROUND_LABELS = r"[\[\]\"'\s]"


def as_labels(column: Any) -> Any:
    """A column of labels as Arrow text; 14.0, as frames write whole numbers beside missing ones, is 14."""
    import pyarrow as pa
    from pyarrow import compute

    words = column.cast(pa.string())
    first = next((word for word in words.slice(0, 100).to_pylist() if word is not None), "")
    return compute.replace_substring_regex(words, WHOLE, r"\1") if first.endswith(".0") else words


def places(column: Any, known: Sequence[str]) -> Array:
    """Places (n,) of the labels among the known ones; −1 where a label is missing or not known."""
    import pyarrow as pa
    from pyarrow import compute

    found = compute.index_in(as_labels(column), value_set=pa.array(list(known), type=pa.string()))
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)


def place_of(label: Any, known: Sequence[str]) -> int:
    """Place of one label among the known ones; InputError names them."""
    if str(label) not in known:
        raise InputError(f"arm {label!r} is not known; the arms are {listed(known)}")
    return list(known).index(str(label))


def flattened(column: Any) -> tuple[Any, Array]:
    """(labels as Arrow text, their row (Σ lengths,)) of a column of lists, or of text that separates them."""
    import pyarrow as pa
    from pyarrow import compute

    if not is_list(column.type):
        words = compute.replace_substring_regex(column.cast(pa.string()), AROUND_LABELS, "")
        column = compute.split_pattern_regex(words, SEPARATOR)
    rows = compute.list_parent_indices(column).to_numpy(zero_copy_only=False)
    return as_labels(compute.list_flatten(column)), np.asarray(rows)

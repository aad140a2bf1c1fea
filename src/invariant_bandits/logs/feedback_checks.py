"""What arrays of logged rounds must look like; what is wrong is named."""

from __future__ import annotations

from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.logs.stored_rows import StoredRows


def row_starts(counts: Array) -> Array:
    """First row of every round, and the number of rows (n + 1,)."""
    return np.concatenate([[0], np.cumsum(counts)])


def flattened(offered: Any, counts: Any) -> tuple[Any, Array]:
    """(features (rows, p), actions per round (n,)) from (n, K, p), or from (rows, p) with counts."""
    if counts is None:
        array = finite_array("offered", offered, ("n", "K", "p"))
        n, actions, p = array.shape
        return np.ascontiguousarray(array.reshape(n * actions, p)), np.full(n, actions, dtype=np.int64)
    stored = isinstance(offered, StoredRows)
    flat = offered if stored else np.ascontiguousarray(finite_array("offered", offered, ("rows", "p")))
    sizes = _whole_numbers("counts", counts, None)
    if (sizes < 1).any():
        raise InputError(f"counts must be at least 1, got {sizes.min()}")
    if sizes.sum() != len(flat):
        raise InputError(f"counts must add up to the {len(flat)} rows of offered, got {sizes.sum()}")
    return flat, sizes


def checked_actions(value: Any, counts: Array) -> Array:
    """Indices (n,) of the logged actions, each within its round."""
    actions = _whole_numbers("actions", value, len(counts))
    outside = (actions < 0) | (actions >= counts)
    if outside.any():
        at = int(np.flatnonzero(outside)[0])
        raise InputError(f"actions must index the {counts[at]} actions of their round, got {actions[at]} at {at}")
    return actions


def _whole_numbers(name: str, value: Any, length: int | None) -> Array:
    array = np.asarray(value)
    if array.ndim != 1 or len(array) == 0 or (length is not None and len(array) != length):
        raise InputError(f"{name} must have shape ({'n' if length is None else length},), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, got dtype {array.dtype}")
    return array.astype(np.int64)


def per_row(name: str, value: Any, rows: int) -> Any:
    """One finite number per offered action, (rows,) or (n, K); stored ones were checked when they were stored."""
    if isinstance(value, StoredRows) and value.shape == (rows,):
        return value
    array = np.asarray(value)
    return finite_array(name, array.reshape(-1) if array.ndim == 2 else array, (rows,))


def checked_propensities(value: Any, counts: Array, actions: Array) -> tuple[Array | None, Array]:
    """(of all offered actions or None, of the logged ones (n,)); whether they are right is for `calibration` to say."""
    rows, n = int(counts.sum()), len(counts)
    array = np.asarray(value)
    several = array.ndim == 2 or (array.ndim == 1 and len(array) == rows != n)
    every = per_row("propensities", value, rows) if several else None
    own = finite_array("propensities", value, (n,)) if every is None else every[row_starts(counts)[:-1] + actions]
    if every is not None and ((every < 0.0) | (every > 1.0)).any():
        raise InputError("propensities must lie between 0 and 1")
    wrong = np.flatnonzero((own <= 0.0) | (own > 1.0))
    if len(wrong):
        raise InputError(
            f"propensities of logged actions must lie above 0 and at most 1, got {own[wrong[0]]} in round {wrong[0]}"
        )
    return every, own


def checked_times(value: Any, n: int) -> Array:
    """Times (n,), numbers or datetimes, that do not decrease."""
    array = np.asarray(value)
    if array.shape != (n,):
        raise InputError(f"times must have shape ({n},), got {array.shape}")
    if array.dtype.kind not in "iufM":
        raise InputError(f"times must be numbers or datetimes, got dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError("times must be finite")
    falling = np.flatnonzero(array[1:] < array[:-1])
    if len(falling):
        at = int(falling[0])
        raise InputError(f"times must not decrease, got {array[at]} before {array[at + 1]} at index {at}: sort the log")
    return array

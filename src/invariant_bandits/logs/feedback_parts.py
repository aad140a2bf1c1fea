"""Logged rounds whose offered actions do not fit into memory, stretch by stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import stored_rows
from invariant_bandits.logs.stored_rows import StoredRows

if TYPE_CHECKING:
    from invariant_bandits.logs.feedback import Feedback


def is_small(rows: Array | StoredRows) -> bool:
    """Whether the rows are in memory and few."""
    return not isinstance(rows, StoredRows) and rows.size <= stored_rows.IN_MEMORY


def stretches(feedback: Feedback) -> Iterator[tuple[int, int]]:
    """First round, and the one after the last, of stretches that can be held in memory several times over."""
    most, start = max(1, stored_rows.AT_ONCE // feedback.dim), 0
    while start < feedback.rounds:
        stop = int(np.searchsorted(feedback.starts, feedback.starts[start] + most, side="right")) - 1
        yield start, max(stop, start + 1)
        start = max(stop, start + 1)


def cut(values: Any, part: slice) -> Any:
    """A stretch of an array or, nothing being read, of stored rows; None of None."""
    if isinstance(values, StoredRows):
        return values.between(part.start, part.stop)
    return None if values is None else values[part]


def changed(values: Any, change: Callable[[Array], Array]) -> Any:
    """`change` of an array, or of stored rows as they are read; None of None."""
    if isinstance(values, StoredRows):
        return values.mapped(change)
    return None if values is None else np.ascontiguousarray(change(values))


def loaded(feedback: Feedback) -> Feedback:
    """The same rounds with all that is stored read into memory."""
    names = ("offered", "offered_propensities", "offered_rewards")
    stored: dict[str, Any] = {name: rows for name in names if isinstance(rows := getattr(feedback, name), StoredRows)}
    whole: dict[str, Any] = {name: rows[:] for name, rows in stored.items()}
    return replace(feedback, **whole) if stored else feedback


def in_parts(feedback: Feedback, *values: Any) -> Iterator[tuple[Any, ...]]:
    """(first round, part, its share of each of the per-row values) of all parts of the feedback."""
    start = row = 0
    for part in feedback.parts():
        stop = row + len(part.offered)
        yield start, part, *(value[row:stop] for value in values)
        start, row = start + part.rounds, stop

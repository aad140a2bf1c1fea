"""Remove old events: the chain of the others stays whole, and the state stays as it is."""

from __future__ import annotations

from typing import Any, NamedTuple

from invariant_bandits.service.events import decision_key, decoded
from invariant_bandits.service.replaying import restored
from invariant_bandits.service.state import State


class Compacted(NamedTuple):
    """How many events were removed, and how many are left."""

    removed: int
    kept: int


def compact(store: Any, before: float) -> Compacted:
    """Remove events from before a time, seconds since 1970.

    Decisions that wait for rewards stay, with all events after them, and so does the last batch. A reward that comes
    later for a decision that was removed is kept and counted as one without a decision.
    """
    state = restored(store)
    start, end = store.start().seq, store.head().seq
    first = min(first_since(store, before, start, end), _oldest_needed(store, state, end))
    if first <= start:
        return Compacted(0, end - start)
    store.cut(first, state.seq, state.to_bytes())
    store.shrink()
    return Compacted(first - start, end - first)


def _row(store: Any, seq: int) -> Any:
    return next(iter(list(store.rows(seq, seq + 1))))


def first_since(store: Any, time: float, first: int, last: int) -> int:
    """Number of the first batch that is not from before a time; of the last one if all are. Times never decrease."""
    if first == last:
        return first
    last -= 1
    while first < last:
        middle = (first + last) // 2
        if decoded(_row(store, middle).event).time < time:
            first = middle + 1
        else:
            last = middle
    return int(_row(store, first).batch)


def _oldest_needed(store: Any, state: State, end: int) -> int:
    """Number of the first batch with a decision that waits for rewards."""
    oldest = end
    for served in state.models.values():
        for _, id in served.waiting:
            oldest = min([oldest, *(row.batch for row in store.of_key(decision_key(id, served.name))[:1])])
    return oldest

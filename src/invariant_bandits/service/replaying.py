"""State from the store: a snapshot and the events after it; or all events, every decision made again and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from invariant_bandits.service.events import AnyEvent, Decided, decoded
from invariant_bandits.service.requests import Asked
from invariant_bandits.service.state import State
from invariant_bandits.service.store.chain import Row, StoreError


def restored(store: Any) -> State:
    """The state after all events of a store, from its newest snapshot on."""
    kept = store.latest_snapshot()
    state = State(store) if kept is None else State.from_bytes(kept[1], store)
    if kept is None and store.start().seq:
        raise StoreError("the first events were removed, and there is no snapshot to begin from")
    for row in store.rows(state.seq):
        state.apply(decoded(row.event))
    if state.seq != store.head().seq:
        raise StoreError(f"the snapshot holds {state.seq} events, the store {store.head().seq}: the last ones are lost")
    return state


def last_time(store: Any) -> float:
    """When the last event happened; 0 without any."""
    return max((decoded(row.event).time for row in store.rows(max(store.head().seq - 1, 0))), default=0.0)


def replayed(store: Any, progress: Callable[[int], None] | None = None) -> State:
    """The state after all events from the first on; every decision is made again and must be the same, bit for bit."""
    if store.start().seq:
        raise StoreError("the first events were removed: only what follows the oldest snapshot can be replayed")
    state = State(store)
    for _, batch in batches(store.rows()):
        for event in batch:
            if isinstance(event, Decided):
                check(state, event)
        for event in batch:
            state.apply(event)
        if progress is not None:
            progress(state.seq)
    return state


def batches(rows: Iterator[Row]) -> Iterator[tuple[int, list[AnyEvent]]]:
    """Events that were committed together, with the number of the first."""
    for number, group in groupby(rows, key=lambda row: row.batch):
        yield number, [decoded(row.event) for row in group]


def check(state: State, event: Decided) -> None:
    """Raise unless the state decides as the event says."""
    served = state.models[event.model]
    asked = Asked(event.model, event.context, event.labels, event.actions)
    _, choice = state.chosen(served, asked, event.draw)
    if choice.place != event.place or choice.propensities != event.propensities or served.version != event.version:
        raise StoreError(f"decision {event.id!r} is another one when it is made again")

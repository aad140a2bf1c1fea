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
    """The state after all events of a store, from its newest snapshot on; it may be growing."""
    kept = store.latest_snapshot()
    state = State(store) if kept is None else State.from_bytes(kept[1], store)
    if kept is None and store.start().seq:
        raise StoreError("the first events were removed, and there is no snapshot to begin from")
    least = store.head().seq
    for row in store.rows(state.seq):
        state.apply(decoded(row.event))
    if not least <= state.seq <= store.head().seq:  # others may go on adding events
        raise StoreError(f"the snapshot holds {state.seq} events, the store {store.head().seq}: the last ones are lost")
    return state


def last_time(store: Any) -> float:
    """When the last event happened; 0 without any."""
    return max((decoded(row.event).time for row in store.rows(max(store.head().seq - 1, 0))), default=0.0)


def replayed(store: Any, progress: Callable[[int], None] | None = None, end: int | None = None) -> State:
    """The state after all events, or the first `end`; every decision is made again and must be the same, bit for bit.

    It begins with nothing, or where events were removed with the snapshot that was kept for it. The newest snapshot
    must hold the state that the replay has at its place.
    """
    base, newest = store.base(), store.latest_snapshot()
    if base is None and store.start().seq:
        raise StoreError("the first events were removed, and there is no snapshot to begin from")
    state = State(store) if base is None else State.from_bytes(base[1], store)
    published = Published(store, state)
    for _, batch in batches(store.rows(state.seq, end)):
        for event in batch:
            if isinstance(event, Decided):
                knew = state if event.at is None else published.at(event.at, state)
                if knew is not None:
                    check(knew, event)
        for event in batch:
            state.apply(event)
            published.keep(state)
        if newest is not None and state.seq == newest[0]:
            _check_same(state, State.from_bytes(newest[1], store))
        if progress is not None:
            progress(state.seq)
    return state


class Published:
    """States that decisions were made from although more had happened since, while they are needed."""

    def __init__(self, store: Any, first: State) -> None:
        self._store = store
        self._last_use: dict[int, int] = {}
        for row in store.rows(first.seq):
            event = decoded(row.event)
            if isinstance(event, Decided) and event.at is not None:
                self._last_use[event.at] = row.batch
        self._kept: dict[int, State] = {}
        self._first = first.seq
        self.keep(first)

    def keep(self, state: State) -> None:
        """Keep a copy of a state that is needed later."""
        if state.seq in self._last_use:
            self._kept[state.seq] = State.from_bytes(state.to_bytes(), self._store)

    def at(self, seq: int, now: State) -> State | None:
        """The state after `seq` events, for a decision of the next batch; None if that was before the replay's first.

        States that no later decision needs are dropped.
        """
        self._kept = {one: state for one, state in self._kept.items() if self._last_use[one] >= now.seq}
        if seq not in self._kept and seq >= self._first:
            raise StoreError(f"event {now.seq}: a decision was made from {seq} events, which is no state before it")
        return self._kept.get(seq)


def _check_same(state: State, kept: State) -> None:
    if kept.hashes() != state.hashes():
        raise StoreError(f"the snapshot after {state.seq} events holds another state than their replay")


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

"""The state of a store, from a snapshot or by making every decision again."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from invariant_bandits.storage import FileError
from invariant_bandits_service import events
from invariant_bandits_service.events import (
    AnyEvent,
    Decided,
    decision_key,
    decode_event,
)
from invariant_bandits_service.state import State, UnappliableError, set_aside_events
from invariant_bandits_service.store.sql import Cut, Row, StoreError

log = logging.getLogger("invariant_bandits_service")
NO_BASE = "the first events were removed, and there is no snapshot to begin from"


class ErasedMeanwhileError(StoreError):
    """Events that come next were erased while a store was read: a state after them is there."""


def follow(state: State, rows: Iterable[Row]) -> None:
    """Apply the events of these rows; UnappliableError names the first from which no state follows."""
    for row in rows:
        if row.seq != state.seq:
            raise ErasedMeanwhileError(f"event {state.seq} is missing or was erased")
        event: AnyEvent | None = None
        try:
            event = decode_event(row.event)
        except msgspec.MsgspecError as error:
            if row.seq not in state.aside:
                raise UnappliableError(row.seq, f"unknown kind: {error}") from error
        state.apply(event)


def restore(store: Any, aside: Mapping[int, str] | None = None) -> State:
    """The state after all events of a store, from its newest snapshot on; it may be growing.

    Events that cannot be applied are set aside: the state is as if they had not happened, and `state.aside`
    names them. `aside` names further ones.
    """
    state = _first_state(store, aside)
    least = store.head().seq
    checkpoint: bytes | None = None
    while True:
        try:
            follow(state, store.rows(state.seq))
            break
        except ErasedMeanwhileError:
            # the snapshot that was kept for it is newer than the state; else the store is damaged
            newer = _first_state(store, state.aside)
            if newer.seq <= state.seq:
                raise
            state = newer
        except UnappliableError as error:
            log.error("event %d is set aside: %s", error.seq, error.why)
            known = {**state.aside, error.seq: error.why}
            state = (
                _first_state(store)
                if checkpoint is None
                else State.from_bytes(checkpoint, store)
            )
            state.aside |= known
            follow(state, store.rows(state.seq, error.seq + 1))
            checkpoint = state.to_bytes()
    end = store.head().seq  # others may go on adding events
    if not least <= state.seq <= end:
        raise StoreError(
            f"the snapshot holds {state.seq} events, the store {end}: the last ones are lost"
        )
    return state


def _first_state(store: Any, aside: Mapping[int, str] | None = None) -> State:
    """Return the state of the newest snapshot that can be loaded, or the empty one.

    It knows what was set aside for good.
    """
    snapshots = filter(None, (store.latest_snapshot(), store.base()))
    state = next(filter(None, (_load(store, snapshot) for snapshot in snapshots)), None)
    if state is None:
        if store.start().seq:
            raise StoreError(NO_BASE)
        state = State(store)
    state.aside |= set_aside_events(store) | dict(aside or {})
    return state


def _load(store: Any, snapshot: tuple[int, bytes]) -> State | None:
    """Return the state that a snapshot holds.

    None, and a line in the log, if it holds a model that cannot be used.
    """
    try:
        return State.from_bytes(snapshot[1], store)
    except (FileError, msgspec.ValidationError) as error:
        log.error("the snapshot after %d events cannot be used: %s", snapshot[0], error)
        return None


def repair(store: Any) -> dict[int, str]:
    """Set aside for good what cannot be applied; numbers of these events, and why."""
    aside = {
        seq: why
        for seq, why in restore(store).aside.items()
        if seq not in set_aside_events(store)
    }
    if aside:
        event = events.SetAside(last_time(store), aside)
        store.append([(events.key_of(event), events.encode_event(event))])
    return aside


def last_time(store: Any) -> float:
    """When the last event happened; 0 without any."""
    rows = store.rows(max(store.head().seq - 1, 0))
    return max((decode_event(row.event).time for row in rows), default=0.0)


class PublishedStates:
    """States from which other processes decided although more had happened since.

    Parameters
    ----------
    store : Store
    first : State
        The one that a replay begins with.
    """

    def __init__(self, store: Any, first: State) -> None:
        self._store = store
        self._states: dict[int, State] = {}
        self._last_use: dict[int, int] = {}
        """Numbers of events after which decisions were made, and of the last batch with one."""
        for row in store.rows(first.seq):
            if row.seq in first.aside:
                continue
            event = decode_event(row.event)
            if isinstance(event, Decided) and event.at is not None:
                self._last_use[event.at] = row.batch
        self.keep(first)

    def keep(self, state: State) -> None:
        """Keep a copy of a state if a later decision was made from it."""
        if state.seq in self._last_use:
            copy = State.from_bytes(state.to_bytes(), self._store)
            self._states[state.seq] = copy

    def get(self, at: int) -> State | None:
        """Return the state after so many events, if it was kept."""
        return self._states.get(at)

    def forget(self, seq: int) -> None:
        """Drop what no batch from event `seq` on was decided from."""
        for at in list(self._states):
            if self._last_use[at] < seq:
                del self._states[at]


def replay_all(
    store: Any, progress: Callable[[int], None] | None = None, end: int | None = None
) -> State:
    """Return the state after all events, or the first `end`, and check every decision.

    Each decision is made again and must be the same, bit for bit. The replay begins with nothing,
    or where events were removed with the snapshot that was kept for it. The newest snapshot must
    hold the state that the replay has after the same events.
    """
    base = store.base()
    newest = store.latest_snapshot()
    if base is None and store.start().seq:
        raise StoreError(NO_BASE)
    aside = restore(store).aside
    state = State(store) if base is None else State.from_bytes(base[1], store)
    state.aside |= aside
    first = state.seq
    published = PublishedStates(store, state)
    for _, group in groupby(store.rows(first, end), key=lambda row: row.batch):
        batch = list(group)
        # decisions of a batch see the state before it
        for row in batch:
            if row.seq not in aside:
                _check_event(decode_event(row.event), state, published, first)
        for row in batch:
            follow(state, [row])
            published.keep(state)
        published.forget(state.seq)
        if newest is not None and state.seq == newest[0]:
            _check_snapshot(store, newest, state)
        if progress is not None:
            progress(state.seq)
    return state


def _check_event(
    event: AnyEvent, state: State, published: PublishedStates, first: int
) -> None:
    """Raise StoreError if an event is a decision that the state from which it was made does not repeat."""
    if not isinstance(event, Decided):
        return
    if event.at is None:
        check(state, event)
    elif event.at >= first:
        check(published.get(event.at), event)


def _check_snapshot(store: Any, snapshot: tuple[int, bytes], state: State) -> None:
    """Raise StoreError if a snapshot that can be loaded holds another state than its replay."""
    loaded = _load(store, snapshot)
    if loaded is not None and loaded.hashes() != state.hashes():
        raise StoreError(
            f"the snapshot after {state.seq} events holds another state than its replay"
        )


def check(state: State | None, event: Decided) -> None:
    """Raise unless the state decides as the event says.

    It cannot say if the version that decided is set aside.
    """
    if state is None:
        raise StoreError(
            f"decision {event.id!r} was made from {event.at} events, not a state before it"
        )
    served = state.models[event.model]
    if state.aside and event.version not in served.versions:
        return
    version, _, choice = served.choose(
        event.context, event.labels, event.actions, event.draw, event.group
    )
    is_same = (
        version == event.version
        and choice.action == event.index
        and choice.propensities.tolist() == event.propensities
    )
    if not is_same:
        raise StoreError(f"decision {event.id!r} is another one when it is made again")


def compact(store: Any, before: float) -> tuple[int, int]:
    """Remove events from before a time, seconds since 1970, as `plan_cut` says; the last batch stays.

    Returns how many were removed, and how many are left.
    """
    state = restore(store)
    start = store.start().seq
    end = store.head().seq
    cut = plan_cut(store, state, first_since(store, before, start, end))
    if cut is None:
        return 0, end - start
    store.append([], cut=cut)
    store.shrink()
    return cut.first - start, end - cut.first


def plan_cut(
    store: Any, state: State, first: int, bases: Iterable[int] = ()
) -> Cut | None:
    """Return how all batches before the one of event `first` can be removed; None if there are none.

    A replay begins with the first of the snapshots `bases` after which nothing refers to what is removed, or
    else with the present state.

    Decisions that wait for rewards stay, with all events after them. A reward that comes later for a decision
    that was removed is kept and counted as one without a decision.
    """
    start = store.start().seq
    row = store.row_from(first)
    first = state.seq if row is None else row.batch
    needed: set[str] = set()
    for served in state.models.values():
        for _, id in served.waiting:
            needed.add(decision_key(id, served.name))
    if needed:
        for row in store.rows(start, first):
            if row.key in needed:
                first = row.batch
                break
    if first <= start:
        return None
    for base in bases:
        if base >= first and not store.is_referred_to(start, first, base):
            return Cut(first, base)
    return Cut(first, state.seq, state.to_bytes())


def first_since(store: Any, time: float, first: int, last: int) -> int:
    """Number of the first batch that is not from before a time; of the last one if all are."""
    if first == last:
        return first
    return int(store.row_from(first_event_since(store, time, first, last - 1)).batch)


def first_event_since(store: Any, time: float, first: int, last: int) -> int:
    """Number of the first event that is not from before a time; `last` if all are.

    Times never decrease, but where a clock was set back: what happened before that is not later than it.
    """
    if math.isinf(time):
        return first if time < 0.0 else last
    moves = [
        (row.seq, decode_event(row.event).time) for row in store.of_key(events.CLOCK)
    ]

    def latest(seq: int) -> float:
        """When an event happened at the latest."""
        row = store.row_from(seq)
        if row is None:
            return math.inf
        time: float = decode_event(row.event).time
        for move, moved_at in moves:
            if move > row.seq:
                time = min(time, moved_at)
        return time

    return first + bisect_left(range(first, last), time, key=latest)


def erased_without_record(store: Any) -> list[int]:
    """Numbers of events that were erased although no event in the chain says so."""
    recorded = (decode_event(row.event).events for row in store.of_key(events.REMOVED))
    return sorted(set(store.erased()).difference(*recorded))

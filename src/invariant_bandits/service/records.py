"""One decision and what became of it, as far as the event log says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from invariant_bandits.service.events import (
    ASIDE,
    Activated,
    AnyEvent,
    Closed,
    Decided,
    Grouped,
    Rewarded,
    SetAside,
    decoded,
    key_of,
)
from invariant_bandits.service.store.chain import Row

MOST_REMEMBERED = 20_000
"""So many decisions are kept at hand; older ones are looked up in the store."""


@dataclass
class Record:
    """A decision, its rewards in the order in which they came, and how it was settled.

    Parameters
    ----------
    decided : Decided or None
        None if rewards came under an id that nothing was decided under.
    activated : bool
        False while a deferred decision was not shown.
    rewards : list of Rewarded
    closed : Closed or None
    grouped : Grouped or None
        If this is the id of several decisions made together.
    """

    decided: Decided | None = None
    activated: bool = True
    rewards: list[Rewarded] = field(default_factory=list)
    closed: Closed | None = None
    grouped: Grouped | None = None

    def take(self, event: AnyEvent) -> None:
        """Follow one event about this decision."""
        if isinstance(event, Decided):
            self.decided, self.activated = event, not event.deferred
        elif isinstance(event, Activated):
            self.activated = True
        elif isinstance(event, Rewarded):
            self.rewards.append(event)
        elif isinstance(event, Closed):
            self.closed = event
        elif isinstance(event, Grouped):
            self.grouped = event

    def joined(self) -> list[float]:
        """Values that count for it."""
        return [one.value for one in self.rewards if one.fate == "joined"]

    def copy(self) -> Record:
        """A record of its own."""
        return replace(self, rewards=list(self.rewards))


class Records:
    """Records by key (see `decision_key`): the latest at hand, the others from the store."""

    def __init__(self, of_key: Callable[[str], Iterable[Row]]) -> None:
        self._of_key = of_key
        self._near: OrderedDict[str, Record] = OrderedDict()

    def find(self, key: str) -> Record | None:
        """What is known under a key."""
        if key in self._near:
            self._near.move_to_end(key)
            return self._near[key]
        found = record_of(decoded(row.event) for row in self._of_key(key))
        if found is not None:
            self._keep(key, found)
        return found

    def at_hand(self, key: str) -> Record | None:
        """What is known without asking the store."""
        return self._near.get(key)

    def forget(self) -> None:
        """Ask the store from now on: others have added to it."""
        self._near.clear()

    def take(self, event: AnyEvent, *, fresh: bool = False) -> None:
        """Follow an event of a decision; `fresh` if nothing can be known under its key yet."""
        key = key_of(event)
        assert key is not None
        record = self._near.get(key) or (None if fresh else self.find(key))
        if record is None:
            record = Record()
            self._keep(key, record)
            record.take(event)
        elif not _has(record, event):
            record.take(event)

    def _keep(self, key: str, record: Record) -> None:
        self._near[key] = record
        while len(self._near) > MOST_REMEMBERED:
            self._near.popitem(last=False)


def record_of(events: Iterable[AnyEvent]) -> Record | None:
    """The record that these events of one decision make; None without any."""
    record: Record | None = None
    for event in events:
        record = record or Record()
        record.take(event)
    return record


def set_aside_in(store: Any) -> dict[int, str]:
    """Numbers of the events that were set aside for good, and why."""
    events = (decoded(row.event) for row in store.of_key(ASIDE))
    return {seq: why for event in events if isinstance(event, SetAside) for seq, why in event.events.items()}


def _has(record: Record, event: AnyEvent) -> bool:
    """Whether the store has told of this very event already."""
    return event in (record.decided, record.closed, record.grouped) or event in record.rewards

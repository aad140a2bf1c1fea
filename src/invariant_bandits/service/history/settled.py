"""Decisions of a store with what they earned, in the order in which they were made, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

from invariant_bandits.service.configuration import Configuration, aggregated
from invariant_bandits.service.events import Closed, Configured, Decided, decision_key, decoded
from invariant_bandits.service.records import Record, Records, record_of, set_aside_in
from invariant_bandits.service.store.chain import Row

PIECE = 4096
"""Rows are read so many at a time: a reader that takes long never holds up the journal of the writer."""
MOST_OPEN = 20_000
"""So many decisions are kept until they are settled; what became of an earlier one is looked up."""


class Settled(NamedTuple):
    """A decision, and what it earned."""

    decided: Decided
    reward: float

    @property
    def propensity(self) -> float:
        """Probability of the chosen action."""
        return self.decided.propensities[self.decided.place]


def rows_in_pieces(store: Any, first: int, last: int) -> Iterator[Row]:
    """Rows from number `first` to before `last` that were not set aside."""
    aside = set_aside_in(store)
    for start in range(first, last, PIECE):
        yield from [row for row in store.rows(start, min(start + PIECE, last)) if row.seq not in aside]


def settled(
    store: Any,
    model: str,
    configuration: Configuration | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[Settled]:
    """Decisions of a model that were made and settled between two events, in the order in which they were made.

    Parameters
    ----------
    store : Store
    model : str
    configuration : Configuration, optional
        Rules at the first event, for decisions that were not learned in their mode: they have earned what their rewards
        come to by these rules. Later changes are followed.
    first, last : int, optional
        Numbers of events; all that there are.
    """
    rules = configuration or Configuration()
    begin, end = store.start().seq, store.head().seq
    begin, end = max(begin, first or 0), end if last is None else min(end, last)
    waiting: OrderedDict[str, Record] = OrderedDict()
    for row in rows_in_pieces(store, begin, end):
        event = decoded(row.event)
        if getattr(event, "model", None) != model:
            continue
        if isinstance(event, Configured):
            rules = event.configuration
        elif isinstance(event, Decided):
            waiting[event.id] = Record()
        record = waiting.get(getattr(event, "id", ""))
        if record is not None:
            record.take(event)
        while waiting and (len(waiting) > MOST_OPEN or next(iter(waiting.values())).closed is not None):
            yield from _told(waiting.popitem(last=False)[1], store, end, rules)
    while waiting:
        yield from _told(waiting.popitem(last=False)[1], store, end, rules)


def in_order_of_settling(store: Any, model: str, first: int, last: int) -> Iterator[tuple[int, Settled]]:
    """Learned decisions of a model with the number of the event that settled them, in the order they are learned in."""
    records = Records(store.of_key)
    for row in rows_in_pieces(store, max(first, store.start().seq), last):
        event = decoded(row.event)
        if isinstance(event, Decided) and event.model == model:
            records.take(event, fresh=True)
        elif isinstance(event, Closed) and event.model == model and event.value is not None:
            record = records.find(decision_key(event.id, model))
            if record is not None and record.decided is not None:  # else it was removed with the first events
                yield row.seq, Settled(record.decided, event.value)


def _told(record: Record, store: Any, end: int, rules: Configuration) -> Iterator[Settled]:
    if record.closed is None and record.decided is not None:
        rows = store.of_key(decision_key(record.decided.id, record.decided.model))
        record = record_of(decoded(row.event) for row in rows if row.seq < end) or record
    if record.decided is None or record.closed is None:
        return
    reward = record.closed.value
    if record.closed.why == "not learned in this mode":
        values = record.joined()
        reward = aggregated(values, rules.aggregation) if values else rules.default_reward
    if reward is not None:
        yield Settled(record.decided, reward)

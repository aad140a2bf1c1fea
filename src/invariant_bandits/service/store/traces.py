"""The trace of a set of (number, key): the same for events and for the index over them, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.service.store.chain import StoreError

TOGETHER = 10_000
WRAP = 1 << 64


@dataclass(frozen=True)
class Trace:
    """How many keys there are, and a sum over the hashes of each with its number; additive over parts.

    It holds within one process and those forked from it.
    """

    keys: int
    total: int

    def __add__(self, other: Trace) -> Trace:
        return Trace(self.keys + other.keys, (self.total + other.total) % WRAP)


NOTHING = Trace(0, 0)
OUT_OF_ORDER = Trace(-1, 0)
"""Of no events."""


def trace(rows: Sequence[tuple[Any, ...]]) -> Trace:
    """The trace of whole rows (seq, batch, key, body)."""
    return _trace([(row[2], row[0]) for row in rows if row[2] is not None])


def _trace(keyed: Sequence[tuple[Any, ...]]) -> Trace:
    if not keyed:
        return NOTHING
    keys, numbers = zip(*keyed, strict=True)
    hashes = np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64)
    odd = 2 * np.array(numbers, dtype=np.int64).view(np.uint64) + 1  # damage can make a number negative
    return Trace(len(keys), int((hashes * odd).sum(dtype=np.uint64)))


def index_trace(connection: Any, thorough: bool = False) -> Trace:
    """The trace of the index by key, whose order is checked; thoroughly, SQLite checks all its structures as well."""
    if thorough:
        (told,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if told != "ok":
            raise StoreError(f"the store is damaged: {told}")
    cursor = connection.execute("SELECT key, seq FROM events INDEXED BY events_by_key WHERE key IS NOT NULL")
    total, last = NOTHING, ""
    while part := cursor.fetchmany(TOGETHER):
        keys = [key for key, _ in part]
        if keys[0] < last or sorted(keys) != keys:
            return OUT_OF_ORDER
        total, last = total + _trace(part), keys[-1]
    return total


def hidden(connection: Any) -> str:
    """Which event a damaged index hides."""
    rows = "SELECT seq, key FROM events {} WHERE key IS NOT NULL"
    asked = f"{rows.format('NOT INDEXED')} EXCEPT {rows.format('INDEXED BY events_by_key')} LIMIT 1"
    found = connection.execute(asked).fetchone()
    lost = "its index has entries of no event" if found is None else f"event {found[0]} is not found by its decision"
    return f"{lost}: the index does not match the events"

"""The chain of events: what a row holds, its checksums and seals, and the errors of a store."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.storage import FileError

SIZE = 16
"""Bytes of a digest in a row."""
START = b"\0" * SIZE
"""The digest before the first row."""
SEALED = 4096
"""Rows under one seal."""
WRAP = 1 << 64


class StoreError(FileError):
    """A store that is damaged, foreign, in use elsewhere or too new."""


class EmptyStoreError(StoreError):
    """A place where a store can be, and is not yet."""


class UnavailableError(Exception):
    """The store could not take events now (full, not reachable); nothing was acknowledged. It may later."""


class Row(NamedTuple):
    """An event as it is stored.

    Attributes
    ----------
    seq : int
        Its number, without gaps.
    batch : int
        Number of the first event that was committed with it: decisions of a batch see the state before it.
    key : str or None
        Of the decision it belongs to, see `decision_key`.
    body : bytes
        The event, and after it the digest of the chain up to this row.
    """

    seq: int
    batch: int
    key: str | None
    body: bytes

    @property
    def event(self) -> bytes:
        """The event without the digest."""
        return self.body[:-SIZE]

    @property
    def digest(self) -> bytes:
        """Of the chain up to this row."""
        return self.body[-SIZE:]


class Head(NamedTuple):
    """The end of the chain: how many events there ever were, and the digest after the last."""

    seq: int
    digest: bytes


class OvertakenError(Exception):
    """Other processes have appended since; nothing was stored, and they cannot append before the next call.

    Parameters
    ----------
    rows : list of Row
        What they appended.
    """

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(f"{len(rows)} events were appended by others")
        self.rows = rows


def extend_chain(head: Head, events: Iterable[tuple[str | None, bytes]]) -> list[Row]:
    """Return the rows of a batch of events (key, event) after the end of a chain."""
    rows: list[Row] = []
    digest = head.digest
    for seq, (key, event) in enumerate(events, start=head.seq):
        digest = link(digest, seq, head.seq, key, event)
        rows.append(Row(seq, head.seq, key, event + digest))
    return rows


def link(before: bytes, seq: int, batch: int, key: str | None, event: bytes) -> bytes:
    """Return the digest of the chain up to an event."""
    name = b"-" if key is None else b"=" + key.encode()
    head = seq.to_bytes(8, "little") + batch.to_bytes(8, "little") + len(name).to_bytes(4, "little")
    return hashlib.sha256(before + head + name + event).digest()[:SIZE]


def check_chain(rows: Iterable[Row], before: bytes, first: int) -> bytes:
    """Follow the chain over rows from number `first`; return its digest at the end, or raise StoreError."""
    expected = first
    for row in rows:
        if row.seq != expected:
            raise StoreError(f"event {expected} is missing: the store is damaged")
        if not is_whole(row, before):
            raise StoreError(f"event {row.seq} is damaged: its checksum does not match its content")
        before, expected = row.digest, expected + 1
    return before


def is_whole(row: Row, before: bytes) -> bool:
    """Return whether a row follows one with the digest `before`."""
    try:
        linked = link(before, row.seq, row.batch, row.key, row.event)
    except (TypeError, ValueError, AttributeError, OverflowError):  # damage can make a text of a number
        return False
    return len(row.body) > SIZE and linked == row.digest


def seal(rows: Sequence[tuple[int, int, str | None, bytes]]) -> bytes:
    """Return one digest over whole rows."""
    numbers, batches, keys, bodies = zip(*rows, strict=True)
    content = hashlib.sha256(array("q", numbers).tobytes())
    content.update(array("q", batches).tobytes())
    content.update("\x1f".join(["\x1e" if key is None else key for key in keys]).encode())
    content.update(array("q", map(len, bodies)).tobytes())
    content.update(b"".join(bodies))
    return content.digest()


def snapshot_digest(seq: int, body: bytes) -> bytes:
    """Return the checksum of a snapshot with its number."""
    return hashlib.sha256(seq.to_bytes(8, "little", signed=True) + body).digest()


def seed_with_checksum(seed: int) -> str:
    """Return a seed as it is stored."""
    return f"{seed} {hashlib.sha256(str(seed).encode()).hexdigest()[:16]}"


def check_seed(stored: str, name: str) -> int:
    """Return the seed if its checksum fits; `name` of the store is for messages.

    >>> check_seed(seed_with_checksum(7), "the store")
    7
    """
    number = stored.partition(" ")[0]
    if not number.isdigit() or seed_with_checksum(int(number)) != stored:
        raise StoreError(f"{name} is damaged: its seed does not match its checksum")
    return int(number)


@dataclass(frozen=True)
class KeyTrace:
    """How many keys there are, and a sum over the hashes of each with its number; additive over parts.

    It holds within one process and those forked from it.
    """

    keys: int = 0
    total: int = 0

    def __add__(self, other: KeyTrace) -> KeyTrace:
        return KeyTrace(self.keys + other.keys, (self.total + other.total) % WRAP)


def key_trace(keyed: Sequence[tuple[Any, Any]]) -> KeyTrace:
    """Return the trace of keys with their numbers; keys that are None are left out."""
    keyed = [pair for pair in keyed if pair[0] is not None]
    if not keyed:
        return KeyTrace()
    keys, numbers = zip(*keyed, strict=True)
    hashes = np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64)
    odd = 2 * np.array(numbers, dtype=np.int64).view(np.uint64) + 1  # damage can make a number negative
    return KeyTrace(len(keys), int((hashes * odd).sum(dtype=np.uint64)))

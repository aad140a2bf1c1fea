"""The checksum chain: every row carries a digest of itself and of the row before it.

Rows of a stretch are sealed together by one digest, so that a million of them are checked in a second; the digests of
single rows say which one is damaged.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from invariant_bandits.storage import FileError

SIZE = 16
"""Bytes of a digest in a row."""
START = b"\0" * SIZE
"""What the first row follows."""
SEALED = 4096
"""So many rows have one seal."""


class StoreError(FileError):
    """A store that is damaged, foreign, in use elsewhere or too new."""


class EmptyStoreError(StoreError):
    """A place where a store can be, and is not yet."""


class Row(NamedTuple):
    """One event as it is stored.

    Attributes
    ----------
    seq : int
        Its number, without gaps.
    batch : int
        Number of the first event that was committed with it: decisions of a batch see the state before it.
    key : str or None
        Of the decision it belongs to, see `decision_key`.
    body : bytes
        The event, and after it the digest of the chain up to here.
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


def after(prefix: str) -> str:
    """The first text, in the order of an index, that comes after all that begin with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def chained(before: bytes, seq: int, batch: int, key: str | None, event: bytes) -> Row:
    """The row that follows one with the digest `before`."""
    return Row(seq, batch, key, event + link(before, seq, batch, key, event))


def extended(seq: int, digest: bytes, events: Iterable[tuple[str | None, bytes]]) -> list[Row]:
    """The rows of a batch of events (key, event) after the first `seq` events, whose chain ends with `digest`."""
    rows: list[Row] = []
    for number, (key, event) in enumerate(events, start=seq):
        rows.append(chained(digest, number, seq, key, event))
        digest = rows[-1].digest
    return rows


def link(before: bytes, seq: int, batch: int, key: str | None, event: bytes) -> bytes:
    """Digest of the chain up to an event."""
    name = b"-" if key is None else b"=" + key.encode()
    head = seq.to_bytes(8, "little") + batch.to_bytes(8, "little") + len(name).to_bytes(4, "little")
    return hashlib.sha256(before + head + name + event).digest()[:SIZE]


def checked(rows: Iterable[Row], before: bytes, first: int) -> bytes:
    """Follow the chain over rows that begin with number `first`; its digest at the end, or StoreError."""
    expected = first
    for row in rows:
        if row.seq != expected:
            raise StoreError(f"event {expected} is missing: the store is damaged")
        if not is_whole(row, before):
            raise StoreError(f"event {row.seq} is damaged: its checksum does not match its content")
        before, expected = row.digest, expected + 1
    return before


def is_whole(row: Row, before: bytes) -> bool:
    """Whether a row follows one with the digest `before`."""
    try:
        linked = link(before, row.seq, row.batch, row.key, row.event)
    except (TypeError, ValueError, AttributeError, OverflowError):  # damage can make a text of a number
        return False
    return len(row.body) > SIZE and linked == row.digest


def seal(rows: Sequence[tuple[int, int, str | None, bytes]]) -> bytes:
    """One digest over whole rows."""
    numbers, batches, keys, bodies = zip(*rows, strict=True)
    content = hashlib.sha256(array("q", numbers).tobytes())
    content.update(array("q", batches).tobytes())
    content.update("\x1f".join(["\x1e" if key is None else key for key in keys]).encode())
    content.update(array("q", map(len, bodies)).tobytes())
    content.update(b"".join(bodies))
    return content.digest()

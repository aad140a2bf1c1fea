"""The chain of events: what a row holds, its checksums, and the errors of a store."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from invariant_bandits.storage import FileError

SIZE = 16
"""Bytes of a digest in a row."""
START = b"\0" * SIZE
"""The digest before the first row."""
NUMBERS = struct.Struct("<QQI")
"""Numbers of an event and its batch, and length of its key, as the digests cover them."""


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
    return sha256(b"".join((before, NUMBERS.pack(seq, batch, len(name)), name, event))).digest()[:SIZE]


def check_chain(rows: Iterable[tuple[int, int, str | None, bytes]], before: bytes, first: int) -> bytes:
    """Follow the chain over rows from number `first`; return its digest at the end, or raise StoreError."""
    for expected, (seq, batch, key, body) in enumerate(rows, first):
        if seq != expected:
            raise StoreError(f"event {expected} is missing: the store is damaged")
        try:
            digest = link(before, seq, batch, key, body[:-SIZE])
        except (TypeError, ValueError, AttributeError, struct.error):  # damage can make a text of a number
            digest = b""
        before = body[-SIZE:] if len(body) > SIZE else b"-"
        if digest != before:
            raise StoreError(f"event {seq} is damaged: its checksum does not match its content")
    return before


def snapshot_digest(seq: int, body: bytes) -> bytes:
    """Return the checksum of a snapshot with its number."""
    return sha256(seq.to_bytes(8, "little", signed=True) + body).digest()


def seed_with_checksum(seed: int) -> str:
    """Return a seed as it is stored."""
    return f"{seed} {sha256(str(seed).encode()).hexdigest()[:16]}"


def check_seed(stored: str, name: str) -> int:
    """Return the seed if its checksum fits; `name` of the store is for messages.

    >>> check_seed(seed_with_checksum(7), "the store")
    7
    """
    number = stored.partition(" ")[0]
    if not number.isdigit() or seed_with_checksum(int(number)) != stored:
        raise StoreError(f"{name} is damaged: its seed does not match its checksum")
    return int(number)


def key_trace(keyed: Iterable[tuple[Any, Any]]) -> int:
    """Return a sum over the hashes of keys with their numbers, additive over parts; keys that are None are
    left out.

    It holds within one process and those forked from it.
    """
    return sum([hash(pair) for pair in keyed if pair[0] is not None])

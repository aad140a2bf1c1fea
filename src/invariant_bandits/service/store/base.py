"""What an engine needs of a store."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

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


class Head(NamedTuple):
    """The end of the chain: how many events there ever were, and the digest after the last."""

    seq: int
    digest: bytes


class UnavailableError(Exception):
    """The store could not take events now (full, not reachable); nothing was acknowledged. It may later."""


class OvertakenError(Exception):
    """Others have appended since; nothing was stored, and nobody else can append before the next call.

    Parameters
    ----------
    rows : list of Row
        What they appended.
    """

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(f"{len(rows)} events were appended by others")
        self.rows = rows


class Store(Protocol):
    """Events in a chain, contents by their SHA-256, snapshots. One process writes; any number read.

    Where `shared` is true, processes that only decide may append, too: `append` then takes `seen`, how many events
    were known when the new ones were proposed, and raises OvertakenError if there are more.
    """

    @property
    def seed(self) -> int:
        """Number from 0 to 2^63 − 1 that random draws are a function of; chosen when the store was made."""

    def head(self) -> Head:
        """The end of the chain as it is stored."""

    def append(self, events: Sequence[tuple[str | None, bytes]], contents: Sequence[bytes] = ()) -> list[Row]:
        """Add events (key, event) as one batch, with contents; durable when this returns, or UnavailableError."""

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Rows from number `first` to before `last`, in order."""

    def of_key(self, key: str) -> list[Row]:
        """Rows that belong to the decision with this key, in order."""

    def keys_from(self, prefix: str) -> set[str]:
        """All keys that begin so."""

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256 in hexadecimal digits."""

    def save_snapshot(self, seq: int, body: bytes) -> None:
        """Keep the state after the first `seq` events; older snapshots but one are dropped."""

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest whole snapshot, and how many events it holds."""

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""

    def base(self) -> tuple[int, bytes] | None:
        """The snapshot that a replay begins with, and how many events it holds; None: with the first event."""

    def reopen(self) -> None:
        """Connect anew after a failure."""

    def close(self) -> None:
        """Let go of everything."""


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


def marked(seed: int) -> str:
    """A seed with its checksum, as it is kept."""
    return f"{seed} {hashlib.sha256(str(seed).encode()).hexdigest()[:16]}"


def unmarked(kept: str, name: str) -> int:
    """The seed, if its checksum fits; `name` of the store is for messages.

    >>> unmarked(marked(7), "the store")
    7
    """
    number = kept.partition(" ")[0]
    if not number.isdigit() or marked(int(number)) != kept:
        raise StoreError(f"{name} is damaged: its seed does not match its checksum")
    return int(number)


def check_parts(connection: Any, path: str) -> tuple[int, bytes, int]:
    """Number of the first event, the digest before it, the number after the last; StoreError if a part is damaged."""
    first, before = _beginning(connection, path)
    heads = connection.execute("SELECT seq, digest FROM head").fetchall()
    if len(heads) != 1 or not isinstance(heads[0][0], int) or heads[0][0] < first:
        raise StoreError(f"{path} is damaged: where its events end is not told")
    ((end, digest),) = heads
    ((last,),) = connection.execute("SELECT max(seq) FROM events").fetchall()
    if (first if last is None else last + 1) != end:
        raise StoreError(f"event {end if last is not None and last >= end else end - 1} is missing or one too many")
    if last is not None:
        ((body,),) = connection.execute("SELECT body FROM events WHERE seq = ?", (last,)).fetchall()
        if not isinstance(body, bytes) or body[-SIZE:] != digest:
            raise StoreError(f"event {last} is damaged: the chain does not end with it")
    _check_contents(connection, path)
    _check_snapshots(connection, path, end)
    return first, before, end


def _beginning(connection: Any, path: str) -> tuple[int, bytes]:
    cuts = connection.execute("SELECT first, before, base FROM cut").fetchall()
    if not cuts:
        return 0, START
    first, before, base = cuts[0]
    kept = connection.execute("SELECT count(*) FROM snapshots WHERE seq = ?", (base,)).fetchone()[0]
    if len(cuts) != 1 or not isinstance(first, int) or not isinstance(before, bytes) or not kept:
        raise StoreError(f"{path} is damaged: where its events begin is not told")
    return first, before


def _check_contents(connection: Any, path: str) -> None:
    for number, (digest, size) in enumerate(connection.execute("SELECT digest, length(body) FROM contents").fetchall()):
        ((body,),) = connection.execute("SELECT body FROM contents WHERE digest = ?", (digest,)).fetchall() or [(b"",)]
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            raise StoreError(f"{path} is damaged: content {number + 1} ({size} bytes) does not match its checksum")


def _check_snapshots(connection: Any, path: str, end: int) -> None:
    for (seq,) in connection.execute("SELECT seq FROM snapshots").fetchall():
        ((body, digest),) = connection.execute("SELECT body, digest FROM snapshots WHERE seq = ?", (seq,)).fetchall()
        if seq > end:
            raise StoreError(f"{path} is damaged: events {end} to {seq - 1}, which a snapshot holds, are missing")
        if not isinstance(body, bytes) or snapshot_digest(seq, body) != digest:
            raise StoreError(f"{path} is damaged: the snapshot after event {seq - 1} does not match its checksum")


def snapshot_digest(seq: int, body: bytes) -> bytes:
    """Checksum of a snapshot with its number."""
    return hashlib.sha256(seq.to_bytes(8, "little", signed=True) + body).digest()

"""Verification: is every event whole? Seals make it a matter of a second for a million; other rows are
followed.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.service.store.chain import (
    SEALED,
    SIZE,
    START,
    KeyTrace,
    Row,
    StoreError,
    UnavailableError,
    check_chain,
    is_whole,
    key_trace,
    seal,
    snapshot_digest,
)
from invariant_bandits.service.store.open_store import database_of, open_store
from invariant_bandits.service.store.sql import ROWS_BETWEEN, Connection, SqlStore

FEW = 8 * SEALED
"""Fewer events than these are checked in this process."""
UNREADABLE = (TypeError, ValueError, OverflowError)
"""What reading a damaged row can raise; a StoreError is a ValueError."""

Progress = Callable[[int, int], None]


class Ends(NamedTuple):
    """Number of the first event, the digest before it, and the number after the last."""

    first: int
    before: bytes
    end: int


class SealCheck(NamedTuple):
    """Number of the first event under a seal that does not match, if any, and the traces of keys and of
    their index.
    """

    damaged: int | None
    keys: KeyTrace
    indexed: KeyTrace | None = None


def verify(path: Path | str, *, every_row: bool = False, progress: Progress | None = None) -> int:
    """Return how many events there are, if all are whole; else StoreError names the first that is not.

    Parameters
    ----------
    path : Path or str
        The SQLite file, or the address of a database.
    every_row : bool
        Follow the chain over all rows, not only over those that no seal covers; slower.
    progress : callable
        Called with the number of events that were followed, and of all; with `every_row` only.
    """
    database = database_of(path)
    try:
        with _reading(path) as connection:
            ends = _check_parts(connection, database.name)
            sealed = range(0) if every_row else _sealed_range(connection, database.name, ends)
        if every_row:
            check = SealCheck(None, KeyTrace(), database.index_trace(thorough=True))
        else:
            check = _check_seals(path, sealed)  # while no connection is open in this process: it forks
        with _reading(path) as connection:
            if check.damaged is not None:
                before = (
                    ends.before if check.damaged == ends.first else _digest(connection, check.damaged - 1)
                )
                _raise_damage(connection, database.name, check.damaged, before)
            keys = check.keys + _follow_rest(connection, ends, sealed, database.name, progress)
            if check.indexed is not None and check.indexed != keys:
                raise StoreError(f"{database.name} is damaged: {_hidden_event(connection)}")
        return ends.end
    except UnavailableError as error:
        raise StoreError(f"{database.name} cannot be read: {error}") from None


@contextmanager
def _reading(path: Path | str) -> Iterator[Connection]:
    """Connect for reading, always the same state."""
    connection = database_of(path).reader(frozen=True)
    try:
        yield connection
    finally:
        connection.close()


# -- the parts beside the rows --


def _check_parts(connection: Connection, name: str) -> Ends:
    """Return where the events begin and end; StoreError if a part is damaged."""
    first, before = _start(connection, name)
    heads = connection.execute("SELECT seq, digest FROM head")
    if len(heads) != 1 or not isinstance(heads[0][0], int) or heads[0][0] < first:
        raise StoreError(f"{name} is damaged: it does not say where its events end")
    ((end, digest),) = heads
    ((last,),) = connection.execute("SELECT max(seq) FROM events")
    if (first if last is None else last + 1) != end:
        raise StoreError(
            f"event {end if last is not None and last >= end else end - 1} is missing or one too many"
        )
    if last is not None and _digest(connection, last) != digest:
        raise StoreError(f"event {last} is damaged: the chain does not end with it")
    for number, (digest, size) in enumerate(
        connection.execute("SELECT digest, length(body) FROM contents"), 1
    ):
        bodies = connection.execute("SELECT body FROM contents WHERE digest = ?", digest)
        if not bodies or not isinstance(bodies[0][0], bytes) or _sha256(bodies[0][0]) != digest:
            raise StoreError(
                f"{name} is damaged: content {number} ({size} bytes) does not match its checksum"
            )
    for (seq,) in connection.execute("SELECT seq FROM snapshots"):
        ((body, digest),) = connection.execute("SELECT body, digest FROM snapshots WHERE seq = ?", seq)
        if seq > end:
            raise StoreError(
                f"{name} is damaged: events {end} to {seq - 1}, which a snapshot holds, are missing"
            )
        if not isinstance(body, bytes) or snapshot_digest(seq, body) != digest:
            raise StoreError(
                f"{name} is damaged: the snapshot after event {seq - 1} does not match its checksum"
            )
    return Ends(first, before, end)


def _start(connection: Connection, name: str) -> tuple[int, bytes]:
    cuts = connection.execute("SELECT first, before, base FROM cut")
    if not cuts:
        return 0, START
    first, before, base = cuts[0]
    ((bases,),) = connection.execute("SELECT count(*) FROM snapshots WHERE seq = ?", base)
    if len(cuts) != 1 or not isinstance(first, int) or not isinstance(before, bytes) or not bases:
        raise StoreError(f"{name} is damaged: it does not say where its events begin")
    return first, before


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(connection: Connection, seq: int) -> bytes:
    """Return the digest of the chain up to an event."""
    bodies = connection.execute("SELECT body FROM events WHERE seq = ?", seq)
    if not bodies or not isinstance(bodies[0][0], bytes):
        raise StoreError(f"event {seq} is missing or damaged")
    return bodies[0][0][-SIZE:]


def _hidden_event(connection: Connection) -> str:
    """Say which event a damaged index of a SQLite file hides."""
    rows = "SELECT seq, key FROM events {} WHERE key IS NOT NULL"
    hidden = connection.execute(
        f"{rows.format('NOT INDEXED')} EXCEPT {rows.format('INDEXED BY events_by_key')} LIMIT 1"
    )
    lost = (
        f"event {hidden[0][0]} is not found by its decision"
        if hidden
        else "its index has entries of no event"
    )
    return f"{lost}: the index does not match the events"


# -- rows that no seal covers --


def _follow_rest(
    connection: Connection, ends: Ends, sealed: range, name: str, progress: Progress | None
) -> KeyTrace:
    """Follow the chain where there are no seals; return the trace of these keys."""
    keys = KeyTrace()
    covered = (sealed.start, sealed.stop) if sealed else (ends.end, ends.end)
    for start, stop in ((ends.first, covered[0]), (covered[1], ends.end)):
        for first in range(start, stop, SEALED):
            last = min(first + SEALED, stop)
            before = ends.before if first == ends.first else _digest(connection, first - 1)
            try:
                rows = connection.execute(ROWS_BETWEEN, first, last)
                check_chain((Row(*row) for row in rows), before, first)
                keys += key_trace([(row[2], row[0]) for row in rows])
            except UNREADABLE:
                _raise_damage(connection, name, first, before)
            if len(rows) != last - first:
                raise StoreError(f"event {first + len(rows)} is missing: the store is damaged")
            if progress is not None:
                progress(last - ends.first, ends.end - ends.first)
    return keys


def _raise_damage(connection: Connection, name: str, start: int, digest: bytes) -> None:
    """Raise with the number of the first damaged event from `start` on, where the chain has this digest
    before it.
    """
    for seq in range(start, start + SEALED):
        try:
            rows = connection.execute(ROWS_BETWEEN, seq, seq + 1)
        except UNREADABLE as error:
            raise StoreError(f"event {seq} is damaged: {error}") from None
        if not rows or rows[0][0] != seq:
            raise StoreError(f"event {seq} is missing: the store is damaged")
        row = Row(*rows[0])
        if not is_whole(row, digest):
            raise StoreError(f"event {seq} is damaged: its checksum does not match its content")
        digest = row.digest
    raise StoreError(
        f"{name} is damaged: the seal of events {start} to {start + SEALED - 1} does not match them"
    )


# -- seals, in several processes --


def _sealed_range(connection: Connection, name: str, ends: Ends) -> range:
    """Return the numbers of events that begin a sealed block; StoreError if seals are missing."""
    sealed = range(-(-ends.first // SEALED) * SEALED, ends.end // SEALED * SEALED, SEALED)
    ((seals,),) = connection.execute("SELECT count(*) FROM seals WHERE first >= ?", ends.first)
    if len(sealed) != seals:
        raise StoreError(f"{name} is damaged: {len(sealed)} seals are needed, there are {seals}")
    return sealed


def _check_seals(path: Path | str, sealed: range) -> SealCheck:
    """Check all seals and the index."""
    workers = min(os.cpu_count() or 1, 4)
    if len(sealed) * SEALED <= FEW or workers == 1:
        return _check_some_seals(path, sealed)._replace(indexed=database_of(path).index_trace())
    size = -(-len(sealed) // (4 * workers))
    parts = [(path, sealed[place : place + size]) for place in range(0, len(sealed), size)]
    with multiprocessing.get_context("fork").Pool(workers, gc.disable) as pool:
        index = pool.apply_async(database_of(path).index_trace)
        checks = pool.starmap(_check_some_seals, parts, chunksize=1)
        damaged = min((check.damaged for check in checks if check.damaged is not None), default=None)
        keys = sum((check.keys for check in checks), KeyTrace())
        return SealCheck(damaged, keys, index.get() if damaged is None else None)


def _check_some_seals(path: Path | str, sealed: range) -> SealCheck:
    keys = KeyTrace()
    with _reading(path) as connection:
        for first in sealed:
            try:
                seals = connection.execute("SELECT digest FROM seals WHERE first = ?", first)
                rows = connection.execute(ROWS_BETWEEN, first, first + SEALED)
                if not seals or len(rows) != SEALED or seal(rows) != seals[0][0]:
                    return SealCheck(first, keys)
                keys += key_trace([(row[2], row[0]) for row in rows])
            except UNREADABLE:
                return SealCheck(first, keys)
    return SealCheck(None, keys)


# -- in the background --


class VerifyingStore(NamedTuple):
    """A store whose verification goes on.

    Nothing may be written to it, and nothing that was read may be answered, before `finish` has returned.
    """

    store: SqlStore
    finish: Callable[[], None]


def open_while_verifying(path: str | Path) -> VerifyingStore:
    """Open a file for writing while a process of its own verifies it; `finish` raises StoreError if it is
    damaged.
    """
    processes: list[VerificationProcess] = []
    store = open_store(path, check=lambda path: processes.append(VerificationProcess(path)))
    return VerifyingStore(store, processes[0].finish)


class VerificationProcess:
    """A verification in a process of its own; it is started before its file is opened here, because it
    forks.
    """

    def __init__(self, path: Path | str) -> None:
        context = multiprocessing.get_context("fork")
        self._path = path
        self._answer, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_send_damage, args=(path, sender))
        self._process.start()
        sender.close()

    def finish(self) -> None:
        """Wait for its end; StoreError says what is damaged."""
        try:
            damage: str | None = self._answer.recv()
        except EOFError:
            damage = f"{self._path} could not be checked: the process that did it has ended"
        self._process.join()
        if damage is not None:
            raise StoreError(damage)


def _send_damage(path: Path | str, sender: Any) -> None:
    try:
        verify(path)
        sender.send(None)
    except StoreError as error:
        sender.send(str(error))

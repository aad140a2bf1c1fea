"""Open the store under an address, a file or a PostgreSQL database, and verify it: is every event whole?

Blocks of the chain are followed, by several processes if need be.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from invariant_bandits.service.store import sql
from invariant_bandits.service.store.postgres import PostgresDatabase, is_address
from invariant_bandits.service.store.sql import (
    Connection,
    Database,
    Head,
    SqlStore,
    StoreError,
    UnavailableError,
)
from invariant_bandits.service.store.sqlite import SqliteDatabase


def database_of(address: str | Path, *, writing: bool = False, **options: Any) -> Database:
    """Return the database under a path or `postgresql://…`, for reading unless it is said; for the options
    see `open_store`.
    """
    kind = PostgresDatabase if is_address(str(address)) else SqliteDatabase
    return kind(str(address), writing=writing, **options)


def open_store(
    address: str | Path,
    *,
    writing: bool = True,
    learning: bool = True,
    check: sql.Check | None = None,
    wait: Callable[[], None] | None = None,
) -> SqlStore:
    """Open the store under a path or `postgresql://…`.

    Parameters
    ----------
    writing, learning : bool
        Whether events will be added, and whether this is the one process that learns.
    check : callable or None
        Is called with the path or address before the store is used.
    wait : callable or None
        Is called again and again while another process learns in a shared store, which is refused if this is
        None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/decisions.db")
    ...     rows = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """
    return SqlStore(database_of(address, writing=writing, learning=learning, check=check, wait=wait))


# -- verification --

BLOCK = 4096
"""Events that are read at a time."""
FEW = 8 * BLOCK
"""Fewer events than these are checked in this process."""


def verify(
    path: Path | str, *, thorough: bool = False, progress: Callable[[int, int], None] | None = None
) -> int:
    """Return how many events there are, if all are whole; else StoreError names the first that is not.

    Parameters
    ----------
    path : Path or str
        The SQLite file, or the address of a database.
    thorough : bool
        Whether SQLite checks all structures of its file as well; slower.
    progress : callable
        Called with the number of events that were followed, and of all.
    """
    database = database_of(path)
    try:
        with closing(database.connect(reading=True, frozen=True)) as connection:
            start, end = _check_parts(connection, database.name)
        blocks, keys = range(start.seq, end, BLOCK), 0
        workers = min(os.cpu_count() or 1, 4) if len(blocks) * BLOCK > FEW else 1
        check = partial(_check_block, path, start, end)
        with ExitStack() as stack:  # no connection is open in this process: it forks
            traces: Iterator[int] = map(check, blocks)
            index: Callable[[], int | None] = partial(database.index_trace, thorough=thorough)
            if workers > 1:
                pool = stack.enter_context(multiprocessing.get_context("fork").Pool(workers, gc.disable))
                index = pool.apply_async(index).get  # while the blocks are followed
                traces = pool.imap(check, blocks)
            for number, trace in enumerate(traces, 1):
                keys += trace
                if progress is not None:
                    progress(min(number * BLOCK, end - start.seq), end - start.seq)
            if index() not in (None, keys):
                hidden = "its index by key does not match its events"
                raise StoreError(f"{database.name} is damaged: {hidden}")
        return end
    except UnavailableError as error:
        raise StoreError(f"{database.name} cannot be read: {error}") from None


def _check_parts(connection: Connection, name: str) -> tuple[Head, int]:
    """Return the start of the chain and the number after its last event; StoreError if a part beside the
    events is damaged.
    """
    start, ends = Head(0, sql.START), connection.execute("SELECT seq, digest FROM head")
    cuts = connection.execute("SELECT first, before, base FROM cut")
    snapshots = connection.execute("SELECT seq FROM snapshots")
    if cuts:
        first, before, base = cuts[0]
        start = Head(first, before)
        if len(cuts) != 1 or not isinstance(first, int) or (base,) not in snapshots:
            raise StoreError(f"{name} is damaged: it does not say where its events begin")
    if len(ends) != 1 or not isinstance(ends[0][0], int) or ends[0][0] < start.seq:
        raise StoreError(f"{name} is damaged: it does not say where its events end")
    ((end, digest),) = ends
    ((last,),) = connection.execute("SELECT max(seq) FROM events")
    if (start.seq if last is None else last + 1) != end:
        seq = end if last is not None and last >= end else end - 1
        raise StoreError(f"event {seq} is missing or one too many")
    if last is not None and _digest(connection, last) != digest:
        raise StoreError(f"event {last} is damaged: the chain does not end with it")
    _check_contents(connection, name)
    for (seq,) in snapshots:
        if seq > end:
            missing = f"events {end} to {seq - 1}, which a snapshot holds, are missing"
            raise StoreError(f"{name} is damaged: {missing}")
    return start, end


def _check_contents(connection: Connection, name: str) -> None:
    """Raise StoreError if a content or a snapshot does not match its checksum."""
    for (digest,) in connection.execute("SELECT digest FROM contents"):
        bodies = connection.execute("SELECT body FROM contents WHERE digest = ?", digest)
        if [_sha256(body) for (body,) in bodies] != [digest]:
            raise StoreError(f"{name} is damaged: a content does not match its checksum {digest}")
    for (seq,) in connection.execute("SELECT seq FROM snapshots"):
        ((body, digest),) = connection.execute("SELECT body, digest FROM snapshots WHERE seq = ?", seq)
        if not isinstance(body, bytes) or sql.snapshot_digest(seq, body) != digest:
            damage = f"the snapshot after event {seq - 1} does not match its checksum"
            raise StoreError(f"{name} is damaged: {damage}")


def _sha256(body: Any) -> str:
    """Return the SHA-256 of a content, in hexadecimal digits; empty if it is damaged to another type."""
    return hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else ""


def _digest(connection: Connection, seq: int) -> bytes:
    """Return the digest of the chain up to an event."""
    bodies = connection.execute("SELECT body FROM events WHERE seq = ?", seq)
    if not bodies or not isinstance(bodies[0][0], bytes):
        raise StoreError(f"event {seq} is missing or damaged")
    return bodies[0][0][-sql.SIZE :]


def _check_block(path: Path | str, start: Head, end: int, first: int) -> int:
    """Follow the chain over the block of events from number `first`; return the trace of their keys."""
    last = min(first + BLOCK, end)
    with closing(database_of(path).connect(reading=True, frozen=True)) as connection:
        before = start.digest if first == start.seq else _digest(connection, first - 1)
        rows = _rows(connection, first, last)
    sql.check_chain(rows, before, first)
    if len(rows) != last - first:
        raise StoreError(f"event {first + len(rows)} is missing: the store is damaged")
    return sql.key_trace((row[2], row[0]) for row in rows)


def _rows(connection: Connection, first: int, last: int) -> list[Any]:
    """Return rows from number `first` to before `last`; StoreError names the first that cannot be read."""
    try:
        return connection.execute(sql.ROWS_BETWEEN, first, last)
    except (TypeError, ValueError, OverflowError) as error:  # a StoreError is a ValueError
        if last - first == 1:
            raise StoreError(f"event {first} is damaged: {error}") from None
    return [row for seq in range(first, last) for row in _rows(connection, seq, seq + 1)]


class VerifyingStore:
    """A file that is opened for writing while a process of its own verifies it.

    Nothing may be written to its `store`, and nothing that was read may be answered, before `finish` has
    returned.

    Parameters
    ----------
    path : str or Path
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self.store = open_store(path, check=self._begin)

    def _begin(self, path: Path | str) -> None:
        """Start the process, before the file is opened here, because it forks."""
        context = multiprocessing.get_context("fork")
        self._answer, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_send_damage, args=(path, sender))
        self._process.start()
        sender.close()

    def finish(self) -> None:
        """Wait for the end of the verification; StoreError says what is damaged."""
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

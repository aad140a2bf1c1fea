"""Verification: is every event whole? Blocks of the chain are followed, by several processes if need be."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.service.store.chain import (
    SIZE,
    START,
    StoreError,
    UnavailableError,
    check_chain,
    is_whole,
    key_trace,
    snapshot_digest,
)
from invariant_bandits.service.store.open_store import database_of, open_store
from invariant_bandits.service.store.sql import ROWS_BETWEEN, Connection

BLOCK = 4096
"""Events that are read at a time."""
FEW = 8 * BLOCK
"""Fewer events than these are checked in this process."""
UNREADABLE = (TypeError, ValueError, OverflowError)
"""What reading a damaged row can raise; a StoreError is a ValueError."""


class Ends(NamedTuple):
    """Number of the first event, the digest before it, and the number after the last."""

    first: int
    before: bytes
    end: int


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
        with _reading(path) as connection:
            ends = _check_parts(connection, database.name)
        blocks, keys = range(ends.first, ends.end, BLOCK), 0
        workers = min(os.cpu_count() or 1, 4) if len(blocks) * BLOCK > FEW else 1
        check = partial(_check_block, path, ends)
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
                    progress(min(number * BLOCK, ends.end - ends.first), ends.end - ends.first)
            indexed = index()
        if indexed is not None and indexed != keys:
            with _reading(path) as connection:
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


def _check_parts(connection: Connection, name: str) -> Ends:
    """Return where the events begin and end; StoreError if a part beside the events is damaged."""
    first, before = _start(connection, name)
    heads = connection.execute("SELECT seq, digest FROM head")
    if len(heads) != 1 or not isinstance(heads[0][0], int) or heads[0][0] < first:
        raise StoreError(f"{name} is damaged: it does not say where its events end")
    ((end, digest),) = heads
    ((last,),) = connection.execute("SELECT max(seq) FROM events")
    if (first if last is None else last + 1) != end:
        seq = end if last is not None and last >= end else end - 1
        raise StoreError(f"event {seq} is missing or one too many")
    if last is not None and _digest(connection, last) != digest:
        raise StoreError(f"event {last} is damaged: the chain does not end with it")
    contents = connection.execute("SELECT digest, length(body) FROM contents")
    for number, (digest, size) in enumerate(contents, 1):
        bodies = connection.execute("SELECT body FROM contents WHERE digest = ?", digest)
        body = bodies[0][0] if bodies else None
        if not isinstance(body, bytes) or hashlib.sha256(body).hexdigest() != digest:
            damage = f"content {number} ({size} bytes) does not match its checksum"
            raise StoreError(f"{name} is damaged: {damage}")
    for (seq,) in connection.execute("SELECT seq FROM snapshots"):
        ((body, digest),) = connection.execute("SELECT body, digest FROM snapshots WHERE seq = ?", seq)
        if seq > end:
            missing = f"events {end} to {seq - 1}, which a snapshot holds, are missing"
            raise StoreError(f"{name} is damaged: {missing}")
        if not isinstance(body, bytes) or snapshot_digest(seq, body) != digest:
            damage = f"the snapshot after event {seq - 1} does not match its checksum"
            raise StoreError(f"{name} is damaged: {damage}")
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


def _digest(connection: Connection, seq: int) -> bytes:
    """Return the digest of the chain up to an event."""
    bodies = connection.execute("SELECT body FROM events WHERE seq = ?", seq)
    if not bodies or not isinstance(bodies[0][0], bytes):
        raise StoreError(f"event {seq} is missing or damaged")
    return bodies[0][0][-SIZE:]


def _check_block(path: Path | str, ends: Ends, first: int) -> int:
    """Follow the chain over the block of events from number `first`; return the trace of their keys."""
    last = min(first + BLOCK, ends.end)
    with _reading(path) as connection:
        before = ends.before if first == ends.first else _digest(connection, first - 1)
        try:
            rows = connection.execute(ROWS_BETWEEN, first, last)
        except UNREADABLE:
            rows = list(_readable_rows(connection, first, last))
    if not is_whole(rows, before, first):
        check_chain(rows, before, first)  # names the event
    if len(rows) != last - first:
        raise StoreError(f"event {first + len(rows)} is missing: the store is damaged")
    return key_trace((row[2], row[0]) for row in rows)


def _readable_rows(connection: Connection, first: int, last: int) -> Iterator[Any]:
    """Yield rows one by one; StoreError names the first that cannot be read."""
    for seq in range(first, last):
        try:
            yield from connection.execute(ROWS_BETWEEN, seq, seq + 1)
        except UNREADABLE as error:
            raise StoreError(f"event {seq} is damaged: {error}") from None


def _hidden_event(connection: Connection) -> str:
    """Say which event a damaged index of a SQLite file hides."""
    rows = "SELECT seq, key FROM events {} WHERE key IS NOT NULL"
    both = f"{rows.format('NOT INDEXED')} EXCEPT {rows.format('INDEXED BY events_by_key')} LIMIT 1"
    hidden = connection.execute(both)
    lost = f"event {hidden[0][0]} is not found by its decision" if hidden else "it has entries of no event"
    return f"{lost}: the index does not match the events"


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

"""Open the store under an address, a file or a PostgreSQL database, and verify it: is every event whole?

As a program, it verifies the store whose address standard input has, and says what is damaged.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.parallel import end_with_parent
from invariant_bandits.service.store import sql
from invariant_bandits.service.store.postgres import PostgresDatabase, is_address
from invariant_bandits.service.store.sql import Connection, Database, Head, SqlStore, StoreError
from invariant_bandits.service.store.sqlite import FileLock, SqliteDatabase
from invariant_bandits.storage import atomic_write


def database_of(address: str | Path, **options: Any) -> Database:
    """Return the database under a path or `postgresql://…`, for reading unless it is said; for the options
    see `open_store`.
    """
    kind = PostgresDatabase if is_address(str(address)) else SqliteDatabase
    return kind(str(address), **options)


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


def copy_store(source: str | Path, target: str | Path, *, force: bool = False) -> Head:
    """Copy a store, which may be in use, as it is at one moment; return the end of its chain.

    Parameters
    ----------
    source, target : str or Path
        SQLite files. The copy is verified before it has its name, and only its owner can read it.
    force : bool
        Whether a store that is not in use may be replaced.
    """
    if is_address(str(source)) or is_address(str(target)):
        dump = "pg_dump takes a consistent copy, pg_restore brings it back"
        raise InputError(f"a store in PostgreSQL is copied with its own tools: {dump}; then run store verify")
    path = Path(os.path.realpath(target))
    with closing(open_store(source, writing=False)) as opened, ExitStack() as stack:
        if path.exists():
            if not force:
                raise InputError(f"{target} exists; --force replaces it")
            stack.callback(FileLock(path).release)
        with atomic_write(path) as scratch:
            scratch.chmod(0o600)
            opened.copy_to(scratch)
            verify(scratch)
        for end in ("-wal", "-shm"):
            path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
    with closing(open_store(path, writing=False)) as copied:
        return copied.head()


# -- verification --

BLOCK = 4096
"""Events that are read at a time."""
FEW = 8 * BLOCK
"""So many events are verified before a store is used: that takes less than a second."""
LOWEST_PRIORITY = 15
"""How nice a process in the background is to others."""
RETRY_EVERY = 60.0
"""Seconds between two attempts to verify a store that cannot be read."""

log = logging.getLogger("invariant_bandits.service")


def verify(
    path: Path | str,
    *,
    first: int = 0,
    thorough: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Return how many events there are, if all are whole; else StoreError names the first that is not.

    The store may be in use: each block of events is read as it is at one moment, and events that are removed
    meanwhile are passed over.

    Parameters
    ----------
    path : Path or str
        The SQLite file, or the address of a database.
    first : int
        Number of the first event to be verified.
    thorough : bool
        Whether SQLite checks all structures of its file as well; slower.
    progress : callable
        Called with the number of events that were followed, and of all.
    """
    database = database_of(path)
    try:
        with closing(database.connect(reading=True, frozen=True)) as connection:
            start, end = _check_parts(connection, database.name)
        first = max(first, start.seq)
        for block in range(first, end, BLOCK):
            last = min(block + BLOCK, end)
            with closing(database.connect(reading=True, frozen=True)) as connection:
                _check_block(connection, block, last)
                _check_index(connection, database, block, last)
            if progress is not None:
                progress(last - first, end - first)
        if first == start.seq:
            with closing(database.connect(reading=True, frozen=True)) as connection:
                _check_index(connection, database)
                connection.check_structures(thorough=thorough)
        return end
    except sql.UnavailableError as error:
        raise sql.UnreachableError(f"{database.name} cannot be read: {error}") from None


def check_newest(path: Path | str) -> None:
    """Raise StoreError if a part that a start depends on is damaged: what is kept beside the events, and the
    events after the newest snapshot; all of them where there are few.
    """
    database = database_of(path)
    with closing(database.connect(reading=True, frozen=True)) as connection:
        ((end,),) = connection.execute("SELECT max(seq) FROM head")
        ((newest,),) = connection.execute("SELECT max(seq) FROM snapshots")
    verify(path, first=0 if (end or 0) <= FEW else newest or 0)


def _start(connection: Connection, name: str) -> Head:
    """Return the start of the chain."""
    cuts = connection.execute("SELECT first, before, base FROM cut")
    if not cuts:
        return Head(0, sql.START)
    first, before, base = cuts[0]
    known = connection.execute("SELECT seq FROM snapshots WHERE seq = ?", base)
    if len(cuts) != 1 or not isinstance(first, int) or not known:
        raise StoreError(f"{name} is damaged: it does not say where its events begin")
    return Head(first, before)


def _check_parts(connection: Connection, name: str) -> tuple[Head, int]:
    """Return the start of the chain and the number after its last event; StoreError if a part beside the
    events is damaged.
    """
    start, ends = _start(connection, name), connection.execute("SELECT seq, digest FROM head")
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
    for (seq,) in connection.execute("SELECT seq FROM snapshots WHERE seq > ?", end):
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


def _check_block(connection: Connection, first: int, last: int) -> None:
    """Follow the chain over a block of events, as far as they were not removed meanwhile."""
    start = _start(connection, connection.name)
    first = max(first, start.seq)
    before = start.digest if first == start.seq else _digest(connection, first - 1)
    rows = _rows(connection, first, last)
    sql.check_chain(rows, before, first)
    if len(rows) < last - first:
        raise StoreError(f"event {first + len(rows)} is missing: the store is damaged")


def _check_index(connection: Connection, database: Database, *between: int) -> None:
    """Raise StoreError if the index by key does not have exactly the keyed events."""
    counts = [connection.execute(query, *between) for query in database.key_counts(bool(between))]
    if counts[1:] != counts[:-1]:
        raise StoreError(f"{database.name} is damaged: its index by key does not match its events")


def _rows(connection: Connection, first: int, last: int) -> list[Any]:
    """Return rows from number `first` to before `last`; StoreError names the first that cannot be read."""
    try:
        return connection.execute(sql.ROWS_BETWEEN, first, last)
    except (TypeError, ValueError, OverflowError) as error:  # a StoreError is a ValueError
        if last - first == 1:
            raise StoreError(f"event {first} is damaged: {error}") from None
    return [row for seq in range(first, last) for row in _rows(connection, seq, seq + 1)]


class Verification:
    """Verifies a store that is in use, in a process of low priority that ends with this one.

    Parameters
    ----------
    address : str
    on_damage : callable
        Called with the StoreError that says what is damaged.

    Attributes
    ----------
    done : bool
        Whether every event was found to be whole.
    """

    def __init__(self, address: str, on_damage: Callable[[StoreError], None]) -> None:
        self.done = False
        self._address, self._on_damage = address, on_damage
        self._process: subprocess.Popen[str] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verification", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End at once."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        program = [sys.executable, "-m", __name__]
        while not self._ending.is_set():
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            if self._ending.is_set():  # meanwhile
                self._process.kill()
            damage = self._process.communicate(self._address)[0].strip()
            self.done = self._process.returncode == 0
            if self.done:
                log.info("the store is verified: every event is whole")
                return
            if damage and not self._ending.is_set():
                self._on_damage(StoreError(damage))
                return
            if not self._ending.wait(RETRY_EVERY):
                log.warning("the store could not be verified: it is tried again")


def main() -> None:
    """Verify the store whose address standard input has; say what is damaged."""
    end_with_parent()
    os.nice(LOWEST_PRIORITY)
    try:
        verify(sys.stdin.read())
    except sql.UnreachableError:
        sys.exit(2)
    except StoreError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main()

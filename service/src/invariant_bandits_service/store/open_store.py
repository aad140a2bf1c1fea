"""Open the store under an address, a file or a PostgreSQL database, and verify it: is every event whole?

As a program, it verifies the store whose address standard input has, and says what is damaged.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.parallel import end_with_parent
from invariant_bandits.storage import atomic_write
from invariant_bandits_service.store import sql
from invariant_bandits_service.store.postgres import PostgresDatabase, is_address
from invariant_bandits_service.store.sql import Database, Head, SqlStore, StoreError
from invariant_bandits_service.store.sqlite import FileLock, SqliteDatabase


def database_of(address: str | Path, **options: Any) -> Database:
    """Return the database under a path or `postgresql://…`, for reading unless the options say otherwise."""
    kind = PostgresDatabase if is_address(str(address)) else SqliteDatabase
    return kind(str(address), **options)


def open_store(
    address: str | Path, *, writing: bool = True, **options: Any
) -> SqlStore:
    """Open the store under a path or `postgresql://…`; for the options see `Database`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/decisions.db")
    ...     rows = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """
    return SqlStore(database_of(address, writing=writing, **options))


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
        raise InputError(
            f"a store in PostgreSQL is copied with its own tools: {dump}; then run store verify"
        )
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

log = logging.getLogger("invariant_bandits_service")


def verify(
    path: Path | str,
    *,
    newest: bool = False,
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
    newest : bool
        Whether only the parts that a start depends on are verified: what is kept beside the events, and the
        events after the newest snapshot; all of them where there are few.
    thorough : bool
        Whether SQLite checks all structures of its file as well; slower.
    progress : callable
        Called with the number of events that were followed, and of all.
    """
    database = database_of(path)
    try:
        with closing(SqlStore(database)) as store:
            with store.one_moment():
                first, end = _check_parts(store)
                is_whole = not newest or end <= FEW
                first = first if is_whole else max(store.snapshot_seq() or 0, first)
            for block in range(first, end, BLOCK):
                last = min(block + BLOCK, end)
                with store.one_moment():
                    _check_block(store, block, last)
                    _check_index(store, block, last)
                if progress is not None:
                    progress(last - first, end - first)
            with store.one_moment():
                if is_whole:
                    _check_index(store)
                messages = (
                    store.read(database.structures)
                    if thorough and database.structures
                    else []
                )
        if messages not in ([], [("ok",)]):
            raise StoreError(f"{database.name} is damaged: {messages[0][0]}")
        return end
    except sql.UnavailableError as error:
        raise sql.UnreachableError(f"{database.name} cannot be read: {error}") from None
    except StoreError:
        raise
    except (
        TypeError,
        ValueError,
        AttributeError,
    ) as error:  # damage can make a text of a number
        raise StoreError(f"{database.name} is damaged: {error}") from None


check_newest = partial(verify, newest=True)
"""Raise StoreError if a part that a start depends on is damaged."""


def _check_parts(store: SqlStore) -> tuple[int, int]:
    """Return the numbers of the first event and after the last one.

    StoreError if a part beside the events is damaged.
    """
    start = store.start()
    (end, digest) = store.head()
    name = store.database.name
    if start.seq and store.base() is None:
        raise StoreError(f"{name} is damaged: it does not say where its events begin")
    ((last,),) = store.read("SELECT max(seq) FROM events")
    if (start.seq if last is None else last + 1) != end:
        wrong = end if last is not None and last >= end else end - 1
        raise StoreError(f"event {wrong} is missing or one too many")
    if last is not None and _digest(store, last) != digest:
        raise StoreError(f"event {last} is damaged: the chain does not end with it")
    for (content,) in store.read("SELECT digest FROM contents"):
        store.content(content)
    for seq in store.snapshot_seqs():
        store.snapshot("WHERE seq = ?", seq)
        if seq > end:
            missing = f"events {end} to {seq - 1}, which a snapshot holds, are missing"
            raise StoreError(f"{name} is damaged: {missing}")
    return start.seq, end


def _digest(store: SqlStore, seq: int) -> bytes:
    """Return the digest of the chain up to an event."""
    for row in _rows(store, seq, seq + 1):
        return bytes(row[3][-sql.SIZE :])
    raise StoreError(f"event {seq} is missing")


def _check_block(store: SqlStore, first: int, last: int) -> None:
    """Follow the chain over a block of events, as far as they were not removed meanwhile."""
    start = store.start()
    first = max(first, start.seq)
    before = start.digest if first == start.seq else _digest(store, first - 1)
    rows = _rows(store, first, last)
    sql.check_chain(rows, before, first)
    if len(rows) < last - first:
        raise StoreError(f"event {first + len(rows)} is missing: the store is damaged")


def _check_index(store: SqlStore, *between: int) -> None:
    """Raise StoreError if the index by key does not have exactly the keyed events."""
    counts = [
        store.read(query, *between)
        for query in store.database.key_counts(bool(between))
    ]
    if counts[1:] != counts[:-1]:
        raise StoreError(
            f"{store.database.name} is damaged: its index by key does not match its events"
        )


def _rows(store: SqlStore, first: int, last: int) -> list[Any]:
    """Return rows from number `first` to before `last`; StoreError names the first that cannot be read."""
    try:
        return store.read(sql.ROWS_BETWEEN, first, last)
    except (
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # a StoreError is a ValueError
        if last - first == 1:
            raise StoreError(f"event {first} is damaged: {error}") from None
    return [row for seq in range(first, last) for row in _rows(store, seq, seq + 1)]


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
        self._address = address
        self._on_damage = on_damage
        self._process: subprocess.Popen[str] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="verification", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End at once."""
        self._ending.set()
        if self._process is not None:
            self._process.kill()
        self._thread.join()

    def _run(self) -> None:
        program = [sys.executable, "-m", __name__]
        pipe = subprocess.PIPE
        while not self._ending.is_set():
            self._process = subprocess.Popen(
                program, stdin=pipe, stdout=pipe, text=True
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


def lower_priority() -> None:
    """Let other processes go first, where the system allows a process to say so."""
    with suppress(PermissionError):
        os.nice(LOWEST_PRIORITY)


def main() -> None:
    """Verify the store whose address standard input has; say what is damaged."""
    end_with_parent()
    lower_priority()
    try:
        verify(sys.stdin.read())
    except sql.UnreachableError:
        sys.exit(2)
    except StoreError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main()

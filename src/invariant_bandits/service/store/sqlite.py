"""The embedded store: one SQLite file in WAL mode, synchronous FULL; what is acknowledged is on the disk."""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from invariant_bandits.service.store import migrations
from invariant_bandits.service.store.base import Head, UnavailableError
from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, after, extended, seal
from invariant_bandits.service.store.journal import check_journal, what_is_left
from invariant_bandits.service.store.locking import FileLock
from invariant_bandits.service.store.parts import snapshot_digest
from invariant_bandits.service.store.seeds import marked, unmarked

LARGEST_JOURNAL = 64 << 20
"""The WAL file is cut back to this many bytes."""


class SqliteStore:
    """Events in one SQLite file. One process at a time may open it for writing; readers see what is committed.

    Parameters
    ----------
    path : str or PathLike
        The file; made if it is not there.
    writing : bool
        Whether events will be added. A second process that wants to is refused.
    check : callable or None
        Called with the path when nobody else can write and before anything is opened; raises if it is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SqliteStore(f"{folder}/decisions.db")
    ...     added = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """

    def __init__(
        self, path: str | PathLike[str], *, writing: bool = True, check: Callable[[Path], object] | None = None
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.writing = writing
        if not writing and not self.path.is_file():
            raise StoreError(f"{path} does not exist")
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{path} is not a file")
        self._check_names()
        self._lock = FileLock(self.path) if writing else None
        self._reading = threading.local()
        self._readers: list[sqlite3.Connection] = []
        try:
            if writing:
                self._prepare(check)
            self._connection = self._connect()
            migrations.check(self._connection, self.path)
            self._file = self._identity() if self._lock is None else self._lock.inode
            self.seed = self._sown()
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreError(f"{self.path} is damaged or not a store of decisions: {error}") from None
        except BaseException:
            self.close()
            raise

    def _check_names(self) -> None:
        """Refuse a file that is not the one its write-ahead log belongs to: SQLite finds the log by the file's name."""
        found = self.path.stat() if self.path.exists() else None
        if found is not None and found.st_nlink > 1:
            raise StoreError(
                f"{self.path} has {found.st_nlink} names (hard links), and only one of them has its last events:"
                " remove the names that no service was started with"
            )
        log = self.path.with_name(f"{self.path.name}-wal")
        if (found is None or not found.st_size) and log.exists() and log.stat().st_size:
            raise StoreError(f"{self.path} is missing or empty, and {log.name} of an earlier file is there")

    def _prepare(self, check: Callable[[Path], object] | None) -> None:
        """Have the tables of this version, and have them checked while no connection is open: checking may fork."""
        try:
            check_journal(self.path)
        except StoreError as error:
            raise StoreError(f"{error}; {what_is_left(self.path)}") from None
        connection = self._connect()
        try:
            migrations.make(connection, self.path)
        finally:
            connection.close()
        if check is not None:
            check(self.path)

    def _identity(self) -> tuple[int, int]:
        """Which file the path leads to."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StoreError(f"{self.path} is gone: {error.strerror}") from None
        return found.st_dev, found.st_ino

    def _sown(self) -> int:
        """The seed with its checksum; chosen if there is none and nothing has happened yet."""
        kept = self._meta("seed")
        if kept is None:
            if not self.writing or self.head().seq:
                raise StoreError(f"{self.path} is damaged: it has no seed")
            seed = secrets.randbits(63)
            self._connection.execute("INSERT INTO meta VALUES ('seed', ?)", (marked(seed),))
            return seed
        return unmarked(kept, str(self.path))

    def _connect(self) -> sqlite3.Connection:
        if self.writing:
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10.0)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA journal_size_limit = {LARGEST_JOURNAL}")
        else:
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
            )
        return connection

    @property
    def _reader(self) -> sqlite3.Connection:
        """A connection of this thread, which never waits for the writer."""
        mine: sqlite3.Connection | None = getattr(self._reading, "connection", None)
        if mine is None:
            mine = sqlite3.connect(
                f"{self.path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
            )
            self._reading.connection = mine
            self._readers.append(mine)
        return mine

    def _meta(self, name: str) -> str | None:
        found = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    # -- events --

    def head(self) -> Head:
        """The end of the chain as it is stored."""
        with self._answering():
            found = self._connection.execute("SELECT seq, digest FROM head").fetchall()
        if len(found) != 1:
            raise StoreError(f"{self.path} is damaged: it has {len(found)} ends")
        return Head(*found[0])

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What fails in it is temporary, or damage."""
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            raise UnavailableError(str(error)) from None
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is damaged: {error}") from None

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""
        cut = self._connection.execute("SELECT first, before FROM cut").fetchone()
        return Head(0, START) if cut is None else Head(cut[0], cut[1])

    def append(self, events: Sequence[tuple[str | None, bytes]], contents: Sequence[bytes] = ()) -> list[Row]:
        """Add events as one batch, and contents they refer to; durable when this returns, or UnavailableError."""
        if self._identity() != self._file:
            raise StoreError(f"{self.path} is another file than the one that was opened")
        with self._changing() as connection:
            seq, digest = self.head()
            rows = extended(seq, digest, events)
            connection.executemany(
                "INSERT OR IGNORE INTO contents VALUES (?, ?)",
                [(hashlib.sha256(content).hexdigest(), content) for content in contents],
            )
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            end = Head(seq + len(rows), rows[-1].digest if rows else digest)
            connection.execute("UPDATE head SET seq = ?, digest = ?", end)
            self._seal(seq, end.seq)
        return rows

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is durable afterwards, or nothing of it."""
        with self._answering():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._give_up()
                raise

    def _give_up(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:  # `reopen` will tell
            pass

    def _seal(self, before: int, after: int) -> None:
        """Seal every stretch that events up to `after` have completed."""
        for stretch in range(before // SEALED, after // SEALED):
            first, last = stretch * SEALED, (stretch + 1) * SEALED
            rows = self._connection.execute(
                "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq", (first, last)
            ).fetchall()
            if rows and rows[0][0] == first:
                self._connection.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", (first, seal(rows)))

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Rows from number `first` to before `last`, in order."""
        end = 2**62 if last is None else last
        asked = "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq"
        with self._answering():
            for found in self._reader.execute(asked, (first, end)):
                yield Row(*found)

    def of_key(self, key: str) -> list[Row]:
        """Rows that belong to the decision with this key, in order."""
        asked = "SELECT seq, batch, key, body FROM events WHERE key = ? ORDER BY seq"
        with self._answering():
            return [Row(*found) for found in self._reader.execute(asked, (key,))]

    def keys_from(self, prefix: str) -> set[str]:
        """All keys that begin so."""
        asked = "SELECT DISTINCT key FROM events WHERE key >= ? AND key < ?"
        with self._answering():
            return {key for (key,) in self._reader.execute(asked, (prefix, after(prefix)))}

    # -- contents and snapshots --

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256 in hexadecimal digits."""
        found = self._reader.execute("SELECT body FROM contents WHERE digest = ?", (digest,)).fetchone()
        if found is None:
            raise StoreError(f"{self.path} is damaged: the content {digest} is missing")
        if hashlib.sha256(found[0]).hexdigest() != digest:
            raise StoreError(f"{self.path} is damaged: the content {digest} does not match its checksum")
        return bytes(found[0])

    def save_snapshot(self, seq: int, body: bytes) -> None:
        """Keep the state after the first `seq` events; older snapshots but one are dropped."""
        with self._changing() as connection:
            kept = (seq, body, snapshot_digest(seq, body))
            connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", kept)
            connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
                " AND seq NOT IN (SELECT base FROM cut)"
            )

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot, and how many events it holds."""
        return self._snapshot("ORDER BY seq DESC LIMIT 1")

    def base(self) -> tuple[int, bytes] | None:
        """The snapshot that a replay begins with, and how many events it holds; None: with the first event."""
        return self._snapshot("WHERE seq IN (SELECT base FROM cut)")

    def _snapshot(self, which: str) -> tuple[int, bytes] | None:
        with self._answering():
            found = self._reader.execute(f"SELECT seq, body, digest FROM snapshots {which}").fetchone()
        if found is None:
            return None
        if snapshot_digest(found[0], found[1]) != found[2]:
            raise StoreError(f"{self.path} is damaged: the snapshot after event {found[0]} does not match its checksum")
        return found[0], found[1]

    def cut(self, first: int, seq: int, snapshot: bytes) -> None:
        """Remove all events before number `first` for good; a replay begins with the state after `seq` events."""
        with self._changing() as connection:
            (before,) = connection.execute("SELECT body FROM events WHERE seq = ?", (first - 1,)).fetchone()
            kept = (seq, snapshot, snapshot_digest(seq, snapshot))
            connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", kept)
            connection.execute("DELETE FROM cut")
            connection.execute("INSERT INTO cut VALUES (?, ?, ?)", (first, before[-len(START) :], seq))
            connection.execute("DELETE FROM events WHERE seq < ?", (first,))
            connection.execute("DELETE FROM seals WHERE first < ?", (first,))
            connection.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))

    def shrink(self) -> None:
        """Give the room of what was removed back to the disk."""
        with self._answering():
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- opening and closing --

    def reopen(self) -> None:
        """Connect anew after a failure."""
        try:
            self._connection.close()
            self._connection = self._connect()
        except sqlite3.Error as error:
            raise UnavailableError(str(error)) from None

    def close(self) -> None:
        """Let go of everything."""
        for connection in [*self._readers, *([self._connection] if hasattr(self, "_connection") else [])]:
            connection.close()
        self._readers.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

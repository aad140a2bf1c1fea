"""The embedded store: one SQLite file in WAL mode, synchronous FULL; what is acknowledged is on the disk."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

from invariant_bandits.service.store import migrations
from invariant_bandits.service.store.base import Head, UnavailableError
from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, extended, seal

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

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = SqliteStore(f"{folder}/decisions.db")
    ...     added = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """

    def __init__(self, path: str | PathLike[str], *, writing: bool = True) -> None:
        self.path = Path(os.path.realpath(path))
        self.writing = writing
        if not writing and not self.path.is_file():
            raise StoreError(f"{path} does not exist")
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{path} is not a file")
        self._lock_file = self._locked() if writing else None
        self._reading = threading.local()
        self._readers: list[sqlite3.Connection] = []
        try:
            self._connection = self._connect()
            if writing:
                migrations.bring_up_to_date(self._connection, self.path)
            migrations.check(self._connection, self.path)
            self.seed = int(self._meta("seed") or 0)
            if writing and self._meta("seed") is None:
                self.seed = secrets.randbits(63)
                self._connection.execute("INSERT INTO meta VALUES ('seed', ?)", (str(self.seed),))
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreError(f"{self.path} is damaged or not a store of decisions: {error}") from None
        except BaseException:
            self.close()
            raise

    def _locked(self) -> int:
        """The lock of the one process that writes."""
        handle = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StoreError(f"{self.path} is in use by another process") from None
        return handle

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
        found = self._connection.execute(
            "SELECT seq, batch, key, body FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        if found is not None:
            return Head(found[0] + 1, Row(*found).digest)
        cut = self._connection.execute("SELECT first, before FROM cut").fetchone()
        return Head(0, START) if cut is None else Head(cut[0], cut[1])

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""
        cut = self._connection.execute("SELECT first, before FROM cut").fetchone()
        return Head(0, START) if cut is None else Head(cut[0], cut[1])

    def append(self, events: Sequence[tuple[str | None, bytes]], contents: Sequence[bytes] = ()) -> list[Row]:
        """Add events as one batch, and contents they refer to; durable when this returns, or UnavailableError."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            seq, digest = self.head()
            rows = extended(seq, digest, events)
            connection.executemany(
                "INSERT OR IGNORE INTO contents VALUES (?, ?)",
                [(hashlib.sha256(content).hexdigest(), content) for content in contents],
            )
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            self._seal(seq, seq + len(rows))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up()
            raise UnavailableError(str(error)) from None
        return rows

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
        for found in self._reader.execute(asked, (first, end)):
            yield Row(*found)

    def of_key(self, key: str) -> list[Row]:
        """Rows that belong to the decision with this id, in order."""
        asked = "SELECT seq, batch, key, body FROM events WHERE key = ? ORDER BY seq"
        return [Row(*found) for found in self._reader.execute(asked, (key,))]

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
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            digest = hashlib.sha256(body).digest()
            self._connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, body, digest))
            self._connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
            )
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up()
            raise UnavailableError(str(error)) from None

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot, and how many events it holds."""
        found = self._reader.execute("SELECT seq, body, digest FROM snapshots ORDER BY seq DESC LIMIT 1").fetchone()
        if found is None:
            return None
        if hashlib.sha256(found[1]).digest() != found[2]:
            raise StoreError(f"{self.path} is damaged: the snapshot after event {found[0]} does not match its checksum")
        return found[0], found[1]

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
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

"""The embedded store: one SQLite file in WAL mode, synchronous FULL; what is acknowledged is on the disk."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.service.store.base import (
    SEALED,
    START,
    Head,
    Row,
    StoreError,
    UnavailableError,
    after,
    extended,
    marked,
    seal,
    snapshot_digest,
    unmarked,
)

HEADER, FRAME_HEADER = 32, 24
MAGIC = 0x377F0682
"""Followed by one that says that words are big-endian."""
MOST_AT_ONCE = 4_096
"""Frames that are read together."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


def check_journal(path: Path) -> None:
    """Raise StoreError if the log beside a SQLite file that nobody writes to was damaged."""
    log = path.with_name(f"{path.name}-wal")
    try:
        content = np.memmap(log, dtype=np.uint8, mode="r") if log.stat().st_size else None
    except FileNotFoundError:
        return
    if content is not None and content.any():
        _Log(content, log).check()


def what_is_left(path: Path) -> str:
    """Which events a damaged log leaves, in words."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        return f"event {0 if last is None else last + 1} and those after it cannot be read"
    except sqlite3.DatabaseError:
        return "no event can be read"
    finally:
        connection.close()


class _Log:
    """The frames of a log and their checksums: s0 += word + s1, s1 += word + s0 over pairs of words, modulo 2^32."""

    def __init__(self, content: np.ndarray[Any, Any], path: Path) -> None:
        self.content, self.path = content, path

    def check(self) -> None:
        header = self.content[:HEADER]
        big = header[:HEADER].view(">u4") if len(header) == HEADER else np.zeros(8, dtype=">u4")
        order = ">u4" if big[0] == MAGIC + 1 else "<u4"
        stored = big[6:8].astype(np.uint32)
        difference = stored - _sums(_words(header[:24], order)[None], Coefficients(6))[0]
        size = int(big[2])
        if int(big[0]) not in (MAGIC, MAGIC + 1) or difference.any() or size < 512 or size & (size - 1):
            raise StoreError(f"{self.path} is damaged: its header does not match its checksum")
        self.order, self.salts, self.size = order, big[4:6].astype(np.uint32), size
        self.step = FRAME_HEADER + size
        self.coefficients = Coefficients(2 + size // 4)
        frames = (len(self.content) - HEADER) // self.step
        bad, before = self._whole(frames, stored)
        if bad < frames and (self._is_flipped(bad, before) or self._is_followed(bad + 1, frames)):
            raise StoreError(f"{self.path} is damaged in frame {bad + 1}: events that were acknowledged are in it")

    def _frames(self, first: int, last: int) -> tuple[np.ndarray[Any, Any], Words]:
        """Headers as words (n, 6), and the checksum that each frame alone gives (n, 2)."""
        part = self.content[HEADER + first * self.step : HEADER + last * self.step].reshape(last - first, self.step)
        headers = np.ascontiguousarray(part[:, :FRAME_HEADER]).view(">u4").astype(np.uint32)
        covered = np.concatenate([part[:, :8], part[:, FRAME_HEADER:]], axis=1)
        return headers, _sums(_words(covered, self.order), self.coefficients)

    def _whole(self, frames: int, before: Words) -> tuple[int, Words]:
        """Number of the first frame that does not follow, and the checksum before it."""
        for first in range(0, frames, MOST_AT_ONCE):
            headers, alone = self._frames(first, min(first + MOST_AT_ONCE, frames))
            starts = np.vstack([before[None], headers[:-1, 4:6]])
            whole = (self._continued(starts, alone) == headers[:, 4:6]).all(axis=1)
            whole &= (headers[:, 2:4] == self.salts).all(axis=1)
            if not whole.all():
                bad = int(np.argmin(whole))
                return first + bad, starts[bad]
            before = headers[-1, 4:6]
        return frames, before

    def _continued(self, before: Words, alone: Words) -> Words:
        """Checksums of frames after the checksums `before` (n, 2)."""
        return alone + before @ self.coefficients.carried

    def _is_flipped(self, bad: int, before: Words) -> bool:
        """Whether one flipped bit explains a frame."""
        headers, alone = self._frames(bad, bad + 1)
        salts = headers[0, 2:4] ^ self.salts
        difference = headers[0, 4:6] - self._continued(before[None], alone)[0]
        if not difference.any():
            return _bits(salts) == 1
        if salts.any():
            return False
        if _bits(headers[0, 4:6] ^ self._continued(before[None], alone)[0]) == 1:  # of the checksum itself
            return True
        powers = (np.uint32(1) << np.arange(32, dtype=np.uint32))[:, None, None]
        changes = powers * self.coefficients.of_words[None]  # (32, words, 2)
        return bool((changes == difference).all(axis=2).any() or (changes == -difference).all(axis=2).any())

    def _is_followed(self, first: int, frames: int) -> bool:
        """Whether a transaction was written after one that ended behind the bad frame."""
        for start in range(first, frames - 1, MOST_AT_ONCE):
            headers, alone = self._frames(start, min(start + MOST_AT_ONCE + 1, frames))
            follows = (self._continued(headers[:-1, 4:6], alone[1:]) == headers[1:, 4:6]).all(axis=1)
            ours = (headers[:, 2:4] == self.salts).all(axis=1)
            if (follows & (headers[:-1, 1] != 0) & ours[:-1] & ours[1:]).any():
                return True
        return False


class Coefficients:
    """What each of `words` words, and the checksum before them, add to a checksum: Fibonacci numbers modulo 2^32.

    Attributes
    ----------
    of_words : array of uint32, shape (words, 2)
    carried : array of uint32, shape (2, 2)
    """

    def __init__(self, words: int) -> None:
        step = np.array([[1, 1], [1, 2]], dtype=np.uint32)  # (s0, s1) before a pair of words -> after it, transposed
        after = np.eye(2, dtype=np.uint32)
        rows = []
        for _ in range(words // 2):
            rows.append(np.array([[1, 1], [0, 1]], dtype=np.uint32) @ after)
            after = step @ after
        self.of_words = np.concatenate(rows[::-1])
        self.carried = after


def _words(content: np.ndarray[Any, Any], order: str) -> Words:
    return np.ascontiguousarray(content).view(order).astype(np.uint32)


def _sums(words: Words, coefficients: Coefficients) -> Words:
    """Checksums (n, 2) of words (n, m), each from zero."""
    return words @ coefficients.of_words


def _bits(words: Words) -> int:
    """How many bits are set."""
    return int(np.unpackbits(words.view(np.uint8)).sum())


_held: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked."""


class FileLock:
    """The lock of the one process that writes to a file; the file is made if it does not exist.

    The lock belongs to the inode: links to the file and other mounts of its folder lead to the same lock. It is a lock
    of flock, which does not collide with the locks of SQLite (fcntl). These end as soon as the process closes any
    descriptor of the file. Therefore a process never opens a file that it has locked a second time, and releases
    the lock after it has closed its connections.

    Parameters
    ----------
    path : Path
        The file, links resolved.
    """

    def __init__(self, path: Path) -> None:
        if _is_held(path):
            raise _in_use(path)
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path} cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise _in_use(path) from None
        self.inode = _inode(os.fstat(self._handle))
        _held.add(self.inode)

    def release(self) -> None:
        """Let other processes write."""
        _held.discard(self.inode)
        os.close(self._handle)


def is_in_use(path: Path) -> bool:
    """Whether a process has a file open for writing. SQLite must not have it open in this process."""
    if _is_held(path):
        return True
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _is_held(path: Path) -> bool:
    return path.exists() and _inode(path.stat()) in _held


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _in_use(path: Path) -> StoreError:
    return StoreError(f"{path} is in use by another process")


APPLICATION = 0x1B5D0001
"""Marks the files of this product (SQLite's application_id)."""

VERSION = 3
"""Of the layout (SQLite's user_version). Before 3, decisions were found by their id without their model."""

TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, key TEXT, body BLOB NOT NULL)",
    "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
    "CREATE TABLE seals (first INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
    "CREATE TABLE contents (digest TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)",
    "CREATE TABLE cut (first INTEGER NOT NULL, before BLOB NOT NULL, base INTEGER NOT NULL)",
    "CREATE TABLE head (seq INTEGER NOT NULL, digest BLOB NOT NULL)",
    "INSERT INTO head VALUES (0, zeroblob(16))",
)


SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"


def make(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, in one transaction."""
    if _version(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check_layout(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless a file has exactly the tables of this version."""
    if not _version(connection, path):
        raise StoreError(f"{path} holds no store of decisions yet: start the service on it once")
    if connection.execute(SCHEMA).fetchall() != _expected():
        raise StoreError(f"{path} is damaged: its tables are not described as they were made")


def _expected() -> list[tuple[str, str, str, str]]:
    """The description of all tables, as SQLite keeps it."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in TABLES:
            fresh.execute(statement)
        return fresh.execute(SCHEMA).fetchall()
    finally:
        fresh.close()


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the layout of a file: that of this release, or 0 for an empty file; else StoreError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or tables):
        raise StoreError(f"{path} is a database of something else")
    if version not in (0, VERSION):
        release = "a newer" if version > VERSION else "an earlier"
        raise StoreError(f"{path} was written by {release} release (tables {version}, this release needs {VERSION})")
    return int(version)


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
        self,
        path: str | PathLike[str],
        *,
        writing: bool = True,
        check: Callable[[Path], object] | None = None,
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
            check_layout(self._connection, self.path)
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
            make(connection, self.path)
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
                f"{self.path.as_uri()}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=10.0,
            )
        return connection

    @property
    def _reader(self) -> sqlite3.Connection:
        """A connection of this thread, which never waits for the writer."""
        mine: sqlite3.Connection | None = getattr(self._reading, "connection", None)
        if mine is None:
            mine = sqlite3.connect(
                f"{self.path.as_uri()}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=10.0,
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

    def abandon(self) -> None:
        """Nothing is ever left open."""

    def append(
        self,
        events: Sequence[tuple[str | None, bytes]],
        contents: Sequence[bytes] = (),
        *,
        seen: int | None = None,
    ) -> list[Row]:
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
                "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq",
                (first, last),
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

"""SQLite: one file in WAL mode, synchronous FULL, locked by the one process that writes to it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.service.store.chain import Head, Row, StoreError, UnavailableError, key_trace
from invariant_bandits.service.store.sql import LAYOUT, TABLES, Check, Connection, Database

HEADER, FRAME_HEADER = 32, 24
MAGIC = 0x377F0682
"""Followed by one that says that words are big-endian."""
MOST_AT_ONCE = 4_096
"""Frames that are read together."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


def check_journal(path: Path) -> None:
    """Raise StoreError if the log beside a SQLite file that no process writes to was damaged."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        content = np.memmap(log, dtype=np.uint8, mode="r")
        if content.any():
            WriteAheadLog(content, log).check()


def _readable_events(path: Path) -> str:
    """Say which events a damaged log leaves."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        return f"event {0 if last is None else last + 1} and those after it cannot be read"
    except sqlite3.DatabaseError:
        return "no event can be read"
    finally:
        connection.close()


class WriteAheadLog:
    """The frames of a log and their checksums: s0 += word + s1, s1 += word + s0 over pairs of words,
    modulo 2^32.

    Parameters
    ----------
    content : array of uint8
        The whole log.
    path : Path
        For messages.
    """

    def __init__(self, content: np.ndarray[Any, Any], path: Path) -> None:
        big = np.zeros(8, dtype=">u4") if len(content) < HEADER else content[:HEADER].view(">u4")
        self.path, self.size = path, int(big[2])
        self.order = ">u4" if big[0] == MAGIC + 1 else "<u4"
        self.salts, self.stored = big[4:6].astype(np.uint32), big[6:8].astype(np.uint32)
        alone = self._words(content[:24]) @ checksum_coefficients(6)[0] if len(content) >= HEADER else -1
        is_power = self.size >= 512 and not self.size & (self.size - 1)
        if int(big[0]) not in (MAGIC, MAGIC + 1) or (self.stored != alone).any() or not is_power:
            raise StoreError(f"{path} is damaged: its header does not match its checksum")
        self.of_words, self.carried = checksum_coefficients(2 + self.size // 4)
        step = FRAME_HEADER + self.size
        self.count = (len(content) - HEADER) // step
        self.frames = content[HEADER : HEADER + self.count * step].reshape(self.count, step)

    def check(self) -> None:
        """Raise StoreError if a frame that does not follow is no torn write at the end of the log."""
        bad, before = self._first_bad()
        if bad < self.count and (self._is_flipped(bad, before) or self._is_followed(bad + 1)):
            damage = f"damaged in frame {bad + 1}: events that were acknowledged are in it"
            raise StoreError(f"{self.path} is {damage}")

    def _words(self, content: np.ndarray[Any, Any]) -> Words:
        return np.ascontiguousarray(content).view(self.order).astype(np.uint32)

    def _read(self, first: int, last: int) -> tuple[np.ndarray[Any, Any], Words]:
        """Return the headers as words (n, 6), and the checksum that each frame alone gives (n, 2)."""
        part = self.frames[first:last]
        headers = np.ascontiguousarray(part[:, :FRAME_HEADER]).view(">u4").astype(np.uint32)
        covered = np.concatenate([part[:, :8], part[:, FRAME_HEADER:]], axis=1)
        return headers, self._words(covered) @ self.of_words

    def _first_bad(self) -> tuple[int, Words]:
        """Return the number of the first frame that does not follow, and the checksum before it."""
        before = self.stored
        for first in range(0, self.count, MOST_AT_ONCE):
            headers, alone = self._read(first, first + MOST_AT_ONCE)
            starts = np.vstack([before[None], headers[:-1, 4:6]])
            whole = (alone + starts @ self.carried == headers[:, 4:6]).all(axis=1)
            whole &= (headers[:, 2:4] == self.salts).all(axis=1)
            if not whole.all():
                bad = int(np.argmin(whole))
                return first + bad, starts[bad]
            before = headers[-1, 4:6]
        return self.count, before

    def _is_flipped(self, bad: int, before: Words) -> bool:
        """Return whether one flipped bit explains a frame."""
        headers, alone = self._read(bad, bad + 1)
        salts, expected = headers[0, 2:4] ^ self.salts, alone[0] + before @ self.carried
        difference = headers[0, 4:6] - expected
        if salts.any() or not difference.any():
            return not difference.any() and _bits(salts) == 1
        if _bits(headers[0, 4:6] ^ expected) == 1:  # of the checksum itself
            return True
        powers = (np.uint32(1) << np.arange(32, dtype=np.uint32))[:, None, None]
        changes = powers * self.of_words[None]  # (32, words, 2)
        return bool((changes == difference).all(axis=2).any() or (changes == -difference).all(axis=2).any())

    def _is_followed(self, first: int) -> bool:
        """Return whether a transaction was written after one that ended behind the bad frame."""
        for start in range(first, self.count - 1, MOST_AT_ONCE):
            headers, alone = self._read(start, start + MOST_AT_ONCE + 1)
            follows = (alone[1:] + headers[:-1, 4:6] @ self.carried == headers[1:, 4:6]).all(axis=1)
            ours = (headers[:, 2:4] == self.salts).all(axis=1)
            if (follows & (headers[:-1, 1] != 0) & ours[:-1] & ours[1:]).any():
                return True
        return False


def checksum_coefficients(words: int) -> tuple[Words, Words]:
    """Return what each of `words` words (words, 2), and the checksum before them (2, 2), add to a checksum:
    Fibonacci numbers modulo 2^32.
    """
    step = np.array([[1, 1], [1, 2]], dtype=np.uint32)  # (s0, s1) before a pair of words -> after it
    pair = np.array([[1, 1], [0, 1]], dtype=np.uint32)
    after, rows = np.eye(2, dtype=np.uint32), []
    for _ in range(words // 2):
        rows.append(pair @ after)
        after = step @ after
    return np.concatenate(rows[::-1]), after


def _bits(words: Words) -> int:
    """Return how many bits are set."""
    return int(np.unpackbits(words.view(np.uint8)).sum())


_held: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked."""


class FileLock:
    """The lock of the one process that writes to a file; the file is made if it does not exist.

    The lock belongs to the inode: links to the file and other mounts of its folder lead to the same lock. It
    is a lock of flock, which does not collide with the locks of SQLite (fcntl). These end as soon as the
    process closes any descriptor of the file. Therefore a process never opens a file that it has locked a
    second time, and releases the lock after it has closed its connections.

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
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
LARGEST_JOURNAL = 64 << 20
"""The WAL file is cut back to this many bytes."""
KEYS_TOGETHER = 10_000
"""Keys of the index that are read at a time."""


class SqliteConnection(Connection):
    """A connection to a SQLite file, see `Connection`; it knows the file by its inode if it writes."""

    def __init__(self, path: Path, *, synchronous: str | None = None, frozen: bool = False) -> None:
        self._path, self._frozen = path, frozen
        self.inode: tuple[int, int] | None = None
        address = str(path) if synchronous else f"{path.as_uri()}?mode=ro"
        options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10.0}
        try:
            self.raw = sqlite3.connect(address, uri=not synchronous, **options)
        except sqlite3.Error as error:
            raise UnavailableError(str(error)) from None
        if synchronous:
            self.execute("PRAGMA journal_mode = WAL")
            self.execute(f"PRAGMA synchronous = {synchronous}")
            self.execute(f"PRAGMA journal_size_limit = {LARGEST_JOURNAL}")
        if frozen:
            self.execute("BEGIN")

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement and return its rows."""
        try:
            return list(self.raw.execute(sql, values))
        except sqlite3.Error as error:
            raise self._translated(error) from None

    def _translated(self, error: sqlite3.Error) -> Exception:
        """Return what an error means: it may pass, unless it is damage; a frozen state does not change
        any more.
        """
        if isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError) and not self._frozen:
            return UnavailableError(str(error))
        return StoreError(f"{self._path} is damaged: {error}")

    def begin(self, *, held: bool = False) -> Head:
        """Begin a transaction."""
        if self.inode is not None and _inode_at(self._path) != self.inode:
            raise StoreError(f"{self._path} is another file than the one that was opened")
        self.execute("BEGIN IMMEDIATE")
        heads = self.execute("SELECT seq, digest FROM head")
        if len(heads) != 1:
            raise StoreError(f"{self._path} is damaged: it has {len(heads)} ends")
        return Head(*heads[0])

    def insert(self, rows: Sequence[Row], head: Head) -> None:
        """Add rows, and move the end of the chain."""
        try:
            self.raw.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise self._translated(error) from None
        self.execute("UPDATE head SET seq = ?, digest = ?", *head)


def _inode_at(path: Path) -> tuple[int, int]:
    """Return which file a path leads to."""
    try:
        return _inode(os.stat(path))
    except OSError as error:
        raise StoreError(f"{path} is gone: {error.strerror}") from None


class SqliteDatabase(Database):
    """A store in one SQLite file, see `Database`. A second process that wants to write to it is refused.

    Parameters
    ----------
    path : str or PathLike
        The file; made if it does not exist.
    writing : bool
        Whether events will be added.
    check : callable or None
        Called with the path while no other process can write, before a connection is open: it may fork.
    synchronous : str
        SQLite's setting. With any other than FULL, a loss of power can lose what was acknowledged.
    """

    shared = False
    shrink = ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")
    tables = (
        *(statement.format(integer="INTEGER", key="TEXT", blob="BLOB") for statement in TABLES),
        f"PRAGMA application_id = {APPLICATION}",
        f"PRAGMA user_version = {LAYOUT}",
    )

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        writing: bool = True,
        check: Check | None = None,
        synchronous: str = "FULL",
    ) -> None:
        self.path = Path(os.path.realpath(path))
        super().__init__(self.path, str(self.path), writing=writing, learning=True, check=check)
        self._synchronous = synchronous if writing else None
        self._lock: FileLock | None = None

    def open(self) -> SqliteConnection:
        """Take the lock, make or check the tables, and connect."""
        if not self._synchronous and not self.path.is_file():
            raise StoreError(f"{self.path} does not exist")
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{self.path} is not a file")
        self._check_names()
        if self._synchronous:
            self._lock = FileLock(self.path)
            self._prepare()
        connection = self.connect()
        try:
            self._check_layout(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_names(self) -> None:
        """Refuse a file that is not the one its write-ahead log belongs to: SQLite finds the log by its
        name.
        """
        status = self.path.stat() if self.path.exists() else None
        if status is not None and status.st_nlink > 1:
            raise StoreError(
                f"{self.path} has {status.st_nlink} names (hard links), and only one of them has its last "
                f"events:"
                " remove the names that no service was started with"
            )
        log = self.path.with_name(f"{self.path.name}-wal")
        if (status is None or not status.st_size) and log.exists() and log.stat().st_size:
            raise StoreError(f"{self.path} is missing or empty, and {log.name} of an earlier file is there")

    def _prepare(self) -> None:
        """Have the tables of this version, and have them checked."""
        try:
            check_journal(self.path)
        except StoreError as error:
            raise StoreError(f"{error}; {_readable_events(self.path)}") from None
        connection = self.connect()
        try:
            if not self._version(connection):
                self.make_tables(connection)
        finally:
            connection.close()
        if self.check is not None:
            self.check(self.path)

    def _check_layout(self, connection: SqliteConnection) -> None:
        """Raise unless a file has exactly the tables of this version."""
        if not self._version(connection):
            raise StoreError(f"{self.path} holds no store of decisions yet: start the service on it once")
        fresh = sqlite3.connect(":memory:", isolation_level=None)
        try:
            for statement in self.tables:
                fresh.execute(statement)
            expected = fresh.execute(SCHEMA).fetchall()
        finally:
            fresh.close()
        if connection.execute(SCHEMA) != expected:
            raise StoreError(f"{self.path} is damaged: its tables are not described as they were made")

    def _version(self, connection: SqliteConnection) -> int:
        """Return the version of the tables: that of this release, or 0 for an empty file; else StoreError."""
        try:
            ((application,),) = connection.execute("PRAGMA application_id")
            ((version,),) = connection.execute("PRAGMA user_version")
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_schema")
        except UnavailableError as error:
            raise StoreError(f"{self.path} is damaged or not a store of decisions: {error}") from None
        if application != APPLICATION and (application or tables):
            raise StoreError(f"{self.path} is a database of something else")
        return self.check_version(version)

    def connect(self) -> SqliteConnection:
        """Connect for writing, or only for reading."""
        connection = SqliteConnection(self.path, synchronous=self._synchronous)
        connection.inode = None if self._lock is None else self._lock.inode
        return connection

    def reader(self, *, frozen: bool = False) -> SqliteConnection:
        """Connect for reading; frozen, all that is read is of one moment."""
        return SqliteConnection(self.path, frozen=frozen)

    def index_trace(self, *, thorough: bool = False) -> int:
        """Return the trace of the index by key, whose order is checked.

        Thoroughly, SQLite checks all its structures as well.
        """
        connection = self.reader(frozen=True)
        try:
            if thorough:
                ((message,),) = connection.execute("PRAGMA integrity_check(1)")
                if message != "ok":
                    raise StoreError(f"the store is damaged: {message}")
            keys = "SELECT key, seq FROM events INDEXED BY events_by_key WHERE key IS NOT NULL"
            cursor, trace, last = connection.raw.execute(keys), 0, ""
            while part := cursor.fetchmany(KEYS_TOGETHER):
                keys_of_part = [key for key, _ in part]
                if keys_of_part[0] < last or sorted(keys_of_part) != keys_of_part:
                    raise StoreError(f"{self.path} is damaged: its index by key is out of order")
                trace, last = trace + key_trace(part), keys_of_part[-1]
            return trace
        except (sqlite3.Error, TypeError, OverflowError) as error:
            raise StoreError(f"{self.path} is damaged: {error}") from None
        finally:
            connection.close()

    def release(self) -> None:
        """Let other processes write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

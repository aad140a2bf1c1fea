"""SQLite: one file in WAL mode, synchronous FULL, locked by the one process that writes to it."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits_service.store import sql
from invariant_bandits_service.store.sql import (
    Connection,
    Database,
    StoreError,
    UnavailableError,
)

HEADER = 32
"""Bytes at the beginning of a write-ahead log, see SQLite's file format."""
FRAME_HEADER = 24
"""Bytes before every page in it."""
MAGIC = 0x377F0682
"""Followed by one that says that words are big-endian."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


def check_journal(path: Path) -> None:
    """Raise StoreError if the log beside a SQLite file that no process writes to was damaged.

    SQLite takes a damaged frame for the end of the log. It is damage if one flipped bit explains it, or if a
    transaction was written after one that ended behind it; else it is a write that was torn at the end.
    """
    log = path.with_name(f"{path.name}-wal")
    content = (
        np.fromfile(log, dtype=np.uint8)
        if log.exists()
        else np.zeros(0, dtype=np.uint8)
    )
    if not content.any():
        return
    if len(content) < HEADER:
        raise StoreError(f"{log} is damaged: its header is not whole")
    # big-endian words: magic, version, page size, checkpoint, two salts, two checksums
    big = content[:HEADER].view(">u4").astype(np.uint32)
    order = ">u4" if big[0] == MAGIC + 1 else "<u4"
    size = int(big[2])
    salts = big[4:6]
    stored = big[6:8]
    header_words = content[:24].view(order).astype(np.uint32)
    expected_sums = header_words @ checksum_coefficients(6)[0]
    is_page_size = size >= 512 and not size & (size - 1)
    is_log = int(big[0]) in (MAGIC, MAGIC + 1) and is_page_size
    if not is_log or (stored != expected_sums).any():
        raise StoreError(f"{log} is damaged: its header does not match its checksum")
    of_words, carried = checksum_coefficients(2 + size // 4)
    frame = FRAME_HEADER + size
    whole = (len(content) - HEADER) // frame  # the last frame may be torn
    frames = content[HEADER : HEADER + whole * frame].reshape(-1, frame)
    heads = frames[:, :FRAME_HEADER].copy().view(">u4").astype(np.uint32)
    covered = np.concatenate([frames[:, :8], frames[:, FRAME_HEADER:]], axis=1).view(
        order
    )
    sums = np.vstack([stored, heads[:, 4:6]])  # before each frame, and after the last
    # every checksum goes on from the one before it
    expected = covered.astype(np.uint32) @ of_words + sums[:-1] @ carried
    follows = (expected == sums[1:]).all(axis=1)
    ours = (heads[:, 2:4] == salts).all(axis=1)
    if (follows & ours).all():
        return
    bad = int(np.argmin(follows & ours))
    later = (follows & ours)[1:] & (ours & (heads[:, 1] != 0))[:-1]
    if later[bad + 1 :].any() or _is_flipped(
        sums[bad + 1], expected[bad], heads[bad, 2:4] ^ salts, of_words
    ):
        damage = f"damaged in frame {bad + 1}: events that were acknowledged are in it"
        raise StoreError(f"{log} is {damage}")


def _is_flipped(stored: Words, expected: Words, salts: Words, of_words: Words) -> bool:
    """Return whether one flipped bit explains a frame: of its salts, of its checksum, or of its words."""
    difference = stored - expected
    if salts.any() or not difference.any():
        return not difference.any() and _bits(salts) == 1
    powers = (np.uint32(1) << np.arange(32, dtype=np.uint32))[:, None, None]
    changes = powers * of_words[None]  # (32, words, 2)
    of_a_word = (changes == difference).all(axis=2) | (changes == -difference).all(
        axis=2
    )
    return _bits(stored ^ expected) == 1 or bool(of_a_word.any())


def checksum_coefficients(words: int) -> tuple[Words, Words]:
    """Return what each word (words, 2), and the checksum before them (2, 2), add to a checksum.

    Over pairs of words the checksum is s0 += word + s1, s1 += word + s0: its coefficients are
    Fibonacci numbers modulo 2^32.
    """
    # (s0, s1) before a pair of words -> after it
    step = np.array([[1, 1], [1, 2]], dtype=np.uint32)
    pair = np.array([[1, 1], [0, 1]], dtype=np.uint32)
    after = np.eye(2, dtype=np.uint32)
    rows = []
    for _ in range(words // 2):
        rows.append(pair @ after)
        after = step @ after
    return np.concatenate(rows[::-1]), after


def _bits(words: Words) -> int:
    """Return how many bits are set."""
    return int(np.unpackbits(words.view(np.uint8)).sum())


_locked_files: set[tuple[int, int]] = set()
"""Device and inode of each file that this process has locked."""


class FileLock:
    """The lock of the one process that writes to a file.

    A file that does not exist is made, for its owner only.

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
        in_use = StoreError(f"{path} is in use by another process")
        if path.exists() and _inode_at(path) in _locked_files:
            raise in_use
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be written to: {error.strerror}") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise in_use from None
        self.inode = _inode_at(self._handle)
        _locked_files.add(self.inode)

    def release(self) -> None:
        """Let other processes write."""
        _locked_files.discard(self.inode)
        os.close(self._handle)


def is_in_use(path: Path) -> bool:
    """Whether a process has a file open for writing. SQLite must not have it open in this process."""
    if _inode_at(path) in _locked_files:
        return True
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _inode_at(path: Path | int) -> tuple[int, int]:
    """Return which file a path or a handle leads to."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise StoreError(f"{path} is gone: {error.strerror}") from None
    return status.st_dev, status.st_ino


APPLICATION = 0x1B5D0001
"""Marks the files of this product (SQLite's application_id)."""
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
CHECKPOINT_EVERY = 4_000
"""Pages of the WAL file after which a commit also copies them to the main file: one in several hundred."""
LARGEST_JOURNAL = 64 << 20
"""The WAL file is cut back to this many bytes."""


NOT_ALLOWED = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
"""Names of errors that say nothing about the content of a file."""


class SqliteConnection(Connection):
    """A connection to a SQLite file, see `Connection`; it knows the file by its inode if it writes."""

    begins = "BEGIN IMMEDIATE"
    locks = ""

    def __init__(
        self, path: Path, *, writing: bool = False, frozen: bool = False
    ) -> None:
        self.name = str(path)
        self._path = path
        self._frozen = frozen
        self._log = path.with_name(f"{path.name}-wal")
        self.inode: tuple[int, int] | None = None
        self._log_inode: tuple[int, int] | None = None
        address = str(path) if writing else f"{path.as_uri()}?mode=ro"
        options: dict[str, Any] = {
            "isolation_level": None,
            "check_same_thread": False,
            "timeout": 10.0,
        }
        try:
            self.raw = sqlite3.connect(address, uri=not writing, **options)
        except sqlite3.Error as error:
            raise UnavailableError(str(error)) from None
        if writing:
            self.execute("PRAGMA journal_mode = WAL")
            self.execute("PRAGMA synchronous = FULL")
            self.execute(f"PRAGMA journal_size_limit = {LARGEST_JOURNAL}")
            self.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_EVERY}")
            # what is erased leaves no bytes in free pages
            self.execute("PRAGMA secure_delete = ON")
        if frozen:
            self.execute("BEGIN")

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement and return its rows."""
        try:
            return list(self.raw.execute(sql, values))
        except sqlite3.Error as error:
            raise self._translated(error) from None

    def _translated(self, error: sqlite3.Error) -> Exception:
        """Return what an error means: it may pass, unless it is damage.

        A frozen state does not change any more, so an error in it is damage.
        """
        if getattr(error, "sqlite_errorname", "").startswith(NOT_ALLOWED):
            needed = "the file and its folder must be writable, also to be read"
            return StoreError(f"{self._path} cannot be opened: {error}; {needed}")
        if (
            isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError)
            and not self._frozen
        ):
            return UnavailableError(str(error))
        return StoreError(f"{self._path} is damaged: {error}")

    def begin(self, *, held: bool) -> sql.Head:
        """Begin a transaction, in the file that was opened."""
        if self.inode is not None and _inode_at(self._path) != self.inode:
            raise StoreError(
                f"{self._path} is another file than the one that was opened"
            )
        log = self._log
        if self._log_inode is not None and (
            not os.path.exists(log) or _inode_at(log) != self._log_inode
        ):
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raise StoreError(
                f"{log} was removed while it was in use; what it held was saved to {self._path}"
            )
        head = super().begin(held=held)
        self._log_inode = self._log_inode or _inode_at(log)
        return head

    def insert(self, rows: Sequence[sql.Row], head: sql.Head) -> None:
        """Add rows, and move the end of the chain."""
        try:
            self.raw.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise self._translated(error) from None
        self.execute("UPDATE head SET seq = ?, digest = ?", *head)


class SqliteDatabase(Database):
    """A store in one SQLite file, see `Database`. A second process that wants to write to it is refused.

    Parameters
    ----------
    path : str
        The file; made if it does not exist.
    options
        See `Database`. `check` is called with the path while no other process can write, before a
        connection is open: it may fork.
    """

    shared = False
    shrink = ("VACUUM",)
    scrub = ("PRAGMA wal_checkpoint(TRUNCATE)",)
    structures = "PRAGMA integrity_check(1)"
    tables = (
        *(
            statement.format(integer="INTEGER", key="TEXT", blob="BLOB")
            for statement in sql.TABLES
        ),
        f"PRAGMA application_id = {APPLICATION}",
        f"PRAGMA user_version = {sql.LAYOUT}",
    )

    def __init__(self, path: str, **options: Any) -> None:
        self.path = Path(os.path.realpath(path))
        super().__init__(self.path, str(self.path), **options)
        self._lock: FileLock | None = None

    def open(self) -> Connection:
        """Take the lock, make or check the tables, and connect."""
        if not self.writing and not self.path.is_file():
            raise StoreError(f"{self.path} does not exist")
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"{self.path} is not a file")
        self._check_names()
        if self.writing:
            self._lock = FileLock(self.path)
            check_journal(self.path)
            with closing(self.connect()) as connection:
                if not self._version(connection):
                    self.make_tables(connection)
            if self.check is not None:
                self.check(self.path)
        return super().open()

    def _check_names(self) -> None:
        """Refuse a file that is not the one its write-ahead log belongs to.

        SQLite finds the log by its name.
        """
        status = self.path.stat() if self.path.exists() else None
        if status is not None and status.st_nlink > 1:
            names = f"{status.st_nlink} names (hard links), and only one of them has its last events"
            raise StoreError(
                f"{self.path} has {names}: remove those that no service was started with"
            )
        log = self.path.with_name(f"{self.path.name}-wal")
        if (
            (status is None or not status.st_size)
            and log.exists()
            and log.stat().st_size
        ):
            raise StoreError(
                f"{self.path} is missing or empty, and {log.name} of an earlier file is there"
            )

    def prepare(self, connection: SqliteConnection) -> None:
        """Raise unless a file has exactly the tables of this version."""
        if not self._version(connection):
            raise StoreError(sql.NO_STORE.format(self.path))
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
            for statement in self.tables:
                fresh.execute(statement)
            expected = fresh.execute(SCHEMA).fetchall()
        if connection.execute(SCHEMA) != expected:
            raise StoreError(
                f"{self.path} is damaged: its tables are not described as they were made"
            )

    def _version(self, connection: SqliteConnection) -> int:
        """Return the version of the tables: that of this release, or 0 for an empty file; else StoreError."""
        try:
            ((application,),) = connection.execute("PRAGMA application_id")
            ((version,),) = connection.execute("PRAGMA user_version")
            ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_schema")
        except UnavailableError as error:
            raise StoreError(
                f"{self.path} is damaged or not a store of decisions: {error}"
            ) from None
        if application != APPLICATION and (application or tables):
            raise StoreError(f"{self.path} is a database of something else")
        return self.check_version(version)

    def connect(
        self, *, reading: bool = False, frozen: bool = False
    ) -> SqliteConnection:
        """Connect, see `Database`."""
        if reading:
            return SqliteConnection(self.path, frozen=frozen)
        connection = SqliteConnection(self.path, writing=self.writing)
        connection.inode = None if self._lock is None else self._lock.inode
        return connection

    def key_counts(self, between: bool) -> tuple[str, ...]:
        """Return queries that count keyed events in the table, and in the index."""
        if not between:
            count = "SELECT count(*) FROM events {} WHERE key IS NOT NULL"
            return count.format("NOT INDEXED"), count.format("INDEXED BY events_by_key")
        count = (
            "SELECT count(*) FROM events AS row NOT INDEXED "
            "WHERE key IS NOT NULL AND seq >= ? AND seq < ?"
        )
        entry = "SELECT 1 FROM events INDEXED BY events_by_key WHERE key = row.key AND seq = row.seq"
        return count, f"{count} AND EXISTS ({entry})"

    def release(self) -> None:
        """Let other processes write."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

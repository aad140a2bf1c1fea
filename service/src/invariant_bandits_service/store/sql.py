"""The store: events in a chain with checksums, contents by their SHA-256, snapshots.

The SQL is what SQLite and PostgreSQL both run.

One process learns; any number read. What differs between the two databases is a `Database`: how to connect,
to lock the end of the chain, and to make the tables.
"""

from __future__ import annotations

import math
import secrets
import sqlite3
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from invariant_bandits.storage import FileError

SIZE = 16
"""Bytes of a digest in a row."""
START = b"\0" * SIZE
"""The digest before the first row."""
NUMBERS = struct.Struct("<QQI")
"""Numbers of an event and its batch, and length of its key, as the digests cover them."""


class StoreError(FileError):
    """A store that is damaged, foreign, in use elsewhere or too new."""


class EmptyStoreError(StoreError):
    """A database that does not hold a store yet."""


class UnreachableError(StoreError):
    """A store that cannot be read at the moment; nothing is known about what it holds."""


class UnavailableError(Exception):
    """The store cannot take events at the moment (full, unreachable); nothing was acknowledged."""


class Row(NamedTuple):
    """An event as it is stored.

    Attributes
    ----------
    seq : int
        Its number, without gaps.
    batch : int
        Number of the first event that was committed with it: decisions of a batch see the state before it.
    key : str or None
        Of the decision it belongs to, see `decision_key`.
    body : bytes
        The event, and after it the digest of the chain up to this row.
    """

    seq: int
    batch: int
    key: str | None
    body: bytes

    @property
    def event(self) -> bytes:
        """The event without the digest."""
        return self.body[:-SIZE]

    @property
    def digest(self) -> bytes:
        """Of the chain up to this row."""
        return self.body[-SIZE:]

    @property
    def is_erased(self) -> bool:
        """Whether the event was erased: a checksum of what is left replaces it."""
        return (
            len(self.body) == 2 * SIZE
            and self.key is None
            and self.body == erased_body(self)
        )


def erased_body(row: Row) -> bytes:
    """Return what is left of a row whose event is erased.

    It is the digest, from which the chain goes on, after a checksum of this digest with the row's
    numbers.
    """
    return link(row.digest, row.seq, row.batch, None, b"erased") + row.digest


class Cut(NamedTuple):
    """What is to be removed from a store.

    Attributes
    ----------
    first : int
        All events before this number; they must end with a batch.
    base : int
        A replay begins with the state after so many events.
    snapshot : bytes or None
        This state; None if the store has it as a snapshot.
    erased : sequence of int
        Numbers of single events before `base` that are erased.
    without_trace : bool
        Whether contents go as well that a replay from `base` on does not need.
    """

    first: int
    base: int
    snapshot: bytes | None = None
    erased: Sequence[int] = ()
    without_trace: bool = False


class Head(NamedTuple):
    """The end of the chain: how many events there ever were, and the digest after the last."""

    seq: int
    digest: bytes


class OvertakenError(Exception):
    """Other processes have appended since; nothing was stored, and they cannot append before the next call.

    Parameters
    ----------
    rows : list of Row
        What they appended.
    """

    def __init__(self, rows: list[Row]) -> None:
        super().__init__(f"{len(rows)} events were appended by others")
        self.rows = rows


def extend_chain(head: Head, events: Iterable[tuple[str | None, bytes]]) -> list[Row]:
    """Return the rows of a batch of events (key, event) after the end of a chain."""
    rows: list[Row] = []
    digest = head.digest
    for seq, (key, event) in enumerate(events, start=head.seq):
        digest = link(digest, seq, head.seq, key, event)
        rows.append(Row(seq, head.seq, key, event + digest))
    return rows


def link(before: bytes, seq: int, batch: int, key: str | None, event: bytes) -> bytes:
    """Return the digest of the chain up to an event."""
    name = b"-" if key is None else b"=" + key.encode()
    return sha256(
        b"".join((before, NUMBERS.pack(seq, batch, len(name)), name, event))
    ).digest()[:SIZE]


def check_chain(
    rows: Iterable[tuple[int, int, str | None, bytes]], before: bytes, first: int
) -> bytes:
    """Follow the chain over rows from number `first`; return its digest at the end, or raise StoreError."""
    for expected, row in enumerate(rows, first):
        seq, batch, key, body = row
        if seq != expected:
            raise StoreError(f"event {expected} is missing: the store is damaged")
        try:
            digest = link(before, seq, batch, key, body[:-SIZE])
            before = body[-SIZE:] if len(body) > SIZE else b"-"
            is_whole = digest == before or Row(*row).is_erased
        except (TypeError, ValueError, AttributeError, struct.error):
            # damage can make a text of a number
            is_whole = False
        if not is_whole:
            raise StoreError(
                f"event {seq} is damaged: its checksum does not match its content"
            )
    return before


def snapshot_digest(seq: int, body: bytes) -> bytes:
    """Return the checksum of a snapshot with its number."""
    return sha256(seq.to_bytes(8, "little", signed=True) + body).digest()


def seed_with_checksum(seed: int) -> str:
    """Return a seed as it is stored."""
    return f"{seed} {sha256(str(seed).encode()).hexdigest()[:16]}"


def check_seed(stored: str, name: str) -> int:
    """Return the seed if its checksum fits; `name` of the store is for messages.

    >>> check_seed(seed_with_checksum(7), "the store")
    7
    """
    number = stored.partition(" ")[0]
    if not number.isdigit() or seed_with_checksum(int(number)) != stored:
        raise StoreError(
            f"{name} is damaged: its seed is missing or does not match its checksum"
        )
    return int(number)


# -- databases --

LAYOUT = 5
"""Version of the tables; a store of another version is refused."""
TABLES = tuple(Path(__file__).with_name("tables.sql").read_text().split(";\n")[:-1])
"""Statements that make the tables, with the names of types in a database."""
ROW = "SELECT seq, batch, key, body FROM events"
ROWS_BETWEEN = f"{ROW} WHERE seq >= ? AND seq < ? ORDER BY seq"
CHUNK = 4096
"""Rows that are read at a time: a reader that takes long never holds up the journal of the writer."""
SNAPSHOT = """INSERT INTO snapshots VALUES (?, ?, ?)
    ON CONFLICT (seq) DO UPDATE SET body = excluded.body, digest = excluded.digest"""

NO_STORE = "{} holds no store of decisions yet: start the service on it once"
CONTENT = "INSERT INTO contents VALUES (?, ?) ON CONFLICT DO NOTHING"


class Connection(ABC):
    """A connection to a database, with `?` for values.

    Every method raises UnavailableError where it may succeed later, and StoreError for damage.

    Attributes
    ----------
    name : str
        The database for messages.
    begins, locks : str
        How a transaction begins that will write, and how it locks the row with the end of the chain.
    epoch : int or None
        Number of this process's turn, where those that learn take turns.
    """

    raw: Any
    name: str
    begins: ClassVar[str]
    locks: ClassVar[str]
    epoch: int | None = None

    @abstractmethod
    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement, in a transaction of its own unless one was begun, and return its rows."""

    def begin(self, *, held: bool) -> Head:
        """Begin a transaction in which no other process can move the end of the chain.

        `held`: go on with the one that is open. StoreError if another process took the turn.
        """
        if not held:
            self.execute(self.begins)
        heads = self.execute(f"SELECT seq, digest, epoch FROM head{self.locks}")
        if len(heads) != 1:
            raise StoreError(f"{self.name} is damaged: it has {len(heads)} ends")
        *head, epoch = heads[0]
        if epoch != (self.epoch or epoch):
            raise StoreError(f"{self.name} was taken over by another process")
        return Head(*head)

    @abstractmethod
    def insert(self, rows: Sequence[Row], head: Head) -> None:
        """Add rows, and move the end of the chain."""

    def commit(self) -> None:
        """End the transaction: all of it is durable."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """End the transaction without an effect; errors are left to the next use."""
        with suppress(UnavailableError, StoreError):
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Let go."""
        self.raw.close()


class Database(ABC):
    """What is particular to SQLite, or to PostgreSQL.

    Parameters
    ----------
    address : Path or str
        The file, or the address of the database.
    name : str
        The same for messages, without secrets.
    writing, learning : bool
        Whether events will be added, and whether this is the one process that learns.
    check : callable or None
        Called with the address before the store is used; raises StoreError if it is damaged.
    wait : callable or None
        Called again and again while another process learns in a shared store, which is refused if this is
        None.

    Attributes
    ----------
    shared : bool
        Whether processes that only decide append as well.
    shrink, scrub : tuple of str
        Statements that give back the space of what was removed, and that remove its traces.
    tables : tuple of str
        Statements that make the tables, and mark them as those of this release.
    structures : str
        Query by which the database checks itself and answers "ok"; empty if it has none.
    """

    shared: ClassVar[bool]
    shrink: ClassVar[tuple[str, ...]]
    scrub: ClassVar[tuple[str, ...]]
    tables: ClassVar[tuple[str, ...]]
    structures: ClassVar[str] = ""

    def __init__(
        self,
        address: Path | str,
        name: str,
        *,
        writing: bool = False,
        learning: bool = True,
        check: Callable[[Path | str], object] | None = None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.name = name
        self.writing = writing
        self.learning = writing and learning
        self.check = check
        self.wait = wait

    def open(self) -> Connection:
        """Take the lock of the writer if there will be one, make or check the tables, and connect."""
        connection = self.connect()
        try:
            self.prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @abstractmethod
    def prepare(self, connection: Any) -> None:
        """Check the tables of a new connection, or make them."""

    @abstractmethod
    def connect(self, *, reading: bool = False, frozen: bool = False) -> Connection:
        """Connect for what `open` was called for, or only for reading.

        With `frozen`, all that is read is of one moment.
        """

    def resume(self, connection: Any) -> None:  # noqa: B027 - the lock of a file is never lost
        """Take the turn again after a failure; StoreError if another process has taken over meanwhile."""

    def key_counts(self, between: bool) -> tuple[str, ...]:
        """Return queries that have the same answer unless an index is damaged.

        With `between` they take the numbers of two events. There are none if the database checks its
        indexes by itself.
        """
        return ()

    def release(self) -> None:  # noqa: B027 - a turn ends with its connection
        """Let go of the lock."""

    def make_tables(self, connection: Connection) -> None:
        """Make the tables and choose the seed, in one transaction.

        If it fails, nothing stays of it once the connection is closed.
        """
        connection.execute("BEGIN")
        for statement in self.tables:
            connection.execute(statement)
        connection.execute("INSERT INTO head VALUES (0, ?, 0)", START)
        seed = seed_with_checksum(secrets.randbits(63))
        connection.execute("INSERT INTO meta VALUES ('seed', ?)", seed)
        connection.commit()

    def check_version(self, version: int) -> int:
        """Return the version of the tables, 0 if there are none; StoreError if another release made them."""
        if version not in (0, LAYOUT):
            release = "a newer" if version > LAYOUT else "an earlier"
            needed = f"(tables {version}, this release needs {LAYOUT})"
            raise StoreError(f"{self.name} was written by {release} release {needed}")
        return version


class SqlStore:
    """Events, contents and snapshots in a database.

    Parameters
    ----------
    database : Database

    Attributes
    ----------
    seed : int
        Number from 0 to 2^63 − 1 that random draws are a function of; chosen when the store was made.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.path = database.address
        self.shared = database.shared
        self._local = threading.local()
        self._readers: list[Connection] = []
        self._is_held = self._is_closed = False
        self._known = Head(0, START)
        """The end of the chain as it was followed; it can never have an earlier or another one."""
        try:
            self._writer = database.open()
            seeds = self._writer.execute("SELECT value FROM meta WHERE name = 'seed'")
            self.seed = check_seed(str(seeds[0][0]) if seeds else "", database.name)
        except UnavailableError as error:
            self.close()
            raise UnreachableError(f"{database.name} cannot be used: {error}") from None
        except BaseException:
            self.close()
            raise

    # -- reading --

    def read(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of a query by a connection of this thread, which never waits for the writer.

        A connection that was lost is made anew once.
        """
        if self._is_closed:
            raise UnavailableError(f"{self.database.name} was closed")
        reader: Connection | None = getattr(self._local, "reader", None)
        is_new = reader is None
        if reader is None:
            reader = self._local.reader = self.database.connect(reading=True)
            self._readers.append(reader)
        try:
            return reader.execute(sql, *values)
        except UnavailableError:
            self._drop_reader()
            if is_new:
                raise
        return self.read(sql, *values)

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Have all that this thread reads inside be of one moment, in which failures are damage."""
        reader = self._local.reader = self.database.connect(reading=True, frozen=True)
        self._readers.append(reader)
        try:
            yield
        finally:
            self._drop_reader()

    def _drop_reader(self) -> None:
        """Close the connection of this thread; the next look makes another one."""
        reader = getattr(self._local, "reader", None)
        self._local.reader = None
        if reader in self._readers:
            self._readers.remove(reader)
            reader.close()

    def head(self) -> Head:
        """Return the end of the chain as it is stored."""
        known = self._known.seq  # before the look: the writer may go on meanwhile
        heads = self.read("SELECT seq, digest FROM head")
        if len(heads) != 1:
            raise StoreError(
                f"{self.database.name} is damaged: it has {len(heads)} ends"
            )
        head = Head(*heads[0])
        self._check_present(head, known)
        return head

    def _check_present(self, head: Head, known: int) -> None:
        """Raise StoreError if the database went back to a time before events that were known."""
        if head.seq < known:
            lost = f"it has {head.seq:,} events, and events {head.seq:,} to {known - 1:,} are lost"
            raise StoreError(f"{self.database.name} went back in time: {lost}")

    def know(self, seq: int) -> None:
        """Note that the chain has so many events, so that it is noticed if it goes back to a time before."""
        rows = self.read(f"{ROW} WHERE seq = ?", seq - 1)
        self._known = Head(seq, Row(*rows[0]).digest) if rows else Head(0, START)

    def next_rows(self, most: int = CHUNK) -> list[Row]:
        """Return rows after the end that was known, which becomes theirs."""
        rows = [
            Row(*row)
            for row in self.read(f"{ROWS_BETWEEN} LIMIT {most}", self._known.seq, 2**62)
        ]
        if rows and self._known.seq:
            try:
                check_chain(rows, self._known.digest, self._known.seq)
            except StoreError:
                raise self._other_history() from None
        self.follow(rows)
        return rows

    def follow(self, rows: Sequence[Row]) -> None:
        """Note that the chain was followed to the last of these rows."""
        self._known = Head(rows[-1].seq + 1, rows[-1].digest) if rows else self._known

    def _other_history(self) -> StoreError:
        seq = self._known.seq - 1
        other = (
            f"what follows event {seq:,} does not fit it, so that some events are lost"
        )
        return StoreError(f"{self.database.name} went back in time: {other}")

    def start(self) -> Head:
        """Return the start of the chain: number of the first event that is kept, and the digest before it."""
        cuts = self.read("SELECT first, before FROM cut")
        return Head(*cuts[0]) if cuts else Head(0, START)

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Yield rows from number `first` to before `last`, in order, but for those that were erased."""
        end = 2**62 if last is None else last
        while first < end:
            rows = self.read(f"{ROWS_BETWEEN} LIMIT {CHUNK}", first, end)
            yield from (row for row in map(Row._make, rows) if not row.is_erased)
            if len(rows) < CHUNK:
                return
            first = rows[-1][0] + 1

    def row_from(self, seq: int) -> Row | None:
        """Return the row with a number, or the next one that was not erased."""
        return next(self.rows(seq, seq + 1), None) or next(self.rows(seq + 1), None)

    def erased(self) -> list[int]:
        """Return the numbers of events that were erased."""
        rows = self.read(
            f"{ROW} WHERE key IS NULL AND length(body) = {2 * SIZE} ORDER BY seq"
        )
        return [row.seq for row in map(Row._make, rows) if row.is_erased]

    def of_key(self, key: str) -> list[Row]:
        """Return the rows that belong to the decision with this key, in order."""
        return [
            Row(*row) for row in self.read(f"{ROW} WHERE key = ? ORDER BY seq", key)
        ]

    def keys_from(self, prefix: str) -> set[str]:
        """Return all keys that begin so."""
        after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        keys = self.read(
            "SELECT DISTINCT key FROM events WHERE key >= ? AND key < ?", prefix, after
        )
        return {key for (key,) in keys}

    def is_referred_to(self, first: int, last: int, since: int) -> bool:
        """Return whether decisions have events on both sides.

        That is, one from number `first` to before `last`, and another from number `since` on.
        """
        later = "SELECT 1 FROM events WHERE key = old.key AND seq >= ?"
        query = f"SELECT 1 FROM events AS old WHERE seq >= ? AND seq < ? AND EXISTS ({later}) LIMIT 1"
        return bool(self.read(query, first, last, since))

    def content(self, digest: str) -> bytes:
        """Return a content by its SHA-256 in hexadecimal digits."""
        for (body,) in self.read("SELECT body FROM contents WHERE digest = ?", digest):
            if isinstance(body, bytes) and sha256(body).hexdigest() == digest:
                return body
        name = self.database.name
        raise StoreError(
            f"{name} is damaged: the content {digest} is missing or has another checksum"
        )

    def snapshot_seq(self) -> int | None:
        """Return how many events the newest snapshot holds."""
        return next(iter(self.snapshot_seqs()), None)

    def snapshot_seqs(self) -> list[int]:
        """Return how many events each snapshot holds, the newest first."""
        return [
            seq for (seq,) in self.read("SELECT seq FROM snapshots ORDER BY seq DESC")
        ]

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """Return how many events the newest snapshot holds, and the snapshot."""
        return self.snapshot("ORDER BY seq DESC LIMIT 1")

    def base(self) -> tuple[int, bytes] | None:
        """Return how many events the snapshot holds that a replay begins with, and the snapshot.

        None if the replay begins with the first event.
        """
        return self.snapshot("WHERE seq IN (SELECT base FROM cut)")

    def snapshot(self, which: str, *values: Any) -> tuple[int, bytes] | None:
        """Return the first snapshot that a condition selects, and how many events it holds."""
        for seq, body, digest in self.read(
            f"SELECT seq, body, digest FROM snapshots {which}", *values
        ):
            if not isinstance(body, bytes) or snapshot_digest(seq, body) != digest:
                damage = f"the snapshot after {seq} events does not match its checksum"
                raise StoreError(f"{self.database.name} is damaged: {damage}")
            return seq, body
        return None

    # -- writing --

    @contextmanager
    def _transaction(self) -> Iterator[Head]:
        """Change the store: all of it is durable afterwards, or nothing."""
        try:
            yield self._writer.begin(held=self._is_held)
            self._writer.commit()
            self._is_held = False
        except OvertakenError:
            self._is_held = True
            raise
        except BaseException:
            self._is_held = False
            self._writer.rollback()
            raise

    def abandon(self) -> None:
        """Let other processes append again after OvertakenError, without having appended."""
        if self._is_held:
            self._is_held = False
            self._writer.rollback()

    def append(
        self,
        events: Sequence[tuple[str | None, bytes]],
        contents: Sequence[bytes] = (),
        *,
        seen: int | None = None,
        keys: Sequence[str] | None = None,
        cut: Cut | None = None,
    ) -> list[Row]:
        """Add events as one batch and contents they refer to, and remove others.

        All is durable when this returns; else UnavailableError.

        Parameters
        ----------
        events : sequence of (str or None, bytes)
            Their keys, and the events.
        seen : int or None
            How many events were known when these were proposed. If other processes have added more to a
            shared store, with one of `keys` if those are given, OvertakenError has them. The next call cannot
            be overtaken, and may be without events.
        cut : Cut or None
            What is removed in the same transaction.
        """
        with self._transaction() as head:
            self._check_known(head)
            is_overtaken = seen is not None and head.seq > seen
            if self.shared and is_overtaken and not self._is_held:
                assert seen is not None
                self._check_overtaken(seen, keys)
            for content in contents:
                self._writer.execute(CONTENT, sha256(content).hexdigest(), content)
            rows = extend_chain(head, events)
            if rows:
                self._writer.insert(rows, Head(head.seq + len(rows), rows[-1].digest))
            if cut is not None:
                self._remove(cut)
        return rows

    def _check_known(self, head: Head) -> None:
        """Raise StoreError unless the chain goes on from the end that was known."""
        seq, digest = self._known
        self._check_present(head, seq)
        digests = [head.digest] if head.seq == seq else []
        if seq and head.seq > seq:
            rows = self._writer.execute(f"{ROW} WHERE seq = ?", seq - 1)
            digests = [Row(*row).digest for row in rows]
        if seq and digests and digests != [digest]:  # none: it was removed since
            raise self._other_history()

    def _remove(self, cut: Cut) -> None:
        """Remove events, and snapshots that hold their traces."""
        execute = self._writer.execute
        first = cut.first
        if cut.snapshot is not None:
            execute(
                SNAPSHOT,
                cut.base,
                cut.snapshot,
                snapshot_digest(cut.base, cut.snapshot),
            )
        before = execute("SELECT body FROM events WHERE seq = ?", first - 1)
        digest = before[0][0][-SIZE:] if before else self.start().digest
        execute("DELETE FROM cut")
        execute("INSERT INTO cut VALUES (?, ?, ?)", first, digest, cut.base)
        execute("DELETE FROM events WHERE seq < ?", first)
        execute("DELETE FROM snapshots WHERE seq < ?", cut.base)
        if cut.without_trace:
            execute("DELETE FROM contents")
        for seq in cut.erased:
            (row,) = map(Row._make, execute(f"{ROW} WHERE seq = ?", seq))
            execute(
                "UPDATE events SET key = NULL, body = ? WHERE seq = ?",
                erased_body(row),
                seq,
            )

    def _check_overtaken(self, seen: int, keys: Sequence[str] | None) -> None:
        """Raise with what others have added, if that matters."""
        among, values = (
            ("", []) if keys is None else (" AND key = ANY(?)", [list(keys)])
        )
        rows = self._writer.execute(
            f"{ROW} WHERE seq >= ?{among} ORDER BY seq", seen, *values
        )
        if rows:
            others = [Row(*row) for row in rows]
            if keys is None:
                self.follow(others)
            raise OvertakenError(others)

    def save_snapshot(self, seq: int, body: bytes, *, gap: float = math.inf) -> None:
        """Keep the state after the first `seq` events, and the snapshot before it.

        Of older ones those stay that are `gap` events apart, to which the start of a replay can move.
        """
        with self._transaction():
            self._writer.execute(SNAPSHOT, seq, body, snapshot_digest(seq, body))
            kept = [
                base for (base,) in self._writer.execute("SELECT base FROM cut")
            ] or [0]
            older = self._writer.execute("SELECT seq FROM snapshots ORDER BY seq DESC")
            for (number,) in reversed(older[2:]):
                if number not in kept and number - kept[-1] < gap:
                    self._writer.execute("DELETE FROM snapshots WHERE seq = ?", number)
                else:
                    kept.append(number)

    def copy_to(self, path: Path) -> None:
        """Copy a SQLite file as it is at one moment."""
        with closing(sqlite3.connect(path)) as copy:
            self._writer.raw.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")

    def shrink(self, *, fully: bool = True) -> None:
        """Leave no trace of removed events on the disk, and fully, return their space to the file system."""
        if fully:
            for statement in self.database.shrink:
                self._writer.execute(statement)
        for statement in self.database.scrub:
            self._writer.execute(statement)

    # -- opening and closing --

    def reopen(self) -> None:
        """Connect anew after a failure; StoreError if another process has taken over meanwhile."""
        self._writer.close()
        self._is_held = False
        self._writer = self.database.connect()
        self.database.resume(self._writer)

    def close(self) -> None:
        """Close all connections and release the lock."""
        self._is_closed = True
        for reader in self._readers:
            reader.close()
        if hasattr(self, "_writer"):
            self._writer.close()
        self._readers.clear()
        self.database.release()

"""A store in PostgreSQL: the same chain of events, for services that grow past one machine.

Whoever appends locks the one row that tells where the chain ends, so that it has one order. The process that learns
holds a lock of its session besides, and its turn has a number (epoch) that is compared in the same transaction: a
process that was replaced while it was away can never append again.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from invariant_bandits.optional import require
from invariant_bandits.service.store.base import (
    SEALED,
    START,
    EmptyStoreError,
    Head,
    OvertakenError,
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

SCHEMES = ("postgresql://", "postgres://")
DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
"""Unless the address says otherwise: a server that is gone is noticed within seconds."""
SESSION = (
    "SET synchronous_commit = on",
    "SET idle_in_transaction_session_timeout = '10s'",
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
)
"""A writer that hangs in the middle of a transaction loses its connection instead of holding up all others."""


def is_address(text: str) -> bool:
    """Whether a text names a PostgreSQL database rather than a file."""
    return text.startswith(SCHEMES)


def shown(address: str) -> str:
    """The address without its password and options, for messages.

    >>> shown("postgresql://shop:secret@db.local:5433/decisions?sslmode=require")
    'postgresql://db.local:5433/decisions'
    """
    told = _parts(address)
    port = f":{told['port']}" if told.get("port") else ""
    return f"postgresql://{told.get('host', '')}{port}/{told.get('dbname', '')}"


def connected(address: str) -> Any:
    """A connection in which every statement is a transaction of its own, unless it says BEGIN."""
    psycopg = require("psycopg", "A store in PostgreSQL")
    connection = psycopg.connect(**{**DEFAULTS, **_parts(address)}, autocommit=True)
    for statement in SESSION:
        connection.execute(statement)
    return connection


def _parts(address: str) -> dict[str, Any]:
    psycopg = require("psycopg", "A store in PostgreSQL")
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(address))
    except psycopg.ProgrammingError as error:
        raise StoreError(f"the address of the store cannot be read: {str(error).splitlines()[0]}") from None


class Reading:
    """A connection that only reads, asked as SQLite's are: `?` marks a value."""

    def __init__(self, address: str) -> None:
        self._name = shown(address)
        self._errors = require("psycopg", "A store in PostgreSQL").Error
        try:
            self._connection = connected(address)
            self._connection.execute("SET idle_in_transaction_session_timeout = 0")
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")  # others go on adding
        except self._errors as error:
            raise StoreError(f"{self._name} cannot be read: {first_line(error)}") from None

    def execute(self, asked: str, given: Sequence[Any] = ()) -> Any:
        """The answer to a query, its values in binary form."""
        try:
            return self._connection.execute(asked.replace("?", "%s"), given, binary=True)
        except self._errors as error:
            raise StoreError(f"{self._name} cannot be read: {first_line(error)}") from None

    def close(self) -> None:
        """Let go."""
        self._connection.close()


def first_line(error: BaseException) -> str:
    """What an error of the server says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]


CHUNK = 8192
"""So many rows are fetched at a time."""
ROW = "SELECT seq, batch, key, body FROM events"


class PostgresReading:
    """Events, contents and snapshots in a schema of a PostgreSQL database.

    Parameters
    ----------
    address : str
        `postgresql://user@host/database`, with whatever libpq takes.
    """

    def __init__(self, address: str) -> None:
        self.path, self.name = address, shown(address)
        self._errors = require("psycopg", "A store in PostgreSQL").Error
        self._mine = threading.local()
        self._readers: list[Any] = []
        self._is_closed = False

    def head(self) -> Head:
        """The end of the chain as it is stored."""
        found = self._read("SELECT seq, digest FROM head")
        if len(found) != 1:
            raise StoreError(f"{self.name} is damaged: it has {len(found)} ends")
        return Head(*found[0])

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""
        found = self._read("SELECT first, before FROM cut")
        return Head(*found[0]) if found else Head(0, START)

    def rows(self, first: int = 0, last: int | None = None) -> Iterator[Row]:
        """Rows from number `first` to before `last`, in order."""
        end = 2**62 if last is None else last
        while first < end:
            found = self._read(f"{ROW} WHERE seq >= %s AND seq < %s ORDER BY seq LIMIT {CHUNK}", first, end)
            for one in found:
                yield Row(*one)
            if len(found) < CHUNK:
                return
            first = found[-1][0] + 1

    def of_key(self, key: str) -> list[Row]:
        """Rows that belong to the decision with this key, in order."""
        return [Row(*found) for found in self._read(f"{ROW} WHERE key = %s ORDER BY seq", key)]

    def keys_from(self, prefix: str) -> set[str]:
        """All keys that begin so."""
        asked = "SELECT DISTINCT key FROM events WHERE key >= %s AND key < %s"
        return {key for (key,) in self._read(asked, prefix, after(prefix))}

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256 in hexadecimal digits."""
        found = self._read("SELECT body FROM contents WHERE digest = %s", digest)
        if not found:
            raise StoreError(f"{self.name} is damaged: the content {digest} is missing")
        if hashlib.sha256(found[0][0]).hexdigest() != digest:
            raise StoreError(f"{self.name} is damaged: the content {digest} does not match its checksum")
        return bytes(found[0][0])

    def snapshot_seq(self) -> int | None:
        """How many events the newest snapshot holds."""
        found: int | None = self._read("SELECT max(seq) FROM snapshots")[0][0]
        return found

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot, and how many events it holds."""
        return self._snapshot("ORDER BY seq DESC LIMIT 1")

    def base(self) -> tuple[int, bytes] | None:
        """The snapshot that a replay begins with, and how many events it holds; None: with the first event."""
        return self._snapshot("WHERE seq IN (SELECT base FROM cut)")

    def _snapshot(self, which: str) -> tuple[int, bytes] | None:
        found = self._read(f"SELECT seq, body, digest FROM snapshots {which}")
        if not found:
            return None
        seq, body, digest = found[0]
        if snapshot_digest(seq, body) != digest:
            raise StoreError(f"{self.name} is damaged: the snapshot after event {seq} does not match its checksum")
        return seq, bytes(body)

    def _read(self, asked: str, *given: Any) -> list[Any]:
        """All that is found, by a connection of this thread; one that was lost is made anew once."""
        if self._is_closed:
            raise UnavailableError(f"{self.name} was closed")
        mine = getattr(self._mine, "connection", None)
        for is_last_try in (mine is None, True):
            try:
                if mine is None:
                    mine = self._mine.connection = connected(self.path)
                    self._readers.append(mine)
                return list(mine.execute(asked, given, binary=True).fetchall())
            except self._errors as error:
                self._forget(mine)
                mine = self._mine.connection = None
                if is_last_try:
                    raise UnavailableError(first_line(error)) from None
        raise AssertionError

    def _forget(self, connection: Any) -> None:
        if connection is not None:
            self._readers.remove(connection)
            connection.close()

    def close(self) -> None:
        """Let go of everything."""
        self._is_closed = True
        for connection in self._readers:
            connection.close()
        self._readers.clear()


VERSION = 2
"""Of the layout. Before 2, decisions were found by their id without their model."""

TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE events (seq BIGINT PRIMARY KEY, batch BIGINT NOT NULL, key TEXT, body BYTEA NOT NULL)",
    'ALTER TABLE events ALTER key TYPE TEXT COLLATE "C"',
    "ALTER TABLE events ALTER body SET STORAGE EXTERNAL",
    "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
    "CREATE TABLE seals (first BIGINT PRIMARY KEY, digest BYTEA NOT NULL)",
    "CREATE TABLE contents (digest TEXT PRIMARY KEY, body BYTEA NOT NULL)",
    "CREATE TABLE snapshots (seq BIGINT PRIMARY KEY, body BYTEA NOT NULL, digest BYTEA NOT NULL)",
    "CREATE TABLE cut (first BIGINT NOT NULL, before BYTEA NOT NULL, base BIGINT NOT NULL)",
    "CREATE TABLE head (seq BIGINT NOT NULL, digest BYTEA NOT NULL, epoch BIGINT NOT NULL)",
    "INSERT INTO head VALUES (0, decode(repeat('00', 16), 'hex'), 0)",
)

RECORD = "invariant_bandits_steps"
"""The table with the version of the layout; it marks a schema as ours."""

PRESENT = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid"
    " WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
)
"""Asks for the tables of the schema in use."""


def make(connection: Any, name: str) -> None:
    """Make the tables in an empty schema, in one transaction."""
    if version(connection, name):
        return
    with connection.transaction():
        connection.execute(f"CREATE TABLE {RECORD} (step INTEGER PRIMARY KEY, taken TIMESTAMPTZ)")
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"INSERT INTO {RECORD} VALUES (%s, now())", (VERSION,))


def check(connection: Any, name: str) -> None:
    """Raise unless a schema has the tables of this release."""
    if not version(connection, name):
        raise EmptyStoreError(f"{name} holds no store of decisions yet: start the service on it once")


def version(connection: Any, name: str) -> int:
    """The version of the layout of a schema: that of this release, or 0 for an empty schema; else StoreError."""
    (schema,) = connection.execute("SELECT current_schema()").fetchone()
    if schema is None:
        raise StoreError(f"{name}: the schema that its search_path names does not exist")
    tables = {str(one) for (one,) in connection.execute(PRESENT)}
    if RECORD not in tables:
        if tables:
            raise StoreError(f"{name} holds tables of something else: a store needs a database or schema of its own")
        return 0
    (taken,) = connection.execute(f"SELECT coalesce(max(step), 0) FROM {RECORD}").fetchone()
    if taken != VERSION:
        release = "a newer" if taken > VERSION else "an earlier"
        raise StoreError(f"{name} was written by {release} release (tables {taken}, this release needs {VERSION})")
    return int(taken)


LOCK = 0x1B5D
"""Advisory locks of this product; the second half of their number is the schema's."""
GRACE = 1.0
"""Seconds that a server has to notice that the process before has ended."""
END = "SELECT seq, digest, epoch FROM head FOR UPDATE"
ADD = """WITH added AS
    (INSERT INTO events SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bytea[]))
    UPDATE head SET seq = %s, digest = %b"""
KEEP = "INSERT INTO contents SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT DO NOTHING"
SEAL = "INSERT INTO seals VALUES (%s, %s) ON CONFLICT (first) DO UPDATE SET digest = excluded.digest"
SNAPSHOT = """INSERT INTO snapshots VALUES (%s, %b, %b)
    ON CONFLICT (seq) DO UPDATE SET body = excluded.body, digest = excluded.digest"""


class PostgresStore(PostgresReading):
    """Events in a schema of a PostgreSQL database.

    Parameters
    ----------
    address : str
        `postgresql://user@host/database`, with whatever libpq takes; tables are made in the first schema of its
        search path if they are not there.
    writing : bool
        Whether events will be added.
    learning : bool
        Whether this is the one process that learns; of those that only decide there may be many.
    wait : callable or None
        Called again and again while another process learns, which is refused if this is None.
    """

    shared = True

    def __init__(
        self,
        address: str,
        *,
        writing: bool = True,
        learning: bool = True,
        wait: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(address)
        self.writing, self.learning = writing, writing and learning
        self._is_open = False
        self._epoch: int | None = None
        try:
            self._connection = connected(address)
            if writing:
                self._check_server()
            if self.learning:
                self._take_turn(wait)
            check(self._connection, self.name)
            self.seed = self._sown()
        except self._errors as error:
            self.close()
            raise StoreError(f"{self.name} cannot be used: {first_line(error)}") from None
        except BaseException:
            self.close()
            raise

    def _check_server(self) -> None:
        if self._connection.execute("SHOW fsync").fetchone()[0] != "on":
            raise StoreError(f"{self.name} runs with fsync off: what it acknowledges could be lost")

    def _sown(self) -> int:
        """The seed with its checksum; chosen if there is none and nothing has happened yet."""
        kept = self._connection.execute("SELECT value FROM meta WHERE name = 'seed'").fetchone()
        if kept is None:
            (seq,) = self._connection.execute("SELECT seq FROM head").fetchone()
            if not self.learning or seq:
                raise StoreError(f"{self.name} is damaged: it has no seed")
            seed = secrets.randbits(63)
            self._connection.execute("INSERT INTO meta VALUES ('seed', %s)", (marked(seed),))
            return seed
        return unmarked(str(kept[0]), self.name)

    # -- whose turn it is --

    def _take_turn(self, wait: Callable[[], None] | None) -> None:
        """Become the one process that learns; the turn is lost with the connection."""
        end = time.monotonic() + GRACE
        while not self._locked():
            if wait is None and time.monotonic() > end:
                raise StoreError(f"{self.name} is in use by another process")
            (wait or _shortly)()
        make(self._connection, self.name)
        (self._epoch,) = self._connection.execute("UPDATE head SET epoch = epoch + 1 RETURNING epoch").fetchone()

    def _locked(self) -> bool:
        found = self._connection.execute(f"SELECT pg_try_advisory_lock({LOCK}, hashtext(current_schema()))").fetchone()
        return bool(found[0])

    def _check_epoch(self, found: int) -> None:
        if self._epoch is not None and found != self._epoch:
            raise StoreError(f"{self.name} was taken over by another process")

    @contextmanager
    def _changing(self) -> Iterator[Head]:
        """One transaction, in which nobody else can move the end of the chain: durable afterwards, or nothing of it."""
        try:
            found = self._connection.execute(END if self._is_open else f"BEGIN; {END}")
            if not self._is_open:
                found.nextset()
            seq, digest, epoch = found.fetchone()
            self._check_epoch(epoch)
            yield Head(seq, digest)
            self._connection.execute("COMMIT")
            self._is_open = False
        except OvertakenError:
            self._is_open = True
            raise
        except self._errors as error:
            self._give_up()
            raise UnavailableError(first_line(error)) from None
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        self._is_open = False
        with suppress(self._errors):  # `reopen` will tell
            self._connection.execute("ROLLBACK")

    def abandon(self) -> None:
        """Let others append again after OvertakenError, without having appended."""
        if self._is_open:
            self._give_up()

    # -- events --

    def append(
        self,
        events: Sequence[tuple[str | None, bytes]],
        contents: Sequence[bytes] = (),
        *,
        seen: int | None = None,
        keys: Sequence[str] | None = None,
    ) -> list[Row]:
        """Add events as one batch, and contents they refer to; durable when this returns, or UnavailableError.

        Parameters
        ----------
        seen : int or None
            How many events were known when these were proposed. If others have added more, with one of `keys` if
            those are given, OvertakenError tells them; the next call cannot be overtaken, and may be without events.
        """
        with self._changing() as (seq, digest):
            if seen is not None and seq > seen and not self._is_open:
                self._tell_others(seen, keys)
            rows = extended(seq, digest, events)
            if contents:
                digests = [hashlib.sha256(content).hexdigest() for content in contents]
                self._connection.execute(KEEP, (digests, list(contents)))
            if rows:
                columns = [list(column) for column in zip(*rows, strict=True)]
                self._connection.execute(ADD, [*columns, seq + len(rows), rows[-1].digest])
                self._seal(seq, seq + len(rows))
        return rows

    def _tell_others(self, seen: int, keys: Sequence[str] | None) -> None:
        """Raise with what others have added, if that matters."""
        given: list[Any] = [seen]
        asked = f"{ROW} WHERE seq >= %s ORDER BY seq"
        if keys is not None:
            asked, given = f"{ROW} WHERE key = ANY(%s) AND seq >= %s ORDER BY seq", [list(keys), seen]
        rows = [Row(*one) for one in self._connection.execute(asked, given, binary=True).fetchall()]
        if rows:
            raise OvertakenError(rows)

    def _seal(self, before: int, after: int) -> None:
        """Seal every stretch that events up to `after` have completed."""
        for stretch in range(before // SEALED, after // SEALED):
            first, last = stretch * SEALED, (stretch + 1) * SEALED
            asked = f"{ROW} WHERE seq >= %s AND seq < %s ORDER BY seq"
            rows = self._connection.execute(asked, (first, last), binary=True).fetchall()
            if rows and rows[0][0] == first:
                self._connection.execute(SEAL, (first, seal(rows)))

    # -- snapshots --

    def save_snapshot(self, seq: int, body: bytes) -> None:
        """Keep the state after the first `seq` events; older snapshots but one are dropped."""
        with self._changing():
            self._connection.execute(SNAPSHOT, (seq, body, snapshot_digest(seq, body)))
            self._connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
                " AND seq NOT IN (SELECT base FROM cut)"
            )

    def cut(self, first: int, seq: int, snapshot: bytes) -> None:
        """Remove all events before number `first` for good; a replay begins with the state after `seq` events."""
        with self._changing():
            (before,) = self._connection.execute("SELECT body FROM events WHERE seq = %s", (first - 1,)).fetchone()
            self._connection.execute(SNAPSHOT, (seq, snapshot, snapshot_digest(seq, snapshot)))
            self._connection.execute("DELETE FROM cut")
            self._connection.execute("INSERT INTO cut VALUES (%s, %b, %s)", (first, before[-len(START) :], seq))
            for table, column, kept in (
                ("events", "seq", first),
                ("seals", "first", first),
                ("snapshots", "seq", seq),
            ):
                self._connection.execute(f"DELETE FROM {table} WHERE {column} < %s", (kept,))

    def shrink(self) -> None:
        """Let the room of what was removed be used again."""
        try:
            self._connection.execute("VACUUM events")
        except self._errors as error:
            raise UnavailableError(first_line(error)) from None

    # -- opening and closing --

    def reopen(self) -> None:
        """Connect anew after a failure; StoreError if another process has taken over meanwhile."""
        try:
            self._connection.close()
            self._connection = connected(self.path)
            self._is_open = False
            is_locked = not self.learning or self._locked()
            (epoch,) = self._connection.execute("SELECT epoch FROM head").fetchone()
            self._check_epoch(epoch)
            if not is_locked:
                raise UnavailableError(f"{self.name} still keeps the turn of a connection that was lost")
        except self._errors as error:
            raise UnavailableError(first_line(error)) from None

    def close(self) -> None:
        """Let go of everything."""
        super().close()
        if hasattr(self, "_connection"):
            with suppress(self._errors):
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()


def _shortly() -> None:
    time.sleep(0.05)

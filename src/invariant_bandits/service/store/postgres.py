"""A store in PostgreSQL: the same chain of events, for services that grow past one machine.

Whoever appends locks one row first, so that the chain has one order. The process that learns holds a lock of its
session besides, and its turn has a number (epoch) that is compared in the same transaction: a process that was
replaced while it was away can never append again.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from invariant_bandits.extras import needed
from invariant_bandits.service.store import postgres_tables as tables
from invariant_bandits.service.store.base import Head, OvertakenError, UnavailableError
from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, extended, seal
from invariant_bandits.service.store.postgres_connection import connected, first_line, shown

CHUNK = 8192
"""So many rows are fetched at a time."""
LOCK = 0x1B5D
"""Advisory locks of this product; the second half of their number is the schema's."""
ROW = "SELECT seq, batch, key, body FROM events"
TURN = "SELECT epoch FROM writer FOR UPDATE"
HEAD = "SELECT seq + 1, substring(body FROM length(body) - 15) FROM events ORDER BY seq DESC LIMIT 1"
ADD = "INSERT INTO events SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bytea[])"
KEEP = "INSERT INTO contents SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT DO NOTHING"


class PostgresStore:
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
        self.path, self.name, self.writing = address, shown(address), writing
        self.learning = writing and learning
        self._is_open = self._is_closed = False
        self._errors = needed("psycopg", "A store in PostgreSQL").Error
        self._reading = threading.local()
        self._readers: list[Any] = []
        self._epoch: int | None = None
        try:
            self._connection = connected(address)
            if writing:
                self._check_server()
            if self.learning:
                self._take_turn(wait)
            tables.check(self._connection, self.name)
            self.seed = self._seed()
        except self._errors as error:
            self.close()
            raise StoreError(f"{self.name} cannot be used: {first_line(error)}") from None
        except BaseException:
            self.close()
            raise

    def _check_server(self) -> None:
        if self._connection.execute("SHOW fsync").fetchone()[0] != "on":
            raise StoreError(f"{self.name} runs with fsync off: what it acknowledges could be lost")

    def _seed(self) -> int:
        """Chosen when the store was made."""
        if self.learning:
            self._connection.execute(
                "INSERT INTO meta VALUES ('seed', %s) ON CONFLICT DO NOTHING", (str(secrets.randbits(63)),)
            )
        found = self._connection.execute("SELECT value FROM meta WHERE name = 'seed'").fetchone()
        return 0 if found is None else int(found[0])

    # -- whose turn it is --

    def _take_turn(self, wait: Callable[[], None] | None) -> None:
        """Become the one process that writes; the turn is lost with the connection."""
        while not self._locked():
            if wait is None:
                raise StoreError(f"{self.name} is in use by another process")
            wait()
        tables.bring_up_to_date(self._connection, self.name)
        (self._epoch,) = self._connection.execute("UPDATE writer SET epoch = epoch + 1 RETURNING epoch").fetchone()

    def _locked(self) -> bool:
        found = self._connection.execute(f"SELECT pg_try_advisory_lock({LOCK}, hashtext(current_schema()))").fetchone()
        return bool(found[0])

    def _check_epoch(self, found: int) -> None:
        if self._epoch is not None and found != self._epoch:
            raise StoreError(f"{self.name} was taken over by another process")

    # -- events --

    def head(self) -> Head:
        """The end of the chain as it is stored."""
        found = self._read(HEAD)
        return Head(*found[0]) if found else self.start()

    def start(self) -> Head:
        """The beginning of the chain: number of the first event that is kept, and the digest before it."""
        found = self._read("SELECT first, before FROM cut")
        return Head(*found[0]) if found else Head(0, START)

    def base(self) -> tuple[int, bytes] | None:
        """The snapshot that a replay begins with: none, for events are not removed here."""
        return None

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
        try:
            seq, digest = self._begun()
            if seen is not None and seq > seen and not self._is_open:
                self._tell_others(seen, keys)
            self._is_open = False
            if not events:
                self._connection.execute("ROLLBACK")
                return []
            rows = extended(seq, digest, events)
            with self._connection.pipeline():
                if contents:
                    digests = [hashlib.sha256(content).hexdigest() for content in contents]
                    self._connection.execute(KEEP, (digests, list(contents)))
                self._connection.execute(ADD, [list(column) for column in zip(*rows, strict=True)])
                self._seal(seq, seq + len(rows))
                self._connection.execute("COMMIT")
        except self._errors as error:
            self._give_up()
            raise UnavailableError(first_line(error)) from None
        except OvertakenError:
            raise
        except BaseException:
            self._give_up()
            raise
        return rows

    def _tell_others(self, seen: int, keys: Sequence[str] | None) -> None:
        """Raise with what others have added, and keep the transaction open."""
        given: list[Any] = [seen]
        asked = f"{ROW} WHERE seq >= %s ORDER BY seq"
        if keys is not None:
            asked, given = f"{ROW} WHERE key = ANY(%s) AND seq >= %s ORDER BY seq", [list(keys), seen]
        rows = [Row(*one) for one in self._connection.execute(asked, given, binary=True).fetchall()]
        if rows:
            self._is_open = True
            raise OvertakenError(rows)

    def _begun(self) -> Head:
        """The end of the chain, which nobody else can move before this transaction ends."""
        with self._connection.pipeline():
            if not self._is_open:
                self._connection.execute("BEGIN")
            turn, last = self._connection.execute(TURN), self._connection.execute(HEAD, binary=True)
        self._check_epoch(turn.fetchone()[0])
        found = last.fetchone() or self._connection.execute("SELECT first, before FROM cut").fetchone()
        return Head(0, START) if found is None else Head(*found)

    def _give_up(self) -> None:
        self._is_open = False
        with suppress(self._errors):  # `reopen` will tell
            self._connection.execute("ROLLBACK")

    def _seal(self, before: int, after: int) -> None:
        """Seal every stretch that events up to `after` have completed."""
        for stretch in range(before // SEALED, after // SEALED):
            first, last = stretch * SEALED, (stretch + 1) * SEALED
            asked = f"{ROW} WHERE seq >= %s AND seq < %s ORDER BY seq"
            rows = self._connection.execute(asked, (first, last), binary=True).fetchall()
            if rows and rows[0][0] == first:
                self._connection.execute(
                    "INSERT INTO seals VALUES (%s, %s) ON CONFLICT (first) DO UPDATE SET digest = excluded.digest",
                    (first, seal(rows)),
                )

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
        """Rows that belong to the decision with this id, in order."""
        return [Row(*found) for found in self._read(f"{ROW} WHERE key = %s ORDER BY seq", key)]

    # -- contents and snapshots --

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256 in hexadecimal digits."""
        found = self._read("SELECT body FROM contents WHERE digest = %s", digest)
        if not found:
            raise StoreError(f"{self.name} is damaged: the content {digest} is missing")
        if hashlib.sha256(found[0][0]).hexdigest() != digest:
            raise StoreError(f"{self.name} is damaged: the content {digest} does not match its checksum")
        return bytes(found[0][0])

    def save_snapshot(self, seq: int, body: bytes) -> None:
        """Keep the state after the first `seq` events; older snapshots but one are dropped."""
        try:
            self._begun()
            with self._connection.pipeline():
                self._connection.execute(
                    "INSERT INTO snapshots VALUES (%s, %b, %b) ON CONFLICT (seq)"
                    " DO UPDATE SET body = excluded.body, digest = excluded.digest",
                    (seq, body, hashlib.sha256(body).digest()),
                )
                self._connection.execute(
                    "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
                )
                self._connection.execute("COMMIT")
        except self._errors as error:
            self._give_up()
            raise UnavailableError(first_line(error)) from None
        except BaseException:
            self._give_up()
            raise

    def snapshot_seq(self) -> int | None:
        """How many events the newest snapshot holds."""
        found: int | None = self._read("SELECT max(seq) FROM snapshots")[0][0]
        return found

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        """The newest snapshot, and how many events it holds."""
        found = self._read("SELECT seq, body, digest FROM snapshots ORDER BY seq DESC LIMIT 1")
        if not found:
            return None
        seq, body, digest = found[0]
        if hashlib.sha256(body).digest() != digest:
            raise StoreError(f"{self.name} is damaged: the snapshot after event {seq} does not match its checksum")
        return seq, bytes(body)

    # -- opening and closing --

    def _read(self, asked: str, *given: Any) -> list[Any]:
        """All that is found, by a connection of this thread, made anew if it was lost."""
        if self._is_closed:
            raise UnavailableError(f"{self.name} was closed")
        mine = getattr(self._reading, "connection", None)
        for last_try in (mine is None, True):
            try:
                if mine is None:
                    mine = self._reading.connection = connected(self.path)
                    self._readers.append(mine)
                return list(mine.execute(asked, given, binary=True).fetchall())
            except self._errors as error:
                self._forget(mine)
                mine = self._reading.connection = None
                if last_try:
                    raise UnavailableError(first_line(error)) from None
        raise AssertionError

    def _forget(self, connection: Any) -> None:
        if connection is not None:
            self._readers.remove(connection)
            connection.close()

    def reopen(self) -> None:
        """Connect anew after a failure; StoreError if another process has taken over meanwhile."""
        try:
            self._connection.close()
            self._connection = connected(self.path)
            self._is_open = False
            is_locked = not self.learning or self._locked()
            (epoch,) = self._connection.execute("SELECT epoch FROM writer").fetchone()
            self._check_epoch(epoch)
            if not is_locked:
                raise UnavailableError(f"{self.name} still keeps the turn of a connection that was lost")
        except self._errors as error:
            raise UnavailableError(first_line(error)) from None

    def close(self) -> None:
        """Let go of everything."""
        self._is_closed = True
        for connection in [*self._readers, *([self._connection] if hasattr(self, "_connection") else [])]:
            connection.close()
        self._readers.clear()

"""A store in PostgreSQL: the same chain of events, for services that grow past one machine.

Whoever appends locks the one row that tells where the chain ends, so that it has one order. The process that learns
holds a lock of its session besides, and its turn has a number (epoch) that is compared in the same transaction: a
process that was replaced while it was away can never append again.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from invariant_bandits.service.store import postgres_tables as tables
from invariant_bandits.service.store.base import Head, OvertakenError, UnavailableError
from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, extended, seal
from invariant_bandits.service.store.parts import snapshot_digest
from invariant_bandits.service.store.postgres_connection import connected, first_line
from invariant_bandits.service.store.postgres_reading import ROW, PostgresReading
from invariant_bandits.service.store.seeds import marked, unmarked

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
            tables.check(self._connection, self.name)
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
        tables.make(self._connection, self.name)
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
            for table, column, kept in (("events", "seq", first), ("seals", "first", first), ("snapshots", "seq", seq)):
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

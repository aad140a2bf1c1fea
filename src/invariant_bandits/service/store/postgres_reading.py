"""What can be read of a store in PostgreSQL, by a connection per thread that is made anew when it was lost."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

from invariant_bandits.optional import require
from invariant_bandits.service.store.base import Head, UnavailableError
from invariant_bandits.service.store.chain import START, Row, StoreError, after
from invariant_bandits.service.store.parts import snapshot_digest
from invariant_bandits.service.store.postgres_connection import connected, first_line, shown

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

"""PostgreSQL: the same chain of events, for services that grow past one machine.

A process that appends locks the row that says where the chain ends, so that the chain has one order. The
process that learns holds a lock of its session besides, and its turn has a number (epoch) that is compared in
the same transaction: a process that was replaced while it was away can never append again.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from invariant_bandits.optional import require
from invariant_bandits_service.store import sql
from invariant_bandits_service.store.sql import (
    Connection,
    Database,
    StoreError,
    UnavailableError,
)

SCHEMES = ("postgresql://", "postgres://")
DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
"""Unless the address says otherwise: a server that is gone is noticed within seconds."""
SESSION = tuple(Path(__file__).with_name("session.sql").read_text().splitlines())
"""A writer that hangs in the middle of a transaction loses its connection instead of holding up all
others, and waits for others within bounds.
"""
LONGEST = 12.0
"""Seconds after which a server that does not answer at all is given up; its own limits come before."""


def is_address(text: str) -> bool:
    """Return whether a text names a PostgreSQL database rather than a file."""
    return text.startswith(SCHEMES)


def without_password(address: str) -> str:
    """Return the address without its password and options, for messages.

    >>> without_password("postgresql://shop:secret@db.local:5433/decisions?sslmode=require")
    'postgresql://db.local:5433/decisions'
    """
    parts = _parts(address)
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _parts(address: str) -> dict[str, Any]:
    psycopg = require("psycopg", "A store in PostgreSQL")
    try:
        return dict(psycopg.conninfo.conninfo_to_dict(address))
    except psycopg.ProgrammingError as error:
        raise StoreError(
            f"the address of the store cannot be read: {str(error).splitlines()[0]}"
        ) from None


RECORD = "invariant_bandits_steps"
"""The table with the version of the layout; it marks a schema as ours."""
PRESENT = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid"
    " WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
)
"""Asks for the tables of the schema in use."""
LOCK = 0x1B5D
"""Advisory locks of this product; the second half of their number is the schema's."""
GRACE = 1.0
"""Seconds that a server has to notice that the process before has ended."""
PAUSE = 0.05
"""Seconds between two attempts within these."""
ADD = """WITH added AS
    (INSERT INTO events SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bytea[]))
    UPDATE head SET seq = %s, digest = %b"""


_busy: dict[PostgresConnection, float] = {}
"""Connections that wait for an answer, and since when."""


@cache
def _start_watching() -> None:
    """Start the one thread that interrupts connections to servers that do not answer."""
    threading.Thread(target=_watch, name="watchdog", daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(1.0)
        for connection, since in list(_busy.items()):
            if time.monotonic() - since > LONGEST:
                connection.interrupt()


class PostgresConnection(Connection):
    """A connection to a PostgreSQL database, see `Connection`.

    Parameters
    ----------
    address : str
    name : str
        The address for messages.
    frozen : bool
        Whether all that is read is of one moment.
    """

    begins = "BEGIN"
    locks = " FOR UPDATE"

    def __init__(self, address: str, name: str, *, frozen: bool = False) -> None:
        psycopg = require("psycopg", "A store in PostgreSQL")
        self.name = name
        self._errors = psycopg.Error
        try:
            self.raw = psycopg.connect(
                **{**DEFAULTS, **_parts(address)}, autocommit=True
            )
            self.raw.execute("".join(SESSION))
        except self._errors as error:
            raise UnavailableError(_first_line(error)) from None
        _start_watching()
        if frozen:
            self.execute("SET idle_in_transaction_session_timeout = 0")
            # others go on adding
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def execute(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement and return its rows, values in binary form."""
        _busy[self] = time.monotonic()
        try:
            cursor = self.raw.execute(sql.replace("?", "%s"), values, binary=True)
            return [] if cursor.description is None else list(cursor.fetchall())
        except self._errors as error:
            raise UnavailableError(_first_line(error)) from None
        finally:
            _busy.pop(self, None)

    def interrupt(self) -> None:
        """End the connection from another thread: what waits for its answer fails."""
        with (
            suppress(OSError, self._errors),
            socket.socket(fileno=os.dup(self.raw.fileno())) as line,
        ):
            line.shutdown(socket.SHUT_RDWR)

    def insert(self, rows: Sequence[sql.Row], head: sql.Head) -> None:
        """Add rows, and move the end of the chain."""
        self.execute(ADD, *(list(column) for column in zip(*rows, strict=True)), *head)

    def close(self) -> None:
        """Close, after giving up the turn if there is one."""
        if self.epoch is not None:
            with suppress(UnavailableError):
                self.execute("SELECT pg_advisory_unlock_all()")
        self.raw.close()


class PostgresDatabase(Database):
    """A store in a schema of a PostgreSQL database, see `Database`.

    Parameters
    ----------
    address : str
        `postgresql://user@host/database`, with all that libpq takes; tables are made in the first schema of
        its search path if they are not there.
    options
        See `Database`. Of processes that write and do not learn there may be many.
    """

    shared = True
    shrink = ("SET statement_timeout = 0", "VACUUM events", "VACUUM snapshots")
    scrub = ()
    tables = (
        *(
            statement.format(integer="BIGINT", key='TEXT COLLATE "C"', blob="BYTEA")
            for statement in sql.TABLES
        ),
        "ALTER TABLE events ALTER body SET STORAGE EXTERNAL",
        f"CREATE TABLE {RECORD} (step INTEGER PRIMARY KEY, taken TIMESTAMPTZ)",
        f"INSERT INTO {RECORD} VALUES ({sql.LAYOUT}, now())",
    )

    def __init__(self, address: str, **options: Any) -> None:
        super().__init__(address, without_password(address), **options)
        self._epoch: int | None = None

    def prepare(self, connection: PostgresConnection) -> None:
        """Take the turn of the process that learns, and make or check the tables."""
        if self.writing and connection.execute("SHOW fsync") != [("on",)]:
            raise StoreError(
                f"{self.name} runs with fsync off: what it acknowledges could be lost"
            )
        ((encoding,),) = connection.execute("SHOW server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.name} has the encoding {encoding}: a store needs a database with UTF8"
            )
        if self.learning:
            self._take_turn(connection)
        if not self._version(connection):
            raise sql.EmptyStoreError(sql.NO_STORE.format(self.name))
        if self.check is not None:
            self.check(self.address)

    def _take_turn(self, connection: PostgresConnection) -> None:
        """Become the one process that learns; the turn is lost with the connection."""
        end = time.monotonic() + GRACE
        while not self._lock(connection):
            if self.wait is not None:
                self.wait()
            elif time.monotonic() > end:
                raise StoreError(f"{self.name} is in use by another process")
            else:
                time.sleep(PAUSE)
        if not self._version(connection):
            self.make_tables(connection)
        ((self._epoch,),) = connection.execute(
            "UPDATE head SET epoch = epoch + 1 RETURNING epoch"
        )
        connection.epoch = self._epoch

    @staticmethod
    def _lock(connection: PostgresConnection) -> bool:
        lock = f"SELECT pg_try_advisory_lock({LOCK}, hashtext(current_schema()))"
        return bool(connection.execute(lock)[0][0])

    def _version(self, connection: PostgresConnection) -> int:
        """Return the version of the tables, 0 for an empty schema.

        StoreError if they are not those of this release.
        """
        ((schema,),) = connection.execute("SELECT current_schema()")
        if schema is None:
            raise StoreError(
                f"{self.name}: the schema that its search_path names does not exist"
            )
        tables = {str(table) for (table,) in connection.execute(PRESENT)}
        if RECORD not in tables:
            if tables:
                needed = "a store needs a database or schema of its own"
                raise StoreError(
                    f"{self.name} holds tables of something else: {needed}"
                )
            return 0
        ((version,),) = connection.execute(
            f"SELECT coalesce(max(step), 0) FROM {RECORD}"
        )
        return self.check_version(version)

    def connect(
        self, *, reading: bool = False, frozen: bool = False
    ) -> PostgresConnection:
        """Connect, see `Database`; the turn is not taken again."""
        connection = PostgresConnection(str(self.address), self.name, frozen=frozen)
        connection.epoch = None if reading else self._epoch
        return connection

    def resume(self, connection: PostgresConnection) -> None:
        """Take the turn again; StoreError if another process has it, or had it meanwhile."""
        is_locked = not self.learning or self._lock(connection)
        connection.begin(held=False)  # compares the number of the turn
        connection.rollback()
        if not is_locked:
            raise UnavailableError(
                f"{self.name} still keeps the turn of a connection that was lost"
            )


def _first_line(error: BaseException) -> str:
    """Return what an error of the server says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]

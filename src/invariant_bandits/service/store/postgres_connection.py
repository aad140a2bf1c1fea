"""Connections to PostgreSQL: how they are made, and what of an address may be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from invariant_bandits.optional import require
from invariant_bandits.service.store.chain import StoreError

SCHEMES = ("postgresql://", "postgres://")
DEFAULTS = {"connect_timeout": "5", "keepalives_idle": "5", "keepalives_interval": "2", "keepalives_count": "3"}
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

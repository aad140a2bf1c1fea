"""The store under an address: a file, or a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invariant_bandits.service.store.postgres import PostgresDatabase, is_address
from invariant_bandits.service.store.sql import Check, Database, SqlStore
from invariant_bandits.service.store.sqlite import SqliteDatabase


def database_of(
    address: str | Path, *, writing: bool = False, check: Check | None = None, **more: Any
) -> Database:
    """Return the database under a path or `postgresql://…`; further options are for PostgreSQL."""
    if is_address(str(address)):
        return PostgresDatabase(str(address), writing=writing, check=check, **more)
    return SqliteDatabase(address, writing=writing, check=check)


def open_store(
    address: str | Path,
    *,
    writing: bool = True,
    learning: bool = True,
    check: Check | None = None,
    **more: Any,
) -> SqlStore:
    """Open the store under a path or `postgresql://…`.

    Parameters
    ----------
    writing, learning : bool
        Whether events will be added, and whether this is the one process that learns.
    check : callable or None
        Is called with the path or address before the store is used.
    more
        Further options of `PostgresDatabase`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/decisions.db")
    ...     rows = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """
    if is_address(str(address)):
        more["learning"] = learning
    database = database_of(address, writing=writing, check=check, **more)
    return SqlStore(database, learning=writing and learning)

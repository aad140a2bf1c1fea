"""The store under an address: a file, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from invariant_bandits.service.store.postgres import PostgresDatabase, is_address
from invariant_bandits.service.store.sql import Check, Database, SqlStore
from invariant_bandits.service.store.sqlite import SqliteDatabase


def database_of(address: str | Path, *, writing: bool = False, **options: Any) -> Database:
    """Return the database under a path or `postgresql://…`, for reading unless it is said; for the options
    see `open_store`.
    """
    kind = PostgresDatabase if is_address(str(address)) else SqliteDatabase
    return kind(address, writing=writing, **options)


def open_store(
    address: str | Path,
    *,
    writing: bool = True,
    learning: bool = True,
    check: Check | None = None,
    wait: Callable[[], None] | None = None,
) -> SqlStore:
    """Open the store under a path or `postgresql://…`.

    Parameters
    ----------
    writing, learning : bool
        Whether events will be added, and whether this is the one process that learns.
    check : callable or None
        Is called with the path or address before the store is used.
    wait : callable or None
        Is called again and again while another process learns in a shared store, which is refused if this is
        None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(f"{folder}/decisions.db")
    ...     rows = store.append([("a", b"something happened")])
    ...     [row.event for row in store.of_key("a")], store.head().seq
    ...     store.close()
    ([b'something happened'], 1)
    """
    return SqlStore(database_of(address, writing=writing, learning=learning, check=check, wait=wait))

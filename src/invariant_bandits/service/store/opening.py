"""The store under an address: a file, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from invariant_bandits.service.store.postgres_connection import is_address
from invariant_bandits.service.store.sqlite import SqliteStore


def open_store(
    address: str | Path, *, writing: bool = True, check: Callable[[Path | str], object] | None = None, **more: Any
) -> Any:
    """The store under a path or `postgresql://…`; `check` is asked about it before it is used.

    What is said besides is for PostgreSQL.
    """
    if not is_address(str(address)):
        return SqliteStore(address, writing=writing, check=check)
    from invariant_bandits.service.store.postgres import PostgresStore

    store = PostgresStore(str(address), writing=writing, **more)
    try:
        if check is not None:
            check(store.path)
    except BaseException:
        store.close()
        raise
    return store

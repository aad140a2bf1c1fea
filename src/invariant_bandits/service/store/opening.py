"""The store under an address: a file, or a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from invariant_bandits.service.store.postgres_connection import is_address
from invariant_bandits.service.store.sqlite import SqliteStore


def open_store(address: str | Path, *, writing: bool = True, **more: Any) -> Any:
    """The store under a path or `postgresql://…`; not checked yet. What is said besides is for PostgreSQL."""
    if is_address(str(address)):
        from invariant_bandits.service.store.postgres import PostgresStore

        return PostgresStore(str(address), writing=writing, **more)
    return SqliteStore(address, writing=writing)

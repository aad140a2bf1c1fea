"""The tables of a store in PostgreSQL, as steps; each step and its record are one transaction."""

from __future__ import annotations

from typing import Any

from invariant_bandits.service.store.chain import EmptyStoreError, StoreError

STEPS: tuple[tuple[str, ...], ...] = (
    (
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
    ),
)
"""Statements of each step; steps are only ever added."""

RECORD = "invariant_bandits_steps"
"""The table with the steps that were taken; it marks a schema as ours."""

TABLES = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid"
    " WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
)
"""Asks for the tables of the schema in use."""


def bring_up_to_date(connection: Any, name: str) -> None:
    """Take the steps that a schema has not taken yet."""
    taken = version(connection, name)
    for number, statements in enumerate(STEPS[taken:], start=taken + 1):
        with connection.transaction():
            connection.execute(f"CREATE TABLE IF NOT EXISTS {RECORD} (step INTEGER PRIMARY KEY, taken TIMESTAMPTZ)")
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"INSERT INTO {RECORD} VALUES (%s, now())", (number,))


def check(connection: Any, name: str) -> None:
    """Raise unless a schema has exactly the tables of this release."""
    found = version(connection, name)
    if found == 0:
        raise EmptyStoreError(f"{name} holds no store of decisions yet: start the service on it once")
    if found != len(STEPS):
        raise StoreError(
            f"{name} has version {found} of its tables, this release needs {len(STEPS)}: start the service on it once"
        )


def version(connection: Any, name: str) -> int:
    """How many steps a schema has taken; 0 for an empty one."""
    (schema,) = connection.execute("SELECT current_schema()").fetchone()
    if schema is None:
        raise StoreError(f"{name}: the schema that its search_path names does not exist")
    tables = {str(one) for (one,) in connection.execute(TABLES)}
    if RECORD not in tables:
        if tables:
            raise StoreError(f"{name} holds tables of something else: a store needs a database or schema of its own")
        return 0
    (taken,) = connection.execute(f"SELECT coalesce(max(step), 0) FROM {RECORD}").fetchone()
    if taken > len(STEPS):
        raise StoreError(f"{name} was written by a newer release (tables {taken}, known {len(STEPS)})")
    return int(taken)

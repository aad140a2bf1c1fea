"""The tables of a store in PostgreSQL, and the version of their layout."""

from __future__ import annotations

from typing import Any

from invariant_bandits.service.store.chain import EmptyStoreError, StoreError

VERSION = 2
"""Of the layout. Before 2, decisions were found by their id without their model."""

TABLES = (
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
)

RECORD = "invariant_bandits_steps"
"""The table with the version of the layout; it marks a schema as ours."""

PRESENT = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid"
    " WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
)
"""Asks for the tables of the schema in use."""


def make(connection: Any, name: str) -> None:
    """Make the tables in an empty schema, in one transaction."""
    if version(connection, name):
        return
    with connection.transaction():
        connection.execute(f"CREATE TABLE {RECORD} (step INTEGER PRIMARY KEY, taken TIMESTAMPTZ)")
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"INSERT INTO {RECORD} VALUES (%s, now())", (VERSION,))


def check(connection: Any, name: str) -> None:
    """Raise unless a schema has the tables of this release."""
    if not version(connection, name):
        raise EmptyStoreError(f"{name} holds no store of decisions yet: start the service on it once")


def version(connection: Any, name: str) -> int:
    """The version of the layout of a schema: that of this release, or 0 for an empty schema; else StoreError."""
    (schema,) = connection.execute("SELECT current_schema()").fetchone()
    if schema is None:
        raise StoreError(f"{name}: the schema that its search_path names does not exist")
    tables = {str(one) for (one,) in connection.execute(PRESENT)}
    if RECORD not in tables:
        if tables:
            raise StoreError(f"{name} holds tables of something else: a store needs a database or schema of its own")
        return 0
    (taken,) = connection.execute(f"SELECT coalesce(max(step), 0) FROM {RECORD}").fetchone()
    if taken != VERSION:
        release = "a newer" if taken > VERSION else "an earlier"
        raise StoreError(f"{name} was written by {release} release (tables {taken}, this release needs {VERSION})")
    return int(taken)

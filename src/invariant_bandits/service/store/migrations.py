"""The tables of a store, and the version of their layout."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from invariant_bandits.service.store.chain import StoreError

APPLICATION = 0x1B5D0001
"""Marks the files of this product (SQLite's application_id)."""

VERSION = 3
"""Of the layout (SQLite's user_version). Before 3, decisions were found by their id without their model."""

TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, key TEXT, body BLOB NOT NULL)",
    "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
    "CREATE TABLE seals (first INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
    "CREATE TABLE contents (digest TEXT PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)",
    "CREATE TABLE cut (first INTEGER NOT NULL, before BLOB NOT NULL, base INTEGER NOT NULL)",
    "CREATE TABLE head (seq INTEGER NOT NULL, digest BLOB NOT NULL)",
    "INSERT INTO head VALUES (0, zeroblob(16))",
)


SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"


def make(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, in one transaction."""
    if _version(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless a file has exactly the tables of this version."""
    if not _version(connection, path):
        raise StoreError(f"{path} holds no store of decisions yet: start the service on it once")
    if connection.execute(SCHEMA).fetchall() != _expected():
        raise StoreError(f"{path} is damaged: its tables are not described as they were made")


def _expected() -> list[tuple[str, str, str, str]]:
    """The description of all tables, as SQLite keeps it."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in TABLES:
            fresh.execute(statement)
        return fresh.execute(SCHEMA).fetchall()
    finally:
        fresh.close()


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the layout of a file: that of this release, or 0 for an empty file; else StoreError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or tables):
        raise StoreError(f"{path} is a database of something else")
    if version not in (0, VERSION):
        release = "a newer" if version > VERSION else "an earlier"
        raise StoreError(f"{path} was written by {release} release (tables {version}, this release needs {VERSION})")
    return int(version)

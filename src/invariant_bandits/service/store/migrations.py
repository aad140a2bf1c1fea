"""The tables of a store, as steps; each step and its record are one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from invariant_bandits.service.store.chain import StoreError

APPLICATION = 0x1B5D0001
"""Marks the files of this product (SQLite's application_id)."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, key TEXT, body BLOB NOT NULL)",
        "CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL",
        "CREATE TABLE seals (first INTEGER PRIMARY KEY, digest BLOB NOT NULL)",
        "CREATE TABLE contents (digest TEXT PRIMARY KEY, body BLOB NOT NULL)",
        "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, digest BLOB NOT NULL)",
        "CREATE TABLE cut (first INTEGER NOT NULL, before BLOB NOT NULL)",
    ),
    (
        "CREATE TABLE head (seq INTEGER NOT NULL, digest BLOB NOT NULL)",
        "INSERT INTO head SELECT seq + 1, substr(body, -16) FROM events ORDER BY seq DESC LIMIT 1",
        "INSERT INTO head SELECT first, before FROM cut WHERE NOT EXISTS (SELECT * FROM head)",
        "INSERT INTO head SELECT 0, zeroblob(16) WHERE NOT EXISTS (SELECT * FROM head)",
        "ALTER TABLE cut ADD COLUMN base INTEGER NOT NULL DEFAULT 0",
    ),
)
"""Statements of each step; steps are only ever added."""


SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"


def bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Take the steps that a file has not taken yet."""
    version = _version(connection, path)
    for number, statements in enumerate(STEPS[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise unless a file has exactly the tables of this version."""
    version = _version(connection, path)
    if version != len(STEPS):
        raise StoreError(
            f"{path} has version {version} of its tables, this release needs {len(STEPS)}: start the service on it once"
        )
    if connection.execute(SCHEMA).fetchall() != _expected():
        raise StoreError(f"{path} is damaged: its tables are not described as they were made")


def _expected() -> list[tuple[str, str, str, str]]:
    """The description of all tables, as SQLite keeps it."""
    fresh = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statements in STEPS:
            for statement in statements:
                fresh.execute(statement)
        return fresh.execute(SCHEMA).fetchall()
    finally:
        fresh.close()


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """How many steps a file has taken; 0 for an empty one."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION and (application or tables):
        raise StoreError(f"{path} is a database of something else")
    if version > len(STEPS):
        raise StoreError(f"{path} was written by a newer release (tables {version}, known {len(STEPS)})")
    return int(version)

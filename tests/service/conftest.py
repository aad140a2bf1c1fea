"""Stores of both kinds for the tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, or the test is skipped with the reason why there is none."""
    pytest.importorskip("psycopg")
    try:
        server = PostgresServer()
    except OSError as error:
        pytest.skip(f"no PostgreSQL server: {error}")
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "decisions.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh()

"""Stores of both kinds, and services, for the tests of the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from postgres_server import PostgresServer
from served_models import labelled_model


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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "decisions.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh()


@pytest.fixture(scope="session")
def fitted_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model of labelled arms."""
    path = tmp_path_factory.mktemp("models") / "shop.model"
    labelled_model().save(path)
    return path


@pytest.fixture
def loops(tmp_path: Path, fitted_file: Path) -> Iterator[TestClient]:
    """A service with an empty model, "default", and a fitted one, "shop"."""
    service = open_service(ServiceSettings(store=str(tmp_path / "d.db")))
    with TestClient(Application(service), raise_server_exceptions=False) as client:
        content = fitted_file.read_bytes()
        made = client.post("/v1/models", params={"model": "shop"}, content=content)
        assert made.status_code == 201
        yield client

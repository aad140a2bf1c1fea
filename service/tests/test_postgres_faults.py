"""A PostgreSQL server that hangs, is locked, is set up otherwise, or goes back in time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.engine import Decider, Engine
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.serve import engine_for
from invariant_bandits_service.store import postgres as dialect
from invariant_bandits_service.store.open_store import open_store, verify
from invariant_bandits_service.store.sql import StoreError, UnavailableError
from postgres_server import PostgresServer
from served_models import running, serve

pytestmark = pytest.mark.system

PATIENCE = 30.0


def until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of a second instead of ten."""
    session = tuple(line.replace("'5s'", "'500ms'") for line in dialect.SESSION)
    monkeypatch.setattr(dialect, "SESSION", session)
    monkeypatch.setattr(dialect, "LONGEST", 1.0)
    monkeypatch.setitem(dialect.DEFAULTS, "connect_timeout", "2")
    monkeypatch.setattr("invariant_bandits_service.engine.LONGEST_STEP", 0.2)


def check_whole(address: str, live: dict[str, str]) -> None:
    store = open_store(address, check=verify)
    assert replay_all(store).hashes() == live
    store.close()


def test_the_isolation_level_is_ours_whatever_the_database_says(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh() + "%20-cdefault_transaction_isolation%3Dserializable"
    store = open_store(address)
    store._writer.begin(held=False)
    assert store._writer.execute("SHOW transaction_isolation") == [("read committed",)]
    store._writer.rollback()
    store.close()


def test_a_database_that_is_not_utf8_is_refused(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        )
    with pytest.raises(StoreError, match="has the encoding LATIN1"):
        open_store(postgres.address.replace("/postgres?", "/latin?"))


@pytest.mark.usefixtures("impatient")
def test_a_forgotten_transaction_costs_answers_within_bounds_and_readiness(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh()
    with running(address) as engine:
        serve(engine)
        with psycopg.connect(address) as forgotten:
            forgotten.execute("SELECT * FROM head FOR UPDATE")
            with pytest.raises(UnavailableError):
                engine.call(DecisionCommand(id="x"))
            assert engine.problem() is not None
        until(lambda: engine.problem() is None)
        engine.call(DecisionCommand(id="x"))
        live = engine.state.hashes()
    check_whole(address, live)


def freeze(server: PostgresServer, number: int) -> None:
    """Send a signal to the server and all its processes."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = (
        Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    )
    for process in (postmaster, *map(int, children)):
        os.kill(process, number)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_hangs_costs_answers_within_bounds_and_readiness(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh()
    with running(address) as engine:
        serve(engine)
        engine.call(DecisionCommand(id="before"))
        freeze(postgres, signal.SIGSTOP)
        try:
            until(lambda: engine.problem() is not None)
            with pytest.raises(UnavailableError):
                engine.call(DecisionCommand(id="x"))
            assert engine.problem() is not None
        finally:
            freeze(postgres, signal.SIGCONT)
        until(lambda: engine.problem() is None)
        engine.call(DecisionCommand(id="x"))
        live = engine.state.hashes()
    check_whole(address, live)


def test_a_decider_reads_on_after_an_unreadable_state_and_says_how_old_its_own_is(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invariant_bandits_service.engine.MOST_STALE", 0.5)
    address = postgres.fresh()
    with running(address, publish_every=0.1) as learner:
        serve(learner)
        until(lambda: learner.store.snapshot_seq() is not None)
        decider = Decider(open_store(address, learning=False))
        decider.start()
        try:
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(
                    "INSERT INTO snapshots VALUES (1000000, 'no state', 'no digest')"
                )
                until(lambda: decider.problem() is not None)
                assert "no newer state" in str(decider.problem())
                assert decider.gauges()["state_age_seconds"][1] > 0.5
                connection.execute("DELETE FROM snapshots WHERE seq = 1000000")
            until(lambda: decider.problem() is None)
            before = decider.state.seq
            decider.call(DecisionCommand())
            until(lambda: decider.state.seq > before)
        finally:
            decider.stop()


def go_back(address: str, seq: int) -> None:
    """Make of a database what a backup that was taken after `seq` events would be."""
    with psycopg.connect(address) as connection:
        ((body,),) = connection.execute(
            "SELECT body FROM events WHERE seq = %s", [seq - 1]
        )
        connection.execute("DELETE FROM events WHERE seq >= %s", [seq])
        connection.execute("DELETE FROM snapshots WHERE seq > %s", [seq])
        connection.execute("UPDATE head SET seq = %s, digest = %s", [seq, body[-16:]])


@pytest.mark.parametrize("further", [False, True])
def test_learner_and_decider_stop_when_the_database_went_back(
    postgres: PostgresServer, further: bool
) -> None:
    address = postgres.fresh()
    with running(address, publish_every=0.05) as learner:
        serve(learner)
        for number in range(5):
            learner.call(DecisionCommand(id=str(number)))
        until(lambda: learner.store.snapshot_seq() == learner.state.seq)
        decider = Decider(open_store(address, learning=False))
        go_back(address, 4)
        if further:  # and others have gone on meanwhile
            other = open_store(address, learning=False)
            other.append([(None, b"\xff")] * 10)
            other.close()
        for engine in (learner, decider):
            if engine is decider:
                engine.start()
            with pytest.raises((StoreError, UnavailableError)):
                engine.call(DecisionCommand())
            until(lambda engine=engine: engine.failure is not None)
            assert "went back in time" in str(engine.failure)
        decider.stop()
    with psycopg.connect(address) as connection:
        assert connection.execute("SELECT seq FROM head").fetchone() == (
            14 if further else 4,
        )


def test_a_learner_waits_for_a_server_that_is_away_and_survives_its_restart(
    postgres: PostgresServer,
) -> None:
    address, engines, said = postgres.fresh(), list[Engine](), list[str]()
    with running(address) as first:
        serve(first)
        standby = threading.Thread(
            target=lambda: engines.append(engine_for("learner", address, said.append)),
            daemon=True,
        )
        standby.start()
        until(lambda: said)
        postgres.stop()
        time.sleep(0.5)
    try:
        assert standby.is_alive()
    finally:
        postgres.start()
    standby.join(PATIENCE)
    assert not standby.is_alive()
    assert "the store cannot be reached: waiting for it" in said
    assert list(engines[0].state.models) == ["default"]
    engines[0].stop()

"""A store in PostgreSQL when connections, servers and processes come and go."""

from __future__ import annotations

import time

import psycopg
import pytest
from typer.testing import CliRunner

from invariant_bandits.cli.app import app
from invariant_bandits_service import commands
from invariant_bandits_service.events import decision_key, decode_event
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.store.postgres import without_password
from invariant_bandits_service.store.sql import StoreError, UnavailableError
from postgres_players import Player, cut
from postgres_server import PostgresServer
from served_models import running, serve

pytestmark = pytest.mark.system


@pytest.mark.system
@pytest.mark.parametrize("how", ["restart", "crash", "cut"])
def test_nothing_acknowledged_is_lost_when_the_server_goes_and_comes(
    postgres: PostgresServer, how: str
) -> None:
    address = postgres.fresh()
    with running(address) as engine:
        serve(engine)
        players = [Player(engine) for _ in range(4)]
        for player in players:
            player.start()
        time.sleep(0.4)
        if how == "cut":
            cut(postgres)
        else:
            postgres.restart("immediate" if how == "crash" else "fast")
        before = sum(len(player.rewarded) for player in players)
        end = time.monotonic() + 30.0
        while (
            sum(len(player.rewarded) for player in players) < before + 40
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        for player in players:
            player.going = False
            player.join()
        assert engine.failure is None
        assert sum(len(player.rewarded) for player in players) >= before + 40
        live = engine.state.hashes()
        learned = engine.state.models["default"].counts.learned
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    closed = 0
    for player in players:
        for id, place in player.decided.items():
            kinds = [
                decode_event(row.event)
                for row in store.of_key(decision_key(id, "default"))
            ]
            assert [
                kind.index for kind in kinds if isinstance(kind, commands.Decided)
            ] == [place]
            settled = [kind for kind in kinds if type(kind).__name__ == "Closed"]
            assert len(settled) <= 1
            assert settled or id not in player.rewarded
            closed += len(settled)
    assert closed <= learned <= closed + sum(player.refused for player in players)
    store.close()


@pytest.mark.system
def test_a_writer_that_was_replaced_can_never_append_again(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh()
    old = open_store(address)
    old.append([("a", b"old")])
    cut(postgres)
    new = open_store(address)
    with pytest.raises(UnavailableError):
        old.append([("b", b"lost")])
    with pytest.raises(StoreError, match="taken over"):
        old.reopen()
    with pytest.raises(
        StoreError, match="taken over"
    ):  # also through a connection that works
        old.append([("b", b"lost")])
    with pytest.raises(StoreError, match="taken over"):
        old.save_snapshot(1, b"lost")
    new.append([("c", b"new")])
    assert [row.event for row in new.rows()] == [b"old", b"new"]
    old.close()
    new.close()


@pytest.mark.system
def test_a_writer_whose_connection_was_cut_goes_on_if_nobody_took_over(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.fresh())
    store.append([("a", b"one")])
    assert len(list(store.rows())) == 1
    cut(postgres)
    with pytest.raises(UnavailableError):
        store.append([("b", b"two")])
    store.reopen()
    store.append([("b", b"two")])
    assert [row.event for row in store.rows()] == [b"one", b"two"]
    with pytest.raises(StoreError, match="in use"):
        open_store(store.path)
    store.close()


@pytest.mark.system
def test_tables_of_others_and_of_newer_releases_are_left_alone(
    postgres: PostgresServer,
) -> None:
    foreign, newer, earlier = postgres.fresh(), postgres.fresh(), postgres.fresh()
    with psycopg.connect(foreign, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    with pytest.raises(StoreError, match="something else"):
        open_store(foreign)
    with pytest.raises(StoreError, match="no store of decisions yet"):
        open_store(newer, writing=False)
    open_store(newer).close()
    with psycopg.connect(newer, autocommit=True) as connection:
        connection.execute("INSERT INTO invariant_bandits_steps VALUES (99, now())")
    with pytest.raises(StoreError, match="newer release"):
        open_store(newer)
    open_store(earlier).close()
    with psycopg.connect(earlier, autocommit=True) as connection:
        connection.execute("UPDATE invariant_bandits_steps SET step = 1")
    with pytest.raises(StoreError, match="earlier release"):
        open_store(earlier)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    address = "postgresql://shop:secret@127.0.0.1:1/decisions"
    with pytest.raises(
        StoreError, match=r"postgresql://127.0.0.1:1/decisions"
    ) as refused:
        open_store(address)
    assert "secret" not in str(refused.value)
    assert "secret" not in without_password(address)
    with pytest.raises(StoreError, match="cannot be read"):
        without_password("postgresql://[broken")


@pytest.mark.system
def test_commands_do_not_print_the_password_of_an_address(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh()
    address += ("&" if "?" in address else "?") + "password=a-secret"
    with running(address) as engine:
        serve(engine)
    for command in (
        ["verify"],
        ["replay"],
        ["repair"],
        ["compact", "--keep-days", "0"],
    ):
        done = CliRunner().invoke(app, ["store", *command, address])
        assert done.exit_code == 0, done.exception
        assert "postgresql://" in done.output
        assert "a-secret" not in done.output

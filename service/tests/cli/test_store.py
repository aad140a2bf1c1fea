"""store verify, replay and compact: what they say, and that a store that cannot be trusted is no success."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from invariant_bandits.checks import InputError
from invariant_bandits.cli.app import app
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.store.sql import StoreError
from served_models import running, serve


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["store", *map(str, arguments)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        for n in range(20):
            engine.call(DecisionCommand(id=str(n)))
            engine.call(RewardCommand(str(n), 1.0))
    return tmp_path / "d.db"


def test_a_whole_store_is_verified_replayed_and_compacted(path: Path) -> None:
    told = json.loads(run("verify", path, "--json").stdout)
    assert (told["events"], told["first"]) == (62, 0)
    before = json.loads(run("replay", path, "--json").stdout)
    assert (before["events"], before["since"]) == (62, 0)
    assert json.loads(run("compact", path, "--keep-days", 0, "--json").stdout) == {
        "removed": 60,
        "kept": 2,
    }
    after = json.loads(run("replay", path, "--json").stdout)
    assert after["state_hashes"] == before["state_hashes"]
    assert json.loads(run("verify", path, "--json").stdout)["digest"] == told["digest"]
    assert "are whole" in run("verify", path).stdout


def test_it_may_be_verified_and_replayed_while_it_is_in_use_but_not_compacted(
    path: Path,
) -> None:
    with running(path):
        assert run("verify", path).exit_code == 0
        assert run("replay", path).exit_code == 0
        told = run("compact", path, "--keep-days", 0)
        assert told.exit_code != 0
        assert "in use" in str(told.exception)


def test_damage_is_named_and_no_success(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE events SET body = body || x'00' WHERE seq = 7")
    connection.commit()
    connection.close()
    for command in (("verify", path), ("compact", path, "--keep-days", 0)):
        told = run(*command)
        assert told.exit_code != 0
        assert "event 7 is damaged" in str(told.exception)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--keep-days", 1, "--before", "2026-01-01"), ("--before", "soon")],
)
def test_what_to_remove_must_be_said_once_and_clearly(
    path: Path, arguments: tuple[object, ...]
) -> None:
    assert isinstance(run("compact", path, *arguments).exception, InputError)
    assert isinstance(
        run("compact", path.with_name("none.db"), "--keep-days", 1).exception,
        InputError,
    )
    assert not path.with_name("none.db").exists()


@pytest.mark.parametrize(("version", "release"), [(2, "earlier"), (99, "newer")])
def test_a_store_of_another_layout_is_refused_and_left_alone(
    path: Path, version: int, release: str
) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = path.read_bytes()
    for writing in (True, False):
        with pytest.raises(StoreError, match=f"written by an? {release} release"):
            open_store(path, writing=writing)
    assert path.read_bytes() == before

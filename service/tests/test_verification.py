"""A store is verified while it is in use; damage stops the service, and no process outlives it."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import tempfile
import time
from pathlib import Path

import pytest

from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.events import Rewarded
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.serve import engine_for
from invariant_bandits_service.store import open_store as opening
from invariant_bandits_service.store.open_store import FEW, open_store, verify
from invariant_bandits_service.store.sql import StoreError, UnavailableError
from served_models import running, serve
from started_service import PATIENCE, start


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more events than are verified before it is used."""
    path = tmp_path_factory.mktemp("large") / "decisions.db"
    with running(path) as engine:
        serve(engine)
        rewards = [
            Rewarded(engine.clock(), f"id {n}", "default", 1.0, "unknown")
            for n in range(FEW + 9)
        ]
        engine.call(lambda state, batch: batch.add(state, rewards))
    return path


def damage(path: Path, seq: int) -> None:
    """Flip a bit of an event."""
    with sqlite3.connect(path) as connection:
        ((body,),) = connection.execute("SELECT body FROM events WHERE seq = ?", (seq,))
        connection.execute(
            "UPDATE events SET body = ? WHERE seq = ?",
            (bytes([body[0], body[1] ^ 1, *body[2:]]), seq),
        )
    connection.close()


def wait_until(condition: object) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.system
def test_a_large_store_serves_at_once_and_is_verified_meanwhile(
    large: Path, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(large.read_bytes())
    engine = engine_for("alone", str(path), print)
    engine.start()
    try:
        engine.call(DecisionCommand(id="at once"))
        wait_until(lambda: engine.verification.done)  # type: ignore[union-attr]
        assert engine.failure is None
    finally:
        engine.stop()


@pytest.mark.system
def test_damage_far_back_stops_a_service_that_already_serves(
    large: Path, tmp_path: Path
) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(large.read_bytes())
    damage(path, 77)
    engine = engine_for("alone", str(path), print)
    engine.start()
    try:
        wait_until(lambda: engine.failure is not None)
        assert "event 77 is damaged" in str(engine.failure)
        with pytest.raises(UnavailableError, match="event 77 is damaged"):
            engine.call(DecisionCommand())
    finally:
        engine.stop()
    damage(path, 77)  # back again
    damage(path, FEW + 5)  # after no snapshot: the one at the end holds it
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM snapshots")
    connection.close()
    with pytest.raises(
        StoreError, match=f"event {FEW + 5} is damaged"
    ):  # what a start depends on
        engine_for("alone", str(path), print)


@pytest.mark.system
@pytest.mark.slow
def test_no_process_outlives_a_kill_and_the_next_start_is_not_refused(
    large: Path, tmp_path: Path
) -> None:
    (tmp_path / "decisions.db").write_bytes(large.read_bytes())
    for _ in range(3):
        started = start(tmp_path)
        pid = started.process.pid
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for task in tasks for child in task.read_text().split()]
        assert started.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(
            lambda children=children: (
                not any(Path(f"/proc/{child}").exists() for child in children)
            )
        )
    assert start(tmp_path).end() == 0


def test_events_may_be_added_and_removed_while_a_store_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "BLOCK", 8)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        for number in range(20):
            engine.call(DecisionCommand(id=str(number)))
        engine.store.save_snapshot(engine.state.seq, engine.state.to_bytes())

        def disturb(done: int, total: int) -> None:
            if done == 8:
                engine.call(
                    commands.erase([("2", "default"), ("18", "default")]), alone=True
                )
                engine.call(DecisionCommand(id="new"))
                engine.call(commands.retain(engine.state.seq), alone=True)

        assert verify(tmp_path / "d.db", progress=disturb) == 22
        assert verify(tmp_path / "d.db", thorough=True) == engine.store.head().seq


# -- files --


def test_only_its_owner_can_read_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        modes = {
            file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()
        }
    assert modes == dict.fromkeys(("d.db", "d.db-wal", "d.db-shm"), 0o600)


def test_a_log_that_is_removed_under_a_running_service_is_noticed_and_saved(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        engine.call(DecisionCommand(id="before"))
        path.with_name("d.db-wal").unlink()
        with pytest.raises((StoreError, UnavailableError)):
            engine.call(DecisionCommand(id="after"))
        assert "was removed while it was in use" in str(engine.failure)
    store = open_store(path, check=verify)
    assert [bool(store.of_key(f"{id}\ndefault")) for id in ("before", "after")] == [
        True,
        False,
    ]
    replay_all(store)
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_store_that_may_not_be_written_to_is_not_called_damaged() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "d.db"
        with running(path) as engine:
            serve(engine)
        path.chmod(0o444)
        folder.chmod(0o555)
        os.seteuid(65_534)
        try:
            for writing, message in (
                (True, "cannot be written to"),
                (False, "cannot be opened"),
            ):
                with pytest.raises(StoreError, match=message) as raised:
                    open_store(path, writing=writing)
                assert "damaged" not in str(raised.value)
        finally:
            os.seteuid(0)

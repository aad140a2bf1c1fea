"""A damaged store is refused, and what is not damage is not taken for it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import decision_key
from invariant_bandits_service.replay import compact, replay_all, restore
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store, verify
from invariant_bandits_service.store.sql import Connection, StoreError, UnavailableError
from invariant_bandits_service.store.sqlite import check_journal
from served_models import Clock, running, serve


def play(path: Path, rounds: int, clock: Clock | None = None) -> dict[str, str]:
    with running(path, clock) as engine:
        if not engine.state.models:
            serve(engine)
        for n in range(rounds):
            decided = engine.call(DecisionCommand(context={"hour": str(n % 3)}))
            engine.call(RewardCommand(decided.id, float(n % 2)))
        return engine.state.hashes()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A file with a log of 40 transactions beside it, as a killed process leaves it; and its number of
    rows.
    """
    folder = tmp_path_factory.mktemp("journal")
    connection = sqlite3.connect(folder / "live.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for n in range(40):
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO t VALUES (?)",
            [(np.random.default_rng(n).bytes(1_500),) for _ in range(3)],
        )
        connection.execute("COMMIT")
    for end in ("", "-wal"):
        shutil.copy(folder / f"live.db{end}", folder / f"left.db{end}")
    connection.close()
    return folder / "left.db", 120


def rows_with(left: Path, folder: Path, log: bytes) -> int:
    """Rows that SQLite sees with this log, if it is not found to be damaged."""
    for old in folder.glob("trial.db*"):
        old.unlink()
    shutil.copy(left, folder / "trial.db")
    (folder / "trial.db-wal").write_bytes(log)
    check_journal(folder / "trial.db")
    connection = sqlite3.connect(folder / "trial.db")
    try:
        return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])
    finally:
        connection.close()


def test_every_flipped_bit_in_the_log_of_a_killed_process_is_found(
    journal: tuple[Path, int], tmp_path: Path
) -> None:
    """SQLite takes each of these for the end of the log, and would forget the transactions after it."""
    left, count = journal
    whole = left.with_name("left.db-wal").read_bytes()
    assert rows_with(left, tmp_path, whole) == count
    rng = np.random.default_rng(0)
    last = rng.integers(len(whole) - 4_120, len(whole), size=40)
    heads = [*range(0, 32, 3), *(32 + 4_120 * 7 + np.arange(0, 24, 2))]
    for place in [*rng.integers(len(whole), size=80), *last, *heads]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(StoreError, match="damaged"):
            rows_with(left, tmp_path, bytes(flipped))


def test_a_torn_last_transaction_is_no_damage_but_a_torn_earlier_one_is(
    journal: tuple[Path, int], tmp_path: Path
) -> None:
    left, count = journal
    whole = left.with_name("left.db-wal").read_bytes()
    for cut in (1, 4_119, 4_121, 5_000):
        assert rows_with(left, tmp_path, whole[:-cut]) == count - 3
    torn = bytearray(whole)
    torn[-4_120 - 700 : -4_120] = bytes(700)
    assert rows_with(left, tmp_path, bytes(torn)) == count - 3
    torn = bytearray(whole)
    torn[len(torn) // 2 : len(torn) // 2 + 512] = bytes(512)
    with pytest.raises(StoreError, match="damaged in frame"):
        rows_with(left, tmp_path, bytes(torn))


@pytest.mark.system
def test_flipped_bits_are_refused_or_without_effect() -> None:
    """The short form of service/chaos/flip.py: no flip may go unnoticed, and most must be noticed by the event
    they hit.
    """
    from flip import run

    results = run(12, 4_600, seed=3)
    assert not any(told["missed"] for told in results.values()), results
    assert (
        sum(
            told["outcomes"].get("refused, an event named", 0)
            for told in results.values()
        )
        >= 8
    )


def test_events_that_are_missing_at_the_end_or_hidden_from_their_ids_are_noticed(
    tmp_path: Path,
) -> None:
    play(tmp_path / "d.db", 5)
    shutil.copy(tmp_path / "d.db", tmp_path / "e.db")
    connection = sqlite3.connect(tmp_path / "d.db")
    connection.execute("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="event 16 is missing"):
        open_store(tmp_path / "d.db", check=verify)
    connection = sqlite3.connect(tmp_path / "e.db", isolation_level=None)
    asked = "SELECT sql FROM sqlite_schema WHERE name = 'events_by_key'"
    (made,) = connection.execute(asked).fetchone()
    (key,) = connection.execute("SELECT key FROM events WHERE seq = 5").fetchone()
    connection.execute("DROP INDEX events_by_key")
    connection.execute(f"{made} AND key != '{key}'")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET sql = ? WHERE name = 'events_by_key'", (made,)
    )
    connection.close()
    with pytest.raises(StoreError, match="its index by key does not match its events"):
        open_store(tmp_path / "e.db", check=verify)


def test_old_events_go_and_the_chain_and_the_state_stay(tmp_path: Path) -> None:
    clock = Clock()
    play(tmp_path / "d.db", 300, clock)
    clock.now += 1_000.0
    live = play(tmp_path / "d.db", 20, clock)
    store = open_store(tmp_path / "d.db")
    old = next(row.key for row in store.rows(2) if row.key)
    before = store.head()
    done = compact(store, clock.now - 500.0)
    assert done == (902, 60)
    assert (store.head(), store.start().seq, store.of_key(str(old))) == (
        before,
        902,
        [],
    )
    assert restore(store).hashes() == replay_all(store).hashes() == live
    assert compact(store, clock.now - 500.0)[0] == 0
    store.close()
    assert verify(tmp_path / "d.db") == verify(tmp_path / "d.db", thorough=True) == 962
    with running(tmp_path / "d.db", clock) as engine:
        assert engine.call(RewardCommand(str(old), 1.0)) == "unknown"
    play(tmp_path / "d.db", 5, clock)
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == restore(store).hashes()
    store.close()


def test_decisions_that_wait_for_rewards_are_never_removed(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        engine.call(DecisionCommand(id="gone"))
        engine.call(
            commands.configure(
                "default", Configuration(reward_wait=1e6, default_reward=0.0)
            ),
            alone=True,
        )
        engine.call(DecisionCommand(id="waits"))
        engine.call(DecisionCommand(id="later"))
    store = open_store(tmp_path / "d.db")
    compact(store, clock.now + 1e9)
    assert (
        [
            len(store.of_key(decision_key(id, "default")))
            for id in ("gone", "waits", "later")
        ]
    ) == [
        0,
        1,
        1,
    ]
    store.close()
    with running(tmp_path / "d.db", clock) as engine:
        clock.now += 1e7
        for _ in range(3):
            engine.call(commands.inspect(lambda state: None))
        assert engine.state.models["default"].counts.defaulted == 2


def test_a_full_disk_is_answered_with_unavailable_and_recovers_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invariant_bandits_service.engine.RETRY_EVERY", 0.05)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        for n in range(20):
            engine.call(DecisionCommand(id=str(n)))
        real, full = engine.store.database.connect, True

        def small() -> Connection:
            connection: Connection = real()
            if full:
                ((pages,),) = connection.execute("PRAGMA page_count")
                connection.execute(f"PRAGMA max_page_count = {pages}")
            return connection

        monkeypatch.setattr(engine.store.database, "connect", small)
        engine.call(lambda state, batch: engine.store.reopen())
        before, refused = engine.state.seq, 0
        for n in range(200):
            try:
                engine.call(
                    DecisionCommand(context={"text": "x" * 900}, id=f"more {n}")
                )
            except UnavailableError:
                refused += 1
        accepted = engine.state.seq - before
        assert refused > 100
        assert accepted + refused == 200
        assert not engine.available
        full = False
        for _ in range(60):
            engine.call(commands.inspect(lambda state: None))
            if engine.available:
                break
            import time

            time.sleep(0.05)
        assert engine.available
        engine.call(DecisionCommand(id="after"))
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db", check=verify)
    assert replay_all(store).hashes() == live
    store.close()


def test_a_store_that_is_taken_away_stops_the_engine_and_nothing_is_acknowledged(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        os.rename(tmp_path / "d.db", tmp_path / "elsewhere.db")
        with pytest.raises((StoreError, UnavailableError)):
            engine.call(DecisionCommand())
        assert isinstance(engine.failure, StoreError)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written to"):
        open_store(tmp_path / "nowhere" / "d.db")

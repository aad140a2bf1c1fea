"""A running service keeps what its rule says, and copies of its store are whole."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Retention
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.state import Records
from invariant_bandits_service.store.open_store import copy_store, open_store, verify
from invariant_bandits_service.store.sql import StoreError
from served_models import Clock, running, serve


@pytest.mark.parametrize(
    "rule", [Retention(days=1.0), Retention(events=200), Retention(1.0, 300)]
)
def test_a_store_stays_bounded_and_replays(
    address: str, rule: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invariant_bandits_service.engine.SNAPSHOT_EVERY", 20)
    clock, sizes = Clock(), []
    with running(address, clock, retention=rule) as engine:
        serve(engine)
        for number in range(240):
            clock.now += 1_800.0
            engine.call(DecisionCommand(id=str(number)))
            engine.call(RewardCommand(str(number), 1.0))
            sizes.append(engine.state.seq - engine.store.start().seq)
        live = engine.state.hashes()
    assert max(sizes[100:]) <= 1.25 * (3 * 48 if rule.events is None else rule.events)
    store = open_store(address, check=verify)
    base = store.base()
    assert base is not None
    assert (
        store.head().seq - base[0] > 40
    )  # a replay does not begin with the last event
    assert restore(store).hashes() == replay_all(store).hashes() == live
    assert len(store.snapshot_seqs()) <= 22
    store.close()


def test_memory_for_decisions_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from invariant_bandits_service import state
    from invariant_bandits_service.events import Decided, encode_event

    monkeypatch.setattr(state, "LARGEST_REMEMBERED", 100_000)
    records = Records(lambda key: [])
    large = [
        Decided(0.0, str(n), "m", "1", n, {"text": "x" * 9_000}, ["a"], None, 0, [1.0])
        for n in range(50)
    ]
    for event in large:
        records.take(event, fresh=True)
    remembered = [event for event in large if records.cached(f"{event.id}\nm")]
    assert remembered == large[-11:]
    assert sum(len(encode_event(event)) for event in remembered) <= 100_000


def test_a_copy_of_a_store_in_use_is_whole_and_can_be_served(tmp_path: Path) -> None:
    path, copy, back = tmp_path / "d.db", tmp_path / "copy.db", tmp_path / "back.db"
    with running(path) as engine:
        serve(engine)
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                engine.call(RewardCommand(engine.call(DecisionCommand()).id, 1.0))

        thread = threading.Thread(target=load)
        thread.start()
        try:
            heads = [copy_store(path, copy, force=True) for _ in range(5)]
        finally:
            stop.set()
            thread.join()
        with pytest.raises(InputError, match="exists"):
            copy_store(path, copy)
        with pytest.raises(StoreError, match="in use"):
            copy_store(copy, path, force=True)
    assert heads[-1].seq > heads[0].seq
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert copy_store(copy, back) == heads[-1]
    store = open_store(back, check=verify)
    hashes = replay_all(store).hashes()
    assert next(iter(store.rows(heads[-1].seq - 1))).digest == heads[-1].digest
    store.close()
    with running(back) as engine:
        assert engine.state.hashes() == hashes
        engine.call(DecisionCommand(id="goes on"))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "back.db",
        "copy.db",
        "d.db",
    ]
    with pytest.raises(InputError, match="pg_dump"):
        copy_store("postgresql://db/decisions", copy)

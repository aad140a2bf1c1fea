"""What is removed from a store is gone, and the chain, the state and its replay stay whole."""

from __future__ import annotations

from pathlib import Path

from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import decision_key
from invariant_bandits_service.replay import erased_without_record, replay_all, restore
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store, verify
from served_models import Clock, running, serve


def decide(engine: Engine, *ids: str, rewarded: bool = True) -> None:
    for id in ids:
        engine.call(DecisionCommand(context={"hour": "1"}, id=id))
        if rewarded:
            engine.call(RewardCommand(id, 1.0))


def kept(address: str, *ids: str) -> list[int]:
    """How many events of each decision the store holds."""
    store = open_store(address, writing=False)
    counts = [len(store.of_key(decision_key(id, "default"))) for id in ids]
    store.close()
    return counts


def check_whole(address: str, live: dict[str, str]) -> None:
    """The chain, the snapshots and the replay of a closed store."""
    store = open_store(address, check=verify)
    assert restore(store).hashes() == replay_all(store).hashes() == live
    assert erased_without_record(store) == []
    store.close()
    verify(store.path, thorough=True)


def test_erased_decisions_are_gone_and_the_chain_and_the_replay_stay(
    address: str,
) -> None:
    with running(address) as engine:
        serve(engine)
        decide(engine, "alice 1", "bob", "alice 2")
        before = engine.state.hashes()
        asked = [("alice 1", "default"), ("alice 2", "default"), ("nobody", "default")]
        assert engine.call(commands.erase(asked, by="an officer"), alone=True) == 6
        assert engine.state.hashes() == before  # what was learned stays learned
        assert engine.call(RewardCommand("alice 1", 0.0)) == "unknown"
        decide(engine, "carol")
        live = engine.state.hashes()
    assert kept(address, "alice 1", "bob", "alice 2") == [
        1,
        3,
        0,
    ]  # the reward that came later
    check_whole(address, live)
    with running(address) as engine:
        assert engine.state.hashes() == live


def test_an_erased_decision_is_not_waited_for_any_longer(address: str) -> None:
    clock = Clock()
    with running(address, clock) as engine:
        serve(engine)
        rules = Configuration(reward_wait=60.0, default_reward=0.0)
        engine.call(commands.configure("default", rules), alone=True)
        decide(engine, "alice", "bob", rewarded=False)
        engine.call(commands.erase([("alice", "default")]), alone=True)
        assert [id for _, id in engine.state.models["default"].waiting] == ["bob"]
        clock.now += 61.0
        for _ in range(3):
            engine.call(commands.inspect(lambda state: None))
        live = engine.state.hashes()
        assert engine.state.models["default"].counts.defaulted == 1
    check_whole(address, live)


def test_no_byte_of_an_erased_decision_stays_in_the_file(tmp_path: Path) -> None:
    path, secret = tmp_path / "d.db", "very-secret-person"
    with running(path) as engine:
        serve(engine)
        decide(engine, *(f"other {n}" for n in range(30)))
        engine.call(
            DecisionCommand(context={"hour": "1", "note": f"{secret} " * 40}, id=secret)
        )
        decide(engine, *(f"more {n}" for n in range(30)))
        engine.call(lambda state, batch: engine._snapshot())
        engine.call(commands.erase([(secret, "default")]), alone=True)
        files = [path, path.with_name("d.db-wal")]
        # the name of the feature is part of the model, which has learned from it
        assert not any(
            (secret + " " + secret).encode() in file.read_bytes() for file in files[1:]
        )
        assert not any(secret.encode() + b"\n" in file.read_bytes() for file in files)


def test_an_event_cannot_be_erased_without_a_record(tmp_path: Path) -> None:
    from invariant_bandits_service.store.sql import Cut

    with running(tmp_path / "d.db") as engine:
        serve(engine)
        decide(engine, "x")
    store = open_store(tmp_path / "d.db")
    state = restore(store)
    store.append([], cut=Cut(0, state.seq, state.to_bytes(), [2]))
    assert erased_without_record(store) == [2]
    store.close()

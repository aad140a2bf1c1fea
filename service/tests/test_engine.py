"""The engine: what was acknowledged is in the store, of either kind, and the state is a function of the
store.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_service import commands
from invariant_bandits_service.commands import (
    DecisionCommand,
    EventBatch,
    RewardCommand,
)
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import ConflictError, State
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.store.sql import StoreError, UnavailableError
from served_models import Clock, fitted, play_together, running, serve


def play(
    engine: Engine, rounds: int, model: str = "default", seed: int = 0
) -> list[float]:
    """Arm number h is best in hour h: rewarded with 0.8, the others with 0.2."""
    rng, rewards = np.random.default_rng(seed), []
    for _ in range(rounds):
        hour = int(rng.integers(3))
        decided = engine.call(DecisionCommand(model, {"hour": str(hour)}))
        value = float(
            rng.random()
            < (0.8 if decided.labels[decided.index] == "abc"[hour] else 0.2)
        )
        assert engine.call(RewardCommand(decided.id, value)) == "learned"
        rewards.append(value)
    return rewards


def test_an_empty_model_learns_a_planted_world(tmp_path: Path) -> None:
    """Uniform play earns 0.4; a model that has learned misses 0.6 in the last 200 rounds less than once
    in 10^6.
    """
    rng = np.random.default_rng(0)
    asked = [
        DecisionCommand(context={"hour": str(hour)})
        for hour in rng.integers(3, size=1_000)
    ]
    rewards = []

    def reward(decided: Decided) -> float:
        best = "abc"[int((decided.context or {})["hour"])]
        rewards.append(
            float(
                rng.random() < (0.8 if decided.labels[decided.index] == best else 0.2)
            )
        )
        return rewards[-1]

    with running(tmp_path / "d.db") as engine:
        serve(engine)
        play_together(engine, asked, reward, size=5)
    assert np.mean(rewards[-200:]) >= 1.5 * 0.4


def test_replay_snapshot_and_live_state_are_the_same_bits(address: str) -> None:
    with running(address) as engine:
        serve(engine)
        serve(engine, fitted(), "fitted")
        play(engine, 50)
        rng = np.random.default_rng(1)
        for age in rng.normal(size=40).tolist():
            decided = engine.call(DecisionCommand("fitted", {"age": age}))
            engine.call(RewardCommand(decided.id, float(rng.random() < 0.5)))
        live = engine.state.hashes()
    store = open_store(address)
    assert restore(store).hashes() == live
    assert replay_all(store).hashes() == live
    assert store.latest_snapshot() is not None
    store.close()


def test_the_state_after_64_threads_is_that_of_the_log_in_its_order(
    address: str,
) -> None:
    with running(address) as engine:
        serve(engine)
        threads = [
            threading.Thread(target=play, args=(engine, 5, "default", n))
            for n in range(64)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        live = engine.state.hashes()
        assert engine.state.models["default"].counts.learned == 320
    store = open_store(address)
    assert replay_all(store).hashes() == live
    store.close()


def test_the_same_id_has_the_same_answer_and_a_repeated_reward_changes_nothing(
    address: str,
) -> None:
    with running(address) as engine:
        serve(engine)
        first = engine.call(DecisionCommand(context={"hour": "1"}, id="x"))
        assert engine.call(DecisionCommand(context={"hour": "1"}, id="x")) == first
        assert engine.call(RewardCommand("x", 1.0)) == "learned"
        before, seq = engine.state.hashes(), engine.state.seq
        assert engine.call(RewardCommand("x", 1.0)) == "unchanged"
        with pytest.raises(ConflictError, match="contradicts"):
            engine.call(RewardCommand("x", 0.0))
        with pytest.raises(InputError, match="value"):
            engine.call(RewardCommand("x", float("nan")))
        with pytest.raises(ConflictError, match="another context"):
            engine.call(DecisionCommand(context={"hour": "2"}, id="x"))
        assert (engine.state.hashes(), engine.state.seq) == (before, seq)
    with running(address) as engine:  # also from the store alone
        assert engine.call(DecisionCommand(context={"hour": "1"}, id="x")) == first
        with pytest.raises(ConflictError, match="another context"):
            engine.call(DecisionCommand(context={"hour": "2"}, id="x"))
        assert engine.call(RewardCommand("x", 1.0)) == "unchanged"


def test_after_the_wait_the_default_is_learned_exactly_once(address: str) -> None:
    clock = Clock()
    with running(address, clock) as engine:
        serve(engine)
        rules = Configuration(reward_wait=60.0, default_reward=0.0, aggregation="sum")
        engine.call(commands.configure("default", rules), alone=True)
        for id in ("none", "two"):
            engine.call(DecisionCommand(id=id))
        assert engine.call(RewardCommand("two", 1.0)) == "waiting"
        assert engine.call(RewardCommand("two", 2.0)) == "waiting"
        assert engine.state.models["default"].counts.learned == 0
        clock.now += 61.0
        engine.call(commands.inspect(lambda state: None))
        engine.call(commands.inspect(lambda state: None))
        counts = engine.state.models["default"].counts
        assert (counts.learned, counts.defaulted, counts.reward_sum) == (2, 1, 3.0)
        assert engine.call(RewardCommand("none", 1.0)) == "late"
        assert engine.call(RewardCommand("two", 5.0)) == "late"
        assert engine.call(RewardCommand("nobody", 1.0)) == "unknown"
        assert (counts.learned, counts.late, counts.unknown) == (2, 2, 1)
        live = engine.state.hashes()
    store = open_store(address)
    assert replay_all(store).hashes() == live
    store.close()


def test_a_reward_that_comes_before_its_decision_is_joined(address: str) -> None:
    with running(address) as engine:
        serve(engine)
        assert engine.call(RewardCommand("early", 1.0)) == "unknown"
        engine.call(DecisionCommand(id="early"))
        assert engine.state.models["default"].counts.learned == 1


def test_a_deferred_decision_is_learned_only_once_it_is_shown(address: str) -> None:
    with running(address) as engine:
        serve(engine)
        engine.call(DecisionCommand(id="later", deferred=True))
        assert engine.call(RewardCommand("later", 1.0)) == "waiting"
        assert engine.state.models["default"].counts.learned == 0
        assert engine.call(commands.activate("later"))
        assert not engine.call(commands.activate("later"))
        assert engine.state.models["default"].counts.learned == 1


def test_roll_back_restores_the_version_before_exactly(address: str) -> None:
    with running(address) as engine:
        first = serve(engine)
        play(engine, 30)
        left = engine.state.models["default"].learner.to_bytes()
        second = serve(engine)
        assert second != first
        play(engine, 30, seed=1)
        assert engine.call(commands.roll_back("default"), alone=True) == first
        assert engine.state.models["default"].learner.to_bytes() == left
        with pytest.raises(InputError, match="no earlier version"):
            engine.call(commands.roll_back("default"), alone=True)


def test_whoever_waits_hears_that_the_engine_has_stopped(address: str) -> None:
    """Also those whose requests were taken together with the one that it stopped at."""
    store = open_store(address)
    engine = Engine(store)
    engine.start()
    serve(engine)

    def damaged(state: State, batch: EventBatch) -> None:
        time.sleep(0.2)  # meanwhile the others come
        raise StoreError("event 7 is damaged")

    with ThreadPoolExecutor(6) as pool:
        broken = pool.submit(
            engine.call, commands.inspect(lambda state: time.sleep(0.2))
        )
        waiting = [pool.submit(engine.call, damaged, alone=True) for _ in range(2)]
        waiting += [pool.submit(engine.call, DecisionCommand()) for _ in range(3)]
        broken.result(30.0)
        for item in waiting:
            with pytest.raises(UnavailableError, match="event 7 is damaged"):
                item.result(30.0)
    engine.stop()


@pytest.mark.parametrize("kind", ["empty", "fitted"])
def test_a_batch_decides_as_its_decisions_would_one_by_one(
    tmp_path: Path, kind: str
) -> None:
    """Nothing is learned in between, and every name has its place: the same bits."""
    ages = np.random.default_rng(3).normal(size=64).tolist()
    asked = [
        DecisionCommand(context={"age": age}, id=str(number))
        for number, age in enumerate(ages)
    ]
    decided = []
    for name in ("together", "alone"):
        with running(tmp_path / f"{name}.db", Clock()) as engine:
            serve(engine, fitted() if kind == "fitted" else None)
            engine.call(
                commands.configure("default", Configuration(floor=0.5)), alone=True
            )
            first = engine.call(DecisionCommand(context={"age": 0.5}, id="first"))
            engine.call(RewardCommand(first.id, 1.0))
            whole = commands.all_or_none(asked)
            decided.append(
                engine.call(whole)
                if name == "together"
                else [engine.call(each) for each in asked]
            )
    fields = ("index", "propensities", "means", "draw", "why", "labels")
    together, alone = ([event.show(*fields) for event in events] for events in decided)
    assert together == alone
    assert len({event["index"] for event in together}) > 1

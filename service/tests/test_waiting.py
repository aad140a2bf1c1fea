"""Rewards that are waited for: whatever the rules become, every decision is settled once, and nothing
spins.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from invariant_bandits_service import commands
from invariant_bandits_service import state as states
from invariant_bandits_service.commands import (
    DecisionCommand,
    EventBatch,
    RewardCommand,
)
from invariant_bandits_service.engine import LARGEST_BATCH, Engine
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import State
from invariant_bandits_service.store.open_store import open_store
from served_models import Clock, running, serve


def rules(engine: Engine, wait: float | None, **more: object) -> None:
    engine.call(
        commands.configure("default", Configuration(reward_wait=wait, **more)),
        alone=True,
    )  # type: ignore[arg-type]


def decide(engine: Engine, *ids: str) -> None:
    for id in ids:
        engine.call(DecisionCommand(id=id))


def settled(engine: Engine, *ids: str) -> list[str | None]:
    """Why each decision was settled, after whatever is due."""

    def look(state: State) -> list[str | None]:
        closed = [state.record(id, "default", {}).closed for id in ids]  # type: ignore[union-attr]
        return [None if item is None else item.why for item in closed]

    for _ in range(3):  # what is due is settled after a step
        engine.call(commands.inspect(lambda state: None))
    told: list[str | None] = engine.call(commands.inspect(look))
    return told


def test_a_shorter_wait_is_not_held_up_by_longer_ones(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        rules(engine, 1_000.0, default_reward=0.0)
        decide(engine, "long")
        rules(engine, 10.0, default_reward=0.0)
        decide(engine, "short")
        clock.now += 11.0
        assert settled(engine, "long", "short") == [None, "default"]
        clock.now += 1_000.0
        assert settled(engine, "long", "short") == ["default", "default"]
        assert engine.state.models["default"].counts.learned == 2


def test_a_decision_keeps_the_wait_it_was_made_under(tmp_path: Path) -> None:
    """Without this a reward would wait for an end that never comes, or a wait would be left behind for
    ever.
    """
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        decide(engine, "at once")
        rules(engine, 60.0, default_reward=0.0)
        decide(engine, "first", "second")
        assert engine.call(RewardCommand("at once", 1.0)) == "learned"
        rules(engine, None)
        assert engine.call(RewardCommand("second", 1.0)) == "waiting"
        clock.now += 61.0
        assert settled(engine, "first", "second") == ["no reward", "reward"]
        assert len(engine.state.models["default"].waiting) == 0
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()


def test_more_decisions_than_fit_a_batch_are_all_settled_once(tmp_path: Path) -> None:
    clock, count = Clock(), 2 * LARGEST_BATCH + 7
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        rules(engine, 5.0, default_reward=0.5)
        decide(engine, *(str(n) for n in range(count)))
        clock.now += 6.0
        for _ in range(6):
            engine.call(commands.inspect(lambda state: None))
        counts = engine.state.models["default"].counts
        assert (counts.learned, counts.defaulted, engine.state.next_due()) == (
            count,
            count,
            float("inf"),
        )


def test_time_goes_on_when_the_clock_is_put_back(tmp_path: Path) -> None:
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        decide(engine, "before")
    clock.now -= 3_600.0
    with running(tmp_path / "d.db", clock) as engine:
        decide(engine, "after")
        look = [
            commands.inspect(lambda state, id=id: state.record(id, "default", {}))
            for id in ("before", "after")
        ]
        times = [engine.call(command).decided.time for command in look]
        assert times[0] <= times[1] < times[0] + 60.0


def test_a_work_that_fails_costs_nobody_else_anything(tmp_path: Path) -> None:
    def broken(state: State, batch: EventBatch) -> None:
        raise ZeroDivisionError("a slip")

    with running(tmp_path / "d.db") as engine:
        serve(engine)
        before = engine.state.hashes()
        with pytest.raises(ZeroDivisionError):
            engine.call(broken)
        with pytest.raises(ValueError, match="cannot be stored"):
            engine.call(DecisionCommand(context={"half a sign: \ud800": 1.0}))
        assert engine.state.hashes() == before
        decide(engine, "next")


def test_what_cannot_be_learned_is_counted_and_does_not_stop_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from invariant_bandits_service.learners import OpenLearner

    def refuse(*given: object) -> None:
        raise ZeroDivisionError("no policy can take this")

    monkeypatch.setattr(OpenLearner, "learn", refuse)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        decide(engine, "x")
        engine.call(RewardCommand("x", 1.0))
        assert engine.state.models["default"].counts.refused == 1
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()


def test_too_many_waits_end_the_oldest_and_refuse_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "MOST_WAITING", 10)
    path = tmp_path / "d.db"
    with running(path, Clock()) as engine:
        serve(engine)
        rules(engine, 1_000.0, default_reward=0.5)
        ids = [f"d{number}" for number in range(25)]
        decide(engine, *ids)
        told = settled(engine, *ids)
        assert told == ["default"] * 15 + [None] * 10
        served = engine.state.models["default"]
        assert (served.counts.shortened, len(served.waiting)) == (15, 10)
        assert engine.call(RewardCommand("d24", 1.0)) == "waiting"
        assert engine.call(RewardCommand("d0", 1.0)) == "late"
        live = engine.state.hashes()
    store = open_store(path)
    assert replay_all(store).hashes() == live
    store.close()


def test_waits_of_a_snapshot_of_an_earlier_release_are_read(tmp_path: Path) -> None:
    """They were pairs (end, id)."""
    with running(tmp_path / "d.db", Clock()) as engine:
        serve(engine)
        rules(engine, 1_000.0)
        decide(engine, "one", "two")
        live = engine.state.hashes()
        new = states.Deadlines.to_builtins
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(states.Deadlines, "to_builtins", lambda self: list(self))
            earlier = engine.state.to_bytes()
        assert states.Deadlines.to_builtins is new
        assert earlier != engine.state.to_bytes()
        for content in (earlier, engine.state.to_bytes()):
            assert State.from_bytes(content, engine.store).hashes() == live


def test_snapshots_of_many_waits_are_taken_seldom(tmp_path: Path) -> None:
    """Each takes long, and all requests wait for it."""
    with running(tmp_path / "d.db", Clock()) as engine:
        engine._snapshot_took = 1e6
        engine._snapshot_at = engine.state.seq - 100_000
        assert not engine._is_snapshot_due()
        engine._snapshot_at = engine.state.seq - 300_000
        assert engine._is_snapshot_due()
        engine._snapshot_took = 0.0
        engine._snapshot_at = engine.state.seq - 4_000
        assert engine._is_snapshot_due()
        engine._snapshot_at = engine.state.seq

"""A clock that is wrong for a while ends no wait and dates nothing wrongly for good."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from invariant_bandits_service import commands
from invariant_bandits_service.background import RefitSchedule
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.engine import (
    STEADY,
    Engine,
    Retention,
    ServiceClock,
)
from invariant_bandits_service.events import Decided, decode_event
from invariant_bandits_service.replay import first_since, replay_all
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store
from served_models import Clock, running, serve

HOUR, CENTURY = 3_600.0, 36_525 * 86_400.0


class Machine:
    """A machine whose clock can be set, while its ticks go on."""

    def __init__(self) -> None:
        self.wall, self.ticks = Clock(), Clock()

    def spend(self, seconds: float) -> None:
        self.wall.now += seconds
        self.ticks.now += seconds


def settled(engine: Engine) -> int:
    """How many decisions were learned with the default reward, after all that is due."""
    for _ in range(4):
        engine.call(commands.inspect(lambda state: None))
    return engine.state.models["default"].counts.defaulted


def wait_for(engine: Engine, seconds: float) -> None:
    rules = Configuration(reward_wait=seconds, default_reward=0.0)
    engine.call(commands.configure("default", rules), alone=True)


@pytest.mark.parametrize("ahead", [HOUR, CENTURY, -HOUR, -CENTURY])
def test_a_clock_that_is_wrong_for_two_seconds_changes_nothing(
    tmp_path: Path, ahead: float
) -> None:
    machine = Machine()
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        serve(engine)
        wait_for(engine, 600.0)
        engine.call(DecisionCommand(id="before"))
        machine.wall.now += ahead
        machine.spend(2.0)
        during = engine.call(DecisionCommand(id="during"))
        assert settled(engine) == 0
        assert engine.gauges()["clock_offset_seconds"][1] == pytest.approx(ahead)
        machine.wall.now -= ahead
        machine.spend(1.0)
        after = engine.call(DecisionCommand(id="after"))
        assert during.time - 1_000_002.0 == pytest.approx(0.0, abs=0.01)
        assert after.time - 1_000_003.0 == pytest.approx(0.0, abs=0.01)
        machine.spend(598.0)
        assert settled(engine) == 1
        assert engine.gauges()["clock_jumps"][1] == 1


@pytest.mark.parametrize("by", [HOUR, -HOUR, CENTURY])
def test_a_clock_that_stays_where_it_was_set_is_followed_and_waits_keep_their_length(
    tmp_path: Path, by: float
) -> None:
    machine = Machine()
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        serve(engine)
        wait_for(engine, 600.0)
        engine.call(DecisionCommand(id="waits"))
        machine.wall.now += by
        machine.spend(1.0)
        settled(engine)
        machine.spend(STEADY)
        assert settled(engine) == 0
        later = engine.call(DecisionCommand(id="later"))
        assert later.time == pytest.approx(machine.wall.now, abs=0.01)
        machine.spend(598.0 - STEADY)
        assert settled(engine) == 0
        machine.spend(2.0)
        assert settled(engine) == 1
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()


def test_a_store_that_is_dated_ahead_comes_back_to_the_present(tmp_path: Path) -> None:
    """Also what is from before a time is found, although times go back once."""
    machine = Machine()
    machine.wall.now += CENTURY
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        serve(engine)
        engine.call(DecisionCommand(id="ahead"))
    machine.wall.now -= CENTURY
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        assert engine.call(DecisionCommand(id="still ahead")).time > CENTURY
        machine.spend(STEADY + 1.0)
        settled(engine)
        machine.spend(10.0)
        assert engine.call(DecisionCommand(id="present")).time == pytest.approx(
            machine.wall.now, abs=0.01
        )
    store = open_store(tmp_path / "d.db")
    first = first_since(store, machine.wall.now - 5.0, 0, store.head().seq)
    left = [decode_event(row.event) for row in store.rows(first)]
    assert [event.id for event in left if isinstance(event, Decided)] == ["present"]
    store.close()


def test_ticks_are_the_pace_and_small_corrections_are_followed() -> None:
    machine = Machine()
    clock = ServiceClock(0.0, machine.wall, machine.ticks)
    machine.spend(5.0)
    assert clock.now() == 1_000_005.0
    machine.wall.now += 0.5
    assert clock.now() == 1_000_005.5
    machine.wall.now -= 0.9
    assert (
        clock.now() == 1_000_005.5
    )  # it waits for the clock, which is a little behind
    machine.spend(1.0)
    assert clock.now() == pytest.approx(1_000_005.6)


@pytest.mark.parametrize(
    "day", [datetime(2026, 3, 29), datetime(2026, 10, 25), datetime(2026, 6, 1)]
)
def test_learning_begins_once_a_night_also_when_the_clocks_change(
    monkeypatch: pytest.MonkeyPatch, day: datetime
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        moment = day.replace(tzinfo=zone).timestamp() - 86_400.0
        plan, begun = RefitSchedule(at=(2, 30)), []
        for _ in range(3):
            moment += plan.seconds_to_next(moment)
            begun.append(datetime.fromtimestamp(moment, zone).date())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [(date - begun[0]).days for date in begun] == [0, 1, 2]


def test_a_start_with_a_clock_far_ahead_settles_and_removes_nothing_until_confirmed(
    tmp_path: Path,
) -> None:
    machine = Machine()
    path, rule = tmp_path / "d.db", Retention(days=90.0)
    year = 365 * 86_400.0
    with running(path, machine.wall, ticks=machine.ticks) as engine:
        serve(engine)
        wait_for(engine, 6_000.0)
        for number in range(20):
            engine.call(DecisionCommand(id=f"d{number}"))
        before = engine.state.seq
    for _ in range(2):  # also when it is started again
        machine.wall.now += year
        options = {"ticks": machine.ticks, "retention": rule}
        with running(path, machine.wall, **options) as engine:
            machine.spend(2 * STEADY)
            assert settled(engine) == 0
            assert engine.store.start().seq == 0
            assert engine.gauges()["clock_in_doubt"][1]
            assert engine.problem() is None
            new = engine.call(DecisionCommand(id=f"new {machine.wall.now}"))
            assert new.time == pytest.approx(1_000_000.0, abs=10 * STEADY)
        machine.wall.now -= year
    machine.wall.now += year
    with running(path, machine.wall, ticks=machine.ticks, retention=rule) as engine:
        settled(engine)
        engine.confirm_clock()
        settled(engine)
        assert not engine.gauges()["clock_in_doubt"][1]
        now = engine.call(DecisionCommand(id="confirmed"))
        assert now.time == pytest.approx(machine.wall.now, abs=0.01)
        machine.spend(6_001.0)
        assert settled(engine) >= 20
        machine.spend(5.0)
        settled(engine)
        assert engine.store.start().seq >= before - 25
        live = engine.state.hashes()
    store = open_store(path)
    assert replay_all(store).hashes() == live
    store.close()


def test_a_stop_of_some_days_needs_no_confirmation(tmp_path: Path) -> None:
    machine = Machine()
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        serve(engine)
        wait_for(engine, 600.0)
        engine.call(DecisionCommand(id="waits"))
    machine.wall.now += 5 * 86_400.0
    with running(tmp_path / "d.db", machine.wall, ticks=machine.ticks) as engine:
        assert settled(engine) == 1
        assert not engine.gauges()["clock_in_doubt"][1]

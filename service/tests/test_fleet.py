"""One learner and many deciders over one log: its order is the truth, wherever a request came in."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Decider, Engine
from invariant_bandits_service.events import Closed, Decided, decode_event
from invariant_bandits_service.replay import check, replay_all
from invariant_bandits_service.serve import engine_for
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import ConflictError
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.store.sql import StoreError
from postgres_players import Player, cut
from postgres_server import PostgresServer
from served_models import Clock, running, serve
from started_service import SERVE, Started, free_port, service, start

pytestmark = pytest.mark.system

PATIENCE = 30.0
"""Seconds for what others do to be seen, on a busy machine."""


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


@contextmanager
def fleet(
    address: str, deciders: int = 2, clock: Clock | None = None
) -> Iterator[tuple[Engine, list[Decider]]]:
    """A learner with an empty model of three arms, and processes that decide."""
    more = {} if clock is None else {"clock": clock}
    learner = Engine(open_store(address), publish_every=0.1, **more)
    learner.start()
    started: list[Decider] = []
    try:
        serve(learner)
        until(lambda: learner.store.snapshot_seq() is not None)
        for _ in range(deciders):
            started.append(Decider(open_store(address, learning=False), **more))
            started[-1].start()
        yield learner, started
    finally:
        for engine in [*started, learner]:
            engine.stop()


def play(engine: Engine, rounds: int, seed: int) -> list[float]:
    """Arm number h is best in hour h: rewarded with 0.8, the others with 0.2."""
    rng, rewards = np.random.default_rng(seed), []
    for _ in range(rounds):
        hour = int(rng.integers(3))
        decided = engine.call(DecisionCommand(context={"hour": str(hour)}))
        value = float(
            rng.random()
            < (0.8 if decided.labels[decided.index] == "abc"[hour] else 0.2)
        )
        assert engine.call(RewardCommand(decided.id, value)) == "waiting"
        rewards.append(value)
    return rewards


def events_of(address: str) -> list[object]:
    """The whole log."""
    store = open_store(address, writing=False)
    events = [decode_event(row.event) for row in store.rows()]
    store.close()
    return events


@pytest.mark.system
def test_what_deciders_decide_is_learned_and_made_again_bit_for_bit(
    postgres: PostgresServer,
) -> None:
    """Uniform play earns 0.4; the last 300 of 1,200 rounds miss 0.5 less than once in 10^4 once it is
    learned.
    """
    address = postgres.fresh()
    with fleet(address) as (learner, deciders):
        with ThreadPoolExecutor(8) as pool:
            played = list(pool.map(lambda n: play(deciders[n % 2], 150, n), range(8)))
        until(lambda: learner.state.models["default"].counts.learned == 1_200)
        live = learner.state.hashes()
    assert np.mean([item[-38:] for item in played]) >= 0.5
    decisions = [event for event in events_of(address) if isinstance(event, Decided)]
    assert len({decision.at for decision in decisions}) > 3
    assert len({decision.draw for decision in decisions}) == len(decisions) == 1_200
    store = open_store(address, writing=False)
    state = replay_all(store)
    assert state.hashes() == live
    with pytest.raises(StoreError, match="another one"):
        check(state, replace_place(decisions[0]))
    store.close()


def replace_place(decided: Decided) -> Decided:
    """Another decision than was made."""
    return msgspec.structs.replace(decided, index=(decided.index + 1) % 3)


@pytest.mark.system
def test_the_same_id_has_one_answer_whoever_is_asked(postgres: PostgresServer) -> None:
    address = postgres.fresh()
    with fleet(address) as (learner, deciders):
        barrier = threading.Barrier(3)

        def ask(engine: Engine) -> list[tuple[int, float]]:
            answers = []
            for number in range(40):
                barrier.wait(PATIENCE)
                decided = engine.call(
                    DecisionCommand(context={"hour": "1"}, id=f"visit {number}")
                )
                answers.append((decided.index, decided.time))
            return answers

        with ThreadPoolExecutor(3) as pool:
            first, second, third = pool.map(ask, [*deciders, learner])
        assert first == second == third
    assert (
        len([event for event in events_of(address) if isinstance(event, Decided)]) == 40
    )


@pytest.mark.system
def test_rewards_are_taken_anywhere_and_settled_once_by_the_learner(
    postgres: PostgresServer,
) -> None:
    address, clock = postgres.fresh(), Clock()
    with fleet(address, clock=clock) as (learner, (one, other)):
        counts = learner.state.models["default"].counts
        one.call(DecisionCommand(id="x"))
        assert other.call(RewardCommand("x", 1.0)) == "waiting"
        assert one.call(RewardCommand("x", 1.0)) == "unchanged"
        with pytest.raises(ConflictError, match="contradicts"):
            one.call(RewardCommand("x", 0.0))
        until(lambda: counts.learned == 1)
        assert other.call(RewardCommand("early", 1.0)) == "unknown"
        one.call(DecisionCommand(id="early"))
        until(lambda: counts.learned == 2)
        one.call(DecisionCommand(id="later", deferred=True))
        assert other.call(RewardCommand("later", 1.0)) == "waiting"
        assert other.call(commands.activate("later"))
        assert not one.call(commands.activate("later"))
        until(lambda: counts.learned == 3)
        rules = Configuration(reward_wait=60.0, default_reward=0.0, aggregation="sum")
        learner.call(commands.configure("default", rules), alone=True)
        until(
            lambda: all(
                each.state.models["default"].configuration == rules
                for each in (one, other)
            )
        )
        for id in ("none", "two"):
            one.call(DecisionCommand(id=id))
        for value in (1.0, 2.0):
            assert (
                other.call(RewardCommand("two", value, request=str(value))) == "waiting"
            )
        until(lambda: counts.decisions == 5)
        clock.now += 61.0
        until(lambda: counts.learned == 5)
        assert (counts.defaulted, counts.reward_sum) == (1, 6.0)
        assert one.call(RewardCommand("none", 1.0)) == "late"
        until(lambda: counts.late == 1)
        live = learner.state.hashes()
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    store.close()


@pytest.mark.system
def test_nothing_is_lost_or_learned_twice_when_all_connections_are_cut(
    postgres: PostgresServer,
) -> None:
    address = postgres.fresh()
    with fleet(address) as (learner, deciders):
        players = [Player(deciders[n % 2]) for n in range(4)]
        for player in players:
            player.start()
        for _ in range(3):
            before = sum(len(player.rewarded) for player in players)
            until(lambda: sum(len(player.rewarded) for player in players) > before + 20)  # noqa: B023 - called at once
            cut(postgres)
        for player in players:
            player.going = False
            player.join()
        acknowledged = set().union(*(player.rewarded for player in players))
        counts = learner.state.models["default"].counts
        until(
            lambda: (
                learner.state.seq == learner.store.head().seq
                and not learner.state.due(math.inf, 1)
            )
        )
        live, learned = (
            learner.state.hashes(),
            counts.learned,
        )  # rewards without an answer may be there as well
        assert learner.failure is None
    events = events_of(address)
    settled = [event.id for event in events if isinstance(event, Closed)]
    assert len(set(settled)) == len(settled) == learned
    assert acknowledged <= set(settled)
    places = {event.id: event.index for event in events if isinstance(event, Decided)}
    assert len(places) == len([event for event in events if isinstance(event, Decided)])
    for player in players:
        assert player.decided.items() <= places.items()
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    store.close()


@pytest.mark.system
def test_versions_reach_deciders_which_change_nothing_themselves(
    postgres: PostgresServer,
) -> None:
    with fleet(postgres.fresh(), deciders=1) as (learner, (decider,)):
        first = decider.call(DecisionCommand()).version
        second = serve(learner)
        until(lambda: decider.call(DecisionCommand()).version == second)
        learner.call(commands.roll_back("default"), alone=True)
        until(lambda: decider.call(DecisionCommand()).version == first)
        with pytest.raises(ConflictError, match="only decides"):
            decider.call(commands.roll_back("default"), alone=True)


def test_roles_need_a_shared_store(tmp_path: Path) -> None:
    for role in ("learner", "decider"):
        with pytest.raises(InputError, match="postgresql://"):
            engine_for(role, str(tmp_path / "d.db"), print)
    with pytest.raises(
        InputError, match="role must be one of 'alone', 'learner', 'decider'"
    ):
        engine_for("king", str(tmp_path / "d.db"), print)  # type: ignore[arg-type]


@pytest.mark.system
def test_a_second_learner_takes_over_from_a_killed_one(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Killed under load: what was acknowledged is there, learned exactly once, and decided the same when
    replay_all.
    """
    address = postgres.fresh()
    first = start(tmp_path, "--role", "learner", store=address)
    acknowledged: list[str] = []
    going = threading.Event()
    with (
        ThreadPoolExecutor(5) as pool,
        service(tmp_path, "--role", "decider", store=address) as decider,
    ):
        second = pool.submit(start, tmp_path, "--role", "learner", store=address)

        def load(number: int) -> None:
            count = 0
            while not going.is_set():
                id, count = f"{number} {count}", count + 1
                body = {"id": id, "arms": ["a", "b"], "context": {"n": number}}
                if decider.ask("POST", "/v1/decisions", body)[0] != 200:
                    continue
                if (
                    decider.ask("POST", "/v1/rewards", {"id": id, "value": 1.0})[0]
                    == 200
                ):
                    acknowledged.append(id)

        loads = [pool.submit(load, number) for number in range(3)]
        until(lambda: len(acknowledged) > 50)
        assert not second.done()
        first.end(signal.SIGKILL)
        at_death = len(acknowledged)
        successor = second.result(PATIENCE * 2)
        until(lambda: len(acknowledged) > at_death + 50)
        going.set()
        for one in loads:
            one.result(PATIENCE)
        until(
            lambda: (
                successor.ask("GET", "/v1/model")[1]["counts"]["learned"]
                >= len(acknowledged)
            )
        )
        status, refused = decider.ask("POST", "/v1/model/versions/none/activate")
        assert (status, refused["error"]["code"]) == (409, "conflict")
        successor.end()
    settled = [event.id for event in events_of(address) if isinstance(event, Closed)]
    assert len(set(settled)) == len(settled)
    assert set(acknowledged) <= set(settled)
    store = open_store(address, writing=False)
    replay_all(store)
    store.close()


def test_deciders_without_a_learner_say_how_old_their_state_is_and_are_unready_in_time(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invariant_bandits_service.engine.LONGEST_UNLEARNED", 0.5)
    address = postgres.fresh()
    with fleet(address, deciders=1) as (learner, [decider]):
        decider.call(DecisionCommand())
        until(lambda: decider.state.seq >= learner.store.head().seq)
        until(lambda: decider.problem() is None and decider.state_age() < 0.5)
    decider = Decider(open_store(address, learning=False))
    decider.start()
    try:
        time.sleep(0.6)
        assert decider.problem() is None, "nothing has happened that could be learned"
        decider.call(DecisionCommand())
        until(lambda: decider.problem() is not None)
        assert "no learner has published" in str(decider.problem())
        assert decider.gauges()["state_age_seconds"][1] > 0.5
        decider.call(DecisionCommand())  # it goes on deciding
        with running(address, publish_every=0.05):
            until(lambda: decider.problem() is None)
    finally:
        decider.stop()


def test_a_standby_answers_probes_and_nothing_else(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    address = postgres.fresh()
    options = ("--role", "learner")
    with service(tmp_path, *options, store=address) as learner:
        port = free_port()
        line = [*SERVE, *options, "--store", address, "--port", str(port)]
        process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL)
        standby = Started(process, f"http://127.0.0.1:{port}")
        try:
            until(lambda: answers(standby, "/healthz"))
            assert standby.ask("GET", "/healthz")[0] == 200
            assert "invariant_bandits_standby 1" in standby.ask("GET", "/metrics")[1]
            for method, path in (("GET", "/readyz"), ("POST", "/v1/decisions")):
                assert standby.ask(method, path)[0] == 503
            learner.end()
            # The port is closed for a moment while the standby becomes the learner.
            until(lambda: answers(standby, "/readyz"))
        finally:
            standby.end()


def answers(started: Started, path: str) -> bool:
    """Whether a process can be asked, and answers with 200."""
    with suppress(OSError):
        return started.ask("GET", path)[0] == 200
    return False


def test_a_port_that_is_taken_makes_no_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = [*SERVE, "--store", "new.db", "--port", str(port)]
        done = subprocess.run(
            line, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.returncode != 0
    assert f"127.0.0.1:{port} cannot be listened at" in done.stderr
    assert not (tmp_path / "new.db").exists()

"""What an engine relies on holds for the embedded store and for PostgreSQL alike."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.replay import compact, replay_all, restore
from invariant_bandits_service.store.open_store import BLOCK, open_store, verify
from invariant_bandits_service.store.sql import (
    START,
    StoreError,
    UnavailableError,
    check_chain,
)
from served_models import Clock, running, serve


def change(address: str, sqlite: str, postgres: str) -> None:
    """Change something behind the store's back."""
    if address.startswith("postgresql"):
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(postgres)
    else:
        with sqlite3.connect(address) as connection:
            connection.execute(sqlite)
        connection.close()


def filled(address: str, events: int, at_once: int = 1000) -> Any:
    """A closed store with so many events, and its address as `verify` takes it."""
    store = open_store(address)
    for first in range(0, events, at_once):
        store.append(
            [
                (f"id {n}", b"event %d" % n)
                for n in range(first, min(first + at_once, events))
            ]
        )
    store.close()
    return store.path


def store_digest(path: Any, seq: int) -> bytes:
    """The digest that is stored with an event."""
    store = open_store(path, writing=False)
    (row,) = store.rows(seq, seq + 1)
    store.close()
    return bytes(row.digest)


def test_events_come_back_in_their_order_and_the_chain_goes_on(address: str) -> None:
    store = open_store(address)
    assert store.head() == (0, START)
    first = store.append([("a", b"one"), (None, b"\0\xff")], [b"content"])
    store.close()
    store = open_store(address)
    second = store.append([("a", b"three")])
    assert list(store.rows()) == [*first, *second]
    assert [row.batch for row in store.rows()] == [0, 0, 2]
    assert [row.event for row in store.of_key("a")] == [b"one", b"three"]
    assert store.of_key("none") == []
    assert (
        check_chain(store.rows(), START, 0) == store.head().digest == second[0].digest
    )
    assert list(store.rows(1, 2)) == [first[1]]
    assert (
        store.content(
            "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
        )
        == b"content"
    )
    with pytest.raises(StoreError, match="missing"):
        store.content("00")
    store.close()


@pytest.mark.system
def test_an_end_that_was_read_while_the_writer_went_on_is_not_taken_for_a_loss(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(address)
    store.follow(store.append([("a", b"one")]))
    read = store.read

    def read_and_go_on(sql: str, *values: Any) -> list[Any]:
        rows = read(sql, *values)
        monkeypatch.undo()
        store.follow(store.append([("b", b"two")]))
        return rows

    monkeypatch.setattr(store, "read", read_and_go_on)
    assert store.head().seq == 1
    assert store.head().seq == 2
    store.close()


def test_the_newest_snapshot_is_given_and_one_before_it_kept(address: str) -> None:
    store = open_store(address)
    assert store.latest_snapshot() is None
    for seq in (1, 2, 3):
        store.save_snapshot(seq, b"state %d" % seq)
    assert store.latest_snapshot() == (3, b"state 3")
    store.close()
    change(address, *["DELETE FROM snapshots WHERE seq = 3"] * 2)
    store = open_store(address, writing=False)
    assert store.latest_snapshot() == (2, b"state 2")
    store.close()
    change(address, *["DELETE FROM snapshots WHERE seq = 2"] * 2)
    store = open_store(address, writing=False)
    assert store.latest_snapshot() is None
    store.close()


def test_a_second_writer_is_refused_a_reader_is_not(address: str) -> None:
    store = open_store(address)
    with pytest.raises(StoreError, match="in use by another process"):
        open_store(address)
    store.append([("a", b"one")])
    reader = open_store(address, writing=False)
    assert reader.head() == store.head()
    assert reader.seed == store.seed
    reader.close()
    store.close()
    open_store(address).close()


@pytest.mark.system
@pytest.mark.parametrize("damaged", [10, BLOCK + 7, 2 * BLOCK + 5])
def test_a_flipped_bit_is_found_and_its_event_named(address: str, damaged: int) -> None:
    path = filled(address, 2 * BLOCK + 10)
    assert verify(path) == verify(path, thorough=True) == 2 * BLOCK + 10
    flipped = bytearray(b"event %d" % damaged + store_digest(path, damaged))
    flipped[3] ^= 4
    literal = flipped.hex()
    change(
        address,
        f"UPDATE events SET body = x'{literal}' WHERE seq = {damaged}",
        f"UPDATE events SET body = decode('{literal}', 'hex') WHERE seq = {damaged}",
    )
    for thorough in (False, True):
        with pytest.raises(StoreError, match=f"event {damaged} is damaged"):
            verify(path, thorough=thorough)


@pytest.mark.system
@pytest.mark.parametrize("gone", [0, 99, BLOCK])
def test_a_missing_event_is_found(address: str, gone: int) -> None:
    path = filled(address, BLOCK + 3)
    change(address, *[f"UPDATE events SET seq = seq + 100000 WHERE seq = {gone}"] * 2)
    with pytest.raises(StoreError, match=r"missing|damaged"):
        verify(path)
    change(address, *[f"UPDATE events SET seq = {gone} WHERE seq >= 100000"] * 2)
    assert verify(path) == BLOCK + 3


def used(address: str) -> None:
    """Open a store with everything check_chain, and replay it."""
    store = open_store(address, check=verify)
    try:
        replay_all(store)
    finally:
        store.close()


@pytest.mark.system
@pytest.mark.parametrize(
    "removed",
    ["FROM events WHERE seq = 6", "FROM snapshots", "FROM contents", "FROM meta"],
)
def test_a_tail_and_what_is_kept_beside_events_cannot_vanish(
    address: str, removed: str
) -> None:
    with running(address) as engine:
        serve(engine)
        for id in "xyzuv":
            engine.call(DecisionCommand(id=id))
        path = engine.store.path
    open_store(address, check=verify).close()
    change(address, *[f"DELETE {removed}"] * 2)
    if removed == "FROM snapshots":  # nothing is lost: the events tell
        assert verify(path) == 7
        return
    with pytest.raises(StoreError, match=r"missing|no seed"):
        used(address)


def test_old_events_are_removed_and_the_rest_is_replayed_from_what_was_kept(
    address: str,
) -> None:
    clock = Clock()
    with running(address, clock) as engine:
        serve(engine)
        for number in range(40):
            clock.now += 1.0
            engine.call(
                DecisionCommand(context={"hour": str(number % 3)}, id=str(number))
            )
            engine.call(RewardCommand(str(number), 1.0))
    store = open_store(address, check=verify)
    before, whole = restore(store).hashes(), store.head()
    removed, _ = compact(store, clock.now - 10.0)
    assert removed > 50
    assert (store.start().seq, store.head()) == (removed, whole)
    assert restore(store).hashes() == replay_all(store).hashes() == before
    store.close()
    assert verify(store.path) == verify(store.path, thorough=True) == whole.seq
    with running(address, clock) as engine:
        assert engine.call(RewardCommand("39", 1.0)) == "unchanged"
        engine.call(DecisionCommand(id="new"))
        live = engine.state.hashes()
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    store.close()


def answer_lost(append: Callable[..., Any]) -> Callable[..., Any]:
    """Stores what it is given, but its answer is lost."""

    def appending(*given: Any, **more: Any) -> Any:
        append(*given, **more)
        raise UnavailableError("the answer was lost")

    return appending


def test_what_was_stored_although_the_answer_was_lost_is_followed_and_not_done_twice(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(address) as engine:
        serve(engine)
        for id in ("x", "y"):
            engine.call(DecisionCommand(context={"hour": "1"}, id=id))
        with monkeypatch.context() as broken:
            broken.setattr(engine.store, "append", answer_lost(engine.store.append))
            with pytest.raises(UnavailableError):
                engine.call(RewardCommand("x", 1.0))
        assert engine.call(RewardCommand("y", 1.0)) == "learned"
        assert engine.call(RewardCommand("x", 1.0)) == "unchanged"
        assert engine.state.models["default"].counts.learned == 2
        live = engine.state.hashes()
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    store.close()


def test_a_decision_is_made_again_if_what_was_thought_lost_turns_up_before_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(address) as engine:
        serve(engine)
        for n in range(5):
            engine.call(DecisionCommand(context={"hour": "1"}, id=str(n)))
            with monkeypatch.context() as broken:
                broken.setattr(engine.store, "append", answer_lost(engine.store.append))
                with pytest.raises(UnavailableError):
                    engine.call(RewardCommand(str(n), 1.0))
            engine.call(DecisionCommand(context={"hour": "1"}, id=f"after {n}"))
        live = engine.state.hashes()
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == live
    store.close()

"""A state that is read from its snapshot is the state that was written: after a restart nothing is known otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from invariant_bandits_service import commands, state
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import State
from local_client import TestClient
from served_models import fitted, running, serve

NOT_IN_A_SNAPSHOT = {
    "store": "where the snapshot is kept",
    "at": "says for what a state is used, not what it holds",
    "records": "are read from the store",
    "changed": "is cleared by its reader",
    "_views": "are made from the models",
}


def refuse(engine: Engine, *ids: str) -> None:
    """Decide by a version of other columns than the one that has to learn the reward, and refuses it."""
    serve(engine, OpenLearner())
    for id in ids:
        engine.call(DecisionCommand(context={"city": "Bern"}, labels=["a", "b"], id=id))
    serve(engine, fitted())
    for id in ids:
        engine.call(RewardCommand(id, 1.0))


def status(engine: Engine, id: str) -> Any:
    return (
        TestClient(Application(Service(engine)))
        .get(f"/v1/decisions/{id}")
        .json()["status"]
    )


def test_a_refused_reward_is_refused_after_a_restart(address: str) -> None:
    with running(address) as engine:
        refuse(engine, "x")
        assert status(engine, "x") == "refused"
        engine.call(lambda state, batch: engine._snapshot())
    with running(address) as engine:
        assert status(engine, "x") == "refused"


def test_every_field_of_a_state_survives_its_snapshot(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        refuse(engine, "x", "y")
        rules = Configuration(reward_wait=1e6, default_reward=0.0)
        engine.call(commands.configure("default", rules), alone=True)
        engine.call(DecisionCommand(context={"age": 1.0}, id="waits"))
        serve(engine, name="gone")
        engine.call(commands.remove_model("gone"), alone=True)
        engine.state.aside[10**6] = "planted"
        kept = State.from_bytes(engine.state.to_bytes(), engine.store)
        again = State.from_bytes(kept.to_bytes(), engine.store)
        assert vars(kept).keys() == vars(engine.state).keys()
        for name in (
            vars(State(engine.store)).keys() - NOT_IN_A_SNAPSHOT.keys() - {"models"}
        ):
            value = getattr(engine.state, name)
            assert value, f"the test must fill {name}"
            assert getattr(kept, name) == getattr(again, name) == value, name
        assert kept.hashes() == engine.state.hashes()
        for name, served in engine.state.models.items():
            for part in vars(served).keys() - {"learners", "waiting"}:
                assert getattr(kept.models[name], part) == getattr(served, part), part
            assert list(kept.models[name].waiting) == list(served.waiting) != []


def test_an_erased_decision_leaves_no_refusal_and_a_snapshot_names_none(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "d.db") as engine:
        refuse(engine, "alice in person", "bob in person")
        assert b"in person" not in engine.state.to_bytes()
        engine.call(commands.erase([("alice in person", "default")]), alone=True)
        assert not engine.view().was_refused("alice in person", "default")
        assert status(engine, "bob in person") == "refused"


def test_only_so_many_refusals_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MOST_REFUSALS", 2)
    with running(tmp_path / "d.db") as engine:
        refuse(engine, "x", "y", "z")
        kept = State.from_bytes(engine.state.to_bytes(), engine.store)
        assert [kept.view().was_refused(id, "default") for id in "xyz"] == [
            False,
            True,
            True,
        ]


def test_a_view_knows_what_was_answered_and_never_changes(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        refuse(engine, "x")
        before = engine.view()
        assert before.was_refused("x", "default")
        assert before.usual_model == "default"
        kept = (before.seq, before.models["default"].version, dict(before.refusals))
        refuse(engine, "y", "z")
        rules = Configuration(floor=0.5)
        engine.call(commands.configure("default", rules), alone=True)
        serve(engine, OpenLearner(), "other")
        after = engine.view()
        assert after.was_refused("y", "default")
        assert after.models["default"].configuration == rules
        assert set(after.models) == {"default", "other"}
        assert set(before.models) == {"default"}
        assert before.models["default"].configuration != rules
        assert kept == (
            before.seq,
            before.models["default"].version,
            dict(before.refusals),
        )

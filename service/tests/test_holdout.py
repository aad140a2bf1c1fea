"""A holdout: fixed shares of stable units, true propensities, and an uplift that holds the planted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import Decided
from invariant_bandits_service.operations import Service
from invariant_bandits_service.replay import replay_all
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store
from invariant_bandits_service.timeline import Holdout
from local_client import TestClient
from served_models import all_of, fitted, running, serve


def configure(engine: Any, **rules: Any) -> None:
    engine.call(commands.configure("default", Configuration(**rules)), alone=True)


def asked(engine: Any, count: int, **about: Any) -> list[Decided]:
    works = [DecisionCommand(unit=f"user {n}", **about) for n in range(count)]
    return [
        event
        for start in range(0, count, 200)
        for event in engine.call(all_of(works[start : start + 200]))
    ]


def test_units_stay_on_their_side_and_the_share_is_the_one_asked_for(
    tmp_path: Path,
) -> None:
    """Of 4,000 units 800 ± 25 are held out at 0.2: outside 700 to 900 once in 10^4."""
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        configure(engine, holdout=0.2)
        first = [event.group for event in asked(engine, 4_000)]
        assert 700 < first.count("holdout") < 900
        assert [event.group for event in asked(engine, 4_000)] == first
        configure(engine, holdout=0.3)
        wider = [event.group for event in asked(engine, 4_000)]
        assert all(
            new == "holdout"
            for old, new in zip(first, wider, strict=True)
            if old == "holdout"
        )
        configure(engine, holdout=0.2, holdout_key="user")
        both = [
            engine.call(DecisionCommand(context={"user": "u7"})).group
            for _ in range(20)
        ]
        assert len(set(both)) == 1
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert (
        replay_all(store).hashes() == live
    )  # every decision made again, held out or not
    store.close()


def test_the_reference_decides_with_the_propensities_that_are_logged(
    tmp_path: Path,
) -> None:
    """Uniform: each of three arms in 1/3 of about 1,500 rounds, ± 18; outside ± 80 once in 10^4."""
    with running(tmp_path / "d.db") as engine:
        reference = serve(engine, fitted())
        engine.call(commands.add_version("default", fitted(8), "given"), alone=True)
        about = {"context": {"age": 2.0}}
        configure(engine, holdout=0.5)
        held = [
            event for event in asked(engine, 3_000, **about) if event.group == "holdout"
        ]
        assert all(
            event.propensities == [1 / 3] * 3 and event.why == "holdout"
            for event in held
        )
        counts = np.bincount([event.index for event in held], minlength=3)
        assert (abs(counts - len(held) / 3) < 80).all()
        configure(engine, holdout=0.5, holdout_to="arm_2")
        held = [
            event for event in asked(engine, 60, **about) if event.group == "holdout"
        ]
        assert {(event.action, event.propensity) for event in held} == {("arm_2", 1.0)}
        some = asked(
            engine, 60, labels=["arm_0", "arm_1"], **about
        )  # it is not offered: uniform
        assert {event.propensity for event in some if event.group == "holdout"} == {0.5}
        configure(engine, holdout=0.5, holdout_to=reference)
        for event in asked(engine, 60, **about):
            live = engine.state.models["default"]
            assert event.version == (
                reference if event.group == "holdout" else live.version
            )
        before = engine.state.models["default"].learners[reference].to_bytes()
        for event in asked(engine, 40, **about):
            engine.call(RewardCommand(event.id, 1.0))
        assert (
            engine.state.models["default"].learners[reference].to_bytes() == before
        )  # it stays as it is
        for wrong in ("nothing", engine.state.models["default"].version):
            with pytest.raises(InputError, match="holdout_to"):
                configure(engine, holdout=0.5, holdout_to=wrong)


def settled(group: Any, bucket: int) -> Decided:
    return Decided(
        0.0, "x", "m", "1", 0, None, ["a"], None, 0, [1.0], group=group, bucket=bucket
    )


def test_the_interval_holds_the_planted_uplift_although_decisions_of_a_unit_are_alike() -> (
    None
):
    """Units have levels of their own, ten decisions each: of 200 intervals at 95 % fewer than 178 hold the truth
    once in 10^3; intervals that took decisions to be independent would hold it in about 110.
    """
    rng, hits, rules = np.random.default_rng(3), 0, Configuration(holdout=0.5)
    for _ in range(200):
        sums = Holdout()
        for group, level in (("model", 1.0), ("holdout", 0.7)):
            for _ in range(200):
                own, bucket = level + rng.normal(), int(rng.integers(32))
                for reward in own + 0.5 * rng.normal(size=10):
                    sums.add(settled(group, bucket), float(reward))
        shown = sums.uplift(rules)
        assert shown is not None
        hits += shown["uplift"]["low"] < 0.3 < shown["uplift"]["high"]
    assert 178 <= hits < 200


def test_the_model_says_what_it_is_worth(tmp_path: Path) -> None:
    """Arm b earns 1, the others nothing: against uniform play the model is worth about 0.97 - 1/3."""
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(Application(Service(engine)))
        assert client.get("/v1/model").json()["holdout"] is None
        rules = client.get("/v1/model/configuration").json() | {"holdout": 0.5}
        assert client.put("/v1/model/configuration", json=rules).status_code == 200
        for n in range(700):
            told = client.post("/v1/decisions", json={"unit": f"user {n}"}).json()
            client.post(
                "/v1/rewards",
                json={"id": told["id"], "value": float(told["action"] == "b")},
            )
        shown = client.get("/v1/model").json()["holdout"]
        assert shown["model"]["decisions"] + shown["holdout"]["decisions"] == 700
        assert (
            0.5
            < shown["uplift"]["low"]
            < shown["uplift"]["value"]
            < shown["uplift"]["high"]
            < 0.8
        )


def test_the_key_is_neither_stored_nor_learned_but_decides_the_side(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        configure(engine, holdout=0.5, holdout_key="customer")
        sides = {}
        for number in range(40):
            context = {"customer": f"c{number}@example.com", "hour": 9}
            command = DecisionCommand(context=context, id=f"d{number}")
            decided = engine.call(command)
            assert decided.context == {"hour": 9}
            assert engine.call(command) == decided
            sides[number] = decided.group
            engine.call(RewardCommand(f"d{number}", 1.0))
        assert set(sides.values()) == {"model", "holdout"}
        learner = engine.state.models["default"].learner
        assert b"example.com" not in learner.to_bytes()
        assert b"example.com" not in (tmp_path / "d.db").read_bytes()
        again = {"customer": "c7@example.com", "hour": 10}
        assert engine.call(DecisionCommand(context=again)).group == sides[7]
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db")
    assert replay_all(store).hashes() == live
    store.close()


def test_the_holdout_follows_the_settings_at_every_start_and_in_new_models(
    tmp_path: Path,
) -> None:
    def rules_of(**holdout: Any) -> dict[str, Any]:
        """Holdouts after a start with these settings, at which a model may be made."""
        settings = ServiceSettings(store=str(tmp_path / "d.db"), holdout=holdout)
        service = open_service(settings)
        with TestClient(Application(service)) as client:
            name = f"made-{service.engine.view().seq}"
            client.post("/v1/models", json={"model": name, "arms": ["a", "b"]})
            models = service.engine.view().models
            assert models[name].configuration.holdout == holdout.get("holdout", 0.0)
            if "share" in put:
                body = {"holdout": put.pop("share")}
                answer = client.put("/v1/models/default/configuration", json=body)
                assert answer.status_code == 200
            models = service.engine.view().models
            return {
                name: served.configuration.holdout for name, served in models.items()
            }

    put: dict[str, float] = {}
    assert set(rules_of(holdout=0.1).values()) == {0.1}
    assert set(rules_of(holdout=0.2).values()) == {0.2}
    assert set(rules_of().values()) == {0.0}
    put["share"] = 0.3
    assert rules_of()["default"] == 0.3
    assert rules_of()["default"] == 0.3, "a call has set it, so no file takes it away"
    assert rules_of(holdout=0.1)["default"] == 0.1


def test_a_change_of_one_rule_leaves_the_others(loops: TestClient) -> None:
    path = "/v1/model/configuration"
    assert loops.put(path, json={"holdout": 0.1, "floor": 0.2}).status_code == 200
    changed = loops.put(path, json={"reward_wait": 5.0}).json()
    assert (changed["holdout"], changed["floor"]) == (0.1, 0.2)
    assert changed == loops.get(path).json()
    assert loops.put(path, json={"reward_wait": None}).json()["reward_wait"] is None
    assert loops.put(path, json={"flor": 0.2}).status_code == 422
    assert loops.put(path, json={"floor": 2.0}).status_code == 422
    assert loops.get(path).json()["holdout"] == 0.1

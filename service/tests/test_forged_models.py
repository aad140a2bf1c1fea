"""Forged models are refused, and a store with an event that cannot be applied starts, names it and sets
it aside.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from containers import put_together, taken_apart
from invariant_bandits.cli.app import app
from invariant_bandits.storage import FileError
from invariant_bandits_service import commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import (
    Decided,
    VersionActivated,
    VersionAdded,
    encode_event,
    key_of,
)
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store
from local_client import TestClient
from served_models import Clock, labelled_model, running, serve

FORGED = 200
WRONG_SETTINGS: dict[str, tuple[Any, ...]] = {
    "seed": (-40, 2**70, 1.5, True, {}, -1, 2**64, 0.5, "7", None, False, [7]),
    "arms": (
        [],
        "ab",
        {"a": 1},
        {"": True},
        {"x" * 300: True},
        {"a": {"b": True}},
        None,
        3,
    ),
    "places": (
        None,
        "ab",
        [1],
        [["a"]],
        ["a", "a"],
        [f"n{n}" for n in range(300)],
        {"a": 0},
    ),
}
"""Values that no setting of an open model has."""


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["store", *map(str, words)])


def with_settings(content: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The stored open model with other settings, its checksum right."""
    kind, arrays, about = taken_apart(content)
    settings = json.loads(about["said"])
    changed = change(settings)
    return put_together(
        (kind, arrays, {"said": json.dumps(settings if changed is None else changed)})
    )


def wrong_setting(content: bytes, rng: np.random.Generator) -> bytes:
    """A setting with a value that it cannot have, or one that is missing, new or nested."""
    name = str(rng.choice(list(WRONG_SETTINGS)))
    value = WRONG_SETTINGS[name][rng.integers(len(WRONG_SETTINGS[name]))]
    how = rng.integers(6)

    def change(settings: dict[str, Any]) -> Any:
        if how == 0:
            del settings[name]
        elif how == 1:
            settings["policy"] = value
        elif how == 2:
            return [settings]
        else:
            settings[name] = value
        return None

    return with_settings(content, change)


def nested(content: bytes, rng: np.random.Generator) -> bytes:
    """ServiceSettings nested so deeply that reading them fails."""
    deep = int(rng.integers(2_000, 200_000))
    kind, arrays, _ = taken_apart(content)
    return put_together((kind, arrays, {"said": "[" * deep + "]" * deep}))


def wrong_size(content: bytes, rng: np.random.Generator) -> bytes:
    """A policy of another size than the names, cut short, of another kind, or of a learner that does not
    exist.
    """
    how = rng.integers(4)
    kind, arrays, about = taken_apart(content)
    if how == 0:
        return put_together(
            (str(rng.choice(["model", "closed", "", "open "])), arrays, about)
        )
    if how == 1:
        return content[: int(rng.integers(len(content)))]
    if how == 2:
        return with_settings(content, lambda said: said.update(places=["x"] * 300))
    dtype = str(rng.choice(["float64", "int64", "bool"]))
    return put_together(
        (kind, {name: array[:8].astype(dtype) for name, array in arrays.items()}, about)
    )


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Any bytes changed in the file; never all of them right."""
    for _ in range(100):
        changed = bytearray(content)
        for place in rng.integers(len(content), size=rng.integers(1, 20)):
            changed[place] = rng.integers(256)
        if changed != content:
            return bytes(changed)
    raise AssertionError


def missing_part(content: bytes, rng: np.random.Generator) -> bytes:
    """Of a fitted model, one of the arrays or of what it says of itself gone or renamed."""
    kind, arrays, about = taken_apart(content)
    if rng.random() < 0.5:
        name = sorted(arrays)[rng.integers(len(arrays))]
        arrays[f"{name}_"] = arrays.pop(name)
    else:
        name = str(
            rng.choice(
                ["policy_name", "features", "schema", "quality", "arms", "baseline"]
            )
        )
        about[name] = [[[None]]] if rng.random() < 0.5 else -1.5e308
        about[name] = {"x": about[name]}
    return put_together((kind, arrays, about))


FORGERIES = (wrong_setting, wrong_setting, nested, wrong_size, damaged, missing_part)


def versions_of(client: TestClient) -> list[tuple[str, str, bool]]:
    return [
        (model["model"], version["version"], version["active"])
        for model in client.get("/v1/models").json()["models"]
        for version in client.get(f"/v1/models/{model['model']}/versions").json()[
            "versions"
        ]
    ]


def test_forged_uploads_are_refused_and_the_service_goes_on(tmp_path: Path) -> None:
    path, store = tmp_path / "shop.model", tmp_path / "d.db"
    labelled_model().save(path)
    service = open_service(ServiceSettings(store=str(store), models={"shop": path}))
    with TestClient(Application(service), raise_server_exceptions=False) as client:
        made = client.post("/v1/models", json={"model": "default", "arms": ["a", "b"]})
        assert made.status_code == 201

        def play(model: str) -> None:
            decided = client.post(
                "/v1/decisions", json={"context": {"age": 0.5}, "model": model}
            )
            assert decided.status_code == 200, decided.text
            rewarded = client.post(
                "/v1/rewards", json={"id": decided.json()["id"], "value": 1.0}
            )
            assert (rewarded.status_code, rewarded.json()["status"]) == (200, "learned")

        for _ in range(20):
            play("default")
        stored = service.engine.call(
            commands.inspect(lambda state: state.model("default").learner.to_bytes())
        )
        assert OpenLearner.from_bytes(stored, "the stored model").to_bytes() == stored
        versions = versions_of(client)
        statuses = []
        for number in range(FORGED):
            rng = np.random.default_rng((0, number))
            forge = FORGERIES[number % len(FORGERIES)]
            content = forge(path.read_bytes() if forge is missing_part else stored, rng)
            with pytest.raises(FileError):
                OpenLearner.from_bytes(content, "the forged model")
            posted = client.post(
                "/v1/models/shop/versions?activate=true&allow_differences=true",
                content=content,
            )
            named = client.post(
                "/v1/models", params={"model": f"new-{number}"}, content=content
            ).status_code
            statuses += [(number, forge.__name__, posted.status_code, named)]
            if number % 20 == 0:
                play("default")
                play("shop")
        assert [
            item
            for item in statuses
            if not all(400 <= status < 500 for status in item[2:])
        ] == []
        assert versions_of(client) == versions
        live = {
            value: client.get(f"/v1/models/{value}").json()["state_hash"]
            for value in ("default", "shop")
        }
    assert run("verify", store).exit_code == 0
    assert json.loads(run("replay", store, "--json").stdout)["state_hashes"] == live
    again = open_service(ServiceSettings(store=str(store)))
    assert again.engine.state.hashes() == live
    again.engine.stop()


@pytest.mark.parametrize("name", sorted(WRONG_SETTINGS))
def test_every_setting_of_an_open_model_has_a_type_and_a_range(name: str) -> None:
    content = OpenLearner({"a": True}, seed=3).to_bytes()
    assert (
        OpenLearner.from_bytes(
            with_settings(content, lambda settings: None), "it"
        ).to_bytes()
        == content
    )
    for value in WRONG_SETTINGS[name]:
        forged = with_settings(
            content, lambda settings, value=value: settings.update({name: value})
        )
        with pytest.raises(FileError, match="it does not hold a whole"):
            OpenLearner.from_bytes(forged, "it")


def poisoned(address: str) -> tuple[dict[str, str], int]:
    """A store into which an open model with a seed of −40 came, and decided; the state before, and its
    event.
    """
    with running(address) as engine:
        serve(engine)
        for n in range(6):
            decided = engine.call(DecisionCommand("default", {"x": float(n)}, [], None))
            engine.call(RewardCommand(decided.id, 1.0))
        before = engine.state.hashes()
        served, now = engine.state.models["default"], engine.clock() + 60.0
        bad = with_settings(
            served.learner.to_bytes(), lambda settings: settings.update(seed=-40)
        )
        digest = hashlib.sha256(bad).hexdigest()
    store = open_store(address)
    seq = store.head().seq
    events = [
        VersionAdded(now, "default", f"2-{digest[:8]}", "open", digest, "given"),
        VersionActivated(now, "default", f"2-{digest[:8]}"),
        Decided(
            now,
            "by the bad one",
            "default",
            f"2-{digest[:8]}",
            6,
            None,
            ["a", "b"],
            None,
            0,
            [0.5, 0.5],
        ),
    ]
    store.append([(key_of(event), encode_event(event)) for event in events], [bad])
    store.close()
    return before, seq


def test_a_poisoned_store_starts_names_the_event_and_is_repaired(address: str) -> None:
    _, seq = poisoned(address)
    refused = run("verify", address)
    assert refused.exit_code != 0
    assert f"event {seq} cannot be applied: version, model default" in str(
        refused.exception
    )
    service = open_service(ServiceSettings(store=address))
    with TestClient(Application(service), raise_server_exceptions=False) as client:
        assert client.get("/readyz").json() == {
            "status": "ready",
            "set_aside": 2,
            "verified": True,
        }
        listed = client.get("/v1/model").json()["set_aside"]
        assert [item["event"] for item in listed] == [seq, seq + 1]
        assert "seed" in listed[0]["why"]
        decided = client.post("/v1/decisions", json={"context": {"x": 1.0}}).json()
        assert (
            client.post("/v1/rewards", json={"id": decided["id"], "value": 1.0}).json()[
                "status"
            ]
            == "learned"
        )
        assert (
            client.post(
                "/v1/rewards", json={"id": "by the bad one", "value": 1.0}
            ).json()["status"]
            == "learned"
        )
        live = service.engine.state.hashes()
    replayed = run("replay", address)
    assert replayed.exit_code == 1
    assert replayed.stdout.startswith("2 events were left out")
    assert f"event {seq}: " in replayed.stdout
    told = json.loads(run("repair", address, "--json").stdout)
    assert sorted(map(int, told["set_aside"])) == [seq, seq + 1]
    assert json.loads(run("repair", address, "--json").stdout) == {"set_aside": {}}
    verified = json.loads(run("verify", address, "--json").stdout)
    assert sorted(map(int, verified["set_aside"])) == [seq, seq + 1]
    replayed = json.loads(run("replay", address, "--json").stdout)
    assert replayed["state_hashes"] == live
    assert sorted(map(int, replayed["set_aside"])) == [seq, seq + 1]
    with running(address) as engine:
        assert engine.state.hashes() == live


def test_a_snapshot_with_a_model_that_cannot_be_used_does_not_keep_the_service_down(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        before = engine.state.hashes()
        content = engine.state.to_bytes()
    store = open_store(path)
    assert b"places" in content
    store.save_snapshot(store.head().seq, content.replace(b"places", b"secalp"))
    store.close()
    with running(path) as engine:
        assert engine.state.hashes() == before


class Fault:
    """Makes a learner fail at one reward, half changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, value: float = -1.0) -> None:
        honest = OpenLearner.learn

        def learn(self: OpenLearner, *given: Any) -> None:
            honest(self, *given)
            if given[-1] == value:
                self.positions["half changed"] = 10**6
                raise IndexError("out of bounds")

        monkeypatch.setattr(OpenLearner, "learn", learn)


def test_a_learner_that_fails_costs_its_own_request_only(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fault(monkeypatch)
    with running(address) as engine:
        serve(engine)
        decided = [
            engine.call(DecisionCommand("default", {"x": float(n)}, [], None))
            for n in range(6)
        ]
        engine.call(RewardCommand(decided[0].id, 1.0))
        before = engine.state.hashes()
        with pytest.raises(IndexError, match="out of bounds"):
            engine.call(RewardCommand(decided[1].id, -1.0))
        assert engine.state.hashes() == before
        both = commands.all_or_none(
            [
                RewardCommand(item.id, value)
                for item, value in zip(decided[2:4], (1.0, -1.0), strict=True)
            ]
        )
        with pytest.raises(IndexError):
            engine.call(both)
        assert engine.state.hashes() == before
        assert engine.call(RewardCommand(decided[1].id, 1.0)) == "learned"
        assert engine.call(RewardCommand(decided[2].id, 1.0)) == "learned"
        live = engine.state.hashes()
    monkeypatch.undo()  # what was set aside stays so, whatever a learner can do later
    store = open_store(address, writing=False)
    assert replay_all(store).hashes() == restore(store).hashes() == live
    assert len(restore(store).aside) == 6
    store.close()


def test_a_decision_that_cannot_be_settled_when_its_wait_ends_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fault(monkeypatch)
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        engine.call(
            commands.configure("default", Configuration(reward_wait=10.0)), alone=True
        )
        decided = [
            engine.call(DecisionCommand("default", {"x": float(n)}, [], None))
            for n in range(4)
        ]
        for item, value in zip(decided, (1.0, -1.0, 1.0, 1.0), strict=True):
            assert engine.call(RewardCommand(item.id, value)) == "waiting"
        clock.now += 60.0
        engine.call(DecisionCommand("default", {"x": 0.0}, [], None))
        counts = engine.call(
            commands.inspect(lambda state: state.models["default"].counts.learned)
        )
        while engine.state.next_due() <= clock.now:
            engine.call(commands.inspect(lambda state: None))
        counts = engine.state.models["default"].counts
        assert (counts.learned, len(engine.state.aside), engine.failure) == (3, 1, None)
        live = engine.state.hashes()
    store = open_store(tmp_path / "d.db", writing=False)
    assert restore(store).hashes() == live
    store.close()

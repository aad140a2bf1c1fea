"""Ids of decisions belong to their model, over every protocol and in both stores."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

from invariant_bandits_service import Client, ServiceError, commands
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.events import Decided, decision_key, decode_event
from invariant_bandits_service.history import export, settled_decisions
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.replay import compact, replay_all, restore
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import ConflictError, NotFoundError
from invariant_bandits_service.store.open_store import open_store
from local_client import TestClient
from served_models import Clock, running, serve

MODELS = {"default": "ab", "shop": "cd", "teaser": "ef"}


@pytest.fixture
def client(address: str) -> Iterator[TestClient]:
    """A service with three models, whose arms tell them apart."""
    with TestClient(
        Application(open_service(ServiceSettings(store=address))),
        raise_server_exceptions=False,
    ) as client:
        for name, arms in MODELS.items():
            if name != "default":
                assert (
                    client.post(
                        "/v1/models", json={"model": name, "arms": list(arms)}
                    ).status_code
                    == 201
                )
        for label in MODELS["default"]:
            assert (
                client.post("/v1/model/arms", json={"label": label}).status_code == 201
            )
        yield client


def decide(client: TestClient, model: str, id: str, **more: Any) -> dict[str, Any]:
    answered = client.post("/v1/decisions", json={"model": model, "id": id, **more})
    assert answered.status_code == 200, answered.text
    told: dict[str, Any] = answered.json()
    return told


def learned(client: TestClient, model: str) -> tuple[int, float]:
    """Decisions that a model has learned, and the sum of their rewards."""
    counts = client.get(f"/v1/models/{model}").json()["counts"]
    return counts["learned"], counts["reward_sum"]


def check_replay(address: str, live: dict[str, str]) -> None:
    """The events give the live state again, bit for bit, from the snapshot and from the first event on."""
    store = open_store(address, writing=False)
    try:
        assert restore(store).hashes() == replay_all(store).hashes() == live
    finally:
        store.close()


# -- version 1 --


def test_the_same_id_is_another_decision_in_another_model(client: TestClient) -> None:
    told = {name: decide(client, name, "x", context={"hour": "1"}) for name in MODELS}
    for name, arms in MODELS.items():
        assert (told[name]["model"], told[name]["action"] in arms) == (name, True)
        assert decide(client, name, "x", context={"hour": "1"}) == told[name]
        assert (
            client.get("/v1/decisions/x", params={"model": name}).json()["action"]
            == told[name]["action"]
        )


def test_a_reward_is_learned_by_the_model_it_names_and_by_no_other(
    client: TestClient,
) -> None:
    decide(client, "shop", "x")
    decide(client, "teaser", "x")
    told = client.post("/v1/rewards", json={"id": "x", "value": 0.5, "model": "teaser"})
    assert told.json() == {"id": "x", "status": "learned"}
    assert [learned(client, name) for name in MODELS] == [(0, 0.0), (0, 0.0), (1, 0.5)]
    told = client.post(
        "/v1/rewards", json={"id": "x", "value": 1.0, "model": "default"}
    )
    assert told.json() == {"id": "x", "status": "unknown"}
    told = client.post("/v1/rewards", json={"id": "x", "value": 1.0, "model": "none"})
    assert (told.status_code, told.json()["error"]["field"]) == (404, "model")
    assert [learned(client, name) for name in MODELS] == [(0, 0.0), (0, 0.0), (1, 0.5)]
    decide(client, "default", "x")  # the reward was kept under its model, and joins
    assert [learned(client, name) for name in MODELS] == [(1, 1.0), (0, 0.0), (1, 0.5)]


def test_an_id_alone_means_the_only_model_that_has_decided_under_it(
    client: TestClient,
) -> None:
    decide(client, "shop", "x", defer=True)
    assert client.post("/v1/decisions/x/activate").json()["status"] == "activated"
    assert client.get("/v1/decisions/x").json()["model"] == "shop"
    assert (
        client.post("/v1/rewards", json={"id": "x", "value": 0.25}).json()["status"]
        == "learned"
    )
    assert learned(client, "shop") == (1, 0.25)
    decide(client, "teaser", "x", defer=True)
    for answered in (
        client.get("/v1/decisions/x"),
        client.post("/v1/decisions/x/activate"),
        client.post("/v1/rewards", json={"id": "x", "value": 0.5}),
        client.post("/v1/rewards", json={"rewards": [{"id": "x", "value": 0.5}]}),
    ):
        assert answered.status_code == 409
        error = answered.json()["error"]
        assert (error["code"], error["field"]) == ("conflict", "model")
        assert "shop, teaser" in error["message"]
        assert "default" not in error["message"]
    assert (
        client.post("/v1/decisions/x/activate?model=teaser").json()["status"]
        == "activated"
    )
    assert client.post("/v1/decisions/x/activate?model=none").status_code == 404
    assert client.get("/v1/decisions/x?model=none%00").status_code == 404
    assert client.get("/v1/decisions/x?model=default").status_code == 404
    assert (
        client.post("/v1/rewards", json={"id": "never", "value": 1.0}).json()["status"]
        == "unknown"
    )
    decide(client, "default", "never")
    assert learned(client, "default") == (1, 1.0)


def test_within_one_batch_an_id_is_looked_up_by_model_as_well(
    client: TestClient,
) -> None:
    asked = [{"model": name, "id": "x"} for name in ("shop", "teaser", "shop")]
    first, second, again = client.post(
        "/v1/decisions", json={"decisions": asked}
    ).json()["decisions"]
    assert (first["model"], second["model"], again) == ("shop", "teaser", first)
    rewards = [
        {"id": "x", "value": 1.0, "model": "shop"},
        {"id": "x", "value": 0.5, "model": "teaser"},
    ]
    assert client.post("/v1/rewards", json={"rewards": rewards}).status_code == 200
    assert [learned(client, name) for name in MODELS] == [(0, 0.0), (1, 1.0), (1, 0.5)]


BODY: dict[str, Any] = {"context": {"hour": "1"}, "arms": ["c", "d"]}
OTHERS: list[dict[str, Any]] = [
    {"context": {"hour": "2"}},
    {"context": None},
    {"arms": ["d", "c"]},
    {"arms": ["c"]},
    {"arms": None},
    {"arms": [{"label": "c", "features": {"size": 1}}, {"label": "d"}]},
    {"arms": [{"size": 1}, {"size": 2}]},
    {"defer": True},
]


@pytest.mark.parametrize("other", OTHERS)
def test_the_same_id_with_another_body_is_a_conflict(
    client: TestClient, other: dict[str, Any]
) -> None:
    told = decide(client, "shop", "x", **BODY)
    before = client.get("/v1/models/shop").json()["state_hash"]
    answered = client.post(
        "/v1/decisions", json={"model": "shop", "id": "x", **BODY, **other}
    )
    assert answered.status_code == 409
    assert "'shop' has decided under 'x' already" in answered.json()["error"]["message"]
    assert client.get("/v1/models/shop").json()["state_hash"] == before
    scored = decide(client, "shop", "x", **BODY, scores=True)
    assert set(scored.pop("scores")) == {"c", "d"}
    assert decide(client, "shop", "x", **BODY) == told == scored


def test_a_question_without_arms_stays_the_same_when_arms_come(
    client: TestClient,
) -> None:
    told = decide(client, "shop", "x")
    assert client.post("/v1/models/shop/arms", json={"label": "new"}).status_code == 201
    assert decide(client, "shop", "x") == told
    asked = {"model": "shop", "id": "x", "arms": ["c", "d"]}
    assert client.post("/v1/decisions", json=asked).status_code == 409


class Through(httpx.BaseTransport):
    """Hands the requests of one client to another."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url.raw_path.decode()
        answered = self.client.request(request.method, url, content=request.read())
        return httpx.Response(answered.status_code, content=answered.content)


def test_the_client_names_the_model_of_a_decision(client: TestClient) -> None:
    http = Client("http://test", transport=Through(client), retries=0)
    shop, teaser = (
        http.decide(id="x/y", model=name, defer=True) for name in ("shop", "teaser")
    )
    assert [http.activate(item) for item in (shop, teaser)] == [
        "activated",
        "activated",
    ]
    assert [http.reward(shop, 1.0), http.reward("x/y", 0.5, model="teaser")] == [
        "learned",
        "learned",
    ]
    assert [learned(client, name) for name in MODELS] == [(0, 0.0), (1, 1.0), (1, 0.5)]
    assert http.decision("x/y", model="shop")["rewards"][0]["value"] == 1.0
    with pytest.raises(ServiceError, match="shop, teaser") as error:
        http.decision("x/y")
    assert error.value.status == 409
    http.close()


# -- OFREP --


def test_a_flag_of_ofrep_is_rewarded_under_its_model(client: TestClient) -> None:
    flags = client.post(
        "/ofrep/v1/evaluate/flags", json={"context": {"targetingKey": "u"}}
    ).json()["flags"]
    ids = {flag["key"]: flag["metadata"]["id"] for flag in flags}
    assert set(ids) == set(MODELS)
    for name in MODELS:  # the id of one flag, asked of another model by the caller
        decide(client, name, ids["shop"], context={}, defer=name == "shop")
    told = client.post(
        "/v1/rewards", json={"id": ids["shop"], "value": 1.0, "model": "teaser"}
    )
    assert told.json()["status"] == "learned"
    assert [learned(client, name) for name in MODELS] == [(0, 0.0), (0, 0.0), (1, 1.0)]


# -- many at once, and the store --


def test_many_clients_use_the_same_ids_in_all_models_at_once(address: str) -> None:
    service = open_service(ServiceSettings(store=address))
    rounds, values = 10, {"default": 0.25, "shop": 0.5, "teaser": 1.0}
    with TestClient(Application(service), raise_server_exceptions=False) as client:
        for name in ("shop", "teaser"):
            client.post("/v1/models", json={"model": name, "arms": list(MODELS[name])})
        for label in MODELS["default"]:
            client.post("/v1/model/arms", json={"label": label})

        def play(number: int) -> None:
            name = list(MODELS)[number % 3]
            for n in range(rounds):
                id = f"visit {n}"
                told = decide(client, name, id, context={"hour": str(n % 3)})
                assert (told["id"], told["model"]) == (id, name)
                body = {"id": id, "value": values[name], "model": name}
                assert client.post("/v1/rewards", json=body).json()["status"] in (
                    "learned",
                    "unchanged",
                )
                flag = client.post(f"/ofrep/v1/evaluate/flags/{name}", json={}).json()
                body = {
                    "id": flag["metadata"]["id"],
                    "value": values[name],
                    "model": name,
                }
                assert (
                    client.post("/v1/rewards", json=body).json()["status"] == "learned"
                )

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(play, range(12)))
        each = (
            rounds + 4 * rounds
        )  # ids are shared by the four clients of a model; flags are new every time
        assert {name: learned(client, name) for name in MODELS} == {
            name: (each, each * value) for name, value in values.items()
        }
        live = service.engine.state.hashes()
    check_replay(address, live)


def test_waits_exports_and_compaction_follow_the_model(
    address: str, tmp_path: Path
) -> None:
    clock = Clock()
    with running(address, clock) as engine:
        for name, arms in MODELS.items():
            serve(engine, OpenLearner(dict.fromkeys(arms, True), seed=7), name)
        engine.call(
            commands.configure(
                "shop", Configuration(reward_wait=60.0, default_reward=0.0)
            ),
            alone=True,
        )
        for n in range(20):
            for name in MODELS:
                engine.call(DecisionCommand(name, {"n": str(n)}, id=str(n)))
        for n in range(20):
            assert engine.call(RewardCommand(str(n), 1.0, model="default")) == "learned"
        with pytest.raises(ConflictError, match="default, shop, teaser"):
            engine.call(RewardCommand("1", 1.0))
        with pytest.raises(NotFoundError, match="'none' is not served"):
            engine.call(RewardCommand("1", 1.0, model="none"))
        assert engine.call(RewardCommand("1", 1.0, model="shop")) == "waiting"
        clock.now += 61.0
        for _ in range(5):
            engine.call(commands.inspect(lambda state: None))
        counts = {name: served.counts for name, served in engine.state.models.items()}
        assert [(count.learned, count.reward_sum) for count in counts.values()] == [
            (20, 20.0),
            (20, 1.0),
            (0, 0.0),
        ]
        clock.now += 1_000.0
        engine.call(DecisionCommand("shop", id="waits"))
        engine.call(DecisionCommand("default", id="waits"))
        live = engine.state.hashes()
    check_replay(address, live)
    store = open_store(address)
    assert store.keys_from(decision_key("1")) == {
        decision_key("1", name) for name in MODELS
    }  # and not of 10
    for name, total in (("default", 20.0), ("shop", 1.0), ("teaser", 0.0)):
        those = list(settled_decisions(store, name))
        assert sum(settled.reward for settled in those) == total
        assert {settled.decided.model for settled in those} <= {name}
    assert export(store, tmp_path / "shop.parquet", model="shop").decisions == 20
    rows = parquet.read_table(tmp_path / "shop.parquet").to_pylist()
    assert {row["decision_id"]: row["reward"] for row in rows} == {
        str(n): float(n == 1) for n in range(20)
    }
    compact(store, clock.now - 500.0)
    kept = [
        item
        for item in (decode_event(row.event) for row in store.rows())
        if isinstance(item, Decided)
    ]
    assert {(event.id, event.model) for event in kept} == {
        ("waits", "shop"),
        ("waits", "default"),
    }
    assert restore(store).hashes() == replay_all(store).hashes() == live
    store.close()


def test_no_name_of_a_model_makes_two_decisions_one() -> None:
    names = ["a", "a\n", "\na", "b\na"]
    ids = ["x", "xa", "x/a"]
    keys = [decision_key(id, name) for id in ids for name in names]
    assert len(set(keys)) == len(keys)
    assert [key for key in keys if key.startswith(decision_key("x"))] == keys[
        : len(names)
    ]

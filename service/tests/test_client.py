"""Clients: a call that is tried again is done once, whatever failed on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import invariant_bandits as ib
from invariant_bandits_service import AsyncClient, Client, ServiceError, commands
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.learners import FittedLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application
from invariant_bandits_service.settings import Configuration
from local_client import TestClient
from served_models import labelled_model, running, serve


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        yield engine


class Unlucky(httpx.BaseTransport):
    """Reaches the service every time, but the first `failures` answers of a call get lost or become 503."""

    def __init__(self, engine: Engine, failures: int, status: int = 0) -> None:
        self.inside = TestClient(Application(Service(engine)))
        self.failures, self.status, self.seen = failures, status, list[Any]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        answered = self.inside.request(
            request.method, request.url.raw_path.decode(), content=body
        )
        self.seen.append(json.loads(body) if body.startswith(b"{") else None)
        if len(self.seen) <= self.failures:
            if self.status:
                return httpx.Response(self.status, headers={"Retry-After": "0"})
            raise httpx.ReadError("the answer was lost", request=request)
        return httpx.Response(answered.status_code, content=answered.content)


class AlsoAsync(httpx.AsyncBaseTransport):
    def __init__(self, inside: Unlucky) -> None:
        self.inside = inside

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.to_thread(self.inside.handle_request, httpx.Request(
            request.method, request.url, content=await request.aread()
        ))  # fmt: skip


def client_of(transport: Unlucky, **options: Any) -> Client:
    return Client("http://service/", backoff=0.001, transport=transport, **options)


@pytest.mark.parametrize("status", [0, 429, 503])
def test_a_decision_whose_answer_was_lost_is_asked_for_again_and_made_once(
    engine: Engine, status: int
) -> None:
    transport = Unlucky(engine, failures=3, status=status)
    with client_of(transport) as client:
        decision = client.decide({"hour": "1"}, scores=True)
    assert len(transport.seen) == 4
    assert len({item["id"] for item in transport.seen}) == 1
    assert engine.state.models["default"].counts.decisions == 1
    assert decision.action in "abc"
    assert set(decision.scores or {}) == set("abc")


def test_a_reward_whose_answer_was_lost_counts_once_where_rewards_are_added_up(
    engine: Engine,
) -> None:
    engine.call(
        commands.configure(
            "default", Configuration(reward_wait=60.0, aggregation="sum")
        ),
        alone=True,
    )
    decided = client_of(Unlucky(engine, 0)).decide()
    with client_of(Unlucky(engine, failures=2)) as client:
        assert (
            client.reward(decided, 1.0) == "unchanged"
        )  # the answer to the first try was lost
        assert (
            client.reward(decided, 1.0) == "waiting"
        )  # another reward of the same size
    assert [
        reward["value"]
        for reward in client_of(Unlucky(engine, 0)).decision(decided.id)["rewards"]
    ] == [
        1.0,
        1.0,
    ]


def test_batches_activation_and_the_model(engine: Engine) -> None:
    with client_of(Unlucky(engine, 0)) as client:
        first, second = client.decide_many(
            [{"context": {"hour": "1"}}, {"arms": ["b"], "defer": True}]
        )
        assert (second.action, second.propensity, second.deferred) == ("b", 1.0, True)
        assert client.reward_many([(first, 1.0), (second.id, 0.0)]) == {
            first.id: "learned",
            second.id: "waiting",
        }
        assert client.activate(second) == "activated"
        assert client.activate(second) == "unchanged"
        assert client.reward(first, 1.0) == "unchanged"
        assert client.model()["counts"]["learned"] == 2


def test_refusals_are_not_tried_again_and_name_the_field(engine: Engine) -> None:
    transport = Unlucky(engine, 0)
    with client_of(transport) as client:
        with pytest.raises(ServiceError, match="nothing") as refused:
            client.decide(model="nothing")
        assert (refused.value.status, refused.value.field) == (404, "model")
        decided = client.decide()
        client.reward(decided, 1.0)
        with pytest.raises(ServiceError, match="contradicts") as refused:
            client.reward(decided, 0.0)
        assert refused.value.status == 409
    assert len(transport.seen) == 4


def test_patience_ends(engine: Engine) -> None:
    transport = Unlucky(engine, failures=99)
    with (
        client_of(transport, retries=2) as client,
        pytest.raises(ServiceError, match="no answer from http://serv"),
    ):
        client.decide()
    assert len(transport.seen) == 3
    with (
        client_of(Unlucky(engine, failures=99, status=503), retries=0) as client,
        pytest.raises(ServiceError, match="503") as refused,
    ):
        client.decide()
    assert refused.value.status == 503


def test_the_awaited_client_does_the_same(engine: Engine) -> None:
    transport = Unlucky(engine, failures=2)

    async def rounds() -> list[str]:
        async with AsyncClient(
            "http://service", backoff=0.001, transport=AlsoAsync(transport)
        ) as client:
            decided = await client.decide({"hour": "1"})
            more = await client.decide_many([{"defer": True}])
            told = [
                await client.reward(decided, 1.0),
                *(await client.reward_many({more[0].id: 0.5})).values(),
            ]
            told += [
                await client.activate(more[0]),
                (await client.decision(decided.id))["settled"]["why"],
            ]
            assert (await client.model())["rounds"] == 2
            return told

    assert asyncio.run(rounds()) == ["learned", "waiting", "activated", "reward"]
    assert engine.state.models["default"].counts.decisions == 2


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://there", 5])
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(ib.InputError, match="url must begin with http"):
        Client(url)


def test_a_model_is_uploaded_and_decides_only_if_asked_to(engine: Engine) -> None:
    model = labelled_model()
    serve(engine, FittedLearner(labelled_model()), "shop")
    with client_of(Unlucky(engine, 0)) as client:
        first = client.model("shop")["version"]
        second = client.upload(model.to_bytes(), "shop", note="by the client")
        assert client.model("shop")["version"] == first != second
        with pytest.raises(ServiceError, match="kind: open is active") as refused:
            client.upload(model.to_bytes(), activate=True)
        assert refused.value.status == 409
        third = client.upload(model.to_bytes(), activate=True, allow_differences=True)
        assert client.model()["version"] == third


def test_decisions_are_listed_and_units_are_held_out(engine: Engine) -> None:
    engine.call(commands.configure("default", Configuration(holdout=0.5)), alone=True)
    with client_of(Unlucky(engine, 0)) as client:
        for n in range(20):
            client.decide({}, id=f"visit {n}", unit=f"user {n % 2}")
        page = client.decisions(search="visit", limit=5)
        assert [decision["id"] for decision in page["decisions"]] == [
            f"visit {n}" for n in range(19, 14, -1)
        ]
        others = client.decisions(before=page["next"], limit=100)["decisions"]
        groups = {
            decision["id"]: decision["group"] for decision in page["decisions"] + others
        }
        assert len({groups[f"visit {n}"] for n in range(0, 20, 2)}) == 1

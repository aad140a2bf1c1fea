"""OpenFeature's remote evaluation over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from served_models import labelled_model

FLAGS = "/ofrep/v1/evaluate/flags"
CONTEXT = {"targetingKey": "user 7", "hour": "morning", "cart": {"items": 2}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service with a flag of texts, one of truth values, one of numbers, and the empty model, which is
    no flag.
    """
    with TestClient(
        Application(open_service(ServiceSettings(store=str(tmp_path / "d.db")))),
        raise_server_exceptions=False,
    ) as client:
        for name, arms in (
            ("banner", ["red", "blue"]),
            ("beta", ["true", "false"]),
            ("size", ["1", "2"]),
        ):
            assert (
                client.post(
                    "/v1/models", json={"model": name, "arms": arms}
                ).status_code
                == 201
            )
        yield client


def test_a_flag_is_a_decision_of_the_model(client: TestClient) -> None:
    answered = client.post(f"{FLAGS}/banner", json={"context": CONTEXT})
    assert answered.status_code == 200
    told = answered.json()
    assert set(told) == {"key", "value", "reason", "variant", "metadata"}
    assert told["key"] == "banner"
    assert told["value"] == told["variant"]
    assert told["reason"] in ("SPLIT", "TARGETING_MATCH")
    id = told["metadata"]["id"]
    decided = client.get(f"/v1/decisions/{id}").json()
    assert decided["action"] == told["variant"]
    assert decided["propensity"] == told["metadata"]["probability"]
    assert (
        client.post("/v1/rewards", json={"id": id, "value": 1.0}).json()["status"]
        == "learned"
    )
    names = client.get("/v1/models/banner").json()["features"]
    assert {"a:red|hour=morning", "a:red|cart.items"} <= set(names)
    assert not [
        name for name in names if "user 7" in name
    ]  # nobody is learned from by name


def test_values_have_the_type_that_all_labels_have(client: TestClient) -> None:
    assert isinstance(client.post(f"{FLAGS}/beta", json={}).json()["value"], bool)
    assert client.post(f"{FLAGS}/size", json={}).json()["value"] in (1, 2)


FAILURES: list[tuple[str, Any, int, str]] = [
    ("none", b'{"context": {}}', 404, "FLAG_NOT_FOUND"),
    ("default", b'{"context": {}}', 404, "FLAG_NOT_FOUND"),
    ("banner", b'{"context": ', 400, "PARSE_ERROR"),
    ("banner", b'{"context": 1}', 400, "INVALID_CONTEXT"),
    ("banner", b'{"context": {"targetingKey": 1}}', 400, "INVALID_CONTEXT"),
    ("banner", b'{"context": {"age": 1e300}}', 400, "INVALID_CONTEXT"),
    ("banner", b" " * (2 << 20), 413, "GENERAL"),
]


@pytest.mark.parametrize(
    ("key", "body", "status", "code"), FAILURES, ids=range(len(FAILURES))
)
def test_failures_have_the_protocols_body(
    client: TestClient, key: str, body: bytes, status: int, code: str
) -> None:
    answered = client.post(f"{FLAGS}/{key}", content=body)
    assert answered.status_code == status
    assert set(answered.json()) == {"key", "errorCode", "errorDetails"}
    assert (answered.json()["key"], answered.json()["errorCode"]) == (key, code)


def test_all_flags_at_once_are_deferred_and_kept_until_something_changes(
    client: TestClient,
) -> None:
    answered = client.post(FLAGS, json={"context": CONTEXT})
    assert answered.status_code == 200
    flags = {flag["key"]: flag for flag in answered.json()["flags"]}
    assert set(flags) == {"banner", "beta", "size"}
    assert client.post(FLAGS, json={"context": CONTEXT}).json() == answered.json()
    assert client.get("/v1/models/banner").json()["counts"]["decisions"] == 1
    id = flags["banner"]["metadata"]["id"]
    assert (
        client.post("/v1/rewards", json={"id": id, "value": 1.0}).json()["status"]
        == "waiting"
    )
    assert client.post(f"/v1/decisions/{id}/activate").status_code == 200
    assert client.get("/v1/models/banner").json()["rounds"] == 1
    other = client.post(
        FLAGS, json={"context": {**CONTEXT, "targetingKey": "user 8"}}
    ).json()["flags"]
    assert not {id} & {flag["metadata"]["id"] for flag in other}
    assert (
        client.post("/v1/models/banner/arms", json={"label": "green"}).status_code
        == 201
    )
    changed = {
        flag["key"]: flag
        for flag in client.post(FLAGS, json={"context": CONTEXT}).json()["flags"]
    }
    assert changed["beta"] == flags["beta"]
    assert changed["banner"]["metadata"]["id"] != id


def test_a_flag_that_fails_does_not_spoil_the_others(client: TestClient) -> None:
    made = client.post("/v1/models?model=strict", content=labelled_model().to_bytes())
    assert made.status_code == 201
    body = {"context": {**CONTEXT, "age": "old"}}
    flags = {
        flag["key"]: flag for flag in client.post(FLAGS, json=body).json()["flags"]
    }
    assert flags["strict"]["errorCode"] == "INVALID_CONTEXT"
    assert "value" in flags["banner"]
    broken = client.post(FLAGS, content=b"{")
    assert broken.status_code == 400
    assert set(broken.json()) == {"errorCode", "errorDetails"}

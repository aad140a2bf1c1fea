"""Version 1 over HTTP: what is answered, and that nothing bad changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from served_models import labelled_model


def client_of(settings: ServiceSettings) -> TestClient:
    return TestClient(
        Application(open_service(settings)), raise_server_exceptions=False
    )


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service with an empty model, and a fitted one of labelled arms named "shop"."""
    model = tmp_path / "shop.model"
    labelled_model().save(model)
    settings = ServiceSettings(store=str(tmp_path / "d.db"), empty_model=False)
    with client_of(settings) as client:
        body = {"model": "default", "arms": ["a", "b"]}
        assert client.post("/v1/models", json=body).status_code == 201
        shop = client.post("/v1/models?model=shop", content=model.read_bytes())
        assert shop.status_code == 201
        yield client


def hash_of(client: TestClient, model: str = "default") -> str:
    return str(client.get("/v1/model", params={"model": model}).json()["state_hash"])


def test_a_decision_its_reward_and_what_is_told_of_it(client: TestClient) -> None:
    asked = {
        "context": {"age": 0.3},
        "arms": ["arm_0", "arm_1"],
        "id": "d/1",
        "model": "shop",
        "scores": True,
    }
    decided = client.post("/v1/decisions", json=asked).json()
    assert set(decided) == {"id", "action", "propensity", "version", "model", "scores"}
    assert decided["action"] in ("arm_0", "arm_1")
    assert set(decided["scores"]) == {"arm_0", "arm_1"}
    assert client.post("/v1/decisions", json=asked).json() == decided
    assert client.post("/v1/rewards", json={"id": "d/1", "value": 1}).json() == {
        "id": "d/1",
        "status": "learned",
    }
    told = client.get("/v1/decisions/d%2F1").json()
    assert [reward["value"] for reward in told["rewards"]] == [1.0]
    assert sum(told["propensities"]) == pytest.approx(1.0)
    assert client.get("/v1/decisions/unknown").status_code == 404
    model = client.get("/v1/models/shop").json()
    assert model["rounds"] == 1
    assert model["version"] == decided["version"]


def test_batches_are_done_whole_or_not_at_all(client: TestClient) -> None:
    asked = [
        {"context": {"age": 1.0}, "model": "shop", "id": f"b{n}"} for n in range(3)
    ]
    decided = client.post("/v1/decisions", json={"decisions": asked}).json()[
        "decisions"
    ]
    assert [event["id"] for event in decided] == ["b0", "b1", "b2"]
    before = hash_of(client, "shop")
    rewards = [
        {"id": "b0", "value": 1.0},
        {"id": "b1", "value": 0.0},
        {"id": "b0", "value": 0.5},
    ]
    assert client.post("/v1/rewards", json={"rewards": rewards}).status_code == 409
    assert hash_of(client, "shop") == before
    assert client.get("/v1/decisions/b1").json()["rewards"] == []
    statuses = client.post("/v1/rewards", json={"rewards": rewards[:2]}).json()[
        "rewards"
    ]
    assert [status["status"] for status in statuses] == ["learned", "learned"]


def test_a_word_is_not_a_batch(client: TestClient) -> None:
    asked = {
        "id": "word",
        "context": {"page": "decisions", "rewards": "rewards"},
        "arms": ["a", "b"],
    }
    assert client.post("/v1/decisions", json=asked).json()["id"] == "word"


def test_rows_of_features_can_be_offered(client: TestClient) -> None:
    rows = [{"price": 1.0}, {"price": 2.0}]
    assert client.post("/v1/models", json={"model": "rows"}).status_code == 201
    assert client.post("/v1/decisions", json={"arms": rows, "model": "rows"}).json()[
        "action"
    ] in (0, 1)
    named = [
        {"label": "x", "features": {"price": 1.0}},
        {"label": "y", "features": {"price": 2.0}},
    ]
    assert client.post("/v1/decisions", json={"arms": named, "model": "rows"}).json()[
        "action"
    ] in ("x", "y")


BAD_REWARDS = [
    "NaN",
    "Infinity",
    '"nan"',
    "true",
    "1e400",
    "1e308",
    "null",
    "[1]",
    '{"a": 1}',
    "-1e308",
    '"1"',
]


@pytest.mark.parametrize("value", BAD_REWARDS)
def test_a_bad_reward_is_refused_by_name_and_changes_nothing(
    client: TestClient, value: str
) -> None:
    client.post("/v1/decisions", json={"id": "x"})
    before = hash_of(client)
    answer = client.post("/v1/rewards", content=f'{{"id": "x", "value": {value}}}')
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["field"] == (
        "value" if answer.status_code == 422 else "body"
    )
    assert hash_of(client) == before


BAD_DECISIONS: list[tuple[str, int, str]] = [
    ('{"context": {"age": 1e400}, "model": "shop"}', 422, "context"),
    ('{"context": {"age": 1e308}, "model": "shop"}', 422, "context"),
    ('{"context": {"age": NaN}, "model": "shop"}', 400, "body"),
    ('{"context": {"age": "nan"}, "model": "shop"}', 422, "age"),
    ('{"context": {"age": [1, 2]}, "model": "shop"}', 422, ""),
    ('{"context": {}, "model": "shop"}', 422, "context"),
    ('{"context": {"age": 1}, "arms": [], "model": "shop"}', 422, "arms"),
    ('{"context": {"age": 1}, "arms": ["nobody"], "model": "shop"}', 422, "arm"),
    (
        '{"context": {"age": 1}, "arms": ["arm_0", "arm_0"], "model": "shop"}',
        422,
        "arms",
    ),
    (json.dumps({"arms": [f"a{n}" for n in range(501)]}), 422, "arms"),
    ('{"model": "nothing"}', 404, "model"),
    ('{"model": "../../etc/passwd"}', 422, "model"),
    ('{"id": ""}', 422, "id"),
    (json.dumps({"id": "x" * 257}), 422, "id"),
    ('{"id": "a\\u0000b"}', 422, "id"),
    ('{"context": {"t": "\\ud800"}}', 400, "body"),
    ('{"unheard": 1}', 422, ""),
    ("[]", 422, "body"),
    ("", 400, "body"),
    ('{"context": ' + '{"a":' * 100 + "1" + "}" * 100 + "}", 422, "context"),
    ("[" * 100_000, 422, "body"),
    (json.dumps({"context": {"a": "x" * 2_000}}), 422, "context"),
    (json.dumps({"context": {f"c{n}": 1 for n in range(30_000)}}), 422, "context"),
]


@pytest.mark.parametrize(
    ("body", "status", "field"), BAD_DECISIONS, ids=range(len(BAD_DECISIONS))
)
def test_a_bad_request_is_refused_by_name_and_changes_nothing(
    client: TestClient, body: str, status: int, field: str
) -> None:
    before = hash_of(client), hash_of(client, "shop")
    answer = client.post("/v1/decisions", content=body)
    assert answer.status_code == status, answer.text
    assert field in answer.json()["error"]["field"]
    assert (hash_of(client), hash_of(client, "shop")) == before


def test_bodies_that_are_too_long_or_not_text_are_refused(client: TestClient) -> None:
    assert client.post("/v1/decisions", content=b"x" * 10_000_000).status_code == 413
    chunks = (b"x" * 100_000 for _ in range(100))
    assert client.post("/v1/decisions", content=chunks).status_code == 413
    assert (
        client.post("/v1/decisions", content=b'{"id": "\xff\xfe"}').status_code == 400
    )


@pytest.mark.parametrize("label", ["a\nb", "\x00", "\x1b[31mred", "right\u202eleft"])
def test_a_new_arm_has_no_control_characters_in_its_label(
    client: TestClient, label: str
) -> None:
    added = client.post("/v1/models/shop/arms", json={"label": label})
    made = client.post("/v1/models", json={"model": "other", "arms": ["a", label]})
    assert (added.status_code, made.status_code) == (422, 422)
    assert (added.json()["error"]["field"], made.json()["error"]["field"]) == (
        "label",
        "arms[1]",
    )


def test_a_new_arm_may_be_named_by_a_compound_emoji(client: TestClient) -> None:
    assert (
        client.post("/v1/models/shop/arms", json={"label": "👩‍💻 deal"}).status_code
        == 201
    )


def test_arms_come_and_go_and_never_come_back(client: TestClient) -> None:
    assert (
        client.post("/v1/models/shop/arms", json={"label": "arm_new"}).status_code
        == 201
    )
    assert client.delete("/v1/models/shop/arms/arm_0").json() == {
        "label": "arm_0",
        "active": False,
    }
    assert (
        client.post("/v1/models/shop/arms", json={"label": "arm_0"}).status_code == 422
    )
    arms = {
        arm["label"]: arm["active"]
        for arm in client.get("/v1/models/shop/arms").json()["arms"]
    }
    assert arms == {"arm_0": False, "arm_1": True, "arm_2": True, "arm_new": True}
    asked = {"context": {"age": 0.0}, "model": "shop", "arms": ["arm_0"]}
    assert client.post("/v1/decisions", json=asked).status_code == 422


def test_versions_are_uploaded_activated_and_rolled_back(
    client: TestClient, tmp_path: Path
) -> None:
    first = client.get("/v1/models/shop").json()["version"]
    before = hash_of(client, "shop")
    content = (tmp_path / "shop.model").read_bytes()
    asked = {"note": "again", "activate": "true"}
    second = client.post(
        "/v1/models/shop/versions", content=content, params=asked
    ).json()["version"]
    assert client.get("/v1/models/shop").json()["version"] == second != first
    assert client.post("/v1/models/shop/rollback").json()["version"] == first
    versions = client.get("/v1/models/shop/versions").json()["versions"]
    assert [version["active"] for version in versions] == [True, False]
    assert (
        client.post(f"/v1/models/shop/versions/{second}/activate").json()["version"]
        == second
    )
    assert client.post("/v1/models/shop/versions/9-none/activate").status_code == 404
    assert (
        client.post("/v1/models/shop/versions", content=b"no model").status_code == 422
    )
    assert client.post("/v1/models/nobody/versions", content=content).status_code == 404
    client.post("/v1/models/shop/rollback")
    assert hash_of(client, "shop") != before  # it has a version more


def test_rules_are_kept_and_bad_ones_refused(client: TestClient) -> None:
    rules = {
        "floor": 0.2,
        "reward_wait": 60,
        "default_reward": 0.0,
        "aggregation": "sum",
    }
    assert client.put("/v1/model/configuration", json=rules).json()["floor"] == 0.2
    assert client.get("/v1/model/configuration").json()["aggregation"] == "sum"
    for bad in (
        {"floor": 1.5},
        {"reward_wait": -1},
        {"aggregation": "mode"},
        {"nonsense": 1},
    ):
        assert client.put("/v1/model/configuration", json=bad).status_code == 422


def test_health_metrics_document_and_headers(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    assert "invariant_bandits_requests_total" in client.get("/metrics").text
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"
    assert client.get("/nowhere").json()["error"]["code"] == "not found"
    assert client.put("/v1/decisions").status_code == 405
    headers = client.get("/healthz").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in headers["content-security-policy"]


def test_beyond_this_machine_a_token_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens"):
        open_service(ServiceSettings(store=str(tmp_path / "d.db"), host="0.0.0.0"))
    assert not (tmp_path / "d.db").exists()


def test_a_token_that_asks_too_often_is_slowed_down(tmp_path: Path) -> None:
    settings = ServiceSettings(store=str(tmp_path / "d.db"), rate=2.0)
    with client_of(settings) as client:
        statuses = [client.get("/v1/model").status_code for _ in range(20)]
    assert statuses[0] == 200
    assert 429 in statuses


def test_a_version_decides_only_when_it_is_asked_to(
    client: TestClient, tmp_path: Path
) -> None:
    first = client.get("/v1/models/shop").json()["version"]
    content = (tmp_path / "shop.model").read_bytes()
    added = client.post("/v1/models/shop/versions", content=content)
    assert (added.status_code, added.json()["active"]) == (201, False)
    assert client.get("/v1/models/shop").json()["version"] == first
    assert (
        client.post(
            "/v1/models/shop/versions?activate=maybe", content=content
        ).status_code
        == 422
    )
    second = added.json()["version"]
    assert (
        client.post(f"/v1/models/shop/versions/{second}/activate").json()["version"]
        == second
    )
    third = client.post(
        "/v1/models/shop/versions?activate=true", content=content
    ).json()
    assert third["active"]
    assert client.get("/v1/models/shop").json()["version"] == third["version"]


def test_a_version_that_takes_other_requests_is_refused_unless_differences_are_allowed(
    client: TestClient, tmp_path: Path
) -> None:
    before = hash_of(client, "shop")
    table = labelled_model(arms=4).to_bytes()
    refused = client.post("/v1/models/shop/versions?activate=true", content=table)
    assert refused.status_code == 409
    assert refused.json()["error"]["differences"] == ["arm 'arm_3' is new"]
    own = client.post(
        "/v1/model/versions?activate=true",
        content=(tmp_path / "shop.model").read_bytes(),
    )
    assert own.status_code == 409
    assert {
        "kind: open is active, model was given",
        "arm 'a' is missing",
        "arm 'arm_0' is new",
    } <= set(own.json()["error"]["differences"])
    assert hash_of(client, "shop") == before
    client.delete("/v1/models/shop/arms/arm_0")
    retired = client.post(
        "/v1/models/shop/versions", content=(tmp_path / "shop.model").read_bytes()
    ).json()
    assert retired["error"]["differences"] == ["arm 'arm_0' is active, was retired"]
    asked = {"context": {"age": 1.0}, "model": "shop"}
    assert client.post("/v1/decisions", json=asked).status_code == 200
    allowed = client.post(
        "/v1/models/shop/versions?activate=true&allow_differences=true", content=table
    )
    assert allowed.status_code == 201
    assert len(client.get("/v1/models/shop/arms").json()["arms"]) == 4


def test_the_document_names_what_an_upload_can_say(client: TestClient) -> None:
    upload = client.get("/openapi.json").json()["paths"]["/v1/model/versions"]["post"]
    assert {"activate", "allow_differences", "note", "model"} == {
        parameter["name"] for parameter in upload["parameters"]
    }


def test_the_oldest_model_is_meant_where_none_is_named(
    tmp_path: Path, fitted_file: Path
) -> None:
    service = open_service(
        ServiceSettings(store=str(tmp_path / "d.db"), models={"shop": fitted_file})
    )
    with TestClient(Application(service)) as client:
        body = {"context": {"age": 0.5}, "id": "one"}
        assert client.post("/v1/decisions", json=body).json()["model"] == "shop"
        assert (
            client.post("/v1/decisions", json={"decisions": [body]}).json()[
                "decisions"
            ][0]["model"]
            == "shop"
        )
        assert client.get("/v1/model").json()["model"] == "shop"
        assert (
            client.post("/v1/models", content=fitted_file.read_bytes()).json()["model"]
            == "default"
        )
        assert client.post("/v1/models", json={"model": "third"}).status_code == 201
        assert client.get("/v1/model").json()["model"] == "shop"
        assert client.post("/v1/decisions", json=body).json()["model"] == "shop"
        reward = {"id": "not decided yet", "value": 1.0}
        assert client.post("/v1/rewards", json=reward).json()["status"] == "unknown"
        assert client.get("/v1/model").json()["counts"]["unknown"] == 1


@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-www-form-urlencoded", "text/plain", ""]
)
def test_the_content_type_does_not_change_the_meaning_of_a_body(
    loops: TestClient, fitted_file: Path, kind: str
) -> None:
    headers = {"content-type": kind}
    assert (
        loops.post(
            "/v1/models", content=b' {"model": "empty"}', headers=headers
        ).status_code
        == 201
    )
    octets = fitted_file.read_bytes()
    assert (
        loops.post("/v1/models?model=file", content=octets, headers=headers).status_code
        == 201
    )
    assert (
        loops.post(
            "/v1/decisions", content=b'{"arms": ["a"]}', headers=headers
        ).status_code
        == 200
    )
    refused = loops.post(
        "/v1/models?model=log&log=rows.jsonl", content=b'{"a": 1}', headers=headers
    )
    assert refused.status_code in (202, 503), (
        "a log is not the body of a request, though it is JSON"
    )


def test_an_apprentice_shows_the_first_arm_and_learns_and_a_logger_does_not(
    loops: TestClient,
) -> None:
    for mode, rounds in (("apprentice", 1), ("logging", 1)):
        changed = loops.put("/v1/model/configuration", json={"mode": mode})
        assert changed.status_code == 200
        body = {"context": {"hour": 9}, "arms": ["b", "a"], "id": mode}
        decided = loops.post("/v1/decisions", json=body).json()
        assert (decided["action"], decided["propensity"]) == ("b", 1.0)
        loops.post("/v1/rewards", json={"id": mode, "value": 1.0})
        assert loops.get("/v1/model").json()["rounds"] == rounds

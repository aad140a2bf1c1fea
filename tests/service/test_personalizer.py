"""Personalizer's protocol over HTTP, call by call; every body that is refused has the protocol's form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from invariant_bandits.service.protocols.personalizer.routes import CALLS
from invariant_bandits.service.replaying import replayed, restored
from invariant_bandits.service.serving import Settings, application, opened
from invariant_bandits.service.store.sqlite import SqliteStore
from served_models import labelled_model

V1, NEW = "/personalizer/v1.0", "/personalizer"
ACTIONS = [
    {"id": one, "features": [{"kind": one.lower()}, {"size": n}]} for n, one in enumerate(("News", "Sport", "Film"))
]
CONTEXT = [{"user": {"age": 31, "city": "Bern"}}, {"hour": 9}]
RULES = {
    "rewardWaitTime": "PT10M",
    "defaultReward": 0.0,
    "rewardAggregation": "sum",
    "explorationPercentage": 0.2,
    "modelExportFrequency": "PT5M",
    "logRetentionDays": 90,
    "modelRetrainDays": 0,
    "learningMode": "Online",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fitted model of labelled arms, in a file."""
    path = tmp_path_factory.mktemp("models") / "shop.model"
    labelled_model().save(path)
    return path


@pytest.fixture
def client(tmp_path: Path, model: Path) -> Iterator[TestClient]:
    """A service with an empty model, and a fitted one named "shop"."""
    service = opened(Settings(store=str(tmp_path / "d.db"), models={"shop": model}))
    with TestClient(application(service), raise_server_exceptions=False) as client:
        assert client.post("/v1/models", json={"name": "default"}).status_code == 201
        yield client


def rank(client: TestClient, prefix: str = V1, **more: Any) -> dict[str, Any]:
    asked = {"contextFeatures": CONTEXT, "actions": ACTIONS, **more}
    answered = client.post(f"{prefix}/rank", json=asked)
    assert answered.status_code == 201, answered.text
    told: dict[str, Any] = answered.json()
    return told


def reward(client: TestClient, id: str, value: Any, key: str = "", prefix: str = V1) -> int:
    headers = {"x-ms-client-request-id": key} if key else {}
    return client.post(f"{prefix}/events/{id}/reward", json={"value": value}, headers=headers).status_code


def decision(client: TestClient, id: str) -> dict[str, Any]:
    told: dict[str, Any] = client.get(f"/v1/decisions/{id}").json()
    return told


def refused(answered: Any, status: int, code: str) -> dict[str, Any]:
    """The error of an answer, which has exactly the form of the protocol."""
    assert answered.status_code == status, answered.text
    assert set(answered.json()) == {"error"}
    error: dict[str, Any] = answered.json()["error"]
    assert error["code"] == code, error
    assert set(error) <= {"code", "message", "target", "details", "innerError"}
    assert len(error["message"]) > 5
    assert set(error["innerError"]) == {"code"}
    return error


@pytest.mark.parametrize("prefix", [V1, "/personalizer/v1.1-preview.3", NEW, "/models/default/personalizer/v1.0"])
def test_rank_reward_and_the_same_event_again(client: TestClient, prefix: str) -> None:
    told = rank(client, prefix, eventId="a/b c", excludedActions=["Sport"])
    assert set(told) == {"ranking", "eventId", "rewardActionId"}
    assert [one["id"] for one in told["ranking"]] == ["News", "Sport", "Film"]
    chances = {one["id"]: one["probability"] for one in told["ranking"]}
    assert chances["Sport"] == 0.0
    assert sum(chances.values()) == pytest.approx(1.0)
    assert told["rewardActionId"] in ("News", "Film")
    assert rank(client, prefix, eventId="a/b c", actions=ACTIONS[:1]) == told
    assert reward(client, "a%2Fb%20c", 1.0, prefix=prefix) == 204
    assert decision(client, "a%2Fb%20c")["settled"]["value"] == 1.0
    assert client.get("/v1/model").json()["rounds"] == 1


def test_features_are_learned_by_their_names(client: TestClient) -> None:
    reward(client, rank(client)["eventId"], 1.0)
    names = client.get("/v1/model").json()["features"]
    assert {"f:kind=news", "f:size", "f:kind=news|user.city=Bern", "f:kind=news|hour"} <= set(names)


def test_rewards_that_contradict_repeat_or_have_no_event_are_no_errors(client: TestClient) -> None:
    id = rank(client)["eventId"]
    assert [reward(client, id, value) for value in (0.5, 0.5, -1.0)] == [204, 204, 204]
    assert decision(client, id)["settled"]["value"] == 0.5
    assert reward(client, "not known yet", 0.25) == 204
    assert rank(client, eventId="not known yet")["eventId"] == "not known yet"
    assert decision(client, "not known yet")["settled"]["value"] == 0.25
    assert client.get("/v1/model").json()["counts"]["unknown"] == 1


def test_a_call_that_a_client_repeats_counts_once_where_rewards_add_up(client: TestClient) -> None:
    assert client.put(f"{V1}/configurations/service", json=RULES).status_code == 200
    id = rank(client)["eventId"]
    for key, value in (("one", 0.25), ("one", 0.25), ("two", 0.25), ("", 0.125), ("", 0.125)):
        assert reward(client, id, value, key) == 204
    assert [one["value"] for one in decision(client, id)["rewards"]] == [0.25, 0.25, 0.125, 0.125]


def test_a_deferred_event_counts_once_it_is_activated(client: TestClient) -> None:
    id = rank(client, deferActivation=True)["eventId"]
    assert reward(client, id, 1.0) == 204
    assert decision(client, id)["settled"] is None
    assert client.post(f"{V1}/events/{id}/activate").status_code == 204
    assert decision(client, id)["settled"]["value"] == 1.0
    assert client.post(f"{V1}/events/{id}/activate").status_code == 204
    refused(client.post(f"{V1}/events/unknown/activate"), 400, "InvalidEventIdToActivate")


SLOTS = [
    {"id": "top", "baselineAction": "Film", "features": [{"size": "large"}], "excludedActions": ["News"]},
    {"id": "side", "baselineAction": "News", "features": [{"size": "small"}]},
]


def test_slots_take_different_actions_and_are_rewarded_each(client: TestClient) -> None:
    asked = {"contextFeatures": CONTEXT, "actions": ACTIONS, "slots": SLOTS, "eventId": "m/1", "deferActivation": True}
    answered = client.post(f"{V1}/multislot/rank", json=asked)
    assert answered.status_code == 201, answered.text
    told = answered.json()
    assert told["eventId"] == "m/1"
    chosen = {one["id"]: one["rewardActionId"] for one in told["slots"]}
    assert list(chosen) == ["top", "side"]
    assert chosen["top"] in ("Sport", "Film")
    assert chosen["side"] != chosen["top"]
    assert client.post(f"{V1}/multislot/rank", json=asked | {"slots": SLOTS[:1]}).json() == told
    rewards = {"reward": [{"slotId": "top", "value": 1.0}, {"slotId": "side", "value": -0.5}]}
    assert client.post(f"{V1}/multislot/events/m%2F1/reward", json=rewards).status_code == 204
    assert client.post(f"{V1}/multislot/events/m%2F1/activate").status_code == 204
    first, second = decision(client, "m%2F1%7Ctop"), decision(client, "m%2F1%7Cside")
    assert (first["settled"]["value"], second["settled"]["value"]) == (1.0, -0.5)
    assert first["arms"] == ["Film", "Sport"]  # its baseline first
    assert set(second["arms"]) == {"News", "Sport", "Film"} - {chosen["top"]}
    assert sum(second["propensities"]) == pytest.approx(1.0)
    refused(
        client.post(f"{V1}/multislot/rank", json=asked | {"eventId": "m2", "actions": ACTIONS[:1]}),
        400,
        "InvalidRankRequest",
    )
    assert client.get("/v1/model").json()["counts"]["decisions"] == 2


def test_more_slots_than_the_protocol_has_are_refused(client: TestClient) -> None:
    actions = [{"id": str(n)} for n in range(60)]
    slots = [{"id": str(n), "baselineAction": "0"} for n in range(51)]
    refused(client.post(f"{V1}/multislot/rank", json={"actions": actions, "slots": slots}), 400, "InvalidRankRequest")
    slots[0]["id"] = "\N{GRINNING FACE}" * 256
    told = client.post(f"{V1}/multislot/rank", json={"actions": actions, "slots": slots[:50]}).json()
    assert len({one["rewardActionId"] for one in told["slots"]}) == 50
    rewards = {"reward": [{"slotId": slots[0]["id"], "value": 1.0}]}
    assert client.post(f"{V1}/multislot/events/{told['eventId']}/reward", json=rewards).status_code == 204
    assert client.get("/v1/model").json()["rounds"] == 1


def test_an_apprentice_shows_the_baseline_and_learns_and_a_logger_does_not(client: TestClient) -> None:
    for mode, rounds in (("Apprentice", 1), ("LoggingOnly", 1)):
        rules = RULES | {"learningMode": mode, "rewardWaitTime": "PT0S"}
        assert client.put(f"{NEW}/configurations/service", json=rules).json()["learningMode"] == mode
        told = rank(client, excludedActions=["News"])
        assert told["rewardActionId"] == "Sport"
        assert [one["probability"] for one in told["ranking"]] == [0.0, 1.0, 0.0]
        reward(client, told["eventId"], 1.0)
        assert client.get("/v1/model").json()["rounds"] == rounds
        slots = client.post(f"{NEW}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS}).json()["slots"]
        assert [one["rewardActionId"] for one in slots] == ["Film", "News"]


def test_rules_are_told_as_they_were_set(client: TestClient) -> None:
    path = f"{NEW}/configurations/service?api-version=2022-09-01-preview"
    before = client.get(path).json()
    assert client.put(path, json=before).status_code == 200
    more = {"isAutoOptimizationEnabled": True, "autoOptimizationFrequency": "P7D", "logMirrorEnabled": False}
    told = client.put(path, json=RULES | more).json()
    assert told == client.get(path).json()
    assert {name: told[name] for name in (RULES | more) if name not in ("rewardWaitTime", "modelExportFrequency")} == {
        name: value for name, value in (RULES | more).items() if name not in ("rewardWaitTime", "modelExportFrequency")
    }
    assert (told["rewardWaitTime"], told["modelExportFrequency"]) == ("PT600S", "PT300S")
    assert told["lastConfigurationEditDate"].endswith("Z")
    ours = client.get("/v1/model/configuration").json()
    assert (ours["floor"], ours["reward_wait"], ours["default_reward"]) == (0.2, 600.0, 0.0)
    assert (ours["aggregation"], ours["mode"], ours["conflicts"]) == ("sum", "online", "refuse")


BAD_RULES = [
    ({"rewardWaitTime": "PT1S"}, "InvalidRewardWaitTime"),
    ({"rewardWaitTime": "P3D"}, "InvalidRewardWaitTime"),
    ({"rewardWaitTime": "soon"}, "InvalidServiceConfiguration"),
    ({"rewardAggregation": "mode"}, "InvalidServiceConfiguration"),
    ({"explorationPercentage": 1.5}, "InvalidServiceConfiguration"),
    ({"logRetentionDays": 0}, "InvalidLogRetentionDays"),
    ({"learningMode": "Offline"}, "InvalidServiceConfiguration"),
    ({"logMirrorEnabled": True, "logMirrorSasUri": "a secret"}, "InvalidServiceConfiguration"),
]


@pytest.mark.parametrize(("more", "code"), BAD_RULES)
def test_rules_that_cannot_be_kept_are_refused(client: TestClient, more: dict[str, Any], code: str) -> None:
    before = client.get(f"{V1}/configurations/service").json()
    refused(client.put(f"{V1}/configurations/service", json=RULES | more), 400, code)
    assert client.get(f"{V1}/configurations/service").json() == before


BAD_RANKS = [
    {"actions": []},
    {"actions": [ACTIONS[0], ACTIONS[0]]},
    {"actions": [{"id": "", "features": []}]},
    {"actions": [{"id": "x" * 257, "features": []}]},
    {"actions": ACTIONS, "excludedActions": ["News", "Sport", "Film"]},
    {"actions": ACTIONS, "eventId": "x" * 257},
    {"actions": ACTIONS, "contextFeatures": ["morning"]},
    {"actions": ACTIONS, "contextFeatures": [{"age": 1e13}]},
    {"actions": [{"id": str(n)} for n in range(501)]},
    {"contextFeatures": CONTEXT},
    {"actions": "News"},
]


@pytest.mark.parametrize("body", BAD_RANKS, ids=range(len(BAD_RANKS)))
def test_bad_ranks_are_refused_and_change_nothing(client: TestClient, body: dict[str, Any]) -> None:
    before = client.get("/v1/model").json()["state_hash"]
    refused(client.post(f"{V1}/rank", json=body), 400, "InvalidRankRequest")
    assert client.get("/v1/model").json()["state_hash"] == before


def test_other_errors_have_the_protocols_body(client: TestClient) -> None:
    id = rank(client)["eventId"]
    for value in ("1.5", "-1.1", "NaN", '"1"', "true", "1e400", "null"):
        answered = client.post(f"{V1}/events/{id}/reward", content=f'{{"value": {value}}}')
        refused(answered, 400, "InvalidRewardRequest")
    refused(client.post(f"{V1}/rank", content=b"{"), 400, "InvalidRankRequest")
    refused(client.post(f"{V1}/rank", content=b"x" * (2 << 20)), 413, "PayloadSizeExceeded")
    refused(client.get(f"{V1}/nothing"), 404, "ResourceNotFound")
    refused(client.get(f"{V1}/rank"), 405, "OperationNotAllowed")
    refused(client.get("/models/none/personalizer/v1.0/configurations/service"), 404, "ResourceNotFound")
    refused(client.get(f"{NEW}/model/properties?api-version=2031-01-01"), 400, "BadRequest")
    refused(client.delete(f"{V1}/logs"), 400, "OperationNotAllowed")


def test_a_model_of_labelled_arms_ranks_what_it_knows(client: TestClient) -> None:
    path = "/models/shop/personalizer/v1.0/rank"
    actions = [{"id": f"arm_{n}", "features": [{"colour": "red"}]} for n in range(3)]
    told = client.post(path, json={"contextFeatures": [{"age": 0.5}], "actions": actions}).json()
    assert [one["id"] for one in told["ranking"]] == ["arm_0", "arm_1", "arm_2"]
    assert reward(client, told["eventId"], 1.0, prefix="/models/shop/personalizer/v1.0") == 204
    assert decision(client, told["eventId"])["settled"]["value"] == 1.0
    answered = client.post(f"{V1}/rank", json={"actions": actions}, headers={"x-model": "shop"})
    assert "lack age" in refused(answered, 400, "InvalidRankRequest")["message"]
    asked = {"contextFeatures": [{"age": 0.5}], "actions": [*actions, {"id": "other"}]}
    refused(client.post(path, json=asked), 400, "InvalidRankRequest")


def test_a_model_is_exported_imported_and_reset(client: TestClient, model: Path) -> None:
    for n in range(6):
        reward(client, rank(client)["eventId"], float(n % 2))
    content = client.get(f"{V1}/model").content
    learned = client.get("/v1/model").json()
    assert client.delete(f"{V1}/model").status_code == 204
    assert client.get("/v1/model").json()["rounds"] == 0
    assert client.get("/v1/model").json()["features"] == []
    assert client.put(f"{NEW}/model", content=iter([content[:100], content[100:]])).status_code == 204
    again = client.get("/v1/model").json()
    assert (again["rounds"], again["features"]) == (6, learned["features"])
    assert client.get(f"{V1}/model").content == content
    refused(client.put(f"{V1}/model", content=content[:-1]), 400, "InvalidModelImportFormat")
    refused(client.put(f"{V1}/model", content=b"PK"), 400, "InvalidModelImportFormat")
    assert client.put(f"{V1}/model", content=model.read_bytes()).status_code == 204
    assert client.get("/v1/model").json()["logged_rounds"] == 4_000
    assert client.delete(f"{V1}/model").status_code == 204
    assert client.get("/v1/model").json()["logged_rounds"] == 4_000
    times = client.get(f"{V1}/model/properties").json()
    assert times["creationTime"] <= times["lastModifiedTime"]
    span = client.get(f"{V1}/logs/properties").json()["dateRange"]
    assert span["from"] <= times["creationTime"] <= span["to"]


def test_learning_settings_are_what_can_be_set(client: TestClient) -> None:
    path = f"{V1}/configurations/policy"
    reward(client, rank(client)["eventId"], 1.0)
    assert client.get(path).json() == {"name": "linucb", "arguments": "--exploration 0.1"}
    other = {"name": "curious", "arguments": "--exploration 0.5"}
    assert client.put(path, json=other).json() == other
    assert client.get(path).json() == other
    assert client.get("/v1/model").json()["rounds"] == 1  # what was learned stays
    assert client.delete(path).json() == {"name": "linucb", "arguments": "--exploration 0.1"}
    vowpal = {"name": "theirs", "arguments": "--cb_explore_adf --epsilon 0.2"}
    refused(client.put(path, json=vowpal), 400, "InvalidPolicyConfiguration")
    refused(
        client.put("/models/shop/personalizer/v1.0/configurations/policy", json=other),
        400,
        "InvalidPolicyConfiguration",
    )


SPAN = {"startTime": "2020-01-01T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"}


def test_an_evaluation_recovers_what_policies_earn(client: TestClient) -> None:
    """Only "Film" pays 1 and all is drawn uniformly: chance earns 1/3 within five errors (missed once in 10^6), the
    baseline nothing."""
    error = (2 / 9 / 240) ** 0.5
    assert (
        client.put(
            f"{V1}/configurations/service", json=RULES | {"rewardWaitTime": "PT0S", "explorationPercentage": 1.0}
        ).status_code
        == 200
    )
    rewards = []
    for _ in range(240):
        told = rank(client)
        rewards.append(float(told["rewardActionId"] == "Film"))
        reward(client, told["eventId"], rewards[-1])
    asked = {"name": "first", **SPAN, "policies": []}
    assert client.put(f"{NEW}/evaluations/e1", json=asked).status_code == 200
    told = client.get(f"{NEW}/evaluations/e1", params=SPAN).json()
    assert told["status"] == "Succeeded"
    found = {one["policySource"]: one for one in told["content"]["value"]}
    assert found["Online"]["summary"]["expectedReward"] == pytest.approx(sum(rewards) / 240)
    assert abs(found["Random"]["summary"]["expectedReward"] - 1 / 3) < 5 * error
    assert found["Baseline"]["summary"]["expectedReward"] == 0.0
    low, high = found["Random"]["summary"]["confidenceInterval"]
    assert low < found["Random"]["summary"]["expectedReward"] < high
    assert 2 * error < high - low < 10 * error
    last = found["Random"]["timeseries"]["data"][-1]
    assert last["expectedReward"] == pytest.approx(found["Random"]["summary"]["expectedReward"])
    made = client.post(f"{V1}/evaluations", json=asked)
    assert made.status_code == 201
    total = {one["policySource"]: one["totalSummary"] for one in made.json()["policyResults"]}
    assert total["Online"]["ipsEstimatorDenominator"] == 240
    assert total["Random"]["averageReward"] == pytest.approx(found["Random"]["summary"]["expectedReward"])
    assert client.get(made.headers["location"]).json() == made.json()
    assert len(client.get(f"{V1}/evaluations").json()) == 2
    assert [one["id"] for one in client.get(f"{NEW}/evaluations?top=1").json()["value"]] == ["e1"]
    name = {"evaluationId": "e1", "policyName": "linucb"}
    assert client.post(f"{NEW}/configurations/applyFromEvaluation", json=name).status_code == 204
    refused(
        client.post(f"{V1}/configurations/applyFromEvaluation", json=name | {"policyName": "Random"}),
        400,
        "LearningSettingsNotFound",
    )
    assert client.delete(f"{NEW}/evaluations/e1").status_code == 204
    refused(client.get(f"{NEW}/evaluations/e1"), 404, "EvaluationNotFound")
    refused(client.delete(f"{NEW}/evaluations/e1"), 404, "EvaluationNotFound")
    bad = asked | {"startTime": "2099-01-01T00:00:00Z"}
    refused(client.put(f"{NEW}/evaluations/e2", json=bad), 400, "NoLogsExistInDateRange")
    for year in ("0001", "9999"):
        early = asked | {"startTime": f"{year}-12-31T23:59:59.999999Z"}
        refused(client.put(f"{NEW}/evaluations/e2", json=early), 400, "InvalidEvaluationContract")
        refused(client.put(f"{NEW}/featureImportances/e2", json=early), 400, "InvalidRequest")
    refused(client.get(f"{V1}/evaluations?top=-1"), 400, "InvalidRequest")
    theirs = {"policies": [{"name": "a", "arguments": "--cb_explore_adf"}]}
    refused(client.put(f"{NEW}/evaluations/e2", json=asked | theirs), 400, "OperationNotAllowed")


def test_important_features_come_first(client: TestClient) -> None:
    kinds = [{"id": one["id"], "features": one["features"][:1]} for one in ACTIONS]
    for n in range(90):
        told = rank(client, contextFeatures=[{"noise": n % 2}], actions=kinds)
        reward(client, told["eventId"], float(told["rewardActionId"] == "Film"))
    assert client.put(f"{NEW}/featureImportances/f1", json={"name": "mine", **SPAN}).status_code == 200
    told = client.get(f"{NEW}/featureImportances/f1").json()
    names = [f"{one['namespace']}.{one['featureName']}" for one in told["featureScores"]]
    assert names[0] == "action.kind"
    assert told["featureScores"][0]["score"] == 100.0
    assert ".noise" in names
    assert [one["id"] for one in client.get(f"{NEW}/featureImportances").json()["value"]] == ["f1"]
    assert client.delete(f"{NEW}/featureImportances/f1").status_code == 204
    refused(client.get(f"{NEW}/featureImportances/f1"), 404, "ResourceNotFound")


def test_what_this_door_does_is_restored_and_replayed(tmp_path: Path) -> None:
    with TestClient(application(opened(Settings(store=str(tmp_path / "d.db"))))) as client:
        client.put(f"{V1}/configurations/service", json=RULES | {"rewardWaitTime": "PT0S"})
        for n in range(20):
            reward(client, rank(client, excludedActions=["News"] if n % 2 else [])["eventId"], 0.5)
            client.post(f"{V1}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS, "eventId": f"m{n}"})
            client.post(f"{V1}/multislot/events/m{n}/reward", json={"reward": [{"slotId": "top", "value": 1.0}]})
        client.put(f"{V1}/featureImportances/f1", json={"name": "mine", **SPAN})
        slots = client.post(f"{V1}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS, "eventId": "m7"}).json()
        live = client.get("/v1/model").json()["state_hash"]
    store = SqliteStore(tmp_path / "d.db")
    for state in (restored(store), replayed(store)):
        assert state.hashes() == {"default": live}
        assert set(state.models["default"].kept) == {"personalizer rules", "importance f1"}
    store.close()
    with TestClient(application(opened(Settings(store=str(tmp_path / "d.db"))))) as client:
        again = client.post(f"{V1}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS, "eventId": "m7"}).json()
        assert again == slots


NASTY = (b"", b"null", b"[]", b"{", b'"text"', b"\xff\xfe", b'{"value": 1e999}', b"[" * 100_000, b'{"actions": [null]}')


def test_no_call_answers_nonsense_with_500(client: TestClient) -> None:
    asked = [
        (method, prefix + path.replace("{id:path}", id), body)
        for method, path, _ in CALLS
        for prefix in (V1, NEW)
        for body in (NASTY if method in ("PUT", "POST") else (b"",))
        for id in (("x", "a%2Fb", "%00", "%F0%9F%98%80" * 100) if "{id" in path else ("",))
    ]
    for method, path, body in asked:
        answered = client.request(method, path, content=body, params={"startTime": "never", "skip": "x"})
        assert answered.status_code < 500, (path, body[:20], answered.text)
        assert answered.status_code < 400 or set(answered.json()) == {"error"}
    assert client.get("/readyz").status_code == 200
    assert client.get("/v1/model").json()["counts"]["decisions"] == 0

"""Personalizer's protocol over HTTP: its rules, learning settings, and the model as octets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from invariant_bandits.model.model import Model
from invariant_bandits.service.replay import replay_all, restore
from invariant_bandits.service.serve import Application, ServiceSettings, open_service
from invariant_bandits.service.store.open_store import open_store, verify
from local_client import TestClient
from personalizer_calls import ACTIONS, NEW, RULES, SLOTS, V1, rank, refused, reward


def test_an_apprentice_shows_the_baseline_and_learns_and_a_logger_does_not(
    loops: TestClient,
) -> None:
    for mode, rounds in (("Apprentice", 1), ("LoggingOnly", 1)):
        rules = RULES | {"learningMode": mode, "rewardWaitTime": "PT0S"}
        assert (
            loops.put(f"{NEW}/configurations/service", json=rules).json()[
                "learningMode"
            ]
            == mode
        )
        told = rank(loops, excludedActions=["News"])
        assert told["rewardActionId"] == "Sport"
        assert [action["probability"] for action in told["ranking"]] == [0.0, 1.0, 0.0]
        reward(loops, told["eventId"], 1.0)
        assert loops.get("/v1/model").json()["rounds"] == rounds
        slots = loops.post(
            f"{NEW}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS}
        ).json()["slots"]
        assert [slot["rewardActionId"] for slot in slots] == ["Film", "News"]


def test_rules_are_told_as_they_were_set(loops: TestClient) -> None:
    path = f"{NEW}/configurations/service?api-version=2022-09-01-preview"
    before = loops.get(path).json()
    assert loops.put(path, json=before).status_code == 200
    more = {
        "isAutoOptimizationEnabled": True,
        "autoOptimizationFrequency": "P7D",
        "logMirrorEnabled": True,
    }
    more |= {"logMirrorSasUri": "https://storage.example/logs?sv=1"}
    told = loops.put(path, json=RULES | more).json()
    assert told == loops.get(path).json()
    assert {name: told[name] for name in RULES | more} == RULES | more
    assert told["lastConfigurationEditDate"].endswith("Z")
    unused = {"modelExportFrequency", "modelRetrainDays", "logRetentionDays"}
    assert set(told["withoutEffect"]) == unused | set(more)
    ours = loops.get("/v1/model/configuration").json()
    assert (ours["floor"], ours["reward_wait"], ours["default_reward"]) == (
        0.2,
        600.0,
        0.0,
    )
    assert (ours["aggregation"], ours["mode"]) == ("sum", "online")
    for wait in ("PT180S", "PT3M", "P1DT1H"):
        assert (
            loops.put(path, json=RULES | {"rewardWaitTime": wait}).json()[
                "rewardWaitTime"
            ]
            == wait
        )
    assert (
        loops.put("/v1/model/configuration", json={"reward_wait": 60.0}).status_code
        == 200
    )
    assert loops.get(path).json()["rewardWaitTime"] == "PT60S", (
        "what was set elsewhere is shown"
    )


def test_a_configuration_of_the_original_is_taken_as_it_was_exported(
    loops: TestClient,
) -> None:
    """Recorded: it shows a date that was never set as one of the year 1."""
    unset = {
        "isAutoOptimizationEnabled": False,
        "autoOptimizationStartDate": "0001-01-01T00:00:00",
    }
    path = f"{V1}/configurations/service"
    assert (
        loops.put(path, json=RULES | unset)
        .json()["autoOptimizationStartDate"]
        .startswith("0001")
    )


def test_no_number_of_the_rules_is_null(loops: TestClient) -> None:
    """Clients with static types refuse null; a decision without a reward stays unlearned."""
    assert (
        loops.put("/v1/model/configuration", json={"reward_wait": 60.0}).status_code
        == 200
    )
    shown = loops.get(f"{V1}/configurations/service").json()
    assert None not in shown.values()
    assert loops.put(f"{V1}/configurations/service", json=shown).status_code == 200
    assert loops.get("/v1/model/configuration").json()["default_reward"] is None


BAD_RULES = [
    ({"rewardWaitTime": "PT1S"}, "InvalidRewardWaitTime"),
    ({"rewardWaitTime": "P3D"}, "InvalidRewardWaitTime"),
    ({"rewardWaitTime": "soon"}, "InvalidServiceConfiguration"),
    ({"rewardAggregation": "mode"}, "InvalidServiceConfiguration"),
    ({"explorationPercentage": 1.5}, "InvalidServiceConfiguration"),
    ({"modelExportFrequency": "often"}, "InvalidServiceConfiguration"),
    ({"autoOptimizationStartDate": "later"}, "InvalidServiceConfiguration"),
    ({"logRetentionDays": 0}, "InvalidLogRetentionDays"),
    ({"logRetentionDays": 2**31}, "InvalidServiceConfiguration"),
    ({"modelRetrainDays": -1}, "InvalidModelRetrainDays"),
    ({"modelRetrainDays": 91}, "InvalidModelRetrainDays"),
    ({"learningMode": "Offline"}, "InvalidServiceConfiguration"),
]


@pytest.mark.parametrize(("more", "code"), BAD_RULES)
def test_rules_that_cannot_be_kept_are_refused(
    loops: TestClient, more: dict[str, Any], code: str
) -> None:
    before = loops.get(f"{V1}/configurations/service").json()
    refused(loops.put(f"{V1}/configurations/service", json=RULES | more), 400, code)
    assert loops.get(f"{V1}/configurations/service").json() == before


def test_a_model_is_exported_imported_and_reset(
    loops: TestClient, fitted_file: Path
) -> None:
    for n in range(6):
        reward(loops, rank(loops)["eventId"], float(n % 2))
    content = loops.get(f"{V1}/model").content
    learned = loops.get("/v1/model").json()
    assert loops.delete(f"{V1}/model").status_code == 204
    assert loops.get("/v1/model").json()["rounds"] == 0
    assert loops.get("/v1/model").json()["features"] == []
    assert (
        loops.put(
            f"{NEW}/model", content=iter([content[:100], content[100:]])
        ).status_code
        == 204
    )
    again = loops.get("/v1/model").json()
    assert (again["rounds"], again["features"]) == (6, learned["features"])
    assert loops.get(f"{V1}/model").content == content
    refused(
        loops.put(f"{V1}/model", content=content[:-1]), 400, "InvalidModelImportFormat"
    )
    refused(loops.put(f"{V1}/model", content=b"PK"), 400, "InvalidModelImportFormat")
    fitted = fitted_file.read_bytes()
    refused(loops.put(f"{V1}/model", content=fitted), 409, "InvalidModelMetadata")
    assert loops.get(f"{V1}/model").content == content, (
        "a model that cannot rank as before changes nothing"
    )
    assert (
        loops.put(f"{V1}/model?allow_differences=true", content=fitted).status_code
        == 204
    )
    exported = loops.get(f"{V1}/model").content
    assert (
        Model.from_bytes(exported, "the export").to_bytes()
        == Model.load(fitted_file).to_bytes()
    )
    assert loops.get("/v1/model").json()["logged_rounds"] == 4_000
    assert loops.delete(f"{V1}/model").status_code == 204
    assert loops.get("/v1/model").json()["logged_rounds"] == 4_000
    times = loops.get(f"{V1}/model/properties").json()
    assert times["creationTime"] <= times["lastModifiedTime"]
    span = loops.get(f"{V1}/logs/properties").json()["dateRange"]
    assert span["from"] <= times["creationTime"] <= span["to"]


def test_a_loop_that_has_ranked_nothing_takes_any_model(
    loops: TestClient, fitted_file: Path
) -> None:
    assert (
        loops.put(f"{NEW}/model", content=fitted_file.read_bytes()).status_code == 204
    )
    assert loops.get("/v1/model").json()["logged_rounds"] == 4_000


def test_logs_of_clients_that_decide_themselves_are_taken_without_effect(
    loops: TestClient,
) -> None:
    before = loops.get("/v1/model").json()
    for name in ("interactions", "observations"):
        assert (
            loops.post(f"{V1}/logs/{name}", content=b"\0" * 100_000).status_code == 204
        )
    assert loops.get("/v1/model").json() == before


def test_learning_settings_are_kept_and_honoured_where_they_mean_something(
    loops: TestClient,
) -> None:
    path = f"{V1}/configurations/policy"
    reward(loops, rank(loops)["eventId"], 1.0)
    start = "--cb_explore_adf --epsilon {} --power_t 0 -l 0.001 --cb_type mtr -q ::"
    rest = ["--power_t 0", "-l 0.001", "--cb_type mtr", "-q ::"]
    settings = {
        "name": "linucb",
        "arguments": start.format(0.05),
        "withoutEffect": rest,
    }
    assert loops.get(path).json() == settings
    theirs = {
        "name": "theirs",
        "arguments": "--cb_explore_adf --quadratic GT --ignore A --epsilon 0.25",
    }
    answer = theirs | {"withoutEffect": ["--quadratic GT", "--ignore A"]}
    assert loops.put(path, json=theirs).json() == loops.get(path).json() == answer
    assert loops.get("/v1/model/configuration").json()["floor"] == 0.25
    assert loops.put("/v1/model/configuration", json={"floor": 0.5}).status_code == 200
    assert "--epsilon 0.5" in loops.get(path).json()["arguments"], (
        "what was set elsewhere is shown"
    )
    assert (
        loops.delete(path).json()
        == loops.get(path).json()
        == settings | {"arguments": start.format(0.2)}
    )
    assert loops.get("/v1/model/configuration").json()["floor"] == 0.2
    assert loops.get("/v1/model").json()["rounds"] == 1  # what was learned stays
    for arguments in ("--epsilon 2", "--epsilon", "--epsilon a", "--epsilon 0.1 0.2"):
        refused(
            loops.put(path, json=theirs | {"arguments": arguments}),
            400,
            "InvalidPolicyConfiguration",
        )


def test_deleting_logs_removes_those_of_the_loop_and_what_was_learned_stays(
    loops: TestClient,
) -> None:
    shop = "/models/shop/personalizer/v1.0"
    arms = [{"id": f"arm_{n}"} for n in range(3)]
    other = loops.post(
        f"{shop}/rank", json={"contextFeatures": [{"age": 0.5}], "actions": arms}
    ).json()
    ids = [rank(loops)["eventId"] for _ in range(5)]
    for id in ids:
        reward(loops, id, 1.0)
    waiting = RULES | {"rewardWaitTime": "PT10M"}
    assert loops.put(f"{V1}/configurations/service", json=waiting).status_code == 200
    last = rank(loops)["eventId"]
    before = loops.get("/v1/model").json()
    assert set(loops.get(f"{V1}/logs/properties").json()["dateRange"]) == {"from", "to"}
    assert loops.delete(f"{V1}/logs").status_code == 204
    assert loops.get("/v1/model").json()["state_hash"] == before["state_hash"]
    assert [
        loops.get(f"/v1/decisions/{id}").status_code
        for id in (*ids, last, other["eventId"])
    ] == [
        *(404 for _ in ids),
        200,
        200,
    ]
    assert "dateRange" in loops.get(f"{V1}/logs/properties").json(), (
        "one event waits for its reward"
    )


def test_the_only_loop_has_no_logs_after_they_were_deleted(tmp_path: Path) -> None:
    with TestClient(
        Application(open_service(ServiceSettings(store=str(tmp_path / "d.db"))))
    ) as client:
        assert client.get(f"{NEW}/logs/properties").json() == {}
        reward(client, rank(client)["eventId"], 1.0)
        before = client.get("/v1/model").json()["state_hash"]
        assert client.delete(f"{NEW}/logs").status_code == 204
        assert client.get(f"{NEW}/logs/properties").json() == {}
        assert client.get("/v1/model").json()["state_hash"] == before
        rank(client)
        assert set(client.get(f"{NEW}/logs/properties").json()["dateRange"]) == {
            "from",
            "to",
        }
    store = open_store(str(tmp_path / "d.db"), check=verify)
    assert replay_all(store).hashes() == restore(store).hashes()
    store.close()

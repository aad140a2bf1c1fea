"""Personalizer's protocol over HTTP: its rules, learning settings, and the model as octets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from personalizer_calls import ACTIONS, NEW, RULES, SLOTS, V1, rank, refused, reward


def test_an_apprentice_shows_the_baseline_and_learns_and_a_logger_does_not(loops: TestClient) -> None:
    for mode, rounds in (("Apprentice", 1), ("LoggingOnly", 1)):
        rules = RULES | {"learningMode": mode, "rewardWaitTime": "PT0S"}
        assert loops.put(f"{NEW}/configurations/service", json=rules).json()["learningMode"] == mode
        told = rank(loops, excludedActions=["News"])
        assert told["rewardActionId"] == "Sport"
        assert [action["probability"] for action in told["ranking"]] == [0.0, 1.0, 0.0]
        reward(loops, told["eventId"], 1.0)
        assert loops.get("/v1/model").json()["rounds"] == rounds
        slots = loops.post(f"{NEW}/multislot/rank", json={"actions": ACTIONS, "slots": SLOTS}).json()["slots"]
        assert [slot["rewardActionId"] for slot in slots] == ["Film", "News"]


def test_rules_are_told_as_they_were_set(loops: TestClient) -> None:
    path = f"{NEW}/configurations/service?api-version=2022-09-01-preview"
    before = loops.get(path).json()
    assert loops.put(path, json=before).status_code == 200
    more = {"isAutoOptimizationEnabled": True, "autoOptimizationFrequency": "P7D", "logMirrorEnabled": False}
    told = loops.put(path, json=RULES | more).json()
    assert told == loops.get(path).json()
    assert {
        name: told[name] for name in (RULES | more) if name not in ("rewardWaitTime", "modelExportFrequency")
    } == {
        name: value
        for name, value in (RULES | more).items()
        if name not in ("rewardWaitTime", "modelExportFrequency")
    }
    assert (told["rewardWaitTime"], told["modelExportFrequency"]) == ("PT600S", "PT300S")
    assert told["lastConfigurationEditDate"].endswith("Z")
    ours = loops.get("/v1/model/configuration").json()
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
def test_rules_that_cannot_be_kept_are_refused(loops: TestClient, more: dict[str, Any], code: str) -> None:
    before = loops.get(f"{V1}/configurations/service").json()
    refused(loops.put(f"{V1}/configurations/service", json=RULES | more), 400, code)
    assert loops.get(f"{V1}/configurations/service").json() == before


def test_a_model_is_exported_imported_and_reset(loops: TestClient, fitted_file: Path) -> None:
    for n in range(6):
        reward(loops, rank(loops)["eventId"], float(n % 2))
    content = loops.get(f"{V1}/model").content
    learned = loops.get("/v1/model").json()
    assert loops.delete(f"{V1}/model").status_code == 204
    assert loops.get("/v1/model").json()["rounds"] == 0
    assert loops.get("/v1/model").json()["features"] == []
    assert loops.put(f"{NEW}/model", content=iter([content[:100], content[100:]])).status_code == 204
    again = loops.get("/v1/model").json()
    assert (again["rounds"], again["features"]) == (6, learned["features"])
    assert loops.get(f"{V1}/model").content == content
    refused(loops.put(f"{V1}/model", content=content[:-1]), 400, "InvalidModelImportFormat")
    refused(loops.put(f"{V1}/model", content=b"PK"), 400, "InvalidModelImportFormat")
    assert loops.put(f"{V1}/model", content=fitted_file.read_bytes()).status_code == 204
    assert loops.get("/v1/model").json()["logged_rounds"] == 4_000
    assert loops.delete(f"{V1}/model").status_code == 204
    assert loops.get("/v1/model").json()["logged_rounds"] == 4_000
    times = loops.get(f"{V1}/model/properties").json()
    assert times["creationTime"] <= times["lastModifiedTime"]
    span = loops.get(f"{V1}/logs/properties").json()["dateRange"]
    assert span["from"] <= times["creationTime"] <= span["to"]


def test_learning_settings_are_what_can_be_set(loops: TestClient) -> None:
    path = f"{V1}/configurations/policy"
    reward(loops, rank(loops)["eventId"], 1.0)
    assert loops.get(path).json() == {"name": "linucb", "arguments": "--exploration 0.1"}
    other = {"name": "curious", "arguments": "--exploration 0.5"}
    assert loops.put(path, json=other).json() == other
    assert loops.get(path).json() == other
    assert loops.get("/v1/model").json()["rounds"] == 1  # what was learned stays
    assert loops.delete(path).json() == {"name": "linucb", "arguments": "--exploration 0.1"}
    vowpal = {"name": "theirs", "arguments": "--cb_explore_adf --epsilon 0.2"}
    refused(loops.put(path, json=vowpal), 400, "InvalidPolicyConfiguration")
    refused(
        loops.put("/models/shop/personalizer/v1.0/configurations/policy", json=other),
        400,
        "InvalidPolicyConfiguration",
    )

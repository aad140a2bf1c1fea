"""Calls of Personalizer's protocol, for its tests."""

from __future__ import annotations

from typing import Any

from local_client import TestClient

V1, NEW = "/personalizer/v1.0", "/personalizer"
ACTIONS = [
    {"id": item, "features": [{"kind": item.lower()}, {"size": n}]}
    for n, item in enumerate(("News", "Sport", "Film"))
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

SLOTS = [
    {
        "id": "top",
        "baselineAction": "Film",
        "features": [{"size": "large"}],
        "excludedActions": ["News"],
    },
    {"id": "side", "baselineAction": "News", "features": [{"size": "small"}]},
]
SPAN = {"startTime": "2020-01-01T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"}


def rank(client: TestClient, prefix: str = V1, **more: Any) -> dict[str, Any]:
    asked = {"contextFeatures": CONTEXT, "actions": ACTIONS, **more}
    answered = client.post(f"{prefix}/rank", json=asked)
    assert answered.status_code == 201, answered.text
    told: dict[str, Any] = answered.json()
    return told


def reward(
    client: TestClient, id: str, value: Any, key: str = "", prefix: str = V1
) -> int:
    headers = {"x-ms-client-request-id": key} if key else {}
    return client.post(
        f"{prefix}/events/{id}/reward", json={"value": value}, headers=headers
    ).status_code


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

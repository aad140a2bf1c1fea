"""No request holds up the others: costs are bounded before the work, and rates count what a request carries."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from invariant_bandits.service.access import Access
from invariant_bandits.service.commands import MOST_COST, DecisionCommand
from invariant_bandits.service.learners import MOST_OFFERED, OpenLearner
from invariant_bandits.service.operations import Service
from invariant_bandits.service.serve import make_app
from served_models import fitted, running, serve

WIDE = {f"x{n}": float(n) for n in range(1_900)}


@pytest.fixture
def client(tmp_path: Path) -> Any:
    with running(tmp_path / "d.db") as engine:
        serve(engine, OpenLearner())
        serve(engine, OpenLearner({f"arm {n}": True for n in range(60_000)}), "many")
        yield TestClient(make_app(Service(engine)), raise_server_exceptions=False)


def test_features_times_arms_of_all_decisions_of_a_request_are_bounded(client: TestClient) -> None:
    arms = [f"arm {n}" for n in range(500)]
    for body in (
        {"context": WIDE, "arms": arms},
        {"decisions": [{"context": WIDE, "arms": arms[:20]} for _ in range(36)]},
    ):
        answer = client.post("/v1/decisions", json=body)
        assert answer.status_code == 422
        assert f"at most {MOST_COST:,} numbers" in answer.json()["error"]["message"]
    assert client.get("/v1/model").json()["counts"]["decisions"] == 0
    for _ in range(3):  # what one request may cost does not add up over requests
        some = {"decisions": [{"context": {"x": 1.0}, "arms": arms[:10]} for _ in range(1_000)]}
        assert client.post("/v1/decisions", json=some).status_code == 200
        assert client.post("/v1/decisions", json={"context": WIDE, "arms": arms[:20]}).status_code == 200


def test_registered_arms_count_against_the_limit_of_what_is_offered(client: TestClient) -> None:
    answer = client.post("/v1/decisions", json={"model": "many"})
    assert answer.status_code == 422
    assert f"60,000 would be offered, at most {MOST_OFFERED}" in answer.json()["error"]["message"]
    assert client.post("/v1/decisions", json={"model": "many", "arms": ["arm 7"]}).json()["action"] == "arm 7"


def test_rates_count_decisions_and_rewards_rather_than_requests(tmp_path: Path) -> None:
    token = "a token to decide with"
    access = Access({hashlib.sha256(token.encode()).hexdigest(): "decide"}, rate=10.0)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(make_app(Service(engine, access)), headers={"Authorization": f"Bearer {token}"})
        assert client.post("/v1/decisions", json={"decisions": [{}] * 500}).status_code == 200
        assert client.post("/v1/decisions", json={}).status_code == 429


def test_a_reward_that_the_policy_refuses_is_answered_as_refused(tmp_path: Path) -> None:
    """The decision was made by a version of other columns than the one that should learn it."""
    with running(tmp_path / "d.db") as engine:
        serve(engine, OpenLearner())
        client = TestClient(make_app(Service(engine)))
        engine.call(DecisionCommand(context={"city": "Bern"}, labels=["a", "b"], id="x"))
        serve(engine, fitted())
        assert client.post("/v1/rewards", json={"id": "x", "value": 1.0}).json()["status"] == "refused"
        assert client.get("/v1/model").json()["counts"]["refused"] == 1
        assert client.get("/v1/decisions/x").json()["status"] == "refused"
        assert [item["id"] for item in client.get("/v1/decisions?status=refused").json()["decisions"]] == [
            "x"
        ]

"""No request holds up the others: costs are bounded before the work, and rates count what a request carries."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from invariant_bandits_service import state
from invariant_bandits_service.access import Access
from invariant_bandits_service.commands import MOST_COST, DecisionCommand, RewardCommand
from invariant_bandits_service.learners import MOST_OFFERED, OpenLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application
from local_client import TestClient
from served_models import fitted, running, serve

WIDE = {f"x{n}": float(n) for n in range(1_900)}


@pytest.fixture
def client(tmp_path: Path) -> Any:
    with running(tmp_path / "d.db") as engine:
        serve(engine, OpenLearner())
        serve(engine, OpenLearner({f"arm {n}": True for n in range(60_000)}), "many")
        yield TestClient(Application(Service(engine)), raise_server_exceptions=False)


def test_features_times_arms_of_all_decisions_of_a_request_are_bounded(
    client: TestClient,
) -> None:
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
        some = {
            "decisions": [
                {"context": {"x": 1.0}, "arms": arms[:9]} for _ in range(1_000)
            ]
        }
        assert client.post("/v1/decisions", json=some).status_code == 200
        assert (
            client.post(
                "/v1/decisions", json={"context": WIDE, "arms": arms[:20]}
            ).status_code
            == 200
        )


def test_registered_arms_count_against_the_limit_of_what_is_offered(
    client: TestClient,
) -> None:
    answer = client.post("/v1/decisions", json={"model": "many"})
    assert answer.status_code == 422
    assert (
        f"60,000 would be offered, at most {MOST_OFFERED}"
        in answer.json()["error"]["message"]
    )
    assert (
        client.post("/v1/decisions", json={"model": "many", "arms": ["arm 7"]}).json()[
            "action"
        ]
        == "arm 7"
    )


MANY: dict[str, Any] = {
    "/v1/decisions": {"decisions": [{}] * 50},
    "/v1/rewards": {"rewards": [{"id": f"d{n}", "value": 1.0} for n in range(50)]},
}


@pytest.mark.parametrize("path", MANY)
def test_rates_count_decisions_and_rewards_rather_than_requests(
    tmp_path: Path, path: str
) -> None:
    token = "a token to decide with"
    access = Access({hashlib.sha256(token.encode()).hexdigest(): "decide"}, rate=10.0)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(
            Application(Service(engine, access)),
            headers={"Authorization": f"Bearer {token}"},
        )
        answer = client.post(path, json=MANY[path])
        assert answer.status_code != 429
        assert client.post("/v1/decisions", json={}).status_code == 429


def test_a_reward_that_the_policy_refuses_is_answered_as_refused(
    tmp_path: Path,
) -> None:
    """The decision was made by a version of other columns than the one that should learn it."""
    with running(tmp_path / "d.db") as engine:
        serve(engine, OpenLearner())
        client = TestClient(Application(Service(engine)))
        engine.call(
            DecisionCommand(context={"city": "Bern"}, labels=["a", "b"], id="x")
        )
        serve(engine, fitted())
        assert (
            client.post("/v1/rewards", json={"id": "x", "value": 1.0}).json()["status"]
            == "refused"
        )
        assert client.get("/v1/model").json()["counts"]["refused"] == 1
        assert client.get("/v1/decisions/x").json()["status"] == "refused"
        assert [
            item["id"]
            for item in client.get("/v1/decisions?status=refused").json()["decisions"]
        ] == ["x"]


def test_what_is_remembered_of_decisions_is_bounded_in_bytes(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(state, "LARGEST_REMEMBERED", 40_000)
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        for n in range(30):
            engine.call(DecisionCommand(context={"text": "x" * 5_000}, id=str(n)))
        records = engine.state.records
        assert 1 < len(records._recent) < 10
        assert (
            records._size
            == sum(len(b) for bodies in records._recent.values() for b in bodies)
            <= 40_000
        )
        assert (
            engine.call(RewardCommand("0", 1.0)) == "learned"
        )  # read from the store again


def test_the_state_hash_of_many_waiting_decisions_is_kept_up_to_date() -> None:
    """It does not depend on the order in which waits were added, and moves with each of them."""
    waits = [(float(n % 7), f"id {n}") for n in range(50)]
    some, others = state.Deadlines(waits), state.Deadlines()
    assert some.trace != others.trace
    for end, id in reversed(waits):
        others.add(end, id)
    assert some.trace == others.trace
    others.add(3.5, "id 3")
    assert some.trace != others.trace
    for _, id in waits:
        others.discard(id)
    assert others.trace == state.Deadlines().trace == 0

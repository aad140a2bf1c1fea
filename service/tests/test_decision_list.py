"""Every decision can be looked up and explained: lists with filters and pages, and why an action was chosen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from invariant_bandits_service import commands, history
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.operations import Service
from invariant_bandits_service.routes import decisions
from invariant_bandits_service.serve import Application
from invariant_bandits_service.settings import Configuration
from local_client import TestClient
from served_models import Clock, fitted, running, serve


def listed(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    """All decisions, page by page."""
    found: list[dict[str, Any]] = []
    before = None
    while True:
        asked = query if before is None else {**query, "before": before}
        page = client.get("/v1/decisions", params=asked).json()
        found += page["decisions"]
        if (before := page["next"]) is None:
            return found


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [decision["id"] for decision in found]


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    """Twenty decisions an hour apart, of which the first ten have rewards; one more of another model."""
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        serve(engine, fitted(), "shop")
        for n in range(20):
            clock.now += 3_600.0
            engine.call(
                DecisionCommand(
                    context={"city": "Bern" if n % 2 else "Genf"}, id=f"visit {n}"
                )
            )
        engine.call(DecisionCommand("shop", {"age": 1.0}, id="other", deferred=True))
        for n in range(10):
            engine.call(RewardCommand(f"visit {n}", float(n)))
        yield (
            TestClient(Application(Service(engine)), raise_server_exceptions=False),
            engine,
        )


def test_decisions_are_listed_latest_first_in_pages_by_model_arm_time_status_and_text(
    shop: Any,
) -> None:
    client, _ = shop
    every = [f"visit {n}" for n in reversed(range(20))]
    assert ids(listed(client, limit=7)) == ["other", *every]
    assert ids(listed(client, model="default", limit=3)) == every
    assert ids(listed(client, status="learned")) == every[10:]
    assert ids(listed(client, status="waiting", model="default")) == every[:10]
    assert ids(listed(client, status="deferred")) == ["other"]
    assert ids(listed(client, search="Bern")) == every[::2]
    assert ids(listed(client, search="visit 7")) == ["visit 7"]
    start = 1_000_000.0
    assert ids(listed(client, since=start + 3_600 * 4, until=start + 3_600 * 6)) == [
        "visit 4",
        "visit 3",
    ]
    assert ids(
        listed(client, since="1970-01-12T13:46:40+00:00", until="1970-01-12T14:47")
    ) == ["visit 0"]
    chosen = listed(client, model="default")[0]["action"]
    assert {item["action"] for item in listed(client, arm=chosen)} == {chosen}
    arms = [ids(listed(client, model="shop", search=f"arm_{n}")) for n in range(3)]
    assert sorted(arms) == [[], [], ["other"]], "only the arm that was chosen counts"


def test_each_has_everything_that_explains_it(shop: Any) -> None:
    client, engine = shop
    (found,) = listed(client, search="visit 3")
    assert found["context"] == {"city": "Bern"}
    assert found["arms"] == ["a", "b", "c"]
    assert set(found["scores"]) == {"a", "b", "c"}
    assert sum(found["propensities"]) == pytest.approx(1.0)
    assert found["rewards"][0]["value"] == 3.0
    assert found["status"] == "learned"
    assert found["version"] == engine.state.models["default"].version
    assert {**found, "seq": None} == {
        **client.get("/v1/decisions/visit 3").json(),
        "seq": None,
    }


def test_a_list_goes_on_where_its_page_ended_for_want_of_time(
    shop: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(decisions, "MOST_SCANNED", 7)
    monkeypatch.setattr(history, "SCANNED_TOGETHER", 3)
    client, _ = shop
    assert ids(listed(client, model="default", limit=2)) == [
        f"visit {n}" for n in reversed(range(20))
    ]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "before=-1", "status=lost", "since=yesterday"]
)
def test_a_wrong_question_is_named(shop: Any, query: str) -> None:
    answer = shop[0].get(f"/v1/decisions?{query}")
    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.json()["error"]["message"]


def test_the_reason_is_the_planted_one(tmp_path: Path) -> None:
    """Arm b earns 1 and is greedy once that is known; a floor of 0.3 draws the others in 0.2 of 600 rounds:
    120 ± 10, so that 80 to 160 fails once in 10^4.
    """
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        engine.call(commands.configure("default", Configuration(floor=0.3)), alone=True)
        why: Counter[str] = Counter()
        for n in range(700):
            event = engine.call(DecisionCommand())
            engine.call(RewardCommand(event.id, float(event.action == "b")))
            if n >= 100:
                why[event.why] += 1
                assert (event.why == "floor") == (event.action != "b")
        assert set(why) == {"greedy", "floor"}
        assert 80 < why["floor"] < 160
        engine.call(
            commands.configure("default", Configuration(mode="apprentice")), alone=True
        )
        assert engine.call(DecisionCommand()).why == "first"


def test_a_policy_that_wants_to_learn_says_so(tmp_path: Path) -> None:
    """AutoISD says itself why it plays what has not the largest expected reward."""
    learner = fitted()
    with running(tmp_path / "d.db") as engine:
        serve(engine, learner)
        engine.call(commands.configure("default", Configuration(floor=0.0)), alone=True)
        live = engine.state.models["default"].learner
        for n in range(60):
            context = {"age": (n % 7 - 3) / 2}
            round = live.round_of(context, (), None)
            own = live.policy_over().why(round.features)  # type: ignore[attr-defined]
            event = engine.call(DecisionCommand(context=context))
            greedy = event.means[event.index] == max(event.means)
            assert event.why == ("greedy" if greedy else own)
            engine.call(RewardCommand(event.id, float(n % 3 == 0)))

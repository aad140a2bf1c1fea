"""Personalizer's protocol over HTTP: evaluations and feature importances."""

from __future__ import annotations

from pathlib import Path

import pytest

from invariant_bandits.service import commands
from invariant_bandits.service.commands import DecisionCommand, RewardCommand
from invariant_bandits.service.protocols.personalizer import LogSpan
from invariant_bandits.service.responses import RefusedError
from invariant_bandits.service.settings import Configuration
from local_client import TestClient
from personalizer_calls import ACTIONS, NEW, RULES, SPAN, V1, rank, refused, reward
from served_models import Clock, running, serve


def test_an_evaluation_recovers_what_policies_earn(loops: TestClient) -> None:
    """Only "Film" pays 1 and all is drawn uniformly: chance earns 1/3 within five errors (missed once in
    10^6), the baseline nothing."""
    error = (2 / 9 / 240) ** 0.5
    assert (
        loops.put(
            f"{V1}/configurations/service",
            json=RULES | {"rewardWaitTime": "PT0S", "explorationPercentage": 1.0},
        ).status_code
        == 200
    )
    rewards = []
    for _ in range(240):
        told = rank(loops)
        rewards.append(float(told["rewardActionId"] == "Film"))
        reward(loops, told["eventId"], rewards[-1])
    asked = {"name": "first", **SPAN, "policies": []}
    assert loops.put(f"{NEW}/evaluations/e1", json=asked).status_code == 200
    told = loops.get(f"{NEW}/evaluations/e1", params=SPAN).json()
    assert told["status"] == "Succeeded"
    found = {entry["policySource"]: entry for entry in told["content"]["value"]}
    assert found["Online"]["summary"]["expectedReward"] == pytest.approx(
        sum(rewards) / 240
    )
    assert abs(found["Random"]["summary"]["expectedReward"] - 1 / 3) < 5 * error
    assert found["Baseline"]["summary"]["expectedReward"] == 0.0
    low, high = found["Random"]["summary"]["confidenceInterval"]
    assert low < found["Random"]["summary"]["expectedReward"] < high
    assert 2 * error < high - low < 10 * error
    last = found["Random"]["timeseries"]["data"][-1]
    assert last["expectedReward"] == pytest.approx(
        found["Random"]["summary"]["expectedReward"]
    )
    made = loops.post(f"{V1}/evaluations", json=asked)
    assert made.status_code == 201
    total = {
        result["policySource"]: result["totalSummary"]
        for result in made.json()["policyResults"]
    }
    assert total["Online"]["ipsEstimatorDenominator"] == 240
    assert total["Random"]["averageReward"] == pytest.approx(
        found["Random"]["summary"]["expectedReward"]
    )
    assert loops.get(made.headers["location"]).json() == made.json()
    listed = loops.get(f"{V1}/evaluations").json()
    assert [(entry["jobId"], entry["status"]) for entry in listed] == [
        (entry["id"], "completed") for entry in listed
    ]
    assert len(listed) == 2
    assert [
        entry["id"] for entry in loops.get(f"{NEW}/evaluations?top=1").json()["value"]
    ] == ["e1"]
    name = {"evaluationId": "e1", "policyName": "linucb"}
    assert (
        loops.post(f"{NEW}/configurations/applyFromEvaluation", json=name).status_code
        == 204
    )
    refused(
        loops.post(
            f"{V1}/configurations/applyFromEvaluation",
            json=name | {"policyName": "Random"},
        ),
        400,
        "LearningSettingsNotFound",
    )
    assert loops.delete(f"{NEW}/evaluations/e1").status_code == 204
    refused(loops.get(f"{NEW}/evaluations/e1"), 404, "EvaluationNotFound")
    refused(loops.delete(f"{NEW}/evaluations/e1"), 404, "EvaluationNotFound")
    bad = asked | {"startTime": "2099-01-01T00:00:00Z"}
    refused(loops.put(f"{NEW}/evaluations/e2", json=bad), 400, "NoLogsExistInDateRange")
    for year in ("0001", "9999"):
        early = asked | {"startTime": f"{year}-12-31T23:59:59.999999Z"}
        refused(loops.put(f"{NEW}/evaluations/e2", json=early), 400, "InvalidContract")
        refused(
            loops.post(f"{V1}/evaluations", json=early),
            400,
            "InvalidEvaluationContract",
        )
        refused(
            loops.put(f"{NEW}/featureImportances/e2", json=early),
            400,
            "InvalidContract",
        )
    refused(loops.get(f"{V1}/evaluations?top=-1"), 400, "InvalidRequest")


def test_an_evaluation_is_worked_out_once(
    loops: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reward(loops, rank(loops)["eventId"], 1.0)
    assert (
        loops.put(
            f"{NEW}/evaluations/e", json={"name": "all", **SPAN, "policies": []}
        ).status_code
        == 200
    )
    first = loops.get(f"{NEW}/evaluations/e", params=SPAN).json()
    monkeypatch.setattr(LogSpan, "read", None)
    assert loops.get(f"{NEW}/evaluations/e", params=SPAN).json() == first


def test_evaluations_take_dates_and_learning_settings_as_clients_send_them(
    loops: TestClient,
) -> None:
    reward(loops, rank(loops)["eventId"], 1.0)
    asked = {"name": "all", "startTime": "2020-01-01", "endTime": "2100-01-01T00:00:00"}
    more = {
        "policies": [{"name": "a", "arguments": "--cb_explore_adf"}],
        "enablePolicyOptimization": True,
    }
    for path in ("evaluations", "featureImportances"):
        assert loops.put(f"{NEW}/{path}/e", json=asked | more).status_code == 200
        assert loops.put(f"{NEW}/{path}/e", json=asked | more).status_code == 200, (
            "a call repeated"
        )
    other = asked | more | {"name": "other"}
    refused(
        loops.put(f"{NEW}/evaluations/e", json=other), 409, "EvaluationAlreadyExists"
    )
    refused(
        loops.put(f"{NEW}/featureImportances/e", json=other),
        409,
        "FeatureImportanceAlreadyExists",
    )
    for start in (
        "20200101T000000",
        "2020-01-01",
        "2020-01-01T00:00:00.0000000Z",
        "2020-01-01T00:00+02:00",
    ):
        shown = loops.get(
            f"{NEW}/evaluations/e", params={"startTime": start, "endTime": "21000101"}
        ).json()
        sources = [policy["policySource"] for policy in shown["content"]["value"]]
        assert sources == ["Online", "Baseline", "Random", "Custom"]
    assert "neither searched for" in shown["description"]
    refused(
        loops.get(f"{NEW}/evaluations/e?startTime=soon"),
        400,
        "InvalidEvaluationContract",
    )


def has_null(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_null, value.values() if isinstance(value, dict) else value))
    return value is None


@pytest.mark.parametrize("prefix", [V1, NEW])
def test_results_of_every_policy_have_all_that_clients_require(
    loops: TestClient, prefix: str
) -> None:
    """Two decisions that did not take the baseline, so that nothing is known of it; custom settings are not
    evaluated. Recordings of the original have 0 there, a count in nonZeroProbability, and the optimal policy by
    its name; clients with static types refuse null."""
    settled = 0
    while settled < 2:
        ranked = rank(loops)
        if ranked["rewardActionId"] != "News":
            settled += 1
            reward(loops, ranked["eventId"], 1.0)
    custom = {"name": "a", "arguments": "--cb_explore_adf"}
    asked = {"name": "all", **SPAN, "policies": [custom]}
    refused(
        loops.put(
            f"{NEW}/evaluations/twice", json=asked | {"policies": [custom, custom]}
        ),
        400,
        "DuplicateCustomPolicyNames",
    )
    assert loops.put(f"{NEW}/evaluations/e", json=asked).status_code == 200
    shown = loops.get(f"{prefix}/evaluations/e", params=SPAN).json()
    assert not has_null(shown)
    results = shown["policyResults"] if prefix == V1 else shown["content"]["value"]
    assert shown["optimalPolicy"] in {result["name"] for result in results}
    assert [result["name"] for result in results] == [
        "online",
        "baseline1",
        "baselineRand",
        "a",
    ]
    assert len({frozenset(result) for result in results}) == 1, (
        "the same fields for every policy"
    )
    by_source = {result["policySource"]: result for result in results}
    if prefix == V1:
        assert by_source["Online"]["totalSummary"]["nonZeroProbability"] == 2.0
        for source in ("Baseline", "Custom"):
            assert by_source[source]["totalSummary"]["averageReward"] == 0.0
            assert by_source[source]["totalSummary"]["aggregateTimeWindow"] == "PT0S"
    else:
        assert (
            by_source["Baseline"]["timeseries"]["data"]
            == by_source["Custom"]["timeseries"]["data"]
            == []
        )


def test_a_span_of_the_log_is_what_lies_in_it_also_where_nothing_was_learned(
    tmp_path: Path,
) -> None:
    """Ten decisions a minute apart, the last five of which were only logged."""
    clock = Clock()
    with running(tmp_path / "d.db", clock) as engine:
        serve(engine)
        for n in range(10):
            if n == 5:
                rules = Configuration(mode="logging")
                engine.call(commands.configure("default", rules), alone=True)
            clock.now = 1_000_000.0 + 60.0 * n
            engine.call(DecisionCommand(id=f"d{n}"))
            engine.call(RewardCommand(f"d{n}", float(n)))
        store = engine.store
        whole = LogSpan.read(store, "default", rules, 0.0, 2e6, most=10)
        assert whole.rewards.tolist() == [float(n) for n in range(10)]
        part = LogSpan.read(store, "default", rules, 1_000_060.0, 1_000_360.0, most=10)
        assert part.rewards.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert part.times[0] == pytest.approx(1_000_060.0, abs=1e-3)
        with pytest.raises(RefusedError, match="more than 9 decisions"):
            LogSpan.read(store, "default", rules, 0.0, 2e6, most=9)
        with pytest.raises(RefusedError, match="no settled decisions"):
            LogSpan.read(store, "default", rules, 1_500_000.0, 2e6, most=10)


def test_important_features_come_first(loops: TestClient) -> None:
    kinds = [
        {"id": action["id"], "features": action["features"][:1]} for action in ACTIONS
    ]
    for n in range(90):
        told = rank(loops, contextFeatures=[{"noise": n % 2}], actions=kinds)
        reward(loops, told["eventId"], float(told["rewardActionId"] == "Film"))
    assert (
        loops.put(
            f"{NEW}/featureImportances/f1", json={"name": "mine", **SPAN}
        ).status_code
        == 200
    )
    told = loops.get(f"{NEW}/featureImportances/f1").json()
    names = [
        f"{score['namespace']}.{score['featureName']}"
        for score in told["featureScores"]
    ]
    assert names[0] == "action.kind"
    assert told["featureScores"][0]["score"] == 100.0
    assert ".noise" in names
    assert [
        entry["id"] for entry in loops.get(f"{NEW}/featureImportances").json()["value"]
    ] == ["f1"]
    assert loops.delete(f"{NEW}/featureImportances/f1").status_code == 204
    refused(loops.get(f"{NEW}/featureImportances/f1"), 404, "FeatureImportanceNotFound")

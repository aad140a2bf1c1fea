"""Personalizer's protocol over HTTP: rank, reward, activate, slots; every body that is refused has its
form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from invariant_bandits.service.operations import OPERATIONS
from invariant_bandits.service.replay import replay_all, restore
from invariant_bandits.service.serve import Application, ServiceSettings, open_service
from invariant_bandits.service.store.open_store import open_store
from local_client import TestClient
from personalizer_calls import (
    ACTIONS,
    CONTEXT,
    NEW,
    RULES,
    SLOTS,
    SPAN,
    V1,
    decision,
    rank,
    refused,
    reward,
)


@pytest.mark.parametrize(
    "prefix",
    [V1, "/personalizer/v1.1-preview.3", NEW, "/models/default/personalizer/v1.0"],
)
def test_rank_reward_and_the_same_event_again(loops: TestClient, prefix: str) -> None:
    told = rank(loops, prefix, eventId="a/b c", excludedActions=["Sport"])
    assert set(told) == {"ranking", "eventId", "rewardActionId"}
    assert [action["id"] for action in told["ranking"]] == ["News", "Sport", "Film"]
    chances = {action["id"]: action["probability"] for action in told["ranking"]}
    assert chances["Sport"] == 0.0
    assert sum(chances.values()) == pytest.approx(1.0)
    assert told["rewardActionId"] in ("News", "Film")
    assert rank(loops, prefix, eventId="a/b c", excludedActions=["Sport"]) == told
    other = {"contextFeatures": CONTEXT, "actions": ACTIONS[:1], "eventId": "a/b c"}
    refused(loops.post(f"{prefix}/rank", json=other), 409, "InvalidRankRequest")
    assert reward(loops, "a%2Fb%20c", 1.0, prefix=prefix) == 204
    assert decision(loops, "a%2Fb%20c")["settled"]["value"] == 1.0
    assert loops.get("/v1/model").json()["rounds"] == 1


def test_features_are_learned_by_their_names(loops: TestClient) -> None:
    reward(loops, rank(loops)["eventId"], 1.0)
    names = loops.get("/v1/model").json()["features"]
    assert {
        "f:kind=news",
        "f:size",
        "f:kind=news|user.city=Bern",
        "f:kind=news|hour",
    } <= set(names)


def test_rewards_that_contradict_repeat_or_have_no_event_are_no_errors(
    loops: TestClient,
) -> None:
    id = rank(loops)["eventId"]
    assert [reward(loops, id, value) for value in (0.5, 0.5, -1.0)] == [204, 204, 204]
    assert decision(loops, id)["settled"]["value"] == 0.5
    assert reward(loops, "not known yet", 0.25) == 204
    assert rank(loops, eventId="not known yet")["eventId"] == "not known yet"
    assert decision(loops, "not known yet")["settled"]["value"] == 0.25
    assert loops.get("/v1/model").json()["counts"]["unknown"] == 1


def test_a_call_that_a_client_repeats_counts_once_where_rewards_add_up(
    loops: TestClient,
) -> None:
    assert loops.put(f"{V1}/configurations/service", json=RULES).status_code == 200
    id = rank(loops)["eventId"]
    for key, value in (
        ("one", 0.25),
        ("one", 0.25),
        ("two", 0.25),
        ("", 0.125),
        ("", 0.125),
    ):
        assert reward(loops, id, value, key) == 204
    assert [item["value"] for item in decision(loops, id)["rewards"]] == [
        0.25,
        0.25,
        0.125,
        0.125,
    ]


def test_a_deferred_event_counts_once_it_is_activated(loops: TestClient) -> None:
    id = rank(loops, deferActivation=True)["eventId"]
    assert reward(loops, id, 1.0) == 204
    assert decision(loops, id)["settled"] is None
    assert loops.post(f"{V1}/events/{id}/activate").status_code == 204
    assert decision(loops, id)["settled"]["value"] == 1.0
    assert loops.post(f"{V1}/events/{id}/activate").status_code == 204


def test_an_event_may_be_activated_before_it_is_ranked(loops: TestClient) -> None:
    for path in (
        "events/soon",
        "events/soon",
        "events/shown",
        "events/never",
        "multislot/events/soon slots",
    ):
        assert loops.post(f"{V1}/{path}/activate").status_code == 204
    assert loops.get("/v1/decisions/soon").status_code == 404
    rank(loops, eventId="soon", deferActivation=True)
    assert decision(loops, "soon")["activated"]
    reward(loops, "soon", 1.0)
    assert decision(loops, "soon")["settled"]["value"] == 1.0
    reward(loops, "shown", 0.5)
    rank(loops, eventId="shown", deferActivation=True)
    assert decision(loops, "shown")["settled"]["value"] == 0.5
    asked = {
        "actions": ACTIONS,
        "slots": SLOTS,
        "eventId": "soon slots",
        "deferActivation": True,
    }
    assert loops.post(f"{V1}/multislot/rank", json=asked).status_code == 201
    assert decision(loops, "soon slots|top")["activated"]
    engine = loops.app.state.service.engine  # type: ignore[attr-defined]
    assert replay_all(engine.store).hashes() == engine.state.hashes()


def test_slots_take_different_actions_and_are_rewarded_each(loops: TestClient) -> None:
    asked = {
        "contextFeatures": CONTEXT,
        "actions": ACTIONS,
        "slots": SLOTS,
        "eventId": "m/1",
        "deferActivation": True,
    }
    answered = loops.post(f"{V1}/multislot/rank", json=asked)
    assert answered.status_code == 201, answered.text
    told = answered.json()
    assert told["eventId"] == "m/1"
    chosen = {slot["id"]: slot["rewardActionId"] for slot in told["slots"]}
    assert list(chosen) == ["top", "side"]
    assert chosen["top"] in ("Sport", "Film")
    assert chosen["side"] != chosen["top"]
    assert loops.post(f"{V1}/multislot/rank", json=asked).json() == told
    for other in (
        {"slots": SLOTS[:1]},
        {"actions": ACTIONS[1:]},
        {"contextFeatures": []},
    ):
        refused(
            loops.post(f"{V1}/multislot/rank", json=asked | other),
            409,
            "InvalidRankRequest",
        )
    refused(
        loops.post(f"{V1}/rank", json={"actions": ACTIONS, "eventId": "m/1"}),
        409,
        "InvalidRankRequest",
    )
    rewards = {
        "reward": [{"slotId": "top", "value": 1.0}, {"slotId": "side", "value": -0.5}]
    }
    assert (
        loops.post(f"{V1}/multislot/events/m%2F1/reward", json=rewards).status_code
        == 204
    )
    assert loops.post(f"{V1}/multislot/events/m%2F1/activate").status_code == 204
    first, second = decision(loops, "m%2F1%7Ctop"), decision(loops, "m%2F1%7Cside")
    assert (first["settled"]["value"], second["settled"]["value"]) == (1.0, -0.5)
    assert first["arms"] == ["Film", "Sport"]  # its baseline first
    assert set(second["arms"]) == {"News", "Sport", "Film"} - {chosen["top"]}
    assert sum(second["propensities"]) == pytest.approx(1.0)
    refused(
        loops.post(
            f"{V1}/multislot/rank",
            json=asked | {"eventId": "m2", "actions": ACTIONS[:1]},
        ),
        400,
        "InvalidRankRequest",
    )
    assert loops.get("/v1/model").json()["counts"]["decisions"] == 2


def test_more_slots_than_the_protocol_has_are_refused(loops: TestClient) -> None:
    actions = [{"id": str(n)} for n in range(60)]
    slots = [{"id": str(n), "baselineAction": "0"} for n in range(51)]
    refused(
        loops.post(f"{V1}/multislot/rank", json={"actions": actions, "slots": slots}),
        400,
        "InvalidRankRequest",
    )
    slots[0]["id"] = "\N{GRINNING FACE}" * 256
    told = loops.post(
        f"{V1}/multislot/rank", json={"actions": actions, "slots": slots[:50]}
    ).json()
    assert len({slot["rewardActionId"] for slot in told["slots"]}) == 50
    rewards = {"reward": [{"slotId": slots[0]["id"], "value": 1.0}]}
    assert (
        loops.post(
            f"{V1}/multislot/events/{told['eventId']}/reward", json=rewards
        ).status_code
        == 204
    )
    assert loops.get("/v1/model").json()["rounds"] == 1


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
def test_bad_ranks_are_refused_and_change_nothing(
    loops: TestClient, body: dict[str, Any]
) -> None:
    before = loops.get("/v1/model").json()["state_hash"]
    refused(loops.post(f"{V1}/rank", json=body), 400, "InvalidRankRequest")
    assert loops.get("/v1/model").json()["state_hash"] == before


def test_other_errors_have_the_protocols_body(loops: TestClient) -> None:
    id = rank(loops)["eventId"]
    for value in ("1.5", "-1.1", "NaN", '"1"', "true", "1e400", "null"):
        answered = loops.post(
            f"{V1}/events/{id}/reward", content=f'{{"value": {value}}}'
        )
        refused(answered, 400, "InvalidRewardRequest")
    refused(loops.post(f"{V1}/rank", content=b"{"), 400, "InvalidRankRequest")
    refused(
        loops.post(f"{V1}/rank", content=b"x" * (2 << 20)), 413, "PayloadSizeExceeded"
    )
    for kind in ("events", "multislot/events"):
        answered = loops.post(f"{V1}/{kind}/{'x' * 257}/activate")
        refused(answered, 400, "InvalidEventIdToActivate")
    refused(loops.get(f"{V1}/nothing"), 404, "ResourceNotFound")
    refused(loops.get(f"{V1}/rank"), 405, "OperationNotAllowed")
    refused(
        loops.get("/models/none/personalizer/v1.0/configurations/service"),
        404,
        "ResourceNotFound",
    )
    refused(
        loops.get(f"{NEW}/model/properties?api-version=2031-01-01"), 400, "BadRequest"
    )
    answered = loops.get(f"{V1}/nothing")
    assert answered.headers["x-ms-error-code"] == "ResourceNotFound"


def test_a_model_of_labelled_arms_ranks_what_it_knows(loops: TestClient) -> None:
    path = "/models/shop/personalizer/v1.0/rank"
    actions = [{"id": f"arm_{n}", "features": [{"colour": "red"}]} for n in range(3)]
    told = loops.post(
        path, json={"contextFeatures": [{"age": 0.5}], "actions": actions}
    ).json()
    assert [action["id"] for action in told["ranking"]] == ["arm_0", "arm_1", "arm_2"]
    assert (
        reward(loops, told["eventId"], 1.0, prefix="/models/shop/personalizer/v1.0")
        == 204
    )
    assert decision(loops, told["eventId"])["settled"]["value"] == 1.0
    answered = loops.post(
        f"{V1}/rank", json={"actions": actions}, headers={"x-model": "shop"}
    )
    assert (
        "context: no value for age"
        in refused(answered, 400, "InvalidRankRequest")["message"]
    )
    asked = {"contextFeatures": [{"age": 0.5}], "actions": [*actions, {"id": "other"}]}
    refused(loops.post(path, json=asked), 400, "InvalidRankRequest")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_feature_that_several_parts_name_keeps_all_its_values_in_one_list(
    loops: TestClient, count: int
) -> None:
    tags = ["new", "dry", "red", "old"][:count]
    ranked = rank(
        loops, contextFeatures=[{"hour": 9}, *({"tags": tag} for tag in tags)]
    )
    expected = tags[0] if count == 1 else tags
    assert decision(loops, ranked["eventId"])["context"] == {
        "hour": 9,
        "tags": expected,
    }


def test_what_this_door_does_is_restored_and_replayed(tmp_path: Path) -> None:
    with TestClient(
        Application(open_service(ServiceSettings(store=str(tmp_path / "d.db"))))
    ) as loops:
        loops.put(
            f"{V1}/configurations/service", json=RULES | {"rewardWaitTime": "PT0S"}
        )
        for n in range(20):
            reward(
                loops,
                rank(loops, excludedActions=["News"] if n % 2 else [])["eventId"],
                0.5,
            )
            loops.post(
                f"{V1}/multislot/rank",
                json={"actions": ACTIONS, "slots": SLOTS, "eventId": f"m{n}"},
            )
            loops.post(
                f"{V1}/multislot/events/m{n}/reward",
                json={"reward": [{"slotId": "top", "value": 1.0}]},
            )
        loops.put(f"{V1}/featureImportances/f1", json={"name": "mine", **SPAN})
        slots = loops.post(
            f"{V1}/multislot/rank",
            json={"actions": ACTIONS, "slots": SLOTS, "eventId": "m7"},
        ).json()
        live = loops.get("/v1/model").json()["state_hash"]
    store = open_store(tmp_path / "d.db")
    for state in (restore(store), replay_all(store)):
        assert state.hashes() == {"default": live}
        assert set(state.models["default"].documents) == {
            "personalizer rules",
            "importance f1",
        }
    store.close()
    with TestClient(
        Application(open_service(ServiceSettings(store=str(tmp_path / "d.db"))))
    ) as loops:
        again = loops.post(
            f"{V1}/multislot/rank",
            json={"actions": ACTIONS, "slots": SLOTS, "eventId": "m7"},
        ).json()
        assert again == slots


NASTY = (
    b"",
    b"null",
    b"[]",
    b"{",
    b'"text"',
    b"\xff\xfe",
    b'{"value": 1e999}',
    b"[" * 100_000,
    b'{"actions": [null]}',
)


def test_no_call_answers_nonsense_with_500(loops: TestClient) -> None:
    start = "/{endpoint:personalizer}"
    operations = [
        (each.method, each.path.removeprefix(start))
        for each in OPERATIONS
        if start in each.path
    ]
    assert len(operations) == 29
    asked = [
        (method, prefix + path.replace("{id:path}", id), body)
        for method, path in operations
        for prefix in (V1, NEW)
        for body in (NASTY if method in ("PUT", "POST") else (b"",))
        for id in (
            ("x", "a%2Fb", "%00", "%F0%9F%98%80" * 100) if "{id" in path else ("",)
        )
    ]
    for method, path, body in asked:
        answered = loops.request(
            method, path, content=body, params={"startTime": "never", "skip": "x"}
        )
        assert answered.status_code < 500, (path, body[:20], answered.text)
        assert answered.status_code < 400 or set(answered.json()) == {"error"}
    assert loops.get("/readyz").status_code == 200
    assert loops.get("/v1/model").json()["counts"]["decisions"] == 0

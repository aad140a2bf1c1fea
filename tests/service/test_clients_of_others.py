"""Clients that others wrote, unchanged, against a service of its own process; what they drive is learned.

The planted world: three times of day, four actions; the one that belongs to the time pays with probability
0.8, the others with 0.1, so that uniform choices earn 0.275. A model that has learned earns 0.77 and misses
1.5 times as much as uniform in the last 60 of 300 rounds less than once in 10^6.
"""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from started_service import Started, service

pytestmark = pytest.mark.system

TIMES, ACTIONS = ("morning", "noon", "evening"), ("News", "Sport", "Film", "Music")
UNIFORM = (0.8 + 3 * 0.1) / 4
ROUNDS = 300
TOKEN = "0123456789abcdef-admin"
KEY = {"Ocp-Apim-Subscription-Key": TOKEN, "Content-Type": "application/json"}
LOOPS, FLAGS = ("first", "second", "third", "asynchronous"), ("flag", "switch")
TYPED_FLAGS = {
    "truth": ["true", "false"],
    "count": ["1", "2"],
    "share": ["0.5", "0.25"],
}
Choose = Callable[[str], tuple[str, Callable[[float], Any]]]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A service with a token, empty loops and flags; every client has one of its own."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "tokens").write_text(f"admin {TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    with service(folder, "--token-file", "tokens") as running:
        for name in LOOPS:
            assert running.ask("POST", "/v1/models", {"model": name}, KEY)[0] == 201
        for name in FLAGS:
            assert (
                running.ask(
                    "POST", "/v1/models", {"model": name, "arms": list(ACTIONS)}, KEY
                )[0]
                == 201
            )
        for name, arms in TYPED_FLAGS.items():
            assert (
                running.ask("POST", "/v1/models", {"model": name, "arms": arms}, KEY)[0]
                == 201
            )
        yield running


def learned(choose: Choose, seed: int = 3) -> float:
    """Mean reward in the last fifth of a planted world; `choose` gives an action, and what takes its
    reward.
    """
    rng, rewards = np.random.default_rng(seed), []
    for _ in range(ROUNDS):
        time = int(rng.integers(len(TIMES)))
        action, report = choose(TIMES[time])
        rewards.append(float(rng.random() < (0.8 if action == ACTIONS[time] else 0.1)))
        report(rewards[-1])
    return float(np.mean(rewards[-ROUNDS // 5 :]))


class Recorder:
    """A client whose calls are recorded.

    Parameters
    ----------
    client : object
    """

    def __init__(self, client: Any) -> None:
        self._client, self._called = client, set[str]()

    def __getattr__(self, name: str) -> Any:
        self._called.add(name)
        return getattr(self._client, name)

    def not_called(self) -> set[str]:
        """Public methods of the client that were not called; `send_request` is for calls of one's own."""
        return (
            {name for name in dir(self._client) if not name.startswith("_")}
            - self._called
            - {"send_request"}
        )


def test_the_first_python_client(started: Started) -> None:
    personalizer = pytest.importorskip("azure.cognitiveservices.personalizer")
    models = pytest.importorskip("azure.cognitiveservices.personalizer.models")
    authentication = pytest.importorskip("msrest.authentication")
    endpoint = f"{started.url}/models/first"
    client = personalizer.PersonalizerClient(
        endpoint, authentication.CognitiveServicesCredentials(TOKEN)
    )
    actions = [
        models.RankableAction(id=action, features=[{"kind": action}])
        for action in ACTIONS
    ]

    def choose(time: str) -> tuple[str, Callable[[float], Any]]:
        told = client.rank(
            models.RankRequest(actions=actions, context_features=[{"time": time}])
        )
        return told.reward_action_id, lambda value: client.events.reward(
            told.event_id, value
        )

    assert learned(choose) >= 1.5 * UNIFORM
    asked = models.RankRequest(
        actions=actions,
        excluded_actions=["News"],
        event_id="a/b ü",
        defer_activation=True,
    )
    told = client.rank(asked)
    assert told.event_id == "a/b ü"
    assert [action.id for action in told.ranking] == list(ACTIONS)
    assert told.ranking[0].probability == 0.0
    assert client.rank(asked).reward_action_id == told.reward_action_id
    client.events.activate("a/b ü")
    client.events.reward("a/b ü", 1.0)
    client.events.activate("event_id_returned_by_rank")
    client.events.reward("event_id_returned_by_rank", 1.0)
    with pytest.raises(models.ErrorResponseException) as refused:
        client.rank(models.RankRequest(actions=[]))
    assert refused.value.error.error.code == "InvalidRankRequest"
    wrong = personalizer.PersonalizerClient(
        started.url, authentication.CognitiveServicesCredentials("wrong")
    )
    with pytest.raises(models.ErrorResponseException) as refused:
        wrong.rank(asked)
    assert refused.value.response.status_code == 401
    assert refused.value.error.error.code == "Unauthorized"


def test_the_second_python_client(started: Started) -> None:
    personalizer = pytest.importorskip("azure.ai.personalizer")
    key = pytest.importorskip("azure.core.credentials").AzureKeyCredential(TOKEN)
    endpoint = f"{started.url}/models/second"
    client = Recorder(personalizer.PersonalizerClient(endpoint, key))
    actions = [{"id": action, "features": [{"kind": action}]} for action in ACTIONS]

    def choose(time: str) -> tuple[str, Callable[[float], Any]]:
        told = client.rank({"contextFeatures": [{"time": time}], "actions": actions})
        return told["rewardActionId"], lambda value: client.reward(
            told["eventId"], {"value": value}
        )

    assert learned(choose) >= 1.5 * UNIFORM
    slots = [
        {"id": "top", "baselineAction": "Film", "features": []},
        {"id": "side", "baselineAction": "News"},
    ]
    asked = {
        "actions": actions,
        "slots": slots,
        "eventId": "m/1",
        "deferActivation": True,
    }
    told = client.rank_multi_slot(asked)
    assert len({slot["rewardActionId"] for slot in told["slots"]}) == 2
    client.activate_multi_slot("m/1")
    client.reward_multi_slot("m/1", {"reward": [{"slotId": "top", "value": 1.0}]})
    client.activate(
        client.rank({"actions": actions, "deferActivation": True})["eventId"]
    )
    for name in ("activate", "activate_multi_slot"):
        getattr(client, name)("event_id_returned_by_rank")
    client.reward("event_id_returned_by_rank", {"value": 1.0})
    administrator = Recorder(
        personalizer.PersonalizerAdministrationClient(endpoint, key)
    )
    _administrate(administrator)
    for recorder in (client, administrator):
        recorder.close()
        assert recorder.not_called() == set()


RULES = {
    "rewardAggregation": "average",
    "modelExportFrequency": "PT180S",
    "defaultReward": 1.0,
    "modelRetrainDays": 2,
    "rewardWaitTime": "PT4H",
    "explorationPercentage": 0.3,
    "logRetentionDays": -1,
    "learningMode": "Online",
}
VOWPAL = "--cb_explore_adf --quadratic GT --ignore A --cb_type ips --epsilon 0.2"
START = "--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::"


def _administrate(client: Any) -> None:
    """Every call of the administration client, with what its own tests and samples send."""
    assert (
        client.update_service_configuration(RULES) | RULES
        == client.get_service_configuration()
    )
    assert (
        client.update_policy({"name": "app1", "arguments": VOWPAL})["arguments"]
        == VOWPAL
    )
    policy = client.get_policy()
    assert (policy["name"], policy["arguments"]) == ("app1", VOWPAL)
    several = policy["arguments"].replace("--cb_explore_adf", "--ccb_explore_adf")
    assert (
        client.update_policy({"name": "several slots", "arguments": several})[
            "arguments"
        ]
        == several
    )
    assert (
        client.reset_policy()["arguments"] == client.get_policy()["arguments"] == START
    )
    body = {"name": "mine", "startTime": date(2020, 1, 1), "endTime": date(2100, 1, 1)}
    client.create_evaluation(
        "e 1", body | {"policies": [], "enableOfflineExperimentation": True}
    )
    whole = {
        "start_time": datetime(2020, 1, 1, tzinfo=UTC),
        "end_time": datetime(2100, 1, 1, tzinfo=UTC),
    }
    for span in (
        {"start_time": "20200101T000000", "end_time": "21000101T000000"},
        whole,
    ):
        evaluation = client.get_evaluation("e 1", **span)
        assert (evaluation["id"], evaluation["name"], evaluation["status"]) == (
            "e 1",
            "mine",
            "Succeeded",
        )
        interval = client.get_evaluation(
            "e 1", interval_in_minutes=60, window="Rolling", **span
        )["content"]
        assert [policy["policySource"] for policy in interval["value"]] == [
            "Online",
            "Baseline",
            "Random",
        ]
    kinds = {"filter_expression": "metadata=evaluationType eq 'Manual'"}
    client.create_evaluation("e 2", body | {"policies": []})
    for more in (kinds, {"top": 5}, {}):
        assert [evaluation["id"] for evaluation in client.list_evaluations(**more)] == [
            "e 1",
            "e 2",
        ]
    assert [evaluation["id"] for evaluation in client.list_evaluations(skip=1)] == [
        "e 2"
    ]
    assert (
        list(
            client.list_evaluations(
                filter_expression="metadata=evaluationType eq 'Auto'"
            )
        )
        == []
    )
    client.apply_from_evaluation({"evaluationId": "e 1", "policyName": "linucb"})
    client.delete_evaluation("e 1")
    client.create_feature_importance("f1", body)
    assert client.get_feature_importance("f1")["featureScores"][0]["score"] == 100.0
    assert [
        importance["id"] for importance in client.list_feature_importances(top=5)
    ] == ["f1"]
    client.delete_feature_importance("f1")
    content = b"".join(client.export_model(signed=True))
    client.reset_model()
    client.import_model(io.BytesIO(content))
    assert b"".join(client.export_model(signed=False)) == content
    assert (
        client.get_model_properties()["creationTime"]
        <= client.get_model_properties()["lastModifiedTime"]
    )
    assert (
        client.get_log_properties()["dateRange"]["from"]
        < client.get_log_properties()["dateRange"]["to"]
    )
    client.delete_logs()
    assert client.get_log_properties().get("dateRange") is None


def test_the_second_python_client_asynchronously(started: Started) -> None:
    personalizer = pytest.importorskip("azure.ai.personalizer.aio")
    transports = pytest.importorskip("azure.core.pipeline.transport")
    key = pytest.importorskip("azure.core.credentials").AzureKeyCredential(TOKEN)
    actions = [{"id": action, "features": [{"kind": action}]} for action in ACTIONS]

    async def ask() -> None:
        transport = transports.AsyncioRequestsTransport()
        endpoint = f"{started.url}/models/asynchronous"
        async with personalizer.PersonalizerClient(
            endpoint, key, transport=transport
        ) as client:
            answer = await client.rank({"actions": actions, "deferActivation": True})
            await client.activate(answer["eventId"])
            await client.reward(answer["eventId"], {"value": 1.0})

    asyncio.run(ask())
    assert started.ask("GET", "/v1/models/asynchronous", None, KEY)[1]["rounds"] == 1


def test_the_python_client_of_openfeature(started: Started) -> None:
    ofrep = pytest.importorskip("openfeature.contrib.provider.ofrep")
    api = pytest.importorskip("openfeature.api")
    contexts = pytest.importorskip("openfeature.evaluation_context")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    api.set_provider_and_wait(
        ofrep.OFREPProvider(started.url, headers_factory=lambda: headers)
    )
    client = api.get_client()

    def choose(time: str) -> tuple[str, Callable[[float], Any]]:
        details = client.get_string_details(
            "flag", "none", contexts.EvaluationContext("someone", {"time": time})
        )
        assert details.error_code is None, details
        assert 0.0 < details.flag_metadata["probability"] <= 1.0
        body = {"id": details.flag_metadata["id"]}
        return details.value, lambda value: started.ask(
            "POST", "/v1/rewards", body | {"value": value}, headers
        )

    assert learned(choose) >= 1.5 * UNIFORM
    missing = client.get_string_details("no such flag", "otherwise")
    assert (missing.value, missing.error_code.value) == ("otherwise", "FLAG_NOT_FOUND")
    wrong = client.get_boolean_details("flag", True)
    assert (wrong.value, wrong.error_code.value) == (True, "TYPE_MISMATCH")
    assert client.get_boolean_value("truth", False) in (True, False)
    assert client.get_boolean_details("truth", False).error_code is None
    assert client.get_integer_details("count", 7).value in (1, 2)
    assert client.get_float_details("share", 7.0).value in (0.5, 0.25)
    other = client.get_object_details("flag", {"a": 1})
    assert (other.value, other.error_code.value) == ({"a": 1}, "TYPE_MISMATCH")
    api.clear_providers()


@pytest.fixture(scope="module")
def installed() -> Path:
    """The folder with the clients for node, as `make test` installs them."""
    folder = Path(__file__).parents[2] / ".venv" / "node"
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (folder / "node_modules" / "@azure-rest" / "ai-personalizer").is_dir():
        pytest.skip("the clients for node are not installed; `make clients` does so")
    return folder


@pytest.mark.parametrize(
    ("client", "model"),
    [("first", "third"), ("second", "default"), ("openfeature", "switch")],
)
def test_the_clients_for_node(
    started: Started, installed: Path, client: str, model: str
) -> None:
    script = Path(__file__).parent / "node_clients" / "world.cjs"
    command = ["node", str(script), str(installed), client, started.url, TOKEN, model]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout)["earned"] >= 1.5 * UNIFORM
    assert started.ask("GET", f"/v1/models/{model}", None, KEY)[1]["rounds"] >= ROUNDS

"""Clients that others wrote, unchanged, against a service of its own process; what they drive is learned.

The planted world: three times of day, four actions; the one that belongs to the time pays with probability
0.8, the others with 0.1, so that uniform choices earn 0.275. A model that has learned earns 0.77 and misses
1.5 times as much as uniform in the last 60 of 300 rounds less than once in 10^6.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
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
LOOPS, FLAGS = ("first", "second", "third"), ("flag", "switch")
Choose = Callable[[str], tuple[str, Callable[[float], Any]]]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A service with a token, empty loops and flags; every client has one of its own."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "tokens").write_text(f"admin {TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    with service(folder, "--token-file", "tokens") as running:
        for name in LOOPS:
            assert running.ask("POST", "/v1/models", {"name": name}, KEY)[0] == 201
        for name in FLAGS:
            assert running.ask("POST", "/v1/models", {"name": name, "arms": list(ACTIONS)}, KEY)[0] == 201
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


def test_the_first_python_client(started: Started) -> None:
    personalizer = pytest.importorskip("azure.cognitiveservices.personalizer")
    models = pytest.importorskip("azure.cognitiveservices.personalizer.models")
    authentication = pytest.importorskip("msrest.authentication")
    endpoint = f"{started.url}/models/first"
    client = personalizer.PersonalizerClient(endpoint, authentication.CognitiveServicesCredentials(TOKEN))
    actions = [models.RankableAction(id=action, features=[{"kind": action}]) for action in ACTIONS]

    def choose(time: str) -> tuple[str, Callable[[float], Any]]:
        told = client.rank(models.RankRequest(actions=actions, context_features=[{"time": time}]))
        return told.reward_action_id, lambda value: client.events.reward(told.event_id, value)

    assert learned(choose) >= 1.5 * UNIFORM
    asked = models.RankRequest(
        actions=actions, excluded_actions=["News"], event_id="a/b ü", defer_activation=True
    )
    told = client.rank(asked)
    assert told.event_id == "a/b ü"
    assert [action.id for action in told.ranking] == list(ACTIONS)
    assert told.ranking[0].probability == 0.0
    assert client.rank(asked).reward_action_id == told.reward_action_id
    client.events.activate("a/b ü")
    client.events.reward("a/b ü", 1.0)
    with pytest.raises(models.ErrorResponseException) as refused:
        client.rank(models.RankRequest(actions=[]))
    assert refused.value.error.error.code == "InvalidRankRequest"
    wrong = personalizer.PersonalizerClient(started.url, authentication.CognitiveServicesCredentials("wrong"))
    with pytest.raises(models.ErrorResponseException) as refused:
        wrong.rank(asked)
    assert refused.value.response.status_code == 401
    assert refused.value.error.error.code == "Unauthorized"


def test_the_second_python_client(started: Started) -> None:
    personalizer = pytest.importorskip("azure.ai.personalizer")
    key = pytest.importorskip("azure.core.credentials").AzureKeyCredential(TOKEN)
    endpoint = f"{started.url}/models/second"
    client = personalizer.PersonalizerClient(endpoint, key)
    actions = [{"id": action, "features": [{"kind": action}]} for action in ACTIONS]

    def choose(time: str) -> tuple[str, Callable[[float], Any]]:
        told = client.rank({"contextFeatures": [{"time": time}], "actions": actions})
        return told["rewardActionId"], lambda value: client.reward(told["eventId"], {"value": value})

    assert learned(choose) >= 1.5 * UNIFORM
    slots = [
        {"id": "top", "baselineAction": "Film", "features": []},
        {"id": "side", "baselineAction": "News"},
    ]
    asked = {"actions": actions, "slots": slots, "eventId": "m/1", "deferActivation": True}
    told = client.rank_multi_slot(asked)
    assert len({slot["rewardActionId"] for slot in told["slots"]}) == 2
    client.activate_multi_slot("m/1")
    client.reward_multi_slot("m/1", {"reward": [{"slotId": "top", "value": 1.0}]})
    client.activate(client.rank({"actions": actions, "deferActivation": True})["eventId"])
    administrator = personalizer.PersonalizerAdministrationClient(endpoint, key)
    _administrate(administrator)
    with pytest.raises(pytest.importorskip("azure.core.exceptions").HttpResponseError) as refused:
        administrator.delete_logs()
    assert refused.value.error.code == "OperationNotAllowed"


def _administrate(client: Any) -> None:
    """Every call of the administration client."""
    from datetime import UTC, datetime

    rules = client.get_service_configuration() | {"rewardWaitTime": "PT1H", "explorationPercentage": 0.1}
    assert client.update_service_configuration(rules)["rewardWaitTime"] == "PT3600S"
    assert client.get_policy()["name"] == "linucb"
    assert client.update_policy({"name": "mine", "arguments": "--exploration 0.3"})["name"] == "mine"
    assert client.reset_policy()["name"] == "linucb"
    span = {"start_time": datetime(2020, 1, 1, tzinfo=UTC), "end_time": datetime(2100, 1, 1, tzinfo=UTC)}
    body = {"name": "mine", "startTime": "2020-01-01T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"}
    client.create_evaluation("e 1", body | {"policies": []})
    assert client.get_evaluation("e 1", **span)["status"] == "Succeeded"
    assert [evaluation["id"] for evaluation in client.list_evaluations()] == ["e 1"]
    client.apply_from_evaluation({"evaluationId": "e 1", "policyName": "linucb"})
    client.delete_evaluation("e 1")
    client.create_feature_importance("f1", body)
    assert client.get_feature_importance("f1")["featureScores"][0]["score"] == 100.0
    assert [importance["id"] for importance in client.list_feature_importances()] == ["f1"]
    client.delete_feature_importance("f1")
    content = b"".join(client.export_model())
    client.reset_model()
    client.import_model(io.BytesIO(content))
    assert b"".join(client.export_model()) == content
    assert client.get_model_properties()["creationTime"] <= client.get_model_properties()["lastModifiedTime"]
    assert client.get_log_properties()["dateRange"]["from"] < client.get_log_properties()["dateRange"]["to"]


def test_the_python_client_of_openfeature(started: Started) -> None:
    ofrep = pytest.importorskip("openfeature.contrib.provider.ofrep")
    api = pytest.importorskip("openfeature.api")
    contexts = pytest.importorskip("openfeature.evaluation_context")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    api.set_provider_and_wait(ofrep.OFREPProvider(started.url, headers_factory=lambda: headers))
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
    ("client", "model"), [("first", "third"), ("second", "default"), ("openfeature", "switch")]
)
def test_the_clients_for_node(started: Started, installed: Path, client: str, model: str) -> None:
    script = Path(__file__).parent / "node_clients" / "world.cjs"
    command = ["node", str(script), str(installed), client, started.url, TOKEN, model]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout)["earned"] >= 1.5 * UNIFORM
    assert started.ask("GET", f"/v1/models/{model}", None, KEY)[1]["rounds"] >= ROUNDS

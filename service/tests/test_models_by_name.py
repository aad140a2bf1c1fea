"""Models have names: a new one disturbs no caller, and models and versions can be taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from invariant_bandits.checks import InputError
from invariant_bandits.cli.app import app
from invariant_bandits_service import Client, commands
from invariant_bandits_service.cli.service import ENVIRONMENT
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from invariant_bandits_service.state import ConflictError, NotFoundError, State
from invariant_bandits_service.store.open_store import open_store
from local_client import TestClient
from served_models import running, serve


@pytest.fixture
def shop(tmp_path: Path, fitted_file: Path) -> Iterator[TestClient]:
    """A service that was started with one model, "shop"."""
    settings = ServiceSettings(
        store=str(tmp_path / "d.db"), models={"shop": fitted_file}
    )
    with TestClient(
        Application(open_service(settings)), raise_server_exceptions=False
    ) as client:
        yield client


def client_of(service: TestClient, model: str | None = None) -> Client:
    client = Client("http://localhost", model=model)
    client._http = TestClient(service.app)
    client._http.params = client._http.params.merge(
        {} if model is None else {"model": model}
    )
    return client


def test_a_client_that_names_no_model_works_beside_a_second_model(
    shop: TestClient,
) -> None:
    client = client_of(shop)
    assert client.decide({"age": 1.0}).model == "shop"
    assert shop.post("/v1/models", json={"model": "other"}).status_code == 201
    decision = client.decide({"age": 1.0})
    assert decision.model == "shop"
    assert client.reward(decision, 1.0) == "learned"
    assert client.model()["model"] == "shop"
    assert client.model("other")["model"] == "other"


def test_a_client_has_a_model_and_a_call_can_name_another(shop: TestClient) -> None:
    shop.post("/v1/models", json={"model": "other", "arms": ["a", "b"]})
    client = client_of(shop, "other")
    decision = client.decide(id="x", defer=True)
    assert (decision.model, client.model()["model"]) == ("other", "other")
    first = client.decide({"age": 1.0}, model="shop", id="x", defer=True)
    assert first.model == "shop"
    assert client.activate(first) == "activated"
    assert client.decision("x", model="shop")["activated"]
    assert not client.decision("x")["activated"]
    assert client.reward(decision, 1.0) == "waiting"
    assert client.reward("x", 1.0, model="shop") == "learned"
    version = client.upload(
        shop_file(shop), "shop", note="again", allow_differences=True
    )
    assert version in shop.get("/v1/models/shop/versions").text


def shop_file(shop: TestClient) -> bytes:
    state = shop.app.state.service.engine.state  # type: ignore[attr-defined]
    content: bytes = state.models["shop"].learner.to_bytes()
    return content[8:]


def test_a_model_is_removed_and_a_restart_and_a_replay_know_it(
    shop: TestClient, tmp_path: Path, fitted_file: Path
) -> None:
    shop.post("/v1/models", json={"model": "other", "arms": ["a", "b"]})
    shop.post("/v1/decisions", json={"model": "other", "id": "kept"})
    refused = shop.delete("/v1/models/shop")
    assert refused.status_code == 409
    assert "answers requests that name no model" in refused.text
    assert shop.delete("/v1/models/other").json()["removed"]
    assert shop.delete("/v1/models/other").status_code == 404
    assert shop.post("/v1/decisions", json={"model": "other"}).status_code == 404
    again = shop.post("/v1/models", json={"model": "other"})
    assert again.status_code == 422
    assert "never used again" in again.text
    assert shop.get("/v1/decisions/kept").json()["model"] == "other"
    engine = shop.app.state.service.engine  # type: ignore[attr-defined]
    while "other" in engine.dashboard.get("models", {"other": 0}):
        pass
    assert set(shop.get("/v1/overview").json()["models"]) == {"shop"}
    assert shop.delete("/v1/models/shop").status_code == 200
    live = engine.state.hashes()
    shop.app.state.service.learning.stop()  # type: ignore[attr-defined]
    engine.stop()
    path = tmp_path / "d.db"
    store = open_store(path)
    assert restore(store).hashes() == replay_all(store).hashes() == live == {}
    assert restore(store).removed == {"shop", "other"}
    store.close()
    said: list[str] = []
    settings = ServiceSettings(store=str(path), models={"shop": fitted_file})
    service = open_service(settings, said.append)
    assert "shop: was removed, and stays so whatever the command names" in said
    assert not service.engine.view().models
    service.engine.stop()


def test_a_decider_that_does_not_know_yet_harms_no_learner(tmp_path: Path) -> None:
    """It decides by a model that is gone: the decision stays in the store, and nothing follows."""
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        serve(engine, name="gone")
        published = State.from_bytes(
            engine.state.to_bytes(), engine.store, published=True
        )
        engine.call(commands.remove_model("gone"), alone=True)
        late = DecisionCommand(model="gone", id="late")
        engine.call(lambda state, batch: late(published, batch))
        assert not engine.view().aside
        live = engine.state.hashes()
        assert live.keys() == {"default"}
    store = open_store(path)
    assert restore(store).hashes() == replay_all(store).hashes() == live
    store.close()


def test_a_version_is_removed_unless_it_decides_or_is_a_reference(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        first = serve(engine)
        second = serve(engine)
        third = serve(engine)
        remove = commands.remove_version
        with pytest.raises(ConflictError, match="decides"):
            engine.call(remove("default", third), alone=True)
        with pytest.raises(NotFoundError, match="is not one of"):
            engine.call(remove("default", "9-abc"), alone=True)
        engine.call(remove("default", second), alone=True)
        assert list(engine.view().model("default").versions) == [first, third]
        assert engine.call(commands.roll_back("default"), alone=True) == first
        live = engine.state.hashes()
    store = open_store(path)
    assert restore(store).hashes() == replay_all(store).hashes() == live
    store.close()


def test_versions_that_never_decide_do_not_stay_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        first = serve(engine)
        for seed in range(3 * commands.MOST_UNUSED):
            learner = OpenLearner(dict.fromkeys("abc", True), seed=seed)
            command = commands.add_version("default", learner, "given", active=False)
            newest = engine.call(command, alone=True)
        versions = list(engine.view().model("default").versions)
        assert len(versions) == commands.MOST_UNUSED + 2
        assert (versions[0], versions[-1]) == (first, newest)
        for seed in range(5 * commands.MOST_UNUSED):
            serve(engine, OpenLearner(dict.fromkeys("abc", True), seed=100 + seed))
        served = engine.state.model("default")
        assert len(served.versions) <= 2 * commands.MOST_UNUSED + 1
        assert served.versions.keys() == served.learners.keys()
        assert set(served.activations) <= served.versions.keys()
        live = engine.state.hashes()
    store = open_store(path)
    assert restore(store).hashes() == replay_all(store).hashes() == live
    store.close()


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/model/versions?activat=true", "activat"),
        ("GET", "/v1/decisions?group=holdout", "group"),
        ("GET", "/v1/decisions?why=greedy", "why"),
        ("GET", "/v1/model?name=shop", "name"),
        ("POST", "/v1/rewards?modell=shop", "modell"),
        ("GET", "/metrics?page=1", "page"),
    ],
)
def test_parameters_that_are_not_known_are_refused(
    shop: TestClient, method: str, path: str, name: str
) -> None:
    answer = shop.request(method, path)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == name
    assert f"{name}: is not a parameter" in answer.json()["error"]["message"]
    assert shop.get("/readyz?nocache=1").status_code == 200


def test_a_variable_of_the_environment_that_names_no_option_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{ENVIRONMENT}SERVICE_PORT_HTTP", "8080")  # of Kubernetes
    monkeypatch.setenv(f"{ENVIRONMENT}TOKENFILE", "tokens")
    told = CliRunner().invoke(app, ["serve", "--store", str(tmp_path / "d.db")])
    assert isinstance(told.exception, InputError)
    assert f"{ENVIRONMENT}TOKENFILE: no option has this variable" in str(told.exception)
    assert not (tmp_path / "d.db").exists()

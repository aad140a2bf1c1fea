"""What the page is told, and that looking never waits for the engine."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path
from typing import Any

from invariant_bandits_service import commands
from invariant_bandits_service.access import Access
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.dashboard import Dashboard, arms_of
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application, ServiceSettings
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.state import State
from local_client import TestClient
from served_models import fitted, running, serve


def overview_when(
    client: TestClient, holds: Any, path: str = "/v1/overview"
) -> dict[str, Any]:
    """The first overview of which something holds."""
    for _ in range(100):
        told: dict[str, Any] = client.get(path).json()
        if told["model"] is not None and holds(told["model"]):
            return told
        time.sleep(0.1)
    raise AssertionError("it never held")


def test_it_tells_what_happened_to_a_model(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine, fitted())
        client = TestClient(Application(Service(engine)))
        engine.call(commands.configure("default", Configuration(floor=0.5)), alone=True)
        ids = [
            engine.call(DecisionCommand(context={"age": float(n % 5)})).id
            for n in range(80)
        ]
        for n, id in enumerate(ids[:70]):
            engine.call(RewardCommand(id, float(n % 2)))
        model = overview_when(client, lambda model: model["counts"]["learned"] == 70)[
            "model"
        ]
        timeline = model["timeline"]
        assert (
            sum(segment[1] for segment in timeline["segments"])
            == timeline["settled"]
            == 70
        )
        assert sum(segment[2] for segment in timeline["segments"]) == 35.0
        assert len(timeline["points"]) == 70 // 5
        assert timeline["points"][-1]["time"] == timeline["segments"][-1][0]
        assert abs(sum(timeline["points"][-1]["beliefs"].values()) - 1.0) < 1e-9
        low, high = model["about"]["logged_reward_interval"]
        assert low < model["about"]["logged_reward"] < high
    with running(
        tmp_path / "d.db"
    ) as engine:  # after a restart everything is as before
        client = TestClient(Application(Service(engine)))
        again = overview_when(client, lambda model: True)["model"]
        assert {name: again[name] for name in again if name != "about"} == {
            name: model[name] for name in model if name != "about"
        }


def test_looking_does_not_wait_for_the_engine(tmp_path: Path) -> None:
    """While the engine's thread is held up, the page and its figures are served all the same."""
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(Application(Service(engine)))
        overview_when(client, lambda model: True)
        held, go_on = threading.Event(), threading.Event()

        def hold(state: Any) -> None:
            held.set()
            go_on.wait(60.0)

        thread = threading.Thread(target=engine.call, args=(commands.inspect(hold),))
        thread.start()
        assert held.wait(30.0)
        assert client.get("/v1/overview").json()["name"] == "default"
        assert client.get("/").status_code == 200
        go_on.set()
        thread.join()


def test_the_page_is_public_but_its_figures_are_not(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(
            Application(Service(engine, Access(tokens_of("read", "admin"))))
        )
        assert client.get("/").headers["content-type"].startswith("text/html")
        assert client.get("/page/page.js").status_code == 200
        assert client.get("/page/nothing.js").status_code == 404
        assert client.get("/page/..%2Fapp.py").status_code == 404
        assert client.get("/v1/overview").status_code == 401
        for role, may in (("read", False), ("admin", True)):
            told = client.get("/v1/overview", headers=bearer(role)).json()
            assert told["service"]["may_change"] is may
        assert (
            client.get("/v1/overview?model=none", headers=bearer("read")).status_code
            == 404
        )


def test_models_to_which_nothing_happened_are_not_told_again(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        serve(engine, name="other")
        client = TestClient(Application(Service(engine)))
        overview_when(client, lambda model: True)
        before = engine.dashboard["models"]
        engine.call(DecisionCommand())
        overview_when(client, lambda model: model["counts"]["decisions"] == 1)
        assert engine.dashboard["models"]["other"] is before["other"]


def test_a_state_that_was_taken_over_whole_is_told(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        dashboard = Dashboard()
        before = dashboard(engine.state)["models"]["default"]
        assert dashboard(engine.state)["models"]["default"] is before
        engine.call(DecisionCommand())
        taken = State.from_bytes(engine.state.to_bytes(), engine.store)
        assert dashboard(taken)["models"]["default"]["counts"]["decisions"] == 1


def tokens_of(*roles: str) -> dict[str, Any]:
    return {
        hashlib.sha256(f"a long token to {role}".encode()).hexdigest(): role
        for role in roles
    }


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer a long token to {role}"}


def test_without_tokens_pages_of_other_sites_cannot_make_a_browser_ask(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        serve(engine)
        served = engine.state.models["default"]
        app = Application(Service(engine), ServiceSettings().allowed_hosts)
        client = TestClient(app, base_url="http://127.0.0.1:8080")
        second, own = (
            served.version,
            {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        )
        for strange in (
            {"Origin": "https://example.com"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:9090"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert client.post("/v1/model/rollback", headers=strange).status_code == 403
            assert client.get("/v1/overview", headers=strange).status_code == 403
        rebound = own | {
            "Host": "rebound.example.com:8080",
            "Origin": "http://rebound.example.com:8080",
        }
        assert client.post("/v1/model/rollback", headers=rebound).status_code == 400
        assert client.get("/v1/overview", headers=rebound).status_code == 400
        assert served.version == second
        assert (
            client.get("/v1/overview", headers={"Sec-Fetch-Site": "none"}).status_code
            == 200
        )
        assert client.post("/v1/model/rollback", headers=own).status_code == 200
        assert served.version != second


def test_of_a_great_many_arms_those_chosen_most_are_shown(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine, OpenLearner({f"arm {n}": True for n in range(60)}, seed=1))
        for n in range(3):
            engine.call(DecisionCommand(labels=["arm 59"], id=str(n)))
        told = arms_of(engine.state.models["default"])
        assert next(iter(told["plays"].items())) == ("arm 59", 3)
        assert (len(told["plays"]), told["count"]) == (50, 60)
        assert told["registered"]["arm 59"]

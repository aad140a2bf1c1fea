"""A person who is erased is in no file of the store, in no model that began empty, and in no answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import invariant_bandits as ib
from invariant_bandits.cli.app import app
from invariant_bandits_service import commands
from invariant_bandits_service.background import Learning, RefitResult
from invariant_bandits_service.commands import DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.learners import FittedLearner, OpenLearner
from invariant_bandits_service.operations import Service
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.serve import Application
from invariant_bandits_service.store.open_store import open_store, verify
from local_client import TestClient
from served_models import running, serve

ALICE = "alice@example.com"


def decide_about(engine: Engine, person: str, count: int) -> None:
    for number in range(count):
        context = {"who": {"email": person}, "hour": number}
        decided = engine.call(
            DecisionCommand(context=context, id=f"{person[:3]} {number}")
        )
        engine.call(RewardCommand(decided.id, 1.0))


def files_with(folder: Path, text: str) -> list[str]:
    """Names of files in which a text occurs."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and text.encode() in path.read_bytes():
            found.append(path.name)
    return found


def postgres_tables_with(address: str, text: str) -> list[str]:
    """Tables with a row in which a text occurs."""
    import psycopg

    found = []
    with psycopg.connect(address) as connection:
        for table in ("events", "contents", "snapshots"):
            query = f"SELECT count(*) FROM {table} WHERE position(%s in body) > 0"
            row = connection.execute(query, [text.encode()]).fetchone()  # type: ignore[arg-type]
            if row is not None and row[0]:
                found.append(table)
    return found


def traces(address: str, folder: Path, text: str) -> list[str]:
    if address.startswith("postgresql:"):
        return postgres_tables_with(address, text)
    return files_with(folder, text)


def test_nothing_of_a_person_is_left_while_the_service_runs(
    address: str, tmp_path: Path
) -> None:
    with running(address) as engine:
        serve(engine)
        decide_about(engine, ALICE, 5)
        decide_about(engine, "bob@example.com", 5)
        engine.call(DecisionCommand(id=ALICE))
        # a version made of her decisions, as background learning makes them
        learner = engine.state.model("default").learner
        engine.call(
            commands.add_version("default", learner, "background", active=False),
            alone=True,
        )
        engine.call(lambda state, batch: engine._snapshot())
        assert traces(address, tmp_path, ALICE)
        client = TestClient(Application(Service(engine)))
        assert ALICE in client.get("/v1/model").text
        answer = client.post("/v1/erasures", json={"person": ALICE})
        assert answer.json() == {"events": 5 * 3 + 1, "left_in": []}
        assert traces(address, tmp_path, ALICE) == []
        for path in ("/v1/model", "/v1/decisions", f"/v1/decisions?search={ALICE}"):
            assert ALICE not in client.get(path).text.replace(path, "")
        assert client.get(f"/v1/decisions/{ALICE}").status_code == 404
        assert client.get("/v1/decisions/bob 3").status_code == 200
        until_dashboard_is_new(engine)
        assert ALICE not in client.get("/v1/overview").text
        assert "bob@example.com" in client.get("/v1/model").text
        decide_about(engine, "carol@example.com", 3)
        again = client.post("/v1/erasures", json={"person": ALICE})
        assert again.json() == {"events": 0, "left_in": []}
        assert client.post("/v1/erasures", json={"person": "a"}).status_code == 422
        live = engine.state.hashes()
    store = open_store(address, check=verify)
    assert restore(store).hashes() == replay_all(store).hashes() == live
    store.close()
    assert traces(address, tmp_path, ALICE) == []


def until_dashboard_is_new(engine: Engine) -> None:
    engine.dashboard = {}
    while "models" not in engine.dashboard:
        pass


def test_only_whole_values_are_meant_and_what_was_learned_stays(tmp_path: Path) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        decide_about(engine, f"m{ALICE}", 3)
        decide_about(engine, ALICE, 3)
        before: Any = engine.state.model("default").learner
        client = TestClient(Application(Service(engine)))
        erased = client.post("/v1/erasures", json={"person": ALICE}).json()
        assert erased["events"] == 9
        # Malice, whose name ends with the same letters, is still there
        assert erased["left_in"] == [f"default {engine.state.model('default').version}"]
        after: Any = engine.state.model("default").learner
        assert f"m{ALICE}" in client.get("/v1/model").text
        assert not [name for name in after.positions if f"={ALICE}" in name]
        assert len(after.positions) == len(before.positions)
        assert after.policy.arrays().keys() == before.policy.arrays().keys()
        for name, values in after.policy.arrays().items():
            np.testing.assert_array_equal(values, before.policy.arrays()[name])


def test_a_model_that_was_fitted_to_a_log_with_a_person_is_named(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    people = np.where(rng.random(2_000) < 0.5, ALICE, "bob@example.com")
    log = pa.table(
        {
            "email": people,
            "arm": rng.choice(["a", "b"], 2_000),
            "reward": rng.random(2_000),
        }
    )
    with running(tmp_path / "d.db") as engine:
        version = serve(engine, FittedLearner(ib.fit_logs(log), 7), "shop")
        client = TestClient(Application(Service(engine)))
        answer = client.post("/v1/erasures", json={"person": ALICE}).json()
        assert answer == {"events": 0, "left_in": [f"shop {version}"]}


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_erases_from_a_store_that_is_not_in_use(
    tmp_path: Path, as_json: bool
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine, OpenLearner({"a": True, "b": True}))
        decide_about(engine, ALICE, 4)
        arguments = ["store", "erase", str(path), ALICE]
        arguments += ["--json"] if as_json else []
        assert CliRunner().invoke(app, arguments).exit_code != 0, "it is in use"
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "12" in told.output
    assert files_with(tmp_path, ALICE) == []
    store = open_store(path, check=verify)
    assert restore(store).hashes() == replay_all(store).hashes()
    store.close()


def test_a_version_that_was_fitted_before_an_erasure_does_not_bring_the_person_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        base = serve(engine)
        decide_about(engine, ALICE, 3)
        served = engine.state.model("default")
        refit = RefitResult(
            kind=served.learner.kind,
            content=served.learner.to_bytes(),
            base=base,
            through=engine.state.seq,
            upto=engine.state.seq,
            note="",
            first_fit=True,
            evaluation={"unknown_because": [], "better": True, "worse": False},
        )
        assert ALICE.encode() in refit.content
        engine.call(commands.erase([], text=ALICE), alone=True)
        learning = Learning(engine, str(path))
        learning._fit = lambda model, log=None: refit  # type: ignore[method-assign]
        learning.begin("default")
        while learning.outcome("default")["status"] == "running":
            pass
        learning.stop()
        assert "were erased while it was fitted" in learning.outcome("default")["why"]
        assert list(engine.view().model("default").versions) == [base]
    assert files_with(tmp_path, ALICE) == []

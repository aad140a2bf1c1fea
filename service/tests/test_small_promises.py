"""Small promises: what a page or a help text says is so."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from invariant_bandits.cli.app import app
from invariant_bandits_service.operations import Service
from invariant_bandits_service.protocols.ofrep import typed
from invariant_bandits_service.replay import ErasedMeanwhileError, follow
from invariant_bandits_service.routes import decisions as pages
from invariant_bandits_service.serve import Application
from invariant_bandits_service.state import State
from invariant_bandits_service.store.open_store import open_store
from local_client import TestClient
from served_models import running, serve
from started_service import SERVE, free_port


def test_an_unchanged_evaluation_of_all_flags_is_not_sent_again(
    loops: TestClient,
) -> None:
    loops.post("/v1/models", json={"model": "banner", "arms": ["a", "b"]})
    path, body = "/ofrep/v1/evaluate/flags", {"context": {"targetingKey": "u7"}}
    first = loops.post(path, json=body)
    again = loops.post(
        path, json=body, headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    loops.post("/v1/models/banner/arms", json={"label": "c"})
    changed = loops.post(
        path, json=body, headers={"If-None-Match": first.headers["ETag"]}
    )
    assert changed.status_code == 200


def test_numbers_that_javascript_cannot_hold_stay_texts() -> None:
    label = "9" * 30
    assert typed(label, [label, "1"]) == label
    assert typed("9007199254740992", ["9007199254740992"]) == 2**53


def test_an_export_is_for_its_owner_only_and_the_help_names_its_format(
    tmp_path: Path,
) -> None:
    path, out = tmp_path / "d.db", tmp_path / "week.parquet"
    with running(path) as engine:
        serve(engine)
        client = TestClient(Application(Service(engine)))
        for number in range(5):
            client.post("/v1/decisions", json={"id": f"d{number}"})
            client.post("/v1/rewards", json={"id": f"d{number}", "value": 1.0})
    told = CliRunner().invoke(app, ["store", "export", str(path), str(out)])
    assert told.exit_code == 0, told.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "jsonl" not in CliRunner().invoke(app, ["store", "export", "--help"]).output


def test_a_client_that_goes_away_is_no_error_of_the_service(
    loops: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    import asyncio

    statuses = []

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        statuses.append(message.get("status"))

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/decisions",
        "headers": [(b"host", b"localhost")],
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "server": ("localhost", 80),
    }
    with caplog.at_level(logging.ERROR):
        asyncio.run(loops.app(scope, receive, send))  # type: ignore[arg-type]
    assert statuses[0] == 400
    assert not caplog.records


def test_a_search_finds_what_is_far_back_in_one_page(
    loops: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_SCANNED", 10)
    loops.post("/v1/decisions", json={"id": "needle", "arms": ["a"]})
    for number in range(60):
        loops.post("/v1/decisions", json={"id": f"hay {number}", "arms": ["a"]})
    page = loops.get("/v1/decisions?search=needle&limit=1").json()
    assert [decision["id"] for decision in page["decisions"]] == ["needle"]
    monkeypatch.setattr(pages, "LONGEST_SEARCH", 0.0)
    found, pages_seen = loops.get("/v1/decisions?search=needle").json(), 1
    while not found["decisions"]:
        path = f"/v1/decisions?search=needle&before={found['next']}"
        found, pages_seen = loops.get(path).json(), pages_seen + 1
    assert pages_seen > 3
    ids = []
    page = loops.get("/v1/decisions?limit=7").json()
    while True:
        ids += [decision["id"] for decision in page["decisions"]]
        if page["next"] is None:
            break
        page = loops.get(f"/v1/decisions?limit=7&before={page['next']}").json()
    assert len(ids) == len(set(ids)) == 61


def test_a_version_that_was_forgotten_meanwhile_is_not_found(loops: TestClient) -> None:
    engine = loops.app.state.service.engine  # type: ignore[attr-defined]
    state = engine.state
    content = loops.post("/v1/models/default/versions?allow_differences=true")
    assert content.status_code == 422  # an empty body is no model
    state.model("default").versions["9-abc"] = state.model("default").versions[
        state.model("default").version
    ]
    state._views = None
    engine._view = state.view()
    del state.model("default").versions["9-abc"]
    answer = loops.post("/v1/models/default/versions/9-abc/activate")
    assert answer.status_code == 404


def test_events_that_are_erased_while_they_are_read_do_not_shift_the_others(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        client = TestClient(Application(Service(engine)))
        for number in range(5):
            client.post("/v1/decisions", json={"id": f"d{number}"})
    store = open_store(tmp_path / "d.db", writing=False)
    rows = list(store.rows())
    state = State(store)
    with pytest.raises(ErasedMeanwhileError, match="event 3 is missing"):
        follow(state, [row for row in rows if row.seq != 3])
    assert state.seq == 3
    store.close()


def test_of_two_early_rewards_that_contradict_each_other_the_first_counts(
    loops: TestClient,
) -> None:
    for value in (1.0, 0.0):
        answer = loops.post("/v1/rewards", json={"id": "early", "value": value})
        assert answer.json()["status"] == "unknown"
    loops.post("/v1/decisions", json={"id": "early", "arms": ["a", "b"]})
    shown = loops.get("/v1/decisions/early").json()
    fates = [(reward["value"], reward["fate"]) for reward in shown["rewards"]]
    assert fates == [(1.0, "unknown"), (0.0, "unknown"), (1.0, "joined")]
    assert (shown["status"], shown["settled"]["value"]) == ("learned", 1.0)
    assert loops.get("/v1/model").json()["counts"]["rewards"] == 1


@pytest.mark.system
def test_every_line_of_json_logs_is_json(tmp_path: Path) -> None:
    line = [*SERVE, "--store", "d.db", "--port", str(free_port())]
    process = subprocess.Popen(
        [*line, "--log-format", "json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    lines = []
    with process:
        for raw in process.stdout:
            lines.append(raw)
            if b"serving at" in raw:
                process.terminate()
    assert len(lines) >= 3
    assert all("message" in json.loads(raw) for raw in lines), sys.executable

"""The served document driven by schemathesis, the figures read by Prometheus' own tool, and how a process
ends.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browsers import chromium, opened
from invariant_bandits_service.commands import DecisionCommand
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from routes import routes_of
from served_models import running, serve
from started_service import service, start

pytestmark = pytest.mark.system

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_the_document_has_every_route_and_nothing_else(loops: TestClient) -> None:
    """Written down twice: here from the application's routes, there from its operations."""
    routes = set()
    for path, methods in routes_of(loops.app):
        shown = re.sub(r":\w+}", "}", path)
        routes |= {f"{method} {shown}" for method in methods - {"HEAD"}}
    document = loops.get("/openapi.json").json()
    documented = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert documented == routes
    for needed in (
        "GET /v1/models/{model}/arms",
        "GET /metrics",
        "POST /ofrep/v1/evaluate/flags/{key}",
    ):
        assert needed in documented
    described = [
        call for methods in document["paths"].values() for call in methods.values()
    ]
    assert all(call["summary"] and call["tags"] for call in described)
    names = set(
        re.findall(r'"#/components/schemas/(\w+)"', loops.get("/openapi.json").text)
    )
    assert names <= set(document["components"]["schemas"])


def test_the_document_names_the_prefix_of_a_proxy(tmp_path: Path) -> None:
    service = open_service(ServiceSettings(store=str(tmp_path / "d.db")))
    with TestClient(Application(service), root_path="/bandits") as client:
        assert client.get("/bandits/openapi.json").json()["servers"] == [
            {"url": "/bandits"}
        ]
        assert client.get("/bandits/docs").status_code == 200
        assert (
            client.post("/bandits/v1/decisions", json={"arms": ["a"]}).status_code
            == 200
        )
        answer = client.post("/bandits/ofrep/v1/evaluate/flags/none", json={}).json()
        assert answer["errorCode"] == "FLAG_NOT_FOUND"


def test_the_page_of_all_calls_shows_each_and_tries_it(tmp_path: Path) -> None:
    with chromium() as browser, service(tmp_path) as started:
        document = started.ask("GET", "/openapi.json")[1]
        calls = sum(map(len, document["paths"].values()))
        with opened(browser, f"{started.url}/docs") as watched:
            watched.expect(f"document.querySelectorAll('.call').length === {calls}")
            watched.page.fill("#search", "post /v1/decisions decide")
            watched.expect(
                "document.querySelectorAll('.call:not([hidden])').length === 1"
            )
            watched.page.click(".call:not([hidden]) summary")
            watched.page.fill(
                ".call:not([hidden]) textarea", '{"arms": ["a", "b"], "id": "tried"}'
            )
            watched.page.click(".call:not([hidden]) button")
            watched.expect(
                "document.querySelector('.call:not([hidden]) pre').innerText.includes('200 OK')"
            )
            assert watched.complaints == []
            assert all(address.startswith(started.url) for address in watched.asked)
        assert started.ask("GET", "/v1/decisions/tried")[0] == 200


def test_no_request_that_the_document_allows_or_forbids_is_answered_with_500(
    tmp_path: Path,
) -> None:
    with service(tmp_path) as started:
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{started.url}/openapi.json",
            "--seed",
            "1",
        ]
        command += [
            "--checks",
            CHECKS,
            "--max-examples",
            "5",
            "--no-color",
            "--generation-database",
            "none",
        ]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
        assert "generated" in done.stdout
        assert started.ask("GET", "/readyz")[0] == 200


def test_the_figures_please_promtool(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    with service(tmp_path) as started:
        decided = started.ask(
            "POST", "/v1/decisions", {"arms": ["a", "b"], "id": 'a"b'}
        )[1]
        started.ask("POST", "/v1/rewards", {"id": decided["id"], "value": 1})
        text = started.ask("GET", "/metrics")[1]
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_damaged_store_is_refused_and_the_event_named(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    with running(path) as engine:
        serve(engine)
        for n in range(20):
            engine.call(DecisionCommand(context={"t": "needle"}, id=f"decision-{n}"))
    content = bytearray(path.read_bytes())
    content[content.index(b"\xa6needle") + 1] ^= (
        1  # in an event; a snapshot holds the name of the feature
    )
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"exit code [1-9].*event \d+ is damaged"):
        start(tmp_path)

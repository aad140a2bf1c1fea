"""The served document driven by schemathesis, the figures read by Prometheus' own tool, and how a process
ends.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from invariant_bandits.service.commands import DecisionCommand
from served_models import running, serve
from started_service import service, start

pytestmark = pytest.mark.system

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_no_request_that_the_document_allows_or_forbids_is_answered_with_500(tmp_path: Path) -> None:
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
        command += ["--checks", CHECKS, "--max-examples", "15", "--no-color", "--generation-database", "none"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
        assert "generated" in done.stdout
        assert started.ask("GET", "/readyz")[0] == 200


def test_the_figures_please_promtool(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    with service(tmp_path) as started:
        decided = started.ask("POST", "/v1/decisions", {"arms": ["a", "b"], "id": 'a"b'})[1]
        started.ask("POST", "/v1/rewards", {"id": decided["id"], "value": 1})
        text = started.ask("GET", "/metrics")[1]
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_damaged_store_is_refused_and_the_event_named(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    with running(path) as engine:
        serve(engine)
        for n in range(20):
            engine.call(DecisionCommand(context={"t": "needle"}, id=f"decision-{n}"))
    content = bytearray(path.read_bytes())
    content[content.index(b"\xa6needle") + 1] ^= 1  # in an event; a snapshot holds the name of the feature
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"exit code [1-9].*event \d+ is damaged"):
        start(tmp_path)

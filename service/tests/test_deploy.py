"""The files under deploy/ say what the command understands, and what systemd and compose can read."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import typer

from invariant_bandits.cli.app import app
from local_client import TestClient

DEPLOY = Path(__file__).parents[1] / "deploy"
ROOT = DEPLOY.parents[1]
UNIT = "invariant-bandits.service"


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    told: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return told


def lines(name: str, word: str) -> list[str]:
    """What follows a word at the beginning of a line of the Containerfile, continued lines joined."""
    text = (DEPLOY / name).read_text().replace("\\\n", " ")
    return [
        line.removeprefix(word).strip()
        for line in text.splitlines()
        if line.startswith(word)
    ]


def options(arguments: list[str]) -> dict[str, Any]:
    """What the command takes arguments for, without running it."""
    name, *rest = arguments
    commands: Any = typer.main.get_command(app)
    command = commands.get_command(None, name)
    return dict(command.make_context(name, list(rest)).params)


def test_the_container_starts_the_service_on_a_store_in_its_volume_and_asks_whether_it_is_ready() -> (
    None
):
    assert json.loads(lines("Containerfile", "ENTRYPOINT")[0]) == ["invariant-bandits"]
    given = options(json.loads(lines("Containerfile", "CMD")[0]))
    assert (given["host"], given["port"], given["role"]) == ("0.0.0.0", 8080, "alone")
    assert given["token_file"] is not None, (
        "beyond loopback the service refuses to start without tokens"
    )
    assert lines("Containerfile", "WORKDIR") == lines("Containerfile", "VOLUME")
    assert not Path(given["store"]).is_absolute()
    assert "/readyz" in lines("Containerfile", "HEALTHCHECK")[0]
    (user,) = lines("Containerfile", "USER")
    assert user not in ("root", "0")


def test_the_container_is_built_from_what_is_there() -> None:
    for line in lines("Containerfile", "COPY"):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    ran = " ".join(lines("Containerfile", "RUN"))
    for folder, extras in re.findall(r"/source([/a-z]*)\[([a-z,]+)\]", ran):
        declared = (ROOT / folder.strip("/") / "pyproject.toml").read_text()
        assert all(
            re.search(rf"^{item} = \[", declared, re.MULTILINE)
            for item in extras.split(",")
        )
    assert "/source/service[" in ran


def test_the_fleet_has_one_store_that_is_healthy_before_its_learner_and_the_learner_before_its_deciders() -> (
    None
):
    services = compose()["services"]
    given = {
        name: options(service["command"])
        for name, service in services.items()
        if "command" in service
    }
    assert {name: value["role"] for name, value in given.items()} == {
        "learner": "learner",
        "standby": "learner",
        "decider": "decider",
    }
    assert len({item["store"] for item in given.values()}) == 1
    assert given["learner"]["store"].startswith(
        "postgresql://bandits@postgres/decisions"
    )
    assert "healthcheck" in services["postgres"]
    assert services["learner"]["depends_on"] == {
        "postgres": {"condition": "service_healthy"}
    }
    assert services["decider"]["depends_on"] == {
        "learner": {"condition": "service_healthy"}
    }
    known = {"tokens": "/run/secrets/tokens"}
    assert all(str(item["token_file"]) == known["tokens"] for item in given.values())
    assert set(compose()["secrets"]) == set(known)


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    return subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.system
def test_planted_figures_make_the_alerts_that_they_should_and_no_others(
    tmp_path: Path,
) -> None:
    for file in (DEPLOY / "alerts.yaml", Path(__file__).with_name("alerts.test.yaml")):
        shutil.copy(file, tmp_path)
    done = promtool("test", "rules", "alerts.test.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> list[str]:
    """What the panels of the dashboard ask Prometheus for, variables filled in."""
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return [
        re.sub(r"\$(model|route)", ".*", text.replace("$__rate_interval", "5m"))
        for text in asked
    ]


@pytest.mark.system
def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel_{place}", "expr": text}
        for place, text in enumerate(expressions())
    ]
    (tmp_path / "panels.yaml").write_text(
        json.dumps({"groups": [{"name": "panels", "rules": rules}]})
    )
    done = promtool("check", "rules", "panels.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_dashboard_and_alerts_ask_for_figures_that_the_service_shows(
    loops: TestClient,
) -> None:
    assert loops.post("/v1/decisions", json={"arms": ["a"]}).status_code == 200
    shown: set[str] = set()
    for _ in range(200):  # the view that metrics are made of follows the decisions
        shown = set(re.findall(r"^(\w+)", loops.get("/metrics").text, re.MULTILINE))
        if "invariant_bandits_decisions_total" in shown:
            break
        sleep(0.05)
    asked = " ".join([*expressions(), (DEPLOY / "alerts.yaml").read_text()])
    names = set(re.findall(r"\b(?:invariant_bandits|process)_\w+", asked))
    assert len(names) > 10
    assert names <= shown
    routes = set(re.findall(r'route="([\w.]+)"', loops.get("/metrics").text))
    assert "decisions.decide" in routes, "the alert about latency names this route"


def unit() -> str:
    return (DEPLOY / UNIT).read_text()


def test_the_unit_starts_the_service_where_it_may_write() -> None:
    (started,) = re.findall(r"^ExecStart=(.*)$", unit(), re.MULTILINE)
    program, *arguments = shlex.split(started)
    assert Path(program).name == "invariant-bandits"
    given = options(arguments)
    assert given["store"].startswith("%S/invariant-bandits/")
    assert "StateDirectory=invariant-bandits" in unit()
    assert str(given["token_file"]) == "%d/tokens"
    assert re.search(r"^LoadCredential=tokens:", unit(), re.MULTILINE)
    assert not re.search(r"^MemoryDenyWriteExecute", unit(), re.MULTILINE), (
        "compiled loops need such memory"
    )


@pytest.mark.system
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    here = Path(sys.executable).with_name("invariant-bandits")
    (tmp_path / UNIT).write_text(
        unit().replace("/opt/invariant-bandits/bin/invariant-bandits", str(here))
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "Failed to" in done.stderr and UNIT not in done.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr.strip()[:200]}")
    assert (done.returncode, done.stderr) == (0, "")

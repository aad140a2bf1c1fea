"""The files under deploy/ say what the command understands, and what systemd and compose can read."""

from __future__ import annotations

import ctypes.util
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
from invariant_bandits_service.commands import DecisionCommand
from local_client import TestClient
from served_models import running, serve

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
    of_deciders = {"invariant_bandits_state_age_seconds"}
    assert names - of_deciders <= shown
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
    assert str(given["token_file"]) == "/etc/invariant-bandits/tokens", (
        "a credential is a copy that no reload reads again"
    )
    assert "LoadCredential" not in unit()
    assert re.search(r"^ExecReload=.* -HUP \$MAINPID$", unit(), re.MULTILINE)
    assert not re.search(r"^MemoryDenyWriteExecute", unit(), re.MULTILINE), (
        "compiled loops need such memory"
    )


def system_call_sets() -> dict[str, list[str]]:
    """The names in each set of system calls of this machine's systemd; a set can hold other sets."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter"],
        capture_output=True,
        text=True,
        check=False,
    )
    sets: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            sets[line.strip()] = names = []
        elif line.strip() and not line.strip().startswith("#") and sets:
            names.append(line.strip())
    if "@system-service" not in sets:
        pytest.skip(f"systemd-analyze cannot work here: {done.stderr.strip()[:200]}")
    return sets


def allowed_calls() -> set[str]:
    """The system calls that the unit allows, line by line as systemd reads them."""
    sets = system_call_sets()

    def members(name: str) -> set[str]:
        if name not in sets:
            return {name}
        return set().union(*(members(part) for part in sets[name]))

    allowed: set[str] = set(members("@default"))
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit(), re.MULTILINE):
        is_denied = line.startswith("~")
        for name in line.removeprefix("~").split():
            allowed = allowed - members(name) if is_denied else allowed | members(name)
    return allowed


UNDER_FILTER = """
import ctypes, os, sys

library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
NOT_PERMITTED = 0x00050000 | 1
filter = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(NOT_PERMITTED)))
for name in sys.argv[1].split(","):
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        library.seccomp_rule_add(filter, ctypes.c_uint32(0x7FFF0000), number, 0)
if library.seccomp_load(filter):
    sys.exit("no filter can be set here")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Allows the system calls that the first argument names, and runs Python with the others."""


def run_under_filter(
    arguments: list[str], given: str
) -> subprocess.CompletedProcess[str]:
    if ctypes.util.find_library("seccomp") is None:
        pytest.skip("libseccomp is not installed")
    calls = ",".join(sorted(allowed_calls()))
    done = subprocess.run(
        [sys.executable, "-c", UNDER_FILTER, calls, *arguments],
        input=given,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if "no filter can be set here" in done.stderr:
        pytest.skip("a filter of system calls cannot be set here")
    return done


@pytest.mark.system
def test_background_programs_run_with_a_low_priority_under_the_filter_of_the_unit(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    with running(path) as engine:
        serve(engine)
        engine.call(DecisionCommand(context={"hour": 9}))
    module = "invariant_bandits_service.store.open_store"
    verified = run_under_filter(["-m", module], str(path))
    assert (verified.returncode, verified.stderr) == (0, "")
    order = {"store": str(path), "model": "default", "log": "", "seed": 1}
    module = "invariant_bandits_service.background"
    learned = run_under_filter(["-m", module], json.dumps(order))
    assert learned.returncode == 0, learned.stderr
    assert "decisions are settled" in learned.stdout
    program = "import os; os.nice(15); print(os.nice(0))"
    assert run_under_filter(["-c", program], "").stdout == "15\n"


@pytest.mark.system
def test_the_unit_leaves_little_to_an_intruder() -> None:
    system_call_sets()
    line = ["systemd-analyze", "security", "--offline=true", "--threshold=13"]
    done = subprocess.run(
        [*line, str(DEPLOY / UNIT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


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

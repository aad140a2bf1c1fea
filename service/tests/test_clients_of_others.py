"""Clients that others wrote, unchanged, against a service of its own process; what they drive is learned.

The planted world: three times of day, four actions; the one that belongs to the time pays with probability
0.8, the others with 0.1, so that uniform choices earn 0.275. A model that has learned earns 0.77 and misses
1.5 times as much as uniform in the last 60 of 300 rounds less than once in 10^6.
"""

from __future__ import annotations

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
KEY = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
FLAGS = ("flag", "switch")
TYPED_FLAGS = {
    "truth": ["true", "false"],
    "count": ["1", "2"],
    "share": ["0.5", "0.25"],
}
Choose = Callable[[str], tuple[str, Callable[[float], Any]]]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A service with a token, and flags; every client has one of its own."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "tokens").write_text(f"admin {TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    with service(folder, "--token-file", "tokens") as running:
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


def test_the_python_client_of_openfeature(started: Started) -> None:
    ofrep = pytest.importorskip("openfeature.contrib.provider.ofrep")
    api = pytest.importorskip("openfeature.api")
    contexts = pytest.importorskip("openfeature.evaluation_context")
    api.set_provider_and_wait(
        ofrep.OFREPProvider(
            started.url, headers_factory=lambda: {"Authorization": KEY["Authorization"]}
        )
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
            "POST", "/v1/rewards", body | {"value": value}, KEY
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
    """The folder with the client for node, as `make test` installs it."""
    folder = Path(__file__).parents[2] / ".venv" / "node"
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not (folder / "node_modules" / "@openfeature" / "ofrep-provider").is_dir():
        pytest.skip("the client for node is not installed; `make clients` does so")
    return folder


def test_the_client_for_node(started: Started, installed: Path) -> None:
    script = Path(__file__).parent / "node_clients" / "world.cjs"
    command = ["node", str(script), str(installed), started.url, TOKEN, "switch"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout)["earned"] >= 1.5 * UNIFORM
    assert started.ask("GET", "/v1/models/switch", None, KEY)[1]["rounds"] >= ROUNDS

"""The demonstration: its shop breaks and the alarm rings; as a command it starts, visits and
ends in order.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import invariant_bandits as ib
from browsers import until
from invariant_bandits.simulation.sample_logs import (
    BASELINE,
    FASHION,
    FEATURES,
    NOISE,
    Shop,
)
from invariant_bandits_service.cli.demonstration import DemonstrationPlan


@pytest.mark.parametrize("seed", range(4))
def test_the_alarm_rings_after_the_break_and_not_before(seed: int) -> None:
    """In 40 of 40 shops it rang within 600 visits of the break, and never before it
    (`benchmarks/demonstration.py`).
    """
    shop, break_after = Shop(seed), DemonstrationPlan.break_after
    model = ib.fit_logs(shop.log(), windows=10)
    assert model.decomposition.split_.residual.shape[1] == len(FASHION)
    for visit in range(2 * break_after):
        if visit == break_after:
            assert not model.policy.alarm
            shop.break_invariance()
        products = shop.visit()
        features = model.features(
            {name: [product[name] for product in products] for name in FEATURES}
        )
        action = model.policy.select(features)
        reward = shop.brings(products[action]) - model.baseline
        model.policy.update(features[action], reward, offered=features, action=action)
    assert model.policy.alarm


def test_what_a_visit_brings_is_what_was_planted() -> None:
    shop = Shop(3)
    products = shop.visit()
    found = np.mean([shop.brings(products[0]) for _ in range(2_000)])
    expected = BASELINE + shop.worth @ [products[0][name] for name in FEATURES]
    assert abs(found - expected) < 5.0 * NOISE / np.sqrt(2_000)


@pytest.mark.system
def test_the_command_is_alive_within_seconds_and_ends_in_order(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"}
    command = [
        sys.executable,
        "-c",
        "from invariant_bandits.cli import main; main()",
        "demo",
        "--rate",
        "40",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=tmp_path,
    ) as process:
        try:
            with httpx.Client(base_url=address_of(process)) as client:
                assert "<title>" in client.get("/").text
                until(lambda: decisions(client.get("/v1/overview").json()) >= 20)
                assert set(client.get("/v1/overview").json()["models"]) == {
                    "shop",
                    "banners",
                }
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    assert (
        list(tmp_path.iterdir()) == []
    )  # the store was for the time of the demonstration only


def address_of(process: subprocess.Popen[str]) -> str:
    """What the command says where it listens."""
    assert process.stdout is not None
    lines: list[str] = []
    while not (found := re.search(r"http://127\.0\.0\.1:\d+", "".join(lines))):
        line = process.stdout.readline()
        assert line, "".join(lines)
        lines.append(line)
    return found.group()


def decisions(overview: dict[str, Any]) -> int:
    """Decisions that were seen so far; none before anything was looked at."""
    return (
        0
        if overview["model"] is None
        else int(overview["model"]["counts"]["decisions"])
    )

"""The examples of the service's page of the documentation run as they stand, but for the address."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from browsers import free_port, listening
from invariant_bandits.service.serve import ServiceSettings, open_service

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "service.md"


@pytest.mark.system
def test_the_example_of_the_client_runs(tmp_path: Path, capsys: Any) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    service = open_service(ServiceSettings(store=str(tmp_path / "d.db")))
    with listening(service, free_port()) as url:
        names: dict[str, Any] = {}
        exec(example.replace("http://127.0.0.1:8080", url), names)
        assert names["status"] == "learned"
        assert names["beliefs"]["counts"]["learned"] == 4
        assert names["decision"].action in capsys.readouterr().out


SECTIONS = (
    *("Ask, then report", "Look up and explain decisions", "Holdout"),
    *("Models over HTTP", "Uploading a version", "Decisions that can be evaluated later"),
)


@pytest.mark.system
def test_the_examples_with_curl_run(tmp_path: Path, fitted_file: Path) -> None:
    """In the order of SECTIONS, one service for all of them."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shutil.copy(fitted_file, tmp_path / "shop.model")
    rows = [f"{n % 7 - 3},arm_{n % 3},{int(n % 3 == 1)}" for n in range(600)]
    (tmp_path / "clicks.csv").write_text("\n".join(["age,arm,reward", *rows]))
    parts = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    lines = [line for name in SECTIONS for line in parts[name].splitlines() if line.startswith("curl ")]
    assert len(lines) >= 15
    service = open_service(ServiceSettings(store=str(tmp_path / "d.db"), models={"shop": fitted_file}))
    with listening(service, free_port()) as url:
        subprocess.run(
            [
                "curl",
                "-s",
                f"{url}/v1/models",
                "-d",
                '{"model": "default"}',
            ],
            check=True,
        )
        for line in lines:
            command = line.replace("localhost:8080", url.removeprefix("http://"))
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
            )
            answer = json.loads(done.stdout)
            assert "error" not in answer, (line, answer)

"""The example of the service's page of the documentation runs as it stands, but for the address."""

from __future__ import annotations

import re
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

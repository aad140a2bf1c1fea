"""A service as its users have it: a process of its own, asked over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that a service may take to start or to end on a busy machine."""


class Started:
    """A running service.

    Parameters
    ----------
    process : Popen
    url : str
    """

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process, self.url = process, url

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON of one request."""
        data = (
            None
            if body is None
            else body
            if isinstance(body, bytes)
            else json.dumps(body).encode()
        )
        request = urllib.request.Request(
            f"{self.url}{path}", data, headers or {}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                content, status = response.read(), response.status
        except urllib.error.HTTPError as error:
            content, status = error.read(), error.code
        try:
            return status, json.loads(content) if content else None
        except ValueError:
            return status, content.decode()

    def end(self, how: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


SERVE = (
    sys.executable,
    "-c",
    "from invariant_bandits.cli import main; main()",
    "serve",
)


def start(
    folder: Path,
    *arguments: str,
    store: str = "decisions.db",
    command: Sequence[str] = SERVE,
) -> Started:
    """Start a service in a folder and wait until it is ready; RuntimeError with what it said if it ends
    before.
    """
    port = free_port()
    line = [*command, *arguments, "--store", store, "--port", str(port)]
    said = folder / f"service-{port}.txt"
    with said.open("wb") as out:
        process = subprocess.Popen(
            line, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env={**os.environ}
        )
    started, end = (
        Started(process, f"http://127.0.0.1:{port}"),
        time.monotonic() + PATIENCE,
    )
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"exit code {process.returncode}: {said.read_text()}")
        try:
            if started.ask("GET", "/readyz")[0] == 200:
                return started
        except OSError:
            time.sleep(0.05)
    process.kill()
    raise RuntimeError(f"it did not start: {said.read_text()}")


@contextmanager
def service(
    folder: Path,
    *arguments: str,
    store: str = "decisions.db",
    command: Sequence[str] = SERVE,
) -> Iterator[Started]:
    """A service that is ended afterwards, if it still runs."""
    started = start(folder, *arguments, store=store, command=command)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.end()

"""A real service in a process of its own, and clients that remember what was acknowledged."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from invariant_bandits.cli import main; main()"]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """A service on a store; killed or stopped at will.

    Parameters
    ----------
    store : str or Path
        File or address.
    environment : mapping
        Added to that of the process.
    """

    def __init__(
        self,
        store: str | Path,
        *,
        port: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.store, self.port = str(store), port or free_port()
        self.environment = {
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",
            **(environment or {}),
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, wait: bool = True, preexec: Any = None) -> float:
        """Seconds until it is ready; RuntimeError with what it said if it ends instead."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--store", self.store, "--port", str(self.port)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=preexec,
        )
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        while wait and not self.is_ready():
            if self.process.poll() is not None:
                self._listener.join()
                raise RuntimeError(
                    f"exit {self.process.returncode}: {' '.join(self._said)}"
                )
            if time.perf_counter() - began > 120:
                raise RuntimeError("not ready after two minutes")
            time.sleep(0.01)
        return time.perf_counter() - began

    def _listen(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._said = [*self._said[-20:], line.strip()]

    def is_ready(self) -> bool:
        """Whether it takes decisions."""
        try:
            return call(self.port, "GET", "/readyz", timeout=5.0)[0] == 200
        except OSError:
            return False

    def wait_for_load(self) -> None:
        """Wait until clients, which have to start, too, are answered."""
        while not call(self.port, "GET", "/v1/model")[1].get("rounds"):
            time.sleep(0.02)

    def kill(self) -> None:
        """As a power cut would, for the process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._listener.join()

    def stop(self) -> int:
        """End it in order; its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(60)
        self._listener.join()
        return code


def call(
    port: int, method: str, path: str, body: Any = None, *, timeout: float = 30.0
) -> tuple[int, Any]:
    """Status and answer of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        return ask(connection, method, path, body)
    finally:
        connection.close()


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
) -> tuple[int, Any]:
    """Status and answer of one request."""
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from None
    return answer.status, json.loads(content) if content[
        :1
    ] in b"{[" else content.decode()


@dataclass
class Acknowledged:
    """What a client was answered: decisions and rewards by id, and how often it was turned away."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    retries: int = 0
    unavailable: int = 0


def client(port: int, number: int, until: Any, answers: Any) -> None:
    """Ask for decisions and reward them until an event is set; what fails is tried again under the same
    id.
    """
    rng, acknowledged, connection = random.Random(number), Acknowledged(), None
    count = 0
    while not until.is_set():
        id, context = (
            f"c{number}-{count}",
            {"hour": str(rng.randrange(3)), "age": rng.random()},
        )
        value = float(rng.random() < 0.5)
        calls = [
            ("/v1/decisions", {"id": id, "context": context, "arms": ["a", "b", "c"]})
        ]
        calls.append(("/v1/rewards", {"id": id, "value": value}))
        while calls and not until.is_set():
            try:
                connection = connection or http.client.HTTPConnection(
                    "127.0.0.1", port, timeout=10.0
                )
                status, answer = ask(connection, "POST", *calls[0])
            except OSError:
                if connection is not None:
                    connection.close()
                acknowledged.retries, connection = acknowledged.retries + 1, None
                time.sleep(0.02)
                continue
            if status == 503:
                acknowledged.unavailable += 1
                time.sleep(0.05)
                continue
            if status != 200:
                raise RuntimeError(f"{status}: {answer}")
            if calls.pop(0)[0] == "/v1/decisions":
                acknowledged.decisions[id] = answer
            else:
                acknowledged.rewards[id] = value
        count += 1
    if connection is not None:
        connection.close()
    answers.put(acknowledged)


def check_all_kept(
    store_address: str, acknowledged: list[Acknowledged]
) -> dict[str, Any]:
    """Compare a store that no process writes to with what clients were answered.

    Its state must be that of its replay.
    """
    from invariant_bandits_service.events import decision_key, decode_event
    from invariant_bandits_service.replay import replay_all, restore
    from invariant_bandits_service.state import record_of
    from invariant_bandits_service.store.open_store import open_store, verify

    store = open_store(store_address, check=verify)
    lost, doubled = 0, 0
    try:
        for client in acknowledged:
            for id, answer in client.decisions.items():
                record = record_of(
                    decode_event(row.event)
                    for row in store.of_key(decision_key(id, "default"))
                )
                decided = None if record is None else record.decided
                if (
                    decided is None
                    or decided.labels[decided.index] != answer["action"]
                    or decided.version != answer["version"]
                ):
                    lost += 1
                elif id in client.rewards:
                    lost += client.rewards[id] not in record.joined()
                    doubled += len(record.joined()) > 1
        same = restore(store).hashes() == replay_all(store).hashes()
        seq = store.head().seq
    finally:
        store.close()
    return {
        "decisions": sum(len(client.decisions) for client in acknowledged),
        "rewards": sum(len(client.rewards) for client in acknowledged),
        "retries": sum(client.retries for client in acknowledged),
        "unavailable": sum(client.unavailable for client in acknowledged),
        "events": seq,
        "lost": lost,
        "doubled": doubled,
        "state_is_replay": same,
    }

"""Durable decisions and rewards per second, their latency and processor time, against bare syncs.

The clients are raw sockets in processes of their own on the same machine; the service is the one that users
start. Parts take turns within one run, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 10
FEATURES = 20
TOGETHER = 32
"""Offered actions, their features, and decisions in a batch."""
SETTLED = 4_000
"""Decisions per second of load that every client has at hand to be rewarded."""
GOALS = {
    "rows": ("ten rows of 20 features", 4_000),
    "labels": ("ten labelled arms", 4_000),
    "rows together": (f"ten rows, in batches of {TOGETHER}", 15_000),
    "labels together": (f"ten labelled arms, in batches of {TOGETHER}", 15_000),
    "rewards": ("rewards, one each; processor time with their decisions", 5_000),
}
"""What is asked for, and how many decisions or rewards per second are the goal on two idle cores."""


def question(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ten rows of twenty features, or a context of one number and ten labelled arms (21 features)."""
    if kind == "rows":
        return {
            "arms": rng.normal(size=(ROWS, FEATURES)).round(4).tolist(),
            "model": "rows",
        }
    return {"context": {"age": round(float(rng.normal()), 4)}, "model": "labels"}


def requests(port: int, kind: str, seconds: float) -> Iterator[bytes]:
    """Requests of a kind, without end; rewards each for another decision."""
    rng, name = np.random.default_rng(os.getpid()), kind.partition(" ")[0]
    if kind == "rewards":
        return (
            request("/v1/rewards", {"id": id, "value": 1.0})
            for id in decided(port, int(SETTLED * seconds))
        )
    many = [question(name, rng) for _ in range(64)]
    if kind == name:
        return itertools.cycle([request("/v1/decisions", body) for body in many])
    batches = [{"decisions": many[:TOGETHER]}, {"decisions": many[TOGETHER:]}]
    return itertools.cycle([request("/v1/decisions", body) for body in batches])


def decided(port: int, count: int) -> list[str]:
    """Ids of decisions that were made for it."""
    connection, ids = http.client.HTTPConnection("127.0.0.1", port), list[str]()
    asked = {"decisions": [question("labels", np.random.default_rng(0))] * 500}
    while len(ids) < count:
        connection.request("POST", "/v1/decisions", json.dumps(asked))
        ids += [
            decision["id"]
            for decision in json.loads(connection.getresponse().read())["decisions"]
        ]
    return ids


def request(path: str, body: Any) -> bytes:
    """One request as it is sent."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    )
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


# -- clients --


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, requests: Iterator[bytes], times: list[float]) -> None:
        self.requests = requests
        self.times = times
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        """The first request."""
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """The next request."""
        self.began = time.perf_counter()
        self.transport.write(next(self.requests, b""))

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self.received += data
        head, gap, rest = self.received.partition(b"\r\n\r\n")
        if not gap:
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(rest) < length:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self.received.decode())
        self.received = b""
        self.times.append(time.perf_counter() - self.began)
        self.ask()


def ask_for(
    port: int, connections: int, seconds: float, kind: str, answers: Any
) -> None:
    """Ask over so many connections for so long; tell how long each answer took, and for how long it asked."""
    times, bodies = list[float](), requests(port, kind, seconds)

    async def play() -> float:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = [
            await loop.create_connection(
                lambda: Client(bodies, times), "127.0.0.1", port
            )
            for _ in range(connections)
        ]
        await asyncio.sleep(seconds)
        for transport, _ in made:
            transport.abort()
        return time.perf_counter() - began

    try:
        import uvloop

        answers.put((times, uvloop.run(play())))
    except ImportError:
        answers.put((times, asyncio.run(play())))


def load(
    server: Running, connections: int, seconds: float, kind: str, processes: int = 2
) -> dict[str, float]:
    """Decisions or rewards per second, quantiles of the latency of an answer, and processor time of each."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    parts = [
        connections // processes + (n < connections % processes)
        for n in range(processes)
    ]
    processes = [
        spawn.Process(target=ask_for, args=(server.port, part, seconds, kind, answers))
        for part in parts
    ]
    before = server.processor_seconds()
    for process in processes:
        process.start()
    figures = [answers.get() for _ in processes]
    spent = server.processor_seconds() - before
    for process in processes:
        process.join()
    times = sorted(time for times, _ in figures for time in times)
    together = TOGETHER if kind.endswith("together") else 1
    middle, late = times[len(times) // 2], times[int(0.99 * len(times))]
    return {
        "per_second": sum(together * len(times) / length for times, length in figures),
        "p50_ms": 1e3 * middle,
        "p99_ms": 1e3 * late,
        "processor_us": 1e6 * spent / len(times) / together,
    }


# -- the service, in a process of its own --


def serve(path: str, port: int) -> None:
    """Serve two models until killed."""
    from invariant_bandits_service import commands
    from invariant_bandits_service.learners import OpenLearner
    from invariant_bandits_service.serve import ServiceSettings, open_service, run

    settings = ServiceSettings(store=path, port=port)
    service = open_service(settings)
    arms = {f"arm {k}": True for k in range(ROWS)}
    for name, learner in (
        ("rows", fitted_rows()),
        ("labels", OpenLearner(arms, seed=7)),
    ):
        service.engine.call(commands.add_version(name, learner, "given"), alone=True)
    run(service, settings)


def fitted_rows() -> Any:
    """A model of twenty features, fitted to a log."""
    import pyarrow as pa

    import invariant_bandits as ib
    from invariant_bandits_service.learners import FittedLearner

    rng = np.random.default_rng(5)
    features = rng.normal(size=(8_000, FEATURES))
    rewards = features[:, 0] * 0.3 + rng.normal(size=8_000)
    table = pa.table(
        {**{f"x{j}": features[:, j] for j in range(FEATURES)}, "reward": rewards}
    )
    return FittedLearner(ib.fit_logs(table), 7)


class Running:
    """A service to measure."""

    def __init__(self, path: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process = spawn.Process(target=serve, args=(path, self.port))
        self.process.start()
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            if not self.process.is_alive():
                raise RuntimeError("the service has ended")
            time.sleep(0.05)

    def processor_seconds(self) -> float:
        """Of the whole process so far."""
        fields = (
            Path(f"/proc/{self.process.pid}/stat")
            .read_text()
            .rpartition(")")[2]
            .split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it."""
        self.process.kill()
        self.process.join()


def sync_milliseconds(folder: str, count: int = 200) -> float:
    """Median time of appending a page to a file and syncing it."""
    times = []
    with open(Path(folder) / "synced", "ab", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(bytes(4_120))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def measured(
    folder: str, seconds: float, rounds: int, connections: int
) -> dict[str, Any]:
    """All figures; the medians of several rounds whose parts take turns."""
    server = Running(str(Path(folder) / "d.db"))
    many: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    syncs = []
    try:
        for kind in GOALS:
            load(server, 4, 1.0, kind, 1)  # warm
        for _ in range(rounds):
            for kind in GOALS:
                for name, value in load(server, connections, seconds, kind).items():
                    many[kind][name].append(value)
            syncs.append(sync_milliseconds(folder))
            for name, value in load(server, 1, seconds, "rows", 1).items():
                many["one client"][name].append(value)
    finally:
        server.kill()
    medians = {
        kind: {name: statistics.median(values) for name, values in figures.items()}
        for kind, figures in many.items()
    }
    about = {"processors": os.cpu_count(), "load_average": os.getloadavg()[0]}
    return {**about, "sync_ms": statistics.median(syncs), **medians}


def table(results: dict[str, Any]) -> str:
    """The figures and their goals, as a table in Markdown."""
    lines = [
        "| | per second | goal | median, ms | p99, ms | processor time each, µs |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, (words, goal) in GOALS.items():
        figures = results[kind]
        numbers = (
            figures["per_second"],
            f"{goal:,}",
            figures["p50_ms"],
            figures["p99_ms"],
        )
        row = [
            words,
            f"{numbers[0]:,.0f}",
            numbers[1],
            f"{numbers[2]:.1f}",
            f"{numbers[3]:.1f}",
        ]
        row.append(f"{figures['processor_us']:.0f}")
        lines.append(f"| {' | '.join(row)} |")
    alone, sync = results["one client"], results["sync_ms"]
    latency = f"{alone['p50_ms']:.2f} | {alone['p99_ms']:.2f} (goal {3 * sync:.2f}: three syncs)"
    lines.append(
        f"| one client | {alone['per_second']:,.0f} | | {latency} | {alone['processor_us']:.0f} |"
    )
    about = f"{results['processors']} processors, load average {results['load_average']:.1f}"
    return "\n".join(
        [*lines, "", f"A page written and synced: {sync:.2f} ms; {about}."]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        results = measured(folder, options.seconds, options.rounds, options.connections)
    print(json.dumps(results) if options.json else table(results))
    sys.exit()

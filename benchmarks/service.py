"""Durable decisions per second and their latency, against the same service without a store and against bare
syncs.

The clients are raw sockets in processes of their own on the same machine. Every ratio is taken within one
run, its parts in turn, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

ROWS, FEATURES = 10, 20
KINDS = ("rows", "labels")


def body(kind: str, rng: np.random.Generator) -> bytes:
    """One request: ten rows of twenty features, or a context of one number and ten labelled arms (21
    features).
    """
    if kind == "rows":
        arms: list[Any] = rng.normal(size=(ROWS, FEATURES)).round(4).tolist()
        return json.dumps({"arms": arms, "model": "rows"}).encode()
    return json.dumps({"context": {"age": round(float(rng.normal()), 4)}, "model": "labels"}).encode()


def request(content: bytes) -> bytes:
    head = "POST /v1/decisions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(content)}"
    return head.encode() + b"\r\n\r\n" + content


# -- clients --


class Client(asyncio.Protocol):
    """One connection that asks again as soon as it was answered."""

    def __init__(self, requests: list[bytes], times: list[float]) -> None:
        self.requests, self.times, self.number, self.got = requests, times, 0, b""

    def connection_made(self, transport: Any) -> None:
        """The first request."""
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """The next request."""
        self.began = time.perf_counter()
        self.number += 1
        self.transport.write(self.requests[self.number % len(self.requests)])

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self.got += data
        head, gap, rest = self.got.partition(b"\r\n\r\n")
        if not gap:
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(rest) < length:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self.got.decode())
        self.got = b""
        self.times.append(time.perf_counter() - self.began)
        self.ask()


def ask_for(port: int, connections: int, seconds: float, kind: str, told: Any) -> None:
    """Ask over so many connections for so long; tell how long each answer took."""
    rng, times = np.random.default_rng(os.getpid()), list[float]()
    requests = [request(body(kind, rng)) for _ in range(64)]

    async def play() -> None:
        loop = asyncio.get_running_loop()
        made = [
            await loop.create_connection(lambda: Client(requests, times), "127.0.0.1", port)
            for _ in range(connections)
        ]
        await asyncio.sleep(seconds)
        for transport, _ in made:
            transport.abort()

    try:
        import uvloop

        uvloop.run(play())
    except ImportError:
        asyncio.run(play())
    told.put(times)


def load(port: int, connections: int, seconds: float, kind: str, processes: int) -> dict[str, float]:
    """Answers per second, and quantiles of their latency in milliseconds."""
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    parts = [connections // processes + (n < connections % processes) for n in range(processes)]
    those = [spawn.Process(target=ask_for, args=(port, part, seconds, kind, told)) for part in parts]
    for one in those:
        one.start()
    times = sorted(time for _ in those for time in told.get())
    for one in those:
        one.join()
    middle, late = times[len(times) // 2], times[int(0.99 * len(times))]
    return {"per_second": len(times) / seconds, "p50_ms": 1e3 * middle, "p99_ms": 1e3 * late}


# -- the service, in a process of its own --


def forgetful() -> Any:
    """A store that keeps nothing: what the same application would do without one."""
    from invariant_bandits.service.store.sql import START, Head, Row

    class Nothing:
        seed, seq, shared = 7, 0, False
        contents: dict[str, bytes] = {}  # noqa: RUF012 - one of a kind

        def head(self) -> Head:
            return Head(self.seq, START)

        start = head

        def append(self, events: Any, contents: Any = (), seen: int | None = None) -> list[Row]:
            import hashlib

            self.contents |= {hashlib.sha256(content).hexdigest(): content for content in contents}
            first, self.seq = self.seq, self.seq + len(events)
            return [Row(first, first, None, b"")] * len(events)

        def rows(self, first: int = 0, last: int | None = None) -> Any:
            return iter(())

        def of_key(self, key: str) -> list[Row]:
            return []

        def keys_from(self, prefix: str) -> set[str]:
            return set()

        def content(self, digest: str) -> bytes:
            return self.contents[digest]

        def save_snapshot(self, seq: int, body: bytes) -> None:
            pass

        def latest_snapshot(self) -> None:
            return None

        base = reopen = close = abandon = latest_snapshot

    return Nothing()


def serve(path: str | None, ready: Any, computing: Any) -> None:
    """Serve two models until killed; count the seconds that deciding takes."""
    import uvicorn

    from invariant_bandits.service import commands
    from invariant_bandits.service.engine import Engine
    from invariant_bandits.service.learners import FittedLearner, OpenLearner
    from invariant_bandits.service.operations import Service
    from invariant_bandits.service.serve import application
    from invariant_bandits.service.store.open_store import open_store

    engine = Engine(forgetful() if path is None else open_store(path))
    for place, name in enumerate(("decide", "round_of")):
        time_calls((FittedLearner, OpenLearner), name, computing, place)
    engine.start()
    arms = {f"arm {k}": True for k in range(ROWS)}
    for name, learner in (("rows", fitted_rows()), ("labels", OpenLearner(arms, seed=7))):
        engine.call(commands.add_version(name, learner, "given"), alone=True)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        application(Service(engine)), log_level="warning", access_log=False, server_header=False
    )
    server = uvicorn.Server(config)

    def tell() -> None:
        while not server.started:
            time.sleep(0.01)
        ready.put(listening.getsockname()[1])

    threading.Thread(target=tell, daemon=True).start()
    server.run(sockets=[listening])


def fitted_rows() -> Any:
    """A model of twenty features, fitted to a log."""
    import pyarrow as pa

    import invariant_bandits as ib
    from invariant_bandits.service.learners import FittedLearner

    rng = np.random.default_rng(5)
    features = rng.normal(size=(8_000, FEATURES))
    rewards = features[:, 0] * 0.3 + rng.normal(size=8_000)
    table = pa.table({**{f"x{j}": features[:, j] for j in range(FEATURES)}, "reward": rewards})
    return FittedLearner(ib.fit_logs(table), 7)


def time_calls(kinds: Any, name: str, computing: Any, place: int) -> None:
    """Count the seconds of processor time that a method takes."""
    for kind in kinds:
        plain = getattr(kind, name)

        def timed(*given: Any, plain: Any = plain) -> Any:
            began = time.thread_time()
            try:
                return plain(*given)
            finally:
                computing[place] += time.thread_time() - began

        setattr(kind, name, timed)


class Running:
    """A service to measure."""

    def __init__(self, path: str | None) -> None:
        spawn = multiprocessing.get_context("spawn")
        ready, self.computing = spawn.Queue(), spawn.Array("d", 2)
        self.process = spawn.Process(target=serve, args=(path, ready, self.computing))
        self.process.start()
        self.port = ready.get(timeout=300)

    def processor_seconds(self) -> float:
        """Of the whole process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
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


def measured(folder: str, seconds: float, rounds: int, connections: int) -> dict[str, Any]:
    """All figures; the medians of several rounds whose parts take turns."""
    durable, without = Running(str(Path(folder) / "d.db")), Running(None)
    told: dict[str, Any] = {"load_average": os.getloadavg()[0], "processors": os.cpu_count()}
    try:
        for kind in KINDS:
            for server in (durable, without):
                load(server.port, 4, 1.0, kind, 1)  # warm
            many: dict[str, list[Any]] = defaultdict(list)
            for _ in range(rounds):
                before, computed = durable.processor_seconds(), list(durable.computing)
                many["durable"].append(load(durable.port, connections, seconds, kind, 2))
                spent = durable.processor_seconds() - before
                many["spent"].append(1e6 * spent / seconds / many["durable"][-1]["per_second"])
                many["deciding"].append((durable.computing[0] - computed[0]) / spent)
                many["reading"].append((durable.computing[1] - computed[1]) / spent)
                before = without.processor_seconds()
                many["without"].append(load(without.port, connections, seconds, kind, 2))
                spent = without.processor_seconds() - before
                many["spent_without"].append(1e6 * spent / seconds / many["without"][-1]["per_second"])
                many["sync_ms"].append(sync_milliseconds(folder))
                computed = list(durable.computing)
                many["alone"].append(load(durable.port, 1, seconds, kind, 1))
                many["deciding_alone"].append((durable.computing[0] - computed[0]) / seconds)
            told[kind] = summary(many)
    finally:
        durable.kill()
        without.kill()
    return told


def summary(many: dict[str, list[Any]]) -> dict[str, float]:
    """Medians over rounds."""
    pairs = list(zip(many["durable"], many["without"], strict=True))
    extra = [item["p50_ms"] - sync for item, sync in zip(many["alone"], many["sync_ms"], strict=True)]
    return {
        "durable_per_second": statistics.median(item["per_second"] for item in many["durable"]),
        "durable_p50_ms": statistics.median(item["p50_ms"] for item in many["durable"]),
        "durable_p99_ms": statistics.median(item["p99_ms"] for item in many["durable"]),
        "without_store_per_second": statistics.median(item["per_second"] for item in many["without"]),
        "share_of_without": statistics.median(
            item["per_second"] / other["per_second"] for item, other in pairs
        ),
        "alone_p50_ms": statistics.median(item["p50_ms"] for item in many["alone"]),
        "sync_ms": statistics.median(many["sync_ms"]),
        "alone_beyond_sync_ms": statistics.median(extra),
        "processor_us_per_request": statistics.median(many["spent"]),
        "processor_us_without_store": statistics.median(many["spent_without"]),
        "deciding_share_of_processor": statistics.median(many["deciding"]),
        "reading_share_of_processor": statistics.median(many["reading"]),
        "deciding_share_of_request_alone": statistics.median(many["deciding_alone"]),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        results = measured(folder, given.seconds, given.rounds, given.connections)
    if given.json:
        print(json.dumps(results))
        sys.exit()
    print(f"load average {results['load_average']:.1f} on {results['processors']} processors")
    for kind in KINDS:
        for name, value in results[kind].items():
            print(f"{kind:>8} {name:<28} {value:10.3f}")

"""What one log takes and what each part of a fleet costs: SQLite and PostgreSQL with the same client in one
run.

    python benchmarks/fleet.py [--seconds 10] [--connections 32] [--json]

Starts a PostgreSQL server of its own (as the tests do), services as processes, and one client process with so
many connections that ask for decisions among 10 actions with 20 features each. Everything shares the
processors of one machine, client and database included, so rates are what the machine does, and processor
time per decision is what a fleet is worked out from.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "service" / "tests" / "support"))

from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided, decode_event
from invariant_bandits_service.state import State
from invariant_bandits_service.store.open_store import open_store, verify
from postgres_server import PostgresServer
from started_service import Started, start

ACTIONS, FEATURES = 10, 20


def bodies(count: int = 200) -> list[bytes]:
    rng = np.random.default_rng(0)
    names = [f"x{place}" for place in range(FEATURES)]
    rounds = rng.normal(size=(count, ACTIONS, FEATURES)).round(3).tolist()
    return [
        json.dumps(
            {"arms": [dict(zip(names, row, strict=True)) for row in item]}
        ).encode()
        for item in rounds
    ]


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return await reader.readexactly(length)


async def load(
    urls: list[str], connections: int, seconds: float, rewards: bool
) -> dict[str, float]:
    """Ask on all connections, spread over the services; how often, and how long one answer took."""
    asked, took = bodies(), []
    end = time.perf_counter() + seconds

    async def ask_again(number: int) -> None:
        place = urlsplit(urls[number % len(urls)])
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        count = number
        while time.perf_counter() < end:
            began, count = time.perf_counter(), count + 1
            answer = await ask(
                reader, writer, "/v1/decisions", asked[count % len(asked)]
            )
            took.append(time.perf_counter() - began)
            if rewards:
                await ask(
                    reader,
                    writer,
                    "/v1/rewards",
                    b'{"id": "%s", "value": 1.0}' % json.loads(answer)["id"].encode(),
                )
        writer.close()

    await asyncio.gather(*(ask_again(number) for number in range(connections)))
    return {
        "per_second": len(took) / seconds,
        "p50_ms": 1e3 * float(np.median(took)),
        "decisions": len(took),
    }


def client(pipe: Any, *arguments: Any) -> None:
    pipe.send(asyncio.run(load(*arguments)))


def measured(
    services: list[Started], connections: int, seconds: float, rewards: bool = False
) -> dict[str, float]:
    urls = [service.url for service in services]
    asyncio.run(load(urls, 4, 1.0, rewards))  # compiled and warm
    before = [processor_time(service.process.pid) for service in services]
    mine, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=client, args=(theirs, urls, connections, seconds, rewards)
    )
    process.start()
    figures: dict[str, float] = mine.recv()
    process.join()
    spent = sum(processor_time(service.process.pid) for service in services) - sum(
        before
    )
    figures["processor_ms_per_decision"] = 1e3 * spent / figures["decisions"]
    return figures


def processor_time(pid: int) -> float:
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fsync_ms(folder: Path) -> float:
    """Median of writing 4 kB and waiting for the disk."""
    took = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return 1e3 * float(np.median(took))


def appending(address: str, body: bytes, batch: int, seconds: float, pipe: Any) -> None:
    store, count = open_store(address, learning=False), 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        store.append([(os.urandom(12).hex(), body)] * batch, seen=0, keys=["none"])
        count += batch
    store.close()
    pipe.send(count)


def one_log(
    server: PostgresServer, body: bytes, batch: int, writers: int, seconds: float
) -> dict[str, float]:
    """Events per second that writers together append to one log, in batches of one size, without a
    service.
    """
    import psycopg

    address = server.fresh()
    open_store(address).close()
    with psycopg.connect(server.address, autocommit=True) as connection:
        (before,) = connection.execute(
            "SELECT pg_current_wal_lsn() - '0/0'"
        ).fetchone() or (0,)
        pipes = [multiprocessing.get_context("spawn").Pipe() for _ in range(writers)]
        processes = [
            multiprocessing.get_context("spawn").Process(
                target=appending, args=(address, body, batch, seconds, theirs)
            )
            for _, theirs in pipes
        ]
        for process in processes:
            process.start()
        count = sum(mine.recv() for mine, _ in pipes)
        for process in processes:
            process.join()
        (after,) = connection.execute(
            "SELECT pg_current_wal_lsn() - '0/0'"
        ).fetchone() or (0,)
    return {
        "events_per_second": count / seconds,
        "log_bytes_per_event": float(after - before) / count,
    }


def following(address: str) -> dict[str, float]:
    """Events per second that a learner follows from the beginning, decisions and rewards as they are in
    the log.
    """
    store = open_store(address, writing=False)
    rows = list(store.rows())
    state, began = State(store), time.process_time()
    for row in rows:
        state.apply(decode_event(row.event))
    spent = time.process_time() - began
    store.close()
    return {"events_per_second": len(rows) / spent, "events": len(rows)}


def taking_over(address: str) -> dict[str, float]:
    """Seconds from the turn to write until a learner is ready, its whole log checked."""
    began = time.perf_counter()
    store = open_store(address)
    events = verify(store.path)
    checked = time.perf_counter() - began
    engine = Engine(store)
    engine.start()
    ready = time.perf_counter() - began
    engine.stop()
    return {"events": events, "checked_seconds": checked, "ready_seconds": ready}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}

    def note(name: str, figures: dict[str, float]) -> None:
        results[name] = figures
        if not options.json:
            print(
                f"{name}: "
                + ", ".join(f"{key} {value:,.4g}" for key, value in figures.items()),
                flush=True,
            )

    server = PostgresServer()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            note("fsync", {"median_ms": fsync_ms(folder)})
            for name, store in (
                ("sqlite", "decisions.db"),
                ("postgresql", server.fresh()),
            ):
                alone = start(folder, store=store)
                note(
                    f"{name}, one process",
                    measured([alone], options.connections, options.seconds),
                )
                note(
                    f"{name}, one process, one client",
                    measured([alone], 1, options.seconds / 2),
                )
                alone.end()
            for deciders in (1, 2):
                address = server.fresh()
                learner = start(folder, "--role", "learner", store=address)
                deciders_started = [
                    start(folder, "--role", "decider", store=address)
                    for _ in range(deciders)
                ]
                note(
                    f"learner and {deciders} decider(s)",
                    measured(deciders_started, options.connections, options.seconds),
                )
                note(
                    f"learner and {deciders} decider(s), rewarded",
                    measured(
                        deciders_started,
                        options.connections,
                        options.seconds,
                        rewards=True,
                    ),
                )
                time.sleep(2.0)
                for item in [*deciders_started, learner]:
                    item.end()
            note("learner follows", following(address))
            note("learner takes over", taking_over(address))
            store = open_store(address, writing=False)
            body = next(
                row.event
                for row in store.rows()
                if isinstance(decode_event(row.event), Decided)
            )
            store.close()
            for batch, writers in ((1, 1), (16, 2), (64, 2), (256, 2)):
                figures = one_log(server, body, batch, writers, options.seconds / 2)
                note(
                    f"one log, {writers} writer(s), batches of {batch}",
                    {**figures, "event_bytes": len(body)},
                )
        finally:
            server.remove()
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()

"""Cut the power at many moments of a loaded service: what was not synced is dropped, or survives in part.

A preloaded library records every write and sync of the store. For each moment the disk is rebuilt from what
was synced before it, the rest dropped or, sector by sector, kept by chance. The store must open, and hold
what was acknowledged.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import Server, ask
from invariant_bandits_service.events import decision_key
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.store.open_store import open_store, verify

HEAD = struct.Struct("<B3xIqQd")
WRITE, SYNC, TRUNCATE, UNLINK = 1, 2, 3, 4
SECTOR = 512


@dataclass
class File:
    """What of a file is on the disk, and what is only on its way."""

    synced: bytearray | None = None
    pending: list[tuple[int, int, bytes]] = field(default_factory=list)

    def sync(self) -> None:
        """All of it is on the disk."""
        self.synced = self.synced if self.synced is not None else bytearray()
        for op, offset, data in self.pending:
            change(self.synced, op, offset, data)
        self.pending.clear()

    def after_a_cut(self, rng: np.random.Generator | None) -> bytes | None:
        """What is there afterwards; of what was on its way nothing, or by chance some sectors."""
        if self.synced is None:
            return None
        content = bytearray(self.synced)
        for op, offset, data in self.pending if rng is not None else ():
            if op == TRUNCATE:
                continue
            for start in range(0, len(data), SECTOR):
                if rng.random() < 0.7:
                    change(content, WRITE, offset + start, data[start : start + SECTOR])
        return bytes(content)


def change(content: bytearray, op: int, offset: int, data: bytes) -> None:
    """Make a write or a truncation."""
    if op == TRUNCATE:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset + len(data) - len(content))))
    content[offset : offset + len(data)] = data


def records(path: Path) -> Iterator[tuple[float, int, str, int, bytes]]:
    """Time, operation, file, offset and data, in their order."""
    content, place = path.read_bytes(), 0
    while place + HEAD.size <= len(content):
        op, name_size, offset, size, when = HEAD.unpack_from(content, place)
        place += HEAD.size
        name = Path(content[place : place + name_size].decode()).name
        place += name_size
        data = content[place : place + size] if op == WRITE else b""
        place += len(data)
        yield when, op, name, offset, data


def play(
    port: int,
    number: int,
    until: threading.Event,
    answered: list[tuple[float, str, str]],
) -> None:
    """Decide and reward; note when each was acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
    count = 0
    while not until.is_set():
        id = f"c{number}-{count}"
        decision = {"id": id, "context": {"hour": str(count % 3)}, "arms": ["a", "b"]}
        for path, body in (
            ("/v1/decisions", decision),
            ("/v1/rewards", {"id": id, "value": 1.0}),
        ):
            status, _ = ask(connection, "POST", path, body)
            assert status == 200
            answered.append((time.clock_gettime(time.CLOCK_MONOTONIC), path, id))
        count += 1
    connection.close()


def record_load(
    folder: Path, seconds: float, clients: int
) -> list[tuple[float, str, str]]:
    """Load a service whose writes are recorded; what was acknowledged, and when."""
    library = folder / "record_writes.so"
    source = Path(__file__).with_name("record_writes.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True
    )
    (folder / "disk").mkdir()
    environment = {
        "LD_PRELOAD": str(library),
        "RECORD_FOLDER": str(folder / "disk"),
        "RECORD_TO": str(folder / "rec"),
    }
    server = Server(folder / "disk" / "d.db", environment=environment)
    server.start()
    until, answered = threading.Event(), list[tuple[float, str, str]]()
    threads = [
        threading.Thread(target=play, args=(server.port, n, until, answered))
        for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    until.set()
    for thread in threads:
        thread.join()
    server.kill()
    return sorted(answered)


def run(seconds: float, cuts: int, clients: int = 4, seed: int = 0) -> dict[str, Any]:
    """Record a load and cut the power at so many moments of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        answered = record_load(folder, seconds, clients)
        operations = list(records(folder / "rec"))
        outcome = cut_power(folder / "image", answered, operations, cuts, seed)
    return {
        "acknowledged": len(answered),
        "operations": len(operations),
        "syncs": sum(operation[1] == SYNC for operation in operations),
        **outcome,
    }


def cut_power(
    image: Path,
    answered: list[tuple[float, str, str]],
    operations: list[tuple[float, int, str, int, bytes]],
    cuts: int,
    seed: int = 0,
) -> dict[str, Any]:
    """Rebuild the disk at so many moments of a recorded load, each in two ways."""
    rng, files, lost, refused, checked = (
        np.random.default_rng(seed),
        dict[str, File](),
        0,
        list[str](),
        0,
    )
    begin = next(
        place
        for place, operation in enumerate(operations)
        if operation[0] >= answered[0][0]
    )
    moments = set(rng.integers(begin, len(operations), size=cuts).tolist())
    for place, (when, op, file, offset, data) in enumerate(operations):
        kept = files.setdefault(file, File())
        if op == SYNC:
            kept.sync()
        elif op == UNLINK:
            files.pop(file)
        else:
            kept.pending.append((op, offset, data))
        if place in moments:
            for chance in (None, rng):
                acknowledged = [item for item in answered if item[0] < when]
                missing, why = held(
                    image, files, chance, acknowledged, replay=checked % 10 == 0
                )
                lost += missing
                refused += [why] if why else []
                checked += 1
    return {"images": checked, "lost": lost, "refused": refused}


def held(
    image: Path,
    files: dict[str, File],
    rng: np.random.Generator | None,
    acknowledged: list[tuple[float, str, str]],
    *,
    replay: bool,
) -> tuple[int, str | None]:
    """How much of what was acknowledged an image lacks, and why it was refused, if it was."""
    shutil.rmtree(image, ignore_errors=True)
    image.mkdir()
    for name, file in files.items():
        content = file.after_a_cut(rng)
        if content is not None:
            (image / name).write_bytes(content)
    try:
        store = open_store(image / "d.db", check=verify)
    except Exception as error:
        return len(acknowledged), repr(error)
    try:
        kinds = {row.key: 0 for row in store.rows() if row.key}
        for row in store.rows():
            if row.key:
                kinds[row.key] += 1
        lacking = sum(
            kinds.get(decision_key(id, "default"), 0)
            < (1 if path == "/v1/decisions" else 3)
            for _, path, id in acknowledged
        )
        if replay and replay_all(store).hashes() != restore(store).hashes():
            return lacking, "the state is not the replay"
        return lacking, None
    finally:
        store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not shutil.which("gcc"):
        print("skipped: gcc is needed")
        sys.exit()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    results = run(options.seconds, options.cuts)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    sys.exit(bool(results["lost"] or results["refused"]))

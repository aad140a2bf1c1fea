"""Load a service for long: its memory stays flat once its caches are full, and the write-ahead log stays
bounded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import Server, check_all_kept, client

LARGEST_LOG = 64 << 20
"""Bytes of the write-ahead log, as the store bounds it."""
GROWTH = 1.05
"""How much more memory the last fifth may take than the third one."""


def resident(process: int) -> int:
    """Bytes in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1_024 * int(status.partition("VmRSS:")[2].split()[0])


def run(seconds: float = 600.0, clients: int = 3) -> dict[str, Any]:
    """Memory and the log, looked at a hundred times."""
    spawn = multiprocessing.get_context("spawn")
    memory: list[int] = []
    logs: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "d.db")
        server.start()
        until, answers = spawn.Event(), spawn.Queue()
        processes = [
            spawn.Process(target=client, args=(server.port, n, until, answers))
            for n in range(clients)
        ]
        for process in processes:
            process.start()
        for _ in range(100):
            time.sleep(seconds / 100)
            memory.append(resident(server.process.pid))
            log = Path(f"{server.store}-wal")
            logs.append(log.stat().st_size if log.exists() else 0)
        until.set()
        acknowledged = [answers.get() for _ in processes]
        for process in processes:
            process.join()
        code = server.stop()
        kept = check_all_kept(server.store, acknowledged)
    middle, last = statistics.median(memory[40:60]), statistics.median(memory[80:])
    return {
        "seconds": seconds,
        "exit": code,
        "memory_third_fifth": middle,
        "memory_last_fifth": last,
        "growth": last / middle,
        "largest_log": max(logs),
        **kept,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.seconds)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    wrong = (
        results["lost"]
        or results["doubled"]
        or not results["state_is_replay"]
        or results["exit"]
    )
    sys.exit(
        bool(
            wrong or results["growth"] > GROWTH or results["largest_log"] > LARGEST_LOG
        )
    )

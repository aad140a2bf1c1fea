"""Kill -9 a service under load, again and again: nothing acknowledged is lost or doubled, the state is
the replay.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import Server, check_all_kept, client


def run(
    rounds: int, clients: int = 3, store: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """So many lives of a service, each ended after 0.2 to 1.2 seconds of load."""
    rng, spawn = random.Random(seed), multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        server = Server(store or Path(folder) / "d.db")
        until, answers = spawn.Event(), spawn.Queue()
        starts = [server.start()]
        processes = [
            spawn.Process(target=client, args=(server.port, n, until, answers))
            for n in range(clients)
        ]
        for process in processes:
            process.start()
        server.wait_for_load()
        for _ in range(rounds):
            time.sleep(0.2 + rng.random())
            server.kill()
            starts.append(server.start())
        time.sleep(0.5)
        until.set()
        acknowledged = [answers.get() for _ in processes]
        for process in processes:
            process.join()
        server.kill()
        kept = check_all_kept(server.store, acknowledged)
    return {"rounds": rounds, "clients": clients, "longest_start": max(starts), **kept}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument(
        "--store", help="file or postgresql://…; without it, a fresh file"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.rounds, options.clients, options.store)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    sys.exit(
        bool(results["lost"] or results["doubled"] or not results["state_is_replay"])
    )

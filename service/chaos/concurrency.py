"""64 clients at once: the state they leave is that of the events one after the other; a second process is
refused.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness import Server, call, check_all_kept, client


def run(clients: int = 64, seconds: float = 5.0) -> dict[str, Any]:
    """Their load, a second process on the same store, and what is left."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "d.db")
        server.start()
        until, answers = threading.Event(), queue.Queue[Any]()
        threads = [
            threading.Thread(target=client, args=(server.port, n, until, answers))
            for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 2)
        try:
            Server(server.store).start()
            second = "started"
        except RuntimeError as error:
            second = str(error)
        time.sleep(seconds / 2)
        until.set()
        for thread in threads:
            thread.join()
        live = call(server.port, "GET", "/v1/model")[1]["state_hash"]
        code = server.stop()
        kept = check_all_kept(server.store, [answers.get() for _ in threads])
        left = final_hash(server.store)
    return {
        "clients": clients,
        "second_process": second,
        "exit": code,
        "state_is_live_state": left == live,
        **kept,
    }


def final_hash(store: str) -> str:
    """Of the model "default", from the events alone."""
    from invariant_bandits_service.replay import replay_all
    from invariant_bandits_service.store.open_store import open_store

    opened = open_store(store, writing=False)
    try:
        return replay_all(opened).hashes()["default"]
    finally:
        opened.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.clients, options.seconds)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    wrong = results["lost"] or results["doubled"] or not results["state_is_replay"]
    sys.exit(
        bool(
            wrong
            or not results["state_is_live_state"]
            or "in use" not in results["second_process"]
        )
    )

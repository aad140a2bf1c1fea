"""How long a killed service with a million events takes until it is ready again."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bulk import fill
from harness import Server


def run(events: int, times: int, made: Path | None = None) -> dict[str, Any]:
    """Seconds from the start of the process to /readyz, killed each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.db"
        if made is None:
            maker = multiprocessing.get_context("spawn").Process(
                target=fill, args=(path, events), kwargs={"closed": False}
            )
            maker.start()
            maker.join()
        else:
            shutil.copy(made, path)
        seconds, spent = [], []
        for _ in range(times):
            server = Server(path)
            seconds.append(server.start())
            spent.append(processor_seconds(server.process.pid))
            server.kill()
        size = path.stat().st_size
    return {
        "events": events,
        "bytes": size,
        "load_average": os.getloadavg()[0],
        "seconds": seconds,
        "fastest": min(seconds),
        "processor_seconds": min(spent),
    }


def processor_seconds(process: int) -> float:
    """Of a process and of those of its own that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[place]) for place in (11, 12, 13, 14)) / os.sysconf(
        "SC_CLK_TCK"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--made", type=Path, help="a store made by bulk.py, which is copied"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.events, options.times, options.made)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    sys.exit(results["fastest"] > 2.0)

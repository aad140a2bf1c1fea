"""Fill the disk under a loaded service: 503 and nothing acknowledged, and it goes on by itself when there is
room.

As root the disk is a small tmpfs that a ballast fills; else the size of files is limited for the process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import Server, call, check_all_kept, client


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Whether the folder is a disk of its own now."""
    made = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
            capture_output=True,
            check=False,
        ).returncode
    )
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path, server: Server, is_disk: bool) -> None:
    """Leave no room, neither on the disk nor in the files."""
    if not is_disk:
        largest = max(path.stat().st_size for path in folder.iterdir())
        resource.prlimit(
            server.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY)
        )
        return
    with (folder / "ballast").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def make_room(folder: Path, server: Server, is_disk: bool) -> None:
    """The disk is as it was."""
    if is_disk:
        (folder / "ballast").unlink()
    else:
        resource.prlimit(
            server.process.pid,
            resource.RLIMIT_FSIZE,
            (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
        )


def run(times: int = 3, clients: int = 2, seconds: float = 2.0) -> dict[str, Any]:
    """Full and free again, so often."""
    spawn = multiprocessing.get_context("spawn")
    seen: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as name,
        small_disk(Path(name), "64m") as is_disk,
    ):
        folder = Path(name)
        server = Server(folder / "d.db")
        server.start()
        until, answers = spawn.Event(), spawn.Queue()
        processes = [
            spawn.Process(target=client, args=(server.port, n, until, answers))
            for n in range(clients)
        ]
        for process in processes:
            process.start()
        server.wait_for_load()
        for _ in range(times):
            time.sleep(seconds)
            fill(folder, server, is_disk)
            while call(server.port, "GET", "/readyz")[0] == 200:
                if is_disk:
                    fill(folder, server, is_disk)  # what a checkpoint has freed
                time.sleep(0.05)
            refused = call(
                server.port,
                "POST",
                "/v1/decisions",
                {"context": {"x": 1.0}, "arms": ["a", "b"]},
            )
            time.sleep(seconds)
            make_room(folder, server, is_disk)
            began = time.perf_counter()
            while call(server.port, "GET", "/readyz")[0] != 200:
                time.sleep(0.02)
            seen.append(
                {
                    "status_when_full": refused[0],
                    "seconds_to_recover": time.perf_counter() - began,
                }
            )
        time.sleep(seconds)
        until.set()
        acknowledged = [answers.get() for _ in processes]
        for process in processes:
            process.join()
        server.kill()
        kept = check_all_kept(server.store, acknowledged)
    return {"disk": "tmpfs" if is_disk else "limited files", "times": seen, **kept}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.times)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    failed = (
        any(item["status_when_full"] != 503 for item in results["times"])
        or not results["unavailable"]
    )
    sys.exit(
        bool(
            failed
            or results["lost"]
            or results["doubled"]
            or not results["state_is_replay"]
        )
    )

"""`evaluate` on a log larger than memory: wall time and peak memory of the command and of all its processes.

python benchmarks/evaluation.py --rounds 5000000 --actions 10 --dim 10 --jobs 2

A Parquet file with lists of offered actions is made if it is not there, then the command is run on it. Memory
is the largest sum over all processes of the command of their proportional shares (Pss, looked up five times a
second), and beside it the largest resident set of a single process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

ROUNDS_AT_ONCE = 50_000
COMMAND = "from invariant_bandits.cli import main; main()"


def make_log(path: Path, rounds: int, actions: int, dim: int) -> None:
    """Uniform logging; half of the effects drift from stretch to stretch."""
    rng = np.random.default_rng(0)
    effects = rng.normal(size=dim)
    writer = None
    for start in range(0, rounds, ROUNDS_AT_ONCE):
        n = min(ROUNDS_AT_ONCE, rounds - start)
        effects[: dim // 2] += 0.1 * rng.normal(size=dim // 2)
        offered = rng.normal(size=(n, actions, dim)) / np.sqrt(dim)
        chosen = rng.integers(actions, size=n)
        rewards = offered[np.arange(n), chosen] @ effects + rng.normal(size=n)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(offered.reshape(-1)), dim)
        lists = pa.ListArray.from_arrays(
            pa.array(np.arange(n + 1, dtype=np.int32) * actions), vectors
        )
        columns = {
            "time": pa.array(np.arange(start, start + n, dtype=np.float64)),
            "action": pa.array(chosen),
            "reward": pa.array(rewards),
            "propensity": pa.array(np.full(n, 1.0 / actions)),
            "offered": lists,
        }
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(
            path, table.schema, compression="none", use_dictionary=False
        )
        writer.write_table(table)
    if writer is not None:
        writer.close()


def children_of(process: int) -> list[int]:
    """The process and all that it has started."""
    found = [process]
    for item in found:
        for task in Path(f"/proc/{item}/task").glob("*/children"):
            try:
                found += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
    return found


def memory_of(process: int) -> int:
    """Proportional share of memory of a process and its children, in bytes."""
    total = 0
    for item in children_of(process):
        try:
            lines = Path(f"/proc/{item}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += 1024 * sum(
            int(line.split()[1]) for line in lines if line.startswith("Pss:")
        )
    return total


def run(path: Path, jobs: int, policies: list[str]) -> dict[str, float]:
    """Seconds, and bytes of memory."""
    chosen = [word for name in policies for word in ("--policy", name)]
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "evaluate",
        str(path),
        "--jobs",
        str(jobs),
        *chosen,
    ]
    began = time.perf_counter()
    most = 0
    with subprocess.Popen(
        command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    ) as process:
        while process.poll() is None:
            most = max(most, memory_of(process.pid))
            time.sleep(0.2)
    single = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "seconds": time.perf_counter() - began,
        "all": most,
        "largest": single,
        "code": process.returncode,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5_000_000)
    parser.add_argument("--actions", type=int, default=10)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    given = parser.parse_args()
    path = (
        given.folder / f"evaluation_{given.rounds}_{given.actions}_{given.dim}.parquet"
    )
    if not path.exists():
        make_log(path, given.rounds, given.actions, given.dim)
    found = run(path, given.jobs, given.policy)
    print(
        json.dumps(
            {
                "rounds": given.rounds,
                "actions": given.actions,
                "dim": given.dim,
                **found,
            }
        )
    )
    print(
        f"{found['seconds']:.0f} s, {found['all'] / 1e9:.2f} GB together, {found['largest'] / 1e9:.2f} GB "
        f"the largest"
    )


if __name__ == "__main__":
    main()

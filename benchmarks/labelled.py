"""Reading a big log of labelled arms, as CSV and as Parquet, sorted and not: seconds and peak memory of every
pass.

Run: python benchmarks/labelled.py --folder /some/folder [--rows 2000000]
Each pass runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

ARMS, CONTEXTS = 5, 6


def write_log(folder: Path, rows: int) -> None:
    """Six contexts, a country, five banners, clicks and propensities over a year; the same as CSV, and
    shuffled.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    rng = np.random.default_rng(0)
    times = np.datetime64("2024-01-01", "us") + np.arange(rows) * (
        np.timedelta64(365 * 86_400_000_000, "us") // rows
    )
    columns: dict[str, Any] = {
        "ts": times,
        "banner": rng.choice([f"banner_{k}" for k in "ABCDE"], rows),
    }
    columns |= {
        "click": (rng.random(rows) < 0.3).astype(np.int8),
        "propensity": np.full(rows, 1.0 / ARMS),
    }
    columns |= {f"x{j}": rng.normal(size=rows).round(4) for j in range(CONTEXTS - 1)}
    columns["country"] = rng.choice(["DE", "FR", "IT"], rows)
    table = pa.table(columns)
    pq.write_table(table, folder / "log.parquet", row_group_size=100_000)
    pq.write_table(
        table.take(rng.permutation(rows)),
        folder / "shuffled.parquet",
        row_group_size=100_000,
    )
    csv.write_csv(table, folder / "log.csv")


def moments(path: str) -> int:
    """The statistics that a model is fitted from."""
    import invariant_bandits as ib

    return int(ib.open_log(path).moments(windows=12).of_arms.rounds.sum())


def clicks(path: str) -> int:
    """The same, a sample for first coefficients, and the pass on the logit scale."""
    import invariant_bandits as ib
    from invariant_bandits.logs.scan import open_scan, read_arm_sample

    log = ib.open_log(path)
    read = log.moments(windows=12)
    sample = read_arm_sample(log, read.feature_map)
    assert len(sample.rewards) > 1000
    theta = np.zeros(read.feature_map.dim)
    weighed = open_scan(log, windows=12).click_moments(read.feature_map, theta)
    return int(weighed.rounds.sum())


def ordered(path: str) -> int:
    """All rounds, sorted by time in bounded memory."""
    import invariant_bandits as ib
    from invariant_bandits.logs.external_sort import in_time_order

    log = in_time_order(ib.open_log(path))
    return sum(
        len(batch)
        for task in log.source.tasks
        for _, batch in log.source.batches(task, ["ts"])
    )


PASSES = {
    "moments, CSV": (moments, "log.csv"),
    "moments, Parquet": (moments, "log.parquet"),
    "moments, shuffled Parquet": (moments, "shuffled.parquet"),
    "moments, sample and logit pass, Parquet": (clicks, "log.parquet"),
    "sorting shuffled Parquet": (ordered, "shuffled.parquet"),
}


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Rows, seconds without starting up, processor seconds of all threads, and peak memory of this
    process.
    """
    import_module("pyarrow.parquet"), import_module("invariant_bandits.logs.scan")
    function, file = PASSES[name]
    began, worked = time.perf_counter(), time.process_time()
    rows = function(str(folder / file))
    seconds, processor = time.perf_counter() - began, time.process_time() - worked
    peak = (
        int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
    )
    times = {"seconds": round(seconds, 2), "processor seconds": round(processor, 2)}
    return {"pass": name, "rows": rows, **times, "peak MB": round(peak)}


def main() -> None:
    """Write the log once, run every pass in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measured(arguments.only, arguments.folder)))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if not (arguments.folder / "log.csv").exists():
        write_log(arguments.folder, arguments.rows)
    for name in PASSES:
        words = [
            sys.executable,
            __file__,
            "--folder",
            str(arguments.folder),
            "--only",
            name,
        ]
        print(
            subprocess.run(
                words, check=True, capture_output=True, text=True
            ).stdout.strip(),
            flush=True,
        )


if __name__ == "__main__":
    main()

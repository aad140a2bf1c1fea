"""Reading rates of the formats against a bare pyarrow CSV reader, on the same rounds, in one run.

Run: python benchmarks/formats.py [--rounds 100000] [--folder /some/folder] Every log has the same rounds:
three offered actions, numbers and words of the event and of the action. "bare" is pyarrow.csv.read_csv of the
CSV with one thread, every column as text, as our reader has it; the others are our sources, opened and read
to the end with all columns. Seconds are those of the processor, the least of three runs. The goals: JSON
lines at least 0.3 of the bare rate, dsjson at least 0.1, in megabytes per second.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ACTIONS = 3
GOALS = {"JSON lines": 0.3, "dsjson": 0.1}


def write_logs(folder: Path, rounds: int) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    paths = {
        "CSV": folder / "log.csv",
        "JSON lines": folder / "log.jsonl",
        "dsjson": folder / "log.dsjson",
    }
    cities, colors = ["Berlin", "Lyon", "Porto", "Turin"], ["red", "blue", "green"]
    with (
        paths["CSV"].open("w") as table,
        paths["JSON lines"].open("w") as lines,
        paths["dsjson"].open("w") as events,
    ):
        names = [
            "event_id",
            "action",
            "chosen",
            "reward",
            "propensity",
            "time",
            "user.age",
            "user.spent",
            "user.city",
        ]
        names += ["item.price", "item.score", "item.color", "item.id"]
        table.write(",".join(names) + "\n")
        for n in range(rounds):
            user = {
                "age": int(rng.integers(18, 80)),
                "spent": round(float(rng.gamma(2.0)), 6),
                "city": cities[n % 4],
            }
            items = [
                {
                    "price": round(float(rng.gamma(3.0)), 6),
                    "score": round(float(rng.normal()), 6),
                    "color": colors[(n + k) % 3],
                    "id": f"item {k}",
                }
                for k in range(ACTIONS)
            ]
            chosen, reward = int(rng.integers(ACTIONS)), float(rng.random() < 0.3)
            stamp = f"2024-03-{1 + n * 28 // rounds:02d}T10:00:00.000000Z"
            for k, item in enumerate(items):
                row = [
                    f"e{n}",
                    k + 1,
                    k == chosen,
                    reward,
                    0.333333,
                    stamp,
                    *user.values(),
                    *item.values(),
                ]
                table.write(",".join(map(str, row)) + "\n")
                lines.write(json.dumps(dict(zip(names, row, strict=True))) + "\n")
            event = {
                "_label_cost": -reward,
                "_label_probability": 0.333333,
                "_label_Action": chosen + 1,
                "_labelIndex": chosen,
                "o": [{"v": reward, "EventId": f"e{n}", "ActionTaken": False}],
                "Timestamp": stamp,
                "Version": "1",
                "EventId": f"e{n}",
                "a": [chosen + 1, *(k + 1 for k in range(ACTIONS) if k != chosen)],
                "c": {"user": user, "_multi": [{"item": item} for item in items]},
                "p": [0.333333] * ACTIONS,
                "VWState": {"m": "N/A"},
            }
            events.write(json.dumps(event, separators=(",", ":")) + "\n")
    return paths


def bare(path: Path) -> int:
    import pyarrow as pa
    from pyarrow import csv

    names = path.open().readline().strip().split(",")
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(use_threads=False),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in names}, strings_can_be_null=True
        ),
    )
    return table.num_rows


def ours(path: Path) -> int:
    from invariant_bandits.logs.formats.registry import open_source

    source = open_source(path)
    names = source.arrow_schema.names
    return sum(
        len(batch) for task in source.tasks for _, batch in source.batches(task, names)
    )


def seconds(read: Callable[[Path], int], path: Path, rows: int) -> float:
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        rows_read = read(path)
        least = min(least, time.process_time() - began)
        assert rows_read == rows, f"{path}: {rows_read} rows, {rows} were written"
    return least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    paths = write_logs(folder, options.rounds)
    rows = ACTIONS * options.rounds
    measured = {"bare CSV": (paths["CSV"], seconds(bare, paths["CSV"], rows))}
    measured |= {
        name: (path, seconds(ours, path, rows)) for name, path in paths.items()
    }
    best = None
    print(
        f"{'':<12}{'MB':>8}{'s':>8}{'MB/s':>8}{'rounds/s':>12}{'MB/s ratio':>12}{'rounds ratio':>14}  goal"
    )
    for name, (path, taken) in measured.items():
        size = path.stat().st_size / 1e6
        rates = size / taken, options.rounds / taken
        best = best or rates
        goal = f"≥ {GOALS[name]}" if name in GOALS else ""
        shares = rates[0] / best[0], rates[1] / best[1]
        numbers = f"{size:>8.0f}{taken:>8.2f}{rates[0]:>8.0f}{rates[1]:>12,.0f}"
        numbers += f"{shares[0]:>12.2f}{shares[1]:>14.2f}"
        print(f"{name:<12}{numbers}  {goal}")


if __name__ == "__main__":
    main()

"""Flip one bit at many random places of a store: it is refused at start, or nothing that is kept has changed.

A closed store, and one that kill -9 left with its write-ahead log. What opens is compared with the original:
every row of every table, every decision by its id, and the state.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bulk import fill
from invariant_bandits.checks import InputError
from invariant_bandits_service.replay import restore
from invariant_bandits_service.store.open_store import open_store, verify

TABLES = ("events", "contents", "snapshots", "cut", "head", "meta")


def content(path: Path) -> str:
    """Digest of all that a store holds, also as it is found by the ids of decisions."""
    store = open_store(path, check=verify)
    try:
        digest = hashlib.sha256()
        connection = sqlite3.connect(path)
        for table in TABLES:
            for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1"):
                digest.update(repr(row).encode())
        keys = sorted({row.key for row in store.rows() if row.key is not None})
        for key in keys:
            digest.update(repr([row.seq for row in store.of_key(key)]).encode())
        connection.close()
        digest.update(repr(restore(store).hashes()).encode())
        return digest.hexdigest()
    finally:
        store.close()


def flips(folder: Path, files: list[str], count: int, seed: int) -> dict[str, Any]:
    """What becomes of the store in `folder` with one bit flipped, `count` times."""
    whole = copied(folder, files, folder / "whole")
    expected = content(whole / "d.db")
    rng, outcomes, missed = np.random.default_rng(seed), Counter[str](), []
    sizes = [(folder / name).stat().st_size for name in files]
    for _ in range(count):
        trial = copied(folder, files, folder / "trial")
        name = files[
            int(rng.integers(len(files)))
        ]  # as many in the small log as in the file
        place, bit = int(rng.integers(sizes[files.index(name)])), int(rng.integers(8))
        with (trial / name).open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))
        try:
            same = content(trial / "d.db") == expected
            outcomes["without effect" if same else "MISSED"] += 1
            if not same:
                missed.append({"file": name, "byte": place, "bit": bit})
        except InputError as error:
            outcomes[
                "refused, an event named" if "event" in str(error) else "refused"
            ] += 1
        except Exception as error:
            outcomes["UNCLEAR"] += 1
            missed.append(
                {"file": name, "byte": place, "bit": bit, "error": repr(error)}
            )
    return {
        "flips": count,
        "outcomes": dict(sorted(outcomes.items())),
        "missed": missed,
    }


def copied(folder: Path, files: list[str], to: Path) -> Path:
    """A fresh copy of the files."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for name in files:
        shutil.copy(folder / name, to / name)
    return to


def run(count: int, events: int, seed: int = 0) -> dict[str, Any]:
    """Both stores."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in ("closed", "killed"):
            folder = Path(name) / kind
            folder.mkdir()
            maker = multiprocessing.get_context("spawn").Process(
                target=fill,
                args=(folder / "d.db", events),
                kwargs={"closed": kind == "closed"},
            )
            maker.start()
            maker.join()
            files = ["d.db"] if kind == "closed" else ["d.db", "d.db-wal"]
            results[kind] = flips(folder, files, count, seed)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1_000, help="per store")
    parser.add_argument("--events", type=int, default=9_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.flips, options.events, options.seed)
    for kind, result in results.items():
        print(
            json.dumps({kind: result})
            if options.json
            else f"{kind}: {result['flips']} flips: {result['outcomes']}"
        )
        for missed in result["missed"]:
            print(f"  {missed}")
    sys.exit(any(result["missed"] for result in results.values()))

"""Damaged logs by the ten thousand: python attacks/readers.py --count 20000 --seed 0

Every attempt takes a small log of some format, damages its content, and reads it in a worker process with a
limit on memory and time; one in twenty-five also runs the whole command `fit`. What is read must have finite
moments, what is refused must say so in an InputError. Ends with exit code 1 if anything did not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.logs.log import open_log

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

import running
from damage import DAMAGES, packed
from invariant_bandits import cli
from invariant_bandits.checks import InputError
from invariant_bandits.simulation.sample_logs import write_samples
from log_formats import read_table, write_log
from running import BROKEN, MEMORY, REFUSED, SURVIVED, Outcome

ROUNDS = 200
NAMES = (
    *(
        "rows.parquet",
        "lists.parquet",
        "chosen.parquet",
        "banners.csv",
        "banners.parquet",
        "banners.jsonl",
    ),
    *(
        "rows.csv",
        "lists.jsonl",
        "chosen.tsv",
        "chosen.arrow",
        "chosen.feather",
        "rows.vw",
        "rows.dsjson",
    ),
)
PACKINGS = ("", "", ".gz", ".zst", ".bz2", ".lz4")
TEXT = (".csv", ".tsv", ".jsonl", ".vw", ".dsjson")
MOST_MEMORY = 2 << 30
ONE_IN = 25
WRONG_NAME = "the name of another format"
KINDS = (*DAMAGES, WRONG_NAME)
MOST_SHOWN = 20


@cache
def originals() -> dict[str, bytes]:
    """Small whole logs by their names, one per format and form."""
    with tempfile.TemporaryDirectory() as folder:
        write_samples(folder, ROUNDS)
        for name in NAMES:
            stem, path = name.partition(".")[0], Path(folder, name)
            if not path.exists():
                source = Path(
                    folder, "banners.csv" if stem == "banners" else f"{stem}.parquet"
                )
                write_log(read_table(source), path)
        return {name: Path(folder, name).read_bytes() for name in NAMES}


def warm_up() -> None:
    """Read and fit whole logs, so that workers inherit compiled code."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in originals().items():
            path = Path(folder, name)
            path.write_bytes(content)
            assert _read(path) == (SURVIVED, ""), name
            if name.startswith(("banners.csv", "rows.parquet", "chosen.parquet")):
                assert _fitted(path, SURVIVED) == (SURVIVED, ""), name
                Path(folder, "m.model").unlink()


def attempt(seed: int, number: int) -> tuple[str, str, bytes]:
    """(kind of damage, name, content) of one attempt: the same for the same numbers."""
    rng = np.random.default_rng((seed, number))
    name = NAMES[rng.integers(len(NAMES))]
    kind = KINDS[rng.integers(len(KINDS))]
    content = originals()[name]
    if kind == WRONG_NAME:
        return kind, NAMES[rng.integers(len(NAMES))], content
    name += PACKINGS[rng.integers(len(PACKINGS))] if name.endswith(TEXT) else ""
    if rng.random() < 0.7:  # damaged, then packed; otherwise the other way round
        return kind, name, packed(DAMAGES[kind](content, rng), name)
    return kind, name, DAMAGES[kind](packed(content, name), rng)


def judged(seed: int, number: int, *, command: bool = True) -> Outcome:
    """(kind of damage, outcome, why if that is bad) of one attempt, in this process."""
    kind, name, content = attempt(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        outcome, why = _read(path)
        if command and number % ONE_IN == 0 and outcome in (REFUSED, SURVIVED):
            outcome, why = _fitted(path, outcome)
    return kind, outcome, f"{name}: {why}"


def _read(path: Path) -> tuple[str, str]:
    try:
        with warnings.catch_warnings(action="error"):
            moments = open_log(path).moments(windows=2).moments
    except InputError as error:
        return REFUSED, str(error)
    except MemoryError as error:
        return MEMORY, repr(error)
    except Exception as error:
        return BROKEN, repr(error)
    finite = np.isfinite(moments.gram).all() and np.isfinite(moments.cross).all()
    return (SURVIVED, "") if finite else (BROKEN, "moments that are not finite")


def _fitted(path: Path, outcome: str) -> tuple[str, str]:
    """The same by the command: one line and exit code 2, or a model."""
    model, words = path.with_name("m.model"), (io.StringIO(), io.StringIO())
    sys.argv = [
        "invariant-bandits",
        "fit",
        str(path),
        "-o",
        str(model),
        "--no-value",
        "--policy",
        "linucb",
    ]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(words[0]), contextlib.redirect_stderr(words[1]):
            cli.main()
    except SystemExit as ended:
        code = ended.code
    except Exception as error:
        return BROKEN, f"fit raised {error!r}"
    said = "".join(word.getvalue() for word in words)
    if code == 0 and model.exists():
        return outcome, ""
    if code == 2 and "Traceback" not in said and not model.exists():
        return outcome, said
    return BROKEN, f"fit ended with {code}: {said[-300:]}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description="Read damaged logs, and count what becomes of them."
    )
    parser.add_argument("--count", type=int, default=5000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument(
        "--only", type=int, help="one attempt, in this process, for a debugger"
    )
    given = parser.parse_args()
    warm_up()
    if given.only is not None:
        print(*judged(given.seed, given.only), sep="\n")
        return
    began = time.monotonic()
    counts, found = running.run(
        lambda number: running.with_memory(
            MOST_MEMORY, lambda: judged(given.seed, number)
        ),
        lambda number: attempt(given.seed, number)[0],
        given.count,
        patience=60.0,
    )
    print(running.table(counts, KINDS, "damage"))
    print(
        f"{given.count:,} logs damaged, of {len(NAMES)}, seed {given.seed}, {time.monotonic() - began:.0f} s"
    )
    if found:
        print(json.dumps(found[:MOST_SHOWN], indent=1), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The command as a process: hostile logs, Ctrl-C at any time, and kill -9 while it saves.

python attacks/commands.py --repeats 2 --interrupts 30 --kills 100 --seed 0

Prints a table of what became of each. Ends with exit code 1 if a process died, hung, left half a file or said
more than it should.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import invariant_bandits as ib
import running
from hostile import write_hostile
from invariant_bandits.simulation.sample_logs import write_samples
from running import BROKEN, CRASHED, HUNG, REFUSED, SURVIVED

COMMAND = (sys.executable, "-c", "from invariant_bandits.cli import main; main()")
HOSTILE, CTRL_C, KILLED = "hostile logs", "Ctrl-C at any time", "kill -9 while saving"
MOST_MEMORY = 6 << 30
PATIENCE = 60.0
SOON = 1.0
"""Seconds within which Ctrl-C ends the command."""
Found = Iterator[tuple[str, str, str]]


def hostile_logs(folder: Path, repeats: int) -> Found:
    """`fit` of every hostile log: one line and exit code 2, or a model."""
    for path in write_hostile(folder) * repeats if repeats else ():
        began = time.monotonic()
        try:
            done = subprocess.run(
                [
                    *COMMAND,
                    "fit",
                    path,
                    "-o",
                    folder / "m.model",
                    "--no-value",
                    "--policy",
                    "linucb",
                ],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
                preexec_fn=lambda: resource.setrlimit(
                    resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY)
                ),
            )
        except subprocess.TimeoutExpired:
            yield HOSTILE, HUNG, path.name
            continue
        took = f"{path.name}, {time.monotonic() - began:.1f} s"
        errors = [
            line for line in done.stderr.splitlines() if line.startswith("error: ")
        ]
        if done.returncode < 0:
            yield HOSTILE, CRASHED, f"{took}: signal {-done.returncode}"
        elif (
            done.returncode == 2 and len(errors) == 1 and "Traceback" not in done.stderr
        ):
            yield HOSTILE, REFUSED, took
        else:
            good = done.returncode == 0 and "Traceback" not in done.stderr
            yield HOSTILE, SURVIVED if good else BROKEN, f"{took}: {done.stderr[-200:]}"


def interrupts(folder: Path, count: int, rng: np.random.Generator) -> Found:
    """Ctrl-C for the whole group of processes, at times drawn evenly from the first seconds."""
    write_samples(folder, 4000)
    commands = (
        ("fit", folder / "rows.parquet", "-o", folder / "i.model", "--force"),
        ("evaluate", folder / "rows.parquet", "--jobs", 2),
        ("reproduce", "residual-dimension", "--out", folder / "run", "--jobs", 2),
    )
    for number in range(count):
        words = [str(word) for word in commands[number % len(commands)]]
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        waited = float(rng.uniform(0.4, 8.0))
        time.sleep(waited)
        if process.poll() is not None:
            process.communicate()
            continue
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
        took = time.monotonic() - began
        words = f"{words[0]} after {waited:.1f} s, ended after {took:.2f} s with {process.returncode}"
        if (
            process.returncode != 130
            or "Traceback" in said
            or said.count("interrupted") != 1
        ):
            yield CTRL_C, BROKEN, f"{words}: {said[-200:]}"
        else:
            yield CTRL_C, SURVIVED if took <= SOON else HUNG, words


def kills(folder: Path, count: int, rng: np.random.Generator) -> Found:
    """A process that saves a policy again and again is killed; the file must load, and nothing be left
    beside it.
    """
    target = folder / "saved" / "policy"
    target.parent.mkdir()
    ib.LinUCB(50).save(target)
    program = "import sys, invariant_bandits as ib\npolicy = ib.LinUCB(50)\nprint('ready', flush=True)\n"
    program += "while True: policy.update([0.5] * 50, 1.0); policy.save(sys.argv[1])"
    for _ in range(count):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, target], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(float(rng.uniform(0.0, 0.1)))
        writer.kill()
        writer.communicate()
        try:
            ib.load(target).save(target)
            left = sorted(os.listdir(target.parent))
            yield KILLED, SURVIVED if left == ["policy"] else BROKEN, str(left)
        except ib.InputError as error:
            yield KILLED, BROKEN, str(error)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Attack the command as a process.")
    parser.add_argument("--repeats", type=int, default=2, help="of every hostile log")
    parser.add_argument("--interrupts", type=int, default=30, help="how many")
    parser.add_argument("--kills", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the times")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        for sort, attack in {
            "logs": lambda folder: hostile_logs(folder, given.repeats),
            "interrupts": lambda folder: interrupts(folder, given.interrupts, rng),
            "kills": lambda folder: kills(folder, given.kills, rng),
        }.items():
            folder = Path(name, sort)
            folder.mkdir()
            for kind, outcome, why in attack(folder):
                counts[kind, outcome] += 1
                if outcome in running.BAD:
                    print(f"{kind}: {outcome}, {why}", file=sys.stderr, flush=True)
    print(running.table(counts, (HOSTILE, CTRL_C, KILLED), "attack"))
    if any(outcome in running.BAD for _, outcome in counts):
        sys.exit(1)


if __name__ == "__main__":
    main()

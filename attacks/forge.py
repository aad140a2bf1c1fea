"""Forged files by the million: python attacks/forge.py --count 1000000 --seed 0

Every attempt takes one of the files of `originals`, changes it as `forging` says, with the checksum made right again,
and loads it in a worker process whose memory is limited to 1.5 times the file and 100 MB above what it had before. What
is accepted must obey the laws of `judging`. Ends with exit code 1 if anything did not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from forging import KINDS, forged
from judging import BROKEN, LAWFUL, MEMORY, REFUSED, UNCHANGED, verdict
from originals import Original, originals

CRASHED, HUNG = "crashed", "hung"
OUTCOMES = (UNCHANGED, REFUSED, LAWFUL, BROKEN, CRASHED, HUNG, MEMORY)
BAD = (BROKEN, CRASHED, HUNG, MEMORY)
PATIENCE = 30.0
"""Seconds for one attempt; usually it takes a thousandth."""
ALLOWANCE = 100 * 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_SHOWN = 20
OTHERWISE = "any bytes"


def attempt(files: list[Original], seed: int, number: int) -> tuple[Original, str, bytes]:
    """(original, kind of change, forged content) of one attempt: the same for the same numbers, on every machine."""
    rng = np.random.default_rng((seed, number))
    original = files[rng.integers(len(files))]
    words = KINDS[rng.integers(len(KINDS))]
    try:
        return original, words, forged(original.content, words, rng)
    except (
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):  # it cannot be written down
        return original, OTHERWISE, forged(original.content, OTHERWISE, rng)


def judged(files: list[Original], seed: int, number: int) -> tuple[str, str, str]:
    """(kind of change, outcome, where and why if that is bad) of one attempt, in this process."""
    original, words, content = attempt(files, seed, number)
    if content == original.content:
        return words, UNCHANGED, ""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + ALLOWANCE + 3 * len(content) // 2, before[1]))
    try:
        outcome, why = verdict(content, original.kind, original.rounds)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return words, outcome, f"attempt {number}, {original.name}, {words}: {why}" if outcome in BAD else ""


def _work(files: list[Original], seed: int, start: int, stop: int, at: Any, results: Any) -> None:
    """Attempts from `start` on, in a process of its own; `at` says which one is under way."""
    counts: Counter[tuple[str, str]] = Counter()
    found: list[str] = []
    for number in range(start, stop):
        at.value = number
        words, outcome, where = judged(files, seed, number)
        counts[words, outcome] += 1
        found += [where] if where else []
        if (number - start) % 500 == 499 or number == stop - 1:
            results.send((number + 1, counts, found))
            counts, found = Counter(), []
    results.close()


def run(count: int, seed: int, files: list[Original], *, patience: float = PATIENCE) -> tuple[Counter[Any], list[str]]:
    """Outcomes by kind of change, and what went wrong; a worker that dies is replaced after the attempt that did it."""
    context = multiprocessing.get_context("fork")
    counts: Counter[tuple[str, str]] = Counter()
    found: list[str] = []
    done, stop = 0, count
    while done < count:
        at, (ours, theirs) = context.Value("q", done), context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(files, seed, done, stop, at, theirs), daemon=True)
        worker.start()
        theirs.close()
        place, since, hung = done, time.monotonic(), False
        while True:
            try:
                if ours.poll(1.0):
                    done, new, more = ours.recv()
                    counts += new
                    found += more
            except EOFError:
                break
            if at.value != place:
                place, since = at.value, time.monotonic()
            elif time.monotonic() - since > patience:
                worker.kill()
                hung = True
        worker.join()
        if hung or worker.exitcode:  # what it had not told is done again, up to the attempt that ended it
            culprit = int(at.value)
            if culprit == done:
                original, words, _ = attempt(files, seed, culprit)
                counts[words, HUNG if hung else CRASHED] += 1
                found.append(f"attempt {culprit}, {original.name}, {words}: exit code {worker.exitcode}")
                done, stop = culprit + 1, count
            else:
                stop = culprit
        elif done == stop and stop < count:
            stop = count
    return counts, found


def table(counts: Counter[Any]) -> str:
    """Outcomes by kind of change, as the page of documentation shows them."""
    lines = [f"| change | tried | {' | '.join(OUTCOMES)} |", f"| --- |{' ---: |' * (1 + len(OUTCOMES))}"]
    for words in (*KINDS, "all"):
        each = [sum(n for (w, o), n in counts.items() if o == outcome and words in (w, "all")) for outcome in OUTCOMES]
        lines.append(f"| {words} | {sum(each):,} | {' | '.join(f'{one:,}' for one in each)} |")
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Load forged files, and count what becomes of them.")
    parser.add_argument("--count", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", type=int, help="one attempt, in this process, for a debugger")
    given = parser.parse_args()
    files = originals()
    if given.only is not None:
        print(*judged(files, given.seed, given.only), sep="\n")
        return
    began = time.monotonic()
    counts, found = run(given.count, given.seed, files)
    print(table(counts))
    print(f"{given.count:,} files forged from {len(files)}, seed {given.seed}, {time.monotonic() - began:.0f} s")
    if found:
        print(json.dumps(found[:MOST_SHOWN], indent=1), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Attempts by their numbers, in worker processes that may die, hang or run out of memory; and a table of
outcomes.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Outcome: TypeAlias = tuple[str, str, str]
"""(kind of attempt, what became of it, why if that is bad)."""
REFUSED, SURVIVED, BROKEN = "refused", "survived", "broken"
CRASHED, HUNG, MEMORY = "crashed", "hung", "too much memory"
OUTCOMES = (REFUSED, SURVIVED, BROKEN, CRASHED, HUNG, MEMORY)
BAD = (BROKEN, CRASHED, HUNG, MEMORY)
AT_ONCE = 50
PAGE = os.sysconf("SC_PAGE_SIZE")


def run(
    judged: Callable[[int], Outcome],
    kind_of: Callable[[int], str],
    count: int,
    *,
    patience: float = 20.0,
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Outcomes by kind, and what went wrong.

    judged: number of an attempt -> its outcome, called in a forked worker. kind_of: number -> its kind, for
    those that took their worker with them; the worker is replaced and goes on behind them. patience: seconds
    for one attempt.
    """
    context = multiprocessing.get_context("fork")
    counts: Counter[tuple[str, str]] = Counter()
    found: list[str] = []
    done = 0
    while done < count:
        at, (ours, theirs) = context.Value("q", done), context.Pipe(duplex=False)
        worker = context.Process(
            target=_work, args=(judged, done, count, at, theirs), daemon=True
        )
        worker.start()
        theirs.close()
        done, hung = _listen(ours, worker, at, patience, done, counts, found)
        worker.join()
        if hung or worker.exitcode:
            outcome = HUNG if hung else CRASHED
            counts[kind_of(done), outcome] += 1
            found.append(
                f"attempt {done}, {kind_of(done)}: {outcome}, exit code {worker.exitcode}"
            )
            done += 1
    return counts, found


def _work(
    judged: Callable[[int], Outcome], start: int, stop: int, at: Any, results: Any
) -> None:
    for number in range(start, stop):
        at.value = number
        results.send((number, judged(number)))
    results.close()


def _listen(
    ours: Any,
    worker: Any,
    at: Any,
    patience: float,
    done: int,
    counts: Counter[tuple[str, str]],
    found: list[str],
) -> tuple[int, bool]:
    """(first attempt that is not done, whether it hung), once the worker has ended."""
    since = time.monotonic()
    while True:
        try:
            if ours.poll(0.5):
                number, (kind, outcome, why) = ours.recv()
                counts[kind, outcome] += 1
                found += (
                    [f"attempt {number}, {kind}: {outcome}, {why}"]
                    if outcome in BAD
                    else []
                )
                done, since = number + 1, time.monotonic()
        except EOFError:
            return done, False
        if time.monotonic() - since > patience:
            worker.kill()
            return done, True


def with_memory(more: int, attempt: Callable[[], Outcome]) -> Outcome:
    """An attempt in this process with so many more bytes of addresses than it has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        return attempt()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def table(counts: Counter[tuple[str, str]], kinds: Sequence[str], what: str) -> str:
    """Outcomes by kind, as the page of documentation shows them."""
    lines = [
        f"| {what} | tried | {' | '.join(OUTCOMES)} |",
        f"| --- |{' ---: |' * (1 + len(OUTCOMES))}",
    ]
    for kind in (*kinds, "all"):
        each = [
            sum(
                n for (k, o), n in counts.items() if o == outcome and kind in (k, "all")
            )
            for outcome in OUTCOMES
        ]
        lines.append(
            f"| {kind} | {sum(each):,} | {' | '.join(f'{item:,}' for item in each)} |"
        )
    return "\n".join(lines)

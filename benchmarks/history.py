"""What it takes to export a store of a million events, and to learn from it in the background: seconds and
memory.

Run: python benchmarks/history.py [EVENTS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from invariant_bandits_service.events import (
    AnyEvent,
    Closed,
    Decided,
    Rewarded,
    VersionActivated,
    VersionAdded,
    encode_event,
    key_of,
)
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.store.open_store import open_store

LABELS = ["a", "b", "c"]
SLOPES = (0.5, -0.5, 0.0)
BATCH = 30_000

EXPORT = """
import resource, sys
from invariant_bandits_service.history import export
from invariant_bandits_service.store.open_store import open_store
print(export(open_store(sys.argv[1], writing=False), sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MB")
"""
LEARN = """
import resource, sys
from invariant_bandits_service.background import learn_from_history
from invariant_bandits_service.store.open_store import open_store
found = learn_from_history(open_store(sys.argv[1], writing=False), "default")
print(found.words, found.evaluation)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MB")
"""


def events(count: int) -> Iterator[AnyEvent]:
    """Decisions drawn with half their chance uniform, each with a reward."""
    rng = np.random.default_rng(0)
    for number in range(count // 3):
        age, now = float(rng.normal()), 1e9 + number
        likely = int(np.argmax(np.array(SLOPES) * age))
        propensities = [0.5 / 3 + 0.5 * (place == likely) for place in range(3)]
        place = int(rng.choice(3, p=propensities))
        reward, id = float(SLOPES[place] * age + 0.3 * rng.normal()), f"d{number}"
        yield Decided(
            now,
            id,
            "default",
            "1",
            number,
            {"age": age},
            LABELS,
            None,
            place,
            propensities,
        )
        yield Rewarded(now, id, "default", reward, "joined")
        yield Closed(now, id, "default", reward, "reward")


def fill(path: Path, count: int) -> None:
    """A store with so many events, and a snapshot at their end as a service leaves one."""
    from invariant_bandits_service.replay import restore

    store = open_store(path)
    learner = OpenLearner(dict.fromkeys(LABELS, True)).to_bytes()
    import hashlib

    first = [
        VersionAdded(
            1e9, "default", "1", "open", hashlib.sha256(learner).hexdigest(), "empty"
        ),
        VersionActivated(1e9, "default", "1"),
    ]
    store.append([(key_of(item), encode_event(item)) for item in first], [learner])
    batch: list[tuple[str | None, bytes]] = []
    for event in events(count):
        batch.append((key_of(event), encode_event(event)))
        if len(batch) == BATCH:
            store.append(batch)
            batch = []
    if batch:
        store.append(batch)
    state = restore(store)
    store.save_snapshot(state.seq, state.to_bytes())
    store.close()


def measured(name: str, code: str, *given: str) -> None:
    """Run a program and say how long it took; its own last line is its memory."""
    began = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-c", code, *given], check=True, capture_output=True, text=True
    ).stdout
    print(
        f"{name}: {time.perf_counter() - began:.1f} s; {'; '.join(told.splitlines())}",
        flush=True,
    )


def main() -> None:
    """Fill a store, export it twice, learn from it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.db"
        began = time.perf_counter()
        fill(path, count)
        print(
            f"{count:,} events, {path.stat().st_size >> 20} MB, filled in {time.perf_counter() - began:.0f} s"
        )
        for suffix in ("parquet", "dsjson"):
            measured(f"export to {suffix}", EXPORT, str(path), f"{folder}/log.{suffix}")
        measured("learning", LEARN, str(path))


if __name__ == "__main__":
    main()

"""A store with many real events, made fast: decisions and rewards, learned, without a sync per batch."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import numpy as np

from invariant_bandits_service import commands
from invariant_bandits_service.commands import (
    Command,
    DecisionCommand,
    EventBatch,
    RewardCommand,
)
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.state import State
from invariant_bandits_service.store.open_store import open_store

TOGETHER = 500


def fill(path: Path, events: int, *, seed: int = 0, closed: bool = True) -> None:
    """Make a store of at least so many events, the last 2,000 after its newest snapshot; closed, or left
    by a kill.
    """
    store = open_store(path)
    store._writer.execute("PRAGMA synchronous = OFF")
    state, rng, now = (
        State(store),
        np.random.default_rng(seed),
        time.time() - events * 1e-3,
    )

    def commit(works: list[Command]) -> list:
        batch = EventBatch(now)
        answers = [work(state, batch) for work in works]
        store.append(batch.stored, batch.contents)
        for event in batch.events:
            state.apply(event)
        return answers

    commit(
        [
            commands.add_version(
                "default", OpenLearner(dict.fromkeys("abc", True), seed=7), "given"
            )
        ]
    )
    saved = False
    while state.seq < events:
        if not saved and state.seq > events - 2_000:
            store.save_snapshot(state.seq, state.to_bytes())
            saved = True
        hours, ages = rng.integers(3, size=TOGETHER), rng.random(TOGETHER)
        now += TOGETHER * 1e-3
        decided = commit(
            [
                DecisionCommand(
                    "default", {"hour": str(hours[n]), "age": float(ages[n])}
                )
                for n in range(TOGETHER)
            ]
        )
        commit(
            [RewardCommand(event.id, float(rng.random() < 0.4)) for event in decided]
        )
    if not closed:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    began = time.perf_counter()
    fill(options.store, options.events)
    print(
        f"{options.events:,} events in {time.perf_counter() - began:.0f} s, "
        f"{options.store.stat().st_size >> 20} MiB"
    )

"""A day of simulated time with retention on: the store stays bounded, and verifies and replays clean.

The engine is the real one, on a real file; only its clock is moved. It is ended and started again every few
hours, half of the times without the end that takes a snapshot.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits_service import commands
from invariant_bandits_service.commands import (
    DecisionCommand,
    RewardCommand,
    all_or_none,
)
from invariant_bandits_service.engine import Engine, Retention
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.replay import replay_all, restore
from invariant_bandits_service.settings import DAY, Configuration
from invariant_bandits_service.store.open_store import check_newest, open_store, verify

TOGETHER = 20
"""Decisions in one request."""
STARTS = 8
"""Lives of the service in the time."""


def run(
    hours: float = 24.0, per_hour: int = 3_000, keep_hours: float = 2.0, seed: int = 0
) -> dict[str, Any]:
    """Decisions of so many hours, most of them rewarded, some never, in a store that keeps the last ones."""
    rng, now, sizes, kept = (
        np.random.default_rng(seed),
        [1_790_000_000.0],
        list[int](),
        list[int](),
    )
    steps, mistakes = int(hours * per_hour / TOGETHER), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        path, hashes = Path(folder) / "d.db", dict[str, str]()
        for life in range(STARTS):
            store = open_store(path, check=check_newest)
            engine = Engine(
                store,
                clock=lambda: now[0],
                retention=Retention(days=keep_hours * 3_600.0 / DAY),
            )
            if engine.state.hashes() != hashes:
                mistakes.append(f"life {life} begins with another state")
            engine.start()
            if life == 0:
                learner = OpenLearner(dict.fromkeys("abc", True), seed=7)
                engine.call(
                    commands.add_version("default", learner, "given"), alone=True
                )
                rules = Configuration(reward_wait=600.0, default_reward=0.0)
                engine.call(commands.configure("default", rules), alone=True)
            for step in range(steps // STARTS):
                hour = str(int(rng.integers(3)))
                asked = [
                    DecisionCommand(context={"hour": hour}) for _ in range(TOGETHER)
                ]
                decided = engine.call(all_or_none(asked))
                now[0] += hours * 3_600.0 / steps
                rewards = [
                    RewardCommand(event.id, float(rng.random() < 0.4))
                    for event in decided[:-2]
                ]
                engine.call(all_or_none(rewards))
                if step % 10 == 0:
                    sizes.append(
                        path.stat().st_size + Path(f"{path}-wal").stat().st_size
                    )
                    kept.append(engine.state.seq - store.start().seq)
            if life % 2:
                engine.fail(RuntimeError("killed"))
            engine.stop()
            hashes = engine.state.hashes()
        events = verify(path, thorough=True)
        store = open_store(path, writing=False)
        base = store.base()
        same = restore(store).hashes() == replay_all(store).hashes() == hashes
        store.close()
    half = len(sizes) // 2
    return {
        "hours": hours,
        "events": events,
        "kept": kept[-1],
        "most_kept": max(kept),
        "replayed": events - (0 if base is None else base[0]),
        "bytes_first_half": max(sizes[:half]),
        "bytes_second_half": max(sizes[half:]),
        "state_is_replay": same,
        "mistakes": mistakes,
    }


def is_bounded(results: dict[str, Any], keep_hours: float) -> bool:
    """Whether not much more is kept than the rule says, and the file does not grow in the second half."""
    expected = results["events"] * keep_hours / results["hours"]
    grows = results["bytes_second_half"] > 1.1 * results["bytes_first_half"]
    return results["most_kept"] < 1.3 * expected and not grows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--per-hour", type=int, default=3_000)
    parser.add_argument("--keep-hours", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.hours, options.per_hour, options.keep_hours)
    print(
        json.dumps(results)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in results.items())
    )
    is_right = results["state_is_replay"] and not results["mistakes"]
    sys.exit(not (is_right and is_bounded(results, options.keep_hours)))

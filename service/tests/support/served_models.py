"""A real engine on a real file, for tests of the service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import invariant_bandits as ib
from invariant_bandits_service import commands
from invariant_bandits_service.commands import Command, DecisionCommand, RewardCommand
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided
from invariant_bandits_service.learners import FittedLearner, Learner, OpenLearner
from invariant_bandits_service.store.open_store import open_store


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running(path: Path | str, clock: Any = None, **options: Any) -> Iterator[Engine]:
    """An engine on the store at a path or address, stopped in order at the end."""
    engine = Engine(open_store(path), clock=clock or time.time, **options)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def serve(engine: Engine, learner: Learner | None = None, name: str = "default") -> str:
    """Serve a learner, an empty one with arms a, b, c if none is given."""
    learner = learner or OpenLearner(dict.fromkeys("abc", True), seed=7)
    return str(engine.call(commands.add_version(name, learner, "given"), alone=True))


def labelled_model(rounds: int = 4_000, arms: int = 3) -> ib.Model:
    """A model of labelled arms, fitted to a small log."""
    rng = np.random.default_rng(5)
    age, arm = rng.normal(size=rounds), rng.integers(arms, size=rounds)
    reward = (rng.random(rounds) < 0.3 + 0.3 * (arm == 1) * (age > 0)).astype(float)
    return ib.fit_logs(
        pa.table({"age": age, "arm": [f"arm_{a}" for a in arm], "reward": reward})
    )


def fitted(seed: int = 7) -> FittedLearner:
    """The same as a learner."""
    return FittedLearner(labelled_model(), seed)


def all_of(works: Iterable[Command]) -> Command:
    """Several works in one batch: one commit for all, every decision in the state before it."""
    those = list(works)
    return lambda state, batch: [settled(state, batch) for settled in those]


def play_together(
    engine: Engine,
    asked: Sequence[DecisionCommand],
    reward: Callable[[Decided], float],
    size: int = 50,
) -> list[Decided]:
    """Decide and reward rounds, so many at a time."""
    played: list[Decided] = []
    for start in range(0, len(asked), size):
        decided = engine.call(all_of(item for item in asked[start : start + size]))
        engine.call(
            all_of(
                RewardCommand(event.id, reward(event), model=event.model)
                for event in decided
            )
        )
        played += decided
    return played

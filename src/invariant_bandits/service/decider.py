"""A process that only decides: from states that the learner publishes in a shared store, which may be many times over.

It appends its decisions, and the rewards that it is told, to the one log that all share; the learner follows them, and
settles and learns. The number of events that the published state knew is kept with every decision, so that a replay
can make it again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from invariant_bandits.service.batches import Answer, Batch, Task
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.state import ConflictError, State
from invariant_bandits.service.store.base import UnavailableError
from invariant_bandits.service.store.chain import Row

LOOK_EVERY = 0.2
"""Seconds between two looks for a newer published state."""


class Decider(Engine):
    """Decides from what a learner has published, and never learns.

    Parameters
    ----------
    store : PostgresStore
        Opened for writing, not for learning.
    clock : callable
        Seconds since 1970.
    """

    def __init__(self, store: Any, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store, clock=clock)
        self._newer: State | None = None
        self._seen = self.state.seq
        self._stopping = threading.Event()
        self._looking = threading.Thread(target=self._look, name="published states", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._looking.start()
        super().start()

    def stop(self) -> None:
        """Finish what was asked, let go of the store."""
        self._stopping.set()
        if self._looking.is_alive():
            self._looking.join()
        super().stop()

    def _first_state(self) -> State:
        return published(self.store)

    def _look(self) -> None:
        """Fetch newer states in a thread of their own, so that no decision waits for them."""
        newest = self.state.seq
        while not self._stopping.wait(LOOK_EVERY):
            with contextlib.suppress(UnavailableError):
                if (self.store.snapshot_seq() or 0) > newest:
                    self._newer = published(self.store)
                    newest = self._newer.seq

    def _take_newer(self) -> None:
        newer, self._newer = self._newer, None
        if newer is not None:
            self.state = newer

    def _put(self, task: Task) -> None:
        if task.alone:
            raise ConflictError("role: this process only decides; changes are made where the learner listens")
        super()._put(task)

    def _tend(self, now: float) -> None:
        self._take_newer()

    def _finish(self) -> None:
        """Snapshots are the learner's."""

    def _idle_for(self) -> float:
        return LOOK_EVERY

    def _proposed(self, tasks: Sequence[Task]) -> tuple[Batch, list[Answer]]:
        """What some tasks propose; what is known of their decisions is asked of the store, where others add to it."""
        self._take_newer()
        self.state.records.forget()
        try:
            self._seen = self.store.head().seq
        except UnavailableError as error:
            self.available = False
            return Batch(self._time.now()), [(task, None, error) for task in tasks]
        return super()._proposed(tasks)

    def _follow(self, rows: Iterable[Row]) -> None:
        """What others have added is asked for again when it matters."""

    def _append(self, batch: Batch) -> None:
        self.store.append(batch.stored, batch.contents, seen=self._seen, keys=list(batch.near))
        for event in batch.events:
            self._tell(event)

    def _recover(self) -> None:
        self.store.reopen()

    def _try_again(self) -> None:
        if not self.available and time.monotonic() - self._tried >= LOOK_EVERY:
            with contextlib.suppress(UnavailableError):
                self._recover()
                self.available = True
            self._tried = time.monotonic()


def published(store: Any) -> State:
    """The newest state that a learner has published; UnavailableError if there is none yet."""
    kept = store.latest_snapshot()
    if kept is None:
        raise UnavailableError("no learner has published a model yet")
    return State.from_bytes(kept[1], store, published=True)

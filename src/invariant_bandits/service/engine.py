"""The engine: one thread that owns the state, decides and learns, and commits what happened before anybody hears of it.

Requests that come while a commit is under way are taken together in the next one. Within such a batch every decision
sees the state before it; what is learned is learned after the commit. So nothing has to be taken back if it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

from invariant_bandits.service import commands, replay
from invariant_bandits.service.clock import Time
from invariant_bandits.service.commands import Answer, Batch, Task, Teller, Work, tell_all
from invariant_bandits.service.events import AnyEvent, SetAside, decoded
from invariant_bandits.service.state import State
from invariant_bandits.service.store.base import OvertakenError, Row, StoreError, UnavailableError

LARGEST_BATCH = 256
MOST_QUEUED = 10_000
SNAPSHOT_EVERY = 4_000
"""A snapshot is taken after so many events."""
VIEW_EVERY = 0.5
"""Seconds between two views for pages and metrics."""
FOLLOW_EVERY = 0.1
"""Seconds between two looks at what other processes have added to a shared store."""
MOST_FOLLOWED = 2048
"""So many events of others are followed before requests have their turn again."""
TRY_EVERY = 1.0
"""Seconds between two attempts at a store that has failed."""

log = logging.getLogger("invariant_bandits.service")


class Engine:
    """Serves models from a store.

    Parameters
    ----------
    store : Store
        Opened for writing; the engine's own from now on.
    clock : callable
        Seconds since 1970.
    publish_every : float
        Seconds between two snapshots for processes that decide from them; infinity if there are none.
    """

    def __init__(self, store: Any, *, clock: Callable[[], float] = time.time, publish_every: float = math.inf) -> None:
        self.store, self.clock, self.publish_every = store, clock, publish_every
        self.state = self._first_state()
        self.failure: BaseException | None = None
        self.available = True
        self.view: dict[str, Any] = {}
        self.on_view: list[Callable[[State], dict[str, Any]]] = []
        self.on_event: list[Callable[[AnyEvent, State], None]] = []
        self._time = Time(clock, replay.last_time(store))
        self._snapshot_at, self._published = self.state.seq, 0.0
        self._tried = 0.0
        self._doubtful: dict[int, str] = {}
        self._viewed = 0.0
        self._queue: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._taken: list[Task] = []
        self._started = self._ended = False

    # -- from outside --

    def start(self) -> None:
        """Begin to serve."""
        self._started = True
        self._thread.start()

    def stop(self) -> None:
        """Finish what was asked, take a snapshot, let go of the store."""
        if self._started:
            self._queue.put(None)
            self._thread.join()
        self._finish()
        self.store.close()

    def _first_state(self) -> State:
        return replay.restored(self.store)

    def _finish(self) -> None:
        if self.failure is None:
            with contextlib.suppress(UnavailableError):
                self._snapshot()

    async def submit(self, work: Work, *, alone: bool = False) -> Any:
        """The answer of some work, after everything it proposed is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._put(Task(work, Teller(loop, future), alone))
        return await future

    def call(self, work: Work, *, alone: bool = False) -> Any:
        """The same for callers without an event loop."""
        future: Future[Any] = Future()

        def tell(answer: Any, error: BaseException | None) -> None:
            future.set_result(answer) if error is None else future.set_exception(error)

        self._put(Task(work, tell, alone))
        return future.result()

    def _put(self, task: Task) -> None:
        if self.failure is not None:
            raise UnavailableError(f"the service has stopped: {self.failure}")
        if self._queue.qsize() >= MOST_QUEUED:
            raise UnavailableError("too many requests wait")
        self._queue.put(task)
        if self._ended:  # meanwhile: nobody would take it
            self._refuse_rest()

    # -- the thread --

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            self.failure = error
            log.critical("the engine has stopped: %s", error)
        finally:
            self._ended = True
            self._refuse_rest()

    def _step(self) -> bool:
        """Take what was asked, commit it, tell; False when it is time to end."""
        self._taken, go_on = self._take()
        tasks = self._taken
        while tasks:
            alone = next((place for place, task in enumerate(tasks) if task.alone), len(tasks))
            part = tasks[:alone] if alone else tasks[:1]
            self._serve(part)
            self._taken = tasks = tasks[len(part) :]
        now = self._time.now()
        self._tend(now)
        self._try_again()
        self._show(now)
        return go_on

    def _tend(self, now: float) -> None:
        """What there is to do without being asked: follow others, settle what is due, take a snapshot."""
        if self._is_shared and self.available:
            with contextlib.suppress(UnavailableError):
                self._follow(islice(self.store.rows(self.state.seq), MOST_FOLLOWED))
        if self.state.next_due() <= now:
            due = self.state.due(now, LARGEST_BATCH)
            self._serve([Task(commands.settle(*one), lambda answer, error: None) for one in due])
        published_long_ago = time.monotonic() - self._published >= self.publish_every
        new = self.state.seq - self._snapshot_at
        if self.available and (new >= SNAPSHOT_EVERY or (new and published_long_ago)):
            with contextlib.suppress(UnavailableError):
                self._snapshot()

    @property
    def _is_shared(self) -> bool:
        """Whether other processes may append to the store, too."""
        return bool(getattr(self.store, "shared", False))

    def _follow(self, rows: Iterable[Row]) -> None:
        """Make the state that of after events which others have added."""
        for row in rows:
            try:
                replay.follow(self.state, [row])
            except replay.UnappliableError as error:
                self.state = replay.restored(self.store, {**self.state.aside, error.seq: error.why})
                return
            self._tell(decoded(row.event))

    def _idle_for(self) -> float:
        """Seconds to wait for requests."""
        due_in = max(self.state.next_due() - self._time.now(), 0.0)
        return min(due_in, FOLLOW_EVERY if self._is_shared else VIEW_EVERY)

    def _take(self) -> tuple[list[Task], bool]:
        wait = self._idle_for()
        tasks: list[Task] = []
        try:
            task = self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
            while task is not None:
                tasks.append(task)
                if len(tasks) >= LARGEST_BATCH:
                    return tasks, True
                task = self._queue.get_nowait()
            return tasks, False
        except queue.Empty:
            return tasks, True

    def _serve(self, tasks: Sequence[Task]) -> None:
        """One batch: propose, commit, apply, tell."""
        answers: list[Answer] = [(task, None, None) for task in tasks]
        try:
            batch, answers = self._proposed(tasks)
            if batch.events:
                while not self._committed(batch):
                    batch, answers = self._proposed(tasks)
                if batch.refused:
                    answers = [
                        (task, None if place in batch.refused else given, batch.refused.get(place, failed))
                        for place, (task, given, failed) in enumerate(answers)
                    ]
                if any(task.alone for task in tasks):
                    self._published = -math.inf  # those who decide elsewhere shall know at once
        except UnavailableError as error:
            answers = [(task, None, failed or error) for task, _, failed in answers]
            if self._is_shared:
                self.store.abandon()
        tell_all(answers)

    def _proposed(self, tasks: Sequence[Task]) -> tuple[Batch, list[Answer]]:
        """What some tasks propose in the present state, and what they would answer."""
        batch = Batch(self._time.now())
        answers: list[Answer] = []
        for place, task in enumerate(tasks):
            proposed = len(batch.events)
            try:
                answers.append((task, task.work(self.state, batch), None))
            except Exception as error:  # proposing changes nothing: only this one fails
                if len(batch.events) != proposed or isinstance(error, StoreError | UnavailableError):
                    raise
                answers.append((task, None, error))
            batch.owners += [place] * (len(batch.events) - proposed)
        return batch, answers

    def _committed(self, batch: Batch) -> bool:
        """Make what was proposed durable, and so; False if there were events before it that it does not know of yet."""
        if not self.available:
            known = self.state.seq
            self._recover()
            self.available = True
            if self._doubtful:
                self._set_aside_for_good()
                return False
            if self.state.seq != known:
                return False
        self._time.reach(batch.now)
        try:
            self._append(batch)
        except OvertakenError as others:
            self._follow(others.rows)
            return False
        except UnavailableError as error:  # what was stored and not applied is followed when it is there again
            self.available = False
            log.error("the store cannot take events: %s", error)
            raise
        return True

    def _tell(self, event: AnyEvent) -> None:
        for listener in self.on_event:
            listener(event, self.state)

    def _append(self, batch: Batch) -> None:
        seen = {"seen": self.state.seq} if self._is_shared else {}
        rows = self.store.append(batch.stored, batch.contents, **seen)
        if rows and rows[0].seq != self.state.seq:
            raise StoreError(f"event {self.state.seq} was written by another process")
        first = self.state.seq
        for place, event in enumerate(batch.events):
            try:
                replay.advance(self.state, event)
            except replay.UnappliableError as error:
                self._take_back(batch, first, error)
                for told in range(place, len(batch.events)):
                    if first + told not in self.state.aside:
                        self._tell(batch.events[told])
                return
            self._tell(event)

    def _take_back(self, batch: Batch, first: int, error: replay.UnappliableError) -> None:
        """Set aside all events of the tasks of which one could not be applied: the state is as if they had not asked.

        The state is made again from the newest snapshot, since a learner that raised may be half changed.
        """
        owners: set[int] = set()
        failed = {batch.owners[error.seq - first]}
        while failed != owners:
            owners = failed
            self._doubtful = {first + n: error.why for n, owner in enumerate(batch.owners) if owner in owners}
            self._make_state_again()
            failed = {owner for n, owner in enumerate(batch.owners) if first + n in self.state.aside}
        log.error("%d requests could not be done: %s", len(owners), error.why, exc_info=error.__cause__)
        batch.refused = dict.fromkeys(owners, error.__cause__ or error)
        self._set_aside_for_good()

    def _make_state_again(self) -> None:
        """Make the state again without doubtful events; UnavailableError if events that were applied before fail, too.

        Then it is not the event's fault, and nothing that was acknowledged is given up: it is tried again later.
        """
        state = replay.restored(self.store, self._doubtful)
        more = [seq for seq in state.aside if seq < min(self._doubtful) and seq not in self.state.aside]
        if more:
            raise UnavailableError(f"event {more[0]} was applied and no longer can be: {state.aside[more[0]]}")
        self.state = state

    def _set_aside_for_good(self) -> None:
        """Have every later replay leave out the doubtful events, too."""
        aside, self._doubtful = self._doubtful, {}
        with contextlib.suppress(UnavailableError):
            self._snapshot()
        self._serve([Task(lambda state, batch: batch.add(state, [SetAside(batch.tick(), aside)]), lambda *_: None)])

    def _recover(self) -> None:
        """After a failed commit: connect anew; what was written although it seemed to fail is followed."""
        self.store.reopen()
        if self._doubtful:
            self._make_state_again()
        self._follow(self.store.rows(self.state.seq))
        if self.store.head().seq < self.state.seq:
            raise StoreError("the store has lost events that were acknowledged")

    def _try_again(self) -> None:
        """Find out now and then, without waiting for a request, whether the store takes events again."""
        if not self.available and time.monotonic() - self._tried >= TRY_EVERY:
            with contextlib.suppress(UnavailableError):
                self._recover()
                self._snapshot()
                self.available = True
                if self._doubtful:
                    self._set_aside_for_good()
                log.info("the store takes events again")
            self._tried = time.monotonic()

    def _snapshot(self) -> None:
        self._published = time.monotonic()
        self._snapshot_at = self.state.seq  # also if it fails: the next one comes in its turn
        self.store.save_snapshot(self.state.seq, self.state.to_bytes())

    def _show(self, now: float) -> None:
        """Make a new view for those who only look."""
        if now - self._viewed >= VIEW_EVERY:
            self._viewed = now
            view: dict[str, Any] = {"time": now, "seq": self.state.seq, "available": self.available}
            for part in self.on_view:
                try:
                    view.update(part(self.state))
                except Exception as error:  # a page that cannot be drawn must not cost a decision
                    log.error("a view could not be made: %s", error)
            self.view = view

    def _refuse_rest(self) -> None:
        error = UnavailableError(
            "the service is ending" if self.failure is None else f"the service has stopped: {self.failure}"
        )
        taken, self._taken = self._taken, []
        tell_all([(task, None, error) for task in taken])
        while True:
            try:
                task = self._queue.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task.told(None, error)

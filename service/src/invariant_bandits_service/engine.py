"""The engine: one thread that owns the state, decides, learns and commits.

It answers a request only after what happened is committed.

Requests that come while a commit is under way are taken together in the next one. Within such a batch every
decision sees the state before it; what is learned is learned after the commit. So nothing has to be taken
back if it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from invariant_bandits_service import commands, replay
from invariant_bandits_service.commands import (
    Answer,
    Command,
    EventBatch,
    QueuedCommand,
    resolve_all,
)
from invariant_bandits_service.events import REMOVED, decode_event
from invariant_bandits_service.settings import DAY, Configuration
from invariant_bandits_service.state import (
    ConflictError,
    State,
    StateView,
    UnappliableError,
)
from invariant_bandits_service.store.open_store import Verification
from invariant_bandits_service.store.sql import (
    OvertakenError,
    Row,
    StoreError,
    UnavailableError,
)

MOST_QUEUED = 10_000
SNAPSHOT_EVERY = 4_000
"""A snapshot is taken after so many events."""
SNAPSHOT_PAUSE = 2_000.0
"""Times as long as the last one took pass before the next: fewer than one request in 1,000 waits for one."""
PUBLISH_PAUSE = 20.0
"""The same where others decide from snapshots: a twentieth of the time is spent on them."""
MOST_FOLLOWED_AT_START = 200_000
"""Events after which a snapshot is taken in any case: a start follows those after it."""
DASHBOARD_EVERY = 0.5
"""Seconds between two dashboards for the page and the metrics; the page asks once per second."""
FOLLOW_EVERY = 0.1
"""Seconds between two looks at what other processes have added to a shared store."""
LONGEST_STEP = 3.0
"""Seconds after which requests or a store that take so long make the service unready."""
RETRY_EVERY = 1.0
"""Seconds between two attempts at a store that has failed; requests are refused in between."""
LARGEST_BATCH = 256
"""Commands that share a commit."""
RETAIN_EVERY = 1.0
"""Seconds between two looks for events that are not kept any longer."""
MOST_REMOVED = 8192
"""So many events are removed at a time, so that requests wait for some hundredths of a second."""
PARTS = 16
"""Events are removed when there are so many times fewer of them than are kept, or MOST_REMOVED."""
MOST_FOLLOWED = 2048
"""So many events of others are followed before requests have their turn again."""

log = logging.getLogger("invariant_bandits_service")


JUMP = 1.0
"""Seconds that the clock of the machine may differ from what is expected of it."""
MOST_AHEAD = 7 * DAY
"""Seconds from the last event to a start, beyond which the clock may be wrong and must be confirmed."""
STEADY = 300.0
"""Seconds for which a clock that has jumped must stay where it is to be believed."""


def uptime() -> float:
    """Return seconds that no one can set; time in which the machine slept counts where that is known."""
    return (
        time.clock_gettime(time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic()
    )


class ServiceClock:
    """Seconds since 1970 that never jump, so that waits end when they should.

    They follow the clock of the machine as long as it goes evenly. If that jumps, they go on at the pace of
    the monotonic clock, and follow it only once it has stayed where it is for `STEADY` seconds.

    Parameters
    ----------
    latest : float
        When the last event happened, 0 without any; no time before this one is returned.
    clock, ticks : callable
        The machine's clock, and one that cannot be set.
    most_ahead : float
        A clock that is so many seconds ahead of the last event is not followed until it is confirmed.

    Attributes
    ----------
    offset : float
        Seconds by which the machine's clock is ahead of this one.
    jumps : int
        How often it jumped.
    """

    def __init__(
        self,
        latest: float,
        clock: Callable[[], float],
        ticks: Callable[[], float],
        most_ahead: float = math.inf,
    ) -> None:
        self.clock = clock
        self.ticks = ticks
        self.offset = 0.0
        self.jumps = 0
        self._read_at = ticks()
        self._jumped: tuple[float, float] | None = None
        """By how much, and when."""
        self._most_ahead = math.inf
        seconds = clock()
        self._time = max(latest, seconds)
        if latest and seconds - latest > most_ahead:
            self._time = latest
            self._most_ahead = most_ahead
            log.warning(
                "the clock is %.1f days ahead of the last event: no wait ends and nothing is "
                "removed by that until it is confirmed (POST /v1/clock/confirm)",
                (seconds - latest) / DAY,
            )

    @property
    def is_in_doubt(self) -> bool:
        """Whether the machine's clock must be confirmed before it is followed."""
        return self.offset > self._most_ahead

    def confirm(self) -> None:
        """Follow the machine's clock, however far ahead it was at the start."""
        self._most_ahead = math.inf
        # it need not be watched any longer
        self._jumped = (self.offset, -math.inf)

    def now(self) -> float:
        """Return the time, which never decreases but by `follow`."""
        before = self._time
        read_at = self.ticks()
        expected = before + max(read_at - self._read_at, 0.0)
        seconds = self.clock()
        self.offset = seconds - expected
        self._read_at = read_at
        if abs(self.offset) <= JUMP:
            self._time = max(before, seconds)
            self._jumped = None
            return self._time
        if self._jumped is None or abs(self.offset - self._jumped[0]) > JUMP:
            self._jumped = (self.offset, read_at)
            self.jumps = self.jumps + 1
            later = "no wait ends by that, and it is followed if it stays so for"
            log.warning(
                "the clock jumped by %+.0f s: %s %.0f s", self.offset, later, STEADY
            )
        self._time = expected
        return expected

    def pass_by(self, moment: float) -> None:
        """Return no time before `moment` from now on."""
        self._time = max(self._time, moment)

    def steady_jump(self) -> float | None:
        """Return by how much the clock has jumped, if it has stayed there for long enough."""
        is_steady = (
            self._jumped is not None and self._read_at - self._jumped[1] >= STEADY
        )
        return self.offset if is_steady and not self.is_in_doubt else None

    def follow(self, by: float) -> None:
        """Go on from a time that differs by so many seconds."""
        log.warning("the clock is followed: %+.0f s", by)
        self._time = self._time + by
        self._jumped = None


@dataclass(frozen=True)
class Retention:
    """How much of the past a running service keeps; what is neither asks for stays.

    Parameters
    ----------
    days : float or None
        Events older than this are removed.
    events : int or None
        Events beyond the latest so many are removed.
    """

    days: float | None = None
    events: int | None = None

    def first_kept(self, store: Any, moment: float, end: int) -> int:
        """Return the number of the first event to keep, at most `MOST_REMOVED` after the present one."""
        start: int = store.start().seq
        first = max(start, end - self.events) if self.events is not None else start
        if self.days is not None:
            last = min(start + MOST_REMOVED + 1, end)
            first = max(
                first, replay.first_since(store, moment - self.days * DAY, start, last)
            )
        return min(first, start + MOST_REMOVED)


class Engine:
    """Serves models from a store.

    Parameters
    ----------
    store : Store
        Opened for writing; the engine's own from now on.
    clock, ticks : callable
        Seconds since 1970, and seconds that no one can set; a clock that is given alone counts as both.
    publish_every : float
        Seconds between two snapshots for processes that decide from them; infinity if there are none.
    retention : Retention or None
        How much of the past is kept; all if it is None.
    state : State or None
        To begin with; that of the store if it is None.
    most_ahead : float
        See `ServiceClock`.
    """

    def __init__(
        self,
        store: Any,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] | None = None,
        publish_every: float = math.inf,
        retention: Retention | None = None,
        state: State | None = None,
        most_ahead: float = MOST_AHEAD,
    ) -> None:
        self.store = store
        self.clock = clock
        self.publish_every = publish_every
        self.state = replay.restore(store) if state is None else state
        self.failure: BaseException | None = None
        self.available = True
        self.verification: Verification | None = None
        self.retention = retention
        self.first_rules = Configuration()
        self._retained_at = -math.inf
        self._view = self.state.view()
        self.dashboard: dict[str, Any] = {}
        self.dashboard_parts: list[Callable[[State], dict[str, Any]]] = []
        ticks = ticks or (uptime if clock is time.time else clock)
        self._time = ServiceClock(replay.last_time(store), clock, ticks, most_ahead)
        # what a new learner has followed since the last snapshot is published at once
        self._snapshot_at = store.snapshot_seq() or 0
        self._published_at = 0.0
        self._snapshot_took = 0.0
        self._tried_at = -math.inf
        self._shown_at = -math.inf
        self._queue: queue.SimpleQueue[QueuedCommand | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._pending: list[QueuedCommand] = []
        self._has_ended = False
        self._busy_since: float | None = None
        if self.state.at is None:
            store.know(self.state.seq)

    # -- from outside --

    def view(self) -> StateView:
        """Return what the engine last made of the state for readers in other threads.

        An answer of a command is given after the view knows what the command did.
        """
        return self._view

    def problem(self) -> str | None:
        """Say why no decision can be made and stored at the moment; None if they can."""
        if self.failure is not None:
            return str(self.failure)
        since = self._busy_since
        if since is not None and time.monotonic() - since > LONGEST_STEP:
            return "the store does not answer, or the last requests take long"
        return None if self.available else "the store cannot take events"

    def confirm_clock(self) -> None:
        """Follow the machine's clock, however far ahead of the last event it was at the start."""
        self._time.confirm()

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error that was found elsewhere; nothing more is acknowledged."""
        log.critical("the engine has stopped: %s", error)
        self.failure = self.failure or error
        self._queue.put(None)

    def stop(self) -> None:
        """Finish pending commands, take a snapshot and close the store."""
        if self.verification is not None:
            self.verification.stop()
        if self._thread.ident is not None:  # it was started
            self._queue.put(None)
            self._thread.join()
        if self.failure is None:
            with contextlib.suppress(UnavailableError):
                self._snapshot()
        self.store.close()

    async def submit(self, command: Command[Answer], *, alone: bool = False) -> Answer:
        """Return the answer of a command, after everything it proposed is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._put(QueuedCommand(command, alone, future, loop))
        return await future

    def call(self, command: Command[Answer], *, alone: bool = False) -> Answer:
        """Do the same for callers without an event loop."""
        future: Future[Answer] = Future()
        self._put(QueuedCommand(command, alone, future))
        return future.result()

    def _put(self, item: QueuedCommand) -> None:
        if self.failure is not None:
            raise UnavailableError(f"the service has stopped: {self.failure}")
        if self._queue.qsize() >= MOST_QUEUED:
            raise UnavailableError("too many requests wait")
        self._queue.put(item)
        if self._has_ended:  # meanwhile: it would stay in the queue
            self._refuse_rest()

    # -- the thread --

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            self.fail(error)
        finally:
            self._has_ended = True
            self._refuse_rest()

    def _step(self) -> bool:
        """Serve the pending commands; False when it is time to end."""
        self._busy_since = None
        self._pending, go_on = self._take()
        self._busy_since = time.monotonic()
        self._try_again()
        while self._pending:
            # all up to the first command that must be alone, or that command
            size = 0
            while size < len(self._pending) and not self._pending[size].alone:
                size += 1
            part = self._pending[: size or 1]
            self._serve(part)
            self._pending = self._pending[len(part) :]
        moment = self._time.now()
        self._do_periodic_work(moment)
        self._view = self.state.view()
        self._update_dashboard(moment)
        return go_on

    def _do_periodic_work(self, moment: float) -> None:
        """Do the periodic work: follow other processes, settle what is due, take a snapshot."""
        if self.store.shared and self.available:
            try:
                if self._time.ticks() - self._shown_at >= DASHBOARD_EVERY:
                    self.store.head()  # notices a database that went back in time
                self._follow(self.store.next_rows(MOST_FOLLOWED))
            except UnavailableError as error:
                self._mark_unavailable(error)
        if due := self.state.due(moment, LARGEST_BATCH):
            self._serve(
                [QueuedCommand(commands.settle(model, id)) for model, id in due]
            )
        by = self._time.steady_jump()
        if by is not None:  # all waits and later events follow the clock
            moved = QueuedCommand(commands.move_clock(by))
            self._serve([moved])
            if moved.error is None:
                self._time.follow(by)
        if self.retention is not None and self.available:
            with contextlib.suppress(UnavailableError):
                self._retain(self.retention, moment)
        if self.available and self._is_snapshot_due():
            with contextlib.suppress(UnavailableError):
                self._snapshot()

    def _is_snapshot_due(self) -> bool:
        """Return whether a snapshot is worth its time: one of many waiting decisions takes long."""
        new = self.state.seq - self._snapshot_at
        since = time.monotonic() - self._published_at
        if new >= MOST_FOLLOWED_AT_START:
            return True
        if new and since >= max(
            self.publish_every, PUBLISH_PAUSE * self._snapshot_took
        ):
            return True
        return new >= SNAPSHOT_EVERY and since >= SNAPSHOT_PAUSE * self._snapshot_took

    def _retain(self, rule: Retention, moment: float) -> None:
        """Remove a part of what is not kept any longer."""
        if self._time.ticks() - self._retained_at >= RETAIN_EVERY:
            self._retained_at = self._time.ticks()
            first = rule.first_kept(self.store, moment, self.state.seq)
            start = self.store.start().seq
            if first - start >= min(
                MOST_REMOVED, (self.state.seq - first) // PARTS + 1
            ):
                self._serve([QueuedCommand(commands.retain(first), alone=True)])

    def _follow(self, rows: Iterable[Row]) -> None:
        """Apply events that other processes have added."""
        for row in rows:
            try:
                replay.follow(self.state, [row])
            except UnappliableError as error:
                self._restore({**self.state.aside, error.seq: error.why})
                return
            if row.key == REMOVED and decode_event(row.event).events:
                self._restore()
                return

    def _restore(self, aside: Mapping[int, str] | None = None) -> None:
        """Begin again from the newest snapshot.

        The snapshot that was stored with an erasure has no trace of what was erased.
        """
        try:
            self.state = replay.restore(self.store, aside)
        except UnavailableError as error:
            raise StoreError(f"the state cannot be read again: {error}") from None
        self.store.know(self.state.seq)

    def _idle_for(self) -> float:
        """Seconds to wait for requests."""
        due_in = max(self.state.next_due() - self._time.now(), 0.0)
        return min(due_in, FOLLOW_EVERY if self.store.shared else DASHBOARD_EVERY)

    def _take(self) -> tuple[list[QueuedCommand], bool]:
        wait = self._idle_for()
        queued: list[QueuedCommand] = []
        with contextlib.suppress(queue.Empty):
            item = self._queue.get(wait > 0.0, wait)
            while item is not None:
                queued.append(item)
                if len(queued) >= LARGEST_BATCH:
                    return queued, True
                item = self._queue.get_nowait()
            return queued, False
        return queued, True

    def _serve(self, queued: Sequence[QueuedCommand]) -> None:
        """Serve one batch: propose, commit, apply, answer."""
        try:
            batch = self._propose(queued)
            if batch.events or batch.cut is not None:
                while not self._commit(batch):
                    batch = self._propose(queued)
                for index, error in batch.refused.items():
                    queued[index].error = error
                # processes that decide elsewhere shall know of changes at once
                if any(item.alone for item in queued):
                    self._published_at = -math.inf
        except UnavailableError as error:
            for item in queued:
                item.error = item.error or error
            self.store.abandon()
        self._view = self.state.view()
        resolve_all(queued)

    def _propose(self, queued: Sequence[QueuedCommand]) -> EventBatch:
        """Return what the commands propose in the present state, and note their answers."""
        batch = EventBatch(self._time.now(), self.first_rules)
        for index, item in enumerate(queued):
            proposed = len(batch.events)
            item.error = None
            batch.begin()
            try:
                item.answer = item.command(self.state, batch)
            except (StoreError, UnavailableError):
                raise
            except Exception as error:  # proposing changes nothing: only this one fails
                batch.undo()
                item.error = error
            batch.owners += [index] * (len(batch.events) - proposed)
        return batch

    def _commit(self, batch: EventBatch) -> bool:
        """Make what was proposed durable, and apply it.

        Returns False if others had added events that the proposals do not know of yet.
        """
        if not self.available:
            raise UnavailableError("the store cannot take events")
        self._time.pass_by(batch.moment)
        try:
            self._append(batch)
        except OvertakenError as others:
            self._follow(others.rows)
            return False
        except UnavailableError as error:
            # what was stored all the same is followed when the store is there again
            self._mark_unavailable(error)
            raise
        return True

    def _mark_unavailable(self, error: UnavailableError) -> None:
        self.available = False
        log.error("the store cannot take events: %s", error)

    def _append(self, batch: EventBatch) -> None:
        rows = self.store.append(
            batch.stored, batch.contents, seen=self.state.seq, cut=batch.cut
        )
        if rows and rows[0].seq != self.state.seq:
            raise StoreError(f"event {self.state.seq} was written by another process")
        self.store.follow(rows)
        if batch.cut is not None:
            self.state.records.forget()  # what is known of a decision is what a restart would know
            with contextlib.suppress(UnavailableError):
                if batch.events:  # what was asked to be removed leaves no trace
                    self.store.shrink(fully=False)
            if batch.cut.without_trace:
                self._restore()
                return
        first = self.state.seq
        try:
            for event in batch.events:
                self.state.apply(event)
        except UnappliableError as error:
            self._take_back(batch, first, error)

    def _take_back(
        self, batch: EventBatch, first: int, error: UnappliableError
    ) -> None:
        """Set aside all events of commands of which one could not be applied, as if these had not been asked.

        The state is made again from the newest snapshot, since a learner that raised may be half changed. If
        the store is gone, or events fail that were applied before, the engine stops.
        """
        owners: set[int] = set()
        known = self.state.aside.keys()
        failed = {batch.owners[error.seq - first]}
        while failed != owners:
            owners = failed
            aside: dict[int, str] = {}
            for seq, owner in enumerate(batch.owners, start=first):
                if owner in owners:
                    aside[seq] = error.why
            try:
                self.state = replay.restore(self.store, aside)
            except UnavailableError as gone:
                raise StoreError(
                    f"the state is half changed by event {error.seq}: {gone}"
                ) from error
            if (lost := min(self.state.aside.keys() - known)) < first:
                raise StoreError(
                    f"event {lost} was applied and no longer can be: {self.state.aside[lost]}"
                )
            failed = set()
            for seq, owner in enumerate(batch.owners, start=first):
                if seq in self.state.aside:
                    failed.add(owner)
        log.error(
            "%d requests could not be done: %s",
            len(owners),
            error.why,
            exc_info=error.__cause__,
        )
        batch.refused = dict.fromkeys(owners, error.__cause__ or error)
        with contextlib.suppress(UnavailableError):
            self._snapshot()
        self._serve([QueuedCommand(commands.set_aside(aside))])

    def _try_again(self) -> None:
        """Connect anew to a store that has failed, from time to time."""
        if not self.available and time.monotonic() - self._tried_at >= RETRY_EVERY:
            self._tried_at = time.monotonic()
            with contextlib.suppress(UnavailableError):
                self.store.reopen()
                self._recover()
                self.available = True
                self._tried_at = -math.inf
                log.info("the store takes events again")

    def _recover(self) -> None:
        """Follow what was written although it seemed to fail, and take a snapshot."""
        self.store.head()  # must not be before what was acknowledged
        while rows := self.store.next_rows():
            self._follow(rows)
        self._snapshot()

    def _snapshot(self) -> None:
        self._published_at = time.monotonic()
        # also if it fails: the next one comes in its turn
        self._snapshot_at = self.state.seq
        kept = math.inf
        if self.retention is not None:
            kept = self.state.seq - self.store.start().seq
        content = self.state.to_bytes()
        self.store.save_snapshot(self.state.seq, content, gap=kept / PARTS)
        self._snapshot_took = time.monotonic() - self._published_at

    def _update_dashboard(self, moment: float) -> None:
        """Make a new dashboard for the page and the metrics."""
        if self._time.ticks() - self._shown_at >= DASHBOARD_EVERY:
            self._shown_at = self._time.ticks()
            dashboard: dict[str, Any] = {
                "time": moment,
                "seq": self.state.seq,
                "available": self.available,
                "gauges": self.gauges(),
            }
            for part in self.dashboard_parts:
                # a page that cannot be drawn must not cost a decision
                try:
                    dashboard.update(part(self.state))
                except Exception as error:
                    log.error("the dashboard could not be made: %s", error)
            self.dashboard = dashboard

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return metrics of the engine: name -> help text and value."""
        return {
            "clock_offset_seconds": (
                "How far the machine's clock is ahead of events.",
                self._time.offset,
            ),
            "clock_jumps": (
                "Jumps of the machine's clock that were not followed at once.",
                self._time.jumps,
            ),
            "clock_in_doubt": (
                "Whether the machine's clock must be confirmed before it is followed.",
                self._time.is_in_doubt,
            ),
        }

    def _refuse_rest(self) -> None:
        why = "is ending" if self.failure is None else f"has stopped: {self.failure}"
        refused = self._pending
        self._pending = []
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._queue.get_nowait()
                refused += [] if item is None else [item]
        for item in refused:
            item.error = UnavailableError(f"the service {why}")
        resolve_all(refused)


LOOK_EVERY = 0.2
"""Seconds between two looks for a newer published state."""
MOST_STALE = 30.0
"""Seconds without a successful look after which a decider is not ready."""
LONGEST_UNLEARNED = 300.0
"""Seconds for which events may wait for a learner to publish them, until a decider is not ready."""
MOST_LOOKS = 10_000
"""Looks that found new events, of which the times are remembered: half an hour."""


class Decider(Engine):
    """Decides from what a learner has published, and never learns.

    Parameters
    ----------
    store : open_store
        Opened for writing, not for learning.
    clock : callable
        Seconds since 1970.
    """

    def __init__(self, store: Any, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(
            store, clock=clock, state=published_state(store), most_ahead=math.inf
        )
        self._newest = self.state
        self._head_seq = self.state.seq
        self._current_at = time.monotonic()
        self._unpublished: deque[tuple[int, float]] = deque()
        """Ends of the chain that no published state holds yet, and when they were first seen."""
        store.know(self.state.seq)
        self._stopping = threading.Event()
        self._watcher = threading.Thread(
            target=self._watch_published, name="published states", daemon=True
        )

    def start(self) -> None:
        """Begin to serve."""
        self._watcher.start()
        super().start()

    def stop(self) -> None:
        """Finish pending commands and close the store."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        super().stop()

    def _watch_published(self) -> None:
        """Fetch newer states in a thread of their own, so that no decision waits for them."""
        is_readable = True
        while not self._stopping.wait(LOOK_EVERY):
            try:
                if (self.store.snapshot_seq() or 0) > self._newest.seq:
                    self._newest = published_state(self.store)
                    self.store.know(self._newest.seq)
                self._note_end(self.store.head().seq)
                self._current_at = time.monotonic()
                is_readable = True
            except Exception as error:  # it may be whole, or there, the next time
                if is_readable and not isinstance(error, UnavailableError):
                    log.error(
                        "the newest published state cannot be read, and is tried again: %s",
                        error,
                    )
                is_readable = False

    def _note_end(self, seq: int) -> None:
        """Remember when there were first so many events, until a published state holds them."""
        ends = self._unpublished
        while ends and ends[0][0] <= self._newest.seq:
            ends.popleft()
        last = ends[-1][0] if ends else self._newest.seq
        if seq > last and len(ends) < MOST_LOOKS:
            ends.append((seq, time.monotonic()))

    def state_age(self) -> float:
        """Return for how long there have been events that no published state holds."""
        oldest = next(iter(self._unpublished), None)
        seen = self._current_at if oldest is None else min(oldest[1], self._current_at)
        return time.monotonic() - seen

    def problem(self) -> str | None:
        """Say why no decision can be made, or why it would be made from an old state."""
        why = super().problem()
        silent = time.monotonic() - self._current_at
        age = self.state_age()
        if why is None and silent > MOST_STALE:
            why = f"no newer state could be read for {silent:.0f} s"
        if why is None and age > LONGEST_UNLEARNED:
            why = f"no learner has published what happened in the last {age:.0f} s"
        return why

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return metrics of the engine: name -> help text and value."""
        about = (
            "Seconds for which there have been events that no published state holds."
        )
        return {**super().gauges(), "state_age_seconds": (about, self.state_age())}

    def _put(self, item: QueuedCommand) -> None:
        if item.alone:
            raise ConflictError(
                "role: this process only decides; changes are made where the learner listens"
            )
        super()._put(item)

    def _do_periodic_work(self, moment: float) -> None:
        self.state = self._newest
        jump = self._time.steady_jump()
        if jump is not None:
            self._time.follow(jump)

    def _snapshot(self) -> None:
        """Do nothing: only the learner takes snapshots."""

    def _idle_for(self) -> float:
        return LOOK_EVERY

    def _propose(self, queued: Sequence[QueuedCommand]) -> EventBatch:
        """Return what the commands propose; their decisions are read from the store, to which others add."""
        self.state = self._newest
        self.state.records.forget()
        try:
            self._head_seq = self.store.head().seq
        except UnavailableError:
            self.available = False
            raise
        return super()._propose(queued)

    def _follow(self, rows: Iterable[Row]) -> None:
        """Do nothing: a decider reads events of other processes when it needs them."""

    def _append(self, batch: EventBatch) -> None:
        keys = list(batch.pending)
        self.store.follow(
            self.store.append(
                batch.stored, batch.contents, seen=self._head_seq, keys=keys
            )
        )

    def _recover(self) -> None:
        """Do nothing: a decider follows no events."""


def published_state(store: Any) -> State:
    """The newest state that a learner has published; UnavailableError if there is none yet."""
    snapshot = store.latest_snapshot()
    if snapshot is None:
        raise UnavailableError("no learner has published a model yet")
    return State.from_bytes(snapshot[1], store, published=True)

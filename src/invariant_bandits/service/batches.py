"""What is proposed until the next commit, and whom to tell after it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import AnyEvent, encoded, key_of
from invariant_bandits.service.records import Record
from invariant_bandits.service.state import State, follow


@dataclass
class Batch:
    """What is proposed until the next commit."""

    now: float
    events: list[AnyEvent] = field(default_factory=list)
    stored: list[tuple[str | None, bytes]] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    near: dict[str, Record] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)
    """Of each event, the place of the task that proposed it."""
    refused: dict[int, BaseException] = field(default_factory=dict)
    """Places of tasks whose events could not be applied, and why."""

    def add(self, state: State, events: Sequence[AnyEvent]) -> None:
        """Propose these, too."""
        stored = [_stored(event) for event in events]  # fails here, if at all, for one request only
        self.stored += stored
        self.events += events
        follow(self.near, state, events)

    def copy(self) -> Batch:
        """A batch of its own, to try several works that are all wanted or none."""
        near = {key: record.copy() for key, record in self.near.items()}
        return Batch(self.now, list(self.events), list(self.stored), list(self.contents), near, dict(self.drawn))

    def become(self, other: Batch) -> None:
        """Take over what was tried."""
        self.now, self.events, self.stored, self.contents = other.now, other.events, other.stored, other.contents
        self.near, self.drawn = other.near, other.drawn

    def tick(self) -> float:
        """A time of its own for the next event."""
        self.now += 1e-6
        return self.now


def _stored(event: AnyEvent) -> tuple[str | None, bytes]:
    """The key and the stored form of an event; InputError if it holds what cannot be stored, such as half a sign."""
    key = key_of(event)
    try:
        (key or "").encode()
        return key, encoded(event)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise InputError(f"body: it cannot be stored: {error}") from None


Work = Callable[[State, Batch], Any]


@dataclass
class Task:
    """Something to do in the engine's thread, and whom to tell.

    Parameters
    ----------
    work : callable
        Proposes events and returns the answer, which is told after the commit.
    alone : bool
        Whether it must see everything before it, and be seen by everything after it.
    """

    work: Work
    told: Callable[[Any, BaseException | None], None]
    alone: bool = False


Answer = tuple[Task, Any, BaseException | None]
"""A task, what it is told, or why it failed."""


class Teller:
    """Tells a waiting coroutine."""

    __slots__ = ("future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self.loop, self.future = loop, future

    def __call__(self, answer: Any, error: BaseException | None) -> None:
        """The answer, or why there is none."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(_resolve, [(self.future, answer, error)])


def _resolve(answers: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, answer, error in answers:
        if not future.done():
            future.set_result(answer) if error is None else future.set_exception(error)


def tell_all(answers: Sequence[Answer]) -> None:
    """Tell everybody, each event loop once."""
    together: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
    for task, answer, error in answers:
        if isinstance(task.told, Teller):
            together.setdefault(task.told.loop, []).append((task.told.future, answer, error))
        else:
            task.told(answer, error)
    for loop, those in together.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, those)

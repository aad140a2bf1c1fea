"""What can be asked of an engine: functions that propose events and say what is answered once these are durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import (
    AnyEvent,
    ArmAdded,
    ArmRetired,
    Configured,
    Decided,
    Origin,
    VersionActivated,
    VersionAdded,
    encoded,
    key_of,
)
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.settings import Configuration
from invariant_bandits.service.state import Asked, ConflictError, Given, NotFoundError, Record, State, follow


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


def decide(asked: Asked) -> Work:
    """A decision, as its event."""

    def work(state: State, batch: Batch) -> Decided:
        drawn = batch.drawn.get(asked.model, 0)
        events, decided = state.decision(asked, batch.tick(), batch.near, drawn)
        if events:
            batch.drawn[asked.model] = drawn + 1
            batch.add(state, events)
        return decided

    return work


def reward(given: Given) -> Work:
    """The status of a reward that came."""

    def work(state: State, batch: Batch) -> str:
        events, status = state.reward(given, batch.tick(), batch.near)
        batch.add(state, events)
        return status

    return work


def activate(id: str, model: str | None = None) -> Work:
    """Whether a deferred decision was shown for the first time."""

    def work(state: State, batch: Batch) -> bool:
        events = state.activation(id, model, batch.tick(), batch.near)
        batch.add(state, events)
        return bool(events)

    return work


def settle(model: str, id: str) -> Work:
    """Settle a decision whose wait has ended."""
    return lambda state, batch: batch.add(state, state.settlement(model, id, batch.tick()))


def add_version(
    model: str,
    learner: Learner,
    origin: Origin,
    *,
    note: str = "",
    by: str = "",
    active: bool = True,
    first: bool = False,
    alike: bool = False,
    through: int | None = None,
    evaluation: dict[str, Any] | None = None,
    why: str = "new",
) -> Work:
    """Name of a new version with this state; to be done alone.

    With `first` it must be the first one: a model of that name must not exist yet. With `alike` it must take the same
    requests as the active version: ConflictError lists the differences. `through` is the number of the event
    up to which decisions are part of its history; the present one if it is not given.
    """

    def work(state: State, batch: Batch) -> str:
        if first and model in state.models:
            raise InputError(f"model: {model!r} exists already")
        differences = state.model(model).learner.differences(learner) if alike else []
        if differences:
            words = "; ".join(differences)
            raise ConflictError(f"body: the model differs from the active version: {words}", differences)
        content = learner.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        known = state.models[model].versions if model in state.models else {}
        number = max((int(name.partition("-")[0]) for name in known), default=0) + 1
        version = f"{number}-{digest[:8]}"
        told = state.seq if through is None else through
        added = VersionAdded(batch.tick(), model, version, learner.kind, digest, origin, note, by, told, evaluation)
        batch.contents.append(content)
        batch.add(state, [added])
        if active:
            batch.add(state, [VersionActivated(batch.tick(), model, version, why, by)])
        return version

    return work


def activate_version(model: str, version: str, *, why: str = "", by: str = "") -> Work:
    """Have a version decide from now on; to be done alone."""

    def work(state: State, batch: Batch) -> str:
        served = state.model(model)
        if version not in served.versions:
            raise NotFoundError(f"version: {version!r} is not one of {', '.join(served.versions)}")
        if version != served.version:
            batch.add(state, [VersionActivated(batch.tick(), model, version, why, by)])
        return version

    return work


def roll_back(model: str, *, by: str = "") -> Work:
    """Return to the version before the active one, exactly as it was left; to be done alone."""

    def work(state: State, batch: Batch) -> str:
        version = state.model(model).previous()
        batch.add(state, [VersionActivated(batch.tick(), model, version, "roll back", by)])
        return version

    return work


def configure(model: str, configuration: Configuration, *, by: str = "") -> Work:
    """Change the rules of a model; to be done alone."""

    def work(state: State, batch: Batch) -> Configuration:
        if state.model(model).configuration != configuration:
            batch.add(state, [Configured(batch.tick(), model, configuration, by)])
        return configuration

    return work


def change_arms(model: str, label: str, *, add: bool, features: dict[str, Any] | None = None, by: str = "") -> Work:
    """Add an arm or retire one, tried on a copy first; to be done alone."""

    def work(state: State, batch: Batch) -> dict[str, bool]:
        learner = state.model(model).learner
        trial = type(learner).from_bytes(learner.to_bytes(), "this model")
        if add:
            trial.add_arm(label, features)
            batch.add(state, [ArmAdded(batch.tick(), model, label, features, by)])
        else:
            trial.retire_arm(label)
            batch.add(state, [ArmRetired(batch.tick(), model, label, by)])
        return trial.arms

    return work


def all_or_none(works: Sequence[Work]) -> Work:
    """The answers of several works, of which all are done or none."""

    def work(state: State, batch: Batch) -> list[Any]:
        trial = batch.copy()
        answers = [one(state, trial) for one in works]
        batch.become(trial)
        return answers

    return work


def inspect(look: Callable[[State], Any]) -> Work:
    """What a function says of the state; it must not change it."""
    return lambda state, batch: look(state)

"""What can be asked of an engine: functions that propose events and say what is answered once these are durable."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.batches import Batch, Work
from invariant_bandits.service.configuration import Configuration
from invariant_bandits.service.events import (
    ArmAdded,
    ArmRetired,
    Configured,
    Decided,
    Origin,
    VersionActivated,
    VersionAdded,
)
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.requests import Asked, Given
from invariant_bandits.service.state import ConflictError, NotFoundError, State


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

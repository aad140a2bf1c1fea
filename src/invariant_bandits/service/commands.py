"""Commands of the engine: each proposes events, and returns the answer for when these are durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import (
    Activated,
    AnyEvent,
    ArmAdded,
    ArmRetired,
    Closed,
    Configured,
    Decided,
    Origin,
    Rewarded,
    SetAside,
    VersionActivated,
    VersionAdded,
    decision_key,
    encode_event,
    key_of,
)
from invariant_bandits.service.learners.base import Learner
from invariant_bandits.service.settings import Configuration
from invariant_bandits.service.state import ConflictError, NotFoundError, Record, ServedModel, State
from invariant_bandits.service.store.chain import StoreError

LARGEST_REWARD = 1e9
MOST_WAITING = 1_000_000
"""Decisions of a model that may wait for their rewards."""
MEASURED_EVERY = 8
"""What exploration costs is computed for one of so many decisions."""


@dataclass
class EventBatch:
    """The events that are proposed for the next commit.

    Parameters
    ----------
    moment : float
        Seconds since 1970 of the latest event.
    events, stored, contents
        The events, their keys and stored form, and contents that they refer to.
    pending : dict of str to Record
        Records by key as they will be after the commit.
    drawn : dict of str to int
        Decisions by model.
    owners : list of int
        Of each event, the place of the command that proposed it.
    refused : dict of int to exception
        Places of commands whose events could not be applied, and why.
    """

    moment: float
    events: list[AnyEvent] = field(default_factory=list)
    stored: list[tuple[str | None, bytes]] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    pending: dict[str, Record] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)
    refused: dict[int, BaseException] = field(default_factory=dict)

    def add(self, state: State, events: Sequence[AnyEvent]) -> None:
        """Propose these events as well."""
        stored = [_stored(event) for event in events]  # fails here, if at all, for one request only
        self.stored += stored
        self.events += events
        for event, (key, _) in zip(events, stored, strict=True):
            if key is None or isinstance(event, SetAside):
                continue
            if key not in self.pending:
                cached = isinstance(event, Decided)
                known = state.records.cached(key) if cached else state.records.find(key)
                self.pending[key] = Record() if known is None else known.copy()
            self.pending[key].take(event)

    def copy(self) -> EventBatch:
        """Return a batch of its own, to try several commands of which all are wanted or none."""
        pending = {key: record.copy() for key, record in self.pending.items()}
        events, stored, contents = list(self.events), list(self.stored), list(self.contents)
        return replace(
            self, events=events, stored=stored, contents=contents, pending=pending, drawn=dict(self.drawn)
        )

    def become(self, other: EventBatch) -> None:
        """Take over what was tried in a copy."""
        vars(self).update(vars(other))

    def tick(self) -> float:
        """Return a time of its own for the next event."""
        self.moment += 1e-6
        return self.moment


def _stored(event: AnyEvent) -> tuple[str | None, bytes]:
    """Return the key and the stored form of an event; InputError if it holds what cannot be stored."""
    key = key_of(event)
    try:
        (key or "").encode()
        return key, encode_event(event)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise InputError(f"body: it cannot be stored: {error}") from None


Command = Callable[[State, EventBatch], Any]


@dataclass
class QueuedCommand:
    """A command in the engine's queue, and the caller's future.

    Parameters
    ----------
    command : callable
        Proposes events and returns the answer.
    future : future or None
        Of the caller, which has its answer after the commit.
    alone : bool
        Whether it must see everything before it, and be seen by everything after it.
    """

    command: Command
    future: asyncio.Future[Any] | Future[Any] | None = None
    alone: bool = False
    answer: Any = None
    error: BaseException | None = None

    def resolve(self) -> None:
        """Give the caller its answer, or the error; in the thread of its event loop, if it has one."""
        if self.future is not None and not self.future.done():
            if self.error is None:
                self.future.set_result(self.answer)
            else:
                self.future.set_exception(self.error)


def resolve_all(queued: Sequence[QueuedCommand]) -> None:
    """Give all callers their answers; each event loop is called once."""
    loops: dict[asyncio.AbstractEventLoop, list[QueuedCommand]] = {}
    for item in queued:
        if isinstance(item.future, asyncio.Future):
            loops.setdefault(item.future.get_loop(), []).append(item)
        else:
            item.resolve()
    for loop, items in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_resolve, items)


def _resolve(queued: Sequence[QueuedCommand]) -> None:
    for item in queued:
        item.resolve()


@dataclass(frozen=True)
class DecisionCommand:
    """Decide; the answer is the event.

    Parameters
    ----------
    context : mapping or None
        What all offered actions share.
    labels : sequence of str
        Offered arms by name; with neither labels nor actions, all active arms.
    actions : sequence or None
        What is known of each offered action.
    id : str or None
        The same id again has the same answer, and must be asked with the same context and actions.
    scores : bool
        Whether expected rewards are wanted.
    deferred : bool
        Whether the decision counts only once it is activated.
    extra : mapping or None
        What the protocol wants to find again, stored with the decision.
    """

    model: str = "default"
    context: Mapping[str, Any] | None = None
    labels: Sequence[str] = ()
    actions: Sequence[Any] | None = None
    id: str | None = None
    scores: bool = False
    deferred: bool = False
    protocol: str = "v1"
    extra: dict[str, Any] | None = None

    def __call__(self, state: State, batch: EventBatch) -> Decided:
        """Propose the decision; nothing if its id was decided before."""
        moment, served = batch.tick(), state.model(self.model)
        known = None if self.id is None else state.record(self.id, self.model, batch.pending)
        if known is not None and (known.decided is not None or known.grouped is not None):
            if known.decided is None or not self._is_about(known.decided):
                before = f"{self.model!r} has decided under {self.id!r} already"
                raise ConflictError(f"id: {before}, with another context or other arms")
            return known.decided
        if len(served.waiting) >= MOST_WAITING:
            raise InputError(f"model: {self.model!r} has {MOST_WAITING:,} decisions that wait for rewards")
        decided = self._decide(state, served, moment, batch.drawn.get(self.model, 0))
        events: list[AnyEvent] = [decided]
        if known is not None and known.rewards:  # they came before their decision
            values = [reward.value for reward in known.rewards]
            events += [
                Rewarded(moment, decided.id, served.name, reward.value, "joined", reward.request)
                for reward in known.rewards
            ]
            if served.configuration.reward_wait is None and not self.deferred and state.at is None:
                events.append(served.close(moment, decided.id, values))
        batch.drawn[self.model] = batch.drawn.get(self.model, 0) + 1
        batch.add(state, events)
        return decided

    def _decide(self, state: State, served: ServedModel, moment: float, drawn: int) -> Decided:
        """Return the decision, `drawn` of the same model being proposed before it."""
        id = self.id or _new_id(moment)
        draw = (
            served.counts.decisions + drawn if state.at is None else _draw_of(decision_key(id, served.name))
        )
        round, choice = served.choose(self.context, self.labels, self.actions, draw)
        measured = draw % MEASURED_EVERY == 0
        means = served.learner.means(round) if self.scores or measured else None
        return Decided(
            moment,
            id,
            served.name,
            served.version,
            draw,
            None if self.context is None else dict(self.context),
            list(round.labels),
            None if self.actions is None else list(self.actions),
            choice.place,
            choice.propensities,
            means if self.scores else None,
            self.deferred,
            choice.explored,
            self.protocol,
            self.extra,
            choice.cost(means) if means is not None and measured else None,
            state.at,
            not self.labels and self.actions is None,
        )

    def _is_about(self, decided: Decided) -> bool:
        """Return whether a decision is what is asked for; expected rewards may be asked for later."""
        if self.labels or self.actions is not None:
            actions = None if self.actions is None else list(self.actions)
            if decided.all_arms or decided.labels != list(self.labels) or decided.actions != actions:
                return False
        elif not decided.all_arms:
            return False
        return (decided.context, decided.deferred, decided.extra) == (self.context, self.deferred, self.extra)


def _draw_of(key: str) -> int:
    """Return a number for the random draw that processes which know nothing of each other share only by
    chance.
    """
    return int.from_bytes(hashlib.sha256(key.encode(errors="surrogatepass")).digest()[:7], "little")


def _new_id(moment: float) -> str:
    """Return an id that cannot be guessed and begins with its time: neighbours in time stay so in the
    index.
    """
    return f"{int(moment * 1e6):014x}{secrets.token_hex(8)}"


@dataclass(frozen=True)
class RewardCommand:
    """Take a reward; the answer is its status.

    Parameters
    ----------
    id : str
        Of the decision.
    value : float
    request : str or None
        Distinguishes a repeated call from another reward.
    model : str or None
        Without it, the only model that has decided under the id, see `State.owner`.
    """

    id: str
    value: float
    request: str | None = None
    model: str | None = None

    def __call__(self, state: State, batch: EventBatch) -> str:
        """Propose the reward, and the settlement of its decision unless that waits for more."""
        moment, value = batch.tick(), self.value
        if not math.isfinite(value) or abs(value) > LARGEST_REWARD:
            raise InputError(f"value must be a finite number of at most {LARGEST_REWARD:g}, got {value!r}")
        served = state.owner(self.id, self.model, batch.pending)
        record = state.record(self.id, served.name, batch.pending) or Record()
        single = served.configuration.aggregation == "earliest"
        if any(self._is_repeated(reward, record, single) for reward in record.rewards):
            return "unchanged"
        if record.decided is None:
            batch.add(state, [Rewarded(moment, self.id, served.name, value, "unknown", self.request)])
            return "unknown"
        if single and (earlier := record.joined()):
            if served.configuration.conflicts == "ignore":
                return "ignored"
            already = f"decision {self.id!r} has the reward {earlier[0]!r} already"
            raise ConflictError(f"value: {already}, which {value!r} contradicts")
        if record.closed is not None:
            batch.add(state, [Rewarded(moment, self.id, served.name, value, "late", self.request)])
            return "late"
        events: list[AnyEvent] = [Rewarded(moment, self.id, served.name, value, "joined", self.request)]
        status = "waiting"
        if record.activated and state.at is None and not served.awaits(record.decided):
            closed = served.close(moment, self.id, [value])
            events.append(closed)
            status = "kept" if closed.value is None else "learned"
        batch.add(state, events)
        return status

    def _is_repeated(self, reward: Rewarded, record: Record, single: bool) -> bool:
        """Return whether a reward is this one: of the same request, or of the same value where one is all
        there is.
        """
        if record.decided is None:
            return reward.value == self.value and reward.request == self.request
        is_same_request = self.request is not None and reward.request == self.request
        return is_same_request or (single and reward.value == self.value)


def activate(id: str, model: str | None = None) -> Command:
    """Activate a deferred decision; the answer is whether that is new."""

    def command(state: State, batch: EventBatch) -> bool:
        moment, served = batch.tick(), state.owner(id, model, batch.pending)
        record = state.record(id, served.name, batch.pending)
        if record is None or record.decided is None:
            raise NotFoundError(f"id: decision {id!r} is not known")
        if record.activated or record.closed is not None:
            return False
        events: list[AnyEvent] = [Activated(moment, id, served.name)]
        if record.joined() and not served.awaits(record.decided) and state.at is None:
            events.append(served.close(moment, id, record.joined()))
        batch.add(state, events)
        return True

    return command


def settle(model: str, id: str) -> Command:
    """Settle a decision whose wait has ended, unless it was settled meanwhile."""

    def command(state: State, batch: EventBatch) -> None:
        moment, served = batch.tick(), state.models[model]
        if id not in served.waiting:
            return
        record = state.records.find(decision_key(id, model))
        if record is None or record.decided is None:
            raise StoreError(f"decision {id!r} waits for rewards, and its event is not in the store")
        if record.activated:
            batch.add(state, [served.close(moment, id, record.joined())])
        else:
            batch.add(state, [Closed(moment, id, model, None, "not activated")])

    return command


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
    unless_known: bool = False,
    through: int | None = None,
    evaluation: dict[str, Any] | None = None,
    why: str = "new",
) -> Command:
    """Name of a new version with this state; to be done alone.

    With `first` it must be the first one: a model of that name must not exist yet. With `alike` it must take
    the same requests as the active version: ConflictError lists the differences. With `unless_known` nothing
    is added if a version has exactly this content: the answer is the active one. `through` is the number of
    the event up to which decisions are part of its history; the present one if it is not given.
    """

    def command(state: State, batch: EventBatch) -> str:
        if first and model in state.models:
            raise InputError(f"model: {model!r} exists already")
        differences = state.model(model).learner.differences(learner) if alike else []
        if differences:
            words = "; ".join(differences)
            raise ConflictError(f"body: the model differs from the active version: {words}", differences)
        content = learner.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        known = state.models[model].versions if model in state.models else {}
        if unless_known and any(added.content == digest for added in known.values()):
            return state.models[model].version
        number = max((int(name.partition("-")[0]) for name in known), default=0) + 1
        version = f"{number}-{digest[:8]}"
        last = state.seq if through is None else through
        about = (model, version, learner.kind, digest, origin, note, by, last, evaluation)
        batch.contents.append(content)
        batch.add(state, [VersionAdded(batch.tick(), *about)])
        if active:
            batch.add(state, [VersionActivated(batch.tick(), model, version, why, by)])
        return version

    return command


def activate_version(model: str, version: str, *, why: str = "", by: str = "") -> Command:
    """Have a version decide from now on; to be done alone."""

    def command(state: State, batch: EventBatch) -> str:
        served = state.model(model)
        if version not in served.versions:
            raise NotFoundError(f"version: {version!r} is not one of {', '.join(served.versions)}")
        if version != served.version:
            batch.add(state, [VersionActivated(batch.tick(), model, version, why, by)])
        return version

    return command


def roll_back(model: str, *, by: str = "") -> Command:
    """Return to the version before the active one, exactly as it was left; to be done alone."""

    def command(state: State, batch: EventBatch) -> str:
        version = state.model(model).previous()
        batch.add(state, [VersionActivated(batch.tick(), model, version, "roll back", by)])
        return version

    return command


def configure(model: str, configuration: Configuration, *, by: str = "") -> Command:
    """Change the rules of a model; to be done alone."""

    def command(state: State, batch: EventBatch) -> Configuration:
        if state.model(model).configuration != configuration:
            batch.add(state, [Configured(batch.tick(), model, configuration, by)])
        return configuration

    return command


def change_arms(
    model: str, label: str, *, add: bool, features: dict[str, Any] | None = None, by: str = ""
) -> Command:
    """Add an arm or retire one, tried on a copy first; to be done alone."""

    def command(state: State, batch: EventBatch) -> dict[str, bool]:
        learner = state.model(model).learner
        trial = type(learner).from_bytes(learner.to_bytes(), "this model")
        if add:
            trial.add_arm(label, features)
            batch.add(state, [ArmAdded(batch.tick(), model, label, features, by)])
        else:
            trial.retire_arm(label)
            batch.add(state, [ArmRetired(batch.tick(), model, label, by)])
        return trial.arms

    return command


def all_or_none(commands: Sequence[Command]) -> Command:
    """Do all of several commands or none; the answer is the list of theirs."""

    def command(state: State, batch: EventBatch) -> list[Any]:
        trial = batch.copy()
        answers = [part(state, trial) for part in commands]
        batch.become(trial)
        return answers

    return command


def inspect(look: Callable[[State], Any]) -> Command:
    """Answer what a function returns for the state, which it must not change."""
    return lambda state, batch: look(state)

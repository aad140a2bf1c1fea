"""Commands of the engine: each proposes events, and returns the answer for when these are durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from invariant_bandits.checks import InputError
from invariant_bandits_service import events, history, learners, replay, settings
from invariant_bandits_service.events import (
    AnyEvent,
    Closed,
    Decided,
    DecisionEvent,
    Rewarded,
    decision_key,
)
from invariant_bandits_service.state import (
    ConflictError,
    NotFoundError,
    Record,
    ServedModel,
    State,
    usual_model,
)
from invariant_bandits_service.store.sql import Cut, Row, StoreError

LARGEST_REWARD = 1e9
"""A larger one is a mistake rather than an amount; sums of squares stay far from overflow."""
MOST_COST = 100_000
"""Numbers (features × arms, over all decisions) that one request may have encoded: about half a second."""
MOST_UNUSED = 10
"""Versions of a model, the latest, that are kept although they neither decide nor can be returned to."""


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
        Of each event, the index of the command that proposed it.
    refused : dict of int to exception
        Indices of commands whose events could not be applied, and why.
    cut : Cut or None
        What is removed from the store with this commit.
    cost : float
        Of the decisions of the command that was begun last, see `Learner.cost`.
    first_rules : Configuration
        Rules of a model that is made.
    """

    moment: float
    first_rules: settings.Configuration = field(default_factory=settings.Configuration)
    events: list[AnyEvent] = field(default_factory=list)
    stored: list[tuple[str | None, bytes]] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    pending: dict[str, Record] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    owners: list[int] = field(default_factory=list)
    refused: dict[int, BaseException] = field(default_factory=dict)
    cut: Cut | None = None
    cost: float = 0.0
    _mark: tuple[int, int, dict[str, int]] = (0, 0, {})
    _before: dict[str, Record | None] = field(default_factory=dict)

    def add(self, state: State, proposed: Sequence[AnyEvent]) -> None:
        """Propose these events as well."""
        stored = [
            _stored(event) for event in proposed
        ]  # fails here, if at all, for one request only
        self.stored += stored
        self.events += proposed
        for event, (key, _) in zip(proposed, stored, strict=True):
            if key is None or not isinstance(event, DecisionEvent):
                continue
            if key not in self._before:
                known = self.pending.get(key)
                self._before[key] = None if known is None else known.copy()
            if key not in self.pending:
                cached = isinstance(event, Decided)
                known = state.records.cached(key) if cached else state.records.find(key)
                self.pending[key] = Record() if known is None else known.copy()
            self.pending[key].take(event)

    def begin(self) -> None:
        """Begin a command; `undo` takes back what is proposed from now on."""
        self._mark = len(self.events), len(self.contents), dict(self.drawn)
        self._before.clear()
        self.cost = 0.0

    def undo(self) -> None:
        """Take back what the command proposed that was begun last."""
        events, contents, self.drawn = self._mark
        del self.events[events:], self.stored[events:], self.contents[contents:]
        for key, record in self._before.items():
            if record is None:
                del self.pending[key]
            else:
                self.pending[key] = record
        self.cut = None

    def spend(self, cost: float) -> None:
        """Count the cost of a decision; InputError if the command costs too much."""
        self.cost += cost
        if self.cost > MOST_COST:
            what = (
                "arms: features × arms, over all decisions of a request, may be at most"
            )
            raise InputError(
                f"{what} {MOST_COST:,} numbers, got {self.cost:,.0f} or more"
            )

    def tick(self) -> float:
        """Return a unique time for the next event."""
        self.moment += 1e-6
        return self.moment


def _stored(event: AnyEvent) -> tuple[str | None, bytes]:
    """Return the key and the stored form of an event; InputError if it holds what cannot be stored."""
    key = events.key_of(event)
    try:
        (key or "").encode()
        return key, events.encode_event(event)
    except (ValueError, OverflowError, TypeError, RecursionError) as error:
        raise InputError(f"body: it cannot be stored: {error}") from None


Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Command = Callable[[State, EventBatch], Answer]


def returns_command(
    function: Callable[Concatenate[State, EventBatch, Parameters], Answer],
) -> Callable[Parameters, Command[Answer]]:
    """Turn a function of (state, batch, …) into one that takes the other arguments and returns a command."""

    @wraps(function)
    def make(
        *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Command[Answer]:
        return lambda state, batch: function(state, batch, *arguments, **options)

    return make


@dataclass(slots=True)
class QueuedCommand:
    """A command in the engine's queue, and the caller's future.

    Parameters
    ----------
    command : callable
        Proposes events and returns the answer.
    alone : bool
        Whether it must see everything before it, and be seen by everything after it.
    future : Future or None
        Of the caller, which has its answer after the commit; None if no caller waits.
    loop : event loop or None
        In which the caller waits; None if it is a thread.
    """

    command: Command[Any]
    alone: bool = False
    future: Future[Any] | asyncio.Future[Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    answer: Any = None
    error: BaseException | None = None


def resolve_all(items: Sequence[QueuedCommand]) -> None:
    """Give all callers their answers; each event loop is woken once."""
    for loop in {item.loop for item in items}:
        waiting = [item for item in items if item.loop is loop]
        # a loop that was closed raises RuntimeError: no caller waits any more
        with contextlib.suppress(RuntimeError):
            if loop is None:
                _resolve_each(waiting)
            else:
                loop.call_soon_threadsafe(_resolve_each, waiting)


def _resolve_each(items: Sequence[QueuedCommand]) -> None:
    """Give each caller its answer, or the error, unless it no longer waits."""
    for item in items:
        if item.future is not None and not item.future.done():
            if item.error is None:
                item.future.set_result(item.answer)
            else:
                item.future.set_exception(item.error)


@dataclass(slots=True)
class DecisionCommand:
    """Decide; the answer is the event.

    Parameters
    ----------
    context : mapping or None
        What all offered actions share.
    labels : sequence of str
        Offered arms by name; with neither labels nor actions, all active arms.
    actions : list or None
        What is known of each offered action.
    id : str or None
        The same id again has the same answer, and must be asked with the same context and actions.
    deferred : bool
        Whether the decision counts only once it is activated.
    unit : str or None
        Who is decided about, for the holdout, unless a column of the context says it; else the id.
    """

    model: str = "default"
    context: dict[str, Any] | None = None
    labels: Sequence[str] = ()
    actions: list[Any] | None = None
    id: str | None = None
    deferred: bool = False
    protocol: str = "v1"
    unit: str | None = None

    def __call__(self, state: State, batch: EventBatch) -> Decided:
        """Propose the decision; nothing if its id was decided before."""
        moment = batch.tick()
        served = state.model(self.model)
        known = (
            None
            if self.id is None
            else state.record(self.id, self.model, batch.pending)
        )
        if known is not None and known.decided is not None:
            if not self._is_about(known.decided, served):
                before = f"{self.model!r} has decided under {self.id!r} already"
                raise ConflictError(f"id: {before}, with another context or other arms")
            return known.decided
        batch.spend(served.learner.cost(self.context, self.labels, self.actions))
        drawn = batch.drawn.get(self.model, 0)
        decided = self._decide(state, served, moment, drawn)
        proposed: list[AnyEvent] = [decided]
        # rewards may have come before their decision
        early = [] if known is None else known.rewards
        if served.configuration.aggregation == "earliest":
            early = early[:1]  # a later one contradicts it
        for reward in early:
            proposed.append(
                Rewarded(
                    time=moment,
                    id=decided.id,
                    model=served.name,
                    value=reward.value,
                    fate="joined",
                    request=reward.request,
                )
            )
        waits = self.deferred or served.configuration.reward_wait is not None
        if early and not waits and state.at is None:
            values = [reward.value for reward in early]
            proposed.append(served.close(moment, decided.id, values))
        batch.drawn[self.model] = drawn + 1
        batch.add(state, proposed)
        return decided

    def _decide(
        self, state: State, served: ServedModel, moment: float, drawn: int
    ) -> Decided:
        """Return the decision, `drawn` of the same model being proposed before it."""
        id = self.id or _new_id(moment)
        draw = served.counts.decisions + drawn
        if state.at is not None:
            # processes that know nothing of each other share a draw only by chance; seven
            # bytes, because MessagePack's integers end at eight
            key = decision_key(id, served.name).encode(errors="surrogatepass")
            draw = int.from_bytes(hashlib.sha256(key).digest()[:7], "little")
        rules = served.configuration
        unit = self.unit or id
        if rules.holdout_key is not None:
            unit = str((self.context or {}).get(rules.holdout_key, unit))
        context = self._context_for(served)
        group, bucket = rules.group_of(served.name, unit)
        version, round, choice = served.choose(
            context, self.labels, self.actions, draw, group
        )
        return Decided(
            time=moment,
            id=id,
            model=served.name,
            version=version,
            draw=draw,
            context=context,
            labels=list(round.labels),
            actions=self.actions,
            index=choice.action,
            propensities=choice.propensities.tolist(),
            means=choice.means.tolist(),
            deferred=self.deferred,
            protocol=self.protocol,
            at=state.at,
            all_arms=self._means_all_arms,
            why=choice.reason,
            group=group,
            bucket=bucket,
        )

    def _context_for(self, served: ServedModel) -> dict[str, Any] | None:
        """Return the context without the key of the holdout: who it is about is nothing to learn from."""
        key = served.configuration.holdout_key
        if not self.context or key in (None, *served.learner.input_columns):
            return self.context
        return {name: value for name, value in self.context.items() if name != key}

    @property
    def _means_all_arms(self) -> bool:
        return not self.labels and self.actions is None

    def _is_about(self, decided: Decided, served: ServedModel) -> bool:
        """Return whether a decision is what is asked for; expected rewards may be asked for later."""
        is_same_offer = self._means_all_arms or (
            decided.labels == list(self.labels) and decided.actions == self.actions
        )
        return (
            is_same_offer
            and decided.all_arms == self._means_all_arms
            and decided.context in (self.context, self._context_for(served))
            and decided.deferred == self.deferred
        )


@dataclass(slots=True)
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
        moment = batch.tick()
        value = self.value
        if not math.isfinite(value) or abs(value) > LARGEST_REWARD:
            raise InputError(
                f"value must be a finite number of at most {LARGEST_REWARD:g}, got {value!r}"
            )
        served = state.owner(self.id, self.model, batch.pending)
        record = state.record(self.id, served.name, batch.pending) or Record()
        single = served.configuration.aggregation == "earliest"
        if any(self._is_repeated(reward, record, single) for reward in record.rewards):
            return "unchanged"
        if record.decided is None:
            batch.add(state, [self._event(moment, served.name, "unknown")])
            return "unknown"
        if single and (earlier := record.joined()):
            already = f"decision {self.id!r} has the reward {earlier[0]!r} already"
            raise ConflictError(f"value: {already}, which {value!r} contradicts")
        if record.closed is not None:
            batch.add(state, [self._event(moment, served.name, "late")])
            return "late"
        proposed: list[AnyEvent] = [self._event(moment, served.name, "joined")]
        status = "waiting"
        if record.activated and state.at is None and not served.awaits(record.decided):
            closed = served.close(moment, self.id, [value])
            proposed.append(closed)
            status = "kept" if closed.value is None else "learned"
        batch.add(state, proposed)
        return status

    def _event(self, moment: float, model: str, fate: events.Fate) -> Rewarded:
        """Return the event that says what becomes of the reward."""
        return Rewarded(
            time=moment,
            id=self.id,
            model=model,
            value=self.value,
            fate=fate,
            request=self.request,
        )

    def _is_repeated(self, reward: Rewarded, record: Record, single: bool) -> bool:
        """Return whether a reward is this one.

        It is if it came with the same request, or has the same value where one reward is all
        that counts.
        """
        if record.decided is None:
            return reward.value == self.value and reward.request == self.request
        is_same_request = self.request is not None and reward.request == self.request
        return is_same_request or (single and reward.value == self.value)


_secret = secrets.token_bytes(32)
_numbers = itertools.count()


def _new_id(moment: float) -> str:
    """Return an id that cannot be guessed, without a system call for random bytes.

    It begins with its time: neighbours in time stay so in the index.
    """
    hashed = hashlib.blake2b(next(_numbers).to_bytes(8), digest_size=8, key=_secret)
    return f"{int(moment * 1e6):014x}{hashed.hexdigest()}"


@returns_command
def activate(
    state: State,
    batch: EventBatch,
    id: str,
    model: str | None = None,
) -> bool:
    """Activate a deferred decision; the answer is whether that is new."""
    moment = batch.tick()
    served = state.owner(id, model, batch.pending)
    record = state.record(id, served.name, batch.pending)
    if record is None or record.decided is None:
        raise NotFoundError(f"id: decision {id!r} is not known")
    if record.activated or record.closed is not None:
        return False
    proposed: list[AnyEvent] = [events.Activated(moment, id, served.name)]
    if record.joined() and not served.awaits(record.decided) and state.at is None:
        proposed.append(served.close(moment, id, record.joined()))
    batch.add(state, proposed)
    return True


@returns_command
def settle(state: State, batch: EventBatch, model: str, id: str) -> None:
    """Settle a decision whose wait has ended, unless it was settled meanwhile."""
    moment = batch.tick()
    served = state.models[model]
    if id not in served.waiting:
        return
    record = state.records.find(decision_key(id, model))
    if record is None or record.decided is None:
        raise StoreError(
            f"decision {id!r} waits for rewards, and its event is not in the store"
        )
    if record.activated:
        closed = served.close(moment, id, record.joined())
    else:
        closed = Closed(
            time=moment, id=id, model=model, value=None, why="not activated"
        )
    batch.add(state, [closed])


@returns_command
def add_version(
    state: State,
    batch: EventBatch,
    model: str,
    learner: learners.Learner,
    origin: events.Origin,
    *,
    note: str = "",
    by: str = "",
    active: bool = True,
    first: bool = False,
    unless_known: bool = False,
    through: int | None = None,
    evaluation: dict[str, Any] | None = None,
    why: str = "new",
) -> str:
    """Name of a new version with this state; to be done alone.

    With `first` it must be the first one: a model of that name must not exist yet. With
    `unless_known` nothing is added if a version has exactly this content: the answer is the active one.
    `through` is the number of the event up to which decisions are part of its history; the present one if it
    is not given.
    """
    if model not in state.models and not re.fullmatch(settings.MODEL_NAME, model):
        raise InputError(
            f"model: a name has 1 to 64 letters, digits, '.', '_' and '-', got {model[:80]!r}"
        )
    if first and model in state.models:
        raise InputError(f"model: {model!r} exists already")
    if model in state.removed:
        raise InputError(f"model: {model!r} was removed; names are never used again")
    content = learner.to_bytes()
    digest = hashlib.sha256(content).hexdigest()
    known = state.models[model].versions if model in state.models else {}
    if unless_known and known and state.models[model].has_content(content):
        return state.models[model].version
    number = max((int(name.partition("-")[0]) for name in known), default=0) + 1
    version = f"{number}-{digest[:8]}"
    last = state.seq if through is None else through
    added = events.VersionAdded(
        time=batch.tick(),
        model=model,
        version=version,
        learner=learner.kind,
        content=digest,
        origin=origin,
        note=note,
        by=by,
        through=last,
        evaluation=evaluation,
    )
    batch.contents.append(content)
    batch.add(state, [added])
    if not known and batch.first_rules != settings.Configuration():
        _check_reference(batch.first_rules, version, learner, [version])
        rules = events.Configured(batch.tick(), model, batch.first_rules)
        batch.add(state, [rules])
    if active:
        batch.add(state, [_activated(batch, model, version, why, by)])
    if known:
        for name in state.models[model].unused_versions(version)[:-MOST_UNUSED]:
            gone = events.VersionRemoved(batch.tick(), model, name, by)
            batch.add(state, [gone])
    return version


def _activated(
    batch: EventBatch, model: str, version: str, why: str, by: str
) -> events.VersionActivated:
    """Return the event that has a version decide from now on."""
    return events.VersionActivated(
        time=batch.tick(), model=model, version=version, why=why, by=by
    )


@returns_command
def activate_version(
    state: State,
    batch: EventBatch,
    model: str,
    version: str,
    *,
    why: str = "",
    by: str = "",
) -> str:
    """Have a version decide from now on; to be done alone."""
    served = state.model(model)
    served.check_version(version)
    if version != served.version:
        batch.add(state, [_activated(batch, model, version, why, by)])
    return version


@returns_command
def remove_version(
    state: State, batch: EventBatch, model: str, version: str, *, by: str = ""
) -> str:
    """Remove a version that does not decide, with what it learned; to be done alone."""
    served = state.model(model)
    served.check_version(version)
    if version in (served.version, served.configuration.holdout_to):
        raise ConflictError(
            f"version: {version!r} decides, or is what a holdout is compared with"
        )
    batch.add(state, [events.VersionRemoved(batch.tick(), model, version, by)])
    return version


@returns_command
def remove_model(state: State, batch: EventBatch, model: str, *, by: str = "") -> str:
    """Remove a model, with all its versions; its decisions stay in the store. To be done alone."""
    state.model(model)
    if model == usual_model(state.models) and len(state.models) > 1:
        words = "answers requests that name no model; it can only be removed as the last one"
        raise ConflictError(f"model: {model!r} {words}")
    batch.add(state, [events.ModelRemoved(batch.tick(), model, by)])
    return model


@returns_command
def roll_back(state: State, batch: EventBatch, model: str, *, by: str = "") -> str:
    """Return to the version before the active one, exactly as it was left; to be done alone."""
    return activate_version(
        model, state.model(model).previous(), why="roll back", by=by
    )(state, batch)


@returns_command
def configure(
    state: State,
    batch: EventBatch,
    model: str,
    configuration: settings.Configuration,
    *,
    by: str = "",
) -> settings.Configuration:
    """Set all rules of a model; to be done alone."""
    served = state.model(model)
    _check_reference(configuration, served.version, served.learner, served.versions)
    if served.configuration != configuration:
        batch.add(state, [events.Configured(batch.tick(), model, configuration, by)])
    return configuration


def _check_reference(
    rules: settings.Configuration,
    active: str,
    learner: learners.Learner,
    versions: Iterable[str],
) -> None:
    """Raise unless a holdout has a reference that a model with this active version can follow."""
    to = rules.holdout_to
    if not rules.holdout or to == settings.UNIFORM:
        return
    if to == active:
        raise InputError(
            f"holdout_to: {to!r} decides and learns; a reference is another version, or an arm"
        )
    if learner.arms and to not in (*learner.arms, *versions):
        raise InputError(
            f"holdout_to: must be uniform, an arm or a version of the model, got {to!r}"
        )


@returns_command
def change_rules(
    state: State, batch: EventBatch, model: str, changes: dict[str, Any], *, by: str
) -> settings.Configuration:
    """Change the rules of a model that are named; to be done alone."""
    rules = replace(state.model(model).configuration, **changes)
    return configure(model, rules, by=by)(state, batch)


@returns_command
def change_arms(
    state: State,
    batch: EventBatch,
    model: str,
    label: str,
    *,
    add: bool,
    features: dict[str, Any] | None = None,
    by: str = "",
) -> dict[str, bool]:
    """Add an arm or retire one, tried on a copy first; to be done alone."""
    learner = state.model(model).learner
    trial = type(learner).from_bytes(learner.to_bytes(), "this model")
    if add:
        trial.add_arm(label, features)
        added = events.ArmAdded(
            time=batch.tick(), model=model, label=label, features=features, by=by
        )
        batch.add(state, [added])
    else:
        trial.retire_arm(label)
        batch.add(state, [events.ArmRetired(batch.tick(), model, label, by)])
    return trial.arms


@returns_command
def retain(state: State, batch: EventBatch, first: int) -> None:
    """Remove what a rule does not keep, all before event `first`; to be done alone."""
    batch.cut = replay.plan_cut(
        state.store, state, first, reversed(state.store.snapshot_seqs())
    )


@returns_command
def erase(
    state: State,
    batch: EventBatch,
    decisions: Sequence[tuple[str, str]],
    *,
    text: str = "",
    searched: int = 0,
    by: str = "",
) -> int:
    """Erase all events of decisions, given as (id, model); to be done alone.

    The answer is how many events were erased.

    What was learned from them stays learned. Checksums replace the events, an event names
    their numbers, and a replay begins with the state after it.

    Of a `text`, decisions that mention it go as well, of which those before event `searched` are given;
    and models that began empty forget it as a part of the names of features.
    """
    after = State.from_bytes(state.to_bytes(), state.store)
    rows: list[Row] = []
    if text:
        later = history.decisions_that_mention(state.store, text, searched, state.seq)
        decisions = [*decisions, *later]
        for served in after.models.values():
            for learner in served.learners.values():
                learner.forget(text)
    for id, model in dict.fromkeys(decisions):
        rows += state.store.of_key(decision_key(id, model))
        after.forget_refusal(id, model)
        if model in after.models:
            after.models[model].waiting.discard(id)
    if rows or text:
        numbers = [row.seq for row in rows]
        first = state.store.start().seq
        batch.add(state, [events.Removed(batch.tick(), first, numbers, by)])
        after.seq += 1
        batch.cut = Cut(first, after.seq, after.to_bytes(), numbers, without_trace=True)
    return len(rows)


@returns_command
def move_clock(state: State, batch: EventBatch, by: float) -> None:
    """Have all waits and later events follow a clock that was set, by so many seconds."""
    batch.add(state, [events.ClockMoved(batch.tick() + by, by)])


@returns_command
def set_aside(state: State, batch: EventBatch, aside: dict[int, str]) -> None:
    """Leave events without effect for good, given as number -> why they could not be applied."""
    batch.add(state, [events.SetAside(batch.tick(), aside)])


@returns_command
def all_or_none(
    state: State, batch: EventBatch, commands: Sequence[Command[Answer]]
) -> list[Answer]:
    """Do all of several commands or none; the answer is the list of theirs."""
    return [part(state, batch) for part in commands]


@returns_command
def inspect(state: State, batch: EventBatch, look: Callable[[State], Answer]) -> Answer:
    """Answer what a function returns for the state, which it must not change."""
    return look(state)

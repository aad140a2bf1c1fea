"""The state of a service: a function of its events, which `State.apply` applies one by one.

Commands (`service.commands`) propose events in a state, and change nothing. Only the engine's
thread reads and changes a state; other threads read a `StateView`.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import math
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.policies.choice import Choice, draw_action, one_hot
from invariant_bandits_service import events
from invariant_bandits_service.events import (
    AnyEvent,
    Closed,
    Decided,
    DecisionEvent,
    Rewarded,
    decision_key,
    decode_event,
)
from invariant_bandits_service.learners import (
    Actions,
    Context,
    Learner,
    Round,
    draw_number,
    learner_from_bytes,
)
from invariant_bandits_service.settings import AGGREGATES, Configuration, Group
from invariant_bandits_service.store.sql import Row, StoreError, UnavailableError
from invariant_bandits_service.timeline import Holdout, Timeline


class Deadlines:
    """Ids of decisions and the ends of their waits.

    Parameters
    ----------
    ends : iterable of (float, str)
        When a wait ends, and the id of its decision.

    >>> waiting = Deadlines([(30.0, "long"), (10.0, "short")])
    >>> waiting.add(20.0, "between")
    >>> list(waiting.ended(25.0))
    ['short', 'between']
    >>> waiting.discard("short")
    >>> waiting.next_end, "short" in waiting, len(waiting)
    (20.0, False, 2)
    """

    def __init__(self, ends: Iterable[tuple[float, str]] = ()) -> None:
        self._ends = {id: end for end, id in ends}
        self._sorted = sorted((end, id) for id, end in self._ends.items())
        self.trace = sum(map(_trace, self._sorted))
        """A sum over hashes of all waits: the same for the same waits, and moved with each."""

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, id: object) -> bool:
        return id in self._ends

    def __iter__(self) -> Iterator[tuple[float, str]]:
        """Ends and ids, in the order in which they were added."""
        return ((end, id) for id, end in self._ends.items())

    def add(self, end: float, id: str) -> None:
        """Wait for a decision until `end`."""
        self.discard(id)
        self._ends[id] = end
        bisect.insort(self._sorted, (end, id))
        self.trace += _trace((end, id))

    def discard(self, id: str) -> None:
        """Stop waiting for a decision."""
        if id in self._ends:
            wait = (self._ends.pop(id), id)
            self.trace -= _trace(wait)
            del self._sorted[bisect.bisect_left(self._sorted, wait)]

    def shift(self, by: float) -> None:
        """Move all ends by so many seconds, but for those that are due at once."""
        ends = []
        for end, id in self:
            ends.append((end + by if end else end, id))
        moved = Deadlines(ends)
        self._ends = moved._ends
        self._sorted = moved._sorted
        self.trace = moved.trace

    @property
    def next_end(self) -> float:
        """When the next wait ends; infinity without any."""
        return self._sorted[0][0] if self._sorted else math.inf

    def end_of(self, id: str) -> float:
        """Return when the wait of a decision ends; minus infinity if it does not wait."""
        return self._ends.get(id, -math.inf)

    def ended(self, moment: float, most: float = math.inf) -> Iterator[str]:
        """Ids whose wait has ended, the earliest first, also by there being more than `most`.

        They stay until they are discarded.
        """
        surplus = len(self) - most
        for number, (end, id) in enumerate(self._sorted):
            if end > moment and number >= surplus:
                return
            yield id

    def to_builtins(self) -> dict[str, float]:
        """Return the ends of all waits by id, for a snapshot."""
        return self._ends


def _trace(wait: tuple[float, str]) -> int:
    return int.from_bytes(
        hashlib.blake2b(
            repr(wait).encode(errors="surrogatepass"), digest_size=16
        ).digest()
    )


MOST_COUNTED = 10_000
"""Plays of so many arms are counted one by one."""
OTHERS = "(others)"

MOST_WAITING = 1_000_000
"""Decisions of a model that wait for rewards, some 400 MB; beyond, the waits that end first end at once."""
MOST_REFUSALS = 1_000
"""Decisions that could not be learned, the latest, of which this is known."""
REFUSAL_BYTES = 16
"""Of a digest: two of 1,000 decisions share one with probability 10^-33."""
MOST_STEPS_BACK = 10
"""So many activated versions can be returned to, one by one, where new ones come every night."""


class Counts(msgspec.Struct):
    """What happened to a model, in numbers.

    Parameters
    ----------
    decisions, explored : int
        Decisions, and those in which chance chose another action than the most probable one.
    rewards, late, unknown : int
        Rewards that were joined; came after the decision was settled; came without a decision (of the default
        model).
    learned, defaulted, unlearned, refused : int
        Decisions learned; of these with the default reward; settled without being learned; not learned
        because the policy refused the round.
    shortened : int
        Decisions settled before their wait had ended, because too many waited.
    chance_measured, chance_cost : int, float
        Decisions whose expected loss by chance was worked out, and the sum of these losses.
    """

    decisions: int = 0
    explored: int = 0
    rewards: int = 0
    late: int = 0
    unknown: int = 0
    learned: int = 0
    defaulted: int = 0
    unlearned: int = 0
    refused: int = 0
    shortened: int = 0
    reward_sum: float = 0.0
    chance_measured: int = 0
    chance_cost: float = 0.0


class ModelVersions:
    """Versions of a model by name, and which of them decides.

    Attributes
    ----------
    name : str
        Of the model.
    versions : mapping of str to VersionAdded
        In the order in which they came.
    activations : sequence of str
        Versions in the order in which they were activated, the active one last.
    """

    name: str
    versions: Mapping[str, events.VersionAdded]
    activations: Sequence[str]

    @property
    def version(self) -> str:
        """The active one."""
        if not self.activations:
            raise InputError(f"model: {self.name!r} has no active version")
        return self.activations[-1]

    def check_version(self, version: str) -> None:
        """Raise NotFoundError for a version that does not exist."""
        if version not in self.versions:
            raise NotFoundError(
                f"version: {version!r} is not one of {', '.join(self.versions)}"
            )

    def has_content(self, content: bytes) -> bool:
        """Return whether a version was added with exactly this content."""
        digest = hashlib.sha256(content).hexdigest()
        return any(added.content == digest for added in self.versions.values())

    def previous(self) -> str:
        """Return the version before the active one."""
        if len(self.activations) < 2:
            raise InputError(
                f"model: {self.name!r} has no earlier version to return to"
            )
        return self.activations[-2]


@dataclass(frozen=True)
class ModelView(ModelVersions):
    """What other threads than the engine's may read of a model; it never changes."""

    name: str
    configuration: Configuration
    versions: Mapping[str, events.VersionAdded]
    activations: tuple[str, ...]
    holdout_by: str


class StateView(NamedTuple):
    """What other threads than the engine's may read of a state; it never changes.

    Attributes
    ----------
    seq : int
        Number of events that it knows.
    models : mapping of str to ModelView
    aside : mapping of int to str
        Numbers of events that could not be applied, and why.
    refusals : mapping
        See `State.refusals`.
    removed : set of str
        Names of models that were removed.
    """

    seq: int
    models: Mapping[str, ModelView]
    aside: Mapping[int, str]
    refusals: Mapping[bytes, None]
    removed: Set[str]

    @property
    def usual_model(self) -> str:
        """The model that is meant where none is named, see `usual_model`."""
        return usual_model(self.models)

    def model(self, name: str) -> ModelView:
        """Return a model by its name."""
        _check_served(name, self.models)
        return self.models[name]

    def was_refused(self, id: str, model: str) -> bool:
        """Return whether a settled decision could not be learned.

        This is known of the latest MOST_REFUSALS of them.
        """
        return _refusal(id, model) in self.refusals


def usual_model(models: Iterable[str]) -> str:
    """Return the model that is meant where none is named: the oldest, which no later one replaces."""
    return next(iter(models), "default")


def _check_served(name: str, models: Iterable[str]) -> None:
    """Raise NotFoundError for a model that does not exist."""
    if name not in models:
        known = ", ".join(sorted(models)) or "none"
        raise NotFoundError(f"model: {name!r} is not served; there are {known}")


@dataclass
class ServedModel(ModelVersions):
    """A named model.

    Parameters
    ----------
    name : str
    configuration : Configuration
    versions : dict of str to VersionAdded
        In the order in which they came.
    learners : dict of str to Learner
        Their states; only that of the active version changes.
    activations : list of str
        Versions in the order in which they were activated, the active one last.
    waiting : Deadlines
        Decisions whose wait has not ended.
    plays : dict of str to int
        How often each arm was played; of at most MOST_COUNTED arms, the others together.
    timeline : Timeline
        What became of it over time; decisions do not depend on it.
    holdout_by : str
        Who has set the holdout last; empty if that were the settings at a start.
    """

    name: str
    configuration: Configuration = field(default_factory=Configuration)
    versions: dict[str, events.VersionAdded] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    activations: list[str] = field(default_factory=list)
    waiting: Deadlines = field(default_factory=Deadlines)
    counts: Counts = field(default_factory=Counts)
    plays: dict[str, int] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=Timeline)
    holdout_by: str = "unknown"

    @property
    def learner(self) -> Learner:
        """Of the active version."""
        return self.learners[self.version]

    def learner_of(self, version: str) -> Learner:
        """Return the learner of a version; NotFoundError if it does not exist, or not any longer."""
        self.check_version(version)
        return self.learners[version]

    def view(self) -> ModelView:
        """Return what other threads may read."""
        return ModelView(
            name=self.name,
            configuration=self.configuration,
            versions=dict(self.versions),
            activations=tuple(self.activations),
            holdout_by=self.holdout_by,
        )

    def remove_version(self, name: str) -> None:
        """Drop a version that does not decide."""
        del self.versions[name]
        del self.learners[name]
        self.activations = [each for each in self.activations if each != name]

    def unused_versions(self, newest: str) -> list[str]:
        """Return versions, oldest first, that `roll back` cannot reach and no rule names, but the newest."""
        reached = self.activations[-MOST_STEPS_BACK:]
        needed = {newest, self.configuration.holdout_to, *reached}
        return [name for name in self.versions if name not in needed]

    def forget_old_versions(self, newest: str) -> None:
        """Drop versions from background learning that `roll back` cannot reach, except for the newest."""
        self.activations = self.activations[-MOST_STEPS_BACK:]
        for name in self.unused_versions(newest):
            if self.versions[name].origin == "background":
                self.remove_version(name)

    def state_hash(self) -> str:
        """SHA-256 over everything that decisions and learning depend on, in hexadecimal digits."""
        content = hashlib.sha256(self.version.encode())
        counts = msgspec.to_builtins(self.counts)
        del counts["shortened"]  # no decision depends on it
        parts = [
            self.configuration,
            counts,
            str(self.waiting.trace),
            self.activations,
        ]
        content.update(msgspec.json.encode(parts))
        for name, learner in self.learners.items():
            content.update(name.encode() + hashlib.sha256(learner.to_bytes()).digest())
        return content.hexdigest()

    def choose(
        self,
        context: Context,
        labels: Sequence[str],
        actions: Actions,
        draw: int,
        group: Group = "",
    ) -> tuple[str, Round, Choice]:
        """Choose an action in the present state, without changing it.

        Returns the version that decides, the round, and the choice with its reason, see `Decided.why`.
        """
        rules = self.configuration
        version = self.version
        is_held_out = group == "holdout"
        if is_held_out and rules.holdout_to in self.versions:
            version = rules.holdout_to
            is_held_out = False
        learner = self.learners[version]
        round = learner.round_of(context, labels, actions)
        number = draw_number(learner.seed, draw, round.features)
        choice = learner.decide(round, rules.floor, number)
        count = len(choice.means)
        reason = "holdout" if group == "holdout" else "first"
        action = 0
        propensities = choice.propensities
        if rules.mode != "online":
            propensities = one_hot(action, count)
        elif is_held_out and rules.holdout_to in round.labels:
            action = round.labels.index(rules.holdout_to)
            propensities = one_hot(action, count)
        else:
            if is_held_out:
                propensities = np.full(count, 1.0 / count)
            action = draw_action(propensities.tolist(), number)
            if group != "holdout":
                reason = learner.why(choice, action, rules.floor)
        drawn = choice._replace(action=action, propensities=propensities, reason=reason)
        return version, round, drawn

    def awaits(self, decided: Decided) -> bool:
        """Return whether a decision is settled when its wait ends: by the rules under which it was made.

        One that was proposed in this batch is not counted yet, and was made under the present rules.
        """
        proposed = decided.at is None and decided.draw >= self.counts.decisions
        return decided.id in self.waiting or (
            proposed and self.configuration.reward_wait is not None
        )

    def close(self, moment: float, id: str, values: list[float]) -> Closed:
        """Return the event that settles a decision with these rewards."""
        rules = self.configuration
        if rules.mode == "logging":
            value = None
            why: events.ClosedBecause = "not learned in this mode"
        elif not values:
            value = rules.default_reward
            why = "no reward" if value is None else "default"
        else:
            value = AGGREGATES[rules.aggregation](values)
            is_single = rules.reward_wait is None or len(values) == 1
            why = "reward" if is_single else "aggregate"
        return Closed(time=moment, id=id, model=self.name, value=value, why=why)


def _encode_part(part: Any) -> Any:
    """Return what msgspec cannot write itself: a learner as its kind and bytes, deadlines by id."""
    if isinstance(part, Learner):
        return part.kind, part.to_bytes()
    return part.to_builtins()


def _decode_part(kind: type, part: Any) -> Any:
    """Return a learner or deadlines as `_encode_part` wrote them; deadlines may also be a list."""
    if kind is Learner:
        return learner_from_bytes(part[0], part[1], "a snapshot")
    if isinstance(part, dict):
        part = ((end, id) for id, end in part.items())
    return Deadlines(part)


class StateSnapshot(msgspec.Struct):
    """A state as a snapshot holds it: everything but the records, which are read from the store."""

    seq: int
    models: list[ServedModel]
    aside: dict[int, str]
    refusals: list[bytes] = []
    removed: list[str] = []


MOST_REMEMBERED = 20_000
"""Decisions in memory; older ones are read from the store."""
LARGEST_REMEMBERED = 64 << 20
"""Bytes of the events of these decisions."""


@dataclass
class Record:
    """A decision, its rewards in the order in which they came, and how it was settled.

    Parameters
    ----------
    decided : Decided or None
        None if rewards came under an id that nothing was decided under.
    activated : bool
        False while a deferred decision was not shown.
    rewards : list of Rewarded
    closed : Closed or None
    """

    decided: Decided | None = None
    activated: bool = True
    rewards: list[Rewarded] = field(default_factory=list)
    closed: Closed | None = None

    def take(self, event: AnyEvent) -> None:
        """Follow one event about this decision."""
        if isinstance(event, Decided):
            self.decided = event
            self.activated = not event.deferred
        elif isinstance(event, events.Activated):
            self.activated = True
        elif isinstance(event, Rewarded):
            self.rewards.append(event)
        elif isinstance(event, Closed):
            self.closed = event

    def joined(self) -> list[float]:
        """Values that count for it."""
        return [reward.value for reward in self.rewards if reward.fate == "joined"]

    def copy(self) -> Record:
        """A record of its own."""
        return replace(self, rewards=list(self.rewards))


class Records:
    """Records by key, see `decision_key`.

    Of the latest decisions the events are in memory as they are stored, which takes a tenth of the
    memory of records. The others are read from the store.
    """

    def __init__(self, of_key: Callable[[str], Iterable[Row]]) -> None:
        self._of_key = of_key
        self._recent: OrderedDict[str, list[bytes]] = OrderedDict()
        self._size = 0
        self._last: tuple[str, Record | None] = ("", None)
        """The key that was asked for last, and its record: a reward asks several times."""

    def find(self, key: str) -> Record | None:
        """What is known under a key."""
        if key != self._last[0]:
            if key in self._recent:
                self._recent.move_to_end(key)
            elif bodies := [row.event for row in self._of_key(key)]:
                self._keep(key, bodies)
            self._last = key, record_of(map(decode_event, self._recent.get(key, ())))
        return self._last[1]

    def cached(self, key: str) -> Record | None:
        """Return what is known without asking the store."""
        return self.find(key) if key in self._recent else None

    def forget(self) -> None:
        """Drop all records, so that they are read again from the store, to which other processes add."""
        self._recent.clear()
        self._size = 0
        self._last = ("", None)

    def take(self, event: Any, *, fresh: bool = False) -> None:
        """Follow an event of a decision; `fresh` if nothing can be known under its key yet."""
        key = decision_key(event.id, event.model)
        body = events.encode_event(event)
        record = self.cached(key) if fresh else self.find(key)
        if record is None or body not in self._recent[key]:
            record = record or Record()
            record.take(event)
            self._last = key, record
            self._keep(key, [body])

    def _keep(self, key: str, bodies: list[bytes]) -> None:
        self._recent.setdefault(key, []).extend(bodies)
        self._size += sum(map(len, bodies))
        while len(self._recent) > MOST_REMEMBERED or (
            self._size > LARGEST_REMEMBERED and len(self._recent) > 1
        ):
            _, forgotten = self._recent.popitem(last=False)
            self._size -= sum(map(len, forgotten))


def record_of(history: Iterable[AnyEvent]) -> Record | None:
    """The record that these events of one decision make; None without any."""
    record = Record()
    for event in history:
        record.take(event)
    return record if record != Record() else None


def teach(learner: Learner, decided: Decided, reward: float) -> None:
    """Have a learner learn the reward of a decision."""
    learner.learn(
        decided.context, decided.labels, decided.actions, decided.index, reward
    )


def set_aside_events(store: Any) -> dict[int, str]:
    """Numbers of the events that were set aside for good, and why."""
    stored = store.of_key(events.ASIDE)
    return {
        seq: why
        for row in stored
        for seq, why in decode_event(row.event).events.items()
    }


UNLEARNABLE = (ValueError, ArithmeticError, LookupError, TypeError)
"""What a learner that cannot take a round may raise: a function of the state and the round, as all it
does.
"""


NOT_THE_EVENT = (StoreError, UnavailableError, MemoryError, OSError, sqlite3.Error)
"""What says nothing about an event that is being applied: it may succeed later."""


class ConflictError(InputError):
    """A request that contradicts an earlier one, or could mean several models."""


class UnappliableError(StoreError):
    """An event from which no state follows; the state may be half changed.

    Parameters
    ----------
    seq : int
        Number of the event.
    why : str
        Its kind, its model, and what was raised.
    """

    def __init__(self, seq: int, why: str) -> None:
        repair = "`invariant-bandits store repair` sets it aside"
        super().__init__(f"event {seq} cannot be applied: {why}; {repair}")
        self.seq = seq
        self.why = why


class NotFoundError(InputError):
    """A model, version or decision that does not exist."""


def _refusal(id: str, model: str) -> bytes:
    """Return the digest under which the refusal of a decision is remembered."""
    key = decision_key(id, model).encode(errors="surrogatepass")
    return hashlib.blake2b(key, digest_size=REFUSAL_BYTES).digest()


class State:
    """All served models and their decisions.

    Parameters
    ----------
    store : Store
        Where records and contents that are not at hand are looked up.
    at : int or None
        Given if this is a state that others have published, after so many events, to decide from: then
        rewards are taken, but settled only by who learns.
    """

    def __init__(self, store: Any, *, at: int | None = None) -> None:
        self.at = at
        self.store = store
        self.models: dict[str, ServedModel] = {}
        self.records = Records(self._rows_of)
        self.aside: dict[int, str] = {}
        """Numbers of events that could not be applied, and why."""
        self.refusals: dict[bytes, None] = {}
        """Digests of the latest settled decisions that the policy could not learn, the oldest first.

        Digests, because snapshots hold them and must not name decisions whose events are removed.
        """
        self.removed: frozenset[str] = frozenset()
        """Names of models that were removed."""
        self.changed: set[str] = set()
        """Models that events were about, for the reader that clears it."""
        self.seq = 0
        self._views: dict[str, ModelView] | None = None
        """Views of the models, until one of them changes."""

    def _rows_of(self, key: str) -> list[Row]:
        """Return the stored events of a decision up to this state; all, if the state is only for deciding."""
        rows: list[Row] = self.store.of_key(key)
        end = self.seq if self.at is None else math.inf
        return [row for row in rows if row.seq < end and row.seq not in self.aside]

    def model(self, name: str) -> ServedModel:
        """Return a model by its name."""
        _check_served(name, self.models)
        return self.models[name]

    def view(self) -> StateView:
        """Return what other threads may read.

        `aside`, `refusals` and `removed` are replaced when they change, so that the view may share them.
        """
        if self._views is None:
            self._views = {name: served.view() for name, served in self.models.items()}
        return StateView(self.seq, self._views, self.aside, self.refusals, self.removed)

    # -- what follows from an event: `_on_` and its kind --

    def apply(self, event: Any) -> None:
        """Apply the next event; UnappliableError if that is impossible.

        An event is applied by the method with the name of its kind. Nothing follows from one that is set
        aside, but that its decision is not settled again. Such an event may be None: it could not be read.
        Nothing follows either from one that a decider added before it knew that its model is gone.
        """
        if getattr(event, "model", "") in self.removed:
            pass
        elif self.seq not in self.aside:
            kind: Any = type(event).__struct_config__.tag
            try:
                if isinstance(event, DecisionEvent):
                    self.records.take(event, fresh=isinstance(event, Decided))
                getattr(self, f"_on_{kind}")(event)
            except NOT_THE_EVENT:
                raise
            except Exception as error:
                model = getattr(event, "model", "none")
                message = " ".join(str(error).split())[:300]
                why = f"{kind}, model {model}: {type(error).__name__}: {message}"
                raise UnappliableError(self.seq, why) from error
        elif isinstance(event, Closed) and event.model in self.models:
            self.models[event.model].waiting.discard(event.id)
        self.changed.add(getattr(event, "model", ""))
        self.seq += 1

    def _on_aside(self, event: events.SetAside) -> None:
        self.aside = self.aside | event.events

    def _on_removed(self, event: events.Removed) -> None:
        """Change nothing: what was removed is part of the state all the same."""

    def _on_clock(self, event: events.ClockMoved) -> None:
        for served in self.models.values():
            served.waiting.shift(event.by)

    def _on_version(self, event: events.VersionAdded) -> None:
        self._views = None
        served = self.models.setdefault(event.model, ServedModel(event.model))
        served.versions[event.version] = event
        name = f"version {event.version} of {event.model}"
        content = self.store.content(event.content)
        served.learners[event.version] = learner_from_bytes(
            event.learner, content, name
        )
        if event.origin == "background":
            served.forget_old_versions(event.version)

    def _on_activate(self, event: events.VersionActivated) -> None:
        self._views = None
        served = self.models[event.model]
        served.check_version(event.version)
        if len(served.activations) > 1 and served.activations[-2] == event.version:
            served.activations.pop()  # a step back
        else:
            served.activations.append(event.version)
        served.timeline.mark("version", event.version, event.time)

    def _on_remove_version(self, event: events.VersionRemoved) -> None:
        self._views = None
        self.models[event.model].remove_version(event.version)

    def _on_remove_model(self, event: events.ModelRemoved) -> None:
        self._views = None
        del self.models[event.model]
        self.removed = self.removed | {event.model}

    def _on_configure(self, event: events.Configured) -> None:
        self._views = None
        served = self.models[event.model]
        rules = event.configuration
        before = served.configuration
        served.configuration = rules
        if before.reference != rules.reference:
            served.holdout_by = event.by
        if (before.holdout_to, before.holdout_key) != (
            rules.holdout_to,
            rules.holdout_key,
        ):
            served.timeline.holdout = Holdout()

    def _on_arm(self, event: events.ArmAdded) -> None:
        self.models[event.model].learner.add_arm(event.label, event.features)

    def _on_retire(self, event: events.ArmRetired) -> None:
        self.models[event.model].learner.retire_arm(event.label)

    def _on_decision(self, event: Decided) -> None:
        served = self.models[event.model]
        served.counts.decisions += 1
        served.counts.explored += event.explored
        if event.means is not None and event.group != "holdout":
            served.counts.chance_measured += 1
            served.counts.chance_cost += event.chance_cost
        label = str(event.action)
        if label not in served.plays and len(served.plays) >= MOST_COUNTED:
            label = OTHERS
        served.plays[label] = served.plays.get(label, 0) + 1
        # what a learner cannot note must not stop a replay
        with contextlib.suppress(*UNLEARNABLE):
            served.learner.seen(event.context, event.labels, event.actions)
        wait = served.configuration.reward_wait
        if wait is not None:
            served.waiting.add(event.time + wait, event.id)

    def _on_activated(self, event: events.Activated) -> None:
        self._ripen(event)

    def _on_reward(self, event: Rewarded) -> None:
        counts = self.models[event.model].counts
        counts.late += event.fate == "late"
        counts.unknown += event.fate == "unknown"
        if event.fate == "joined":
            counts.rewards += 1
            self._ripen(event)

    def _ripen(self, event: events.Activated | Rewarded) -> None:
        """Make a decision that does not wait any longer due at once, unless the next event settles it."""
        record = self.record(event.id, event.model)
        waiting = self.models[event.model].waiting
        if record is None or event.id in waiting:
            return
        if record.activated and record.joined():
            waiting.add(0.0, event.id)

    def _on_closed(self, event: Closed) -> None:
        record = self.record(event.id, event.model)
        served = self.models[event.model]
        served.counts.shortened += served.waiting.end_of(event.id) > event.time
        served.waiting.discard(event.id)
        if event.value is None:
            served.counts.unlearned += 1
            return
        assert record is not None
        assert record.decided is not None
        served.counts.reward_sum += event.value
        try:
            teach(served.learner, record.decided, event.value)
            served.counts.learned += 1
            served.counts.defaulted += event.why == "default"
        except (ValueError, ArithmeticError):
            # this version cannot take it, in a replay neither
            served.counts.refused += 1
            latest = [*self.refusals, _refusal(event.id, event.model)]
            self.refusals = dict.fromkeys(latest[-MOST_REFUSALS:])
        served.timeline.add(
            record.decided, event.value, event.time, served.learner.policy_over()
        )

    def forget_refusal(self, id: str, model: str) -> None:
        """Keep nothing of a decision that is erased."""
        refusal = _refusal(id, model)
        self.refusals = {kept: None for kept in self.refusals if kept != refusal}

    def versions_with(self, text: str) -> list[str]:
        """Return versions, as model and version, in whose stored form a text occurs."""
        versions = []
        for served in self.models.values():
            for name, learner in served.learners.items():
                if text.encode() in learner.to_bytes():
                    versions.append(f"{served.name} {name}")
        return versions

    # -- what should happen --

    def record(
        self, id: str, model: str, pending: dict[str, Record] | None = None
    ) -> Record | None:
        """What is known of a decision of a model, after what was proposed in this batch."""
        key = decision_key(id, model)
        return (pending or {}).get(key) or self.records.find(key)

    def owner(
        self, id: str, model: str | None, pending: dict[str, Record]
    ) -> ServedModel:
        """The model whose decision an id means.

        Without a name it is the only model that has decided under the id; if none has, it is the usual one.
        ConflictError names the models that could be meant if there are several.
        """
        if model is not None or len(self.models) < 2:
            return self.model(model or usual_model(self.models))
        keys = self.store.keys_from(decision_key(id)) | pending.keys()
        names = []
        for name in self.models:
            if decision_key(id, name) not in keys:
                continue
            record = self.record(id, name, pending)
            if record is not None and record.decided is not None:
                names.append(name)
        if len(names) > 1:
            several = ", ".join(sorted(names))
            raise ConflictError(
                f"model: the id {id!r} could be one of {several}; name the model"
            )
        return self.models[names[0] if names else usual_model(self.models)]

    def due(self, moment: float, most: int) -> list[tuple[str, str]]:
        """Model and id of decisions whose wait has ended, or must end for others, at most so many."""
        ended = (
            (served.name, id)
            for served in self.models.values()
            for id in served.waiting.ended(moment, MOST_WAITING)
        )
        return list(islice(ended, most))

    def next_due(self) -> float:
        """When the next wait ends."""
        return min(
            (served.waiting.next_end for served in self.models.values()),
            default=math.inf,
        )

    # -- snapshots --

    def to_bytes(self) -> bytes:
        """Return a snapshot: everything but the records, which are read from the store."""
        snapshot = StateSnapshot(
            seq=self.seq,
            models=list(self.models.values()),
            aside=self.aside,
            refusals=list(self.refusals),
            removed=sorted(self.removed),
        )
        return msgspec.msgpack.encode(snapshot, enc_hook=_encode_part)

    @classmethod
    def from_bytes(
        cls, content: bytes, store: Any, *, published: bool = False
    ) -> State:
        """Return the state that a snapshot holds; `published` if it is only to be decided from."""
        snapshot = msgspec.msgpack.decode(
            content, type=StateSnapshot, dec_hook=_decode_part
        )
        state = cls(store, at=snapshot.seq if published else None)
        state.seq = snapshot.seq
        state.aside = snapshot.aside
        state.models = {served.name: served for served in snapshot.models}
        state.refusals = dict.fromkeys(snapshot.refusals)
        state.removed = frozenset(snapshot.removed)
        return state

    def hashes(self) -> dict[str, str]:
        """Return the state hash of every model."""
        return {name: served.state_hash() for name, served in self.models.items()}

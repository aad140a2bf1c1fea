"""The state of a service: a function of its events. `propose` says what should happen, `apply` makes it so."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import msgspec

from invariant_bandits.checks import InputError
from invariant_bandits.service.events import (
    ASIDE,
    Activated,
    AnyEvent,
    ArmAdded,
    ArmRetired,
    Closed,
    Configured,
    Decided,
    Grouped,
    Kept,
    Rewarded,
    SetAside,
    VersionActivated,
    VersionAdded,
    decision_key,
    decoded,
    key_of,
)
from invariant_bandits.service.learners.base import Choice, Learner, Round, learner_from_bytes
from invariant_bandits.service.settings import Configuration, aggregated
from invariant_bandits.service.store.base import Row, StoreError


class Waiting:
    """Ids of decisions and the ends of their waits.

    Parameters
    ----------
    ends : iterable of (float, str)
        When a wait ends, and the id of its decision.

    >>> waiting = Waiting([(30.0, "long"), (10.0, "short")])
    >>> waiting.add(20.0, "between")
    >>> list(waiting.ended(25.0))
    ['short', 'between']
    >>> waiting.discard("short")
    >>> waiting.next_end, "short" in waiting, len(waiting)
    (20.0, False, 2)
    """

    def __init__(self, ends: Iterable[tuple[float, str]] = ()) -> None:
        self._ends = {id: end for end, id in ends}
        self._heap = [(end, id) for id, end in self._ends.items()]  # with some that are discarded already
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, id: object) -> bool:
        return id in self._ends

    def __iter__(self) -> Iterator[tuple[float, str]]:
        """Ends and ids, in the order in which they were added."""
        return ((end, id) for id, end in self._ends.items())

    def add(self, end: float, id: str) -> None:
        """Wait for a decision until `end`."""
        self._ends[id] = end
        heapq.heappush(self._heap, (end, id))

    def discard(self, id: str) -> None:
        """Wait for a decision no longer."""
        self._ends.pop(id, None)
        while self._heap and not self._is_meant(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_meant(self, entry: tuple[float, str]) -> bool:
        return self._ends.get(entry[1]) == entry[0]

    @property
    def next_end(self) -> float:
        """When the next wait ends; infinity without any."""
        return self._heap[0][0] if self._heap else math.inf

    def ended(self, now: float) -> Iterator[str]:
        """Ids whose wait has ended, the earliest first; they stay until they are discarded."""
        ahead = [(self._heap[0], 0)] if self._heap else []
        while ahead and ahead[0][0][0] <= now:
            entry, place = heapq.heappop(ahead)
            if self._is_meant(entry):
                yield entry[1]
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(self._heap):
                    heapq.heappush(ahead, (self._heap[child], child))


MOST_COUNTED = 10_000
"""Plays of so many arms are counted one by one."""
OTHERS = "(others)"

MOST_STEPS_BACK = 10
"""So many activated versions can be returned to, one by one, where new ones come every night."""


class Counts(msgspec.Struct):
    """What happened to a model, in numbers.

    Parameters
    ----------
    decisions, explored : int
        Decisions, and those in which chance chose another action than the most probable one.
    rewards, late, unknown : int
        Rewards that were joined; came after the decision was settled; came without a decision (of the default model).
    learned, defaulted, unlearned, refused : int
        Decisions learned; of these with the default reward; settled without being learned; not learned because the
        policy refused the round.
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
    reward_sum: float = 0.0
    chance_measured: int = 0
    chance_cost: float = 0.0


@dataclass
class Served:
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
    waiting : Waiting
        Decisions whose wait has not ended.
    plays : dict of str to int
        How often each arm was played; of at most MOST_COUNTED arms, the others together.
    kept : dict of str to mapping
        What doors want to find again, see the event Kept.
    """

    name: str
    configuration: Configuration = field(default_factory=Configuration)
    versions: dict[str, VersionAdded] = field(default_factory=dict)
    learners: dict[str, Learner] = field(default_factory=dict)
    activations: list[str] = field(default_factory=list)
    waiting: Waiting = field(default_factory=Waiting)
    counts: Counts = field(default_factory=Counts)
    plays: dict[str, int] = field(default_factory=dict)
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The active one."""
        if not self.activations:
            raise InputError(f"model: {self.name!r} has no active version")
        return self.activations[-1]

    @property
    def learner(self) -> Learner:
        """Of the active version."""
        return self.learners[self.version]

    def count_play(self, label: str) -> None:
        """One more decision for an arm."""
        if label not in self.plays and len(self.plays) >= MOST_COUNTED:
            label = OTHERS
        self.plays[label] = self.plays.get(label, 0) + 1

    def previous(self) -> str:
        """The version before the active one."""
        if len(self.activations) < 2:
            raise InputError(f"model: {self.name!r} has no earlier version to return to")
        return self.activations[-2]

    def forget_old_versions(self, newest: str) -> None:
        """Let go of versions from background learning that `roll back` will not come to, all but the newest."""
        self.activations = self.activations[-MOST_STEPS_BACK:]
        for name in [name for name, one in self.versions.items() if one.origin == "background"]:
            if name != newest and name not in self.activations:
                del self.versions[name], self.learners[name]

    def state_hash(self) -> str:
        """SHA-256 over everything that decisions and learning depend on, in hexadecimal digits."""
        content = hashlib.sha256(self.version.encode())
        content.update(msgspec.json.encode([self.configuration, self.counts, list(self.waiting), self.activations]))
        for name, learner in self.learners.items():
            content.update(name.encode() + hashlib.sha256(learner.to_bytes()).digest())
        return content.hexdigest()

    def to_plain(self) -> dict[str, Any]:
        """The whole state, for a snapshot."""
        return {
            "name": self.name,
            "configuration": msgspec.to_builtins(self.configuration),
            "versions": [msgspec.msgpack.encode(one) for one in self.versions.values()],
            "learners": {name: [one.kind, one.to_bytes()] for name, one in self.learners.items()},
            "activations": self.activations,
            "waiting": list(self.waiting),
            "counts": msgspec.to_builtins(self.counts),
            "plays": self.plays,
            "kept": self.kept,
        }

    @classmethod
    def from_plain(cls, told: dict[str, Any]) -> Served:
        """The model with this state."""
        versions = [msgspec.msgpack.decode(one, type=VersionAdded) for one in told["versions"]]
        learners = told["learners"].items()
        return cls(
            told["name"],
            msgspec.convert(told["configuration"], Configuration),
            {one.version: one for one in versions},
            {name: learner_from_bytes(kind, content, f"version {name}") for name, (kind, content) in learners},
            list(told["activations"]),
            Waiting((float(end), str(id)) for end, id in told["waiting"]),
            msgspec.convert(told["counts"], Counts),
            dict(told["plays"]),
            dict(told.get("kept", {})),
        )


MOST_REMEMBERED = 20_000
"""So many decisions are kept at hand; older ones are looked up in the store."""


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
    grouped : Grouped or None
        If this is the id of several decisions made together.
    """

    decided: Decided | None = None
    activated: bool = True
    rewards: list[Rewarded] = field(default_factory=list)
    closed: Closed | None = None
    grouped: Grouped | None = None

    def take(self, event: AnyEvent) -> None:
        """Follow one event about this decision."""
        if isinstance(event, Decided):
            self.decided, self.activated = event, not event.deferred
        elif isinstance(event, Activated):
            self.activated = True
        elif isinstance(event, Rewarded):
            self.rewards.append(event)
        elif isinstance(event, Closed):
            self.closed = event
        elif isinstance(event, Grouped):
            self.grouped = event

    def joined(self) -> list[float]:
        """Values that count for it."""
        return [one.value for one in self.rewards if one.fate == "joined"]

    def copy(self) -> Record:
        """A record of its own."""
        return replace(self, rewards=list(self.rewards))


class Records:
    """Records by key (see `decision_key`): the latest at hand, the others from the store."""

    def __init__(self, of_key: Callable[[str], Iterable[Row]]) -> None:
        self._of_key = of_key
        self._near: OrderedDict[str, Record] = OrderedDict()

    def find(self, key: str) -> Record | None:
        """What is known under a key."""
        if key in self._near:
            self._near.move_to_end(key)
            return self._near[key]
        found = record_of(decoded(row.event) for row in self._of_key(key))
        if found is not None:
            self._keep(key, found)
        return found

    def at_hand(self, key: str) -> Record | None:
        """What is known without asking the store."""
        return self._near.get(key)

    def forget(self) -> None:
        """Ask the store from now on: others have added to it."""
        self._near.clear()

    def take(self, event: AnyEvent, *, fresh: bool = False) -> None:
        """Follow an event of a decision; `fresh` if nothing can be known under its key yet."""
        key = key_of(event)
        assert key is not None
        record = self._near.get(key) or (None if fresh else self.find(key))
        if record is None:
            record = Record()
            self._keep(key, record)
            record.take(event)
        elif not _has(record, event):
            record.take(event)

    def _keep(self, key: str, record: Record) -> None:
        self._near[key] = record
        while len(self._near) > MOST_REMEMBERED:
            self._near.popitem(last=False)


def record_of(events: Iterable[AnyEvent]) -> Record | None:
    """The record that these events of one decision make; None without any."""
    record: Record | None = None
    for event in events:
        record = record or Record()
        record.take(event)
    return record


def set_aside_in(store: Any) -> dict[int, str]:
    """Numbers of the events that were set aside for good, and why."""
    events = (decoded(row.event) for row in store.of_key(ASIDE))
    return {seq: why for event in events if isinstance(event, SetAside) for seq, why in event.events.items()}


def _has(record: Record, event: AnyEvent) -> bool:
    """Whether the store has told of this very event already."""
    return event in (record.decided, record.closed, record.grouped) or event in record.rewards


@dataclass(frozen=True)
class Asked:
    """A decision that is asked for.

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
        What the door wants to find again, kept with the decision.
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


@dataclass(frozen=True)
class Given:
    """A reward that came; `request` tells a repeated call from another reward.

    Without a model it is for the only one that has decided under the id, see `State.owner`.
    """

    id: str
    value: float
    request: str | None = None
    model: str | None = None


log = logging.getLogger("invariant_bandits.service")
LARGEST_REWARD = 1e9
MOST_WAITING = 1_000_000
MEASURED_EVERY = 8
"""What chance costs is worked out for one of so many decisions."""
UNLEARNABLE = (ValueError, ArithmeticError, LookupError, TypeError)
"""What a learner that cannot take a round may raise: a function of the state and the round, as all it does."""


class ConflictError(InputError):
    """A request that contradicts an earlier one or could mean several models, or a version that takes other requests.

    Parameters
    ----------
    message : str
    differences : sequence of str
        From the active version, in words.
    """

    def __init__(self, message: str, differences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.differences = list(differences)


class NotFoundError(InputError):
    """Something that was named does not exist."""


class Contents(Protocol):
    """Where contents of versions are."""

    def content(self, digest: str) -> bytes:
        """Content by its SHA-256."""


class State:
    """All served models and their decisions.

    Parameters
    ----------
    store : Store
        Where records and contents that are not at hand are looked up.
    at : int or None
        Given if this is a state that others have published, after so many events, to decide from: then rewards are
        taken, but settled only by who learns.
    """

    def __init__(self, store: Any, *, at: int | None = None) -> None:
        self.at, self._store = at, store
        self.contents: Contents = store
        self.models: dict[str, Served] = {}
        self.records = Records(self._rows_of)
        self.aside: dict[int, str] = {}
        """Numbers of events that could not be applied, and why."""
        self.seq = 0

    def _rows_of(self, key: str) -> list[Row]:
        """What the store tells of a decision, as far as this state goes; all of it, where that is only decided from."""
        rows: list[Row] = self._store.of_key(key)
        return [row for row in rows if row.seq not in self.aside and (self.at is not None or row.seq < self.seq)]

    def model(self, name: str) -> Served:
        """A model by its name."""
        if name not in self.models:
            raise NotFoundError(f"model: {name!r} is not served; there are {', '.join(sorted(self.models)) or 'none'}")
        return self.models[name]

    # -- what follows from an event --

    def apply(self, event: AnyEvent) -> None:
        """Make the state that of after the event."""
        _APPLY[type(event)](self, event)
        self.seq += 1

    def pass_over(self, event: AnyEvent | None) -> None:
        """Leave out an event that is set aside; a decision that cannot be settled is not tried again."""
        if isinstance(event, Closed) and event.model in self.models:
            self.models[event.model].waiting.discard(event.id)
        self.seq += 1

    def _set_aside(self, event: SetAside) -> None:
        self.aside.update(event.events)

    def _version_added(self, event: VersionAdded) -> None:
        served = self.models.setdefault(event.model, Served(event.model))
        served.versions[event.version] = event
        name = f"version {event.version} of {event.model}"
        served.learners[event.version] = learner_from_bytes(event.learner, self.contents.content(event.content), name)
        if event.origin == "background":
            served.forget_old_versions(event.version)

    def _version_activated(self, event: VersionActivated) -> None:
        served = self.models[event.model]
        if event.version not in served.versions:
            raise NotFoundError(f"version: {event.version!r} is not one of {', '.join(served.versions)}")
        if len(served.activations) > 1 and served.activations[-2] == event.version:
            served.activations.pop()  # a step back
        else:
            served.activations.append(event.version)

    def _configured(self, event: Configured) -> None:
        self.models[event.model].configuration = event.configuration

    def _arm_added(self, event: ArmAdded) -> None:
        self.models[event.model].learner.add_arm(event.label, event.features)

    def _arm_retired(self, event: ArmRetired) -> None:
        self.models[event.model].learner.retire_arm(event.label)

    def _decided(self, event: Decided) -> None:
        self.records.take(event, fresh=True)
        served = self.models[event.model]
        served.counts.decisions += 1
        served.counts.explored += event.explored
        if event.chance_cost is not None:
            served.counts.chance_measured += 1
            served.counts.chance_cost += event.chance_cost
        label = event.labels[event.place] if event.labels else str(event.place)
        served.count_play(label)
        with contextlib.suppress(*UNLEARNABLE):  # it is stored: what a learner cannot note must not stop a replay
            served.learner.seen(event.context, event.labels, event.actions)
        wait = served.configuration.reward_wait
        if wait is not None:
            served.waiting.add(event.time + wait, event.id)

    def _grouped(self, event: Grouped) -> None:
        self.records.take(event)

    def _kept(self, event: Kept) -> None:
        kept = self.models[event.model].kept
        if event.value is None:
            kept.pop(event.name, None)
        else:
            kept[event.name] = event.value

    def _activated(self, event: Activated) -> None:
        self.records.take(event)
        self._ripen(event)

    def _rewarded(self, event: Rewarded) -> None:
        self.records.take(event)
        counts = self.models[event.model].counts
        counts.rewards += event.fate == "joined"
        counts.late += event.fate == "late"
        counts.unknown += event.fate == "unknown"
        if event.fate == "joined":
            self._ripen(event)

    def _ripen(self, event: Activated | Rewarded) -> None:
        """A decision that nobody waits for any longer is due at once, unless the next event settles it."""
        record, waiting = self.records.find(decision_key(event.id, event.model)), self.models[event.model].waiting
        if record is not None and record.activated and record.joined() and event.id not in waiting:
            waiting.add(0.0, event.id)

    def _closed(self, event: Closed) -> None:
        record = self.records.find(decision_key(event.id, event.model))
        self.records.take(event)
        served = self.models[event.model]
        served.waiting.discard(event.id)
        if event.value is None:
            served.counts.unlearned += 1
            return
        assert record is not None
        assert record.decided is not None
        one = record.decided
        served.counts.reward_sum += event.value
        try:
            served.learner.learn(one.context, one.labels, one.actions, one.place, event.value)
            served.counts.learned += 1
            served.counts.defaulted += event.why == "default"
        except (ValueError, ArithmeticError):  # this version cannot take the round; counted, the same in every replay
            served.counts.refused += 1

    # -- what should happen --

    def record(self, id: str, model: str, near: dict[str, Record]) -> Record | None:
        """What is known of a decision of a model, after what was proposed in this batch."""
        key = decision_key(id, model)
        return near.get(key) or self.records.find(key)

    def owner(self, id: str, model: str | None, near: dict[str, Record]) -> Served:
        """The model whose decision an id means.

        Without a name it is the only model that has decided under the id. If none has, it is "default", or the only
        model that is served. ConflictError names the models that could be meant if there are several.
        """
        if model is not None or len(self.models) < 2:
            return self.model(model or next(iter(self.models), "default"))
        keys = self._store.keys_from(decision_key(id))
        named = {name: decision_key(id, name) for name in self.models}
        records = {name: self.record(id, name, near) for name, key in named.items() if key in keys or key in near}
        names = [name for name, record in records.items() if record is not None and record.decided is not None]
        if not names and "default" in self.models:
            return self.models["default"]
        if len(names) != 1:
            several = ", ".join(sorted(names or self.models))
            raise ConflictError(f"model: the id {id!r} could be one of {several}; name the model")
        return self.models[names[0]]

    def decision(self, asked: Asked, now: float, near: dict[str, Record], drawn: int) -> tuple[list[AnyEvent], Decided]:
        """Events of a decision that is asked for, and the decision; no events if its id was decided before.

        Parameters
        ----------
        asked : Asked
        now : float
        near : dict of str to Record
            Records by key as they will be after what was proposed in this batch.
        drawn : int
            Decisions of this model that were proposed in this batch.
        """
        earlier: list[Rewarded] = []
        served = self.model(asked.model)
        if asked.id is not None:
            known = self.record(asked.id, asked.model, near)
            if known is not None and (known.decided is not None or known.grouped is not None):
                if known.decided is None or not _is_same(asked, known.decided):
                    before = f"{asked.model!r} has decided under {asked.id!r} already"
                    raise ConflictError(f"id: {before}, with another context or other arms")
                return [], known.decided
            earlier = [] if known is None else known.rewards
        if len(served.waiting) >= MOST_WAITING:
            raise InputError(f"model: {asked.model!r} has {MOST_WAITING:,} decisions that wait for rewards")
        id = asked.id or _new_id(now)
        draw = served.counts.decisions + drawn if self.at is None else _draw_of(decision_key(id, served.name))
        round, choice = self.chosen(served, asked, draw)
        measured = draw % MEASURED_EVERY == 0
        means = served.learner.means(round) if asked.scores or measured else None
        event = Decided(
            now,
            id,
            served.name,
            served.version,
            draw,
            None if asked.context is None else dict(asked.context),
            list(round.labels),
            None if asked.actions is None else list(asked.actions),
            choice.place,
            choice.propensities,
            means if asked.scores else None,
            asked.deferred,
            choice.explored,
            asked.protocol,
            asked.extra,
            choice.cost(means) if means is not None and measured else None,
            self.at,
            not asked.labels and asked.actions is None,
        )
        events: list[AnyEvent] = [event]
        if earlier:  # rewards that were here before their decision
            events += [Rewarded(now, event.id, served.name, one.value, "joined", one.request) for one in earlier]
            if served.configuration.reward_wait is None and not event.deferred and self.at is None:
                events.append(
                    Closed(now, event.id, served.name, *self._settled(served, [one.value for one in earlier]))
                )
        return events, event

    @staticmethod
    def chosen(served: Served, asked: Asked, draw: int) -> tuple[Round, Choice]:
        """The round, and what is chosen in it in the present state."""
        learner = served.learner
        round = learner.round_of(asked.context, asked.labels, asked.actions)
        if served.configuration.mode == "online":
            return round, learner.decide(round, draw, served.configuration.floor)
        return round, Choice(0, [1.0] + [0.0] * (len(round.features) - 1))

    def reward(self, given: Given, now: float, near: dict[str, Record]) -> tuple[list[AnyEvent], str]:
        """Events of a reward that came, and its status."""
        value = _reward_value(given.value)
        served = self.owner(given.id, given.model, near)
        record = self.record(given.id, served.name, near)
        if record is None or record.decided is None:
            return self._without_decision(given, value, now, served, record)
        decided = record.decided
        if self._is_repeated(served, record, given, value):
            return [], "unchanged"
        single = served.configuration.aggregation == "earliest"
        if record.closed is not None and not (single and record.joined()):
            return [Rewarded(now, given.id, decided.model, value, "late", given.request)], "late"
        if single and record.joined():
            if served.configuration.conflicts == "ignore":
                return [], "ignored"
            there = record.joined()[0]
            raise ConflictError(
                f"value: decision {given.id!r} has the reward {there!r} already, which {value!r} contradicts"
            )
        events: list[AnyEvent] = [Rewarded(now, given.id, decided.model, value, "joined", given.request)]
        if self._is_waiting(served, decided) or not record.activated or self.at is not None:
            return events, "waiting"
        closed = Closed(now, given.id, decided.model, *self._settled(served, [value]))
        return [*events, closed], "learned" if closed.value is not None else "kept"

    def _without_decision(
        self, given: Given, value: float, now: float, served: Served, record: Record | None
    ) -> tuple[list[AnyEvent], str]:
        if record is not None and any(one.value == value and one.request == given.request for one in record.rewards):
            return [], "unchanged"
        return [Rewarded(now, given.id, served.name, value, "unknown", given.request)], "unknown"

    @staticmethod
    def _is_waiting(served: Served, decided: Decided) -> bool:
        """Whether a decision is settled when its wait ends: by the rules under which it was made.

        One that was proposed in this batch is not counted yet, and was made under the present rules.
        """
        proposed = decided.at is None and decided.draw >= served.counts.decisions
        return decided.id in served.waiting or (proposed and served.configuration.reward_wait is not None)

    @staticmethod
    def _is_repeated(served: Served, record: Record, given: Given, value: float) -> bool:
        """Whether this very reward was given before: the same request, or the same value where one is all there is."""
        single = served.configuration.aggregation == "earliest"
        return any(
            (single and one.value == value) or (given.request is not None and one.request == given.request)
            for one in record.rewards
        )

    @staticmethod
    def _settled(served: Served, values: list[float]) -> tuple[float | None, Any]:
        """What is learned of these rewards, and why."""
        configuration = served.configuration
        if configuration.mode == "logging":
            return None, "not learned in this mode"
        if not values:
            return configuration.default_reward, "no reward" if configuration.default_reward is None else "default"
        value = aggregated(values, configuration.aggregation)
        return value, "reward" if configuration.reward_wait is None or len(values) == 1 else "aggregate"

    def activation(self, id: str, model: str | None, now: float, near: dict[str, Record]) -> list[AnyEvent]:
        """Events of a deferred decision that is shown."""
        served = self.owner(id, model, near)
        record = self.record(id, served.name, near)
        if record is None or record.decided is None:
            raise NotFoundError(f"id: decision {id!r} is not known")
        if record.activated or record.closed is not None:
            return []
        decided = record.decided
        events: list[AnyEvent] = [Activated(now, id, decided.model)]
        if record.joined() and not self._is_waiting(served, decided) and self.at is None:
            events.append(Closed(now, id, decided.model, *self._settled(served, record.joined())))
        return events

    def due(self, now: float, most: int) -> list[tuple[str, str]]:
        """Model and id of decisions whose wait has ended, at most so many."""
        ended = ((served.name, id) for served in self.models.values() for id in served.waiting.ended(now))
        return list(islice(ended, most))

    def settlement(self, model: str, id: str, now: float) -> list[AnyEvent]:
        """Events of a decision whose wait has ended; none if it was settled meanwhile."""
        served, record = self.models[model], self.records.find(decision_key(id, model))
        if id not in served.waiting:
            return []
        if record is None or record.decided is None:
            raise StoreError(f"decision {id!r} waits for rewards, and its event is not in the store")
        settled = self._settled(served, record.joined()) if record.activated else (None, "not activated")
        return [Closed(now, id, model, *settled)]

    def next_due(self) -> float:
        """When the next wait ends."""
        return min((served.waiting.next_end for served in self.models.values()), default=math.inf)

    # -- storing --

    def to_bytes(self) -> bytes:
        """A snapshot: everything but what records the store can tell."""
        models = [one.to_plain() for one in self.models.values()]
        return msgspec.msgpack.encode({"seq": self.seq, "models": models, "aside": self.aside})

    @classmethod
    def from_bytes(cls, content: bytes, store: Any, *, published: bool = False) -> State:
        """The state that a snapshot holds; `published` if it is only to be decided from."""
        told = msgspec.msgpack.decode(content)
        state = cls(store, at=int(told["seq"]) if published else None)
        state.seq, state.aside = int(told["seq"]), dict(told.get("aside", {}))
        for one in told["models"]:
            served = Served.from_plain(one)
            state.models[served.name] = served
        return state

    def hashes(self) -> dict[str, str]:
        """State hash of every model."""
        return {name: served.state_hash() for name, served in self.models.items()}


def _is_same(asked: Asked, decided: Decided) -> bool:
    """Whether what is asked is what was decided about; expected rewards do not count, they are only told."""
    if asked.labels or asked.actions is not None:
        actions = None if asked.actions is None else list(asked.actions)
        if decided.all_arms or decided.labels != list(asked.labels) or decided.actions != actions:
            return False
    elif not decided.all_arms:
        return False
    return (decided.context, decided.deferred, decided.extra) == (asked.context, asked.deferred, asked.extra)


def _draw_of(key: str) -> int:
    """A number for the random draw that processes which know nothing of each other do not share, but by chance."""
    return int.from_bytes(hashlib.sha256(key.encode(errors="surrogatepass")).digest()[:7], "little")


def _new_id(now: float) -> str:
    """An id that nobody guesses and that begins with its time: neighbours in time are neighbours in the index."""
    return f"{int(now * 1e6):014x}{secrets.token_hex(8)}"


def _reward_value(value: float) -> float:
    if not math.isfinite(value) or abs(value) > LARGEST_REWARD:
        raise InputError(f"value must be a finite number of at most {LARGEST_REWARD:g}, got {value!r}")
    return value


_APPLY: dict[type, Callable[[State, Any], None]] = {
    VersionAdded: State._version_added,
    VersionActivated: State._version_activated,
    Configured: State._configured,
    ArmAdded: State._arm_added,
    ArmRetired: State._arm_retired,
    Decided: State._decided,
    Activated: State._activated,
    Rewarded: State._rewarded,
    Closed: State._closed,
    Grouped: State._grouped,
    Kept: State._kept,
    SetAside: State._set_aside,
}


def follow(near: dict[str, Record], state: State, events: Sequence[AnyEvent]) -> None:
    """Take events of this batch into `near`."""
    for event in events:
        key = key_of(event)
        if key is None or isinstance(event, SetAside):
            continue
        if key not in near:
            known = state.records.at_hand(key) if isinstance(event, Decided) else state.records.find(key)
            near[key] = Record() if known is None else known.copy()
        near[key].take(event)

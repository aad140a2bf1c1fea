"""The state of a service: a function of its events. `propose` says what should happen, `apply` makes it so."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from invariant_bandits.checks import InputError
from invariant_bandits.service.configuration import aggregated
from invariant_bandits.service.events import (
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
    key_of,
)
from invariant_bandits.service.learners.base import Choice, Round, learner_from_bytes
from invariant_bandits.service.records import Record, Records
from invariant_bandits.service.requests import Asked, Given
from invariant_bandits.service.served import Served
from invariant_bandits.service.store.chain import Row, StoreError

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

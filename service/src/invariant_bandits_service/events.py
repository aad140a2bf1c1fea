"""What can happen to a service, one append-only record each.

The state is a function of these events in their order.
"""

from __future__ import annotations

import math
from operator import mul
from typing import Any, Literal

import msgspec

from invariant_bandits_service.settings import Configuration, Group

ASIDE = "\x01set aside"
REMOVED = "\x01removed"
CLOCK = "\x01clock"
"""Keys by which events of these kinds are looked up. No decision has such a key: ids are printable."""
ClosedBecause = Literal[
    "reward",
    "aggregate",
    "default",
    "no reward",
    "not activated",
    "not learned in this mode",
]
Fate = Literal["joined", "late", "unknown"]
Origin = Literal["file", "logs", "empty", "background", "given"]


class AnyEvent(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Something that happened.

    Parameters
    ----------
    time : float
        Seconds since 1970, UTC.
    """

    time: float

    def show(self, *names: str) -> dict[str, Any]:
        """Return some of its fields and properties by name."""
        return {name: getattr(self, name) for name in names}


class DecisionEvent(AnyEvent, frozen=True, array_like=True):
    """Something that happened to one decision.

    Parameters
    ----------
    id, model : str
        What rewards are reported under; whose decision it is.
    """

    id: str
    model: str


class VersionAdded(AnyEvent, frozen=True, array_like=True, tag="version"):
    """A version of a model, its content kept once under its SHA-256; the first one of a name makes the model.

    `through` is the number of the event up to which settled decisions are part of its history, `evaluation`
    what was found out about it before it was added.
    """

    model: str
    version: str
    learner: str
    content: str
    origin: Origin
    note: str = ""
    by: str = ""
    through: int = 0
    evaluation: dict[str, Any] | None = None


class VersionActivated(AnyEvent, frozen=True, array_like=True, tag="activate"):
    """Decisions are made, and rewards learned, by this version from now on; it goes on where it stood."""

    model: str
    version: str
    why: str = ""
    by: str = ""


class Configured(AnyEvent, frozen=True, array_like=True, tag="configure"):
    """The rules of a model changed."""

    model: str
    configuration: Configuration
    by: str = ""


class ArmAdded(AnyEvent, frozen=True, array_like=True, tag="arm"):
    """An arm can be offered from now on."""

    model: str
    label: str
    features: dict[str, Any] | None = None
    by: str = ""


class ArmRetired(AnyEvent, frozen=True, array_like=True, tag="retire"):
    """An arm is never chosen again; its name stays taken."""

    model: str
    label: str
    by: str = ""


class VersionRemoved(AnyEvent, frozen=True, array_like=True, tag="remove_version"):
    """A version is gone, with what it learned. It neither decides nor is a reference."""

    model: str
    version: str
    by: str = ""


class ModelRemoved(AnyEvent, frozen=True, array_like=True, tag="remove_model"):
    """A model is gone; its name stays taken, since its decisions stay in the store."""

    model: str
    by: str = ""


class Decided(DecisionEvent, frozen=True, array_like=True, tag="decision"):
    """A decision, with all that is needed to learn from it, check it and evaluate on it.

    Parameters
    ----------
    version : str
        Who decided.
    draw : int
        Number of the random draw: the decision is a function of the version's state, the round and this
        number.
    context : mapping or None
        What all offered actions share, as it was asked.
    labels : list of str
        The offered arms; empty if actions are feature rows without names.
    actions : list or None
        What is known of each offered action besides, in their order.
    index : int
        Of the chosen action.
    propensities : list of float
        Probability of each offered action, exact.
    means : list of float or None
        Expected rewards by the state that decided.
    deferred : bool
        Whether it counts only once it is activated.
    protocol : str
        By which protocol it was asked for.
    extra : None
        Unused; it keeps the position of the fields after it in stored events.
    at : int or None
        So many events the state knew that decided; None: all before its batch.
    all_arms : bool
        Whether the request named no arms, so that all active ones were offered.
    why : str
        Why the action was chosen: "greedy" (largest expected reward), "exploration" or "test" (the policy
        wants to learn of it), "floor" (drawn uniformly), "holdout" (by the reference), or "first" (by mode).
    group : "model", "holdout" or ""
        Who decides about its unit, see `Configuration.holdout`; empty where there is no holdout.
    bucket : int
        One of BUCKETS that the units of a holdout are hashed to.
    """

    version: str
    draw: int
    context: dict[str, Any] | None
    labels: list[str]
    actions: list[Any] | None
    index: int
    propensities: list[float]
    means: list[float] | None = None
    deferred: bool = False
    protocol: str = "v1"
    extra: None = None
    at: int | None = None
    all_arms: bool = False
    why: str = ""
    group: Group = ""
    bucket: int = 0

    @property
    def propensity(self) -> float:
        """Probability of the chosen action."""
        return self.propensities[self.index]

    @property
    def explored(self) -> bool:
        """Whether chance chose another action than the most probable one."""
        return self.propensity < max(self.propensities)

    @property
    def chance_cost(self) -> float:
        """By how much less reward is expected of this draw than of the most probable action."""
        means = self.means or [0.0] * len(self.propensities)
        likeliest = max(range(len(means)), key=self.propensities.__getitem__)
        return means[likeliest] - math.fsum(map(mul, self.propensities, means))

    @property
    def action(self) -> str | int:
        """Label of the chosen arm, or index of the chosen row."""
        return self.labels[self.index] if self.labels else self.index


class Activated(DecisionEvent, frozen=True, array_like=True, tag="activated"):
    """A deferred decision was shown."""


class Rewarded(DecisionEvent, frozen=True, array_like=True, tag="reward"):
    """A reward came; `fate` says what becomes of it: joined to its decision, late, or without a decision."""

    value: float
    fate: Fate
    request: str | None = None


class Closed(DecisionEvent, frozen=True, array_like=True, tag="closed"):
    """The rewards of a decision are settled; it is learned with `value`, or not at all if that is None."""

    value: float | None
    why: ClosedBecause


class SetAside(AnyEvent, frozen=True, array_like=True, tag="aside"):
    """These events have no effect: number -> why it could not be applied. They stay in the store."""

    events: dict[int, str]


class Removed(AnyEvent, frozen=True, array_like=True, tag="removed"):
    """What the store no longer holds: all events before number `before`, and these single ones.

    The chain of checksums goes through all of them. A replay begins after the single ones.
    """

    before: int
    events: list[int] = []
    by: str = ""


class ClockMoved(AnyEvent, frozen=True, array_like=True, tag="clock"):
    """The clock of the machine was set to another time, by so many seconds.

    Waits go on for as long as they had to.
    """

    by: float


_KEYS_BY_KIND: dict[type[AnyEvent], str] = {
    SetAside: ASIDE,
    Removed: REMOVED,
    ClockMoved: CLOCK,
}
Event = (
    VersionAdded
    | VersionActivated
    | Configured
    | ArmAdded
    | ArmRetired
    | VersionRemoved
    | ModelRemoved
    | Decided
    | Activated
    | Rewarded
    | Closed
    | SetAside
    | Removed
    | ClockMoved
)
"""Every kind of event that a store can hold."""
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Event)
_DECIDED = _encoder.encode("decision")
"""The stored form of the tag of `Decided`, which comes first in an event."""


def encode_event(event: AnyEvent) -> bytes:
    """Return the stored form; the same event has the same bytes."""
    return _encoder.encode(event)


def decode_event(body: bytes) -> Any:
    """Return the event in its stored form, an AnyEvent."""
    return _decoder.decode(body)


def is_decision_with(body: bytes, text: bytes) -> bool:
    """Return whether an event in its stored form is a decision in which a text occurs.

    The event is not decoded: texts are stored as UTF-8.
    """
    # up to five bytes before the tag say how many fields the event has
    is_decision = body.find(_DECIDED, 0, 5 + len(_DECIDED)) >= 0
    return is_decision and text in body


def decision_key(id: str, model: str = "") -> str:
    """Return the key of a decision in memory and in the index of a store.

    Without a model, it is what all keys of the id begin with. Ids are printable, so the first
    line break ends the id, also if the name of the model has one. The id comes first: ids that
    the service makes begin with their time, and neighbours in time stay neighbours in the index.
    """
    return f"{id}\n{model}"


def key_of(event: AnyEvent) -> str | None:
    """Return the key that an event is looked up by: that of its decision, or of its kind."""
    if isinstance(event, DecisionEvent):
        return decision_key(event.id, event.model)
    return _KEYS_BY_KIND.get(type(event))

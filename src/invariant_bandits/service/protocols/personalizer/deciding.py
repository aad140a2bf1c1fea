"""Rank, reward and activate as works of the engine: actions by id, excluded ones, several slots at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from invariant_bandits.checks import InputError
from invariant_bandits.service import work as works
from invariant_bandits.service.batches import Batch, Work
from invariant_bandits.service.events import Decided, Grouped, id_in_group
from invariant_bandits.service.learners.base import checked_labels
from invariant_bandits.service.protocols.personalizer.shapes import Action, Features, RankRequest, Slot, SlotsRequest
from invariant_bandits.service.requests import Asked, Given
from invariant_bandits.service.state import ConflictError, State

PROTOCOL = "personalizer"


class Filled(NamedTuple):
    """Slots of one event, and the decision about each."""

    id: str
    slots: list[tuple[str, Decided]]


def merged(parts: Features) -> dict[str, Any]:
    """One mapping of several; a name that more than one of them has keeps all its values.

    >>> merged([{"hour": 9}, {"tags": "new"}, {"tags": "dry"}])
    {'hour': 9, 'tags': ['new', 'dry']}
    """
    whole: dict[str, Any] = {}
    for part in parts or ():
        for name, value in part.items():
            whole[name] = [whole[name], value] if name in whole else value
    return whole


def rank(model: str, request: RankRequest) -> Work:
    """A decision among the actions that are not excluded."""

    def work(state: State, batch: Batch) -> Decided:
        ids = checked_labels([one.id for one in request.actions])
        offered = _without(request.actions, request.excluded_actions or ())
        if not offered:
            raise InputError("excludedActions: nothing is left to choose from")
        id, deferred = request.event_id or None, bool(request.defer_activation)
        return _decided(state, batch, _Asking(model, id, merged(request.context_features), offered, ids, deferred))

    return work


def rank_slots(model: str, request: SlotsRequest) -> Work:
    """A decision per slot, none of which chooses what an earlier one has; the same event again has the same answer."""

    def work(state: State, batch: Batch) -> Filled:
        id = request.event_id or secrets.token_hex(12)
        state.model(model)
        known = state.record(id, model, batch.near)
        grouped = None if known is None else known.grouped
        slots = list(checked_labels([one.id for one in request.slots]))
        if known is not None and (known.decided is not None or (grouped is not None and grouped.slots != slots)):
            raise ConflictError(f"eventId: {model!r} has decided under {id!r} already, about other slots")
        ids = checked_labels([one.id for one in request.actions])
        trial, left, filled = batch.copy(), list(request.actions), []
        for slot in request.slots:
            own = [{"slot": merged(slot.features)}] if slot.features else []
            context = merged([*(request.context_features or []), *own])
            offered, deferred = _for_slot(slot, left, ids), bool(request.defer_activation)
            asking = _Asking(model, id_in_group(id, slot.id), context, offered, ids, deferred)
            decided = _decided(state, trial, asking)
            left = _without(left, [chosen_id(decided)])
            filled.append((slot.id, decided))
        if grouped is None:
            trial.add(state, [Grouped(trial.tick(), id, model, slots)])
        batch.become(trial)
        return Filled(id, filled)

    return work


def _for_slot(slot: Slot, left: Sequence[Action], ids: Sequence[str]) -> list[Action]:
    """What a slot can take, its baseline first: that is what is shown while the model is an apprentice."""
    if slot.baseline_action is not None and slot.baseline_action not in ids:
        raise InputError(f"slots: the baselineAction {slot.baseline_action!r} of {slot.id!r} is not one of the actions")
    offered = _without(left, slot.excluded_actions or ())
    if not offered:
        raise InputError(f"slots: nothing is left to choose from for {slot.id!r}")
    return sorted(offered, key=lambda one: one.id != slot.baseline_action)


def _without(actions: Iterable[Action], excluded: Iterable[str]) -> list[Action]:
    left_out = frozenset(excluded)
    return [one for one in actions if one.id not in left_out]


class _Asking(NamedTuple):
    """A decision that is asked for, before it is known how its model takes actions."""

    model: str
    id: str | None
    context: dict[str, Any]
    offered: Sequence[Action]
    ids: Sequence[str]
    deferred: bool

    def of(self, takes: str) -> Asked:
        """What is asked, told in the way that a learner takes; ids that it is not told are kept beside."""
        rows = [merged(one.features) for one in self.offered] if takes != "labels" else []
        labels = [one.id for one in self.offered]
        extra = {"ranking": list(self.ids)} if len(labels) < len(self.ids) or takes == "rows" else None
        if extra is not None and takes == "rows":
            extra["offered"] = labels
        told = rows if takes == "rows" or any(rows) else None
        named = labels if takes != "rows" else ()
        return Asked(self.model, self.context, named, told, self.id, False, self.deferred, PROTOCOL, extra)


def _decided(state: State, batch: Batch, asking: _Asking) -> Decided:
    """Decide, or find the decision that was made about the same; its version may have taken actions in another way."""
    try:
        decided: Decided = works.decide(asking.of(state.model(asking.model).learner.takes))(state, batch)
    except ConflictError:
        known = state.record(asking.id or "", asking.model, batch.near)
        if known is None or known.decided is None:
            raise
        took = "rows" if "offered" in (known.decided.extra or {}) else "both" if known.decided.actions else "labels"
        decided = works.decide(asking.of(took))(state, batch)
    return decided


def offered_ids(decided: Decided) -> list[str]:
    """Ids of what could be chosen, in their order."""
    named: list[str] = decided.labels or (decided.extra or {}).get("offered", [])
    return named or [str(place) for place in range(len(decided.propensities))]


def chosen_id(decided: Decided) -> str:
    """Id of what was chosen."""
    return offered_ids(decided)[decided.place]


def ranking(decided: Decided) -> list[dict[str, Any]]:
    """All actions in the order in which they came, with their probabilities; that of an excluded one is 0."""
    chances = dict(zip(offered_ids(decided), decided.propensities, strict=True))
    ids = (decided.extra or {}).get("ranking") or list(chances)
    return [{"id": one, "probability": chances.get(one, 0.0)} for one in ids]


def reward(given: Given) -> Work:
    """What became of a reward; one that contradicts an earlier one changes nothing, and is no error here."""
    asked = works.reward(given)

    def work(state: State, batch: Batch) -> str:
        try:
            status: str = asked(state, batch)
            return status
        except ConflictError:
            return "ignored"

    return work


def activate(id: str, model: str) -> Work:
    """Activate an event of a model: its decision, or those of all its slots."""

    def work(state: State, batch: Batch) -> None:
        state.model(model)
        known = state.record(id, model, batch.near)
        slots = [] if known is None or known.grouped is None else known.grouped.slots
        for one in [id_in_group(id, slot) for slot in slots] or [id]:
            works.activate(one, model)(state, batch)

    return work

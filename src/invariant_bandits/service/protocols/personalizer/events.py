"""Rank, reward and activate as works of the engine: actions by id, excluded ones, several slots at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service import commands as works
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.commands import Command, DecisionCommand, EventBatch, RewardCommand, all_or_none
from invariant_bandits.service.events import Decided, Grouped, id_in_group
from invariant_bandits.service.learners.base import checked_labels
from invariant_bandits.service.protocols.personalizer.bodies import (
    Action,
    Features,
    ProtocolError,
    RankRequest,
    RewardRequest,
    Slot,
    SlotRewards,
    SlotsRequest,
    invalid_as,
)
from invariant_bandits.service.responses import RefusedError, answer, check_id, check_values, read
from invariant_bandits.service.state import ConflictError, NotFoundError, State

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


def rank_command(model: str, request: RankRequest) -> Command:
    """A decision among the actions that are not excluded."""

    def work(state: State, batch: EventBatch) -> Decided:
        ids = checked_labels([one.id for one in request.actions])
        offered = _without(request.actions, request.excluded_actions or ())
        if not offered:
            raise InputError("excludedActions: nothing is left to choose from")
        id, deferred = request.event_id or None, bool(request.defer_activation)
        return _decided(state, batch, _Asking(model, id, merged(request.context_features), offered, ids, deferred))

    return work


def rank_slots_command(model: str, request: SlotsRequest) -> Command:
    """A decision per slot, none of which chooses what an earlier one has; the same event again has the same answer."""

    def work(state: State, batch: EventBatch) -> Filled:
        id = request.event_id or secrets.token_hex(12)
        state.model(model)
        known = state.record(id, model, batch.pending)
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

    def of(self, takes: str) -> DecisionCommand:
        """What is asked, told in the way that a learner takes; ids that it is not told are kept beside."""
        rows = [merged(one.features) for one in self.offered] if takes != "labels" else []
        labels = [one.id for one in self.offered]
        extra = {"ranking": list(self.ids)} if len(labels) < len(self.ids) or takes == "rows" else None
        if extra is not None and takes == "rows":
            extra["offered"] = labels
        told = rows if takes == "rows" or any(rows) else None
        named = labels if takes != "rows" else ()
        return DecisionCommand(self.model, self.context, named, told, self.id, False, self.deferred, PROTOCOL, extra)


def _decided(state: State, batch: EventBatch, asking: _Asking) -> Decided:
    """Decide, or find the decision that was made about the same; its version may have taken actions in another way."""
    try:
        decided: Decided = asking.of(state.model(asking.model).learner.takes)(state, batch)
    except ConflictError:
        known = state.record(asking.id or "", asking.model, batch.pending)
        if known is None or known.decided is None:
            raise
        took = "rows" if "offered" in (known.decided.extra or {}) else "both" if known.decided.actions else "labels"
        decided = asking.of(took)(state, batch)
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


def reward_command(given: RewardCommand) -> Command:
    """What became of a reward; one that contradicts an earlier one changes nothing, and is no error here."""
    asked = given

    def work(state: State, batch: EventBatch) -> str:
        try:
            status: str = asked(state, batch)
            return status
        except ConflictError:
            return "ignored"

    return work


def activate_command(id: str, model: str) -> Command:
    """Activate an event of a model: its decision, or those of all its slots."""

    def work(state: State, batch: EventBatch) -> None:
        state.model(model)
        known = state.record(id, model, batch.pending)
        slots = [] if known is None or known.grouped is None else known.grouped.slots
        for one in [id_in_group(id, slot) for slot in slots] or [id]:
            works.activate(one, model)(state, batch)

    return work


NEWEST = "2022-09-01-preview"
MODEL_HEADER = "x-model"
"""For clients that take no path in their endpoint."""


class Door(NamedTuple):
    """The part of a path before the call.

    Attributes
    ----------
    model : str or None
        Name in the client's endpoint, where that ends in /models/NAME.
    versioned : bool
        Whether the version is in the path (v1.0, v1.1-preview.3) rather than asked for by ?api-version=.
    """

    model: str | None
    versioned: bool


class DoorConvertor(Convertor[Door]):
    """Reads paths such as models/shop/personalizer/v1.0."""

    regex = r"(?:models/[^/]+/)?personalizer(?:/v1\.0|/v1\.1-preview\.[0-9]+)?"

    def convert(self, value: str) -> Door:
        """The door in a path.

        >>> DoorConvertor().convert("models/shop/personalizer/v1.0")
        Door(model='shop', versioned=True)
        """
        parts = value.split("/")
        model = parts[1] if parts[0] == "models" else None
        return Door(model, parts[-1] != "personalizer")

    def to_string(self, value: Door) -> str:
        """No path is ever made from a door."""
        raise NotImplementedError


register_url_convertor("personalizer", DoorConvertor())


def door_of(request: Request) -> Door:
    """The door that a request came through."""
    door: Door = request.path_params["door"]
    return door


def loop_of(request: Request) -> str:
    """Name of the model that a request means: in the client's endpoint, in a header, or the default one."""
    asked, door = request.query_params.get("api-version", NEWEST), door_of(request)
    if asked != NEWEST and not door.versioned:
        raise RefusedError(400, f"api-version: {asked!r} is not {NEWEST}", "api-version")
    return door.model or request.headers.get(MODEL_HEADER) or "default"


MOST_SLOTS = 50


@invalid_as("InvalidRankRequest")
async def rank(request: Request) -> Response:
    """Choose one of the actions."""
    service, model = service_of(request, "decide"), loop_of(request)
    asked = await read(request, RankRequest, service.limits)
    _check(asked, service)
    decided = await service.engine.submit(rank_command(model, asked))
    told = {"ranking": ranking(decided), "eventId": decided.id, "rewardActionId": chosen_id(decided)}
    return answer(told, 201)


@invalid_as("InvalidRankRequest")
async def rank_slots(request: Request) -> Response:
    """Choose an action for each of several slots."""
    service, model = service_of(request, "decide"), loop_of(request)
    asked = await read(request, SlotsRequest, service.limits)
    _check(asked, service)
    if len(asked.slots) > MOST_SLOTS:
        raise RefusedError(422, f"slots: at most {MOST_SLOTS} can be filled, got {len(asked.slots)}", "slots")
    for slot in asked.slots:
        check_values(slot.features, service.limits, "slots")
    filled = await service.engine.submit(rank_slots_command(model, asked))
    slots = [{"id": slot, "rewardActionId": chosen_id(one)} for slot, one in filled.slots]
    return answer({"slots": slots, "eventId": filled.id}, 201)


def _check(asked: RankRequest | SlotsRequest, service: Service) -> None:
    if asked.event_id:
        check_id(asked.event_id, "eventId")
    if len(asked.actions) > service.limits.arms:
        raise RefusedError(
            422, f"actions: at most {service.limits.arms} can be offered, got {len(asked.actions)}", "actions"
        )
    check_values(asked.context_features, service.limits, "contextFeatures")
    check_values([one.features for one in asked.actions], service.limits, "actions")


@invalid_as("InvalidRewardRequest")
async def reward(request: Request) -> Response:
    """What an event earned; also of one that is not known, which is kept."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    given = await read(request, RewardRequest, service.limits)
    await service.engine.submit(reward_command(RewardCommand(id, given.value, _key(request), model)))
    return Response(status_code=204)


@invalid_as("InvalidRewardRequest")
async def reward_slots(request: Request) -> Response:
    """What slots of an event earned."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    given = await read(request, SlotRewards, service.limits)
    if len(given.reward) > service.limits.batch:
        raise RefusedError(
            422, f"reward: at most {service.limits.batch} can be sent, got {len(given.reward)}", "reward"
        )
    key = _key(request)
    works = [reward_command(RewardCommand(id_in_group(id, one.slot_id), one.value, key, model)) for one in given.reward]
    await service.engine.submit(all_or_none(works))
    return Response(status_code=204)


async def activate(request: Request) -> Response:
    """An event, or all slots of one, were shown."""
    service, model, id = service_of(request, "decide"), loop_of(request), _event(request)
    try:
        await service.engine.submit(activate_command(id, model))
    except NotFoundError as error:
        raise ProtocolError(400, "InvalidEventIdToActivate", str(error), "eventId") from None
    return Response(status_code=204)


def _event(request: Request) -> str:
    return check_id(request.path_params["id"], "eventId")


def _key(request: Request) -> str | None:
    """What a client that repeats a call repeats with it."""
    key = request.headers.get("x-ms-client-request-id", "")
    return key if 0 < len(key) <= 256 and key.isprintable() else None

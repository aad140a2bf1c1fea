"""Rank, reward and activate: actions by id, excluded ones, several slots at once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from invariant_bandits.checks import InputError
from invariant_bandits.service import commands
from invariant_bandits.service.commands import Command, DecisionCommand, EventBatch, RewardCommand
from invariant_bandits.service.events import Decided, Grouped, id_in_group
from invariant_bandits.service.learners.base import checked_labels
from invariant_bandits.service.operations import Call
from invariant_bandits.service.protocols.personalizer import bodies
from invariant_bandits.service.responses import RefusedError, check_id
from invariant_bandits.service.state import ConflictError, NotFoundError, State

PROTOCOL = "personalizer"
MOST_SLOTS = 50
"""The protocol's own limit."""
NEWEST = "2022-09-01-preview"
MODEL_HEADER = "x-model"
"""For clients that take no path in their endpoint."""


class Endpoint(NamedTuple):
    """The part of a path before the operation: what a client calls its endpoint.

    Attributes
    ----------
    model : str or None
        Name of the model, where the client's endpoint ends in /models/NAME.
    versioned : bool
        Whether the version is in the path (v1.0, v1.1-preview.3) rather than asked for by ?api-version=.
    """

    model: str | None
    versioned: bool


class EndpointConvertor(Convertor[Endpoint]):
    """Reads paths such as models/shop/personalizer/v1.0."""

    regex = r"(?:models/[^/]+/)?personalizer(?:/v1\.0|/v1\.1-preview\.[0-9]+)?"

    def convert(self, value: str) -> Endpoint:
        """Return the endpoint in a path.

        >>> EndpointConvertor().convert("models/shop/personalizer/v1.0")
        Endpoint(model='shop', versioned=True)
        """
        parts = value.split("/")
        return Endpoint(parts[1] if parts[0] == "models" else None, parts[-1] != "personalizer")

    def to_string(self, value: Endpoint) -> str:
        """Fail: paths are only read."""
        raise NotImplementedError


register_url_convertor("personalizer", EndpointConvertor())


def is_versioned(call: Call) -> bool:
    """Whether the version of the protocol is in the path: then answers have their older form."""
    return bool(call.path["endpoint"].versioned)


def model_of(request: Request) -> str:
    """Return the name of the model that is meant: in the client's endpoint, in a header, or the
    default one.
    """
    endpoint: Endpoint = request.path_params["endpoint"]
    version = request.query_params.get("api-version", NEWEST)
    if version != NEWEST and not endpoint.versioned:
        raise RefusedError(400, f"api-version: {version!r} is not {NEWEST}")
    return endpoint.model or request.headers.get(MODEL_HEADER) or "default"


def merged(parts: bodies.Features) -> dict[str, Any]:
    """Return one mapping of several; a name that several of them have keeps all its values in a list.

    >>> merged([{"hour": 9}, {"tags": "new"}, {"tags": ["dry", "red"]}, {"tags": "old"}])
    {'hour': 9, 'tags': ['new', ['dry', 'red'], 'old']}
    """
    values: dict[str, list[Any]] = {}
    for part in parts or ():
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


# -- rank --


async def rank(call: Call, body: bodies.RankRequest) -> dict[str, Any]:
    """Choose one of the actions."""
    _check(call, body)
    decided = await call.submit(rank_command(call.model, body))
    return {"ranking": ranking(decided), "eventId": decided.id, "rewardActionId": chosen_id(decided)}


async def rank_slots(call: Call, body: bodies.SlotsRequest) -> dict[str, Any]:
    """Choose an action for each of several slots."""
    _check(call, body)
    call.limits.check_count(len(body.slots), MOST_SLOTS, "slots", "filled")
    for slot in body.slots:
        call.limits.check_values(slot.features, "slots")
    id, decisions = await call.submit(rank_slots_command(call.model, body))
    slots = [
        {"id": slot.id, "rewardActionId": chosen_id(event)}
        for slot, event in zip(body.slots, decisions, strict=True)
    ]
    return {"slots": slots, "eventId": id}


def _check(call: Call, body: bodies.RankRequest | bodies.SlotsRequest) -> None:
    if body.event_id:
        check_id(body.event_id, "eventId")
    call.limits.check_count(len(body.actions), call.limits.arms, "actions", "offered")
    call.limits.check_values(body.context_features, "contextFeatures")
    call.limits.check_values([action.features for action in body.actions], "actions")


def rank_command(model: str, body: bodies.RankRequest) -> Command:
    """Return the command to decide among the actions that are not excluded."""
    context, deferred = merged(body.context_features), bool(body.defer_activation)
    command = DecisionCommand(model, context, id=body.event_id or None, deferred=deferred, protocol=PROTOCOL)

    def decide(state: State, batch: EventBatch) -> Decided:
        ids = checked_labels([action.id for action in body.actions])
        offered = _without(body.actions, body.excluded_actions or ())
        if not offered:
            raise InputError("excludedActions: nothing is left to choose from")
        return _decide(state, batch, command, offered, ids)

    return decide


def rank_slots_command(model: str, body: bodies.SlotsRequest) -> Command:
    """Return the command to decide about each slot; no slot gets the action of an earlier one.

    Its answer is the id and the decision about each slot. The same event again has the same answer.
    """

    def decide(state: State, batch: EventBatch) -> tuple[str, list[Decided]]:
        id = body.event_id or secrets.token_hex(12)
        state.model(model)
        known = state.record(id, model, batch.pending)
        grouped = None if known is None else known.grouped
        slots = list(checked_labels([slot.id for slot in body.slots]))
        if known is not None and (
            known.decided is not None or (grouped is not None and grouped.slots != slots)
        ):
            raise ConflictError(f"eventId: {model!r} has decided under {id!r} already, about other slots")
        ids = checked_labels([action.id for action in body.actions])
        trial, left, decisions = batch.copy(), list(body.actions), []
        for slot in body.slots:
            own = [{"slot": merged(slot.features)}] if slot.features else []
            context, deferred = merged([*(body.context_features or []), *own]), bool(body.defer_activation)
            command = DecisionCommand(
                model, context, id=id_in_group(id, slot.id), deferred=deferred, protocol=PROTOCOL
            )
            decisions.append(_decide(state, trial, command, _for_slot(slot, left, ids), ids))
            left = _without(left, [chosen_id(decisions[-1])])
        if grouped is None:
            trial.add(state, [Grouped(trial.tick(), id, model, slots)])
        batch.become(trial)
        return id, decisions

    return decide


def _for_slot(slot: bodies.Slot, left: Sequence[bodies.Action], ids: Sequence[str]) -> list[bodies.Action]:
    """Return what a slot can take, its baseline first: that is what is shown while the model is an
    apprentice.
    """
    baseline = slot.baseline_action
    if baseline is not None and baseline not in ids:
        raise InputError(f"slots: the baselineAction {baseline!r} of {slot.id!r} is not one of the actions")
    offered = _without(left, slot.excluded_actions or ())
    if not offered:
        raise InputError(f"slots: nothing is left to choose from for {slot.id!r}")
    return sorted(offered, key=lambda action: action.id != baseline)


def _without(actions: Iterable[bodies.Action], excluded: Iterable[str]) -> list[bodies.Action]:
    left_out = frozenset(excluded)
    return [action for action in actions if action.id not in left_out]


def _decide(
    state: State,
    batch: EventBatch,
    command: DecisionCommand,
    offered: Sequence[bodies.Action],
    ids: Sequence[str],
) -> Decided:
    """Decide, or find the decision that was made about the same; its version may have taken actions
    in another way.
    """
    try:
        return _offering(command, offered, ids, state.model(command.model).learner.takes)(state, batch)
    except ConflictError:
        known = state.record(command.id or "", command.model, batch.pending)
        if known is None or known.decided is None:
            raise
        took = (
            "rows"
            if "offered" in (known.decided.extra or {})
            else "both"
            if known.decided.actions
            else "labels"
        )
        return _offering(command, offered, ids, took)(state, batch)


def _offering(
    command: DecisionCommand, offered: Sequence[bodies.Action], ids: Sequence[str], takes: str
) -> DecisionCommand:
    """Return the command with actions in the way that a learner takes; ids that it does not take
    are kept beside.
    """
    labels = [action.id for action in offered]
    rows = [merged(action.features) for action in offered] if takes != "labels" else []
    extra: dict[str, Any] | None = None
    if takes == "rows":
        extra = {"ranking": list(ids), "offered": labels}
    elif len(labels) < len(ids):
        extra = {"ranking": list(ids)}
    return replace(
        command,
        labels=labels if takes != "rows" else (),
        actions=rows if takes == "rows" or any(rows) else None,
        extra=extra,
    )


def offered_ids(decided: Decided) -> list[str]:
    """Return the ids of what could be chosen, in their order."""
    named: list[str] = decided.labels or (decided.extra or {}).get("offered", [])
    return named or [str(place) for place in range(len(decided.propensities))]


def chosen_id(decided: Decided) -> str:
    """Return the id of what was chosen."""
    return offered_ids(decided)[decided.place]


def ranking(decided: Decided) -> list[dict[str, Any]]:
    """Return all actions in the order in which they came, with their probabilities; that of an
    excluded one is 0.
    """
    chances = dict(zip(offered_ids(decided), decided.propensities, strict=True))
    ids = (decided.extra or {}).get("ranking") or list(chances)
    return [{"id": id, "probability": chances.get(id, 0.0)} for id in ids]


# -- reward and activate --


async def reward(call: Call, body: bodies.EventReward) -> None:
    """Report what an event earned; the reward of one that is not known is kept."""
    await call.submit(_reward_command(call, _event_id(call), body.value))


async def reward_slots(call: Call, body: bodies.SlotRewards) -> None:
    """Report what slots of an event earned."""
    call.limits.check_count(len(body.reward), call.limits.batch, "reward", "sent")
    id = _event_id(call)
    rewards = [_reward_command(call, id_in_group(id, slot.slot_id), slot.value) for slot in body.reward]
    await call.submit(commands.all_or_none(rewards))


async def activate(call: Call) -> None:
    """Say that an event, or all slots of one, were shown."""
    id, model = _event_id(call), call.model

    def activated(state: State, batch: EventBatch) -> None:
        state.model(model)
        known = state.record(id, model, batch.pending)
        slots = [] if known is None or known.grouped is None else known.grouped.slots
        for part in [id_in_group(id, slot) for slot in slots] or [id]:
            commands.activate(part, model)(state, batch)

    try:
        await call.submit(activated)
    except NotFoundError as error:
        raise RefusedError(400, str(error), "eventId", name="InvalidEventIdToActivate") from None


def _event_id(call: Call) -> str:
    return check_id(call.path["id"], "eventId")


def _reward_command(call: Call, id: str, value: float) -> Command:
    """Return the command to take a reward; one that contradicts an earlier one changes nothing, and is
    not an error.

    A client that repeats a call repeats its request id.
    """
    key = call.request.headers.get("x-ms-client-request-id", "")
    command = RewardCommand(id, value, key if 0 < len(key) <= 256 and key.isprintable() else None, call.model)

    def rewarded(state: State, batch: EventBatch) -> str:
        try:
            return command(state, batch)
        except ConflictError:
            return "ignored"

    return rewarded

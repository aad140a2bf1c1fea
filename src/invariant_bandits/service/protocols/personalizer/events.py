"""Personalizer's endpoints, errors and times; rank, reward and activate: actions by id, excluded ones,
several slots at once. Fields of a body that are not named are ignored.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from invariant_bandits.checks import InputError
from invariant_bandits.service import commands, responses
from invariant_bandits.service.access import Role
from invariant_bandits.service.commands import Command, DecisionCommand, EventBatch, RewardCommand
from invariant_bandits.service.events import Decided, Grouped, id_in_group
from invariant_bandits.service.learners import checked_labels
from invariant_bandits.service.operations import Call, Handler, operation
from invariant_bandits.service.responses import (
    RefusedError,
    check_count,
    check_id,
    check_values,
    json_response,
)
from invariant_bandits.service.routes.decisions import Id
from invariant_bandits.service.state import ConflictError, NotFoundError, State

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
        Whether the version is in the path (v1.0, v1.1-preview.3) rather than asked for by ?api-version=. Then
        answers have their older form.
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


def model_of(request: Request) -> str:
    """Return the name of the model that is meant: in the client's endpoint, in a header, or the
    default one.
    """
    endpoint: Endpoint = request.path_params["endpoint"]
    version = request.query_params.get("api-version", NEWEST)
    if version != NEWEST and not endpoint.versioned:
        raise RefusedError(400, f"api-version: {version!r} is not {NEWEST}")
    return endpoint.model or request.headers.get(MODEL_HEADER) or "default"


def personalizer(
    method: str, path: str, role: Role, *bodies: Any, **options: Any
) -> Callable[[Handler], Handler]:
    """Register a handler as an operation under every endpoint; for the parameters see `Operation`."""
    whole = f"/{{endpoint:personalizer}}{path}"
    return operation(method, whole, role, *bodies, model_of=model_of, **options)


# -- errors and times --

NAMES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "OperationNotAllowed",
    404: "ResourceNotFound",
    405: "OperationNotAllowed",
    409: "Conflict",
    413: "PayloadSizeExceeded",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}
"""What the protocol calls an error, where an operation has no name of its own for it."""


def not_supported(message: str) -> RefusedError:
    """Return a refusal of something that this service cannot honour."""
    return RefusedError(400, message, name="OperationNotAllowed")


def error_response(refused: RefusedError, scope: Scope) -> Response:
    """Return the response to a request that failed, under the operation's own name for invalid requests."""
    status = 400 if refused.status == 422 else refused.status
    invalid = getattr(getattr(scope.get("endpoint"), "__self__", None), "invalid", "")
    if status not in (400, 409) or refused.name:
        invalid = ""
    name = refused.name or invalid or NAMES.get(status, "BadRequest")
    about: dict[str, Any] = {"code": name, "message": responses.printable(refused.message)}
    if refused.field:
        about["target"] = responses.printable(refused.field)
    about["innerError"] = {"code": responses.CODES.get(status if invalid else refused.status, "error")}
    return json_response({"error": about}, status, refused.headers)


def duration(seconds: float) -> str:
    """Return a span of time in the protocol's form.

    >>> duration(0.0), duration(600.0)
    ('PT0S', 'PT600S')
    """
    return str(msgspec.to_builtins(timedelta(seconds=seconds))) if seconds else "PT0S"


def moment(seconds: float) -> str:
    """Return a moment in the protocol's form, from seconds since 1970.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(time: datetime) -> float:
    """Return seconds since 1970; a time without a zone is meant in UTC."""
    if not 1970 <= time.year <= 9000:
        raise InputError(f"startTime, endTime: must be of the years 1970 to 9000, got {time.year}")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


# -- rank --

MOST_SLOTS = 50
"""The protocol's own limit."""
RANK, REWARD = "InvalidRankRequest", "InvalidRewardRequest"
"""What the protocol calls an invalid request."""
EventId = Annotated[str, msgspec.Meta(max_length=256)]
Features = list[dict[str, Any]] | None
Reward = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class Action(msgspec.Struct):
    """An action by its id, with what is known of it."""

    id: Id
    features: Features = None


class ActionsRequest(msgspec.Struct, rename="camel"):
    """A context and what can be chosen in it."""

    actions: Annotated[list[Action], msgspec.Meta(min_length=1)]
    context_features: Features = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class RankRequest(ActionsRequest, rename="camel"):
    """One choice."""

    excluded_actions: list[str] | None = None


class Slot(msgspec.Struct, rename="camel"):
    """A place to fill; the baseline action is what would be shown without the service."""

    id: Id
    baseline_action: str | None = None
    features: Features = None
    excluded_actions: list[str] | None = None


class SlotsRequest(ActionsRequest, rename="camel", kw_only=True):
    """Several places to fill with what can be chosen."""

    slots: Annotated[list[Slot], msgspec.Meta(min_length=1)]


class EventReward(msgspec.Struct):
    """What an event earned."""

    value: Reward


class SlotReward(msgspec.Struct, rename="camel"):
    """What one slot earned."""

    slot_id: Id
    value: Reward


class SlotRewards(msgspec.Struct):
    """What several slots earned."""

    reward: Annotated[list[SlotReward], msgspec.Meta(min_length=1)]


def merged(parts: Features) -> dict[str, Any]:
    """Return one mapping of several; a name that several of them have keeps all its values in a list.

    >>> merged([{"hour": 9}, {"tags": "new"}, {"tags": ["dry", "red"]}, {"tags": "old"}])
    {'hour': 9, 'tags': ['new', ['dry', 'red'], 'old']}
    """
    values: dict[str, list[Any]] = {}
    for part in parts or ():
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


@personalizer("POST", "/rank", "decide", RankRequest, status=201, invalid=RANK)
async def rank(call: Call, body: RankRequest) -> dict[str, Any]:
    """Choose one of the actions."""
    command = _command(call, body, body.event_id or None)

    def decide(state: State, batch: EventBatch) -> Decided:
        ids = checked_labels([action.id for action in body.actions])
        offered = _without(body.actions, body.excluded_actions or ())
        if not offered:
            raise InputError("excludedActions: nothing is left to choose from")
        return _decide(state, batch, command, offered, ids)

    decided = await call.submit(decide)
    return {"ranking": _ranking(decided), "eventId": decided.id, "rewardActionId": _chosen_id(decided)}


@personalizer("POST", "/multislot/rank", "decide", SlotsRequest, status=201, invalid=RANK)
async def rank_slots(call: Call, body: SlotsRequest) -> dict[str, Any]:
    """Choose an action for each of several slots; no slot gets the action of an earlier one.

    The same event again has the same answer.
    """
    command = _command(call, body, body.event_id or secrets.token_hex(12))
    check_count(body.slots, MOST_SLOTS, "slots", "filled")
    for slot in body.slots:
        check_values(slot.features, "slots")
    decisions = await call.submit(_slots_command(command, body))
    slots = [
        {"id": slot.id, "rewardActionId": _chosen_id(event)}
        for slot, event in zip(body.slots, decisions, strict=True)
    ]
    return {"slots": slots, "eventId": command.id}


def _command(call: Call, body: ActionsRequest, id: str | None) -> DecisionCommand:
    """Return the command to decide, within the limits; its actions are still missing."""
    if id is not None:
        check_id(id, "eventId")
    check_count(body.actions, responses.MOST_ARMS, "actions", "offered")
    check_values(body.context_features, "contextFeatures")
    check_values([action.features for action in body.actions], "actions")
    context, deferred = merged(body.context_features), bool(body.defer_activation)
    return DecisionCommand(call.model, context, id=id, deferred=deferred, protocol="personalizer")


def _slots_command(command: DecisionCommand, body: SlotsRequest) -> Command:
    """Return the command to decide about each slot; its answer is the decision about each."""
    id, model = str(command.id), command.model

    def decide(state: State, batch: EventBatch) -> list[Decided]:
        state.model(model)
        known = state.record(id, model, batch.pending)
        grouped = None if known is None else known.grouped
        slots = list(checked_labels([slot.id for slot in body.slots]))
        if (known and known.decided) or (grouped and grouped.slots != slots):
            raise ConflictError(f"eventId: {model!r} has decided under {id!r} already, about other slots")
        ids = checked_labels([action.id for action in body.actions])
        trial, left, decisions = batch.copy(), list(body.actions), []
        for slot in body.slots:
            own = [{"slot": merged(slot.features)}] if slot.features else []
            context = merged([*(body.context_features or []), *own])
            about = replace(command, context=context, id=id_in_group(id, slot.id))
            decisions.append(_decide(state, trial, about, _for_slot(slot, left, ids), ids))
            left = _without(left, [_chosen_id(decisions[-1])])
        if grouped is None:
            trial.add(state, [Grouped(trial.tick(), id, model, slots)])
        batch.become(trial)
        return decisions

    return decide


def _for_slot(slot: Slot, left: Sequence[Action], ids: Sequence[str]) -> list[Action]:
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


def _without(actions: Iterable[Action], excluded: Iterable[str]) -> list[Action]:
    left_out = frozenset(excluded)
    return [action for action in actions if action.id not in left_out]


def _decide(
    state: State, batch: EventBatch, command: DecisionCommand, offered: Sequence[Action], ids: Sequence[str]
) -> Decided:
    """Decide among actions in the way that the learner takes; ids that it does not take are kept beside."""
    takes = state.model(command.model).learner.takes
    labels, rows = [action.id for action in offered], [merged(action.features) for action in offered]
    extra: dict[str, Any] | None = {"ranking": list(ids)} if len(labels) < len(ids) else None
    if takes == "rows":
        about = replace(command, actions=rows, extra={"ranking": list(ids), "offered": labels})
    else:
        known = rows if takes == "both" and any(rows) else None
        about = replace(command, labels=labels, actions=known, extra=extra)
    return about(state, batch)


def _offered_ids(decided: Decided) -> list[str]:
    """Return the ids of what could be chosen, in their order."""
    named: list[str] = decided.labels or (decided.extra or {}).get("offered", [])
    return named or [str(place) for place in range(len(decided.propensities))]


def _chosen_id(decided: Decided) -> str:
    return _offered_ids(decided)[decided.place]


def _ranking(decided: Decided) -> list[dict[str, Any]]:
    """Return all actions in the order in which they came, with their probabilities; that of an
    excluded one is 0.
    """
    chances = dict(zip(_offered_ids(decided), decided.propensities, strict=True))
    ids = (decided.extra or {}).get("ranking") or list(chances)
    return [{"id": id, "probability": chances.get(id, 0.0)} for id in ids]


# -- reward and activate --


@personalizer("POST", "/events/{id:path}/reward", "decide", EventReward, status=204, invalid=REWARD)
async def reward(call: Call, body: EventReward) -> None:
    """Report what an event earned; the reward of one that is not known is kept."""
    await call.submit(_reward_command(call, _event_id(call), body.value))


@personalizer("POST", "/multislot/events/{id:path}/reward", "decide", SlotRewards, status=204, invalid=REWARD)
async def reward_slots(call: Call, body: SlotRewards) -> None:
    """Report what slots of an event earned."""
    check_count(body.reward, responses.MOST_TOGETHER, "reward", "sent")
    id = _event_id(call)
    rewards = [_reward_command(call, id_in_group(id, slot.slot_id), slot.value) for slot in body.reward]
    await call.submit(commands.all_or_none(rewards))


@personalizer("POST", "/events/{id:path}/activate", "decide", status=204)
@personalizer("POST", "/multislot/events/{id:path}/activate", "decide", status=204)
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

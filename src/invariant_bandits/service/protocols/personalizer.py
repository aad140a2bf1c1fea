"""The protocol of Azure AI Personalizer: its clients work when their endpoint points here.

Endpoints, errors and times; rank, reward and activate: actions by id, excluded ones, several slots at once. A
learning loop: its configuration, its learning settings, its model as a file, its logs and documents;
evaluations of what the running policy, the baseline and chance earn, from logged propensities; feature
importances. Fields of a body that are not named are ignored.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, Literal, Self, get_args

import msgspec
import numpy as np
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from invariant_bandits.checks import Array, InputError
from invariant_bandits.evaluation.estimators import support
from invariant_bandits.evaluation.intervals import Estimate, estimated
from invariant_bandits.model.model import Model
from invariant_bandits.service import (
    access,
    commands,
    events,
    history,
    learners,
    replay,
    responses,
)
from invariant_bandits.service.commands import (
    Command,
    DecisionCommand,
    EventBatch,
    RewardCommand,
)
from invariant_bandits.service.events import (
    Decided,
    decision_key,
    decode_event,
    id_in_group,
)
from invariant_bandits.service.operations import Call, Registering, operation
from invariant_bandits.service.responses import (
    RefusedError,
    check_count,
    check_values,
    json_response,
)
from invariant_bandits.service.routes.decisions import Id
from invariant_bandits.service.routes.models import in_turn, try_version
from invariant_bandits.service.settings import DAY, Aggregation, Configuration, Share
from invariant_bandits.service.state import ConflictError, ServedModel, State
from invariant_bandits.storage import FileError

NEWEST = "2022-09-01-preview"
MODEL_HEADER = "x-model"
"""For clients that take no path in their endpoint."""


class EndpointConvertor(PathConvertor):
    """Reads the part of a path before the operation, which a client calls its endpoint: the name of the model
    may be in it (models/shop/personalizer), and the version (personalizer/v1.0).
    """

    regex = r"(?:models/[^/]+/)?personalizer(?:/v1\.0|/v1\.1-preview\.[0-9]+)?"


register_url_convertor("personalizer", EndpointConvertor())


def _is_versioned(request: Request) -> bool:
    """Return whether the version is in the path, not in ?api-version=: answers have their older form."""
    return not request.path_params["endpoint"].endswith("personalizer")


def model_of(request: Request) -> str | None:
    """Return the name of the model that a request names, in the client's endpoint or in a header."""
    version = request.query_params.get("api-version", NEWEST)
    if version != NEWEST and not _is_versioned(request):
        raise RefusedError(400, f"api-version: must be {NEWEST}, got {version[:40]!r}")
    named = re.match("models/([^/]+)/", request.path_params["endpoint"])
    return named[1] if named else request.headers.get(MODEL_HEADER)


class ErrorBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """The protocol's name of an error, what is wrong, our name, and the part of the request that is meant."""

    code: str
    message: str
    inner_error: dict[str, str]
    target: str = ""


class ErrorResponse(msgspec.Struct):
    """The JSON body of a refusal."""

    error: ErrorBody


def personalizer(
    method: str, path: str, role: access.Role, *bodies: Any, **options: Any
) -> Registering:
    """Register a handler as an operation under every endpoint; for the parameters see `Operation`."""
    about = {"model_of": model_of, "error": ErrorResponse, **options}
    return operation(
        method, f"/{{endpoint:personalizer}}{path}", role, *bodies, **about
    )


# -- errors and times --

NAMES = {404: "ResourceNotFound", 413: "PayloadSizeExceeded"}
NAMES |= dict.fromkeys((403, 405), "OperationNotAllowed")
"""What the protocol calls an error, where the operation has no name for it and HTTP's is another."""


def error_response(refused: RefusedError, scope: Scope) -> Response:
    """Return the response to a request that failed, under the operation's own name for invalid requests."""
    status = 400 if refused.status == 422 else refused.status
    own = getattr(getattr(scope.get("endpoint"), "__self__", None), "invalid", "")
    own = own if status in (400, 409) and not refused.name else ""
    name = (
        refused.name
        or own
        or NAMES.get(status)
        or HTTPStatus(status).phrase.replace(" ", "")
    )
    inner = {"code": responses.CODES.get(status if own else refused.status, "error")}
    target = responses.printable(refused.field or "")
    answer = ErrorResponse(
        ErrorBody(name, responses.printable(refused.message), inner, target)
    )
    return json_response(
        answer, status, {**(refused.headers or {}), "x-ms-error-code": name}
    )


def invalid(name: str, message: str) -> RefusedError:
    """Return the refusal of an invalid request that the protocol has a name for."""
    return RefusedError(400, message, name=name)


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
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def span_of(text: str, field: str) -> float:
    """Return the seconds of a duration as in ISO 8601.

    >>> span_of("PT10M", "rewardWaitTime")
    600.0
    """
    try:
        return msgspec.convert(text, timedelta).total_seconds()
    except msgspec.ValidationError:
        raise InputError(
            f"{field}: must be a duration as in ISO 8601, got {text[:40]!r}"
        ) from None


# -- rank --

MOST_SLOTS = 50
"""The protocol's own limit."""
RANK, REWARD, ACTIVATE = (
    "InvalidRankRequest",
    "InvalidRewardRequest",
    "InvalidEventIdToActivate",
)
"""What the protocol calls an invalid request."""
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
    event_id: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    defer_activation: bool | None = None


class RankRequest(ActionsRequest, rename="camel"):
    """One choice."""

    excluded_actions: list[str] | None = None


class Slot(Action, rename="camel"):
    """A place to fill, with what is known of it; the baseline action is what would be shown without the
    service.
    """

    baseline_action: str | None = None
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
    return {
        name: several[0] if len(several) == 1 else several
        for name, several in values.items()
    }


@personalizer("POST", "/rank", "decide", RankRequest, status=201, invalid=RANK)
async def rank(call: Call, body: RankRequest) -> dict[str, Any]:
    """Choose one of the actions."""
    command = _command(call, body, body.event_id or None)
    ids = learners.checked_labels([action.id for action in body.actions])
    problem = "excludedActions: at least one action must not be excluded"
    offered = _not_excluded(body.actions, body.excluded_actions, problem)
    decided = await call.submit(
        lambda state, batch: _decide(state, batch, command, offered, ids)
    )
    return {
        "ranking": _ranking(decided),
        "eventId": decided.id,
        "rewardActionId": _chosen_id(decided),
    }


@personalizer(
    "POST", "/multislot/rank", "decide", SlotsRequest, status=201, invalid=RANK
)
async def rank_slots(call: Call, body: SlotsRequest) -> dict[str, Any]:
    """Choose an action for each of several slots; no slot gets the action of an earlier one.

    The same event again has the same answer.
    """
    command = _command(call, body, body.event_id or secrets.token_hex(12))
    check_count(body.slots, MOST_SLOTS, "slots", "filled")
    call.charge(len(body.slots) - 1)
    check_values([slot.features for slot in body.slots], "slots")
    chosen = await call.submit(_decide_slots(command, body))
    slots = [{"id": slot, "rewardActionId": action} for slot, action in chosen.items()]
    return {"slots": slots, "eventId": command.id}


def _command(call: Call, body: ActionsRequest, id: str | None) -> DecisionCommand:
    """Return the command to decide, within the limits; its actions are still missing."""
    if id is not None:
        responses.check_id(id, "eventId")
    check_count(body.actions, learners.MOST_OFFERED, "actions", "offered")
    check_values(body.context_features, "contextFeatures")
    check_values([action.features for action in body.actions], "actions")
    context, deferred = merged(body.context_features), bool(body.defer_activation)
    return DecisionCommand(
        call.model, context, id=id, deferred=deferred, protocol="personalizer"
    )


@commands.returns_command
def _decide_slots(
    state: State, batch: EventBatch, command: DecisionCommand, body: SlotsRequest
) -> dict[str, str]:
    """Decide about each slot; return the id of its action."""
    id, model = str(command.id), command.model
    known = state.record(id, model, batch.pending)
    grouped = None if known is None else known.grouped
    slots = list(learners.checked_labels([slot.id for slot in body.slots]))
    if (known and known.decided) or (grouped and grouped.slots != slots):
        raise ConflictError(
            f"eventId: {model!r} has decided under {id!r} already, about other slots"
        )
    ids = learners.checked_labels([action.id for action in body.actions])
    left, chosen = list(body.actions), dict[str, str]()
    for slot in body.slots:
        own = [{"slot": merged(slot.features)}] if slot.features else []
        context = merged([*(body.context_features or []), *own])
        about = replace(command, context=context, id=id_in_group(id, slot.id))
        chosen[slot.id] = _chosen_id(
            _decide(state, batch, about, _for_slot(slot, left, ids), ids)
        )
        left = [action for action in left if action.id != chosen[slot.id]]
    if known and known.shown and command.deferred:
        for name in slots:
            commands.activate(id_in_group(id, name), model)(state, batch)
    if grouped is None:
        batch.add(state, [events.Grouped(batch.tick(), id, model, slots)])
    return chosen


def _for_slot(slot: Slot, left: Sequence[Action], ids: Sequence[str]) -> list[Action]:
    """Return what a slot can take, its baseline first: that is what is shown while the model is an
    apprentice.
    """
    baseline = slot.baseline_action
    if baseline is not None and baseline not in ids:
        raise InputError(
            f"slots: the baselineAction {baseline!r} of {slot.id!r} is not one of the actions"
        )
    offered = _not_excluded(
        left, slot.excluded_actions, f"slots: no action is left for {slot.id!r}"
    )
    return sorted(offered, key=lambda action: action.id != baseline)


def _not_excluded(
    actions: Iterable[Action], excluded: list[str] | None, problem: str
) -> list[Action]:
    """Return the actions that are not excluded, or refuse the request if there are none."""
    left_out = frozenset(excluded or ())
    offered = [action for action in actions if action.id not in left_out]
    if not offered:
        raise InputError(problem)
    return offered


def _decide(
    state: State,
    batch: EventBatch,
    command: DecisionCommand,
    offered: Sequence[Action],
    ids: Sequence[str],
) -> Decided:
    """Decide among actions in the way that the learner takes; ids that it does not take are kept beside."""
    takes = state.model(command.model).learner.takes
    labels, rows = (
        [action.id for action in offered],
        [merged(action.features) for action in offered],
    )
    if takes == "rows":
        return replace(
            command, actions=rows, extra={"ranking": list(ids), "offered": labels}
        )(state, batch)
    known = rows if takes == "both" and any(rows) else None
    extra = {"ranking": list(ids)} if len(labels) < len(ids) else None
    return replace(command, labels=labels, actions=known, extra=extra)(state, batch)


def _offered_ids(decided: Decided) -> list[str]:
    """Return the ids of what could be chosen, in their order: labels, or what was kept beside."""
    return decided.labels or list((decided.extra or {})["offered"])


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


@personalizer(
    "POST",
    "/events/{id:path}/reward",
    "decide",
    EventReward,
    status=204,
    invalid=REWARD,
)
async def reward(call: Call, body: EventReward) -> None:
    """Report what an event earned; the reward of one that is not known is kept."""
    await call.submit(_reward_command(call, _event_id(call), body.value))


@personalizer(
    "POST",
    "/multislot/events/{id:path}/reward",
    "decide",
    SlotRewards,
    status=204,
    invalid=REWARD,
)
async def reward_slots(call: Call, body: SlotRewards) -> None:
    """Report what slots of an event earned."""
    check_count(body.reward, responses.MOST_TOGETHER, "reward", "sent")
    call.charge(len(body.reward) - 1)
    id = _event_id(call)
    rewards = [
        _reward_command(call, id_in_group(id, slot.slot_id), slot.value)
        for slot in body.reward
    ]
    await call.submit(commands.all_or_none(rewards))


@personalizer(
    "POST", "/events/{id:path}/activate", "decide", status=204, invalid=ACTIVATE
)
@personalizer(
    "POST",
    "/multislot/events/{id:path}/activate",
    "decide",
    status=204,
    invalid=ACTIVATE,
)
async def activate(call: Call) -> None:
    """Say that an event, or all slots of one, were shown; it may be ranked later."""
    id, model = _event_id(call), call.model

    def activated(state: State, batch: EventBatch) -> None:
        state.model(model)
        known = state.record(id, model, batch.pending)
        slots = [] if known is None or known.grouped is None else known.grouped.slots
        for part in [id_in_group(id, slot) for slot in slots] or [id]:
            commands.activate(part, model, early=True)(state, batch)

    await call.submit(activated)


def _event_id(call: Call) -> str:
    return responses.check_id(call.path["id"], "eventId")


def _reward_command(call: Call, id: str, value: float) -> Command[None]:
    """Return the command to take a reward; one that contradicts an earlier one changes nothing, and is
    not an error.

    A client that repeats a call repeats its request id.
    """
    key = call.request.headers.get("x-ms-client-request-id", "")
    command = RewardCommand(
        id,
        value,
        key if 0 < len(key) <= 256 and key.isprintable() else None,
        call.model,
    )

    def rewarded(state: State, batch: EventBatch) -> None:
        with suppress(ConflictError):
            command(state, batch)

    return rewarded


# -- a learning loop --

SERVICE, POLICY = "/configurations/service", "/configurations/policy"
RULES, SETTINGS = "personalizer rules", "personalizer settings"
"""Names of the documents of a model that only this protocol knows."""
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
AGGREGATIONS = get_args(Aggregation)
SHORTEST_WAIT, LONGEST_WAIT = 5.0, 2 * DAY
LARGEST_INTEGER = 2**31 - 1
"""The largest whole number that clients read."""
EDITED = "lastConfigurationEditDate"
DEFAULTS = {
    "rewardWaitTime": "PT0S",
    "modelExportFrequency": "PT0S",
    "logMirrorEnabled": False,
}
DEFAULTS |= {"logRetentionDays": -1, "modelRetrainDays": 0}
"""What is shown until it is set: rewards are learned as they come, from a log that is kept."""
START_EPSILON = 0.2
START_ARGUMENTS = (
    "--cb_explore_adf --epsilon {} --power_t 0 -l 0.001 --cb_type mtr -q ::"
)
"""Learning settings of a new loop in the original."""
IN_EFFECT = {
    "rewardWaitTime",
    "rewardAggregation",
    "explorationPercentage",
    "defaultReward",
    "learningMode",
}
"""Rules that mean something here; the others are kept and shown."""
HONOURED = ("--epsilon", "--cb_explore_adf", "--ccb_explore_adf")
"""Vowpal's options that mean something here: the share that is drawn uniformly, and ranking actions."""
REQUEST = ("name", "startTime", "endTime")
"""Fields of a document that say what was asked for."""
MOST_DOCUMENTS = 1_000
"""So many documents a model may have."""

# -- configuration --


class ServiceConfiguration(msgspec.Struct, rename="camel", omit_defaults=True):
    """The rules of a learning loop; times are ISO 8601 durations."""

    reward_wait_time: str
    reward_aggregation: str
    exploration_percentage: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    default_reward: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    model_export_frequency: str | None = None
    log_retention_days: Annotated[int, msgspec.Meta(le=LARGEST_INTEGER)] | None = None
    model_retrain_days: Annotated[int, msgspec.Meta(le=LARGEST_INTEGER)] | None = None
    learning_mode: Literal["Online", "Apprentice", "LoggingOnly"] | None = None
    is_auto_optimization_enabled: bool | None = None
    auto_optimization_frequency: str | None = None
    auto_optimization_start_date: datetime | None = None
    log_mirror_enabled: bool | None = None
    log_mirror_sas_uri: str | None = None


class LearningSettings(msgspec.Struct):
    """How a loop learns, as a name and a text of arguments."""

    name: Id
    arguments: Annotated[str, msgspec.Meta(max_length=1_024)]


@personalizer("GET", SERVICE, "read")
async def show(call: Call) -> dict[str, Any]:
    """Show the rules of the loop."""
    return await call.look_at_model(_rules)


@personalizer(
    "PUT", SERVICE, "admin", ServiceConfiguration, invalid="InvalidServiceConfiguration"
)
async def change(call: Call, body: ServiceConfiguration) -> Any:
    """Set the rules of the loop; what this protocol cannot say of our rules stays as it is."""
    rules: dict[str, Any] = {
        "floor": body.exploration_percentage,
        "reward_wait": _check(body) or None,
    }
    rules |= {
        "default_reward": body.default_reward,
        "aggregation": body.reward_aggregation.lower(),
    }
    if body.learning_mode:
        rules["mode"] = MODES[body.learning_mode]
    document = {**msgspec.to_builtins(body), EDITED: moment(call.engine.clock())}
    await _configure(call, rules, RULES, document)
    return await show(call)


async def _configure(
    call: Call, changes: dict[str, Any], name: str, document: dict[str, Any]
) -> None:
    """Change rules of the model, and save under a name what the client said of them."""
    model = call.model

    def configured(state: State, batch: EventBatch) -> None:
        rules = state.model(model).configuration
        if changes:
            rules = msgspec.structs.replace(rules, **changes)
            commands.configure(model, rules, by=call.caller)(state, batch)
        batch.add(
            state,
            [events.DocumentSaved(batch.tick(), model, name, document, call.caller)],
        )

    await call.change(configured, f"set {name} of {model}")


def _check(body: ServiceConfiguration) -> float:
    """Return how long rewards are waited for, in seconds, or refuse the rules."""
    wait, days = (
        span_of(body.reward_wait_time, "rewardWaitTime"),
        body.log_retention_days,
    )
    span_of(body.model_export_frequency or "PT0S", "modelExportFrequency")
    span_of(body.auto_optimization_frequency or "PT0S", "autoOptimizationFrequency")
    if wait and not SHORTEST_WAIT <= wait <= LONGEST_WAIT:
        raise invalid(
            "InvalidRewardWaitTime",
            "rewardWaitTime: must be from 5 seconds to 2 days, or PT0S",
        )
    if days is not None and (days < -1 or days == 0):
        raise invalid(
            "InvalidLogRetentionDays",
            f"logRetentionDays: must be -1 or at least 1, got {days}",
        )
    retrained = body.model_retrain_days or 0
    if retrained < 0 or (days is not None and 0 < days < retrained):
        raise invalid(
            "InvalidModelRetrainDays",
            "modelRetrainDays: must be from 0 to logRetentionDays",
        )
    if body.reward_aggregation.lower() not in AGGREGATIONS:
        raise RefusedError(
            400, f"rewardAggregation: must be one of {', '.join(AGGREGATIONS)}"
        )
    return wait


def _rules(served: ServedModel) -> dict[str, Any]:
    """Return rules in the protocol's words. Without a wait, PT0S, no default reward is ever learned.

    Where decisions without rewards stay unlearned, it is left out, since clients refuse null.
    """
    rules, shown = served.configuration, {**DEFAULTS, **served.documents.get(RULES, {})}
    default, wait = rules.default_reward, rules.reward_wait or 0.0
    if (
        span_of(shown["rewardWaitTime"], "rewardWaitTime") != wait
    ):  # set by another protocol
        shown["rewardWaitTime"] = duration(wait)
    if default is not None or not wait:
        shown["defaultReward"] = default or 0.0
    return shown | {
        "rewardAggregation": rules.aggregation,
        "explorationPercentage": rules.floor,
        "learningMode": next(
            name for name, mode in MODES.items() if mode == rules.mode
        ),
        "withoutEffect": sorted(shown.keys() - IN_EFFECT - {EDITED}),
    }


# -- learning settings --


@personalizer("GET", POLICY, "read")
async def show_settings(call: Call) -> dict[str, str]:
    """Show how the loop learns."""
    return await call.look_at_model(settings_of)


@personalizer(
    "PUT", POLICY, "admin", LearningSettings, invalid="InvalidPolicyConfiguration"
)
async def change_settings(call: Call, body: LearningSettings) -> Any:
    """Have the loop explore more or less; it keeps what it learned, and the settings as they are."""
    return await _set(call, msgspec.to_builtins(body))


@personalizer("DELETE", POLICY, "admin")
async def reset_settings(call: Call) -> Any:
    """Have the loop learn as a new one would."""
    return await _set(call, {"arguments": START_ARGUMENTS.format(START_EPSILON)})


async def _set(call: Call, document: dict[str, str]) -> Any:
    floor = _epsilon(document["arguments"])
    changes = {} if floor is None else {"floor": floor}
    await _configure(call, changes, SETTINGS, document)
    return await show_settings(call)


def settings_of(served: ServedModel) -> dict[str, Any]:
    """Return the name and the arguments of how a model learns, and which of these have no effect here."""
    floor, document = served.configuration.floor, served.documents.get(SETTINGS, {})
    arguments = str(document.get("arguments", START_ARGUMENTS.format(f"{floor:g}")))
    if _epsilon(arguments) not in (None, floor):  # changed elsewhere
        arguments = re.sub(r"(--epsilon[=\s]+)\S+", rf"\g<1>{floor:g}", arguments)
    rest = [
        " ".join(option)
        for option in options_of(arguments)
        if option[0] not in HONOURED
    ]
    name = document.get("name", served.learner.about().get("policy", "policy"))
    return {"name": str(name), "arguments": arguments, "withoutEffect": rest}


def options_of(arguments: str) -> list[list[str]]:
    """Return the options of Vowpal's arguments, each with its values.

    >>> options_of("--cb_explore_adf --epsilon=0.2 -q ::")
    [['--cb_explore_adf'], ['--epsilon', '0.2'], ['-q', '::']]
    """
    options: list[list[str]] = []
    for word in arguments.replace("=", " ").split():
        if re.match(r"--?[A-Za-z]", word) or not options:
            options.append([])
        options[-1].append(word)
    return options


def _epsilon(arguments: str) -> float | None:
    """Return the share that is drawn uniformly, by the last --epsilon; None if there is none."""
    shares = [
        " ".join(values)
        for name, *values in options_of(arguments)
        if name == "--epsilon"
    ]
    try:
        return msgspec.convert(shares[-1], Share, strict=False) if shares else None
    except msgspec.ValidationError:
        raise InputError(
            "arguments: --epsilon must have a number from 0 to 1"
        ) from None


# -- the model as a file --


@personalizer("GET", "/model", "admin", media="application/octet-stream")
async def export(call: Call) -> Response:
    """Download the active version as it is now, in a file with its checksum."""

    def octets(served: ServedModel) -> bytes:
        learner = served.learner
        return (
            learner.model.to_bytes()
            if isinstance(learner, learners.FittedLearner)
            else learner.to_bytes()
        )

    return Response(
        await call.look_at_model(octets), media_type="application/octet-stream"
    )


@personalizer("PUT", "/model", "admin", bytes, status=204, query=("allow_differences",))
async def replace_model(call: Call, body: bytes) -> None:
    """Go on with a model that was exported before, here or from another loop, or that was fitted to logs.

    It is tried on the latest requests first.
    """
    try:
        learner = await in_turn(_imported, body, call.engine.store.seed)
    except FileError as error:
        raise invalid("InvalidModelImportFormat", f"body: {error}") from None
    report = await try_version(
        call, learner, needs_requests=True, name="InvalidModelMetadata"
    )
    about = {"note": "imported", "by": call.caller, "evaluation": report["evaluation"]}
    command = commands.add_version(call.model, learner, "given", **about)
    await call.change(command, f"imported version {{}} of {call.model}")


def _imported(content: bytes, seed: int) -> learners.Learner:
    """Return the learner in an exported file, or in one that `fit` has written, or raise FileError."""
    name = "the imported file"
    with suppress(FileError):
        return learners.OpenLearner.from_bytes(content, name)
    return learners.FittedLearner(Model.from_bytes(content, name), seed)


@personalizer("DELETE", "/model", "admin", status=204)
async def reset(call: Call) -> None:
    """Forget what was learned from events; a roll back returns to the version before.

    An empty model keeps its arms; one that was fitted is as it was then.
    """
    model = call.model

    def made(state: State, batch: EventBatch) -> Any:
        served = state.model(model)
        added, learner = served.versions[served.version], served.learner
        if isinstance(learner, learners.OpenLearner):
            learner = learner.with_policy()
        else:
            learner = learners.learner_from_bytes(
                added.learner, state.store.content(added.content), added.version
            )
        return commands.add_version(
            model, learner, "empty", note="reset", by=call.caller
        )(state, batch)

    await call.change(made, f"reset {model} to version {{}}")


@personalizer("GET", "/model/properties", "read")
async def properties(call: Call) -> dict[str, str]:
    """Show when the active version was made, and when the last event came that it has taken in."""
    added = await call.look_at_model(
        lambda served: served.versions[served.version].time
    )
    last = await call.in_thread(replay.last_time, call.engine.store)
    return {"creationTime": moment(added), "lastModifiedTime": moment(max(added, last))}


# -- logs --

MOST_AT_ONCE = 20_000
"""Decisions that are erased while others wait."""


def _logged(store: Any, model: str) -> Iterator[tuple[str, events.AnyEvent]]:
    """Yield the id and the event of everything in a store that is about a decision of a model."""
    end = decision_key("", model)
    for row in store.rows():
        if row.key is not None and row.key.endswith(end):
            yield row.key.removesuffix(end), decode_event(row.event)


@personalizer("GET", "/logs/properties", "read")
async def log_properties(call: Call) -> dict[str, Any]:
    """Show from when to when there are logs of the loop; nothing if there are none."""
    model, store = (
        await call.look_at_model(lambda served: served.name),
        call.engine.store,
    )
    first = await call.in_thread(lambda: next(_logged(store, model), None))
    last = await call.in_thread(replay.last_time, store)
    return (
        {"dateRange": {"from": moment(first[1].time), "to": moment(last)}}
        if first
        else {}
    )


@personalizer("POST", "/logs/interactions", "decide", status=204)
@personalizer("POST", "/logs/observations", "decide", status=204)
async def ignore_logs(call: Call) -> None:
    """Take what a client that decides by itself has logged; it has no effect."""


@personalizer("DELETE", "/logs", "admin", status=204)
async def delete_logs(call: Call) -> None:
    """Remove the logs of the loop for good, but for events that wait for rewards; what was learned stays."""
    model, store = call.model, call.engine.store
    waiting = await call.look_at_model(lambda served: {id for _, id in served.waiting})
    if len(call.engine.state.models) == 1:
        await call.change(
            commands.remove_log(by=call.caller), f"removed {{}} events of {model}"
        )
        return
    ids = await call.in_thread(
        lambda: sorted({id for id, _ in _logged(store, model)} - waiting)
    )
    for first in range(0, len(ids), MOST_AT_ONCE):
        part = [(id, model) for id in ids[first : first + MOST_AT_ONCE]]
        await call.change(
            commands.erase(part, by=call.caller), f"erased {{}} events of {model}"
        )


# -- documents --


class Page(msgspec.Struct):
    """Which documents of a list are asked for."""

    top: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] = MOST_DOCUMENTS
    skip: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)] = 0
    filter: str = ""


@dataclass(frozen=True)
class Documents:
    """Documents of one kind.

    Parameters
    ----------
    kind : str
        What their names begin with.
    error : str
        What names of errors about them begin with.
    """

    kind: str
    error: str

    async def save(
        self, call: Call, id: str, value: dict[str, Any] | None, done: str
    ) -> None:
        """Save a document under an id, or (None) delete it; `done` is the line in the audit."""
        model, name = call.model, self.kind + id

        def saved(state: State, batch: EventBatch) -> None:
            documents = state.model(model).documents
            known = documents.get(name)
            if (
                value
                and known
                and any(known.get(field) != value.get(field) for field in REQUEST)
            ):
                message = f"id: {id!r} exists already, with another name or time span"
                raise RefusedError(409, message, name=f"{self.error}AlreadyExists")
            if value is not None and known is None and len(documents) >= MOST_DOCUMENTS:
                raise InputError(
                    f"id: at most {MOST_DOCUMENTS:,} can be kept; delete some"
                )
            batch.add(
                state,
                [events.DocumentSaved(batch.tick(), model, name, value, call.caller)],
            )

        await call.change(saved, f"{done} {model}")

    async def get(self, call: Call, id: str = "") -> dict[str, Any]:
        """Show the document under an id, by default that in the path."""
        id = id or call.path["id"]
        document = await call.look_at_model(
            lambda served: served.documents.get(self.kind + id)
        )
        if document is None:
            raise RefusedError(
                404, f"id: {id!r} is not known", name=f"{self.error}NotFound"
            )
        return dict(document)

    async def list(self, call: Call) -> Any:
        """List all of them, the earliest first, without results."""
        page = responses.decode(call.query, Page)
        documents = await call.look_at_model(lambda served: dict(served.documents))
        shown = [
            _about(call, value)
            for name, value in documents.items()
            if name.startswith(self.kind)
        ]
        kind = re.search(r"evaluationType eq '(\w+)'", page.filter)
        shown = [
            about
            for about in shown
            if kind is None or about.get("evaluationType") == kind[1]
        ]
        return (
            shown
            if _is_versioned(call.request)
            else {"value": shown[page.skip : page.skip + page.top]}
        )

    async def delete(self, call: Call) -> None:
        """Delete the document under the id in the path."""
        await self.get(call)
        await self.save(
            call, call.path["id"], None, f"deleted {self.kind}{call.path['id']!r} of"
        )


def _about(call: Call, about: dict[str, Any]) -> dict[str, Any]:
    """Return a document without its results, in the words of the version that is asked."""
    shown = {
        name: value
        for name, value in about.items()
        if name not in ("custom", "featureScores")
    }
    return shown | (
        {"status": "completed", "jobId": about["id"]}
        if _is_versioned(call.request)
        else {}
    )


# -- spans of the log --

MOST_DECISIONS = 1_000_000
"""So many can be evaluated at once."""
MOST_RESULTS = 100
"""Evaluations, each by its interval and window, whose results are kept in memory."""
NORMAL = 1.959963984540054
"""Quantile of the normal distribution for intervals of 95 %."""
POLICIES = {"Online": "online", "Baseline": "baseline1", "Random": "baselineRand"}
"""The policy that decided, the first offered action, and uniform chance, with their names in the original."""
INTERVALS = (5, 60, 360, 720, 1_440)
"""Minutes of the intervals that results may be cut into."""
NOT_SEARCHED = "Other learning settings are neither searched for nor evaluated here."
MOST_SCORES = 200
"""Features, the most important ones, whose scores are shown."""
CONTRACT, NEW_CONTRACT = "InvalidEvaluationContract", "InvalidContract"
"""What the older and the newest version call an invalid request."""
SPAN, PAGE = ("intervalInMinutes", "startTime", "endTime", "window"), ("top", "skip")
"""Parameters of queries."""
ONE_EVALUATION, ONE_IMPORTANCE = (
    "/evaluations/{id:path}",
    "/featureImportances/{id:path}",
)
EVALUATIONS = Documents("evaluation ", "Evaluation")
IMPORTANCES = Documents("importance ", "FeatureImportance")
for path, documents in (
    ("/evaluations", EVALUATIONS),
    ("/featureImportances", IMPORTANCES),
):
    personalizer("DELETE", f"{path}/{{id:path}}", "admin", status=204)(documents.delete)
    personalizer("GET", path, "read", answer=Any, query=PAGE, invalid="InvalidRequest")(
        documents.list
    )
personalizer("GET", ONE_IMPORTANCE, "read")(IMPORTANCES.get)


class LogSpan:
    """Settled decisions of one model, in their order.

    Parameters
    ----------
    decisions : list of history.SettledDecision

    Attributes
    ----------
    times, rewards : array, shape (n,)
        When they were decided, in seconds since 1970, and what they earned.
    weights : dict of str to array, shape (n,)
        Importance weights under each of POLICIES.
    """

    def __init__(self, decisions: list[history.SettledDecision]) -> None:
        decided = [settled.decided for settled in decisions]
        chances: Array = np.array([event.propensity for event in decided])
        counts = np.array([len(event.propensities) for event in decided])
        first = np.array([event.place == 0 for event in decided])
        self.times: Array = np.array([event.time for event in decided])
        self.rewards: Array = np.array([settled.reward for settled in decisions])
        weights = (np.ones_like(chances), first / chances, 1.0 / (counts * chances))
        self.weights: dict[str, Array] = dict(zip(POLICIES, weights, strict=True))

    @classmethod
    def read(
        cls,
        store: Any,
        model: str,
        rules: Configuration,
        start: float,
        end: float,
        most: int,
    ) -> Self:
        """Read the settled decisions of a model in a store.

        Parameters
        ----------
        store : Store
        model : str
        rules : Configuration
            Its rules, by which decisions that were not learned in their mode have earned something.
        start, end : float
            When they were made, in seconds since 1970; those at the end do not count.
        most : int
            How many there may be.
        """
        last = store.head().seq
        first = replay.first_since(store, start, store.start().seq, last)
        settled = history.settled_decisions(store, model, rules, first=first, last=last)
        within = (each for each in settled if start <= each.decided.time < end)
        decisions = list(islice(within, most + 1))
        if not decisions:
            raise invalid(
                "NoLogsExistInDateRange",
                "startTime: no settled decisions lie in this range",
            )
        if len(decisions) > most:
            problem = f"startTime: more than {most:,} decisions lie in this range"
            raise invalid("LogsSizeExceedAllowedLimit", problem)
        return cls(decisions)

    def estimate(self, policy: str) -> Estimate:
        """Return the reward per decision by SNIPS; the mean reward for the policy that decided."""
        w, r = self.weights[policy], self.rewards
        reasons = () if policy == "Online" else support(w)[1]
        return estimated(w * r, w, reasons=reasons, rewards=r, reach=w)

    def sums(
        self, policy: str, minutes: int, start: float
    ) -> tuple[Array, list[float]]:
        """Return sums over each interval that has decisions, and when the intervals begin.

        Columns: decisions, w, w·r, (w·r)², w², w²·r, whether w > 0; with w the importance weights and r
        the rewards.
        """
        w, r = self.weights[policy], self.rewards
        columns = np.stack(
            [np.ones_like(w), w, w * r, (w * r) ** 2, w**2, w**2 * r, (w > 0.0) * 1.0],
            axis=1,
        )
        places = np.floor((self.times - start) / (60.0 * minutes))
        begins = np.unique(places, return_index=True)[1]
        times = [start + 60.0 * minutes * place for place in places[begins]]
        return np.add.reduceat(columns, begins, axis=0), times


def _policy_results(
    span: LogSpan, policy: str, minutes: int, start: float, window: str, versioned: bool
) -> dict[str, Any]:
    """Return what a policy earned: in all, and within each interval of time or up to its end."""
    about = {"name": POLICIES[policy], "arguments": "", "policySource": policy}
    sums, times = span.sums(policy, minutes, start)
    if not versioned and window != "Rolling":
        sums = np.cumsum(sums, axis=0)
    length = duration(60.0 * minutes)
    parts = [_summary(row, time, length) for row, time in zip(sums, times, strict=True)]
    if versioned:
        return {
            **about,
            "summary": parts,
            "totalSummary": _summary(sums.sum(axis=0), start, "PT0S"),
        }
    value, points = span.estimate(policy), []
    for part in parts:
        if part["snipsEstimatorDenominator"]:
            mean, half = part["averageReward"], part["confidenceInterval"]
            points.append(
                {
                    "timeStamp": part["timeStamp"],
                    **_expected(mean, mean - half, mean + half),
                }
            )
    summary = _expected(value.value, value.low, value.high)
    return {**about, "slotId": "", "summary": summary, "timeseries": {"data": points}}


def _no_results(start: float, versioned: bool) -> dict[str, Any]:
    """Return all that clients require of learning settings that are not evaluated, without any values."""
    if versioned:
        return {"summary": [], "totalSummary": _summary(np.zeros(7), start, "PT0S")}
    return {
        "slotId": "",
        "summary": {"confidenceInterval": []},
        "timeseries": {"data": []},
    }


def _expected(value: float, low: float, high: float) -> dict[str, Any]:
    """Return a value, if it is known, with both ends of its interval, if anything can be concluded."""
    ends = {"confidenceInterval": [low, high] if np.isfinite(high - low) else []}
    return ends if math.isnan(value) else {"expectedReward": value, **ends}


def _summary(sums: Array, time: float, window: str) -> dict[str, Any]:
    """Return numerators and denominators of IPS and SNIPS; SNIPS is Σwr/Σw, and half its interval
    1.96·√Σw²(r − mean)²/Σw. Both are 0 where all weights are, as in the original, since clients refuse
    null.
    """
    count, weights, gains, squares, weights2, gains2, possible = sums.tolist()
    mean = gains / (weights or 1.0)
    spread = max(squares - 2.0 * mean * gains2 + mean * mean * weights2, 0.0)
    return {
        "timeStamp": moment(time),
        "ipsEstimatorNumerator": gains,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": weights,
        "aggregateTimeWindow": window,
        "nonZeroProbability": possible,
        "sumOfSquares": squares,
        "confidenceInterval": NORMAL * math.sqrt(spread) / (weights or 1.0),
        "averageReward": mean,
    }


# -- evaluations --


class ImportanceRequest(msgspec.Struct, rename="camel"):
    """A span of the log whose features are to be weighed."""

    name: Id
    start_time: str
    end_time: str


class EvaluationRequest(ImportanceRequest, rename="camel"):
    """A span of the log that is to be evaluated."""

    policies: list[LearningSettings] = []


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: Id
    policy_name: Id


@personalizer(
    "POST", "/evaluations", "admin", EvaluationRequest, status=201, invalid=CONTRACT
)
@personalizer(
    "PUT", ONE_EVALUATION, "admin", EvaluationRequest, invalid=NEW_CONTRACT, media=""
)
async def make_evaluation(call: Call, body: EvaluationRequest) -> Response:
    """Evaluate a span of the log now; the result is kept under the id."""
    id = responses.check_id(call.path.get("id") or secrets.token_hex(12))
    if len({policy.name for policy in body.policies}) < len(body.policies):
        raise invalid(
            "DuplicateCustomPolicyNames", "policies: two of them have the same name"
        )
    about = _described(call, id, body)
    span = await _read(call, *_bounds(call, about))
    best = max(POLICIES, key=lambda policy: span.estimate(policy).low)
    about |= {
        "evaluationType": "Manual",
        "optimalPolicy": POLICIES[best],
        "description": NOT_SEARCHED,
    }
    about["custom"] = msgspec.to_builtins(body.policies)
    await EVALUATIONS.save(call, id, about, "evaluated")
    if call.request.method == "PUT":
        return Response(status_code=200)
    return json_response(
        await _results(call, about), 201, {"location": f"{call.request.url.path}/{id}"}
    )


def _described(call: Call, id: str, body: ImportanceRequest) -> dict[str, Any]:
    """Return what evaluations and feature importances both say of themselves."""
    asked = {"startTime": body.start_time, "endTime": body.end_time}
    times = {
        name: moment(responses.seconds_of(text, name)) for name, text in asked.items()
    }
    made = moment(call.engine.clock())
    return {
        "id": id,
        "name": body.name,
        **times,
        "creationTime": made,
        "status": "Succeeded",
    }


def _bounds(call: Call, about: dict[str, Any]) -> tuple[float, float]:
    """Return start and end of an evaluation, in seconds since 1970, or what the query asks for within."""

    def seconds(name: str) -> list[float]:
        return [
            responses.seconds_of(times.get(name, about[name]), name)
            for times in (about, call.query)
        ]

    return max(seconds("startTime")), min(seconds("endTime"))


async def _read(call: Call, start: float, end: float) -> LogSpan:
    rules = await call.look_at_model(lambda served: served.configuration)
    return await in_turn(
        LogSpan.read, call.engine.store, call.model, rules, start, end, MOST_DECISIONS
    )


@personalizer("GET", ONE_EVALUATION, "read", invalid=CONTRACT, query=SPAN)
async def show_evaluation(call: Call) -> dict[str, Any]:
    """Show an evaluation with its results."""
    return await _results(call, await EVALUATIONS.get(call))


async def _results(call: Call, about: dict[str, Any]) -> dict[str, Any]:
    minutes = call.query.get("intervalInMinutes", str(INTERVALS[0]))
    if minutes not in map(str, INTERVALS):
        raise InputError(
            f"intervalInMinutes: must be one of {', '.join(map(str, INTERVALS))}"
        )
    (start, end), versioned = _bounds(call, about), _is_versioned(call.request)
    form = (int(minutes), start, call.query.get("window", "Expanding"), versioned)
    key, results = (
        (call.model, about["id"], about["creationTime"], end, *form),
        call.service.results,
    )
    if key not in results:
        span, settings = (
            await _read(call, start, end),
            await call.look_at_model(settings_of),
        )
        worked_out = await in_turn(
            lambda: [_policy_results(span, policy, *form) for policy in POLICIES]
        )
        worked_out[0]["arguments"] = settings["arguments"]
        rest = {"policySource": "Custom", **_no_results(start, versioned)}
        if len(results) >= MOST_RESULTS:
            results.clear()
        results[key] = worked_out + [{**custom, **rest} for custom in about["custom"]]
    if versioned:
        return {**_about(call, about), "policyResults": results[key]}
    times = {
        "startTime": moment(start),
        "endTime": moment(end),
        "intervalInMinutes": int(minutes),
    }
    return {**_about(call, about), "content": {**times, "value": results[key]}}


APPLY = "/configurations/applyFromEvaluation"


@personalizer(
    "POST", APPLY, "admin", PolicyReference, status=204, invalid="InvalidPolicyContract"
)
async def apply(call: Call, body: PolicyReference) -> None:
    """Go on with the learning settings of an evaluation: with those that run, which are all there are."""
    await EVALUATIONS.get(call, body.evaluation_id)
    name = (await call.look_at_model(settings_of))["name"]
    if body.policy_name not in ("Online", POLICIES["Online"], name):
        raise invalid(
            "LearningSettingsNotFound",
            f"policyName: only {name!r}, which is active, can be applied",
        )


# -- feature importances --


@personalizer(
    "PUT", ONE_IMPORTANCE, "admin", ImportanceRequest, invalid=NEW_CONTRACT, media=""
)
async def make_importances(call: Call, body: ImportanceRequest) -> None:
    """Weigh the features of the model as it is now; the result is kept under the id."""
    id = responses.check_id(call.path["id"])
    about = _described(call, id, body)
    kind, content = await call.look_at_model(
        lambda served: (served.learner.kind, served.learner.to_bytes())
    )
    learner = await call.in_thread(
        learners.learner_from_bytes, kind, content, call.model
    )
    about["featureScores"] = await call.in_thread(_scores, learner)
    await IMPORTANCES.save(call, id, about, "weighed the features of")


def _scores(learner: learners.Learner) -> list[dict[str, Any]]:
    """Return the sum of the sizes of all coefficients that a feature has a part in, the largest being 100.

    A coefficient is what one unit of a feature alone adds to the expected reward.
    """
    names, policy = learner.about()["features"], learner.policy_over()
    means = policy.scores(np.vstack([np.zeros(policy.dim), np.eye(policy.dim)])).mean
    sizes: dict[str, float] = {}
    for name, mean in zip(names, means[1:], strict=False):
        for part in {
            _feature(factor) for factor in name.replace(" × ", "|").split("|")
        }:
            sizes[part] = sizes.get(part, 0.0) + abs(float(mean - means[0]))
    sizes.pop(learners.CONSTANT, None)
    largest = max(sizes.values(), default=0.0) or 1.0
    shown = []
    for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[
        :MOST_SCORES
    ]:
        namespace, _, feature = name.rpartition(".")
        score = round(100.0 * size / largest, 6)
        shown.append({"namespace": namespace, "featureName": feature, "score": score})
    return shown


def _feature(name: str) -> str:
    """Return a feature without its value: 'f:type=news' -> 'action.type'; arms by label are one
    feature, action.id.
    """
    if name.startswith("a:"):
        return "action.id"
    bare = name.removeprefix("f:").partition("=")[0].partition("[")[0]
    return f"action.{bare}" if name.startswith("f:") else bare

"""Configuration of a learning loop and its learning settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits import storage
from invariant_bandits.checks import InputError
from invariant_bandits.model.model import Model
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.service import commands
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.commands import Command, EventBatch
from invariant_bandits.service.events import DocumentSaved, decode_event
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import START, OpenLearner
from invariant_bandits.service.protocols.personalizer.bodies import (
    LearningSettings,
    ProtocolError,
    ServiceConfiguration,
    duration,
    invalid_as,
    moment,
    not_here,
)
from invariant_bandits.service.protocols.personalizer.events import door_of, loop_of
from invariant_bandits.service.responses import answer, read, read_body
from invariant_bandits.service.settings import Configuration
from invariant_bandits.service.state import NotFoundError, ServedModel, State
from invariant_bandits.storage import FileError

RULES, SETTINGS = "personalizer rules", "personalizer settings"
"""Names under which a model keeps what only this protocol knows."""
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
AGGREGATIONS = ("earliest", "average", "median", "sum", "min", "max")
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(days=2)
DEFAULTS = {"modelExportFrequency": "PT0S", "logRetentionDays": -1, "modelRetrainDays": 0}
"""Rewards are learned as they come, from a log that is kept."""
BESIDE = (*DEFAULTS, "isAutoOptimizationEnabled", "autoOptimizationFrequency", "autoOptimizationStartDate")
"""Told again as they were set; nothing here depends on them."""


async def show(request: Request) -> Response:
    """The rules of the loop."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await service.engine.submit(commands.inspect(lambda state: told(state.model(model)))))


@invalid_as("InvalidServiceConfiguration")
async def change(request: Request) -> Response:
    """Set the rules of the loop."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, ServiceConfiguration, service.limits)
    _check(asked)

    def changed(state: State, batch: EventBatch) -> dict[str, Any]:
        served = state.model(model)
        commands.configure(model, _configuration(asked, served.configuration), by=request.state.who)(state, batch)
        named = msgspec.to_builtins(asked)
        kept = {name: named[name] for name in BESIDE if named[name] is not None}
        kept["lastConfigurationEditDate"] = moment(batch.now)
        batch.add(state, [DocumentSaved(batch.tick(), model, RULES, kept, request.state.who)])
        return told(served, _configuration(asked, served.configuration), kept)

    answered = await service.engine.submit(changed, alone=True)
    service.audit(request.state.who, f"configured {model}")
    return answer(answered)


def _check(asked: ServiceConfiguration) -> None:
    wait = asked.reward_wait_time
    if wait and not SHORTEST_WAIT <= wait <= LONGEST_WAIT:
        message = "rewardWaitTime: must be from 5 seconds to 2 days, or PT0S: the first reward settles an event"
        raise ProtocolError(400, "InvalidRewardWaitTime", message, "rewardWaitTime")
    if asked.log_retention_days is not None and (asked.log_retention_days < -1 or asked.log_retention_days == 0):
        message = f"logRetentionDays: must be -1 or at least 1, got {asked.log_retention_days}"
        raise ProtocolError(400, "InvalidLogRetentionDays", message, "logRetentionDays")
    if asked.reward_aggregation.lower() not in AGGREGATIONS:
        message = f"rewardAggregation: must be one of {', '.join(AGGREGATIONS)}, got {asked.reward_aggregation!r}"
        raise ProtocolError(400, "InvalidServiceConfiguration", message, "rewardAggregation")
    if asked.log_mirror_enabled:
        message = "logMirrorEnabled: logs are not mirrored from here; `invariant-bandits store export` writes them"
        raise ProtocolError(400, "InvalidServiceConfiguration", message, "logMirrorEnabled")


def _configuration(asked: ServiceConfiguration, present: Configuration) -> Configuration:
    """The same in our words; what this protocol cannot say stays as it is."""
    return msgspec.structs.replace(
        present,
        floor=asked.exploration_percentage,
        reward_wait=asked.reward_wait_time.total_seconds() or None,
        default_reward=asked.default_reward,
        aggregation=asked.reward_aggregation.lower(),
        mode=MODES[asked.learning_mode] if asked.learning_mode else present.mode,
    )


def told(
    served: ServedModel, configuration: Configuration | None = None, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Rules in the protocol's words. Without a wait, PT0S, no default reward is ever given."""
    rules = served.configuration if configuration is None else configuration
    no_default = 0.0 if rules.reward_wait is None else None
    return {
        "rewardWaitTime": duration(rules.reward_wait or 0.0),
        "defaultReward": no_default if rules.default_reward is None else rules.default_reward,
        "rewardAggregation": rules.aggregation,
        "explorationPercentage": rules.floor,
        "learningMode": next(name for name, mode in MODES.items() if mode == rules.mode),
        "logMirrorEnabled": False,
        **DEFAULTS,
        **(served.documents.get(RULES, {}) if kept is None else kept),
    }


# -- learning settings --


async def show_settings(request: Request) -> Response:
    """How the loop learns."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await service.engine.submit(commands.inspect(lambda state: settings_of(state.model(model)))))


@invalid_as("InvalidPolicyConfiguration")
async def change_settings(request: Request) -> Response:
    """Have the loop learn in another way: what is learned stays, how much is tried because it is unsure changes."""
    service = service_of(request, "admin")
    asked = await read(request, LearningSettings, service.limits)
    return await _set(service, request, _exploration(asked.arguments), asked.name)


async def reset_settings(request: Request) -> Response:
    """Have the loop learn as a new one would."""
    return await _set(service_of(request, "admin"), request, START["exploration"], None)


async def _set(service: Service, request: Request, exploration: float, name: str | None) -> Response:
    model = loop_of(request)

    def changed(state: State, batch: EventBatch) -> dict[str, str]:
        served = state.model(model)
        learner = served.learner
        if not isinstance(learner, OpenLearner) or not isinstance(learner.policy, LinUCB):
            if name is None:
                return settings_of(served)
            raise InputError("arguments: this model was fitted and learns as it does")
        if exploration != learner.policy.exploration:
            other = OpenLearner.from_bytes(learner.to_bytes(), "this model")
            settings = {**learner.policy.settings(), "exploration": exploration}
            other.policy = LinUCB.from_state(settings, learner.policy.arrays())
            note = f"learning settings {arguments_of(exploration)}"
            commands.add_version(model, other, "given", note=note, by=request.state.who)(state, batch)
        batch.add(
            state, [DocumentSaved(batch.tick(), model, SETTINGS, {"name": name} if name else None, request.state.who)]
        )
        return {"name": name or "linucb", "arguments": arguments_of(exploration)}

    answered = await service.engine.submit(changed, alone=True)
    service.audit(request.state.who, f"set learning settings of {model}")
    return answer(answered)


def settings_of(served: ServedModel) -> dict[str, str]:
    """Name and arguments of how a model learns."""
    policy = str(served.learner.about().get("policy", "policy"))
    inner = served.learner.policy if isinstance(served.learner, OpenLearner) else None
    arguments = arguments_of(inner.exploration) if isinstance(inner, LinUCB) else f"--policy {policy}"
    return {"name": str(served.documents.get(SETTINGS, {}).get("name", policy)), "arguments": arguments}


def arguments_of(exploration: float) -> str:
    """The one argument there is."""
    return f"--exploration {exploration:g}"


def _exploration(arguments: str) -> float:
    try:
        name, value = shlex.split(arguments)
        exploration = float(value)
    except ValueError:
        name, exploration = "", -1.0
    if name != "--exploration" or not 0.0 <= exploration <= 100.0:
        message = "arguments: '--exploration NUMBER', 0 to 100, is all that can be set; Vowpal's mean nothing here"
        raise ProtocolError(400, "InvalidPolicyConfiguration", message, "arguments")
    return exploration


KIND = "served model"


async def export(request: Request) -> Response:
    """The active version as it is now."""
    service, model = service_of(request, "admin"), loop_of(request)
    kind, content = await service.engine.submit(commands.inspect(lambda state: state_of(state, model)))
    return Response(await service.aside(as_octets, kind, content), media_type="application/octet-stream")


def state_of(state: State, model: str) -> tuple[str, bytes]:
    """Kind and content of the active version's learner."""
    learner = state.model(model).learner
    return learner.kind, learner.to_bytes()


async def replace(request: Request) -> Response:
    """Go on with a model that was exported before, here or from another loop, or that was fitted to logs."""
    service, model = service_of(request, "admin"), loop_of(request)
    content = await read_body(request, service.limits.for_upload())
    try:
        learner = await service.aside(from_octets, content, service.engine.store.seed)
    except FileError as error:
        raise ProtocolError(400, "InvalidModelImportFormat", f"body: {error}", "body") from None

    def replaced(state: State, batch: EventBatch) -> str:
        state.model(model)
        version: str = commands.add_version(model, learner, "given", note="imported", by=request.state.who)(
            state, batch
        )
        return version

    version = await service.engine.submit(replaced, alone=True)
    service.audit(request.state.who, f"imported version {version} of {model}")
    return Response(status_code=204)


async def reset(request: Request) -> Response:
    """Forget what was learned from events; the version before can be returned to."""
    service, model = service_of(request, "admin"), loop_of(request)

    def made(state: State, batch: EventBatch) -> str:
        learner = _as_it_began(state, model)
        version: str = commands.add_version(model, learner, "empty", note="reset", by=request.state.who)(state, batch)
        return version

    version = await service.engine.submit(made, alone=True)
    service.audit(request.state.who, f"reset {model} to version {version}")
    return Response(status_code=204)


def _as_it_began(state: State, model: str) -> Learner:
    """An empty model with the arms and columns that it has; one that was fitted is as it was then."""
    served = state.model(model)
    learner = served.learner
    if isinstance(learner, OpenLearner):
        return OpenLearner(learner.arms, learner.columns, limit=learner.limit, seed=learner.seed)
    added = served.versions[served.version]
    return learner_from_bytes(added.learner, state.contents.content(added.content), f"version {added.version}")


def as_octets(kind: str, content: bytes) -> bytes:
    """A file that holds the state of a learner of a kind, with its checksum."""
    return storage.encode(KIND, {"state": np.frombuffer(content, dtype=np.uint8)}, {"learner": kind})


def from_octets(content: bytes, seed: int) -> Learner:
    """The learner in such a file, or in one that `fit` has written; FileError if it is neither."""
    name = "the imported file"
    try:
        arrays, about = storage.decode(content, KIND, name)
    except FileError as error:
        try:
            return FittedLearner(Model.from_bytes(content, name), seed)
        except FileError:
            raise error from None
    if set(arrays) != {"state"} or arrays["state"].dtype != np.uint8:
        raise FileError(f"{name} does not hold a whole model")
    return learner_from_bytes(str(about.get("learner")), arrays["state"].tobytes(), name)


async def properties(request: Request) -> Response:
    """When the active version was made, and when the last event came that it has taken in."""
    service, model = service_of(request, "read"), loop_of(request)
    made, events = await service.engine.submit(commands.inspect(lambda state: (_added(state, model), state.seq)))
    _, last = await service.aside(times, service.engine.store, events)
    return answer({"creationTime": moment(made), "lastModifiedTime": moment(max(made, last))})


def _added(state: State, model: str) -> float:
    served = state.model(model)
    return served.versions[served.version].time


async def log_properties(request: Request) -> Response:
    """From when to when there are logs."""
    service, model = service_of(request, "read"), loop_of(request)
    _, events = await service.engine.submit(commands.inspect(lambda state: (_added(state, model), state.seq)))
    first, last = await service.aside(times, service.engine.store, events)
    return answer({"dateRange": {"from": moment(first), "to": moment(last)}})


async def delete_logs(request: Request) -> Response:
    """Logs are not deleted by a request."""
    service_of(request, "admin")
    raise not_here("logs are the state's own record and are cut by `invariant-bandits store compact`, not by a request")


def times(store: Any, events: int) -> tuple[float, float]:
    """Of the first event that is kept, and of the last of so many."""
    first, last = next(iter(store.rows())), next(iter(store.rows(events - 1)))
    return decode_event(first.event).time, decode_event(last.event).time


MOST_KEPT = 1_000
"""So many notes may a model have."""


def save_document(model: str, name: str, value: dict[str, Any] | None, by: str) -> Command:
    """Keep something under a name, or (None) no longer; to be done alone."""

    def kept(state: State, batch: EventBatch) -> None:
        notes = state.model(model).documents
        if value is None and name not in notes:
            raise NotFoundError(f"id: {name!r} is not known")
        if value is not None and name not in notes and len(notes) >= MOST_KEPT:
            raise InputError(f"id: at most {MOST_KEPT:,} can be kept; delete some")
        batch.add(state, [DocumentSaved(batch.tick(), model, name, value, by)])

    return kept


async def found(service: Service, model: str, kind: str, id: str, missing: str) -> dict[str, Any]:
    """What is kept of this kind under an id, or the protocol's name for what is missing."""
    told = await service.engine.submit(commands.inspect(lambda state: state.model(model).documents.get(kind + id)))
    if told is None:
        raise ProtocolError(404, missing, f"id: {id!r} is not known", "id")
    return dict(told)


async def listed(
    service: Service, model: str, kind: str, request: Request, about: Callable[[dict[str, Any]], dict[str, Any]]
) -> Response:
    """All that is kept of this kind, as `skip` and `top` ask; plain lists where the version is in the path."""
    kept = await service.engine.submit(commands.inspect(lambda state: dict(state.model(model).documents)))
    told = [about(value) for name, value in kept.items() if name.startswith(kind)]
    skip, top = (_count(request.query_params.get(name), other) for name, other in (("skip", 0), ("top", len(told))))
    told = told[skip : skip + top]
    return answer(told if door_of(request).versioned else {"value": told})


def _count(given: str | None, otherwise: int) -> int:
    if given is None:
        return otherwise
    if not given.isdecimal() or len(given) > 9:
        raise ProtocolError(400, "InvalidRequest", f"skip, top: must be whole numbers, got {given[:20]!r}")
    return int(given)


async def removed(service: Service, model: str, kind: str, request: Request, missing: str) -> None:
    """Keep it no longer."""
    id = request.path_params["id"]
    try:
        await service.engine.submit(save_document(model, kind + id, None, request.state.who), alone=True)
    except NotFoundError:
        raise ProtocolError(404, missing, f"id: {id!r} is not known", "id") from None
    service.audit(request.state.who, f"deleted {kind}{id!r} of {model}")

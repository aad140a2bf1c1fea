"""Evaluations: what the running policy, the baseline and chance earn, from the log and its propensities."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service import work
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.http import answer, check_id, read
from invariant_bandits.service.protocols.evaluating import POLICIES, Stretch, TooManyError, stretch
from invariant_bandits.service.protocols.personalizer.doors import door_of, loop_of
from invariant_bandits.service.protocols.personalizer.errors import ProtocolError, invalid_as, not_here
from invariant_bandits.service.protocols.personalizer.keeping import found, kept_under, listed, removed
from invariant_bandits.service.protocols.personalizer.rules import settings_of
from invariant_bandits.service.protocols.personalizer.series import in_new_form, in_old_form
from invariant_bandits.service.protocols.personalizer.shapes import EvaluationRequest, Reference
from invariant_bandits.service.protocols.personalizer.times import moment, seconds

KEPT = "evaluation "
INTERVALS = (5, 60, 360, 720, 1_440)


@invalid_as("InvalidEvaluationContract")
async def make(request: Request) -> Response:
    """Evaluate a stretch of the log now; the result is kept under the id."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, EvaluationRequest, service.limits)
    if asked.policies:
        raise not_here("policies: Vowpal's arguments cannot be evaluated here; an empty list can")
    if asked.enable_policy_optimization or asked.enable_offline_experimentation:
        raise not_here("enablePolicyOptimization: learning settings are not searched for here; false can be asked")
    id = check_id(request.path_params.get("id") or secrets.token_hex(12))
    start, end = seconds(asked.start_time), seconds(asked.end_time)
    told = {"id": id, "name": asked.name, "start": start, "end": end, "created": service.engine.clock()}
    whole = await read_stretch(service, model, start, end)
    told["rounds"] = whole.feedback.rounds
    told["best"] = max(POLICIES, key=lambda policy: _certain(whole, policy))
    await service.engine.submit(kept_under(model, KEPT + id, told, request.state.who), alone=True)
    service.audit(request.state.who, f"evaluated {model}")
    if request.method == "PUT":
        return Response(status_code=200)
    response = answer(await _whole(service, model, told, request), 201)
    response.headers["location"] = f"{request.url.path}/{id}"
    return response


def _certain(whole: Stretch, policy: str) -> float:
    """The lower end of what a policy earns."""
    return whole.estimates(policy)[0].low


async def read_stretch(service: Service, model: str, start: float, end: float) -> Stretch:
    """A stretch of the log, or the protocol's error if there is nothing in it."""
    rules, events = await service.engine.submit(
        work.inspect(lambda state: (state.model(model).configuration, state.seq))
    )
    try:
        return await service.aside(stretch, service.engine.store, events, model, rules, start, end)
    except TooManyError as error:
        raise ProtocolError(400, "LogsSizeExceedAllowedLimit", str(error), "startTime") from None
    except InputError as error:
        raise ProtocolError(400, "NoLogsExistInDateRange", str(error), "startTime") from None


@invalid_as("InvalidEvaluationContract")
async def show(request: Request) -> Response:
    """An evaluation with its results."""
    service, model = service_of(request, "read"), loop_of(request)
    told = await found(service, model, KEPT, request.path_params["id"], "EvaluationNotFound")
    return answer(await _whole(service, model, told, request))


async def _whole(service: Service, model: str, told: dict[str, Any], request: Request) -> dict[str, Any]:
    asked = request.query_params
    interval, start, end = _interval(asked.get("intervalInMinutes")), told["start"], told["end"]
    start, end = max(start, _time(asked.get("startTime"), start)), min(end, _time(asked.get("endTime"), end))
    window: Literal["Expanding", "Rolling"] = "Rolling" if asked.get("window") == "Rolling" else "Expanding"
    whole = await read_stretch(service, model, start, end)
    settings = await service.engine.submit(work.inspect(lambda state: settings_of(state.model(model))))
    if door_of(request).versioned:
        results = await service.aside(in_old_form, whole, interval, start, settings)
        return {**_about(told, "completed"), "jobId": told["id"], "policyResults": results}
    content = await service.aside(in_new_form, whole, interval, start, settings, window)
    times = {"startTime": moment(start), "endTime": moment(end), "intervalInMinutes": interval}
    return {**_about(told, "Succeeded"), "content": {**times, "value": content}}


def _about(told: dict[str, Any], status: str) -> dict[str, Any]:
    """What lists say of an evaluation, too."""
    return {
        "id": told["id"],
        "name": told["name"],
        "startTime": moment(told["start"]),
        "endTime": moment(told["end"]),
        "creationTime": moment(told["created"]),
        "evaluationType": "Manual",
        "status": status,
        "optimalPolicy": told["best"],
    }


def _interval(given: str | None) -> int:
    if given is None:
        return INTERVALS[0]
    if given not in map(str, INTERVALS):
        raise InputError(f"intervalInMinutes: must be one of {', '.join(map(str, INTERVALS))}")
    return int(given)


def _time(given: str | None, otherwise: float) -> float:
    if given is None:
        return otherwise
    try:
        return seconds(msgspec.convert(given, datetime))
    except msgspec.ValidationError:
        raise InputError(f"startTime, endTime: must be times as in ISO 8601, got {given[:40]!r}") from None


async def show_all(request: Request) -> Response:
    """All evaluations, the earliest first."""
    service, model = service_of(request, "read"), loop_of(request)
    status = "completed" if door_of(request).versioned else "Succeeded"
    return await listed(service, model, KEPT, request, lambda told: _about(told, status))


async def delete(request: Request) -> Response:
    """Forget an evaluation."""
    service, model = service_of(request, "admin"), loop_of(request)
    await removed(service, model, KEPT, request, "EvaluationNotFound")
    return Response(status_code=204)


@invalid_as("InvalidPolicyContract")
async def apply(request: Request) -> Response:
    """Go on with the learning settings of an evaluation: with those that run, which are all there are."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, Reference, service.limits)
    await found(service, model, KEPT, asked.evaluation_id, "EvaluationNotFound")
    settings = await service.engine.submit(work.inspect(lambda state: settings_of(state.model(model))))
    if asked.policy_name not in ("Online", settings["name"]):
        message = f"policyName: {asked.policy_name!r} cannot be applied, only {settings['name']!r}, which runs"
        raise ProtocolError(400, "LearningSettingsNotFound", message, "policyName")
    return Response(status_code=204)

"""Evaluations: what the running policy, the baseline and chance earn, from the log and its propensities."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import Array, InputError
from invariant_bandits.service import commands
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.learners.base import Learner, finite, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import CONSTANT, OpenLearner
from invariant_bandits.service.protocols.evaluations import POLICIES, Stretch, TooManyError, stretch
from invariant_bandits.service.protocols.personalizer.bodies import (
    EvaluationRequest,
    ImportanceRequest,
    ProtocolError,
    Reference,
    duration,
    invalid_as,
    moment,
    not_here,
    seconds,
)
from invariant_bandits.service.protocols.personalizer.events import door_of, loop_of
from invariant_bandits.service.protocols.personalizer.loop import (
    found,
    listed,
    removed,
    save_document,
    settings_of,
    state_of,
)
from invariant_bandits.service.responses import answer, check_id, read

NORMAL = 1.959963984540054
"""Quantile of the normal distribution for intervals of 95 %."""


def in_new_form(
    whole: Stretch, minutes: int, start: float, settings: dict[str, str], window: Literal["Expanding", "Rolling"]
) -> list[dict[str, Any]]:
    """Per policy: its mean reward with an interval, and the same up to (or within) each interval of time."""
    told = []
    for policy in POLICIES:
        value, _ = whole.estimates(policy)
        sums, times = _sums(whole, policy, minutes, start)
        sums = np.cumsum(sums, axis=0) if window == "Expanding" else sums
        points = [
            {"timeStamp": moment(time), "expectedReward": finite(mean), "confidenceInterval": _around(mean, half)}
            for time, mean, half in zip(times, *_mean_and_half(sums), strict=True)
        ]
        summary = {"expectedReward": finite(value.value), "confidenceInterval": _ends(value.low, value.high)}
        told.append({**_named(policy, settings), "slotId": "", "summary": summary, "timeseries": {"data": points}})
    return told


def in_old_form(whole: Stretch, minutes: int, start: float, settings: dict[str, str]) -> list[dict[str, Any]]:
    """Per policy: numerators and denominators of IPS and SNIPS, in all and within each interval of time."""
    told = []
    for policy in POLICIES:
        sums, times = _sums(whole, policy, minutes, start)
        parts = [_summary(row, moment(time), duration(60.0 * minutes)) for row, time in zip(sums, times, strict=True)]
        span = duration(float(round(whole.times[-1] - start)))
        total = _summary(sums.sum(axis=0), moment(start), span)
        told.append({**_named(policy, settings), "summary": parts, "totalSummary": total})
    return told


def _named(policy: str, settings: dict[str, str]) -> dict[str, str]:
    """Learning settings of a policy: those that run, or none."""
    if policy == "Online":
        return {"name": settings["name"], "arguments": settings["arguments"], "policySource": policy}
    return {"name": policy, "arguments": "", "policySource": policy}


def _sums(whole: Stretch, policy: str, minutes: int, start: float) -> tuple[Array, list[float]]:
    """Sums over each interval that has decisions, and when they begin.

    Columns: decisions, w, w·r, (w·r)², w², w²·r, whether w > 0; with w the importance weights and r the rewards.
    """
    weights, rewards = whole.weights(policy), whole.rewards
    columns = np.stack(
        [
            np.ones_like(weights),
            weights,
            weights * rewards,
            (weights * rewards) ** 2,
            weights**2,
            weights**2 * rewards,
            (weights > 0.0).astype(np.float64),
        ],
        axis=1,
    )
    places = np.floor((whole.times - start) / (60.0 * minutes))
    begins = np.unique(places, return_index=True)[1]
    return np.add.reduceat(columns, begins, axis=0), [start + 60.0 * minutes * place for place in places[begins]]


def _mean_and_half(sums: Array) -> tuple[list[float], list[float]]:
    """SNIPS Σwr/Σw per row of sums, and half its interval: 1.96·√Σw²(r − mean)²/Σw."""
    _, weights, gains, squares, weights2, gains2, _ = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        means = gains / weights
        spread = np.maximum(squares - 2.0 * means * gains2 + means**2 * weights2, 0.0)
        return means.tolist(), (NORMAL * np.sqrt(spread) / weights).tolist()


def _summary(sums: Array, time: str, window: str) -> dict[str, Any]:
    count, weights, gains, squares, _, _, possible = sums.tolist()
    [mean], [half] = _mean_and_half(sums[None, :])
    return {
        "timeStamp": time,
        "ipsEstimatorNumerator": gains,
        "ipsEstimatorDenominator": count,
        "snipsEstimatorDenominator": weights,
        "aggregateTimeWindow": window,
        "nonZeroProbability": possible / count,
        "sumOfSquares": squares,
        "confidenceInterval": finite(half),
        "averageReward": finite(mean),
    }


def _around(mean: float, half: float) -> list[float]:
    return _ends(mean - half, mean + half)


def _ends(low: float, high: float) -> list[float]:
    """Both ends, or none if nothing can be concluded."""
    return [low, high] if np.isfinite(low) and np.isfinite(high) else []


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
    await service.engine.submit(save_document(model, KEPT + id, told, request.state.who), alone=True)
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
        commands.inspect(lambda state: (state.model(model).configuration, state.seq))
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
    settings = await service.engine.submit(commands.inspect(lambda state: settings_of(state.model(model))))
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
    settings = await service.engine.submit(commands.inspect(lambda state: settings_of(state.model(model))))
    if asked.policy_name not in ("Online", settings["name"]):
        message = f"policyName: {asked.policy_name!r} cannot be applied, only {settings['name']!r}, which runs"
        raise ProtocolError(400, "LearningSettingsNotFound", message, "policyName")
    return Response(status_code=204)


KEPT_IMPORTANCES = "importance "
MOST_TOLD = 200


@invalid_as("InvalidRequest")
async def make_importances(request: Request) -> Response:
    """Weigh the features of the model as it is now; the result is kept under the id."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, ImportanceRequest, service.limits)
    id = check_id(request.path_params["id"])
    told: dict[str, Any] = {
        "id": id,
        "name": asked.name,
        "startTime": moment(seconds(asked.start_time)),
        "endTime": moment(seconds(asked.end_time)),
        "creationTime": moment(service.engine.clock()),
        "status": "Succeeded",
    }
    kind, content = await service.engine.submit(commands.inspect(lambda state: state_of(state, model)))
    learner = await service.aside(learner_from_bytes, kind, content, model)
    told["featureScores"] = await service.aside(scores, learner)
    await service.engine.submit(save_document(model, KEPT_IMPORTANCES + id, told, request.state.who), alone=True)
    service.audit(request.state.who, f"weighed the features of {model}")
    return Response(status_code=200)


def scores(learner: Learner) -> list[dict[str, Any]]:
    """Sum of the sizes of all coefficients that a feature has a part in, the largest being 100."""
    sizes: dict[str, float] = {}
    for name, coefficient in zip(*_coefficients(learner), strict=True):
        for part in {_feature(one) for one in name.replace(" × ", "|").split("|")} - {CONSTANT}:
            sizes[part] = sizes.get(part, 0.0) + abs(coefficient)
    largest = max(sizes.values(), default=0.0) or 1.0
    order = sorted(sizes.items(), key=lambda one: (-one[1], one[0]))[:MOST_TOLD]
    return [_told(name, 100.0 * size / largest) for name, size in order]


def _coefficients(learner: Learner) -> tuple[list[str], list[float]]:
    """Names of features, and what one unit of each alone adds to the expected reward."""
    if isinstance(learner, OpenLearner):
        names, policy = list(learner.places), learner.policy
    elif isinstance(learner, FittedLearner):
        names, policy = list(learner.model.names), learner.model.policy
    else:
        return [], []
    units = np.vstack([np.eye(policy.dim), np.zeros(policy.dim)])
    means = policy.scores(units).mean
    return names[: policy.dim], (means[:-1] - means[-1])[: len(names)].tolist()


def _feature(name: str) -> str:
    """A feature without its value: 'f:type=news' -> 'action.type'; arms by label are one feature of the action."""
    if name.startswith("a:"):
        return "action.id"
    bare = name.removeprefix("f:").partition("=")[0].partition("[")[0]
    return f"action.{bare}" if name.startswith("f:") else bare


def _told(name: str, score: float) -> dict[str, Any]:
    namespace, _, feature = name.rpartition(".")
    return {"namespace": namespace, "featureName": feature, "score": round(score, 6)}


async def show_importances(request: Request) -> Response:
    """Feature importances with their scores."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await found(service, model, KEPT_IMPORTANCES, request.path_params["id"], "ResourceNotFound"))


async def show_all_importances(request: Request) -> Response:
    """All of them, without scores."""
    service, model = service_of(request, "read"), loop_of(request)
    return await listed(
        service,
        model,
        KEPT_IMPORTANCES,
        request,
        lambda told: {name: told[name] for name in told if name != "featureScores"},
    )


async def delete_importances(request: Request) -> Response:
    """Forget them."""
    service, model = service_of(request, "admin"), loop_of(request)
    await removed(service, model, KEPT_IMPORTANCES, request, "ResourceNotFound")
    return Response(status_code=204)

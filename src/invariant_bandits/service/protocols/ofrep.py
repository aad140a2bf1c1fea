"""OpenFeature's remote evaluation protocol (OFREP 0.3): a model is a flag, an arm a variant.

Metadata carry the id of the decision, under which its reward is reported, and its probability.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits.checks import InputError
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.commands import Command, DecisionCommand, EventBatch
from invariant_bandits.service.events import Decided
from invariant_bandits.service.responses import RefusedError, answer, check_values, printable, read, refusal
from invariant_bandits.service.settings import DAY
from invariant_bandits.service.state import NotFoundError, ServedModel, State

CODES = {400: "PARSE_ERROR", 404: "FLAG_NOT_FOUND", 422: "INVALID_CONTEXT"}
TARGETING = "targetingKey"
"""Says who asks; no feature, since nobody can be learned from by name."""
Value = str | bool | int | float


class EvaluationRequest(msgspec.Struct):
    """Who asks, and what is known of the situation."""

    context: dict[str, Any] | None = None


async def evaluate(request: Request) -> Response:
    """The value of one flag."""
    key = request.path_params["key"]
    service = service_of(request, "decide")
    try:
        context = _features(await _context(request, service))
        asked = DecisionCommand(key, context, protocol="ofrep")
        return answer(await service.engine.submit(_evaluated(asked)))
    except Exception as error:
        return _failed(error, key)


async def evaluate_all(request: Request) -> Response:
    """The values of all flags that have variants, for a client that keeps them: deferred until they are activated.

    The same context has the same decisions until a model, its arms or its rules change, or the day does.
    """
    service = service_of(request, "decide")
    context = await _context(request, service)
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    day = int(service.engine.clock() // DAY)
    tag, flags = await service.engine.submit(_all_evaluated(context, day, known))
    response = Response(status_code=304) if flags is None else answer({"flags": flags})
    response.headers["ETag"] = tag
    return response


def _all_evaluated(context: dict[str, Any], day: int, known: list[str]) -> Command:
    """A tag of what is answered today, and all flags, or None if the tag is known."""

    def evaluated(state: State, batch: EventBatch) -> tuple[str, list[dict[str, Any]] | None]:
        tags = _tags(state, context, day)
        whole = f'"{_hash(*tags.values())}"'
        if whole in known:
            return whole, None
        flags = []
        for key, tag in tags.items():
            asked = DecisionCommand(key, _features(context), id=f"ofrep-{tag}", deferred=True, protocol="ofrep")
            try:
                flags.append(_evaluated(asked)(state, batch))
            except InputError as error:
                flags.append(_failure(error, key))
        return whole, flags

    return evaluated


async def _context(request: Request, service: Service) -> dict[str, Any]:
    asked = await read(request, EvaluationRequest, service.limits)
    check_values(asked.context, service.limits, "context")
    who = (asked.context or {}).get(TARGETING)
    if who is not None and not isinstance(who, str):
        raise RefusedError(422, f"context: {TARGETING} must be a text", TARGETING)
    return asked.context or {}


def _features(context: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in context.items() if name != TARGETING}


def _tags(state: State, context: dict[str, Any], day: int) -> dict[str, str]:
    """A name for what every flag answers in this context, as long as it should."""
    told = json.dumps(context, sort_keys=True)
    return {
        key: _hash(
            key, msgspec.json.encode([one.version, one.learner.arms, one.configuration]).decode(), str(day), told
        )
        for key, one in state.models.items()
        if any(one.learner.arms.values())
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _evaluated(asked: DecisionCommand) -> Command:
    """A decision as an evaluation of a flag."""

    def evaluated(state: State, batch: EventBatch) -> dict[str, Any]:
        served = state.model(asked.model)
        if not any(served.learner.arms.values()):
            raise NotFoundError(f"key: the model {asked.model!r} has no arms, so that it is no flag")
        return _told(asked(state, batch), served)

    return evaluated


def _told(decided: Decided, served: ServedModel) -> dict[str, Any]:
    variant = decided.labels[decided.place]
    return {
        "key": decided.model,
        "value": typed(variant, list(served.learner.arms)),
        "reason": "SPLIT" if decided.explored else "TARGETING_MATCH",
        "variant": variant,
        "metadata": {
            "id": decided.id,
            "probability": decided.propensities[decided.place],
            "version": decided.version,
        },
    }


def typed(label: str, labels: list[str]) -> Value:
    """The value of a variant: truth or a number if all labels of the flag are such, else the label itself.

    >>> typed("true", ["true", "false"]), typed("2", ["1", "2"]), typed("1", ["1", "0.5"]), typed("1", ["1", "b"])
    (True, 2, 1.0, '1')
    """
    if set(labels) <= {"true", "false"}:
        return label == "true"
    kind = next((kind for kind in (int, float) if all(_is_a(kind, one) for one in labels)), str)
    return kind(label)


def _is_a(kind: type[int] | type[float], label: str) -> bool:
    try:
        return math.isfinite(kind(label))
    except ValueError:
        return False


def error_body(error: BaseException) -> Response:
    """The answer to a request that failed before its flag was known."""
    return _failed(error, None)


def _failed(error: BaseException, key: str | None) -> Response:
    refused = refusal(error)
    status = 400 if refused.status in (409, 422) else refused.status
    response = answer(_failure(refused, key), status)
    response.headers.update(refused.headers or {})
    return response


def _failure(error: BaseException, key: str | None) -> dict[str, str]:
    refused = refusal(error)
    told = {"errorCode": CODES.get(refused.status, "GENERAL"), "errorDetails": printable(refused.message)}
    return told if key is None else {"key": key, **told}


ROUTES = [
    Route("/ofrep/v1/evaluate/flags/{key:path}", evaluate, methods=["POST"]),
    Route("/ofrep/v1/evaluate/flags", evaluate_all, methods=["POST"]),
]

"""OpenFeature's remote evaluation protocol (OFREP 0.3): a model is a flag, an arm a variant.

Metadata carry the id of the decision, under which its reward is reported, and its probability.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits_service.commands import (
    DecisionCommand,
    EventBatch,
    returns_command,
)
from invariant_bandits_service.operations import Call, operation
from invariant_bandits_service.responses import (
    RefusedError,
    check_values,
    json_response,
    printable,
    refusal,
)
from invariant_bandits_service.settings import DAY
from invariant_bandits_service.state import NotFoundError, State

PREFIX = "/ofrep"
"""What the paths of this protocol begin with."""
CODES = {400: "PARSE_ERROR", 404: "FLAG_NOT_FOUND", 422: "INVALID_CONTEXT"}
WITHOUT_KEY = (401, 403, 429)
"""Statuses of errors about the caller rather than the flag."""
LARGEST_EXACT = 2**53
"""Beyond this, whole numbers of JavaScript are not exact."""
TARGETING = "targetingKey"
"""Says who asks. It is not a feature: a model cannot generalise from a name."""


class FlagRequest(msgspec.Struct):
    """Who asks, and what is known of the situation."""

    context: dict[str, Any] | None = None


class Failure(msgspec.Struct, rename="camel", omit_defaults=True):
    """Why a flag could not be evaluated; the key is left out where the error is about the caller."""

    error_code: str
    error_details: str
    key: str = ""


@operation(
    "POST",
    "/v1/evaluate/flags/{key:path}",
    "decide",
    FlagRequest,
    prefix=PREFIX,
    error=Failure,
)
async def evaluate(call: Call, body: FlagRequest) -> Any:
    """Evaluate one flag."""
    return await call.submit(_evaluate(_command(call.path["key"], _context(body))))


@operation(
    "POST",
    "/v1/evaluate/flags",
    "decide",
    FlagRequest,
    prefix=PREFIX,
    error=Failure,
)
async def evaluate_all(call: Call, body: FlagRequest) -> Response:
    """Evaluate all flags that have variants, for a client that keeps them: deferred until they are activated.

    The same context has the same decisions until a model, its arms or its rules change, or the day does.
    """
    flags = await call.submit(
        _evaluate_all(_context(body), int(call.engine.clock() // DAY))
    )
    call.charge(len(flags) - 1)
    answer = json_response({"flags": flags})
    tag = f'"{hashlib.sha256(bytes(answer.body)).hexdigest()[:32]}"'
    if call.request.headers.get("if-none-match") == tag:
        answer = Response(status_code=304)
    answer.headers["ETag"] = tag
    return answer


def _context(body: FlagRequest) -> dict[str, Any]:
    check_values(body.context, "context")
    context = body.context or {}
    if not isinstance(context.get(TARGETING), str | None):
        raise RefusedError(422, f"context: {TARGETING} must be a string", TARGETING)
    return context


def _command(
    key: str, context: dict[str, Any], *, id: str | None = None, deferred: bool = False
) -> DecisionCommand:
    """Return the command to decide about the unit that the context names."""
    features = {name: value for name, value in context.items() if name != TARGETING}
    return DecisionCommand(
        model=key,
        context=features,
        id=id,
        deferred=deferred,
        protocol="ofrep",
        unit=context.get(TARGETING),
    )


@returns_command
def _evaluate(
    state: State, batch: EventBatch, command: DecisionCommand
) -> dict[str, Any]:
    """Decide, and answer with the evaluation of a flag."""
    arms = state.model(command.model).learner.arms
    if not any(arms.values()):
        raise NotFoundError(
            f"key: the model {command.model!r} has no arms, so it is not a flag"
        )
    decided = command(state, batch)
    variant = decided.labels[decided.index]
    return {
        "key": decided.model,
        "value": typed(variant, list(arms)),
        "reason": "SPLIT" if decided.explored else "TARGETING_MATCH",
        "variant": variant,
        "metadata": {
            **decided.show("id", "version"),
            "probability": decided.propensity,
        },
    }


@returns_command
def _evaluate_all(
    state: State, batch: EventBatch, context: dict[str, Any], day: int
) -> list[Any]:
    """Answer with today's evaluations of all flags; the same ones have the same ids."""
    flags: list[dict[str, Any] | Failure] = []
    for key, served in state.models.items():
        if not any(served.learner.arms.values()):
            continue
        rules = [served.version, served.learner.arms, served.configuration]
        about = msgspec.json.encode(
            [key, rules, day, json.dumps(context, sort_keys=True)]
        )
        id = f"ofrep-{hashlib.sha256(about).hexdigest()[:32]}"
        try:
            flags.append(
                _evaluate(_command(key, context, id=id, deferred=True))(state, batch)
            )
        except InputError as error:
            flags.append(_failure(refusal(error), key))
    return flags


def typed(label: str, labels: list[str]) -> str | bool | int | float:
    """Return the value of a variant.

    It is a truth value or a number if all labels of the flag are such, else the label itself.

    >>> typed("true", ["true", "false"]), typed("2", ["1", "2"])
    (True, 2)
    >>> typed("1", ["1", "0.5"]), typed("1", ["1", "b"])
    (1.0, '1')
    """
    if set(labels) <= {"true", "false"}:
        return label == "true"
    for kind in (int, float):
        with suppress(ValueError):
            if all(abs(kind(other)) <= LARGEST_EXACT for other in labels):
                return kind(label)
    return label


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed, with the key of its flag if it is about one."""
    refused = refusal(error)
    key = ""
    if refused.status not in WITHOUT_KEY:
        key = request.path_params.get("key", "")
    status = 400 if refused.status in (409, 422) else refused.status
    return json_response(_failure(refused, key), status, refused.headers)


def _failure(refused: RefusedError, key: str) -> Failure:
    return Failure(
        CODES.get(refused.status, "GENERAL"), printable(refused.message), key
    )

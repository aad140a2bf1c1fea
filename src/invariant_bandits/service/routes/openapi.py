"""The document that describes version 1 (OpenAPI 3.1), made from the shapes of its bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits import __version__
from invariant_bandits.service.responses import answer
from invariant_bandits.service.routes import shapes
from invariant_bandits.service.settings import Configuration

SHAPES: tuple[type, ...] = (
    shapes.DecisionRequest,
    shapes.DecisionBatch,
    shapes.DecisionAnswer,
    shapes.RewardRequest,
    shapes.RewardBatch,
    shapes.RewardAnswer,
    shapes.ArmRequest,
    shapes.ModelRequest,
    Configuration,
)


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    _, parts = msgspec.json.schema_components(SHAPES, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "invariant-bandits",
            "version": __version__,
            "description": "Decisions, durable and replayable.",
        },
        "components": {
            "schemas": {**parts, "Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
        "paths": PATHS,
    }


ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                **{name: {"type": "string"} for name in ("code", "message", "field")},
                "differences": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


def _call(
    about: str,
    body: dict[str, Any] | None = None,
    good: dict[str, Any] | None = None,
    *more: Any,
    status: str = "200",
    binary: bool = False,
) -> dict[str, Any]:
    """One operation; every one can answer with an error."""
    told: dict[str, Any] = {
        "summary": about,
        "responses": {status: _json(good or {"type": "object"}, "done"), "default": _json(_ref("Error"), "refused")},
    }
    if body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if binary:
        told["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    if more:
        told["parameters"] = list(more)
    return told


def _in_path(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": 256},
    }


def _either(one: str, many: str) -> dict[str, Any]:
    return {"anyOf": [_ref(one), _ref(many)]}


MODEL = {"name": "model", "in": "query", "required": False, "schema": {"type": "string"}}
NOTE = {**MODEL, "name": "note"}
ACTIVATE, ALLOW_DIFFERENCES = (
    {
        "name": name,
        "in": "query",
        "required": False,
        "description": about,
        "schema": {"type": "boolean", "default": False},
    }
    for name, about in (
        ("activate", "Whether the new version decides from now on"),
        ("allow_differences", "Whether kind, columns and arms may differ from the active version's"),
    )
)
_ANSWERS = {"anyOf": [_ref("DecisionAnswer"), {"type": "object", "required": ["decisions"]}]}
_FATES = {"anyOf": [_ref("RewardAnswer"), {"type": "object", "required": ["rewards"]}]}
PATHS: dict[str, Any] = {
    "/v1/decisions": {
        "post": _call("Decide, once or many times", _either("DecisionRequest", "DecisionBatch"), _ANSWERS)
    },
    "/v1/decisions/{id}": {"get": _call("A decision and what became of it", None, None, _in_path("id"), MODEL)},
    "/v1/decisions/{id}/activate": {"post": _call("A deferred decision was shown", None, None, _in_path("id"), MODEL)},
    "/v1/rewards": {"post": _call("Report rewards", _either("RewardRequest", "RewardBatch"), _FATES)},
    "/v1/models": {
        "get": _call("All models"),
        "post": _call("Make an empty model", _ref("ModelRequest"), None, status="201"),
    },
    "/v1/model": {"get": _call("What a model is and believes", None, None, MODEL)},
    "/v1/model/arms": {
        "get": _call("Arms", None, None, MODEL),
        "post": _call("Add an arm", _ref("ArmRequest"), None, MODEL, status="201"),
    },
    "/v1/model/arms/{label}": {"delete": _call("Retire an arm", None, None, _in_path("label"), MODEL)},
    "/v1/model/versions": {
        "get": _call("Versions", None, None, MODEL),
        "post": _call(
            "Upload a model file as a new version",
            None,
            None,
            MODEL,
            NOTE,
            ACTIVATE,
            ALLOW_DIFFERENCES,
            status="201",
            binary=True,
        ),
    },
    "/v1/model/versions/{version}/activate": {
        "post": _call("Activate a version", None, None, _in_path("version"), MODEL)
    },
    "/v1/model/rollback": {"post": _call("Return to the version before", None, None, MODEL)},
    "/v1/model/learn": {
        "post": _call("Learn from the model's own history, in the background", None, None, MODEL, status="202"),
        "get": _call("What became of that", None, None, MODEL),
    },
    "/v1/model/configuration": {
        "get": _call("The rules of a model", None, _ref("Configuration"), MODEL),
        "put": _call("Set the rules of a model", _ref("Configuration"), _ref("Configuration"), MODEL),
    },
    "/v1/overview": {"get": _call("What the page shows, as it was last seen", None, None, MODEL)},
    "/healthz": {"get": _call("Is it there")},
    "/readyz": {"get": _call("Can it serve")},
}


async def show(request: Request) -> Response:
    """The document."""
    return answer(document())


ROUTES = [Route("/openapi.json", show, methods=["GET"])]

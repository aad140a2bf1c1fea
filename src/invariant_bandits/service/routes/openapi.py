"""The document that describes version 1 (OpenAPI 3.1), made from its operations."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from invariant_bandits import __version__
from invariant_bandits.service.operations import Call, Operation
from invariant_bandits.service.routes import decisions, health, models

Schema = dict[str, Any]
DOCUMENTED = (*decisions.OPERATIONS, *models.OPERATIONS, *health.OPERATIONS)
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean", "default": False}
QUERY: dict[str, tuple[Schema, str]] = {
    "model": (TEXT, "Name of the model; the default one if not given"),
    "note": (TEXT, "Kept with the version"),
    "activate": (FLAG, "Whether the new version decides from now on"),
    "allow_differences": (FLAG, "Whether kind, columns and arms may differ from the active version's"),
}
"""Schemas and descriptions of the parameters in queries."""
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                **dict.fromkeys(("code", "message", "field"), TEXT),
                "differences": {"type": "array", "items": TEXT},
            },
        }
    },
}


@cache
def document() -> Schema:
    """Return the whole document."""
    structs = {kind for operation in DOCUMENTED for kind in (*operation.bodies, _answer_type(operation))}
    _, components = msgspec.json.schema_components(
        sorted(structs - {bytes, None}, key=lambda kind: kind.__name__),
        ref_template="#/components/schemas/{name}",
    )
    paths: dict[str, Schema] = {}
    for operation in DOCUMENTED:
        path = re.sub(r":\w+}", "}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "invariant-bandits",
            "version": __version__,
            "description": "Decisions, durable and replayable.",
        },
        "components": {
            "schemas": {**components, "Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
    }


def _described(operation: Operation) -> Schema:
    """Return one operation; each can answer with an error."""
    schema: Schema = {
        "summary": (operation.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": {
            str(operation.status): _json(_answer(operation), "done"),
            "default": _json({"$ref": "#/components/schemas/Error"}, "refused"),
        },
    }
    if operation.bodies:
        structs = [_ref(kind) for kind in operation.bodies if kind is not bytes]
        content = {"application/json": {"schema": structs[0] if len(structs) == 1 else {"anyOf": structs}}}
        octets: Schema = {"application/octet-stream": {"schema": {}}}
        schema["requestBody"] = {"required": True, "content": content if structs else octets}
    name = {"type": "string", "minLength": 1, "maxLength": 256}
    in_path = [
        {"name": parameter, "in": "path", "required": True, "schema": name}
        for parameter in re.findall(r"{(\w+)", operation.path)
    ]
    in_query = [
        {"name": parameter, "in": "query", "required": False, "schema": form, "description": about}
        for parameter, (form, about) in QUERY.items()
        if parameter in operation.query
    ]
    if in_path or in_query:
        schema["parameters"] = in_path + in_query
    return schema


def _answer_type(operation: Operation) -> Any:
    return operation.answer[0] if isinstance(operation.answer, tuple) else operation.answer


def _answer(operation: Operation) -> Schema:
    """Return the schema of an answer; one with a name is either an answer or an object with a list
    under the name.
    """
    if operation.answer is None:
        return {"type": "object"}
    schema = _ref(_answer_type(operation))
    if isinstance(operation.answer, tuple):
        return {"anyOf": [schema, {"type": "object", "required": [operation.answer[1]]}]}
    return schema


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _json(schema: Schema, about: str) -> Schema:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    return document()


OPERATIONS = (Operation("GET", "/openapi.json", None, show_document),)

"""The document of everything that can be asked (OpenAPI 3.1), made from the operations, and a page that shows
it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args

import msgspec

from invariant_bandits import __version__
from invariant_bandits.service.operations import OPERATIONS, Call, Operation, operation
from invariant_bandits.service.responses import ErrorAnswer
from invariant_bandits.service.routes.decisions import Status

Schema = dict[str, Any]
DOCUMENTED = re.compile(r"/(v1/|healthz|readyz)")
"""What the paths in the document begin with."""
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean", "default": False}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
QUERY: dict[str, Schema] = {
    "model": {**TEXT, "description": "Name of the model; the default one if not given"},
    "note": {**TEXT, "description": "Kept with the version"},
    "activate": {**FLAG, "description": "Whether the new version decides from now on"},
    "allow_differences": {**FLAG, "description": "Whether kind, columns and arms may be others than now"},
    "arm": {**TEXT, "description": "Label of the chosen arm, or place of the chosen row"},
    "status": {"enum": list(get_args(Status)), "description": "What became of the decision"},
    "search": {**TEXT, "description": "Text in the id, the arms or the context"},
    "since": {**TEXT, "description": "From this time on: ISO 8601, or seconds since 1970"},
    "until": {**TEXT, "description": "Before this time"},
    "before": {"type": "integer", "minimum": 0, "description": "Number of an event: `next` of a page"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
}
"""Schemas of the parameters in queries."""


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    return document()


@cache
def document() -> Schema:
    """Return the whole document."""
    documented = [each for each in OPERATIONS if DOCUMENTED.match(each.path)]
    kinds = {kind for each in documented for kind in (*each.bodies, each.answer_type)}
    structs = {ErrorAnswer, *kinds} - {bytes, None}
    _, components = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Schema] = {}
    for each in documented:
        path = re.sub(r":\w+}", "}", each.path)
        paths.setdefault(path, {})[each.method.lower()] = _described(each)
    about = "Decisions, durable and replayable."
    token = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "invariant-bandits", "version": __version__, "description": about},
        "components": {"schemas": components, "securitySchemes": {"token": token}},
        "security": [{}, {"token": []}],
        "paths": paths,
    }


def _described(described: Operation) -> Schema:
    """Return one operation; each can answer with an error."""
    answer: Schema = {"type": "object"} if described.answer is None else _ref(described.answer_type)
    if isinstance(described.answer, tuple):
        answer = {"anyOf": [answer, {"type": "object", "required": [described.answer[1]]}]}
    schema: Schema = {
        "summary": (described.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "responses": {
            str(described.status): {"description": "done", **_json(answer)},
            "default": {"description": "refused", **_json(_ref(ErrorAnswer))},
        },
    }
    if described.bodies:
        structs = [_ref(kind) for kind in described.bodies if kind is not bytes]
        octets: Schema = {"content": {"application/octet-stream": {"schema": {}}}}
        content = _json(structs[0] if len(structs) == 1 else {"anyOf": structs}) if structs else octets
        schema["requestBody"] = {"required": True, **content}
    in_path = re.findall(r"{(\w+)", described.path)
    in_query = ("model", *described.query) if described.is_about_model else described.query
    parameters = [{"name": name, "in": "path", "required": True, "schema": NAME} for name in in_path]
    parameters += [{"name": name, "in": "query", "schema": QUERY[name]} for name in in_query]
    return {**schema, "parameters": parameters}


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _json(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}

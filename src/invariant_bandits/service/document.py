"""The document of everything that can be asked (OpenAPI 3.1), made from the operations, and a page that shows
it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, get_args

import msgspec
from starlette.responses import Response

from invariant_bandits import __version__
from invariant_bandits.service.operations import MODEL, OPERATIONS, Call, Operation, operation
from invariant_bandits.service.protocols.personalizer import INTERVALS, NEWEST
from invariant_bandits.service.routes.decisions import Status

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean", "default": False}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
FILES = {file.name: file.read_bytes() for file in (files("invariant_bandits.service") / "page").iterdir()}
"""Everything that pages are made of, read once: no path of a request reaches the file system."""
QUERY: dict[str, Schema] = {
    "model": {**TEXT, "description": "Name of the model; not needed if there is only one"},
    "log": {**TEXT, "description": "File name of a log that the model is fitted to; says its format"},
    "note": {**TEXT, "description": "Kept with the version"},
    "activate": {**FLAG, "description": "Whether the new version decides from now on"},
    "allow_differences": {**FLAG, "description": "Whether it may refuse what is asked now"},
    "arm": {**TEXT, "description": "Label of the chosen arm, or place of the chosen row"},
    "status": {"enum": list(get_args(Status)), "description": "What became of the decision"},
    "search": {**TEXT, "description": "Text in the id, the arms or the context"},
    "since": {**TEXT, "description": "From this time on: ISO 8601, or seconds since 1970"},
    "until": {**TEXT, "description": "Before this time"},
    "before": {"type": "integer", "minimum": 0, "description": "Number of an event: `next` of a page"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
}
"""Schemas of the parameters in queries."""


QUERY |= {
    "api-version": {**TEXT, "enum": [NEWEST]},
    "intervalInMinutes": {"enum": list(INTERVALS)},
    "startTime": {**TEXT, "description": "Date or time as in ISO 8601"},
    "endTime": {**TEXT, "description": "Date or time as in ISO 8601"},
    "window": {"enum": ["Expanding", "Rolling"]},
    "top": {"type": "integer", "minimum": 0},
    "maxpagesize": {"type": "integer", "minimum": 1},
    "skip": {"type": "integer", "minimum": 0, "default": 0},
}
TAGS = ("v1", "personalizer", "ofrep")
"""First parts of paths by which the page groups operations."""


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    prefix = call.request.scope.get("root_path", "")
    return {**document(), "servers": [{"url": prefix or "/"}]}


@cache
def document() -> Schema:
    """Return the whole document: every method and path of every operation."""
    kinds = {kind for each in OPERATIONS for kind in (*each.bodies, each.answer_type, each.error)}
    structs = sorted(kinds - {bytes, None, Any}, key=lambda kind: str(kind.__name__))
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, Schema] = {}
    for each in OPERATIONS:
        for path in _paths(each):
            paths.setdefault(path, {})[each.method.lower()] = _described(each, path)
    about = (
        "Decisions, durable and replayable. A loop of Personalizer's protocol is also under /models/{model}/."
    )
    schemes = {
        "token": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "invariant-bandits", "version": __version__, "description": about},
        "components": {"schemas": components, "securitySchemes": schemes},
        "security": [{}, {"token": []}, {"key": []}],
        "paths": paths,
    }


def _paths(described: Operation) -> list[str]:
    """Return the paths of an operation as the document shows them."""
    paths = [re.sub(r":\w+}", "}", path) for path in described.paths()]
    forms = described.prefixes or ("",)
    return [path.replace("{endpoint}", form) for path in paths for form in forms]


def _described(described: Operation, path: str) -> Schema:
    """Return an operation under one of its paths; each can answer with an error."""
    answer: Schema = {"type": "object"} if described.answer is None else _ref(described.answer_type)
    if isinstance(described.answer, tuple):
        answer = {"anyOf": [answer, {"type": "object", "required": [described.answer[1]]}]}
    if described.media != "application/json":
        answer = {}
    has_content = described.media and described.status != 204
    schema: Schema = {
        "tags": [next((tag for tag in TAGS if path.startswith(f"/{tag}")), "service")],
        "summary": (described.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "description": f"Needs a token with the role {described.role}." if described.role else "For anyone.",
        "responses": {
            str(described.status): {
                "description": "done",
                **(_content(answer, described.media) if has_content else {}),
            },
            "default": {"description": "refused", **_content(_ref(described.error))},
        },
    }
    if described.bodies:
        structs = [_ref(kind) for kind in described.bodies if kind is not bytes]
        body = _content({}, "application/octet-stream")
        if structs:
            body = _content(structs[0] if len(structs) == 1 else {"anyOf": structs})
        schema["requestBody"] = {"required": True, **body}
    in_path = re.findall(r"{(\w+)", path)
    in_query = (
        ("model", *described.query)
        if path.startswith(MODEL) and described.is_about_model
        else described.query
    )
    if described.prefixes and path.startswith(f"/{described.prefixes[0]}/") and "/v1.0/" not in path:
        in_query = (*in_query, "api-version")
    parameters = [{"name": name, "in": "path", "required": True, "schema": NAME} for name in in_path]
    parameters += [{"name": name, "in": "query", "schema": QUERY[name]} for name in in_query]
    return {**schema, "parameters": parameters}


def _ref(kind: Any) -> Schema:
    return {} if kind is Any else {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(schema: Schema, media: str = "application/json") -> Schema:
    return {"content": {media: {"schema": schema}}}


@operation("GET", "/docs", None, media="text/html")
async def show_page(call: Call) -> Response:
    """Show a page of all operations, on which each can be tried."""
    return Response(FILES["docs.html"], media_type="text/html")

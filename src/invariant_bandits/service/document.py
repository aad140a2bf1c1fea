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
from invariant_bandits.service.operations import (
    OPERATIONS,
    TEXTS,
    Call,
    Operation,
    operation,
)
from invariant_bandits.service.routes.decisions import Status

Schema = dict[str, Any]
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
FILES = {
    file.name: file.read_bytes()
    for file in (files("invariant_bandits.service") / "page").iterdir()
}
"""Everything that pages are made of, read once: no path of a request reaches the file system."""
QUERY: dict[str, Schema] = TEXTS["query"]
"""Schemas of the parameters in queries."""
QUERY["status"]["enum"] = get_args(Status)
TAGS = ("v1", "ofrep")
"""First parts of paths by which the page groups operations."""


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    return {
        **document(),
        "servers": [{"url": call.request.scope.get("root_path") or "/"}],
    }


@cache
def document() -> Schema:
    """Return the whole document: every method and path of every operation."""
    kinds = {
        kind
        for each in OPERATIONS
        for kind in (*each.bodies, each.answer_type, each.error)
    }
    structs = sorted(kinds - {bytes, None, Any}, key=lambda kind: str(kind.__name__))
    _, components = msgspec.json.schema_components(
        structs, ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Schema] = {}
    for each in OPERATIONS:
        for path in _paths(each):
            paths.setdefault(path, {})[each.method.lower()] = _described(each, path)
    base: Schema = TEXTS["document"]
    info, parts = (
        {**base["info"], "version": __version__},
        {**base["components"], "schemas": components},
    )
    return {**base, "info": info, "components": parts, "paths": paths}


def _paths(described: Operation) -> list[str]:
    """Return the paths of an operation as the document shows them."""
    return [re.sub(r":\w+}", "}", path) for path in described.paths()]


def _described(described: Operation, path: str) -> Schema:
    """Return an operation under one of its paths; each can answer with an error."""
    answer: Schema = (
        {"type": "object"} if described.answer is None else _ref(described.answer_type)
    )
    if isinstance(described.answer, tuple):
        answer = {
            "anyOf": [answer, {"type": "object", "required": [described.answer[1]]}]
        }
    if described.media != "application/json":
        answer = {}
    done: Schema = {"description": "done"}
    if described.media and described.status != 204:
        done |= _content(answer, described.media)
    schema: Schema = {
        "tags": [next((tag for tag in TAGS if path.startswith(f"/{tag}")), "service")],
        "summary": (described.handler.__doc__ or "").partition("\n")[0].rstrip("."),
        "description": f"Needs a token with the role {described.role}."
        if described.role
        else "For anyone.",
        "responses": {
            str(described.status): done,
            "default": {"description": "refused", **_content(_ref(described.error))},
        },
    }
    if described.bodies:
        structs = [_ref(kind) for kind in described.bodies if kind is not bytes]
        body = (
            _content({"anyOf": structs})
            if structs
            else _content({}, "application/octet-stream")
        )
        schema["requestBody"] = {"required": True, **body}
    in_path = re.findall(r"{(\w+)", path)
    in_query = (
        ("model", *described.query) if described.is_about_model else described.query
    )
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": NAME}
        for name in in_path
    ]
    parameters += [
        {"name": name, "in": "query", "schema": QUERY[name]} for name in in_query
    ]
    return {**schema, "parameters": parameters}


def _ref(kind: Any) -> Schema:
    return {} if kind is Any else {"$ref": f"#/components/schemas/{kind.__name__}"}


def _content(schema: Schema, media: str = "application/json") -> Schema:
    return {"content": {media: {"schema": schema}}}


@operation("GET", "/docs", None, media="text/html")
async def show_page(call: Call) -> Response:
    """Show a page of all operations, on which each can be tried."""
    return Response(FILES["docs.html"], media_type="text/html")

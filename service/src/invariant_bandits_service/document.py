"""The OpenAPI document, made from the operations, and a page that shows it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from starlette.responses import Response

from invariant_bandits import __version__
from invariant_bandits_service.operations import (
    OPERATIONS,
    Call,
    ModelQuery,
    Operation,
    operation,
)

Schema = dict[str, Any]
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
"""Of a parameter in a path."""
FILES = {
    file.name: file.read_bytes()
    for file in (files("invariant_bandits_service") / "page").iterdir()
}
"""Everything that pages are made of, read once: no path of a request reaches the file system."""
TAGS = ("v1", "ofrep")
"""First parts of paths by which the page groups operations."""
REFERENCE = "#/components/schemas/{name}"
"""Where a schema refers to that of a struct."""


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    root_path = call.request.scope.get("root_path") or "/"
    return {**document(), "servers": [{"url": root_path}]}


@cache
def document() -> Schema:
    """Return the whole document: every method and path of every operation."""
    paths: dict[str, Schema] = {}
    for each in OPERATIONS:
        for path in each.paths():
            shown = re.sub(r":\w+}", "}", each.prefix + path)
            methods = paths.setdefault(shown, {})
            methods[each.method.lower()] = _described(each, shown)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "invariant-bandits",
            "description": "Decisions, durable and replayable.",
            "version": __version__,
        },
        # a token is needed only where the service was started with some
        "security": [{}, {"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
        "paths": paths,
    }


def _schemas() -> Schema:
    """Return the schemas of all structs in bodies and answers, by name."""
    structs: set[Any] = set()
    for each in OPERATIONS:
        structs.update(each.bodies)
        structs.update((each.answer_type, each.error))
    structs -= {bytes, None, Any}
    ordered = sorted(structs, key=lambda struct: str(struct.__name__))
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    return schemas


def _described(described: Operation, path: str) -> Schema:
    """Return an operation under one of its paths; each can answer with an error."""
    tag = next((tag for tag in TAGS if path.startswith(f"/{tag}")), "service")
    summary = (described.handler.__doc__ or "").partition("\n")[0].rstrip(".")
    role = "For anyone."
    if described.role is not None:
        role = f"Needs a token with the role {described.role}."
    refused = {"description": "refused", **_content(_reference(described.error))}
    schema: Schema = {
        "tags": [tag],
        "summary": summary,
        "description": role,
        "responses": {str(described.status): _answer(described), "default": refused},
        "parameters": _parameters(described, path),
    }
    if described.bodies:
        schema["requestBody"] = {"required": True, **_body(described)}
    return schema


def _answer(described: Operation) -> Schema:
    """Return what an operation answers if nothing is wrong."""
    if not described.media or described.status == 204:
        return {"description": "done"}
    answer: Schema = {}
    if described.media == "application/json":
        answer = {"type": "object"}
        if described.answer is not None:
            answer = _reference(described.answer_type)
        if isinstance(described.answer, tuple):
            several = {"type": "object", "required": [described.answer[1]]}
            answer = {"anyOf": [answer, several]}
    return {"description": "done", **_content(answer, described.media)}


def _body(described: Operation) -> Schema:
    """Return what an operation takes as its body: structs, or a file."""
    structs = [_reference(kind) for kind in described.bodies if kind is not bytes]
    if structs:
        return _content({"anyOf": structs})
    return _content({}, "application/octet-stream")


def _parameters(described: Operation, path: str) -> list[Schema]:
    """Return the parameters in the path and in the query of an operation."""
    parameters: list[Schema] = []
    for name in re.findall(r"{(\w+)", path):
        parameters.append(
            {"name": name, "in": "path", "required": True, "schema": NAME}
        )
    properties: dict[str, Schema] = {}
    if described.is_about_model:
        properties |= _properties(ModelQuery)
    if described.query is not None:
        properties |= _properties(described.query)
    for name, schema in properties.items():
        parameters.append({"name": name, "in": "query", "schema": schema})
    return parameters


def _properties(struct: type[msgspec.Struct]) -> dict[str, Schema]:
    """Return the schemas of the fields of a struct; in a query, nothing is null."""
    _, schemas = msgspec.json.schema_components([struct], ref_template=REFERENCE)
    properties: dict[str, Schema] = schemas[struct.__name__]["properties"]
    for schema in properties.values():
        if "anyOf" in schema:
            (kind,) = (each for each in schema.pop("anyOf") if each != {"type": "null"})
            schema.update(kind)
            del schema["default"]
        if None in schema.get("enum", ()):
            schema["enum"].remove(None)
            del schema["default"]
    return properties


def _reference(kind: Any) -> Schema:
    """Return a reference to the schema of a struct."""
    return {} if kind is Any else {"$ref": REFERENCE.format(name=kind.__name__)}


def _content(schema: Schema, media: str = "application/json") -> Schema:
    """Return a body with this schema."""
    return {"content": {media: {"schema": schema}}}


@operation("GET", "/docs", None, media="text/html")
async def show_page(call: Call) -> Response:
    """Show a page of all operations, on which each can be tried."""
    return Response(FILES["docs.html"], media_type="text/html")

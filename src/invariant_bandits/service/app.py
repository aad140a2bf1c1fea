"""The application: all operations on one engine, what holds for every request, and the document of
version 1 (OpenAPI 3.1), made from its operations.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invariant_bandits import __version__
from invariant_bandits.service.dashboard import Dashboard
from invariant_bandits.service.operations import OPERATIONS, Call, Operation, Service, operation
from invariant_bandits.service.protocols import ofrep
from invariant_bandits.service.protocols.personalizer import evaluations, events, loop
from invariant_bandits.service.responses import RefusedError, error_answer, json_response, refusal
from invariant_bandits.service.routes import decisions, models

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self';"
    b" script-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self';"
    b" frame-ancestors 'none'",
}
"""Sent with every response."""
ERROR_RESPONSES: dict[str, Callable[[RefusedError, Scope], Response]] = {
    "/personalizer": events.error_response,
    "/models/": events.error_response,
    "/ofrep": ofrep.error_response,
}
"""How errors look under a prefix of paths; elsewhere as in version 1."""
HANDLERS = (decisions, models, ofrep, events, loop, evaluations)
"""Modules whose import registers all operations but those below."""


class RequestMiddleware:
    """Times every request, answers those that fail, and sends the headers that every response has."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in HEADERS.items() if name not in own]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise
            await _error_response(refusal(error), scope)(scope, receive, send_with_headers)
        asked = getattr(scope.get("endpoint"), "__self__", None)
        name = "none" if asked is None else asked.name
        scope["app"].state.service.metrics.count(name, status, time.perf_counter() - began)


def _error_response(refused: RefusedError, scope: Scope) -> Response:
    for prefix, respond in ERROR_RESPONSES.items():
        if scope["path"].startswith(prefix):
            return respond(refused, scope)
    return json_response(error_answer(refused), refused.status, refused.headers)


async def _leave_to_middleware(request: Request, error: Exception) -> NoReturn:
    raise error


def make_app(service: Service, *, lifespan: Any = None) -> Starlette:
    """Return the application around a service; the engine makes views for its page and its metrics."""
    dashboard = Dashboard()
    service.engine.on_view.append(dashboard)
    service.engine.on_event.append(dashboard.take)
    service.metrics.view = lambda: service.engine.view
    app = Starlette(
        routes=[route for each in OPERATIONS for route in each.routes()],
        exception_handlers={HTTPException: _leave_to_middleware},
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(RequestMiddleware)
    return app


# -- the document --

Schema = dict[str, Any]
DOCUMENTED = re.compile(r"/(v1/|healthz|readyz)")
"""What the paths in the document begin with."""
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean", "default": False}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
QUERY: dict[str, tuple[Schema, str]] = {
    "model": (TEXT, "Name of the model; the default one if not given"),
    "note": (TEXT, "Kept with the version"),
    "activate": (FLAG, "Whether the new version decides from now on"),
    "allow_differences": (FLAG, "Whether kind, columns and arms may differ from the active version's"),
}
"""Schemas and descriptions of the parameters in queries."""
ERROR: Schema = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        **dict.fromkeys(("code", "message", "field"), TEXT),
        "differences": {"type": "array", "items": TEXT},
    },
}


@operation("GET", "/openapi.json", None)
async def show_document(call: Call) -> Schema:
    """Show the OpenAPI document."""
    return document()


@cache
def document() -> Schema:
    """Return the whole document."""
    documented = [each for each in OPERATIONS if DOCUMENTED.match(each.path)]
    structs = {kind for each in documented for kind in (*each.bodies, each.answer_type)} - {bytes, None}
    _, components = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    components["Error"] = {"type": "object", "required": ["error"], "properties": {"error": ERROR}}
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
            "default": {"description": "refused", **_json({"$ref": "#/components/schemas/Error"})},
        },
    }
    if described.bodies:
        structs = [_ref(kind) for kind in described.bodies if kind is not bytes]
        octets: Schema = {"content": {"application/octet-stream": {"schema": {}}}}
        content = _json(structs[0] if len(structs) == 1 else {"anyOf": structs}) if structs else octets
        schema["requestBody"] = {"required": True, **content}
    in_query = ("model", *described.query) if described.is_about_model else described.query
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": NAME}
        for name in re.findall(r"{(\w+)", described.path)
    ]
    for name in in_query:
        form, about = QUERY[name]
        parameters.append(
            {"name": name, "in": "query", "required": False, "schema": form, "description": about}
        )
    return {**schema, "parameters": parameters} if parameters else schema


def _ref(kind: type) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _json(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}


# -- health, metrics and the page --

MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = {
    file.name: (file.read_bytes(), MEDIA[suffix])
    for file in files("invariant_bandits.service").joinpath("page").iterdir()
    if (suffix := file.name.rpartition(".")[2]) in MEDIA
}
"""Everything the page is made of, read once: no path of a request reaches the file system."""


@operation("GET", "/healthz", None)
async def healthy(call: Call) -> dict[str, str]:
    """Say that the service lives."""
    return {"status": "ok"}


@operation("GET", "/readyz", None)
async def ready(call: Call) -> Any:
    """Say whether decisions can be made and stored."""
    engine = call.service.engine
    if engine.failure is not None or not engine.available:
        why = str(engine.failure or "the store cannot take events")
        return json_response({"status": "unavailable", "why": why}, 503)
    return {"status": "ready", "set_aside": len(engine.state.aside)}


@operation("GET", "/metrics", "read")
async def metrics(call: Call) -> Response:
    """Show metrics in the text format of Prometheus."""
    return Response(call.service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


@operation("GET", "/", None)
@operation("GET", "/page/{name}", None)
async def page(call: Call) -> Response:
    """Show the page, or a file that it is made of; the page asks for a token itself if one is needed."""
    name = call.path.get("name", "index.html")
    if name not in FILES:
        raise RefusedError(404, "there is no such file")
    content, kind = FILES[name]
    return Response(content, media_type=kind)


@operation("GET", "/v1/overview", "read", query=("model",))
async def overview(call: Call) -> dict[str, Any]:
    """Show what the page shows, as it was last seen."""
    service = call.service
    view, failure = service.engine.view, service.engine.failure
    models: dict[str, Any] = view.get("models", {})
    first = "default" if "default" in models else next(iter(models), None)
    name = call.query.get("model") or first
    if name is not None and name not in models:
        raise RefusedError(404, f"model: {name!r} is not served")
    return {
        "service": {
            "version": __version__,
            "time": view.get("time"),
            "since": view.get("since"),
            "events": view.get("seq", 0),
            "available": bool(view.get("available", True)) and failure is None,
            "failure": None if failure is None else str(failure),
            "latencies": service.metrics.latencies(),
            "may_change": not service.access.tokens or call.caller.startswith("admin"),
        },
        "models": {model: {"alarm": bool(shown["about"].get("alarm"))} for model, shown in models.items()},
        "name": name,
        "model": None if name is None else models[name],
    }

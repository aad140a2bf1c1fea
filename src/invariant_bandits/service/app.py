"""The application: all operations on one engine, and what holds for every request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invariant_bandits.service.dashboard import Dashboard
from invariant_bandits.service.operations import Operation, Service
from invariant_bandits.service.protocols import ofrep
from invariant_bandits.service.protocols.personalizer import bodies, routes
from invariant_bandits.service.responses import RefusedError, error_answer, json_response, refusal
from invariant_bandits.service.routes import decisions, health, models, openapi

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

ErrorResponse = Callable[[RefusedError, Scope], Response]
ERROR_RESPONSES: dict[str, ErrorResponse] = {
    "/personalizer": bodies.error_response,
    "/models/": bodies.error_response,
    "/ofrep": ofrep.error_response,
}
"""How errors look under a prefix of paths; elsewhere as in version 1."""
OPERATIONS: tuple[Operation, ...] = (
    *(*health.OPERATIONS, *health.PAGE_OPERATIONS, *decisions.OPERATIONS, *models.OPERATIONS),
    *(*openapi.OPERATIONS, *ofrep.OPERATIONS, *routes.OPERATIONS),
)


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
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in HEADERS.items() if name not in own),
                ]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise
            await _error_response(refusal(error), scope)(scope, receive, send_with_headers)
        operation = getattr(scope.get("endpoint"), "__self__", None)
        name = "none" if operation is None else operation.name
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
    service.metrics.show(lambda: service.engine.view)
    app = Starlette(
        routes=[route for operation in OPERATIONS for route in operation.routes()],
        exception_handlers={HTTPException: _leave_to_middleware},
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(RequestMiddleware)
    return app

"""The application: all doors to one engine, and what holds for every request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invariant_bandits.service.application import Service
from invariant_bandits.service.dashboard import Story
from invariant_bandits.service.protocols import ofrep
from invariant_bandits.service.protocols.personalizer import bodies as personalizer_errors
from invariant_bandits.service.protocols.personalizer import routes as personalizer
from invariant_bandits.service.responses import error_response
from invariant_bandits.service.routes import decisions, health, models, openapi

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self';"
    " connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
}
"""Sent with every answer."""

ErrorBody = Callable[[BaseException], Response]
ERROR_BODIES: dict[str, ErrorBody] = {
    "/personalizer": personalizer_errors.error_body,
    "/models/": personalizer_errors.error_body,
    "/ofrep": ofrep.error_body,
}
"""How errors look under a prefix of paths; elsewhere as in version 1."""


class Door:
    """Times every request, answers what fails, and sends the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                there = {name.lower() for name, _ in message["headers"]}
                more = [
                    (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there
                ]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            await self.app(scope, receive, sending)
        except Exception as error:
            if status:
                raise
            await _body_of(scope["path"], error)(scope, receive, sending)
        endpoint = scope.get("endpoint")
        route = getattr(endpoint, "__name__", "none")
        module = getattr(endpoint, "__module__", "").rpartition(".")[2]
        scope["app"].state.service.metrics.count(
            f"{module}.{route}" if module else route, status, time.perf_counter() - began
        )


def _body_of(path: str, error: BaseException) -> Response:
    for prefix, made in ERROR_BODIES.items():
        if path.startswith(prefix):
            return made(error)
    return error_response(error)


async def _raised(request: Request, error: Exception) -> Response:
    return _body_of(request.url.path, error)


def make_app(service: Service, *, lifespan: Any = None) -> Starlette:
    """The application around a service; the engine's views are made for its pages."""
    story = Story()
    service.engine.on_view.append(story)
    service.engine.on_event.append(story.take)
    service.metrics.show(lambda: service.engine.view)
    routes = [*health.ROUTES, *decisions.ROUTES, *models.ROUTES, *openapi.ROUTES, *health.PAGE_ROUTES]
    routes += [*ofrep.ROUTES, *personalizer.ROUTES]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _raised}, lifespan=lifespan)
    app.state.service = service
    app.add_middleware(Door)
    return app

"""Is it there, can it serve, what are its figures."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.http import answer


async def healthy(request: Request) -> Response:
    """200 as soon as it serves."""
    return answer({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 if decisions can be made and stored, else 503."""
    service: Service = request.app.state.service
    engine = service.engine
    if engine.failure is not None or not engine.available:
        return answer({"status": "unavailable", "why": str(engine.failure or "the store cannot take events")}, 503)
    return answer({"status": "ready", "set_aside": len(engine.state.aside)})


async def metrics(request: Request) -> Response:
    """Figures in the text form of Prometheus."""
    service = service_of(request, "read")
    text = service.metrics.text(service.engine.view)
    return PlainTextResponse(text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


ROUTES = [
    Route("/healthz", healthy, methods=["GET"]),
    Route("/readyz", ready, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]

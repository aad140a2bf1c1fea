"""Is it there, can it serve, what are its figures."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits import __version__
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.responses import RefusedError, answer


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
    return Response(service.metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


ROUTES = [
    Route("/healthz", healthy, methods=["GET"]),
    Route("/readyz", ready, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]


KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FILES = {
    one.name: (one.read_bytes(), KINDS[one.name.rpartition(".")[2]])
    for one in files("invariant_bandits.service").joinpath("page").iterdir()
    if one.name.rpartition(".")[2] in KINDS
}
"""Everything the page is made of, read once: no path of a request reaches the file system."""


async def page(request: Request) -> Response:
    """The page; it asks for a token itself if one is needed."""
    body, kind = FILES["index.html"]
    return Response(body, media_type=kind)


async def part(request: Request) -> Response:
    """A file that the page is made of."""
    if request.path_params["name"] not in FILES:
        raise RefusedError(404, "there is no such file")
    body, kind = FILES[request.path_params["name"]]
    return Response(body, media_type=kind)


async def overview(request: Request) -> Response:
    """What was last seen of the service and of one model, the first one if none is named."""
    service = service_of(request, "read")
    view, failure = service.engine.view, service.engine.failure
    models: dict[str, Any] = view.get("models", {})
    name = request.query_params.get("model") or ("default" if "default" in models else next(iter(models), None))
    if name is not None and name not in models:
        raise RefusedError(404, f"model: {name!r} is not served", "model")
    return answer(
        {
            "service": {
                "version": __version__,
                "time": view.get("time"),
                "since": view.get("since"),
                "events": view.get("seq", 0),
                "available": bool(view.get("available", True)) and failure is None,
                "failure": None if failure is None else str(failure),
                "latencies": service.metrics.latencies(),
                "may_change": not service.access.tokens or request.state.who.startswith("admin"),
            },
            "models": {one: {"alarm": bool(told["about"].get("alarm"))} for one, told in models.items()},
            "name": name,
            "model": None if name is None else models[name],
        }
    )


PAGE_ROUTES = [
    Route("/", page, methods=["GET"]),
    Route("/page/{name}", part, methods=["GET"]),
    Route("/v1/overview", overview, methods=["GET"]),
]

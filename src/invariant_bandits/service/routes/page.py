"""The page at /, and what it shows; it reads views, and so never waits for the engine nor holds it up."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits import __version__
from invariant_bandits.service.application import service_of
from invariant_bandits.service.http import RefusedError, answer

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


ROUTES = [
    Route("/", page, methods=["GET"]),
    Route("/page/{name}", part, methods=["GET"]),
    Route("/v1/overview", overview, methods=["GET"]),
]

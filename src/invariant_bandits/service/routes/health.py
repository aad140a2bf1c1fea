"""Whether the service lives and can serve, its metrics, its page, and what the page shows."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from starlette.responses import Response

from invariant_bandits import __version__
from invariant_bandits.service.operations import Call, Operation
from invariant_bandits.service.responses import RefusedError, json_response

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FILES = {
    file.name: (file.read_bytes(), KINDS[file.name.rpartition(".")[2]])
    for file in files("invariant_bandits.service").joinpath("page").iterdir()
    if file.name.rpartition(".")[2] in KINDS
}
"""Everything the page is made of, read once: no path of a request reaches the file system."""


async def healthy(call: Call) -> dict[str, str]:
    """Say that the service lives."""
    return {"status": "ok"}


async def ready(call: Call) -> Any:
    """Say whether decisions can be made and stored."""
    engine = call.service.engine
    if engine.failure is not None or not engine.available:
        why = str(engine.failure or "the store cannot take events")
        return json_response({"status": "unavailable", "why": why}, 503)
    return {"status": "ready", "set_aside": len(engine.state.aside)}


async def metrics(call: Call) -> Response:
    """Show metrics in the text format of Prometheus."""
    return Response(call.service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def page(call: Call) -> Response:
    """Show the page, or a file that it is made of; the page asks for a token itself if one is needed."""
    name = call.path.get("name", "index.html")
    if name not in FILES:
        raise RefusedError(404, "there is no such file")
    content, kind = FILES[name]
    return Response(content, media_type=kind)


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


OPERATIONS = (
    Operation("GET", "/healthz", None, healthy),
    Operation("GET", "/readyz", None, ready),
    Operation("GET", "/v1/overview", "read", overview, query=("model",)),
)
PAGE_OPERATIONS = (
    Operation("GET", "/metrics", "read", metrics),
    Operation("GET", "/", None, page),
    Operation("GET", "/page/{name}", None, page),
)
"""What browsers and Prometheus ask for."""

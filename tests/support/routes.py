"""Every route of an application, also of those that are mounted in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from starlette.routing import BaseRoute, Mount, Route


def routes_of(app: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield the whole path of every route, and its methods."""
    yield from _within(app.routes, "")


def _within(routes: Iterable[BaseRoute], prefix: str) -> Iterator[tuple[str, set[str]]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _within(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            yield prefix + route.path, set(route.methods or ())

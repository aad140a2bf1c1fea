"""What a model keeps under names: made, found, listed and removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service import work
from invariant_bandits.service.application import Service
from invariant_bandits.service.batches import Batch, Work
from invariant_bandits.service.events import Kept
from invariant_bandits.service.http import answer
from invariant_bandits.service.protocols.personalizer.doors import door_of
from invariant_bandits.service.protocols.personalizer.errors import ProtocolError
from invariant_bandits.service.state import NotFoundError, State

MOST_KEPT = 1_000
"""So many notes may a model have."""


def kept_under(model: str, name: str, value: dict[str, Any] | None, by: str) -> Work:
    """Keep something under a name, or (None) no longer; to be done alone."""

    def kept(state: State, batch: Batch) -> None:
        notes = state.model(model).kept
        if value is None and name not in notes:
            raise NotFoundError(f"id: {name!r} is not known")
        if value is not None and name not in notes and len(notes) >= MOST_KEPT:
            raise InputError(f"id: at most {MOST_KEPT:,} can be kept; delete some")
        batch.add(state, [Kept(batch.tick(), model, name, value, by)])

    return kept


async def found(service: Service, model: str, kind: str, id: str, missing: str) -> dict[str, Any]:
    """What is kept of this kind under an id, or the protocol's name for what is missing."""
    told = await service.engine.submit(work.inspect(lambda state: state.model(model).kept.get(kind + id)))
    if told is None:
        raise ProtocolError(404, missing, f"id: {id!r} is not known", "id")
    return dict(told)


async def listed(
    service: Service, model: str, kind: str, request: Request, about: Callable[[dict[str, Any]], dict[str, Any]]
) -> Response:
    """All that is kept of this kind, as `skip` and `top` ask; plain lists where the version is in the path."""
    kept = await service.engine.submit(work.inspect(lambda state: dict(state.model(model).kept)))
    told = [about(value) for name, value in kept.items() if name.startswith(kind)]
    skip, top = (_count(request.query_params.get(name), other) for name, other in (("skip", 0), ("top", len(told))))
    told = told[skip : skip + top]
    return answer(told if door_of(request).versioned else {"value": told})


def _count(given: str | None, otherwise: int) -> int:
    if given is None:
        return otherwise
    if not given.isdecimal() or len(given) > 9:
        raise ProtocolError(400, "InvalidRequest", f"skip, top: must be whole numbers, got {given[:20]!r}")
    return int(given)


async def removed(service: Service, model: str, kind: str, request: Request, missing: str) -> None:
    """Keep it no longer."""
    id = request.path_params["id"]
    try:
        await service.engine.submit(kept_under(model, kind + id, None, request.state.who), alone=True)
    except NotFoundError:
        raise ProtocolError(404, missing, f"id: {id!r} is not known", "id") from None
    service.audit(request.state.who, f"deleted {kind}{id!r} of {model}")

"""Decisions and rewards."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from invariant_bandits.service import commands
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.commands import DecisionCommand, RewardCommand
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.events import Decided, decision_key, decode_event
from invariant_bandits.service.responses import (
    RefusedError,
    answer,
    check_id,
    check_values,
    has_field,
    parsed,
    read_body,
)
from invariant_bandits.service.routes.shapes import (
    Arm,
    DecisionAnswer,
    DecisionBatch,
    DecisionRequest,
    RewardAnswer,
    RewardBatch,
    RewardRequest,
)
from invariant_bandits.service.state import Record, record_of


async def decide(request: Request) -> Response:
    """One decision, or several under "decisions"."""
    service = service_of(request, "decide")
    body = await read_body(request, service.limits)
    if has_field(body, "decisions"):
        many = parsed(body, DecisionBatch)
        _check_batch(len(many.decisions), service, "decisions")
        asked = [_asked(one, service) for one in many.decisions]
        decided = await service.engine.submit(commands.all_or_none(asked))
        return answer({"decisions": [_told(one) for one in decided]})
    decision = await service.engine.submit(_asked(parsed(body, DecisionRequest), service))
    return answer(_told(decision))


async def reward(request: Request) -> Response:
    """One reward, or several under "rewards"."""
    service = service_of(request, "decide")
    body = await read_body(request, service.limits)
    if has_field(body, "rewards"):
        many = parsed(body, RewardBatch)
        _check_batch(len(many.rewards), service, "rewards")
        given = [_given(one) for one in many.rewards]
        statuses = await service.engine.submit(commands.all_or_none(given))
        return answer({"rewards": [RewardAnswer(one.id, how) for one, how in zip(given, statuses, strict=True)]})
    one = _given(parsed(body, RewardRequest))
    return answer(RewardAnswer(one.id, await service.engine.submit(one)))


async def activate(request: Request) -> Response:
    """A deferred decision was shown."""
    service = service_of(request, "decide")
    id = check_id(request.path_params["id"])
    first = await service.engine.submit(commands.activate(id, request.query_params.get("model")))
    return answer({"id": id, "status": "activated" if first else "unchanged"})


async def look_up(request: Request) -> Response:
    """A decision and everything that became of it."""
    service = service_of(request, "read")
    id = check_id(request.path_params["id"])
    model = request.query_params.get("model")
    if model is not None:
        service.engine.state.model(model)
    found = await service.aside(_decisions, service.engine, id, model)
    if len(found) > 1:
        names = ", ".join(sorted(one["model"] for one in found))
        raise RefusedError(409, f"model: the id {id!r} could be one of {names}; name the model", "model")
    if not found:
        raise RefusedError(404, f"id: decision {id!r} is not known", "id")
    return answer(found[0])


def _decisions(engine: Engine, id: str, model: str | None) -> list[dict[str, Any]]:
    """What the store tells of decisions under an id: that of a model, or those of all."""
    store, aside = engine.store, engine.state.aside
    keys = store.keys_from(decision_key(id)) if model is None else [decision_key(id, model)]
    rows = [[row for row in store.of_key(key) if row.seq not in aside] for key in keys]
    records = [record_of(decode_event(row.event) for row in those) for those in rows]
    return [_whole(one, one.decided) for one in records if one is not None and one.decided is not None]


def _asked(one: DecisionRequest, service: Service) -> DecisionCommand:
    if one.id is not None:
        check_id(one.id)
    check_values(one.context, service.limits, "context")
    labels, actions = offered(one.arms, service)
    return DecisionCommand(one.model, one.context, labels, actions, one.id, one.scores, one.defer)


def offered(arms: list[Arm] | None, service: Service) -> tuple[list[str], list[Any] | None]:
    """Labels of offered arms, and what is known of each; arms are all named or all rows."""
    if arms is None:
        return [], None
    if len(arms) > service.limits.arms:
        raise RefusedError(422, f"arms: at most {service.limits.arms} can be offered, got {len(arms)}", "arms")
    check_values(arms, service.limits, "arms")
    if all(isinstance(one, str) for one in arms):
        return [str(one) for one in arms], None
    if all(isinstance(one, dict) and set(one) <= {"label", "features"} and "label" in one for one in arms):
        named = [one for one in arms if isinstance(one, dict)]
        labels = [one["label"] for one in named]
        if not all(isinstance(label, str) for label in labels):
            raise RefusedError(422, "arms: a label must be a text", "arms")
        rows = [one.get("features") for one in named]
        return labels, rows if any(row is not None for row in rows) else None
    if any(isinstance(one, str) for one in arms):
        raise RefusedError(422, "arms: must be all labels, or all rows of features", "arms")
    return [], list(arms)


def _given(one: RewardRequest) -> RewardCommand:
    return RewardCommand(check_id(one.id), one.value, one.key, one.model)


def _check_batch(count: int, service: Service, field: str) -> None:
    if count > service.limits.batch:
        raise RefusedError(422, f"{field}: at most {service.limits.batch} can be sent at once, got {count}", field)


def _told(one: Decided) -> DecisionAnswer:
    names = one.labels or [str(place) for place in range(len(one.propensities))]
    return DecisionAnswer(
        one.id,
        one.labels[one.place] if one.labels else one.place,
        one.propensities[one.place],
        one.version,
        one.model,
        None if one.means is None else dict(zip(names, one.means, strict=True)),
        one.deferred,
    )


def _whole(record: Record, one: Decided) -> dict[str, Any]:
    closed = record.closed
    told: dict[str, Any] = {
        "id": one.id,
        "action": one.labels[one.place] if one.labels else one.place,
        "propensity": one.propensities[one.place],
        "version": one.version,
        "model": one.model,
        "time": one.time,
        "context": one.context,
        "arms": one.labels or one.actions,
        "propensities": one.propensities,
        "deferred": one.deferred,
        "activated": record.activated,
        "rewards": [{"value": each.value, "time": each.time, "fate": each.fate} for each in record.rewards],
        "settled": None if closed is None else {"value": closed.value, "why": closed.why, "time": closed.time},
    }
    return told


ROUTES = [
    Route("/v1/decisions", decide, methods=["POST"]),
    Route("/v1/rewards", reward, methods=["POST"]),
    Route("/v1/decisions/{id:path}/activate", activate, methods=["POST"]),
    Route("/v1/decisions/{id:path}", look_up, methods=["GET"]),
]

"""Decisions and rewards: bodies, answers and handlers of version 1."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from invariant_bandits_service import commands, history, replay, responses
from invariant_bandits_service.commands import (
    DecisionCommand,
    RewardCommand,
    all_or_none,
)
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.events import Decided, decision_key, decode_event
from invariant_bandits_service.learners import MOST_OFFERED
from invariant_bandits_service.operations import Call, ModelQuery, operation
from invariant_bandits_service.responses import (
    RefusedError,
    check_count,
    check_id,
    check_values,
)
from invariant_bandits_service.settings import MODEL_NAME
from invariant_bandits_service.state import Record, StateView, record_of

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Name = Annotated[str, msgspec.Meta(pattern=MODEL_NAME)]
Number = Annotated[float, msgspec.Meta(ge=-responses.LARGEST, le=responses.LARGEST)]
Arm = str | dict[str, Any] | list[Number]
"""A label, {"label": ..., "features": {...}}, or a row of features by name or in their order."""


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A context and what is offered; without arms, all registered ones are."""

    context: dict[str, Any] | None = None
    arms: Annotated[list[Arm], msgspec.Meta(min_length=1)] | None = None
    id: Id | None = None
    model: Name | None = None
    scores: bool = False
    defer: bool = False
    unit: Id | None = None
    """Who is decided about: the holdout goes by it."""

    def command(self, model: str) -> DecisionCommand:
        """Return the command, within the limits; `model` is meant if none is named."""
        if self.id is not None:
            check_id(self.id)
        check_values(self.context, "context")
        labels, actions = offer(self.arms)
        return DecisionCommand(
            model=self.model or model,
            context=self.context,
            labels=labels,
            actions=actions,
            id=self.id,
            deferred=self.defer,
            unit=self.unit,
        )

    def answer(self, event: Decided) -> DecisionAnswer:
        """Return the answer about the decision; expected rewards only if they were asked for."""
        return DecisionAnswer(
            id=event.id,
            action=event.action,
            propensity=event.propensity,
            version=event.version,
            model=event.model,
            scores=_scores(event) if self.scores else None,
            deferred=event.deferred,
        )


class DecisionBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several of them, all or none."""

    decisions: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1)]


class DecisionAnswer(msgspec.Struct, omit_defaults=True):
    """What was decided."""

    id: str
    action: str | int
    """The label of an arm, or the index of a row."""
    propensity: float
    version: str
    model: str
    scores: dict[str, float] | None = None
    deferred: bool = False


class RewardRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The reward of a decision; `key` tells a repeated call from a further reward where several are added up.

    Without a model, the only one that has decided under the id is meant.
    """

    id: Id
    value: float
    key: Id | None = None
    model: Name | None = None

    def command(self, model: str | None) -> RewardCommand:
        """Return the command; `model` is that of the query, if it names one."""
        return RewardCommand(
            check_id(self.id), self.value, self.key, self.model or model
        )

    def answer(self, status: str, view: StateView) -> RewardAnswer:
        """Return what became of it; a policy may have refused what was to be learned."""
        models = view.models if self.model is None else [self.model]
        if status == "learned":
            for model in models:
                if view.was_refused(self.id, model):
                    status = "refused"
        return RewardAnswer(self.id, status)


class RewardBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several rewards, all or none."""

    rewards: Annotated[list[RewardRequest], msgspec.Meta(min_length=1)]


class RewardAnswer(msgspec.Struct):
    """What became of it: learned, refused by the policy, waiting, unchanged, late, unknown, kept."""

    id: str
    status: str


def offer(arms: list[Arm] | None) -> tuple[list[str], list[Any] | None]:
    """Return labels of offered arms, and what is known of each; arms are all named or all rows."""
    if arms is None:
        return [], None
    check_count(arms, MOST_OFFERED, "arms", "offered")
    # the type of the field has checked that rows hold numbers within their bounds
    if all(isinstance(arm, list) for arm in arms):
        return [], list(arms)
    check_values(arms, "arms")
    if all(isinstance(arm, str) for arm in arms):
        return [str(arm) for arm in arms], None
    labels: list[Any] = []
    rows: list[Any] = []
    for arm in arms:
        if not isinstance(arm, dict) or "label" not in arm:
            break
        if set(arm) <= {"label", "features"}:
            labels.append(arm["label"])
            rows.append(arm.get("features"))
    if len(labels) == len(arms):
        if not all(isinstance(label, str) for label in labels):
            raise RefusedError(422, "arms: a label must be a string")
        has_features = any(row is not None for row in rows)
        return labels, rows if has_features else None
    if any(isinstance(arm, str) for arm in arms):
        raise RefusedError(422, "arms: must be all labels, or all rows of features")
    return [], list(arms)


DECISIONS = (DecisionAnswer, "decisions")


@operation(
    "POST",
    "/v1/decisions",
    "decide",
    DecisionRequest,
    DecisionBatch,
    answer=DECISIONS,
    query=ModelQuery,
)
async def decide(call: Call, body: DecisionRequest | DecisionBatch) -> Any:
    """Decide, once or many times."""
    if isinstance(body, DecisionRequest):
        return body.answer(await call.submit(body.command(call.model)))
    requests = body.decisions
    check_count(requests, responses.MOST_TOGETHER, "decisions")
    call.charge(len(requests) - 1)
    decided = await call.submit(
        all_or_none([request.command(call.model) for request in requests])
    )
    return {
        "decisions": [
            request.answer(event)
            for request, event in zip(requests, decided, strict=True)
        ]
    }


@operation(
    "POST",
    "/v1/rewards",
    "decide",
    RewardRequest,
    RewardBatch,
    answer=(RewardAnswer, "rewards"),
    query=ModelQuery,
)
async def reward(call: Call, body: RewardRequest | RewardBatch) -> Any:
    """Report rewards."""
    model = call.query.get("model")
    if isinstance(body, RewardRequest):
        status = await call.submit(body.command(model))
        return body.answer(status, call.engine.view())
    check_count(body.rewards, responses.MOST_TOGETHER, "rewards")
    call.charge(len(body.rewards) - 1)
    statuses = await call.submit(
        all_or_none([request.command(model) for request in body.rewards])
    )
    view = call.engine.view()
    answers = []
    for request, status in zip(body.rewards, statuses, strict=True):
        answers.append(request.answer(status, view))
    return {"rewards": answers}


class ErasureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whose decisions are erased: those with exactly this text as their id, or as a value they hold."""

    person: Annotated[str, msgspec.Meta(min_length=3, max_length=1_024)]


@operation("POST", "/v1/erasures", "admin", ErasureRequest)
async def erase(call: Call, body: ErasureRequest) -> dict[str, Any]:
    """Erase all decisions about a person; `left_in` names models that were fitted to logs with this text."""
    store = call.engine.store
    searched = call.engine.view().seq
    first = store.start().seq
    found = await call.in_thread(
        lambda: list(
            history.decisions_that_mention(store, body.person, first, searched)
        )
    )
    command = commands.erase(
        found, text=body.person, searched=searched, by=call.caller.name
    )
    erased = await call.change(command, "erased {} events about a person")
    left = await call.look(lambda state: state.versions_with(body.person))
    return {"events": erased, "left_in": left}


@operation("POST", "/v1/decisions/{id:path}/activate", "decide", query=ModelQuery)
async def activate(call: Call) -> dict[str, str]:
    """Say that a deferred decision was shown."""
    id = check_id(call.path["id"])
    is_first = await call.submit(commands.activate(id, call.query.get("model")))
    return {"id": id, "status": "activated" if is_first else "unchanged"}


@operation("GET", "/v1/decisions/{id:path}", "read", query=ModelQuery)
async def look_up(call: Call) -> dict[str, Any]:
    """Show a decision and what became of it."""
    id = check_id(call.path["id"])
    model = call.query.get("model")
    if model is not None:
        call.engine.view().model(model)
    decisions = await call.in_thread(_decisions, call.engine, id, model)
    if len(decisions) > 1:
        names = ", ".join(sorted(decision["model"] for decision in decisions))
        raise RefusedError(
            409,
            f"model: {names} have all decided under the id {id!r}; name one of them",
        )
    if not decisions:
        raise RefusedError(404, f"id: decision {id!r} is not known")
    return decisions[0]


def _decisions(engine: Engine, id: str, model: str | None) -> list[dict[str, Any]]:
    """Return what the store knows of decisions under an id: that of a model, or those of all."""
    keys: Iterable[str] = [decision_key(id, model or "")]
    if model is None:
        keys = engine.store.keys_from(decision_key(id))
    decisions = []
    for key in keys:
        record = _record(engine, key)
        if record is not None and record.decided is not None:
            decisions.append(_shown(engine, record, record.decided))
    return decisions


def _record(engine: Engine, key: str) -> Record | None:
    """Return what the store knows under a key."""
    aside = engine.view().aside
    events = []
    for row in engine.store.of_key(key):
        if row.seq not in aside:
            events.append(decode_event(row.event))
    return record_of(events)


def _scores(event: Decided) -> dict[str, float] | None:
    """Return the expected rewards by label or index."""
    names = event.labels or map(str, range(len(event.propensities)))
    return None if event.means is None else dict(zip(names, event.means, strict=True))


def _status(engine: Engine, record: Record) -> Status:
    if record.closed is None:
        return "waiting" if record.activated else "deferred"
    if record.closed.value is None:
        return "unlearned"
    settled = record.closed
    is_refused = engine.view().was_refused(settled.id, settled.model)
    return "refused" if is_refused else "learned"


def _shown(engine: Engine, record: Record, event: Decided) -> dict[str, Any]:
    """Return everything that is known of a decision."""
    settled = None
    if record.closed is not None:
        settled = record.closed.show("value", "why", "time")
    return {
        "id": event.id,
        "action": event.action,
        "propensity": event.propensity,
        "version": event.version,
        "model": event.model,
        "time": event.time,
        "context": event.context,
        "propensities": event.propensities,
        "deferred": event.deferred,
        "why": event.why,
        "group": event.group,
        "protocol": event.protocol,
        "arms": event.labels or event.actions,
        "features": event.actions if event.labels else None,
        "scores": _scores(event),
        "status": _status(engine, record),
        "activated": record.activated,
        "rewards": [reward.show("value", "time", "fate") for reward in record.rewards],
        "settled": settled,
    }


# -- lists --

Status = Literal["waiting", "deferred", "learned", "unlearned", "refused"]
MOST_SCANNED = 20_000
"""Events that one page of a list is looked for in at a time."""
LONGEST_SEARCH = 2.0
"""Seconds that are spent on a page without a decision; `next` of an empty page goes on from there."""
LARGEST_PAGE = 4 << 20
"""Bytes of the events of one page."""


class DecisionQuery(ModelQuery):
    """Which decisions are listed."""

    arm: Annotated[
        str | None,
        msgspec.Meta(description="Label of the chosen arm, or index of the chosen row"),
    ] = None
    status: Annotated[
        Status | None, msgspec.Meta(description="What became of the decision")
    ] = None
    search: Annotated[
        str | None,
        msgspec.Meta(description="Text in the id, the chosen arm or the context"),
    ] = None
    since: Annotated[
        str | None,
        msgspec.Meta(description="From this time on: ISO 8601, or seconds since 1970"),
    ] = None
    until: Annotated[str | None, msgspec.Meta(description="Before this time")] = None
    before: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="Number of an event: `next` of a page"),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50

    def takes(self, event: Decided, since: float, until: float) -> bool:
        """Return whether a decision is one of those, as far as it says itself."""
        if not since <= event.time < until:
            return False
        if self.model not in (None, event.model):
            return False
        if self.arm not in (None, str(event.action)):
            return False
        return (self.search or "") in f"{event.id}\n{event.action}\n{event.context}"


@operation("GET", "/v1/decisions", "read", query=DecisionQuery)
async def list_decisions(call: Call) -> dict[str, Any]:
    """List decisions, the latest first; `next` of a page, also an empty one, is `before` of the next."""
    query = responses.decode(call.query, DecisionQuery)
    return await call.in_thread(_page, call.engine, query)


def _page(engine: Engine, query: DecisionQuery) -> dict[str, Any]:
    store = engine.store
    since = -math.inf if query.since is None else _seconds(query.since, "since")
    until = math.inf if query.until is None else _seconds(query.until, "until")
    first = store.start().seq
    end = store.head().seq
    end = end if query.before is None else min(end, query.before)
    from_time = replay.first_event_since(store, since, first, end)
    end = replay.first_event_since(store, until, first, end)
    latest = time.monotonic() + LONGEST_SEARCH
    while True:
        lowest = max(from_time, end - MOST_SCANNED)
        page = _decisions_between(engine, query, (lowest, end), (since, until))
        is_last = lowest <= from_time
        if page["decisions"] or is_last or time.monotonic() > latest:
            break
        end = lowest
    if page["next"] is None and not is_last:
        page["next"] = lowest
    return page


def _decisions_between(
    engine: Engine,
    query: DecisionQuery,
    events: tuple[int, int],
    times: tuple[float, float],
) -> dict[str, Any]:
    """Return a page of decisions between two events and two times; `next` if there may be more."""
    store = engine.store
    decisions: list[dict[str, Any]] = []
    size = 0
    text = (query.search or "").encode()
    for row, event in history.latest_decisions(store, *events, text):
        wanted = row.seq not in engine.view().aside and query.takes(event, *times)
        record = _record(engine, str(row.key)) if wanted else None
        if record is None or query.status not in (None, _status(engine, record)):
            continue
        decisions.append({"seq": row.seq, **_shown(engine, record, event)})
        size += len(row.body)
        if len(decisions) >= query.limit or size > LARGEST_PAGE:
            return {"decisions": decisions, "next": row.seq}
    return {"decisions": decisions, "next": None}


def _seconds(text: str, field: str) -> float:
    """Return seconds since 1970 of a time in ISO 8601, or in seconds."""
    try:
        return float(text)
    except ValueError:
        return responses.seconds_of(text, field)

"""Decisions and rewards: bodies, answers and handlers of version 1."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from invariant_bandits.service import commands, responses
from invariant_bandits.service.commands import DecisionCommand, RewardCommand, all_or_none
from invariant_bandits.service.engine import Engine
from invariant_bandits.service.events import Decided, decision_key, decode_event
from invariant_bandits.service.operations import Call, operation
from invariant_bandits.service.responses import RefusedError, check_count, check_id, check_values
from invariant_bandits.service.state import Record, record_of

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Arm = str | dict[str, Any] | list[float]
"""A label, {"label": ..., "features": {...}}, or a row of features by name or by place."""


class DecisionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A context and what is offered; without arms, all registered ones are."""

    context: dict[str, Any] | None = None
    arms: Annotated[list[Arm], msgspec.Meta(min_length=1)] | None = None
    id: Id | None = None
    model: Name = "default"
    scores: bool = False
    defer: bool = False

    def command(self) -> DecisionCommand:
        """Return the command, within the limits."""
        if self.id is not None:
            check_id(self.id)
        check_values(self.context, "context")
        labels, actions = offer(self.arms)
        return DecisionCommand(self.model, self.context, labels, actions, self.id, self.scores, self.defer)


class DecisionBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several of them, all or none."""

    decisions: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1)]


class DecisionAnswer(msgspec.Struct, omit_defaults=True):
    """What was decided."""

    id: str
    action: str | int
    """The label of an arm, or the place of a row."""
    propensity: float
    version: str
    model: str
    scores: dict[str, float] | None = None
    deferred: bool = False

    @classmethod
    def of(cls, event: Decided) -> DecisionAnswer:
        """Return the answer about a decision."""
        names = event.labels or [str(place) for place in range(len(event.propensities))]
        scores = None if event.means is None else dict(zip(names, event.means, strict=True))
        about = (event.version, event.model, scores, event.deferred)
        return cls(event.id, event.action, event.propensity, *about)


class RewardRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The reward of a decision; `key` tells a repeated call from a further reward where several are added up.

    Without a model, the only one that has decided under the id is meant.
    """

    id: Id
    value: float
    key: Id | None = None
    model: Name | None = None

    def command(self) -> RewardCommand:
        """Return the command."""
        return RewardCommand(check_id(self.id), self.value, self.key, self.model)


class RewardBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several rewards, all or none."""

    rewards: Annotated[list[RewardRequest], msgspec.Meta(min_length=1)]


class RewardAnswer(msgspec.Struct):
    """What became of it: learned, waiting, unchanged, late, unknown, kept or ignored."""

    id: str
    status: str


def offer(arms: list[Arm] | None) -> tuple[list[str], list[Any] | None]:
    """Return labels of offered arms, and what is known of each; arms are all named or all rows."""
    if arms is None:
        return [], None
    check_count(arms, responses.MOST_ARMS, "arms", "offered")
    check_values(arms, "arms")
    if all(isinstance(arm, str) for arm in arms):
        return [str(arm) for arm in arms], None
    named = [arm for arm in arms if isinstance(arm, dict) and "label" in arm]
    if len(named) == len(arms) and all(set(arm) <= {"label", "features"} for arm in named):
        labels, rows = [arm["label"] for arm in named], [arm.get("features") for arm in named]
        if not all(isinstance(label, str) for label in labels):
            raise RefusedError(422, "arms: a label must be a text")
        return labels, rows if any(row is not None for row in rows) else None
    if any(isinstance(arm, str) for arm in arms):
        raise RefusedError(422, "arms: must be all labels, or all rows of features")
    return [], list(arms)


DECISIONS = (DecisionAnswer, "decisions")


@operation("POST", "/v1/decisions", "decide", DecisionRequest, DecisionBatch, answer=DECISIONS)
async def decide(call: Call, body: DecisionRequest | DecisionBatch) -> Any:
    """Decide, once or many times."""
    if isinstance(body, DecisionRequest):
        return DecisionAnswer.of(await call.submit(body.command()))
    check_count(body.decisions, responses.MOST_TOGETHER, "decisions")
    events = await call.submit(all_or_none([request.command() for request in body.decisions]))
    return {"decisions": [DecisionAnswer.of(event) for event in events]}


@operation("POST", "/v1/rewards", "decide", RewardRequest, RewardBatch, answer=(RewardAnswer, "rewards"))
async def reward(call: Call, body: RewardRequest | RewardBatch) -> Any:
    """Report rewards."""
    if isinstance(body, RewardRequest):
        return RewardAnswer(body.id, await call.submit(body.command()))
    check_count(body.rewards, responses.MOST_TOGETHER, "rewards")
    statuses = await call.submit(all_or_none([request.command() for request in body.rewards]))
    ids = [request.id for request in body.rewards]
    return {"rewards": list(map(RewardAnswer, ids, statuses))}


@operation("POST", "/v1/decisions/{id:path}/activate", "decide", query=("model",))
async def activate(call: Call) -> dict[str, str]:
    """Say that a deferred decision was shown."""
    id = check_id(call.path["id"])
    is_first = await call.submit(commands.activate(id, call.query.get("model")))
    return {"id": id, "status": "activated" if is_first else "unchanged"}


@operation("GET", "/v1/decisions/{id:path}", "read", query=("model",))
async def look_up(call: Call) -> dict[str, Any]:
    """Show a decision and what became of it."""
    id, model = check_id(call.path["id"]), call.query.get("model")
    if model is not None:
        call.service.engine.state.model(model)
    decisions = await call.in_thread(_decisions, call.service.engine, id, model)
    if len(decisions) > 1:
        names = ", ".join(sorted(decision["model"] for decision in decisions))
        raise RefusedError(409, f"model: the id {id!r} could be one of {names}; name the model")
    if not decisions:
        raise RefusedError(404, f"id: decision {id!r} is not known")
    return decisions[0]


def _decisions(engine: Engine, id: str, model: str | None) -> list[dict[str, Any]]:
    """Return what the store knows of decisions under an id: that of a model, or those of all."""
    store, aside = engine.store, engine.state.aside
    keys = store.keys_from(decision_key(id)) if model is None else [decision_key(id, model)]
    rows = [[row for row in store.of_key(key) if row.seq not in aside] for key in keys]
    records = [record_of(decode_event(row.event) for row in those) for those in rows]
    return [_whole(record, record.decided) for record in records if record and record.decided]


def _whole(record: Record, event: Decided) -> dict[str, Any]:
    shown = ("id", "action", "propensity", "version", "model", "time", "context", "propensities", "deferred")
    return {
        **event.show(*shown),
        "arms": event.labels or event.actions,
        "activated": record.activated,
        "rewards": [reward.show("value", "time", "fate") for reward in record.rewards],
        "settled": None if record.closed is None else record.closed.show("value", "why", "time"),
    }

"""Models: what they believe, their arms, versions and rules; uploads by administrators."""

from __future__ import annotations

from typing import Any

import msgspec

from invariant_bandits.model.model import Model
from invariant_bandits.service import commands
from invariant_bandits.service.background import Learning
from invariant_bandits.service.dashboard import exploration_of, versions_of
from invariant_bandits.service.learners import FittedLearner, OpenLearner
from invariant_bandits.service.operations import Call, operation
from invariant_bandits.service.responses import RefusedError, check_values
from invariant_bandits.service.routes.decisions import Id, Name
from invariant_bandits.service.settings import Configuration
from invariant_bandits.service.state import ServedModel, State
from invariant_bandits.storage import FileError

MOST_LISTED = 20
"""Events that could not be applied, the latest, that a model shows."""
UPLOAD = ("note", "activate", "allow_differences")


class ArmRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new arm, described by the columns of the catalogue where there is one."""

    label: Id
    features: dict[str, Any] | None = None


class ModelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new empty model: its arms, and the columns its contexts have; without columns it takes what comes."""

    name: Name
    arms: list[Id] = []
    columns: list[Id] | None = None


@operation("GET", "/v1/model", "read")
async def show(call: Call) -> dict[str, Any]:
    """Show what a model is, believes and has seen, with a hash over its whole state."""

    def about(state: State) -> dict[str, Any]:
        served, aside = state.model(call.model), sorted(state.aside)[-MOST_LISTED:]
        return {
            "model": served.name,
            "version": served.version,
            "state_hash": served.state_hash(),
            "rounds": served.learner.rounds,
            "counts": msgspec.to_builtins(served.counts),
            "waiting": len(served.waiting),
            "set_aside": [{"event": seq, "why": state.aside[seq]} for seq in aside],
            "configuration": served.configuration,
            "exploration": exploration_of(served),
            "holdout": served.timeline.holdout.uplift(served.configuration),
            **served.learner.about(),
        }

    return await call.look(about)


@operation("GET", "/v1/models", "read")
async def list_models(call: Call) -> dict[str, Any]:
    """List all models and their active versions."""
    versions = await call.look(lambda state: {name: served.version for name, served in state.models.items()})
    return {"models": [{"model": name, "version": version} for name, version in versions.items()]}


@operation("POST", "/v1/models", "admin", ModelRequest, bytes, status=201)
async def make(call: Call, body: ModelRequest | bytes) -> dict[str, str]:
    """Make an empty model, or one from a model file."""
    if isinstance(body, bytes):
        call.model = call.query.get("model", "default")  # not the one that is served
        return {"model": call.model, "version": await _add(call, body, first=True, active=True)}
    learner = OpenLearner(dict.fromkeys(body.arms, True), body.columns, seed=call.service.engine.store.seed)
    command = commands.add_version(body.name, learner, "empty", by=call.caller, first=True)
    return {"model": body.name, "version": await call.change(command, f"made the empty model {body.name}")}


@operation("POST", "/v1/model/versions", "admin", bytes, status=201, query=UPLOAD)
async def add_version(call: Call, body: bytes) -> dict[str, Any]:
    """Upload a model file as a new version; it decides with activate=true, or once it is activated."""
    active = _flag(call, "activate")
    version = await _add(call, body, active=active, alike=not _flag(call, "allow_differences"))
    return {"model": call.model, "version": version, "active": active}


def _flag(call: Call, name: str) -> bool:
    """Return a query parameter that is true or false; false if it is not given."""
    value = call.query.get(name, "false")
    if value not in ("true", "false"):
        raise RefusedError(422, f"{name}: must be true or false, got {value[:80]!r}")
    return value == "true"


async def _add(call: Call, content: bytes, *, active: bool, first: bool = False, alike: bool = False) -> str:
    """Add a version from a model file, the first one of a new model or a further one of a model
    that exists.
    """
    try:
        model = await call.in_thread(Model.from_bytes, content, "the uploaded file")
    except FileError as error:
        raise RefusedError(422, f"body: {error}") from None
    name, note = call.model, call.query.get("note", "")[:200]
    learner = FittedLearner(model, call.service.engine.store.seed)
    if not first:
        call.service.engine.state.model(call.model)
    command = commands.add_version(
        name, learner, "given", note=note, by=call.caller, active=active, first=first, alike=alike
    )
    version: str = await call.change(command, f"added version {{}} of {name}{', active' if active else ''}")
    return version


@operation("GET", "/v1/model/versions", "read")
async def list_versions(call: Call) -> dict[str, Any]:
    """List all versions, the active one marked."""
    return {"versions": await call.look_at_model(versions_of)}


@operation("POST", "/v1/model/versions/{version}/activate", "admin")
async def activate(call: Call) -> dict[str, str]:
    """Activate a version."""
    command = commands.activate_version(call.model, call.path["version"], why="by hand", by=call.caller)
    version = await call.change(command, f"activated version {{}} of {call.model}")
    return {"model": call.model, "version": version}


@operation("POST", "/v1/model/rollback", "admin")
async def roll_back(call: Call) -> dict[str, str]:
    """Return to the version before."""
    command = commands.roll_back(call.model, by=call.caller)
    version = await call.change(command, f"rolled {call.model} back to version {{}}")
    return {"model": call.model, "version": version}


@operation("POST", "/v1/model/learn", "admin", status=202)
async def learn(call: Call) -> dict[str, Any]:
    """Learn from the model's own history, in the background."""
    learning = _learning(call)
    learning.begin(call.model, call.caller)
    call.audit(f"began to learn {call.model} from its history")
    return {"model": call.model, **learning.outcome(call.model)}


@operation("GET", "/v1/model/learn", "read")
async def show_learning(call: Call) -> dict[str, Any]:
    """Show what became of learning from the model's own history."""
    return {"model": call.model, **_learning(call).outcome(call.model)}


def _learning(call: Call) -> Learning:
    if call.service.learning is None:
        raise RefusedError(503, "this service does not learn in the background")
    call.service.engine.state.model(call.model)
    return call.service.learning


@operation("GET", "/v1/model/arms", "read")
async def list_arms(call: Call) -> dict[str, Any]:
    """List registered arms, whether they are active, and how often each was chosen."""

    def about(served: ServedModel) -> list[dict[str, Any]]:
        plays = served.plays
        labels = served.learner.arms or dict.fromkeys(plays, True)
        return [{"label": label, "active": labels[label], "plays": plays.get(label, 0)} for label in labels]

    return {"arms": await call.look_at_model(about)}


@operation("POST", "/v1/model/arms", "admin", ArmRequest, status=201)
async def add_arm(call: Call, body: ArmRequest) -> dict[str, Any]:
    """Add an arm."""
    check_values(body.features, "features")
    command = commands.change_arms(call.model, body.label, add=True, features=body.features, by=call.caller)
    arms = await call.change(command, f"added an arm to {call.model}")
    return {"label": body.label, "active": arms[body.label]}


@operation("DELETE", "/v1/model/arms/{label:path}", "admin")
async def retire_arm(call: Call) -> dict[str, Any]:
    """Retire an arm: it is never chosen again."""
    label = call.path["label"]
    command = commands.change_arms(call.model, label, add=False, by=call.caller)
    await call.change(command, f"retired an arm of {call.model}")
    return {"label": label, "active": False}


@operation("GET", "/v1/model/configuration", "read", answer=Configuration)
async def show_rules(call: Call) -> Configuration:
    """Show the rules of a model."""
    return await call.look_at_model(lambda served: served.configuration)


@operation("PUT", "/v1/model/configuration", "admin", Configuration, answer=Configuration)
async def change_rules(call: Call, body: Configuration) -> Any:
    """Set the rules of a model; a rule that is not named gets its default."""
    return await call.change(commands.configure(call.model, body, by=call.caller), f"configured {call.model}")

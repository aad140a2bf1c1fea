"""Models: what they believe, their arms, versions and rules; uploads by administrators."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from invariant_bandits.model.model import Model
from invariant_bandits_service import commands
from invariant_bandits_service.background import Learning, catch_up, compare
from invariant_bandits_service.dashboard import summary_of, versions_of
from invariant_bandits_service.learners import (
    FittedLearner,
    Label,
    Learner,
    OpenLearner,
    learner_from_bytes,
)
from invariant_bandits_service.operations import Call, ModelQuery, Value, operation
from invariant_bandits_service.responses import (
    RefusedError,
    check_values,
    decode,
    json_response,
)
from invariant_bandits_service.routes.decisions import Name
from invariant_bandits_service.settings import Configuration, ConfigurationChange
from invariant_bandits_service.state import ServedModel, State

MOST_LISTED = 20
"""Events that could not be applied, the latest, that a model shows."""
TRIALS = ThreadPoolExecutor(1, "trials")
"""Reads and tries uploaded models, one at a time, so that look-ups have their threads."""


class ArmRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new arm, described by the columns of the catalogue where there is one."""

    label: Label
    features: dict[str, Any] | None = None


class ModelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new empty model, and its arms; it takes what contexts bring."""

    model: Name
    arms: list[Label] = []


class LogQuery(ModelQuery):
    """Which model is made, and from which log."""

    log: Annotated[
        str | None,
        msgspec.Meta(
            description="File name of a log that the model is fitted to; says its format"
        ),
    ] = None


class ActivationQuery(msgspec.Struct):
    """Whether a version may differ from the active one."""

    allow_differences: Annotated[
        bool, msgspec.Meta(description="Whether it may refuse what is asked now")
    ] = False


class VersionQuery(ActivationQuery):
    """What is kept with a new version, whether it decides at once, and whether it may differ."""

    note: Annotated[str, msgspec.Meta(description="Kept with the version")] = ""
    activate: Annotated[
        bool, msgspec.Meta(description="Whether the new version decides from now on")
    ] = False


@operation("GET", "/v1/model", "read")
async def show(call: Call) -> dict[str, Any]:
    """Show what a model is, believes and has seen, with a hash over its whole state."""

    def about(state: State) -> dict[str, Any]:
        served = state.model(call.model)
        aside = sorted(state.aside)[-MOST_LISTED:]
        return {
            "model": served.name,
            "state_hash": served.state_hash(),
            "rounds": served.learner.rounds,
            "set_aside": [{"event": seq, "why": state.aside[seq]} for seq in aside],
            **summary_of(served),
            **served.learner.about(),
        }

    return await call.look(about)


@operation("GET", "/v1/models", "read")
async def list_models(call: Call) -> dict[str, Any]:
    """List all models and their active versions."""
    versions = await call.look(
        lambda state: {name: served.version for name, served in state.models.items()}
    )
    return {
        "models": [
            {"model": name, "version": version} for name, version in versions.items()
        ]
    }


@operation(
    "POST",
    "/v1/models",
    "admin",
    ModelRequest,
    bytes,
    status=201,
    query=LogQuery,
)
async def make(call: Call, body: ModelRequest | bytes) -> Any:
    """Make an empty model, one from a model file, or, in the background, one from a log (?log=clicks.csv)."""
    if isinstance(body, ModelRequest):
        learner: Learner = OpenLearner(
            dict.fromkeys(body.arms, True), seed=call.engine.store.seed
        )
        command = commands.add_version(
            body.model, learner, "empty", by=call.caller.name, first=True
        )
        version = await call.change(command, f"made the empty model {body.model}")
        return {"model": body.model, "version": version}
    # the model that is made, by the rule of names: not the one that is meant where none is named
    call.model = decode(
        {"model": call.query.get("model", "default")}, ModelRequest
    ).model
    if call.model in call.engine.view().models:
        raise RefusedError(422, f"model: {call.model!r} exists already")
    if "log" in call.query:
        return await _fit_log(call, body)
    learner = await in_turn(_read, body, call.engine.store.seed)
    command = commands.add_version(
        call.model, learner, "given", by=call.caller.name, first=True
    )
    return {
        "model": call.model,
        "version": await call.change(command, f"made {call.model} from a file"),
    }


async def _fit_log(call: Call, body: bytes) -> Response:
    """Begin to fit a model to a log that was uploaded; the name of the file says its format."""
    name = call.query["log"]
    if not re.fullmatch(
        r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\.[A-Za-z0-9]{1,9}){1,2}", name
    ):
        raise RefusedError(
            422, "log: must be a file name such as clicks.csv; its ending is the format"
        )
    learning = _learning(call)
    path = Path(tempfile.mkdtemp(prefix="invariant-bandits-")) / name
    try:
        await call.in_thread(path.write_bytes, body)
        learning.begin(call.model, call.caller.name, path)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    call.audit(f"began to fit {call.model} to a log")
    return json_response({"model": call.model, **learning.outcome(call.model)}, 202)


def _read(content: bytes, seed: int) -> FittedLearner:
    return FittedLearner(Model.from_bytes(content, "body: the uploaded file"), seed)


async def in_turn(function: Callable[..., Value], *arguments: Any) -> Value:
    """Return what a function returns that takes long: one at a time, in a thread of its own."""
    return await asyncio.get_running_loop().run_in_executor(
        TRIALS, function, *arguments
    )


async def try_version(call: Call, learner: Learner) -> dict[str, Any]:
    """Return what a version would have done with the latest requests.

    RefusedError names the differences if it cannot answer them, unless that is allowed.
    """
    allowed = decode(call.query, ActivationQuery).allow_differences
    report = await in_turn(compare, call.engine, call.model, learner)
    if report["differences"] and not allowed:
        words = f"body: the model differs from what is served: {'; '.join(report['differences'])}"
        raise RefusedError(409, words, differences=report["differences"])
    return report


@operation(
    "POST",
    "/v1/model/versions",
    "admin",
    bytes,
    status=201,
    query=VersionQuery,
)
async def add_version(call: Call, body: bytes) -> dict[str, Any]:
    """Upload a model file as a new version, tried on the latest requests; it decides once it is activated."""
    query = decode(call.query, VersionQuery)
    call.engine.view().model(call.model)
    learner = await in_turn(_read, body, call.engine.store.seed)
    report = await try_version(call, learner)
    about = {
        "note": query.note[:200],
        "by": call.caller.name,
        "evaluation": report["evaluation"],
    }
    command = commands.add_version(
        call.model, learner, "given", active=query.activate, **about
    )
    done = f"added version {{}} of {call.model}{', active' if query.activate else ''}"
    version = await call.change(command, done)
    return {"model": call.model, "version": version, "active": query.activate, **report}


@operation("GET", "/v1/model/versions", "read")
async def list_versions(call: Call) -> dict[str, Any]:
    """List all versions, the active one marked."""
    return {"versions": await call.look_at_model(versions_of)}


@operation(
    "POST",
    "/v1/model/versions/{version}/activate",
    "admin",
    query=ActivationQuery,
)
async def activate(call: Call) -> dict[str, Any]:
    """Activate a version; one that never decided is tried first, and one from the background catches up."""
    version = call.path["version"]
    report: dict[str, Any] = {}
    served = call.engine.view().model(call.model)
    if version in served.versions and version not in served.activations:
        content = await call.look_at_model(
            lambda served: served.learner_of(version).to_bytes()
        )
        kind = served.versions[version].learner
        learner = await in_turn(learner_from_bytes, kind, content, version)
        report = await try_version(call, learner)
        by = call.caller.name
        newer = await in_turn(catch_up, call.engine, call.model, version, by)
        if newer is not None:
            done = f"version {newer} of {call.model}, which is {version} caught up"
            call.audit(f"activated {done}")
            about = {"model": call.model, "version": newer, "caught_up": version}
            return {**about, **report}
    command = commands.activate_version(
        call.model, version, why="by hand", by=call.caller.name
    )
    await call.change(command, f"activated version {{}} of {call.model}")
    return {"model": call.model, "version": version, **report}


@operation("DELETE", "/v1/model/versions/{version}", "admin")
async def remove_version(call: Call) -> dict[str, Any]:
    """Remove a version that does not decide, with what it learned."""
    command = commands.remove_version(
        call.model, call.path["version"], by=call.caller.name
    )
    version = await call.change(command, f"removed version {{}} of {call.model}")
    return {"model": call.model, "version": version, "removed": True}


@operation("DELETE", "/v1/models/{model}", "admin")
async def remove_model(call: Call) -> dict[str, Any]:
    """Remove a model with all its versions; its decisions stay in the store, and its name stays taken."""
    command = commands.remove_model(call.model, by=call.caller.name)
    await call.change(command, "removed the model {}")
    return {"model": call.model, "removed": True}


@operation("POST", "/v1/model/rollback", "admin")
async def roll_back(call: Call) -> dict[str, str]:
    """Return to the version before."""
    command = commands.roll_back(call.model, by=call.caller.name)
    version = await call.change(command, f"rolled {call.model} back to version {{}}")
    return {"model": call.model, "version": version}


@operation("POST", "/v1/model/learn", "admin", status=202)
async def learn(call: Call) -> dict[str, Any]:
    """Learn from the model's own history, in the background."""
    learning = _learning(call)
    call.engine.view().model(call.model)
    learning.begin(call.model, call.caller.name)
    call.audit(f"began to learn {call.model} from its history")
    return {"model": call.model, **learning.outcome(call.model)}


@operation("GET", "/v1/model/learn", "read")
async def show_learning(call: Call) -> dict[str, Any]:
    """Show what became of learning from the model's own history, or from a log that was uploaded."""
    outcome = _learning(call).outcome(call.model)
    if outcome["status"] == "never":
        call.engine.view().model(call.model)
    return {"model": call.model, **outcome}


def _learning(call: Call) -> Learning:
    if call.service.learning is None:
        raise RefusedError(503, "this service does not learn in the background")
    return call.service.learning


@operation("GET", "/v1/model/arms", "read")
async def list_arms(call: Call) -> dict[str, Any]:
    """List registered arms, whether they are active, and how often each was chosen."""

    def about(served: ServedModel) -> list[dict[str, Any]]:
        plays = served.plays
        labels = served.learner.arms or dict.fromkeys(plays, True)
        return [
            {"label": label, "active": labels[label], "plays": plays.get(label, 0)}
            for label in labels
        ]

    return {"arms": await call.look_at_model(about)}


@operation("POST", "/v1/model/arms", "admin", ArmRequest, status=201)
async def add_arm(call: Call, body: ArmRequest) -> dict[str, Any]:
    """Add an arm."""
    check_values(body.features, "features")
    command = commands.change_arms(
        call.model, body.label, add=True, features=body.features, by=call.caller.name
    )
    arms = await call.change(command, f"added an arm to {call.model}")
    return {"label": body.label, "active": arms[body.label]}


@operation("DELETE", "/v1/model/arms/{label:path}", "admin")
async def retire_arm(call: Call) -> dict[str, Any]:
    """Retire an arm: it is never chosen again."""
    label = call.path["label"]
    command = commands.change_arms(call.model, label, add=False, by=call.caller.name)
    await call.change(command, f"retired an arm of {call.model}")
    return {"label": label, "active": False}


@operation("GET", "/v1/model/configuration", "read", answer=Configuration)
async def show_rules(call: Call) -> Configuration:
    """Show the rules of a model."""
    return await call.look_at_model(lambda served: served.configuration)


@operation(
    "PUT", "/v1/model/configuration", "admin", ConfigurationChange, answer=Configuration
)
async def change_rules(call: Call, body: msgspec.Struct) -> Any:
    """Set rules of a model; a rule that is not named stays as it is."""
    named = msgspec.structs.asdict(body).items()
    changes = {name: value for name, value in named if value is not msgspec.UNSET}
    command = commands.change_rules(call.model, changes, by=call.caller.name)
    return await call.change(command, f"configured {call.model}")

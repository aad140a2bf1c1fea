"""A learning loop: its configuration, its learning settings, its model as a file, its logs and documents."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
import numpy as np
from starlette.responses import Response

from invariant_bandits import storage
from invariant_bandits.checks import InputError
from invariant_bandits.model.model import Model
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.service import commands
from invariant_bandits.service.commands import EventBatch
from invariant_bandits.service.events import DocumentSaved, decode_event
from invariant_bandits.service.learners.base import Learner, learner_from_bytes
from invariant_bandits.service.learners.fitted import FittedLearner
from invariant_bandits.service.learners.open import START, OpenLearner
from invariant_bandits.service.operations import Call
from invariant_bandits.service.protocols.personalizer.events import (
    duration,
    moment,
    not_supported,
    personalizer,
)
from invariant_bandits.service.responses import RefusedError
from invariant_bandits.service.routes.decisions import Id
from invariant_bandits.service.settings import Aggregation, Configuration
from invariant_bandits.service.state import ServedModel, State
from invariant_bandits.storage import FileError

SERVICE, POLICY = "/configurations/service", "/configurations/policy"
RULES, SETTINGS = "personalizer rules", "personalizer settings"
"""Names of the documents of a model that only this protocol knows."""
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
AGGREGATIONS = get_args(Aggregation)
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(days=2)
DEFAULTS = {"modelExportFrequency": "PT0S", "logRetentionDays": -1, "modelRetrainDays": 0}
"""Rewards are learned as they come, from a log that is kept."""
OPTIMIZATION = ("isAutoOptimizationEnabled", "autoOptimizationFrequency", "autoOptimizationStartDate")
"""Like those of DEFAULTS shown again as they were set; the service does not depend on them."""
KIND = "served model"
"""Kind of the file that holds an exported model."""
MOST_DOCUMENTS = 1_000
"""So many documents a model may have."""

# -- configuration --


class ServiceConfiguration(msgspec.Struct, rename="camel"):
    """The rules of a learning loop; times are ISO 8601 durations."""

    reward_wait_time: timedelta
    reward_aggregation: str
    exploration_percentage: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    default_reward: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    model_export_frequency: timedelta | None = None
    log_retention_days: int | None = None
    model_retrain_days: int | None = None
    learning_mode: Literal["Online", "Apprentice", "LoggingOnly"] | None = None
    is_auto_optimization_enabled: bool | None = None
    auto_optimization_frequency: timedelta | None = None
    auto_optimization_start_date: datetime | None = None
    is_inference_explainability_enabled: bool | None = None
    log_mirror_enabled: bool | None = None


class LearningSettings(msgspec.Struct):
    """How a loop learns, as a name and a text of arguments."""

    name: Id
    arguments: Annotated[str, msgspec.Meta(max_length=1_024)]


@personalizer("GET", SERVICE, "read")
async def show(call: Call) -> dict[str, Any]:
    """Show the rules of the loop."""
    return await call.look_at_model(
        lambda served: _rules(served.configuration, served.documents.get(RULES, {}))
    )


@personalizer("PUT", SERVICE, "admin", ServiceConfiguration, invalid="InvalidServiceConfiguration")
async def change(call: Call, body: ServiceConfiguration) -> Any:
    """Set the rules of the loop; what this protocol cannot say of our rules stays as it is."""
    _check(body)
    model = call.model

    def changed(state: State, batch: EventBatch) -> dict[str, Any]:
        present = state.model(model).configuration
        configuration = msgspec.structs.replace(
            present,
            floor=body.exploration_percentage,
            reward_wait=body.reward_wait_time.total_seconds() or None,
            default_reward=body.default_reward,
            aggregation=body.reward_aggregation.lower(),
            mode=MODES[body.learning_mode] if body.learning_mode else present.mode,
        )
        commands.configure(model, configuration, by=call.caller)(state, batch)
        fields = msgspec.to_builtins(body)
        document = {name: fields[name] for name in (*DEFAULTS, *OPTIMIZATION) if fields[name] is not None}
        document["lastConfigurationEditDate"] = moment(batch.moment)
        batch.add(state, [DocumentSaved(batch.tick(), model, RULES, document, call.caller)])
        return _rules(configuration, document)

    return await call.change(changed, f"configured {model}")


def _check(body: ServiceConfiguration) -> None:
    wait, days, how = body.reward_wait_time, body.log_retention_days, body.reward_aggregation
    if wait and not SHORTEST_WAIT <= wait <= LONGEST_WAIT:
        bounds = "must be from 5 seconds to 2 days, or PT0S: the first reward settles an event"
        raise RefusedError(400, f"rewardWaitTime: {bounds}", name="InvalidRewardWaitTime")
    if days is not None and (days < -1 or days == 0):
        message = f"logRetentionDays: must be -1 or at least 1, got {days}"
        raise RefusedError(400, message, name="InvalidLogRetentionDays")
    if how.lower() not in AGGREGATIONS:
        raise RefusedError(400, f"rewardAggregation: must be one of {', '.join(AGGREGATIONS)}, got {how!r}")
    if body.log_mirror_enabled:
        instead = "`invariant-bandits store export` writes them"
        raise RefusedError(400, f"logMirrorEnabled: logs are not mirrored from here; {instead}")


def _rules(rules: Configuration, document: dict[str, Any]) -> dict[str, Any]:
    """Return rules in the protocol's words. Without a wait, PT0S, no default reward is ever learned."""
    no_default = 0.0 if rules.reward_wait is None else None
    return {
        "rewardWaitTime": duration(rules.reward_wait or 0.0),
        "defaultReward": no_default if rules.default_reward is None else rules.default_reward,
        "rewardAggregation": rules.aggregation,
        "explorationPercentage": rules.floor,
        "learningMode": next(name for name, mode in MODES.items() if mode == rules.mode),
        "logMirrorEnabled": False,
        **DEFAULTS,
        **document,
    }


# -- learning settings --


@personalizer("GET", POLICY, "read")
async def show_settings(call: Call) -> dict[str, str]:
    """Show how the loop learns."""
    return await call.look_at_model(settings_of)


@personalizer("PUT", POLICY, "admin", LearningSettings, invalid="InvalidPolicyConfiguration")
async def change_settings(call: Call, body: LearningSettings) -> Any:
    """Have the loop learn in another way: it keeps what it learned and explores more or less."""
    return await _set(call, _exploration(body.arguments), body.name)


@personalizer("DELETE", POLICY, "admin")
async def reset_settings(call: Call) -> Any:
    """Have the loop learn as a new one would."""
    return await _set(call, START["exploration"], None)


async def _set(call: Call, exploration: float, name: str | None) -> Any:
    model = call.model

    def changed(state: State, batch: EventBatch) -> dict[str, str]:
        learner = state.model(model).learner
        if not isinstance(learner, OpenLearner) or not isinstance(learner.policy, LinUCB):
            if name is None:
                return settings_of(state.model(model))
            raise InputError("arguments: this model was fitted and learns as it does")
        if exploration != learner.policy.exploration:
            other = OpenLearner.from_bytes(learner.to_bytes(), "this model")
            settings = {**learner.policy.settings(), "exploration": exploration}
            other.policy = LinUCB.from_state(settings, learner.policy.arrays())
            note = f"learning settings {_arguments(exploration)}"
            commands.add_version(model, other, "given", note=note, by=call.caller)(state, batch)
        document = {"name": name} if name else None
        batch.add(state, [DocumentSaved(batch.tick(), model, SETTINGS, document, call.caller)])
        return {"name": name or "linucb", "arguments": _arguments(exploration)}

    return await call.change(changed, f"set learning settings of {model}")


def settings_of(served: ServedModel) -> dict[str, str]:
    """Return the name and the arguments of how a model learns."""
    policy = str(served.learner.about().get("policy", "policy"))
    inner = served.learner.policy if isinstance(served.learner, OpenLearner) else None
    arguments = _arguments(inner.exploration) if isinstance(inner, LinUCB) else f"--policy {policy}"
    return {"name": str(served.documents.get(SETTINGS, {}).get("name", policy)), "arguments": arguments}


def _arguments(exploration: float) -> str:
    return f"--exploration {exploration:g}"


def _exploration(arguments: str) -> float:
    try:
        name, value = shlex.split(arguments)
        exploration = float(value)
    except ValueError:
        name, exploration = "", -1.0
    if name != "--exploration" or not 0.0 <= exploration <= 100.0:
        raise InputError(
            "arguments: '--exploration NUMBER', 0 to 100, is all that can be set; Vowpal's mean nothing here"
        )
    return exploration


# -- the model as a file --


@personalizer("GET", "/model", "admin")
async def export(call: Call) -> Response:
    """Download the active version as it is now, in a file with its checksum."""
    kind, content = await call.look_at_model(learner_state)
    state = {"state": np.frombuffer(content, dtype=np.uint8)}
    octets = await call.in_thread(storage.encode, KIND, state, {"learner": kind})
    return Response(octets, media_type="application/octet-stream")


def learner_state(served: ServedModel) -> tuple[str, bytes]:
    """Return kind and content of the active version's learner."""
    return served.learner.kind, served.learner.to_bytes()


@personalizer("PUT", "/model", "admin", bytes, status=204)
async def replace(call: Call, body: bytes) -> None:
    """Go on with a model that was exported before, here or from another loop, or that was fitted to logs."""
    model = call.model
    try:
        learner = await call.in_thread(_imported, body, call.service.engine.store.seed)
    except FileError as error:
        raise RefusedError(400, f"body: {error}", name="InvalidModelImportFormat") from None

    def replaced(state: State, batch: EventBatch) -> Any:
        state.model(model)
        return commands.add_version(model, learner, "given", note="imported", by=call.caller)(state, batch)

    await call.change(replaced, f"imported version {{}} of {model}")


def _imported(content: bytes, seed: int) -> Learner:
    """Return the learner in an exported file, or in one that `fit` has written, or raise FileError."""
    name = "the imported file"
    try:
        arrays, about = storage.decode(content, KIND, name)
    except FileError as error:
        try:
            return FittedLearner(Model.from_bytes(content, name), seed)
        except FileError:
            raise error from None
    if set(arrays) != {"state"} or arrays["state"].dtype != np.uint8:
        raise FileError(f"{name} does not hold a whole model")
    return learner_from_bytes(str(about.get("learner")), arrays["state"].tobytes(), name)


@personalizer("DELETE", "/model", "admin", status=204)
async def reset(call: Call) -> None:
    """Forget what was learned from events; a roll back returns to the version before.

    An empty model keeps its arms and columns; one that was fitted is as it was then.
    """
    model = call.model

    def made(state: State, batch: EventBatch) -> Any:
        served = state.model(model)
        learner, added = served.learner, served.versions[served.version]
        if isinstance(learner, OpenLearner):
            first: Learner = OpenLearner(
                learner.arms, learner.columns, limit=learner.limit, seed=learner.seed
            )
        else:
            content = state.store.content(added.content)
            first = learner_from_bytes(added.learner, content, f"version {added.version}")
        return commands.add_version(model, first, "empty", note="reset", by=call.caller)(state, batch)

    await call.change(made, f"reset {model} to version {{}}")


@personalizer("GET", "/model/properties", "read")
async def properties(call: Call) -> dict[str, str]:
    """Show when the active version was made, and when the last event came that it has taken in."""
    added, _, last = await _times(call)
    return {"creationTime": moment(added), "lastModifiedTime": moment(max(added, last))}


# -- logs --


@personalizer("GET", "/logs/properties", "read")
async def log_properties(call: Call) -> dict[str, Any]:
    """Show from when to when there are logs."""
    _, first, last = await _times(call)
    return {"dateRange": {"from": moment(first), "to": moment(last)}}


async def _times(call: Call) -> tuple[float, float, float]:
    """Return the times of the active version, of the first event that is kept, and of the last one."""
    model, store = call.model, call.service.engine.store

    def of_version(state: State) -> tuple[float, int]:
        served = state.model(model)
        return served.versions[served.version].time, state.seq

    def of_events(count: int) -> tuple[float, float]:
        first, last = next(iter(store.rows())), next(iter(store.rows(count - 1)))
        return decode_event(first.event).time, decode_event(last.event).time

    added, events = await call.look(of_version)
    return added, *await call.in_thread(of_events, events)


@personalizer("DELETE", "/logs", "admin", status=204)
async def delete_logs(call: Call) -> None:
    """Refuse: logs are not deleted by a request."""
    raise not_supported(
        "logs are the state's own record and are cut by `invariant-bandits store compact`, not by a request"
    )


# -- documents --


@dataclass(frozen=True)
class Documents:
    """Documents of one kind.

    Parameters
    ----------
    kind : str
        What their names begin with.
    missing : str
        What the protocol calls an id without a document.
    """

    kind: str
    missing: str

    async def save(self, call: Call, id: str, value: dict[str, Any] | None, done: str) -> None:
        """Save a document under an id, or (None) delete it; `done` is the line in the audit."""
        model, name = call.model, self.kind + id

        def saved(state: State, batch: EventBatch) -> None:
            documents = state.model(model).documents
            if value is None and name not in documents:
                raise self._not_found(id)
            if value is not None and name not in documents and len(documents) >= MOST_DOCUMENTS:
                raise InputError(f"id: at most {MOST_DOCUMENTS:,} can be kept; delete some")
            batch.add(state, [DocumentSaved(batch.tick(), model, name, value, call.caller)])

        await call.change(saved, f"{done} {model}")

    async def get(self, call: Call, id: str) -> dict[str, Any]:
        """Return the document under an id."""
        document = await call.look_at_model(lambda served: served.documents.get(self.kind + id))
        if document is None:
            raise self._not_found(id)
        return dict(document)

    async def list(self, call: Call, about: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
        """Return all documents, as `skip` and `top` ask; a plain list where the version is in the path."""
        documents = await call.look_at_model(lambda served: dict(served.documents))
        shown = [about(value) for name, value in documents.items() if name.startswith(self.kind)]
        skip = _count(call.query.get("skip", "0"))
        shown = shown[skip : skip + _count(call.query.get("top", str(len(shown))))]
        return shown if call.path["endpoint"].versioned else {"value": shown}

    async def delete(self, call: Call) -> None:
        """Delete the document under the id in the path."""
        id = call.path["id"]
        await self.save(call, id, None, f"deleted {self.kind}{id!r} of")

    def _not_found(self, id: str) -> RefusedError:
        return RefusedError(404, f"id: {id!r} is not known", name=self.missing)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise RefusedError(400, f"skip, top: must be whole numbers, got {text[:20]!r}", name="InvalidRequest")
    return int(text)

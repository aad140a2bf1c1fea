"""Configuration of a learning loop and its learning settings."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.policies.linear import LinUCB
from invariant_bandits.service import work
from invariant_bandits.service.application import Service, service_of
from invariant_bandits.service.batches import Batch
from invariant_bandits.service.configuration import Configuration
from invariant_bandits.service.events import Kept
from invariant_bandits.service.http import answer, read
from invariant_bandits.service.learners.open import START, OpenLearner
from invariant_bandits.service.protocols.personalizer.doors import loop_of
from invariant_bandits.service.protocols.personalizer.errors import ProtocolError, invalid_as
from invariant_bandits.service.protocols.personalizer.shapes import LearningSettings, ServiceConfiguration
from invariant_bandits.service.protocols.personalizer.times import duration, moment
from invariant_bandits.service.served import Served
from invariant_bandits.service.state import State

RULES, SETTINGS = "personalizer rules", "personalizer settings"
"""Names under which a model keeps what only this protocol knows."""
MODES = {"Online": "online", "Apprentice": "apprentice", "LoggingOnly": "logging"}
AGGREGATIONS = ("earliest", "average", "median", "sum", "min", "max")
SHORTEST_WAIT, LONGEST_WAIT = timedelta(seconds=5), timedelta(days=2)
DEFAULTS = {"modelExportFrequency": "PT0S", "logRetentionDays": -1, "modelRetrainDays": 0}
"""Rewards are learned as they come, from a log that is kept."""
BESIDE = (*DEFAULTS, "isAutoOptimizationEnabled", "autoOptimizationFrequency", "autoOptimizationStartDate")
"""Told again as they were set; nothing here depends on them."""


async def show(request: Request) -> Response:
    """The rules of the loop."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await service.engine.submit(work.inspect(lambda state: told(state.model(model)))))


@invalid_as("InvalidServiceConfiguration")
async def change(request: Request) -> Response:
    """Set the rules of the loop."""
    service, model = service_of(request, "admin"), loop_of(request)
    asked = await read(request, ServiceConfiguration, service.limits)
    _check(asked)

    def changed(state: State, batch: Batch) -> dict[str, Any]:
        served = state.model(model)
        work.configure(model, _configuration(asked, served.configuration), by=request.state.who)(state, batch)
        named = msgspec.to_builtins(asked)
        kept = {name: named[name] for name in BESIDE if named[name] is not None}
        kept["lastConfigurationEditDate"] = moment(batch.now)
        batch.add(state, [Kept(batch.tick(), model, RULES, kept, request.state.who)])
        return told(served, _configuration(asked, served.configuration), kept)

    answered = await service.engine.submit(changed, alone=True)
    service.audit(request.state.who, f"configured {model}")
    return answer(answered)


def _check(asked: ServiceConfiguration) -> None:
    wait = asked.reward_wait_time
    if wait and not SHORTEST_WAIT <= wait <= LONGEST_WAIT:
        message = "rewardWaitTime: must be from 5 seconds to 2 days, or PT0S: the first reward settles an event"
        raise ProtocolError(400, "InvalidRewardWaitTime", message, "rewardWaitTime")
    if asked.log_retention_days is not None and (asked.log_retention_days < -1 or asked.log_retention_days == 0):
        message = f"logRetentionDays: must be -1 or at least 1, got {asked.log_retention_days}"
        raise ProtocolError(400, "InvalidLogRetentionDays", message, "logRetentionDays")
    if asked.reward_aggregation.lower() not in AGGREGATIONS:
        message = f"rewardAggregation: must be one of {', '.join(AGGREGATIONS)}, got {asked.reward_aggregation!r}"
        raise ProtocolError(400, "InvalidServiceConfiguration", message, "rewardAggregation")
    if asked.log_mirror_enabled:
        message = "logMirrorEnabled: logs are not mirrored from here; `invariant-bandits store export` writes them"
        raise ProtocolError(400, "InvalidServiceConfiguration", message, "logMirrorEnabled")


def _configuration(asked: ServiceConfiguration, present: Configuration) -> Configuration:
    """The same in our words; what this protocol cannot say stays as it is."""
    return msgspec.structs.replace(
        present,
        floor=asked.exploration_percentage,
        reward_wait=asked.reward_wait_time.total_seconds() or None,
        default_reward=asked.default_reward,
        aggregation=asked.reward_aggregation.lower(),
        mode=MODES[asked.learning_mode] if asked.learning_mode else present.mode,
    )


def told(
    served: Served, configuration: Configuration | None = None, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Rules in the protocol's words. Without a wait, PT0S, no default reward is ever given."""
    rules = served.configuration if configuration is None else configuration
    no_default = 0.0 if rules.reward_wait is None else None
    return {
        "rewardWaitTime": duration(rules.reward_wait or 0.0),
        "defaultReward": no_default if rules.default_reward is None else rules.default_reward,
        "rewardAggregation": rules.aggregation,
        "explorationPercentage": rules.floor,
        "learningMode": next(name for name, mode in MODES.items() if mode == rules.mode),
        "logMirrorEnabled": False,
        **DEFAULTS,
        **(served.kept.get(RULES, {}) if kept is None else kept),
    }


# -- learning settings --


async def show_settings(request: Request) -> Response:
    """How the loop learns."""
    service, model = service_of(request, "read"), loop_of(request)
    return answer(await service.engine.submit(work.inspect(lambda state: settings_of(state.model(model)))))


@invalid_as("InvalidPolicyConfiguration")
async def change_settings(request: Request) -> Response:
    """Have the loop learn in another way: what is learned stays, how much is tried because it is unsure changes."""
    service = service_of(request, "admin")
    asked = await read(request, LearningSettings, service.limits)
    return await _set(service, request, _exploration(asked.arguments), asked.name)


async def reset_settings(request: Request) -> Response:
    """Have the loop learn as a new one would."""
    return await _set(service_of(request, "admin"), request, START["exploration"], None)


async def _set(service: Service, request: Request, exploration: float, name: str | None) -> Response:
    model = loop_of(request)

    def changed(state: State, batch: Batch) -> dict[str, str]:
        served = state.model(model)
        learner = served.learner
        if not isinstance(learner, OpenLearner) or not isinstance(learner.policy, LinUCB):
            if name is None:
                return settings_of(served)
            raise InputError("arguments: this model was fitted and learns as it does")
        if exploration != learner.policy.exploration:
            other = OpenLearner.from_bytes(learner.to_bytes(), "this model")
            settings = {**learner.policy.settings(), "exploration": exploration}
            other.policy = LinUCB.from_state(settings, learner.policy.arrays())
            note = f"learning settings {arguments_of(exploration)}"
            work.add_version(model, other, "given", note=note, by=request.state.who)(state, batch)
        batch.add(state, [Kept(batch.tick(), model, SETTINGS, {"name": name} if name else None, request.state.who)])
        return {"name": name or "linucb", "arguments": arguments_of(exploration)}

    answered = await service.engine.submit(changed, alone=True)
    service.audit(request.state.who, f"set learning settings of {model}")
    return answer(answered)


def settings_of(served: Served) -> dict[str, str]:
    """Name and arguments of how a model learns."""
    policy = str(served.learner.about().get("policy", "policy"))
    inner = served.learner.policy if isinstance(served.learner, OpenLearner) else None
    arguments = arguments_of(inner.exploration) if isinstance(inner, LinUCB) else f"--policy {policy}"
    return {"name": str(served.kept.get(SETTINGS, {}).get("name", policy)), "arguments": arguments}


def arguments_of(exploration: float) -> str:
    """The one argument there is."""
    return f"--exploration {exploration:g}"


def _exploration(arguments: str) -> float:
    try:
        name, value = shlex.split(arguments)
        exploration = float(value)
    except ValueError:
        name, exploration = "", -1.0
    if name != "--exploration" or not 0.0 <= exploration <= 100.0:
        message = "arguments: '--exploration NUMBER', 0 to 100, is all that can be set; Vowpal's mean nothing here"
        raise ProtocolError(400, "InvalidPolicyConfiguration", message, "arguments")
    return exploration

"""Bodies, errors and times as Personalizer's protocol has them; fields that are not named here are
ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from invariant_bandits.checks import InputError
from invariant_bandits.service.responses import CODES, RefusedError, json_response, printable

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
EventId = Annotated[str, msgspec.Meta(max_length=256)]
Features = list[dict[str, Any]] | None
Reward = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


class Action(msgspec.Struct):
    """An action by its id, with what is known of it."""

    id: Id
    features: Features = None


class RankRequest(msgspec.Struct, rename="camel"):
    """A context and what can be chosen in it."""

    actions: Annotated[list[Action], msgspec.Meta(min_length=1)]
    context_features: Features = None
    excluded_actions: list[str] | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class Slot(msgspec.Struct, rename="camel"):
    """A place to fill; the baseline action is what would be shown without the service."""

    id: Id
    baseline_action: str | None = None
    features: Features = None
    excluded_actions: list[str] | None = None


class SlotsRequest(msgspec.Struct, rename="camel"):
    """A context, what can be chosen in it, and several places to fill with it."""

    actions: Annotated[list[Action], msgspec.Meta(min_length=1)]
    slots: Annotated[list[Slot], msgspec.Meta(min_length=1)]
    context_features: Features = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class EventReward(msgspec.Struct):
    """What an event earned."""

    value: Reward


class SlotReward(msgspec.Struct, rename="camel"):
    """What one slot earned."""

    slot_id: Id
    value: Reward


class SlotRewards(msgspec.Struct):
    """What several slots earned."""

    reward: Annotated[list[SlotReward], msgspec.Meta(min_length=1)]


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


class ImportanceRequest(msgspec.Struct, rename="camel"):
    """A span of the log whose features are to be weighed."""

    name: Id
    start_time: datetime
    end_time: datetime


class EvaluationRequest(ImportanceRequest, rename="camel"):
    """A span of the log that is to be evaluated."""

    policies: list[LearningSettings] = []
    enable_policy_optimization: bool = False
    enable_offline_experimentation: bool = False


class PolicyReference(msgspec.Struct, rename="camel"):
    """Learning settings of an evaluation."""

    evaluation_id: Id
    policy_name: Id


NAMES = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "OperationNotAllowed",
    404: "ResourceNotFound",
    405: "OperationNotAllowed",
    409: "Conflict",
    413: "PayloadSizeExceeded",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}
"""What the protocol calls an error, where an operation has no name of its own for it."""


def not_supported(message: str) -> RefusedError:
    """Return a refusal of something that this service cannot honour."""
    return RefusedError(400, message, name="OperationNotAllowed")


def error_response(refused: RefusedError, scope: Scope) -> Response:
    """Return the response to a request that failed, under the operation's own name for invalid requests."""
    status = 400 if refused.status == 422 else refused.status
    operation = getattr(scope.get("endpoint"), "__self__", None)
    invalid = operation.invalid if operation is not None and status in (400, 409) and not refused.name else ""
    name = refused.name or invalid or NAMES.get(status, "BadRequest")
    about: dict[str, Any] = {"code": name, "message": printable(refused.message)}
    if refused.field:
        about["target"] = printable(refused.field)
    about["innerError"] = {"code": CODES.get(status if invalid else refused.status, "error")}
    return json_response({"error": about}, status, refused.headers)


def duration(seconds: float) -> str:
    """Return a span of time in the protocol's form.

    >>> duration(0.0), duration(600.0)
    ('PT0S', 'PT600S')
    """
    return str(msgspec.to_builtins(timedelta(seconds=seconds))) if seconds else "PT0S"


def moment(seconds: float) -> str:
    """Return a moment in the protocol's form, from seconds since 1970.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(time: datetime) -> float:
    """Return seconds since 1970; a time without a zone is meant in UTC."""
    if not 1970 <= time.year <= 9000:
        raise InputError(f"startTime, endTime: must be of the years 1970 to 9000, got {time.year}")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()

"""Bodies of requests, as the protocol has them; what is not named here is ignored, as it was there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Annotated, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from invariant_bandits.checks import InputError
from invariant_bandits.service.responses import CODES, Handler, RefusedError, answer, printable, refusal

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


class RewardRequest(msgspec.Struct):
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
    """How is learned, as a name and a text of arguments."""

    name: Id
    arguments: Annotated[str, msgspec.Meta(max_length=1_024)]


class EvaluationRequest(msgspec.Struct, rename="camel"):
    """What is to be evaluated: a stretch of the log."""

    name: Id
    start_time: datetime
    end_time: datetime
    policies: list[LearningSettings] = []
    enable_policy_optimization: bool = False
    enable_offline_experimentation: bool = False


class ImportanceRequest(msgspec.Struct, rename="camel"):
    """A stretch of the log whose features are to be weighed."""

    name: Id
    start_time: datetime
    end_time: datetime


class Reference(msgspec.Struct, rename="camel"):
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
"""What the protocol calls an error, where a call has no name of its own for it."""
INVALID = (400, 409, 422)


class ProtocolError(RefusedError):
    """A refusal with the protocol's name for it."""

    def __init__(self, status: int, name: str, message: str, field: str | None = None) -> None:
        super().__init__(status, message, field)
        self.name = name


def not_here(message: str) -> ProtocolError:
    """Something that cannot be honoured by this service."""
    return ProtocolError(400, "OperationNotAllowed", message)


def error_body(error: BaseException) -> Response:
    """The answer to a request that failed."""
    refused = refusal(error)
    status = 400 if refused.status == 422 else refused.status
    name = refused.name if isinstance(refused, ProtocolError) else NAMES.get(status, "BadRequest")
    told: dict[str, Any] = {"code": name, "message": printable(refused.message)}
    if refused.field:
        told["target"] = printable(refused.field)
    told["innerError"] = {"code": CODES.get(refused.status, "error")}
    response = answer({"error": told}, status)
    response.headers.update(refused.headers or {})
    return response


def invalid_as(name: str) -> Callable[[Handler], Handler]:
    """Have invalid requests of a call answered under the protocol's name for them."""

    def wrapping(endpoint: Handler) -> Handler:
        @wraps(endpoint)
        async def told(request: Request) -> Response:
            try:
                return await endpoint(request)
            except (RefusedError, InputError) as error:
                refused = refusal(error)
                if isinstance(refused, ProtocolError) or refused.status not in INVALID:
                    raise
                status = 409 if refused.status == 409 else 400
                raise ProtocolError(status, name, refused.message, refused.field) from None

        return told

    return wrapping


def duration(seconds: float) -> str:
    """A stretch of time.

    >>> duration(0.0), duration(600.0)
    ('PT0S', 'PT600S')
    """
    return str(msgspec.to_builtins(timedelta(seconds=seconds))) if seconds else "PT0S"


def moment(seconds: float) -> str:
    """A moment, from seconds since 1970.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds(given: datetime) -> float:
    """Seconds since 1970; a time without a zone is meant in UTC."""
    if not 1970 <= given.year <= 9000:
        raise InputError(f"startTime, endTime: must be of the years 1970 to 9000, got {given.year}")
    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()

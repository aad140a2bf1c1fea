"""Bodies of requests, as the protocol has them; what is not named here is ignored, as it was there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

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

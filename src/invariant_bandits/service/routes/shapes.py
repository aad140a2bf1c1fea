"""Bodies of requests and answers of version 1; the served document is made from these."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

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


class DecisionBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several of them, all or none."""

    decisions: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1)]


class DecisionAnswer(msgspec.Struct, omit_defaults=True):
    """What was decided: `action` is the label of an arm, or the place of a row."""

    id: str
    action: str | int
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


class RewardBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Several rewards, all or none."""

    rewards: Annotated[list[RewardRequest], msgspec.Meta(min_length=1)]


class RewardAnswer(msgspec.Struct):
    """What became of it: learned, waiting, unchanged, late, unknown, kept or ignored."""

    id: str
    status: str


class ArmRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new arm, described by the columns of the catalogue where there is one."""

    label: Id
    features: dict[str, Any] | None = None


class ModelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new empty model: its arms, and the columns its contexts have; without columns it takes what comes."""

    name: Name
    arms: list[Id] = []
    columns: list[Id] | None = None

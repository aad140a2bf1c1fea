"""Schema: which column of a log means what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from os import PathLike
from typing import Any, TypeAlias

from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError, read_toml
from invariant_bandits.logs.arrow_types import is_text
from invariant_bandits.visible import visible_line

NAMES = {
    "time": "time timestamp ts datetime date event_time event_timestamp event_date time_hour time_stamp timestamp_ms"
    " created_at created logged_at served_at unix_time unixtime epoch",
    "reward": "reward rewards r y click clicks clicked is_click is_clicked outcome target label conversion converted"
    " is_converted purchase purchased revenue rating",
    "propensity": "propensity propensity_score pscore probability prob action_prob action_probability p_action"
    " logging_prob logging_probability logging_propensity p",
    "action": "action arm action_id arm_id action_index chosen_action choice",
    "arm": "action arm action_id arm_id chosen_action chosen_arm choice banner banner_id variant variant_id variation"
    " treatment treatment_id offer offer_id creative creative_id item item_id ad ad_id policy recommendation",
    "arms_offered": "arms_offered offered_arms available_arms candidate_arms arms offered_actions available_actions"
    " offered candidates choices",
    "position": "position slot pos",
    "round": "round round_id event_id impression_id request_id decision_id",
    "chosen": "chosen is_chosen selected is_selected shown picked taken",
    "offered": "offered offered_features candidates actions_features choices",
    "rewards": "offered_rewards all_rewards rewards_offered",
}
"""Usual names of columns by role, the likeliest first; roles are found in this order."""
ROLES = tuple(NAMES)


@dataclass(frozen=True)
class Schema:
    """Which column of a log means what; None where the log has no such column.

    The offered actions are one column of lists of lists (`offered`, with `action` the index of the chosen one), or one
    row per offered action: then `round` tells the rounds apart, rows of a round follow each other, and `chosen` marks
    the chosen row. Or they are arms, known by their labels: then `arm` is the label of the chosen one, or of the row's
    own, and the features are those of the context.

    Parameters
    ----------
    reward : str
        Reward of the chosen action.
    features : sequence of str
        Names or patterns ("x*") of columns, numbers or categories, or one column of lists of numbers.
    time : str, optional
        When the round was: timestamps, dates, ISO 8601 text or numbers.
    action : str, optional
        The chosen action: its index among the offered, from 0; with one row per offered action, the row's own label.
    propensity : str, optional
        Probability with which the chosen action was chosen, above 0 and at most 1.
    position : str, optional
        Position at which it was shown.
    round : str, optional
        What tells rounds apart.
    chosen : str, optional
        Marks the row of the chosen action: true or 1, or the label of the chosen action, equal to the row's `action`.
    offered : str, optional
        Features of all offered actions, lists of lists.
    rewards : str, optional
        Rewards of all offered actions, lists of numbers.
    arm : str, optional
        Label of the chosen arm; of the row's arm, where a round has one row per arm.
    arms_offered : str, optional
        Labels of all offered arms: lists, or text such as "a|b|c".
    categorical : sequence of str
        Features that are categories although they hold numbers; text always is.
    full_information : bool
        One row per offered action, and every row has its reward; then `chosen` may be missing.
    day_first : bool, optional
        Whether dates such as 03/04/2024 begin with the day; only needed where no date of the log tells.
    reasons : mapping of str to str
        Why a role or column was taken or ignored; for `describe` only.

    >>> schema = Schema("clicked", ("price", "country"), time="ts", categorical=("country",))
    >>> print(schema.describe())
    time        ts
    reward      clicked
    feature     price
    categories  country
    """

    reward: str
    features: tuple[str, ...] = ()
    time: str | None = None
    action: str | None = None
    propensity: str | None = None
    position: str | None = None
    round: str | None = None
    chosen: str | None = None
    offered: str | None = None
    rewards: str | None = None
    arm: str | None = None
    arms_offered: str | None = None
    categorical: tuple[str, ...] = ()
    full_information: bool = False
    day_first: bool | None = None
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("features", "categorical"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InputError(f"{name} must be a list of column names or patterns, got the text {value!r}")
            object.__setattr__(self, name, tuple(value))
        self._require_one_form()

    def _require_one_form(self) -> None:
        """Columns of different forms of a log exclude each other, and each form needs all of its own."""
        if self.offered is not None and self.chosen is not None:
            raise InputError("offered (lists of lists) and chosen (one row per offered action) exclude each other")
        if self.offered is not None and self.features:
            raise InputError("features and offered exclude each other: the chosen action's are among the offered")
        if self.chosen is not None and self.round is None:
            raise InputError("round must name the column that tells rounds apart when chosen is given")
        if self.offered is not None and self.action is None:
            raise InputError("action must name the column with the index of the chosen action when offered is given")
        if self.arm is not None and self.offered is not None:
            raise InputError("arm (labels) and offered (features of all offered actions) exclude each other")
        if self.arm is None and self.arms_offered is not None:
            raise InputError("arm must name the column with the label of the chosen arm when arms_offered is given")

    @property
    def one_row_per_action(self) -> bool:
        """Whether a round is several rows."""
        return self.chosen is not None or (self.full_information and self.round is not None)

    @property
    def has_offered(self) -> bool:
        """Whether the log says what was offered: features of all actions, or labels of arms."""
        return self.one_row_per_action or self.offered is not None or self.labelled

    @property
    def labelled(self) -> bool:
        """Whether actions are arms, known by their labels, and features those of the context."""
        return self.arm is not None

    @property
    def row_label(self) -> str | None:
        """The column of a row's own action, where a round is several rows."""
        return self.arm or self.action

    def resolved(self, arrow_schema: Any) -> Schema:
        """This schema with its patterns replaced by columns; InputError if a column is not there.

        Parameters
        ----------
        arrow_schema : pyarrow.Schema
            Names and types of the columns of the log.
        """
        there = list(arrow_schema.names)
        self._require_roles(there)
        if self.action is not None and not (self.has_offered or self.action in self.features):
            raise InputError(
                f"schema: action {self.action!r} reaches no feature, so no action could be told from another; if it"
                " holds labels of arms, call it arm"
            )
        found = list(dict.fromkeys(name for pattern in self.features for name in self._matching(pattern, there)))
        for name in self.categorical:
            if name not in found:
                raise InputError(f"schema: categorical column {name!r} is not among the features {listed(found)}")
        if not found and self.offered is None and not self.labelled:
            raise InputError(f"schema: features are missing; the log has the columns {listed(there)}")
        words = [name for name in found if is_text(arrow_schema.field(name).type) and name not in self.categorical]
        return replace(self, features=tuple(found), categorical=(*self.categorical, *words))

    def _require_roles(self, there: Sequence[str]) -> None:
        for role, name in self.roles().items():
            if name not in there:
                raise InputError(f"schema: {role} column {name!r} is not in the log, which has {listed(there)}")

    def _matching(self, pattern: str, there: Sequence[str]) -> list[str]:
        """The column of this name, or those that match and have no role."""
        if pattern in there:
            return [pattern]
        taken = set(self.roles().values())
        matching = [name for name in there if fnmatchcase(name, pattern) and name not in taken]
        if not matching:
            raise InputError(f"schema: features {pattern!r} match no column of the log, which has {listed(there)}")
        return matching

    def roles(self) -> dict[str, str]:
        """Role → column, of the roles that the log has."""
        columns = {role: getattr(self, role) for role in ROLES}
        return {role: name for role, name in columns.items() if name is not None}

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        return tuple(dict.fromkeys((*self.roles().values(), *self.features)))

    def rows(self) -> list[tuple[str, str, str]]:
        """(role, column, why) of every column that has a role or is ignored for a reason."""
        with_role = [(role, name, self.reasons.get(role, "")) for role, name in self.roles().items()]
        kinds = {name: "categories" if name in self.categorical else "feature" for name in self.features}
        features = [(kind, name, self.reasons.get(name, "")) for name, kind in kinds.items()]
        ignored = [("ignored", name[1:], why) for name, why in self.reasons.items() if name.startswith("!")]
        return [*with_role, *features, *ignored]

    def describe(self) -> str:
        """A table a person can read: role, column, why."""
        shown = [(role, visible_line(name), why) for role, name, why in self.rows()]
        wide = max(len(name) for _, name, _ in shown)
        return "\n".join(f"{role:<11} {name:<{wide}}  {why}".rstrip() for role, name, why in shown)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the reasons."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "reasons"}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Schema:
        """A schema from a TOML file with the fields of this class as keys; `reward` is needed."""
        overrides = toml_overrides(path)
        if "reward" not in overrides:
            raise FileError(f"{path}: reward is missing; it names the column of the chosen action's reward")
        return cls(**overrides)


def toml_overrides(path: str | PathLike[str]) -> dict[str, Any]:
    """The fields of a Schema that a TOML file gives, for a whole schema or on top of an inferred one."""
    given = read_toml(path)
    checked_overrides(given, str(path))
    return given


def checked_overrides(given: Mapping[str, Any], where: str) -> None:
    """Raise unless every key is a field of Schema and every value has its type; `where` begins the message."""
    for name, value in given.items():
        if name not in _public_fields():
            raise InputError(f"{where}: {name!r} is no part of a schema; known: {', '.join(_public_fields())}")
        good, wanted = _good_value(name, value)
        if not good:
            raise InputError(f"{where}: {name} must be {wanted}, got {value!r}")


def _good_value(name: str, value: Any) -> tuple[bool, str]:
    """Whether a field of Schema may have this value, and what it must be."""
    if name in ("features", "categorical"):
        several = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        return several, "a list of column names or patterns"
    if name in ("full_information", "day_first"):
        return isinstance(value, bool), "true or false"
    return value is None or isinstance(value, str), "a column name"


def listed(names: Sequence[str]) -> str:
    """The first twenty names, for messages."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(visible_line, names[:20])) + more


def _public_fields() -> list[str]:
    return [one.name for one in fields(Schema) if one.name != "reasons"]


SchemaLike: TypeAlias = Schema | Mapping[str, Any] | str | PathLike[str] | None
"""What the columns mean: a Schema, the fields that are known (a mapping, or the path of a TOML file), or nothing."""


def with_features(schema: SchemaLike, names: Any) -> SchemaLike:
    """The schema with these names or patterns of columns as its features; InputError if it names others itself."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
        raise InputError(f"features must be FeatureOptions, a FeatureMap or a list of column names, got {names!r}")
    given: Any = toml_overrides(schema) if isinstance(schema, str | PathLike) else schema or {}
    told = tuple(given.features if isinstance(given, Schema) else given.get("features", ()))
    if told and told != tuple(names):
        raise InputError(f"features are named twice: {listed(names)} by features, {listed(told)} by schema")
    if isinstance(given, Schema):
        return replace(given, features=tuple(names))
    return {**given, "features": list(names)}


def named_features(schema: SchemaLike, features: Any) -> tuple[SchemaLike, Any]:
    """(schema with these features, None) if `features` are names or patterns of columns, else both as they are."""
    return (with_features(schema, features), None) if isinstance(features, Sequence) else (schema, features)

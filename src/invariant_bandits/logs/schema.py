"""Schema: which column of a log means what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import InputError, escape_line
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import are_flags, is_list, is_number, is_text, is_time, is_vector
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError, read_toml

NAMES = {
    "time": "time timestamp ts datetime date event_time event_timestamp event_date time_hour time_stamp"
    " timestamp_ms created_at created logged_at served_at unix_time unixtime epoch",
    "reward": "reward rewards r y click clicks clicked is_click is_clicked outcome target label conversion"
    " converted is_converted purchase purchased revenue rating",
    "propensity": "propensity propensity_score pscore probability prob action_prob action_probability"
    " p_action logging_prob logging_probability logging_propensity p",
    "action": "action arm action_id arm_id action_index chosen_action choice",
    "arm": "action arm action_id arm_id chosen_action chosen_arm choice banner banner_id variant variant_id"
    " variation treatment treatment_id offer offer_id creative creative_id item item_id ad ad_id policy"
    " recommendation",
    "arms_offered": "arms_offered offered_arms available_arms candidate_arms arms offered_actions"
    " available_actions offered candidates choices",
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

    The offered actions are one column of lists of lists (`offered`, with `action` the index of the chosen
    one), or one row per offered action: then `round` identifies the rounds, rows of a round follow each
    other, and `chosen` marks the chosen row. Or they are arms, known by their labels: then `arm` is the label
    of the chosen one, or of the row's own, and the features are those of the context.

    Parameters
    ----------
    reward : str
        Reward of the chosen action.
    features : sequence of str
        Names or patterns ("x*") of columns, numbers or categories, or one column of lists of numbers.
    time : str, optional
        When the round was: timestamps, dates, ISO 8601 text or numbers.
    action : str, optional
        The chosen action: its index among the offered, from 0; with one row per offered action, the row's own
        label.
    propensity : str, optional
        Probability with which the chosen action was chosen, above 0 and at most 1.
    position : str, optional
        Position at which it was shown.
    round : str, optional
        Identifier of the round.
    chosen : str, optional
        Marks the row of the chosen action: true or 1, or the label of the chosen action, equal to the row's
        `action`.
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
        has = dict.fromkeys(ROLES, False) | dict.fromkeys(self.roles(), True)
        mistakes = {
            "offered (lists of lists) and chosen (one row per action) exclude each other": has["chosen"],
            "features and offered exclude each other: offered has the chosen action's": bool(self.features),
            "offered needs the column with the index of the chosen action: action": not has["action"],
            "arm (labels) and offered (features of all offered actions) exclude each other": has["arm"],
        }
        wrong = [mistake for mistake, is_so in mistakes.items() if is_so and has["offered"]]
        if has["chosen"] and not has["round"]:
            wrong.append("chosen needs the column that identifies rounds: round")
        if has["arms_offered"] and not has["arm"]:
            wrong.append("arms_offered needs the column with the label of the chosen arm: arm")
        if wrong:
            raise InputError(wrong[0])

    @cached_property
    def one_row_per_action(self) -> bool:
        """Whether a round is several rows."""
        return self.chosen is not None or (self.full_information and self.round is not None)

    @cached_property
    def has_offered(self) -> bool:
        """Whether the log says what was offered: features of all actions, or labels of arms."""
        return self.one_row_per_action or self.offered is not None or self.labelled

    @cached_property
    def labelled(self) -> bool:
        """Whether actions are arms, known by their labels, and features those of the context."""
        return self.arm is not None

    @cached_property
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
        has = f"the log, which has {format_names(there)}"
        for role, name in self.roles().items():
            if name not in there:
                raise InputError(f"schema: {role} column {name!r} is not in {has}")
        if self.action is not None and not (self.has_offered or self.action in self.features):
            what = f"action {self.action!r} reaches no feature, so all actions would be the same"
            raise InputError(f"schema: {what}; if it holds labels of arms, call it arm")
        free = [name for name in there if name not in self.roles().values()]
        features: list[str] = []
        for pattern in self.features:
            matching = [pattern] if pattern in there else [n for n in free if fnmatchcase(n, pattern)]
            if not matching:
                raise InputError(f"schema: features {pattern!r} match no column of {has}")
            features += [name for name in matching if name not in features]
        for name in set(self.categorical) - set(features):
            names = format_names(features)
            raise InputError(f"schema: categorical column {name!r} is not among the features {names}")
        if not features and self.offered is None and not self.labelled:
            raise InputError(f"schema: features are missing; name columns of {has}")
        words = (name for name in features if is_text(arrow_schema.field(name).type))
        categorical = dict.fromkeys((*self.categorical, *words))
        return replace(self, features=tuple(features), categorical=tuple(categorical))

    def roles(self) -> dict[str, str]:
        """Role → column, of the roles that the log has."""
        columns = {role: getattr(self, role) for role in ROLES}
        return {role: name for role, name in columns.items() if name is not None}

    @cached_property
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
        shown = [(role, escape_line(name), why) for role, name, why in self.rows()]
        wide = max(len(name) for _, name, _ in shown)
        return "\n".join(f"{role:<11} {name:<{wide}}  {why}".rstrip() for role, name, why in shown)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the reasons."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Schema:
        """Return a schema from a TOML file with the fields of this class as keys; `reward` is needed."""
        overrides = toml_overrides(path)
        if "reward" not in overrides:
            raise FileError(f"{path}: reward is missing; it names the column of the chosen action's reward")
        return cls(**overrides)


FIELDS = tuple(attribute.name for attribute in fields(Schema) if attribute.name != "reasons")


def toml_overrides(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the fields of a Schema that a TOML file gives."""
    overrides = read_toml(path)
    checked_overrides(overrides, str(path))
    return overrides


def checked_overrides(overrides: Mapping[str, Any], where: str) -> None:
    """Raise unless every key is a field of Schema and every value has its type; `where` begins the
    message.
    """
    for name, value in overrides.items():
        if name not in FIELDS:
            raise InputError(f"{where}: {name!r} is not part of a schema; known: {', '.join(FIELDS)}")
        if name in ("features", "categorical"):
            good, wanted = isinstance(value, list | tuple) and _are_texts(value), "a list of patterns"
        elif name in ("full_information", "day_first"):
            good, wanted = isinstance(value, bool), "true or false"
        else:
            good, wanted = value is None or isinstance(value, str), "a column name"
        if not good:
            raise InputError(f"{where}: {name} must be {wanted}, got {value!r}")


def format_names(names: Sequence[str]) -> str:
    """The first twenty names, for messages."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(escape_line, names[:20])) + more


SchemaLike: TypeAlias = Schema | Mapping[str, Any] | str | PathLike[str] | None
"""What the columns mean: a Schema, the fields that are known (a mapping, or the path of a TOML file), or
nothing.
"""


def named_features(schema: SchemaLike, features: Any) -> tuple[SchemaLike, Any]:
    """Return (schema with these features, None) if `features` are names or patterns of columns, else both as
    they are; InputError if the schema names others.
    """
    if features is None or is_dataclass(features):
        return schema, features
    if isinstance(features, str) or not isinstance(features, Sequence) or not _are_texts(features):
        raise InputError(f"features must be options, a map or a list of column names, got {features!r}")
    known: Any = toml_overrides(schema) if isinstance(schema, str | PathLike) else schema or {}
    is_whole = isinstance(known, Schema)
    named = tuple(known.features if is_whole else known.get("features", ()))
    if named and named != tuple(features):
        both = f"{format_names(features)} by features, {format_names(named)} by schema"
        raise InputError(f"features are named twice: {both}")
    new = {"features": tuple(features)}
    return replace(known, **new) if is_whole else {**known, **new}, None


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


MOST_LABELS = 200
"""Different values in the first rows beyond which a column holds no labels of arms."""


def are_labels(column: Any, kind: Any) -> bool:
    """Whether the values of a column of this type may be labels of arms: text or whole numbers, few
    different ones.
    """
    if not (is_text(kind) or (is_number(kind) and _are_whole(column))):
        return False
    there = column.drop_null()
    return 0 < len(there.unique()) <= min(MOST_LABELS, max(len(there) // 2, 2))


def are_lists_of_labels(column: Any, kind: Any) -> bool:
    """Whether a column of this type holds lists of labels, or text that separates them by one of | ; ,."""
    if is_list(kind):
        return is_text(kind.value_type) or (is_number(kind.value_type) and _are_whole(column))
    if not is_text(kind):
        return False
    words = [word for word in column.drop_null().slice(0, 100).to_pylist() if word]
    return bool(words) and sum(any(mark in word for mark in "|;,") for word in words) > len(words) / 2


def are_probabilities(column: Any) -> bool:
    """Whether the usable values lie above 0 and at most at 1, up to one in ten."""
    values = _usable_numbers(column)
    return len(values) > 0 and bool(((values > 0.0) & (values <= 1.0)).mean() >= 0.9)


def count_up(column: Any) -> bool:
    """Whether every value is one more than the one before."""
    values = _usable_numbers(column)
    return 1 < len(values) == len(column) and bool((np.diff(values) == 1.0).all())


def vary_within(sample: Any, round_name: str, features: Sequence[str], label: str) -> bool:
    """Whether some of the features, or none of the labels, differ between rows of one round."""
    table = sample.combine_chunks()
    same = _equal_to_next(table.column(round_name))
    if not same.any() or _equal_to_next(table.column(label))[same].all():
        return True
    return any(not _equal_to_next(table.column(name))[same].all() for name in features)


def _equal_to_next(column: Any) -> Any:
    codes = decode.value_codes(_flat(column))
    return codes[1:] == codes[:-1]


def _are_whole(column: Any) -> bool:
    """Whether the usable values of a column of numbers are whole."""
    values = _usable_numbers(column)
    return bool((values == np.floor(values)).all())


def _usable_numbers(column: Any) -> Any:
    flat = _flat(column)
    problems = RowProblems(len(flat))
    return decode.numbers(flat, "", problems)[problems.usable]


def _flat(column: Any) -> Any:
    """One array of a column that may be chunked, lists flattened."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.flatten() if is_list(array.type) else array


MANY_CATEGORIES = 100
UNNAMED = ("", "unnamed: 0", "index", "row", "row_number", "f0")
IDENTIFIES = re.compile(r"(?i)^(id|index|uuid|guid)$|_(id|uuid)$|^__|(?-i:[a-z](Id|ID|Uuid|UUID)$)")


def infer_schema(arrow_schema: Any, sample: Any, **overrides: Any) -> Schema:
    """Guess the role of every column from its name and type.

    Parameters
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of the columns.
    sample : pyarrow.Table
        Some first rows.
    overrides :
        Fields of Schema that are known; None says that the log has no such column.

    >>> import pyarrow as pa
    >>> table = pa.table({"ts": [1, 2], "clicked": [True, False], "price": [2.0, 3.0], "user_id": [7, 8]})
    >>> print(infer_schema(table.schema, table).describe())
    time        ts       by its name, int64
    reward      clicked  by its name, bool
    feature     price    double
    ignored     user_id  its name says that it only identifies
    """
    checked_overrides(overrides, "schema")
    guess = _Guess(arrow_schema, sample, overrides)
    guess.time_by_type()
    guess.roles_by_name()
    guess.drop_incomplete_roles()
    guess.arms_by_name()
    guess.features_by_type()
    guess.arms_of_rows()
    return Schema(**guess.fields, reasons=guess.reasons).resolved(arrow_schema)


class _Guess:
    """Fields of a schema as far as they are known, why, and the columns that are taken."""

    def __init__(self, arrow_schema: Any, sample: Any, overrides: Mapping[str, Any]) -> None:
        self.sample, self.overrides = sample, dict(overrides)
        self.types = {name: arrow_schema.field(name).type for name in arrow_schema.names}
        self.fields: dict[str, Any] = dict(overrides)
        self.reasons = {name: "as given" for name, value in overrides.items() if value is not None}
        self.taken = {value for value in overrides.values() if isinstance(value, str)}
        self.taken |= set(overrides.get("features", ()))

    def _take(self, role: str, column: str, why: str) -> None:
        self.fields[role] = column
        self.reasons[role] = f"{why}, {self.types[column]}"
        self.taken.add(column)

    def time_by_type(self) -> None:
        """A column of timestamps or dates is the time, if its name says so or there is no other."""
        if "time" in self.fields:
            return
        stamps = [name for name, kind in self.types.items() if is_time(kind) and name not in self.taken]
        named = [name for name in stamps if name.lower() in NAMES["time"].split()]
        if named or len(stamps) == 1:
            why = "by its name" if named else "the only column of its type"
            self._take("time", (named or stamps)[0], why)

    def roles_by_name(self) -> None:
        """A column with a usual name has that role, if its type fits."""
        for role in NAMES:
            if role not in ("action", "arm", "arms_offered"):  # what they mean depends on the others
                self._take_named(role)
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            self._take_named("action")

        if self.fields.get("reward") is None:
            names = format_names(list(self.types))
            raise InputError(f"schema: reward is missing: name it (--reward), none of {names} looks like one")

    def _take_named(self, role: str) -> None:
        """Give a role to the column with the likeliest of its usual names, if the type of the column fits."""
        if role in self.fields:
            return
        free = {name.lower(): name for name in reversed(self.types) if name not in self.taken}
        for word in NAMES[role].split():
            if word in free and self._fits(role, free[word]):
                self._take(role, free[word], "by its name")
                return

    def _has_rows_per_action(self) -> bool:
        has_choice = self.fields.get("chosen") is not None or bool(self.fields.get("full_information"))
        return self.fields.get("round") is not None and has_choice

    def _fits(self, role: str, column: str) -> bool:
        """Return whether a column of this type can have this role."""
        kind, sample = self.types[column], self.sample.column(column)
        fits: dict[str, Callable[[], bool]] = {
            "offered": lambda: is_list(kind) and is_vector(kind.value_type),
            "rewards": lambda: is_vector(kind),
            "propensity": lambda: is_number(kind) and are_probabilities(sample),
            "reward": lambda: is_number(kind),
            "arm": lambda: are_labels(sample, kind),
            "arms_offered": lambda: are_lists_of_labels(sample, kind),
            "chosen": lambda: are_flags(sample),
            "time": lambda: is_number(kind) or is_text(kind) or is_time(kind),
        }
        return fits.get(role, lambda: is_number(kind) or is_text(kind))()

    def drop_incomplete_roles(self) -> None:
        """A role that needs another one is dropped where that is missing: offered actions without the
        chosen one.
        """
        has = {role: self.fields.get(role) is not None for role in NAMES}
        if has["offered"] and not has["action"]:
            self._drop("offered", "it needs an action column")
            has["offered"] = False
        if has["rewards"] and not has["offered"]:
            self._drop("rewards", "it needs offered actions")
        if has["chosen"] and (not has["round"] or has["offered"]):
            self._drop("chosen", "it needs a round column and no lists of offered actions")

    def arms_by_name(self) -> None:
        """Take a column of labels, or an action that the caller named, for the arm unless rows say what
        was offered.
        """
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            return
        action = self.fields.pop("action", None)
        if action is not None and self.fields.get("arm") is None:
            self.reasons.pop("action", None)
            self._take("arm", action, "as given")
        elif "action" not in self.overrides:
            self._take_named("arm")
        if self.fields.get("arm") is not None:
            self._take_named("arms_offered")

    def arms_of_rows(self) -> None:
        """One row per offered action whose features are all the same within a round: its label says which
        arm it is.
        """
        if not self._has_rows_per_action() or {"arm", "features"} & set(self.overrides):
            return
        features = [name for name in self.fields["features"] if name.lower() not in NAMES["arm"].split()]
        others = (name for name in self.fields["features"] if name not in features)
        label = self.fields.get("action") or next(others, None)
        if label is None or vary_within(self.sample, str(self.fields["round"]), features, label):
            return
        self.fields |= {"action": None, "features": tuple(features)}
        self.reasons = {name: why for name, why in self.reasons.items() if name not in ("action", label)}
        self._take("arm", label, "the only column that differs within rounds")

    def _drop(self, role: str, why: str) -> None:
        self.reasons[f"!{self.fields[role]}"] = f"could be {role}, but {why}"
        self.reasons.pop(role, None)
        self.fields[role] = None

    def features_by_type(self) -> None:
        """Numbers and text with few categories among the other columns are features; or the only column
        of lists.
        """
        if "features" in self.fields:
            return
        free = [name for name in self.types if name not in self.taken]
        lists = [name for name in free if is_vector(self.types[name])]
        if self.fields.get("offered") is not None:
            free = []
        elif len(lists) == 1:
            self.reasons[lists[0]] = f"the only column of lists of numbers, {self.types[lists[0]]}"
            free = lists
        else:
            free = [name for name in free if self._is_feature(name)]
        self.fields["features"] = tuple(free)

    def _is_feature(self, name: str) -> bool:
        """Whether a column without a role is a feature; says why or why not."""
        kind = self.types[name]
        why, why_not = str(kind), None
        if identifies(name):
            why_not = "its name says that it only identifies"
        elif not (is_number(kind) or is_text(kind)):
            why_not = f"{kind} is not a number"
        elif is_number(kind) and self._counts_rows(name):
            why_not = "it only counts the rows"
        elif is_text(kind):
            why = f"{kind}, {self._distinct(name)}"
            many = len(self.sample.column(name).unique()) > MANY_CATEGORIES
            why_not = f"{kind} is not a number and has many values" if many else None
        if why_not is not None and name.lower() in NAMES["arm"].split() and self.fields.get("arm") is None:
            why_not = f"could be the arm, but {self._distinct(name)}; --arm {name} says that it is"
        self.reasons[f"!{name}" if why_not else name] = why_not or why
        return why_not is None

    def _distinct(self, name: str) -> str:
        """How many different values the first rows have, in words."""
        return f"{len(self.sample.column(name).unique())} different in the first {len(self.sample)} rows"

    def _counts_rows(self, name: str) -> bool:
        """Whether this is a first column without a name of its own, such as pandas writes its index."""
        first = next(iter(self.types))
        return name == first and name.lower() in UNNAMED and count_up(self.sample.column(name))


def identifies(name: str) -> bool:
    """Whether the name of a column says that it only identifies rows."""
    return IDENTIFIES.search(name) is not None

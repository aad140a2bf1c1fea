"""Schema: which column of a log means what; inferred from names and types, shown, and overridable."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.files import FileError

NAMES = {
    "time": "time timestamp ts datetime date event_time time_hour created_at logged_at",
    "reward": "reward rewards r y click clicked outcome target label conversion converted",
    "propensity": "propensity pscore probability prob action_prob action_probability p_action",
    "action": "action arm action_id arm_id action_index chosen_action choice",
    "position": "position slot pos",
    "round": "round round_id event_id impression_id request_id decision_id",
    "chosen": "chosen is_chosen selected is_selected shown picked taken",
    "offered": "offered offered_features candidates actions_features choices",
    "rewards": "offered_rewards all_rewards rewards_offered",
}
ROLES = tuple(NAMES)
MANY_CATEGORIES = 100


@dataclass(frozen=True)
class Schema:
    """Column names by role; None where the log has no such column.

    reward: of the chosen action. features: names or patterns ("x*") of columns, numbers or categories, or one column
    of lists; `categorical` names those of them that are categories although they hold numbers. The offered actions are
    either one column of lists of lists (`offered`, with `action` the index of the chosen one), or one row per offered
    action: then `round` tells the rounds apart, rows of a round follow each other, and `chosen` marks the chosen row
    (true/1, or the label of the chosen action, equal to the row's `action`). time: timestamps, dates, ISO strings or
    numbers. rewards: lists with the reward of every offered action; one row per action: full_information=True, then
    `chosen` may be missing.
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
    categorical: tuple[str, ...] = ()
    full_information: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("features", "categorical"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InputError(f"{name} must be a list of column names or patterns, got the text {value!r}")
            object.__setattr__(self, name, tuple(value))
        if self.offered is not None and self.chosen is not None:
            raise InputError("offered (lists of lists) and chosen (one row per offered action) exclude each other")
        if self.offered is not None and self.features:
            raise InputError("features and offered exclude each other: the chosen action's are among the offered")
        if self.chosen is not None and self.round is None:
            raise InputError("round must name the column that tells rounds apart when chosen is given")
        if self.offered is not None and self.action is None:
            raise InputError("action must name the column with the index of the chosen action when offered is given")

    @property
    def one_row_per_action(self) -> bool:
        """Whether a round is several rows."""
        return self.chosen is not None or (self.full_information and self.round is not None)

    @property
    def has_offered(self) -> bool:
        """Whether the log has the features of all offered actions."""
        return self.one_row_per_action or self.offered is not None

    def resolved(self, arrow_schema: Any) -> Schema:
        """This schema with its patterns replaced by columns; InputError if a column is not there."""
        there = list(arrow_schema.names)
        for role in ROLES:
            name = getattr(self, role)
            if name is not None and name not in there:
                raise InputError(f"schema: {role} column {name!r} is not in the log, which has {_listed(there)}")
        taken = {getattr(self, role) for role in ROLES}
        found: dict[str, None] = {}
        for pattern in self.features:
            matching = [name for name in there if name == pattern] or [
                name for name in there if fnmatchcase(name, pattern) and name not in taken
            ]
            if not matching:
                raise InputError(f"schema: features {pattern!r} match no column of the log, which has {_listed(there)}")
            found |= dict.fromkeys(matching)
        for name in self.categorical:
            if name not in found:
                raise InputError(f"schema: categorical column {name!r} is not among the features {_listed(found)}")
        if not found and self.offered is None:
            raise InputError(f"schema: features are missing; the log has the columns {_listed(there)}")
        words = [name for name in found if is_text(arrow_schema.field(name).type) and name not in self.categorical]
        return replace(self, features=tuple(found), categorical=(*self.categorical, *words))

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        roles = [getattr(self, role) for role in ROLES]
        return tuple(dict.fromkeys(name for name in (*roles, *self.features) if name is not None))

    def rows(self) -> list[tuple[str, str, str]]:
        """(role, column, why) of every column that has a role or is ignored for a reason."""
        rows = [(role, getattr(self, role), self.reasons.get(role, "")) for role in ROLES]
        for name in self.features:
            kind = "categories" if name in self.categorical else "feature"
            rows.append((kind, name, self.reasons.get(name, "")))
        ignored = [("ignored", name[1:], why) for name, why in self.reasons.items() if name.startswith("!")]
        return [(role, name, why) for role, name, why in [*rows, *ignored] if name is not None]

    def describe(self) -> str:
        """A table a person can read: role, column, why."""
        shown = self.rows()
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
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path} is not readable as TOML: {error}") from None
    checked_overrides(given, str(path))
    return given


def checked_overrides(given: Mapping[str, Any], where: str) -> None:
    """Raise unless every key is a field of Schema and every value has its type."""
    for name, value in given.items():
        if name in ("features", "categorical"):
            good = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
            wanted = "a list of column names or patterns"
        elif name == "full_information":
            good, wanted = isinstance(value, bool), "true or false"
        elif name in ROLES:
            good, wanted = value is None or isinstance(value, str), "a column name"
        else:
            raise InputError(f"{where}: {name!r} is no part of a schema; known: {', '.join(_public_fields())}")
        if not good:
            raise InputError(f"{where}: {name} must be {wanted}, got {value!r}")


def infer_schema(arrow_schema: Any, sample: Any, **overrides: Any) -> Schema:
    """Guess the role of every column from its name and type; `sample` is an Arrow table of some first rows.

    overrides: fields of Schema that are known; None says that the log has no such column.
    """
    checked_overrides(overrides, "schema")
    there = list(arrow_schema.names)
    types = {name: arrow_schema.field(name).type for name in there}
    roles: dict[str, Any] = dict(overrides)
    reasons = {name: "as told" for name, value in overrides.items() if value is not None}
    taken = {value for value in overrides.values() if isinstance(value, str)} | set(overrides.get("features", ()))
    if "time" not in roles:
        stamps = [name for name in there if is_time(types[name]) and name not in taken]
        named = [name for name in stamps if name.lower() in NAMES["time"].split()]
        if named or len(stamps) == 1:
            roles["time"] = named[0] if named else stamps[0]
            reasons["time"] = f"{'by its name' if named else 'the only column of its type'}, {types[roles['time']]}"
            taken.add(roles["time"])
    for role, words in NAMES.items():
        if role in roles:
            continue
        for word in words.split():
            match = next((name for name in there if name.lower() == word and name not in taken), None)
            if match is not None and _fits(role, types[match], sample, match):
                roles[role], reasons[role] = match, f"by its name, {types[match]}"
                taken.add(match)
                break
    if roles.get("reward") is None:
        raise InputError(
            f"schema: reward is missing: none of the columns {_listed(there)} looks like one; name it (--reward)"
        )
    _settle_offered(roles, reasons, taken)
    if "features" not in roles:
        roles["features"] = _infer_features(there, types, sample, taken, roles, reasons)
    return Schema(**roles, reasons=reasons).resolved(arrow_schema)


def _settle_offered(roles: dict[str, Any], reasons: dict[str, str], taken: set[str]) -> None:
    """Columns that only make sense with another one are not taken without it."""
    if roles.get("offered") is not None and roles.get("action") is None:
        _release("offered", "it needs an action column", roles, reasons, taken)
    if roles.get("offered") is None and roles.get("rewards") is not None:
        _release("rewards", "it needs offered actions", roles, reasons, taken)
    if roles.get("chosen") is not None and (roles.get("round") is None or roles.get("offered") is not None):
        _release("chosen", "it needs a round column and no lists of offered actions", roles, reasons, taken)


def _release(role: str, why: str, roles: dict[str, Any], reasons: dict[str, str], taken: set[str]) -> None:
    reasons[f"!{roles[role]}"] = f"could be {role}, but {why}"
    roles[role] = None
    reasons.pop(role, None)


def _infer_features(
    there: Sequence[str],
    types: Mapping[str, Any],
    sample: Any,
    taken: set[str],
    roles: Mapping[str, Any],
    reasons: dict[str, str],
) -> tuple[str, ...]:
    if roles.get("offered") is not None:
        return ()
    lists = [name for name in there if is_vector(types[name]) and name not in taken]
    if len(lists) == 1:
        reasons[lists[0]] = f"the only column of lists of numbers, {types[lists[0]]}"
        return (lists[0],)
    found = []
    for name in there:
        kind = types[name]
        if name in taken:
            continue
        if name.lower() in ("id", "index") or name.lower().endswith("_id") or name.startswith("__"):
            reasons[f"!{name}"] = "its name says that it only identifies"
        elif is_number(kind):
            found.append(name)
            reasons[name] = str(kind)
        elif is_text(kind) and (distinct := len(sample.column(name).unique())) <= MANY_CATEGORIES:
            found.append(name)
            reasons[name] = f"{kind}, {distinct} different in the first {len(sample)} rows"
        else:
            reasons[f"!{name}"] = (
                f"{kind} is no number and has many values" if is_text(kind) else f"{kind} is no number"
            )
    return tuple(found)


def _fits(role: str, kind: Any, sample: Any, name: str) -> bool:
    if role == "offered":
        return is_list(kind) and is_vector(kind.value_type)
    if role == "rewards":
        return is_vector(kind)
    if role in ("reward", "propensity"):
        return is_number(kind)
    if role == "chosen":
        return are_flags(sample.column(name))
    if role == "time":
        return is_time(kind) or is_number(kind) or is_text(kind)
    return is_number(kind) or is_text(kind)


def are_flags(column: Any) -> bool:
    """Whether the values of a column can only be truth values."""
    return {str(value).lower() for value in column.unique().to_pylist()} <= {"0", "1", "true", "false", "none"}


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is a number or a truth value."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is a timestamp or a date."""
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_date(kind))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a dictionary of text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of any form."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_vector(kind: Any) -> bool:
    """Whether an Arrow type is a list of numbers."""
    return is_list(kind) and is_number(kind.value_type)


def _listed(names: Any) -> str:
    names = list(names)
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(str, names[:20])) + more


def _public_fields() -> list[str]:
    return [one.name for one in fields(Schema) if one.name != "reasons"]

"""The schema of a log guessed from the names and types of its columns, with the reason for every guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs import column_values
from invariant_bandits.logs.arrow_types import is_list, is_number, is_text, is_time, is_vector
from invariant_bandits.logs.decoding import are_flags
from invariant_bandits.logs.schema import NAMES, Schema, checked_overrides, listed

MANY_CATEGORIES = 100
UNNAMED = ("", "unnamed: 0", "index", "row", "row_number", "f0")
IDENTIFIES = re.compile(r"^(id|index|uuid|guid)$|_(id|uuid)$|^__|(?-i:[a-z](Id|ID|Uuid|UUID)$)", re.IGNORECASE)


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
    guess.require_reward()
    guess.drop_incomplete_roles()
    guess.arms_by_name()
    guess.features_by_type()
    guess.arms_of_rows()
    return Schema(**guess.fields, reasons=guess.reasons).resolved(arrow_schema)


class _Guess:
    """Fields of a schema as far as they are known, why, and the columns that are taken."""

    def __init__(self, arrow_schema: Any, sample: Any, told: Mapping[str, Any]) -> None:
        self.sample, self.told = sample, dict(told)
        self.types = {name: arrow_schema.field(name).type for name in arrow_schema.names}
        self.fields: dict[str, Any] = dict(told)
        self.reasons = {name: "as told" for name, value in told.items() if value is not None}
        self.taken = {value for value in told.values() if isinstance(value, str)} | set(told.get("features", ()))

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
        if named:
            self._take("time", named[0], "by its name")
        elif len(stamps) == 1:
            self._take("time", stamps[0], "the only column of its type")

    def roles_by_name(self) -> None:
        """A column with a usual name has that role, if its type fits."""
        for role in NAMES:
            if role not in ("action", "arm", "arms_offered"):  # what they mean depends on the others
                self._take_named(role)
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            self._take_named("action")

    def _take_named(self, role: str) -> None:
        if role in self.fields:
            return
        column = next((found for word in NAMES[role].split() if (found := self._named(word, role))), None)
        if column is not None:
            self._take(role, column, "by its name")

    def _has_rows_per_action(self) -> bool:
        return self.fields.get("round") is not None and (
            self.fields.get("chosen") is not None or bool(self.fields.get("full_information"))
        )

    def _named(self, word: str, role: str) -> str | None:
        column = next((name for name in self.types if name.lower() == word and name not in self.taken), None)
        return column if column is not None and self._fits(role, column) else None

    def _fits(self, role: str, column: str) -> bool:
        """Whether a column of this type can have this role."""
        kind = self.types[column]
        if role == "offered":
            return is_list(kind) and is_vector(kind.value_type)
        if role == "rewards":
            return is_vector(kind)
        if role == "propensity":
            return is_number(kind) and column_values.are_probabilities(self.sample.column(column))
        if role == "reward":
            return is_number(kind)
        if role == "arm":
            return column_values.are_labels(self.sample.column(column), kind)
        if role == "arms_offered":
            return column_values.are_lists_of_labels(self.sample.column(column), kind)
        if role == "chosen":
            return are_flags(self.sample.column(column))
        return is_number(kind) or is_text(kind) or (role == "time" and is_time(kind))

    def require_reward(self) -> None:
        """A log without rewards teaches nothing."""
        if self.fields.get("reward") is None:
            raise InputError(
                f"schema: reward is missing: none of the columns {listed(list(self.types))} looks like one;"
                " name it (--reward)"
            )

    def drop_incomplete_roles(self) -> None:
        """A role that needs another one is dropped where that is missing: offered actions without the chosen one."""
        has = {role: self.fields.get(role) is not None for role in NAMES}
        if has["offered"] and not has["action"]:
            self._drop("offered", "it needs an action column")
            has["offered"] = False
        if has["rewards"] and not has["offered"]:
            self._drop("rewards", "it needs offered actions")
        if has["chosen"] and (not has["round"] or has["offered"]):
            self._drop("chosen", "it needs a round column and no lists of offered actions")

    def arms_by_name(self) -> None:
        """Where no other form says what was offered, a column of labels is the arm; so is an action that was told."""
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            return
        action = self.fields.pop("action", None)
        if action is not None and self.fields.get("arm") is None:
            self.reasons.pop("action", None)
            self._take("arm", action, "as told")
        elif "action" not in self.told:
            self._take_named("arm")
        if self.fields.get("arm") is not None:
            self._take_named("arms_offered")

    def arms_of_rows(self) -> None:
        """One row per offered action whose features are all the same within a round: its label says which arm it is."""
        if not self._has_rows_per_action() or self.fields.get("arm") is not None or "arm" in self.told:
            return
        features = [name for name in self.fields["features"] if name.lower() not in NAMES["arm"].split()]
        label = self.fields.get("action") or next((n for n in self.fields["features"] if n not in features), None)
        if label is None or "features" in self.told:
            return
        if column_values.vary_within(self.sample, str(self.fields["round"]), features, label):
            return
        self.fields["action"] = None
        self.reasons.pop("action", None)
        self.reasons.pop(label, None)
        self.fields["features"] = tuple(features)
        self._take("arm", label, "the only column that differs within rounds")

    def _drop(self, role: str, why: str) -> None:
        self.reasons[f"!{self.fields[role]}"] = f"could be {role}, but {why}"
        self.reasons.pop(role, None)
        self.fields[role] = None

    def features_by_type(self) -> None:
        """Numbers and text with few categories among the other columns are features; or the only column of lists."""
        if "features" in self.fields:
            return
        free = [name for name in self.types if name not in self.taken]
        lists = [name for name in free if is_vector(self.types[name])]
        if self.fields.get("offered") is not None:
            self.fields["features"] = ()
        elif len(lists) == 1:
            self.reasons[lists[0]] = f"the only column of lists of numbers, {self.types[lists[0]]}"
            self.fields["features"] = (lists[0],)
        else:
            self.fields["features"] = tuple(name for name in free if self._is_feature(name))

    def _is_feature(self, name: str) -> bool:
        """Whether a column without a role is a feature; says why or why not."""
        kind = self.types[name]
        why, why_not = str(kind), _why_no_feature(name, kind)
        if why_not is None and is_number(kind) and self._counts_rows(name):
            why_not = "it only counts the rows"
        if why_not is None and is_text(kind):
            why = f"{kind}, {self._distinct(name)}"
            many = len(self.sample.column(name).unique()) > MANY_CATEGORIES
            why_not = f"{kind} is no number and has many values" if many else None
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
        return name == first and name.lower() in UNNAMED and column_values.count_up(self.sample.column(name))


def _why_no_feature(name: str, kind: Any) -> str | None:
    """Why the name or the type of a column says that it is no feature; None if they do not."""
    if identifies(name):
        return "its name says that it only identifies"
    return None if is_number(kind) or is_text(kind) else f"{kind} is no number"


def identifies(name: str) -> bool:
    """Whether the name of a column says that it only tells rows apart."""
    return IDENTIFIES.search(name) is not None

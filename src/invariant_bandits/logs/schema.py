"""Schema: which column of a log means what."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import InputError, escape_line
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import (
    are_flags,
    are_truth_words,
    holds_times,
    is_list,
    is_number,
    is_text,
    is_time,
    is_vector,
)
from invariant_bandits.logs.leakage import explained_by_groups, leak_evidence
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.optional import pyarrow as pa
from invariant_bandits.storage import FileError, read_toml

NAMES = {
    "time": "time timestamp ts datetime date event_time event_timestamp event_date time_hour time_stamp"
    " timestamp_ms created_at created logged_at served_at unix_time unixtime epoch at",
    "reward": "reward rewards r y click clicks clicked is_click is_clicked outcome target label conversion"
    " converted is_converted purchase purchased revenue profit sale sold opened response success rating"
    " margin gain payoff won bought booked",
    "propensity": "propensity propensity_score pscore probability prob action_prob action_probability"
    " p_action logging_prob logging_probability logging_propensity chance p",
    "action": "action arm action_id arm_id action_index chosen_action choice",
    "arm": "action arm action_id arm_id chosen_action chosen_arm choice banner banner_id variant variant_id"
    " variation treatment treatment_id offer offer_id creative creative_id item item_id ad ad_id policy"
    " recommendation article article_id dose price_level price_point",
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
VAGUE_WORDS = "r y p rating target label item policy choice choices arms candidates created"
"""Usual names that say nothing as a part of a longer one, such as driver_rating."""
UNITS = "eur usd gbp chf cents pct percent mg ml kg km mm ms s sec seconds utc gmt"
PAST_WORDS = "past previous prior last earlier avg mean total num count history lifetime"
"""Words in the names of columns that sum up what happened before a round."""


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
    candidates : mapping of str to str
        Where no action was found: columns that may be the action, and why.

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
    candidates: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

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
            leaks = [f"{name[1:]} {why}" for name, why in self.reasons.items() if "the reward" in why]
            raise InputError("; ".join([f"schema: features are missing; name columns of {has}", *leaks]))
        words = (name for name in features if is_text(arrow_schema.field(name).type))
        categorical = dict.fromkeys((*self.categorical, *words))
        return replace(self, features=tuple(features), categorical=tuple(categorical))

    def require_action(self) -> None:
        """Raise InputError with the candidates if no column was found to be the action, but some may be."""
        if not self.candidates:
            return
        lines = _listed({f"--arm {shlex.quote(name)}": why for name, why in self.candidates.items()})
        head = "no column was found to be the action; say which one is (in Python: schema={'arm': …}):"
        none = "  --no-action, if none is (None): then the features are those of the chosen action"
        raise InputError("\n".join([head, *lines, none]))

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


ABOUT_GUESSES = ("reasons", "candidates")
FIELDS = tuple(attribute.name for attribute in fields(Schema) if attribute.name not in ABOUT_GUESSES)
HINTS = ("ignore", "keep")
"""What a caller may say about columns without giving them a role: never a feature, or a feature although it
seems to give the reward away.
"""


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
        if name not in (*FIELDS, *HINTS):
            raise InputError(f"{where}: {name!r} is not part of a schema; known: {', '.join(FIELDS)}")
        if name in ("features", "categorical", *HINTS):
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


MOST_LABELS, MOST_FRACTIONS = 200, 12
"""Different values, and different fractions, in the first rows beyond which a column holds no labels."""


def are_labels(column: Any, kind: Any) -> bool:
    """Whether the values of a column of this type may be labels of arms: text or numbers, few different
    ones.
    """
    if not (is_text(kind) or is_number(kind)):
        return False
    there = column.drop_null()
    if is_number(kind) and not _are_whole(column):
        return 0 < len(there.unique()) <= min(MOST_FRACTIONS, len(there) // LEAST_PLAYS)
    return 0 < len(there.unique()) <= min(max(MOST_LABELS, len(there) // 20), max(len(there) // 2, 2))


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


def _listed(options: Mapping[str, str]) -> list[str]:
    """Lines of a message: an option each, and what speaks for it; ten at most."""
    wide = max(map(len, options), default=0)
    return [f"  {option:<{wide}}  {why}" for option, why in list(options.items())[:MOST_CANDIDATES]]


MANY_CATEGORIES = 100
LOOKED_AT = 1000
"""First rows whose values say what a column is; relations between columns are looked for in more of them."""
MOST_CANDIDATES = 10
UNNAMED = ("", "unnamed: 0", "index", "row", "row_number", "f0")
PARTICIPLE = re.compile(r"(?i)[a-z]{2}ed$")
NUMBERS = re.compile(r"(?i)(number|no|nr|key|code)$")
"""Ends of the names of columns that identify if their values hardly ever come twice."""
IDENTIFIES = re.compile(r"(?i)^(id|index|uuid|guid)$|[_. ](id|uuid)$|^__|(?-i:[a-z](Id|ID|Uuid|UUID)$)")


def infer_schema(arrow_schema: Any, sample: Any, **overrides: Any) -> Schema:
    """Guess the role of every column from its name, its type, its values and their relations.

    Parameters
    ----------
    arrow_schema : pyarrow.Schema
        Names and types of the columns.
    sample : pyarrow.Table
        Some first rows.
    overrides :
        Fields of Schema that are known; None says that the log has no such column. Beside them `ignore`,
        columns that are not features, and `keep`, features that may seem to give the reward away.

    >>> import pyarrow as pa
    >>> table = pa.table({"ts": [1, 2], "clicked": [True, False], "price": [2.0, 3.0], "user_id": [7, 8]})
    >>> print(infer_schema(table.schema, table).describe())
    time        ts       by its name, int64
    reward      clicked  by its name, bool
    feature     price    double
    ignored     user_id  its name says that it only identifies
    """
    checked_overrides(overrides, "schema")
    hints = {name: tuple(overrides.pop(name, ())) for name in HINTS}
    columns = {f"{role} column": [overrides.get(role)] for role in ROLES}
    for what, named in (columns | {f"{name} column": list(hints[name]) for name in HINTS}).items():
        for name in named:
            if name is not None and name not in arrow_schema.names:
                has = f"the log, which has {format_names(arrow_schema.names)}"
                raise InputError(f"schema: {what} {name!r} is not in {has}")
    guess = _Guess(arrow_schema, sample, overrides, hints)
    guess.time_by_type()
    guess.roles_by_name()
    guess.drop_incomplete_roles()
    guess.arms_by_name()
    guess.arms_and_propensities_by_values()
    guess.features_by_type()
    guess.arms_of_rows()
    schema = Schema(**guess.fields, reasons=guess.reasons, candidates=guess.action_candidates())
    return schema.resolved(arrow_schema)


MISMATCH, MOST_ERROR = 0.05, 0.25
"""How far the sum of 1/p over the rounds of an arm may be off beyond four standard errors, and the largest
standard error at which that says anything.
"""
LEAST_PLAYS = 20


def are_propensities_of(propensities: Any, labels: Any) -> bool | None:
    """Whether one column can hold the probabilities with which the labels of another were chosen; None if
    there are too few rounds to tell.

    If so, Σ 1/p over the rounds of a label is the number of rounds in which it was offered, for every label:
    those from its first to its last use. A column of the context does not have this property.

    Parameters
    ----------
    propensities, labels : pyarrow.ChunkedArray
        Some first rows of two columns.
    """
    problems = RowProblems(len(propensities))
    values = decode.numbers(_flat(propensities), "", problems)
    usable = problems.usable & (values > 0.0)
    weights = np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)
    codes = decode.value_codes(_flat(labels))
    tested = 0
    for code in np.unique(codes[usable]):
        rows = np.flatnonzero((codes == code) & usable)
        if len(rows) < LEAST_PLAYS:
            continue
        offered = int(usable[rows[0] : rows[-1] + 1].sum())
        error = float(np.sqrt((weights[rows] ** 2).sum())) / offered
        if abs(weights[rows].sum() / offered - 1.0) > 4.0 * error + MISMATCH:
            return False
        tested += error <= MOST_ERROR
    return True if tested > 1 else None


DEPENDENT = 0.01
"""Share of the variance of probabilities that labels explain which they were not drawn for, at most: its
error is at most 0.002 in 10,000 rows.
"""


def _names_label(label: str, chance: str) -> bool:
    """Whether the name of a column of probabilities holds that of the labels, as in coupon_chance."""
    return set(_parts(label)) < set(_parts(chance))


PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def usual_name(column: str, role: str) -> str | None:
    """Return the usual name of a role that a longer name ends in, units aside; None if there is none.

    >>> [usual_name(name, "reward") for name in ("feedback.click", "profit_eur", "past_purchase")]
    ['click', 'profit', None]
    >>> usual_name("subject_variant", "arm"), usual_name("sentAt", "time")
    ('variant', 'at')
    """
    parts = _parts(column)
    while len(parts) > 1 and parts[-1] in UNITS.split():
        parts.pop()
    if role == "reward" and set(PAST_WORDS.split()) & set(parts):
        return None
    usual = [word for word in NAMES[role].split() if word not in VAGUE_WORDS.split()]
    ends = ("_".join(parts[first:]) for first in range(len(parts)))
    return next((end for end in ends if end in usual), None)


def _parts(name: str) -> list[str]:
    """The words that a name consists of."""
    return [part.lower() for part in PARTS.findall(name)]


class _Guess:
    """Fields of a schema as far as they are known, why, and the columns that are taken."""

    def __init__(
        self, arrow_schema: Any, sample: Any, overrides: Mapping[str, Any], hints: Mapping[str, Sequence[str]]
    ) -> None:
        self.rows, self.sample = sample.combine_chunks(), sample.slice(0, LOOKED_AT)
        self.overrides, self.hints = dict(overrides), hints
        self.types = {name: arrow_schema.field(name).type for name in arrow_schema.names}
        self.fields: dict[str, Any] = dict(overrides)
        self.reasons = {name: "as given" for name, value in overrides.items() if value is not None}
        self.taken = {value for value in overrides.values() if isinstance(value, str)}
        self.taken |= {*overrides.get("features", ()), *hints["ignore"]}
        self.reasons |= {f"!{name}": "as given" for name in hints["ignore"]}

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

    def time_by_values(self) -> None:
        """Take a column that holds times for the time: by the end of its name, or as the only one."""
        if "time" in self.fields:
            return
        free = [name for name in self.types if name not in self.taken]
        stamps = [name for name in free if holds_times(self.sample.column(name), self.types[name])]
        stamps.sort(key=lambda name: self.sample.column(name).null_count)
        named = [name for name in stamps if usual_name(name, "time")]
        if named or len(stamps) == 1:
            self._take("time", (named or stamps)[0], "by a part of its name" if named else "it holds times")

    def roles_by_name(self) -> None:
        """A column with a usual name has that role, if its type fits."""
        for role in NAMES:
            if role not in ("action", "arm", "arms_offered"):  # what they mean depends on the others
                self._take_named(role)
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            self._take_named("action")
        self.time_by_values()
        self._take_named("reward", parts=True)
        self._reward_by_participle()
        if self.fields.get("reward") is None:
            free = [name for name in self.types if name not in self.taken and self._fits("reward", name)]
            options = {f"--reward {shlex.quote(n)}": self._distinct(n) for n in free if not identifies(n)}
            head = "schema: reward is missing: no column was found to be it; say which one is"
            raise InputError("\n".join([f"{head} (in Python: schema={{'reward': …}}):", *_listed(options)]))

    def _reward_by_participle(self) -> None:
        """Take the only column of truth values for the reward whose name says what was done."""
        if "reward" in self.fields:
            return
        free = [name for name in self.types if name not in self.taken and self._fits("reward", name)]
        two = [name for name in free if len(self.sample.column(name).drop_null().unique()) == 2]
        done = [name for name in two if PARTICIPLE.search(name)]
        done = [name for name in done if not set(PAST_WORDS.split()) & set(_parts(name))]
        if len(done) == 1:
            self._take("reward", done[0], "two values, and its name says what happened")

    def _take_named(self, role: str, *, parts: bool = False) -> None:
        """Give a role to the column with the likeliest of its usual names, if the type of the column fits.

        With `parts`, a name may end in the usual one.
        """
        if role in self.fields:
            return
        names = [name for name in reversed(self.types) if name not in self.taken]
        free = {(usual_name(name, role) if parts else name.lower()): name for name in names}
        for word in NAMES[role].split():
            if word in free and self._fits(role, free[word]):
                self._take(role, free[word], "by a part of its name" if parts else "by its name")
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
            "reward": lambda: is_number(kind) or (is_text(kind) and are_truth_words(sample)),
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
            self._take_named("arm", parts=True)
        if self.fields.get("arm") is not None:
            self._take_named("arms_offered")

    def arms_and_propensities_by_values(self) -> None:
        """Find the arm by its propensity, or the propensity by the arm: the one pair of columns that fit."""
        if self.fields.get("offered") is not None or self._has_rows_per_action():
            self._take_named("propensity", parts=True)
            return
        arm, propensity = self.fields.get("arm"), self.fields.get("propensity")
        said = set(self.overrides)
        labels = [arm] if arm else [] if {"arm", "action"} & said else self._label_columns()
        chances = [propensity] if propensity else [] if "propensity" in said else self._probability_columns()
        pairs = {
            (label, chance): are_propensities_of(self.rows.column(chance), self.rows.column(label))
            for chance in chances
            for label in labels
            if label != chance and not (arm and propensity)
        }
        fitting = [pair for pair, fits in pairs.items() if fits]
        why = "1/p adds up to the rounds of every level"
        if arm and not fitting:  # too few rounds to tell: the name decides
            fitting = [
                pair for pair, fits in pairs.items() if fits is None and usual_name(pair[1], "propensity")
            ]
            why = "by a part of its name"
        for rule in (_names_label, self._depends):
            if len({label for label, _ in fitting}) > 1:
                fitting = [pair for pair in fitting if rule(*pair)] or fitting
        if len({label for label, _ in fitting}) != 1:
            return
        label, chance = max(fitting, key=lambda pair: usual_name(pair[1], "propensity") is not None)
        if not arm:
            self._take("arm", label, f"{chance} fits it, {why}")
        if not propensity:
            self._take("propensity", chance, f"it fits {label}, {why}")

    def _depends(self, label: str, chance: str) -> bool:
        """Whether probabilities differ between labels, as those of a choice do unless all are equal."""
        problems = RowProblems(len(self.rows))
        values = decode.numbers(_flat(self.rows.column(chance)), "", problems)[problems.usable]
        codes = decode.value_codes(_flat(self.rows.column(label)))[problems.usable]
        return bool(np.ptp(values) > 0.0 and explained_by_groups(codes, values) > DEPENDENT)

    def _label_columns(self) -> list[str]:
        """Columns without a role that may hold labels of arms, text first, then by the number of levels."""
        free = [name for name in self.types if name not in self.taken]
        free = [name for name in free if are_labels(self.sample.column(name), self.types[name])]
        levels = {name: len(self.sample.column(name).drop_null().unique()) for name in free}
        several = [name for name in free if levels[name] > 1]
        return sorted(several, key=lambda name: (not is_text(self.types[name]), levels[name]))

    def _probability_columns(self) -> list[str]:
        """Columns of fractions without a role that may be propensities."""
        free = [name for name in self.types if name not in self.taken and is_number(self.types[name])]
        columns = {name: self.sample.column(name) for name in free}
        return [
            name for name, column in columns.items() if are_probabilities(column) and not _are_whole(column)
        ]

    def action_candidates(self) -> dict[str, str]:
        """Return features that may be the action, where none was found and the caller said nothing of it."""
        has_action = (
            self.fields.get("offered") is not None or self._has_rows_per_action() or self.fields.get("arm")
        )
        if has_action or {"arm", "action", "features"} & set(self.overrides):
            return {}
        possible = {*self.fields["features"], *filter(identifies, self.types)}
        self.taken -= possible - set(self.hints["ignore"])
        likely = [name for name in self._label_columns() if name in possible]
        return {name: self._distinct(name) for name in likely}

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
            rewards = self._rewards()
            free = [name for name in free if self._is_feature(name, rewards)]
        self.fields["features"] = tuple(free)

    def _rewards(self) -> Any:
        """Rewards (n,) of the first rows, NaN where there is none."""
        column = _flat(self.rows.column(self.fields["reward"]))
        problems = RowProblems(len(column))
        values = decode.numbers(column, "", problems)
        usable = problems.usable
        chosen = self.fields.get("chosen")
        if chosen is not None and are_flags(self.rows.column(chosen)):
            usable &= decode.flags(_flat(self.rows.column(chosen)))
        return np.where(usable, values, np.nan)

    def _leak(self, name: str, rewards: Any) -> str | None:
        """Say how a column gives the reward away, or that it stands beside it; None if it is a feature."""
        if name in self.hints["keep"]:
            return None
        beside = name.rpartition(".")[0]
        others = [column for role, column in self._role_columns() if role != "reward"]
        reward = str(self.fields["reward"])
        alone = not any(column.rpartition(".")[0] == beside for column in others)
        if beside and beside == reward.rpartition(".")[0] and alone:
            return f"known only after the reward: it stands beside {reward}"
        return leak_evidence(_flat(self.rows.column(name)), rewards, is_text(self.types[name]))

    def _role_columns(self) -> list[tuple[str, str]]:
        return [(role, self.fields[role]) for role in NAMES if self.fields.get(role) is not None]

    def _is_feature(self, name: str, rewards: Any) -> bool:
        """Whether a column without a role is a feature; says why or why not."""
        kind, column = self.types[name], self.sample.column(name)
        why, why_not = str(kind), None
        if identifies(name) or self._numbers(name):
            why_not = "its name says that it only identifies"
        elif not (is_number(kind) or is_text(kind)):
            why_not = f"{kind} is not a number"
        elif is_number(kind) and self._counts_rows(name):
            why_not = "it only counts the rows"
        elif name not in self.hints["keep"] and holds_times(column, kind):
            why_not = "it holds times"
        elif self._names_propensity(name) and name not in self.hints["keep"]:
            why_not = "its name says that it is a propensity"
        elif leak := self._leak(name, rewards):
            why_not = f"{leak}; --keep {shlex.quote(name)} makes it a feature"
        elif is_text(kind):
            why = f"{kind}, {self._distinct(name)}"
            many = len(column.unique()) > MANY_CATEGORIES
            why_not = f"{kind} is not a number and has many values" if many else None
        if why_not is not None and name.lower() in NAMES["arm"].split() and self.fields.get("arm") is None:
            why_not = f"could be the arm, but {self._distinct(name)}; --arm {name} says that it is"
        self.reasons[f"!{name}" if why_not else name] = why_not or why
        return why_not is None

    def _names_propensity(self, name: str) -> bool:
        """Whether the name of a column of fractions says that it is the probability of a choice."""
        words = ("propensity", "pscore", "logging")
        named = any(word in name.lower() for word in words) or name.lower() in NAMES["propensity"].split()
        named |= not self.fields.get("arm") and usual_name(name, "propensity") is not None
        return named and is_number(self.types[name]) and are_probabilities(self.sample.column(name))

    def _distinct(self, name: str) -> str:
        """How many different values the first rows have, in words."""
        return f"{len(self.sample.column(name).unique())} different in the first {len(self.sample)} rows"

    def _numbers(self, name: str) -> bool:
        """Whether this is a number of a thing, such as a card_number: most values differ."""
        column = self.sample.column(name)
        return NUMBERS.search(name) is not None and len(column.unique()) > len(column) // 2 > 10

    def _counts_rows(self, name: str) -> bool:
        """Whether this is a first column without a name of its own, such as pandas writes its index."""
        first = next(iter(self.types))
        return name == first and name.lower() in UNNAMED and count_up(self.sample.column(name))


def identifies(name: str) -> bool:
    """Whether the name of a column says that it only identifies rows."""
    return IDENTIFIES.search(name) is not None

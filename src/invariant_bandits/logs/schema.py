"""Schema: which column of a log means what."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from os import PathLike
from typing import Any, NoReturn, TypeAlias

import numpy as np

from invariant_bandits.checks import InputError, escape_line, format_names
from invariant_bandits.logs.column_names import ROLES, less_is_better
from invariant_bandits.logs.decode import is_text
from invariant_bandits.storage import read_toml


def inverse(values: Any) -> Any:
    """Return 1/x of numbers (n,) above 0, and 0 for all others."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0.0)


PROBABILITIES: dict[str, Callable[[Any], Any]] = {
    "probability": lambda values: values,
    "percent": lambda values: values / 100.0,
    "weight": inverse,
    "log": lambda values: np.where(values <= 0.0, np.exp(np.minimum(values, 0.0)), 0.0),
}
"""How propensities may be written, and the probabilities (n,) of numbers (n,) that are; 0 if none is."""


REPEATED = ("last", "first", "max", "sum", "error")
"""Which reward counts if rows repeat the identifier of a round."""


@dataclass(frozen=True)
class Schema:
    """Roles of the columns of a log: which column holds the reward, the time, the features and so on.

    A role without a column in the log is None. A log can describe the offered actions in three layouts:

    - One row per round: the column `offered` lists the features of all offered actions, and the column
      `action` has the index of the chosen action.
    - One row per offered action: the column `round` identifies the round, and the column `chosen` marks the
      chosen action.
    - Labelled arms: the column `arm` has the label of the chosen arm, and the features describe the context.

    Parameters
    ----------
    reward : str
        Column with the reward of the chosen action.
    features : sequence of str
        Names or patterns ("x*") of columns with numbers, categories or lists of numbers.
    time : str, optional
        Column with the time of the round: timestamps, dates, ISO 8601 text or numbers.
    action : str, optional
        Column with the index, from 0, of the chosen action among the offered actions. In a log with one row
        per offered action, the column `action` has the label of the row's own action.
    propensity : str, optional
        Column with the probability, above 0 and at most 1, with which the chosen action was chosen.
    propensity_unit : str
        Unit of the propensities p in the log: "probability", "percent", "weight" (1/p) or "log" (log p).
    position : str, optional
        Column with the position at which the chosen action was shown.
    round : str, optional
        Column with the identifier of the round.
    chosen : str, optional
        Column that marks the row of the chosen action by true, by 1, or by the label of the chosen action.
    offered : str, optional
        Column with the features of all offered actions, as lists of lists.
    rewards : str, optional
        Column with the rewards of all offered actions, as lists of numbers.
    arm : str, optional
        Column with the label of the chosen arm or, if a round has one row per arm, of the row's arm.
    arms_offered : str, optional
        Column with the labels of all offered arms, as lists or as text such as "a|b|c".
    ranking : str, optional
        Column that identifies the requests of a ranking: several rows, each an item at its own position and
        with its own reward. Each row counts as a round, and its position is a feature.
    categorical : sequence of str
        Columns with numbers that are categories; columns with text are always categories.
    full_information : bool
        Whether the log has one row per offered action, each with the reward of its action. A log with the
        rewards of all offered actions needs no column that marks the chosen action.
    day_first : bool, optional
        Whether dates such as 03/04/2024 begin with the day; only needed if all dates are ambiguous.
    repeated : str
        Which reward counts if several rows have the same identifier in the column `round`, in a log with one
        row per round: the "last" (the default), the "first", the "max" or the "sum". With "error" a log whose
        copies have different rewards is refused.
    rename : mapping of str to str
        New names of columns, by their old names.
    missing : sequence of str
        Values that stand for a missing one, such as "-999"; "age=-1" means the column age only.
    reward_values : mapping of str to float
        Numbers that words of the reward are worth, such as {"up": 1, "down": 0}.
    minimise : bool, optional
        Whether less of the reward column is better. Then the model learns `reward_offset` minus the column.
    reward_offset : float
        Number from which a reward that is minimised is subtracted: 1 for a reward of 0 and 1.
    level_edges, level_values : sequence of float
        Edges and medians of the levels of numbers in the column `arm`; the medians are the labels.
    reasons : mapping of str to str
        Explanations why each column was used or ignored; the method `describe` shows them.
    candidates : mapping of str to str
        Columns that might hold the action, each with a reason, if no column was recognised as the action.
    doubts : tuple of str
        What may be wrong about the values of the log, and what to do.

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
    ranking: str | None = None
    categorical: tuple[str, ...] = ()
    full_information: bool = False
    propensity_unit: str = "probability"
    day_first: bool | None = None
    repeated: str = "last"
    rename: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reward_values: Mapping[str, float] = field(default_factory=dict)
    minimise: bool | None = None
    reward_offset: float = 0.0
    level_edges: tuple[float, ...] = ()
    level_values: tuple[float, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    candidates: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )
    doubts: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in LISTS:
            value = getattr(self, name)
            if isinstance(value, str):
                wanted = "values" if name == "missing" else "column names or patterns"
                raise InputError(
                    f"{name} must be a list of {wanted}, got the text {value!r}"
                )
            object.__setattr__(self, name, tuple(value))
        _require_one_of("propensity_unit", self.propensity_unit, PROBABILITIES)
        _require_one_of("repeated", self.repeated, REPEATED)
        mistake = self._mistake()
        if mistake is not None:
            raise InputError(mistake)

    def _mistake(self) -> str | None:
        """Say which columns of different layouts exclude each other, or which a layout lacks."""
        if self.offered is not None:
            if self.chosen is not None:
                return "offered (lists of lists) and chosen (one row per action) exclude each other"
            if self.features:
                return "features and offered exclude each other: offered has the chosen action's"
            if self.action is None:
                return "offered needs the column with the index of the chosen action: action"
            if self.arm is not None:
                return "arm (labels) and offered (features of all offered actions) exclude each other"
        if self.chosen is not None and self.round is None:
            return "chosen needs the column that identifies rounds: round"
        if self.arms_offered is not None and self.arm is None:
            return "arms_offered needs the column with the label of the chosen arm: arm"
        return None

    @cached_property
    def one_row_per_action(self) -> bool:
        """Whether a round is several rows."""
        return self.chosen is not None or (
            self.full_information and self.round is not None
        )

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
        names = list(arrow_schema.names)
        for role, name in self.roles().items():
            require_column(role, name, names)
        if self.action is not None and not (
            self.has_offered or self.action in self.features
        ):
            raise InputError(
                f"schema: action {self.action!r} reaches no feature, so all actions would be the "
                "same; if it holds labels of arms, call it arm"
            )
        with_role = set(self.roles().values())
        free = [name for name in names if name not in with_role]
        features = self._matching_features(names, free)
        for name in self.categorical:
            if name not in features:
                raise InputError(
                    f"schema: categorical column {name!r} is not among the features "
                    f"{format_names(features)}"
                )
        words = [name for name in features if is_text(arrow_schema.field(name).type)]
        unused = [name for name in free if name not in features]
        return replace(
            self,
            features=features,
            categorical=tuple(dict.fromkeys((*self.categorical, *words))),
            reasons=self._with_reasons_of_all(unused),
        )

    def _matching_features(
        self, names: Sequence[str], free: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the columns that the features name, or that fit their patterns and have no role."""
        has = f"the log, which has {format_names(names)}"
        features: dict[str, None] = {}  # a set in the order of the patterns
        for pattern in self.features:
            if pattern in names:
                matching = [pattern]
            else:
                matching = [name for name in free if fnmatchcase(name, pattern)]
            if not matching:
                raise InputError(
                    f"schema: features {pattern!r} match no column of {has}"
                )
            features |= dict.fromkeys(matching)
        if not features and not (self.offered is not None or self.labelled):
            missing = [f"schema: features are missing; name columns of {has}"]
            for name, why in self.reasons.items():
                if "the reward" in why:
                    missing.append(f"{name[1:]} {why}")
            raise InputError("; ".join(missing))
        return tuple(features)

    def _with_reasons_of_all(self, unused: Sequence[str]) -> dict[str, str]:
        """Return the reasons, with one for every unused column but the internal ones, which begin with __."""
        why = "not named as a feature"
        if self.offered is not None:
            why = f"features are those in {self.offered}"
        reasons = dict(self.reasons)
        for name in unused:
            if not name.startswith("__"):
                reasons.setdefault(f"!{name}", why)
        return reasons

    def require_action(self) -> None:
        """Raise InputError with the candidates if no column was found to be the action, but some may be."""
        none = "  --no-action, if none is (None): then the features are those of the chosen action"
        if self.candidates:
            require_role("arm", self.candidates, none)

    def require_direction(self) -> None:
        """Raise InputError if the reward's name says that less is better, unless the caller said which is."""
        if self.minimise is None and less_is_better(self.reward):
            raise InputError(
                f"the reward {self.reward!r} sounds as if less of it were better, and a model "
                "earns as much as it can: --minimise (minimise=True in a schema) learns "
                f"{self.minimised_words()}; --maximise (False) says that more is better"
            )

    def learned_reward(self, reward: Any) -> Any:
        """Return what a model learns of a reward, or of rewards (n,), as the column has them."""
        return self.reward_offset - reward if self.minimise else reward

    def minimised_words(self) -> str:
        """Return what is learned of a reward of which less is better, in words."""
        if not self.reward_offset:
            return f"−{self.reward}"
        return f"{self.reward_offset:g} − {self.reward}"

    @property
    def reward_words(self) -> str:
        """What a model learns, in words: the reward, or the reward with its sign turned."""
        return self.minimised_words() if self.minimise else self.reward

    def roles(self) -> dict[str, str]:
        """Return a dictionary from roles, such as "reward", to the names of their columns in the log."""
        columns = {role: getattr(self, role) for role in ROLES}
        return {role: name for role, name in columns.items() if name is not None}

    @cached_property
    def used_columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        return tuple(dict.fromkeys((*self.roles().values(), *self.features)))

    def rows(self) -> list[tuple[str, str, str]]:
        """(role, column, why) of every column: its role, or that it is ignored and for which reason."""
        rows = []
        for role, name in self.roles().items():
            why = [self.reasons.get(role, "")]
            if role == "reward" and self.minimise:
                why.append(f"less is better: {self.reward_words} is learned")
            rows.append((role, name, ", ".join(filter(None, why))))
        for name in self.features:
            kind = "categories" if name in self.categorical else "feature"
            rows.append((kind, name, self.reasons.get(name, "")))
        for name, reason in self.reasons.items():
            if name.startswith("!"):
                rows.append(("ignored", name[1:], reason))
        return rows

    def describe(self) -> str:
        """Return a readable table with the role of every column and the reason for it."""
        shown = [(role, escape_line(name), why) for role, name, why in self.rows()]
        wide = max(len(name) for _, name, _ in shown)
        return "\n".join(
            f"{role:<11} {name:<{wide}}  {why}".rstrip() for role, name, why in shown
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the roles of the columns as a dictionary of plain values."""
        values: dict[str, Any] = {}
        for name in FIELDS:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = list(value)
            values[name] = dict(value) if isinstance(value, Mapping) else value
        return values


def _require_one_of(
    name: str,
    value: str,
    values: Iterable[str],
) -> None:
    """Raise InputError unless a field has one of its values."""
    if value not in values:
        raise InputError(f"{name} must be one of {', '.join(values)}, got {value!r}")


LISTS = ("features", "categorical", "missing", "level_edges", "level_values")
"""Fields of a schema that are sequences."""
ABOUT_GUESSES = ("reasons", "candidates", "doubts")
FIELDS = tuple(
    attribute.name
    for attribute in fields(Schema)
    if attribute.name not in ABOUT_GUESSES
)
HINTS = ("ignore", "keep")
"""What a caller may say about columns without giving them a role: never a feature, or a feature although it
seems to give the reward away.
"""
LEVELS = "levels"
"""How many levels the numbers of the arm are cut into; `level_edges` and `level_values` follow from it."""


def toml_overrides(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the fields of a Schema that a TOML file gives."""
    overrides = read_toml(path)
    checked_overrides(overrides, str(path))
    return overrides


def checked_overrides(overrides: Mapping[str, Any], where: str) -> None:
    """Raise InputError, beginning with `where`, unless all are fields of Schema with values of their type."""
    for name, value in overrides.items():
        if name not in (*FIELDS, LEVELS, *HINTS):
            raise InputError(
                f"{where}: {name!r} is not part of a schema; known: {', '.join(FIELDS)}"
            )
        is_good, wanted = KINDS_OF_FIELDS.get(name, (_is_column, "a column name"))
        if not is_good(value):
            raise InputError(f"{where}: {name} must be {wanted}, got {value!r}")


KINDS_OF_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("features", "categorical", *HINTS),
        (lambda value: _is_list(value) and _are_texts(value), "a list of patterns"),
    ),
    "missing": (lambda value: _is_list(value) and _are_texts(value), "a list of texts"),
    "rename": (
        lambda value: _is_map(value) and _are_texts([*value, *value.values()]),
        "new names by old names",
    ),
    "reward_values": (
        lambda value: (
            _is_map(value) and _are_texts([*value]) and _are_numbers(value.values())
        ),
        "numbers by words",
    ),
    **dict.fromkeys(
        ("level_edges", "level_values"),
        (lambda value: _is_list(value) and _are_numbers(value), "a list of numbers"),
    ),
    **dict.fromkeys(
        ("reward_offset", LEVELS), (lambda value: _are_numbers([value]), "a number")
    ),
    **dict.fromkeys(
        ("full_information", "day_first"),
        (lambda value: isinstance(value, bool), "true or false"),
    ),
    "minimise": (
        lambda value: value is None or isinstance(value, bool),
        "true or false",
    ),
}
"""Field of a schema -> whether a value of it is good, and what is needed; other fields name a column."""


def _is_column(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_numbers(values: Iterable[Any]) -> bool:
    """Whether all values are finite numbers, not truth values."""
    numbers = list(values)
    if any(isinstance(number, bool) for number in numbers):
        return False
    are_real = all(isinstance(number, int | float) for number in numbers)
    return are_real and bool(np.isfinite(numbers).all())


def require_column(
    role: str,
    name: str,
    names: Sequence[str],
) -> None:
    """Raise InputError unless the column of a role is one of the log's."""
    if name not in names:
        raise InputError(
            f"schema: {role} column {name!r} is not in the log, which has "
            f"{format_names(names)}"
        )


SchemaLike: TypeAlias = Schema | Mapping[str, Any] | str | PathLike[str] | None
"""What the columns mean: a Schema, the fields that are known (a mapping, or the path of a TOML file), or
nothing.
"""


def with_fields(schema: SchemaLike, keywords: Mapping[str, Any]) -> SchemaLike:
    """Return what is known of a schema together with the fields that a caller gives by keyword.

    A field that `schema` says otherwise, or that a schema does not have, raises InputError.
    """
    if not keywords:
        return schema
    checked_overrides(keywords, "keyword arguments")
    known: Any = schema or {}
    if isinstance(schema, str | PathLike):
        known = toml_overrides(schema)
    is_whole = isinstance(known, Schema)
    for name, value in keywords.items():
        if is_whole and name not in FIELDS:
            raise InputError(
                f"{name} needs columns whose roles are inferred: no Schema"
            )
        # A field of a whole schema that is empty says nothing.
        said = (getattr(known, name) or value) if is_whole else known.get(name, value)
        if _as_tuple(said) != _as_tuple(value):
            raise InputError(
                f"{name} is named twice: {_words_of(value)} by {name}, {_words_of(said)} "
                "by schema"
            )
    return replace(known, **keywords) if is_whole else {**known, **keywords}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _words_of(value: Any) -> str:
    """Return the value of a field for a message."""
    is_list = isinstance(value, list | tuple)
    return format_names(list(map(str, value))) if is_list else repr(value)


def named_features(schema: SchemaLike, features: Any) -> tuple[SchemaLike, Any]:
    """Return the schema with these features, and None; as they are if `features` is not a list of names."""
    if features is None or is_dataclass(features):
        return schema, features
    is_list = isinstance(features, Sequence) and not isinstance(features, str)
    if not is_list or not _are_texts(features):
        raise InputError(
            f"features must be options, a map or a list of column names, got {features!r}"
        )
    return with_fields(schema, {"features": tuple(features)}), None


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


MOST_CANDIDATES, LAST_CANDIDATES = 20, 8
"""Candidates that a message names, and how many of them are the last ones where there are more."""


def require_role(role: str, options: Mapping[str, str], *more: str) -> NoReturn:
    """Raise InputError: no column was found for a role; list the columns that may have it, and why."""
    what = "action" if role == "arm" else role
    candidates = list(options.items())
    hidden = len(candidates) - MOST_CANDIDATES
    if hidden > 0:
        first = MOST_CANDIDATES - LAST_CANDIDATES
        candidates = [*candidates[:first], *candidates[-LAST_CANDIDATES:]]
    by_option = {f"--{role} {shlex.quote(name)}": why for name, why in candidates}
    width = max(map(len, by_option), default=0)
    lines = [f"  {option:<{width}}  {why}" for option, why in by_option.items()]
    if hidden > 0:
        lines.insert(first, f"  … and {hidden} more columns between these")
    head = f"no column was found to be the {what}; say which one is (in Python: schema={{{role!r}: …}}):"
    raise InputError("\n".join([head, *lines, *more]))

"""Roles: guess what every column of a log means, from its name, its type, its values and their relations."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, escape_line
from invariant_bandits.logs import decode
from invariant_bandits.logs.decode import (
    are_flags,
    are_text_numbers,
    are_truth_words,
    find_time_format,
    holds_times,
    is_list,
    is_number,
    is_text,
    is_time,
    is_vector,
)
from invariant_bandits.logs.doubts import (
    MOST_AMOUNTS,
    less_is_better,
    names_amount,
    names_outcome,
    names_worth,
    sentinel,
    sentinel_words,
)
from invariant_bandits.logs.leakage import (
    IMBALANCED,
    always_usual,
    explained_by_groups,
    imbalance,
    leak_evidence,
    leaks_by_product,
)
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import (
    HINTS,
    NAMES,
    PROBABILITIES,
    ROLES,
    Schema,
    checked_overrides,
    format_names,
    identifies,
    require_role,
)
from invariant_bandits.optional import pyarrow as pa

VAGUE_WORDS = "r y p rating target label item policy choice choices arms candidates created group cell bucket"
"""Usual names that say nothing as a part of a longer one, such as driver_rating."""
UNITS = "eur usd gbp chf cents pct percent mg ml kg km mm ms s sec seconds min minutes hours days utc gmt"
PAST_WORDS = "past previous prior last earlier avg mean total num count history lifetime since before"
"""Words in the names of columns that sum up what happened before a round."""
UNWANTED = "bounced cancelled canceled churned complained declined escalated failed refunded returned skipped"
"""Participles of what is not wanted: more of it is not a better reward."""
DECIDED = "assigned exposed offered selected sent served shown targeted treated"
"""Participles of what was decided, not of what came of it."""
MOST_LABELS, MOST_FRACTIONS = 200, 12
"""Different values, and different fractions, in the first rows beyond which a column holds no labels."""
LEAST_PLAYS = 20
MOST_ANSWERS, MOST_WORDS = 5, 20
"""Different words of a column that may be the answer to a question, and of one named as the reward."""
MANY_CATEGORIES = 100
LOOKED_AT = 1000
"""First rows whose values say what a column is; relations between columns are looked for in more of them."""
LEAST_ROUNDS, SHORTEST_ROUND = 10, 1.5
"""Rounds, and rows per round, from which on rows that stand together are taken for a round."""
USUAL_GAP = 0.1
"""Share of the time of a log by which a later time of the same round follows the first, at most."""
ALIKE, LIKELY = 0.5, 3.0
"""Squared correlation above which two columns may both be outcomes, and the standard errors by which one that
is so close to the reward must depend on the choice to count as a leak.
"""
RELATED = 0.25
"""Squared correlation above which a number and a guessed reward of two values may both be outcomes."""
DONE_WITH_REWARD = 0.05
"""Share of the variance of the reward from which on a feature that says what was done may follow the
choice.
"""
FEW_VALUES = 10
"""Different values, of rows with equal rewards, up to which a number may follow from the reward, as the
revenue of a click does.
"""
DECISION_WORDS = (
    "assignment booking call decision delivery email event exposure impression log mail message notification"
    " order prompt push quote record request row send span ticket trace transaction"
)
"""Words in the names of columns whose values identify one decision, before id, uuid or guid."""
POSITION_WORDS = "position pos slot rank place"
"""Last words in the names of columns that may hold the position of an item in a ranking."""
MOST_PLACES = 1000
"""The largest position of an item in a ranking."""
DISTINCT = 0.98
"""Share of the requests of a ranking whose rows all have different positions, at least."""
IDENTIFIER_WORDS = "id uuid guid"
AGREEMENT = 0.95
"""Share of the rows with a repeated identifier that must agree with the first in the arm and all features."""
SAME_LENGTH = 0.9
"""Share of the lists of a column that must have the same length for their numbers to be features."""
UNNAMED = ("", "unnamed: 0", "index", "row", "row_number", "f0")
PARTICIPLE = re.compile(r"(?i)[a-z]{2}ed$")
NUMBERS = re.compile(r"(?i)(number|no|nr|key|code)$")
"""Ends of the names of columns that identify if their values hardly ever come twice."""
UNIT_NAMES = {
    "probability": re.compile(""),
    "percent": re.compile(r"(?i)%|pct|percent|prob|chance|propens|(^|_)p(_|$)"),
    "weight": re.compile(r"(?i)ipw|ips|weight|wt|inv|importance"),
    "log": re.compile(r"(?i)log"),
}
"""What the name of a column of propensities has in it, by their unit."""
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


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
    for what, named in (
        columns | {f"{name} column": list(hints[name]) for name in HINTS}
    ).items():
        for name in named:
            if name is not None and name not in arrow_schema.names:
                has = f"the log, which has {format_names(arrow_schema.names)}"
                raise InputError(f"schema: {what} {name!r} is not in {has}")
    guess = _Guess(arrow_schema, sample, overrides, hints)
    guess.time_by_type()
    guess.roles_by_name()
    guess.time_by_values()
    guess.rounds_by_values()
    guess.ranking_by_values()
    guess.drop_incomplete_roles()
    guess.arms_by_name(parts=False)
    guess.arms_and_propensities_by_values()
    guess.reward_by_relations()
    guess.require_numeric_reward()
    guess.arms_by_name(parts=True)
    guess.arms_and_propensities_by_values()
    guess.features_by_type()
    guess.arms_of_rows()
    guess.decisions_by_identifier()
    guess.direction_of_reward()
    guess.require_labels()
    schema = Schema(
        **guess.fields,
        reasons=guess.reasons,
        candidates=guess.action_candidates(),
    )
    schema = schema.resolved(arrow_schema)
    return replace(schema, doubts=guess.doubts(schema.features))


def are_labels(column: Any, kind: Any) -> bool:
    """Whether the values of a column of this type may be labels of arms: text or numbers, few different
    ones.
    """
    if not (is_text(kind) or is_number(kind)):
        return False
    there = column.drop_null()
    if is_number(kind) and not _are_whole(column):
        return 0 < len(there.unique()) <= min(MOST_FRACTIONS, len(there) // LEAST_PLAYS)
    return (
        0
        < len(there.unique())
        <= min(max(MOST_LABELS, len(there) // 20), max(len(there) // 2, 2))
    )


def _quoted(words: Sequence[str]) -> str:
    """Words for a message."""
    return ", ".join(escape_line(repr(word)) for word in words)


def _is_float(word: str) -> bool:
    """Whether a text is a number."""
    return are_text_numbers(pa.array([word]))


def _are_numeric_words(column: Any) -> bool:
    """Whether text is read as numbers: numbers, or words such as yes and no."""
    return are_truth_words(column) or are_text_numbers(column)


def are_lists_of_labels(column: Any, kind: Any) -> bool:
    """Whether a column of this type holds lists of labels, or text that separates them by one of | ; ,."""
    if is_list(kind):
        return is_text(kind.value_type) or (
            is_number(kind.value_type) and _are_whole(column)
        )
    if not is_text(kind):
        return False
    words = [word for word in column.drop_null().slice(0, 100).to_pylist() if word]
    return (
        bool(words)
        and sum(any(mark in word for mark in "|;,") for word in words) > len(words) / 2
    )


def are_probabilities(column: Any) -> bool:
    """Whether the usable values lie above 0 and at most at 1, up to one in ten."""
    values = _usable_numbers(column)
    return len(values) > 0 and bool(((values > 0.0) & (values <= 1.0)).mean() >= 0.9)


def count_up(column: Any) -> bool:
    """Whether every value is one more than the one before."""
    values = _usable_numbers(column)
    return 1 < len(values) == len(column) and bool((np.diff(values) == 1.0).all())


def vary_within(
    sample: Any, round_name: str, features: Sequence[str], label: str
) -> bool:
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
    values = _numbers(column)
    return values[np.isfinite(values)]


def _numbers(column: Any) -> Array:
    """Numbers (n,) of a column, NaN where there is none."""
    flat = _flat(column)
    problems = RowProblems(len(flat))
    values = decode.numbers(flat, "", problems)
    return np.where(problems.usable, values, np.nan)


def _flat(column: Any) -> Any:
    """One array of a column that may be chunked, lists flattened."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.flatten() if is_list(array.type) else array


MISMATCH, MOST_ERROR = 0.05, 0.25
"""How far the sum of 1/p over the rounds of an arm may be off beyond four standard errors, and the largest
standard error at which that says anything.
"""


def are_propensities_of(propensities: Array, labels: Array) -> bool | None:
    """Whether numbers can be the probabilities with which labels were chosen; None if there are too few
    rounds to tell.

    If so, Σ 1/p over the rounds of a label is the number of rounds in which it was offered, for every label:
    those from its first to its last use. A column of the context does not have this property.

    Parameters
    ----------
    propensities : array, shape (n,)
        NaN where there is none.
    labels : array, shape (n,)
        Codes of the labels.
    """
    usable = propensities > 0.0
    weights = np.where(usable, 1.0 / np.where(usable, propensities, 1.0), 0.0)
    tested = 0
    for code in np.unique(labels[usable]):
        rows = np.flatnonzero((labels == code) & usable)
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


def usual_name(column: str, role: str) -> str | None:
    """Return the usual name of a role that a longer name ends in, units aside; None if there is none.

    Of a reward, the name may begin with it, and its last word may be the first four or more letters of it.

    >>> [usual_name(name, "reward") for name in ("feedback.click", "profit_eur", "resp", "past_purchase")]
    ['click', 'profit', 'response', None]
    >>> usual_name("subject_variant", "arm"), usual_name("sentAt", "time")
    ('variant', 'at')
    """
    parts = _parts(column)
    while len(parts) > 1 and parts[-1] in UNITS.split():
        parts.pop()
    if not parts or (role == "reward" and set(PAST_WORDS.split()) & set(parts)):
        return None
    usual = [word for word in NAMES[role].split() if word not in VAGUE_WORDS.split()]
    ends = ["_".join(parts[first:]) for first in range(len(parts))]
    if role == "reward":
        ends.append(parts[0])  # as in bought_offer
        ends += [
            word for word in usual if len(parts[-1]) > 3 and word.startswith(parts[-1])
        ]
    return next((end for end in ends if end in usual), None)


def _parts(name: str) -> list[str]:
    """The words that a name consists of."""
    return [part.lower() for part in PARTS.findall(name)]


class _Guess:
    """Fields of a schema as far as they are known, why, and the columns that are taken."""

    def __init__(
        self,
        arrow_schema: Any,
        sample: Any,
        overrides: Mapping[str, Any],
        hints: Mapping[str, Sequence[str]],
    ) -> None:
        self.rows, self.sample = sample.combine_chunks(), sample.slice(0, LOOKED_AT)
        self.overrides, self.hints = dict(overrides), hints
        self.types = {
            name: arrow_schema.field(name).type for name in arrow_schema.names
        }
        self.fields: dict[str, Any] = dict(overrides)
        self.reasons = {
            name: "as given" for name, value in overrides.items() if value is not None
        }
        self.taken = {
            overrides[role] for role in ROLES if isinstance(overrides.get(role), str)
        }
        self.taken |= {*overrides.get("features", ()), *hints["ignore"]}
        self.reasons |= {f"!{name}": "as given" for name in hints["ignore"]}

    def _take(self, role: str, column: str, why: str) -> None:
        self.fields[role] = column
        self.reasons[role] = f"{why}, {self.types[column]}"
        self.taken.add(column)

    def _free(self) -> list[str]:
        """Columns without a role."""
        return [name for name in self.types if name not in self.taken]

    def _codes(self, name: str) -> Array:
        return decode.value_codes(_flat(self.rows.column(name)))

    def time_by_type(self) -> None:
        """A column of timestamps or dates is the time, if its name says so or there is no other."""
        if "time" in self.fields:
            return
        stamps = [name for name in self._free() if is_time(self.types[name])]
        named = [name for name in stamps if name.lower() in NAMES["time"].split()]
        if named or len(stamps) == 1:
            why = "by its name" if named else "the only column of its type"
            self._take("time", (named or stamps)[0], why)

    def time_by_values(self) -> None:
        """Take a column that holds times for the time: the only one, the only one in order, by the end of
        its name, or because the others follow it.
        """
        if "time" in self.fields:
            return
        stamps = [
            name
            for name in self._free()
            if holds_times(self.sample.column(name), self.types[name])
        ]
        named = [name for name in stamps if usual_name(name, "time")]
        if len(stamps) == 1:
            self._take(
                "time",
                stamps[0],
                "by a part of its name" if named else "it holds times",
            )
            return
        whole = [name for name in stamps if self.rows.column(name).null_count == 0]
        times = {name: self._moments(name) for name in whole}
        ordered = [
            name
            for name in whole
            if len(times[name]) and (np.diff(times[name]) >= 0).all()
        ]
        first = [
            name
            for name in whole
            if all(_follow(times[name], other) for other in times.values())
        ]
        if len(ordered) == 1 and not set(named) - set(ordered):
            self._take("time", ordered[0], "it holds times, and they are in order")
        elif named:
            named.sort(
                key=lambda name: (
                    name not in whole,
                    name not in ordered,
                    name not in first,
                )
            )
            self._take("time", named[0], "by a part of its name")
        elif first or len(whole) == 1:
            self._take(
                "time", (first or whole)[0], "it holds times, and other times follow it"
            )
        elif stamps:
            none = "  --time none, if rows are in the order of time (None)"
            require_role("time", {name: self._distinct(name) for name in stamps}, none)

    def _moments(self, name: str) -> Array:
        """Times (n,) of a column as whole numbers; empty if they cannot be read."""
        column, kind = _flat(self.rows.column(name)), self.types[name]
        problems = RowProblems(len(column))
        try:
            form = find_time_format(
                self.rows.column(name), kind, self.fields.get("day_first")
            )
        except InputError:  # days may be months
            return np.zeros(0)
        column = column if form is None else form(column)
        times = decode.times(
            column, name, is_time(column.type) or not is_number(kind), problems
        )
        return times.astype(np.int64) if problems.usable.all() else np.zeros(0)

    def rounds_by_values(self) -> None:
        """Find rounds of several rows: values that stand together, and a flag that is true once in each."""
        said = set(self.overrides)
        if {"arm", "features", "offered"} & said or self.fields.get(
            "offered"
        ) is not None:
            return
        known, marked = self.fields.get("round"), self.fields.get("chosen")
        if (known and marked) or {"round", "chosen"} <= said:
            return
        rounds = (
            [known]
            if known
            else sorted(self._free(), key=lambda name: not identifies(name))
        )
        flags = [marked] if marked else self._free()
        flags = [
            name
            for name in flags
            if not is_list(self.types[name]) and are_flags(self.rows.column(name))
        ]
        for name in rounds if flags else ():
            kind = self.types[name]
            if is_list(kind) or holds_times(self.sample.column(name), kind):
                continue
            codes = self._codes(name)
            starts = decode.run_starts(_flat(self.rows.column(name)))[
                :-1
            ]  # the last may be cut
            if len(starts) < LEAST_ROUNDS or len(codes) < SHORTEST_ROUND * len(starts):
                continue
            if len(np.unique(codes[starts])) < len(starts):
                continue
            once = [flag for flag in flags if self._is_true_once(flag, starts)]
            if len(once) == 1:
                if not known:
                    self._take("round", name, "rows with the same value stand together")
                if not marked:
                    self._take("chosen", once[0], f"true once for every {name}")
                return

    def ranking_by_values(self) -> None:
        """Find rows of one request that differ in their position: a ranking, each row with its own reward."""
        if (
            "ranking" in self.overrides
            or self.fields.get("offered") is not None
            or self.fields.get("chosen")
        ):
            return
        found = self._ranking()
        if found is None:
            return
        request, position = found
        if self.fields.get("full_information"):
            what = (
                f"the rows of a {request} are a ranking by {position!r}, "
                "so a reward belongs to its position"
            )
            how = "leave out --full-information, or say --ranking none if positions do not matter"
            raise InputError(
                f"{what}: the rewards of another order are not known; {how}"
            )
        if self.fields.get("round") == request:
            self.fields["round"] = None
            self.reasons.pop("round", None)
        self._take(
            "position",
            position,
            "the position in a ranking; also a feature, a category",
        )
        self._take("ranking", request, f"its rows have different values of {position}")

    def _ranking(self) -> tuple[str, str] | None:
        """The columns of the request and of the position of a ranking, if the rows show one."""
        role = self.fields.get("position")
        words = set(POSITION_WORDS.split())
        named = [
            name for name in self._free() if _parts(name) and _parts(name)[-1] in words
        ]
        positions = [
            name for name in ([role] if role else named) if self._are_positions(name)
        ]
        known = self.fields.get("round")
        requests = [known] if known else []
        requests += sorted(self._free(), key=lambda name: not identifies(name))
        for request in requests if positions else ():
            if is_list(self.types[request]) or request in positions:
                continue
            codes = self._codes(request)
            if len(codes) < SHORTEST_ROUND * max(len(np.unique(codes)), LEAST_ROUNDS):
                continue
            for position in positions:
                if self._differ_within(codes, self._codes(position)):
                    return request, position
        return None

    def _are_positions(self, name: str) -> bool:
        """Whether a column holds small whole numbers that are not negative, as positions are."""
        if not is_number(self.types[name]) or not _are_whole(self.rows.column(name)):
            return False
        values = _usable_numbers(self.rows.column(name))
        return (
            len(values) > 0
            and values.min() >= 0.0
            and 1.0 < values.max() <= MOST_PLACES
        )

    @staticmethod
    def _differ_within(requests: Array, positions: Array) -> bool:
        """Whether the rows of nearly every request have different positions."""
        pairs = np.unique(np.stack([requests, positions]), axis=1)[0]
        rows = np.unique(requests, return_counts=True)[1]
        different = np.unique(pairs, return_counts=True)[1]
        return bool((rows == different).mean() >= DISTINCT)

    def _is_true_once(self, name: str, starts: Array) -> bool:
        flags = decode.flags(_flat(self.rows.column(name))).astype(np.int64)
        return bool((np.add.reduceat(flags, starts)[:-1] == 1).all())

    def roles_by_name(self) -> None:
        """A column with a usual name has that role, if its type fits."""
        for role in NAMES:
            if role not in (
                "action",
                "arm",
                "arms_offered",
            ):  # what they mean depends on the others
                self._take_named(role)

    def _take_named(self, role: str, *, parts: bool = False) -> None:
        """Give a role to the column with the likeliest of its usual names, if the type of the column fits.

        With `parts`, a name may end in the usual one.
        """
        names = [] if role in self.fields else self._named(role, parts=parts)
        if names:
            self._take(
                role, names[0], "by a part of its name" if parts else "by its name"
            )

    def _named(self, role: str, *, parts: bool) -> list[str]:
        """Columns without a role that have one of its usual names and fit, the likeliest first."""
        usual = {
            name: usual_name(name, role) if parts else name.lower()
            for name in self._free()
        }
        words = NAMES[role].split()
        names = [
            name
            for name, word in usual.items()
            if word in words and self._fits(role, name)
        ]
        return sorted(names, key=lambda name: words.index(str(usual[name])))

    def _has_rows_per_action(self) -> bool:
        has_choice = self.fields.get("chosen") is not None or bool(
            self.fields.get("full_information")
        )
        return self.fields.get("round") is not None and has_choice

    def _has_features_of_actions(self) -> bool:
        return self.fields.get("offered") is not None or self._has_rows_per_action()

    def _fits(self, role: str, column: str) -> bool:
        """Return whether a column of this type can have this role."""
        kind, sample = self.types[column], self.sample.column(column)
        fits: dict[str, Callable[[], bool]] = {
            "offered": lambda: is_list(kind) and is_vector(kind.value_type),
            "rewards": lambda: is_vector(kind),
            "propensity": lambda: is_number(kind) and are_probabilities(sample),
            "reward": lambda: (
                is_number(kind) or (is_text(kind) and _are_numeric_words(sample))
            ),
            "arm": lambda: are_labels(sample, kind),
            "arms_offered": lambda: are_lists_of_labels(sample, kind),
            "chosen": lambda: are_flags(sample),
            "time": lambda: is_number(kind) or is_text(kind) or is_time(kind),
            "position": lambda: is_number(kind),
        }
        return fits.get(role, lambda: is_number(kind) or is_text(kind))()

    def _unit(self, name: str) -> str | None:
        """How a column of numbers writes probabilities, if it does; all but plain ones need their name."""
        values = _usable_numbers(self.sample.column(name))
        for unit, words in UNIT_NAMES.items() if len(values) else ():
            chances = PROBABILITIES[unit](values)
            usual = ((chances > 0.0) & (chances <= 1.0)).mean() >= 0.9
            named = words.search(name) or name == self.overrides.get("propensity")
            if usual and named and (unit == "probability" or np.ptp(values) > 0.0):
                return unit
        return None

    def _chances(self, name: str) -> Array:
        """Probabilities (n,), NaN where there is none."""
        values = _numbers(self.rows.column(name))
        with np.errstate(invalid="ignore"):
            return np.where(
                np.isfinite(values),
                PROBABILITIES[self._unit(name) or "probability"](values),
                np.nan,
            )

    def drop_incomplete_roles(self) -> None:
        """A role that needs another one is dropped where that is missing: offered actions without the
        chosen one.
        """
        if self._has_features_of_actions():
            self._take_named("action")
        has = {role: self.fields.get(role) is not None for role in NAMES}
        if has["offered"] and not has["action"]:
            self._drop("offered", "it needs an action column")
            has["offered"] = False
        if has["rewards"] and not has["offered"]:
            self._drop("rewards", "it needs offered actions")
        if has["chosen"] and (not has["round"] or has["offered"]):
            self._drop(
                "chosen", "it needs a round column and no lists of offered actions"
            )

    def arms_by_name(self, *, parts: bool) -> None:
        """Take a column of labels, or an action that the caller named, for the arm unless rows say what
        was offered.
        """
        if self._has_features_of_actions():
            return
        action = self.fields.pop("action", None)
        if action is not None and self.fields.get("arm") is None:
            self.reasons.pop("action", None)
            self._take("arm", action, "as given")
        elif "action" not in self.overrides:
            self._take_named("arm", parts=parts)
        if self.fields.get("arm") is not None:
            self._take_named("arms_offered")

    def arms_and_propensities_by_values(self) -> None:
        """Find the arm by its propensity, or the propensity by the arm: the one pair of columns that fit."""
        self._propensity_of_rows() if self._has_features_of_actions() else self._pair_by_values()
        name = self.fields.get("propensity")
        if name and "propensity_unit" not in self.overrides:
            self.fields["propensity_unit"] = unit = self._unit(name) or "probability"
            if unit not in ("probability", *self.reasons["propensity"].split(", ")):
                self.reasons["propensity"] += f", {unit}"

    def _propensity_of_rows(self) -> None:
        """Of rows per action, take the probabilities that only chosen rows have, or that add up to one."""
        self._take_named("propensity", parts=True)
        if "propensity" in self.fields or not self.fields.get("chosen"):
            return
        starts = decode.run_starts(_flat(self.rows.column(self.fields["round"])))
        chosen = decode.flags(_flat(self.rows.column(self.fields["chosen"])))

        def fits(values: Array) -> bool:
            sums = np.add.reduceat(np.nan_to_num(values), starts)[:-1]
            of_chosen = bool((np.isfinite(values) == chosen).mean() > 1.0 - DEPENDENT)
            return of_chosen or bool(
                (abs(sums - 1.0) < MISMATCH).mean() > 1.0 - DEPENDENT
            )

        fitting = [
            name for name in self._probability_columns() if fits(self._chances(name))
        ]
        if len(fitting) == 1:
            self._take(
                "propensity", fitting[0], "probabilities that belong to the chosen rows"
            )

    def _pair_by_values(self) -> None:
        arm, propensity = self.fields.get("arm"), self.fields.get("propensity")
        said = set(self.overrides)
        labels = (
            [arm] if arm else [] if {"arm", "action"} & said else self._label_columns()
        )
        chances = (
            [propensity]
            if propensity
            else []
            if "propensity" in said
            else self._probability_columns()
        )
        pairs = {
            (label, chance): are_propensities_of(
                self._chances(chance), self._codes(label)
            )
            for chance in chances
            for label in labels
            if label != chance and not (arm and propensity)
        }
        fitting = [pair for pair, fits in pairs.items() if fits]
        why = "1/p adds up to the rounds of every level"
        if arm and not fitting:  # too few rounds to tell: the name decides
            fitting = [
                pair
                for pair, fits in pairs.items()
                if fits is None and usual_name(pair[1], "propensity")
            ]
            why = "by a part of its name"
        for rule in (_names_label, self._depends):
            if len({label for label, _ in fitting}) > 1:
                fitting = [pair for pair in fitting if rule(*pair)] or fitting
        if len({label for label, _ in fitting}) != 1:
            return
        label, chance = max(
            fitting, key=lambda pair: usual_name(pair[1], "propensity") is not None
        )
        if not arm:
            self._take("arm", label, f"{chance} fits it, {why}")
        if not propensity:
            self._take("propensity", chance, f"it fits {label}, {why}")

    def _depends(self, label: str, chance: str) -> bool:
        """Whether probabilities differ between labels, as those of a choice do unless all are equal."""
        values = self._chances(chance)
        usable = np.isfinite(values)
        values, codes = values[usable], self._codes(label)[usable]
        return bool(
            np.ptp(values) > 0.0 and explained_by_groups(codes, values) > DEPENDENT
        )

    def _label_columns(self) -> list[str]:
        """Columns without a role that may hold labels of arms, text first, then by the number of levels."""
        free = [
            name
            for name in self._free()
            if are_labels(self.sample.column(name), self.types[name])
        ]
        levels = {
            name: len(self.sample.column(name).drop_null().unique()) for name in free
        }
        several = [name for name in free if levels[name] > 1]
        return sorted(
            several, key=lambda name: (not is_text(self.types[name]), levels[name])
        )

    def _probability_columns(self) -> list[str]:
        """Columns without a role that may be propensities: fractions, or others by their name."""
        free = [
            name
            for name in self._free()
            if is_number(self.types[name]) and self._unit(name)
        ]
        return [
            name
            for name in free
            if self._unit(name) != "probability"
            or not _are_whole(self.sample.column(name))
        ]

    @cached_property
    def _choices(self) -> tuple[Array, Array] | None:
        """Codes (n,) of the arms and 1/p (n,), 0 where there is no propensity; None if they are not known."""
        arm, propensity = self.fields.get("arm"), self.fields.get("propensity")
        if not arm or not propensity or self._has_features_of_actions():
            return None
        chances = self._chances(propensity)
        usable = chances > 0.0
        return self._codes(arm), np.where(
            usable, 1.0 / np.where(usable, chances, 1.0), 0.0
        )

    def _imbalance(self, name: str) -> float:
        """How far a column depends on the choice, in standard errors; 0 if that cannot be known."""
        kind = self.types[name]
        if self._choices is None or not (is_number(kind) or is_text(kind)):
            return 0.0
        words = is_text(kind) and not are_truth_words(self.sample.column(name))
        return imbalance(_flat(self.rows.column(name)), *self._choices, words)

    def reward_by_relations(self) -> None:
        """Take a column for the reward: by a part of its name, as the only one that depends on the choice,
        or as the only one whose name says what was done. InputError with the candidates if none is.
        """
        if "reward" in self.fields:
            return
        self.__dict__.pop("_choices", None)
        free = [name for name in self._free() if self._may_be_reward(name)]
        outcomes = self._outcomes(free)
        named = self._first_causes(
            [name for name in self._named("reward", parts=True) if name in free]
        )
        done = [
            name
            for name in free
            if self._is_two_valued(name) and PARTICIPLE.search(name)
        ]
        done = [
            name
            for name in done
            if not {*UNWANTED.split(), *DECIDED.split()} & set(_parts(name))
        ]
        causes = self._first_causes(
            [*outcomes, *(name for name in (named or done) if name not in outcomes)]
        )
        causes = [
            name for name in causes if not set(UNWANTED.split()) & set(_parts(name))
        ]
        agreeing = [name for name in causes if name in named] if named else causes
        others = [name for name in causes if name in outcomes and name not in named]
        sure = [name for name in causes if name in outcomes] or causes
        rivals: list[str] = []
        if named and agreeing:
            rivals = self._rival_outcomes(named[0], ALIKE)
        elif len(sure) == 1 and not named and sure[0] not in outcomes:
            rivals = self._rival_outcomes(sure[0], RELATED)
        if rivals:
            beside = f"it goes with {(named or sure)[0]}, of equal values as well"
            options = {name: self._distinct(name) for name in [*named, *sure]}
            options |= {name: f"{self._distinct(name)}; {beside}" for name in rivals}
            require_role("reward", options)
        elif named and agreeing and (named[0] in outcomes or not others):
            self._take("reward", named[0], "by a part of its name")
        elif not named and len(sure) == 1:
            depends = f"it depends on {self.fields.get('arm')}, as only outcomes do"
            happened = "two values, and its name says what happened"
            self._take("reward", sure[0], depends if sure[0] in outcomes else happened)
        else:
            likely = list(
                dict.fromkeys(
                    [*named, *outcomes, *([] if outcomes else [*done, *free])]
                )
            )
            why = {name: f", depends on {self.fields.get('arm')}" for name in outcomes}
            options = {
                name: self._distinct(name) + why.get(name, "") for name in likely
            }
            require_role("reward", options | self._answers())

    def _answers(self) -> dict[str, str]:
        """Columns of two or three words, which may be rewards once their worth is said."""
        texts = [
            name
            for name in self._free()
            if is_text(self.types[name]) and not identifies(name)
        ]
        words = {
            name: self.sample.column(name).drop_null().unique().to_pylist()
            for name in texts
        }
        return {
            name: f"the words {_quoted(words[name])}; say what they are worth: --reward-values …"
            for name in texts
            if 2 <= len(words[name]) <= MOST_ANSWERS
            and not _are_numeric_words(self.sample.column(name))
        }

    def require_numeric_reward(self) -> None:
        """Raise InputError if the reward holds words whose worth is not known."""
        name = self.fields["reward"]
        if (
            name is None
            or not is_text(self.types[name])
            or _are_numeric_words(self.rows.column(name))
        ):
            return
        counts = self.rows.column(name).value_counts().to_pylist()
        counts = [
            (entry["values"], entry["counts"])
            for entry in counts
            if entry["values"] is not None
        ]
        words = [word for word, _ in sorted(counts, key=lambda pair: -pair[1])]
        known = [
            word
            for word in words
            if word.strip().lower() in decode.TRUTH or _is_float(word)
        ]
        if not words or len(words) > MOST_WORDS or len(known) == len(words):
            return  # bad values among good ones are counted, row by row
        example = ",".join(
            f"{word}={int(place == 0)}" for place, word in enumerate(words[:3])
        )
        raise InputError(
            f"the reward {name!r} holds words: {_quoted(words[:MOST_ANSWERS])}; say what each is worth, such"
            f" as --reward-values {shlex.quote(example)}"
            " (in Python: schema={'reward': …, 'reward_values': {word: number}})"
        )

    def _may_be_reward(self, name: str) -> bool:
        """Whether a column without a role can be the reward, as far as its name and values tell."""
        column, kind = self.rows.column(name), self.types[name]
        if not self._fits("reward", name) or identifies(name) or self._numbers(name):
            return False
        if holds_times(self.sample.column(name), kind) or set(PAST_WORDS.split()) & set(
            _parts(name)
        ):
            return False
        counts = (
            is_number(kind)
            and not pa.types.is_boolean(kind)
            and count_up(self.sample.column(name))
        )
        return len(column.drop_null().unique()) > 1 and not counts

    def _outcomes(self, names: Sequence[str]) -> list[str]:
        """Columns that are known only after the choice: they depend on it, or only chosen rows have them."""
        if self._has_rows_per_action() and self.fields.get("chosen"):
            chosen = decode.flags(_flat(self.rows.column(self.fields["chosen"])))
            present = {
                name: ~decode.is_missing(_flat(self.rows.column(name)))
                for name in names
            }
            return [
                name
                for name in names
                if not chosen.all() and not present[name][~chosen].any()
            ]
        late = [name for name in self._free() if self._imbalance(name) > IMBALANCED]
        found = (
            [name for name in names if name in late]
            if len(late) <= max(2, len(self._free()) // 2)
            else []
        )
        return [
            name
            for name in names
            if name in found or any(self._alike(name, other) for other in found)
        ]

    def _alike(self, first: str, second: str) -> bool:
        """Whether two columns say nearly the same, as two outcomes of one choice do."""
        pair = np.stack([_numbers(self.rows.column(name)) for name in (first, second)])
        pair = pair[:, np.isfinite(pair).all(axis=0)]
        spread = bool((np.ptp(pair, axis=1) > 0.0).all()) if pair.size else False
        return spread and float(np.corrcoef(pair)[0, 1] ** 2) > ALIKE

    def _rival_outcomes(self, reward: str, least: float) -> list[str]:
        """Numbers that may be the reward in place of one of two values: they go with it, and differ where it
        is equal, as a profit does and the revenue of a click does not.
        """
        rewards = _numbers(self.rows.column(reward))
        levels = np.unique(rewards[np.isfinite(rewards)])
        if len(levels) != 2:
            return []
        rivals = []
        for name in self._free():
            if name == reward or not is_number(self.types[name]):
                continue
            if not self._may_be_reward(name):
                continue
            values = _numbers(self.rows.column(name))
            known = np.isfinite(rewards) & np.isfinite(values)
            different = [
                len(np.unique(values[known & (rewards == level)])) for level in levels
            ]
            if min(different) <= FEW_VALUES:
                continue
            correlation = float(np.corrcoef(values[known], rewards[known])[0, 1])
            if correlation**2 > least:
                rivals.append(name)
        return rivals

    def _is_two_valued(self, name: str) -> bool:
        return len(self.sample.column(name).drop_null().unique()) == 2

    def _first_causes(self, names: Sequence[str]) -> list[str]:
        """Columns that do not follow from another one, as the revenue does from the click."""

        def follows(name: str, other: str) -> bool:
            """Whether a column gives another one of two values away, and not the other way round."""
            if not self._is_two_valued(other):
                return False
            pair = [_numbers(self.rows.column(column)) for column in (name, other)]
            columns = [_flat(self.rows.column(column)) for column in (name, other)]
            gives = leak_evidence(columns[0], pair[1]) is not None
            return gives and not (
                self._is_two_valued(name) and leak_evidence(columns[1], pair[0])
            )

        return [
            name
            for name in names
            if not any(follows(name, other) for other in names if other != name)
        ]

    def direction_of_reward(self) -> None:
        """Say from what a reward is subtracted of which less is better: from 1 if it is 0 or 1. Costs that
        are never positive have their sign turned already.
        """
        reward = self.fields["reward"]
        values = _usable_numbers(self.rows.column(reward))
        if (
            self.fields.get("minimise") is None
            and less_is_better(reward)
            and len(values)
            and bool((values <= 0.0).all())
        ):
            self.fields["minimise"] = False
        if self.fields.get("minimise") and "reward_offset" not in self.fields:
            self.fields["reward_offset"] = float(
                bool(np.isin(values, (0.0, 1.0)).all())
            )

    def require_labels(self) -> None:
        """Raise InputError if the arm is a column of numbers with so many values that they are no labels."""
        arm = self.fields.get("arm")
        if not arm or not is_number(self.types[arm]):
            return
        column = self.sample.column(arm)
        different = len(column.drop_null().unique())
        is_amount = not _are_whole(column) or names_amount(arm)
        if (
            not is_amount
            or different <= MOST_FRACTIONS
            or (_are_whole(column) and different <= MOST_AMOUNTS)
        ):
            return
        quoted = shlex.quote(arm)
        raise InputError(
            f"arm {arm!r} holds {different:,} different numbers in the first {len(column):,} rows: an amount,"
            " and one arm per number learns nothing. Two ways work:\n"
            f"  --arm {quoted} --levels 5           five levels of it are the arms, named by their medians\n"
            f"  --no-action --interactions {quoted}:COLUMN   it is a feature of the chosen action\n"
            "(in Python: schema={'arm': …, 'levels': 5}; see docs/how-to/continuous-actions.md)"
        )

    def doubts(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return what may be wrong about the values of the features and of the reward, in words."""
        used = [*features, self.fields["reward"]]
        sentinels = []
        for name in used:
            if name is not None and is_number(self.types[name]):
                value = sentinel(_numbers(self.rows.column(name)))
                sentinels += [] if value is None else [sentinel_words(name, *value)]
        one_sided = self._one_sided_rewards(features)
        late = self._named_outcomes(features)
        return (*sentinels, *one_sided, *late, *self._worth_of_reward())

    def _worth_of_reward(self) -> list[str]:
        """Numbers that follow from a reward of two values which the caller did not name, and say what it is
        worth.
        """
        reward = self.fields["reward"]
        if reward in (None, self.overrides.get("reward")):
            return []
        if not self._is_two_valued(reward):
            return []
        return [
            f"{name!r} follows from {reward!r}: if it is what should be large, say so"
            f" (--reward {shlex.quote(name)})"
            for name in self.types
            if "the reward" in self.reasons.get(f"!{name}", "")
            and names_worth(name)
            and is_number(self.types[name])
            and not self._is_two_valued(name)
        ]

    def _named_outcomes(self, features: Sequence[str]) -> list[str]:
        """Features that the caller did not name, and whose names say what follows a choice."""
        if "features" in self.overrides:
            return []
        known_before = {*PAST_WORDS.split(), *DECIDED.split()}
        return [
            f"{name!r}: its name says what follows a choice; if it is known only after the choice, leave it"
            f" out (--ignore {shlex.quote(name)})"
            for name in features
            if name not in self.hints["keep"]
            and not known_before & set(_parts(name))
            and (names_outcome(name) or self._is_done_with_reward(name))
        ]

    def _is_done_with_reward(self, name: str) -> bool:
        """Whether a column says what was done or not, as `transferred` does, and goes with the reward."""
        if is_list(self.types[name]) or not PARTICIPLE.search(name):
            return False
        if not self._is_two_valued(name):
            return False
        rewards, codes = self._rewards(), self._codes(name)
        known = np.isfinite(rewards)
        if known.sum() < LEAST_ROUNDS or np.ptp(rewards[known]) == 0.0:
            return False
        return explained_by_groups(codes[known], rewards[known]) > DONE_WITH_REWARD

    def _one_sided_rewards(self, features: Sequence[str]) -> list[str]:
        """Features with a value at which all rewards are the usual one, as of an earlier outcome."""
        rewards = self._rewards()
        evidence = {}
        for name in features:
            kind = self.types[name]
            if name not in self.hints["keep"] and (is_number(kind) or is_text(kind)):
                column = _flat(self.rows.column(name))
                evidence[name] = always_usual(column, rewards, is_text(kind))
        what_to_do = "if it is known only after the choice, leave it out (--ignore {})"
        return [
            f"{name!r}: {words}; {what_to_do.format(shlex.quote(name))}"
            for name, words in evidence.items()
            if words is not None
        ]

    def action_candidates(self) -> dict[str, str]:
        """Return features that may be the action, where none was found and the caller said nothing of it."""
        has_action = (
            self._has_features_of_actions()
            or self.fields.get("arm")
            or self.fields.get("ranking")
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
        features = [
            name
            for name in self.fields["features"]
            if name.lower() not in NAMES["arm"].split()
        ]
        others = (name for name in self.fields["features"] if name not in features)
        label = self.fields.get("action") or next(others, None)
        if label is None or vary_within(
            self.sample, str(self.fields["round"]), features, label
        ):
            return
        self.fields |= {"action": None, "features": tuple(features)}
        self.reasons = {
            name: why
            for name, why in self.reasons.items()
            if name not in ("action", label)
        }
        self._take("arm", label, "the only column that differs within rounds")

    def decisions_by_identifier(self) -> None:
        """Take a column that identifies decisions for the round, so that rows which repeat one are found."""
        if (
            self.fields.get("round") is not None
            or "round" in self.overrides
            or self._has_rows_per_action()
        ):
            return
        for name in filter(_identifies_decisions, self.types):
            if (
                name in self.fields.values()
                or name in self.hints["ignore"]
                or is_list(self.types[name])
            ):
                continue
            why = self._repeats_decisions(name)
            if why is not None:
                self.reasons.pop(f"!{name}", None)
                self._take("round", name, why)
                return

    def _repeats_decisions(self, name: str) -> str | None:
        """Say why the values of a column identify decisions; None if rows that share one differ."""
        codes = self._codes(name)
        known, first, index = np.unique(codes, return_index=True, return_inverse=True)
        if len(known) < 2:
            return None
        again = first[index] != np.arange(len(codes))
        if not again.any():
            return f"identifies decisions: no value comes twice in the first {len(codes):,} rows"
        same = np.ones(int(again.sum()), dtype=bool)
        compared = [*self.fields["features"], *filter(None, [self.fields.get("arm")])]
        for column in compared:
            if not is_list(self.types[column]):
                values = self._codes(column)
                same &= values[again] == values[first[index[again]]]
        if not compared or same.mean() < AGREEMENT:
            return None
        return f"identifies decisions: {int(again.sum()):,} of the first {len(codes):,} rows repeat one"

    def _drop(self, role: str, why: str) -> None:
        self.reasons[f"!{self.fields[role]}"] = f"could be {role}, but {why}"
        self.reasons.pop(role, None)
        self.fields[role] = None

    def features_by_type(self) -> None:
        """Numbers, text with few categories and lists of numbers among the other columns are features."""
        if "features" in self.fields:
            return
        free = self._free()
        lists = [name for name in free if is_vector(self.types[name])]
        for name in [
            name
            for name in lists
            if UNIT_NAMES["percent"].search(name) and self._add_up(name)
        ]:
            self.reasons[f"!{name}"] = (
                "probabilities of all actions: each list adds up to 1"
            )
            lists.remove(name)
            free.remove(name)
        if self.fields.get("offered") is not None:
            free = []
        else:
            self.__dict__.pop("_choices", None)
            rewards = self._rewards()
            vectors = [name for name in lists if self._is_vector_feature(name)]
            numbers = [
                name
                for name in free
                if name not in lists and self._is_feature(name, rewards)
            ]
            self._leave_out_outcomes(numbers, rewards)
            free = [name for name in free if name in vectors or name in numbers]
        position = self.fields.get("position")
        if self.fields.get("ranking") is not None and position is not None:
            free.append(position)
            self.fields["categorical"] = (*self.fields.get("categorical", ()), position)
        self.fields["features"] = tuple(free)

    def _is_vector_feature(self, name: str) -> bool:
        """Whether a column of lists of numbers is a feature: nearly all have the same length; says why."""
        lengths = decode.list_lengths(
            self.sample.column(name).drop_null().combine_chunks(), missing=-1
        )
        usual = np.unique(lengths, return_counts=True)[1].max() if len(lengths) else 0
        is_feature = bool(usual > 0 and usual >= SAME_LENGTH * len(lengths))
        why = (
            f"lists of numbers, {self.types[name]}"
            if is_feature
            else "its lists differ in length"
        )
        self.reasons[name if is_feature else f"!{name}"] = why
        return is_feature

    def _leave_out_outcomes(self, features: list[str], rewards: Array) -> None:
        """Remove features that depend on the choice, unless so many do that the propensities must be wrong,
        and those that give the reward away together with another one.
        """
        arms = None if self._choices is None else self._choices[0]
        reward = self.fields["reward"]
        depends = {name: self._imbalance(name) for name in features}
        late = [name for name in features if depends[name] > IMBALANCED]
        late += [
            name
            for name in features
            if IMBALANCED >= depends[name] > LIKELY
            and is_number(self.types[name])
            and self._alike(name, reward)
        ]
        late = [name for name in late if not _is_function(self._codes(name), arms)]
        late = late if len(late) <= max(1, len(features) // 3) else []
        why = dict.fromkeys(
            late, f"known only after the choice: it depends on {self.fields.get('arm')}"
        )
        numbers = [name for name in features if is_number(self.types[name])]
        if self.fields.get("chosen") is None:
            why |= leaks_by_product(
                {name: _numbers(self.rows.column(name)) for name in numbers}, rewards
            )
        for name in why.keys() - set(self.hints["keep"]):
            features.remove(name)
            self.reasons.pop(name)
            self.reasons[f"!{name}"] = (
                f"{why[name]}; --keep {shlex.quote(name)} makes it a feature"
            )

    def _add_up(self, name: str) -> bool:
        """Whether the numbers of every list add up to 1."""
        lists = self.sample.column(name).drop_null().to_pylist()
        return all(
            abs(sum(value or 0.0 for value in numbers) - 1.0) < MISMATCH
            for numbers in lists
        )

    def _rewards(self) -> Any:
        """Rewards (n,) of the first rows, NaN where there is none."""
        values = _numbers(self.rows.column(self.fields["reward"]))
        chosen = self.fields.get("chosen")
        if chosen is not None and are_flags(self.rows.column(chosen)):
            values[~decode.flags(_flat(self.rows.column(chosen)))] = np.nan
        return values

    def _leak(self, name: str, rewards: Any) -> str | None:
        """Say how a column gives the reward away, or that it stands beside it; None if it is a feature."""
        if name in self.hints["keep"]:
            return None
        beside = name.rpartition(".")[0]
        others = [
            self.fields[role]
            for role in NAMES
            if role != "reward" and self.fields.get(role)
        ]
        reward = str(self.fields["reward"])
        alone = not any(column.rpartition(".")[0] == beside for column in others)
        if beside and beside == reward.rpartition(".")[0] and alone:
            return f"known only after the reward: it stands beside {reward}"
        return leak_evidence(
            _flat(self.rows.column(name)), rewards, is_text(self.types[name])
        )

    def _is_feature(self, name: str, rewards: Any) -> bool:
        """Whether a column without a role is a feature; says why or why not."""
        kind, column = self.types[name], self.sample.column(name)
        why, kept = str(kind), name in self.hints["keep"]
        checks: dict[str, Callable[[], bool]] = {
            "its name says that it only identifies": lambda: (
                identifies(name) or self._numbers(name)
            ),
            "it holds times": lambda: (
                is_time(kind) or (not kept and holds_times(column, kind))
            ),
            f"{kind} is not a number": lambda: not (is_number(kind) or is_text(kind)),
            "it only counts the rows": lambda: (
                is_number(kind) and self._counts_rows(name)
            ),
            f"it is the same in the first {len(self.rows):,} rows": lambda: (
                not kept and self._is_constant(name)
            ),
            "its name says that it is a propensity": lambda: (
                not kept and self._names_propensity(name)
            ),
            "its name says that it is the probability of one action": (
                lambda: not kept and self._is_chance_of_an_arm(name)
            ),
        }
        why_not = next((words for words, is_so in checks.items() if is_so()), None)
        if why_not is None and (leak := self._leak(name, rewards)):
            why_not = f"{leak}; --keep {shlex.quote(name)} makes it a feature"
        elif why_not is None and is_text(kind):
            why = f"{kind}, {self._distinct(name)}"
            many = len(column.unique()) > MANY_CATEGORIES
            why_not = f"{kind} is not a number and has many values" if many else None
        if (
            why_not is not None
            and name.lower() in NAMES["arm"].split()
            and self.fields.get("arm") is None
        ):
            why_not = f"could be the arm, but {self._distinct(name)}; --arm {name} says that it is"
        self.reasons[f"!{name}" if why_not else name] = why_not or why
        return why_not is None

    def _names_propensity(self, name: str) -> bool:
        """Whether the name of a column of fractions says that it is the probability of a choice."""
        words = ("propensity", "pscore", "logging")
        named = (
            any(word in name.lower() for word in words)
            or name.lower() in NAMES["propensity"].split()
        )
        named |= (
            not self.fields.get("arm") and usual_name(name, "propensity") is not None
        )
        return (
            named
            and is_number(self.types[name])
            and are_probabilities(self.sample.column(name))
        )

    def _is_chance_of_an_arm(self, name: str) -> bool:
        """Whether a column of probabilities is named after one of the arms, as p_red is."""
        arm = self.fields.get("arm")
        if (
            not arm
            or not is_number(self.types[name])
            or not UNIT_NAMES["percent"].search(name)
        ):
            return False
        labels = self.sample.column(arm).unique().to_pylist()
        words = {"".join(_parts(str(label))) for label in labels if label is not None}
        parts = _parts(name)
        ends = {"".join(parts[first:]) for first in range(1, len(parts))}
        values = _usable_numbers(self.sample.column(name))
        return bool(words & ends) and bool(((values >= 0.0) & (values <= 100.0)).all())

    def _distinct(self, name: str) -> str:
        """How many different values the first rows have, in words."""
        return f"{len(self.sample.column(name).unique())} different in the first {len(self.sample)} rows"

    def _numbers(self, name: str) -> bool:
        """Whether this is a number of a thing, such as a card_number: most values differ."""
        column = self.sample.column(name)
        return (
            NUMBERS.search(name) is not None
            and len(column.unique()) > len(column) // 2 > 10
        )

    def _is_constant(self, name: str) -> bool:
        """Whether the first rows, not a few, have one value only."""
        column = self.rows.column(name)
        return (
            len(column) > LOOKED_AT
            and column.null_count == 0
            and len(column.unique()) == 1
        )

    def _counts_rows(self, name: str) -> bool:
        """Whether this is a number of the row, or rises with it: no two are equal, and all are in order, of
        the rows or of the times. It would take the place of the time.
        """
        values, time = _numbers(self.rows.column(name)), self.fields.get("time")
        if name == next(iter(self.types)) and name.lower() in UNNAMED:
            return count_up(self.sample.column(name))
        if len(values) < LOOKED_AT or not _are_whole(self.sample.column(name)):
            return False
        orders = [np.arange(len(values)), *([self._moments(time)] if time else [])]
        return any(
            bool((np.diff(values[np.argsort(order, kind="stable")]) > 0.0).all())
            for order in orders
            if len(order) == len(values)
        )


def _identifies_decisions(name: str) -> bool:
    """Whether a name says that a column identifies decisions, not people or things."""
    parts = set(_parts(name))
    words = parts - set(IDENTIFIER_WORDS.split())
    return parts != words and words <= set(DECISION_WORDS.split())


def _follow(times: Array, others: Array) -> bool:
    """Whether other times are at most a little later than these, and never earlier."""
    if len(times) != len(others) or not len(times):
        return False
    gaps = others - times
    return bool(
        (gaps >= 0).all() and np.median(gaps) <= USUAL_GAP * max(np.ptp(times), 1)
    )


def _is_function(codes: Array, arms: Array | None) -> bool:
    """Whether every arm has one value only, as its price has."""
    if arms is None:
        return False
    pairs = np.unique(np.stack([arms, codes]), axis=1).shape[1]
    return bool(pairs == len(np.unique(arms)))

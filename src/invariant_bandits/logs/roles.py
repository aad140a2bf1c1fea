"""Roles: guess what every column of a log means, from its name, its type, its values and their relations."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_facts import (
    LEAST_PLAYS,
    LOOKED_AT,
    MOST_FRACTIONS,
    ColumnFacts,
    are_whole,
)
from invariant_bandits.logs.column_names import (
    AMOUNTS,
    NAMES,
    POSITIONS,
    ROLES,
    identifies_decisions,
)
from invariant_bandits.logs.doubts import find_doubts
from invariant_bandits.logs.feature_roles import guess_features
from invariant_bandits.logs.leakage import explained_by_groups
from invariant_bandits.logs.reward_role import (
    guess_reward,
    require_numeric_reward,
    reward_direction,
)
from invariant_bandits.logs.role_table import RoleTable
from invariant_bandits.logs.schema import (
    HINTS,
    Schema,
    checked_overrides,
    inverse,
    require_column,
    require_role,
)

LEAST_ROUNDS = 10
"""Rounds from which on rows that stand together are taken for a round."""
SHORTEST_ROUND = 1.5
"""Rows per round from which on they are: rows that repeat an identifier now and then are no rounds."""
MOST_DELAY = 0.1
"""Share of the time of a log by which a later time of the same round follows the first, at most."""
MOST_POSITION = 1000
"""The largest position of an item in a ranking."""
DISTINCT = 0.98
"""Share of the requests of a ranking whose rows all have different positions, at least."""
AGREEMENT = 0.95
"""Share of the rows with a repeated identifier that must agree with the first in the arm and all features."""
MISMATCH = 0.05
"""How far a sum of probabilities, or of 1/p over the rounds of an arm, may be off beyond chance."""
MOST_ERROR = 0.25
"""Standard error of a sum of 1/p above which it says nothing."""
FOUR_ERRORS = 4.0
"""Standard errors that chance exceeds once in 16,000 sums."""
DEPENDENT = 0.01
"""Share of the variance of probabilities that labels explain which they were not drawn for, at most: its
error is at most 0.002 in 10,000 rows.
"""
MOST_AMOUNTS = 50
"""Different whole amounts beyond which they are not labels."""


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
    _require_columns(arrow_schema.names, overrides, hints)
    rows = sample.combine_chunks()
    columns = {
        column.name: ColumnFacts(column.name, column.type, rows.column(column.name))
        for column in arrow_schema
    }
    table = RoleTable(columns, overrides, hints)
    guess_time_by_type(table)
    guess_roles_by_name(table)
    guess_time_by_values(table)
    guess_rounds(table)
    guess_ranking(table)
    drop_incomplete_roles(table)
    guess_arm_by_name(table, parts=False)
    guess_arm_and_propensity(table)
    guess_reward(table)
    require_numeric_reward(table)
    guess_arm_by_name(table, parts=True)
    guess_arm_and_propensity(table)
    guess_features(table)
    guess_arm_of_rows(table)
    guess_identifier(table)
    direction = reward_direction(table)
    require_labels(table)
    given = {name: value for name, value in overrides.items() if name not in ROLES}
    guessed = {
        "features": table.features,
        "categorical": table.categorical,
        "propensity_unit": table.propensity_unit,
        "reasons": table.reasons,
        "candidates": action_candidates(table),
    }
    schema = Schema(**{**given, **table.roles, **direction, **guessed})
    schema = schema.resolved(arrow_schema)
    return replace(schema, doubts=find_doubts(table, schema.features))


def _require_columns(
    names: Sequence[str],
    overrides: Mapping[str, Any],
    hints: Mapping[str, Sequence[str]],
) -> None:
    """Raise InputError if the caller names a column that the log does not have, or no reward."""
    if overrides.get("reward", "") is None:
        raise InputError("schema: reward must be a column name, got None")
    said = [(role, overrides.get(role)) for role in ROLES]
    for hint, columns in hints.items():
        said += [(hint, name) for name in columns]
    for what, name in said:
        if name is not None:
            require_column(what, name, names)


def guess_time_by_type(table: RoleTable) -> None:
    """Take a column of timestamps for the time, if its name says so or there is no other."""
    if "time" in table.roles:
        return
    stamps = [column for column in table.free() if column.is_time]
    named = [col for col in stamps if col.name.lower() in NAMES["time"].split()]
    if named:
        table.take("time", named[0], "by its name")
    elif len(stamps) == 1:
        table.take("time", stamps[0], "the only column of its type")


def guess_time_by_values(table: RoleTable) -> None:
    """Take a column that holds times for the time.

    It is the only one, the only one in order, named so, or the one that all other times follow.
    """
    if "time" in table.roles:
        return
    stamps = [column for column in table.free() if column.holds_times]
    named = [column for column in stamps if column.usual_name("time")]
    if len(stamps) == 1:
        why = "by a part of its name" if named else "it holds times"
        table.take("time", stamps[0], why)
        return
    day_first = table.overrides.get("day_first")
    complete = [column for column in stamps if column.rows.null_count == 0]
    times = {column: column.times(day_first) for column in complete}
    ordered = [column for column in complete if _are_in_order(times[column])]
    earliest = [
        column
        for column in complete
        if all(_follow(times[column], later) for later in times.values())
    ]
    if len(ordered) == 1 and all(column in ordered for column in named):
        table.take("time", ordered[0], "it holds times, and they are in order")
    elif named:
        named.sort(
            key=lambda column: (
                column not in complete,
                column not in ordered,
                column not in earliest,
            )
        )
        table.take("time", named[0], "by a part of its name")
    elif earliest or len(complete) == 1:
        first = (earliest or complete)[0]
        table.take("time", first, "it holds times, and other times follow it")
    elif stamps:
        none = "  --time none, if rows are in the order of time (None)"
        options = {column.name: column.levels_in_words for column in stamps}
        require_role("time", options, none)


def _are_in_order(times: Array) -> bool:
    return len(times) > 0 and bool((np.diff(times) >= 0).all())


def _follow(times: Array, later: Array) -> bool:
    """Whether other times are at most a little later than these, and never earlier."""
    if len(times) != len(later) or not len(times):
        return False
    gaps = later - times
    most = MOST_DELAY * max(np.ptp(times), 1)
    return bool((gaps >= 0).all() and np.median(gaps) <= most)


def guess_roles_by_name(table: RoleTable) -> None:
    """Give a role to every free column with a usual name, if its type fits."""
    for role in ROLES:
        # What a name of an action means depends on the other roles.
        if role not in ("action", "arm", "arms_offered"):
            table.take_named(role)


def guess_rounds(table: RoleTable) -> None:
    """Find rounds of several rows: values that stand together, and a flag that is true once in each."""
    if table.is_said("arm", "features", "offered") or table.has("offered"):
        return
    round_ = table.column("round")
    chosen = table.column("chosen")
    if (round_ and chosen) or {"round", "chosen"} <= set(table.overrides):
        return
    rounds = [round_] if round_ else _identifiers_first(table.free())
    flags = [chosen] if chosen else table.free()
    flags = [column for column in flags if not column.is_list and column.holds_flags]
    if not flags:
        return
    for column in rounds:
        starts = _starts_of_rounds(column)
        if starts is None:
            continue
        once = [flag for flag in flags if _is_true_once(flag, starts)]
        if len(once) == 1:
            if round_ is None:
                table.take("round", column, "rows with the same value stand together")
            if chosen is None:
                table.take("chosen", once[0], f"true once for every {column.name}")
            return


def _identifiers_first(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    return sorted(columns, key=lambda column: not column.identifies)


def _starts_of_rounds(column: ColumnFacts) -> Array | None:
    """Return where rounds of several rows begin, by equal values; None if the column shows none."""
    if column.is_list or column.holds_times:
        return None
    starts = decode.run_starts(column.array)[:-1]  # the last round may be cut
    if len(starts) < LEAST_ROUNDS or len(column.codes) < SHORTEST_ROUND * len(starts):
        return None
    come_again = len(np.unique(column.codes[starts])) < len(starts)
    return None if come_again else starts


def _is_true_once(flag: ColumnFacts, starts: Array) -> bool:
    marked = np.add.reduceat(flag.flags.astype(np.int64), starts)
    return bool((marked[:-1] == 1).all())


def guess_ranking(table: RoleTable) -> None:
    """Find a ranking: rows of one request at different positions, each with its own reward."""
    if table.is_said("ranking") or table.has("offered") or table.has("chosen"):
        return
    ranking = _find_ranking(table)
    if ranking is None:
        return
    request, position = ranking
    if table.overrides.get("full_information"):
        raise InputError(
            f"the rows of a {request.name} are a ranking by {position.name!r}, so a reward "
            "belongs to its position: the rewards of another order are not known; leave out "
            "--full-information, or say --ranking none if positions do not matter"
        )
    if table.roles.get("round") == request.name:
        table.roles["round"] = None
        table.reasons.pop("round", None)
    table.take(
        "position", position, "the position in a ranking; also a feature, a category"
    )
    table.take("ranking", request, f"its rows have different values of {position.name}")


class Ranking(NamedTuple):
    """Columns of a ranking.

    Attributes
    ----------
    request, position : ColumnFacts
        What identifies the request of a row, and the position of its item.
    """

    request: ColumnFacts
    position: ColumnFacts


def _find_ranking(table: RoleTable) -> Ranking | None:
    """Return the columns of a ranking; None if the rows show none."""
    position = table.column("position")
    if position is None:
        positions = [
            column
            for column in table.free()
            if column.words and column.words[-1] in POSITIONS
        ]
    else:
        positions = [position]
    positions = [column for column in positions if _holds_positions(column)]
    if not positions:
        return None
    requests = _identifiers_first(table.free())
    round_ = table.column("round")
    if round_ is not None:
        requests.insert(0, round_)
    for request in requests:
        if request.is_list or request in positions:
            continue
        different = len(np.unique(request.codes))
        if len(request.codes) < SHORTEST_ROUND * max(different, LEAST_ROUNDS):
            continue
        for position in positions:
            if _differ_within(request.codes, position.codes):
                return Ranking(request, position)
    return None


def _holds_positions(column: ColumnFacts) -> bool:
    """Whether a column holds small whole numbers that are not negative, as positions are."""
    if not column.is_number:
        return False
    numbers = column.finite_numbers
    if not len(numbers) or not are_whole(numbers):
        return False
    return bool(numbers.min() >= 0.0 and 1.0 < numbers.max() <= MOST_POSITION)


def _differ_within(requests: Array, positions: Array) -> bool:
    """Whether the rows of nearly every request have different positions."""
    pairs = np.unique(np.stack([requests, positions]), axis=1)[0]
    rows = np.unique(requests, return_counts=True)[1]
    different = np.unique(pairs, return_counts=True)[1]
    return bool((rows == different).mean() >= DISTINCT)


def drop_incomplete_roles(table: RoleTable) -> None:
    """Drop a role that needs another one where that is missing, as offered actions need the chosen one."""
    if table.has_features_of_actions:
        table.take_named("action")
    if table.has("offered") and not table.has("action"):
        table.drop("offered", "it needs an action column")
    if table.has("rewards") and not table.has("offered"):
        table.drop("rewards", "it needs offered actions")
    if table.has("chosen") and (not table.has("round") or table.has("offered")):
        table.drop("chosen", "it needs a round column and no lists of offered actions")


def guess_arm_by_name(table: RoleTable, *, parts: bool) -> None:
    """Take labels, or an action that the caller named, for the arm unless rows say what was offered."""
    if table.has_features_of_actions:
        return
    action = table.column("action")
    table.roles.pop("action", None)
    if action is not None and not table.has("arm"):
        table.reasons.pop("action", None)
        table.take("arm", action, "as given")
    elif not table.is_said("action"):
        table.take_named("arm", parts=parts)
    if table.has("arm"):
        table.take_named("arms_offered")


def guess_arm_and_propensity(table: RoleTable) -> None:
    """Find the arm by its propensity, or the propensity by the arm: the one pair of columns that fit."""
    if table.has_features_of_actions:
        _guess_propensity_of_rows(table)
    else:
        _guess_pair(table)
    propensity = table.column("propensity")
    if propensity is None or table.is_said("propensity_unit"):
        return
    unit = table.unit(propensity) or "probability"
    table.propensity_unit = unit
    if unit not in ("probability", *table.reasons["propensity"].split(", ")):
        table.reasons["propensity"] += f", {unit}"


def _guess_propensity_of_rows(table: RoleTable) -> None:
    """Take the probabilities that only chosen rows have, or that add up to one in every round."""
    table.take_named("propensity", parts=True)
    chosen = table.column("chosen")
    if "propensity" in table.roles or chosen is None:
        return
    starts = decode.run_starts(table.columns[str(table.roles["round"])].array)
    fitting = []
    for column in _probability_columns(table):
        chances = table.chances(column)
        are_of_chosen = np.isfinite(chances) == chosen.flags
        sums = np.add.reduceat(np.nan_to_num(chances), starts)[:-1]
        add_up = abs(sums - 1.0) < MISMATCH
        if max(are_of_chosen.mean(), add_up.mean()) > 1.0 - DEPENDENT:
            fitting.append(column)
    if len(fitting) == 1:
        why = "probabilities that belong to the chosen rows"
        table.take("propensity", fitting[0], why)


class Pair(NamedTuple):
    """Labels, and the probabilities with which they may have been chosen."""

    label: ColumnFacts
    chance: ColumnFacts


def _guess_pair(table: RoleTable) -> None:
    """Find labels and probabilities that fit each other, one of which may be known."""
    arm = table.column("arm")
    propensity = table.column("propensity")
    if arm and propensity:
        return
    labels = [arm] if arm else _label_columns_unless_said(table)
    chances = [propensity] if propensity else _probability_columns(table)
    pairs = [Pair(label, chance) for chance in chances for label in labels]
    fits = {
        pair: are_propensities_of(table.chances(pair.chance), pair.label.codes)
        for pair in pairs
        if pair.label is not pair.chance
    }
    why = "1/p adds up to the rounds of every level"
    fitting = [pair for pair, fit in fits.items() if fit]
    if arm and not fitting:  # too few rounds to tell: the name decides
        why = "by a part of its name"
        fitting = [pair for pair, fit in fits.items() if fit is None]
        fitting = [pair for pair in fitting if _is_named_propensity(pair)]
    fitting = list(_likeliest_label(table, fitting))
    if len({pair.label for pair in fitting}) != 1:
        return
    label, chance = max(fitting, key=_is_named_propensity)
    if not arm:
        table.take("arm", label, f"{chance.name} fits it, {why}")
    if not propensity:
        table.take("propensity", chance, f"it fits {label.name}, {why}")


def _label_columns_unless_said(table: RoleTable) -> list[ColumnFacts]:
    return [] if table.is_said("arm", "action") else label_columns(table)


def _likeliest_label(table: RoleTable, pairs: list[Pair]) -> list[Pair]:
    """Of pairs with several labels, return those whose names or values belong together, if any do."""
    for is_likelier in (_is_named_after_label, _depends_on_label):
        if len({pair.label for pair in pairs}) > 1:
            pairs = [pair for pair in pairs if is_likelier(table, pair)] or pairs
    return pairs


def _is_named_propensity(pair: Pair) -> bool:
    return pair.chance.usual_name("propensity") is not None


def _is_named_after_label(table: RoleTable, pair: Pair) -> bool:
    """Whether the name of the probabilities holds that of the labels, as in coupon_chance."""
    return set(pair.label.words) < set(pair.chance.words)


def _depends_on_label(table: RoleTable, pair: Pair) -> bool:
    """Whether probabilities differ between labels, as those of a choice do unless all are equal."""
    chances = table.chances(pair.chance)
    usable = np.isfinite(chances)
    chances = chances[usable]
    if np.ptp(chances) == 0.0:
        return False
    return explained_by_groups(pair.label.codes[usable], chances) > DEPENDENT


def are_propensities_of(propensities: Array, labels: Array) -> bool | None:
    """Whether numbers can be the probabilities with which labels were chosen; None if rounds are too few.

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
    weights = inverse(propensities)
    tested = 0
    for code in np.unique(labels[usable]):
        rows = np.flatnonzero((labels == code) & usable)
        if len(rows) < LEAST_PLAYS:
            continue
        offered = int(usable[rows[0] : rows[-1] + 1].sum())
        # The standard error of Σ 1/p / offered is at most that of its terms.
        error = float(np.sqrt((weights[rows] ** 2).sum())) / offered
        difference = abs(weights[rows].sum() / offered - 1.0)
        if difference > FOUR_ERRORS * error + MISMATCH:
            return False
        tested += error <= MOST_ERROR
    return True if tested > 1 else None


def label_columns(table: RoleTable) -> list[ColumnFacts]:
    """Return free columns that may hold labels of arms, text first, then by the number of levels."""
    labels = [
        column for column in table.free() if column.holds_labels and column.levels > 1
    ]
    return sorted(labels, key=lambda column: (not column.is_text, column.levels))


def _probability_columns(table: RoleTable) -> list[ColumnFacts]:
    """Return free columns that may be propensities: fractions, or others by their name."""
    columns = list[ColumnFacts]()
    if table.is_said("propensity"):
        return columns
    for column in table.free():
        unit = table.unit(column) if column.is_number else None
        if unit is not None and (unit != "probability" or not column.is_whole):
            columns.append(column)
    return columns


def action_candidates(table: RoleTable) -> dict[str, str]:
    """Return features that may be the action, where none was found and the caller said nothing of it."""
    has_action = table.has_features_of_actions or table.has("arm")
    if has_action or table.has("ranking"):
        return {}
    if table.is_said("arm", "action", "features"):
        return {}
    possible = {column.name for column in table.columns.values() if column.identifies}
    possible.update(table.features)
    table.taken -= possible - set(table.hints["ignore"])
    return {
        column.name: column.levels_in_words
        for column in label_columns(table)
        if column.name in possible
    }


def guess_arm_of_rows(table: RoleTable) -> None:
    """Take the label of a row's action for the arm if nothing else differs within rounds."""
    if not table.has_rows_per_action or table.is_said("arm", "features"):
        return
    usual = NAMES["arm"].split()
    features = [name for name in table.features if name.lower() not in usual]
    labels = [name for name in table.features if name not in features]
    label = table.column("action") or (table.columns[labels[0]] if labels else None)
    if label is None:
        return
    round_ = table.columns[str(table.roles["round"])]
    if vary_within(round_, [table.columns[name] for name in features], label):
        return
    table.roles["action"] = None
    table.features = tuple(features)
    table.reasons.pop("action", None)
    table.reasons.pop(label.name, None)
    table.take("arm", label, "the only column that differs within rounds")


def vary_within(
    round_: ColumnFacts,
    features: Sequence[ColumnFacts],
    label: ColumnFacts,
) -> bool:
    """Whether some of the features, or none of the labels, differ between rows of one round."""
    same_round = _equal_to_next(round_)
    if not same_round.any() or _equal_to_next(label)[same_round].all():
        return True
    # Lists of numbers describe the action of their row.
    return any(
        column.is_list or not _equal_to_next(column)[same_round].all()
        for column in features
    )


def _equal_to_next(column: ColumnFacts) -> Array:
    codes = column.codes[:LOOKED_AT]
    return np.asarray(codes[1:] == codes[:-1])


def guess_identifier(table: RoleTable) -> None:
    """Take a column that identifies decisions for the round, so that rows which repeat one are found."""
    if table.is_said("round") or table.has("round"):
        return
    ignored = {*table.roles.values(), *table.hints["ignore"]}
    for name, column in table.columns.items():
        if not identifies_decisions(name) or name in ignored or column.is_list:
            continue
        why = _repeats_decisions(table, column)
        if why is not None:
            table.reasons.pop(f"!{name}", None)
            table.take("round", column, why)
            return


def _repeats_decisions(table: RoleTable, column: ColumnFacts) -> str | None:
    """Say why the values of a column identify decisions; None if rows that share one differ."""
    codes = column.codes
    known, first, index = np.unique(codes, return_index=True, return_inverse=True)
    if len(known) < 2:
        return None
    again = first[index] != np.arange(len(codes))
    if not again.any():
        return f"identifies decisions: no value comes twice in the first {len(codes):,} rows"
    compared = [table.columns[name] for name in table.features]
    arm = table.column("arm")
    if arm is not None:
        compared.append(arm)
    same = np.ones(int(again.sum()), dtype=bool)
    for other in compared:
        if not other.is_list:
            same &= other.codes[again] == other.codes[first[index[again]]]
    if not compared or same.mean() < AGREEMENT:
        return None
    return f"identifies decisions: {int(again.sum()):,} of the first {len(codes):,} rows repeat one"


def require_labels(table: RoleTable) -> None:
    """Raise InputError if the arm is a column of numbers with so many values that they are no labels."""
    arm = table.column("arm")
    if arm is None or not arm.is_number or arm.levels <= MOST_FRACTIONS:
        return
    if arm.is_whole and (arm.levels <= MOST_AMOUNTS or not arm.has_word(AMOUNTS)):
        return
    quoted = shlex.quote(arm.name)
    raise InputError(
        f"arm {arm.name!r} holds {arm.levels:,} different numbers in the first {len(arm.first):,} rows: an"
        " amount, and one arm per number learns nothing. Two ways work:\n"
        f"  --arm {quoted} --levels 5           five levels of it are the arms, named by their medians\n"
        f"  --no-action --interactions {quoted}:COLUMN   it is a feature of the chosen action\n"
        "(in Python: schema={'arm': …, 'levels': 5}; see docs/how-to/continuous-actions.md)"
    )

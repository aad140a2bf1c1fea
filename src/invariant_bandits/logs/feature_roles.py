"""Features: which of the columns without a role are features, and why the others are not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_facts import (
    LOOKED_AT,
    MANY_CATEGORIES,
    ColumnFacts,
)
from invariant_bandits.logs.column_names import NAMES, UNIT_NAMES, name_words
from invariant_bandits.logs.leakage import (
    IMBALANCED,
    leak_evidence,
    leaks_by_product,
)
from invariant_bandits.logs.reward_role import are_alike
from invariant_bandits.logs.role_table import RoleTable

LIKELY = 3.0
"""Standard errors by which a column that is so close to the reward must depend on the choice to be a leak."""
SAME_LENGTH = 0.9
"""Share of the lists of a column that must have the same length for their numbers to be features."""
ROUNDING = 0.05
"""How far probabilities of all actions may fail to add up to 1, such as for two decimals of ten actions."""
MOST_PERCENT = 100.0
"""Probabilities of an arm may be written in percent."""
ROWS_PER_CATEGORY = 5
"""First rows per category from which on many categories are features of labelled arms. An identifier of users
or events has fewer.
"""
UNNAMED = ("", "unnamed: 0", "index", "row", "row_number", "f0")
"""Names that programs give to a first column that numbers the rows."""
PROPENSITY_NAMES = ("propensity", "pscore", "logging")
"""Parts of names that say of fractions that they are the probabilities of a choice."""


def guess_features(table: RoleTable) -> None:
    """Take numbers, text with few categories and lists of numbers among the free columns for features."""
    if table.is_said("features"):
        return
    features: list[ColumnFacts] = []
    # Probabilities of all actions are named even if lists of offered actions hold the features.
    free = [
        column
        for column in table.free()
        if not _is_list_of_probabilities(table, column)
    ]
    if not table.has("offered"):
        rewards = table.rewards()
        lists = [column for column in free if column.is_vector]
        vectors = [column for column in lists if _is_vector_feature(table, column)]
        numbers = [
            column
            for column in free
            if column not in lists and _is_feature(table, column, rewards)
        ]
        for column, why in _outcomes(table, numbers, rewards).items():
            numbers.remove(column)
            table.reasons.pop(column.name)
            table.reasons[f"!{column.name}"] = f"{why}; {_how_to_keep(column)}"
        features = [column for column in free if column in [*vectors, *numbers]]
    names = [column.name for column in features]
    position = table.roles.get("position")
    if table.has("ranking") and position is not None:
        names.append(position)
        table.categorical = (*table.categorical, position)
    table.features = tuple(names)


def _is_list_of_probabilities(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether the lists of a column are the probabilities of all actions: they add up to 1; says so."""
    if not column.is_vector or not UNIT_NAMES["percent"].search(column.name):
        return False
    for numbers in column.present.to_pylist():
        total = sum(number or 0.0 for number in numbers)
        if abs(total - 1.0) >= ROUNDING:
            return False
    why = "probabilities of all actions: each list adds up to 1"
    table.reasons[f"!{column.name}"] = why
    return True


def _is_vector_feature(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether a column of lists of numbers is a feature: nearly all have the same length; says why."""
    lengths = decode.list_lengths(column.present.combine_chunks(), missing=-1)
    if len(lengths):
        most = np.unique(lengths, return_counts=True)[1].max()
        if most >= SAME_LENGTH * len(lengths):
            table.reasons[column.name] = f"lists of numbers, {column.kind}"
            return True
    table.reasons[f"!{column.name}"] = "its lists differ in length"
    return False


def _is_feature(
    table: RoleTable,
    column: ColumnFacts,
    rewards: Array,
) -> bool:
    """Whether a free column is a feature; says why or why not."""
    why_not = _why_no_feature(table, column, rewards)
    if why_not is None:
        why = str(column.kind)
        if column.is_text:
            why = f"{why}, {column.levels_in_words}"
        table.reasons[column.name] = why
        return True
    if column.name.lower() in NAMES["arm"].split() and not table.has("arm"):
        why_not = (
            f"could be the arm, but {column.levels_in_words}; --arm {column.name} says that it "
            "is"
        )
    table.reasons[f"!{column.name}"] = why_not
    return False


def _why_no_feature(
    table: RoleTable,
    column: ColumnFacts,
    rewards: Array,
) -> str | None:
    """Say why a column is not a feature; None if it is."""
    is_kept = column.name in table.hints["keep"]
    if column.only_identifies:
        return "its name says that it only identifies"
    if column.is_time or (not is_kept and column.holds_times):
        return "it holds times"
    if not (column.is_number or column.is_text):
        return f"{column.kind} is not a number"
    if column.is_number and _counts_rows(table, column):
        return "it only counts the rows"
    why = None if is_kept else _why_unless_kept(table, column, rewards)
    if why is None and column.is_text and _has_too_many_values(table, column):
        return f"{column.kind} is not a number and has many values"
    return why


def _has_too_many_values(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether a column has too many values for indicators, and too rare ones for effects on labelled arms."""
    if column.different <= MANY_CATEGORIES:
        return False
    values = len(column.rows.unique())
    return not table.has("arm") or len(column.rows) < ROWS_PER_CATEGORY * values


def _why_unless_kept(
    table: RoleTable,
    column: ColumnFacts,
    rewards: Array,
) -> str | None:
    """Say why a number or text is not a feature unless the caller keeps it; None if it is."""
    if column.is_constant:
        return f"it is the same in the first {len(column.rows):,} rows"
    if _is_named_propensity(table, column):
        return "its name says that it is a propensity"
    if _is_chance_of_an_arm(table, column):
        return "its name says that it is the probability of one action"
    leak = _leak(table, column, rewards)
    return None if leak is None else f"{leak}; {_how_to_keep(column)}"


def _how_to_keep(column: ColumnFacts) -> str:
    return f"--keep {shlex.quote(column.name)} makes it a feature"


def _counts_rows(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether this is a number of the row, or rises with the rows or with their times.

    It would take the place of the time.
    """
    if column.name == next(iter(table.columns)) and column.name.lower() in UNNAMED:
        return column.counts_up
    numbers = column.numbers
    if len(numbers) < LOOKED_AT or not column.is_whole:
        return False
    if _rises(numbers):
        return True
    time = table.column("time")
    if time is None:
        return False
    times = time.times(table.overrides.get("day_first"))
    if len(times) != len(numbers):
        return False
    return _rises(numbers[np.argsort(times, kind="stable")])


def _rises(numbers: Array) -> bool:
    """Whether every number is greater than the one before."""
    return bool((np.diff(numbers) > 0.0).all())


def _is_named_propensity(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether the name of a column of fractions says that it is the probability of a choice."""
    name = column.name.lower()
    is_named = name in NAMES["propensity"].split() or any(
        word in name for word in PROPENSITY_NAMES
    )
    if not is_named and not table.has("arm"):
        is_named = column.usual_name("propensity") is not None
    return is_named and column.is_number and column.holds_probabilities


def _is_chance_of_an_arm(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether a column of probabilities is named after one of the arms, as p_red is."""
    arm = table.column("arm")
    if arm is None or not column.is_number:
        return False
    if not UNIT_NAMES["percent"].search(column.name):
        return False
    words = column.words
    ends = {"".join(words[first:]) for first in range(1, len(words))}
    labels = arm.present.unique().to_pylist()
    if ends.isdisjoint("".join(name_words(str(label))) for label in labels):
        return False
    numbers = column.first_numbers
    return bool(((numbers >= 0.0) & (numbers <= MOST_PERCENT)).all())


def _leak(
    table: RoleTable,
    column: ColumnFacts,
    rewards: Array,
) -> str | None:
    """Say how a column gives the reward away, or that it stands beside it; None if it does not."""
    reward = table.reward.name
    beside = _parent(column.name)
    others = [name for role, name in table.roles.items() if role != "reward" and name]
    if beside and beside == _parent(reward) and beside not in map(_parent, others):
        return f"known only after the reward: it stands beside {reward}"
    return leak_evidence(column.array, rewards, column.is_text)


def _parent(name: str) -> str:
    """Return the object that a nested column belongs to, as feedback of feedback.click."""
    return name.rpartition(".")[0]


def _outcomes(
    table: RoleTable,
    columns: Sequence[ColumnFacts],
    rewards: Array,
) -> dict[ColumnFacts, str]:
    """Return columns that depend on the choice or give the reward away with another one, and why."""
    outcomes: dict[ColumnFacts, str] = {}
    why = f"known only after the choice: it depends on {table.roles.get('arm')}"
    late = _late(table, columns)
    # If so many depend on the choice, the propensities must be wrong.
    if len(late) <= max(1, len(columns) // 3):
        outcomes = dict.fromkeys(late, why)
    if not table.has("chosen"):
        numbers = {
            column.name: column.numbers for column in columns if column.is_number
        }
        leaks = leaks_by_product(numbers, rewards)
        outcomes |= {table.columns[name]: why for name, why in leaks.items()}
    names_to_keep = table.hints["keep"]
    return {
        column: why
        for column, why in outcomes.items()
        if column.name not in names_to_keep
    }


def _late(table: RoleTable, columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Return columns that depend on the choice, or are close to the reward and probably do."""
    choices = table.logged_choices()
    if choices is None:
        return []
    late = []
    for column in columns:
        errors = choices.imbalance(column)
        depends = errors > IMBALANCED
        if errors > LIKELY and column.is_number and not depends:
            depends = are_alike(column, table.reward)
        if depends and not _is_function(column.codes, choices.labels):
            late.append(column)
    return late


def _is_function(codes: Array, arms: Array) -> bool:
    """Whether every arm has one value only, as its price has."""
    pairs = np.unique(np.stack([arms, codes]), axis=1).shape[1]
    return bool(pairs == len(np.unique(arms)))

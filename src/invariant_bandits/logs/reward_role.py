"""The reward: which column holds it, and whether more of it is better."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError, escape_line
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_facts import ColumnFacts, are_numeric_words
from invariant_bandits.logs.column_names import (
    DECIDED,
    PAST_WORDS,
    UNWANTED,
    less_is_better,
)
from invariant_bandits.logs.leakage import IMBALANCED, leak_evidence
from invariant_bandits.logs.role_table import RoleTable, fits
from invariant_bandits.logs.schema import require_role
from invariant_bandits.optional import pyarrow as pa

MOST_ANSWERS = 5
"""Different words of a column that may be the answer to a question: a scale of five is the usual one."""
MOST_WORDS = 20
"""Different words of a column named as the reward that a message asks about."""
ALIKE = 0.5
"""Squared correlation above which two columns may both be outcomes."""
RELATED = 0.25
"""Squared correlation above which a number and a guessed reward of two values may both be outcomes."""
FEW_VALUES = 10
"""Different values, of rows with equal rewards, up to which a number may follow from the reward, as the
revenue of a click does.
"""


def guess_reward(table: RoleTable) -> None:
    """Take a column for the reward; InputError with the candidates if none is clear.

    It is named so in part, the only one that depends on the choice, or the only one whose name says what was
    done.
    """
    if "reward" in table.roles:
        return
    possible = [column for column in table.free() if _may_be_reward(column)]
    outcomes = _outcomes(table, possible)
    named = table.named("reward", parts=True)
    named = _first_causes([column for column in named if column in possible])
    done = [column for column in possible if _says_what_came_of_it(column)]
    by_name = [column for column in named or done if column not in outcomes]
    causes = _first_causes([*outcomes, *by_name])
    causes = [column for column in causes if not column.has_word(UNWANTED)]
    if named and _take_named(table, named, causes, outcomes):
        return
    if not named and _take_unnamed(table, causes, outcomes):
        return
    likely = [*named, *outcomes]
    if not outcomes:
        likely += [*done, *possible]
    options = {}
    for column in likely:
        depends = f", depends on {table.roles.get('arm')}" if column in outcomes else ""
        options[column.name] = column.levels_in_words + depends
    require_role("reward", options | _answers(table))


def _take_named(
    table: RoleTable,
    named: Sequence[ColumnFacts],
    causes: Sequence[ColumnFacts],
    outcomes: Sequence[ColumnFacts],
) -> bool:
    """Take the likeliest name for the reward, unless another column depends on the choice instead."""
    if not any(column in named for column in causes):
        return False
    surest = [column for column in causes if column in outcomes]
    _require_no_rival(table, named[0], ALIKE, [*named, *(surest or causes)])
    if named[0] not in outcomes and any(column not in named for column in surest):
        return False
    table.take("reward", named[0], "by a part of its name")
    return True


def _take_unnamed(
    table: RoleTable,
    causes: Sequence[ColumnFacts],
    outcomes: Sequence[ColumnFacts],
) -> bool:
    """Take the only column that depends on the choice for the reward, or that says what was done."""
    surest = [column for column in causes if column in outcomes] or causes
    if len(surest) != 1:
        return False
    reward = surest[0]
    if reward in outcomes:
        why = f"it depends on {table.roles.get('arm')}, as only outcomes do"
    else:
        _require_no_rival(table, reward, RELATED, surest)
        why = "two values, and its name says what happened"
    table.take("reward", reward, why)
    return True


def _require_no_rival(
    table: RoleTable,
    reward: ColumnFacts,
    least: float,
    likely: Sequence[ColumnFacts],
) -> None:
    """Raise InputError if a number that goes with a guessed reward may be the reward as well."""
    rivals = _rivals(table, reward, least)
    if not rivals:
        return
    options = {column.name: column.levels_in_words for column in likely}
    for column in rivals:
        options[column.name] = (
            f"{column.levels_in_words}; it goes with {reward.name}, of equal values as well"
        )
    require_role("reward", options)


def _says_what_came_of_it(column: ColumnFacts) -> bool:
    """Whether a column of two values is named by a participle, as opened, that is wanted."""
    is_done = column.is_two_valued and column.says_what_was_done
    return is_done and not column.has_word(UNWANTED | DECIDED)


def _may_be_reward(column: ColumnFacts) -> bool:
    """Whether a column can be the reward, as far as its name and values tell."""
    if not fits("reward", column) or column.only_identifies:
        return False
    if column.has_word(PAST_WORDS) or column.holds_times:
        return False
    if len(column.rows.drop_null().unique()) < 2:
        return False
    is_counter = column.is_number and not pa.types.is_boolean(column.kind)
    return not (is_counter and column.counts_up)


def _outcomes(table: RoleTable, columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Return columns that depend on the choice, or that only chosen rows have."""
    chosen = table.column("chosen")
    if table.has_rows_per_action and chosen is not None:
        if chosen.flags.all():
            return []
        not_chosen = ~chosen.flags
        return [column for column in columns if column.missing[not_chosen].all()]
    choices = table.logged_choices()
    if choices is None:
        return []
    free = table.free()
    late = [column for column in free if choices.imbalance(column) > IMBALANCED]
    if len(late) > max(2, len(free) // 2):
        return []  # the propensities must be wrong
    late_columns = [column for column in columns if column in late]
    return [
        column
        for column in columns
        if column in late_columns
        or any(are_alike(column, other) for other in late_columns)
    ]


def are_alike(first: ColumnFacts, second: ColumnFacts) -> bool:
    """Whether two columns say nearly the same, as two outcomes of one choice do."""
    known = np.isfinite(first.numbers) & np.isfinite(second.numbers)
    pair = np.stack([first.numbers[known], second.numbers[known]])
    if not pair.size or (np.ptp(pair, axis=1) == 0.0).any():
        return False
    return float(np.corrcoef(pair)[0, 1] ** 2) > ALIKE


def _rivals(
    table: RoleTable,
    reward: ColumnFacts,
    least: float,
) -> list[ColumnFacts]:
    """Return numbers that may be the reward in place of one of two values.

    They go with it, and differ where it is equal, as a profit does and the revenue of a click does not.
    """
    rewards = reward.numbers
    levels = np.unique(reward.finite_numbers)
    if len(levels) != 2:
        return []
    rivals = []
    for column in table.free():
        if column is reward or not column.is_number or not _may_be_reward(column):
            continue
        known = np.isfinite(rewards) & np.isfinite(column.numbers)
        values = column.numbers[known]
        different = [len(np.unique(values[rewards[known] == one])) for one in levels]
        if min(different) <= FEW_VALUES:
            continue
        if float(np.corrcoef(values, rewards[known])[0, 1]) ** 2 > least:
            rivals.append(column)
    return rivals


def _first_causes(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Return columns that do not follow from another one, as the revenue does from the click."""
    return [
        column
        for column in columns
        if not any(_follows(column, other) for other in columns if other is not column)
    ]


def _follows(column: ColumnFacts, other: ColumnFacts) -> bool:
    """Whether a column gives another one of two values away, and not the other way round."""
    if not other.is_two_valued or not leak_evidence(column.array, other.numbers):
        return False
    if not column.is_two_valued:
        return True
    return leak_evidence(other.array, column.numbers) is None


def _answers(table: RoleTable) -> dict[str, str]:
    """Return columns of two to five words, which may be rewards once their worth is known."""
    answers = {}
    for column in table.free():
        if not column.is_text or column.identifies:
            continue
        if column.holds_numeric_words or not 2 <= column.levels <= MOST_ANSWERS:
            continue
        words = _quoted(column.present.unique().to_pylist())
        answers[column.name] = (
            f"the words {words}; say what they are worth: --reward-values …"
        )
    return answers


def require_numeric_reward(table: RoleTable) -> None:
    """Raise InputError if the reward holds words whose worth is not known."""
    reward = table.column("reward")
    if reward is None or not reward.is_text or are_numeric_words(reward.rows):
        return
    words = _words_by_frequency(reward.rows)
    if not 0 < len(words) <= MOST_WORDS:
        return
    if all(_is_worth_a_number(word) for word in words):
        return  # bad values among good ones are counted, row by row
    examples = [f"{word}={int(word == words[0])}" for word in words[:3]]
    raise InputError(
        f"the reward {reward.name!r} holds words: {_quoted(words[:MOST_ANSWERS])};"
        f" say what each is worth, such as --reward-values {shlex.quote(','.join(examples))}"
        " (in Python: schema={'reward': …, 'reward_values': {word: number}})"
    )


def _words_by_frequency(column: Any) -> list[str]:
    counts = [
        (entry["counts"], entry["values"])
        for entry in column.value_counts().to_pylist()
        if entry["values"] is not None
    ]
    counts.sort(key=lambda pair: -pair[0])
    return [word for _, word in counts]


def _is_worth_a_number(word: str) -> bool:
    is_answer = word.strip().lower() in decode.TRUTH
    return is_answer or decode.are_text_numbers(pa.array([word]))


def _quoted(words: Sequence[str]) -> str:
    """Words for a message."""
    return ", ".join(escape_line(repr(word)) for word in words)


def reward_direction(table: RoleTable) -> dict[str, Any]:
    """Return the fields of the schema for a reward of which less is better.

    Such a reward is subtracted from 1 if it is 0 or 1, else from 0. Costs that are never positive have their
    sign turned already.
    """
    reward = table.reward
    numbers = reward.finite_numbers
    minimise = table.overrides.get("minimise")
    if minimise is None and less_is_better(reward.name):
        are_negative = len(numbers) > 0 and bool((numbers <= 0.0).all())
        return {"minimise": False} if are_negative else {}
    if minimise and not table.is_said("reward_offset"):
        return {"reward_offset": float(np.isin(numbers, (0.0, 1.0)).all())}
    return {}

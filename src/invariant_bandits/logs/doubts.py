"""Doubts: names and values of a log that may mean something else than they seem to."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs.column_facts import ColumnFacts
from invariant_bandits.logs.column_names import (
    DECIDED,
    OUTCOMES,
    PAST_WORDS,
    TIMES,
    WORTH,
)
from invariant_bandits.logs.leakage import always_usual, explained_by_groups
from invariant_bandits.logs.role_table import RoleTable

LEAST_SHARE = 0.001
"""Share of the rows below which a value far outside is rather an outlier."""
MOST_SHARE = 0.4
"""Share of the rows above which a value far outside is rather the usual one."""
FEWEST_ROWS = 5
"""Rows that a value needs to stand for a missing one: rarer ones may be chance."""
FEWEST_LEVELS = 10
"""Other values that a column must have for one of them to lie far outside; codes have fewer."""
DONE_WITH_REWARD = 0.05
"""Share of the reward's variance from which on a feature that says what was done may follow the choice."""
FEWEST_REWARDS = 10
"""Rows with a reward below which such a share says nothing."""


def find_doubts(table: RoleTable, features: Sequence[str]) -> tuple[str, ...]:
    """Return what may be wrong about the values of the features and of the reward, in words."""
    columns = [table.columns[name] for name in features]
    doubts = []
    for column in [*columns, table.reward]:
        value = find_sentinel(column.numbers) if column.is_number else None
        if value is not None:
            doubts.append(value.doubt(column.name))
    unkept = [column for column in columns if column.name not in table.hints["keep"]]
    doubts += _one_sided_rewards(table, unkept)
    doubts += _named_outcomes(table, unkept)
    doubts += _worth_of_reward(table)
    return tuple(doubts)


@dataclass(frozen=True)
class Sentinel:
    """A value that may stand for a missing one.

    Parameters
    ----------
    value, share : float
        The value, and the share of the numbers that are equal to it.
    least, most : float
        The least and the greatest other value.
    """

    value: float
    share: float
    least: float
    most: float

    def doubt(self, name: str) -> str:
        """Say what the value of a column may stand for, and what to do."""
        return (
            f"{name!r} is {self.value:g} in {100 * self.share:.2g} % of the first rows, far "
            f"outside its other values ({self.least:.4g} to {self.most:.4g}): if that stands "
            f"for a missing value, say --missing={shlex.quote(f'{name}={self.value:g}')}"
        )


def find_sentinel(numbers: Array) -> Sentinel | None:
    """Return a value far outside of all others that is often repeated; None if there is none.

    Far outside: further from the nearest other value than these are from each other, and not 0.

    >>> import numpy as np
    >>> find_sentinel(np.append(np.linspace(3.0, 80.0, 99), np.full(6, -999.0)))
    Sentinel(value=-999.0, share=0.05714285714285714, least=3.0, most=80.0)
    """
    numbers = numbers[np.isfinite(numbers)]
    levels, counts = np.unique(numbers, return_counts=True)
    if len(levels) <= FEWEST_LEVELS:
        return None
    for index, others in ((0, levels[1:]), (-1, levels[:-1])):
        value = float(levels[index])
        count = int(counts[index])
        share = count / len(numbers)
        if value == 0.0 or count < FEWEST_ROWS:
            continue
        gap = min(abs(value - others[0]), abs(value - others[-1]))
        if LEAST_SHARE <= share <= MOST_SHARE and gap > np.ptp(others):
            return Sentinel(value, share, float(others[0]), float(others[-1]))
    return None


def _one_sided_rewards(table: RoleTable, columns: Sequence[ColumnFacts]) -> list[str]:
    """Doubt features with a value at which all rewards are the usual one, as of an earlier outcome."""
    rewards = table.rewards()
    doubts = []
    for column in columns:
        if not (column.is_number or column.is_text):
            continue
        evidence = always_usual(column.array, rewards, column.is_text)
        if evidence is not None:
            doubts.append(
                f"{column.name!r}: {evidence}; if it is known only after the choice, leave it "
                f"out (--ignore {shlex.quote(column.name)})"
            )
    return doubts


def _named_outcomes(table: RoleTable, columns: Sequence[ColumnFacts]) -> list[str]:
    """Doubt features that the caller did not name, and whose names say what follows a choice."""
    if table.is_said("features"):
        return []
    return [
        f"{column.name!r}: its name says what follows a choice;"
        f" if it is known only after the choice, leave it out (--ignore {shlex.quote(column.name)})"
        for column in columns
        if not column.has_word(PAST_WORDS | DECIDED)
        and (
            column.has_word(OUTCOMES)
            or _is_done_with_reward(table, column)
            or _is_time_with_reward(table, column)
        )
    ]


def _is_done_with_reward(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether a column says what was done or not, as `transferred` does, and goes with the reward."""
    if column.is_list or not (column.says_what_was_done and column.is_two_valued):
        return False
    rewards = table.rewards()
    known = np.isfinite(rewards)
    rewards = rewards[known]
    if len(rewards) < FEWEST_REWARDS or np.ptp(rewards) == 0.0:
        return False
    return explained_by_groups(column.codes[known], rewards) > DONE_WITH_REWARD


def _is_time_with_reward(table: RoleTable, column: ColumnFacts) -> bool:
    """Whether a column says how long something took, as `talk_time` does, and goes with the reward."""
    if not (column.is_number and column.has_word(TIMES)):
        return False
    rewards = table.rewards()
    known = np.isfinite(rewards) & np.isfinite(column.numbers)
    pair = np.stack([rewards[known], column.numbers[known]])
    if pair.shape[1] < FEWEST_REWARDS or not np.ptp(pair, axis=1).all():
        return False
    return bool(np.corrcoef(pair)[0, 1] ** 2 > DONE_WITH_REWARD)


def _worth_of_reward(table: RoleTable) -> list[str]:
    """Doubt a guessed reward of two values if numbers follow from it that say what it is worth."""
    reward = table.reward
    is_guess = reward.name != table.overrides.get("reward")
    if not (is_guess and reward.is_two_valued):
        return []
    return [
        f"{column.name!r} follows from {reward.name!r}: if it is what should be large, say so"
        f" (--reward {shlex.quote(column.name)})"
        for column in table.columns.values()
        if "the reward" in table.reasons.get(f"!{column.name}", "")
        and column.has_word(WORTH)
        and column.is_number
        and not column.is_two_valued
    ]

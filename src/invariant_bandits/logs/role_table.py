"""Role table: which columns have a role by now, why, and which are still free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decode
from invariant_bandits.logs.column_facts import ColumnFacts
from invariant_bandits.logs.column_names import NAMES, ROLES
from invariant_bandits.logs.leakage import imbalance
from invariant_bandits.logs.schema import inverse


@dataclass(frozen=True)
class LoggedChoices:
    """Arms that were chosen, with the propensities of the choices.

    Attributes
    ----------
    labels : array, shape (n,)
        Codes of the arms.
    weights : array, shape (n,)
        1/p; 0 where there is no propensity.
    """

    labels: Array
    weights: Array

    def imbalance(self, column: ColumnFacts) -> float:
        """Return how far a column depends on the choice, in standard errors; 0 if that cannot be known."""
        if not (column.is_number or column.is_text):
            return 0.0
        words = column.is_text and not column.holds_truth_words
        return imbalance(column.array, self.labels, self.weights, words)


class RoleTable:
    """Roles of columns as far as they are known, and why.

    Parameters
    ----------
    columns : mapping of str to ColumnFacts
        All columns, by name.
    overrides : mapping
        Fields of Schema that the caller gave; a role that is None has no column.
    hints : mapping of str to sequence of str
        Columns to "ignore", which are not features, and to "keep" as features.

    Attributes
    ----------
    roles : dict of str to str or None
        Column of every role that is decided, None if it has none.
    features, categorical : sequence of str
        Names of the features, and of those that are categories though they are numbers.
    propensity_unit : str
        How propensities are written.
    reasons : dict of str to str
        Why, by role or feature, or by "!" and the name of a column that is ignored.
    taken : set of str
        Columns that are not free.
    """

    def __init__(
        self,
        columns: Mapping[str, ColumnFacts],
        overrides: Mapping[str, Any],
        hints: Mapping[str, Sequence[str]],
    ) -> None:
        self.columns = columns
        self.overrides = overrides
        self.hints = hints
        self.roles: dict[str, str | None] = {
            role: overrides[role] for role in ROLES if role in overrides
        }
        self.features: Sequence[str] = overrides.get("features", ())
        self.categorical: Sequence[str] = overrides.get("categorical", ())
        self.propensity_unit: str = overrides.get("propensity_unit", "probability")
        self.reasons: dict[str, str] = {}
        for name, value in overrides.items():
            if value is not None:
                self.reasons[name] = "as given"
        for name in hints["ignore"]:
            self.reasons[f"!{name}"] = "as given"
        with_role = {name for name in self.roles.values() if name is not None}
        self.taken = with_role | {*self.features, *hints["ignore"]}

    def is_said(self, *fields: str) -> bool:
        """Whether the caller gave one of these fields of the schema."""
        return any(field in self.overrides for field in fields)

    def column(self, role: str) -> ColumnFacts | None:
        """Return the column of a role; None if there is none."""
        name = self.roles.get(role)
        return None if name is None else self.columns[name]

    def has(self, role: str) -> bool:
        """Whether a column has this role."""
        return self.roles.get(role) is not None

    @property
    def reward(self) -> ColumnFacts:
        """The column of the reward, once it is known."""
        return self.columns[str(self.roles["reward"])]

    def free(self) -> list[ColumnFacts]:
        """Return the columns without a role."""
        return [
            column for name, column in self.columns.items() if name not in self.taken
        ]

    def take(
        self,
        role: str,
        column: ColumnFacts,
        why: str,
    ) -> None:
        """Give a role to a column."""
        self.roles[role] = column.name
        self.reasons[role] = f"{why}, {column.kind}"
        self.taken.add(column.name)

    def drop(self, role: str, why: str) -> None:
        """Take a role back from its column."""
        self.reasons[f"!{self.roles[role]}"] = f"could be {role}, but {why}"
        self.reasons.pop(role, None)
        self.roles[role] = None

    def take_named(self, role: str, *, parts: bool = False) -> None:
        """Give a role to the column with the likeliest of its usual names, if a column fits.

        With `parts`, a name may end in the usual one.
        """
        if role in self.roles:
            return
        named = self.named(role, parts=parts)
        if named:
            why = "by a part of its name" if parts else "by its name"
            self.take(role, named[0], why)

    def named(self, role: str, *, parts: bool) -> list[ColumnFacts]:
        """Return the free columns that fit a role and have one of its usual names, the likeliest first."""
        usual = NAMES[role].split()
        ranked = []
        for column in self.free():
            name = column.usual_name(role) if parts else column.name.lower()
            if name in usual and fits(role, column):
                ranked.append((usual.index(str(name)), column))
        ranked.sort(key=lambda pair: pair[0])
        return [column for _, column in ranked]

    @property
    def has_rows_per_action(self) -> bool:
        """Whether a round is several rows, one per offered action."""
        has_choice = self.has("chosen") or self.overrides.get("full_information", False)
        return self.has("round") and has_choice

    @property
    def has_features_of_actions(self) -> bool:
        """Whether rows say which features the offered actions had."""
        return self.has("offered") or self.has_rows_per_action

    def unit(self, column: ColumnFacts) -> str | None:
        """Return how a column writes probabilities; None if it does not."""
        is_propensity = column.name == self.overrides.get("propensity")
        return column.probability_unit(is_propensity)

    def chances(self, column: ColumnFacts) -> Array:
        """Return the numbers of a column as probabilities (n,), NaN where there is none."""
        return column.chances(self.unit(column) or "probability")

    def logged_choices(self) -> LoggedChoices | None:
        """Return the chosen arms and their propensities; None if they are not known."""
        arm = self.column("arm")
        propensity = self.column("propensity")
        if arm is None or propensity is None or self.has_features_of_actions:
            return None
        return LoggedChoices(arm.codes, inverse(self.chances(propensity)))

    def rewards(self) -> Array:
        """Return the rewards (n,) of the first rows, NaN where there is none."""
        rewards = self.reward.numbers
        chosen = self.column("chosen")
        if chosen is None or not chosen.holds_flags:
            return rewards
        return np.where(chosen.flags, rewards, np.nan)


def fits(role: str, column: ColumnFacts) -> bool:
    """Whether a column of this type, with these values, can have this role."""
    if role == "offered":
        return column.is_list and decode.is_vector(column.kind.value_type)
    if role == "rewards":
        return column.is_vector
    if role == "propensity":
        return column.is_number and column.holds_probabilities
    if role == "reward":
        return column.is_number or (column.is_text and column.holds_numeric_words)
    if role == "arm":
        return column.holds_labels
    if role == "arms_offered":
        return column.holds_lists_of_labels
    if role == "chosen":
        return decode.are_flags(column.first)
    if role == "position":
        return column.is_number
    return column.is_number or column.is_text or (role == "time" and column.is_time)

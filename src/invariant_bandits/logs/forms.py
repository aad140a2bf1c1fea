"""The three forms of a log, each with its way from Arrow batches to rounds.

One row per round with the chosen action only; one row per round with lists of all offered actions; one row per offered
action.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.features import FeatureMap
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.whole_rounds import run_starts


@dataclass(frozen=True)
class Form(ABC):
    """How batches of a log become rounds; what the three forms share.

    Parameters
    ----------
    schema : Schema
        What the columns mean.
    feature_map : FeatureMap
        What becomes of them; rounds get the features that it expands to, before any is left out or scaled.
    dates : bool
        Whether times are dates, not numbers.
    """

    schema: Schema
    feature_map: FeatureMap
    dates: bool

    @abstractmethod
    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""

    def _raw_columns(self, batch: Any, problems: RowProblems) -> Mapping[str, Array]:
        """What the feature map takes, one value per row."""
        raw: dict[str, Array] = {}
        for column in self.feature_map.columns:
            values = batch.column(column.name)
            if column.categories is not None:
                raw[column.name] = decoding.texts(values, column.name, problems, impute=column.imputes)
                problems.keep(decoding.unknown(values, column.categories), f"unknown category of {column.name}")
            elif column.width is not None:
                raw[column.name] = decoding.vectors(values, column.width, column.name, problems, impute=column.imputes)
            else:
                raw[column.name] = decoding.numbers(values, column.name, problems, impute=column.imputes)
        return raw

    def _rewards(self, batch: Any, problems: RowProblems) -> Array:
        return decoding.numbers(batch.column(self.schema.reward), self.schema.reward, problems)

    def _with_optional(self, rounds: Rounds, batch: Any, problems: RowProblems) -> Rounds:
        """The rounds with times, propensities and positions, where the log has them; one row of `batch` per round."""
        schema = self.schema
        changes: dict[str, Any] = {}
        if schema.time is not None:
            changes["times"] = decoding.times(batch.column(schema.time), schema.time, self.dates, problems)
        if schema.propensity is not None:
            values = decoding.numbers(batch.column(schema.propensity), schema.propensity, problems)
            problems.leave_out((values <= 0.0) | (values > 1.0), f"{schema.propensity} outside (0, 1]")
            changes["propensity"] = values
        if schema.position is not None:
            missing = RowProblems(len(batch))
            values = decoding.numbers(batch.column(schema.position), schema.position, missing)
            changes["position"] = np.where(missing.usable, values, np.nan)
        return replace(rounds, **changes)


@dataclass(frozen=True)
class ChosenOnly(Form):
    """One row per round, with the features of the chosen action."""

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        problems = RowProblems(len(batch))
        raw = self._raw_columns(batch, problems)
        rewards = self._rewards(batch, problems)
        rounds = Rounds(file, row + np.arange(len(batch)), self.feature_map.expand(raw), rewards)
        return self._with_optional(rounds, batch, problems), problems


@dataclass(frozen=True)
class OfferedLists(Form):
    """One row per round, with a list of the features of all offered actions and the index of the chosen one."""

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        problems = RowProblems(len(batch))
        offered, counts = self._offered(batch, problems)
        action = self._actions(batch, counts, problems)
        rounds = Rounds(
            file,
            row + np.arange(len(batch)),
            self._of_chosen(offered, counts, action),
            self._rewards(batch, problems),
            offered=offered,
            offered_counts=counts,
            action=action,
            all_rewards=None if self.schema.rewards is None else self._all_rewards(batch, counts, problems),
        )
        return self._with_optional(rounds, batch, problems), problems

    def _offered(self, batch: Any, problems: RowProblems) -> tuple[Array, Array]:
        """Features of all offered actions (Σ counts, p) and counts (n,)."""
        (column,) = self.feature_map.columns
        name = column.name
        raw, counts = decoding.nested_vectors(
            batch.column(name), column.width or 1, name, problems, impute=column.imputes
        )
        if not len(raw):
            return np.zeros((0, len(self.feature_map.expanded_names))), counts
        return self.feature_map.expand({name: raw}, counts[counts > 0]), counts

    def _actions(self, batch: Any, counts: Array, problems: RowProblems) -> Array:
        """Index of the chosen action among the offered (n,); −1 where it is none of them."""
        name = str(self.schema.action)
        values = decoding.numbers(batch.column(name), name, problems)
        good = (values >= 0) & (values < counts) & (values == np.floor(values))
        problems.leave_out(~good, "chosen action outside the offered")
        return np.where(good, values, -1.0).astype(np.int64)

    def _of_chosen(self, offered: Array, counts: Array, action: Array) -> Array:
        """Features of the chosen actions (n, p); zeros where it is none of the offered."""
        known = action >= 0
        features = np.zeros((len(counts), offered.shape[1]))
        features[known] = offered[(np.cumsum(counts) - counts + action)[known]]
        return features

    def _all_rewards(self, batch: Any, counts: Array, problems: RowProblems) -> Array:
        """Rewards of all offered actions (Σ counts,)."""
        name = str(self.schema.rewards)
        column = batch.column(name)
        fits = decoding.list_lengths(column, missing=-1) == counts
        problems.leave_out(~fits, f"{name} without one number per offered action")
        inside = column.filter(fits).flatten()
        entries = RowProblems(len(inside))
        rewards = np.zeros(int(counts.sum()))
        rewards[np.repeat(fits, counts)] = decoding.numbers(inside, name, entries)
        if entries.found:
            bad = np.zeros(len(batch), dtype=bool)
            bad[np.flatnonzero(fits).repeat(counts[fits])[~entries.usable]] = True
            problems.leave_out(bad, f"{name} missing or not finite")
        return rewards


@dataclass(frozen=True)
class RowPerAction(Form):
    """One row per offered action; a batch holds whole rounds.

    Parameters
    ----------
    chosen_is_flag : bool
        Whether the column `chosen` says true or false, not the label of the chosen action.
    """

    chosen_is_flag: bool = True

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        starts = run_starts(batch.column(self.schema.round))
        counts = np.diff(np.append(starts, len(batch)))
        raw, all_rewards, problems = self._per_row(batch, starts)
        at = self._chosen_rows(batch, starts, problems)
        offered = self.feature_map.expand(raw, counts)
        of_chosen = batch.take(at)
        rounds = Rounds(
            file,
            row + starts,
            offered[at],
            self._rewards(of_chosen, problems),
            offered=offered,
            offered_counts=counts,
            action=None if self.schema.chosen is None else at - starts,
            all_rewards=all_rewards,
        )
        return self._with_optional(rounds, of_chosen, problems), problems

    def _per_row(self, batch: Any, starts: Array) -> tuple[Mapping[str, Array], Array | None, RowProblems]:
        """Raw columns and, with full information, rewards of every row; a bad row is a problem of its round."""
        problems = RowProblems(len(batch))
        problems.leave_out(np.asarray(batch.column(self.schema.round).is_null()), f"missing {self.schema.round}")
        raw = self._raw_columns(batch, problems)
        all_rewards = self._rewards(batch, problems) if self.schema.full_information else None
        return raw, all_rewards, problems.of_groups(starts)

    def _chosen_rows(self, batch: Any, starts: Array, problems: RowProblems) -> Array:
        """Row of the chosen action of every round (n,), the first if there are several or none."""
        chosen = self._chosen(batch, starts)
        how_many = np.add.reduceat(chosen.astype(np.int64), starts)
        problems.leave_out(how_many == 0, "chosen action outside the offered")
        problems.leave_out(how_many > 1, "more than one chosen action")
        rows_behind = np.arange(len(batch), 0, -1)
        most_behind = np.maximum.reduceat(np.where(chosen, rows_behind, 0), starts)
        return np.where(most_behind > 0, len(batch) - most_behind, starts)

    def _chosen(self, batch: Any, starts: Array) -> Array:
        """Mask of the rows of chosen actions; the first of every round, if the log does not say."""
        if self.schema.chosen is None:
            first = np.zeros(len(batch), dtype=bool)
            first[starts] = True
            return first
        column = batch.column(self.schema.chosen)
        if self.chosen_is_flag:
            return decoding.flags(column)
        problems = RowProblems(len(batch))
        label = decoding.texts(column, "", problems)
        same = label == decoding.texts(batch.column(self.schema.row_label), "", problems)
        return np.asarray(same & problems.usable)

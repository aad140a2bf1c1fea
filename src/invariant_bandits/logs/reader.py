"""Reader: the usable rounds of any part of a log; the others are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.arrow_types import is_list, is_time, is_vector
from invariant_bandits.logs.columns import Column
from invariant_bandits.logs.decoding import are_flags, vector_width
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.forms import ChosenOnly, Form, OfferedLists, RowPerAction
from invariant_bandits.logs.imputing import imputing
from invariant_bandits.logs.labelled import LabelledArms, LabelledRows
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema, listed
from invariant_bandits.logs.sources import Source, Task, skipped_by_reason
from invariant_bandits.logs.whole_rounds import whole_rounds

ROUNDS_LOOKED_AT = 1000


@dataclass(frozen=True)
class Reader:
    """How to read rounds from a source; it can be sent to another machine if the source can.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    form : Form
        How they become rounds.
    duplicates : array or None
        Positions in the log of the rounds whose id came before.
    """

    source: Source
    form: Form
    duplicates: Array | None = None

    @property
    def schema(self) -> Schema:
        """What the columns mean."""
        return self.form.schema

    @property
    def feature_map(self) -> FeatureMap:
        """What becomes of them."""
        return self.form.feature_map

    def rounds(self, task: Task, report: QualityReport) -> Iterator[Rounds]:
        """The usable rounds of one task, their features expanded but not yet scaled; the others go to `report`."""
        for row, batch in self._batches(task):
            report.rows += len(batch)
            rounds, problems = self.form.decoded(task.file, row, batch)
            self._leave_out_duplicates(task, rounds, problems)
            _count(rounds, row, problems, report)
            rounds = rounds.where(problems.usable)
            if len(rounds):
                report.rounds += len(rounds)
                _look_at_choices(rounds, report)
                yield rounds
        for reason, skipped in skipped_by_reason(self.source, task).items():
            if skipped:
                report.rows += 0 if report.is_kept(reason) else len(skipped)
                report.add(reason, task.file, skipped)

    def _batches(self, task: Task) -> Iterator[tuple[int, Any]]:
        columns = self.schema.used_columns
        if self.schema.one_row_per_action:
            return whole_rounds(self.source, task, columns, str(self.schema.round))
        return self.source.batches(task, columns)

    def _leave_out_duplicates(self, task: Task, rounds: Rounds, problems: RowProblems) -> None:
        if self.duplicates is not None:
            position = task.position - task.first_row + rounds.rows
            problems.leave_out(np.isin(position, self.duplicates), f"duplicated {self.schema.round}")


AnyFeatures: TypeAlias = FeatureOptions | FeatureMap | ArmFeatures
"""What to make of the columns: options, or what was learned before."""


def reader_of(log: Log, features: AnyFeatures, *, offered: bool = True) -> Reader:
    """How to read the rounds of a log; the map expands columns, what is learned from moments comes later.

    Parameters
    ----------
    log : Log
        What is read.
    features : FeatureOptions, FeatureMap or ArmFeatures
        What becomes of the columns.
    offered : bool
        Whether rounds of labelled arms say which were offered.
    """
    if isinstance(features, ArmFeatures):
        _require_same_arms(log, features)
        feature_map = features.context
    else:
        feature_map = features if isinstance(features, FeatureMap) else expanding_map(log, features)
    if feature_map.centre and (log.schema.labelled or not log.schema.has_offered):
        raise InputError(
            "centre: the log has no offered actions with features of their own, so a round has no mean to subtract"
        )
    duplicates = log.survey().duplicates  # first, because it may put torn rounds together
    return Reader(log.source, _form(log, feature_map, offered), duplicates)


def _require_same_arms(log: Log, features: ArmFeatures) -> None:
    if features.labels != log.arms.labels:
        raise InputError(
            f"features are those of the arms {listed(features.labels)}, the log has {listed(log.arms.labels)}"
        )


def expanding_map(log: Log, options: FeatureOptions) -> FeatureMap:
    """The map that expands the columns of a log into features, categories included; nothing is scaled or left out."""
    schema = log.schema
    names = schema.features if schema.offered is None else (schema.offered,)
    columns = tuple(_column(log, name, options.max_categories) for name in names)
    if options.impute:
        columns = tuple(imputing(column, log) for column in columns)
    return FeatureMap(columns, options.interactions, options.centre)


def _column(log: Log, name: str, max_categories: int) -> Column:
    kind = log.source.arrow_schema.field(name).type
    if name in log.schema.categorical:
        return Column(name, categories=log.survey().most_frequent(name, max_categories))
    if is_list(kind):
        if not is_vector(kind) and not is_vector(kind.value_type):
            raise InputError(f"column {name!r} must hold lists of numbers, got {kind}")
        return Column(name, width=vector_width(log.sample.column(name)))
    if is_time(kind):
        raise InputError(f"column {name!r} holds {kind}, which is no feature; make numbers or categories of it")
    return Column(name)


def _form(log: Log, feature_map: FeatureMap, offered: bool) -> Form:
    schema, dates = log.schema, log.times_are_dates
    if schema.offered is not None:
        return OfferedLists(schema, feature_map, dates)
    if not schema.one_row_per_action and schema.labelled:
        starts = {task.file: task.position - task.first_row for task in log.survey().tasks}
        return LabelledArms(schema, feature_map, dates, arms=log.arms, with_offered=offered, file_starts=starts)
    if not schema.one_row_per_action:
        return ChosenOnly(schema, feature_map, dates)
    by_label = schema.chosen is not None and schema.row_label is not None
    flag = not by_label or are_flags(log.sample.column(schema.chosen))
    if schema.labelled:
        return LabelledRows(schema, feature_map, dates, flag, arms=log.arms, with_offered=offered)
    return RowPerAction(schema, feature_map, dates, flag)


def _look_at_choices(rounds: Rounds, report: QualityReport) -> None:
    """Count, among the first rounds of a batch, those with several offered actions, and those with equal ones."""
    if rounds.offered is None or rounds.offered_counts is None:
        return
    counts = rounds.offered_counts[:ROUNDS_LOOKED_AT]
    offered = rounds.offered[: int(counts.sum())]
    starts = np.cumsum(counts) - counts
    same = (offered == np.repeat(offered[starts], counts, axis=0)).all(axis=1)
    several = counts > 1
    report.choices += int(several.sum())
    report.identical += int((np.logical_and.reduceat(same, starts) & several).sum())


def _count(rounds: Rounds, first_row: int, problems: RowProblems, report: QualityReport) -> None:
    """Count what is strange about rows of a batch that begins at `first_row`, and what is wrong with rounds."""
    for reason, rows in problems.kept.items():
        report.add(reason, rounds.file, first_row + np.flatnonzero(rows))
    for reason, bad in problems.by_reason():
        if bad.any():
            report.add(reason, rounds.file, rounds.rows[bad])

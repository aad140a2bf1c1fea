"""Reader: the usable rounds of any part of a log; the others are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arrow_types import is_list, is_time, is_vector
from invariant_bandits.logs.columns import Column
from invariant_bandits.logs.decoding import are_flags, vector_width
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.forms import ChosenOnly, Form, OfferedLists, RowPerAction
from invariant_bandits.logs.imputing import imputing
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.rounds import Rounds
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, Task, skipped_by_reason
from invariant_bandits.logs.whole_rounds import whole_rounds


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
                yield rounds
        for reason, skipped in skipped_by_reason(self.source, task).items():
            if skipped:
                report.rows += len(skipped)
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


def reader_of(log: Log, features: FeatureOptions | FeatureMap) -> Reader:
    """How to read the rounds of a log; the map expands columns, what is learned from moments comes later."""
    feature_map = features if isinstance(features, FeatureMap) else expanding_map(log, features)
    if feature_map.centre and not log.schema.has_offered:
        raise InputError("centre: the log has no offered actions, so there is no mean of a round to subtract")
    return Reader(log.source, _form(log, feature_map), log.survey().duplicates)


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


def _form(log: Log, feature_map: FeatureMap) -> Form:
    schema = log.schema
    if schema.offered is not None:
        return OfferedLists(schema, feature_map, log.times_are_dates)
    if not schema.one_row_per_action:
        return ChosenOnly(schema, feature_map, log.times_are_dates)
    labels = schema.chosen is not None and schema.action is not None
    flag = not labels or are_flags(log.sample.column(schema.chosen))
    return RowPerAction(schema, feature_map, log.times_are_dates, flag)


def _count(rounds: Rounds, first_row: int, problems: RowProblems, report: QualityReport) -> None:
    """Count what is strange about rows of a batch that begins at `first_row`, and what is wrong with rounds."""
    for reason, rows in problems.kept.items():
        report.add(reason, rounds.file, first_row + np.flatnonzero(rows))
    for reason, bad in problems.by_reason():
        if bad.any():
            report.add(reason, rounds.file, rounds.rows[bad])

"""Reader: the usable rounds of any part of a log; the others are counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import arms as labels
from invariant_bandits.logs import decode
from invariant_bandits.logs.arm_features import ArmFeatures, with_level
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.decode import are_flags, is_list, is_time, is_vector, vector_width
from invariant_bandits.logs.external_sort import run_starts, whole_rounds
from invariant_bandits.logs.features import Column, FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.schema import Schema, listed
from invariant_bandits.logs.sources import Source, Task, skipped_by_reason

PER_ROUND = ("rows", "features", "rewards", "times", "action", "propensity", "position", "offered_counts", "arm")
PER_OFFERED = ("offered", "all_rewards", "offered_arms")


@dataclass(frozen=True)
class Rounds:
    """A batch of n rounds in the order of the log; what the log does not have is None.

    With full information there may be no chosen action: then features and rewards are those of the first offered one,
    and action is None.

    Parameters
    ----------
    file : str
        Path of the file, or a name for what is in memory.
    rows : array, shape (n,)
        First row of each round in the file, counted from 0.
    features : array, shape (n, p)
        Features of the chosen actions.
    rewards : array, shape (n,)
        Rewards of the chosen actions.
    times : array, shape (n,)
        datetime64[us] (UTC), or numbers.
    offered : array, shape (Σ offered_counts, p)
        Features of all offered actions, round after round.
    offered_counts : array, shape (n,)
        How many actions each round offers.
    action : array, shape (n,)
        Which of the offered actions was chosen, from 0.
    propensity : array, shape (n,)
        Probability with which the chosen action was chosen.
    position : array, shape (n,)
        Position at which it was shown, NaN where it is missing.
    all_rewards : array, shape (Σ offered_counts,)
        Rewards of all offered actions.
    arm : array, shape (n,)
        Place of the chosen arm in the table of arms, where the log has labels.
    offered_arms : array, shape (Σ offered_counts,)
        Places of all offered arms, round after round.
    """

    file: str
    rows: Array
    features: Array
    rewards: Array
    times: Array | None = None
    offered: Array | None = None
    offered_counts: Array | None = None
    action: Array | None = None
    propensity: Array | None = None
    position: Array | None = None
    all_rewards: Array | None = None
    arm: Array | None = None
    offered_arms: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, good: Array) -> Rounds:
        """The rounds where the mask `good` (n,) is true."""
        if good.all():
            return self
        changes = {name: getattr(self, name)[good] for name in PER_ROUND if getattr(self, name) is not None}
        if self.offered_counts is not None:
            of_row = np.repeat(good, self.offered_counts)
            changes |= {name: getattr(self, name)[of_row] for name in PER_OFFERED if getattr(self, name) is not None}
        return replace(self, **changes)

    def between(self, start: int, stop: int) -> Rounds:
        """The rounds from `start` up to, not including, `stop`."""
        changes = {name: getattr(self, name)[start:stop] for name in PER_ROUND if getattr(self, name) is not None}
        if self.offered_counts is not None:
            first = int(self.offered_counts[:start].sum())
            rows = slice(first, first + int(self.offered_counts[start:stop].sum()))
            changes |= {name: getattr(self, name)[rows] for name in PER_OFFERED if getattr(self, name) is not None}
        return replace(self, **changes)

    def offering(self, mask: Array) -> Rounds:
        """These rounds with the arms that each offered, a mask (n, arms); the chosen one is always among them."""
        assert self.arm is not None
        chosen = np.arange(len(mask)), self.arm
        mask = mask.copy()
        mask[chosen] = True
        return replace(
            self,
            offered_arms=np.nonzero(mask)[1],
            offered_counts=mask.sum(axis=1),
            action=mask.cumsum(axis=1)[chosen] - 1,
        )


def last_rounds(batches: Iterable[Rounds], latest: int) -> Iterable[Rounds]:
    """The batches that hold the last `latest` rounds; earlier ones are let go as soon as they are not needed."""
    kept: deque[Rounds] = deque()
    total = 0
    for batch in batches:
        kept.append(batch)
        total += len(batch)
        while total - len(kept[0]) >= latest:
            total -= len(kept.popleft())
    return kept


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
                raw[column.name] = decode.texts(values, column.name, problems, impute=column.imputes)
                problems.keep(decode.unknown(values, column.categories), f"unknown category of {column.name}")
            elif column.width is not None:
                raw[column.name] = decode.vectors(values, column.width, column.name, problems, impute=column.imputes)
            else:
                raw[column.name] = decode.numbers(values, column.name, problems, impute=column.imputes)
        return raw

    def _rewards(self, batch: Any, problems: RowProblems) -> Array:
        return decode.numbers(batch.column(self.schema.reward), self.schema.reward, problems)

    def _with_optional(self, rounds: Rounds, batch: Any, problems: RowProblems) -> Rounds:
        """The rounds with times, propensities and positions, where the log has them; one row of `batch` per round."""
        schema = self.schema
        changes: dict[str, Any] = {}
        if schema.time is not None:
            changes["times"] = decode.times(batch.column(schema.time), schema.time, self.dates, problems)
        if schema.propensity is not None:
            values = decode.numbers(batch.column(schema.propensity), schema.propensity, problems)
            problems.leave_out((values <= 0.0) | (values > 1.0), f"{schema.propensity} outside (0, 1]")
            changes["propensity"] = values
        if schema.position is not None:
            missing = RowProblems(len(batch))
            values = decode.numbers(batch.column(schema.position), schema.position, missing)
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
        rounds = Rounds(file, row + np.arange(len(batch)), self.feature_map.encode(raw), rewards)
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
        raw, counts = decode.nested_vectors(
            batch.column(name), column.width or 1, name, problems, impute=column.imputes
        )
        if not len(raw):
            return np.zeros((0, len(self.feature_map.encoded_names))), counts
        return self.feature_map.encode({name: raw}, counts[counts > 0]), counts

    def _actions(self, batch: Any, counts: Array, problems: RowProblems) -> Array:
        """Index of the chosen action among the offered (n,); −1 where it is none of them."""
        name = str(self.schema.action)
        values = decode.numbers(batch.column(name), name, problems)
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
        fits = decode.list_lengths(column, missing=-1) == counts
        problems.leave_out(~fits, f"{name} without one number per offered action")
        inside = column.filter(fits).flatten()
        entries = RowProblems(len(inside))
        rewards = np.zeros(int(counts.sum()))
        rewards[np.repeat(fits, counts)] = decode.numbers(inside, name, entries)
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
        offered = self.feature_map.encode(raw, counts)
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
            return decode.flags(column)
        problems = RowProblems(len(batch))
        label = decode.texts(column, "", problems)
        same = label == decode.texts(batch.column(self.schema.row_label), "", problems)
        return np.asarray(same & problems.usable)


UNKNOWN_ARM = "label of no known arm"
NOT_OFFERED = "chosen action outside the offered"


@dataclass(frozen=True, kw_only=True)
class Labelled(Form):
    """What the labelled forms share.

    Parameters
    ----------
    arms : ArmTable
        The arms, and when each was offered.
    with_offered : bool
        Whether rounds get the arms that were offered.
    """

    arms: ArmTable
    with_offered: bool = True

    def _contexts(self, batch: Any, problems: RowProblems) -> Array:
        """[1, what the context map expands to] (n, 1 + q)."""
        if not self.feature_map.columns:
            return np.ones((len(batch), 1))
        return with_level(self.feature_map.encode(self._raw_columns(batch, problems)))

    def _codes(self, batch: Any, problems: RowProblems) -> Array:
        """Places (n,) of the labels in the table; the first, and a problem, where a label is missing or not known."""
        column = batch.column(str(self.schema.arm))
        codes = self.arms.codes(column)
        problems.leave_out(np.asarray(column.is_null().to_numpy(zero_copy_only=False)), f"missing {self.schema.arm}")
        problems.leave_out(codes < 0, UNKNOWN_ARM)
        return np.maximum(codes, 0)


@dataclass(frozen=True, kw_only=True)
class LabelledArms(Labelled):
    """One row per round: its context, and the label of the chosen arm.

    Parameters
    ----------
    file_starts : mapping of str to int
        Place in the log of the first row of every file; needed where arms are bounded by rows.
    """

    file_starts: Mapping[str, int] = field(default_factory=dict)

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        problems = RowProblems(len(batch))
        contexts = self._contexts(batch, problems)
        codes = self._codes(batch, problems)
        rounds = Rounds(file, row + np.arange(len(batch)), contexts, self._rewards(batch, problems), arm=codes)
        rounds = self._with_optional(rounds, batch, problems)
        if not self.with_offered:
            return rounds, problems
        mask = self._offered_mask(rounds, batch)
        problems.leave_out(~mask[np.arange(len(codes)), codes], NOT_OFFERED)
        return rounds.offering(mask), problems

    def _offered_mask(self, rounds: Rounds, batch: Any) -> Array:
        """Which arms each round offered (n, arms)."""
        if self.schema.arms_offered is None:
            when = self.file_starts.get(rounds.file, 0) + rounds.rows if rounds.times is None else rounds.times
            return self.arms.offered_at(when)
        words, of_row = labels.flattened(batch.column(self.schema.arms_offered))
        codes = labels.places(words, self.arms.labels)
        mask = np.zeros((len(batch), len(self.arms)), dtype=bool)
        mask[of_row[codes >= 0], codes[codes >= 0]] = True
        return mask


@dataclass(frozen=True, kw_only=True)
class LabelledRows(Labelled, RowPerAction):
    """One row per offered arm; a batch holds whole rounds, and the rows of a round have one context."""

    def decoded(self, file: str, row: int, batch: Any) -> tuple[Rounds, RowProblems]:
        """The rounds of a batch that begins at `row` of `file`, bad ones included, and their problems."""
        starts = run_starts(batch.column(self.schema.round))
        rows = RowProblems(len(batch))
        codes = self._codes(batch, rows)
        mask = np.zeros((len(starts), len(self.arms)), dtype=bool)
        mask[np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(batch)))), codes] = True
        problems = rows.of_groups(starts)
        at = self._chosen_rows(batch, starts, problems)
        of_chosen = batch.take(at)
        contexts = self._contexts(of_chosen, problems)
        rounds = Rounds(file, row + starts, contexts, self._rewards(of_chosen, problems), arm=codes[at])
        rounds = self._with_optional(rounds, of_chosen, problems)
        return (rounds.offering(mask) if self.with_offered else rounds), problems


RARE = 0.005
"""Share of rows with a missing value from which on it is marked."""


def imputing(column: Column, log: Log) -> Column:
    """The column with what the log says about its missing values: all rows for categories, else the first ones."""
    if column.categories is not None:
        survey = log.survey()
        rows = survey.total_rows or 0
        counts = survey.categories[column.name]
        missing, shares = rows - counts.total(), tuple(counts[one] / counts.total() for one in column.categories)
        return replace(column, filler=shares, marks_missing=missing > 0 and missing >= RARE * rows)
    values = _first_values(column, log)
    known = ~np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that large are refused when they are read
        mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    share = float((~known).any(axis=1).mean()) if len(values) else 0.0
    return replace(column, filler=tuple(mean.tolist()), marks_missing=share >= RARE)


def _first_values(column: Column, log: Log) -> Array:
    """Usable values (rows, 1 or width) in the first rows of the log, NaN where they are missing."""
    sample = log.sample.column(column.name).combine_chunks()
    if column.width is None:
        problems = RowProblems(len(sample))
        values = decode.numbers(sample, column.name, problems, impute=True)
        return values[problems.usable, None]
    nested = sample if is_vector(sample.type) else sample.flatten()
    problems = RowProblems(len(nested))
    return decode.vectors(nested, column.width, column.name, problems, impute=True)[problems.usable]


def often_missing(feature_map: FeatureMap, report: QualityReport) -> list[str]:
    """Columns without a mark whose values turned out to be missing too often to go without one."""
    marked = {column.name for column in feature_map.columns if column.marks_missing}
    return [name for name, count in report.imputed.items() if name not in marked and count >= RARE * report.rows]


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

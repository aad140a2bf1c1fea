"""Reader: the usable rounds of any part of a log; the others are counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, format_names
from invariant_bandits.features.arm_maps import (
    OwnCoefficients,
    PooledLevels,
)
from invariant_bandits.features.columns import Column
from invariant_bandits.features.maps import FeatureMap, FeatureOptions
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import ArmTable, label_words
from invariant_bandits.logs.decode import (
    are_flags,
    is_list,
    is_time,
    is_vector,
    run_starts,
    vector_width,
)
from invariant_bandits.logs.external_sort import round_batches
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.repeats import RepeatedRounds
from invariant_bandits.logs.schema import PROBABILITIES, Schema
from invariant_bandits.logs.sources import Source, Task
from invariant_bandits.logs.survey import MOST_LEVELS
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

AnyFeatures: TypeAlias = FeatureOptions | FeatureMap
"""What to make of the columns: options, or a feature map that was learned before."""
OUTSIDE_OFFERED = "chosen action outside the offered"
UNKNOWN_ARM = "label of no known arm"
ROUNDS_LOOKED_AT = 1000
"""Rounds per batch in which choices are compared: enough to see that all offered actions are equal."""
CELLS_AT_ONCE = 4_000_000
"""So many numbers of φ (32 MB) are made at once."""
RARE = 0.005
"""Share of rows with a missing value from which on a feature indicates it."""
PER_ROUND = (
    *("rows", "features", "rewards", "times", "offered_counts", "action"),
    *("propensity", "position", "arm", "round_weights"),
)
"""Arrays of Rounds with one entry per round."""
PER_OFFERED = ("offered", "all_rewards", "offered_arms")
"""Arrays of Rounds with one entry per offered action."""


@dataclass(frozen=True)
class Rounds:
    """A batch of n rounds in the order of the log; what the log does not have is None.

    With full information there may be no chosen action: then features and rewards are those of the first
    offered one, and action is None.

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
        Index of the chosen arm in the table of arms, where the log has labels.
    offered_arms : array, shape (Σ offered_counts,)
        Indices of all offered arms, round after round.
    columns : mapping of str to array or Categories
        With one row per round: the decoded columns that `features` encode.
    round_weights : array, shape (n,)
        With how many rounds of the log each stands for, where some lack their reward.
    """

    file: str
    rows: Array
    features: Array
    rewards: Array
    times: Array | None = None
    offered: Array | None = None
    offered_counts: Any = None
    action: Array | None = None
    propensity: Array | None = None
    position: Array | None = None
    all_rewards: Array | None = None
    arm: Any = None
    offered_arms: Array | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    round_weights: Array | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, good: Array) -> Rounds:
        """Return the rounds where the mask `good` (n,) is true."""
        if good.all():
            return self
        of_rows = good
        if self.offered_counts is not None:
            of_rows = np.repeat(good, self.offered_counts)
        masked: dict[str, Any] = {}
        for names, mask in ((PER_ROUND, good), (PER_OFFERED, of_rows)):
            for name in names:
                values = getattr(self, name)
                if values is not None:
                    masked[name] = values[mask]
        columns = {
            name: decode.masked(values, good) for name, values in self.columns.items()
        }
        return replace(self, columns=columns, **masked)

    def offering(self, mask: Array) -> Rounds:
        """Return these rounds with the arms that each offered, a mask (n, arms).

        The chosen arm is always among them.
        """
        chosen = np.arange(len(mask)), self.arm
        mask = mask.copy()
        mask[chosen] = True
        action = mask.cumsum(axis=1)[chosen] - 1
        counts = mask.sum(axis=1)
        return replace(
            self, offered_arms=np.nonzero(mask)[1], offered_counts=counts, action=action
        )


def last_rounds(batches: Iterable[Rounds], latest: int) -> Iterable[Rounds]:
    """Return the batches that hold the last `latest` rounds.

    Earlier batches are released as soon as they are not needed.
    """
    needed: deque[Rounds] = deque()
    total = 0
    for batch in batches:
        needed.append(batch)
        total += len(batch)
        while total - len(needed[0]) >= latest:
            total -= len(needed.popleft())
    return needed


def map_features(rounds: Rounds, features: FeatureMap) -> Iterator[Rounds]:
    """Yield rounds of encoded rows as rounds of φ, chosen and offered.

    Of labelled arms, a bounded number of rounds at a time.
    """
    step = len(rounds)
    if features.labels:
        counts = rounds.offered_counts
        most = 1 if counts is None else int(np.max(counts))
        step = max(1, CELLS_AT_ONCE // (features.dim * most))
    part_of = np.arange(len(rounds)) // step
    for index in range(-(-len(rounds) // step)):
        part = rounds.where(part_of == index)
        chosen = features.standardise(part.features)
        offered = None
        if part.offered is not None:
            offered = features.standardise(part.offered)
        elif part.offered_arms is not None:
            offered = features.cross(
                np.repeat(chosen, part.offered_counts, axis=0), part.offered_arms
            )
        yield replace(part, features=features.cross(chosen, part.arm), offered=offered)


def standardised_rounds(rounds: Rounds, features: FeatureMap) -> Rounds:
    """Return rounds of encoded rows with standardised rows, of which `FeatureMap.cross_rows` makes φ.

    Of labelled arms, rows of `offered` are the context with the position of the arm behind it: a row of φ
    may be as many times longer as there are arms.
    """
    standard = features.standardise(rounds.features)
    if rounds.offered_arms is None:
        offered = features.standardise(np.asarray(rounds.offered))
    else:
        repeated = np.repeat(standard, rounds.offered_counts, axis=0)
        offered = np.column_stack([repeated, rounds.offered_arms])
    return replace(rounds, features=standard, offered=offered)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How batches of a log become rounds; it can be sent to another machine if the source can.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    schema : Schema
        What the columns mean.
    features : FeatureMap
        What becomes of them; rounds get encoded features, before any is left out or scaled.
    dates : bool
        Whether times are dates, not numbers.
    duplicates : array or None
        Positions in the log of the rounds whose id came before, of a log with several rows per round.
    repeats : RepeatedRounds or None
        Rows that repeat the id of an earlier one, of a log with one row per round.
    chosen_is_flag : bool
        With one row per action, whether the column `chosen` holds truth values, not labels.
    """

    source: Source
    schema: Schema
    features: FeatureMap
    dates: bool
    duplicates: Array | None = None
    repeats: RepeatedRounds | None = None
    chosen_is_flag: bool = True

    def rounds(self, task: Task, report: QualityReport) -> Iterator[Rounds]:
        """Yield the usable rounds of one task, features encoded; the others go to `report`."""
        schema = self.schema
        decode_batch = self._decode_rows
        if schema.offered is not None:
            decode_batch = self._decode_lists
        elif schema.one_row_per_action:
            decode_batch = self._decode_groups
        for row, batch in round_batches(self.source, task, schema):
            report.rows += len(batch)
            rounds, problems = decode_batch(task, row, batch)
            if self.duplicates is not None:
                again = np.isin(task.positions(rounds.rows), self.duplicates)
                problems.leave_out(again, f"duplicated {schema.round}")
            if self.repeats is not None:
                self.repeats.leave_out(task.positions(rounds.rows), schema, problems)
            for reason, rows in problems.kept.items():
                report.add(reason, task.file, row + np.flatnonzero(rows))
            for reason, bad in problems.by_reason():
                report.add(reason, task.file, rounds.rows[bad])
            rounds = rounds.where(problems.usable)
            if len(rounds):
                report.rounds += len(rounds)
                _look_at_choices(rounds, report)
                yield rounds
        for reason, skipped in self.source.skipped(task).items():
            report.rows += 0 if report.is_kept(reason) else len(skipped)
            report.add(reason, task.file, skipped)

    def _decode_rows(
        self, task: Task, row: int, batch: Any
    ) -> tuple[Rounds, RowProblems]:
        """Decode one row per round: the features of the chosen action."""
        problems = RowProblems(len(batch))
        columns = self._columns(batch, problems)
        features = self.encode(columns, len(batch))
        rows = row + np.arange(len(batch))
        return self._rounds(task, rows, features, batch, problems), problems

    def _decode_groups(
        self, task: Task, row: int, batch: Any
    ) -> tuple[Rounds, RowProblems]:
        """Decode one row per offered action; the batch holds whole rounds."""
        schema = self.schema
        starts, rows = self._round_starts(batch)
        counts = np.diff(np.append(starts, len(batch)))
        offered = self.encode(self._columns(batch, rows), len(batch), counts)
        all_rewards = self._rewards(batch, rows) if schema.full_information else None
        problems = rows.of_groups(starts)
        chosen = self._chosen_rows(batch, starts, problems)
        rounds = self._rounds(
            task, row + starts, offered[chosen], batch.take(chosen), problems
        )
        rounds = replace(
            rounds,
            offered=offered,
            offered_counts=counts,
            action=None if schema.chosen is None else chosen - starts,
            all_rewards=all_rewards,
        )
        return rounds, problems

    def _round_starts(self, batch: Any) -> tuple[Array, RowProblems]:
        """Return the first row of every round, and the rows that name no round."""
        column = batch.column(self.schema.round)
        problems = RowProblems(len(batch))
        missing = np.asarray(column.is_null())
        problems.leave_out(missing, f"missing {self.schema.round}")
        return run_starts(column), problems

    def _decode_lists(
        self, task: Task, row: int, batch: Any
    ) -> tuple[Rounds, RowProblems]:
        """Decode one row per round with a list of the features of all offered actions."""
        problems, (column,) = RowProblems(len(batch)), self.features.columns
        name = column.name
        impute = column.filler is not None
        nested = batch.column(name)
        width = column.width or 1
        raw, counts = decode.nested_vectors(
            nested, width, name, problems, impute=impute
        )
        offered = np.zeros((0, len(self.features.encoded_names)))
        if len(raw):
            offered = self.features.encode({name: raw}, counts[counts > 0])
        values = decode.numbers(
            batch.column(self.schema.action), str(self.schema.action), problems
        )
        known = (values >= 0) & (values < counts) & (values == np.floor(values))
        problems.leave_out(~known, OUTSIDE_OFFERED)
        action = np.where(known, values, -1.0).astype(np.int64)
        features = np.zeros((len(counts), offered.shape[1]))
        features[known] = offered[(np.cumsum(counts) - counts + action)[known]]
        rounds = self._rounds(
            task,
            row + np.arange(len(batch)),
            features,
            batch,
            problems,
            offered=offered,
            offered_counts=counts,
            action=action,
        )
        if self.schema.rewards is not None:
            all_rewards = self._all_rewards(batch, counts, problems)
            rounds = replace(rounds, all_rewards=all_rewards)
        return rounds, problems

    def _rounds(
        self,
        task: Task,
        rows: Array,
        features: Array,
        batch: Any,
        problems: RowProblems,
        **known: Any,
    ) -> Rounds:
        """Return rounds with rewards, times, propensities and positions, where the log has them.

        A row of `batch` is a round.
        """
        schema = self.schema
        of_rewards = RowProblems(len(batch))
        rewards = self._rewards(batch, of_rewards)
        if self.repeats is not None:
            rewards = self.repeats.merged_rewards(
                task.positions(rows), rewards, of_rewards
            )
        problems.leave_out_at(np.arange(len(batch)), of_rewards)
        times = propensity = position = None
        if schema.time is not None:
            times = decode.times(
                batch.column(schema.time), schema.time, self.dates, problems
            )
        if schema.propensity is not None:
            propensity = decode.numbers(
                batch.column(schema.propensity), schema.propensity, problems
            )
            propensity = PROBABILITIES[schema.propensity_unit](propensity)
            outside = (propensity <= 0.0) | (propensity > 1.0)
            problems.leave_out(outside, f"{schema.propensity} outside (0, 1]")
        if schema.position is not None:
            missing = RowProblems(len(batch))
            values = decode.numbers(
                batch.column(schema.position), schema.position, missing
            )
            position = np.where(missing.usable, values, np.nan)
        return Rounds(
            file=task.file,
            rows=rows,
            features=features,
            rewards=rewards,
            times=times,
            propensity=propensity,
            position=position,
            **known,
        )

    def _columns(self, batch: Any, problems: RowProblems) -> dict[str, Any]:
        """Return the decoded columns of a batch that become features."""
        raw: dict[str, Any] = {}
        for column in self.features.columns:
            name = column.name
            values = batch.column(name)
            impute = column.filler is not None
            if column.categories is not None:
                raw[name] = decode.categories_of(
                    values, column.categories, name, problems, impute=impute
                )
            elif column.width is not None:
                raw[name] = decode.vectors(
                    values, column.width, name, problems, impute=impute
                )
            else:
                raw[name] = decode.numbers(values, name, problems, impute=impute)
        return raw

    def encode(
        self, columns: Mapping[str, Any], rows: int, counts: Array | None = None
    ) -> Array:
        """Return the encoded features of every row; only the level, if contexts have no columns."""
        return self.features.encode(columns, counts) if columns else np.ones((rows, 1))

    def _rewards(self, batch: Any, problems: RowProblems) -> Array:
        rewards = decode.numbers(
            batch.column(self.schema.reward), self.schema.reward, problems
        )
        return np.asarray(self.schema.learned_reward(rewards))

    def _all_rewards(self, batch: Any, counts: Array, problems: RowProblems) -> Array:
        """Return the rewards of all offered actions (Σ counts,) of a column of lists."""
        name = str(self.schema.rewards)
        column = batch.column(name)
        fits = decode.list_lengths(column, missing=-1) == counts
        problems.leave_out(~fits, f"{name} without one number per offered action")
        inside = column.filter(fits).flatten()
        entries = RowProblems(len(inside))
        rewards = np.zeros(int(counts.sum()))
        rewards[np.repeat(fits, counts)] = decode.numbers(inside, name, entries)
        if entries.any:
            bad = np.zeros(len(batch), dtype=bool)
            bad[np.flatnonzero(fits).repeat(counts[fits])[~entries.usable]] = True
            problems.leave_out(bad, f"{name} missing or not finite")
        return np.asarray(self.schema.learned_reward(rewards))

    def _chosen_rows(self, batch: Any, starts: Array, problems: RowProblems) -> Array:
        """Return the row of the chosen action of every round (n,), the first if there are several or none."""
        if self.schema.chosen is None:
            return starts
        chosen = self._chosen(batch)
        how_many = np.add.reduceat(chosen.astype(np.int64), starts)
        problems.leave_out(how_many == 0, OUTSIDE_OFFERED)
        problems.leave_out(how_many > 1, "more than one chosen action")
        rows_behind = np.arange(len(batch), 0, -1)
        most_behind = np.maximum.reduceat(np.where(chosen, rows_behind, 0), starts)
        return np.where(most_behind > 0, len(batch) - most_behind, starts)

    def _chosen(self, batch: Any) -> Array:
        """Return a mask of the rows of chosen actions."""
        column = batch.column(self.schema.chosen)
        if self.chosen_is_flag:
            return decode.flags(column)
        row_labels = batch.column(self.schema.row_label).cast(pa.string())
        same = compute.equal(column.cast(pa.string()), row_labels).fill_null(False)
        return np.asarray(same.to_numpy(zero_copy_only=False))


@dataclass(frozen=True, kw_only=True)
class ArmReader(Reader):
    """How batches of a log of labelled arms become rounds, whose features are contexts.

    Parameters
    ----------
    arms : ArmTable
        The arms, and when each was offered.
    with_offered : bool
        Whether rounds say which arms were offered.
    """

    arms: ArmTable
    with_offered: bool = True

    def _decode_rows(
        self, task: Task, row: int, batch: Any
    ) -> tuple[Rounds, RowProblems]:
        """Decode one row per round: a context and the chosen label."""
        problems = RowProblems(len(batch))
        columns = self._columns(batch, problems)
        codes = self._codes(batch, problems)
        rows = row + np.arange(len(batch))
        rounds = self._contexts(task, rows, columns, batch, problems)
        rounds = replace(rounds, arm=codes)
        if not self.with_offered:
            return rounds, problems
        mask = self._offered_mask(task, rounds, batch)
        problems.leave_out(~mask[np.arange(len(codes)), codes], OUTSIDE_OFFERED)
        return rounds.offering(mask), problems

    def _decode_groups(
        self, task: Task, row: int, batch: Any
    ) -> tuple[Rounds, RowProblems]:
        """Decode one row per offered arm, all of which share a context; the batch holds whole rounds."""
        starts, rows = self._round_starts(batch)
        codes = self._codes(batch, rows)
        problems = rows.of_groups(starts)
        chosen = self._chosen_rows(batch, starts, problems)
        of_chosen = batch.take(chosen)
        columns = self._columns(of_chosen, problems)
        rounds = self._contexts(task, row + starts, columns, of_chosen, problems)
        rounds = replace(rounds, arm=codes[chosen])
        if not self.with_offered:
            return rounds, problems
        counts = np.diff(np.append(starts, len(batch)))
        mask = np.zeros((len(starts), len(self.arms)), dtype=bool)
        mask[np.repeat(np.arange(len(starts)), counts), codes] = True
        return rounds.offering(mask), problems

    def _contexts(
        self,
        task: Task,
        rows: Array,
        columns: dict[str, Any],
        batch: Any,
        problems: RowProblems,
    ) -> Rounds:
        """Return rounds with encoded contexts; a row of `batch` is a round."""
        features = self.encode(columns, len(batch))
        rounds = self._rounds(task, rows, features, batch, problems)
        return replace(rounds, columns=columns)

    def _codes(self, batch: Any, problems: RowProblems) -> Array:
        """Return indices (n,) of the labels; 0, and a problem, where a label is missing or not known."""
        codes, missing = decode.category_places(
            label_words(batch.column(self.schema.arm)), self.arms.labels
        )
        problems.leave_out(missing, f"missing {self.schema.arm}")
        problems.leave_out(codes < 0, UNKNOWN_ARM)
        return np.maximum(codes, 0)

    def _offered_mask(self, task: Task, rounds: Rounds, batch: Any) -> Any:
        """Return which arms each round offered (n, arms)."""
        if self.schema.arms_offered is not None:
            return self.arms.offered_in(batch.column(self.schema.arms_offered))
        if rounds.times is None:
            return self.arms.offered_at(task.positions(rounds.rows))
        return self.arms.offered_at(rounds.times)


def reader_of(log: Log, features: AnyFeatures, *, offered: bool = True) -> Reader:
    """Return the reader of the rounds of a log.

    Parameters
    ----------
    log : Log
        What is read.
    features : FeatureOptions or FeatureMap
        What becomes of the columns; of options, only what does not need moments.
    offered : bool
        Whether rounds of labelled arms say which were offered.
    """
    schema = log.schema
    features = starting_features(log, features)
    survey = log.survey()  # first, because it may put split rounds together
    by_label = (
        schema.one_row_per_action
        and schema.chosen is not None
        and schema.row_label is not None
    )
    how: dict[str, Any] = {
        "source": log.source,
        "schema": schema,
        "features": features,
        "dates": log.times_are_dates,
        "duplicates": survey.duplicates,
        "repeats": survey.repeats,
        "chosen_is_flag": not by_label or are_flags(log.sample.column(schema.chosen)),
    }
    if not features.labels:
        return Reader(**how)
    return ArmReader(**how, arms=log.arms, with_offered=offered)


def encoded_rounds(
    log: Log, features: FeatureMap, report: QualityReport, latest: int | None = None
) -> Iterable[Rounds]:
    """Yield batches of rounds with encoded features, in the order of the log.

    Parameters
    ----------
    log : Log
        What is read.
    features : FeatureMap
        What encodes the columns.
    report : QualityReport
        It counts the problems found while reading.
    latest : int, optional
        Number of rounds at the end of the log that the caller needs: of labelled arms, batches that
        hold only earlier rounds are skipped.
    """
    if len(features.labels) > MOST_LEVELS:
        raise InputError(
            f"the log has {len(features.labels):,} arms; evaluation reads all that was offered, "
            f"of at most {MOST_LEVELS} arms"
        )
    reader = reader_of(log, features)
    batches = (
        rounds for task in log.survey().tasks for rounds in reader.rounds(task, report)
    )
    if latest is None or not log.labels:
        return batches
    return last_rounds(batches, latest)


def starting_features(log: Log, features: AnyFeatures) -> FeatureMap:
    """Return the feature map itself, if it fits the log, or one that encodes as options say.

    Nothing is scaled or left out then.
    """
    schema = log.schema
    if isinstance(features, FeatureOptions):
        names = schema.features if schema.offered is None else (schema.offered,)
        columns = (_column(log, name, features.max_categories) for name in names)
        filled = (
            _with_filler(column, log) if features.impute else column
            for column in columns
        )
        context = RowFeatures(tuple(filled), features.interactions, features.centre)
        features = _with_arms(log, context, features.arm_model)
    if features.labels != log.labels:
        raise InputError(
            f"features are those of the arms {format_names(features.labels) or '(none)'}, the log has "
            f"{format_names(log.labels) or 'none (--arm)'}"
        )
    if features.centre and (log.labels or not schema.has_offered):
        raise InputError(
            "centre: the log has no offered actions with features of their own"
        )
    return features


def _with_arms(log: Log, context: RowFeatures, arm_model: str) -> FeatureMap:
    """Return the map from which is learned what arms share, or the rows of a log without labels.

    The levels of arms are pooled if they are many.
    """
    labels = log.labels
    arms = len(labels)
    if not arms:
        return context
    if arms > MOST_LEVELS and arm_model in ("own", "shared"):
        raise InputError(
            f"arm_model {arm_model!r} takes at most {MOST_LEVELS} arms, the log has {arms:,}"
        )
    is_pooled = arms > MOST_LEVELS or arm_model == "pooled"
    kind = PooledLevels if is_pooled else OwnCoefficients
    return kind(context, labels, arm=str(log.schema.arm))


def _column(log: Log, name: str, max_categories: int) -> Column:
    kind = log.source.arrow_schema.field(name).type
    if name in log.schema.categorical:
        return Column(name, categories=log.survey().most_frequent(name, max_categories))
    if is_list(kind):
        if not is_vector(kind) and not is_vector(kind.value_type):
            raise InputError(f"column {name!r} must hold lists of numbers, got {kind}")
        return Column(name, width=vector_width(log.sample.column(name)))
    if is_time(kind):
        raise InputError(
            f"column {name!r} holds {kind}, not a feature; make it numbers or categories"
        )
    return Column(name)


def rare_categories(log: Log, features: FeatureMap) -> list[str]:
    """Return a note for every column whose rare categories have no feature."""
    notes = []
    for column in features.columns:
        counts: Mapping[str, int] = log.survey().categories.get(column.name, {})
        rare = [
            counts[word] for word in counts if word not in (column.categories or counts)
        ]
        if rare:
            share = 100.0 * sum(rare) / max(sum(counts.values()), 1)
            notes.append(
                f"{len(rare)} of {len(counts)} categories of {column.name} ({share:.2g} % "
                f"of its rows) are rare and have no feature; --max-categories {len(counts)} "
                "gives them one"
            )
    return notes


def _with_filler(column: Column, log: Log) -> Column:
    """Return the column with a filler of missing values.

    Shares of categories come from all rows, means of numbers from the first ones.
    """
    if column.categories is not None:
        rows = log.survey().total_rows or 0
        counts = log.survey().categories[column.name]
        missing = rows - counts.total()
        shares = tuple(
            counts[category] / counts.total() for category in column.categories
        )
        return replace(
            column, filler=shares, marks_missing=missing > 0 and missing >= RARE * rows
        )
    sample = log.sample.column(column.name).combine_chunks()
    if column.width is not None and not is_vector(sample.type):
        sample = sample.flatten()
    problems = RowProblems(len(sample))
    if column.width is None:
        values = decode.numbers(sample, column.name, problems, impute=True)[:, None]
    else:
        values = decode.vectors(
            sample, column.width, column.name, problems, impute=True
        )
    values = values[problems.usable]
    known = ~np.isnan(values)
    # Numbers that large are refused when they are read.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(known, values, 0.0).sum(axis=0) / np.maximum(
            known.sum(axis=0), 1
        )
    share = float((~known).any(axis=1).mean()) if len(values) else 0.0
    return replace(column, filler=tuple(mean.tolist()), marks_missing=share >= RARE)


def _look_at_choices(rounds: Rounds, report: QualityReport) -> None:
    """Count the first rounds of a batch with several offered actions, and with equal ones."""
    if rounds.offered is None or rounds.offered_counts is None:
        return
    counts = rounds.offered_counts[:ROUNDS_LOOKED_AT]
    offered = rounds.offered[: int(counts.sum())]
    starts = np.cumsum(counts) - counts
    same = (offered == np.repeat(offered[starts], counts, axis=0)).all(axis=1)
    several = counts > 1
    report.choices += int(several.sum())
    report.identical += int((np.logical_and.reduceat(same, starts) & several).sum())

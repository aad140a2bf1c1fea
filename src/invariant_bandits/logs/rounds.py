"""Rounds: batches of checked rounds, from Arrow batches in any of the three forms of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits.logs import decoding
from invariant_bandits.logs.decoding import Marks
from invariant_bandits.logs.features import FeatureMap
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.schema import Schema, is_vector
from invariant_bandits.logs.sources import Source, Task
from invariant_bandits.moments.rows import OfferedRows


@dataclass(frozen=True)
class Rounds:
    """A batch of n rounds in the order of the log.

    features (n, p) and rewards (n,) of the chosen actions; offered (Σ counts, p), round after round, with
    offered_counts (n,); action (n,): which of the offered was chosen, from 0; times (n,) datetime64[us] or numbers;
    propensity and position (n,), NaN where the position is missing; all_rewards (Σ counts,) with full information;
    rows (n,): the first row of each round in `file`. What the log does not have is None; with full information
    there may be no chosen action: then features and rewards are those of the first offered one, and action is None.
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

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, good: Array) -> Rounds:
        """The rounds where the mask `good` is true."""
        if good.all():
            return self
        per_round = ("rows", "features", "rewards", "times", "action", "propensity", "position", "offered_counts")
        changes = {name: getattr(self, name)[good] for name in per_round if getattr(self, name) is not None}
        if self.offered is not None and self.offered_counts is not None:
            of_row = np.repeat(good, self.offered_counts)
            changes["offered"] = self.offered[of_row]
            if self.all_rewards is not None:
                changes["all_rewards"] = self.all_rewards[of_row]
        return replace(self, **changes)

    def offered_rows(self) -> OfferedRows | None:
        """The offered actions with their counts."""
        if self.offered is None or self.offered_counts is None:
            return None
        return OfferedRows(self.offered, self.offered_counts)


@dataclass(frozen=True)
class Reader:
    """How to read rounds from a source: what the columns mean and what becomes of them."""

    source: Source
    schema: Schema
    feature_map: FeatureMap
    dates: bool
    chosen_is_flag: bool = True
    duplicates: Array | None = None

    def rounds(self, task: Task, report: QualityReport) -> Iterator[Rounds]:
        """The usable rounds of one task, their features expanded but not yet scaled; the others go to `report`."""
        for row, batch in self._whole_rounds(task):
            report.rows += len(batch)
            rounds, marks = self._decoded(task, row, batch)
            if self.duplicates is not None:
                position = task.position - task.first_row + rounds.rows
                marks.mark(np.isin(position, self.duplicates), f"duplicated {self.schema.round}")
            for reason, noted in marks.notes.items():
                report.add(reason, task.file, row + np.flatnonzero(noted))
            if marks.any:
                for code, reason in enumerate(marks.reasons[1:], start=1):
                    bad = rounds.rows[marks.codes == code]
                    if len(bad):
                        report.add(reason, task.file, bad)
                rounds = rounds.where(marks.codes == 0)
            if len(rounds):
                report.rounds += len(rounds)
                yield rounds
        skipped = self.source.skipped(task)
        if skipped:
            report.rows += len(skipped)
            report.add("row with another number of values than the header", task.file, skipped)

    def _whole_rounds(self, task: Task) -> Iterator[tuple[int, Any]]:
        """Batches in which no round is cut; a task owns the rounds that begin in it."""
        columns = self.schema.used_columns
        if not self.schema.one_row_per_action:
            yield from self.source.batches(task, columns)
            return
        import pyarrow as pa

        name = self.schema.round or ""
        before = _last_round_before(self.source, task, name)
        held: Any = None
        held_row = task.first_row
        end = task.first_row
        for row, batch in self.source.batches(task, columns):
            if before is not None:
                own = _first_other(batch.column(name), before)
                if own == len(batch):
                    continue
                batch, row, before = batch.slice(own), row + own, None
            if held is not None:
                batch, row = pa.concat_batches([held, batch]), held_row
            cut = _start_of_last(batch.column(name))
            held, held_row, end = batch.slice(cut), row + cut, row + len(batch)
            if cut:
                yield row, batch.slice(0, cut)
        if held is None:
            return
        last = held.column(name)[0]
        for _, batch in self.source.batches(task, columns, first_row=end):
            stop = _first_other(batch.column(name), last)
            held = pa.concat_batches([held, batch.slice(0, stop)])
            if stop < len(batch):
                break
        yield held_row, held

    def _decoded(self, task: Task, row: int, batch: Any) -> tuple[Rounds, Marks]:
        if self.schema.one_row_per_action:
            return self._from_rows_per_action(task, row, batch)
        if self.schema.offered is not None:
            return self._from_lists(task, row, batch)
        marks = Marks(len(batch))
        raw = self._raw(batch, marks)
        rounds = Rounds(
            task.file,
            row + np.arange(len(batch)),
            self.feature_map.expand(raw),
            decoding.numbers(batch.column(self.schema.reward), self.schema.reward, marks),
        )
        return self._with_optional(rounds, batch, marks), marks

    def _from_lists(self, task: Task, row: int, batch: Any) -> tuple[Rounds, Marks]:
        name, action_name = str(self.schema.offered), str(self.schema.action)
        width = self.feature_map.columns[0].width or 1
        marks = Marks(len(batch))
        raw, counts = decoding.nested_vectors(batch.column(name), width, name, marks)
        action = _indices(decoding.numbers(batch.column(action_name), action_name, marks), counts)
        marks.mark(action < 0, "chosen action outside the offered")
        features = np.zeros((len(batch), len(self.feature_map.expanded_names)))
        offered = self.feature_map.expand({name: raw}, counts[counts > 0]) if len(raw) else features[:0]
        known = action >= 0
        features[known] = offered[(np.cumsum(counts) - counts + action)[known]]
        rewards = decoding.numbers(batch.column(self.schema.reward), self.schema.reward, marks)
        rounds = Rounds(task.file, row + np.arange(len(batch)), features, rewards, action=action)
        rounds = replace(rounds, offered=offered, offered_counts=counts)
        if self.schema.rewards is not None:
            rounds = replace(rounds, all_rewards=self._listed_rewards(batch, counts, marks))
        return self._with_optional(rounds, batch, marks), marks

    def _listed_rewards(self, batch: Any, counts: Array, marks: Marks) -> Array:
        from pyarrow import compute

        name = str(self.schema.rewards)
        column = batch.column(name)
        lengths = np.asarray(compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False))
        fits = lengths == counts
        marks.mark(~fits, f"{name} without one number per offered action")
        result = np.zeros(int(counts.sum()))
        inside = column.filter(fits).flatten()
        entries = Marks(len(inside))
        result[np.repeat(fits, counts)] = decoding.numbers(inside, name, entries)
        if entries.any:
            bad = np.zeros(len(batch), dtype=bool)
            bad[np.flatnonzero(fits).repeat(counts[fits])[entries.codes > 0]] = True
            marks.mark(bad, f"{name} missing or not finite")
        return result

    def _from_rows_per_action(self, task: Task, row: int, batch: Any) -> tuple[Rounds, Marks]:
        schema = self.schema
        starts = _starts(batch.column(schema.round))
        counts = np.diff(np.append(starts, len(batch)))
        per_row = Marks(len(batch))
        per_row.mark(np.asarray(batch.column(schema.round).is_null()), f"missing {schema.round}")
        raw = self._raw(batch, per_row)
        all_rewards = None
        if schema.full_information:
            all_rewards = decoding.numbers(batch.column(schema.reward), schema.reward, per_row)
        marks = per_row.spread_to(starts)
        if schema.chosen is None:
            chosen = np.zeros(len(batch), dtype=bool)
            chosen[starts] = True
        else:
            chosen = self._chosen(batch)
        how_many = np.add.reduceat(chosen.astype(np.int64), starts)
        marks.mark(how_many == 0, "chosen action outside the offered")
        marks.mark(how_many > 1, "more than one chosen action")
        first = np.maximum.reduceat(np.where(chosen, np.arange(len(batch), 0, -1), 0), starts)
        at = np.where(first > 0, len(batch) - first, starts)
        offered = self.feature_map.expand(raw, counts)
        of_chosen = batch.take(at)
        rounds = Rounds(
            task.file,
            row + starts,
            offered[at],
            decoding.numbers(of_chosen.column(schema.reward), schema.reward, marks),
            offered=offered,
            offered_counts=counts,
            action=None if schema.chosen is None else at - starts,
            all_rewards=all_rewards,
        )
        return self._with_optional(rounds, of_chosen, marks), marks

    def _chosen(self, batch: Any) -> Array:
        column = batch.column(self.schema.chosen)
        if self.chosen_is_flag:
            return flags(column)
        given, label = Marks(len(batch)), Marks(len(batch))
        same = decoding.texts(column, "", given) == decoding.texts(batch.column(self.schema.action), "", label)
        return np.asarray(same & (given.codes == 0) & (label.codes == 0))

    def _raw(self, batch: Any, marks: Marks) -> Mapping[str, Array]:
        raw: dict[str, Array] = {}
        for column in self.feature_map.columns:
            values = batch.column(column.name)
            if column.categories is not None:
                raw[column.name] = decoding.texts(values, column.name, marks)
                marks.note(decoding.unknown(values, column.categories), f"unknown category of {column.name}")
            elif column.width is not None:
                raw[column.name] = decoding.vectors(values, column.width, column.name, marks)
            else:
                raw[column.name] = decoding.numbers(values, column.name, marks)
        return raw

    def _with_optional(self, rounds: Rounds, batch: Any, marks: Marks) -> Rounds:
        schema = self.schema
        changes: dict[str, Any] = {}
        if schema.time is not None:
            changes["times"] = decoding.times(batch.column(schema.time), schema.time, self.dates, marks)
        if schema.propensity is not None:
            values = decoding.numbers(batch.column(schema.propensity), schema.propensity, marks)
            marks.mark((values <= 0.0) | (values > 1.0), f"{schema.propensity} outside (0, 1]")
            changes["propensity"] = values
        if schema.position is not None:
            unknown = Marks(len(batch))
            values = decoding.numbers(batch.column(schema.position), schema.position, unknown)
            changes["position"] = np.where(unknown.codes > 0, np.nan, values)
        return replace(rounds, **changes)


def flags(column: Any) -> Array:
    """Truth values of a column of booleans, numbers or words; missing is false."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False))
    words = decoding.texts(column, "", Marks(len(column)))
    return np.isin(np.char.lower(words.astype(str)), ("1", "1.0", "true", "t", "yes"))


def vector_width(column: Any) -> int:
    """The usual number of entries of a column of lists, or of lists of lists."""
    from pyarrow import compute

    if not is_vector(column.type):
        column = compute.list_flatten(column)
    lengths = compute.drop_null(compute.list_value_length(column))
    return int(compute.mode(lengths)[0]["mode"].as_py()) if len(lengths) else 0


def _indices(values: Array, counts: Array) -> Array:
    """Whole numbers within 0..counts − 1; −1 where they are not."""
    good = (values >= 0) & (values < counts) & (values == np.floor(values))
    return np.where(good, values, -1.0).astype(np.int64)


def _codes(column: Any) -> Array:
    """Integers that are equal exactly where the values of a column are."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False))


def _starts(column: Any) -> Array:
    """Where runs of equal values begin."""
    codes = _codes(column)
    return np.concatenate([[0], np.flatnonzero(codes[1:] != codes[:-1]) + 1])


def _start_of_last(column: Any) -> int:
    return int(_starts(column)[-1])


def _first_other(column: Any, value: Any) -> int:
    """Index of the first entry that differs from the scalar `value`; the length if none does."""
    starts = _starts(column)
    if column[0].as_py() != value.as_py():
        return 0
    return int(starts[1]) if len(starts) > 1 else len(column)


def _last_round_before(source: Source, task: Task, name: str) -> Any:
    """The round id in the row just before a task, if its file has one."""
    if task.part == 0:
        return None
    before = [one for one in source.tasks if one.file == task.file and one.part < task.part and one is not task]
    last = None
    for previous in reversed(before):
        for _, batch in source.batches(previous, [name]):
            if len(batch):
                last = batch.column(name)[-1]
        if last is not None:
            break
    return last

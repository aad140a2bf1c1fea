"""The first pass over a log, of the few columns that need one: how many rows, which times, categories and
rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import Arm, as_labels, flatten_labels, sort_labels
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, Task

MOST_ARMS = 500
MOST_CATEGORIES = 100_000
SPLIT_SHARE = 0.1
"""More rounds than this share must come again to count as split rather than logged twice."""
MOST_TIMES = 1 << 18
"""So many times are kept, all of them where a log has no more."""


@dataclass(frozen=True, eq=False)
class SplitRounds:
    """Where the rounds of a log began whose rows are not contiguous.

    Parameters
    ----------
    ids : array, shape (rounds,)
        Hashes of their ids, sorted.
    firsts : array, shape (rounds,)
        Place in the log of the first row of each.
    """

    ids: Array
    firsts: Array

    def start_of(self, column: Any) -> Array:
        """Return where the round of every row of a column of ids began (n,)."""
        return np.asarray(self.firsts[np.searchsorted(self.ids, hashes(column))])


@dataclass(frozen=True, eq=False)
class TimeStatistics:
    """Statistics of the usable times of a log.

    Parameters
    ----------
    first, last : datetime64, number or None
        The earliest and the latest; None if no time is usable.
    in_order : bool
        Whether none is earlier than the one before.
    sample : array
        All times, or those of a random sample of the rows, sorted.
    """

    first: Any
    last: Any
    in_order: bool
    sample: Array

    def equal_shares(self, count: int) -> Array | None:
        """Return edges (count + 1,) between which about equally many rows lie; None if too few times
        differ.
        """
        if count > len(self.sample):
            return None
        rows = -(-np.arange(1, count) * len(self.sample) // count)
        edges = np.unique(np.concatenate([[self.first], self.sample[rows], [self.last]]))
        return edges if len(edges) == count + 1 else None


@dataclass(frozen=True)
class Survey:
    """What the first pass over a log says.

    Parameters
    ----------
    tasks : tuple of Task
        Those of the source, with their positions in the whole log where rows were counted.
    total_rows : int or None
        Rows of the log; None if they were not counted yet.
    times : TimeStatistics or None
        Statistics of the times; None if they were not read yet.
    duplicates : array or None
        Positions of the first row of every round whose id had come before.
    split_rounds : SplitRounds or None
        Where rounds began, if the rows of many of them are not contiguous.
    categories : mapping of str to Counter
        Rows per category, by column.
    arm_uses : tuple of Arm
        Where the log has labels of arms: their first and last use, and how often each was chosen.
    """

    tasks: tuple[Task, ...]
    total_rows: int | None
    times: TimeStatistics | None = None
    duplicates: Array | None = None
    split_rounds: SplitRounds | None = None
    categories: Mapping[str, Counter[str]] = field(default_factory=dict)
    arm_uses: tuple[Arm, ...] = ()

    def most_frequent(self, column: str, most: int) -> tuple[str, ...]:
        """Return the most frequent categories of a column, at most so many, in alphabetical order."""
        counts = self.categories[column]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return tuple(sorted(ranked[:most]))


class Probe(Protocol):
    """Collects statistics of some columns, batch by batch."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it needs."""

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""

    def results(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return fields of the survey, after all batches of these tasks."""


def survey(
    source: Source, schema: Schema, *, dates: bool, times: bool, rows: bool, known: Survey | None = None
) -> Survey:
    """Read what is needed and not yet `known`; nothing is read if nothing is needed.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    schema : Schema
        What the columns mean; categories and ids of rounds are always looked at.
    dates : bool
        Whether times are dates, not numbers.
    times : bool
        Whether statistics of the times are needed (calendar windows).
    rows : bool
        Whether the number of rows is needed (windows of equal counts).
    known : Survey, optional
        What an earlier survey said.
    """
    probes: list[Probe] = []
    if schema.round is not None and known is None:
        probes.append(RoundProbe(schema))
    if schema.time is not None and times and (known is None or known.times is None):
        probes.append(TimeProbe(schema.time, dates))
    if schema.categorical and known is None:
        probes.append(CategoryProbe(schema.categorical))
    if schema.labelled and known is None:
        probes.append(ArmProbe(schema, dates))
    result = known or Survey(tuple(source.tasks), source.total_rows)
    if not probes and (result.total_rows is not None or not rows):
        return result
    columns = list(dict.fromkeys(name for probe in probes for name in probe.columns)) or [schema.reward]
    tasks: list[Task] = []
    total = 0
    for task in source.tasks:
        tasks.append(replace(task, position=total))
        end = task.first_row
        for row, batch in source.batches(task, columns):
            end = row + len(batch)
            for probe in probes:
                probe.add(tasks[-1], row, batch)
        end = max([end, *(row + 1 for row in source.skipped(task))])
        total += end - task.first_row
    result = replace(result, tasks=tuple(tasks), total_rows=total)
    for probe in probes:
        result = replace(result, **probe.results(tasks))
    return result


class CategoryProbe:
    """How many rows each category of each column has."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in columns}

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Count the categories of a batch."""
        import pyarrow as pa

        for name, counts in self.counts.items():
            for pair in batch.column(name).cast(pa.string()).value_counts().to_pylist():
                if pair["values"] is not None:
                    counts[pair["values"]] += pair["counts"]
            if len(counts) > MOST_CATEGORIES:
                raise InputError(
                    f"column {name!r} has more than {MOST_CATEGORIES:,} categories: it is not a "
                    f"categorical feature"
                )

    def results(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the counts."""
        return {"categories": self.counts}


class ArmProbe:
    """First and last use and number of plays of every label; times are rows of the log if it has none."""

    def __init__(self, schema: Schema, dates: bool) -> None:
        self.schema, self.dates = schema, dates
        wanted = [
            schema.arm,
            schema.arms_offered,
            schema.time,
            schema.chosen if schema.one_row_per_action else None,
        ]
        self.columns = [name for name in wanted if name is not None]
        self.plays: Counter[str] = Counter()
        self.span: dict[str, tuple[Any, Any]] = {}

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the labels of a batch."""
        import pyarrow as pa

        schema, own = self.schema, as_labels(batch.column(self.schema.arm))
        when = self._when(task, row, batch)
        if schema.arms_offered is not None:
            words, rows = flatten_labels(batch.column(schema.arms_offered))
            self._extend_spans(words, when[rows])
        self._extend_spans(own, when)
        if schema.one_row_per_action and schema.chosen is not None:
            column = batch.column(schema.chosen)
            if decode.are_flags(column):
                own = own.filter(pa.array(decode.flags(column)))
            else:
                own = own.filter(pa.compute.equal(as_labels(column), own).fill_null(False))
        self.plays.update({pair["values"]: pair["counts"] for pair in own.value_counts().to_pylist()})
        if len(self.span) > MOST_ARMS:
            raise InputError(
                f"column {schema.arm!r} has more than {MOST_ARMS} different labels, too many for arms; say "
                f"which"
                " column is the arm (--arm COLUMN), or 'none'"
            )

    def _when(self, task: Task, row: int, batch: Any) -> Array:
        """Return times (n,), NaN or NaT where one is not usable; or rows of the log, if it has no times."""
        if self.schema.time is None:
            return np.asarray(task.position + row - task.first_row + np.arange(len(batch)))
        problems = RowProblems(len(batch))
        times = decode.times(batch.column(self.schema.time), self.schema.time, self.dates, problems)
        return np.where(problems.usable, times, np.datetime64("NaT") if self.dates else np.nan)

    def _extend_spans(self, words: Any, when: Array) -> None:
        usable = ~np.isnat(when) if when.dtype.kind == "M" else np.isfinite(when)
        encoded = words.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, word in enumerate(encoded.dictionary.to_pylist()):
            times = when[(codes == code) & usable]
            if len(times):
                first, last = self.span.get(word, (times[0], times[0]))
                self.span[word] = (min(times.min(), first), max(times.max(), last))

    def results(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the arms that were used."""
        if not self.span:
            raise InputError(f"column {self.schema.arm!r} has no label in any row with a time")
        return {
            "arm_uses": tuple(
                Arm(name, *self.span[name], self.plays[name]) for name in sort_labels(list(self.span))
            )
        }


class RoundProbe:
    """Which rounds come again; sixteen bytes per round are kept to find them."""

    def __init__(self, schema: Schema) -> None:
        self.round, self.several_rows = str(schema.round), schema.one_row_per_action
        self.chosen = schema.chosen if self.several_rows else None
        self.columns = [name for name in (schema.round, self.chosen) if name is not None]
        self.ids: list[Array] = []
        self.starts: list[Array] = []
        self._chosen_rows: int | None = 0 if self.chosen is not None else None
        self._task: Task | None = None
        self._previous: Any = None

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the ids of a batch."""
        if not len(batch):
            return
        ids = hashes(batch.column(self.round))
        begins = np.ones(len(ids), dtype=bool)
        if self.several_rows:
            before = self._previous if task is self._task else ~ids[0]
            begins = ids != np.concatenate([[before], ids[:-1]])
        if self._chosen_rows is not None:
            column = batch.column(self.chosen)
            flagged = decode.are_flags(column)
            self._chosen_rows = self._chosen_rows + int(decode.flags(column).sum()) if flagged else None
        self.ids.append(ids[begins])
        self.starts.append(task.position + row - task.first_row + np.flatnonzero(begins))
        self._task, self._previous = task, ids[-1]

    def results(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the rounds that come again.

        They are split if many come again, and yet hardly any has a second chosen row.
        """
        if not self.ids:
            return {}
        ids, starts = np.concatenate(self.ids), np.concatenate(self.starts)
        order = np.argsort(ids, kind="stable")
        new = np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])
        again = np.zeros(len(ids), dtype=bool)
        again[order[~new]] = True
        if (
            self.several_rows
        ):  # rounds that continue in the next row group of their file are not second rounds
            continued = np.isin(starts, [task.position for task in tasks if task.part > 0])
            continued[1:] &= ids[1:] == ids[:-1]
            continued[0] = False
            again &= ~continued
        if not again.any():
            return {}
        firsts = order[new]
        few_chosen = self._chosen_rows is None or self._chosen_rows <= (1.0 + SPLIT_SHARE) * len(firsts)
        are_split = self.several_rows and again.sum() > SPLIT_SHARE * len(firsts) and few_chosen
        split = SplitRounds(ids[firsts], starts[firsts]) if are_split else None
        return {"duplicates": np.sort(starts[again]), "split_rounds": split}


def hashes(column: Any) -> Array:
    """Return an int64 per value, equal for equal values; texts collide with probability 2⁻⁶⁴ a pair."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    return np.fromiter((hash(value) for value in column.to_pylist()), dtype=np.int64, count=len(column))


class TimeProbe:
    """Statistics of the column of times."""

    def __init__(self, column: str, dates: bool) -> None:
        self.columns, self.dates = [column], dates
        self.in_order = True
        self._first: Any = None
        self._last: Any = None
        self._latest: Any = None
        self._share = 1.0
        self._sample: list[tuple[Array, Array]] = []
        self._size = 0

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the times of a batch."""
        name, problems = self.columns[0], RowProblems(len(batch))
        times = decode.times(batch.column(name), name, self.dates, problems)
        usable = problems.usable
        times = times[usable]
        if not len(times):
            return
        if self._first is None:
            self._first = self._last = self._latest = times[0]
        self.in_order &= not (times[1:] < times[:-1]).any() and not times[0] < self._latest
        self._latest = times[-1]
        self._first, self._last = min(self._first, times.min()), max(self._last, times.max())
        self._draw(times, lots(task.position + row - task.first_row + np.flatnonzero(usable)))

    def _draw(self, times: Array, lots_drawn: Array) -> None:
        """Keep the times whose lot is small enough; when they become too many, halve the limit."""
        taken = lots_drawn < self._share
        self._sample.append((times[taken], lots_drawn[taken]))
        self._size += int(taken.sum())
        while self._size > MOST_TIMES:
            self._share /= 2.0
            times, lots_drawn = (np.concatenate(part) for part in zip(*self._sample, strict=True))
            taken = lots_drawn < self._share
            self._sample, self._size = [(times[taken], lots_drawn[taken])], int(taken.sum())

    def results(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """Return the statistics."""
        sample = (
            np.sort(np.concatenate([times for times, _ in self._sample])) if self._sample else np.zeros(0)
        )
        return {"times": TimeStatistics(self._first, self._last, bool(self.in_order), sample)}


def lots(rows: Array) -> Array:
    """Return a number in [0, 1) for every row of the log, without pattern (the finaliser of SplitMix64)."""
    bits = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)

"""The first pass over a log, of the few columns that need one: how many rows, which times, categories and rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import arms as labels
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import Arm, ordered
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.sources import Source, Task

MOST_ARMS = 500


class ArmUses:
    """First and last use and number of plays of every label; times are rows of the log if it has none."""

    def __init__(self, schema: Schema, dates: bool) -> None:
        self.schema, self.dates = schema, dates
        wanted = [schema.arm, schema.arms_offered, schema.time, schema.chosen if schema.one_row_per_action else None]
        self.columns = [name for name in wanted if name is not None]
        self.plays: dict[str, int] = {}
        self.span: dict[str, tuple[Any, Any]] = {}

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        name = str(self.schema.arm)
        when = self._when(task, row, batch)
        own = labels.as_labels(batch.column(name))
        everything, of_row = own, np.arange(len(batch))
        if self.schema.arms_offered is not None:
            everything, of_row = labels.flattened(batch.column(self.schema.arms_offered))
        self._note_span(everything, when[of_row])
        self._note_span(own, when)
        chosen = self._chosen(batch)
        for pair in (own if chosen is None else own.filter(chosen)).value_counts().to_pylist():
            if pair["values"] is not None:
                self.plays[pair["values"]] = self.plays.get(pair["values"], 0) + pair["counts"]
        if len(self.span) > MOST_ARMS:
            raise InputError(
                f"column {name!r} has more than {MOST_ARMS} different labels, too many for arms; say which column is"
                " the arm (--arm COLUMN), or 'none'"
            )

    def _when(self, task: Task, row: int, batch: Any) -> Array:
        """Times (n,), or rows of the log; dates as microseconds. NaN, or the smallest number, where there is none."""
        if self.schema.time is None:
            return np.asarray(task.position + row - task.first_row + np.arange(len(batch)))
        problems = RowProblems(len(batch))
        times = decode.times(batch.column(self.schema.time), self.schema.time, self.dates, problems)
        return np.where(problems.usable, times, np.datetime64("NaT") if self.dates else np.nan)

    def _chosen(self, batch: Any) -> Any:
        """Mask of the rows of chosen arms, None if all of them are, or labels say it."""
        import pyarrow as pa

        if not self.schema.one_row_per_action or self.schema.chosen is None:
            return None
        column = batch.column(self.schema.chosen)
        if decode.are_flags(column):
            return pa.array(decode.flags(column))
        own = labels.as_labels(batch.column(str(self.schema.arm)))
        return pa.compute.equal(labels.as_labels(column), own).fill_null(False)

    def _note_span(self, words: Any, when: Array) -> None:
        there = ~np.isnat(when) if when.dtype.kind == "M" else np.isfinite(when)
        encoded = words.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, word in enumerate(encoded.dictionary.to_pylist()):
            at = when[(codes == code) & there]
            if not len(at):
                continue
            first, last = at.min(), at.max()
            known = self.span.get(word, (first, last))
            self.span[word] = (min(first, known[0]), max(last, known[1]))

    def answered(self, found: Survey) -> Survey:
        """The survey with the arms that were used."""
        from dataclasses import replace

        if not self.span:
            raise InputError(f"column {self.schema.arm!r} has no label in any row with a time")
        arms = [Arm(name, *self.span[name], self.plays.get(name, 0)) for name in ordered(list(self.span))]
        return replace(found, arm_uses=tuple(arms))


def span_of(uses: tuple[Arm, ...]) -> tuple[Any, Any]:
    """The earliest and the latest use of any arm."""
    return min(arm.first for arm in uses), max(arm.last for arm in uses)


def by_label(uses: tuple[Arm, ...]) -> Mapping[str, Arm]:
    """The arms by their labels."""
    return {arm.label: arm for arm in uses}


TORN_SHARE = 0.1
"""More rounds than this share must come again to count as torn apart rather than logged twice."""


@dataclass(frozen=True, eq=False)
class TornRounds:
    """Where the rounds of a log began whose rows do not stand together.

    Parameters
    ----------
    ids : array, shape (rounds,)
        Hashes of their ids, sorted.
    firsts : array, shape (rounds,)
        Place in the log of the first row of each.
    """

    ids: Array
    firsts: Array

    def began(self, column: Any) -> Array:
        """Where the round of every row of a column of ids began (n,)."""
        return np.asarray(self.firsts[np.searchsorted(self.ids, hashes(column))])


class RoundIds:
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

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        if not len(batch):
            return
        ids = hashes(batch.column(self.round))
        begins = np.ones(len(ids), dtype=bool)
        if self.several_rows:
            before = self._previous if task is self._task else ~ids[0]
            begins = ids != np.concatenate([[before], ids[:-1]])
            self._count_chosen(batch)
        self.ids.append(ids[begins])
        self.starts.append(task.position + row - task.first_row + np.flatnonzero(begins))
        self._task, self._previous = task, ids[-1]

    def _count_chosen(self, batch: Any) -> None:
        if self._chosen_rows is None or self.chosen is None:
            return
        column = batch.column(self.chosen)
        flagged = decode.are_flags(column)
        self._chosen_rows = self._chosen_rows + int(decode.flags(column).sum()) if flagged else None

    def answered(self, found: Survey) -> Survey:
        """The survey with the rounds that come again."""
        if not self.ids:
            return found
        ids, starts = np.concatenate(self.ids), np.concatenate(self.starts)
        order = np.argsort(ids, kind="stable")
        again = np.zeros(len(ids), dtype=bool)
        again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
        if self.several_rows:
            again &= ~self._continued(ids, starts, found.tasks)
        if not again.any():
            return found
        firsts = order[np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])]
        torn = TornRounds(ids[firsts], starts[firsts]) if self._are_torn(again, len(firsts)) else None
        return replace(found, duplicates=np.sort(starts[again]), torn=torn)

    def _continued(self, ids: Array, starts: Array, tasks: Sequence[Task]) -> Array:
        """Mask of the rounds that continue in the next row group of their file: they are no second rounds."""
        continued = np.zeros(len(ids), dtype=bool)
        continued[1:] = ids[1:] == ids[:-1]
        return continued & np.isin(starts, [task.position for task in tasks if task.part > 0])

    def _are_torn(self, again: Array, rounds: int) -> bool:
        """Whether rounds are torn apart: many come again, and yet hardly any has a second chosen row."""
        if not self.several_rows or again.sum() <= TORN_SHARE * rounds:
            return False
        return self._chosen_rows is None or self._chosen_rows <= (1.0 + TORN_SHARE) * rounds


def hashes(column: Any) -> Array:
    """One int64 per value, equal for equal values; for text, different ones collide with probability 2⁻⁶⁴ a pair."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False))
    return np.fromiter((hash(value) for value in column.to_pylist()), dtype=np.int64, count=len(column))


MOST_TIMES = 1 << 18
"""So many times are kept, all of them where a log has no more."""


@dataclass(frozen=True, eq=False)
class TimesSeen:
    """What the usable times of a log are.

    Parameters
    ----------
    first, last : datetime64 or number
        The earliest and the latest.
    in_order : bool
        Whether none is earlier than the one before.
    sample : array
        All times, or those of rows drawn by lot, sorted.
    """

    first: Any
    last: Any
    in_order: bool
    sample: Array

    def equal_shares(self, count: int) -> Array | None:
        """Edges (count + 1,) between which about equally many rows lie; None if too few times differ."""
        if count > len(self.sample):
            return None
        rows = -(-np.arange(1, count) * len(self.sample) // count)
        edges = np.unique(np.concatenate([[self.first], self.sample[rows], [self.last]]))
        return edges if len(edges) == count + 1 else None


class TimeQuestion:
    """Looks at the column of times."""

    def __init__(self, column: str, dates: bool) -> None:
        self.columns, self.dates = [column], dates
        self.in_order = True
        self._first: Any = None
        self._last: Any = None
        self._latest: Any = None
        self._share = 1.0
        self._kept: list[tuple[Array, Array]] = []
        self._size = 0

    def see(self, task: Task, row: int, batch: Any) -> None:
        """Look at a batch that begins at `row` of the task's file."""
        name, problems = self.columns[0], RowProblems(len(batch))
        times = decode.times(batch.column(name), name, self.dates, problems)
        good = problems.usable
        times = times[good]
        if not len(times):
            return
        first, last = times.min(), times.max()
        falls = bool((times[1:] < times[:-1]).any())
        self.in_order &= not falls and (self._latest is None or not times[0] < self._latest)
        self._latest = times[-1]
        self._first = first if self._first is None else min(self._first, first)
        self._last = last if self._last is None else max(self._last, last)
        self._keep(times, lots(task.position + row - task.first_row + np.flatnonzero(good)))

    def _keep(self, times: Array, drawn: Array) -> None:
        """Keep the times whose lot is small enough; when they become too many, ask for half the lot."""
        taken = drawn < self._share
        self._kept.append((times[taken], drawn[taken]))
        self._size += int(taken.sum())
        while self._size > MOST_TIMES:
            self._share /= 2.0
            times, drawn = (np.concatenate(part) for part in zip(*self._kept, strict=True))
            taken = drawn < self._share
            self._kept, self._size = [(times[taken], drawn[taken])], int(taken.sum())

    def answered(self, found: Survey) -> Survey:
        """The survey with what the times are."""
        if self._first is None:
            return replace(found, time_span=(None, None))
        sample = np.sort(np.concatenate([times for times, _ in self._kept]))
        return replace(
            found,
            time_span=(self._first, self._last),
            times=TimesSeen(self._first, self._last, self.in_order, sample),
        )


def lots(rows: Array) -> Array:
    """A number in [0, 1) for every row of the log, equally likely and without pattern (the finaliser of SplitMix64)."""
    bits = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((bits ^ (bits >> np.uint64(31))) / 2.0**64)


MOST_CATEGORIES = 100_000


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    Parameters
    ----------
    tasks : tuple of Task
        Those of the source, with their positions in the whole log where rows were counted.
    total_rows : int or None
        Rows of the log; None if nobody has counted them yet.
    time_span : (earliest, latest) or None
        Of the usable times, (None, None) if there is none; None if nobody has asked yet.
    times : TimesSeen or None
        More about them, where there is a usable one.
    duplicates : array or None
        Positions of the first row of every round whose id had come before.
    torn : TornRounds or None
        Where rounds began, if many of them are torn apart.
    categories : mapping of str to Counter
        Rows per category, by column.
    arm_uses : tuple of Arm
        Where the log has labels of arms: their first and last use, and how often each was chosen.
    """

    tasks: tuple[Task, ...]
    total_rows: int | None
    time_span: tuple[Any, Any] | None = None
    times: TimesSeen | None = None
    duplicates: Array | None = None
    torn: TornRounds | None = None
    categories: Mapping[str, Counter[str]] = field(default_factory=dict)
    arm_uses: tuple[Arm, ...] = ()

    def most_frequent(self, column: str, most: int) -> tuple[str, ...]:
        """The most frequent categories of a column, at most so many, in the order of the alphabet."""
        counts = self.categories[column]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return tuple(sorted(ranked[:most]))


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
        Whether the earliest and latest time are needed (calendar windows).
    rows : bool
        Whether the number of rows is needed (windows of equal counts).
    known : Survey, optional
        What was found before.
    """
    questions = _questions(schema, dates, times, known)
    found = Survey(tuple(source.tasks), source.total_rows) if known is None else known
    if not questions and (found.total_rows is not None or not rows):
        return found
    tasks, total = _ask(source, questions, schema.reward)
    found = replace(found, tasks=tasks, total_rows=total)
    for one in questions:
        found = one.answered(found)
    return found


class _Question(Protocol):
    """Something that is found out by looking at some columns."""

    @property
    def columns(self) -> Sequence[str]: ...

    def see(self, task: Task, row: int, batch: Any) -> None: ...

    def answered(self, found: Survey) -> Survey: ...


def _questions(schema: Schema, dates: bool, times: bool, known: Survey | None) -> list[_Question]:
    """What is not known yet: rounds and categories at the first time, times when they are asked for."""
    questions: list[_Question] = []
    if schema.round is not None and known is None:
        questions.append(RoundIds(schema))
    if schema.time is not None and times and (known is None or known.time_span is None):
        questions.append(TimeQuestion(schema.time, dates))
    if schema.categorical and known is None:
        questions.append(_Categories(schema.categorical))
    if schema.labelled and known is None:
        questions.append(ArmUses(schema, dates))
    return questions


def _ask(source: Source, questions: Sequence[_Question], any_column: str) -> tuple[tuple[Task, ...], int]:
    """Show every batch to every question; returns the tasks with their positions, and the number of rows."""
    columns = list(dict.fromkeys(name for one in questions for name in one.columns)) or [any_column]
    tasks: list[Task] = []
    total = 0
    for task in source.tasks:
        tasks.append(replace(task, position=total))
        end = task.first_row
        for row, batch in source.batches(task, columns):
            end = row + len(batch)
            for one in questions:
                one.see(tasks[-1], row, batch)
        end = max([end, *(row + 1 for row in source.skipped(task))])
        total += end - task.first_row
    return tuple(tasks), total


class _Categories:
    """How many rows each category of each column has."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in columns}

    def see(self, task: Task, row: int, batch: Any) -> None:
        import pyarrow as pa

        for name, counts in self.counts.items():
            for pair in batch.column(name).cast(pa.string()).value_counts().to_pylist():
                if pair["values"] is not None:
                    counts[pair["values"]] += pair["counts"]
            if len(counts) > MOST_CATEGORIES:
                raise InputError(
                    f"column {name!r} has more than {MOST_CATEGORIES:,} categories: it is no categorical feature"
                )

    def answered(self, found: Survey) -> Survey:
        return replace(found, categories=self.counts)

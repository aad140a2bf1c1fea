"""Survey: what the first pass over a log says, and the probes that look at its rows.

It reads the few columns that need one: how many rows, which times, categories, arms and rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import (
    Arm,
    as_labels,
    flatten_labels,
    label_words,
    sort_labels,
)
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.repeats import RepeatedRounds
from invariant_bandits.logs.schema import (
    Schema,
)
from invariant_bandits.logs.sources import (
    Task,
)
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa

MOST_ARMS = 20_000
"""Arms of a log: a column with more labels identifies users or events."""
MOST_LEVELS = 500
"""Arms that may have coefficients of their own: the dense covariances of more do not fit into memory."""
LEAST_PLAYS = 2
"""Rounds per arm that a log of more arms must have: a mean of one reward says nothing of the arms' spread."""
ANOTHER_ARM = "say which column is the arm (--arm COLUMN), or 'none'"
MOST_CATEGORIES = 100_000
"""Categories that are counted per column: some 10 MB; a column with more is an identifier."""
MOST_SPELLINGS = 5
"""Groups of categories that are spelled alike, in a note."""
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
        Position in the log of the first row of each.
    """

    ids: Array
    firsts: Array

    def start_of(self, column: Any) -> Array:
        """Return where the round of every row of a column of ids began (n,)."""
        return self.firsts[np.searchsorted(self.ids, hashes(column))]


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
        """Return edges (count + 1,) between which about equally many rows lie.

        None if too few times differ.
        """
        if count > len(self.sample):
            return None
        rows = -(-np.arange(1, count) * len(self.sample) // count)
        edges = np.unique(
            np.concatenate([[self.first], self.sample[rows], [self.last]])
        )
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
    repeated_ids : array or None
        Sorted hashes of the ids that come more than once, in a log with one row per round.
    repeats : RepeatedRounds or None
        Rows that repeat the id of an earlier row, in a log with one row per round.
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
    repeated_ids: Array | None = None
    repeats: RepeatedRounds | None = None
    categories: Mapping[str, Counter[str]] = field(default_factory=dict)
    arm_uses: tuple[Arm, ...] = ()

    def most_frequent(self, column: str, most: int) -> tuple[str, ...]:
        """Return the most frequent categories of a column, at most so many, in alphabetical order."""
        counts = self.categories[column]
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return tuple(sorted(ranked[:most]))


def spelling_notes(survey: Survey, schema: Schema) -> list[str]:
    """Return notes of categories and arms that differ in case or surrounding blanks only."""
    words = {name: list(counts) for name, counts in survey.categories.items()}
    if schema.arm is not None:
        words[schema.arm] = [arm.label for arm in survey.arm_uses]
    notes = []
    for name, spellings in words.items():
        alike: dict[str, list[str]] = {}
        for word in spellings:
            alike.setdefault(" ".join(word.split()).casefold(), []).append(word)
        groups = [sorted(group) for group in alike.values() if len(group) > 1]
        if groups:
            shown = "; ".join(
                ", ".join(map(repr, group)) for group in groups[:MOST_SPELLINGS]
            )
            hidden = len(groups) - MOST_SPELLINGS
            more = f" and {hidden} more" if hidden > 0 else ""
            notes.append(
                f"{name!r} has values that differ in case or blanks only, and count as different "
                f"ones: {shown}{more}"
            )
    return notes


class CategoryProbe:
    """How many rows each category of each column has."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in columns}

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Count the categories of a batch."""
        for name, counts in self.counts.items():
            counts.update(decode.count_words(decode.as_dictionary(batch.column(name))))
            if len(counts) > MOST_CATEGORIES:
                raise InputError(
                    f"column {name!r} has more than {MOST_CATEGORIES:,} categories: no feature"
                )

    def results(self) -> dict[str, Any]:
        """Return the counts."""
        return {"categories": self.counts}


class ArmProbe:
    """First and last use and number of plays of every label; times are rows of the log if it has none."""

    def __init__(self, schema: Schema, dates: bool) -> None:
        self.schema = schema
        self.dates = dates
        wanted = (schema.arm, schema.arms_offered, schema.time, schema.chosen)
        self.columns = [name for name in wanted if name is not None]
        self.plays: Counter[str] = Counter()
        self.span: dict[str, tuple[Any, Any]] = {}

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the labels of a batch."""
        schema = self.schema
        labels_of_rows = label_words(batch.column(self.schema.arm))
        when = self._when(task, row, batch)
        if schema.arms_offered is not None:
            words, rows = flatten_labels(batch.column(schema.arms_offered))
            self._extend_spans(words, when[rows])
        self._extend_spans(labels_of_rows, when)
        if schema.chosen is not None:
            column = batch.column(schema.chosen)
            labels = labels_of_rows.cast(pa.string())
            flagged = decode.are_flags(column)
            labels_of_rows = labels_of_rows.filter(
                decode.flags(column)
                if flagged
                else compute.equal(as_labels(column), labels)
            )
        self.plays.update(decode.count_words(labels_of_rows))
        if len(self.span) > MOST_ARMS:
            raise InputError(
                f"column {schema.arm!r} has more than {MOST_ARMS:,} different labels, too many "
                f"for arms; {ANOTHER_ARM}"
            )

    def _when(self, task: Task, row: int, batch: Any) -> Array:
        """Return times (n,), NaN or NaT where one is not usable; or rows of the log, if it has no times."""
        if self.schema.time is None:
            return np.asarray(task.positions(row + np.arange(len(batch))))
        problems = RowProblems(len(batch))
        times = decode.times(
            batch.column(self.schema.time), self.schema.time, self.dates, problems
        )
        return np.where(
            problems.usable, times, np.datetime64("NaT") if self.dates else np.nan
        )

    def _extend_spans(self, words: Any, when: Array) -> None:
        usable = ~np.isnat(when) if when.dtype.kind == "M" else np.isfinite(when)
        used = pa.table({"label": words, "when": when}).filter(
            pa.array(usable & ~decode.is_missing(words))
        )
        spans = used.group_by("label", use_threads=False).aggregate(
            [("when", "min"), ("when", "max")]
        )
        ends = (spans.column(f"when_{end}").to_numpy() for end in ("min", "max"))
        for label, first, last in zip(
            spans.column("label").to_pylist(), *ends, strict=True
        ):
            before = self.span.get(label, (first, last))
            self.span[label] = min(first, before[0]), max(last, before[1])

    def results(self) -> dict[str, Any]:
        """Return the arms that were used."""
        if not self.span:
            raise InputError(
                f"column {self.schema.arm!r} has no label in any row with a time, column "
                f"{self.schema.time!r}; is it another one (--time COLUMN, or 'none')?"
            )
        labels = sort_labels(list(self.span))
        plays = self.plays.total()
        if len(labels) > MOST_LEVELS and plays < LEAST_PLAYS * len(labels):
            raise InputError(
                f"column {self.schema.arm!r} has {len(labels):,} different labels in "
                f"{plays:,} rounds, too many for arms; {ANOTHER_ARM}"
            )
        return {
            "arm_uses": tuple(
                Arm(label, *self.span[label], self.plays[label]) for label in labels
            )
        }


class RoundProbe:
    """Which rounds come again; sixteen bytes per round are kept to find them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.several_rows = schema.one_row_per_action
        self.columns = [
            name for name in (schema.round, schema.chosen) if name is not None
        ]
        self.ids = list[Array]()
        self.starts = list[Array]()
        self._chosen_rows: int | None = None if schema.chosen is None else 0
        self._previous: tuple[str, Any] = "", None

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the ids of a batch."""
        if not len(batch):
            return
        ids = hashes(batch.column(self.schema.round))
        begins = np.ones(len(ids), dtype=bool)
        if self.several_rows:
            file, last = self._previous
            before = last if file == task.file else ~ids[0]
            begins = ids != np.concatenate([[before], ids[:-1]])
        if self._chosen_rows is not None:
            column = batch.column(self.schema.chosen)
            flagged = decode.are_flags(column)
            self._chosen_rows = (
                self._chosen_rows + int(decode.flags(column).sum()) if flagged else None
            )
        self.ids.append(ids[begins])
        self.starts.append(task.positions(row + np.flatnonzero(begins)))
        self._previous = task.file, ids[-1]

    def results(self) -> dict[str, Any]:
        """Return the rounds that come again.

        They are split if many come again, and yet hardly any has a second chosen row.
        """
        if not self.ids:
            return {}
        ids = np.concatenate(self.ids)
        starts = np.concatenate(self.starts)
        order = np.argsort(ids, kind="stable")
        new = np.concatenate([[True], ids[order[1:]] != ids[order[:-1]]])
        again = np.zeros(len(ids), dtype=bool)
        again[order[~new]] = True
        if not again.any():
            return {}
        firsts = order[new]
        if not self.several_rows:
            return {"repeated_ids": np.unique(ids[again])}
        few_chosen = self._chosen_rows is None or self._chosen_rows <= (
            1.0 + SPLIT_SHARE
        ) * len(firsts)
        are_split = again.sum() > SPLIT_SHARE * len(firsts) and few_chosen
        split = SplitRounds(ids[firsts], starts[firsts]) if are_split else None
        return {"duplicates": np.sort(starts[again]), "split_rounds": split}


def hashes(column: Any) -> Array:
    """Return an int64 per value, equal for equal values; texts collide with probability 2⁻⁶⁴ a pair."""
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(
            column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        )
    return np.fromiter(
        (hash(value) for value in column.to_pylist()), dtype=np.int64, count=len(column)
    )


class TimeProbe:
    """Statistics of the column of times."""

    def __init__(self, column: str, dates: bool) -> None:
        self.columns = [column]
        self.dates = dates
        self.in_order = True
        self._share = 1.0
        self._size = 0
        self._first: Any = None
        self._last: Any = None
        self._latest: Any = None
        self._sample: list[tuple[Array, Array]] = []

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the times of a batch."""
        name = self.columns[0]
        problems = RowProblems(len(batch))
        times = decode.times(batch.column(name), name, self.dates, problems)
        usable = problems.usable
        times = times[usable]
        if not len(times):
            return
        if self._first is None:
            self._first = self._last = self._latest = times[0]
        self.in_order &= (
            not (times[1:] < times[:-1]).any() and not times[0] < self._latest
        )
        self._latest = times[-1]
        self._first = min(self._first, times.min())
        self._last = max(self._last, times.max())
        from invariant_bandits.logs.kernels import lots

        self._draw(times, lots(task.positions(row + np.flatnonzero(usable))))

    def _draw(self, times: Array, lots_drawn: Array) -> None:
        """Keep the times whose lot is small enough; when they become too many, halve the limit."""
        taken = lots_drawn < self._share
        self._sample.append((times[taken], lots_drawn[taken]))
        self._size += int(taken.sum())
        while self._size > MOST_TIMES:
            times, lots_drawn = (
                np.concatenate(part) for part in zip(*self._sample, strict=True)
            )
            self._share = self._share / 2.0
            self._size = 0
            self._sample = []
            self._draw(times, lots_drawn)

    def results(self) -> dict[str, Any]:
        """Return the statistics."""
        times = [times for times, _ in self._sample]
        sample = np.sort(np.concatenate(times)) if times else np.zeros(0)
        return {
            "times": TimeStatistics(
                self._first, self._last, bool(self.in_order), sample
            )
        }

"""Log: an opened log, the first pass over it, which all questions share, and the windows that cut it.

The first pass reads the few columns that need one: how many rows, which times, categories, arms and rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import (
    Arm,
    ArmTable,
    Catalogue,
    arm_table,
    as_labels,
    flatten_labels,
    label_words,
    read_catalogue,
    sort_labels,
)
from invariant_bandits.logs.decode import (
    MICROSECONDS,
    as_utc,
    find_time_format,
    is_text,
    is_time,
)
from invariant_bandits.logs.external_sort import (
    RoundSpool,
    SpooledSource,
    with_whole_rounds,
)
from invariant_bandits.logs.formats.registry import open_source
from invariant_bandits.logs.preparation import (
    ChangedSource,
    cut_levels,
    describe_levels,
    prepared,
    text_of_numbers,
)
from invariant_bandits.logs.quality import RowProblems
from invariant_bandits.logs.repeats import RepeatedRounds, RepeatProbe
from invariant_bandits.logs.roles import infer_schema
from invariant_bandits.logs.schema import (
    HINTS,
    LEVELS,
    Schema,
    SchemaLike,
    checked_overrides,
    toml_overrides,
)
from invariant_bandits.logs.sources import (
    LEAST_SAMPLE,
    DatedSource,
    Source,
    Task,
    first_rows,
)
from invariant_bandits.moments.batches import checked_edges
from invariant_bandits.optional import compute
from invariant_bandits.optional import pyarrow as pa

if TYPE_CHECKING:
    from invariant_bandits.logs.features import ArmFeatures, FeatureMap, FeatureOptions
    from invariant_bandits.logs.read import LogMoments, Progress
    from invariant_bandits.logs.reader import Rounds

MOST_ARMS = 20_000
MOST_LEVELS = 500
LEAST_PLAYS = 2
"""Arms of a log, those that need not share all slopes, and rounds per arm that a log of more must have."""
ANOTHER_ARM = "say which column is the arm (--arm COLUMN), or 'none'"
MOST_CATEGORIES = 100_000
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
            more = (
                f" and {len(groups) - MOST_SPELLINGS} more"
                if len(groups) > MOST_SPELLINGS
                else ""
            )
            differ = f"{name!r} has values that differ in case or blanks only, and count as different ones"
            notes.append(f"{differ}: {shown}{more}")
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
        self.schema, self.dates = schema, dates
        wanted = (schema.arm, schema.arms_offered, schema.time, schema.chosen)
        self.columns = [name for name in wanted if name is not None]
        self.plays: Counter[str] = Counter()
        self.span: dict[str, tuple[Any, Any]] = {}

    def add(self, task: Task, row: int, batch: Any) -> None:
        """Look at the labels of a batch."""
        schema, own = self.schema, label_words(batch.column(self.schema.arm))
        when = self._when(task, row, batch)
        if schema.arms_offered is not None:
            words, rows = flatten_labels(batch.column(schema.arms_offered))
            self._extend_spans(words, when[rows])
        self._extend_spans(own, when)
        if schema.chosen is not None:
            column, labels = batch.column(schema.chosen), own.cast(pa.string())
            flagged = decode.are_flags(column)
            own = own.filter(
                decode.flags(column)
                if flagged
                else compute.equal(as_labels(column), labels)
            )
        self.plays.update(decode.count_words(own))
        if len(self.span) > MOST_ARMS:
            many = f"column {schema.arm!r} has more than {MOST_ARMS:,} different labels, too many for arms"
            raise InputError(f"{many}; {ANOTHER_ARM}")

    def _when(self, task: Task, row: int, batch: Any) -> Array:
        """Return times (n,), NaN or NaT where one is not usable; or rows of the log, if it has no times."""
        if self.schema.time is None:
            return np.asarray(
                task.position + row - task.first_row + np.arange(len(batch))
            )
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
            time = f"time, column {self.schema.time!r}; is it another one (--time COLUMN, or 'none')?"
            raise InputError(
                f"column {self.schema.arm!r} has no label in any row with a {time}"
            )
        labels, plays = sort_labels(list(self.span)), self.plays.total()
        if len(labels) > MOST_LEVELS and plays < LEAST_PLAYS * len(labels):
            many = f"column {self.schema.arm!r} has {len(labels):,} different labels in {plays:,} rounds"
            raise InputError(f"{many}, too many for arms; {ANOTHER_ARM}")
        return {
            "arm_uses": tuple(
                Arm(label, *self.span[label], self.plays[label]) for label in labels
            )
        }


class RoundProbe:
    """Which rounds come again; sixteen bytes per round are kept to find them."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.several_rows = schema, schema.one_row_per_action
        self.columns = [
            name for name in (schema.round, schema.chosen) if name is not None
        ]
        self.ids, self.starts = list[Array](), list[Array]()
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
        self.starts.append(
            task.position + row - task.first_row + np.flatnonzero(begins)
        )
        self._previous = task.file, ids[-1]

    def results(self) -> dict[str, Any]:
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
        self.columns, self.dates = [column], dates
        self.in_order = True
        self._share = 1.0
        self._size = 0
        self._first: Any = None
        self._last: Any = None
        self._latest: Any = None
        self._sample: list[tuple[Array, Array]] = []

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
        self.in_order &= (
            not (times[1:] < times[:-1]).any() and not times[0] < self._latest
        )
        self._latest = times[-1]
        self._first = min(self._first, times.min())
        self._last = max(self._last, times.max())
        from invariant_bandits.logs.kernels import lots

        self._draw(
            times, lots(task.position + row - task.first_row + np.flatnonzero(usable))
        )

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


class Log:
    """An opened log: its rows, the roles of its columns, and statistics of a first pass over the rows.

    Create a Log with `open_log`. Functions that read logs accept a Log in place of a path or table. Several
    functions can share one Log without repeating the first pass over the rows.

    Parameters
    ----------
    source : Source
        Object that reads the rows of a file or table.
    schema : Schema, mapping, path of a TOML file or None
        Roles of the columns; roles that are not given are inferred from the log.
    catalogue : path, table or None
        Table with the features of labelled arms and the times at which each arm could be chosen.
    arms : sequence of str, optional
        Labels of all arms, if every round of the log offered all of them.

    Attributes
    ----------
    schema : Schema
        Roles of all columns, with patterns replaced by column names.
    notes : tuple of str
        Descriptions of changes that reading made to the log, such as grouping the rows of a round.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> log = ib.open_log(pa.table({"x": [0.1, 0.5, 0.9], "reward": [0.0, 1.0, 1.0]}))
    >>> log.schema.reward, log.schema.features
    ('reward', ('x',))
    """

    def __init__(
        self, source: Source, schema: SchemaLike, catalogue: Any, arms: Any
    ) -> None:
        self.given = self._known(schema)
        self.source = source
        if not isinstance(self.given, Schema) and LEVELS in self.given:
            edges, medians = cut_levels(
                prepared(source, self.given), self.given.get("arm"), self.given[LEVELS]
            )
            self.given |= {"level_edges": edges, "level_values": medians}
        self.source = prepared(
            source, self.given if isinstance(self.given, dict) else vars(self.given)
        )
        if fractions := text_of_numbers(self.source, lambda: self.first_rows):
            self.source = ChangedSource(
                self.source, {}, dict.fromkeys(fractions, pa.float64())
            )
        self.schema = self.resolved(schema)
        self._see_timestamps()
        self.source.give_dictionaries(
            [*self.schema.categorical, *filter(None, [self.schema.arm])]
        )
        if self.source.parses:
            self.source = SpooledSource(self.source, self.schema, self.times_are_dates)
        self._survey: Survey | None = None
        self.notes: tuple[str, ...] = self._notes()
        # Where a pass leaves its rounds for the next one, which must cut the log into the same windows.
        self.spool: RoundSpool | None = None
        self._catalogue, self._arms = catalogue, arms
        if not self.schema.labelled and (catalogue is not None or arms is not None):
            raise InputError(
                "schema: arm is missing; a catalogue and arms need the column of labels (--arm)"
            )

    def resolved(self, schema: SchemaLike) -> Schema:
        """What `schema` says about the columns of this log, the rest inferred."""
        overrides = self._known(schema)
        if isinstance(overrides, Schema):
            return overrides.resolved(self.source.arrow_schema)
        if overrides.pop(LEVELS, None) is not None and isinstance(self.given, dict):
            overrides |= {
                name: self.given[name] for name in ("level_edges", "level_values")
            }
        own = self.source.schema
        if own is None:
            return infer_schema(self.source.arrow_schema, self.first_rows, **overrides)
        names = self.source.arrow_schema.names
        if (
            own.labelled
            and overrides.get("arm", own.arm) is None
            and "features" not in overrides
        ):
            free = set(names) - set(own.roles().values())
            overrides["features"] = [
                name for name in names if name in free and not name.startswith("__")
            ]
        ignored = {name: tuple(overrides.pop(name, ())) for name in HINTS}["ignore"]
        for each in ("features", "categorical") if ignored else ():
            overrides[each] = [
                name
                for name in overrides.get(each, getattr(own, each))
                if name not in ignored
            ]
        changed = replace(own, **overrides).resolved(self.source.arrow_schema)
        if (
            own.labelled
            and changed.arm in (own.arm, None)
            and not set(changed.features) <= set(own.features)
        ):
            return replace(
                changed, arm=None, action=own.arm
            )  # features of arms: the actions are rows
        return changed

    def _notes(self) -> tuple[str, ...]:
        """What a reader must know first of the values of the log."""
        schema = self.schema
        notes = [] if schema.ranking is None else [ranking_note(schema)]
        notes += schema.doubts
        if schema.minimise:
            notes.append(
                f"less of {schema.reward} is better: rewards are {schema.reward_words}"
            )
        if schema.level_values:
            notes.append(
                describe_levels(
                    str(schema.arm), schema.level_edges, schema.level_values
                )
            )
        return tuple(notes)

    @staticmethod
    def _known(schema: SchemaLike) -> Schema | dict[str, Any]:
        """A whole schema, or the fields of one that are given."""
        if isinstance(schema, Schema):
            return schema
        if isinstance(schema, str | PathLike):
            return toml_overrides(schema)
        checked_overrides(schema or {}, "schema")
        return dict(schema or {})

    def _see_timestamps(self) -> None:
        """Have times since 1970, and dates with the day or the month first, as timestamps from here on."""
        name = self.schema.time
        if name is None or is_time(self.source.arrow_schema.field(name).type):
            return
        source = self.source
        batches = (
            batch for task in source.tasks for _, batch in source.batches(task, [name])
        )
        words = (
            word
            for batch in batches
            for word in batch.column(name).drop_null().unique().to_pylist()
        )
        kind = source.arrow_schema.field(name).type
        form = find_time_format(
            self.sample.column(name), kind, self.schema.day_first, words
        )
        if form is not None:
            self.source = DatedSource(source, name, form)
            self.__dict__.pop("sample", None)
            self.__dict__.pop("first_rows", None)

    @cached_property
    def first_rows(self) -> Any:
        """The first rows, an Arrow table: as many as it takes to see how columns are related."""
        return first_rows(self.source)

    @cached_property
    def sample(self) -> Any:
        """Fewer first rows, which fill in missing values; an Arrow table."""
        batch = self.first_rows.to_batches()[0]
        return pa.Table.from_batches(
            [batch.take(pa.array(range(min(len(batch), LEAST_SAMPLE))))]
        )

    @cached_property
    def times_are_dates(self) -> bool:
        """Whether the times are dates, not numbers."""
        if self.schema.time is None:
            return False
        kind = self.source.arrow_schema.field(self.schema.time).type
        if not is_text(kind):
            return is_time(kind)
        first = next(
            iter(self.sample.column(self.schema.time).drop_null().to_pylist()), ""
        )
        problems = RowProblems(1)
        decode.numbers(pa.array([first]), "", problems)
        return problems.any

    @cached_property
    def catalogue(self) -> Catalogue | None:
        """Features of labelled arms from a separate table (the catalogue); None without such a table."""
        if self._catalogue is None:
            return None
        used = [arm.label for arm in self.survey().arm_uses]
        return read_catalogue(
            self._catalogue, str(self.schema.arm), used, self.times_are_dates
        )

    @cached_property
    def arms(self) -> ArmTable:
        """Labelled arms of the log, and when each arm was offered.

        A log without labelled arms raises InputError.
        """
        if not self.schema.labelled:
            raise InputError(
                "schema: arm is missing; the log has no column with labels of arms"
            )
        return arm_table(
            self.survey().arm_uses, self.schema, self.catalogue, self._arms
        )

    def survey(self, *, times: bool = False, rows: bool = False) -> Survey:
        """What a first pass found; only what is asked for and not known yet is read.

        Parameters
        ----------
        times : bool
            Whether the earliest and the latest time are needed.
        rows : bool
            Whether the number of rows is needed.
        """
        schema, known = self.schema, self._survey
        probes: list[Any] = []
        if known is None:
            known = Survey(tuple(self.source.tasks), self.source.total_rows)
            probes += [RoundProbe(schema)] if schema.round is not None else []
            probes += [CategoryProbe(schema.categorical)] if schema.categorical else []
            probes += (
                [ArmProbe(schema, self.times_are_dates)] if schema.labelled else []
            )
        if (
            schema.time is not None and known.times is None and (times or probes)
        ):  # one pass for all
            probes.append(TimeProbe(schema.time, self.times_are_dates))
        if probes or (rows and known.total_rows is None):
            known = self._first_pass(known, probes)
        if known.repeated_ids is not None and known.repeats is None:
            known = self._with_repeats(known)
        self._survey = known
        spellings = spelling_notes(known, self.schema)
        self.notes += tuple(note for note in spellings if note not in self.notes)
        if known.split_rounds is None:
            return known
        self.source = with_whole_rounds(self.source, schema, known.split_rounds)
        self.notes += (
            f"rows of a round do not stand together, they were put together by {schema.round!r}",
        )
        self._survey = None
        return self.survey(times=times, rows=rows)

    def _with_repeats(self, known: Survey) -> Survey:
        """Read the rounds that come again once more, for the rewards that count."""
        assert known.repeated_ids is not None
        probe = RepeatProbe(
            self.schema, known.repeated_ids, hashes, self.times_are_dates
        )
        for task in known.tasks:
            for row, batch in self.source.batches(task, probe.columns):
                probe.add(task, row, batch)
        known = replace(known, **probe.results())
        assert known.repeats is not None
        self.notes += (known.repeats.note(self.schema),)
        return known

    def _first_pass(self, known: Survey, probes: Sequence[Any]) -> Survey:
        """Show all rows to the probes; return what is known then."""
        names = dict.fromkeys(name for probe in probes for name in probe.columns)
        columns = list(names) or [self.schema.reward]
        source = self.source
        total = 0
        tasks = list[Task]()
        for task in source.tasks:
            task = replace(task, position=total)
            end = task.first_row
            spool = source if isinstance(source, SpooledSource) else None
            for row, batch in (
                spool.record(task) if spool else source.batches(task, columns)
            ):
                end = row + len(batch)
                for probe in probes:
                    probe.add(task, row, batch)
            skipped = () if source.skips_lines else source.skipped(task).values()
            total += (
                max([end, *(row + 1 for bad in skipped for row in bad)])
                - task.first_row
            )
            if not self.schema.one_row_per_action:
                tasks += [task] if spool is None else spool.split(task)
            elif (
                not tasks or tasks[-1].file != task.file
            ):  # a round may go on in the next part of its file
                tasks.append(task)
        results = {
            name: value for probe in probes for name, value in probe.results().items()
        }
        return replace(known, tasks=tuple(tasks), total_rows=total, **results)

    def moments(
        self,
        *,
        windows: int | None = None,
        every: Any = None,
        edges: Any = None,
        features: FeatureOptions
        | FeatureMap
        | ArmFeatures
        | Sequence[str]
        | None = None,
        engine: Any = "local",
        address: str | None = None,
        strict: bool = False,
        keep_going: bool = False,
        progress: Progress | None = None,
    ) -> LogMoments:
        """Read the log and return its moments per window (period of the log).

        Moments are counts, means and sums of products of features and rewards. Reading a large log needs only
        a bounded amount of memory.

        Parameters
        ----------
        windows : int, optional
            Number of time windows with about equally many rows; 8 by default.
        every : str or number, optional
            Length of the time windows, such as "30min", "12h", "7d", "2w", "1mo" or "1y". If the times in the
            log are numbers, give `every` as a number.
        edges : array, shape (windows + 1,), optional
            Times at which the windows begin and end, instead of the arguments `windows` and `every`.
        features : FeatureOptions, FeatureMap, ArmFeatures, list of str or None
            Names or patterns of the feature columns, options for computing features, or a map from columns to
            features that was learned before.
        engine : str, distributed.Client or SparkSession
            Where to read the log: "local", "dask", "spark", or an existing Dask client or Spark session.
        address : str, optional
            Address of the Dask or Spark cluster.
        strict : bool
            Whether to raise an error if the log has any problem, such as an unusable row.
        keep_going : bool
            Whether to continue although most rounds of the log cannot be used.
        progress : callable (rows, total or None, seconds), optional
            Function called after every part of the log with the number of rows read, the total number of rows
            (None if unknown) and the elapsed seconds.

        >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
        >>> x = np.random.default_rng(0).normal(size=(400, 2))
        >>> log = ib.open_log(pa.table({"reward": x.sum(axis=1), "a": x[:, 0], "b": x[:, 1]}))
        >>> read = log.moments(windows=4)
        >>> read.moments
        WindowedMoments(dim=2, windows=4, rounds=400, of chosen actions)
        >>> read.feature_map.names
        ('a', 'b')

        A log with labelled arms also gives moments per arm:

        >>> rng = np.random.default_rng(0)
        >>> hour, banner = rng.uniform(0, 24, 400), rng.choice(["A", "B"], 400)
        >>> table = pa.table({"hour": hour, "banner": banner, "click": (rng.random(400) < 0.3).astype(int)})
        >>> read = ib.open_log(table).moments(windows=2)
        >>> read.feature_map.names
        ('A', 'A × hour', 'B', 'B × hour')
        >>> read.of_arms.gram.shape, read.of_arms.rewards_are_binary
        ((2, 2, 2, 2), True)
        """
        from invariant_bandits.logs.read import read_moments

        return read_moments(
            self,
            windows=windows,
            every=every,
            edges=edges,
            features=features,
            engine=engine,
            address=address,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
        )

    def rounds(
        self,
        feature_map: FeatureMap | FeatureOptions | ArmFeatures | None = None,
        *,
        latest: int | None = None,
    ) -> Iterator[Rounds]:
        """Yield batches of rounds with their features, in the order of the log.

        Parameters
        ----------
        feature_map : FeatureMap, FeatureOptions or None
            Map from columns to features that `moments` learned, or options with `standardise="none"`.
        latest : int, optional
            Number of rounds at the end of the log that the caller needs; with labelled arms, batches that
            hold only earlier rounds are skipped.

        >>> import pyarrow as pa, invariant_bandits as ib
        >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0, None], "price": [2.0, 3.0, 7.0]}))
        >>> [batch.features.tolist() for batch in log.rounds()]
        [[[2.0], [3.0]]]
        """
        from invariant_bandits.logs.read import read_rounds

        return read_rounds(self, feature_map=feature_map, latest=latest)

    def with_source(self, source: Source) -> Log:
        """This log with its rows in another order."""
        other = copy(self)
        other.source, other._survey = source, None
        other.__dict__.pop("arms", None)
        return other


def ranking_note(schema: Schema) -> str:
    """Say what a model of a ranking can do, and what it cannot."""
    what = f"the log is a ranking: rows of one {schema.ranking} are items at different positions"
    used = f"every row counts as a decision of its own, with its {schema.position} as a category"
    missing = "the model scores single items at one position; that items of a page compete is left out"
    return f"{what}; {used}; {missing}"


def open_log(
    source: Any,
    schema: SchemaLike = None,
    *,
    catalogue: Any = None,
    arms: Sequence[str] | None = None,
) -> Log:
    """Open a log once, so that several functions can use the log without scanning its rows again.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
        Files or table with the rows of the log.
    schema : Schema, mapping, path of a TOML file or None
        Roles of the columns; roles that are not given are inferred from the log. If `source` is a Log,
        `schema` must be None or equal to the schema of that Log.
    catalogue : path, table or None
        Table with one row per labelled arm: its label, its features and, optionally, the columns valid_from
        and valid_until.
    arms : sequence of str, optional
        Labels of all arms, if every round of the log offered all of them.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0, 1.0], "price": [2.0, 3.0, 7.0]}))
    >>> log.schema
    Schema(reward='reward', features=('price',), ...)
    >>> log.moments(windows=1).moments.rounds
    3
    """
    if not isinstance(source, Log):
        return Log(open_source(source), schema, catalogue, arms)
    if catalogue is not None or arms is not None:
        raise InputError(
            "catalogue and arms belong to opening a log; this one is open already"
        )
    if schema is not None and source.resolved(schema) != source.schema:
        raise InputError(
            "schema must be None or the same for a log that is open; else open the source anew"
        )
    return source


DEFAULT_WINDOWS = 8
MOST_WINDOWS = 10_000
UNITS = {"min": "m", "h": "h", "d": "D", "w": "W", "mo": "M", "y": "Y"}


@dataclass(frozen=True)
class Windows:
    """How many windows, and the times that bound them, (count + 1,); None if they are equal shares of the
    rows.
    """

    count: int
    edges: Array | None


def windows_of(log: Log, windows: int | None, every: Any, edges: Any) -> Windows:
    """The windows that were asked for, at most one way; equal shares of the rows if nothing was.

    Shares are bounded by times where the log has them, so that the order of its rows does not matter; by
    places in the log only if it has none, or too few of them differ.
    """
    if log.schema.time is None and (every is not None or edges is not None):
        raise InputError(
            "schema: time is missing; every and edges need it: name its column (--time COLUMN)"
        )
    if edges is not None:
        bounds = _requested_edges(edges, log.times_are_dates)
        return Windows(len(bounds) - 1, bounds)
    if every is not None:
        times: Any = log.survey(times=True).times
        periods = calendar_edges(every, times.first, times.last)
        return Windows(len(periods) - 1, periods)
    count = whole_number("windows", windows or DEFAULT_WINDOWS, 1)
    survey = log.survey(rows=True, times=log.schema.time is not None)
    rows = survey.total_rows or 0
    if count > rows:
        raise InputError(
            f"windows must be at most the number of rows, {rows}, got {count}"
        )
    edges = None if survey.times is None else survey.times.equal_shares(count)
    if edges is None and survey.times is not None and not survey.times.in_order:
        few = f"too few times differ for {count} windows"
        do = "ask for fewer, sort the log, or name another column of times (--time COLUMN)"
        raise InputError(
            f"the rows are not in the order of {log.schema.time!r}, and {few}; {do}"
        )
    return Windows(count, edges)


def _requested_edges(edges: Any, dates: bool) -> Array:
    if not dates:
        return checked_edges(edges)
    times = [as_utc(edge) if isinstance(edge, str) else edge for edge in edges]
    try:
        return checked_edges(np.array(times, dtype=MICROSECONDS))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"edges must be dates as the times are (--time), got {edges!r}: {error}"
        ) from None


def calendar_edges(every: Any, first: Any, last: Any) -> Array:
    """Edges of windows of length `every` that cover the times from `first` to `last`.

    Parameters
    ----------
    every : str or number
        "7d", "12h", "30min", "2w", "1mo", "1y" for dates, a number for times that are numbers. Days begin at
        midnight UTC, months on their first day.
    first, last : datetime64 or number
        The earliest and the latest time.

    >>> import numpy as np
    >>> first, last = np.datetime64("2024-01-20"), np.datetime64("2024-02-03")
    >>> calendar_edges("1mo", first, last).astype("datetime64[D]")
    array(['2024-01-01', '2024-02-01', '2024-03-01'], dtype='datetime64[D]')
    """
    if first is None:
        raise InputError(
            "every needs times: no usable time was found; name their column (--time COLUMN)"
        )
    if not isinstance(first, np.datetime64):
        step, begin = _positive_step(every), float(first)
        windows = _few_enough(every, int((float(last) - begin) // step) + 1)
        return np.asarray(begin + step * np.arange(windows + 1))
    steps, unit = _calendar_step(every)
    origin, end = (
        int(time.astype(f"datetime64[{unit}]").astype(np.int64))
        for time in (first, last)
    )
    windows = _few_enough(every, (end - origin) // steps + 1)
    edges = origin + steps * np.arange(windows + 1)
    return edges.astype(f"datetime64[{unit}]").astype(MICROSECONDS)


def continued_edges(
    edges: Array, first: Any, last: Any, windows: int | None, every: Any
) -> Array:
    """Edges of windows that go on after `edges` (m + 1,) until after `last`.

    Without `windows` or `every` they are as long as those before: whole months if these were, else their
    usual length. They begin where `edges` end or, if `first` lies in the last window, with that window.

    >>> import numpy as np
    >>> january = np.array(["2024-01-01", "2024-01-08", "2024-01-15"], dtype="datetime64[D]")
    >>> continued_edges(january, np.datetime64("2024-01-15"), np.datetime64("2024-01-25"), None, None)
    array(['2024-01-15', '2024-01-22', '2024-01-29'], dtype='datetime64[D]')
    """
    begin = edges[-1:] if first >= edges[-1] else edges[-2:]
    if last <= edges[-1] and len(begin) == 2:
        return np.asarray(begin)
    if windows is not None:
        return np.concatenate(
            [begin, _cut(edges[-1], last, whole_number("windows", windows, 1))]
        )
    later = [_step_after(edges, every, 1)]
    while later[-1] <= last:
        later.append(_step_after(edges, every, len(later) + 1))
        _few_enough(every or "as before", len(later))
    return np.concatenate([begin, np.array(later, dtype=edges.dtype)])


def _cut(start: Any, last: Any, windows: int) -> Array:
    """The later edges (windows,) of equal periods from `start` to just after `last`."""
    if isinstance(start, np.datetime64):
        first = start.astype(MICROSECONDS)
        span = (last.astype(MICROSECONDS) - first).astype(np.int64) + 1
        steps = np.ceil(span * np.arange(1, windows + 1) / windows)
        return np.asarray(first + steps.astype("timedelta64[us]"))
    return np.asarray(
        np.nextafter(
            start + (last - start) * np.arange(1, windows + 1) / windows, np.inf
        )
    )


def _step_after(edges: Array, every: Any, steps: int) -> Any:
    """The edge `steps` windows after the last one."""
    end = edges[-1]
    if not isinstance(end, np.datetime64):
        length = (
            float(np.median(np.diff(edges))) if every is None else _positive_step(every)
        )
        return end + steps * length
    months = edges.astype("datetime64[M]")
    if every is None:
        unit = (
            "M"
            if (months.astype(edges.dtype) == edges).all()
            else np.datetime_data(edges.dtype)[0]
        )
        count = int(
            np.median(np.diff(edges.astype(f"datetime64[{unit}]")).astype(np.int64))
        )
    else:
        count, unit = _calendar_step(every)
    aligned = end.astype(f"datetime64[{unit}]")
    if aligned.astype(edges.dtype) != end:
        raise InputError(f"every={every!r} does not fit windows that end at {end}")
    return (aligned + steps * count).astype(edges.dtype)


def _calendar_step(every: Any) -> tuple[int, str]:
    """How many of which unit of datetime64."""
    number = str(every).rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(str(every)[len(number) :])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise InputError(
            f"every must be a whole number and one of {', '.join(UNITS)}, as '7d', got {every!r}"
        )
    return (7 * int(number), "D") if unit == "W" else (int(number), unit)


def _positive_step(every: Any) -> float:
    try:
        step = float(every)
    except (TypeError, ValueError):
        step = np.nan
    if not 0.0 < step < np.inf:
        numbers = "a positive number because the times (--time) are numbers"
        raise InputError(f"every must be {numbers}, got {every!r}")
    return step


def _few_enough(every: Any, windows: int) -> int:
    if windows > MOST_WINDOWS:
        raise InputError(
            f"every={every!r} makes {windows:,} windows; at most {MOST_WINDOWS:,} are meant"
        )
    return windows

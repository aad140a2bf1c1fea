"""Log: an opened log and the first pass over it, which all questions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, is_dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from invariant_bandits.checks import InputError
from invariant_bandits.features.catalogue import Catalogue
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.logs import decode
from invariant_bandits.logs.arms import ArmTable, arm_table, read_catalogue
from invariant_bandits.logs.decode import (
    find_time_format,
    is_text,
    is_time,
)
from invariant_bandits.logs.external_sort import in_time_order, with_whole_rounds
from invariant_bandits.logs.formats.registry import open_source
from invariant_bandits.logs.logged_feedback import (
    GatheredRounds,
    LoggedFeedback,
    feedback_of,
    require_offered,
    rounds_to_keep,
)
from invariant_bandits.logs.missing_rewards import MissingWeights, missing_rewards_note
from invariant_bandits.logs.preparation import (
    ChangedSource,
    cut_levels,
    describe_levels,
    prepared,
    text_of_numbers,
)
from invariant_bandits.logs.quality import QualityReport, RowProblems
from invariant_bandits.logs.reader import (
    AnyFeatures,
    Rounds,
    encoded_rounds,
    map_features,
)
from invariant_bandits.logs.repeats import RepeatProbe
from invariant_bandits.logs.roles import infer_schema
from invariant_bandits.logs.scan import (
    LogMoments,
    Progress,
    open_scan,
    read_feature_map,
)
from invariant_bandits.logs.schema import (
    HINTS,
    LEVELS,
    Schema,
    SchemaLike,
    checked_overrides,
    toml_overrides,
    with_fields,
)
from invariant_bandits.logs.sources import (
    LEAST_SAMPLE,
    DatedSource,
    Source,
    Task,
    first_rows,
)
from invariant_bandits.logs.spill import SpooledSource, expanded_rows, release_memory
from invariant_bandits.logs.survey import (
    ArmProbe,
    CategoryProbe,
    RoundProbe,
    Survey,
    TimeProbe,
    hashes,
    spelling_notes,
)
from invariant_bandits.optional import pyarrow as pa


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
        self._first_rows: Any = None
        self._sample: Any = None
        self._survey: Survey | None = None
        self._arm_table: ArmTable | None = None
        if not isinstance(self.given, Schema) and LEVELS in self.given:
            edges, medians = cut_levels(
                prepared(source, self.given), self.given.get("arm"), self.given[LEVELS]
            )
            self.given |= {"level_edges": edges, "level_values": medians}
        self.source = prepared(
            source, self.given if isinstance(self.given, dict) else asdict(self.given)
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
        self.notes: tuple[str, ...] = self._notes()
        self._catalogue = catalogue
        self._arms = arms
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
        of_format = self.source.schema
        if of_format is None:
            return infer_schema(self.source.arrow_schema, self.first_rows, **overrides)
        names = self.source.arrow_schema.names
        if (
            of_format.labelled
            and overrides.get("arm", of_format.arm) is None
            and "features" not in overrides
        ):
            free = set(names) - set(of_format.roles().values())
            overrides["features"] = [
                name for name in names if name in free and not name.startswith("__")
            ]
        ignored = {name: tuple(overrides.pop(name, ())) for name in HINTS}["ignore"]
        for each in ("features", "categorical") if ignored else ():
            overrides[each] = [
                name
                for name in overrides.get(each, getattr(of_format, each))
                if name not in ignored
            ]
        changed = replace(of_format, **overrides).resolved(self.source.arrow_schema)
        if (
            of_format.labelled
            and changed.arm in (of_format.arm, None)
            and not set(changed.features) <= set(of_format.features)
        ):
            # Features of arms: the actions are rows.
            return replace(changed, arm=None, action=of_format.arm)
        return changed

    def _notes(self) -> tuple[str, ...]:
        """What a reader must know first of the values of the log."""
        schema = self.schema
        notes = list(schema.doubts)
        if schema.ranking is not None:
            notes.insert(0, ranking_note(schema))
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
            self._first_rows = None
            self._sample = None

    @property
    def first_rows(self) -> Any:
        """The first rows, an Arrow table: as many as it takes to see how columns are related."""
        if self._first_rows is None:
            self._first_rows = first_rows(self.source)
        return self._first_rows

    @property
    def sample(self) -> Any:
        """Fewer first rows, which fill in missing values; an Arrow table."""
        if self._sample is None:
            batch = self.first_rows.to_batches()[0]
            few = batch.take(pa.array(range(min(len(batch), LEAST_SAMPLE))))
            self._sample = pa.Table.from_batches([few])
        return self._sample

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

    @property
    def arms(self) -> ArmTable:
        """Labelled arms of the log, and when each arm was offered.

        A log without labelled arms raises InputError.
        """
        if not self.schema.labelled:
            raise InputError(
                "schema: arm is missing; the log has no column with labels of arms"
            )
        if self._arm_table is None:
            uses = self.survey().arm_uses
            table = arm_table(uses, self.schema, self.catalogue, self._arms)
            self._arm_table = table
        return self._arm_table

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the arms of the log; none if its columns describe the actions."""
        return self.arms.labels if self.schema.labelled else ()

    def survey(self, *, times: bool = False, rows: bool = False) -> Survey:
        """What a first pass found; only what is asked for and not known yet is read.

        Parameters
        ----------
        times : bool
            Whether the earliest and the latest time are needed.
        rows : bool
            Whether the number of rows is needed.
        """
        schema = self.schema
        known = self._survey
        probes: list[Any] = []
        if known is None:
            known = Survey(tuple(self.source.tasks), self.source.total_rows)
            if schema.round is not None:
                probes.append(RoundProbe(schema))
            if schema.categorical:
                probes.append(CategoryProbe(schema.categorical))
            if schema.labelled:
                probes.append(ArmProbe(schema, self.times_are_dates))
        # One pass for all.
        if schema.time is not None and known.times is None and (times or probes):
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
        spool = source if isinstance(source, SpooledSource) else None
        for task in source.tasks:
            task = replace(task, position=total)
            end = task.first_row
            batches = spool.record(task) if spool else source.batches(task, columns)
            for row, batch in batches:
                end = row + len(batch)
                for probe in probes:
                    probe.add(task, row, batch)
            if not source.skips_lines:
                for rows in source.skipped(task).values():
                    end = max([end, *(row + 1 for row in rows)])
            total += end - task.first_row
            if not self.schema.one_row_per_action:
                tasks += [task] if spool is None else spool.split(task)
            # A round may go on in the next part of its file.
            elif not tasks or tasks[-1].file != task.file:
                tasks.append(task)
        results: dict[str, Any] = {}
        for probe in probes:
            results |= probe.results()
        return replace(known, tasks=tuple(tasks), total_rows=total, **results)

    def moments(
        self,
        *,
        windows: int | None = None,
        every: Any = None,
        edges: Any = None,
        features: AnyFeatures | None = None,
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
        features : FeatureOptions, FeatureMap or None
            Options for computing features, or a map from columns to features that was learned before.
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
        scan = open_scan(
            self,
            windows=windows,
            every=every,
            edges=edges,
            engine=engine,
            address=address,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
        )
        return scan.moments(checked_features(features))

    def rounds(
        self,
        features: AnyFeatures | None = None,
        *,
        report: QualityReport | None = None,
    ) -> Iterator[Rounds]:
        """Yield batches of rounds with their features, in the order of the log.

        Parameters
        ----------
        features : FeatureMap, FeatureOptions or None
            Map from columns to features that `moments` learned, or options with `standardise="none"`.
        report : QualityReport, optional
            It counts the problems found while reading.

        >>> import pyarrow as pa, invariant_bandits as ib
        >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0, None], "price": [2.0, 3.0, 7.0]}))
        >>> [batch.features.tolist() for batch in log.rounds()]
        [[[2.0], [3.0]]]
        """
        scales = isinstance(features, FeatureOptions) and features.standardise != "none"
        if scales and not self.schema.labelled:
            raise InputError(
                "features: standardising needs scales; give the map that Log.moments learned"
            )
        learned = read_feature_map(self, features)
        for rounds in encoded_rounds(self, learned, report or QualityReport()):
            yield from map_features(rounds, learned)

    def feedback(
        self,
        *,
        features: FeatureOptions | None = None,
        fit_fraction: float = 0.5,
        windows: int = 8,
        latest: int | None = None,
        strict: bool = False,
        keep_going: bool = False,
        seed: int = 0,
        weight_missing: Sequence[str] = (),
        progress: Callable[[int], None] | None = None,
    ) -> LoggedFeedback:
        """Read the rounds in time order; the log must have the offered actions.

        Features of the offered actions are kept in memory up to 128 MB, and else in a temporary file in
        TMPDIR.

        Parameters
        ----------
        features : FeatureOptions, optional
            How columns become features.
        fit_fraction : float
            Share of the rounds, from the beginning of the log, that determines the scales of features and
            which features are left out.
        windows : int
            Number of windows (periods) into which the rounds of `fit_fraction` are cut, at least 2. Short
            logs are cut into fewer windows.
        latest : int, optional
            Number of rounds to read, from the end of the log, by default all rounds.
        strict : bool
            Whether to refuse a log with any bad row.
        keep_going : bool
            Whether to accept a log although most of its rounds cannot be used.
        seed : int
            Seed that draws a logged action for each round if the log has the rewards of all actions and marks
            none as chosen.
        weight_missing : sequence of str
            Columns on which it depends whether a reward is missing. Rounds with a reward then stand for all
            rounds with the same values of these columns, so that estimates hold for all rounds of the log.
        progress : callable (rows), optional
            Function that is called after every batch with the number of rows read.

        Returns
        -------
        LoggedFeedback
            Rounds of the log, and remarks about how the log was read.

        >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
        >>> rng = np.random.default_rng(0)
        >>> offered = rng.normal(size=(200, 3, 2))
        >>> columns = {"reward": rng.normal(size=200), "offered": offered.tolist(), "action": [1] * 200}
        >>> table = pa.table(columns)
        >>> ib.open_log(table).feedback().feedback
        Feedback(rounds=200, dim=2, 3 actions, without propensities)
        """
        require_offered(self.schema)
        log = in_time_order(self)
        options = checked_features(features)
        expanding = read_feature_map(log, options)
        notes = list(log.notes)
        if log is not self:
            notes.append(
                "the rounds were not in the order of time and have been sorted by it"
            )
        weights = None
        if weight_missing:
            weights = MissingWeights(log, weight_missing)
            notes.append(weights.note)
        elif unequal := missing_rewards_note(log):
            notes.append(unequal)
        gathered = GatheredRounds(latest)
        quality = QualityReport()
        for batch in rounds_to_keep(log, expanding, quality, latest):
            gathered.add(batch if weights is None else weights.weighted(batch))
            if progress is not None:
                progress(quality.rows)
        quality.check(strict=strict, keep_going=keep_going)
        if latest is not None and quality.rounds > latest:
            wider = np.sqrt(quality.rounds / latest)
            notes.append(
                f"only the last {latest:,} of {quality.rounds:,} rounds were taken: intervals are about"
                f" {wider:.2g} times as wide as all would make them, and say nothing of the time before"
            )
        values = gathered.values()
        if values["offered_arms"] is not None:
            values["offered"] = expanded_rows(
                values["offered"], expanding.cross_rows, expanding.dim
            )
        if values["action"] is None:
            notes.append(
                "the log does not say which action was chosen; 'the log' is here a choice at random among the"
                " offered"
            )
        release_memory()
        read = LoggedFeedback(
            feedback=feedback_of(values, seed),
            schema=log.schema,
            feature_map=expanding,
            quality=quality,
            windows=windows,
            dropped=(),
            notes=tuple(notes),
            positions=values["position"],
            offered_arms=values["offered_arms"],
        )
        return read.with_estimable_features(options, fit_fraction)

    def with_source(self, source: Source) -> Log:
        """This log with its rows in another order."""
        other = copy(self)
        other.source = source
        other._survey = None
        other._arm_table = None
        return other


def checked_features(features: Any) -> Any:
    """Return what becomes of columns, by default options; InputError if it is a list of their names."""
    if features is None:
        return FeatureOptions()
    if not is_dataclass(features):
        raise InputError(
            "features must be options or a map; columns are named when a log is opened:"
            f" open_log(…, features=…), got {features!r:.80}"
        )
    return features


def ranking_note(schema: Schema) -> str:
    """Say what a model of a ranking can do, and what it cannot."""
    return (
        f"the log is a ranking: rows of one {schema.ranking} are items at different positions; "
        f"every row counts as a decision of its own, with its {schema.position} as a category; "
        "the model scores single items at one position; that items of a page compete is left out"
    )


def open_log(
    source: Any,
    schema: SchemaLike = None,
    *,
    catalogue: Any = None,
    arms: Sequence[str] | None = None,
    **fields: Any,
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
    fields :
        Fields of Schema by keyword, such as reward="clicked", arm="banner", time="served",
        propensity="p"; None says that the log has no such column.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0, 1.0], "price": [2.0, 3.0, 7.0]}))
    >>> log.schema
    Schema(reward='reward', features=('price',), ...)
    >>> log.moments(windows=1).moments.rounds
    3
    """
    schema = with_fields(schema, fields)
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

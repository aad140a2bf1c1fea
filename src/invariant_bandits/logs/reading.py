"""From a log to its schema, its moments, its rounds or its features: the questions one may ask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.features import FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.passes import Pass, Progress
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import AnyFeatures, reader_of
from invariant_bandits.logs.reading_arms import ArmLogMoments, read_arm_moments, with_features
from invariant_bandits.logs.rounds import Rounds, last_rounds
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.windows import windows_of
from invariant_bandits.moments.windowed import WindowedMoments


@dataclass(frozen=True)
class LogMoments:
    """Moments that were read from a log, and everything needed to say where they came from.

    Parameters
    ----------
    moments : WindowedMoments
        Moments per window of the mapped features.
    schema : Schema
        What the columns mean.
    feature_map : FeatureMap or ArmFeatures
        What became of them; features of labelled arms, if the log has labels.
    quality : QualityReport
        Rows read, rounds used, and what was wrong.
    dropped : tuple of Dropped
        Features that were left out and why.
    edges : array, shape (windows + 1,), or None
        Times that bound the windows; None if they are equal shares of the rows.
    of_arms : ArmLogMoments, optional
        The same per arm, if the log has labels.
    """

    moments: WindowedMoments
    schema: Schema
    feature_map: FeatureMap | ArmFeatures
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    of_arms: ArmLogMoments | None = None

    @property
    def rows(self) -> int:
        """Rows read, used or not."""
        return self.quality.rows

    def describe(self) -> str:
        """Schema, quality and features in words."""
        lines = [self.schema.describe(), "", self.quality.describe()]
        kind = "chosen and offered" if self.moments.offered is not None else "chosen"
        lines.append(f"{self.moments.windows} windows, {self.moments.dim} features, moments of {kind} actions")
        if self.of_arms is not None:
            lines.append(f"coefficients: {self.of_arms.features.coding}, {self.of_arms.coding_reason}")
            lines += ["", self.of_arms.arms.describe()]
        lines += [f"left out: {one}" for one in self.dropped]
        return "\n".join(lines)


def read_schema(source: Any, schema: SchemaLike = None) -> Schema:
    """What the columns of a log mean.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        A whole Schema is checked; fields that are known are taken, and the others are inferred.

    >>> import pyarrow as pa
    >>> read_schema(pa.table({"clicked": [True, False], "price": [2.0, 3.0]}))
    Schema(reward='clicked', features=('price',), ...)
    """
    return open_log(source, schema).schema


def read_moments(
    source: Any,
    schema: SchemaLike = None,
    *,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | FeatureMap | ArmFeatures | Sequence[str] | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> LogMoments:
    """Moments per window of a log of any size, in bounded memory.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean: all of it, the fields that are known, or nothing; the rest is inferred.
    windows : int, optional
        Number of windows that are equal shares of the rows; 8 if nothing is said about windows.
    every : str or number, optional
        Length of the windows instead: "30min", "12h", "7d", "2w", "1mo", "1y", or a number if the times are numbers.
    edges : array, shape (windows + 1,), optional
        Times that bound the windows instead.
    features : FeatureOptions, FeatureMap, list of str or None
        What to make of the columns, a map that was learned before, or names or patterns of the columns to take.
    engine : str, distributed.Client or SparkSession
        Where the log is read: "local", "dask", "spark", or a cluster that is there; see `logs.engines.run`.
    address : str, optional
        Address of the cluster.
    strict : bool
        Whether to refuse a log with any problem.
    keep_going : bool
        Whether to go on although most rounds cannot be used.
    progress : callable (rows, total or None, seconds), optional
        Called after every part.

    >>> import numpy as np, pyarrow as pa, invariant_bandits as ib
    >>> x = np.random.default_rng(0).normal(size=(400, 2))
    >>> read = ib.read_moments(pa.table({"reward": x.sum(axis=1), "a": x[:, 0], "b": x[:, 1]}), windows=4)
    >>> read.moments
    WindowedMoments(dim=2, windows=4, rounds=400, of chosen actions)
    >>> read.feature_map.names
    ('a', 'b')
    """
    if sum(given is not None for given in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    schema, told = named_features(schema, features)
    log = open_log(source, schema)
    if log.schema.one_row_per_action and log.schema.chosen is None:
        raise InputError("schema: chosen is missing; moments are those of chosen actions, read_rounds needs none")
    if log.schema.labelled:
        return _labelled_moments(
            log,
            told,
            windows=windows,
            every=every,
            edges=edges,
            engine=engine,
            address=address,
            strict=strict,
            keep_going=keep_going,
            progress=progress,
        )
    if isinstance(told, ArmFeatures):
        raise InputError("features are those of labelled arms, but the log has no column with labels (--arm)")
    cut = windows_of(log, windows, every, edges)
    reader, total = Pass(log, cut, engine, address, progress).learning(told or FeatureOptions())
    if strict:
        total.report.refuse_problems()
    total.report.require_rounds(keep_going)
    total.report.require_choices(keep_going)
    feature_map, dropped = _learned(told, reader.feature_map, total.moments)
    moments = feature_map.finish_moments(total.moments)
    return LogMoments(moments, log.schema, feature_map, total.report, tuple(dropped), cut.edges)


def _labelled_moments(log: Log, features: FeatureOptions | FeatureMap | ArmFeatures | None, **how: Any) -> LogMoments:
    """Moments of φ(x, a) of the chosen arms."""
    if isinstance(features, FeatureMap):
        raise InputError("features must be those of labelled arms: the log has a column with labels")
    read = read_arm_moments(log, features=features, **how)
    return LogMoments(
        read.moments.of_features(), log.schema, read.features, read.quality, read.dropped, read.edges, read
    )


def _learned(
    features: FeatureOptions | FeatureMap | None, expanding: FeatureMap, moments: WindowedMoments
) -> tuple[FeatureMap, list[Dropped]]:
    """(the map that was given, or what the moments of the expanded features teach, the features left out)."""
    if isinstance(features, FeatureMap):
        return features, []
    return expanding.learned(moments, features or FeatureOptions())


def read_rounds(
    source: Any,
    schema: SchemaLike = None,
    feature_map: AnyFeatures | None = None,
    *,
    report: QualityReport | None = None,
    latest: int | None = None,
) -> Iterator[Rounds]:
    """Batches of rounds in the order of the log, features mapped.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    feature_map : FeatureMap, FeatureOptions or None
        As learned by `read_moments`; options without scaling, or None, are enough for a first look.
    report : QualityReport, optional
        Where problems are counted while rounds are read.
    latest : int, optional
        The caller needs only so many of the last rounds; those of labelled arms long before them are not given.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> table = pa.table({"reward": [1.0, 0.0, None], "price": [2.0, 3.0, 7.0]})
    >>> [batch.features.tolist() for batch in ib.read_rounds(table)]
    [[[2.0], [3.0]]]
    """
    log = open_log(source, schema)
    if log.schema.labelled and not isinstance(feature_map, ArmFeatures):
        feature_map = read_feature_map(log, options=feature_map)
    if isinstance(feature_map, FeatureOptions) and feature_map.standardise != "none":
        raise InputError("feature_map: standardising needs scales; give the map that read_moments learned")
    reader = reader_of(log, feature_map or FeatureOptions())
    report = QualityReport() if report is None else report
    if isinstance(feature_map, ArmFeatures):
        contexts = (rounds for task in log.survey().tasks for rounds in reader.rounds(task, report))
        for rounds in contexts if latest is None else last_rounds(contexts, latest):
            yield from with_features(rounds, feature_map)
        return
    for task in log.survey().tasks:
        for rounds in reader.rounds(task, report):
            offered = None if rounds.offered is None else reader.feature_map.finish(rounds.offered)
            yield replace(rounds, features=reader.feature_map.finish(rounds.features), offered=offered)


def read_offered(source: Any, schema: SchemaLike, feature_map: FeatureMap | ArmFeatures, rounds: int) -> list[Array]:
    """Features (K, q) of the actions offered in the first `rounds` rounds of a log; none if it does not say."""
    sets: list[Array] = []
    log = open_log(source, schema)
    for batch in read_rounds(log, feature_map=feature_map) if log.schema.has_offered else ():
        if batch.offered is None or batch.offered_counts is None:
            break
        ends = np.cumsum(batch.offered_counts)
        sets += [batch.offered[end - count : end] for end, count in zip(ends, batch.offered_counts, strict=True)]
        if len(sets) >= rounds:
            break
    return sets[:rounds]


def read_feature_map(
    source: Any, schema: SchemaLike = None, options: AnyFeatures | None = None
) -> FeatureMap | ArmFeatures:
    """The map that expands the columns of a log into features; nothing is scaled or left out.

    Features of labelled arms are learned from the whole log: their contexts are standardised.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    options : FeatureOptions, optional
        Interactions, centring, and how many categories a column may have.

    >>> import pyarrow as pa
    >>> read_feature_map(pa.table({"reward": [1.0, 0.0], "country": ["DE", "FR"]})).names
    ('country=DE', 'country=FR')
    """
    log = open_log(source, schema)
    if not log.schema.labelled:
        return reader_of(log, options or FeatureOptions()).feature_map
    if isinstance(options, FeatureMap):
        raise InputError("features must be those of labelled arms: the log has a column with labels")
    return read_arm_moments(log, windows=1, features=options, keep_going=True).features

"""From a log to moments, or to rounds: the entry points."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs import engines
from invariant_bandits.logs.decoding import MICROSECONDS, as_utc
from invariant_bandits.logs.features import Column, Dropped, FeatureMap, FeatureOptions
from invariant_bandits.logs.opening import open_source
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.rounds import Reader, Rounds, vector_width
from invariant_bandits.logs.schema import (
    Schema,
    are_flags,
    infer_schema,
    is_list,
    is_text,
    is_time,
    is_vector,
    toml_overrides,
)
from invariant_bandits.logs.sources import Source, own_schema, sample_of
from invariant_bandits.logs.summary import Plan, Total
from invariant_bandits.logs.survey import Survey, calendar_edges, survey
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.moments.windows import checked_edges

DEFAULT_WINDOWS = 8
Progress: TypeAlias = Callable[[int, int | None, float], None]
SchemaLike: TypeAlias = Schema | Mapping[str, Any] | str | PathLike[str] | None


@dataclass(frozen=True)
class LogMoments:
    """What was read: moments per window of the mapped features, and everything needed to say where they came from.

    edges: times that bound the windows, None if they are equal shares of the rows; dropped: features that were left
    out and why; seconds: how long reading took.
    """

    moments: WindowedMoments
    schema: Schema
    feature_map: FeatureMap
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    seconds: float

    @property
    def rows(self) -> int:
        """Rows read, used or not."""
        return self.quality.rows

    @property
    def rows_per_second(self) -> float:
        """Speed of reading."""
        return self.rows / self.seconds if self.seconds > 0.0 else float("inf")

    def describe(self) -> str:
        """Schema, quality and features in words."""
        lines = [self.schema.describe(), "", self.quality.describe()]
        kind = "chosen and offered" if self.moments.offered is not None else "chosen"
        lines.append(f"{self.moments.windows} windows, {self.moments.dim} features, moments of {kind} actions")
        lines += [f"left out: {one}" for one in self.dropped]
        return "\n".join(lines)


def read_schema(source: Any, schema: SchemaLike = None) -> Schema:
    """The schema of a log: a whole Schema is checked; otherwise inferred, but for the fields that `schema` gives.

    They are a mapping, or the path of a TOML file.
    """
    return _schema_of(open_source(source), schema)


def read_moments(
    source: Any,
    schema: SchemaLike = None,
    *,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | FeatureMap | None = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> LogMoments:
    """Moments per window of a log of any size, in bounded memory.

    source: a Parquet or CSV file, folder or pattern, an Arrow table, a pandas or Polars frame, an obp feedback
    dictionary. schema: a Schema, the fields of it that are known (a mapping, or the path of a TOML file), or None to
    infer all of it. Windows: a number of equal shares of the rows (8 if nothing is given), or of length `every`
    ("7d", "1mo", a number), or between explicit `edges`. features: options, or a map that was learned before.
    engine, address: see `logs.engines.run`. strict: refuse a log with any problem. progress(rows, total or None,
    seconds) is called after every part.
    """
    began = time.perf_counter()
    if sum(given is not None for given in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    opened = open_source(source)
    known = _schema_of(opened, schema)
    if known.one_row_per_action and known.chosen is None:
        raise InputError("schema: chosen is missing; moments are those of chosen actions, read_rounds needs none")
    if known.time is None and (every is not None or edges is not None):
        raise InputError("schema: time is missing; every and edges need it")
    dates = _times_are_dates(opened, known)
    bounds = None if edges is None else _edges(edges, dates)
    by_count = every is None and edges is None
    found = survey(opened, known, dates=dates, times=every is not None, rows=by_count)
    if every is not None:
        bounds = calendar_edges(every, found.first_time, found.last_time)
    count = len(bounds) - 1 if bounds is not None else whole_number("windows", windows or DEFAULT_WINDOWS, 1)
    if by_count and count > found.total_rows:
        raise InputError(f"windows must be at most the number of rows, {found.total_rows}, got {count}")
    options = FeatureOptions() if features is None else features
    reader = _reader(opened, known, dates, found, options)
    plan = Plan(reader, count, found.total_rows, bounds)
    total = Total(plan)
    for part in engines.run(engine, address, found.tasks, plan):
        total.add(part)
        if progress is not None:
            progress(total.report.rows, found.total_rows or opened.total_rows, time.perf_counter() - began)
    if strict:
        total.report.refuse_problems()
    if total.report.rounds == 0:
        raise InputError(f"the log has no usable round:\n{total.report.describe()}")
    feature_map, dropped = reader.feature_map, list[Dropped]()
    if isinstance(options, FeatureMap):
        feature_map = options
    else:
        feature_map, dropped = feature_map.learned(total.moments, options)
    moments = feature_map.finish_moments(total.moments)
    seconds = time.perf_counter() - began
    return LogMoments(moments, known, feature_map, total.report, tuple(dropped), bounds, seconds)


def read_rounds(
    source: Any,
    schema: SchemaLike = None,
    feature_map: FeatureMap | FeatureOptions | None = None,
    *,
    report: QualityReport | None = None,
) -> Iterator[Rounds]:
    """Batches of rounds in the order of the log, features mapped; problems are counted in `report`.

    feature_map: as learned by `read_moments`; options without scaling, or None, are enough for a first look.
    """
    opened = open_source(source)
    known = _schema_of(opened, schema)
    dates = _times_are_dates(opened, known)
    if isinstance(feature_map, FeatureOptions) and feature_map.standardise != "none":
        raise InputError("feature_map: standardising needs scales; give the map that read_moments learned")
    found = survey(opened, known, dates=dates, times=False, rows=False)
    reader = _reader(opened, known, dates, found, feature_map or FeatureOptions())
    report = QualityReport() if report is None else report
    for task in found.tasks:
        for rounds in reader.rounds(task, report):
            offered = None if rounds.offered is None else reader.feature_map.finish(rounds.offered)
            yield replace(rounds, features=reader.feature_map.finish(rounds.features), offered=offered)


def read_feature_map(source: Any, schema: SchemaLike = None, options: FeatureOptions | None = None) -> FeatureMap:
    """The map that expands the columns of a log into features, categories included; nothing is scaled or left out."""
    opened = open_source(source)
    known = _schema_of(opened, schema)
    found = survey(opened, known, dates=False, times=False, rows=False)
    return _reader(opened, known, False, found, options or FeatureOptions()).feature_map


def _schema_of(source: Source, schema: SchemaLike) -> Schema:
    if isinstance(schema, Schema):
        return schema.resolved(source.arrow_schema)
    own = own_schema(source)
    if own is not None:
        return own
    known = toml_overrides(schema) if isinstance(schema, str | PathLike) else dict(schema or {})
    return infer_schema(source.arrow_schema, sample_of(source), **known)


def _times_are_dates(source: Source, schema: Schema) -> bool:
    if schema.time is None:
        return False
    kind = source.arrow_schema.field(schema.time).type
    if not is_text(kind):
        return is_time(kind)
    for word in sample_of(source).column(schema.time).drop_null().to_pylist():
        try:
            float(word)
        except ValueError:
            return True
        return False
    return True


def _reader(
    source: Source, schema: Schema, dates: bool, found: Survey, features: FeatureOptions | FeatureMap
) -> Reader:
    """How to read rounds; the map expands columns, what is learned from moments comes later."""
    if isinstance(features, FeatureMap):
        feature_map = features
    else:
        feature_map = FeatureMap(_columns(source, schema, found, features), features.interactions, features.centre)
    if feature_map.centre and not schema.has_offered:
        raise InputError("centre: the log has no offered actions, so there is no mean of a round to subtract")
    flag = True
    if schema.chosen is not None and schema.action is not None:
        flag = are_flags(sample_of(source).column(schema.chosen))
    return Reader(source, schema, feature_map, dates, flag, found.duplicates)


def _columns(source: Source, schema: Schema, found: Survey, options: FeatureOptions) -> tuple[Column, ...]:
    names = schema.features if schema.offered is None else (schema.offered,)
    columns = []
    for name in names:
        kind = source.arrow_schema.field(name).type
        if name in schema.categorical:
            columns.append(Column(name, categories=found.most_frequent(name, options.max_categories)))
        elif is_list(kind):
            if not is_vector(kind) and not is_vector(kind.value_type):
                raise InputError(f"column {name!r} must hold lists of numbers, got {kind}")
            columns.append(Column(name, width=vector_width(sample_of(source).column(name))))
        elif is_time(kind):
            raise InputError(f"column {name!r} holds {kind}, which is no feature; make numbers or categories of it")
        else:
            columns.append(Column(name))
    return tuple(columns)


def _edges(edges: Any, dates: bool) -> Array:
    if not dates:
        return checked_edges(edges)
    given = [as_utc(edge) if isinstance(edge, str) else edge for edge in edges]
    try:
        return checked_edges(np.array(given, dtype=MICROSECONDS))
    except (TypeError, ValueError) as error:
        raise InputError(f"edges must be dates because the times are, got {edges!r}: {error}") from None

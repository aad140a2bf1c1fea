"""From a log to its schema, its moments, its rounds or its features: the questions that can be asked of a
log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs.aggregate import ArmMoments, LogitWeights, Progress, Scan
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.features import ArmFeatures, Dropped, FeatureMap, FeatureOptions
from invariant_bandits.logs.log import lots, open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    AnyFeatures,
    Features,
    Rounds,
    last_rounds,
    map_features,
    reader_of,
    starting_features,
)
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.windows import windows_of
from invariant_bandits.moments.windowed import WindowedMoments

SAMPLE_ROUNDS = 200_000


class ArmSample(NamedTuple):
    """Rounds spread evenly over a log.

    Parameters
    ----------
    contexts : array, shape (n, d)
        z of the chosen arm, the leading 1 included.
    arms : array of int, shape (n,)
        Place of the chosen arm.
    rewards : array, shape (n,)
        Its reward.
    share : float
        Which share of the rows of the log was taken; 1 if all were.
    """

    contexts: Array
    arms: Array
    rewards: Array
    share: float


def read_arm_sample(
    source: Any, features: ArmFeatures, schema: SchemaLike = None, *, most: int = SAMPLE_ROUNDS
) -> ArmSample:
    """At most about `most` rounds spread over the whole log: all of them, or those whose row falls on a fixed
    lot.

    Which rows are taken depends on their place in the log alone, so the sample is the same every time.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    features : ArmFeatures
        As learned by `read_moments`.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    most : int
        How many rounds.
    """
    log = open_log(source, schema)
    share = min(1.0, whole_number("most", most, 1) / max(log.survey(rows=True).total_rows or 1, 1))
    reader, report = reader_of(log, features, offered=False), QualityReport()
    parts: list[tuple[Array, Array, Array]] = []
    for task in log.survey().tasks:
        for rounds in reader.rounds(task, report):
            taken = rounds.where(lots(task.position - task.first_row + rounds.rows) < share)
            assert taken.arm is not None
            z = features.own_contexts(features.standardise(taken.features), taken.arm)
            parts.append((z, taken.arm, taken.rewards))
    report.require_rounds()
    contexts, arms, rewards = (np.concatenate(part) for part in zip(*parts, strict=True))
    return ArmSample(contexts, arms, rewards, share)


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
    arms : ArmTable or None
        Of a log with labels: the arms, and when each was offered.
    of_arms : ArmMoments or None
        Of a log with labels: the moments of contexts and rewards, per window and arm.
    coding_reason : str
        Why arms have coefficients of their own, or share them.
    """

    moments: WindowedMoments
    schema: Schema
    feature_map: Features
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    arms: ArmTable | None = None
    of_arms: ArmMoments | None = None
    coding_reason: str = ""

    @property
    def rows(self) -> int:
        """Rows read, used or not."""
        return self.quality.rows

    def describe(self) -> str:
        """Schema, quality and features in words."""
        lines = [self.schema.describe(), "", self.quality.describe()]
        kind = "chosen and offered" if self.moments.offered is not None else "chosen"
        lines.append(
            f"{self.moments.windows} windows, {self.moments.dim} features, moments of {kind} actions"
        )
        if self.of_arms is not None and self.arms is not None:
            lines.append(f"coefficients: {self.of_arms.features.coding}, {self.coding_reason}")
            lines += ["", self.arms.describe()]
        lines += [f"left out: {feature}" for feature in self.dropped]
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
    logit_at: Any = None,
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
        Length of the windows instead: "30min", "12h", "7d", "2w", "1mo", "1y", or a number if the times are
        numbers.
    edges : array, shape (windows + 1,), optional
        Times that bound the windows instead.
    features : FeatureOptions, FeatureMap, ArmFeatures, list of str or None
        What to make of the columns, a map that was learned before, or names or patterns of the columns to
        take.
    logit_at : array, shape (p,), or (arms, d) for arms with coefficients of their own, optional
        For labelled arms and rewards that are 0 or 1: coefficients θ⁰ on the logit scale; needs learned
        `features`. With π = σ(φᵀθ⁰) and h = π(1−π), contexts become √h·z and rewards √h·(φᵀθ⁰ + (r−π)/h), so
        that `of_arms.gram` is Σ h z zᵀ and `of_arms.cross` is Σ h z zᵀθ⁰ + Σ z(r−π).
    engine : str, distributed.Client or SparkSession
        Where the log is read: "local", "dask", "spark", or a cluster that is there; see `run_tasks`.
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

    Of a log with labels of arms, the same per arm:

    >>> rng = np.random.default_rng(0)
    >>> hour, banner = rng.uniform(0, 24, 400), rng.choice(["A", "B"], 400)
    >>> table = pa.table({"hour": hour, "banner": banner, "click": (rng.random(400) < 0.3).astype(int)})
    >>> read = ib.read_moments(table, windows=2)
    >>> read.feature_map.names
    ('A', 'A × hour', 'B', 'B × hour')
    >>> read.of_arms.gram.shape, read.of_arms.rewards_are_binary
    ((2, 2, 2, 2), True)
    """
    if sum(value is not None for value in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    schema, options = named_features(schema, features)
    log = open_log(source, schema)
    if log.schema.one_row_per_action and log.schema.chosen is None:
        raise InputError(
            "schema: chosen is missing; moments are those of chosen actions, read_rounds needs none"
        )
    logit = None
    if logit_at is not None:
        if not isinstance(options, ArmFeatures):
            raise InputError("logit_at needs features of labelled arms that were learned before")
        logit = LogitWeights.at(options, logit_at)
    cut = windows_of(log, windows, every, edges)
    scan = Scan(log, cut, engine, address, strict, keep_going, progress)
    if isinstance(options, FeatureMap | ArmFeatures):
        learned, dropped, why = options, tuple[Dropped, ...](), "as learned before"
        aggregate = scan.run(options, logit)
        scan.check(aggregate.report)
    else:
        learned, dropped, why, aggregate = scan.learn(options or FeatureOptions())
    moments = aggregate.moments if logit is not None else learned.standardise_moments(aggregate.moments)
    about = (log.schema, learned, aggregate.report, dropped, cut.edges)
    if isinstance(learned, FeatureMap):
        return LogMoments(replace(moments, edges=cut.edges), *about)
    of_arms = ArmMoments(moments, learned, cut.edges)
    return LogMoments(of_arms.of_features(), *about, log.arms, of_arms, why)


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
        The caller needs only so many of the last rounds; those of labelled arms long before them are not
        given.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> table = pa.table({"reward": [1.0, 0.0, None], "price": [2.0, 3.0, 7.0]})
    >>> [batch.features.tolist() for batch in ib.read_rounds(table)]
    [[[2.0], [3.0]]]
    """
    log = open_log(source, schema)
    if (
        isinstance(feature_map, FeatureOptions)
        and feature_map.standardise != "none"
        and not log.schema.labelled
    ):
        raise InputError("feature_map: standardising needs scales; give the map that read_moments learned")
    features = read_feature_map(log, options=feature_map)
    reader, report = reader_of(log, features), QualityReport() if report is None else report
    batches = (rounds for task in log.survey().tasks for rounds in reader.rounds(task, report))
    for rounds in last_rounds(batches, latest) if latest is not None and log.schema.labelled else batches:
        yield from map_features(rounds, features)


def read_feature_map(source: Any, schema: SchemaLike = None, options: AnyFeatures | None = None) -> Features:
    """Return the map that encodes the columns of a log; nothing is scaled or left out.

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
    if log.schema.labelled and (options is None or isinstance(options, FeatureOptions)):
        scan = Scan(log, windows_of(log, 1, None, None), keep_going=True)
        return scan.learn(options or FeatureOptions())[0]
    return starting_features(log, options or FeatureOptions())

"""The questions that can be asked of a log: its schema, its moments, its rounds or its features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from invariant_bandits.checks import InputError, whole_number
from invariant_bandits.logs import reader as readers
from invariant_bandits.logs.aggregation import LogitWeights
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.arm_moments import ArmSample
from invariant_bandits.logs.feature_maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    AnyFeatures,
    Features,
    Rounds,
    reader_of,
    starting_features,
)
from invariant_bandits.logs.scan import (
    SAMPLE_ROUNDS,
    LogMoments,
    Progress,
    Scan,
    open_scan,
)
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.survey import MOST_LEVELS
from invariant_bandits.logs.windows import windows_of


def read_arm_sample(
    source: Any,
    features: ArmFeatures,
    schema: SchemaLike = None,
    *,
    most: int = SAMPLE_ROUNDS,
) -> ArmSample:
    """Return at most about `most` rounds of clicks, spread over the whole log.

    All rounds if they are few, otherwise those that a hash of the row number selects.

    Which rows are taken depends on their position in the log alone, so the sample is the same every time.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
        Where the rows come from.
    features : ArmFeatures
        As learned by `read_moments`.
    schema : Schema, mapping, path of a TOML file or None
        What the columns mean; what is not said is inferred.
    most : int
        How many rounds.
    """
    log = open_log(source, schema)
    scan = Scan(log=log, windows=windows_of(log, 1, None, None), keep_going=True)
    aggregate = scan.run(features, sample=whole_number("most", most, 1))
    scan.check(aggregate.report)
    sample = aggregate.sample(features)
    if sample is None:
        raise InputError("rewards must be 0 or 1 to sample clicks")
    return sample


def read_schema(source: Any, schema: SchemaLike = None) -> Schema:
    """What the columns of a log mean.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
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
    """Read a log of any size and return its moments per window, as `Log.moments` does.

    source, schema: as `open_log` takes them. logit_at: coefficients θ (p,) or (arms, p / arms) of a logistic
    regression, for labelled arms with rewards 0 or 1: the moments are then those of one step of iteratively
    reweighted least squares at θ, and `features` must be an ArmFeatures that was learned before.
    """
    schema, options = named_features(schema, features)
    logit = None
    if logit_at is not None:
        if not isinstance(options, ArmFeatures):
            raise InputError(
                "logit_at needs features of labelled arms that were learned before"
            )
        logit = LogitWeights.at(options, logit_at)
    scan = open_scan(
        open_log(source, schema),
        windows=windows,
        every=every,
        edges=edges,
        engine=engine,
        address=address,
        strict=strict,
        keep_going=keep_going,
        progress=progress,
    )
    return scan.moments(options or FeatureOptions(), logit)


def read_rounds(
    source: Any,
    schema: SchemaLike = None,
    feature_map: AnyFeatures | None = None,
    *,
    report: QualityReport | None = None,
    latest: int | None = None,
) -> Iterator[Rounds]:
    """Yield batches of rounds with their features, in the order of the log, as `Log.rounds` does.

    source, schema: as `open_log` takes them. report: counts the problems found while reading.
    """
    log = open_log(source, schema)
    scales = (
        isinstance(feature_map, FeatureOptions) and feature_map.standardise != "none"
    )
    if scales and not log.schema.labelled:
        raise InputError(
            "feature_map: standardising needs scales; give the map that read_moments learned"
        )
    features = read_feature_map(log, options=feature_map)
    report = QualityReport() if report is None else report
    for rounds in encoded_rounds(log, features, report, latest):
        yield from readers.map_features(rounds, features)


def encoded_rounds(
    log: Log, features: Features, report: QualityReport, latest: int | None = None
) -> Iterable[Rounds]:
    """Yield batches of rounds with encoded features, in the order of the log.

    Parameters
    ----------
    log : Log
        What is read.
    features : FeatureMap or ArmFeatures
        What encodes the columns.
    report : QualityReport
        It counts the problems found while reading.
    latest : int, optional
        Number of rounds at the end of the log that the caller needs: of labelled arms, batches that
        hold only earlier rounds are skipped.
    """
    if isinstance(features, ArmFeatures) and len(features.labels) > MOST_LEVELS:
        many = f"the log has {len(features.labels):,} arms"
        raise InputError(
            f"{many}; evaluation reads all that was offered, of at most {MOST_LEVELS} arms"
        )
    reader = reader_of(log, features)
    batches = (
        rounds for task in log.survey().tasks for rounds in reader.rounds(task, report)
    )
    if latest is None or not log.schema.labelled:
        return batches
    return readers.last_rounds(batches, latest)


def read_feature_map(
    source: Any, schema: SchemaLike = None, options: AnyFeatures | None = None
) -> Features:
    """Return the map that encodes the columns of a log; nothing is scaled or left out.

    Features of labelled arms are learned from the whole log: their contexts are standardised.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, Open Bandit Pipeline dictionary or Log
        Where the rows come from.
    schema : Schema, mapping, path of a TOML file or None
        Roles of the columns; roles that are not given are inferred from the log.
    options : FeatureOptions, optional
        Interactions, centring, and how many categories a column may have.

    >>> import pyarrow as pa
    >>> read_feature_map(pa.table({"reward": [1.0, 0.0], "country": ["DE", "FR"]})).names
    ('country=DE', 'country=FR')
    """
    log = open_log(source, schema)
    if log.schema.labelled and (options is None or isinstance(options, FeatureOptions)):
        scan = Scan(log=log, windows=windows_of(log, 1, None, None), keep_going=True)
        return scan.learn(options or FeatureOptions(), reduce=False).features
    return starting_features(log, options or FeatureOptions())

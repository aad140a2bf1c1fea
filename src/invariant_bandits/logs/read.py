"""From a log to its schema, its moments, its rounds or its features: the questions one may ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, whole_number
from invariant_bandits.logs import engines
from invariant_bandits.logs.aggregate import ArmMoments, LogitWeights, Plan, Total, telling_rounds
from invariant_bandits.logs.arm_features import ArmFeatures, chosen_coding, crossings, matched_features
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.features import Dropped, FeatureMap, FeatureOptions, collinear_features
from invariant_bandits.logs.log import Log, open_log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import AnyFeatures, Reader, Rounds, last_rounds, often_missing, reader_of
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.survey import lots
from invariant_bandits.logs.windows import Windows, windows_of
from invariant_bandits.moments.windowed import WindowedMoments

Progress: TypeAlias = Callable[[int, int | None, float], None]
"""Called with the rows read so far, all rows if their number is known, and the seconds passed."""


@dataclass(frozen=True)
class Pass:
    """How a log is gone through.

    Parameters
    ----------
    log : Log
        What is read.
    windows : Windows
        Which windows rounds are added to.
    engine, address :
        Where it is read: see `engines.run`.
    progress : callable, optional
        Called after every part.
    """

    log: Log
    windows: Windows
    engine: Any = "local"
    address: str | None = None
    progress: Progress | None = None
    began: float = field(default_factory=time.perf_counter)

    def over(self, reader: Reader, logit: LogitWeights | None = None) -> Total:
        """Everything that `reader` finds, summed up."""
        plan = Plan(reader, self.windows, self.log.survey().total_rows, logit)
        total = Total(plan)
        for part in engines.run(self.engine, self.address, self.log.survey().tasks, plan):
            total.add(part)
            if self.progress is not None:
                self.progress(total.report.rows, plan.total_rows, time.perf_counter() - self.began)
        return total

    def learning(self, features: AnyFeatures) -> tuple[Reader, Total]:
        """(the reader, its sums); twice if only all rows showed that missing values of some column need a mark."""
        reader = reader_of(self.log, features, offered=not self.log.schema.labelled)
        total = self.over(reader)
        unmarked = often_missing(reader.feature_map, total.report) if isinstance(features, FeatureOptions) else []
        if not unmarked:
            return reader, total
        marked = reader.feature_map.with_missing_indicators(unmarked)
        reader = reader_of(self.log, marked, offered=not self.log.schema.labelled)
        return reader, self.over(reader)


SAMPLE_ROUNDS = 200_000
CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class ArmLogMoments:
    """Statistics per window and arm that were read from a log, and everything needed to say where they came from.

    Parameters
    ----------
    moments : ArmMoments
        Of contexts and rewards, per window and arm.
    arms : ArmTable
        The arms, and when each was offered.
    schema : Schema
        What the columns mean.
    quality : QualityReport
        Rows read, rounds used, and what was wrong.
    dropped : tuple of Dropped
        Features of the context that were left out and why.
    edges : array, shape (windows + 1,), or None
        Times that bound the windows; None if they are equal shares of the rows.
    coding_reason : str
        Why arms have coefficients of their own, or share slopes.
    """

    moments: ArmMoments
    arms: ArmTable
    schema: Schema
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    coding_reason: str

    @property
    def features(self) -> ArmFeatures:
        """Context and label → φ(x, a)."""
        return self.moments.features


def read_arm_moments(
    source: Any,
    schema: SchemaLike = None,
    *,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    features: FeatureOptions | ArmFeatures | None = None,
    logit_at: Any = None,
    engine: Any = "local",
    address: str | None = None,
    strict: bool = False,
    keep_going: bool = False,
    progress: Progress | None = None,
) -> ArmLogMoments:
    """Statistics per window and arm of a log with labels, of any size, in bounded memory.

    Parameters
    ----------
    features : FeatureOptions, ArmFeatures or None
        What to make of the context and of the arms, or features that were learned before.
    logit_at : array, shape (p,), or (arms, d) for arms with coefficients of their own, optional
        For rewards that are 0 or 1: coefficients θ⁰ on the logit scale; needs learned `features`. With π = σ(φᵀθ⁰) and
        h = π(1−π), contexts become √h·z and rewards √h·(φᵀθ⁰ + (r−π)/h), so that `gram` is Σ h z zᵀ and `cross` is
        Σ h z zᵀθ⁰ + Σ z(r−π).
    source, schema, windows, every, edges, engine, address, strict, keep_going, progress :
        As in `read_moments`.

    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> hour, banner = rng.uniform(0, 24, 400), rng.choice(["A", "B"], 400)
    >>> table = pa.table({"hour": hour, "banner": banner, "click": (rng.random(400) < 0.3).astype(int)})
    >>> read = read_arm_moments(table, windows=2)
    >>> read.features.names
    ('A', 'A × hour', 'B', 'B × hour')
    >>> read.moments.gram.shape, read.moments.rewards_are_binary
    ((2, 2, 2, 2), True)
    """
    log = open_log(source, schema)
    arms = log.arms
    cut = windows_of(log, windows, every, edges)
    through = Pass(log, cut, engine, address, progress)
    reason = "as learned before"
    if logit_at is not None:
        if not isinstance(features, ArmFeatures):
            raise InputError("logit_at needs features that were learned before")
        known = features
        total = through.over(reader_of(log, known, offered=False), _logit_weights(known, logit_at))
        cells, dropped = total.moments, list[Dropped]()
    else:
        options = features if isinstance(features, ArmFeatures) else features or FeatureOptions()
        reader, total = through.learning(options)
        if isinstance(options, ArmFeatures):
            known, dropped = options, []
        else:
            known, dropped, reason = _learned_reading_arms(log, reader.feature_map, options, total.moments)
        cells = _finished(total.moments, known)
    if strict:
        total.report.refuse_problems()
    total.report.require_rounds(keep_going)
    moments = ArmMoments(cells, known, cut.edges)
    return ArmLogMoments(moments, arms, log.schema, total.report, tuple(dropped), cut.edges, reason)


def _learned_reading_arms(
    log: Log, expanding: FeatureMap, options: FeatureOptions, cells: WindowedMoments
) -> tuple[ArmFeatures, list[Dropped], str]:
    """(features, what was left out of the context, why arms share slopes or not), from cells of [1, expanded]."""
    labels, names = log.arms.labels, expanding.encoded_names
    matched = matched_features(names, labels, str(log.schema.arm))
    owned = {name for group in matched.values() for name in group}
    pooled = cells.regrouped(np.arange(0, cells.windows, len(labels)))
    plain = np.array([0, *(j + 1 for j, name in enumerate(names) if name not in owned)])
    shared = pooled.rescaled(plain, np.zeros(len(plain)), np.ones(len(plain)))
    dropped = [one for one in collinear_features(shared, [("", *names)[j] for j in plain]) if one.name]
    gone = {one.name for one in dropped}
    kept = np.array([j for j, name in enumerate(names) if name not in gone], dtype=np.int64)
    shift, scale = _standardisation(pooled, kept, [[names.index(name) for name in one] for one in matched.values()])
    context = replace(expanding, kept=kept, shift=shift, scale=scale)
    catalogue = log.catalogue
    width = 1 + len(kept) - len(owned) + len(matched)
    told = telling_rounds(cells)
    coding, why = chosen_coding(options.arm_model, len(labels), width, told)
    if catalogue is None or not catalogue.names:
        return ArmFeatures(context, labels, coding, matched=matched), dropped, why
    return (
        ArmFeatures(
            context,
            labels,
            coding,
            catalogue.features_of(labels),
            catalogue.names,
            matched,
            catalogue.shift,
            catalogue.scale,
            crossings(len(labels), width - 1, len(catalogue.names), told) if coding == "shared" else 0,
        ),
        dropped,
        why,
    )


def _standardisation(pooled: WindowedMoments, kept: Array, groups: list[list[int]]) -> tuple[Array, Array]:
    """(mean, standard deviation) of the kept features, each (q,); a group has one mean and one deviation."""
    whole = pooled.chosen.grouped(np.array([0]))
    mean, variance = whole.mean[0, 1:-1].copy(), np.diagonal(whole.covariance()[0])[1:-1].copy()
    for group in groups:
        middle = mean[group].mean()
        variance[group] = (variance[group] + (mean[group] - middle) ** 2).mean()
        mean[group] = middle
    deviation = np.sqrt(variance[kept])
    return mean[kept], np.where(deviation > 0.0, deviation, 1.0)


def _finished(cells: WindowedMoments, features: ArmFeatures) -> WindowedMoments:
    """Cells of [1, x] from cells of [1, what the context map expands to]."""
    context = features.context
    kept = np.arange(cells.dim - 1) if context.kept is None else context.kept
    shift = np.zeros(len(kept)) if context.shift is None else context.shift
    scale = np.ones(len(kept)) if context.scale is None else context.scale
    return cells.rescaled(np.append(0, kept + 1), np.append(0.0, shift), np.append(1.0, scale))


def _logit_weights(features: ArmFeatures, coefficients: Any) -> LogitWeights:
    """θ⁰ as one weight per arm and entry of the whole context."""
    theta = finite_array("logit_at", np.ravel(coefficients), (features.dim,))
    weights = np.zeros((len(features.labels), 1 + features.context.dim))
    for arm, own in enumerate(weights):
        np.add.at(own, features.entries[arm], features.factors[arm] * theta)
    return LogitWeights(features, weights)


@dataclass(frozen=True, eq=False)
class ArmSample:
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
    """At most about `most` rounds spread over the whole log: all of them, or those whose row falls on a fixed lot.

    Which rows are taken depends on their place in the log alone, so the sample is the same every time.

    Parameters
    ----------
    source : path, folder, pattern, list of these, Arrow table, frame, obp dictionary or Log
        Where the rows come from.
    features : ArmFeatures
        As learned by `read_arm_moments`.
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


def with_features(rounds: Rounds, features: ArmFeatures) -> Iterator[Rounds]:
    """Rounds of contexts and arms as rounds of φ(x, a), chosen and offered, a bounded number of them at a time."""
    counts = rounds.offered_counts
    most = int(np.max(counts)) if counts is not None else 1
    step = max(1, CELLS_AT_ONCE // (features.dim * most))
    for start in range(0, len(rounds), step):
        part = rounds.between(start, min(start + step, len(rounds)))
        whole = features.standardise(part.features)
        assert part.arm is not None
        phi = features.cross(whole, part.arm)
        if part.offered_counts is None or part.offered_arms is None:
            yield replace(part, features=phi)
            continue
        offered = features.cross(np.repeat(whole, part.offered_counts, axis=0), part.offered_arms)
        yield replace(part, features=phi, offered=offered)


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
    moments = feature_map.standardise_moments(total.moments)
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
            offered = None if rounds.offered is None else reader.feature_map.standardise(rounds.offered)
            yield replace(rounds, features=reader.feature_map.standardise(rounds.features), offered=offered)


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

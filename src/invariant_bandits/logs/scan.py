"""Scan: one way through a log, which learns features and returns moments."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.features.arm_maps import SAMPLE_ROUNDS, ArmCoefficients
from invariant_bandits.features.arm_moments import ArmMoments, ArmSample
from invariant_bandits.features.collinearity import Dropped
from invariant_bandits.features.columns import Codes
from invariant_bandits.features.maps import FeatureMap, FeatureOptions
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.features.wide_columns import (
    cross_fitted,
    is_wide,
    reduced_columns,
)
from invariant_bandits.logs import reader as readers
from invariant_bandits.logs.aggregation import Aggregate, AggregationPlan, LogitWeights
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.category_effects import code_categories
from invariant_bandits.logs.engines import run_tasks
from invariant_bandits.logs.missing_rewards import MissingWeights
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    AnyFeatures,
    reader_of,
    starting_features,
)
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.spill import RoundSpool
from invariant_bandits.logs.windows import Windows, windows_of
from invariant_bandits.moments.windowed import WindowedMoments

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

Progress: TypeAlias = Callable[[int, int | None, float], None]
"""Called with the rows read so far, all rows if their number is known, and the seconds passed."""


class Learned(NamedTuple):
    """Features that were learned from a log, and what the scan that they were learned from gathered.

    Attributes
    ----------
    features : FeatureMap
        The features.
    dropped : tuple of Dropped
        Features that were left out and why.
    reason : str
        Why arms have coefficients of their own, or share them; empty if there are no arms.
    aggregate : Aggregate
        Moments of encoded features, problems and sampled rounds.
    serving : dict of str to codes
        Codes of categories to decide with, by column.
    """

    features: FeatureMap
    dropped: tuple[Dropped, ...]
    reason: str
    aggregate: Aggregate
    serving: Mapping[str, Codes] = MappingProxyType({})


@dataclass(kw_only=True)
class Scan:
    """One way through a log: which windows, where it is read, and with which demands on its quality.

    A scan that keeps rounds owns their file. A second pass in the same windows reads it in place of the log.

    Parameters
    ----------
    log : Log
        What is read.
    windows : Windows
        Which windows rounds are added to.
    engine : str, distributed.Client or SparkSession
        Where it is read: "local", "dask", "spark", or a cluster that exists.
    address : str or None
        Address of the cluster; None starts one of this machine's processes.
    strict, keep_going : bool
        Whether to refuse any problem; whether to go on although most rounds cannot be used.
    progress : callable, optional
        Called after every task.
    keep_rounds : bool
        Whether the decoded rounds of clicks on labelled arms are kept for `click_moments`.
    fit_levels : callable, optional
        `arm_deviations.fit_levels`: columns with many categories then become effects on the rewards of
        labelled arms. That is for a model alone: what is judged on the same log must not have learned from
        its rewards.
    weights : MissingWeights, optional
        With which rounds stand for those that lack their reward.
    """

    log: Log
    windows: Windows
    engine: Any = "local"
    address: str | None = None
    strict: bool = False
    keep_going: bool = False
    progress: Progress | None = None
    keep_rounds: bool = False
    fit_levels: Callable[..., Any] | None = None
    weights: MissingWeights | None = None
    start: float = field(default_factory=time.perf_counter)
    _kept: RoundSpool | None = field(default=None, init=False, repr=False)

    def run(
        self,
        features: FeatureMap,
        logit: LogitWeights | None = None,
        sample: int = 0,
    ) -> Aggregate:
        """Return moments of all rounds, features encoded, and about `sample` sampled rounds."""
        survey = self.log.survey()
        plan = AggregationPlan(
            reader=reader_of(self.log, features, offered=False),
            windows=self.windows,
            total_rows=survey.total_rows,
            logit=logit,
            share=min(1.0, sample / max(survey.total_rows or 1, 1)),
            spool=self._kept,
            weights=self.weights,
        )
        aggregate = Aggregate(plan)
        for partial in run_tasks(self.engine, self.address, survey.tasks, plan):
            aggregate.add(partial)
            if self.progress is not None and logit is None:
                elapsed = time.perf_counter() - self.start
                self.progress(aggregate.report.rows, plan.total_rows, elapsed)
        return aggregate

    def learn(self, options: FeatureOptions, *, reduce: bool = True) -> Learned:
        """Return features that are learned from the log.

        The log is read twice if only all rows show that missing values of a column need an indicator, and
        once more to reduce wide columns, unless `reduce` is false.
        """
        features = starting_features(self.log, options)
        serving: dict[str, Codes] = {}
        left_out: list[Dropped] = []
        if isinstance(features, ArmCoefficients):
            coded = code_categories(self, features, options.max_categories)
            features, serving, left_out = coded
        aggregate = self._sampled(features)
        indicated = {column.name for column in features.columns if column.marks_missing}
        least = readers.RARE * aggregate.report.rows
        often = []
        for name, count in aggregate.report.imputed.items():
            if name not in indicated and count >= least:
                often.append(name)
        if often:
            features = features.with_missing_indicators(often)
            aggregate = self._sampled(features)
        self.check(aggregate.report)
        if reduce:
            features, aggregate = self._reduced(features, aggregate)
        learned = features.learned(aggregate.moments, options, self.log.catalogue)
        dropped = (*left_out, *learned.dropped)
        return Learned(learned.features, dropped, learned.reason, aggregate, serving)

    def _reduced(
        self, features: FeatureMap, aggregate: Aggregate
    ) -> tuple[FeatureMap, Aggregate]:
        """Return features whose wide columns are reduced, and what a scan with these gathers."""
        of_arms = isinstance(features, ArmCoefficients)
        context = (
            features.context if isinstance(features, ArmCoefficients) else features
        )
        if not isinstance(context, RowFeatures) or not any(
            is_wide(column, of_arms=of_arms) for column in context.columns
        ):
            return features, aggregate
        before = aggregate.moments.chosen
        arms = len(before.count) // self.windows.count
        columns, changes = reduced_columns(
            context.columns, before, arms, of_arms=of_arms
        )
        reduced = RowFeatures(columns, context.interactions, context.centre)
        features = (
            replace(features, context=reduced)
            if isinstance(features, ArmCoefficients)
            else reduced
        )
        again = self._sampled(features)
        # Products of columns do not follow from the moments of the columns.
        if not context.interactions:
            chosen = cross_fitted(before, again.moments.chosen, arms, changes)
            again.moments = replace(again.moments, chosen=chosen)
        return features, again

    def sampled_rounds(self, features: FeatureMap) -> ArmSample:
        """Return rounds spread evenly over the log, of features of pooled arms."""
        sample = self._sampled(features).sample(features)
        assert sample is not None
        return sample

    def _sampled(self, features: FeatureMap) -> Aggregate:
        """Run with a sample of the rounds, and keep all rounds if that is asked for."""
        # Kept rounds have lost their row numbers, by which weights are found.
        keeps = self.keep_rounds and self.weights is None
        if keeps and features.cells > 1 and self.engine == "local":
            self._kept = RoundSpool()
        return self.run(features, sample=features.sample_size)

    def moments(self, features: AnyFeatures) -> LogMoments:
        """Return the moments of the log.

        Parameters
        ----------
        features : FeatureOptions or FeatureMap
            What becomes of the columns; features are learned from options.
        """
        if isinstance(features, FeatureOptions):
            learned = self.learn(features)
        else:
            aggregate = self.run(features)
            self.check(aggregate.report)
            learned = Learned(features, (), "as learned before", aggregate)
        aggregate = learned.aggregate
        features = learned.features
        moments = features.standardise_moments(aggregate.moments)
        of_arms = features.arm_moments(moments, self.windows.edges)
        if of_arms is not None:
            moments = of_arms.of_features()
        return LogMoments(
            moments=replace(moments, edges=self.windows.edges),
            schema=self.log.schema,
            feature_map=features,
            quality=aggregate.report,
            dropped=learned.dropped,
            edges=self.windows.edges,
            arms=self.log.arms if features.labels else None,
            of_arms=of_arms,
            sharing=learned.reason,
            sample=aggregate.sample(features),
            serving=learned.serving,
        )

    def click_moments(self, features: ArmCoefficients, theta: Any) -> ArmMoments:
        """Return moments of clicks, linearised about coefficients θ on the logit scale.

        They are those of one step of iteratively reweighted least squares at θ. Rounds that `moments` kept
        are read in place of the log.

        Parameters
        ----------
        features : ArmCoefficients
            As learned from this log, or from an earlier one.
        theta : array, shape (p,) or (arms, p / arms)
            Coefficients of a logistic regression.
        """
        if self._kept is not None and not self._kept.is_whole:
            self._kept = None
        aggregate = self.run(features, LogitWeights.at(features, theta))
        aggregate.report.check(keep_going=True)
        return ArmMoments(aggregate.moments, features, self.windows.edges)

    def check(self, report: QualityReport) -> None:
        """Raise InputError if the log has more problems than the caller accepts."""
        report.check(strict=self.strict, keep_going=self.keep_going)


@dataclass(frozen=True)
class LogMoments:
    """Moments that were read from a log, and everything needed to say where they came from.

    Parameters
    ----------
    moments : WindowedMoments
        Moments per window of the mapped features.
    schema : Schema
        What the columns mean.
    feature_map : FeatureMap
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
    sharing : str
        Which coefficients arms share and why.
    sample : ArmSample or None
        Of a log with labels and clicks, or of pooled arms: rounds spread over it; None if `features` were
        learned before.
    serving : dict of str to codes
        Codes of categories to decide with, by column.
    """

    moments: WindowedMoments
    schema: Schema
    feature_map: FeatureMap
    quality: QualityReport
    dropped: tuple[Dropped, ...]
    edges: Array | None
    arms: ArmTable | None = None
    of_arms: ArmMoments | None = None
    sharing: str = ""
    sample: ArmSample | None = None
    serving: Mapping[str, Codes] = field(default_factory=dict, repr=False)

    def describe(self) -> str:
        """Schema, quality and features in words."""
        kind = "chosen and offered" if self.moments.offered is not None else "chosen"
        sizes = f"{self.moments.windows} windows, {self.moments.dim} features, moments of {kind} actions"
        lines = [self.schema.describe(), "", self.quality.describe(), sizes]
        if self.of_arms is not None and self.arms is not None:
            lines.append(f"coefficients: {self.sharing}")
            lines += ["", self.arms.describe()]
        lines += [f"left out: {feature}" for feature in self.dropped]
        return "\n".join(lines)


def open_scan(
    log: Log,
    *,
    windows: int | None = None,
    every: Any = None,
    edges: Any = None,
    **demands: Any,
) -> Scan:
    """Return a scan of a log that is cut into windows in at most one way.

    Parameters
    ----------
    log : Log
        What is read.
    windows, every, edges : int, str or number, array, optional
        Number of windows, their length, or the times at which they begin and end.
    demands :
        Further fields of `Scan`.
    """
    if log.schema.one_row_per_action and log.schema.chosen is None:
        raise InputError(
            "schema: chosen is missing; moments are those of chosen actions"
        )
    return Scan(log=log, windows=windows_of(log, windows, every, edges), **demands)


def read_arm_sample(
    log: Log, features: ArmCoefficients, *, most: int = SAMPLE_ROUNDS
) -> ArmSample:
    """Return at most about `most` rounds of labelled arms, spread over the whole log.

    All rounds if they are few, otherwise those that a hash of the row number selects: the same every time.

    Parameters
    ----------
    log : Log
        What is read.
    features : ArmCoefficients
        As `Log.moments` learned them.
    most : int
        How many rounds.
    """
    scan = Scan(log=log, windows=windows_of(log, 1, None, None), keep_going=True)
    aggregate = scan.run(features, sample=whole_number("most", most, 1))
    scan.check(aggregate.report)
    sample = aggregate.sample(features)
    if sample is None:
        raise InputError("the log has no rounds of labelled arms to sample")
    return sample


def read_feature_map(log: Log, options: AnyFeatures | None = None) -> FeatureMap:
    """Return the map that encodes the columns of a log; nothing is scaled or left out.

    Features of labelled arms are learned from the whole log: their contexts are standardised.

    Parameters
    ----------
    log : Log
        What is read.
    options : FeatureOptions, FeatureMap, ArmCoefficients or None
        Interactions, centring, and how many categories a column may have; or a map, which is checked.

    >>> import pyarrow as pa, invariant_bandits as ib
    >>> log = ib.open_log(pa.table({"reward": [1.0, 0.0], "country": ["DE", "FR"]}))
    >>> read_feature_map(log).names
    ('country=DE', 'country=FR')
    """
    options = options or FeatureOptions()
    if log.schema.labelled and isinstance(options, FeatureOptions):
        scan = Scan(log=log, windows=windows_of(log, 1, None, None), keep_going=True)
        return scan.learn(options, reduce=False).features
    return starting_features(log, options)

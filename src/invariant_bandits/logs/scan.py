"""Scan: one way through a log, which learns features and returns moments."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs import reader as readers
from invariant_bandits.logs.aggregation import Aggregate, AggregationPlan, LogitWeights
from invariant_bandits.logs.arm_features import ArmFeatures
from invariant_bandits.logs.arm_moments import ArmMoments, ArmSample
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.collinearity import Dropped
from invariant_bandits.logs.engines import run_tasks
from invariant_bandits.logs.feature_maps import FeatureMap, FeatureOptions
from invariant_bandits.logs.log import Log
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    AnyFeatures,
    Features,
    reader_of,
    starting_features,
)
from invariant_bandits.logs.schema import Schema
from invariant_bandits.logs.spill import RoundSpool
from invariant_bandits.logs.wide_columns import cross_fitted, is_wide, reduced_columns
from invariant_bandits.logs.windows import Windows, windows_of
from invariant_bandits.moments.windowed import WindowedMoments

Progress: TypeAlias = Callable[[int, int | None, float], None]
"""Called with the rows read so far, all rows if their number is known, and the seconds passed."""


class Learned(NamedTuple):
    """Features that were learned from a log, and what the scan that they were learned from gathered.

    Attributes
    ----------
    features : FeatureMap or ArmFeatures
        The features.
    dropped : tuple of Dropped
        Features that were left out and why.
    reason : str
        Why arms have coefficients of their own, or share them; empty if there are no arms.
    aggregate : Aggregate
        Moments of encoded features, problems and sampled rounds.
    """

    features: Features
    dropped: tuple[Dropped, ...]
    reason: str
    aggregate: Aggregate


@dataclass(frozen=True, kw_only=True)
class Scan:
    """One way through a log: which windows, where it is read, and with which demands on its quality.

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
        Whether `moments` also returns the decoded rounds of clicks on labelled arms, for a second scan with
        the same windows.
    """

    log: Log
    windows: Windows
    engine: Any = "local"
    address: str | None = None
    strict: bool = False
    keep_going: bool = False
    progress: Progress | None = None
    keep_rounds: bool = False
    start: float = field(default_factory=time.perf_counter)

    def run(
        self,
        features: Features,
        logit: LogitWeights | None = None,
        sample: int = 0,
        spool: RoundSpool | None = None,
    ) -> Aggregate:
        """Return moments of all rounds, features encoded, and about `sample` sampled rounds.

        InputError if the log is too bad. Rounds are written to `spool`, or read from it if `logit` is given.
        """
        survey = self.log.survey()
        plan = AggregationPlan(
            reader=reader_of(self.log, features, offered=not self.log.schema.labelled),
            windows=self.windows,
            total_rows=survey.total_rows,
            logit=logit,
            share=min(1.0, sample / max(survey.total_rows or 1, 1)),
            spool=spool,
        )
        aggregate = Aggregate(plan)
        for partial in run_tasks(self.engine, self.address, survey.tasks, plan):
            aggregate.add(partial)
            if self.progress is not None:
                elapsed = time.perf_counter() - self.start
                self.progress(aggregate.report.rows, plan.total_rows, elapsed)
        return aggregate

    def learn(self, options: FeatureOptions, *, reduce: bool = True) -> Learned:
        """Return features that are learned from the log.

        The log is read twice if only all rows show that missing values of a column need an indicator, and
        once more to reduce wide columns, unless `reduce` is false.
        """
        features = starting_features(self.log, options)
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
        if isinstance(features, FeatureMap):
            learned, dropped = features.learned(aggregate.moments, options)
            return Learned(learned, tuple(dropped), "", aggregate)
        of_arms, dropped, reason = features.learned(
            aggregate.moments,
            options,
            arm=str(self.log.schema.arm),
            catalogue=self.log.catalogue,
        )
        return Learned(of_arms, tuple(dropped), reason, aggregate)

    def _reduced(
        self, features: Features, aggregate: Aggregate
    ) -> tuple[Features, Aggregate]:
        """Return features whose wide columns are reduced, and what a scan with these gathers."""
        of_arms = isinstance(features, ArmFeatures)
        context = features.context if isinstance(features, ArmFeatures) else features
        if not any(is_wide(column, of_arms=of_arms) for column in context.columns):
            return features, aggregate
        before = aggregate.moments.chosen
        arms = len(before.count) // self.windows.count
        columns, changes = reduced_columns(
            context.columns, before, arms, of_arms=of_arms
        )
        reduced = FeatureMap(columns, context.interactions, context.centre)
        features = (
            replace(features, context=reduced)
            if isinstance(features, ArmFeatures)
            else reduced
        )
        again = self._sampled(features)
        # Products of columns do not follow from the moments of the columns.
        if not context.interactions:
            chosen = cross_fitted(before, again.moments.chosen, arms, changes)
            again.moments = replace(again.moments, chosen=chosen)
        return features, again

    def _sampled(self, features: Features) -> Aggregate:
        """Run with a sample of the rounds, and keep all rounds if that is asked for."""
        if isinstance(features, ArmFeatures) and features.coding == "pooled":
            most = POOLED_NUMBERS // len(features.encoded_names)
            return self.run(features, sample=most)
        keeps = self.keep_rounds and self.log.schema.labelled and self.engine == "local"
        spool = RoundSpool() if keeps else None
        return self.run(features, sample=SAMPLE_ROUNDS, spool=spool)

    def moments(
        self,
        features: AnyFeatures,
        logit: LogitWeights | None = None,
        spool: RoundSpool | None = None,
    ) -> LogMoments:
        """Return the moments of the log.

        Parameters
        ----------
        features : FeatureOptions, FeatureMap or ArmFeatures
            What becomes of the columns; features are learned from options.
        logit : LogitWeights, optional
            Of labelled arms that were learned before: about which coefficients 0/1 rewards are linearised.
        spool : RoundSpool, optional
            Rounds that an earlier scan with the same windows has kept; read in place of the log.
        """
        if isinstance(features, FeatureOptions):
            learned = self.learn(features)
        else:
            kept = spool if spool is not None and spool.is_whole else None
            aggregate = self.run(features, logit, spool=kept)
            self.check(aggregate.report)
            learned = Learned(features, (), "as learned before", aggregate)
        aggregate = learned.aggregate
        features = learned.features
        moments = aggregate.moments
        if logit is None:
            moments = features.standardise_moments(moments)
        of_arms = None
        if isinstance(features, ArmFeatures) and features.coding != "pooled":
            of_arms = ArmMoments(moments, features, self.windows.edges)
            moments = of_arms.of_features()
        read = LogMoments(
            moments=replace(moments, edges=self.windows.edges),
            schema=self.log.schema,
            feature_map=features,
            quality=aggregate.report,
            dropped=learned.dropped,
            edges=self.windows.edges,
        )
        if isinstance(features, FeatureMap):
            return read
        return replace(
            read,
            arms=self.log.arms,
            of_arms=of_arms,
            coding_reason=learned.reason,
            sample=aggregate.sample(features),
            spool=aggregate.spool,
        )

    def check(self, report: QualityReport) -> None:
        """Raise InputError if the log has more problems than the caller accepts."""
        if self.strict:
            report.refuse_problems()
        report.require_rounds(self.keep_going)
        report.require_choices(self.keep_going)


SAMPLE_ROUNDS = 200_000
POOLED_NUMBERS = 50_000_000
"""Sampled rounds of clicks, and numbers in the contexts of sampled rounds of pooled arms, which are all that
is known of these: four million rounds with ten columns.
"""


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
    sample : ArmSample or None
        Of a log with labels and clicks, or of pooled arms: rounds spread over it; None if `features` were
        learned before.
    spool : RoundSpool or None
        Of a log with labels and clicks: the decoded rounds, if the scan was asked to keep them.
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
    sample: ArmSample | None = None
    spool: RoundSpool | None = field(default=None, repr=False)

    def describe(self) -> str:
        """Schema, quality and features in words."""
        kind = "chosen and offered" if self.moments.offered is not None else "chosen"
        sizes = f"{self.moments.windows} windows, {self.moments.dim} features, moments of {kind} actions"
        lines = [self.schema.describe(), "", self.quality.describe(), sizes]
        if self.of_arms is not None and self.arms is not None:
            lines.append(
                f"coefficients: {self.of_arms.features.coding}, {self.coding_reason}"
            )
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
    if sum(value is not None for value in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    if log.schema.one_row_per_action and log.schema.chosen is None:
        raise InputError(
            "schema: chosen is missing; moments are those of chosen actions"
        )
    return Scan(log=log, windows=windows_of(log, windows, every, edges), **demands)

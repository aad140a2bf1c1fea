"""Tasks of a log become partial moments, which are put together in the order of the tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.features.arm_maps import ArmCoefficients
from invariant_bandits.features.arm_moments import ArmSample
from invariant_bandits.features.maps import FeatureMap
from invariant_bandits.logs.missing_rewards import MissingWeights
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    Reader,
    Rounds,
)
from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.spill import RoundSpool
from invariant_bandits.logs.windows import Windows
from invariant_bandits.moments.windowed import WindowedMoments

OUT_OF_ORDER = "out of order in time"
SMALLEST_WEIGHT = 1e-12
"""Least weight π(1 − π) of a click, by which its error is divided: 0 where a prediction is certain."""


@dataclass(frozen=True, eq=False)
class LogitWeights:
    """Coefficients about which 0/1 rewards are linearised on the logit scale.

    Parameters
    ----------
    features : ArmCoefficients
        What becomes of contexts.
    weights : array, shape (arms, 1 + q)
        One coefficient per arm and entry of the whole context.
    """

    features: ArmCoefficients
    weights: Array

    @classmethod
    def at(cls, features: ArmCoefficients, coefficients: Any) -> LogitWeights:
        """Return θ⁰ (p,), or (arms, d), as one weight per arm and entry of the whole context."""
        theta = finite_array("logit_at", np.ravel(coefficients), (features.dim,))
        weights = np.zeros((len(features.labels), 1 + features.context.dim))
        for arm, of_arm in enumerate(weights):
            np.add.at(of_arm, features.entries[arm], features.factors[arm] * theta)
        return cls(features, weights)

    def apply(
        self, encoded: Array, rewards: Array, codes: Array
    ) -> tuple[Array, Array]:
        """Return (√h·[1, x] (n, 1 + q), √h·(u + (r − π)/h) (n,)) with u = φᵀθ⁰, π = σ(u), h = π(1 − π)."""
        from invariant_bandits.logs.kernels import weigh_clicks

        if not are_clicks(rewards):
            raise InputError("rewards must be 0 or 1 on the logit scale")
        kept, shift, scale = self.features.context.standardisation()
        clicks = rewards, codes, self.weights
        weighed: tuple[Array, Array] = weigh_clicks(
            encoded, *clicks, kept + 1, shift, scale, SMALLEST_WEIGHT
        )
        return weighed


def are_clicks(rewards: Array) -> bool:
    """Whether all rewards are 0 or 1."""
    return bool(((rewards == 0.0) | (rewards == 1.0)).all())


@dataclass(frozen=True)
class AggregationPlan:
    """How tasks become moments: of encoded features per window or, of labelled arms, per window and arm.

    Parameters
    ----------
    reader : Reader
        How rounds are read.
    windows : Windows
        Which windows they are added to.
    total_rows : int or None
        Rows of the log; needed where windows are equal shares of them.
    logit : LogitWeights, optional
        Of labelled arms: about which coefficients 0/1 rewards are linearised.
    share : float
        Of labelled arms: which share of the rounds is sampled.
    spool : RoundSpool, optional
        Of labelled arms with clicks: where rounds are written, or read if `logit` is given.
    weights : MissingWeights, optional
        With which rounds stand for those that lack their reward.
    """

    reader: Reader
    windows: Windows
    total_rows: int | None
    logit: LogitWeights | None = None
    share: float = 0.0
    spool: RoundSpool | None = None
    weights: MissingWeights | None = None

    def empty_moments(self) -> WindowedMoments:
        """Return moments of no rounds; window i·A + a holds arm a of A in window i of the log."""
        reader = self.reader
        features = reader.features
        dim = len(features.encoded_names)
        if self.logit is not None:
            dim = 1 + self.logit.features.context.dim
        return WindowedMoments.empty(
            dim,
            self.windows.count * features.cells,
            offered=reader.schema.has_offered and not features.labels,
        )

    def rounds(self, task: Task, partial: Partial) -> Iterator[tuple[Rounds, Array]]:
        """Yield the rounds of a task that lie within the edges, and the window of each (n,)."""
        if self.spool is not None and self.logit is not None:
            for columns, rewards, arms, window in self.spool.read(task):
                partial.report.rounds += len(rewards)
                features = self.reader.encode(columns, len(rewards))
                yield Rounds(task.file, window, features, rewards, arm=arms), window
            return
        for rounds in self.reader.rounds(task, partial.report):
            window = self.windows.index_of(
                task.positions(rounds.rows), rounds.times, self.total_rows
            )
            outside = window < 0
            partial.report.add(
                "outside the window edges", rounds.file, rounds.rows[outside]
            )
            partial.report.rounds -= int(outside.sum())
            rounds = rounds.where(~outside)
            window = window[~outside]
            if len(rounds):
                _note_order(partial, rounds)
                yield rounds, window

    def sample(self, task: Task, rounds: Rounds, window: Array) -> ArmSample | None:
        """Return the rounds that a hash of the row number selects, features encoded; None without arms."""
        from invariant_bandits.logs.kernels import lots

        if not self.share or rounds.arm is None:
            return None
        drawn = lots(task.positions(rounds.rows)) < self.share
        features = rounds.features[drawn]
        arm = rounds.arm[drawn]
        rewards = rounds.rewards[drawn]
        return ArmSample(features, arm, rewards, self.share, window[drawn])

    def add(self, moments: WindowedMoments, rounds: Rounds, window: Array) -> None:
        """Add rounds to the windows (n,) of moments, weighted where rewards are missing."""
        if self.weights is None:
            self._add_equal(moments, rounds, window)
            return
        weights = self.weights.of(rounds)
        # Rounds of one weight are summed, then their sums are multiplied: one sum per group of rows.
        for weight in np.unique(weights):
            same = weights == weight
            part = self.empty_moments()
            self._add_equal(part, rounds.where(same), window[same])
            # Errors are those of independent rounds, so that weights count as what they are worth.
            part.chosen = part.chosen.times(weight * self.weights.efficiency)
            moments.merge_windows(0, part)

    def _add_equal(
        self, moments: WindowedMoments, rounds: Rounds, window: Array
    ) -> None:
        features = rounds.features
        rewards = rounds.rewards
        window = self.reader.features.cell_of(window, rounds.arm)
        if self.logit is not None:
            features, rewards = self.logit.apply(features, rewards, rounds.arm)
        moments.update(
            features,
            rewards,
            window=window,
            offered=rounds.offered,
            offered_counts=rounds.offered_counts,
        )


@dataclass
class Partial:
    """What one task contributes.

    Parameters
    ----------
    report : QualityReport
        Rows read, rounds used, and problems.
    first_window : int
        The window that `moments` begin with.
    moments : WindowedMoments or None
        Moments of the windows that have rounds, in order; None if no round was usable.
    first : tuple of number, str and int, or None
        Time, file and row of the first usable round in the order of the task.
    last_time : number or None
        Time of the last one; times are microseconds if they are dates.
    samples : list of ArmSample or None
        Sampled rounds of labelled arms, features encoded, batch by batch; None without arms.
    """

    report: QualityReport = field(default_factory=QualityReport)
    first_window: int = 0
    moments: WindowedMoments | None = None
    first: tuple[Any, str, int] | None = None
    last_time: Any = None
    samples: list[ArmSample | None] = field(default_factory=list)


def aggregate_task(task: Task, plan: AggregationPlan) -> Partial:
    """Return the moments of one task.

    The same rows in the same batches give the same bits wherever this runs.
    """
    partial = Partial()
    moments = plan.empty_moments()
    spool = None if plan.logit is not None else plan.spool
    with nullcontext() if spool is None else spool.writing(task) as write:
        for rounds, window in plan.rounds(task, partial):
            partial.samples.append(plan.sample(task, rounds, window))
            # A spool holds clicks, for the passes over log-odds.
            is_spooled = rounds.arm is not None and are_clicks(rounds.rewards)
            if spool is not None and not is_spooled:
                spool.give_up()
            elif write is not None:
                write(rounds.columns, rounds.rewards.astype(bool), rounds.arm, window)
            plan.add(moments, rounds, window)
    used = np.flatnonzero(moments.counts)
    if len(used):
        partial.first_window = int(used[0])
        partial.moments = moments.between(int(used[0]), int(used[-1]) + 1)
    return partial


def aggregate_to_bytes(task: Task, plan: AggregationPlan) -> bytes:
    """Run `aggregate_task` for another process and return the partial result, or an input error, as bytes.

    Matrix products run in one thread, as they do in the local engine: their bits depend on it.
    """
    from threadpoolctl import threadpool_limits

    result: Partial | InputError
    try:
        with threadpool_limits(1, user_api="blas"):
            result = aggregate_task(task, plan)
    except InputError as error:
        result = error
    return pickle.dumps(result)


class Aggregate:
    """Partial results put together in the order of their tasks."""

    def __init__(self, plan: AggregationPlan) -> None:
        self.moments = plan.empty_moments()
        self.report = QualityReport()
        self.last_time: Any = None
        self.samples: list[ArmSample | None] = []

    def add(self, partial: Partial) -> None:
        """Add the next partial result."""
        if partial.first is not None:
            time, file, row = partial.first
            if self.last_time is not None and time < self.last_time:
                self.report.add(OUT_OF_ORDER, file, [row])
            self.last_time = partial.last_time
        self.report.merge(partial.report)
        self.samples += partial.samples
        if partial.moments is not None:
            self.moments.merge_windows(partial.first_window, partial.moments)

    def sample(self, features: FeatureMap) -> ArmSample | None:
        """Return the sampled rounds with the contexts z of these features; None without arms."""
        samples = [sample for sample in self.samples if sample is not None]
        if len(samples) < len(self.samples) or not samples:
            return None
        encoded = [features.standardise(sample.contexts) for sample in samples]
        _, arms, rewards, shares, windows = zip(*samples, strict=True)
        codes = np.concatenate(arms)
        contexts = features.own_contexts(np.concatenate(encoded), codes)
        return ArmSample(
            contexts, codes, np.concatenate(rewards), shares[0], np.concatenate(windows)
        )


def _note_order(partial: Partial, rounds: Rounds) -> None:
    """Count the rounds that are earlier than the one before them."""
    if rounds.times is None:
        return
    times = (
        rounds.times.view(np.int64) if rounds.times.dtype.kind == "M" else rounds.times
    )
    before = partial.last_time
    earlier = np.concatenate(
        [[before is not None and times[0] < before], times[1:] < times[:-1]]
    )
    partial.report.add(OUT_OF_ORDER, rounds.file, rounds.rows[earlier])
    partial.first = partial.first or (times[0], rounds.file, int(rounds.rows[0]))
    partial.last_time = times[-1]

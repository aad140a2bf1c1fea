"""The function that every engine runs: a task of the log → the moments of its rounds, and its problems."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array
from invariant_bandits.logs.features import ArmFeatures, has_binary_rewards
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import Reader, Rounds
from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.windows import Windows
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments

OUT_OF_ORDER = "out of order in time"
SMALLEST_WEIGHT = 1e-12


@dataclass(frozen=True, eq=False)
class LogitWeights:
    """Coefficients about which 0/1 rewards are linearised on the logit scale.

    Parameters
    ----------
    features : ArmFeatures
        What becomes of contexts.
    weights : array, shape (arms, 1 + q)
        One coefficient per arm and entry of the whole context.
    """

    features: ArmFeatures
    weights: Array

    @classmethod
    def at(cls, features: ArmFeatures, coefficients: Any) -> LogitWeights:
        """Return θ⁰ (p,), or (arms, d), as one weight per arm and entry of the whole context."""
        theta = finite_array("logit_at", np.ravel(coefficients), (features.dim,))
        weights = np.zeros((len(features.labels), 1 + features.context.dim))
        for arm, own in enumerate(weights):
            np.add.at(own, features.entries[arm], features.factors[arm] * theta)
        return cls(features, weights)

    def apply(self, encoded: Array, rewards: Array, codes: Array) -> tuple[Array, Array]:
        """Return (√h·[1, x] (n, 1 + q), √h·(u + (r − π)/h) (n,)) with u = φᵀθ⁰, π = σ(u), h = π(1 − π)."""
        if ((rewards != 0.0) & (rewards != 1.0)).any():
            raise InputError("rewards must be 0 or 1 on the logit scale")
        whole = self.features.standardise(encoded)
        linear = np.einsum("ij,ij->i", whole, self.weights[codes])
        chance = 0.5 * (1.0 + np.tanh(0.5 * linear))
        root = np.sqrt(np.maximum(chance * (1.0 - chance), SMALLEST_WEIGHT))
        return whole * root[:, None], root * linear + (rewards - chance) / root


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
    """

    reader: Reader
    windows: Windows
    total_rows: int | None
    logit: LogitWeights | None = None

    def empty_moments(self) -> WindowedMoments:
        """Return moments of no rounds; window i·A + a holds arm a of A in window i of the log."""
        reader = self.reader
        dim = len(reader.features.encoded_names)
        if reader.arms is None:
            return WindowedMoments.empty(dim, self.windows.count, offered=reader.schema.has_offered)
        dim = dim if self.logit is None else 1 + self.logit.features.context.dim
        return WindowedMoments.empty(dim, self.windows.count * len(reader.arms))

    def window_of(self, task: Task, rounds: Rounds) -> Array:
        """Return the window of each round (n,); −1 outside the edges."""
        edges, times = self.windows.edges, rounds.times
        if edges is None:
            position = task.position - task.first_row + rounds.rows
            return position * self.windows.count // self.total_rows
        assert times is not None
        window = np.minimum(np.searchsorted(edges, times, side="right") - 1, self.windows.count - 1)
        return np.where(times > edges[-1], -1, window)

    def add(self, moments: WindowedMoments, rounds: Rounds, window: Array) -> None:
        """Add rounds to the windows (n,) of moments."""
        features, rewards, arms = rounds.features, rounds.rewards, self.reader.arms
        if arms is None or rounds.arm is None:
            counts = rounds.offered_counts
            moments.update(features, rewards, window=window, offered=rounds.offered, offered_counts=counts)
            return
        if self.logit is not None:
            features, rewards = self.logit.apply(features, rewards, rounds.arm)
        moments.update(features, rewards, window=window * len(arms) + rounds.arm)


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
    first_time, last_time : number or None
        Times of the first and the last usable round in the order of the task; microseconds if they are dates.
    first_row : int
        Row of the first usable round in `file`.
    file : str
        Path of the file, or a name for what is in memory.
    """

    report: QualityReport = field(default_factory=QualityReport)
    first_window: int = 0
    moments: WindowedMoments | None = None
    first_time: Any = None
    last_time: Any = None
    first_row: int = 0
    file: str = ""

    @classmethod
    def from_bytes(cls, content: bytes) -> Partial:
        """Return what `aggregate_to_bytes` sent, or raise the error that it sent instead."""
        result = pickle.loads(content)  # as Dask and Spark themselves do with what their workers send
        if isinstance(result, InputError):
            raise result
        assert isinstance(result, Partial)
        return result


def aggregate_task(task: Task, plan: AggregationPlan) -> Partial:
    """Return the moments of one task. The same rows in the same batches give the same bits wherever this
    runs.
    """
    partial = Partial()
    moments = plan.empty_moments()
    for rounds in plan.reader.rounds(task, partial.report):
        window = plan.window_of(task, rounds)
        outside = window < 0
        if outside.any():
            partial.report.add("outside the window edges", rounds.file, rounds.rows[outside])
            partial.report.rounds -= int(outside.sum())
            rounds, window = rounds.where(~outside), window[~outside]
        if len(rounds):
            _note_order(partial, rounds)
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

    def add(self, partial: Partial) -> None:
        """Add the next partial result."""
        times = (partial.first_time, self.last_time)
        if None not in times and partial.first_time < self.last_time:
            self.report.add(OUT_OF_ORDER, partial.file, [partial.first_row])
        if partial.last_time is not None:
            self.last_time = partial.last_time
        self.report.merge(partial.report)
        if partial.moments is not None:
            self.moments.merge_windows(partial.first_window, partial.moments)


def _note_order(partial: Partial, rounds: Rounds) -> None:
    """Count the rounds that are earlier than the one before them."""
    if rounds.times is None:
        return
    times = rounds.times.view(np.int64) if rounds.times.dtype.kind == "M" else rounds.times
    before = partial.last_time
    earlier = np.concatenate([[before is not None and times[0] < before], times[1:] < times[:-1]])
    if earlier.any():
        partial.report.add(OUT_OF_ORDER, rounds.file, rounds.rows[earlier])
    if partial.first_time is None:
        partial.first_time, partial.first_row, partial.file = times[0], int(rounds.rows[0]), rounds.file
    partial.last_time = times[-1]


@dataclass(frozen=True, eq=False)
class ArmMoments:
    """Sums over the rounds of m windows in which each of A arms was chosen; shards of the same windows add.

    Parameters
    ----------
    cells : WindowedMoments of m·A windows
        Of whole contexts [1, x] and rewards; window i·A + a holds arm a in window i of the log.
    features : ArmFeatures
        What the contexts are, and what becomes of them.
    edges : array, shape (m + 1,), or None
        Times that bound the windows.

    >>> import numpy as np
    >>> from invariant_bandits.logs.features import Column
    >>> from invariant_bandits.logs.features import FeatureMap
    >>> features = ArmFeatures(FeatureMap((Column("hour"),)), ("a", "b"))
    >>> cells = WindowedMoments.empty(2, 2).update([[1.0, 9.0], [1.0, 7.0]], [1.0, 0.0], window=[0, 1])
    >>> moments = ArmMoments(cells, features)
    >>> moments.rounds, moments.cross[0, 0]
    (array([[1., 1.]]), array([1., 9.]))
    >>> moments.of_features().dim
    4
    """

    cells: WindowedMoments
    features: ArmFeatures
    edges: Any = None

    def __post_init__(self) -> None:
        if self.cells.windows % self.arms:
            raise InputError(f"cells must be windows × {self.arms} arms, got {self.cells.windows}")

    @property
    def arms(self) -> int:
        """Number of arms A."""
        return len(self.features.labels)

    @property
    def windows(self) -> int:
        """Number of windows m."""
        return self.cells.windows // self.arms

    @property
    def rounds(self) -> Array:
        """Rounds (m, A) in which each arm was chosen."""
        return self.cells.counts.reshape(self.windows, self.arms)

    @property
    def gram(self) -> Array:
        """Σ z zᵀ (m, A, d, d)."""
        return self._own_products()[..., :-1, :-1]

    @property
    def cross(self) -> Array:
        """Σ z r (m, A, d)."""
        return self._own_products()[..., :-1, -1]

    def _own_products(self) -> Array:
        """Return Σ [z, r] [z, r]ᵀ (m, A, d + 1, d + 1)."""
        whole = self.cells.chosen.products()
        whole = whole.reshape(self.windows, self.arms, *whole.shape[1:])
        own = np.column_stack([self.features.own_entries, np.full(self.arms, self.cells.dim)])
        return np.stack(
            [whole[:, arm][:, entries[:, None], entries] for arm, entries in enumerate(own)], axis=1
        )

    @property
    def rewards_are_binary(self) -> bool:
        """Whether every reward is 0 or 1."""
        return has_binary_rewards(self.cells)

    def of_features(self) -> WindowedMoments:
        """Return moments of φ(x, a) of the chosen arms, m windows of p features; all powers exact."""
        total = PowerSums.empty(self.windows, self.features.dim + 1)
        for arm in range(self.arms):
            total = total.merged(self._of_arm(arm))
        return WindowedMoments(total, None, self.edges)

    def _of_arm(self, arm: int) -> PowerSums:
        """Return sums of [φ, r] over the rounds of one arm: a feature is an entry of the context times a
        number.
        """
        sums = self.cells.chosen
        entry = np.append(self.features.entries[arm], self.cells.dim)
        factor = np.append(self.features.factors[arm], 1.0)
        rows = slice(arm, None, self.arms)
        return PowerSums(
            count=sums.count[rows],
            mean=sums.mean[rows][:, entry] * factor,
            scatter=sums.scatter[rows][:, entry[:, None], entry] * np.outer(factor, factor),
            cubes=sums.cubes[rows][:, entry] * factor**3,
            quartics=sums.quartics[rows][:, entry] * factor**4,
            between=sums.between[rows][:, entry] * factor**2,
        )

    def __add__(self, other: object) -> ArmMoments:
        """Return moments of two shards of the same windows."""
        if not isinstance(other, ArmMoments):
            return NotImplemented
        return ArmMoments(self.cells + other.cells, self.features, self.edges)

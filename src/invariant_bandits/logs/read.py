"""The questions that can be asked of a log: its schema, its moments, its rounds or its features.

Moments are made task by task by an engine: threads of this process, a Dask cluster, or Spark. An engine does
not know what tasks compute. Dask and Spark themselves run the tasks of lost workers again.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from invariant_bandits.checks import Array, InputError, finite_array, whole_number
from invariant_bandits.logs import reader as readers
from invariant_bandits.logs.arms import ArmTable
from invariant_bandits.logs.external_sort import RoundSpool
from invariant_bandits.logs.features import (
    ArmFeatures,
    Dropped,
    FeatureMap,
    FeatureOptions,
    has_binary_rewards,
)
from invariant_bandits.logs.log import MOST_LEVELS, Log, Windows, open_log, windows_of
from invariant_bandits.logs.quality import QualityReport
from invariant_bandits.logs.reader import (
    AnyFeatures,
    Features,
    Reader,
    Rounds,
    reader_of,
    starting_features,
)
from invariant_bandits.logs.schema import Schema, SchemaLike, named_features
from invariant_bandits.logs.sources import Task
from invariant_bandits.moments.power_sums import PowerSums
from invariant_bandits.moments.windowed import WindowedMoments
from invariant_bandits.optional import pyarrow as pa

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
        Of labelled arms: which share of the rounds is sampled, if all rewards are 0 or 1.
    spool : RoundSpool, optional
        Of labelled arms with clicks: where rounds are written, or read if `logit` is given.
    """

    reader: Reader
    windows: Windows
    total_rows: int | None
    logit: LogitWeights | None = None
    share: float = 0.0
    spool: RoundSpool | None = None

    def empty_moments(self) -> WindowedMoments:
        """Return moments of no rounds; window i·A + a holds arm a of A in window i of the log."""
        reader, dim = self.reader, len(self.reader.features.encoded_names)
        if reader.arms is None:
            return WindowedMoments.empty(
                dim, self.windows.count, offered=reader.schema.has_offered
            )
        dim = dim if self.logit is None else 1 + self.logit.features.context.dim
        return WindowedMoments.empty(
            dim, self.windows.count * (1 if self.is_pooled else len(reader.arms))
        )

    @property
    def is_pooled(self) -> bool:
        """Whether moments are of all arms together, and the sample tells them apart."""
        return (
            isinstance(self.reader.features, ArmFeatures)
            and self.reader.features.coding == "pooled"
        )

    def window_of(self, task: Task, rounds: Rounds) -> Array:
        """Return the window of each round (n,); −1 outside the edges."""
        edges, times = self.windows.edges, rounds.times
        if edges is None or times is None:
            position = task.position - task.first_row + rounds.rows
            return position * self.windows.count // self.total_rows
        window = np.minimum(
            np.searchsorted(edges, times, side="right") - 1, self.windows.count - 1
        )
        return np.where(times > edges[-1], -1, window)

    def rounds(self, task: Task, partial: Partial) -> Iterator[tuple[Rounds, Array]]:
        """Yield the rounds of a task that lie within the edges, and the window of each (n,)."""
        if self.spool is not None and self.logit is not None:
            for columns, rewards, arms, window in self.spool.read(task):
                partial.report.rounds += len(rewards)
                features = self.reader.encode(columns, len(rewards))
                yield Rounds(task.file, window, features, rewards, arm=arms), window
            return
        for rounds in self.reader.rounds(task, partial.report):
            window = self.window_of(task, rounds)
            outside = window < 0
            partial.report.add(
                "outside the window edges", rounds.file, rounds.rows[outside]
            )
            partial.report.rounds -= int(outside.sum())
            rounds, window = rounds.where(~outside), window[~outside]
            if len(rounds):
                _note_order(partial, rounds)
                yield rounds, window

    def sample(self, task: Task, rounds: Rounds, window: Array) -> ArmSample | None:
        """Return the rounds whose row falls on a fixed lot, features encoded, and their windows; None if some
        reward is not a click, unless arms are pooled.
        """
        from invariant_bandits.logs.kernels import lots

        if (
            not self.share
            or rounds.arm is None
            or not (self.is_pooled or are_clicks(rounds.rewards))
        ):
            return None
        drawn = lots(task.position - task.first_row + rounds.rows) < self.share
        features = rounds.features[drawn]
        arm = rounds.arm[drawn]
        rewards = rounds.rewards[drawn]
        return ArmSample(features, arm, rewards, self.share, window[drawn])

    def add(self, moments: WindowedMoments, rounds: Rounds, window: Array) -> None:
        """Add rounds to the windows (n,) of moments."""
        features = rounds.features
        rewards = rounds.rewards
        others = dict[str, Any]()
        if rounds.arm is None:
            others = {
                "offered": rounds.offered,
                "offered_counts": rounds.offered_counts,
            }
        elif not self.is_pooled:
            window = window * len(self.reader.arms) + rounds.arm
        if self.logit is not None:
            features, rewards = self.logit.apply(features, rewards, rounds.arm)
        moments.update(features, rewards, window=window, **others)


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
        Sampled rounds of labelled arms, features encoded, batch by batch; None where some reward is not a
        click.
    """

    report: QualityReport = field(default_factory=QualityReport)
    first_window: int = 0
    moments: WindowedMoments | None = None
    first: tuple[Any, str, int] | None = None
    last_time: Any = None
    samples: list[ArmSample | None] = field(default_factory=list)


def aggregate_task(task: Task, plan: AggregationPlan) -> Partial:
    """Return the moments of one task. The same rows in the same batches give the same bits wherever this
    runs.
    """
    partial = Partial()
    moments = plan.empty_moments()
    spool = None if plan.logit is not None else plan.spool
    with nullcontext() if spool is None else spool.writing(task) as write:
        for rounds, window in plan.rounds(task, partial):
            partial.samples.append(plan.sample(task, rounds, window))
            if spool is not None and partial.samples[-1] is None:
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

    def sample(self, features: ArmFeatures) -> ArmSample | None:
        """Return the sampled rounds with the contexts z of these features; None if not all are clicks."""
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


ENGINES = {"distributed": "dask", "pyspark": "spark"}
"""Packages of clusters, and what the engine is called."""
LOCAL_WORKERS = 2
MOST_THREADS = 8
Function: TypeAlias = Callable[[Task, AggregationPlan], bytes]


def run_tasks(
    engine: Any,
    address: str | None,
    tasks: Sequence[Task],
    plan: AggregationPlan,
    function: Function = aggregate_to_bytes,
) -> Iterator[Partial]:
    """Return the partial results of all tasks in their order.

    Parameters
    ----------
    engine : str, distributed.Client or SparkSession
        "local", "dask" or "spark", or a cluster that is there.
    address : str or None
        Address of the cluster; None starts one of this machine's processes.
    tasks : sequence of Task
        What to read, in the order of the log.
    plan : AggregationPlan
        How tasks become moments.
    function : callable
        What the workers of a cluster run.
    """
    kind = (
        engine
        if isinstance(engine, str)
        else ENGINES.get(type(engine).__module__.partition(".")[0])
    )
    if kind not in ("local", *ENGINES.values()):
        names = "'local', 'dask', 'spark'"
        raise InputError(
            f"engine must be one of {names}, a Client or a SparkSession: {engine!r}"
        )
    if kind == "local":
        if address is not None:
            raise InputError(
                f"address {address!r} was given, but the engine is 'local'"
            )
        return run_in_threads(tasks, plan)
    if not plan.reader.source.in_files:
        raise InputError(
            f"engine {kind!r} reads files, what is in memory is read by 'local'"
        )
    if plan.reader.source.parses:  # what was parsed and divided is on this machine only
        tasks = [replace(task, part=0) for task in tasks if task.part < 2]
    opened = _dask_client(address) if kind == "dask" else _spark_session(address)
    run = _dask_results if kind == "dask" else _spark_results
    cluster = opened if isinstance(engine, str) else nullcontext(engine)
    return _run_on_cluster(cluster, lambda there: run(there, tasks, plan, function))


def run_in_threads(tasks: Sequence[Task], plan: AggregationPlan) -> Iterator[Partial]:
    """Yield partial results in the order of the tasks; no more run than there are threads, so memory is
    bounded.
    """
    from threadpoolctl import threadpool_limits

    able = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )
    threads = min(able, MOST_THREADS)
    waiting: deque[Future[Partial]] = deque()
    # Matrix products of tall, narrow blocks lose far more than they gain by threads of their own beside ours,
    # and with a single one their bits do not depend on how many there are.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                if len(waiting) > threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(aggregate_task, task, plan))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run_on_cluster(
    opened: Any, run: Callable[[Any], Iterator[bytes]]
) -> Iterator[Partial]:
    """Yield the partial results of a cluster, which is closed behind the last if it was opened for them; or
    raise the error that `aggregate_to_bytes` sent instead.
    """
    with opened as cluster:
        for result in map(
            pickle.loads, run(cluster)
        ):  # as Dask and Spark do with what workers send
            if isinstance(result, InputError):
                raise result
            yield result


def _dask_results(
    client: Any, tasks: Sequence[Task], plan: Any, function: Function
) -> Iterator[bytes]:
    # The plan travels once, as the result of a task: if the worker that holds it dies, it is made again.
    shared = client.submit(copy, plan, pure=False)
    futures = [client.submit(function, task, shared, pure=False) for task in tasks]
    try:
        for index, future in enumerate(futures):
            yield future.result()
            futures[index] = None
    finally:
        client.cancel([future for future in futures if future is not None])


@contextmanager
def _dask_client(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at an address, or start one of local processes."""
    import distributed

    library: Any = distributed  # its classes have no types
    if address is None:
        # dashboard_address=None would claim port 8787 on every interface
        where = {
            "dashboard_address": "127.0.0.1:0",
            "host": "127.0.0.1",
            "silence_logs": 50,
        }
        cluster = library.LocalCluster(
            n_workers=LOCAL_WORKERS, threads_per_worker=1, **where
        )
        with cluster, library.Client(cluster) as client:
            yield client
        return
    try:
        client = library.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(
            f"address {address!r} is not that of a Dask scheduler: {error}"
        ) from None
    with client:
        yield client


def _spark_results(
    session: Any, tasks: Sequence[Task], plan: Any, function: Function
) -> Iterator[bytes]:
    indices = session.range(0, len(tasks), 1, len(tasks))
    mapping = functools.partial(_map_partition, list(tasks), plan, function)
    mapped = indices.mapInArrow(mapping, "id long, content binary")
    for row in sorted(mapped.collect(), key=lambda row: int(row["id"])):
        yield bytes(row["content"])


def _map_partition(
    tasks: Sequence[Task],
    plan: AggregationPlan,
    function: Function,
    batches: Iterator[Any],
) -> Iterator[Any]:
    """Run the tasks of a partition of Spark, whose rows are indices of tasks."""
    for batch in batches:
        for index in batch.column(0).to_pylist():
            content = pa.array([function(tasks[index], plan)], type=pa.binary())
            yield pa.RecordBatch.from_arrays(
                [pa.array([index], type=pa.int64()), content], ["id", "content"]
            )


@contextmanager
def _spark_session(address: str | None) -> Iterator[Any]:
    session = open_spark_session(address or f"local[{LOCAL_WORKERS}]")
    try:
        yield session
    finally:
        session.stop()


def open_spark_session(master: str) -> Any:
    """Open a session at a master such as "local[2]" or "spark://127.0.0.1:7077", without a web page.

    Where the master is this machine, everything stays on loopback and the workers run this Python.
    """
    settings: dict[str, Any] = {"spark.ui.enabled": "false"}
    if master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master:
        settings |= dict.fromkeys(
            ("spark.driver.bindAddress", "spark.driver.host"), "127.0.0.1"
        )
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("invariant-bandits")
        return builder.config(map=settings).getOrCreate()
    except Exception as error:
        raise InputError(
            f"Spark could not be started with the master {master!r}: {error}"
        ) from error


Progress: TypeAlias = Callable[[int, int | None, float], None]
"""Called with the rows read so far, all rows if their number is known, and the seconds passed."""


@dataclass(frozen=True)
class Scan:
    """One way through a log: which windows, where it is read, and with which demands on its quality.

    Parameters
    ----------
    log : Log
        What is read.
    windows : Windows
        Which windows rounds are added to.
    engine, address :
        Where it is read: see `run_tasks`.
    strict, keep_going : bool
        Whether to refuse any problem; whether to go on although most rounds cannot be used.
    progress : callable, optional
        Called after every task.
    """

    log: Log
    windows: Windows
    engine: Any = "local"
    address: str | None = None
    strict: bool = False
    keep_going: bool = False
    progress: Progress | None = None
    start: float = field(default_factory=time.perf_counter)

    def run(
        self,
        features: Features,
        logit: LogitWeights | None = None,
        sample: int = 0,
        spool: RoundSpool | None = None,
    ) -> Aggregate:
        """Return the moments of all rounds, features encoded, and about so many sampled rounds; raise
        InputError if the log is too bad.
        """
        survey = self.log.survey()
        reader = reader_of(self.log, features, offered=not self.log.schema.labelled)
        share = min(1.0, sample / max(survey.total_rows or 1, 1))
        plan = AggregationPlan(
            reader, self.windows, survey.total_rows, logit, share, spool
        )
        aggregate = Aggregate(plan)
        for partial in run_tasks(self.engine, self.address, survey.tasks, plan):
            aggregate.add(partial)
            if self.progress is not None:
                self.progress(
                    aggregate.report.rows,
                    plan.total_rows,
                    time.perf_counter() - self.start,
                )
        return aggregate

    def learn(
        self, options: FeatureOptions
    ) -> tuple[Features, tuple[Dropped, ...], str, Aggregate]:
        """Return (learned features, those left out, why arms share slopes or not, moments of encoded
        features).

        The log is read twice if only all rows show that missing values of a column need an indicator.
        """
        features, most = starting_features(self.log, options), SAMPLE_ROUNDS
        spool = self.log.spool if self.engine == "local" else None
        if isinstance(features, ArmFeatures) and features.coding == "pooled":
            most, spool = POOLED_NUMBERS // len(features.encoded_names), None
        aggregate = self.run(features, sample=most, spool=spool)
        indicated = {column.name for column in features.columns if column.marks_missing}
        least = readers.RARE * aggregate.report.rows
        imputed = aggregate.report.imputed
        often = [
            name
            for name, count in imputed.items()
            if name not in indicated and count >= least
        ]
        if often:
            features = features.with_missing_indicators(often)
            aggregate = self.run(features, sample=most, spool=spool)
        self.check(aggregate.report)
        if isinstance(features, FeatureMap):
            learned, dropped = features.learned(aggregate.moments, options)
            return learned, tuple(dropped), "", aggregate
        arm, catalogue = str(self.log.schema.arm), self.log.catalogue
        of_arms, dropped, why = features.learned(
            aggregate.moments, options, arm=arm, catalogue=catalogue
        )
        return of_arms, tuple(dropped), why, aggregate

    def check(self, report: QualityReport) -> None:
        """Raise InputError if the log has more problems than the caller accepts."""
        if self.strict:
            report.refuse_problems()
        report.require_rounds(self.keep_going)
        report.require_choices(self.keep_going)


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
        own = np.column_stack(
            [self.features.own_entries, np.full(self.arms, self.cells.dim)]
        )
        return whole[
            :, np.arange(self.arms)[:, None, None], own[:, :, None], own[:, None, :]
        ]

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
            scatter=sums.scatter[rows][:, entry[:, None], entry]
            * np.outer(factor, factor),
            cubes=sums.cubes[rows][:, entry] * factor**3,
            quartics=sums.quartics[rows][:, entry] * factor**4,
            between=sums.between[rows][:, entry] * factor**2,
        )

    def __add__(self, other: object) -> ArmMoments:
        """Return moments of two shards of the same windows."""
        if not isinstance(other, ArmMoments):
            return NotImplemented
        return ArmMoments(self.cells + other.cells, self.features, self.edges)


SAMPLE_ROUNDS, POOLED_NUMBERS = 200_000, 50_000_000
"""Sampled rounds of clicks, and numbers in the contexts of sampled rounds of pooled arms, which are all that
is known of these: four million rounds with ten columns.
"""


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
    windows : array of int, shape (n,)
        Window of the round.
    """

    contexts: Array
    arms: Array
    rewards: Array
    share: float
    windows: Any = None


def read_arm_sample(
    source: Any,
    features: ArmFeatures,
    schema: SchemaLike = None,
    *,
    most: int = SAMPLE_ROUNDS,
) -> ArmSample:
    """At most about `most` rounds of clicks spread over the whole log: all of them, or those whose row falls
    on a fixed lot.

    Which rows are taken depends on their place in the log alone, so the sample is the same every time.

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
    scan = Scan(log, windows_of(log, 1, None, None), keep_going=True)
    aggregate = scan.run(features, sample=whole_number("most", most, 1))
    scan.check(aggregate.report)
    sample = aggregate.sample(features)
    if sample is None:
        raise InputError("rewards must be 0 or 1 to sample clicks")
    return sample


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
    if sum(value is not None for value in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    schema, options = named_features(schema, features)
    log = open_log(source, schema)
    if log.schema.one_row_per_action and log.schema.chosen is None:
        raise InputError(
            "schema: chosen is missing; moments are those of chosen actions"
        )
    logit = None
    if logit_at is not None:
        if not isinstance(options, ArmFeatures):
            raise InputError(
                "logit_at needs features of labelled arms that were learned before"
            )
        logit = LogitWeights.at(options, logit_at)
    cut = windows_of(log, windows, every, edges)
    scan = Scan(log, cut, engine, address, strict, keep_going, progress)
    if isinstance(options, FeatureMap | ArmFeatures):
        learned = options
        dropped = tuple[Dropped, ...]()
        why = "as learned before"
        whole = logit is not None and log.spool is not None and log.spool.is_whole
        aggregate = scan.run(options, logit, spool=log.spool if whole else None)
        scan.check(aggregate.report)
    else:
        learned, dropped, why, aggregate = scan.learn(options or FeatureOptions())
    moments = (
        aggregate.moments
        if logit is not None
        else learned.standardise_moments(aggregate.moments)
    )
    about = (log.schema, learned, aggregate.report, dropped, cut.edges)
    if isinstance(learned, FeatureMap):
        return LogMoments(replace(moments, edges=cut.edges), *about)
    if learned.coding == "pooled":
        moments = replace(moments, edges=cut.edges)
        return LogMoments(
            moments, *about, log.arms, None, why, aggregate.sample(learned)
        )
    of_arms = ArmMoments(moments, learned, cut.edges)
    return LogMoments(
        of_arms.of_features(), *about, log.arms, of_arms, why, aggregate.sample(learned)
    )


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
    if isinstance(features, ArmFeatures) and len(features.labels) > MOST_LEVELS:
        many = f"the log has {len(features.labels):,} arms"
        raise InputError(
            f"{many}; evaluation reads all that was offered, of at most {MOST_LEVELS} arms"
        )
    reader = reader_of(log, features)
    report = QualityReport() if report is None else report
    batches = (
        rounds for task in log.survey().tasks for rounds in reader.rounds(task, report)
    )
    for rounds in (
        readers.last_rounds(batches, latest)
        if latest is not None and log.schema.labelled
        else batches
    ):
        yield from readers.map_features(rounds, features)


def read_feature_map(
    source: Any, schema: SchemaLike = None, options: AnyFeatures | None = None
) -> Features:
    """Return the map that encodes the columns of a log; nothing is scaled or left out.

    Features of labelled arms are learned from the whole log: their contexts are standardised.

    Parameters
    ----------
    source, schema :
        As in `read_rounds`.
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

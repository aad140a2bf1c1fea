"""Engines: threads of this process, a Dask cluster, or Spark.

An engine does not know what tasks compute. Dask and Spark themselves run the tasks of lost workers again.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias

from invariant_bandits.checks import InputError
from invariant_bandits.logs.aggregation import (
    AggregationPlan,
    Partial,
    aggregate_task,
    aggregate_to_bytes,
)
from invariant_bandits.logs.sources import Task
from invariant_bandits.optional import pyarrow as pa

ENGINES = {"distributed": "dask", "pyspark": "spark"}
"""Packages of clusters, and what the engine is called."""
LOCAL_WORKERS = 2
"""Processes of a cluster that is started on this machine, which is to try a program out."""
MOST_THREADS = 8
"""Every thread holds batches and moments of its own, so memory is bounded by their number."""
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
    kind = engine
    if not isinstance(engine, str):
        kind = ENGINES.get(type(engine).__module__.partition(".")[0])
    if kind not in ("local", *ENGINES.values()):
        raise InputError(
            "engine must be one of 'local', 'dask', 'spark', a Client or a SparkSession: "
            f"{engine!r}"
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
    """Yield partial results in the order of the tasks.

    No more tasks run than there are threads, so memory is bounded.
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
    """Yield the partial results of a cluster, or raise the error that a worker sent instead.

    A cluster that was opened for them is closed behind the last.
    """
    with opened as cluster:
        # As Dask and Spark do with what workers send.
        for result in map(pickle.loads, run(cluster)):
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
        cluster = library.LocalCluster(
            n_workers=LOCAL_WORKERS,
            threads_per_worker=1,
            # None would claim port 8787 on every interface
            dashboard_address="127.0.0.1:0",
            host="127.0.0.1",
            silence_logs=50,
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

"""Where tasks run: in threads of this process, on a Dask cluster, or on Spark.

An engine must not know what its tasks compute. Dask and Spark themselves run the tasks of lost workers
again.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from invariant_bandits.checks import InputError
from invariant_bandits.logs.aggregate import AggregationPlan, Partial, aggregate_task, aggregate_to_bytes
from invariant_bandits.logs.sources import Task
from invariant_bandits.optional import pyarrow as pa

ENGINES = {"distributed": "dask", "pyspark": "spark"}
"""Packages of clusters, and what the engine is called."""
LOCAL_WORKERS = 2
MOST_THREADS = 8
Function: TypeAlias = Callable[[Task, AggregationPlan], bytes]


def run(
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
    kind = engine if isinstance(engine, str) else ENGINES.get(type(engine).__module__.partition(".")[0])
    if kind not in ("local", *ENGINES.values()):
        names = "'local', 'dask', 'spark'"
        raise InputError(f"engine must be one of {names}, a Client or a SparkSession: {engine!r}")
    if kind == "local":
        if address is not None:
            raise InputError(f"address {address!r} was given, but the engine is 'local'")
        return run_in_threads(tasks, plan)
    if not plan.reader.source.in_files:
        raise InputError(
            f"engine {kind!r} reads files that its workers can open; what is in memory is read by 'local'"
        )
    on_cluster = _run_on_dask if kind == "dask" else _run_on_spark
    return on_cluster(None if isinstance(engine, str) else engine, address, tasks, plan, function)


def run_in_threads(tasks: Sequence[Task], plan: AggregationPlan) -> Iterator[Partial]:
    """Yield partial results in the order of the tasks; no more run than there are threads, so memory is
    bounded.
    """
    from threadpoolctl import threadpool_limits

    able = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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


def _run_on_dask(
    client: Any, address: str | None, tasks: Sequence[Task], plan: AggregationPlan, function: Function
) -> Iterator[Partial]:
    if client is None:
        with _dask_client(address) as own:
            yield from _run_on_dask(own, None, tasks, plan, function)
        return
    # The plan travels once, as the result of a task: if the worker that holds it dies, it is made again.
    shared = client.submit(_same, plan, pure=False)
    futures = [client.submit(function, task, shared, pure=False) for task in tasks]
    try:
        for index, future in enumerate(futures):
            yield Partial.from_bytes(future.result())
            futures[index] = None
    finally:
        client.cancel([future for future in futures if future is not None])


def _same(plan: AggregationPlan) -> AggregationPlan:
    return plan


@contextmanager
def _dask_client(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at an address, or start one of local processes."""
    import distributed

    library: Any = distributed  # its classes have no types
    if address is None:
        cluster = library.LocalCluster(
            n_workers=LOCAL_WORKERS,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # None would claim port 8787 on every interface
            host="127.0.0.1",
            silence_logs=50,
        )
        with cluster, library.Client(cluster) as client:
            yield client
        return
    try:
        client = library.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"address {address!r} is not that of a Dask scheduler: {error}") from None
    with client:
        yield client


def _run_on_spark(
    session: Any, address: str | None, tasks: Sequence[Task], plan: AggregationPlan, function: Function
) -> Iterator[Partial]:
    if session is None:
        own = open_spark_session(address or f"local[{LOCAL_WORKERS}]")
        try:
            yield from _run_on_spark(own, None, tasks, plan, function)
        finally:
            own.stop()
        return
    indices = session.range(0, len(tasks), 1, len(tasks))
    mapped = indices.mapInArrow(
        partial(_map_partition, list(tasks), plan, function), "id long, content binary"
    )
    for row in sorted(mapped.collect(), key=lambda row: int(row["id"])):
        yield Partial.from_bytes(bytes(row["content"]))


def _map_partition(
    tasks: Sequence[Task], plan: AggregationPlan, function: Function, batches: Iterator[Any]
) -> Iterator[Any]:
    """Run the tasks of a partition of Spark, whose rows are indices of tasks."""
    for batch in batches:
        for index in batch.column(0).to_pylist():
            content = pa.array([function(tasks[index], plan)], type=pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([index], type=pa.int64()), content], ["id", "content"])


def open_spark_session(master: str) -> Any:
    """Open a session at a master such as "local[2]" or "spark://127.0.0.1:7077", without a web page.

    Where the master is this machine, everything stays on loopback and the workers run this Python.
    """
    is_local = master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master
    wanted = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} if is_local else {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)  # Spark reads them only while it starts
    settings = {"spark.ui.enabled": "false"}
    if is_local:
        settings |= dict.fromkeys(("spark.driver.bindAddress", "spark.driver.host"), "127.0.0.1")
    try:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("invariant-bandits")
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as error:
        raise InputError(f"Spark could not be started with the master {master!r}: {error}") from error
    finally:
        for name in added:
            del os.environ[name]

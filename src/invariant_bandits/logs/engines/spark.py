"""Spark: one task of the log is one partition, mapped by mapInArrow. Lost executors' partitions are run
again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.aggregate import AggregationPlan, Partial, aggregate_to_bytes
from invariant_bandits.logs.sources import Task

LOCAL_MASTER = "local[2]"


def run(
    tasks: Sequence[Task],
    plan: AggregationPlan,
    *,
    session: Any = None,
    address: str | None = None,
    function: Callable[[Task, AggregationPlan], bytes] = aggregate_to_bytes,
) -> Iterator[Partial]:
    """Yield partial results in the order of the tasks from `session`, the master at `address`, or local
    processes.
    """
    if session is not None:
        yield from _parts(session, tasks, plan, function)
        return
    session = open_session(address or LOCAL_MASTER)
    try:
        yield from _parts(session, tasks, plan, function)
    finally:
        session.stop()


def _parts(
    session: Any,
    tasks: Sequence[Task],
    plan: AggregationPlan,
    function: Callable[[Task, AggregationPlan], bytes],
) -> Iterator[Partial]:
    indices = session.range(0, len(tasks), 1, len(tasks))
    mapped = indices.mapInArrow(partial(_aggregate, list(tasks), plan, function), "id long, content binary")
    for row in sorted(mapped.collect(), key=lambda row: int(row["id"])):
        yield Partial.from_bytes(bytes(row["content"]))


def _aggregate(
    tasks: Sequence[Task],
    plan: AggregationPlan,
    function: Callable[[Task, AggregationPlan], bytes],
    batches: Iterator[Any],
) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        for index in batch.column(0).to_pylist():
            content = pa.array([function(tasks[index], plan)], type=pa.binary())
            yield pa.RecordBatch.from_arrays([pa.array([index], type=pa.int64()), content], ["id", "content"])


def open_session(master: str) -> Any:
    """A session of our own at a master such as "local[2]" or "spark://127.0.0.1:7077", without a web page.

    Where the master is this machine, everything stays on loopback and the workers run this Python.
    """
    is_local = master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master
    wanted = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} if is_local else {}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)  # Spark reads them only while it starts
    try:
        from pyspark.sql import SparkSession

        builder = (
            SparkSession.builder.master(master)
            .appName("invariant-bandits")
            .config("spark.ui.enabled", "false")
        )
        if is_local:
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config(
                "spark.driver.host", "127.0.0.1"
            )
        return builder.getOrCreate()
    except Exception as error:
        raise InputError(f"Spark could not be started with the master {master!r}: {error}") from error
    finally:
        for name in added:
            del os.environ[name]

"""Where tasks run: here, on a Dask cluster, or on Spark. Each is a thin adapter with one function, `run`.

An engine must not know what its tasks compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.aggregate import AggregationPlan, Partial
from invariant_bandits.logs.sources import Task

ENGINES = ("local", "dask", "spark")


def run(engine: Any, address: str | None, tasks: Sequence[Task], plan: AggregationPlan) -> Iterator[Partial]:
    """Partial results of all tasks in their order.

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
    """
    kind = engine if isinstance(engine, str) else _kind_of(engine)
    if kind not in ENGINES:
        raise InputError(
            f"engine must be one of {', '.join(map(repr, ENGINES))}, a Client or a SparkSession: {engine!r}"
        )
    if kind == "local":
        if address is not None:
            raise InputError(f"address {address!r} was given, but the engine is 'local'")
        from invariant_bandits.logs.engines import local

        return local.run(tasks, plan)
    if not plan.reader.source.in_files:
        raise InputError(
            f"engine {kind!r} reads files that its workers can open; what is in memory is read by 'local'"
        )
    cluster = None if isinstance(engine, str) else engine
    if kind == "dask":
        from invariant_bandits.logs.engines import dask

        return dask.run(tasks, plan, client=cluster, address=address)
    from invariant_bandits.logs.engines import spark

    return spark.run(tasks, plan, session=cluster, address=address)


def _kind_of(engine: Any) -> str:
    packages = {"distributed": "dask", "pyspark": "spark"}
    return packages.get(type(engine).__module__.partition(".")[0], type(engine).__name__)

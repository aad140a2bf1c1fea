"""A Dask cluster: one task of the log is one task of Dask. Lost workers' tasks are run again by the
scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from invariant_bandits.checks import InputError
from invariant_bandits.logs.aggregate import AggregationPlan, Partial, aggregate_to_bytes
from invariant_bandits.logs.sources import Task

LOCAL_WORKERS = 2


def run(
    tasks: Sequence[Task],
    plan: AggregationPlan,
    *,
    client: Any = None,
    address: str | None = None,
    function: Callable[[Task, AggregationPlan], bytes] = aggregate_to_bytes,
) -> Iterator[Partial]:
    """Yield partial results in the order of the tasks from `client`, the cluster at `address`, or local
    processes.
    """
    if client is not None:
        yield from _parts(client, tasks, plan, function)
        return
    with _connected(address) as own:
        yield from _parts(own, tasks, plan, function)


def _parts(
    client: Any,
    tasks: Sequence[Task],
    plan: AggregationPlan,
    function: Callable[[Task, AggregationPlan], bytes],
) -> Iterator[Partial]:
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


def _connected(address: str | None) -> Any:
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
        return _ClusterAndClient(cluster, library.Client(cluster))
    try:
        return library.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"address {address!r} is not that of a Dask scheduler: {error}") from None


class _ClusterAndClient:
    """A client whose cluster ends with it."""

    def __init__(self, cluster: Any, client: Any) -> None:
        self.cluster, self.client = cluster, client

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *error: object) -> None:
        self.client.close()
        self.cluster.close()

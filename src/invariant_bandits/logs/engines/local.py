"""Threads of this process: pyarrow, BLAS and the compiled sums run side by side, parts arrive in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from invariant_bandits.logs.aggregate import AggregationPlan, Partial, aggregate_task
from invariant_bandits.logs.sources import Task


def run(tasks: Sequence[Task], plan: AggregationPlan) -> Iterator[Partial]:
    """Yield partial results in the order of the tasks; no more run than there are threads, so memory is
    bounded.
    """
    from threadpoolctl import threadpool_limits

    threads = min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8
    )
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

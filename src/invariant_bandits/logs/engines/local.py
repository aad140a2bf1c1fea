"""Threads of this process: pyarrow, BLAS and the compiled sums run side by side, parts arrive in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from invariant_bandits.logs.sources import Task
from invariant_bandits.logs.summary import Part, Plan, summarise


def run(tasks: Sequence[Task], plan: Plan) -> Iterator[Part]:
    """Parts in the order of the tasks; no more of them are begun than there are threads, so memory is bounded."""
    threads = min(os.cpu_count() or 1, len(tasks), 8)
    if threads <= 1:
        yield from (summarise(task, plan) for task in tasks)
        return
    waiting: deque[Future[Part]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in tasks:
                if len(waiting) > threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(summarise, task, plan))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

"""The same function on many items, in forked processes: functions may be closures, and results come as they finish."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def run_all(run: Callable[[Item], Outcome], items: Sequence[Item], jobs: int) -> Iterator[tuple[int, Outcome]]:
    """(index, run(items[index])) for all items, as they are finished; one process where forking is missing."""
    jobs = min(jobs, len(items))
    if jobs <= 1 or "fork" not in multiprocessing.get_all_start_methods():
        for index, item in enumerate(items):
            yield index, run(item)
        return
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=fork, initializer=_begin_worker, initargs=(run,)) as pool:
        with warnings.catch_warnings():  # threads of the caller do no harm: workers use none of their locks
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            waiting = {pool.submit(_run_in_worker, item): index for index, item in enumerate(items)}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(run: Callable[[Any], Any]) -> None:
    """Keep the function that the fork has inherited: nothing of it is ever pickled."""
    global _inherited
    _inherited = run


def _run_in_worker(item: Any) -> Any:
    return _inherited(item)


_inherited: Callable[[Any], Any]

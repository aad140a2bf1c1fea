"""One function over many items: in this process, in forked ones, or on a Dask cluster."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeAlias

Run: TypeAlias = Callable[[Any], Any]
PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux's prctl: which signal a process gets when its parent ends."""


def map_unordered(
    run: Run,
    items: Sequence[Any],
    jobs: int = 1,
    client: Any = None,
) -> Iterator[tuple[int, Any]]:
    """(index, run(item)) of all items, in the order in which they are finished.

    jobs: processes to use; they are forked, so that neither `run` nor the items are pickled, and one is used
    where forking is missing. client: a `distributed.Client` whose cluster does the work instead; items of a
    worker that dies are given to another. An error in one item cancels those that have not begun.
    """
    if client is not None:
        return _on_cluster(run, items, client)
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        return ((index, run(item)) for index, item in enumerate(items))
    return _in_processes(run, items, jobs)


def _in_processes(
    run: Run, items: Sequence[Any], jobs: int
) -> Iterator[tuple[int, Any]]:
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(
        jobs, mp_context=fork, initializer=_begin_worker, initargs=(run, items)
    ) as pool:
        # Threads of the caller do no harm: workers use none of their locks.
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore",
                message=".*multi-threaded, use of fork",
                category=DeprecationWarning,
            )
            futures = {
                pool.submit(_run_in_worker, index): index for index in range(len(items))
            }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            lost = [
                str(items[index])
                for future, index in futures.items()
                if future.exception() is not None
            ]
            more = " …" if len(lost) > 2 * jobs else ""
            error.add_note(
                f"a worker process died; not finished were {', '.join(lost[: 2 * jobs])}{more}"
            )
            raise
        except BaseException as error:
            # Interrupted: do not wait for running items.
            if not isinstance(error, Exception):
                for worker in multiprocessing.active_children():
                    worker.kill()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(run: Run, items: Sequence[Any]) -> None:
    """Keep what the fork has inherited: neither the function nor the items are ever pickled."""
    global _inherited
    _inherited = (run, items)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    end_with_parent()


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends, however it ends; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _run_in_worker(index: int) -> Any:
    run, items = _inherited
    return run(items[index])


_inherited: tuple[Run, Sequence[Any]]


def _on_cluster(
    run: Run, items: Sequence[Any], client: Any
) -> Iterator[tuple[int, Any]]:
    import distributed

    dask: Any = distributed
    waiting = {
        client.submit(run, item, pure=False): index for index, item in enumerate(items)
    }
    try:
        for future in dask.as_completed(list(waiting)):
            index = waiting.pop(future)
            try:
                outcome = future.result()
            except dask.KilledWorker as error:
                error.add_note(f"every worker that was given {items[index]} died")
                raise
            yield index, outcome
    finally:
        client.cancel(list(waiting))

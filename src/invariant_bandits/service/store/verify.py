"""Is every event whole? Seals make it a matter of a second for a million; the rest is followed row by row."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.service.store.base import (
    NOTHING,
    SEALED,
    START,
    Row,
    StoreError,
    Trace,
    check_parts,
    checked,
    hidden,
    index_trace,
    is_whole,
    seal,
    trace,
)
from invariant_bandits.service.store.postgres import Reading, shown

ASKED = "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq"
FEW = 8 * SEALED
"""Stretches of fewer events are checked in this process."""
UNREADABLE = (sqlite3.DatabaseError, TypeError, ValueError, OverflowError)
"""What reading a damaged row can raise."""


Progress = Callable[[int, int], None]


class Found(NamedTuple):
    """What was found: the first damaged stretch, if any, and the traces of the keys of events and of their index."""

    damaged: int | None
    keys: Trace
    indexed: Trace | None = None


def verify(path: Path | str, *, every_row: bool = False, progress: Progress | None = None) -> int:
    """How many events there are, if all are whole; else StoreError names the first that is not.

    Parameters
    ----------
    path : Path or str
        The SQLite file, or the address of a database.
    every_row : bool
        Follow the chain over all rows, not only over those that no seal covers; slower.
    progress : callable
        Called with the number of events that were followed, and of all; with `every_row` only.
    """
    try:
        with _reading(path) as connection:
            ends = check_parts(connection, _shown(path))
            if every_row:
                keys = _rest(connection, path, ends, [], progress)
                _check_index(connection, path, keys, None if isinstance(path, str) else index_trace(connection, True))
                return ends[2]
            stretches = _stretches(connection, path, ends)
        found = _sealed_and_indexed(path, stretches)  # while nothing is open here: it forks
        with _reading(path) as connection:
            if found.damaged is not None:
                start = found.damaged * SEALED
                _name(connection, path, start, ends[1] if start == ends[0] else None)
            keys = found.keys + _rest(connection, path, ends, stretches, progress)
            _check_index(connection, path, keys, found.indexed)
        return ends[2]
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{_shown(path)} is damaged: {error}") from None


def _stretches(connection: Any, path: Path | str, ends: tuple[int, bytes, int]) -> list[int]:
    """Stretches that have to have a seal."""
    stretches = list(range(-(-ends[0] // SEALED), ends[2] // SEALED))
    sealed = connection.execute("SELECT count(*) FROM seals WHERE first >= ?", (ends[0],)).fetchone()[0]
    if len(stretches) != sealed:
        raise StoreError(f"{_shown(path)} is damaged: {len(stretches)} seals are needed, there are {sealed}")
    return stretches


def _rest(
    connection: Any,
    path: Path | str,
    ends: tuple[int, bytes, int],
    stretches: list[int],
    progress: Progress | None,
) -> Trace:
    """Follow the chain where there are no seals; the trace of these keys."""
    first, before, end = ends
    keys = NOTHING
    for start, stop in _unsealed(first, stretches, end):
        for part in range(start, stop, SEALED):
            last = min(part + SEALED, stop)
            keys += _followed(connection, path, part, last, before if part == first else _digest(connection, part - 1))
            if progress is not None:
                progress(last - first, end - first)
    return keys


def _check_index(connection: Any, path: Path | str, keys: Trace, index: Trace | None) -> None:
    """Raise unless an index, where there is one to check, has the trace of the events."""
    if index is not None and index != keys:
        raise StoreError(f"{_shown(path)} is damaged: {hidden(connection)}")


def _unsealed(first: int, stretches: list[int], end: int) -> list[tuple[int, int]]:
    """Ranges of events that no seal covers."""
    if not stretches:
        return [(first, end)]
    return [(first, stretches[0] * SEALED), ((stretches[-1] + 1) * SEALED, end)]


def _shown(path: Path | str) -> str:
    return shown(path) if isinstance(path, str) else str(path)


@contextmanager
def _reading(path: Path | str) -> Iterator[Any]:
    """A connection that only reads, and from a file always the same state."""
    if isinstance(path, str):
        connection: Any = Reading(path)
    else:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10.0)
        connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.close()


def _digest(connection: Any, seq: int) -> bytes:
    found = connection.execute("SELECT body FROM events WHERE seq = ?", (seq,)).fetchone()
    if found is None or not isinstance(found[0], bytes):
        raise StoreError(f"event {seq} is missing or damaged")
    return found[0][-len(START) :]


def _followed(connection: Any, path: Path | str, start: int, stop: int, before: bytes) -> Trace:
    """Follow the chain over rows; the trace of their keys."""
    try:
        rows = connection.execute(ASKED, (start, stop)).fetchall()
        checked((Row(*one) for one in rows), before, start)
        if len(rows) != stop - start:
            raise StoreError(f"event {start + len(rows)} is missing: the store is damaged")
        return trace(rows)
    except UNREADABLE as error:
        if isinstance(error, StoreError):
            raise
        _name(connection, path, start, before)
        raise


# -- seals, in several processes --


def _sealed_and_indexed(path: Path | str, stretches: list[int]) -> Found:
    workers = min(os.cpu_count() or 1, 4)
    if len(stretches) * SEALED <= FEW or workers == 1:
        return _sealed(path, stretches)._replace(indexed=_indexed(path))
    size = -(-len(stretches) // (4 * workers))
    parts = [stretches[start : start + size] for start in range(0, len(stretches), size)]
    with multiprocessing.get_context("fork").Pool(workers, gc.disable) as pool:
        index = pool.apply_async(_indexed, (path,))
        found = pool.starmap(_sealed, [(path, part) for part in parts], chunksize=1)
        damaged = min((one.damaged for one in found if one.damaged is not None), default=None)
        return Found(damaged, sum((one.keys for one in found), NOTHING), index.get() if damaged is None else None)


def _indexed(path: Path | str) -> Trace | None:
    """The trace of the index of a SQLite file."""
    if isinstance(path, str):
        return None
    try:
        with _reading(path) as connection:
            return index_trace(connection)
    except UNREADABLE as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} is damaged: {error}") from None


def _sealed(path: Path | str, stretches: list[int]) -> Found:
    keys = NOTHING
    with _reading(path) as connection:
        for stretch in stretches:
            first = stretch * SEALED
            try:
                known = connection.execute("SELECT digest FROM seals WHERE first = ?", (first,)).fetchone()
                rows = connection.execute(ASKED, (first, first + SEALED)).fetchall()
                whole = len(rows) == SEALED and known is not None and seal(rows) == known[0]
                keys += trace(rows) if whole else NOTHING
            except UNREADABLE:
                whole = False
            if not whole:
                return Found(stretch, keys)
    return Found(None, keys)


def _name(connection: Any, path: Path | str, start: int, before: bytes | None) -> None:
    """Raise with the number of the event that is damaged in the stretch that begins at `start`."""
    digest = _digest(connection, start - 1) if before is None else before
    for seq in range(start, start + SEALED):
        try:
            found = connection.execute(ASKED, (seq, seq + 1)).fetchone()
        except UNREADABLE as error:
            raise StoreError(f"event {seq} is damaged: {error}") from None
        if found is None or found[0] != seq:
            raise StoreError(f"event {seq} is missing: the store is damaged")
        if not is_whole(Row(*found), digest):
            raise StoreError(f"event {seq} is damaged: its checksum does not match its content")
        digest = Row(*found).digest
    raise StoreError(
        f"{_shown(path)} is damaged: the seal of events {start} to {start + SEALED - 1} does not match them"
    )

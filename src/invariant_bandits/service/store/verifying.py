"""Is every event whole? Seals make it a matter of a second for a million; the rest is followed row by row."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, checked, is_whole, seal
from invariant_bandits.service.store.parts import check_parts
from invariant_bandits.service.store.postgres_connection import Reading, shown
from invariant_bandits.service.store.traces import NOTHING, Trace, hidden, index_trace, trace

ASKED = "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq"
FEW = 8 * SEALED
"""Stretches of fewer events are checked in this process."""
UNREADABLE = (sqlite3.DatabaseError, TypeError, ValueError, OverflowError)
"""What reading a damaged row can raise."""


Progress = Callable[[int, int], None]


class Found(NamedTuple):
    """What checking a part has found: the first damaged stretch, if any, and the trace of all keys."""

    damaged: int | None
    keys: Trace


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
    connection = _opened(path)
    try:
        if isinstance(path, str):
            return _verified(connection, path, _ends(connection), every_row, progress)[0]
        connection.execute("BEGIN")
        end, keys = _verified(connection, path, check_parts(connection, path), every_row, progress)
        if keys != index_trace(connection, every_row):
            raise StoreError(f"{path} is damaged: {hidden(connection)}")
        return end
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{_shown(path)} is damaged: {error}") from None
    finally:
        connection.close()


def _verified(
    connection: Any, path: Path | str, ends: tuple[int, bytes, int], every_row: bool, progress: Progress | None
) -> tuple[int, Trace]:
    """Number after the last event, and the trace of all keys, if every event is whole."""
    first, before, end = ends
    stretches = [] if every_row else list(range(-(-first // SEALED), end // SEALED))
    sealed = connection.execute("SELECT count(*) FROM seals WHERE first >= ?", (first,)).fetchone()[0]
    if not every_row and len(stretches) != sealed:
        raise StoreError(f"{_shown(path)} is damaged: {len(stretches)} seals are needed, there are {sealed}")
    found = _checked(path, stretches)
    if found.damaged is not None:
        _name(connection, path, found.damaged * SEALED, before if found.damaged * SEALED == first else None)
    keys = found.keys
    for start, stop in _unsealed(first, stretches, end):
        for part in range(start, stop, SEALED):
            last = min(part + SEALED, stop)
            keys += _followed(connection, path, part, last, before if part == first else _digest(connection, part - 1))
            if progress is not None:
                progress(last - first, end - first)
    return end, keys


def _unsealed(first: int, stretches: list[int], end: int) -> list[tuple[int, int]]:
    """Ranges of events that no seal covers."""
    if not stretches:
        return [(first, end)]
    return [(first, stretches[0] * SEALED), ((stretches[-1] + 1) * SEALED, end)]


def _shown(path: Path | str) -> str:
    return shown(path) if isinstance(path, str) else str(path)


def _opened(path: Path | str) -> Any:
    """A connection that only reads."""
    if isinstance(path, str):
        return Reading(path)
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=10.0)


def _ends(connection: Any) -> tuple[int, bytes, int]:
    """Number of the first event, the digest before it, and the number after the last."""
    cut = connection.execute("SELECT first, before FROM cut").fetchone()
    first, before = (0, START) if cut is None else cut
    (last,) = connection.execute("SELECT max(seq) FROM events").fetchone()
    return first, before, first if last is None else last + 1


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


def _checked(path: Path | str, stretches: list[int]) -> Found:
    workers = min(os.cpu_count() or 1, 4)
    if len(stretches) * SEALED <= FEW or workers == 1:
        return _sealed(path, stretches)
    size = -(-len(stretches) // (2 * workers))
    parts = [stretches[start : start + size] for start in range(0, len(stretches), size)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        found = pool.starmap(_sealed, [(path, part) for part in parts], chunksize=1)
    damaged = min((one.damaged for one in found if one.damaged is not None), default=None)
    return Found(damaged, sum((one.keys for one in found), NOTHING))


def _sealed(path: Path | str, stretches: list[int]) -> Found:
    connection = _opened(path)
    keys = NOTHING
    try:
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
    finally:
        connection.close()
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

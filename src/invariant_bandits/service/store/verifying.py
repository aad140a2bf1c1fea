"""Is every event what it was? Checked before anything is served, on all processors, by seals and then row by row."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from pathlib import Path
from typing import Any

from invariant_bandits.service.store.chain import SEALED, START, Row, StoreError, checked, seal
from invariant_bandits.service.store.postgres_connection import Reading, shown

ASKED = "SELECT seq, batch, key, body FROM events WHERE seq >= ? AND seq < ? ORDER BY seq"
FEW = 8 * SEALED
"""Stretches of fewer events are checked in this process."""


def verify(path: Path | str, *, every_row: bool = False) -> int:
    """How many events there are, if all are whole; else StoreError names the first that is not.

    Parameters
    ----------
    path : Path or str
        The SQLite file, or the address of a database.
    every_row : bool
        Follow the chain over all rows, not only over those that no seal covers; slower.
    """
    connection = _opened(path)
    try:
        first, before, end = _ends(connection)
        sealed = (
            0
            if every_row
            else connection.execute("SELECT count(*) FROM seals WHERE first >= ?", (first,)).fetchone()[0]
        )
        stretches = list(range(-(-first // SEALED), end // SEALED)) if not every_row else []
        if len(stretches) != sealed:
            raise StoreError(f"{_shown(path)} is damaged: {len(stretches)} seals are needed, there are {sealed}")
        damaged = _damaged(path, stretches)
        if damaged is not None:
            _name(connection, path, damaged * SEALED, first, before)
        if not stretches:
            checked((Row(*one) for one in connection.execute(ASKED, (first, end))), before, first)
        else:
            head = stretches[0] * SEALED
            checked((Row(*one) for one in connection.execute(ASKED, (first, head))), before, first)
            tail = (stretches[-1] + 1) * SEALED
            last = connection.execute("SELECT body FROM events WHERE seq = ?", (tail - 1,)).fetchone()[0]
            checked((Row(*one) for one in connection.execute(ASKED, (tail, end))), last[-len(START) :], tail)
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{_shown(path)} is damaged: {error}") from None
    finally:
        connection.close()
    return int(end)


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


def _damaged(path: Path | str, stretches: list[int]) -> int | None:
    """The first stretch whose seal does not fit, if any."""
    workers = min(os.cpu_count() or 1, 4)
    if len(stretches) * SEALED <= FEW or workers == 1:
        return _first_damaged(path, stretches)
    size = -(-len(stretches) // workers)
    parts = [stretches[start : start + size] for start in range(0, len(stretches), size)]
    with multiprocessing.get_context("fork").Pool(len(parts)) as pool:
        found = pool.starmap(_first_damaged, [(path, part) for part in parts])
    return min((one for one in found if one is not None), default=None)


def _first_damaged(path: Path | str, stretches: list[int]) -> int | None:
    connection = _opened(path)
    try:
        for stretch in stretches:
            first = stretch * SEALED
            try:
                known = connection.execute("SELECT digest FROM seals WHERE first = ?", (first,)).fetchone()
                rows = connection.execute(ASKED, (first, first + SEALED)).fetchall()
                whole = known is not None and seal(rows) == known[0]
            except (sqlite3.DatabaseError, StoreError, TypeError, UnicodeError):
                whole = False
            if not whole:
                return stretch
    finally:
        connection.close()
    return None


def _name(connection: Any, path: Path | str, start: int, first: int, before: bytes) -> None:
    """Raise with the number of the event that is damaged in the stretch that begins at `start`."""
    if start > first:
        before = connection.execute("SELECT body FROM events WHERE seq = ?", (start - 1,)).fetchone()[0][-len(START) :]
    checked((Row(*one) for one in connection.execute(ASKED, (start, start + SEALED))), before, start)
    raise StoreError(
        f"{_shown(path)} is damaged: the seal of events {start} to {start + SEALED - 1} does not match them"
    )

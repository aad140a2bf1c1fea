"""Into which windows a log is cut: equal shares of its rows, stretches of the calendar, or between given edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs.decoding import MICROSECONDS, as_utc
from invariant_bandits.logs.log import Log
from invariant_bandits.moments.windows import checked_edges

DEFAULT_WINDOWS = 8
MOST_WINDOWS = 10_000
UNITS = {"min": "m", "h": "h", "d": "D", "w": "W", "mo": "M", "y": "Y"}


@dataclass(frozen=True)
class Windows:
    """How many windows, and the times that bound them, (count + 1,); None if they are equal shares of the rows."""

    count: int
    edges: Array | None = None


def windows_of(log: Log, windows: int | None, every: Any, edges: Any) -> Windows:
    """The windows that were asked for, at most one way; equal shares of the rows if nothing was."""
    if log.schema.time is None and (every is not None or edges is not None):
        raise InputError("schema: time is missing; every and edges need it")
    if edges is not None:
        return _between(_given_edges(edges, log.times_are_dates))
    if every is not None:
        first, last = log.survey(times=True).time_span or (None, None)
        return _between(calendar_edges(every, first, last))
    count = whole_number("windows", windows or DEFAULT_WINDOWS, 1)
    rows = log.survey(rows=True).total_rows or 0
    if count > rows:
        raise InputError(f"windows must be at most the number of rows, {rows}, got {count}")
    return Windows(count)


def _between(edges: Array) -> Windows:
    return Windows(len(edges) - 1, edges)


def _given_edges(edges: Any, dates: bool) -> Array:
    if not dates:
        return checked_edges(edges)
    given = [as_utc(edge) if isinstance(edge, str) else edge for edge in edges]
    try:
        return checked_edges(np.array(given, dtype=MICROSECONDS))
    except (TypeError, ValueError) as error:
        raise InputError(f"edges must be dates because the times are, got {edges!r}: {error}") from None


def calendar_edges(every: Any, first: Any, last: Any) -> Array:
    """Edges of windows of length `every` that cover the times from `first` to `last`.

    Parameters
    ----------
    every : str or number
        "7d", "12h", "30min", "2w", "1mo", "1y" for dates, a number for times that are numbers. Days begin at midnight
        UTC, months on their first day.
    first, last : datetime64 or number
        The earliest and the latest time.

    >>> import numpy as np
    >>> calendar_edges("1mo", np.datetime64("2024-01-20"), np.datetime64("2024-02-03")).astype("datetime64[D]")
    array(['2024-01-01', '2024-02-01', '2024-03-01'], dtype='datetime64[D]')
    """
    if first is None:
        raise InputError("every needs times: the log has no time column, or no usable time in it")
    if not isinstance(first, np.datetime64):
        return _numeric_edges(every, float(first), float(last))
    steps, unit = _calendar_step(every)
    origin, end = (int(time.astype(f"datetime64[{unit}]").astype(np.int64)) for time in (first, last))
    windows = _few_enough(every, (end - origin) // steps + 1)
    edges = origin + steps * np.arange(windows + 1)
    return edges.astype(f"datetime64[{unit}]").astype(MICROSECONDS)


def _calendar_step(every: Any) -> tuple[int, str]:
    """How many of which unit of datetime64."""
    number = str(every).rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(str(every)[len(number) :])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise InputError(f"every must be a whole number and one of {', '.join(UNITS)}, such as '7d', got {every!r}")
    return (7 * int(number), "D") if unit == "W" else (int(number), unit)


def _numeric_edges(every: Any, first: float, last: float) -> Array:
    try:
        step = float(every)
    except (TypeError, ValueError):
        raise InputError(f"every must be a number because the times are numbers, got {every!r}") from None
    if not step > 0.0 or not np.isfinite(step):
        raise InputError(f"every must be positive, got {every!r}")
    windows = _few_enough(every, int((last - first) // step) + 1)
    return np.asarray(first + step * np.arange(windows + 1))


def _few_enough(every: Any, windows: int) -> int:
    if windows > MOST_WINDOWS:
        raise InputError(f"every={every!r} makes {windows:,} windows; at most {MOST_WINDOWS:,} are meant")
    return windows

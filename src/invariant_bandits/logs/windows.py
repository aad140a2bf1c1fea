"""Windows: the periods into which a log is cut.

Everything that decides about them stands here: how many there are, which rows belong to which, which ones are
joined to a neighbour, and how those of a model go on in a new log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invariant_bandits.checks import Array, InputError, whole_number
from invariant_bandits.logs.decode import (
    MICROSECONDS,
    as_utc,
)
from invariant_bandits.moments.batches import checked_edges
from invariant_bandits.moments.windowed import WindowedMoments

if TYPE_CHECKING:
    from invariant_bandits.logs.log import Log

DEFAULT_WINDOWS = 8
"""Enough to tell a drift from noise, and each long enough for a few dozen coefficients in usual logs."""
MOST_WINDOWS = 10_000
"""A year of hours; more windows are a mistake in the unit of `every`."""
UNITS = {"min": "m", "h": "h", "d": "D", "w": "W", "mo": "M", "y": "Y"}
SHORT_END = 0.25
"""Share of the usual rounds below which the first or last window joins its neighbour."""
LONG_NEIGHBOUR = 1.5
"""Share of the usual rounds from which on a neighbour takes none: an end was joined to it before."""


@dataclass(frozen=True)
class Windows:
    """How many windows, and the times that bound them.

    `edges` is (count + 1,), or None if windows are equal shares of the rows.
    """

    count: int
    edges: Array | None

    def index_of(
        self, positions: Array, times: Array | None, total_rows: int | None
    ) -> Array:
        """Return the window of each of n rows (n,); −1 outside the edges.

        Parameters
        ----------
        positions : array of int, shape (n,)
            Positions of the rows in the log.
        times : array, shape (n,), or None
            Their times.
        total_rows : int or None
            Rows of the log; needed where windows are equal shares of them.
        """
        if self.edges is None or times is None:
            return positions * self.count // total_rows
        # A window holds its first edge, and the last window its end as well.
        index = np.searchsorted(self.edges, times, side="right") - 1
        index = np.minimum(index, self.count - 1)
        return np.where(times > self.edges[-1], -1, index)


def windows_of(log: Log, windows: int | None, every: Any, edges: Any) -> Windows:
    """The windows that were asked for, at most one way; equal shares of the rows if nothing was.

    Shares are bounded by times where the log has them, so that the order of its rows does not matter; by
    positions in the log only if it has none, or too few of them differ.
    """
    if sum(value is not None for value in (windows, every, edges)) > 1:
        raise InputError("give only one of windows, every and edges")
    if log.schema.time is None and (every is not None or edges is not None):
        raise InputError(
            "schema: time is missing; every and edges need it: name its column (--time COLUMN)"
        )
    if edges is not None:
        bounds = _requested_edges(edges, log.times_are_dates)
        return Windows(len(bounds) - 1, bounds)
    if every is not None:
        times: Any = log.survey(times=True).times
        periods = calendar_edges(every, times.first, times.last)
        return Windows(len(periods) - 1, periods)
    count = whole_number("windows", windows or DEFAULT_WINDOWS, 1)
    survey = log.survey(rows=True, times=log.schema.time is not None)
    rows = survey.total_rows or 0
    if count > rows:
        raise InputError(
            f"windows must be at most the number of rows, {rows}, got {count}"
        )
    edges = None if survey.times is None else survey.times.equal_shares(count)
    if edges is None and survey.times is not None and not survey.times.in_order:
        raise InputError(
            f"the rows are not in the order of {log.schema.time!r}, and too few times differ for "
            f"{count} windows; ask for fewer, sort the log, or name another column of times "
            "(--time COLUMN)"
        )
    return Windows(count, edges)


def _requested_edges(edges: Any, dates: bool) -> Array:
    if not dates:
        return checked_edges(edges)
    times = [as_utc(edge) if isinstance(edge, str) else edge for edge in edges]
    try:
        return checked_edges(np.array(times, dtype=MICROSECONDS))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"edges must be dates as the times are (--time), got {edges!r}: {error}"
        ) from None


def calendar_edges(every: Any, first: Any, last: Any) -> Array:
    """Edges of windows of length `every` that cover the times from `first` to `last`.

    Parameters
    ----------
    every : str or number
        "7d", "12h", "30min", "2w", "1mo", "1y" for dates, a number for times that are numbers. Days begin at
        midnight UTC, months on their first day.
    first, last : datetime64 or number
        The earliest and the latest time.

    >>> import numpy as np
    >>> first, last = np.datetime64("2024-01-20"), np.datetime64("2024-02-03")
    >>> calendar_edges("1mo", first, last).astype("datetime64[D]")
    array(['2024-01-01', '2024-02-01', '2024-03-01'], dtype='datetime64[D]')
    """
    if first is None:
        raise InputError(
            "every needs times: no usable time was found; name their column (--time COLUMN)"
        )
    if not isinstance(first, np.datetime64):
        step = _positive_step(every)
        begin = float(first)
        windows = _few_enough(every, int((float(last) - begin) // step) + 1)
        return begin + step * np.arange(windows + 1)
    steps, unit = _calendar_step(every)
    origin, end = (
        int(time.astype(f"datetime64[{unit}]").astype(np.int64))
        for time in (first, last)
    )
    windows = _few_enough(every, (end - origin) // steps + 1)
    edges = origin + steps * np.arange(windows + 1)
    return edges.astype(f"datetime64[{unit}]").astype(MICROSECONDS)


def continued_edges(
    edges: Array, first: Any, last: Any, windows: int | None, every: Any
) -> Array:
    """Edges of windows that go on after `edges` (m + 1,) until after `last`.

    Without `windows` or `every` they are as long as those before: whole months if these were, else their
    usual length. They begin where `edges` end or, if `first` lies in the last window, with that window.

    >>> import numpy as np
    >>> january = np.array(["2024-01-01", "2024-01-08", "2024-01-15"], dtype="datetime64[D]")
    >>> continued_edges(january, np.datetime64("2024-01-15"), np.datetime64("2024-01-25"), None, None)
    array(['2024-01-15', '2024-01-22', '2024-01-29'], dtype='datetime64[D]')
    """
    begin = edges[-1:] if first >= edges[-1] else edges[-2:]
    if last <= edges[-1] and len(begin) == 2:
        return begin
    if windows is not None:
        return np.concatenate(
            [begin, _cut(edges[-1], last, whole_number("windows", windows, 1))]
        )
    later = [_step_after(edges, every, 1)]
    while later[-1] <= last:
        later.append(_step_after(edges, every, len(later) + 1))
        _few_enough(every or "as before", len(later))
    return np.concatenate([begin, np.array(later, dtype=edges.dtype)])


def _cut(start: Any, last: Any, windows: int) -> Array:
    """The later edges (windows,) of equal periods from `start` to just after `last`."""
    if isinstance(start, np.datetime64):
        first = start.astype(MICROSECONDS)
        span = (last.astype(MICROSECONDS) - first).astype(np.int64) + 1
        steps = np.ceil(span * np.arange(1, windows + 1) / windows)
        return np.asarray(first + steps.astype("timedelta64[us]"))
    return np.asarray(
        np.nextafter(
            start + (last - start) * np.arange(1, windows + 1) / windows, np.inf
        )
    )


def _step_after(edges: Array, every: Any, steps: int) -> Any:
    """The edge `steps` windows after the last one."""
    end = edges[-1]
    if not isinstance(end, np.datetime64):
        length = (
            float(np.median(np.diff(edges))) if every is None else _positive_step(every)
        )
        return end + steps * length
    months = edges.astype("datetime64[M]")
    if every is None:
        unit = (
            "M"
            if (months.astype(edges.dtype) == edges).all()
            else np.datetime_data(edges.dtype)[0]
        )
        count = int(
            np.median(np.diff(edges.astype(f"datetime64[{unit}]")).astype(np.int64))
        )
    else:
        count, unit = _calendar_step(every)
    aligned = end.astype(f"datetime64[{unit}]")
    if aligned.astype(edges.dtype) != end:
        raise InputError(f"every={every!r} does not fit windows that end at {end}")
    return (aligned + steps * count).astype(edges.dtype)


def _calendar_step(every: Any) -> tuple[int, str]:
    """How many of which unit of datetime64."""
    number = str(every).rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = UNITS.get(str(every)[len(number) :])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise InputError(
            f"every must be a whole number and one of {', '.join(UNITS)}, as '7d', got {every!r}"
        )
    return (7 * int(number), "D") if unit == "W" else (int(number), unit)


def _positive_step(every: Any) -> float:
    try:
        step = float(every)
    except (TypeError, ValueError):
        step = np.nan
    if not 0.0 < step < np.inf:
        raise InputError(
            "every must be a positive number because the times (--time) are numbers, got "
            f"{every!r}"
        )
    return step


def _few_enough(every: Any, windows: int) -> int:
    if windows > MOST_WINDOWS:
        raise InputError(
            f"every={every!r} makes {windows:,} windows; at most {MOST_WINDOWS:,} are meant"
        )
    return windows


def fewest_rounds(dim: int) -> int:
    """Return how many rounds a window needs: three per coefficient, intercept included."""
    return 3 * (dim + 1)


HARDLY_ANY = 10
"""Rounds below which a window is not worth one of its own."""


def join_sparse(moments: WindowedMoments) -> tuple[WindowedMoments, list[str]]:
    """Return moments without windows of hardly any rounds, and a note if some were joined.

    What is hardly any: fewer than ten, if at least two windows have three rounds per coefficient and these
    have most of the rounds; otherwise what is fewer than that. Neighbours are merged from the first window on
    until each has enough rounds; what is left joins the last. At least two windows must remain.
    """
    enough = fewest_rounds(moments.dim)
    counts = moments.counts
    long = counts >= enough
    carried = long.sum() >= 2 and 2.0 * float(counts[long].sum()) >= moments.rounds
    least = min(HARDLY_ANY, enough) if carried else enough
    starts = [0]
    rounds = 0.0
    for window, count in enumerate(counts):
        if rounds >= least:
            starts.append(window)
            rounds = 0.0
        rounds += count
    if rounds < least and len(starts) > 1:
        starts.pop()
    remaining = len(starts)
    if remaining < 2:
        raise InputError(
            f"windows: at least 2 with {least} rounds each are needed for {moments.dim} features, the log"
            f" has {moments.rounds:,} usable rounds in {moments.windows}"
        )
    if remaining == moments.windows:
        return moments, []
    note = (
        f"{int((counts < least).sum())} of {moments.windows} windows had fewer than {least} rounds and were"
        f" joined to a neighbour: {remaining} windows remain"
    )
    return moments.regrouped(np.array(starts)), [note]


def estimable_windows(windows: int, rounds: int, dim: int) -> int:
    """Return how many of the windows asked for can each have the fewest rounds, if that is at least 2."""
    most = rounds // fewest_rounds(dim)
    return most if 2 <= most < whole_number("windows", windows, 2) else windows


class JoinedEnds(NamedTuple):
    """Which windows a log keeps when its short first and last ones have joined their neighbours.

    Attributes
    ----------
    starts : list of int
        The windows that begin a kept one.
    notes : tuple of str
        What was joined; empty if nothing was.
    """

    starts: list[int]
    notes: tuple[str, ...]

    def join(self, moments: WindowedMoments) -> WindowedMoments:
        """Return moments of the kept windows from those of all windows."""
        return moments.regrouped(np.array(self.starts)) if self.notes else moments


def join_short_ends(counts: Array) -> JoinedEnds:
    """Join the first and the last window to their neighbours if they are short.

    A log rarely begins and ends with a whole week: a window of a few rounds at its end is not evidence of a
    period of its own.

    Parameters
    ----------
    counts : array, shape (m,)
        Rounds of every window.
    """
    starts = list(range(len(counts)))
    notes = []
    usual = float(np.median(counts[1:-1])) if len(counts) > 2 else 0.0
    for name, end, neighbour, joined in (("last", -1, -2, -1), ("first", 0, 1, 1)):
        is_short = 0.0 < counts[end] < SHORT_END * usual
        if is_short and len(starts) > 2 and counts[neighbour] < LONG_NEIGHBOUR * usual:
            starts.pop(joined)
            notes.append(
                f"the {name} window has few rounds ({int(counts[end]):,} rounds, others"
                f" {int(usual):,}): it was joined to its neighbour"
            )
    return JoinedEnds(starts, tuple(notes))


def with_new_windows(old: WindowedMoments, new: WindowedMoments) -> WindowedMoments:
    """Return the windows of both; new rounds within the last old window are added to it."""
    if old.edges is None or new.edges is None or new.edges[0] == old.edges[-1]:
        return old.followed_by(new)
    both = old.between(old.windows - 1, old.windows) + new.between(0, 1)
    if old.windows > 1:
        both = old.between(0, old.windows - 1).followed_by(both)
    return both if new.windows == 1 else both.followed_by(new.between(1, new.windows))


def edges_within(moments: WindowedMoments, times: Array, dim: int) -> Array | None:
    """Return edges of windows of some rounds of the log that `moments` are those of, each with enough rounds.

    The edges of `moments` as far as they lie within, and the first and the last time. None if they leave one
    window.

    Parameters
    ----------
    moments : WindowedMoments
        With edges.
    times : array, shape (n,)
        Times of the rounds, in order.
    dim : int
        Number of features.
    """
    assert moments.edges is not None
    least = fewest_rounds(dim)
    chosen = [times[0]]
    for edge in moments.edges:
        before = np.searchsorted(times, edge)
        inside = before - np.searchsorted(times, chosen[-1])
        if times[0] < edge <= times[-1] and min(inside, len(times) - before) >= least:
            chosen.append(edge)
    return np.array([*chosen, times[-1]]) if len(chosen) > 1 else None

"""The time of events: that of the clock, but never backwards, even if the clock is put back."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 1.0
"""Seconds that the clock may be behind before it is taken to have been put back."""


class MonotonicClock:
    """Seconds since 1970 that never decrease, also over a restart.

    While a clock that was put back is behind, time goes on from where it was at its usual pace, so that waits
    end.

    Parameters
    ----------
    clock : callable
        Seconds since 1970.
    latest : float
        Time of the last event.

    >>> time = MonotonicClock(lambda: 100.0, latest=100.5)
    >>> time.now()
    100.5
    """

    def __init__(self, clock: Callable[[], float], latest: float = 0.0) -> None:
        self._clock, self._latest, self._read_at = clock, latest, time.monotonic()

    def now(self) -> float:
        """Return the time."""
        seconds, read_at = self._clock(), time.monotonic()
        if seconds < self._latest - JUMP:
            seconds = self._latest + read_at - self._read_at
        self._read_at = read_at
        self.reach(seconds)
        return self._latest

    def reach(self, moment: float) -> None:
        """The time is this moment, if it is not past it already."""
        self._latest = max(self._latest, moment)

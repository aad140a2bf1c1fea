"""Days and holidays of the United States, from the calendar alone."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array

DAY = np.timedelta64(1, "D")


def days_of(texts: Array) -> Array:
    """Days of texts that begin with year-month-day."""
    return np.asarray([str(text)[:10] for text in texts], dtype="datetime64[D]")


def weekday(day: Array) -> Array:
    """0 for Monday to 6 for Sunday."""
    return np.asarray((day.astype("datetime64[D]").astype(np.int64) + 3) % 7)


def month_and_day(day: Array) -> tuple[Array, Array]:
    """Month from 1 to 12 and day of the month from 1."""
    month = day.astype("datetime64[M]")
    return np.asarray(month.astype(np.int64) % 12 + 1), np.asarray((day - month).astype(np.int64) + 1)


def fixed_holiday(day: Array) -> Array:
    """New Year's Day, Independence Day, Thanksgiving, Christmas Day."""
    month, date = month_and_day(day)
    thanksgiving = (month == 11) & (weekday(day) == 3) & (date >= 22) & (date <= 28)
    return np.asarray(
        (month == 1) & (date == 1) | (month == 7) & (date == 4) | (month == 12) & (date == 25) | thanksgiving
    )


def monday_holiday(day: Array) -> Array:
    """Memorial Day (since 1971 the last Monday of May) and Labor Day, the first one of September."""
    month, date = month_and_day(day)
    monday = (weekday(day) == 0) & (month == 5) & (date >= 25) & (day >= np.datetime64("1971-01-01"))
    before = (month == 5) & (date == 30) & (day < np.datetime64("1971-01-01"))
    return np.asarray(monday | before | (weekday(day) == 0) & (month == 9) & (date <= 7))


def holiday(day: Array) -> Array:
    """Any of them."""
    return np.asarray(fixed_holiday(day) | monday_holiday(day))

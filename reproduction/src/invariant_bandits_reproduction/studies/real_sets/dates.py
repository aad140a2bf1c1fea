"""Days and holidays of the United States, from the calendar alone."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from invariant_bandits.checks import Array

DAY = np.timedelta64(1, "D")
"""The step between dates."""


def days_of(texts: Array) -> Array:
    """Days of texts that begin with year-month-day."""
    return np.asarray([str(text)[:10] for text in texts], dtype="datetime64[D]")


def weekday(day: Array) -> Array:
    """0 for Monday to 6 for Sunday."""
    return (day.astype("datetime64[D]").astype(np.int64) + 3) % 7


def month_and_day(day: Array) -> tuple[Array, Array]:
    """Month from 1 to 12 and day of the month from 1."""
    first = day.astype("datetime64[M]")
    month = first.astype(np.int64) % 12 + 1
    date = (day - first).astype(np.int64) + 1
    return np.asarray(month), np.asarray(date)


def holiday(day: Array) -> Array:
    """Holidays of the United States and Easter Sunday; no quarter of a year is without one."""
    month, date = month_and_day(day)
    # Weekdays and days of the month at once: the third Monday is the one from the 15th to the 21st.
    monday = np.where(weekday(day) == 0, date, 0)
    thursday = np.where(weekday(day) == 3, date, 0)
    # Since 1971 the holidays of February, May and October are Mondays.
    moved = day >= np.datetime64("1971-01-01")
    rule_of_month = {
        1: date == 1,
        2: np.where(moved, np.isin(monday, range(15, 22)), date == 22),
        5: np.where(moved, monday > 31 - 7, date == 30),
        7: date == 4,
        9: np.isin(monday, range(1, 8)),
        10: np.where(moved, np.isin(monday, range(8, 15)), date == 12),
        11: np.isin(thursday, range(22, 29)),
        12: date == 25,
    }
    is_holiday = np.isin(day, _easters(day))
    for number, rule in rule_of_month.items():
        is_holiday |= (month == number) & rule
    return is_holiday


def _easters(day: Array) -> Array:
    """Return the Easter Sundays of the years of these days."""
    easter = import_module("dateutil.easter").easter
    years = np.unique(day.astype("datetime64[Y]")).astype(int) + 1970
    return np.array([easter(int(year)) for year in years], dtype="datetime64[D]")

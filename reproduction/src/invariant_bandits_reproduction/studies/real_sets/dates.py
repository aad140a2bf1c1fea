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
    return np.asarray(month.astype(np.int64) % 12 + 1), np.asarray(
        (day - month).astype(np.int64) + 1
    )


def holiday(day: Array) -> Array:
    """Holidays of the United States and Easter Sunday; no quarter of a year is without one."""
    month, date = month_and_day(day)
    # since then three of them are Mondays
    monday = weekday(day) == 0
    moved = day >= np.datetime64("1971-01-01")
    washington = (month == 2) & np.where(
        moved, monday & (date >= 15) & (date <= 21), date == 22
    )
    memorial = (month == 5) & np.where(moved, monday & (date >= 25), date == 30)
    columbus = (month == 10) & np.where(
        moved, monday & (date >= 8) & (date <= 14), date == 12
    )
    labor = (month == 9) & monday & (date <= 7)
    thanksgiving = (month == 11) & (weekday(day) == 3) & (date >= 22) & (date <= 28)
    fixed = (
        (month == 1) & (date == 1)
        | (month == 7) & (date == 4)
        | (month == 12) & (date == 25)
    )
    return np.asarray(
        fixed
        | washington
        | memorial
        | columbus
        | labor
        | thanksgiving
        | np.isin(day, _easters(day))
    )


def _easters(day: Array) -> Array:
    """Easter Sundays of the years of these days, by Gauss and Meeus."""
    years = np.arange(
        day.min().astype("datetime64[Y]").astype(int),
        day.max().astype("datetime64[Y]").astype(int) + 1,
    )
    year = years + 1970
    golden = year % 19
    century = year // 100
    rest = year % 100
    moon = (
        19 * golden
        + century
        - century // 4
        - (century - (century + 8) // 25 + 1) // 3
        + 15
    ) % 30
    sunday = (32 + 2 * (century % 4) + 2 * (rest // 4) - moon - rest % 4) % 7
    late = moon + sunday - 7 * ((golden + 11 * moon + 22 * sunday) // 451) + 114
    march = (
        (years * 12 + late // 31 - 1).astype("datetime64[M]").astype("datetime64[D]")
    )
    return np.asarray(march + (late % 31) * DAY)

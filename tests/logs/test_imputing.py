"""Missing values are filled in and marked, counted by column, and mean the same when serving."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import invariant_bandits as ib
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.logs.reader import RARE
from log_tables import lists_of_offered, planted_log, rows_per_action
from reading import read_moments

ROUNDS = 6000
MISSING = {"price": 0.3, "age": 0.3, "country": 0.3}
EFFECT = 2.0


def gappy(seed=0, rounds=ROUNDS, first_gap=0):
    """(table, truth): 30 % missing in each of three columns from `first_gap` on; a missing price raises
    the reward.
    """
    rng = np.random.default_rng(seed)
    price, age = rng.normal(50.0, 10.0, rounds), rng.normal(40.0, 5.0, rounds)
    country = rng.choice(["DE", "FR"], rounds)
    gone = {
        name: (rng.random(rounds) < share) & (np.arange(rounds) >= first_gap)
        for name, share in MISSING.items()
    }
    reward = (
        0.1 * price
        - 0.2 * age
        + 1.0 * (country == "FR")
        + EFFECT * gone["price"]
        + rng.normal(size=rounds)
    )
    columns = {
        "reward": pa.array(reward),
        "price": pa.array(price, mask=gone["price"]),
        "age": pa.array(np.where(gone["age"], np.nan, age)),
        "country": pa.array(country, mask=gone["country"]),
    }
    return pa.table(columns), gone


def test_no_round_is_lost_and_what_was_planted_is_found():
    table, gone = gappy()
    model = ib.fit_logs(table, {"arm": None}, policy="linucb", windows=4)
    assert (model.quality.rounds, model.quality.left_out) == (ROUNDS, 0)
    assert model.quality.imputed == {
        name: int(mask.sum()) for name, mask in gone.items()
    }
    names = (
        "price",
        "price missing",
        "age",
        "age missing",
        "country=DE",
        "country missing",
    )
    assert model.names == names
    moments = model.moments
    estimate = np.linalg.solve(moments.gram.sum(axis=0), moments.cross.sum(axis=0))
    truth = {"price": 0.1, "age": -0.2, "price missing": EFFECT, "age missing": 0.0}
    fillers = {
        column.name: column.filler[0] for column in model.feature_map.columns[:2]
    }
    truth["price missing"] += 0.1 * (50.0 - fillers["price"])
    truth["age missing"] -= 0.2 * (40.0 - fillers["age"])
    covariance = (
        np.linalg.inv(moments.gram.sum(axis=0)) * 1.7
    )  # noise and what the gaps hide
    for name, value in truth.items():
        place = names.index(name)
        assert abs(estimate[place] - value) < 4.0 * np.sqrt(
            covariance[place, place]
        )  # fails for 1 seed in 4,000


def test_rounds_are_left_out_where_filling_in_is_not_wanted():
    table, gone = gappy()
    options = ib.FeatureOptions(impute=False)
    with pytest.raises(ib.InputError, match="most rounds of the log cannot be used"):
        read_moments(table, windows=1, features=options)
    read = read_moments(table, windows=1, features=options, keep_going=True)
    whole = ~(gone["price"] | gone["age"] | gone["country"])
    assert read.quality.rounds == whole.sum() < 0.4 * ROUNDS
    assert read.feature_map.names == ("price", "age", "country=DE")


@pytest.mark.parametrize("in_files", [True, False])
def test_gaps_that_begin_after_the_first_rows_are_marked_all_the_same(
    in_files, tmp_path
):
    late, _ = gappy(first_gap=3000)
    pq.write_table(late, tmp_path / "log.parquet", row_group_size=700)
    read = read_moments(tmp_path / "log.parquet" if in_files else late, windows=2)
    assert {"price missing", "age missing"} <= set(read.feature_map.encoded_names)
    assert read.quality.rows == ROUNDS


def test_rare_gaps_are_filled_without_a_mark():
    table, _ = gappy()
    price = np.random.default_rng(1).normal(50.0, 10.0, ROUNDS)
    price[: int(RARE * ROUNDS) - 1] = np.nan
    table = table.select(["reward", "age"]).append_column("price", pa.array(price))
    whole = read_moments(table.slice(1000), windows=2)
    assert "price missing" not in whole.feature_map.names
    assert whole.quality.rounds == ROUNDS - 1000


def test_a_missing_value_when_serving_is_the_stored_one(tmp_path):
    model = ib.fit_logs(gappy()[0], {"arm": None}, policy="linucb", windows=4)
    model.save(tmp_path / "model")
    model = ib.Model.load(tmp_path / "model")
    price = next(
        column for column in model.feature_map.columns if column.name == "price"
    )
    offered = {
        "price": [None, price.filler[0]],
        "age": [40.0, float("nan")],
        "country": [None, "DE"],
    }
    features = dict(zip(model.names, model.feature_map.encode(offered).T, strict=False))
    np.testing.assert_array_equal(features["price"], [price.filler[0]] * 2)
    np.testing.assert_array_equal(features["price missing"], [1.0, 0.0])
    assert (
        abs(features["country=DE"][0] - 0.5) < 0.05
    )  # the share of DE, not the category that was left out
    assert features["country=DE"][1] == 1.0
    assert model.select(offered) in (0, 1)
    mean = model.scores(
        {"price": [None, 50.0], "age": [40.0, 40.0], "country": ["FR", "FR"]}
    ).mean
    assert abs(mean[0] - mean[1] - EFFECT) < 0.2  # the standard error is 0.04


def test_a_map_of_a_whole_log_has_a_value_for_a_gap_too():
    whole = ib.fit_logs(
        gappy(first_gap=ROUNDS)[0], {"arm": None}, policy="linucb", windows=4
    )
    assert whole.quality.clean
    assert whole.names == ("price", "age", "country=DE")
    (filled,) = whole.feature_map.encode(
        {"price": [None], "age": [40.0], "country": ["DE"]}
    )
    assert (
        abs(filled[0] - 50.0) < 1.5
    )  # the mean of the first 1,000 rows, whose standard error is 0.32


def test_gaps_among_offered_actions_are_filled_in_both_forms():
    log = planted_log(3, 400)
    rows = rows_per_action(log)
    gaps = np.random.default_rng(0).random(len(rows)) < 0.2
    x1 = np.where(gaps, np.nan, log.offered[:, 1])
    rows = rows.set_column(
        rows.schema.get_field_index("x1"), "x1", pa.array(x1, from_pandas=True)
    )
    read = read_moments(rows, windows=1)
    assert read.quality.rounds == 400
    assert read.quality.imputed == {"x1": int(gaps.sum())}
    vectors = [
        [None if np.isnan(v) else v for v in row]
        for row in np.column_stack([log.offered[:, 0], x1])
    ]
    offered = [
        vectors[start : start + count]
        for start, count in zip(log.starts, log.counts, strict=True)
    ]
    lists = (
        lists_of_offered(log)
        .drop_columns(["offered", "offered_rewards"])
        .append_column("offered", [offered])
    )
    again = read_moments(lists, windows=1)
    of_round = np.logical_or.reduceat(gaps, log.starts)
    assert again.quality.rounds == 400
    assert again.quality.imputed == {"offered": int(of_round.sum())}
    assert again.feature_map.names == ("offered[0]", "offered[1]", "offered missing")
    places = [read.feature_map.names.index(name) for name in ("x0", "x1", "x1 missing")]
    np.testing.assert_allclose(
        again.moments.gram[0], read.moments.gram[0][np.ix_(places, places)], rtol=1e-9
    )


def test_a_column_without_a_filler_passes_nothing_on_as_if_it_were_known():
    assert np.isnan(RowFeatures((Column("price"),)).design({"price": [None]})).all()


def test_a_column_that_half_of_the_log_lacks_does_not_explain_the_rewards():
    """Clicks by chance: rounding of the filled-in half once counted as an exact function of the features."""
    rng = np.random.default_rng(0)
    rounds, half = 3000, 1500
    colour = rng.choice(["red", "blue"], rounds)
    first = [*colour[:half], *[None] * half]
    second = [*[None] * half, *colour[half:]]
    log = pa.table(
        {
            "arm": rng.choice(["a", "b", "c"], rounds),
            "age": rng.normal(40.0, 10.0, rounds).round(),
            "colour": pa.array(first, pa.string()),
            "shade": pa.array(second, pa.string()),
            "clicked": (rng.random(rounds) < 0.4).astype(int),
        }
    )
    model = ib.fit_logs(log)
    assert not any("exact function" in note for note in model.notes)
    assert model.notes  # others are there

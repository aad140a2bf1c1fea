"""Columns as they are called in the wild: rewards, propensities, times, labels, identifiers."""

import numpy as np
import pandas
import pyarrow as pa
import pytest

from reading import read_schema

RNG = np.random.default_rng(0)
N = 200


def log_with(**columns):
    base = {"x": RNG.normal(size=N), "reward": RNG.random(N)}
    return pa.table({**{name: base[name] for name in base if columns.get(name, 0) is not None}, **{
        name: values for name, values in columns.items() if values is not None
    }})  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "reward",
        "revenue",
        "purchase",
        "rating",
        "is_click",
        "converted",
        "y",
        "Click",
        "conversion",
    ],
)
def test_rewards(name):
    assert (
        read_schema(log_with(**({"reward": None} | {name: RNG.random(N)}))).reward
        == name
    )


@pytest.mark.parametrize(
    "name", ["propensity", "propensity_score", "pscore", "logging_prob", "p", "prob"]
)
def test_propensities_by_name_and_values(name):
    assert read_schema(log_with(**{name: RNG.uniform(0.1, 1.0, N)})).propensity == name
    schema = read_schema(log_with(**{name: RNG.normal(50.0, 10.0, N)}))
    assert schema.propensity is None
    assert name in schema.features


@pytest.mark.parametrize(
    "name",
    [
        "action",
        "arm",
        "banner",
        "variant",
        "treatment",
        "offer",
        "creative",
        "item_id",
        "item",
        "ad",
        "policy",
    ],
)
@pytest.mark.parametrize(
    "labels", [["a", "b", "c"], [10, 20, 30]], ids=["text", "numbers"]
)
def test_labels_of_arms(name, labels):
    schema = read_schema(log_with(**{name: RNG.choice(labels, N)}))
    assert schema.arm == name
    assert schema.features == ("x",)
    assert schema.has_offered


def test_measurements_and_identifiers_are_no_labels():
    assert read_schema(log_with(offer=RNG.normal(size=N))).arm is None
    assert read_schema(log_with(item_id=np.arange(N))).arm is None


def test_what_is_told_about_the_label_counts_more_than_its_name():
    table = log_with(
        action=RNG.choice(["a", "b"], N), segment=RNG.choice(["s", "t"], N)
    )
    assert read_schema(table, {"arm": "segment"}).arm == "segment"
    assert read_schema(table, {"action": "segment"}).arm == "segment"
    for told in ({"arm": None}, {"action": None}):
        schema = read_schema(table, told)
        assert schema.arm is None
        assert "action" in schema.features


def test_columns_that_only_identify_or_count_are_ignored():
    frame = pandas.DataFrame(
        {"userId": np.arange(N), "sessionID": np.arange(N), "paid": RNG.random(N)}
    )
    frame["reward"] = RNG.random(N)
    with_index = frame.reset_index(names="")
    schema = read_schema(with_index)
    assert schema.features == ("paid",)
    assert "it only counts the rows" in schema.describe()
    assert read_schema(frame.reset_index(names="Unnamed: 0")).features == ("paid",)
    assert read_schema(
        pandas.DataFrame({"Unnamed: 0": RNG.random(N), "reward": RNG.random(N)})
    ).features


def test_the_open_bandit_dataset_is_taken_for_what_it_is(tmp_path):
    """Its columns, as pandas writes them: an unnamed index first."""
    users = RNG.choice(["cef3390e", "03a5648a", "7bc94a2d"], (N, 2))
    frame = pandas.DataFrame(
        {
            "timestamp": pandas.date_range(
                "2019-11-24", periods=N, freq="min", tz="UTC"
            ),
            "item_id": RNG.integers(0, 5, N),
            "position": RNG.integers(1, 4, N),
            "click": (RNG.random(N) < 0.1).astype(int),
            "propensity_score": np.full(N, 0.2),
            "user_feature_0": users[:, 0],
            "user_feature_1": users[:, 1],
            **{
                f"user-item_affinity_{item}": RNG.poisson(0.3, N).astype(float)
                for item in range(5)
            },
        }
    )
    frame.to_csv(tmp_path / "log.csv")
    schema = read_schema(tmp_path / "log.csv")
    assert (schema.time, schema.arm, schema.position) == (
        "timestamp",
        "item_id",
        "position",
    )
    assert (schema.reward, schema.propensity) == ("click", "propensity_score")
    assert schema.features == (
        "user_feature_0",
        "user_feature_1",
        *(f"user-item_affinity_{i}" for i in range(5)),
    )

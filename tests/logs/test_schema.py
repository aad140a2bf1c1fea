"""Schemas: inferred with reasons, shown, overridden, and refused when they do not fit the log."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import FileError, InputError
from invariant_bandits.logs.roles import infer_schema
from invariant_bandits.logs.schema import Schema, toml_overrides
from log_tables import lists_of_offered, planted_log, rows_per_action, wide
from reading import read_schema

LOG = planted_log(seed=6, rounds=30)


def test_roles_are_found_by_names_and_types():
    assert read_schema(wide(LOG)) == Schema("reward", ("x0", "x1", "x2"), time="time")
    assert read_schema(rows_per_action(LOG)) == Schema(
        "reward",
        ("x0", "x1", "x2"),
        time="time",
        round="round_id",
        chosen="chosen",
        propensity="propensity",
    )
    assert read_schema(lists_of_offered(LOG)) == Schema(
        "reward",
        time="time",
        action="action",
        propensity="propensity",
        offered="offered",
        rewards="offered_rewards",
    )


def test_a_log_of_somebody_else_is_understood():
    table = pa.table(
        {
            "user_id": np.arange(200),
            "time_hour": np.datetime64("2013-01-01", "us")
            + np.arange(200).astype("timedelta64[h]"),
            "day": np.arange(200) // 24,
            "carrier": ["AA", "AA", "UA", "UA"] * 50,
            "tail": [f"N{index}" for index in range(200)],
            "Clicked": [True, False] * 100,
            "price": np.arange(200.0),
        }
    )
    schema = read_schema(table)
    assert schema == Schema(
        "Clicked",
        ("day", "carrier", "price"),
        time="time_hour",
        categorical=("carrier",),
    )
    shown = schema.describe()
    assert "categories  carrier    string, 2 different in the first 200 rows" in shown
    assert "ignored     user_id    its name says that it only identifies" in shown
    assert "ignored     tail       string is not a number and has many values" in shown


def test_what_is_told_counts_more_than_names():
    table = wide(LOG).append_column("profit", pa.array(LOG.rewards))
    schema = read_schema(
        table, {"reward": "profit", "time": None, "features": ["x[01]"]}
    )
    assert schema == Schema("profit", ("x0", "x1"))
    assert "reward      profit  as given" in schema.describe()


def test_patterns_never_match_columns_that_have_a_role():
    schema = Schema("x0", ("x*",)).resolved(wide(LOG).schema)
    assert schema.features == ("x1", "x2")


def test_a_toml_file_is_a_schema(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(
        'reward = "r"\ntime = "ts"\nfeatures = ["x*", "country"]\ncategorical = ["country"]\n'
    )
    assert Schema(**toml_overrides(path)) == Schema(
        "r", ("x*", "country"), time="ts", categorical=("country",)
    )


def test_a_toml_file_may_say_a_part_and_the_rest_is_inferred(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text('features = ["x0", "x2"]\n')
    assert read_schema(wide(LOG), path) == Schema("reward", ("x0", "x2"), time="time")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward = 'r'\ncolour = 'red'", "'colour' is not part of a schema"),
        ("reward = 5", "reward must be a column name, got 5"),
        ("reward = 'r'\nfeatures = 'x'", "features must be a list of patterns"),
        (
            "reward = 'r'\nfull_information = 1",
            "full_information must be true or false",
        ),
        ("reward = ", "is not readable as TOML"),
    ],
)
def test_a_toml_file_that_is_no_schema_is_named(text, message, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Schema(**toml_overrides(path))


def test_a_missing_toml_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"nothing\.toml"):
        toml_overrides(tmp_path / "nothing.toml")


BAD = {
    "no reward": ("no column was found to be the reward.*\n  --reward a  2 different", lambda: read_schema(pa.table({"a": [1, 3], "b": [2, 2]}))),
    "a missing column": ("time column 'when' is not in the log", lambda: Schema("reward", ("x*",), time="when")),
    "a pattern of nothing": ("'z\\*' match no column", lambda: Schema("reward", ("z*",))),
    "no such feature": ("'time' is not among the features", lambda: Schema("reward", ["x*"], categorical=["time"])),
    "no features": ("features are missing", lambda: Schema("reward")),
    "features as text": ("features must be a list", lambda: Schema("reward", "x*")),
    "two forms": ("exclude each other", lambda: Schema("r", offered="o", action="a", chosen="c", round="i")),
    "features twice": ("exclude each other", lambda: Schema("r", ("x",), offered="o", action="a")),
    "chosen without rounds": ("identifies rounds: round", lambda: Schema("r", ("x",), chosen="c")),
    "offered without action": ("chosen action: action", lambda: Schema("r", offered="o")),
    "an unknown role": ("'colour' is not part", lambda: infer_schema(wide(LOG).schema, wide(LOG), colour="red")),
}  # fmt: skip


@pytest.mark.parametrize(("message", "make"), BAD.values(), ids=BAD.keys())
def test_a_schema_that_does_not_fit_is_named(message, make):
    with pytest.raises(InputError, match=message):
        make().resolved(wide(LOG).schema)


def test_columns_that_need_others_are_not_taken_without_them():
    table = lists_of_offered(LOG).drop(["action"])
    with pytest.raises(InputError, match="features are missing"):
        read_schema(table.drop(["offered_rewards"]))
    shown = read_schema(rows_per_action(LOG).drop(["round_id"])).describe()
    assert "could be chosen, but it needs a round column" in shown


def test_plain_values_rebuild_the_schema():
    schema = read_schema(rows_per_action(LOG))
    assert Schema(**schema.to_dict()) == schema


def clicks(rounds=2000):
    rng = np.random.default_rng(1)
    shown = rng.integers(2, size=rounds)
    age = rng.normal(size=rounds)
    good = (rng.random(rounds) < 0.3 + 0.2 * shown).astype(float)
    return pa.table(
        {
            "served": 1_700_000_000 + 60 * np.arange(rounds),
            "shown": np.array(["a", "b"])[shown],
            "chance": np.full(rounds, 0.5),
            "age": age,
            "good": good,
        }
    )


ROLES_OF_CLICKS = {
    "reward": "good",
    "arm": "shown",
    "time": "served",
    "propensity": "chance",
}


def test_roles_by_keyword_are_the_roles_of_a_schema():
    log = clicks()
    opened = ib.open_log(log, **ROLES_OF_CLICKS)
    assert opened.schema == ib.open_log(log, ROLES_OF_CLICKS).schema
    assert opened.schema.roles() == ROLES_OF_CLICKS
    mixed = ib.open_log(
        log, {"arm": "shown", "reward": "good"}, reward="good", time=None
    )
    assert mixed.schema.arm == "shown"
    assert mixed.schema.time is None
    model = ib.fit_logs(log, **ROLES_OF_CLICKS)
    assert model.schema.roles() == ROLES_OF_CLICKS
    whole = ib.open_log(log, opened.schema, reward="good")
    assert whole.schema == opened.schema


@pytest.mark.parametrize(
    ("schema", "keywords", "message"),
    [
        (
            None,
            {"rewrad": "good"},
            "keyword arguments: 'rewrad' is not part of a schema",
        ),
        (
            {"minimise": True},
            {"minimise": False},
            "minimise is named twice: False by minimise, True by schema",
        ),
        (
            {"level_edges": [1.0]},
            {"level_edges": [2.0]},
            "level_edges is named twice: 2.0 by level_edges, 1.0",
        ),
        (None, {"reward": None}, "schema: reward must be a column name, got None"),
        (None, {"reward": 1}, "keyword arguments: reward must be a column name, got 1"),
        (
            {"reward": "age"},
            {"reward": "good"},
            "reward is named twice: 'good' by reward, 'age' by schema",
        ),
        (
            {"ignore": ["age"]},
            {"ignore": ["good"]},
            "ignore is named twice: good by ignore, age by schema",
        ),
        (
            Schema("good", ("age",)),
            {"time": None, "levels": 3},
            "levels needs columns whose roles are inferred",
        ),
        (Schema("good", ("age",)), {"reward": "age"}, "reward is named twice"),
    ],
)
def test_keywords_that_a_schema_contradicts_are_refused(schema, keywords, message):
    for read in (ib.open_log, ib.fit_logs):
        with pytest.raises(ib.InputError, match=message):
            read(clicks(), schema, **keywords)


def test_lists_of_numbers_in_rows_of_actions_are_features_of_the_actions():
    rng = np.random.default_rng(0)
    rounds = 300
    chosen = np.tile([1, 0, 0], rounds)
    vectors = pa.array(list(rng.normal(size=(3 * rounds, 2))), pa.list_(pa.float64()))
    table = pa.table(
        {
            "round_id": np.repeat(np.arange(rounds), 3),
            "chosen": chosen,
            "item": np.tile(["a", "b", "c"], rounds),
            "embedding": vectors,
            "click": chosen * rng.integers(2, size=3 * rounds),
        }
    )
    schema = ib.open_log(table).schema
    assert schema.features == ("item", "embedding")
    assert schema.one_row_per_action

"""RowFeatures: what columns become, the same from logs and when serving; collinear features are found and
explained.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariant_bandits import InputError, WindowedMoments, storage
from invariant_bandits.features.collinearity import collinear_features
from invariant_bandits.features.columns import Column
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.features.rows import RowFeatures, centre_rounds
from worlds import assert_same_moments

COLUMNS = (Column("price"), Column("country", ("DE", "FR")), Column("size", width=2))


def raw(n=6, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "price": rng.normal(5.0, 2.0, n),
        "country": rng.choice(["DE", "FR", "IT"], n),
        "size": rng.normal(size=(n, 2)),
    }


def test_numbers_stay_categories_become_indicators_and_products_multiply():
    columns = raw()
    mapped = RowFeatures(COLUMNS, ("price:country", "size[1]:price"))
    features = dict(zip(mapped.names, mapped.design(columns).T, strict=True))
    assert list(features)[:5] == [
        "price",
        "country=DE",
        "country=FR",
        "size[0]",
        "size[1]",
    ]
    german = columns["country"] == "DE"
    np.testing.assert_array_equal(features["country=DE"], german)
    np.testing.assert_array_equal(
        features["price:country=DE"], columns["price"] * german
    )
    np.testing.assert_array_equal(
        features["size[1]:price"], columns["size"][:, 1] * columns["price"]
    )


def test_an_unknown_category_is_all_zeros():
    columns = raw(50)
    mapped = RowFeatures(COLUMNS)
    italian = columns["country"] == "IT"
    assert not mapped.design(columns)[italian, 1:3].any()


def test_centring_leaves_only_differences_within_the_round():
    columns, counts = raw(), np.array([2, 1, 3])
    features = RowFeatures(COLUMNS, centre=True).design(columns, counts)
    plain = RowFeatures(COLUMNS).design(columns)
    for rows in (slice(0, 2), slice(2, 3), slice(3, 6)):
        np.testing.assert_allclose(features[rows].mean(axis=0), 0.0, atol=1e-15)
        np.testing.assert_allclose(
            np.diff(features[rows], axis=0), np.diff(plain[rows], axis=0), atol=1e-14
        )
    np.testing.assert_array_equal(centre_rounds(plain), centre_rounds(plain, [6]))


@given(st.integers(0, 1000), st.sampled_from(["none", "scale", "scale and shift"]))
def test_finishing_moments_or_rows_is_the_same(seed, standardise):
    columns = raw(80, seed)
    start = RowFeatures(COLUMNS, ("price:country",))
    expanded, rewards = start.encode(columns), np.arange(80.0)
    moments = WindowedMoments.from_arrays(expanded, rewards, windows=2)
    learned, *_ = start.learned(moments, FeatureOptions(standardise=standardise))
    direct = WindowedMoments.from_arrays(learned.design(columns), rewards, windows=2)
    assert_same_moments(learned.standardise_moments(moments), direct)
    if standardise != "none":
        np.testing.assert_allclose(learned.design(columns).std(axis=0), 1.0, rtol=1e-9)
    if standardise == "scale and shift":
        np.testing.assert_allclose(learned.design(columns).mean(axis=0), 0.0, atol=1e-9)


def test_a_stored_map_gives_the_same_bits():
    columns = raw(60)
    start = RowFeatures(COLUMNS, ("price:country",), centre=True)
    moments = WindowedMoments.from_arrays(
        start.encode(columns), np.zeros(60), windows=1
    )
    learned, *_ = start.learned(
        moments, FeatureOptions(standardise="scale", centre=True)
    )
    settings, arrays = storage.to_state(learned)
    again = storage.from_state(RowFeatures, json.loads(json.dumps(settings)), arrays)
    assert again.names == learned.names
    np.testing.assert_array_equal(again.design(columns), learned.design(columns))


def test_planted_combinations_are_found_with_their_coefficients():
    rng = np.random.default_rng(1)
    a, b, c = rng.normal([3.0, -50.0, 0.0], [1.0, 20.0, 1e-3], (500, 3)).T
    features = np.column_stack(
        [a, b, np.full(500, 7.0), 2.0 * a - 0.5 * b + 4.0, c, c + 1e-3 * a]
    )
    names = ["a", "b", "seven", "mix", "c", "free"]
    moments = WindowedMoments.from_arrays(features[:, :5], np.zeros(500), windows=4)
    seven, mix = collinear_features(moments, names[:5])
    assert (seven.name, seven.combination) == ("seven", {})
    assert mix.name == "mix"
    assert set(mix.combination) == {"a", "b"}
    np.testing.assert_allclose(
        [mix.combination["a"], mix.combination["b"]], [2.0, -0.5], rtol=1e-6
    )
    assert str(mix) == "mix = +2·a -0.5·b + a constant per window"
    assert str(seven) == "seven is constant within every window"
    whole = WindowedMoments.from_arrays(features, np.zeros(500), windows=4)
    assert [feature.name for feature in collinear_features(whole, names)] == [
        "seven",
        "mix",
        "free",
    ]
    nearly = WindowedMoments.from_arrays(
        np.column_stack([a, a + 1e-3 * b]), np.zeros(500), windows=4
    )
    assert collinear_features(nearly, ["a", "nearly"]) == []


def test_a_feature_that_varies_only_among_the_offered_is_left_out():
    rng = np.random.default_rng(2)
    offered = rng.normal(size=(300, 4, 2))
    offered[:, 0, 1] = 0.0
    moments = WindowedMoments.from_arrays(
        offered[:, 0], np.zeros(300), windows=2, offered=offered
    )
    assert [
        feature.name
        for feature in collinear_features(moments, ["free", "never chosen"])
    ] == ["never chosen"]


def test_all_categories_of_a_column_sum_to_a_constant_so_the_last_is_left_out():
    columns = raw(300)
    start = RowFeatures((Column("country", ("DE", "FR", "IT")),))
    moments = WindowedMoments.from_arrays(
        start.encode(columns), np.zeros(300), windows=2
    )
    learned, (last,), _ = start.learned(moments, FeatureOptions())
    assert learned.names == ("country=DE", "country=FR")
    np.testing.assert_allclose(
        [last.combination[name] for name in learned.names], -1.0, rtol=1e-9
    )


PLAIN = RowFeatures(COLUMNS)
BAD = {
    "no columns": ("one value per row", lambda: RowFeatures(()).design({})),
    "a product of an unknown column": ("'colour' in 'price:colour'", lambda: RowFeatures(COLUMNS, ("price:colour",))),
    "a product of one": ("must join columns by ':'", lambda: RowFeatures(COLUMNS, ("price",))),
    "a text of products": ("interactions must be a list", lambda: FeatureOptions(interactions="a:b")),
    "an unknown way": ("standardise must be one of", lambda: FeatureOptions(standardise="yes")),
    "a missing column": ("^columns: no value for country", lambda: PLAIN.design({"price": [1.0], "size": [[1, 2]]})),
    "words for numbers": ("column 'price' must be numbers", lambda: PLAIN.design(raw() | {"price": ["a"] * 6})),
    "other lengths": ("one value per row", lambda: PLAIN.design(raw() | {"price": [1.0]})),
    "another width": (r"'size' must have shape \(6, 2\)", lambda: PLAIN.design(raw() | {"size": np.ones((6, 3))})),
    "rounds of other rows": ("add up to the 6 rows", lambda: RowFeatures(COLUMNS, centre=True).design(raw(), [2, 3])),
    "nothing that varies": (
        "none is left",
        lambda: RowFeatures((Column("a"),)).learned(
            WindowedMoments.from_arrays(np.ones((9, 1)), np.zeros(9), windows=1), FeatureOptions()
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("message", "call"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_used_is_named(message, call):
    with pytest.raises(InputError, match=message):
        call()


def test_many_categories_at_once_are_those_one_by_one():
    column = Column("country", ("DE", "FR"), filler=(0.25, 0.75), marks_missing=True)
    words = np.array(["DE", "FR", "IT", None, "FR"] * 400, dtype=object)
    at_once = column.encode(words, len(words))
    np.testing.assert_array_equal(
        at_once[:5], [[1, 0, 0], [0, 1, 0], [0, 0, 0], [0.25, 0.75, 1], [0, 1, 0]]
    )
    one_by_one = np.vstack(
        [column.encode(part, len(part)) for part in np.split(words, 4)]
    )
    np.testing.assert_array_equal(at_once, one_by_one)
    mixed = np.array(["1", 1, 2.5, None, float("nan")] * 400, dtype=object)
    numbers = Column("kind", ("1", "2.5"), filler=(), marks_missing=True).encode(
        mixed, len(mixed)
    )
    np.testing.assert_array_equal(
        numbers[:5], [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    )

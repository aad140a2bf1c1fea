"""Feature maps of labelled arms: names, serving, growth, storing; and which coefficients arms share."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits import InputError, storage
from invariant_bandits.decomposition.arm_statistics import ArmStatistics
from invariant_bandits.features.arm_maps import OwnCoefficients, SharedSlopes
from invariant_bandits.features.catalogue import ArmTraits, matched_features
from invariant_bandits.features.columns import Column
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.features.sharing import (
    chosen_coding,
    most_different_slopes,
    slopes_differ,
)
from invariant_bandits.logs.log import open_log
from labelled_logs import labelled_log
from reading import read_moments, read_rounds

LOG = labelled_log(seed=3, rounds=1000)
CONTEXT = RowFeatures(
    (Column("age"), Column("country", ("DE", "FR"))),
    shift=np.array([40.0, 0.5, 0.5]),
    scale=np.array([10.0, 0.5, 0.5]),
)
TRAITS = ArmTraits(
    names=("price", "size"),
    values=np.array([[1.0, -1.0], [0.5, 0.0], [-1.5, 1.0]]),
    shift=np.zeros(2),
    scale=np.ones(2),
)
ABC = ("a", "b", "c")


def all_three():
    return *both(), SharedSlopes(CONTEXT, ABC, traits=TRAITS, own_slopes=1)


def both():
    own = OwnCoefficients(CONTEXT, ABC, traits=TRAITS)
    return own, SharedSlopes(CONTEXT, ABC, traits=TRAITS, crossed=2)


def rows_of(features, context, labels=None):
    """φ of some arms, or of all, in one context."""
    labels = features.labels if labels is None else labels
    columns = {name: [value] * len(labels) for name, value in context.items()}
    return features.design({**columns, features.arm: labels})


def test_rows_when_serving_are_those_of_the_log():
    features = read_moments(LOG.table()).feature_map
    batch = next(read_rounds(LOG.table(), features=features))
    at = 17
    context = {
        "age": LOG.contexts[at, 0],
        "hour": LOG.contexts[at, 1],
        "country": LOG.country[at],
    }
    offered = batch.offered_arms[: batch.offered_counts[: at + 1].sum()][
        -batch.offered_counts[at] :
    ]
    rows = rows_of(features, context, [features.labels[arm] for arm in offered])
    end = batch.offered_counts[: at + 1].sum()
    np.testing.assert_allclose(rows, batch.offered[end - len(rows) : end], atol=1e-12)
    assert rows_of(features, context).shape == (4, features.dim)


@pytest.mark.parametrize("features", all_three(), ids=["own", "shared", "partial"])
def test_every_feature_is_an_entry_of_the_context_times_a_number_of_the_arm(features):
    whole = np.column_stack([np.ones(5), np.random.default_rng(0).normal(size=(5, 3))])
    codes = np.array([0, 1, 2, 1, 0])
    gathered = (
        np.take_along_axis(whole, features.entries[codes], axis=1)
        * features.factors[codes]
    )
    np.testing.assert_array_equal(features.cross(whole, codes), gathered)
    assert features.dim == gathered.shape[1] == len(set(features.names))


def test_names_say_what_the_coordinates_are():
    own, shared = both()
    assert own.names[:5] == ("a", "a × age", "a × country=DE", "a × country=FR", "b")
    assert shared.names[:7] == (
        "a",
        "b",
        "c",
        "age",
        "country=DE",
        "country=FR",
        "price × age",
    )
    row = dict(
        zip(
            shared.names,
            rows_of(shared, {"age": 50.0, "country": "FR"}, ["c"])[0],
            strict=True,
        )
    )
    assert (
        row["c"],
        row["a"],
        row["age"],
        row["price × age"],
        row["size × country=FR"],
    ) == (
        1.0,
        0.0,
        1.0,
        -1.5,
        1.0,
    )


def test_what_is_wrong_when_serving_is_named():
    own, _ = both()
    with pytest.raises(InputError, match="arm 'd' is not known; the arms are a, b, c"):
        rows_of(own, {"age": 1.0, "country": "DE"}, ["d"])
    with pytest.raises(
        InputError, match=r"^columns: no value for country; needed: age, country"
    ):
        rows_of(own, {"age": 1.0})
    with pytest.raises(InputError, match="no value for arm; needed: arm"):
        own.design({"age": [1.0], "country": ["DE"]})


@pytest.mark.parametrize("features", all_three(), ids=["own", "shared", "partial"])
def test_features_survive_storing(features):
    again = storage.from_state(type(features), *storage.to_state(features))
    context = {"age": 31.0, "country": "DE"}
    np.testing.assert_array_equal(rows_of(again, context), rows_of(features, context))
    assert again.names == features.names


@pytest.mark.parametrize("features", all_three(), ids=["own", "shared", "partial"])
def test_a_new_arm_leaves_the_coordinates_of_the_others_as_they_were(features):
    grown = features.with_arm("d", {"price": 2.0, "size": 0.0})
    context = {"age": 31.0, "country": "DE"}
    old = [grown.names.index(name) for name in features.names]
    np.testing.assert_array_equal(
        rows_of(grown, context)[:3, old], rows_of(features, context)
    )
    assert grown.labels == ("a", "b", "c", "d")
    with pytest.raises(InputError, match="arm 'a' is there already"):
        features.with_arm("a")


def test_features_can_be_had_in_another_coding():
    codes = np.array([0, 1, 2, 1])
    whole = np.column_stack([np.ones(4), np.random.default_rng(0).normal(size=(4, 3))])
    for source in all_three():
        for other in all_three():
            again = other.recode(source.cross(whole, codes), source)
            np.testing.assert_array_equal(again, other.cross(whole, codes))


def test_which_columns_cannot_change_the_choice():
    own, shared, partial = all_three()
    assert own.silent_columns == ()
    assert (
        shared.silent_columns == ()
    )  # products with the catalogue differ between arms
    assert partial.silent_columns == ("country=DE", "country=FR")
    assert partial.with_own_slopes().names == own.names
    one = SharedSlopes(CONTEXT, ("a",))
    assert one.silent_columns == ()
    with pytest.raises(InputError, match="own_slopes must be from 0 to 3, got 4"):
        SharedSlopes(CONTEXT, ("a", "b"), own_slopes=4)


def test_slopes_are_shared_where_the_log_cannot_estimate_so_many():
    assert chosen_coding("auto", 5, 7, 50_000)[:2] == ("own", 7)
    assert chosen_coding("auto", 50, 12, 1_000_000)[:2] == ("own", 12)
    assert chosen_coding("auto", 50, 21, 2_100, differ=False)[:2] == ("own", 21)
    assert chosen_coding("auto", 50, 31, 1_000_000) == (
        "partial",
        29,
        "50 arms × 31 coefficients are 1,550, more than 1,500; own slopes for the 28 of 30 that differ most",
    )
    assert chosen_coding("auto", 2, 1501, 1_000_000)[0] == "shared"
    assert chosen_coding("auto", 5, 7, 300)[0] == "own"
    assert chosen_coding("auto", 5, 7, 300, differ=False)[0] == "shared"
    assert chosen_coding("auto", 5, 7, 350, differ=False)[0] == "own"
    assert chosen_coding("auto", 5, 7, 60)[:2] == ("partial", 6)
    assert chosen_coding("auto", 5, 7, 10)[0] == "shared"
    assert chosen_coding("auto", 20, 10, 100_000, crossed=2)[0] == "shared"
    assert chosen_coding("own", 50, 7, 300) == ("own", 7, "as asked for")


@pytest.mark.parametrize("own_slopes", [1, 0])
def test_statistics_of_rounds_and_of_moments_are_the_same(own_slopes):
    features = SharedSlopes(CONTEXT, ABC, own_slopes=own_slopes)
    rng = np.random.default_rng(1)
    whole = np.column_stack([np.ones(900), rng.normal(size=(900, 3))])
    rows = features.cross(whole, rng.integers(3, size=900))
    rewards, window = rng.normal(size=900), np.arange(900) // 300
    of_rounds = ArmStatistics.from_features(features, rows, rewards, window)
    of_moments = ArmStatistics.from_moments(
        features, ib.WindowedMoments.from_arrays(rows, rewards, windows=3)
    )
    for name in ("information", "scores", "rounds", "context_square"):
        np.testing.assert_allclose(
            getattr(of_moments, name), getattr(of_rounds, name), atol=1e-9
        )


def contexts_of(seed, rounds=400, arms=5, columns=10, difference=0.0):
    """Moments of contexts per window and arm; the first slope differs between arms by `difference`."""
    rng = np.random.default_rng(seed)
    z = np.column_stack([np.ones(rounds), rng.normal(size=(rounds, columns))])
    arm = rng.integers(arms, size=rounds)
    rewards = (
        z @ rng.normal(size=columns + 1)
        + difference * (arm % 2) * z[:, 1]
        + rng.normal(size=rounds)
    )
    window = np.arange(rounds) * 4 // rounds * arms + arm
    return ib.WindowedMoments.empty(columns + 1, 4 * arms).update(
        z, rewards, window=window
    )


def test_equal_slopes_are_rarely_said_to_differ_and_different_ones_are():
    """The level is about .004; more than 3 false ones in 200 logs have a probability of .01."""
    columns, none = np.arange(1, 11), np.zeros((5, 0))
    assert (
        sum(slopes_differ(contexts_of(seed), columns, none) for seed in range(200)) <= 3
    )
    assert all(
        slopes_differ(contexts_of(seed, difference=2.0), columns, none)
        for seed in range(20)
    )


def test_the_slopes_that_differ_most_come_first():
    cells = contexts_of(0, difference=2.0)
    assert most_different_slopes(cells, 5, np.arange(10, 0, -1), 3)[0] == 9
    assert len(most_different_slopes(cells, 5, np.arange(1, 11), 99)) == 10


def test_an_unknown_arm_model_is_refused():
    with pytest.raises(
        InputError, match="arm_model must be one of 'auto', 'own', 'shared'"
    ):
        ib.FeatureOptions(arm_model="both")


def test_a_context_feature_per_arm_belongs_to_its_arm_only():
    """As user-item affinities do: one column per item, of which only the item's own matters for it."""
    rng = np.random.default_rng(5)
    affinity = rng.normal(3.0, 2.0, size=(1000, 4))
    columns = {f"item_affinity_{arm}": affinity[:, arm] for arm in range(4)}
    table = pa.table(
        {
            "item_id": LOG.arms,
            "click": LOG.rewards,
            "age": LOG.contexts[:, 0],
            **columns,
        }
    )
    log = open_log(table)
    read = read_moments(log, windows=1)
    assert read.feature_map.context_names == ("1", "age", "item_affinity")
    scaled = (affinity - affinity.mean()) / affinity.std()
    own = np.column_stack(
        [
            np.ones(1000),
            (LOG.contexts[:, 0] - LOG.contexts[:, 0].mean()) / LOG.contexts[:, 0].std(),
            scaled[:, 0],
        ]
    )
    rows = LOG.arms == 0
    np.testing.assert_allclose(
        read.of_arms.gram[0, 0], own[rows].T @ own[rows], atol=1e-8
    )
    batch = next(read_rounds(log, features=read.feature_map))
    np.testing.assert_allclose(batch.features[rows, :3], own[rows], atol=1e-9)


def test_columns_that_only_end_in_the_labels_belong_to_nobody():
    assert matched_features(["x_0", "x_1"], ["0", "1"], "arm") == {}
    assert matched_features(["arm_x_0", "arm_x_1", "arm_x_2"], ["0", "1"], "arm") != {}
    assert matched_features(["arm_x_0"], ["0", "1"], "arm") == {}


def test_statistics_come_from_features_whose_catalogue_has_no_products():
    """Few rounds: slopes are shared, and the catalogue says something about arms, nothing about slopes."""
    features = SharedSlopes(CONTEXT, ABC, traits=TRAITS)
    codes = np.arange(60) % 3
    z = np.column_stack([np.ones(60), np.random.default_rng(0).normal(size=(60, 3))])
    statistics = ArmStatistics.from_features(
        features, features.cross(z, codes), (codes == 1) * 1.0, 2
    )
    np.testing.assert_array_equal(statistics.rounds.sum(axis=0), [20, 20, 20])
    assert statistics.layout.dim == features.dim == 6

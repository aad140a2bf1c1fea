"""A model serves what the log was fitted with: same features, same decisions, from one checked file."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.features.columns import Column
from invariant_bandits.features.maps import FeatureOptions
from invariant_bandits.features.rows import RowFeatures
from invariant_bandits.logs.pruning import prune
from invariant_bandits.policies.registry import POLICIES
from invariant_bandits.reports import model_page
from reading import read_moments

NEED_MORE = ("disjoint-linucb",)  # how many actions there are


def shop_log(rounds=4000, seed=0):
    """Rewards follow price for good; what a country is worth changes from quarter to quarter; "age" is
    never used.
    """
    rng = np.random.default_rng(seed)
    price, country = (
        rng.gamma(3.0, size=rounds),
        rng.choice(["DE", "FR", "IT"], size=rounds),
    )
    worth = np.repeat(rng.normal(size=(8, 3)), rounds // 8, axis=0)[
        np.arange(rounds), np.searchsorted(_COUNTRIES, country)
    ]
    reward = 10.0 + 2.0 * price + worth + rng.normal(size=rounds)
    return pa.table(
        {
            "reward": reward,
            "price": price,
            "price_in_cents": 100 * price,
            "country": country,
        }
    )


_COUNTRIES = ["DE", "FR", "IT"]
NO_ACTION = {"arm": None}
OFFERED = {
    "price": [1.0, 3.0, 2.0],
    "price_in_cents": [100.0, 300.0, 200.0],
    "country": ["FR", "DE", "IT"],
}


@pytest.fixture(scope="module")
def model():
    return ib.fit_logs(
        shop_log(), NO_ACTION, features=FeatureOptions(standardise="scale and shift")
    )


def test_it_says_what_was_left_out_and_finds_what_was_planted(model):
    assert model.names == ("price", "country=DE", "country=FR")
    assert [item.name for item in model.dropped] == ["price_in_cents", "country=IT"]
    stable = dict(zip(model.names, model.decomposition.feature_stability_, strict=True))
    assert stable["price"] > 0.95
    assert max(stable["country=DE"], stable["country=FR"]) < 0.05


def test_raw_columns_become_the_features_of_the_log(model):
    features = model.features(OFFERED)
    prices = np.asarray(shop_log()["price"])
    np.testing.assert_allclose(
        features[:, 0],
        (np.array([1.0, 3.0, 2.0]) - prices.mean()) / prices.std(ddof=0),
        rtol=1e-3,
    )
    assert model.select(OFFERED) == model.policy.select(features)
    assert model.select(
        {name: values[::-1] for name, values in OFFERED.items()}
    ) == 2 - model.select(OFFERED)


@pytest.mark.filterwarnings("ignore:column 'country'")
@pytest.mark.parametrize(
    "name", [entry.name for entry in POLICIES if entry.name not in NEED_MORE]
)
def test_a_loaded_model_decides_and_learns_like_the_saved_one(name, tmp_path):
    model = ib.fit_logs(
        shop_log(), NO_ACTION, policy=name, features=FeatureOptions(standardise="scale")
    )
    model.save(tmp_path / "model")
    again = ib.Model.load(tmp_path / "model")
    rng = np.random.default_rng(1)
    for _ in range(50):
        price = rng.gamma(3.0, size=4)
        offered = {
            "price": price,
            "price_in_cents": 100 * price,
            "country": rng.choice(["DE", "FR", "XX"], size=4),
        }
        action = model.select(offered)
        assert again.select(offered) == action
        reward = float(10.0 + 2.0 * price[action] + rng.normal())
        model.update(offered, action, reward)
        again.update(offered, action, reward)
    scores, same = model.scores(OFFERED), again.scores(OFFERED)
    assert np.array_equal(scores.mean, same.mean)
    assert np.array_equal(scores.width, same.width)
    assert again.quality == model.quality
    assert again.schema == model.schema
    assert again.dropped == model.dropped
    assert again.moments == model.moments


@pytest.mark.parametrize("name", ["auto-isd", "isd-linucb", "linucb"])
def test_expected_rewards_are_in_the_units_of_the_log(name):
    """Two more of price are worth 4; price 3 is worth 16, and the country at most 2 more or less."""
    model = ib.fit_logs(shop_log(), NO_ACTION, policy=name)
    rng = np.random.default_rng(2)
    for price in rng.gamma(3.0, size=300):
        offered = {"price": [price], "price_in_cents": [100 * price], "country": ["DE"]}
        model.update(offered, 0, 10.0 + 2.0 * price + rng.normal())
    low, high = model.scores(
        {"price": [2.0, 4.0], "price_in_cents": [200.0, 400.0], "country": ["DE", "DE"]}
    ).mean
    assert high - low == pytest.approx(4.0, abs=0.3)
    assert (low + high) / 2 == pytest.approx(16.0, abs=2.0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("auto-isd", ib.AutoISD),
        ("isd-linucb", ib.ISDLinUCB),
        ("isd-lints", ib.ISDLinTS),
    ],
)
def test_policies_are_those_that_the_moments_give(name, kind):
    options = {"delta": 0.05} | ({} if name == "auto-isd" else {"exploration": 0.3})
    model = ib.fit_logs(shop_log(), NO_ACTION, policy=name, **options)
    direct = kind.from_history(model.moments, **options)
    offered = np.random.default_rng(6).normal(size=(50, 5, 3))
    assert np.array_equal(
        model.policy.select_many(offered), direct.select_many(offered)
    )
    assert np.array_equal(
        model.policy.scores(offered[0]).width, direct.scores(offered[0]).width
    )


def test_learning_from_moments_is_learning_every_row():
    rng = np.random.default_rng(3)
    offered, rewards = (
        rng.normal([1.0, -2.0, 0.0], size=(600, 4, 3)),
        rng.normal(5.0, size=600),
    )
    feedback = ib.evaluation.Feedback.from_arrays(
        offered, rng.integers(0, 4, size=600), rewards
    )
    by_rows = ib.LinUCB.from_past(
        ib.Past(logs=feedback.shifted(5.0), noise_scale=2.0), warm=True
    )
    moments = ib.Past(moments=feedback.moments(8), baseline=5.0, noise_scale=2.0)
    by_moments = ib.LinUCB.from_past(moments, warm=True)
    choices = rng.normal(size=(5, 3))
    for name in ("mean", "width"):
        np.testing.assert_allclose(
            getattr(by_moments.scores(choices), name),
            getattr(by_rows.scores(choices), name),
            rtol=1e-10,
        )
    assert by_moments.rounds == by_rows.rounds == 600


ABCD = RowFeatures((Column("a"), Column("b"), Column("c"), Column("d")))


def test_windows_with_hardly_any_rounds_join_and_what_no_window_tells_is_left_out():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(2022, 4))
    features[500:1000, 1] = 7.0  # one window is silent about b
    features[:, 3] = np.arange(2022) >= 1000  # no window tells anything about d
    edges = [0, 500, 1000, 1003, 1500, 2000, 2013, 2022]
    moments = ib.WindowedMoments.from_arrays(
        features, features[:, 0], times=np.arange(2022), edges=edges
    )
    usable = prune(moments, ABCD)
    assert usable.moments.counts.tolist() == [500, 500, 500, 500, 22]
    assert usable.moments.edges.tolist() == [0, 500, 1000, 1500, 2000, 2022]
    assert usable.feature_map.names == ("a", "b", "c")
    assert [str(item) for item in usable.dropped] == [
        "d is constant within every window"
    ]
    assert usable.notes == (
        "2 of 7 windows had fewer than 10 rounds and were joined to a neighbour: 5 windows remain",
    )
    fit = ib.InvariantSubspaceDecomposition(feature_names=usable.feature_map.names).fit(
        usable.moments
    )
    assert (
        "window 2 does not tell the coefficients of b; the others do" in fit.findings_
    )


def test_windows_join_as_long_as_most_rounds_are_in_short_ones():
    """Four features ask for 15 rounds: windows of 12 are kept beside long ones, not beside each other."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(240, 4))

    def kept(edges):
        times = {"times": np.arange(240), "edges": edges}
        moments = ib.WindowedMoments.from_arrays(features, features[:, 0], **times)
        return prune(moments, ABCD).moments.counts.tolist()

    assert kept([0, 100, 112, 228, 240]) == [100, 12, 116, 12]
    assert kept(np.arange(0, 252, 12)) == [24] * 10


def test_a_feature_that_is_constant_in_the_last_short_week_stays_in_the_model():
    rng = np.random.default_rng(8)
    price, promoted = rng.normal(size=4300), rng.normal(size=4300)
    promoted[4000:] = 0.0
    day = np.minimum(np.arange(4300) // 100, 40)
    reward = price + np.where(day < 20, 1.0, 3.0) * promoted + rng.normal(size=4300)
    table = pa.table(
        {"price": price, "promoted": promoted, "reward": reward, "day": day}
    )
    model = ib.fit_logs(table, {"time": "day"}, edges=[0, 10, 20, 30, 40, 41])
    assert model.names == ("price", "promoted")
    assert model.moments.counts.tolist() == [1000, 1000, 1000, 1000, 300]
    assert (
        "window 5 does not tell the coefficients of promoted; the others do"
        in model.decomposition.findings_
    )
    assert model.decomposition.split_.residual_dim == 1
    assert model.select({"price": [0.0, 0.0], "promoted": [1.0, -1.0]}) == 0


def test_labels_of_actions_may_be_features():
    """Action "b" is right for the old, "a" for the young: without the label the features of both are the
    same.
    """
    rng = np.random.default_rng(7)
    age, action = rng.normal(size=2000), rng.choice(["a", "b"], size=2000)
    reward = np.where(action == "b", age, -age) + rng.normal(size=2000)
    table = pa.table({"age": age, "action": action, "reward": reward})
    told = {"action": None, "categorical": ["action"], "features": ["age", "action"]}
    model = ib.fit_logs(
        table, told, features=FeatureOptions(interactions=("age:action",))
    )
    assert model.notes == ()
    assert [
        model.select({"age": [years, years], "action": ["a", "b"]})
        for years in (-2.0, 2.0)
    ] == [0, 1]


def test_many_tiny_windows_do_not_make_features_look_collinear():
    table = shop_log(64)
    model = ib.fit_logs(table, NO_ACTION, windows=60)
    assert model.names == ("price", "country=DE", "country=FR")
    assert model.moments.counts.min() >= 15


def test_too_little_log_and_unknown_policies_are_refused():
    with pytest.raises(ib.InputError, match="at least 2 with 18 rounds each"):
        ib.fit_logs(shop_log(16), NO_ACTION)
    with pytest.raises(ib.InputError, match=r"policy must be one of .*auto-isd"):
        ib.fit_logs(shop_log(), NO_ACTION, policy="best")


def test_bad_input_when_serving_is_named_and_changes_nothing(model):
    before = model.scores(OFFERED).mean
    with pytest.raises(
        ib.InputError, match=r"^context: no value for country; needed: "
    ):
        model.select({"price": [1.0], "price_in_cents": [1.0]})
    for action in (3, -1, True, 0.5):
        with pytest.raises(ib.InputError, match="action must be"):
            model.update(OFFERED, action, 1.0)
    for reward in (float("nan"), "much"):
        with pytest.raises(ib.InputError, match="reward"):
            model.update(OFFERED, 0, reward)
    assert np.array_equal(model.scores(OFFERED).mean, before)


def test_damaged_and_foreign_files_are_refused(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    whole = path.read_bytes()
    for position in np.random.default_rng(5).integers(0, len(whole), size=20):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(ib.FileError, match="model"):
            ib.Model.load(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(ib.FileError):
        ib.Model.load(path)
    ib.save(model.policy, path)
    with pytest.raises(ib.FileError, match="holds 'policy', not 'model'"):
        ib.Model.load(path)


def test_the_page_says_how_the_policy_will_explore():
    x = np.random.default_rng(0).normal(size=(600, 2))
    table = pa.table({"reward": x[:, 0], "x0": x[:, 0], "x1": x[:, 1]})
    model = ib.fit_logs(table, horizon=200)
    assert model.policy.horizon == 200
    assert "only once the logs are doubted" in model_page.report(model)
    spending = ib.fit_logs(table, policy="auto-isd,caution=0.01")
    assert "at most 1 % of the believed gain" in model_page.report(spending)
    with pytest.raises(ib.InputError, match="'auto-isd' has no option 'exploration'"):
        ib.fit_logs(table, exploration=0.4)


def test_many_rounds_of_any_sizes_are_decided_like_one_after_another(model):
    rng = np.random.default_rng(4)
    rounds = []
    for size in rng.integers(1, 5, size=40):
        price = rng.gamma(3.0, size=size)
        rounds.append(
            {
                "price": price,
                "price_in_cents": 100 * price,
                "country": rng.choice(_COUNTRIES, size=size),
            }
        )
    assert model.select_many(rounds).tolist() == [
        model.select(offered) for offered in rounds
    ]
    with pytest.raises(ib.InputError, match="rounds is empty"):
        model.select_many([])


def test_a_randomised_model_tells_its_propensities_and_keeps_its_intercept():
    log = shop_log()
    model = ib.fit_logs(log, NO_ACTION, policy="randomised-auto-isd")
    plain = ib.fit_logs(log, NO_ACTION)
    chances = model.propensities(OFFERED)
    np.testing.assert_allclose(sorted(chances), [0.05 / 3, 0.05 / 3, 0.95 + 0.05 / 3])
    assert chances.argmax() == plain.select(OFFERED)
    assert model.baseline == plain.baseline == 0.0
    assert np.array_equal(model.scores(OFFERED).mean, plain.scores(OFFERED).mean)
    by_gap = ib.fit_logs(
        log,
        NO_ACTION,
        policy="randomised-inverse-gap-linucb,sharpness=20",
        exploration=0.3,
    )
    assert (by_gap.policy.policy.exploration, by_gap.policy.sharpness) == (0.3, 20.0)
    assert by_gap.propensities(OFFERED).sum() == pytest.approx(1.0)


def test_features_may_be_names_of_columns():
    model = ib.fit_logs(shop_log(), NO_ACTION, features=["price"])
    assert model.names == ("price",)
    assert (
        ib.fit_logs(
            shop_log(), {"reward": "reward"}, features=["price", "count*"]
        ).names[0]
        == "price"
    )
    assert ib.fit_logs(shop_log(), ib.Schema("reward"), features=["price"]).names == (
        "price",
    )
    assert read_moments(shop_log(), features=["pri*"]).schema.features == (
        "price",
        "price_in_cents",
    )
    with pytest.raises(
        ib.InputError,
        match="features is named twice: price by features, country by schema",
    ):
        ib.fit_logs(shop_log(), {"features": ["country"]}, features=["price"])
    with pytest.raises(ib.InputError, match="list of column names, got 'price'"):
        ib.fit_logs(shop_log(), NO_ACTION, features="price")
    with pytest.raises(ib.InputError, match="match no column"):
        ib.fit_logs(shop_log(), NO_ACTION, features=["temp"])

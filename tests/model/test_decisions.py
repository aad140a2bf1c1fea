"""Decisions and their rewards: in any order, late, twice, never, across a crash; forms in which a round
is offered.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import invariant_bandits as ib
from invariant_bandits.features.serving import offered_columns


def shop_log(rounds=2000, seed=0):
    rng = np.random.default_rng(seed)
    price, hour = rng.gamma(3.0, size=rounds), rng.uniform(0, 24, size=rounds)
    reward = 2.0 * price + 0.1 * hour + rng.normal(size=rounds)
    return pa.table({"reward": reward, "price": price, "hour": hour})


@pytest.fixture
def model():
    return ib.fit_logs(shop_log())


def offers(rng, n=4):
    return [{"price": float(item)} for item in rng.gamma(3.0, size=n)]


def test_rewards_that_come_late_and_in_any_order_teach_the_same_as_updates_in_that_order(
    model,
):
    rng = np.random.default_rng(1)
    twin = ib.fit_logs(shop_log())
    contexts, made = [], []
    for _ in range(30):
        context, arms = {"hour": float(rng.uniform(0, 24))}, offers(rng)
        made.append(model.decide(context, arms))
        contexts.append((context, arms))
        assert made[-1].action == twin.select(
            {**context, "price": [arm["price"] for arm in arms]}
        )
    for index in rng.permutation(30):
        reward = float(rng.normal())
        context, arms = contexts[index]
        assert model.learn(made[index].id if index % 2 else made[index], reward)
        twin.update(
            {**context, "price": [arm["price"] for arm in arms]},
            made[index].action,
            reward,
        )
    np.testing.assert_array_equal(
        model.policy.arrays()["means"], twin.policy.arrays()["means"]
    )
    assert not model.ledger.open


def test_the_same_reward_again_changes_nothing_and_another_is_refused(model):
    decision = model.decide({"hour": 9.0}, [{"price": 1.0}, {"price": 2.0}])
    assert model.learn(decision, 1.5)
    means = model.policy.arrays()["means"].copy()
    assert not model.learn(decision.id, 1.5)
    with pytest.raises(
        ib.InputError, match=r"has the reward 1\.5 already, which 2 contradicts"
    ):
        model.learn(decision, 2.0)
    with pytest.raises(ib.InputError, match="'nobody' is not known"):
        model.learn("nobody", 1.0)
    np.testing.assert_array_equal(means, model.policy.arrays()["means"])


def test_one_bad_pair_of_many_and_nothing_is_learned(model):
    one, two = (
        model.decide({"hour": 9.0}, [{"price": 1.0}, {"price": 2.0}]) for _ in range(2)
    )
    for bad, words in (
        ([(one, 1.0), ("nobody", 1.0)], "not known"),
        ([(one, 1.0), (two, float("nan"))], "reward"),
        ([(one, 1.0), (one, 2.0)], "two rewards"),
        ([(one, 1.0), 7], "pair"),
    ):
        with pytest.raises(ib.InputError, match=words):
            model.learn_many(bad)
        assert set(model.ledger.open) == {one.id, two.id}
        assert model.policy.rounds == 0
    assert model.learn_many([(one, 1.0), (two.id, 0.5), (one, 1.0)]) == 2


def test_decisions_that_wait_survive_a_file(model, tmp_path):
    decision = model.decide(
        {"hour": np.float64(9.0)}, pd.DataFrame({"price": [1.0, 2.0]}), id="mine"
    )
    other = model.decide({"hour": 9.0}, [{"price": 3.0}])
    model.learn(other, 0.25)
    model.save(tmp_path / "model")
    again = ib.Model.load(tmp_path / "model")
    assert again.ledger == model.ledger
    assert again.identity == model.identity == decision.version
    assert again.decide(id="mine") == decision
    for item in (model, again):
        assert item.learn("mine", 2.5)
    np.testing.assert_array_equal(
        model.policy.arrays()["means"], again.policy.arrays()["means"]
    )
    with pytest.raises(ib.InputError, match="decided and rewarded before"):
        again.decide({"hour": 1.0}, [{"price": 1.0}], id="mine")


def test_too_many_that_wait_are_forgotten_and_said(model):
    model.ledger.most = 3
    made = [model.decide({"hour": 9.0}, [{"price": 1.0}]) for _ in range(5)]
    assert list(model.ledger.open) == [decision.id for decision in made[2:]]
    with pytest.raises(ib.InputError, match="2 decisions were forgotten"):
        model.learn(made[0], 1.0)


def test_a_policy_that_randomises_draws_for_every_decision_anew():
    """Frequencies of 2,000 draws with no reward in between; four standard errors: one false alarm in 10^4
    per arm.
    """
    model = ib.fit_logs(shop_log(), policy="epsilon-greedy")
    made = [
        model.decide({"hour": 9.0}, [{"price": value} for value in (1.0, 2.0, 3.0)])
        for _ in range(2000)
    ]
    counts = np.bincount([decision.action for decision in made], minlength=3) / 2000
    chances = model.policy.propensities(
        model.features({"hour": 9.0, "price": [1.0, 2.0, 3.0]})
    )
    assert (
        np.abs(counts - chances) < 4 * np.sqrt(chances * (1 - chances) / 2000)
    ).all()
    assert all(
        decision.propensity == pytest.approx(chances[decision.action])
        for decision in made
    )
    draws = np.array([decision.action for decision in made])
    assert len(set(draws[:50])) > 1


def test_a_round_is_offered_in_any_common_form(model):
    expected = model.features({"hour": [9.0, 9.0], "price": [1.0, 2.0]})
    rows = [{"price": 1.0}, {"price": 2.0}]
    forms = [
        ({"hour": 9.0}, rows),
        ({"hour": 9.0, "price": [1.0, 2.0]}, None),
        (None, [{"price": 1.0, "hour": 9.0}, {"price": 2.0, "hour": 9.0}]),
        ({"hour": 9.0}, pd.DataFrame(rows)),
        ({"hour": 9.0}, pl.DataFrame(rows)),
        ({"hour": 9.0}, pa.Table.from_pylist(rows)),
        ({"hour": np.array(9.0), "price": np.array([1.0, 2.0])}, None),
    ]
    for context, arms in forms:
        np.testing.assert_array_equal(
            model.feature_map.design(offered_columns(context, arms)), expected
        )
        assert model.decide(context, arms).action == model.policy.select(expected)
    assert model.select({"hour": 9.0, "price": [1.0, 2.0]}) == model.policy.select(
        expected
    )
    assert model.select(
        pd.DataFrame({"hour": 9.0, "price": [1.0, 2.0]})
    ) == model.policy.select(expected)


@pytest.mark.parametrize(
    ("context", "arms", "words"),
    [
        ({"hour": 9.0}, [{"price": 1.0}, {"cost": 2.0}], "row 0 lacks cost"),
        ({"hour": [9.0, 8.0], "price": [1.0, 2.0, 3.0]}, None, "one value per action"),
        ({"hour": 9.0}, 7, "must be a mapping of columns"),
        ({"hour": 9.0}, [7], "must be a mapping of columns"),
        (None, None, "nothing is offered"),
        ({"hour": 9.0, "price": []}, None, "nothing is offered"),
        ({"hour": 9.0}, None, "^context: no value for price; needed: .*price"),
    ],
)
def test_what_cannot_be_a_round_is_named_and_nothing_is_remembered(
    model, context, arms, words
):
    with pytest.raises(ib.InputError, match=words):
        model.decide(context, arms)
    assert not model.ledger.open
    assert model.ledger.made == 0


def test_vectors_are_one_value():
    columns = offered_columns(
        {"v": [1.0, 2.0], "price": [1.0, 2.0, 3.0]}, vectors=["v"]
    )
    assert columns["v"] == [[1.0, 2.0]] * 3


def test_a_model_explains_itself_in_the_names_of_columns(model):
    assert "price" in str(model.explain()) or "hour" in str(model.explain().names)
    assert "price" in str(ib.fit_logs(shop_log(), policy="linucb").explain())

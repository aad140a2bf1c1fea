"""Categories with many levels: their effects on every arm are recovered, or the column is left out."""

import numpy as np
import pyarrow as pa
import pytest

import invariant_bandits as ib
from reading import read_feedback

LEVELS, ARMS, ROUNDS = 300, 4, 12_000


def city_log(seed, spread, clicks=False, levels=LEVELS):
    """A log of ARMS arms with a column of cities, and the effects of these (levels, ARMS)."""
    rng = np.random.default_rng(seed)
    effects = spread * rng.normal(size=(levels, ARMS))
    cities = rng.integers(levels, size=ROUNDS)
    arms = rng.integers(ARMS, size=ROUNDS)
    linear = 0.2 * arms + effects[cities, arms]
    rewards = linear + rng.normal(size=ROUNDS)
    if clicks:
        rewards = (rng.random(ROUNDS) < 1.0 / (1.0 + np.exp(-linear))).astype(float)
    log = {
        "city": [f"city{code:03d}" for code in cities],
        "age": rng.normal(size=ROUNDS),
        "user": [f"u{code}" for code in rng.integers(ROUNDS, size=ROUNDS)],
        "arm": [f"arm{arm}" for arm in arms],
        "reward": rewards,
        "time": np.arange(ROUNDS),
    }
    return pa.table(log), effects


ROLES = {"arm": "arm", "reward": "reward", "time": "time"}


@pytest.mark.parametrize("clicks", [False, True])
def test_effects_of_many_categories_reach_the_choice(clicks):
    log, effects = city_log(1, 1.0, clicks)
    model = ib.fit_logs(log, **ROLES)
    assert model.feature_map.context_names == ("1", "age", "city of arm")
    assert any("300 categories of city" in note for note in model.notes)
    worth = effects + 0.2 * np.arange(ARMS)
    chosen = [
        model.arms.index(model.decide({"age": 0.0, "city": f"city{code:03d}"}).action)
        for code in range(LEVELS)
    ]
    gain = worth[np.arange(LEVELS), chosen] - worth.mean(axis=1)
    best = worth.max(axis=1) - worth.mean(axis=1)
    # Ten rounds of noise variance 1 (clicks: 4) for each effect of variance 1 leave .95 and .85 of it.
    assert gain.mean() > (0.75 if clicks else 0.9) * best.mean()


def test_a_column_whose_categories_say_nothing_is_left_out():
    log, _ = city_log(2, 0.0)
    model = ib.fit_logs(log, **ROLES)
    assert model.feature_map.context_names == ("1", "age")
    assert "city: no effect of its 300 categories" in str(model.dropped[0])


def test_identifiers_are_no_categories():
    log, _ = city_log(3, 1.0)
    schema = ib.open_log(log, **ROLES).schema
    assert "city" in schema.features
    assert "user" not in schema.features


def test_what_is_judged_on_the_same_log_has_not_seen_the_effects():
    log, _ = city_log(4, 1.0)
    read = read_feedback(log, ROLES)
    assert "city" not in {column.name for column in read.feature_map.columns}
    assert any("only a fit learns" in note for note in read.notes)


def test_new_rounds_find_the_effects_where_they_were_and_a_new_arm_has_none():
    """Decisions are given drawn effects: new rounds then have the coefficient that the logs had."""
    log, _ = city_log(5, 0.5)
    model = ib.fit_logs(log.slice(0, 9000), **ROLES)
    model = ib.Model.from_bytes(model.to_bytes(), "again")
    update = model.update_from(log.slice(9000))
    assert not update.alarm
    effects = [move for move in update.moves if move.name.endswith("city of arm")]
    assert len(effects) == ARMS
    assert max(abs(move.z) for move in effects) < 4.0
    model.add_arm("new")
    scores = [
        model.decide({"age": 0.0, "city": city}).scores
        for city in ("city001", "city002")
    ]
    assert scores[0]["new"] == pytest.approx(scores[1]["new"])
    assert scores[0]["arm1"] != pytest.approx(scores[1]["arm1"], abs=1e-6)
    with pytest.warns(UserWarning, match="none of the 300 categories"):
        unknown = model.decide({"age": 0.0, "city": "unknown"}).scores
    # A city of which nothing is known has the mean of the arm, 0.2 for arm1.
    assert unknown["arm1"] == pytest.approx(0.2, abs=0.15)


def test_many_categories_keep_indicators_if_that_is_asked_for():
    log, _ = city_log(6, 1.0, levels=110)
    options = ib.FeatureOptions(max_categories=110)
    model = ib.fit_logs(log, features=options, **ROLES)
    assert "city=city001" in model.feature_map.context_names
